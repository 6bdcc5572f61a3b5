"""What differs between two plans: tiers, gangs, queues and nodes. Neither is checked: that is ``verify``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from models.documents.answers import (
    Change,
    ComparedDecision,
    ComparedGang,
    ComparedInput,
    ComparedNodes,
    ComparedPlan,
    ComparedQueue,
    ComparedTier,
    ComparedValue,
    ComparisonDocument,
    ComparisonStatus,
    Effect,
    Side,
)
from models.documents.base import API_VERSION
from models.documents.gang import GangDocument
from models.documents.plan import PlanDocument, PlanGang, PlanMetadata, PlanObjective
from models.documents.policy import PolicyDocument, PolicySpec
from models.host_ranges import host_ranges
from models.results.plan_gpus import pod_gpus
from models.units import epoch_seconds


def compare(
    first: PlanDocument,
    second: PlanDocument,
    files: tuple[str, str],
    *,
    created_at: str,
    generator: str,
) -> ComparisonDocument:
    """The two plans side by side. ``created_at``: RFC 3339."""
    a, b = _supposed(first), _supposed(second)
    # of which the other one supposes all that it does, and more
    base: Side | None = "first" if a < b else "second" if b < a else None
    given = _input(first, second, base)
    tiers = tuple(_tiers(first, second, same=given.same))
    gangs = tuple(_gangs(first, second, base))
    queues = tuple(_queues(first, second))
    nodes = _nodes(first, second)
    decided = next((tier for tier in tiers if tier.better is not None), None)
    unequal = not all(map(equal, tiers))
    status = ComparisonStatus.model_construct(
        same=not (unequal or gangs or queues or nodes.first or nodes.second or nodes.changed),
        base=base,
        input=given,
        better=None if decided is None else decided.better,
        decided_by=None if decided is None else decided.name,
        tiers=tiers,
        gangs=gangs,
        queues=queues,
        nodes=nodes,
        remarks=tuple(_remarks(first, second)),
    )
    return ComparisonDocument.model_construct(
        api_version=API_VERSION,
        kind="Comparison",
        metadata=PlanMetadata.model_construct(
            name=f"{first.metadata.name}-{second.metadata.name}",
            created_at=epoch_seconds(created_at),
            generator=generator,
        ),
        first=_plan(first, files[0]),
        second=_plan(second, files[1]),
        status=status,
    )


def _plan(plan: PlanDocument, file: str) -> ComparedPlan:
    effective = plan.status.effective_gpus
    return ComparedPlan.model_construct(
        file=file,
        name=plan.metadata.name,
        created_at=plan.metadata.created_at,
        outcome=plan.status.outcome,
        what_if=plan.instance.what_if,
        instance=plan.status.digests.instance,
        nodes=len(plan.instance.cluster.spec.nodes),
        gangs=len(plan.instance.gangs),
        effective_gpus=None if effective is None else effective.after,
    )


def _supposed(plan: PlanDocument) -> set[tuple[str, str]]:
    """What the plan supposes: (what, name)."""
    stated = plan.instance.changes
    if stated is None:
        return set()
    return {
        *(("added", name) for name in stated.added),
        *(("drained", name) for name in stated.drained),
        *(("without", name) for name in stated.without),
        *((f"relaxed {one.what}", one.gang) for one in stated.relaxed),
    }


def _input(first: PlanDocument, second: PlanDocument, base: Side | None) -> ComparedInput:
    """How the inputs differ, besides what the plan that is not the base supposes."""
    a, b = first.instance, second.instance
    mine, other = ({"/".join(gang.key): _asked(gang) for gang in one.gangs} for one in (a, b))
    same = a.cluster.spec == b.cluster.spec and mine == other and a.queues == b.queues
    nodes = [{node.name: node for node in one.cluster.spec.nodes} for one in (a, b)]
    known = _supposed(first) ^ _supposed(second) if base is not None else set()
    stated = {name for _, name in known}
    added = any(what == "added" for what, _ in known)
    drained = {name for what, name in known if what == "drained"}
    evicted = {
        name
        for gangs in (mine, other)
        for name, gang in gangs.items()
        if any(pod.node in drained for pod in gang.running_pods)
    }
    left = stated | evicted

    def alone(of: Mapping[str, object], than: Mapping[str, object], side: Side) -> set[str]:
        if added and base is not None and side != base:
            return set()  # what was added is in files that are not known here
        return of.keys() - than.keys() - left

    def differing(of: Mapping[str, object], than: Mapping[str, object]) -> set[str]:
        return {name for name in of.keys() & than.keys() if of[name] != than[name]} - left

    queues = [{queue.metadata.name: queue for queue in one.queues} for one in (a, b)]
    both = queues[0].keys() | queues[1].keys()
    wanted = _wanted(a.policy), _wanted(b.policy)
    return ComparedInput.model_construct(
        same=same,
        first_nodes=host_ranges(alone(nodes[0], nodes[1], "first")),
        second_nodes=host_ranges(alone(nodes[1], nodes[0], "second")),
        changed_nodes=host_ranges(differing(nodes[0], nodes[1])),
        first_gangs=tuple(sorted(alone(mine, other, "first"))),
        second_gangs=tuple(sorted(alone(other, mine, "second"))),
        changed_gangs=tuple(sorted(differing(mine, other))),
        queues=tuple(sorted(q for q in both if queues[0].get(q) != queues[1].get(q))),
        policy=tuple(
            field.alias or name
            for name, field in PolicySpec.model_fields.items()
            if getattr(wanted[0], name) != getattr(wanted[1], name)
        ),
    )


def _asked(gang: GangDocument) -> GangDocument:
    """The gang without its places in a plan before: what it asks for, and where it runs."""
    return gang.model_copy(update={"status": gang.status.model_copy(update={"planned": ()})})


def _wanted(policy: PolicyDocument) -> PolicySpec:
    """The policy without the objective that a plan made from an earlier one has besides."""
    listed = (one for one in policy.spec.to_objectives() if one.name != "stability")
    return policy.spec.model_copy(update={"objectives": tuple(listed)})


def _tiers(first: PlanDocument, second: PlanDocument, *, same: bool) -> Iterator[ComparedTier]:
    """The tiers of both in the order of the first; one that only the second has follows its predecessor.

    ``same``: they have one input; else neither is better.
    """
    mine = {tier.name: tier for tier in first.status.objectives}
    other = {tier.name: tier for tier in second.status.objectives}
    names = list(mine)
    place = 0
    for name in other:
        if name in mine:
            place = names.index(name) + 1
        else:
            names.insert(place, name)
            place += 1
    for name in names:
        a, b = mine.get(name), other.get(name)
        stated = a or b
        if stated is not None:
            yield ComparedTier.model_construct(
                name=name,
                sense=stated.sense,
                first=_value(a),
                second=_value(b),
                better=_better(a, b) if same else None,
            )


def _value(tier: PlanObjective | None) -> ComparedValue | None:
    if tier is None:
        return None
    bound = tier.bound if tier.bounded else None
    return ComparedValue.model_construct(value=tier.value, bound=bound, proven=tier.proven)


def _better(a: PlanObjective | None, b: PlanObjective | None) -> Side | None:
    if a is None or b is None or a.value == b.value or a.sense != b.sense:
        return None
    return "first" if (a.value > b.value) == (a.sense == "max") else "second"


def _gangs(first: PlanDocument, second: PlanDocument, base: Side | None) -> Iterator[ComparedGang]:
    """The gangs that differ, by name."""
    mine = {gang.key: gang for gang in first.spec.gangs}
    other = {gang.key: gang for gang in second.spec.gangs}
    asked = (first.instance.gangs_by_key(), second.instance.gangs_by_key())
    for key in sorted({*mine, *other}):
        a, b = mine.get(key), other.get(key)
        if changed := tuple(_changed(a, b)):
            yield ComparedGang.model_construct(
                gang="/".join(key),
                first=None if a is None else _decision(a, asked[0].get(key)),
                second=None if b is None else _decision(b, asked[1].get(key)),
                changed=changed,
                effect=_effect(b, a) if base == "second" else _effect(a, b),
            )


def _effect(before: PlanGang | None, after: PlanGang | None) -> Effect:
    """What the second plan does with the gang that the first does not."""
    if before is None:
        return "new"
    if after is None:
        return "gone"
    if before.pods and not after.pods:
        return "stops" if after.decision == "preempt" else "waits"
    if after.pods and not before.pods:
        return "runs"
    if _seats(before) == _seats(after):
        return "other"
    return "moves" if after.decision == "move" != before.decision else "elsewhere"


def _changed(a: PlanGang | None, b: PlanGang | None) -> Iterator[Change]:
    if a is None or b is None:
        yield "presence"
        return
    if a.decision != b.decision:
        yield "decision"
    if len(a.pods) != len(b.pods):
        yield "pods"
    if _seats(a) != _seats(b):
        yield "nodes"
    elif _given(a) != _given(b):
        yield "gpus"
    if a.bandwidth != b.bandwidth:
        yield "bandwidth"
    if a.share != b.share:
        yield "share"
    if a.speed_to_come != b.speed_to_come:
        yield "speed"


def _seats(gang: PlanGang) -> Counter[tuple[str, str]]:
    """Pods of each role on each node: which of them is where makes no difference."""
    return Counter((pod.role, pod.node) for pod in gang.pods)


def _given(gang: PlanGang) -> Counter[tuple[str, str, tuple[int, ...] | None]]:
    return Counter((pod.role, pod.node, pod.gpus) for pod in gang.pods)


def _decision(gang: PlanGang, asked: GangDocument | None) -> ComparedDecision:
    return ComparedDecision.model_construct(
        decision=gang.decision,
        pods=len(gang.pods),
        gpus=gang.gpus or pod_gpus(gang.pods, asked),
        nodes=host_ranges(pod.node for pod in gang.pods),
        bandwidth=gang.bandwidth,
        share=gang.share,
        speed=gang.speed_to_come,
        reason=None if gang.reason is None else f"{gang.reason.code}: {gang.reason.message}",
    )


def _queues(first: PlanDocument, second: PlanDocument) -> Iterator[ComparedQueue]:
    """The queues of which more is held, or waited for, after one plan than after the other."""
    mine = {queue.name: queue for queue in first.status.queues}
    other = {queue.name: queue for queue in second.status.queues}
    for name in sorted({*mine, *other}):
        a, b = mine.get(name), other.get(name)
        held = [None if one is None else one.after for one in (a, b)]
        waiting = [None if one is None else one.waiting for one in (a, b)]
        if held[0] != held[1] or waiting[0] != waiting[1]:
            yield ComparedQueue.model_construct(
                queue=name,
                first=held[0],
                second=held[1],
                first_waiting=waiting[0],
                second_waiting=waiting[1],
            )


def _nodes(first: PlanDocument, second: PlanDocument) -> ComparedNodes:
    mine = {node.name: node for node in first.instance.cluster.spec.nodes}
    other = {node.name: node for node in second.instance.cluster.spec.nodes}
    return ComparedNodes.model_construct(
        first=host_ranges(mine.keys() - other.keys()),
        second=host_ranges(other.keys() - mine.keys()),
        changed=host_ranges(n for n in mine.keys() & other.keys() if mine[n] != other[n]),
    )


def _remarks(first: PlanDocument, second: PlanDocument) -> Iterator[str]:
    """Why values of the two may not mean the same."""
    a, b = (_wanted(plan.instance.policy) for plan in (first, second))
    if a.objectives != b.objectives:
        yield "their policies list other objectives, or other tolerances"
    if a.mix != b.mix:
        yield "their mixes of requests differ: `stranded` counts other requests"
    if first.instance.now != second.instance.now:
        yield "their reference times differ: `waiting` counts other ages"
    uids = {plan.instance.cluster.metadata.uid for plan in (first, second)} - {None}
    if len(uids) > 1:
        yield "they are of two clusters"


def equal(tier: ComparedTier) -> bool:
    """Whether both plans have the tier with equal values; bounds are about the search, not about the plan."""
    both = [value.value for value in (tier.first, tier.second) if value is not None]
    return len(both) > 1 and both[0] == both[1]
