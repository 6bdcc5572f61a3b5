"""``--add``, ``--drain``, ``--without`` and ``--relax``: the instance as it would be.

All else stays, the mix of requests and the reference time of the input included, so that plans with and
without a change are compared like with like.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from models.documents.base import suggestion
from models.documents.policy import Relaxed, WhatIf
from models.host_ranges import hosts
from models.instance.gang import Gang, Role
from models.instance.instance import Instance
from models.instance.reshaping import with_reshapable
from models.rules.registry import relaxable, relaxed, requirements
from models.units import InvalidValueError, first_of, plural, shortened, shown
from planner.errors import Fault, UsageError
from planner.pipelines.required_gangs import resolve
from planner.read.findings import Remarks
from planner.read.instance_builder import limit_queues
from planner.untrusted_text import safe

MAX_FILE_NAME = 500
"""Characters of the name of an added file that are stated."""

_FIELDS = {"mixModels": "one-model", "antiAffinity": "affinity", "spread": "affinity"}
"""Words that stand for fields of a gang, where these are not called as what is asked for is."""

_SHOWN = 3
"""Names in a remark; the rest are counted."""


@dataclass(frozen=True, slots=True)
class Changes:
    """The options as given: files, nodes or host ranges, gangs, and ``GANG:WHAT``."""

    add: tuple[str, ...] = ()
    drain: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    relax: tuple[str, ...] = ()

    def options(self) -> Iterator[tuple[str, str]]:
        """(option, value) as they were given."""
        for name in ("add", "drain", "without", "relax"):
            for value in getattr(self, name):
                yield f"--{name}", value


def with_changes(instance: Instance, changes: Changes) -> tuple[Instance, tuple[str, ...]]:
    """The changed instance, which says so, and remarks. Files are added by the reader already.

    Raises UsageError for a node, a gang or a requirement that is not there.
    """
    if not any(changes.options()):
        return instance, ()
    drained = _drained(changes.drain, instance)
    without = {resolve(name, instance, "--without") for name in changes.without}
    relaxed = dict.fromkeys(_relaxed(text, instance, without) for text in changes.relax)
    gangs = list(instance.gangs)
    for index, what in relaxed:
        gangs[index] = _Relaxing(instance, what).of(gangs[index])
    evicted = [
        i
        for i, gang in enumerate(gangs)
        if i not in without and any(pod.node in drained for pod in gang.running_pods)
    ]
    for index in evicted:
        gangs[index] = _evicted(gangs[index], instance.now)
    nodes = list(instance.cluster.nodes)
    for n in drained:
        nodes[n] = replace(nodes[n], unschedulable=True)
    names = ["/".join(gang.key) for gang in instance.gangs]
    stated = WhatIf(
        added=tuple(shortened(safe(name), MAX_FILE_NAME) for name in changes.add),
        drained=tuple(sorted(nodes[n].name for n in drained)),
        without=tuple(sorted(names[i] for i in without)),
        relaxed=tuple(Relaxed(*one) for one in sorted((names[i], what) for i, what in relaxed)),
    )
    kept = (gang for i, gang in enumerate(gangs) if i not in without)
    changed = replace(
        instance,
        cluster=replace(instance.cluster, nodes=tuple(nodes)) if drained else instance.cluster,
        gangs=limit_queues(kept, instance.policy.queue_limit, Remarks()),
        what_if=stated,
    )
    return with_reshapable(changed), tuple(_remarks(instance, drained, evicted))


def _remarks(instance: Instance, drained: set[int], evicted: Sequence[int]) -> Iterator[str]:
    """What a drain does to the gangs on the nodes, and what would delay it."""
    if evicted:
        names = first_of(["/".join(instance.gangs[i].key) for i in evicted], _SHOWN)
        yield f"drained: {plural(len(evicted), 'gang')} to be placed anew, whole: {names}"
    for budget in instance.cluster.budgets:
        leaving = sum(
            budget.name in pod.budgets and pod.node in drained
            for gang in instance.gangs
            if gang.namespace == budget.namespace
            for pod in gang.pods
        )
        if leaving > budget.allowed:
            yield (
                f"drained: the disruption budget {'/'.join(budget.key)} allows {budget.allowed:,} of"
                f" {leaving:,} evictions: kubectl drain would wait"
            )


def _drained(texts: Iterable[str], instance: Instance) -> set[int]:
    """The nodes of ``--drain``: names and host ranges, with commas between them. Raises UsageError."""
    known = {node.name: n for n, node in enumerate(instance.cluster.nodes)}
    found = set()
    for text in (part for one in texts for part in _parts(one)):
        try:
            names = [text] if text in known else list(hosts(text))
        except InvalidValueError as error:
            raise UsageError(Fault(f"--drain: {error.what}", error.hint)) from None
        for name in names:
            if name not in known:
                hint = suggestion(name, known, "nodes")
                raise UsageError(Fault(f"--drain {shown(text)}: no node {shown(name)}", hint))
            found.add(known[name])
    return found


def _parts(text: str) -> Iterator[str]:
    """What stands between commas, but for those within brackets."""
    part, within = "", False
    for piece in re.split(r"([\[\],])", text):
        within = piece == "[" or (within and piece != "]")
        if piece == "," and not within:
            yield part
            part = ""
        else:
            part += piece
    yield part


def _evicted(gang: Gang, now: int) -> Gang:
    """The gang as its controller makes it again: all of its pods new, and waiting since now.

    Also those on other nodes: pods of a gang do not work without the others.
    """
    return replace(
        gang,
        pods=(),
        submitted_at=None if gang.submitted_at is None else now,
        started_at=None,
        runs_since=None,
        last_checkpoint=None,
        resize_after=None,
    )


def _relaxed(text: str, instance: Instance, without: set[int]) -> tuple[int, str]:
    """The gang and the requirement of ``--relax``. Raises UsageError, also for one it does not have."""
    name, colon, what = text.partition(":")
    words = (*(level.name for level in instance.cluster.levels), "node", *relaxable())
    fields = {one.name: one.word for one in requirements() if one.word is not None} | _FIELDS
    what = what if what in words else fields.get(what, what)
    if not colon:
        hint = f"write GANG:LEVEL, or GANG: and one of {', '.join(relaxable())}"
        raise UsageError(Fault(f"--relax {shown(text)} does not say what to relax", hint))
    index = resolve(name, instance, "--relax")
    if index in without:
        raise UsageError(Fault(f"--relax {name}: the gang is left out by --without", "keep one"))
    if what not in words:
        hint = suggestion(what, words, "levels and words")
        raise UsageError(Fault(f"--relax {shown(text)}: nothing called {shown(what)}", hint))
    gang = instance.gangs[index]
    if _Relaxing(instance, what).of(gang) == gang:
        asked = [
            word for word in dict.fromkeys(words) if _Relaxing(instance, word).of(gang) != gang
        ]
        hint = f"it asks for: {', '.join(asked) or 'nothing that can be relaxed'}"
        raise UsageError(Fault(f"--relax {shown(text)}: the gang does not ask for that", hint))
    return index, what


class _Relaxing:
    """Relaxes one requirement of a gang: levels become preferences, the rest goes."""

    def __init__(self, instance: Instance, what: str) -> None:
        cluster = instance.cluster
        self._instance = instance
        names = [cluster.level_name(level) for level in range(cluster.node_level + 1)]
        self._levels = {names.index(what)} if what in names else set()
        if what == "required":
            self._levels = set(range(len(names)))
        self._what = what

    def of(self, gang: Gang) -> Gang:
        """The gang without the requirement; an equal one if it does not have it."""
        gang = replace(gang, roles=tuple(map(self._role, gang.roles)))
        if gang.required in self._levels:
            gang = replace(gang, required=None, preferred=_narrower(gang.required, gang.preferred))
        return gang if self._levels else relaxed(self._instance, gang, self._what)

    def _role(self, role: Role) -> Role:
        if role.required in self._levels:
            role = replace(role, required=None, preferred=_narrower(role.required, role.preferred))
        layers = [(size, level) for size, level in role.slice_layers if level not in self._levels]
        if len(layers) < len(role.slice_layers):
            size, level = layers[0] if layers else (None, None)
            role = replace(role, slice_size=size, slice_level=level, outer_slices=tuple(layers[1:]))
        return role


def _narrower(level: int | None, other: int | None) -> int | None:
    return max((one for one in (level, other) if one is not None), default=None)
