"""The explanation of one gang as tables, and as a JSON document."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any

from models.documents.explanation import PlaceReasons, Why
from models.documents.plan import PlanDocument, PlanGang, PlanQueue
from models.gpu_shares import share_in
from models.instance.cluster import Cluster
from models.instance.gang import Gang, Role
from models.results.plan_gpus import relative_speeds
from models.rules.registry import joint_requirements
from models.units import plural, quantity_text, time_text
from planner.search.explain.candidates import Candidates, Explanation
from planner.show.explain import why_tables
from planner.show.plan.gang_groups import delay, passed_over, slowed_by
from planner.show.plan.gang_groups import why as why_of
from planner.show.plan.plan_tables import STYLE, below_full, places
from planner.show.table import Cell, Column, Table, columns_of, pairs, row_of
from planner.show.text import (
    gigabytes,
    lasting,
    listed,
    number,
    permille,
    ranges,
    request_text,
    whole_percent,
)


def tables(
    found: Explanation,
    plan: PlanDocument,
    stated: PlanGang,
    why: Why | None = None,
    place: PlaceReasons | None = None,
) -> list[Table]:
    """What it needs and gets, why it waits or is there, and its candidates.

    ``why``, ``place``: what was found of it, if that was asked.
    """
    parts = [_facts(found, plan, stated, place, headed=why is not None)]
    if why is not None:
        headline = why_tables.headline(found.gang, why_of(stated), why)
        parts = [headline, why_tables.remedies(why), *parts]
    if place is not None:
        parts.append(why_tables.place(place))
    parts += map(_candidates, found.candidates)
    return [part for part in parts if part.rows]


def _facts(
    found: Explanation,
    plan: PlanDocument,
    stated: PlanGang,
    place: PlaceReasons | None,
    *,
    headed: bool,
) -> Table:
    """``headed``: the name of the gang and the reason are said already."""
    gang, now = found.gang, found.instance.now
    decision = f"{stated.decision}{', aged' * stated.aged}"
    reason = "" if headed else why_of(stated)
    time, since = gang.started_at if gang.running else gang.submitted_at, "since an unknown time"
    if time is not None:
        since = f"since {time_text(time)} ({lasting(max(0, now - time))})"
    seconds = gang.expected_duration_s
    rows: list[tuple[str, Cell | str]] = [
        *([] if headed else [("gang", Cell("/".join(gang.key), "head"))]),
        ("decision", Cell(f"{decision}: {reason}" if reason else decision, STYLE[stated.decision])),
        ("priority", _standing(gang)),
        *(("queue", text) for text in _queues(plan, gang)),
        ("runs" if gang.running else "waits" if found.waits else "waited", since),
        *(("needs", text) for text in _needs(found)),
    ]
    if found.instance.policy.reservations is not None:  # it decides who may start before whom
        rows.append(("lasts", "nobody knows how long" if seconds is None else lasting(seconds)))
    rows += _placement(plan, stated)
    if place is not None:
        rows.append(("why there", why_tables.summary(place)))
    return pairs([*rows, *_later(plan, stated, now), *_rank_rows(found, stated)])


def _standing(gang: Gang) -> str:
    """``10; once it runs it may be stopped and moved``, of a running gang without the condition."""
    ways = (("stopped", gang.preemptible), ("moved", gang.movable))
    may = listed([word for word, yes in ways if yes], "and")
    may = f"be {may}" if may else "neither be stopped nor moved"
    return f"{gang.shown_priority}; {'' if gang.running else 'once it runs '}it may {may}"


def _path(plan: PlanDocument, name: str | None) -> Iterator[PlanQueue]:
    """The queue of that name and those above it, as far as the plan describes them."""
    known = {queue.name: queue for queue in plan.status.queues}
    while name in known:
        queue = known.pop(name)  # so that a circle ends
        yield queue
        name = queue.parent


def _queues(plan: PlanDocument, gang: Gang) -> Iterator[str]:
    """The queue that it names and those above it, with what they hold after the plan."""
    found = list(_path(plan, gang.queue))
    if not found and gang.queue is not None:
        yield gang.queue
    for queue in found:
        waiting = f", {queue.waiting:,} more wait" if queue.waiting else ""
        yield (
            f"{queue.name}: holds {plural(queue.after, 'GPU')} ({queue.before:,} before),"
            f" guarantee {queue.guarantee:,}, {_limit(queue.limit)}{waiting}"
        )
        for one in queue.models:
            promised = f"guarantee {one.guarantee:,}, {_limit(one.limit)}"
            yield f"{queue.name}, {one.model}: holds {one.after:,} ({one.before:,} before), {promised}"


def _limit(limit: float | None) -> str:
    return "no limit" if limit is None else f"limit {limit:,}"


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

_NEEDS = {
    "balance": "equally many pods in each {}, or one more",
    "exclusive": "each {} without GPUs of other gangs",
}
"""What a gang needs by rules about several, where its entry does not say it as a need."""


def _needs(found: Explanation) -> list[str]:
    """One line for each role, and one for the rules of the gang."""
    gang, cluster = found.gang, found.instance.cluster
    rules = list(_where("all pods ", gang.required, gang.preferred, cluster))
    for one in gang.together:
        names = listed([gang.roles[number].name for number in one.roles], "and")
        rules.append(f"if possible {names} in one {cluster.level_name(one.level)}")
    if gang.near is not None:
        names = listed(list(gang.near.gangs), "or")
        rules.append(f"if possible in one {cluster.level_name(gang.near.level)} with {names}")
    rules += (
        _NEEDS.get(asked.name, asked.asks).format(wish.name)
        for asked in joint_requirements()
        if asked.of_gang is not None
        for wish in asked.of_gang(found.instance, gang)
    )
    if gang.ordered:
        rules.append("consecutive pods near each other")
    if share := found.instance.min_share(gang):
        rules.append(f"at least {float(share) * 100:.0f} % of the best bandwidth")
    lines = [_role(cluster, role) for role in gang.roles]
    return [*lines, "; ".join(rules)] if rules else lines


def _role(cluster: Cluster, role: Role) -> str:
    count = plural(role.min, "pod")
    if role.max > role.min:
        step = f" in steps of {role.step}" if role.step > 1 else ""
        count = f"{role.min:,} to {plural(role.max, 'pod')}{step}"
    asked = [request_text(quantity_text(name, amount), name) for name, amount in role.requests]
    if role.gpus or share_in(name for name, _ in role.requests) is None:
        asked = [plural(role.gpus, "GPU"), *asked]
    degrees = ((name, getattr(role.parallelism, name, None)) for name in DEGREES)
    parts = [
        f"role {role.name}: {count} of {listed(asked, 'and')}",
        *(f"{name} {value}" for name, value in degrees if (value or 1) > 1),
        *([] if role.model is None else [f"on {role.model}"]),
        *_where("", role.required, role.preferred, cluster),
        *(
            f"each {plural(size, 'pod')} in one {cluster.level_name(level)}"
            for size, level in role.slice_layers
        ),
    ]
    return ", ".join([*parts, *_about_pods(role, cluster)])


def _where(
    who: str, required: int | None, preferred: int | None, cluster: Cluster
) -> Iterator[str]:
    """``all pods in one rack``."""
    if required is not None:
        yield f"{who}in one {cluster.level_name(required)}"
    if preferred is not None:
        yield f"if possible in one {cluster.level_name(preferred)}"


def _about_pods(role: Role, cluster: Cluster) -> Iterator[str]:
    """The rules of a role about pods beside its own."""
    for one in role.anti_affinity:
        level = cluster.level_name(one.level)
        away = f"in no {level} with a pod of the set {one.pod_set}"
        yield f"no two in one {level}" if one.pod_set is None else away
    for one in role.affinity:
        level = cluster.level_name(one.level)
        beside = f"in a {level} with a pod of the set {one.pod_set}"
        yield f"all in one {level}" if one.pod_set is None else beside
    for rule in role.spread:
        level = cluster.level_name(rule.level)
        of = "" if rule.pod_set is None else f" of the set {rule.pod_set}"
        over = f", over at least {plural(rule.min_domains, level)}" if rule.min_domains > 1 else ""
        more = f"at most {plural(rule.max_skew, 'pod')}{of} more"
        yield f"in a {level} {more} than in the {level} with the fewest{over}"


def _placement(plan: PlanDocument, stated: PlanGang) -> Iterator[tuple[str, Cell | str]]:
    """Where it runs now and after the plan, how fast, and what slows it down."""
    gpus_of = plan.instance.installed_gpus()
    request = plan.instance.gangs_by_key().get(stated.key)
    if request is not None and request.running_pods and stated.decision != "keep":
        yield "before", places(request.running_pods, gpus_of)
    if stated.pods:
        yield "nodes", places(stated.pods, gpus_of)
    if stated.domains:
        yield "domains", ", ".join(plural(n, level) for level, n in stated.domains.items())
    if stated.bandwidth is not None:
        text = f"{gigabytes(stated.bandwidth)} GB/s, {permille(stated.share)} of the best"
        yield "bandwidth", Cell(text, below_full(stated.share))
    if stated.speed is not None:
        slowed = slowed_by(stated, request, relative_speeds(plan))
        text = whole_percent(stated.speed_to_come) + (f", slowed by {slowed}" if slowed else "")
        if stated.speed_after is not None:
            text += f"; {whole_percent(stated.speed)} counts, its speed before the plan"
        yield "speed", Cell(text, below_full(stated.speed_to_come))


def _later(plan: PlanDocument, stated: PlanGang, now: int) -> Iterator[tuple[str, str]]:
    """What is reserved for a gang that waits, or when it may start."""
    held, expected = stated.reserved, stated.expected_start
    if stated.decision != "wait":
        return
    if held is not None:
        by = f"by {time_text(held.start)} (in {lasting(max(0, held.start - now))})"
        yield "starts", f"{by}, if gangs end as expected"
        inside = "" if held.domain is None else f" ({held.domain})"
        yield "there", places(held.pods, plan.instance.installed_gpus()) + inside
    elif expected is not None:
        about = f"about {time_text(expected)} (in {lasting(max(0, expected - now))})"
        yield "starts", f"{about}, if nothing new arrives: an estimate"
    for title, said in (("delayed", delay(stated)), ("passed over", passed_over(stated))):
        if said:
            yield title, said


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


def _excluded(one: Candidates) -> list[tuple[str, int]]:
    """(why, nodes) of the nodes that are no candidates."""
    return [
        (EXCLUDED[cause].format(listed(about, "and")), nodes)
        for (cause, about), nodes in one.excluded
    ]


def _candidates(one: Candidates) -> Table:
    """The nodes for one role: which are excluded and why, what the others have."""
    rows = [row_of(number(n), "-", "-", f"excluded: {cause}") for cause, n in _excluded(one)]
    amounts = (one.eligible, one.gpus, one.pods)
    rows.append(
        (*(Cell(number(n)) for n in amounts), Cell("eligible", "good" if one.eligible else "bad"))
    )
    columns = (
        *columns_of(">NODES|>FREE GPUS|>ROOM FOR PODS"),
        Column(f"FOR ROLE {one.role.name}", fold=True),
    )
    notes = (f"it needs room for {plural(one.needed, 'pod')}",) if one.needed else ()
    return Table(columns, tuple(rows), notes)


def document(
    found: Explanation,
    plan: PlanDocument,
    stated: PlanGang,
    why: Why | None = None,
    place: PlaceReasons | None = None,
) -> dict[str, Any]:
    """The same as one JSON object. Times are RFC 3339, null if unknown."""
    gang = found.gang
    known = [queue.to_json() for queue in _path(plan, gang.queue)]
    return {
        "gang": {"namespace": gang.namespace, "name": gang.name},
        "decision": stated.decision,
        "aged": stated.aged,
        "reason": None if stated.reason is None else stated.reason.model_dump(by_alias=True),
        "priority": gang.shown_priority,
        "queue": gang.queue,
        **({"queues": known} if known else {}),
        "preemptible": gang.preemptible,
        "movable": gang.movable,
        "submittedAt": _time(gang.submitted_at),
        "startedAt": _time(gang.started_at),
        "now": _time(found.instance.now),
        "needs": _needs(found),
        "placement": stated.model_dump(
            by_alias=True, include={"pods", "bandwidth", "share", "speed", "speed_after", "domains"}
        ),
        **stated.model_dump(
            by_alias=True,
            include={"reserved", "expected_start", "passed_over", "delayed"},
        ),
        "candidates": [
            {
                "role": one.role.name,
                "neededPods": one.needed,
                "excluded": [{"cause": cause, "nodes": nodes} for cause, nodes in _excluded(one)],
                "eligibleNodes": one.eligible,
                "freeGpus": one.gpus,
                "pods": one.pods,
            }
            for one in found.candidates
        ],
        "why": None if why is None else why_tables.document(why),
        "place": None if place is None else place.to_json(),
    }


def _time(epoch: int | None) -> str | None:
    return None if epoch is None else time_text(epoch)
