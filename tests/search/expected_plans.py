"""Plans worked out by hand: the files of tests/expected, and the plans they describe.

Promises: nothing here comes from a search: a case gives an instance, decisions, places and tier values, and
``by_hand`` puts every pod where the file says. Called by tests/search/test_expected_plans.py.

``nodes`` lists a pattern a pod, by role and index, of gangs whose pods start or move: ``r1-n*|r2-n1`` means
one of these, whichever. Gangs that are not listed stand where they stood. ``reserved``:
start and the node of each pod.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from fnmatch import fnmatch
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from input_folders import EXPECTED, input_folder

from models.hardware import bits
from models.instance.gang import Gang
from models.instance.instance import Instance
from models.instance.solution import (
    Decision,
    GangDecision,
    MoveSet,
    PodPlacement,
    Reason,
    Reserved,
    Solution,
    TierResult,
)
from models.queues.reservations import queue_place
from models.values.tier_values import Evaluation, tiers_of
from planner.read.inputs import read


@dataclass(frozen=True)
class Case:
    """One expected plan. ``number``: of the document in its file; ``policy``: fields it replaces."""

    folder: str
    number: int
    decisions: dict[str, tuple[str, ...]]
    nodes: dict[str, tuple[str, ...]]
    tiers: dict[str, int]
    policy: dict[str, Any] = field(default_factory=dict, hash=False)
    moves: tuple[dict[str, Any], ...] = field(default=(), hash=False)
    aged: tuple[str, ...] = ()
    reserved: dict[str, dict[str, Any]] = field(default_factory=dict, hash=False)
    expected: dict[str, datetime] = field(default_factory=dict, hash=False)

    def __str__(self) -> str:
        return self.folder + (f"-{self.number}" if self.number else "")


def cases() -> list[Case]:
    """Every expected plan of every input, in order of the folders."""
    return [case for path in sorted(EXPECTED.glob("*.plan")) for case in _of(path)]


def case_of(folder: str, number: int = 0) -> Case:
    return list(_of(EXPECTED / f"{folder}.plan"))[number]


def _of(path: Path) -> Iterator[Case]:
    for number, stated in enumerate(yaml.safe_load_all(path.read_text(encoding="utf-8"))):
        known = {"policy", "decisions", "nodes", "tiers", "moves", "aged", "reserved", "expected"}
        assert set(stated) <= known, f"{path}: {sorted(set(stated) - known)}"
        yield Case(
            folder=path.stem,
            number=number,
            decisions={name: tuple(d.split("|")) for name, d in stated["decisions"].items()},
            nodes={name: tuple(patterns) for name, patterns in stated["nodes"].items()},
            tiers=stated["tiers"],
            policy=stated.get("policy", {}),
            moves=tuple(stated.get("moves", ())),
            aged=tuple(stated.get("aged", ())),
            reserved=stated.get("reserved", {}),
            expected=stated.get("expected", {}),
        )


def instance_of(case: Case, scratch: Path) -> Instance:
    """The input with the policy of the case. ``scratch``: a folder to write that policy to."""
    folder = input_folder(case.folder)
    if not case.policy:
        return read([str(folder)])
    document = yaml.safe_load((folder / "policy.yaml").read_text(encoding="utf-8"))
    spec = {**document["spec"], **case.policy}
    replaced = scratch / f"{case.folder}-{case.number}.json"
    replaced.write_text(json.dumps({**document, "spec": spec}, default=_time), encoding="utf-8")
    return read([str(folder)], policy=str(replaced))


def _time(value: datetime) -> str:
    return value.isoformat()


def name_of(gang: Gang) -> str:
    return f"{gang.namespace}/{gang.name}"


def fits(nodes: list[str], patterns: tuple[str, ...]) -> bool:
    """Whether every node can be given to a pattern of its own that it matches."""
    if not patterns:
        return not nodes
    first, rest = patterns[0], patterns[1:]
    return any(
        matches(node, first) and fits(nodes[:i] + nodes[i + 1 :], rest)
        for i, node in enumerate(nodes)
        if node not in nodes[:i]
    )


def matches(node: str, pattern: str) -> bool:
    return any(fnmatch(node, one) for one in pattern.split("|"))


def by_hand(instance: Instance, case: Case) -> tuple[GangDecision, ...]:
    """The decisions of the file; of several nodes that a pattern allows the first with room, lowest GPUs."""
    free = [node.healthy for node in instance.cluster.nodes]
    chosen: dict[str, tuple[PodPlacement, ...]] = {}
    for gang in instance.gangs:
        chosen[name_of(gang)] = _staying(instance, gang, case)
        for pod in chosen[name_of(gang)]:
            free[pod.node] &= ~(pod.gpus or 0)
    decisions = []
    for gang in instance.gangs:
        name = name_of(gang)
        decided: Decision = case.decisions[name][0]  # type: ignore[assignment]  # a decision's name
        if decided not in ("wait", "preempt"):
            chosen[name] += tuple(_coming(instance, gang, case, chosen[name], free))
        pods = tuple(sorted(chosen[name]))
        reserved = _reserved(instance, gang, case.reserved.get(name))
        decisions.append(GangDecision(decided, pods, None, reserved))
    pairs = zip(instance.gangs, decisions, strict=True)
    return tuple(replace(one, reason=_why(instance, gang, case, chosen)) for gang, one in pairs)


def _reserved(instance: Instance, gang: Gang, stated: dict[str, Any] | None) -> Reserved | None:
    """What the file reserves: whole servers, the pods of one role in order."""
    if stated is None:
        return None
    names = [node.name for node in instance.cluster.nodes]
    nodes = [names.index(name) for name in stated["nodes"]]
    pods = tuple(
        PodPlacement(0, index, n, instance.cluster.nodes[n].healthy)
        for index, n in enumerate(nodes)
    )
    start = int(stated["start"].timestamp())
    return Reserved(gang.key, queue_place(instance, gang), start, None, tuple(sorted(nodes)), pods)


def _why(
    instance: Instance, gang: Gang, case: Case, chosen: dict[str, tuple[PodPlacement, ...]]
) -> Reason | None:
    """The reason of a gang without pods; one that stops names all that start on its nodes."""
    name, left = name_of(gang), {pod.node for pod in gang.running_pods}
    if case.decisions[name][0] == "wait":
        return Reason.of("NoRoom", text="worked out by hand")
    if case.decisions[name][0] != "preempt":
        return None
    by = [
        {"gang": name_of(g), "priority": g.own_priority}
        for g in instance.gangs
        if case.decisions[name_of(g)][0] == "place"
        and any(pod.node in left for pod in chosen[name_of(g)])
    ]
    return Reason.of("Preempted", by=by)


def _staying(instance: Instance, gang: Gang, case: Case) -> tuple[PodPlacement, ...]:
    """Pods that are where they were."""
    name = name_of(gang)
    if case.decisions[name][0] in ("wait", "preempt"):
        return ()
    patterns = case.nodes.get(name)
    stay = []
    for number, pod in enumerate(gang.running_pods):
        assert pod.node is not None
        place = PodPlacement(pod.role, pod.index, pod.node, pod.gpus)
        if patterns is None or case.decisions[name][0] == "keep":
            stay.append(place)
        else:
            position = pod.index if len(gang.roles) == 1 else number
            node = instance.cluster.nodes[pod.node].name
            if position < len(patterns) and matches(node, patterns[position].split("|")[0]):
                stay.append(place)
    return tuple(stay)


def _coming(
    instance: Instance,
    gang: Gang,
    case: Case,
    stay: tuple[PodPlacement, ...],
    free: list[int],
) -> Iterator[PodPlacement]:
    """Pods that start or move; takes their GPUs. The gang has one role."""
    patterns = case.nodes.get(name_of(gang), ())
    (role,) = gang.roles if patterns else gang.roles[:1]
    there = {pod.index for pod in stay}
    for index, pattern in enumerate(patterns):
        if index in there:
            continue
        node = _first(instance, pattern, free, role.gpus)
        gpus = sum(1 << gpu for gpu in list(bits(free[node]))[: role.gpus])
        free[node] &= ~gpus
        yield PodPlacement(0, index, node, gpus)


def _first(instance: Instance, pattern: str, free: list[int], gpus: int) -> int:
    for one in pattern.split("|"):
        for number, node in enumerate(instance.cluster.nodes):
            usable = node.ready and not node.unschedulable
            if usable and fnmatch(node.name, one) and free[number].bit_count() >= gpus:
                return number
    raise AssertionError(f"no node of {pattern} has {gpus} GPUs left")


def solution_by_hand(instance: Instance, case: Case) -> Solution:
    """The plan of the file, with the values and moves it states and the gaps of a proven plan."""
    senses = {tier.name: tier.sense for tier in tiers_of(instance)}
    tiers = tuple(
        TierResult(name, senses[name], value, value, value, "exact")
        for name, value in case.tiers.items()
    )
    moves = tuple(_move(instance, stated) for stated in case.moves)
    decisions = by_hand(instance, case)
    return Solution(decisions, tiers, "proof", "by hand", moves=moves)


def _move(instance: Instance, stated: dict[str, Any]) -> MoveSet:
    names = [name_of(gang) for gang in instance.gangs]
    bought = stated["bought"]
    effective = bought.get("effectiveGpus")
    return MoveSet(
        gangs=tuple(names.index(name) for name in stated["gangs"]),
        moved_gpus=stated["gpus"],
        admitted=tuple(names.index(name) for name in bought["gangs"]),
        gpus=bought["gpus"],
        bandwidth=bought["bandwidth"],
        whole_nodes=bought["wholeNodes"],
        whole_domains=bought["wholeDomains"],
        gain=round(stated["gain"] * 1000),
        effective=None if effective is None else round(effective * 1000),
    )


def values(instance: Instance, decisions: tuple[GangDecision, ...]) -> dict[str, int]:
    """Every tier's value of a plan, in order."""
    evaluation = Evaluation(instance, decisions)
    return {tier.name: evaluation.tier(tier) for tier in tiers_of(instance)}


@cache
def senses(instance_tiers: tuple[tuple[str, str], ...]) -> dict[str, int]:
    """1 for a tier to be large, -1 for one to be small."""
    return {name: 1 if sense == "max" else -1 for name, sense in instance_tiers}


def vector(instance: Instance, decisions: tuple[GangDecision, ...]) -> tuple[int, ...]:
    """Tier values, larger is better, to compare plans by."""
    signs = senses(tuple((tier.name, tier.sense) for tier in tiers_of(instance)))
    return tuple(signs[name] * value for name, value in values(instance, decisions).items())
