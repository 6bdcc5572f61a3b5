"""Cases of rules as data: the planner, the exhaustive planner and the judge all say what a case states.

A case of ``rule_cases/*.yaml`` has a sentence, why it holds, nodes, gangs, perhaps queues and a policy (for
their short text see ``stated_cases``), and ``plan``: what comes of each gang. ``place n01 n02``: the
decision and the nodes of its pods; ``wait Quota``: and the code of its reason; or fields (``STATED``),
``why`` with all facts of the reason. ``values`` are of tiers, ``notes`` parts of a plan's notes. ``never``
are pods that no plan has, and the rule by which the judge refuses them, and so does the search if the rule is
one of ``JOINT``. ``but`` are cases that differ as they say, ``also`` plans in another way: ``slots`` of the
large instances, or ``large``, where not every plan can be tried.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
import yaml
from outcomes import NOW as CREATED
from outcomes import Outcome, planned
from stated_cases import NOW, Case, indices, instance_of, seconds, standing

from benchmarks.lab.scheduler import solution_of
from models.instance.gang import Gang
from models.instance.instance import Instance
from models.instance.solution import Decision, GangDecision, PodPlacement, Reason
from models.program.base_state import base_decisions
from models.results.plan import compose
from models.verify.check import check
from models.verify.judged_rules import RULES
from planner.search.ledger import Ledger
from planner.search.solve import WHOLE_BELOW, solve
from planner.show.reason_words import words

FOLDER = Path(__file__).parents[1] / "rule_cases"
MERGED = ("nodes", "queues", "gangs", "policy")
_ABOUT_GANGS = (
    "affinity anti-affinity balance budgets cells exclusive guarantee lending min-share moves"
    " preemption queue-order quota run-time spares spread standing"
)
JOINT = frozenset(_ABOUT_GANGS.split())
"""Rules about gangs: the search looks at them in every plan that an engine offers."""


def _cases() -> Iterator[tuple[str, Case]]:
    for path in sorted(FOLDER.glob("*.yaml")):
        for one in yaml.load(path.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader):
            name = f"{path.stem}: {one['case']}"
            variants = one.pop("but", ())
            yield name, one
            for number, change in enumerate(variants, 1):
                yield f"{name}, but {change.get('why', number)}", _changed(one, change)


def _changed(case: Case, change: Case) -> Case:
    """Nodes, queues, gangs and policy one by one, where a null removes; the rest as a whole."""
    found = {key: value for key, value in case.items() if key not in ("values", "notes")} | change
    for key in MERGED:
        if isinstance(change.get(key), dict) and isinstance(case.get(key), dict):
            both = case[key] | change[key]
            found[key] = {one: what for one, what in both.items() if what is not None}
    waits = (
        str(found["plan"].get(one)).startswith("wait")
        for one in found.get("never") or ()
        if one != "rule"
    )
    if found.get("never") is None or ("never" not in change and not all(waits)):
        found.pop("never", None)
    return found


CASES = dict(_cases())


def _reserved(outcome: Outcome, name: str) -> str | None:
    """``1h n01 n02``: when it is to start, and where; ``now`` if its turn has come."""
    held = outcome.of(name).reserved
    if held is None:
        return None
    names = [outcome.instance.cluster.nodes[n].name for n in held.nodes]
    return " ".join(["now" if not held.nodes else f"{(held.start - NOW) / 3600:g}h", *names])


def _why(outcome: Outcome, name: str) -> Case | None:
    """Code and facts of a reason; gangs by name alone."""
    reason = outcome.of(name).reason
    if reason is None:
        return None
    stated = reason.fields.stated()
    if "by" in stated:
        stated["by"] = [one.gang.removeprefix("default/") for one in stated["by"]]
    found = {key: list(one) if isinstance(one, tuple) else one for key, one in stated.items()}
    return {"code": reason.code, **found}


def _said(outcome: Outcome, name: str) -> str:
    reason = outcome.of(name).reason
    return "" if reason is None else words(reason)


STATED: dict[str, Callable[[Outcome, str], Any]] = {
    "decision": Outcome.decision,
    "reason": Outcome.reason,
    "why": _why,
    "says": _said,
    "nodes": Outcome.nodes,
    "per_node": Outcome.per_node,
    "gpus": lambda outcome, name: [indices(pod.gpus) for pod in outcome.of(name).pods],
    "pods": lambda outcome, name: [pod.index for pod in outcome.of(name).pods],
    "reserved": _reserved,
    "expected": lambda outcome, name: outcome.of(name).expected_start,
}
"""What a case may state of a gang; besides, ``domains`` that it uses of levels."""


def state(outcome: Outcome, name: str, wanted: str | Case) -> str | Case:
    """What came of a gang, in the form in which the case states it."""
    if isinstance(wanted, str):
        said = [outcome.decision(name)]
        for word in wanted.split()[1:2]:
            said += [str(outcome.reason(name))] if word[0].isupper() else outcome.nodes(name)
        return " ".join(said)
    return {key: _stated(outcome, name, key, wanted[key]) for key in wanted}


def _stated(outcome: Outcome, name: str, key: str, wanted: Any) -> Any:  # noqa: ANN401  # as stated
    if key == "domains":
        return {level: outcome.domains(name, level) for level in wanted}
    found = STATED[key](outcome, name)
    if key == "says" and wanted in found:
        return wanted
    if key == "expected" and wanted is not None and found == NOW + seconds(wanted):
        return wanted
    return found


@pytest.mark.parametrize("name", [pytest.param(name, id=name) for name in CASES])
def test_program_and_exhaustive_planner_decide_what_the_case_says(name: str) -> None:
    case = CASES[name]
    instance, also = instance_of(case), str(case.get("also", "")).split()
    outcome = planned(instance, small="large" not in also)
    held(case, outcome)
    values = case.get("values", {})
    assert {tier: outcome.value(tier) for tier in values} == values, case["why"]
    notes = "\n".join(outcome.solution.notes)
    assert [one for one in case.get("notes", ()) if one not in notes] == []
    if "slots" in also:
        held(case, Outcome(instance, solve(instance, size=WHOLE_BELOW)))


def held(case: Case, outcome: Outcome) -> None:
    found = {gang: state(outcome, gang, wanted) for gang, wanted in case["plan"].items()}
    assert found == case["plan"], case["why"]


@pytest.mark.parametrize("name", [n for n, case in CASES.items() if "never" in case], ids=str)
def test_the_judge_refuses_what_no_plan_has_by_its_rule(name: str) -> None:
    case = CASES[name]
    instance, never = instance_of(case), dict(case["never"])
    rule, base = never.pop("rule"), base_decisions(instance)
    decisions = list(base)
    for index, one in enumerate(instance.gangs):
        if one.name in never:
            decisions[index] = _decided(instance, one, never[one.name])
        elif not decisions[index].pods:
            decisions[index] = GangDecision("wait", (), Reason.of("NoRoom", text="it waits"))
    solution = solution_of(instance, tuple(decisions), "case")
    document = compose(instance, solution, name="p", created_at=CREATED, generator="gangplan test")
    assert rule in {violation.rule for violation in check(document)}, case["why"]
    assert any(rule in judged.guards for judged in RULES)
    if rule in JOINT:
        assert not Ledger(instance, base).keeps_rules(tuple(decisions)), case["why"]


def _decided(instance: Instance, one: Gang, text: str) -> GangDecision:
    """``place n01:0-3,n02``: where its pods are, by role and index, as many as are listed."""
    decision, _, places = text.partition(" ")
    if decision == "preempt":
        return GangDecision("preempt", (), Reason.of("Preempted", text="it stops"))
    pods = [(r, i + own.first_index) for r, own in enumerate(one.roles) for i in range(own.max)]
    found = standing(places, one.roles, list(instance.cluster.nodes))
    placed = [
        PodPlacement(*pod, n, gpus) for pod, (_, _, n, gpus) in zip(pods, found, strict=False)
    ]
    return GangDecision(cast("Decision", decision), tuple(placed))
