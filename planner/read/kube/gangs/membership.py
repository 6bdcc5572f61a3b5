"""Pods to bunches: those of one group object, or of one controller, belong to one gang.

Promises: every pod is in exactly one bunch or alone. Called by ``reading``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from planner.read.findings import Remarks
from planner.read.kube.dialects.base import Group, Link, Maker, MakerKey, no_object
from planner.read.kube.dialects.table import GROUPS, MAKERS
from planner.read.kube.records import KubePod, Objects

_GROUP_OF = {dialect.name: dialect for dialect in GROUPS}

NO_OBJECT = "its pods name a group that is not in the input; they belong together all the same"
LOOSE = "asks for one domain for pods that start one by one, which cannot be promised; ignored"


@dataclass(slots=True)
class Bunch:
    """Pods of one gang, not yet in roles; ``keys``, ``links``: controller and group of each.

    ``groups``: the group objects, several under one composite; ``loose``: those whose pods may
    start one by one. ``makers``: the controllers; ``complete``: those with no pod elsewhere.
    """

    namespace: str
    pods: list[KubePod] = field(default_factory=list)
    links: list[Link | None] = field(default_factory=list)
    keys: list[MakerKey | None] = field(default_factory=list)
    groups: dict[Link, Group] = field(default_factory=dict)
    loose: dict[Link, Group] = field(default_factory=dict)
    makers: dict[MakerKey, Maker] = field(default_factory=dict)
    complete: set[MakerKey] = field(default_factory=set)


@dataclass(slots=True)
class _Claims:
    """What each pod names, by its place in the list; ``by_maker``: places by controller."""

    links: list[Link | None]
    keys: list[MakerKey | None]
    by_maker: dict[MakerKey, list[int]]
    rows: dict[MakerKey, int]


def sort_out(
    objects: Objects, pods: Sequence[KubePod], remarks: Remarks
) -> tuple[list[Bunch], list[KubePod]]:
    """The bunches, and the pods that no group and no controller of gangs holds."""
    claims = _claims(objects, pods)
    _adopt(objects, claims)
    groups = _groups(objects, pods, claims, remarks)
    makers = {
        key: MAKERS[claims.rows[key]].describe(key, [pods[place] for place in places], objects)
        for key, places in claims.by_maker.items()
    }
    bunches: dict[tuple[object, ...], Bunch] = {}
    alone: list[KubePod] = []
    for place, pod in enumerate(pods):
        link, key = claims.links[place], claims.keys[place]
        group = groups[link] if link is not None else None
        name = _bunch(group, key)
        if name is None:
            alone.append(pod)
            if group is not None and group.required is not None:
                remarks.add(group.subject, LOOSE)
            continue
        bunch = bunches.setdefault(name, Bunch(pod.object.namespace))
        bunch.pods.append(pod)
        bunch.keys.append(key)
        bunch.links.append(link)
        if group is not None:
            (bunch.groups if group.gang else bunch.loose)[group.link] = group
        if key is not None:
            bunch.makers[key] = makers[key]
    for bunch in bunches.values():
        _complete(bunch, claims)
    return list(bunches.values()), alone


def _claims(objects: Objects, pods: Sequence[KubePod]) -> _Claims:
    claims = _Claims([], [], {}, {})
    for place, pod in enumerate(pods):
        claims.links.append(_link(objects, pod))
        key = None
        for row, dialect in enumerate(MAKERS):
            key = dialect.claim(pod, objects)
            if key is not None:
                claims.rows.setdefault(key, row)
                claims.by_maker.setdefault(key, []).append(place)
                break
        claims.keys.append(key)
    return claims


def _link(objects: Objects, pod: KubePod) -> Link | None:
    """The group that the pod names: of several the first whose object exists."""
    first = None
    for dialect in GROUPS:
        name = dialect.claim(pod)
        if name is None:
            continue
        link = Link(dialect.name, pod.object.namespace, name)
        if dialect.find(objects, link.namespace, name) is not None:
            return link
        first = first or link
    return first


def _adopt(objects: Objects, claims: _Claims) -> None:
    """Pods of a controller whose pods name one group belong to it, though they lost its name."""
    for places in claims.by_maker.values():
        named = {link for place in places if (link := claims.links[place]) is not None}
        real = {link for link in named if _exists(objects, link)}
        if len(real) == 1 or len(named) == 1:
            (only,) = real or named
            for place in places:
                claims.links[place] = only


def _exists(objects: Objects, link: Link) -> bool:
    find = _GROUP_OF[link.dialect].find
    return find is no_object or find(objects, link.namespace, link.name) is not None


def _groups(
    objects: Objects, pods: Sequence[KubePod], claims: _Claims, remarks: Remarks
) -> dict[Link, Group]:
    members: dict[Link, list[int]] = {}
    for place, link in enumerate(claims.links):
        if link is not None:
            members.setdefault(link, []).append(place)
    groups = {}
    for link, places in members.items():
        dialect = _GROUP_OF[link.dialect]
        group = dialect.describe(link, [pods[place] for place in places], objects, remarks)
        if group.object is None and group.minimum is None and dialect.find is not no_object:
            remarks.add(group.subject, NO_OBJECT)
        made = any(claims.keys[place] is not None for place in places)
        if group.minimum == 1 and not made and not _asks(group):
            # Schedulers put every lone pod, and the pods of a Deployment, in a group of one.
            group = replace(group, gang=False)
        groups[link] = group
    return groups


def _asks(group: Group) -> bool:
    asked = group.required or group.preferred or group.together or group.problems
    return bool(asked or group.wider)


def _bunch(group: Group | None, key: MakerKey | None) -> tuple[object, ...] | None:
    if group is not None and group.gang:
        link = group.link
        if group.wider is not None:
            return ("wider", link.dialect, link.namespace, group.wider)
        return ("group", *link)
    return ("maker", *key) if key is not None else None


def _complete(bunch: Bunch, claims: _Claims) -> None:
    for key in bunch.makers:
        here = sum(own == key for own in bunch.keys)
        if here == len(claims.by_maker[key]):
            bunch.complete.add(key)
