"""A violation: one difference between a plan and what follows from it, with the rule it breaks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

RULES: dict[str, str] = {
    "form": "fields, types and values of the document",
    "reference": "names and indices refer to something that exists, once",
    "order": "nodes, gangs, pods and GPUs are sorted",
    "digest": "sha256 of the instance and of the spec",
    "what-if": "what a what-if says of nodes and gangs is so in its instance",
    "names": "names and uids of pods",
    "gpu-count": "a placed pod gets as many GPUs as its role requests",
    "gpu-shared": "a GPU belongs to at most one pod",
    "gpu-unhealthy": "unhealthy GPUs are never given",
    "gpu-binding": "GPU indices are stated where the plan chooses them, and only there",
    "unknown-gpus": "no more GPUs are given than can be free where unknown ones are held or unhealthy",
    "resources": "every resource of every node holds",
    "schedulable": "cordons, readiness and the policy's node selector are respected",
    "taint": "taints are tolerated",
    "selector": "node selectors, affinities and the model of a role hold",
    "all-or-nothing": "every pod of every role, at an allowed count, or none",
    "required": "required levels of gang and role hold",
    "slice": "every slice shares one domain",
    "one-model": "a role's GPU pods run on one GPU model",
    "service": "GPU pods of one service run on one GPU model, that of those that run already",
    "anti-affinity": "no placed pod is in one domain with a pod that must be apart from it",
    "affinity": "a placed pod is in one domain with a pod of the set that its role wants to join",
    "spread": "no domain gets more pods than maxSkew above the one with the fewest",
    "standing": "running pods stay unless a rule allows them to leave",
    "shrinking": "the highest indices leave first",
    "preemption": "a gang is stopped or shrunk only for one of higher priority or that reclaims on its nodes",
    "completion": "missing pods are placed all together, and running ones stay",
    "size": "the number of pods stays until resizeAfter",
    "run-time": "every pod of a gang that has not run for its minRunTime stays",
    "moves": "no more gangs and GPUs move than the policy allows, and no set below its minGain",
    "budgets": "no more pods are evicted than their disruption budgets allow",
    "hold": "no pod of a gang that is held is placed",
    "queue-limit": "of a namespace's waiting gangs those beyond the policy's limit are held, no others",
    "backoff": "of waiting gangs those that plans stopped lately are held, no others",
    "hold-room": "no gang starts while one of higher priority waits that holds room",
    "quota": "queues hold no more than their limit, or than before",
    "guarantee": "no more is promised, and held by gangs that may not stop, than before or than there is",
    "queue-order": "in a strict queue no gang starts while an earlier one waits that could ever start",
    "lending": "no more is held, next to what queues do not lend, than before or than there is",
    "cells": "cells of queues find no fewer places than before",
    "pinned": "no GPU pod of a gang that may not stop comes to a node that another queue pins",
    "balance": "a gang's GPU pods are shared evenly by the domains of its level that have any",
    "exclusive": "no GPU pod comes into a domain that an exclusive gang shares with another",
    "spares": "of the nodes of a domain as many stay idle as the policy keeps free for failures",
    "reserved": "others leave reserved nodes in time, so that the holder can start there as stated",
    "min-share": "no gang is placed below its minBandwidthShare",
    "decision": "the decision matches what happens to the pods",
    "reason": "waiting, stopped and incomplete gangs have a reason; others have none",
    "aged": "gangs that waited longer than the limit are marked, no others",
    "bandwidth": "bandwidthMBps of the gang",
    "share": "share of the ideal bandwidth",
    "speed": "predicted speed, in steps of 20 permille",
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
