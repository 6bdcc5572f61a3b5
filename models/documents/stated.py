"""The fields that a plan states, and what ``verify`` does not check of them: the one table of both.

What is checked is worked out again from the instance and the decisions; docs/verify.md says how. What is not
is listed in ``status.unchecked`` of every plan that states it, and by ``verify``. A new field of a plan needs
its place here; the judge shares this table, as it shares the document types, and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

from msgspec import Struct

from models.documents.reason import CODES

WHYS = {
    "origin": "where the plan comes from; verify reads neither the input nor the cluster",
    "words": "words for people; programs read the fields",
    "search": "what the search did and took; it is not in the plan",
    "proof": "a proof of the search, which takes a solver",
    "found": "what the search found or did not find; another search may find more",
    "other plan": "a comparison with a plan that is not in the document",
    "estimate": "an estimate; it depends on places that are not in the plan",
}
"""Why something is not checked, by the word that the table and the page have for it."""

NEWER = "a field that this version does not know"

_NOTHING: tuple[object, ...] = (None, [], {})
"""Values that state nothing."""


@dataclass(frozen=True, slots=True)
class Row:
    """``why`` a field is not checked, or not wholly; "" if it is. ``codes``: of reasons; () for all."""

    why: str = ""
    codes: tuple[str, ...] = ()


_TABLE = """
- checked: apiVersion kind
spec.gangs[]. checked: namespace name decision aged gpus bandwidthMBps share speed speedAfter
  domains
spec.gangs[].pods[]. checked: name role index node gpus uid rank
spec.gangs[].reserved. checked: domain nodes beside
spec.gangs[].reserved.pods[]. checked: name role index node gpus uid rank
spec.partitions[]. checked: node gpu profiles anew
spec.shares[]. checked: node gpu gpuGroup parts
status. checked: outcome gpuUnit queues digests
status.objectives[]. checked: name sense value best gap
status.search. checked: seed
status.effectiveGpus. checked: before after
status.effectiveGpus.byPriority[]. checked: priority after
status.moves[]. checked: gangs gpus gain
status.unchecked[]. checked: field codes
metadata. origin: name createdAt generator
- origin: instance
spec.gangs[].reason. proof of Bandwidth AntiAffinity Affinity Spread Balance Exclusive Spares
  QueueOrder Reserved: code
spec.gangs[].reason. words: message
spec.gangs[].reason.fields. words of NoRoom RequiredTopology: text
spec.gangs[].reason.fields. found: cause
spec.gangs[].reason.fields. checked: role pods gpus level
spec.gangs[].reason.fields. found of Never: domain model
spec.gangs[].reason.fields. words: nodesWith
spec.gangs[].reason.fields. found: taints
spec.gangs[].reason.fields. checked: resources offered
spec.gangs[].reason.fields. found of Never: roomPods roomGpus
spec.gangs[].reason.fields.by[]. found: gang
spec.gangs[].reason.fields.by[]. checked: priority gpus start
spec.gangs[].reason.fields. checked: queue held limit until
spec.gangs[].reason.fields. proof: proven
spec.gangs[].reserved. found: start
spec.gangs[]. found: passedOver
spec.gangs[].delayed. other plan: promised cause by
spec.gangs[]. estimate: expectedStart
status.objectives[]. proof: bound proof
status.search. search: solver effort solverCalls stoppedBy
status.effectiveGpus. other plan: oneAtATime
status.effectiveGpus.byPriority[]. other plan: oneAtATime
status.unable[]. found: gang
status.unable[]. proof: proven now
status. proof: unclaiming
status.moves[].bought. other plan: gangs gpus effectiveGpus bandwidth wholeNodes wholeDomains
status. words: notes
status. origin: remarks leftOut
status.unchecked[]. words: why
"""
"""What paths begin with, ``checked`` or why they are not, of which codes only, and how they end; in order."""


def _rows() -> Iterator[tuple[str, Row]]:
    for line in _TABLE.replace("\n  ", " ").strip().split("\n"):
        about, _, names = line.partition(": ")
        start, _, why = about.partition(" ")
        why, _, codes = why.partition(" of ")
        row = Row(WHYS.get(why, ""), tuple(codes.split()))
        yield from ((f"{start.strip('-')}{name}", row) for name in names.split())


ROWS: Mapping[str, Row] = dict(_rows())
"""By the path of the field; a row stands for all fields below it, too."""

_ALWAYS = (
    "spec.gangs[].expectedStart",
    "status.effectiveGpus.oneAtATime",
    "status.unchecked[].why",
)
"""Fields of which nobody checks either that they are absent."""

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


class Unchecked(Struct, frozen=True):
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
    for path in _ALWAYS:
        if path != _ALWAYS[0] or estimates:
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
    return (tuple(sorted(codes)) if partly else ()), row.why or WHYS["found"]


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
