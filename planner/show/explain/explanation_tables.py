"""The explanation of one gang as tables, and as a JSON document."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any

from models.documents.answers import Candidates, PlaceReasons, Why
from models.documents.plan import PlanDocument, PlanGang, PlanQueue
from models.gpu_shares import share_in
from models.instance.cluster import Cluster
from models.instance.gang import Gang, Role
from models.results.explanation import Explanation
from models.rules.registry import requirements
from models.units import plural, quantity_text, time_text
from planner.show.explain import why_tables
from planner.show.plan import plan_tables
from planner.show.plan.gang_groups import PASSED_OVER, Selection
from planner.show.table import Cell, Table, columns_of, pairs, row_of
from planner.show.text import gigabytes, lasting, listed, number, ranges, request_text


def tables(
    found: Explanation,
    plan: PlanDocument,
    stated: PlanGang,
    why: Why | None = None,
    place: PlaceReasons | None = None,
) -> list[Table]:
    """What is decided of it, what makes it start, what it needs, its queues, and its candidates.

    ``why``, ``place``: what was found of it, if that was asked.
    """
    only = Selection(("/".join(stated.key),))
    own = plan.status.model_copy(update={"queues": _path(plan, found.gang)})
    parts = [
        plan_tables.gangs(plan, wide=True, only=only),
        *([] if why is None else [why_tables.remedies(found.gang, why)]),
        plan_tables.changes(plan, only),
        pairs(_facts(found, stated)),
        plan_tables.queues(plan.model_copy(update={"status": own}), wide=True, every=True),
        *([] if place is None else [why_tables.place(place)]),
        _candidates(found.candidates),
    ]
    return [part for part in parts if part.rows or part.notes]


def _path(plan: PlanDocument, gang: Gang) -> tuple[PlanQueue, ...]:
    """The queue that it names and those above it, as far as the plan describes them."""
    known = {queue.name: queue for queue in plan.status.queues}
    name, found = gang.queue, list[PlanQueue]()
    while name in known:
        found.append(known.pop(name))  # so that a circle ends
        name = found[-1].parent
    return tuple(found)


def _facts(found: Explanation, stated: PlanGang) -> Iterator[tuple[str, str]]:
    gang, now = found.gang, found.instance.now
    ways = [word for word, may in (("stop", gang.preemptible), ("move", gang.movable)) if may]
    yield "plans may", f"{listed(ways, 'and') or 'neither stop nor move'} it once it runs"
    if gang.queue is not None:
        yield "queue", gang.queue
    for what, time in (("submitted", gang.submitted_at), ("started", gang.started_at)):
        if time is not None:
            yield what, f"{time_text(time)} ({lasting(max(0, now - time))} ago)"
    yield from (("needs", text) for text in _needs(found))
    if found.instance.policy.reservations is not None:  # it decides who may start before whom
        seconds = gang.expected_duration_s
        yield "lasts", "nobody knows how long" if seconds is None else lasting(seconds)
    if stated.passed_over is not None:
        yield "passed over", PASSED_OVER[stated.passed_over]
    yield from _rank_rows(found, stated)


MAX_RUNS = 12
"""Nodes in a row that are listed with the ranks on them."""


def _rank_rows(found: Explanation, stated: PlanGang) -> Iterator[tuple[str, str]]:
    """One row for the groups and one for the ranks of each role that has them."""
    several = sum(1 for role in found.gang.roles if role.gpus) > 1
    for index, role in enumerate(found.gang.roles):
        ranked = ((pod.rank, pod) for pod in stated.pods if pod.role == role.name)
        pods = sorted((rank, pod.index, pod.node) for rank, pod in ranked if rank is not None)
        prefix = f"{role.name}: " if several else ""
        groups = found.groups(index, [number for _, number, _ in pods]) if pods else ()
        if groups:
            said = (f"{kind.name} {kind.size} at {gigabytes(rate)} GB/s" for kind, rate in groups)
            yield "groups", prefix + ", ".join(said)
        if pods:
            yield "ranks", prefix + _ranks(role.gpus, [(rank, node) for rank, _, node in pods])


def _ranks(gpus: int, pods: Sequence[tuple[int, str]]) -> str:
    """``n1 0-15, n2 16-31``: the ranks on each node in turn, in order. ``gpus``: of a pod."""
    runs = []
    for node, there in groupby(pods, key=itemgetter(1)):
        ranks = [rank for rank, _ in there]
        runs.append(f"{node} {ranges(range(ranks[0], ranks[-1] + gpus))}")
    more = f", and {len(runs) - MAX_RUNS:,} more" if len(runs) > MAX_RUNS else ""
    return ", ".join(runs[:MAX_RUNS]) + more


DEGREES = ("tensor", "context", "expert", "data", "pipeline")

APART = ("hold", "request", "oneModel", "taints")
"""What is asked for and is no line of its own: it is said elsewhere, or so unless a gang says otherwise."""


def _needs(found: Explanation) -> list[str]:
    """One line for each role, and one for each thing that all of the gang asks for."""
    instance, gang = found.instance, found.gang
    asked = [one for one in requirements() if one.name not in APART]
    lines = []
    for role in gang.roles:
        own = [
            one.asks.format(wish.name)
            for one in asked
            for wish in (one.of_role(instance, role) if one.of_role else ())
        ]
        lines.append("; ".join([_pods(role), *own]))
    lines += [
        one.asks.format(wish.name)
        for one in asked
        for wish in (one.of_gang(instance, gang) if one.of_gang else ())
    ]
    return [*lines, *_wishes(gang, instance.cluster)]


def _pods(role: Role) -> str:
    """``role worker: 4 pods of 8 GPUs and 6 cpu, tensor 8``."""
    count = plural(role.min, "pod")
    if role.max > role.min:
        step = f" in steps of {role.step}" if role.step > 1 else ""
        count = f"{role.min:,} to {plural(role.max, 'pod')}{step}"
    asked = [request_text(quantity_text(name, amount), name) for name, amount in role.requests]
    if role.gpus or share_in(name for name, _ in role.requests) is None:
        asked = [plural(role.gpus, "GPU"), *asked]
    degrees = ((name, getattr(role.parallelism, name, None) or 1) for name in DEGREES)
    split = [f", {name} {value}" for name, value in degrees if value > 1]
    return f"role {role.name}: {count} of {listed(asked, 'and')}{''.join(split)}"


def _wishes(gang: Gang, cluster: Cluster) -> Iterator[str]:
    """``if possible all pods in one rack``: what counts only in tiers."""
    names = [role.name for role in gang.roles]
    wishes = [("all pods", gang.preferred)]
    wishes += [(f"role {role.name}", role.preferred) for role in gang.roles]
    wishes += [(listed([names[n] for n in one.roles], "and"), one.level) for one in gang.together]
    if gang.near is not None:
        wishes.append((f"with {listed(gang.near.gangs)}", gang.near.level))
    for who, level in wishes:
        if level is not None:
            yield f"if possible {who} in one {cluster.level_name(level)}"
    if gang.ordered:
        yield "consecutive pods near each other"


EXCLUDED = {
    "policy": "not selected by the Policy's nodeSelector",
    "notReady": "not ready",
    "cordoned": "cordoned",
    "labels": "without {}",
    "affinity": "node affinity {}",
    "taint": "taint {}",
    "model": "another model than {}",
    "small": "fewer GPUs installed than one pod asks for",
    "pinned": "pinned to queue {}",
}
"""Why a node is no candidate."""


def _candidates(roles: Sequence[Candidates]) -> Table:
    """The nodes for each role: what the eligible ones have, and why the others are excluded."""
    rows = []
    for one in roles:
        needs = f"; it needs room for {plural(one.needed_pods, 'pod')}" if one.needed_pods else ""
        said = Cell(f"eligible{needs}", "good" if one.eligible_nodes else "bad")
        room = map(number, (one.eligible_nodes, one.free_gpus, one.pods))
        rows.append(row_of(one.role, *room, said))
        for out in one.excluded:
            why = EXCLUDED[out.cause].format(listed(out.about, "and"))
            rows.append(row_of(one.role, number(out.nodes), "-", "-", f"excluded: {why}"))
    return Table(columns_of("ROLE|>NODES|>FREE GPUS|>ROOM FOR PODS|WHICH~"), tuple(rows))


def document(
    found: Explanation,
    plan: PlanDocument,
    stated: PlanGang,
    why: Why | None = None,
    place: PlaceReasons | None = None,
) -> dict[str, Any]:
    """The same as one JSON object: what the plan states of the gang, its request, and what was found."""
    return {
        **stated.to_json(),
        "now": time_text(found.instance.now),
        "request": plan.instance.gangs_by_key()[stated.key].to_json(),
        "queues": [queue.to_json() for queue in _path(plan, found.gang)],
        "needs": _needs(found),
        "candidates": [one.to_json() for one in found.candidates],
        "why": None if why is None else why_tables.document(why),
        "place": None if place is None else place.to_json(),
    }
