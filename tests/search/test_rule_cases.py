"""Cases of rules as data: the planner, the exhaustive planner and the judge all say what a case states.

Each case of ``rule_cases/*.yaml`` has a sentence, why it holds, nodes, gangs, and ``plan``: the decision
about each gang, the nodes or GPUs of its pods, or the reason why it waits. ``values`` are of tiers. ``never``
are pods that no plan has, and the rule by which the judge refuses them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from building import build, gang, mask, node, role
from building_servers import switched, v100
from outcomes import NOW, Outcome, planned

from benchmarks.lab.scheduler import solution_of
from models.hardware import ServerModel
from models.instance.cluster import Node
from models.instance.gang import Gang
from models.instance.instance import Instance
from models.instance.solution import GangDecision, PodPlacement, Reason
from models.program.base_state import base_decisions
from models.results.plan import compose
from models.verify.check import check
from models.verify.judged_rules import RULES

Case = dict[str, Any]

CASES: dict[str, Case] = {
    f"{path.stem}: {one['case']}": one
    for path in sorted((Path(__file__).parents[1] / "rule_cases").glob("*.yaml"))
    for one in yaml.safe_load(path.read_text(encoding="utf-8"))
}


def model_of(gpus: int | str | dict[str, Any]) -> ServerModel | None:
    """``8``: a switched server of so many GPUs; ``2 H100``: of this model; ``mesh``: a DGX-1; 0: none."""
    if gpus == "mesh":
        return v100()
    if isinstance(gpus, dict):
        return switched(**gpus)
    count, _, name = str(gpus).partition(" ")
    return switched(int(count), **({"gpu": name} if name else {})) if int(count) else None


def node_of(name: str, stated: int | str | Case) -> Node:
    if not isinstance(stated, dict):
        return node(name, model_of(stated))
    more = dict(stated)
    return node(name, model_of(more.pop("gpus")), **more)


def gang_of(name: str, stated: Case) -> Gang:
    more = dict(stated)
    more["roles"] = [role(**_sliced(one)) for one in more.get("roles", ())]
    more["stands"] = [
        (r, i, n, None if gpus is None else mask(*gpus)) for r, i, n, gpus in more.get("stands", ())
    ]
    return gang(name, **_sliced(more))


def _sliced(stated: Case) -> Case:
    return {**stated, **({"slices": tuple(stated["slices"])} if "slices" in stated else {})}


def instance_of(case: Case) -> Instance:
    gangs = [gang_of(name, stated or {}) for name, stated in case["gangs"].items()]
    nodes = [node_of(name, stated) for name, stated in case["nodes"].items()]
    return build(nodes=nodes, gangs=gangs, **case.get("policy", {}))


def state(outcome: Outcome, name: str, wanted: str | Case) -> str | Case:
    """What came of a gang, in the form in which the case states it."""
    if isinstance(wanted, str):
        return outcome.decision(name)
    found = {
        "decision": outcome.decision(name),
        "reason": outcome.reason(name),
        "nodes": outcome.nodes(name),
        "per_node": outcome.per_node(name),
        "gpus": [None if gpus is None else list(gpus) for gpus in outcome.gpus(name)],
    }
    return {key: found[key] for key in wanted}


@pytest.mark.parametrize("name", CASES)
def test_program_and_exhaustive_planner_decide_what_the_case_says(name: str) -> None:
    case = CASES[name]
    outcome = planned(instance_of(case))
    found = {gang: state(outcome, gang, wanted) for gang, wanted in case["plan"].items()}
    assert found == case["plan"], case["why"]
    values = case.get("values", {})
    assert {tier: outcome.value(tier) for tier in values} == values, case["why"]


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if "never" in case])
def test_the_judge_refuses_what_no_plan_has_by_its_rule(name: str) -> None:
    case = CASES[name]
    instance, never = instance_of(case), dict(case["never"])
    rule = never.pop("rule")
    numbers = {one.name: n for n, one in enumerate(instance.cluster.nodes)}
    decisions = list(base_decisions(instance))
    for index, one in enumerate(instance.gangs):
        if one.name in never:
            decisions[index] = GangDecision("place", tuple(_pods(one, never[one.name], numbers)))
        elif not decisions[index].pods:
            decisions[index] = GangDecision("wait", (), Reason.of("NoRoom", text="it waits"))
    solution = solution_of(instance, tuple(decisions), "case")
    document = compose(instance, solution, name="p", created_at=NOW, generator="gangplan test")
    assert rule in {violation.rule for violation in check(document)}, case["why"]
    assert any(rule in judged.guards for judged in RULES)


def _pods(one: Gang, places: list[list[Any]], numbers: dict[str, int]) -> list[PodPlacement]:
    """``places``: (node, GPUs) of every pod, by role and index."""
    pods = [(r, i) for r, own in enumerate(one.roles) for i in range(own.min)]
    return [
        PodPlacement(r, i, numbers[name], mask(*gpus))
        for (r, i), (name, gpus) in zip(pods, places, strict=True)
    ]
