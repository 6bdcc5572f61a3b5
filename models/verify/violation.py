"""A violation: one difference between a plan and what follows from it, with the rule it breaks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

RULES: dict[str, str] = {
    "form": "fields, types and values of the document",
    "reference": "names and indices that point at something that exists, once",
    "order": "sorted nodes, gangs, pods and GPUs",
    "digest": "sha256 of the instance and of the spec",
    "names": "names and uids of pods",
    "gpu-count": "a placed pod gets as many GPUs as its role asks for",
    "gpu-shared": "a GPU belongs to at most one pod",
    "gpu-unhealthy": "unhealthy GPUs are never given",
    "gpu-binding": "indices are named where they are ours to choose, and only there",
    "unknown-gpus": "no more GPUs are given than can be free where some are held or sick unknown",
    "resources": "every resource of every node holds",
    "schedulable": "cordons, readiness and the policy's own nodes are respected",
    "taint": "taints are tolerated",
    "selector": "node selectors, affinities and the model a role asks for hold",
    "all-or-nothing": "every pod of every role, at an allowed count, or none",
    "required": "required levels of gang and role hold",
    "slice": "every slice shares one domain",
    "one-model": "a role's GPU pods run on one GPU model",
    "standing": "running pods stay where nothing allows them to leave",
    "shrinking": "the highest indices leave first",
    "preemption": "a gang gives way only to one of higher priority that takes its room",
    "completion": "missing pods come back all together, beside those that stand",
    "size": "the number of pods stays while resizeAfter is ahead",
    "moves": "no more gangs and GPUs move than the policy allows, and no set below its minGain",
    "hold": "no pod of a gang that is held is placed",
    "min-share": "no gang is placed below its minBandwidthShare",
    "decision": "the decision says what happens to the pods",
    "reason": "waiting, stopped and incomplete gangs say why; others do not",
    "aged": "gangs that waited longer than the limit are marked, and no others",
    "bandwidth": "bandwidthMBps of the gang",
    "share": "share of the ideal bandwidth",
    "domains": "domains used at every level",
    "tiers": "which tiers are stated, in which order",
    "tier-sense": "max or min",
    "tier-value": "value of the final plan",
    "tier-best": "best, within the tolerance of value",
    "tier-bound": "the bound lies on the far side of best and value",
    "tier-gap": "gap = |bound - best| / max(1, |best|)",
    "outcome": "optimal if and only if every gap is 0",
    "bought": "every moved gang is in one set of moves; its GPUs, and what it can have bought",
    "search": "what is said of the search",
}
"""Every rule name and what it guards, in the order of the checks."""


@dataclass(frozen=True, slots=True)
class Violation:
    """``gang`` is ``namespace/name``, None where the violation is not about one gang."""

    rule: str
    gang: str | None
    message: str


def ordered(violations: Iterable[Violation]) -> list[Violation]:
    """By rule in the order of ``RULES``, then gang, then message."""
    position = {rule: i for i, rule in enumerate(RULES)}
    return sorted(violations, key=lambda v: (position[v.rule], v.gang or "", v.message))


def printable(text: str) -> str:
    """Text of the document in a message: one line, control characters replaced, bounded length."""
    return "".join(c if c.isprintable() else "?" for c in text[:200])


def quoted(value: str | int | None) -> str:
    """A stated value in a message, of bounded length."""
    if value is None:
        return "null"
    if isinstance(value, int):
        return str(value) if value.bit_length() <= 200 else "a huge integer"
    return repr(value if len(value) <= 80 else value[:77] + "...")
