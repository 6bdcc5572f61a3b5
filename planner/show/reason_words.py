"""The sentences of reasons: the one place that makes words of codes and fields.

Nothing reads these words again: programs read the fields (``models.documents.reason``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from models.documents.reason import UNSTATED, ReasonFields, ReasonGang
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
    """What it needs, what room the plan leaves, and who would have to go."""
    if f.text is not None:
        yield f.text
        return
    if f.gpus is None and f.pods is None:
        if f.proven:
            yield "its running pods already violate its required topology or GPU model"
        return
    yield _needs(f)
    if not f.has_room:
        if f.proven:
            where = "" if f.level is None else f" {_in_one(f.level)}"
            yield f"its pods do not fit together{where}, whoever gives way (proven)"
        else:
            yield "no place was found, and the search ended before the cause was known"
        return
    yield f"after this plan, {_room(f)}"
    if f.by:
        yield f"it could start without {_gangs(f.by)}"
    elif f.proven:
        yield _PROVEN


_PROVEN = "no better plan starts it (proven)"


def _needs(f: ReasonFields) -> str:
    """``role worker needs 4 pods of 8 GPUs in one rack``."""
    who = "needs" if f.role is None else f"role {f.role} needs"
    if f.pods is not None and f.gpus is not None:
        needs = f"{who} {_pods(f)}"
        if f.model is not None:
            needs += " of one model" if _single(f) else " with GPUs of one model"
    else:
        model = "" if f.model is None else f" {shown(f.model)}"
        needs = f"{who} {f.gpus:,}{model} GPU{'s' * (f.gpus != 1)}" if f.gpus else f"{who} no GPU"
    return needs if f.level is None else f"{needs} {_in_one(f.level)}"


def _single(f: ReasonFields) -> bool:
    """Whether pods of one GPU are said as GPUs."""
    return f.pods == f.gpus and f.room_pods in (None, f.room_gpus)


def _pods(f: ReasonFields) -> str:
    count, gpus = f.pods or 0, int(f.gpus or 0)
    if not gpus:
        return plural(count, "pod")
    return (
        plural(count, "GPU")
        if _single(f)
        else f"{plural(count, 'pod')} of {plural(gpus // count, 'GPU')}"
    )


def _in_one(level: str) -> str:
    return "on one node" if level == "node" else f"in one {level}"


def _room(f: ReasonFields) -> str:
    """``the rack with the most room, b1/r1, has room for 2 pods (16 GPUs free)``."""
    most = ""
    if f.domain is not None:
        most = f"the {f.level} with the most room, {domain_text(f.domain)},"
    elif f.model is not None:
        most = f"the GPU model with the most room, {f.model},"
    there = f"{most} has" if most else "there is"
    if f.resources:
        scarce = listed([_RESOURCE.get(one, resource_text(one)) for one in f.resources], "and")
        gpus = "free GPUs and " * bool(f.gpus)
        pods = plural(f.room_pods, "pod") if f.room_pods else "no pod"
        together = " together" if gpus or len(f.resources) > 1 else ""
        return f"its nodes have {gpus}{scarce}{together} for {pods}"
    if f.room_pods is not None and not _single(f):
        pods = plural(f.room_pods, "pod") if f.room_pods else "none"
        scattered = ", scattered" if f.gpus and (f.room_gpus or 0) >= f.gpus else ""
        return f"{there} room for {pods} ({plural(f.room_gpus or 0, 'GPU')} free{scattered})"
    if most:
        return f"{most} has {f.room_gpus or 0:,} free"
    free = f"{f.room_gpus:,} {'is' if f.room_gpus == 1 else 'are'}" if f.room_gpus else "none is"
    fits = f.pods is None and f.gpus is not None and f.gpus <= (f.room_gpus or 0)
    apart = ", but no place was found for its pods" if fits else ""
    return f"{free} free on the nodes that it may use{apart}"


_RESOURCE = {"pods": "pod slots"}


def _gangs(gangs: tuple[ReasonGang, ...]) -> str:
    """``ml/notebook (1 GPU at priority 0)``."""
    found = []
    for one in gangs:
        gpus = "" if one.gpus is None else f"{plural(one.gpus, 'GPU')} at "
        start = "" if one.start is None else f", from {time_text(one.start)}"
        found.append(f"{one.gang} ({gpus}priority {one.priority}{start})")
    return listed(found, "and")


def _outranked(f: ReasonFields) -> Clauses:
    """It has no room beside those that start first, or it would fit, and something else counts more."""
    if f.gpus is None or f.has_room:
        yield from _short(f)
    elif f.proven:
        yield f"it would fit, but {_PROVEN}"
    else:
        yield (
            "it would fit beside or in place of others, but tiers of the policy that come first decide"
            " otherwise, or the search ended before it was placed"
        )


RULES = {
    "AntiAffinity": "keeps the anti-affinity of its pods",
    "Affinity": "keeps the affinity of its pods",
    "Spread": "keeps its pods evenly spread",
    "Balance": "gives equal shares to the domains that it uses (balance)",
    "Exclusive": "keeps the exclusive domains of gangs",
    "Spares": "leaves enough nodes free for failures (spares)",
    "Bandwidth": "keeps its minBandwidthShare",
    "Quota": "keeps the limits of queues, and what is promised to them",
}
"""What a place does that a rule allows, by the code of the rule."""


def _ruled_out(rule: str) -> Callable[[ReasonFields], Clauses]:
    """It would fit but for a rule about several gangs."""

    def clauses(f: ReasonFields) -> Clauses:
        yield _needs(f)
        yield f"there is room, but no place was found that {rule}"
        if f.proven:
            yield _PROVEN

    return clauses


def _of_rule(code: str) -> Callable[[ReasonFields], Clauses]:
    """The same of a rule without words of its own: as its entry says."""
    from models.rules.registry import joint_requirements  # a light door shows no reasons

    for one in joint_requirements():
        if one.code == code:
            return _ruled_out(f"keeps {one.name}: {one.asks.format('domain')}")
    return _short


def _selector(f: ReasonFields) -> Clauses:
    who = "needs" if f.role is None else f"role {f.role} needs"
    yield f"{who} {'a node' if f.nodes_with is None else f'nodes with {f.nodes_with}'}"
    taints = f" ({listed(list(f.taints), 'and')})" if f.taints else ""
    yield f"all such nodes are cordoned, not ready, tainted{taints} or excluded by other rules"


def _queue_order(f: ReasonFields) -> Clauses:
    for one in f.by:
        yield (
            f"queue {shown(f.queue or '')} starts gangs in order, and {one.gang}"
            f" (priority {one.priority}) is before it and waits"
        )


def _reserved(f: ReasonFields) -> Clauses:
    yield f"where it would fit, nodes or shares of queues are reserved for {_gangs(f.by)}"
    yield "it would run beyond that, or nobody knows how long it runs"


def _quota(f: ReasonFields) -> Clauses:
    queue = "other queues" if f.queue is None else f"queue {shown(f.queue)}"
    if f.gpus is not None:
        yield _needs(f.model_copy(update={"level": None}))
    if f.held is not None:
        yield f"with this plan, {queue} holds {f.held:,} of the {f.limit or 0:,} that gangs like it may hold"
    elif f.limit is not None:
        yield f"so many would leave too little of the {f.limit:,} that are promised to {queue}"
    elif f.level is not None:
        yield f"where there is room, it would take a whole {f.level} that is promised to {queue}"
    else:
        yield f"where there is room, nodes are promised to {queue}"


def _never(f: ReasonFields) -> Clauses:
    """What no state of the cluster changes, and what would help."""
    who = "" if f.role is None else f"role {f.role} "
    if f.taints:
        nodes = "" if f.nodes_with is None else f" with {f.nodes_with}"
        yield f"{who}tolerates the taints of no node{nodes}: {listed(list(f.taints), 'and')}"
    elif f.queue is not None:
        yield _needs(f)
        yield f"queue {shown(f.queue)} lets gangs like it hold at most {f.limit or 0:,}"
    elif f.offered is not None and f.resources:
        resource = listed([_RESOURCE.get(one, resource_text(one)) for one in f.resources], "and")
        pod = "a pod" if f.role is None else f"a pod of role {f.role}"
        yield f"{pod} requests more {resource} than a node has"
        yield f"no node that it may use offers more than {f.offered}"
    elif f.offered is not None:
        yield f"{who}needs {_pods(f)}"
        yield f"the largest node that it may use has {f.offered}"
        yield "smaller pods may help"
    elif f.has_room:
        yield _needs(f)
        yield f"even on the empty cluster, {_room(f).replace(' free', '')}"
        if f.level is not None:
            yield "a wider level, or fewer pods, may help"
        elif f.model is not None:
            yield "mixModels may help"
        else:
            yield "fewer or smaller pods, or more nodes, may help"
    elif f.gpus is not None:
        yield _needs(f)
        if f.cause is None:
            yield "an exact search found that its pods do not fit together even on the empty cluster"
        else:
            rule = RULES.get(f.cause, f"keeps the rule {shown(f.cause)}")
            yield f"no place on the empty cluster {rule}"
    else:
        yield f"{who}needs {'nodes' if f.nodes_with is None else f'nodes with {f.nodes_with}'}"
        yield "there are none"


def _incomplete(f: ReasonFields) -> Clauses:
    if f.text is not None:
        yield f.text
    elif f.cause in (None, "Incomplete"):
        yield "some of its pods are missing"
    else:
        yield f"some of its pods are missing: {sentence(f.cause or '', f)}"


def _queue_limit(f: ReasonFields) -> Clauses:
    yield (
        f"{f.limit or 0:,} waiting gangs of its namespace are older or of higher priority, and the Policy's "
        "queueLimit plans no more of one namespace"
    )


def _backoff(f: ReasonFields) -> Clauses:
    until = "" if f.until is None else f"; it may start again at {time_text(f.until)}"
    yield f"plans stopped or moved it{until}"


_CLAUSES: Mapping[str, Callable[[ReasonFields], Clauses]] = {
    **{code: _ruled_out(rule) for code, rule in RULES.items()},
    "NoRoom": _short,
    "Resources": _short,
    "RequiredTopology": _short,
    "Outranked": _outranked,
    "Bandwidth": lambda _: iter(
        ("no place on the free GPUs reaches its minBandwidthShare, whoever gives way",)
    ),
    "Selector": _selector,
    "QueueOrder": _queue_order,
    "Reserved": _reserved,
    "Quota": _quota,
    "Never": _never,
    "Preempted": lambda f: iter((f"it makes room{f' for {_gangs(f.by)}' if f.by else ''}",)),
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
