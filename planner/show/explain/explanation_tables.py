"""The explanation of one gang as tables, and as a JSON document."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Any

from models.documents.explanation import PlaceReasons, Why
from models.documents.gang import Parallelism
from models.documents.plan import PlanDocument, PlanGang, PlanPod, PlanQueue
from models.gpu_shares import share_in
from models.instance.cluster import Cluster
from models.instance.gang import Gang, Role
from models.instance.policy import SLURM
from models.rates.gang_rates import own_sets
from models.rates.gpu_sets import UnknownRate
from models.rates.group_bandwidth import GroupRates
from models.rates.group_bandwidth import Place as RankPlace
from models.rates.ranks import placed_kinds
from models.rules.registry import joint_requirements
from models.units import plural, quantity_text, time_text
from models.values.tier_values import known_masks
from planner.show.explain import why_tables
from planner.show.explain.explanation import Candidates, Explanation
from planner.show.explain.why_words import HOLDS, SLURM_HOLDS
from planner.show.plan.gang_groups import Slowdowns, delay, passed_over
from planner.show.plan.gang_groups import why as why_of
from planner.show.plan.plan_tables import STYLE, below_full, places
from planner.show.table import Cell, Column, Table, columns_of, pairs, row_of
from planner.show.text import (
    gigabytes,
    lasting,
    listed,
    number,
    permille,
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
        headline = why_tables.headline("/".join(found.gang.key), why_of(stated), why, _hold(found))
        parts = [headline, why_tables.remedies(why), *parts]
    if place is not None:
        parts.append(why_tables.place(place))
    parts += map(_candidates, found.candidates)
    return [part for part in parts if part.rows]


def _hold(found: Explanation) -> str:
    """What lets a held gang go on."""
    hold = found.gang.hold
    holds = SLURM_HOLDS if found.gang.scheduler == SLURM else HOLDS
    return "" if hold is None else holds.get(hold.code, "")


def _facts(
    found: Explanation,
    plan: PlanDocument,
    stated: PlanGang,
    place: PlaceReasons | None,
    *,
    headed: bool,
) -> Table:
    """``headed``: the name of the gang and the reason are said already."""
    gang = found.gang
    decision = f"{stated.decision}{', aged' * stated.aged}"
    reason = "" if headed else why_of(stated)
    time, since = gang.started_at if gang.running else gang.submitted_at, "since an unknown time"
    if time is not None:
        since = f"since {time_text(time)} ({lasting(max(0, found.instance.now - time))})"
    seconds = gang.expected_duration_s
    lasts = "nobody knows how long" if seconds is None else lasting(seconds)
    rows = [
        *([] if headed else [("gang", Cell("/".join(gang.key), "head"))]),
        ("decision", Cell(f"{decision}: {reason}" if reason else decision, STYLE[stated.decision])),
        ("priority", Cell(_standing(gang))),
        *(("queue", Cell(text)) for text in _queues(plan, gang)),
        ("runs" if gang.running else "waits" if found.waits else "waited", Cell(since)),
        *(("needs", Cell(text)) for text in _needs(found)),
        # How long it runs, where that decides who may start before whom.
        *([] if found.instance.policy.reservations is None else [("lasts", Cell(lasts))]),
        *_placement(plan, stated),
        *([] if place is None else [("why there", Cell(why_tables.summary(place)))]),
        *_later(plan, found, stated),
        *_rank_rows(found, stated),
    ]
    return pairs(rows)


def _standing(gang: Gang) -> str:
    """``10; once it runs it may be stopped and moved``, of a running gang without the condition."""
    may = f"be {listed(_may(gang), 'and')}" if _may(gang) else "neither be stopped nor moved"
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


def _degrees(degrees: Parallelism) -> str:
    """``tensor 8, pipeline 2``: what it states beyond 1."""
    names = ("tensor", "context", "expert", "data", "pipeline")
    stated = [(name, getattr(degrees, name)) for name in names]
    return ", ".join(f"{name} {value}" for name, value in stated if (value or 1) > 1)


def _rank_rows(found: Explanation, stated: PlanGang) -> Iterator[tuple[str, Cell]]:
    """One row for the groups and one for the ranks of each role that has them."""
    several = sum(1 for role in found.gang.roles if role.gpus) > 1
    for index, role in enumerate(found.gang.roles):
        pods = [pod for pod in stated.pods if pod.role == role.name and pod.rank is not None]
        pods.sort(key=lambda pod: pod.rank or 0)
        if not pods:
            continue
        prefix = f"{role.name}: " if several else ""
        groups = _groups(found, index, pods)
        if groups:
            yield "groups", Cell(prefix + groups)
        yield "ranks", Cell(prefix + _ranks(role, pods))


def _groups(found: Explanation, index: int, pods: list[PlanPod]) -> str:
    """``tensor 8 at 370.8 GB/s, data 2 at 50.0 GB/s``: size and rate of every kind of group."""
    instance, gang = found.instance, found.gang
    by_index = {pod.index: pod for pod in found.decision.pods if pod.role == index}
    own = [by_index[pod.index] for pod in pods if pod.index in by_index]
    sets = own_sets(instance, gang, own, known_masks(instance, found.decisions))
    kinds = placed_kinds(gang, index, own, sets)
    if kinds is None:
        return ""
    places = [RankPlace.of(pod.node, pod.gpus) for pod in own]
    gpus, joined = gang.roles[index].gpus, gang.nvlink_across_nodes
    rates = GroupRates(instance.cluster, places, sets, kinds, gpus, joined=joined)
    try:
        found_rates = rates.rates(range(len(own)))
    except UnknownRate:
        return ""
    pairs = zip(kinds, found_rates, strict=True)
    return ", ".join(
        f"{kind.name} {kind.size} at {gigabytes(int(rate))} GB/s" for kind, rate in pairs
    )


def _ranks(role: Role, pods: list[PlanPod]) -> str:
    """``0-15 n1, 16-31 n2``: the ranks on each node in turn, in order."""
    runs = []
    for node, there in groupby(pods, key=lambda pod: pod.node):
        ranks = [pod.rank or 0 for pod in there]
        first, last = ranks[0], ranks[-1] + role.gpus - 1
        runs.append(f"{node} {first}-{last}" if last > first else f"{node} {first}")
    more = f", and {len(runs) - MAX_RUNS:,} more" if len(runs) > MAX_RUNS else ""
    return ", ".join(runs[:MAX_RUNS]) + more


_NEEDS = {
    "balance": "equally many pods in each {}, or one more",
    "exclusive": "each {} without GPUs of other gangs",
}
"""What a gang needs by rules about several, where its entry does not say it as a need."""


def _needs(found: Explanation) -> list[str]:
    """One line for each role, and one for the rules of the gang."""
    gang, cluster = found.gang, found.instance.cluster
    lines = [_role(found, role) for role in gang.roles]
    rules = []
    if gang.required is not None:
        rules.append(f"all pods in one {cluster.level_name(gang.required)}")
    if gang.preferred is not None:
        rules.append(f"if possible in one {cluster.level_name(gang.preferred)}")
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
        rules.append(f"at least {float(share):.0%} of the best bandwidth".replace("%", " %"))
    return [*lines, *(["; ".join(rules)] if rules else [])]


def _role(found: Explanation, role: Role) -> str:
    cluster = found.instance.cluster
    count = plural(role.min, "pod")
    if role.max > role.min:
        step = f" in steps of {role.step}" if role.step > 1 else ""
        count = f"{role.min:,} to {plural(role.max, 'pod')}{step}"
    asked = [request_text(quantity_text(name, amount), name) for name, amount in role.requests]
    if role.gpus or share_in(name for name, _ in role.requests) is None:
        asked = [plural(role.gpus, "GPU"), *asked]
    parts = [f"role {role.name}: {count} of {listed(asked, 'and')}"]
    if role.parallelism is not None and (degrees := _degrees(role.parallelism)):
        parts.append(degrees)
    if role.model is not None:
        parts.append(f"on {role.model}")
    if role.required is not None:
        parts.append(f"in one {cluster.level_name(role.required)}")
    if role.preferred is not None:
        parts.append(f"if possible in one {cluster.level_name(role.preferred)}")
    parts += [
        f"each {plural(size, 'pod')} in one {cluster.level_name(level)}"
        for size, level in role.slice_layers
    ]
    return ", ".join([*parts, *_about_pods(role, cluster)])


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


def _placement(plan: PlanDocument, stated: PlanGang) -> list[tuple[str, Cell]]:
    """Where it runs now and after the plan, how fast, and what slows it down."""
    gpus_of = plan.instance.installed_gpus()
    request = plan.instance.gangs_by_key().get(stated.key)
    rows = []
    if request is not None and request.running_pods and stated.decision != "keep":
        rows.append(("before", Cell(places(request.running_pods, gpus_of))))
    if stated.pods:
        rows.append(("nodes", Cell(places(stated.pods, gpus_of))))
    if stated.domains:
        used = [plural(count, level) for level, count in stated.domains.items()]
        rows.append(("domains", Cell(", ".join(used))))
    if stated.bandwidth is not None:
        text = f"{gigabytes(stated.bandwidth)} GB/s, {permille(stated.share)} of the best"
        rows.append(("bandwidth", Cell(text, below_full(stated.share))))
    if stated.speed is not None:
        slowed = Slowdowns(plan).of(stated, request)
        text = whole_percent(stated.speed_to_come) + (f", slowed by {slowed}" if slowed else "")
        if stated.speed_after is not None:
            text += f"; {whole_percent(stated.speed)} counts, its speed before the plan"
        rows.append(("speed", Cell(text, below_full(stated.speed_to_come))))
    return rows


def _later(plan: PlanDocument, found: Explanation, stated: PlanGang) -> list[tuple[str, Cell]]:
    """What is reserved for a gang that waits, or when it may start."""
    held, expected, now = stated.reserved, stated.expected_start, found.instance.now
    if stated.decision != "wait":
        return []
    rows = []
    if held is not None:
        where = places(held.pods, plan.instance.installed_gpus())
        inside = "" if held.domain is None else f" ({held.domain})"
        by = f"by {time_text(held.start)} (in {lasting(max(0, held.start - now))})"
        rows = [("starts", f"{by}, if gangs end as expected"), ("there", where + inside)]
    elif expected is not None:
        about = f"about {time_text(expected)} (in {lasting(max(0, expected - now))})"
        rows = [("starts", f"{about}, if nothing new arrives: an estimate")]
    rows += [("delayed", delay(stated)), ("passed over", passed_over(stated))]
    return [(title, Cell(said)) for title, said in rows if said]


def _candidates(one: Candidates) -> Table:
    """The nodes for one role: which are excluded and why, what the others have."""
    rows = [row_of(number(n), "-", "-", f"excluded: {cause}") for cause, n in one.excluded]
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


def _may(gang: Gang) -> list[str]:
    return [word for word, yes in (("stopped", gang.preemptible), ("moved", gang.movable)) if yes]


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
                "excluded": [{"cause": cause, "nodes": nodes} for cause, nodes in one.excluded],
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
