"""Topology: required levels of gang and role, slices, one GPU model a role.

Every set of pods that belong together (gang, role, slice), of which at least one is placed or moved,
uses one domain of the required level; likewise a role's GPU pods one GPU model. A set of which every
pod stays is exempt.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from models.verify.changes import Change
from models.verify.facts import Facts, Pod
from models.verify.outcome import Outcome
from models.verify.rule import Judged, role_binds
from models.verify.violation import Violation


def check(outcome: Outcome) -> Iterator[Violation]:
    for change in outcome.changes:
        if change.binding:
            yield from faults(outcome.facts, change)


def domains_used(facts: Facts, pods: Sequence[Pod], level: int) -> int:
    """How many domains of a level the pods use."""
    return len({facts.nodes[pod.node].domain[level] for pod in pods})


def faults(facts: Facts, change: Change) -> Iterator[Violation]:
    """What is wrong with where the pods of one gang are."""
    gang = change.gang
    if gang.required is not None:
        yield from _one(
            facts, change, tuple(change.pods.values()), gang.required, "required", "the gang"
        )
    bound_roles = {pod.role for pod in change.binding}
    for number in sorted(bound_roles):
        role = gang.roles[number]
        pods = change.by_role[number]
        name = role.name
        if role.required is not None:
            yield from _one(facts, change, pods, role.required, "required", f"role {name}")
        for size, level in role.slices:
            yield from _slices(facts, change, pods, size, level)
        if role.gpus and not role.mix_models:
            models = {
                node.model.gpu for pod in pods if (node := facts.nodes[pod.node]).model is not None
            }
            if len(models) > 1:
                yield change.violation(
                    "one-model",
                    f"role {name}: runs on {', '.join(sorted(models))}",
                )


def _slices(
    facts: Facts, change: Change, pods: Sequence[Pod], size: int, level: int
) -> Iterator[Violation]:
    role = pods[0].role
    bound = {pod.index // size for pod in change.binding if pod.role == role}
    members: dict[int, list[Pod]] = {}
    for pod in pods:
        members.setdefault(pod.index // size, []).append(pod)
    for which in sorted(bound):
        what = f"slice {which} of role {change.gang.roles[role].name}"
        yield from _one(facts, change, members[which], level, "slice", what)


def _one(
    facts: Facts, change: Change, pods: Sequence[Pod], level: int, rule: str, what: str
) -> Iterator[Violation]:
    used = domains_used(facts, pods, level)
    if used > 1:
        yield change.violation(
            rule,
            f"{what} must stay in one {facts.level_name(level)}, uses {used}",
        )


RULE = Judged(
    check,
    {
        "required": "required levels of gang and role hold",
        "slice": "every slice shares one domain",
        "one-model": "a role's GPU pods run on one GPU model",
    },
    on_empty=True,
    binds={
        "slice": role_binds(lambda role: role.slice or role.outer_slices),
        "one-model": role_binds(lambda role: role.gpus and not role.mix_models),
    },
)
