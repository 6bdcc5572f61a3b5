"""What ``explain`` proves: causes that alone keep a gang waiting, and ways to start it that were done."""

from __future__ import annotations

import copy
import json
import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from conftest import RunCli
from effort import examples, spread
from plan_documents import sealed
from starting import named, starts, with_only, without
from tiny import tiny
from tiny_geometries import dynamic
from tiny_shares import sharing

from models.documents.explanation import Why
from models.instance.instance import Instance
from models.instance.solution import GangDecision
from planner.pipelines.explain import why_waiting
from planner.search.explain.blocking import blocking
from planner.search.explain.causes import World, sharers
from planner.search.explain.counterfactual import Counterfactual, budget_of, placement
from planner.search.explain.holders import Holders
from planner.search.explain.remedy import Remedy
from planner.search.explain.verified_remedies import RemedyFinder
from planner.search.solve import solve
from planner.show.explain import why_tables

INPUTS = Path(__file__).parent.parent / "inputs"

UNKNOWN = ("unknown_unhealthy", "unknown_gpus", "binding_none", "sick_holders", "overfull")
"""Nobody knows which GPUs are held: the reference takes the worst, a plan may choose."""

RANDOM = [
    *((seed, ()) for seed in range(40)),
    *((seed, ("queues", "cells", "spares", "exclusive", "balance")) for seed in range(100, 125)),
    *((seed, ("apart", "together", "even")) for seed in range(200, 225)),
]


def remedies_of(world: World) -> tuple[Remedy, ...]:
    """Those that are found in any time."""
    holders = Holders(world, lambda: False)
    found = blocking(Counterfactual(world, budget_of(60, threading.Event())), holders)
    return RemedyFinder(holders, found).remedies()


@pytest.mark.parametrize(("seed", "more"), spread(RANDOM, 9))
def test_it_starts_without_the_named_causes_and_no_less_and_remedies_start_it(
    seed: int, more: tuple[str, ...]
) -> None:
    fewer = ("running",) if "spares" in more else ()  # spares depend on what stood free before
    instance = tiny(seed, ("cpu_gangs", *UNKNOWN, *fewer), more)
    decisions = solve(instance).decisions
    for gang, decision in enumerate(decisions):
        if decision.decision == "wait":
            world = World(instance, decisions, gang)
            _check_causes(instance, decisions, gang, why_waiting(world, 30, threading.Event()))
            free = instance.gangs[gang].hold is None
            for remedy in remedies_of(world) if free else ():
                there = remedy.world
                assert starts(there.instance, there.decisions, gang), (remedy.kind, remedy.change)


def _check_causes(
    instance: Instance, decisions: Sequence[GangDecision], gang: int, why: Why
) -> None:
    def start(*dropped: tuple[str, str, str | None]) -> bool:
        return starts(*without(instance, decisions, gang, dropped), gang)

    if why.standing == "fits":
        assert starts(instance, decisions, gang)
        return
    if instance.gangs[gang].hold is None:
        assert not starts(instance, decisions, gang)
    kept = named(why.causes)
    if why.standing == "size":
        assert not starts(*with_only(instance, decisions, gang, ()), gang)
    if why.standing in ("size", "unknown"):
        return
    assert kept
    if why.standing in ("each", "hold"):
        assert why.standing == "each" or len(kept) == 1
        assert why.standing == "hold" or all(start(one) for one in kept), kept
        return
    assert start(*kept), kept
    for one in kept if why.standing == "together" else ():
        assert not start(*(other for other in kept if other != one)), (one, kept)


CLUSTER = """
apiVersion: gangplan.dev/v1alpha1
kind: Cluster
metadata: {name: two-racks}
spec:
  levels: [{name: rack}]
  nodes:
  - {name: "a-[1-2]", model: DGX H100, domains: {rack: a}}
  - {name: b-1, model: DGX H100, domains: {rack: b}}
  - {name: b-2, model: DGX H100, domains: {rack: b}, CONDITION}
"""
GANG = """---
apiVersion: gangplan.dev/v1alpha1
kind: Gang
metadata: {name: NAME}
spec:
  submittedAt: 2026-11-20T08:00:00Z
  roles: [{name: worker, replicas: PODS, gpus: 8}]
  MORE
status: {PODSTATUS}
"""


def cluster(condition: str = "unschedulable: false") -> str:
    return CLUSTER.replace("CONDITION", condition)


def gang(name: str, pods: int, more: str = "priority: 0", nodes: Sequence[str] = ()) -> str:
    stands = ", ".join(
        f"{{name: {name}-{i}, role: worker, index: {i}, node: {node}, gpus: [0,1,2,3,4,5,6,7]}}"
        for i, node in enumerate(nodes)
    )
    text = GANG.replace("PODSTATUS", f"pods: [{stands}]" if nodes else "")
    return text.replace("NAME", name).replace("PODS", str(pods)).replace("MORE", more)


@pytest.fixture
def explained(cli: RunCli, tmp_path: Path) -> Any:  # noqa: ANN401  # a function
    def ask(text: str, name: str, *options: str) -> dict[str, Any]:
        (tmp_path / "in.yaml").write_text(text, encoding="utf-8")
        plan = str(tmp_path / "plan.json")
        assert cli("plan", str(tmp_path / "in.yaml"), "--out", plan).code == 0
        result = cli("explain", plan, name, "-o", "json", *options)
        assert result.code == 0, result.err
        found: dict[str, Any] = json.loads(result.out)
        return found

    return ask


def causes(found: dict[str, Any]) -> list[tuple[str, str]]:
    return [(one["type"], one["name"]) for one in found["why"]["causes"]]


def remedies(found: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {one["type"]: one for one in found["why"]["remedies"]}


def test_a_rack_that_others_share_is_the_cause_and_another_level_the_remedy(explained: Any) -> None:  # noqa: ANN401
    # one node of each rack is held: two nodes are free, but not in one rack
    text = cluster() + gang("left", 1, nodes=["a-1"]) + gang("right", 1, nodes=["b-1"])
    found = explained(text + gang("new", 2, "topology: {required: rack}"), "new")
    assert causes(found) == [
        ("required", "rack"),
        ("gang", "default/left"),
        ("gang", "default/right"),
    ]
    assert found["why"]["standing"] == "each"
    ways = remedies(found)
    assert ways["required"]["change"] == {"required": None, "from": "rack"}
    assert ways["required"]["do"] == "require no level instead of rack"
    assert [pod["node"] for pod in ways["required"]["pods"]] == ["a-2", "b-2"]
    assert ways["move"]["gangs"] == ["default/left"]
    assert {pod["node"] for pod in ways["move"]["pods"]} == {"a-1", "a-2"}
    assert [pod["node"] for pod in ways["move"]["moved"]] == ["b-2"]
    assert ways["smaller"]["change"] == {"role": "worker", "pods": 1, "from": 2}
    assert ways["addNode"]["change"]["count"] == 1


def test_what_is_reserved_for_a_gang_says_until_when_it_waits(cli: RunCli, tmp_path: Path) -> None:
    out = str(tmp_path / "plan.json")
    assert cli("plan", str(INPUTS / "reservations"), "--out", out).code == 0
    found = json.loads(cli("explain", out, "train/pretrain", "-o", "json").out)
    assert remedies(found)["wait"]["at"] == found["reserved"]["start"] == "2026-11-23T13:00:00Z"
    others = json.loads(cli("explain", out, "evals/long", "-o", "json").out)
    # r2 is reserved, and full of gangs that this plan starts there: only r1 can be waited for
    assert causes(others) == [("gang", "evals/survey")]


def test_who_would_take_the_room_first_is_said(explained: Any) -> None:  # noqa: ANN401
    held = gang("all", 4, nodes=["a-1", "a-2", "b-1", "b-2"])
    text = cluster() + held + gang("before", 1, "priority: 5") + gang("new", 1)
    ways = remedies(explained(text, "new"))
    assert ways["addNode"]["first"] == ["default/before"]
    assert "first" not in remedies(explained(text, "before"))["addNode"]


def test_a_held_gang_has_its_hold_alone_and_nothing_is_tried(explained: Any) -> None:  # noqa: ANN401
    text = gang("new", 1).replace("status: {", "status: {hold: {code: Gated, message: by hand}")
    found = explained(cluster() + text, "new")
    assert causes(found) == [("hold", "Gated")]
    assert found["why"]["remedies"] == []


def test_a_placed_gang_is_compared_with_other_domains(explained: Any) -> None:  # noqa: ANN401
    # half of each rack is free: either would do for one pod; two pods keep together in the free rack
    text = cluster() + gang("left", 1, nodes=["a-1"]) + gang("new", 2)
    found = explained(text, "new")["place"]
    assert (found["level"], found["domain"]) == ("rack", "b")
    (other,) = found["others"]
    assert (other["domain"], other["possible"]) == ("a", False)
    assert (
        other["why"]
        == "needs 2 pods of 8 GPUs; after this plan, there is room for 1 pod (8 GPUs free)"
    )


@pytest.mark.parametrize("name", ["quickstart", "queues", "snapshots/v100-mpi"])
def test_remedies_of_recorded_clusters_start_the_gang_in_a_new_plan(
    name: str, cli: RunCli, tmp_path: Path
) -> None:
    out = str(tmp_path / "plan.json")
    assert cli("plan", str(INPUTS / name), "--out", out).code == 0
    tried = 0
    for key, instance, decisions in _waiting(out):
        index = [gang.key for gang in instance.gangs].index(key)
        if instance.gangs[index].hold is not None:
            continue
        for remedy in remedies_of(World(instance, decisions, index)):
            if remedy.first or remedy.kind == "move":  # others come first; who moves is fixed there
                continue
            planned = solve(remedy.world.instance).decisions[index]
            assert planned.pods, (key, remedy.kind, remedy.change)
            tried += 1
    assert tried


def _waiting(path: str) -> list[tuple[tuple[str, str], Instance, tuple[GangDecision, ...]]]:
    from planner.read import plan_files
    from planner.read.inputs import instance_from_document
    from planner.show.explain.explanation import explanation

    content = plan_files.read_bytes(path)
    plan = plan_files.read_plan(content, path)
    instance = instance_from_document(plan_files.parse(content, path)["instance"])
    keys = [gang.key for gang in plan.spec.gangs if gang.decision == "wait"]
    return [(key, instance, explanation(plan, instance, key).decisions) for key in keys]


def test_the_documented_answer_is_what_is_printed(cli: RunCli, tmp_path: Path) -> None:
    page = (INPUTS.parent / "docs" / "explain.md").read_text(encoding="utf-8")
    shown = page.partition("$ gangplan explain plan.json gpt2-medium\n")[2].partition("```")[0]
    out = str(tmp_path / "plan.json")
    assert cli("plan", str(INPUTS / "quickstart"), "--out", out).code == 0
    assert cli("explain", out, "gpt2-medium", "--time-limit", "1m").out.startswith(shown)
    assert shown.count("\n") > 10


def half(name: str, nodes: Sequence[str], more: str = "preemptible: true") -> str:
    """Gangs of one GPU each, as many as fit on these nodes."""
    found = ""
    for number, (node, gpu) in enumerate((node, gpu) for node in nodes for gpu in range(8)):
        text = gang(f"{name}-{number:02d}", 1, more, [node])
        found += text.replace("gpus: [0,1,2,3,4,5,6,7]", f"gpus: [{gpu}]").replace(
            "gpus: 8", "gpus: 1"
        )
    return found


def test_one_remedy_stops_so_many_gangs_and_no_more(explained: Any) -> None:  # noqa: ANN401
    # all nodes are full of gangs of one GPU; a node needs 8 of them to go, two nodes 16 (the most is 12)
    crowd = half("small", ["a-1", "a-2", "b-1", "b-2"])
    one = remedies(explained(cluster() + crowd + gang("new", 1), "new"))["stop"]
    assert len(one["gangs"]) == 8
    assert {pod["node"] for pod in one["pods"]} == {"a-1"}
    assert "stop" not in remedies(explained(cluster() + crowd + gang("new", 2), "new"))


@pytest.mark.usefixtures("search_clock")
def test_the_time_is_kept_and_what_is_not_proven_is_said() -> None:
    instance = tiny(17, UNKNOWN)
    decisions = solve(instance).decisions
    waits = [i for i, one in enumerate(decisions) if one.decision == "wait"]
    waiting = next(i for i in waits if instance.gangs[i].hold is None)
    stop = threading.Event()
    stop.set()
    for seconds, event in ((0, threading.Event()), (60, stop)):
        why = why_waiting(World(instance, decisions, waiting), seconds, event)
        assert (why.standing, why.causes, why.remedies) == ("unknown", (), ())
        assert not why.complete
        table = why_tables.headline("default/a", "NoRoom: it lacks a node", why)
        rows = {row[0].text: row[1].text for row in table.rows}
        assert (
            rows["why"] == "NoRoom: it lacks a node"
        )  # what the plan knows already, and nobody is blamed
        assert rows["note"].startswith(f"no more was found out in {seconds} s")


def test_nothing_is_proven_of_a_plan_that_was_changed_or_does_not_fit(
    cli: RunCli, tmp_path: Path
) -> None:
    (tmp_path / "in.yaml").write_text(cluster() + gang("a", 2) + gang("b", 5), encoding="utf-8")
    path = tmp_path / "plan.json"
    assert cli("plan", str(tmp_path / "in.yaml"), "--out", str(path)).code == 0
    plan = json.loads(path.read_text(encoding="utf-8"))
    (placed,) = (one for one in plan["spec"]["gangs"] if one["name"] == "a")
    placed["pods"] = [placed["pods"][0]] * 2
    again = sealed(copy.deepcopy(plan))
    for document, said in ((plan, "does not match"), (again, "nothing is proven of it")):
        path.write_text(json.dumps(document), encoding="utf-8")
        result = cli("explain", str(path), "b", "-o", "json")
        assert (result.code, json.loads(result.out)["why"]) == (0, None)
        assert said in result.err


def racks(*sizes: int, free: int) -> str:
    """A cluster of nodes of 8 GPUs: gangs with so many each, named by letter, and free ones."""
    total = sum(sizes) + free
    text = f"""
apiVersion: gangplan.dev/v1alpha1
kind: Cluster
metadata: {{name: slurm}}
spec:
  nodes: [{{name: "n[01-{total}]", model: DGX H100}}]
"""
    first = 1
    for letter, size in zip("abcdef", sizes, strict=False):
        text += gang(letter, size, nodes=[f"n{n:02d}" for n in range(first, first + size)])
        first += size
    return text


def test_a_gang_is_blamed_only_if_the_other_one_starts_without_it(explained: Any) -> None:  # noqa: ANN401
    # 40 nodes are needed, 30 free: without a (11) there are 41, without b (5) 35 and without c (4) 34
    found = explained(racks(11, 5, 4, free=30) + gang("dit", 40), "dit")["why"]
    assert (found["standing"], [one["name"] for one in found["causes"]]) == ("each", ["default/a"])
    assert found["said"] == "until default/a (88 GPUs) ends, is stopped or moves away"


def test_where_no_single_gang_is_enough_the_fewest_are_named_together(explained: Any) -> None:  # noqa: ANN401
    # 40 are needed, 30 free: a (9) leaves 39, b (6) 36, c (5) 35; b and c leave 41, with fewest GPUs
    found = explained(racks(9, 6, 5, free=30) + gang("dit", 40), "dit")["why"]
    assert found["standing"] == "together"
    assert [one["name"] for one in found["causes"]] == ["default/b", "default/c"]
    assert found["said"] == (
        "until both of these gangs are gone: default/b (48 GPUs), default/c (40 GPUs)"
    )


def test_a_gang_that_this_plan_starts_is_said_to_start(explained: Any) -> None:  # noqa: ANN401
    # the first takes all four nodes, for its higher priority
    found = explained(cluster() + gang("first", 4, "priority: 5") + gang("new", 1), "new")["why"]
    (cause,) = found["causes"]
    assert (cause["name"], cause["what"]) == (
        "default/first",
        "this plan starts it: 32 GPUs on 4 nodes",
    )
    assert found["said"] == "until default/first (32 GPUs) is not started"
    stop = next(one for one in found["remedies"] if one["type"] == "stop")
    assert stop["do"] == "do not start default/first (32 GPUs), which this plan starts"


OVERDUE = """---
apiVersion: gangplan.dev/v1alpha1
kind: Policy
spec: {now: 2026-11-20T08:00:00Z}
"""


def test_an_overdue_gang_is_called_so_with_the_end_that_is_assumed(
    explained: Any,  # noqa: ANN401
    cli: RunCli,
    tmp_path: Path,
) -> None:
    # 30 minutes from 06:00: it should have ended at 06:30. At 08:00 it is 1 h 30 min late: 09:30 is assumed
    holder = gang("x", 4, "expectedDuration: 30m", ["a-1", "a-2", "b-1", "b-2"])
    holder = holder.replace("status: {", "status: {startedAt: 2026-11-20T06:00:00Z, ")
    found = explained(cluster() + OVERDUE + holder + gang("new", 1), "new")
    wait = remedies(found)["wait"]
    assert wait["at"] == "2026-11-20T09:30:00Z"
    assert wait["do"] == (
        "wait for default/x: expected to end at 2026-11-20T06:30:00Z, overdue by 1h30m, assumed to end at"
        " 2026-11-20T09:30:00Z (as late again as now)"
    )
    (shown,) = found["holders"]
    assert (shown["endsAt"], shown["assumedEnd"]) == (
        "2026-11-20T06:30:00Z",
        "2026-11-20T09:30:00Z",
    )
    assert "overdue by 1h30m" in cli("explain", str(tmp_path / "plan.json"), "new").out


def test_the_largest_request_that_works_is_said_and_empty_nodes_count_cpu(explained: Any) -> None:  # noqa: ANN401
    # 100 cpu and 1,000 Gi a node, of which the gang that runs there takes 36 and 200: 64 and 800 are left
    text = cluster().replace(
        "model: DGX H100,", 'model: DGX H100, allocatable: {cpu: "100", memory: 1000Gi},'
    )
    held = gang("held", 4, nodes=["a-1", "a-2", "b-1", "b-2"])
    held = held.replace("gpus: 8}", 'gpus: 8, requests: {cpu: "36", memory: 200Gi}}')
    fat = gang("fat", 1).replace("gpus: 8}", 'gpus: 0, requests: {cpu: "120"}}')
    found = explained(text + held + fat, "fat")
    request = remedies(found)["request"]
    assert request["change"] == {"request": "cpu", "most": "64", "from": "120"}
    assert request["do"] == "request at most 64 cpu a pod instead of 120"
    assert found["candidates"][0]["eligible"]["podsIfEmpty"] == 0  # 120 of 100
    big = gang("big", 1).replace("gpus: 8}", "gpus: 0, requests: {memory: 900Gi}}")
    found = explained(text + held + big, "big")
    assert remedies(found)["request"]["change"]["most"] == "800Gi"
    assert found["candidates"][0]["eligible"]["podsIfEmpty"] == 4  # 1,000 Gi: one on each


def test_the_nodes_to_add_are_those_with_fewest_gpus_that_are_enough(explained: Any) -> None:  # noqa: ANN401
    # a pod of 4: one node of 8 would do, and one of 4 does, too
    text = cluster().replace(
        "  nodes:\n",
        "  nodes:\n  - {name: z, model: GB200 NVL72 compute tray, domains: {rack: c}}\n",
    )
    full = [gang("h", 4, nodes=["a-1", "a-2", "b-1", "b-2"])]
    full.append(
        gang("g", 1, nodes=["z"])
        .replace("gpus: 8", "gpus: 4")
        .replace("[0,1,2,3,4,5,6,7]", "[0,1,2,3]")
    )
    new = gang("new", 1).replace("gpus: 8", "gpus: 4")
    added = remedies(explained(text + "".join(full) + new, "new"))["addNode"]
    assert added["change"] == {
        "count": 1,
        "like": "z",
        "model": "GB200 NVL72 compute tray",
        "gpus": 4,
    }
    two = gang("new", 2, "topology: {required: rack}")  # 8 GPUs a pod: only nodes of 8 suit it
    added = remedies(explained(text + "".join(full) + two, "new"))["addNode"]
    assert (added["change"]["count"], added["change"]["gpus"]) == (2, 16)
    assert added["change"]["level"] == "rack"


def test_remedies_come_in_the_order_in_which_a_person_tries_them(explained: Any) -> None:  # noqa: ANN401
    # 8 GPUs of one node are needed. b-2 is cordoned; on a-1 one GPU is held by left, which would find room on
    # b-1, where right holds one, too; low has a-2 and ends at 08:30, in half an hour
    one = {"gpus: 8": "gpus: 1", "[0,1,2,3,4,5,6,7]": "[0]"}
    text = cluster("unschedulable: true") + OVERDUE
    for name, node in (("left", "a-1"), ("right", "b-1")):
        held = gang(name, 1, nodes=[node])
        for old, new in one.items():
            held = held.replace(old, new)
        text += held
    low = gang("low", 1, "expectedDuration: 1h", ["a-2"])
    text += low.replace("status: {", "status: {startedAt: 2026-11-20T07:30:00Z, ")
    found = explained(text + gang("new", 1), "new")["why"]
    assert [(one["type"], one["who"], one.get("byHand", False)) for one in found["remedies"]] == [
        ("wait", "-", False),
        ("node", "operator", False),
        ("fewerGpus", "owner", False),
        ("addNode", "operator", False),
        ("move", "operator", True),
        ("stop", "operator", True),
    ]
    assert found["remedies"][2]["do"] == "ask for 7 GPUs a pod of role worker instead of 8"
    assert [one["name"] for one in found["causes"]] == [
        "b-2",
        "default/left",
        "default/right",
        "default/low",
    ]


PARTS = """
apiVersion: gangplan.dev/v1alpha1
kind: Cluster
metadata: {name: parts}
spec:
  nodes:
  - {name: n1, model: DGX H100, unhealthyGpus: [1, 2, 3, 4, 5, 6, 7], NODE}
  - {name: n2, model: DGX H100, unhealthyGpus: [1, 2, 3, 4, 5, 6, 7], NODE}
---
apiVersion: gangplan.dev/v1alpha1
kind: Gang
metadata: {name: notebook}
spec: {movable: true, roles: [{name: notebook, replicas: 1, gpu: {SMALL}}]}
status: {pods: [{role: notebook, index: 0, node: n1, gpus: [0]START}]}
---
apiVersion: gangplan.dev/v1alpha1
kind: Gang
metadata: {name: other}
spec: {roles: [{name: notebook, replicas: 1, gpu: {LARGE}}]}
status: {pods: [{role: notebook, index: 0, node: n2, gpus: [0]START}]}
---
apiVersion: gangplan.dev/v1alpha1
kind: Gang
metadata: {name: big}
spec: {roles: [{name: w, replicas: 1, WHOLE}]}
"""


@pytest.mark.parametrize("kind", [sharing, partial(dynamic, beside=True)])
def test_what_is_proven_beside_parts_of_gpus_is_so(kind: Callable[..., Instance | None]) -> None:
    """No gang starts in a world in which the small program says that it cannot."""
    freed = 0
    for seed in range(examples(150, 30)):
        instance = kind(seed, runs=True)
        if instance is None or not any(node.shared for node in instance.cluster.nodes):
            continue
        decisions = solve(instance).decisions
        for index, decision in enumerate(decisions):
            if decision.decision != "wait" or instance.gangs[index].hold is not None:
                continue
            questions = Counterfactual(
                World(instance, decisions, index), budget_of(60, threading.Event())
            )
            for one in questions.causes:
                kept = questions.all - {one}
                if placement(questions.world_with(kept)) is not None:
                    assert not questions.counted(kept).blocked, (seed, index, one)
                    freed += one.gang in sharers(instance)
    assert freed
