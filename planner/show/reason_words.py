"""The sentences of reasons: the one place that makes words of codes and fields.

Nothing reads these words again: programs read the fields (``models.documents.reason``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from models.documents.reason import UNSTATED, ReasonFields, ReasonFirst
from models.instance.solution import Reason
from models.units import plural, shown, time_text
from planner.show.text import domain_text, listed, resource_text

Clauses = Iterator[str]


def words(reason: Reason) -> str:
    """The sentence of a reason, without its code."""
    return sentence(UNSTATED if reason.bare else reason.code, reason.fields)


def sentence(code: str, fields: ReasonFields) -> str:
    """The same of a code and fields; of a code of a newer version, what the fields say."""
    said = "; ".join((_CLAUSES.get(code) or _of_rule(code))(fields))
    return said or "no more is known"


def _short(f: ReasonFields) -> Clauses:
    """What it needs, what room there is, who holds the rest, and what would help."""
    if f.text is not None:
        yield f.text
        return
    if f.broken:
        yield "its running pods already violate its required topology or GPU model"
        return
    if f.pods is not None or f.gpus is not None:
        yield _needs(f)
    if f.fits is not None:
        yield from _fitting(f)
    elif f.ended:
        yield f"no place was found{_start_first(f.first)}, and the search ended before the cause was known"
    elif f.apart:
        together = "its pods do not fit together"
        if f.level is not None:
            together += f" {_in_one(f.level)}"
        free = "on the GPUs, cpu, memory and pod slots that are free"
        yield f"{_without(f)}{together} under its topology rules, {free}"
    elif f.counted is not None:
        yield _room(f)
    yield from _holders(f)
    yield from _tried(f)


def _needs(f: ReasonFields) -> str:
    """``role worker needs 4 pods of 8 GPUs in one rack``."""
    who = "needs" if f.role is None else f"role {f.role} needs"
    if f.pods is None or f.gpus_per_pod is None:
        model = "" if f.model is None or f.counted is not None else f" {shown(f.model)}"
        amount = f"{f.gpus:,}{model} GPU{'s' * (f.gpus != 1)}" if f.gpus else "no whole GPU"
        needs = f"{who} {amount}"
    elif f.slices is not None and f.slice_pods is not None and f.level is not None:
        pods = _pods(f.slice_pods, f.gpus_per_pod)
        return f"{who} {plural(f.slices, 'slice')} of {pods}, each {_in_one(f.level)}"
    elif _counts_gpus(f):
        needs = f"{who} {plural(f.pods, 'GPU')}"
    else:
        needs = f"{who} {_pods(f.pods, f.gpus_per_pod)}"
    if f.one_model:
        needs += " of one model" if _counts_gpus(f) else " with GPUs of one model"
    return needs if f.level is None else f"{needs} {_in_one(f.level)}"


def _counts_gpus(f: ReasonFields) -> bool:
    """Whether pods of one GPU are said as GPUs."""
    return f.gpus_per_pod == 1 and f.room_pods == f.room_gpus and f.counted != "empty"


def _pods(count: int, gpus: int) -> str:
    return plural(count, "pod") + (f" of {plural(gpus, 'GPU')}" if gpus else "")


def _in_one(level: str) -> str:
    return "on one node" if level == "node" else f"in one {level}"


def _some_of(count: int, what: str) -> str:
    return plural(count, what) if count else "none"


def _room(f: ReasonFields) -> str:
    """``before this plan, the rack with the most room, b1/r1, has room for 2 pods (16 GPUs free)``."""
    most = ""
    if f.domain is not None:
        most = f"the {f.level} with the most room, {domain_text(f.domain)},"
    elif f.one_model:
        most = f"the GPU model with the most room, {f.model},"
    there = f"{most} has" if most else "there is"
    free = " free" * (f.counted != "empty")
    if f.room_slices is not None:
        text = f"{there} room for {_some_of(f.room_slices, 'slice')}"
    elif f.resources and f.room_pods is not None:
        scarce = listed([_RESOURCE.get(one, resource_text(one)) for one in f.resources], "and")
        gpus = "the GPUs and " * bool(f.gpus_per_pod)
        are = "is" if not gpus and len(f.resources) == 1 and not scarce.endswith("s") else "are"
        enough = (
            f"enough for {plural(f.room_pods, 'pod')}" if f.room_pods else "not enough for one pod"
        )
        text = f"{gpus}the {scarce} of its nodes {are} {enough}"
    elif f.room_pods is not None and not _counts_gpus(f):
        text = f"{there} room for {_some_of(f.room_pods, 'pod')}"
        if f.room_gpus is not None:
            text += f" ({plural(f.room_gpus, 'GPU')}{free})"
    elif most:
        text = f"{most} has {f.room_gpus or 0:,}{free}"
    else:
        some = (
            f"{f.room_gpus:,} {'is' if f.room_gpus == 1 else 'are'}" if f.room_gpus else "none is"
        )
        text = f"{some} free on the nodes that it may use"
        if (
            f.pods is None
            and f.role is None
            and f.gpus is not None
            and f.gpus <= (f.room_gpus or 0)
        ):
            text += ", but no place was found for its pods"
    return _when(f) + text


_RESOURCE = {"pods": "pod slots"}


def _when(f: ReasonFields) -> str:
    """On what the room was counted."""
    if f.counted == "empty":
        return "even on the empty cluster, "
    if f.counted == "first":
        first = _first(f.first)
        if first:
            return f"after {first} start{'s' * _alone(f.first)}, "
        return "after this plan, " if f.first is None else "before gangs of lower priority start, "
    return _without(f) or "before this plan, "


def _without(f: ReasonFields) -> str:
    if not f.without:
        return ""
    gangs = "the running gang" if f.without == 1 else f"the {f.without:,} running gangs"
    return f"even without {gangs} that may be stopped or moved, "


def _first(first: ReasonFirst | None) -> str:
    """``3 gangs of higher priority and 2 of its priority``; empty if none start first."""
    if first is None:
        return ""
    bands = [
        (first.higher, "of higher priority"),
        (first.aged, "of its priority that waited too long"),
        (first.peers, "of its priority"),
    ]
    named = [(count, which) for count, which in bands if count]
    if not named:
        return ""
    (count, which), *rest = named
    said = [f"{plural(count, 'gang')} {which}", *(f"{count:,} {which}" for count, which in rest)]
    return listed(said, "and")


def _alone(first: ReasonFirst | None) -> bool:
    return first is not None and first.higher + first.aged + first.peers == 1


def _start_first(first: ReasonFirst | None) -> str:
    said = _first(first)
    return f" after {said} start{'s' * _alone(first)}" if said else ""


def _holders(f: ReasonFields) -> Clauses:
    """``3 GPUs there are held by a/b (2) and a/c (1); there is room for it once they end``.

    Room, not a start: another gang that waits may come first.
    """
    if not f.holders:
        return
    total = sum(one.gpus for one in f.holders)
    where = "there" if f.domain is not None else "on the nodes that it may use"
    are = "is" if total == 1 else "are"
    if len(f.holders) == 1:
        named, they, end = f.holders[0].gang, "that gang", f"{f.holders[0].gang} ends"
    else:
        named = listed([f"{one.gang} ({one.gpus:,})" for one in f.holders], "and")
        they, end = "them", "they end"
    yield f"{plural(total, 'GPU')} {where} {are} held by {named}"
    if f.instead:
        yield f"without {they}, it could start there in place of gangs that this plan starts"
    else:
        yield f"there is room for it once {end}"


def _tried(f: ReasonFields) -> Clauses:
    """What the search knows of making room, and what would help."""
    if f.proven is not None:
        peers = "gangs of its priority or higher"
        peers += " or within their guarantees" * f.within
        proof = "proven"
        if f.unmoved:
            do = "do" if len(f.unmoved) + f.more > 1 else "does"
            proof += f" while {_some(f.unmoved, f.more, 'other gang')} {do} not move"
        yield f"{_PROVEN[f.proven].format(peers=peers)} ({proof})"
    if f.tried:
        gangs = "the running gang" if f.tried == 1 else f"the {f.tried:,} running gangs"
        yield f"no way was found to make room by moving or stopping {gangs} that may give way"
    if f.guarded is not None:
        budgets = listed([shown(one) for one in f.guarded.budgets], "and")
        if f.guarded.until is not None:
            why = f"its minRunTime ends at {time_text(f.guarded.until)}"
        elif f.guarded.allowed is None:
            why = f"the disruption budgets {budgets} both guard one of its pods"
        else:
            takes = f"that takes {plural(f.guarded.evictions or 0, 'eviction')}"
            why = f"{takes}, and the disruption budget {budgets} allows {f.guarded.allowed:,}"
        yield f"{f.guarded.gang} may not be stopped or moved: {why}"
    if f.help is not None:
        yield _HELP[f.help]


_PROVEN = {
    "noPlanAdmits": "no plan that keeps the earlier tiers can start it",
    "noPlanGains": "no plan that keeps the earlier tiers gains from starting it",
    "displacesPeers": "starting it would displace {peers}",
    "slowsPeers": "starting it would slow down or displace {peers}, or gain nothing",
}

_HELP = {
    "smallerRequests": "even if no gang ran its pods would not fit: smaller requests would help",
    "nodesInOrder": "it needs nodes or GPUs that are cordoned, not ready or unhealthy now",
    "preemptible": "making running gangs of lower priority preemptible may help",
    "othersEnd": "it may start once enough running gangs end",
}


def _fitting(f: ReasonFields) -> Clauses:
    """It would fit, and what counts more."""
    where = " in place of gangs of lower priority" * (f.fits == "instead")
    fits = f"it would fit{where}{_start_first(f.first)}"
    earlier = [*(["what queues are guaranteed"] if f.guaranteed else []), *f.earlier]
    if f.unrewarded:
        yield f"{fits}, but no tier of the policy rewards starting it"
    elif f.no_speed:
        yield f"{fits}, but its speed there would be 0"
    elif f.ended or not earlier:
        yield f"{fits}, but the search ended before it was placed"
    else:
        come = "comes" if len(earlier) == 1 else "come"
        yield f"{fits}, but {listed(earlier, 'and')} {come} first"


def _ruled_out(rule: str) -> Callable[[ReasonFields], Clauses]:
    """It would fit but for a rule about several gangs."""

    def clauses(f: ReasonFields) -> Clauses:
        yield _needs(f)
        yield f"there is room{_start_first(f.first)}, but no place was found that {rule}"
        yield from _tried(f)

    return clauses


def _of_rule(code: str) -> Callable[[ReasonFields], Clauses]:
    """The same of a rule without words of its own: as its entry says."""
    from models.rules.registry import joint_requirements  # a light door shows no reasons

    for one in joint_requirements():
        if one.code == code:
            return _ruled_out(f"keeps {one.name}: {one.asks.format('domain')}")
    return _short


def _bandwidth(f: ReasonFields) -> Clauses:
    yield f"{_without(f)}no place on the free GPUs reaches its minBandwidthShare of {f.share or 0:g}"
    yield from _tried(f)


def _selector(f: ReasonFields) -> Clauses:
    if f.matching is None:
        yield "none of the nodes takes its pods"
        return
    who = "needs" if f.role is None else f"role {f.role} needs"
    yield f"{who} {_wanted(f) or 'a node that it tolerates'}"
    why = "excluded by other rules" if f.by_rules else "cordoned, not ready or tainted"
    if f.matching == 1:
        yield f"the only such node is {why}"
    else:
        yield f"all {f.matching or 0:,} such nodes are {why}"


def _wanted(f: ReasonFields) -> str:
    return "" if f.nodes_with is None else f"nodes with {f.nodes_with}"


def _queue_order(f: ReasonFields) -> Clauses:
    for one in f.by:
        yield (
            f"queue {shown(f.queue or '')} starts gangs in order, and {one.gang}"
            f" (priority {one.priority}) is before it and waits"
        )


def _reserved(f: ReasonFields) -> Clauses:
    starts = [
        f"{one.gang} (priority {one.priority}"
        + ("" if one.start is None else f", start {time_text(one.start)}")
        + ")"
        for one in f.by
    ]
    holders = _some(starts, f.more, "other gang")
    if f.reserved_nodes is None:
        yield f"what it would hold in queues, or of what they are guaranteed, is reserved for {holders}"
    else:
        are = "is" if f.reserved_nodes == 1 else "are"
        nodes = plural(f.reserved_nodes, "node")
        yield f"{nodes} where it would fit {are} reserved for {holders}"
    yield "how long it runs is not known" if f.endless else "it would run beyond that"


def _quota(f: ReasonFields) -> Clauses:
    queue = "other queues" if f.queue is None else f"queue {shown(f.queue)}"
    if f.gpus is not None:
        firm = " and is not preemptible" * (f.limit is None and f.kept is None)
        model = "" if f.model is None else f" {shown(f.model)}"
        yield f"needs {f.gpus:,}{model} GPU{'s' * (f.gpus != 1)}{firm}"
    if f.limit is not None:
        held = f"{f.held or 0:,} of the {f.limit:,} that it may hold{_of_firm(f)}"
        yield f"with this plan, {queue} holds {held}"
        if f.kept:
            yield f"and queues below it keep {f.kept:,} that they do not lend"
    elif f.kept is not None:
        yield f"with this plan, all that queues lend is taken: {queue} keeps {f.kept:,} to itself"
    elif f.guarantee is not None:
        left = f"{queue} may still take {f.unused or 0:,} of its {f.guarantee:,}"
        yield f"so many would leave too few for what queues are guaranteed: {left}"
    elif f.pinned:
        are = "is" if f.pinned == 1 else "are"
        yield f"where there is room, {plural(f.pinned, 'node')} {are} pinned to {queue}"
    elif f.cells:
        size = f"the level {f.level}" if f.level else plural(f.cell_gpus or 0, "GPU")
        yield f"where there is room, it would take {plural(f.cells, 'cell')} of {size} from {queue}"
    else:
        yield f"where there is room, it would take cells from {queue}"


def _of_firm(f: ReasonFields) -> str:
    return " with gangs that are not preemptible" * f.not_preemptible


_RULES_KEPT = {
    "AntiAffinity": "pods apart that must be apart",
    "Affinity": "its pods near those that they must be next to",
    "Spread": "its pods spread evenly over as many domains as it asks for",
    "Balance": "equal shares over the domains that it uses",
    "Bandwidth": "its minBandwidthShare",
    "Quota": "the limits of queues, and what is promised to them",
}
"""What a rule keeps, by its code."""


def _never(f: ReasonFields) -> Clauses:
    """What no cluster state changes, and what would help."""
    who = "" if f.role is None else f"role {f.role} "
    if f.taints:
        nodes = "" if f.nodes_with is None else f" with {f.nodes_with}"
        taints = _some(f.taints, f.more, "other")
        yield f"{who}tolerates the taints of no node{nodes}: {taints}"
    elif f.queue is not None and f.limit is not None:
        yield _needs(f)
        yield f"queue {shown(f.queue)} may hold at most {f.limit:,}{_of_firm(f)}"
    elif f.rule is not None or f.apart:
        yield _needs(f)
        yield _no_place(f.rule)
    elif f.node_gpus is not None:
        yield f"{who}needs pods of {plural(f.gpus_per_pod or 0, 'GPU')}"
        yield f"the largest node that it may use has {f.node_gpus:,}"
        yield "smaller pods would help"
    elif f.asked is not None and f.offered is not None:
        resource = listed([_RESOURCE.get(one, resource_text(one)) for one in f.resources], "and")
        pod = "a pod" if f.role is None else f"a pod of role {f.role}"
        yield f"{pod} requests {f.asked} {resource}"
        yield f"no node that it may use offers more than {f.offered}"
    elif f.counted is not None:
        yield _needs(f)
        yield _room(f)
        if f.level is not None:
            yield "a wider level, or fewer pods, would help"
        elif f.one_model:
            yield "mixModels may help"
        else:
            yield "fewer or smaller pods, or more nodes, would help"
    else:
        selected = " that the Policy selects" * f.selected
        yield f"{who}needs {_wanted(f) or 'nodes'}"
        yield f"the cluster has none{selected}"
        if f.models:
            yield f"its GPU models are {_some(f.models, f.more, 'other')}"


def _no_place(rule: str | None) -> str:
    if rule is None:
        return "an exact search found that its pods do not fit together even on the empty cluster"
    return f"no place on the empty cluster keeps {_RULES_KEPT.get(rule, f'the rule {shown(rule)}')}"


def _preempted(f: ReasonFields) -> Clauses:
    names = [f"{one.gang} (priority {one.priority})" for one in f.by]
    yield f"it makes room for {_some(names, f.more, 'more gang')}" if names else "it makes room"


def _incomplete(f: ReasonFields) -> Clauses:
    if f.text is not None:
        yield f.text
        return
    are = "is" if f.missing == 1 else "are"
    missing = f"{plural(f.missing or 0, 'pod')} {are} missing"
    if f.cause in (None, "Incomplete"):
        yield missing
    else:
        yield f"{missing}: {sentence(f.cause or '', f)}"


def _queue_limit(f: ReasonFields) -> Clauses:
    yield (
        f"{f.limit or 0:,} waiting gangs of its namespace are older or of higher priority, and the Policy's "
        "queueLimit plans no more of one namespace"
    )


def _backoff(f: ReasonFields) -> Clauses:
    done = "it once" if f.evictions == 1 else f"or moved it {f.evictions or 0:,} times"
    until = "" if f.until is None else f"; it may start again at {time_text(f.until)}"
    yield f"plans stopped {done}{until}"


def _some(names: Iterable[str], more: int, noun: str) -> str:
    return listed([*names, *([plural(more, noun)] if more else [])], "and")


_CLAUSES: Mapping[str, Callable[[ReasonFields], Clauses]] = {
    "NoRoom": _short,
    "Resources": _short,
    "RequiredTopology": _short,
    "Outranked": _short,
    "Bandwidth": _bandwidth,
    "Selector": _selector,
    "AntiAffinity": _ruled_out("keeps the anti-affinity of its pods"),
    "Affinity": _ruled_out("keeps the affinity of its pods"),
    "Spread": _ruled_out("keeps its pods evenly spread"),
    "Balance": _ruled_out("gives equal shares to the domains that it uses (balance)"),
    "Exclusive": _ruled_out("keeps the exclusive domains of gangs"),
    "Spares": _ruled_out("leaves enough nodes free for failures (spares)"),
    "QueueOrder": _queue_order,
    "Reserved": _reserved,
    "Quota": _quota,
    "Never": _never,
    "Preempted": _preempted,
    "Incomplete": _incomplete,
    "QueueLimit": _queue_limit,
    "Backoff": _backoff,
    "Gated": _short,
    "Unsupported": _short,
    UNSTATED: lambda _: iter(
        (
            "the reason that was found is left out: the check of the plan refused it (see the warnings)",
        )
    ),
}
"""What is said of each code."""
