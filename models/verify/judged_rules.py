"""Every rule of a feasible plan, and every name of a violation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from models.verify.facts import Gang
from models.verify.outcome import Outcome
from models.verify.rule import Binds, Judged
from models.verify.rules import (
    bandwidth,
    gpus,
    nodes,
    pod_affinity,
    queue_order,
    quotas,
    reservations,
    running,
    shape,
    topology,
)
from models.verify.violation import Violation

RULES: tuple[Judged, ...] = (
    gpus.GPUS,
    gpus.PARTITIONS,
    nodes.RESOURCES,
    nodes.ELIGIBILITY,
    topology.TOPOLOGY,
    topology.SERVICES,
    pod_affinity.RULE,
    running.RULE,
    queue_order.LIMIT,
    queue_order.BACKOFF,
    quotas.RULE,
    queue_order.ORDER,
    shape.BALANCE,
    shape.EXCLUSIVE,
    shape.SPARES,
    reservations.RULE,
    bandwidth.RULE,
)

_FORM = {
    "form": "fields, types and values of the document",
    "reference": "names and indices refer to something that exists, once",
    "order": "nodes, gangs, pods and GPUs are sorted",
    "digest": "sha256 of the instance and of the spec",
    "what-if": "what a what-if says of nodes and gangs is so in its instance",
    "names": "names and uids of pods",
}

_STATED = {
    "decision": "the decision matches what happens to the pods",
    "reason": "waiting, stopped and incomplete gangs have a reason; others have none",
    "aged": "gangs that waited longer than the limit are marked, no others",
    "bandwidth": "bandwidthMBps of the gang",
    "share": "share of the ideal bandwidth",
    "speed": "predicted speed, in steps of 20 permille",
    "counted": "GPUs that a gang with parts of some counts",
    "domains": "domains used at every level",
    "ranks": "where groups need them, distinct, kept by pods that stay, no worse than by index",
    "tiers": "the tiers of the policy are stated, in order",
    "tier-sense": "max or min",
    "tier-value": "value of the final plan",
    "tier-best": "best, within the tolerance of value",
    "BoundBeaten": "no bound is beaten by best, value or a better plan that the judge builds",
    "NotMaximal": "the judge builds no better plan in a tier that is stated as proven",
    "tier-gap": "gap = |bound - best| / max(1, |best|)",
    "proof": "a bound that equals best states what proves it",
    "outcome": "optimal if and only if every gap is 0",
    "effective-gpus": "effective GPUs before and after the plan; those of one gang at a time are possible",
    "bought": "every moved gang is in one set of moves; GPUs and gain of the set are possible",
    "queues": "what queues hold, may hold and are promised",
    "could-start": "who holds room or uses up a guarantee could start on the empty cluster",
    "unchecked": "what is stated and not checked is listed as such",
    "search": "the seed is the policy's; a search that a proof stopped leaves no gap",
}


def guards() -> dict[str, str]:
    """Every name of a violation and what it guards: of the document, of rules, of what a plan states."""
    found = dict(_FORM)
    for rule in RULES:
        found.update(rule.guards)
    return found | _STATED


def codes() -> Mapping[str, Callable[[Outcome, Gang], bool]]:
    """By code of the reason of a gang that would fit but for a rule, whether that may be about it."""
    return {code: concerns for rule in RULES for code, concerns in rule.codes.items()}


def binds() -> Mapping[str, Binds]:
    """By word of ``--relax``, whether what it stands for binds a gang."""
    return {word: own for rule in RULES for word, own in rule.binds.items()}


def ordered(violations: Iterable[Violation]) -> list[Violation]:
    """By rule in the order of ``guards``, then gang, then message."""
    position = {name: i for i, name in enumerate(guards())}
    return sorted(violations, key=lambda v: (position[v.rule], v.gang or "", v.message))
