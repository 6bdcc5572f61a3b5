"""Disruption budgets as a rule of the plan: who stops or moves, alone and together, and what the judge says.

Servers of 8 GPUs, one NIC each, unless said.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from bounding import dishonest
from building import build, gang, mask, role
from comparing import DAY, differences
from effort import first_fast
from outcomes import Outcome, planned
from plan_documents import Doc, cluster, decided, dgx, made, node, sealed, standing, stopped
from plan_documents import gang as document
from plan_documents import role as document_role
from tiny_busy import busy

from models.documents.cluster import DisruptionBudget
from models.instance import disruption_budgets
from models.instance.gang import Gang
from models.instance.instance import Instance
from models.instance.solution import Solution
from models.program.base_state import base_decisions
from models.results.plan import compose
from models.verify.check import check
from planner.errors import InputError
from planner.read.inputs import read
from planner.search.budget import Budget
from planner.search.explain.reasons import with_reasons
from planner.search.ledger import Ledger
from planner.search.solve import solve
from planner.show.reason_words import words

ALL, LOW, HIGH = mask(*range(8)), mask(*range(4)), mask(*range(4, 8))


def guarded(one: Gang, *budgets: str, pods: int | None = None) -> Gang:
    """The gang with these budgets over its first pods, or over all."""
    own = [
        replace(pod, budgets=budgets) if pods is None or i < pods else pod
        for i, pod in enumerate(one.pods)
    ]
    return replace(one, pods=tuple(own))


def allowing(instance: Instance, **allowed: int) -> Instance:
    """The instance with these budgets."""
    found = tuple(DisruptionBudget("default", name, n) for name, n in sorted(allowed.items()))
    return replace(instance, cluster=replace(instance.cluster, budgets=found))


def job(name: str, first: int, *, pods: int = 4, **more: bool) -> Gang:
    """A running gang of whole servers, from server ``first`` on; preemptible unless it moves."""
    stands = [(0, i, first + i, ALL) for i in range(pods)]
    more = more or {"preemptible": True}
    return gang(name, pods, 8, stands=stands, **more)  # type: ignore[arg-type]  # flags only


def high(pods: int = 3) -> Gang:
    return gang("high", pods, 8, priority=9)


@pytest.mark.parametrize(
    ("allowed", "decision"), [(4, "preempt"), (3, "keep"), (1, "keep"), (0, "keep")]
)
def test_a_gang_stops_only_if_all_its_pods_may_go(allowed: int, decision: str) -> None:
    instance = build(nodes_per_rack=4, gangs=[high(), guarded(job("victim", 0), "b")])
    assert planned(allowing(instance, b=allowed)).decision("victim") == decision


def test_a_pod_of_two_budgets_never_goes_whatever_they_allow() -> None:
    victim = job("victim", 0)
    first, *others = victim.pods
    pods = (replace(first, budgets=("a", "b")), *others)
    instance = build(nodes_per_rack=4, gangs=[high(), replace(victim, pods=pods)])
    assert planned(allowing(instance, a=9, b=9)).decision("victim") == "keep"


@pytest.mark.parametrize(
    ("allowed", "stopped"), [(8, ["v0", "v1"]), (7, ["v0"]), (4, ["v0"]), (3, [])]
)
def test_a_budget_counts_over_all_gangs_of_its_namespace(allowed: int, stopped: list[str]) -> None:
    """Two gangs of 4 pods; two higher gangs want one server each of either."""
    gangs = [
        guarded(job("v0", 0), "b"),
        guarded(job("v1", 4), "b"),
        gang("high0", gpus_per_pod=8, pods=4, priority=9),
        gang("high1", gpus_per_pod=8, pods=4, priority=8),
    ]
    found = planned(allowing(build(nodes_per_rack=8, gangs=gangs), b=allowed))
    assert sum(d == "preempt" for d in found.decisions().values()) == len(stopped)


@pytest.mark.parametrize(("allowed", "decision"), [(1, "move"), (0, "keep")])
def test_a_move_counts_all_pods_of_the_gang_that_the_budget_counts(
    allowed: int, decision: str
) -> None:
    """``new`` needs one whole server of two; each has 4 free GPUs and one movable gang of 4 GPUs."""
    movers = [gang(f"m{n}", 1, 4, stands=[(0, 0, n, LOW)], movable=True) for n in range(2)]
    gangs = [guarded(movers[0], "b"), guarded(movers[1], "b"), gang("new", 1, 8, priority=9)]
    found = planned(allowing(build(nodes_per_rack=2, gangs=gangs), b=allowed))
    assert found.decision("new") == ("place" if allowed else "wait")
    moved = [d for name, d in found.decisions().items() if name != "new"]
    assert sorted(moved) == sorted([decision, "keep"])


@pytest.mark.parametrize("flags", [{"preemptible": True}, {"movable": True}])
def test_shrinking_evicts_nothing_so_that_no_budget_counts(flags: dict[str, bool]) -> None:
    stands = [(0, i, i, ALL) for i in range(4)]
    elastic = replace(
        gang("e", roles=[role("worker", 1, 8, most=4)], stands=stands),
        **flags,  # type: ignore[arg-type]  # flags only
    )
    instance = build(nodes_per_rack=4, gangs=[guarded(elastic, "a", "b"), high(2)])
    found = planned(allowing(instance, a=0, b=0))
    assert found.decisions() == {"e": "resize", "high": "place"}
    assert len(found.of("e").pods) == 2


def reason(found: Outcome, name: str) -> str:
    given = found.of(name).reason
    assert given is not None
    return words(given)


def test_a_gang_whose_victims_are_guarded_names_them() -> None:
    instance = build(nodes_per_rack=4, gangs=[high(), guarded(job("victim", 0), "b")])
    assert "without default/victim (32 GPUs" in reason(planned(allowing(instance, b=1)), "high")


@pytest.mark.parametrize("seed", range(3000, 3012))
def test_the_search_equals_trying_every_plan_with_budgets(seed: int) -> None:
    more = ("budgets", "preemptible", "movable", "priorities")
    assert differences(busy(seed, more=more)) == []


def short_by_one(instance: Instance) -> Instance | None:
    """With a budget over what the best plan evicts of two gangs or more, that allows one pod less."""
    found = solve(instance).decisions
    gone = [g for g, d in zip(instance.gangs, found, strict=True) if disruption_budgets.evicting(d)]
    namespace = gone[0].namespace if gone else ""
    together = [g.key for g in gone if g.namespace == namespace]
    if len(together) < 2:
        return None
    evictions = sum(len(g.running_pods) for g in gone if g.key in together)
    budgets = (DisruptionBudget(namespace, "b", evictions - 1),)
    gangs = tuple(guarded(g, "b") if g.key in together else g for g in instance.gangs)
    cluster = replace(instance.cluster, budgets=budgets)
    return replace(instance, cluster=cluster, gangs=gangs)


@pytest.mark.parametrize("first", first_fast(range(6000, 6200, 25), 2))
def test_the_search_equals_trying_every_plan_where_a_budget_lets_only_some_gangs_go(
    first: int,
) -> None:
    more, kinds = ("preemptible", "movable", "priorities", "running"), 0
    for seed in range(first, first + 25):
        instance = short_by_one(busy(seed, without=("budgets",), more=more))
        if instance is not None:
            kinds += not disruption_budgets.guards(instance).fixed
            assert differences(instance) == [], seed
    assert kinds


# Documents


def budget(allowed: int, name: str = "b") -> Doc:
    return {"namespace": "default", "name": name, "allowed": allowed}


def read_with(folder: Path, budgets: list[Doc], *named: str) -> Instance:
    """A server with a running gang whose pod names these budgets."""
    spec = {"nodes": [{"name": "n0", "model": "DGX H100"}], "disruptionBudgets": budgets}
    pod = {"role": "worker", "index": 0, "node": "n0", "budgets": list(named)}
    documents = [
        {"kind": "Cluster", "metadata": {"name": "c"}, "spec": spec},
        {
            "kind": "Gang",
            "metadata": {"name": "g"},
            "spec": {"roles": [{"name": "worker", "replicas": 1, "gpus": 8}]},
            "status": {"pods": [pod]},
        },
    ]
    for i, one in enumerate(documents):
        text = json.dumps({"apiVersion": "gangplan.dev/v1alpha1", **one})
        (folder / f"{i}.json").write_text(text)
    return read([str(folder)])


@pytest.mark.parametrize(
    ("budgets", "named", "what", "hint"),
    [
        ([2, 3], ["b"], "two disruption budgets are named 'default/b'", "keep one of the two"),
        ([2], ["bb"], "unknown disruption budget 'bb' of namespace 'default'", "did you mean 'b'?"),
        ([2], ["b", "b"], "the disruption budget 'b' is listed twice", "list it once"),
        ([-1], ["b"], "-1 is too small", "write 0 or more"),
    ],
)
def test_a_faulty_budget_is_an_error_with_its_place(
    budgets: list[int], named: list[str], what: str, hint: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError) as error:
        read_with(tmp_path, [budget(n) for n in budgets], *named)
    (fault, *_) = error.value.faults
    assert fault.what.endswith(what)
    assert fault.hint == hint


# The judge

GPUS = list(range(8))


def plan_with(*budgets: Doc, first: Sequence[str] = ("b",), move: bool = False) -> Doc:
    """``v0`` (two pods) and ``v1`` (one) go for ``high``; ``first``: budgets of the first pod of v0."""
    nodes = [node(f"h{i}", "DGX H100", "b1/r1") for i in range(5)]
    servers = cluster([dgx()], nodes)
    servers["spec"]["disruptionBudgets"] = list(budgets)
    victims = []
    for name, at in (("v0", ["h0", "h1"]), ("v1", ["h2"])):
        pods = tuple(standing(name, n, GPUS, i, budgets=["b"]) for i, n in enumerate(at))
        if name == "v0":
            pods[0]["budgets"] = list(first)
        own = document_role("worker", len(at), 8)
        flags = {"movable": True} if move else {"preemptible": True}
        victims.append(document(name, own, pods=pods, **flags))
    high = document("high", document_role("worker", 3, 8), priority=9)
    takes = decided("high", "place", *((f"h{i}", GPUS) for i in range(3)))
    if move:
        goes = decided("v0", "move", ("h3", GPUS), ("h4", GPUS))
        takes = decided("high", "wait", why="NoRoom")
        return made(servers, [high, *victims], [takes, goes, decided("v1", "keep", ("h2", GPUS))])
    return made(servers, [high, *victims], [takes, stopped("v0", "high"), stopped("v1", "high")])


def written(instance: Instance, solution: Solution) -> Doc:
    return compose(instance, solution, name="test", created_at=DAY, generator="test")


def broken(plan: Doc) -> list[tuple[str, str | None]]:
    return [(found.rule, found.gang) for found in check(plan)]


@pytest.mark.parametrize("move", [False, True])
def test_the_judge_counts_every_eviction(*, move: bool) -> None:
    evicted = 2 if move else 3
    assert broken(plan_with(budget(evicted), move=move)) == []
    found = check(plan_with(budget(evicted - 1), move=move))
    assert [(one.rule, one.gang) for one in found] == [("budgets", None)]
    assert found[0].message == f"default/b: {evicted} pods are evicted, it allows {evicted - 1}"


@pytest.mark.parametrize(
    ("budgets", "first", "rule"),
    [
        ([budget(9, "c")], ["b"], "reference"),
        ([budget(9), budget(9, "a")], ["b"], "order"),
        ([budget(9), budget(9)], ["b"], "reference"),
        ([budget(9)], ["b", "b"], "reference"),
        ([budget(-1)], ["b"], "form"),
    ],
)
def test_the_judge_reads_budgets_that_there_are_in_order_and_once(
    budgets: list[Doc], first: list[str], rule: str
) -> None:
    plan = plan_with(budget(9))
    plan["instance"]["cluster"]["spec"]["disruptionBudgets"] = budgets
    plan["instance"]["gangs"][1]["status"]["pods"][0]["budgets"] = first
    assert {found for found, _ in broken(sealed(plan))} - {"budgets"} == {rule}


# Where plans change without the program


def test_whatever_is_offered_the_adopted_plan_keeps_to_the_budgets() -> None:
    """Plans that are best without budgets, offered where there are some; a few of them break them."""
    more, broken = ("budgets", "preemptible", "movable", "priorities", "running"), 0
    for seed in range(4000, 4030):
        instance = busy(seed, more=more)
        free = replace(instance, cluster=replace(instance.cluster, budgets=()))
        offered = solve(free).decisions
        broken += bool(disruption_budgets.beyond_budgets(instance, offered))
        ledger = Ledger(instance, base_decisions(instance))
        ledger.offer(offered)
        adopted = ledger.incumbent.decisions
        decisions = with_reasons(instance, adopted, Budget(instance.policy.solve))
        faults = dishonest(instance, Solution(decisions, ledger.results(), "budget", "test"))
        # what its moves bought is not asked
        assert [fault for fault in faults if not fault.startswith("bought ")] == [], seed
    assert broken > 1
