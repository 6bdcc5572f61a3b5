"""What ``verify`` checks of every field that a plan states, and what it cannot: the one table of both.

A field without ``why`` is worked out again from the instance and the decisions. A field with ``why`` is
listed in ``status.unchecked`` of every plan that states it, and by ``verify``. A new field of a plan
needs a row here; the judge shares this table, as it shares the document types, and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

from models.documents.reason import CODES

ORIGIN = "where the plan comes from; verify reads neither the input nor the cluster"
WORDS = "words for people; programs read the fields"
SEARCH = "what the search did and took; it is not in the plan"
PROOF = "a proof of the search, which takes a solver"
FOUND = "what the search found or did not find; another search may find more"
OTHER_PLAN = "a comparison with a plan that is not in the document"
ESTIMATE = "an estimate; it depends on places that are not in the plan"
NEWER = "a field that this version does not know"

_NOTHING: tuple[object, ...] = (None, [], {})
"""Values that state nothing."""


@dataclass(frozen=True, slots=True)
class Row:
    """``how``: what ``verify`` checks, "" for nothing. ``why``: why no more, "" if it is all.

    ``codes``: of reasons to which ``why`` applies; () for all. ``always``: whether nobody checks either that
    the field is absent.
    """

    how: str = ""
    why: str = ""
    codes: tuple[str, ...] = ()
    always: bool = False


_AGAIN = Row("worked out again")
_DECISION = Row("the decision itself: every rule of a plan holds for it")
_NEED = Row("what the gang or the role asks for")
_COUNT = Row("counted again")
_ROOM = Row("counted again", FOUND, ("Never",))
_TEXT = Row("as in `status.hold` of the gang", WORDS, ("NoRoom", "RequiredTopology"))
_RULES = ("AntiAffinity", "Affinity", "Spread", "Balance", "Exclusive", "Spares")
"""Codes of gangs that would fit but for a rule."""

_REASON = {
    "text": _TEXT,
    "cause": Row("that there is such a code", FOUND),
    "role": _NEED,
    "pods": _NEED,
    "gpus": _NEED,
    "level": Row("that a rule of the gang is about it, or such cells are promised"),
    "domain": Row("that the room that is stated is there, and nowhere more", FOUND, ("Never",)),
    "model": Row("that the room that is stated is there, and nowhere more", FOUND, ("Never",)),
    "nodesWith": Row("", WORDS),
    "taints": Row("that nodes have them", FOUND),
    "resources": Row("that the room that is stated is counted with them"),
    "offered": _COUNT,
    "roomPods": _ROOM,
    "roomGpus": _ROOM,
    "by[].gang": Row("that it is such a gang, and that without all of them there is room", FOUND),
    "by[].priority": _AGAIN,
    "by[].gpus": _AGAIN,
    "by[].start": Row("as it is reserved"),
    "queue": Row("that there is such a queue, above the gang where it is a limit"),
    "held": _COUNT,
    "limit": _AGAIN,
    "until": Row("the end of its pause"),
    "proven": Row("that it lacks room, or a tier of its priority is stated as proven", PROOF),
}
"""Fields of reasons."""

_POD = {
    "name": _AGAIN,
    "role": _DECISION,
    "index": _DECISION,
    "node": _DECISION,
    "gpus": _DECISION,
    "uid": _AGAIN,
    "rank": _DECISION,
}
_BOUGHT = Row("that it is possible at all", OTHER_PLAN)

_GANG = {
    "namespace": Row("that each gang of the instance is stated once"),
    "name": Row("that each gang of the instance is stated once"),
    "decision": _AGAIN,
    "aged": _AGAIN,
    **{f"pods[].{name}": row for name, row in _POD.items()},
    "gpus": _AGAIN,
    "bandwidthMBps": _AGAIN,
    "share": _AGAIN,
    "speed": _AGAIN,
    "speedAfter": _AGAIN,
    "domains": _AGAIN,
    "reason.code": Row(
        "that there is such a rule, and that no count and no place that is found denies it",
        PROOF,
        ("Bandwidth", *_RULES, "QueueOrder", "Reserved"),
    ),
    "reason.message": Row("", WORDS),
    **{f"reason.fields.{name}": row for name, row in _REASON.items()},
    "reserved.start": Row(
        "that the pods fit beside all that still runs then, within the horizon", FOUND
    ),
    "reserved.domain": _AGAIN,
    "reserved.nodes": _AGAIN,
    **{f"reserved.pods[].{name}": row for name, row in _POD.items()},
    "reserved.beside": Row("that they come before it in the queue"),
    "passedOver": Row("that a gang of its priority behind it holds a reservation", FOUND),
    "delayed.promised": Row("that the start is later", OTHER_PLAN),
    "delayed.cause": Row("that those named could be it", OTHER_PLAN),
    "delayed.by": Row("that they are there, and could be the cause", OTHER_PLAN),
    "expectedStart": Row(
        "that it waits without a reservation, and that something ends or starts then, after which its GPUs"
        " may be free",
        ESTIMATE,
        always=True,
    ),
}

_TIER = {
    "name": Row("the tiers of the Policy, in order"),
    "sense": _AGAIN,
    "value": _AGAIN,
    "best": Row("within the tolerance of the value"),
    "bound": Row("that neither the plan nor a better one that is found exceeds it", PROOF),
    "gap": _AGAIN,
    "proof": Row("that a bound that is reached has one", PROOF),
}

ROWS: Mapping[str, Row] = {
    "apiVersion": Row("as this version reads it"),
    "kind": Row("as this version reads it"),
    "metadata.name": Row("", ORIGIN),
    "metadata.createdAt": Row("", ORIGIN),
    "metadata.generator": Row("", ORIGIN),
    "instance": Row("that it is one that can be read, and its digest", ORIGIN),
    **{f"spec.gangs[].{name}": row for name, row in _GANG.items()},
    "spec.partitions[].node": Row(
        "that its GPUs may be partitioned, and enough of them are for all pods"
    ),
    "spec.partitions[].gpu": Row("that it is healthy, and nobody holds it whole"),
    "spec.partitions[].profiles": Row(
        "that these instances can stand on one GPU at once, beside those in use"
    ),
    "spec.partitions[].anew": Row("that pods have instances of it, and all of them leave"),
    "spec.shares[].node": Row("that its GPUs may be shared, and enough parts are for all pods"),
    "spec.shares[].gpu": Row("that it is healthy, and nobody holds it whole"),
    "spec.shares[].gpuGroup": Row("that pods share it already"),
    "spec.shares[].parts": Row("that they fit on one GPU beside those that it has"),
    "status.outcome": _AGAIN,
    "status.gpuUnit": _AGAIN,
    **{f"status.objectives[].{name}": row for name, row in _TIER.items()},
    "status.search.solver": Row("", SEARCH),
    "status.search.seed": Row("as in the Policy"),
    "status.search.effort": Row("", SEARCH),
    "status.search.solverCalls": Row("", SEARCH),
    "status.search.stoppedBy": Row("`proof` only without a gap", SEARCH),
    "status.effectiveGpus.before": _AGAIN,
    "status.effectiveGpus.after": _AGAIN,
    "status.effectiveGpus.oneAtATime": Row(
        "at most what the gangs ask for, and the GPUs there are", OTHER_PLAN, always=True
    ),
    "status.effectiveGpus.byPriority[].priority": Row(
        "each with effective GPUs, in order; only where `after` is less than `oneAtATime`"
    ),
    "status.effectiveGpus.byPriority[].after": _AGAIN,
    "status.effectiveGpus.byPriority[].oneAtATime": Row(
        "at most what the gangs of the priority ask for; together `oneAtATime`", OTHER_PLAN
    ),
    "status.queues": _AGAIN,
    "status.unable[].gang": Row(
        "that it waits, and that no gang is missing that a count refutes", FOUND
    ),
    "status.unable[].proven": Row("that no place is found on the empty cluster", PROOF),
    "status.unable[].now": Row("that a place is looked for on the nodes as they are", PROOF),
    "status.unclaiming": Row(
        "that the plan starts them; those that it leaves out are taken to claim", PROOF
    ),
    "status.moves[].gangs": Row("each gang that moves is in one set"),
    "status.moves[].gpus": _AGAIN,
    "status.moves[].bought.gangs": Row("that they are admitted, and could wait", OTHER_PLAN),
    "status.moves[].bought.gpus": _BOUGHT,
    "status.moves[].bought.effectiveGpus": _BOUGHT,
    "status.moves[].bought.bandwidth": _BOUGHT,
    "status.moves[].bought.wholeNodes": _BOUGHT,
    "status.moves[].bought.wholeDomains": _BOUGHT,
    "status.moves[].gain": Row("as it follows from what is bought"),
    "status.notes": Row("", WORDS),
    "status.remarks": Row("", ORIGIN),
    "status.leftOut": Row("", ORIGIN),
    "status.unchecked[].field": Row("that none is missing"),
    "status.unchecked[].codes": Row("that none is missing"),
    "status.unchecked[].why": Row("", WORDS, always=True),
    "status.digests": _AGAIN,
}
"""By the path of the field; a row stands for all fields below it, too."""

STATEMENTS: Mapping[str, tuple[str, ...]] = {
    "reason": ("spec.gangs[].reason",),
    "reserved": ("spec.gangs[].expectedStart", "spec.gangs[].delayed", "spec.gangs[].reserved"),
    "effective-gpus": ("status.effectiveGpus.oneAtATime",),
}
"""Statements: by the rule under which the judge refuses them, in the order in which a plan leaves them out.

They say why and when; nothing that this plan does rests on them. All other fields are placements, figures,
tiers and what follows from these (``passedOver``, ``status.queues``, ``status.unable``; what moves bought,
which ``moves.minGain`` is about): where one of them is wrong, so is the plan.
"""

_INCOMPLETE = "Incomplete"
"""Fields of a reason of a gang that lacks pods are those of its cause, and not counted again."""

_UNCOUNTED = ("domain", "model", "roomPods", "roomGpus", "by[].gpus")
"""Fields of reasons that are not counted again where a plan may partition GPUs or share them; there no
resources are."""

_REASONS = "spec.gangs[].reason"
_EXPECTED = "spec.gangs[].expectedStart"


@dataclass(frozen=True, slots=True)
class Unchecked:
    """A field that a plan states and ``verify`` does not check, or not wholly. ``codes``: of reasons."""

    field: str
    codes: tuple[str, ...]
    why: str


def unchecked(plan: Mapping[str, Any]) -> tuple[Unchecked, ...]:
    """Those of a plan, in the order of the table; fields that this version does not know at the end."""
    found: dict[str, set[str]] = {}
    for top in plan:
        for path, code in _open(top, [plan[top]], ""):
            found.setdefault(path, set()).add(code)
    instance = plan["instance"]
    estimates = instance["policy"]["spec"].get("reservations") is not None
    for path, row in ROWS.items():
        if row.always and (path != _EXPECTED or estimates):
            found.setdefault(path, set())
    services = any(gang["spec"].get("service") is not None for gang in instance["gangs"])
    parts = any(
        "dynamicMig" in node or "sharing" in node for node in instance["cluster"]["spec"]["nodes"]
    )
    names = (*_UNCOUNTED * (services or parts), *("resources",) * parts)
    for name in names:
        found.setdefault(f"{_REASONS}.fields.{name}", set())
    order = {path: at for at, path in enumerate(ROWS)}
    return tuple(
        Unchecked(path, *_why(path, found[path]))
        for path in sorted(found, key=lambda path: (order.get(path, len(order)), path))
    )


def _why(path: str, codes: set[str]) -> tuple[tuple[str, ...], str]:
    row = ROWS.get(path)
    if row is None:
        return (), NEWER
    partly = bool(codes) and (row.codes or not row.why)
    return (tuple(sorted(codes)) if partly else ()), row.why or FOUND


def _unchecked(path: str, row: Row, code: str) -> bool:
    """Whether a field is not checked, in a reason of this code."""
    own = path.removeprefix(f"{_REASONS}.fields.")
    if code and code not in CODES:
        return True
    if code == _INCOMPLETE and own != path:
        return own != "text"
    return row.why != "" and (not row.codes or code in row.codes)


def _rests(reason: Mapping[str, Any]) -> bool:
    """Whether a reason of a gang without room rests on a proof, or on a search that ended."""
    fields = reason.get("fields")
    if reason["code"] not in ("NoRoom", "RequiredTopology", "Resources", "Outranked") or not fields:
        return False
    return bool(fields.get("proven")) or not fields.keys() & {"roomPods", "roomGpus", "text"}


_CONTAINERS = frozenset(
    path[:end]
    for path in ROWS
    for at, character in enumerate(path)
    if character in ".["
    for end in ((at, at + 2) if character == "[" else (at,))
)
"""Paths that some field of the table is below."""


def _open(path: str, values: Iterable[Any], code: str) -> Iterator[tuple[str, str]]:
    """(path, code of the reason) of what is not checked in values of one path."""
    row = ROWS.get(path)
    if row is not None and not _unchecked(path, row, code):
        return  # as most are: then nobody looks at the values
    values = [value for value in values if value or value not in _NOTHING]
    if not values:
        return
    if row is not None or path not in _CONTAINERS:  # a field of a newer version, however deep
        yield path, code
        return
    objects = [value for value in values if isinstance(value, Mapping)]
    lists = [value for value in values if isinstance(value, list)]
    if len(objects) + len(lists) < len(values):
        yield path, code
    yield from _open(f"{path}[]", chain.from_iterable(lists), code)
    if path == _REASONS and not code:
        yield from ((f"{_REASONS}.code", one["code"]) for one in objects if _rests(one))
        for own in sorted({str(one["code"]) for one in objects}):
            yield from _open(path, [one for one in objects if one["code"] == own], own)
        return
    for key in dict.fromkeys(chain.from_iterable(objects)):
        yield from _open(f"{path}.{key}", (one[key] for one in objects if key in one), code)
