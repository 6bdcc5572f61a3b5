"""How many: counts that objects state, told apart from those they leave out or spoil.

Promises: never negative. Called by the controller dialects.

What a group dialect and a controller dialect say: the forms between them and the gangs.

Promises: frozen data. Built by the dialects of ``groups`` and ``makers``; read by the rest of gangs.

What a dialect tells about the GPUs of a pod, and helpers to read it safely.

Promises: bounded in size and depth; never raises. Called by the dialects beside it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from planner.read.findings import Remarks
from planner.read.kube.lookup import at, number
from planner.read.kube.records import KubeObject, KubePod, LevelAsk, Objects, SliceAsk


def counted(tree: object, *path: str, absent: int | None) -> int | None:
    """The count below the path, however large; ``absent`` where none is stated, None if it is none."""
    value = at(tree, *path)
    if value is None:
        return absent
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        return None
    return value


def times(one: int | None, other: int | None) -> int | None:
    """The product; None if a factor is not known."""
    return None if one is None or other is None else one * other


PodKey = tuple[str, str]


class MakerKey(NamedTuple):
    """One controller; ``part``: which of the gangs it makes (the group of a LeaderWorkerSet)."""

    kind: str
    namespace: str
    name: str
    part: str = ""


class Link(NamedTuple):
    """One group object as a pod names it."""

    dialect: str
    namespace: str
    name: str

    @property
    def title(self) -> str:
        """The name shown; a group inside an object is named as ``object/group``."""
        return self.name.replace("/", "-")


@dataclass(frozen=True, slots=True)
class Seat:
    """The place of a pod in its gang; ``index`` None: nothing says which."""

    role: str
    index: int | None


@dataclass(frozen=True, slots=True)
class RolePlan:
    """A role as its controller wants it.

    ``size``: None if nothing says. ``stride``: pods of one Job of a JobSet. ``queue_like``: its
    pods work through more indexes than run at once, so an index is no rank. ``later``: its pods are
    made once others run, so that none of them is missing before the first is there.
    """

    name: str
    size: int | None
    first_index: int = 0
    stride: int = 1
    queue_like: bool = False
    later: bool = False
    required: LevelAsk | None = None
    slices: tuple[SliceAsk, ...] = ()


@dataclass(frozen=True, slots=True)
class Maker:
    """A controller. ``name``: of the gang it makes. ``roles``: in its order.

    ``ranks``: order of the parts of a role that have names and no numbers.
    """

    key: MakerKey
    kind: str
    name: str
    object: KubeObject | None = None
    roles: tuple[RolePlan, ...] = ()
    required: LevelAsk | None = None
    preferred: LevelAsk | None = None
    queue: str | None = None
    problems: tuple[str, ...] = ()
    ranks: dict[str, int] = field(default_factory=dict)

    def role(self, name: str) -> RolePlan | None:
        return next((role for role in self.roles if role.name == name), None)


@dataclass(frozen=True, slots=True)
class Together:
    """Pods that ask for one domain of a level; with ``size``, every so many by index do.

    ``hard``: required, else preferred. ``what``: what asks, in words. ``apart``: the members are one
    such part already, told apart by labels.
    """

    members: frozenset[PodKey]
    level: LevelAsk
    hard: bool
    what: str
    size: int | None = None
    apart: bool = False


@dataclass(frozen=True, slots=True)
class Group:
    """A group object. ``gang`` False: its pods may start one by one.

    ``minimum``: pods it needs. ``minimums``: the same by role. ``wider``: the group of groups it
    starts with, ``partners``: the names of all of these, ``around``: the level all of them share.
    ``roles``: role by pod, for pods that no controller gives one; ``order``: their names in order.
    """

    link: Link
    object: KubeObject | None = None
    gang: bool = True
    minimum: int | None = None
    minimums: dict[str, int] = field(default_factory=dict)
    required: LevelAsk | None = None
    preferred: LevelAsk | None = None
    together: tuple[Together, ...] = ()
    queue: str | None = None
    preemptible: bool = False
    wider: str | None = None
    partners: tuple[str, ...] = ()
    around: LevelAsk | None = None
    roles: dict[PodKey, str] = field(default_factory=dict)
    order: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()

    @property
    def subject(self) -> str:
        kind = self.object.kind if self.object is not None else "PodGroup"
        return f"{kind} {self.link.namespace}/{self.link.name}"


@dataclass(frozen=True, slots=True)
class GroupDialect:
    """How one scheduler groups pods.

    ``claim``: the name of the pod's group, None if it names none. ``find``: the group object of
    that name, if the dialect has objects at all. ``describe``: what the group says of these pods.
    """

    name: str
    claim: Callable[[KubePod], str | None]
    find: Callable[[Objects, str, str], KubeObject | None]
    describe: Callable[[Link, Sequence[KubePod], Objects, Remarks], Group]


@dataclass(frozen=True, slots=True)
class MakerDialect:
    """How one controller names what it makes. ``name``: the kind of its keys.

    ``claim``: the controller of a pod. ``describe``: that controller, from its object or else from
    its pods. ``seat``: role and index of a pod.
    """

    name: str
    claim: Callable[[KubePod, Objects], MakerKey | None]
    describe: Callable[[MakerKey, Sequence[KubePod], Objects], Maker]
    seat: Callable[[KubePod, Maker], Seat]


def no_object(objects: Objects, namespace: str, name: str) -> KubeObject | None:
    """The finder of a dialect that lives on labels alone."""
    del objects, namespace, name
    return None


def marked(pod: KubePod, key: str) -> str | None:
    """An annotation of the pod, or a label: projects moved keys from one to the other."""
    return pod.annotations.get(key) or pod.labels.get(key) or None


LONGEST = 65_536
"""Longest annotation that is read, in characters."""

_MOST = 4096


@dataclass(frozen=True, slots=True)
class Told:
    """GPU indices as a dialect tells them, in its order; None where it cannot be read."""

    indices: tuple[int, ...] | None


UNREADABLE = Told(None)


def written(annotations: Mapping[str, str], key: str) -> str | None:
    """The annotation, None if it is absent or blank."""
    found = annotations.get(key)
    return found if found and found.strip() else None


def comma_list(found: str) -> Told:
    """Indices written as ``0,3`` (blanks allowed)."""
    if len(found) > LONGEST:
        return UNREADABLE
    return told(number(part.strip()) for part in found.split(",") if part.strip())


def told(indices: Iterable[int | None]) -> Told:
    """Indices that are all there and at least one; anything else cannot be read."""
    found = []
    for index in indices:
        if index is None or not 0 <= index < _MOST:
            return UNREADABLE
        found.append(index)
    return Told(tuple(found)) if found else UNREADABLE


def tree(found: str) -> object:
    """The value of a JSON text; None where it is none, too long or too deep."""
    if len(found) > LONGEST:
        return None
    try:
        return json.loads(found)
    except (ValueError, RecursionError):
        return None
