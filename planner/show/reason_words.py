"""The sentences of reasons: the one place that makes words of codes and fields.

Nothing reads these words again: programs read the fields (``models.documents.reason``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from models.documents.gang import slurm_option
from models.documents.reason import CODES, UNSTATED, ReasonFields, ReasonGang
from models.instance.solution import Reason
from models.units import plural, shown, time_text
from planner.show.text import domain_text, listed, resource_text

Clauses = Iterator[str]


def words(reason: Reason) -> str:
    """The sentence of a reason, without its code."""
    return sentence(UNSTATED if reason.bare else reason.code, reason.fields)


def sentence(code: str, fields: ReasonFields) -> str:
    """The same of a code and fields; where these say nothing, what the code means."""
    if fields.text is not None:
        return fields.text
    clauses = _CLAUSES.get(code)
    said = "" if clauses is None else "; ".join(clauses(fields))
    if said or fields.gpus is None:
        return said or _meaning(code)
    proven = f"; {_PROVEN}" if fields.proven else ""
    return f"{_needs(fields)}; {_meaning(code)}{proven}"


def _meaning(code: str) -> str:
    """What a code means; of a newer version's nothing is known."""
    return CODES[code].meaning if code in CODES else "no more is known"


_PROVEN = "no better plan starts it (proven)"


def _short(f: ReasonFields) -> Clauses:
    """What it needs, what room the plan leaves, and who would have to go."""
    if f.gpus is None and f.pods is None:
        if f.proven:
            yield "its running pods already violate its required topology or GPU model"
        return
    yield f"{_needs(f)}{_inside(f, 'one')}"
    if not f.has_room:
        if f.proven:
            yield f"its pods do not fit together{_inside(f, 'one')}, whoever gives way (proven)"
        else:
            yield "no place was found, and the search ended before the cause was known"
        return
    yield f"after this plan, {_room(f)}"
    if f.by:
        yield f"it could start without {_gangs(f.by)}"
    elif f.proven:
        yield _PROVEN


def _needs(f: ReasonFields) -> str:
    """``role worker needs 4 pods of 8 GPUs``."""
    if f.pods is None:
        model = "" if f.model is None else f"{shown(f.model)} "
        return f"{_who(f)}needs {plural(f.gpus or 0, f'{model}GPU')}"
    gpus = f" of {plural(int(f.gpus or 0) // max(1, f.pods), 'GPU')}" if f.gpus else ""
    one_model = "" if f.model is None else " of one model"
    return f"{_who(f)}needs {plural(f.pods, 'pod')}{gpus}{one_model}"


def _who(f: ReasonFields) -> str:
    return "" if f.role is None else f"role {f.role} "


def _inside(f: ReasonFields, which: str) -> str:
    """`` in one rack``; empty without a level."""
    if f.level is None:
        return ""
    return f" {'on' if f.level == 'node' else 'in'} {which} {f.level}"


def _room(f: ReasonFields) -> str:
    """``there is room for 2 pods in the rack with the most room, b1/r1 (16 GPUs free)``."""
    where = ""
    if f.domain is not None:
        where = f"{_inside(f, 'the')} with the most room, {domain_text(f.domain)}"
    elif f.model is not None:
        where = f" on the GPU model with the most room, {f.model}"
    free = f"{plural(f.room_gpus or 0, 'GPU')} free"
    if f.room_pods is None:
        verb, where = "is" if f.room_gpus == 1 else "are", where or " on the nodes that it may use"
        return f"there {verb} {free}{where}, and no place was found for all its pods"
    if f.resources:
        free = f"counting {listed(['free GPUs'] * bool(f.gpus) + _resources(f), 'and')}"
    pods = plural(f.room_pods, "pod") if f.room_pods else "none"
    return f"there is room for {pods}{where} ({free})"


def _resources(f: ReasonFields) -> list[str]:
    return ["pod slots" if one == "pods" else resource_text(one) for one in f.resources]


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


def _selector(f: ReasonFields) -> Clauses:
    yield f"{_who(f)}needs {'a node' if f.nodes_with is None else f'nodes with {f.nodes_with}'}"
    taints = f" ({_taints(f)})" if f.taints else ""
    yield f"all such nodes are cordoned, not ready, tainted{taints} or excluded by other rules"


def _taints(f: ReasonFields) -> str:
    """Their keys; of a reservation of Slurm the option that uses it."""
    return listed([slurm_option(key, "").strip("=") or key for key in f.taints], "and")


def _queue_order(f: ReasonFields) -> Clauses:
    if f.by:
        yield f"queue {shown(f.queue or '')} starts gangs in order, and {_gangs(f.by)} is before it and waits"


def _reserved(f: ReasonFields) -> Clauses:
    whom = f" for {_gangs(f.by)}" if f.by else ""
    yield f"where it would fit, nodes or shares of queues are reserved{whom}"
    yield "it would run beyond that, or nobody knows how long it runs"


def _quota(f: ReasonFields) -> Clauses:
    queue = "other queues" if f.queue is None else f"queue {shown(f.queue)}"
    if f.gpus is not None:
        yield _needs(f)
    if f.held is not None:
        yield f"with this plan, {queue} holds {f.held:,} of the {f.limit or 0:,} that gangs like it may hold"
    elif f.limit is not None:
        yield f"so many would leave too little of the {f.limit:,} that are promised to {queue}"
    else:
        taken = "nodes are" if f.level is None else f"it would take a whole {f.level} that is"
        yield f"where there is room, {taken} promised to {queue}"


def _never(f: ReasonFields) -> Clauses:
    """What no state of the cluster changes."""
    nodes = "nodes" if f.nodes_with is None else f"nodes with {f.nodes_with}"
    if f.taints:
        yield f"{_who(f)}needs {nodes}"
        yield f"all of them have taints that it does not tolerate: {_taints(f)}"
    elif f.offered is not None:
        what = listed(_resources(f), "and") or "GPUs"
        yield f"{_who(f)}requests more {what} a pod than any node that it may use has: {f.offered} at most"
    elif f.gpus is None:
        yield f"{_who(f)}needs {nodes}"
        yield "there are none"
    else:
        yield f"{_needs(f)}{_inside(f, 'one')}"
        if f.queue is not None:
            yield f"queue {shown(f.queue)} lets gangs like it hold at most {f.limit or 0:,}"
        elif f.has_room:
            yield f"even on the empty cluster, {_room(f)}"
        elif f.cause is not None:
            yield f"even on the empty cluster: {_meaning(f.cause)}"
        else:
            yield "an exact search found that its pods do not fit together even on the empty cluster"


def _incomplete(f: ReasonFields) -> Clauses:
    why = "" if f.cause in (None, "Incomplete") else f": {sentence(f.cause, f)}"
    yield f"some of its pods are missing{why}"


def _preempted(f: ReasonFields) -> Clauses:
    yield f"it makes room{f' for {_gangs(f.by)}' if f.by else ''}"


def _backoff(f: ReasonFields) -> Clauses:
    until = "" if f.until is None else f"; it may start again at {time_text(f.until)}"
    yield f"plans stopped or moved it{until}"


_CLAUSES: Mapping[str, Callable[[ReasonFields], Clauses]] = {
    "NoRoom": _short,
    "Resources": _short,
    "RequiredTopology": _short,
    "Outranked": _outranked,
    "Selector": _selector,
    "QueueOrder": _queue_order,
    "Reserved": _reserved,
    "Quota": _quota,
    "Never": _never,
    "Preempted": _preempted,
    "Incomplete": _incomplete,
    "Backoff": _backoff,
}
"""What is said of the codes whose fields are to be named; of all others their meaning."""
