"""Fields of reasons that mean something only beside others: without those nobody could check them.

Room is that of a role, in a domain of a level, of a model that all pods need, or of a resource.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from models.documents.reason import ReasonFields
from models.verify.facts import Gang
from models.verify.stated.reason_rooms import role_named
from models.verify.violation import printable

NEEDS = {
    "room_pods": ("pods",),
    "room_slices": ("slices", "slice_pods", "level"),
    "slices": ("slice_pods", "level", "room_slices"),
    "slice_pods": ("slices",),
    "domain": ("level",),
    "asked": ("offered", "resources"),
    "node_gpus": ("gpus_per_pod",),
    "offered": ("asked",),
    "unused": ("guarantee",),
}
"""Fields that must be stated for another one to mean something; of all codes but ``Incomplete``."""


FREE_WORDS = ("NoRoom", "RequiredTopology")
"""Codes whose words may be a finding of the search: these plans list them as not checked."""


def lonely(gang: Gang, code: str, f: ReasonFields, levels: Sequence[str]) -> Iterator[str]:
    """What is stated without that which it is about, or twice. ``levels``: names, ``node`` the last."""
    for name, others in NEEDS.items():
        if getattr(f, name) is None:
            continue
        missing = [other for other in others if getattr(f, other) in (None, ())]
        if missing:
            yield f"states {_spelt(name)} without {_spelt(missing[0])}"
    if f.model is not None and not f.one_model and f.queue is None and code != "Quota":
        yield "states a model that not all of its pods need, and no queue limits"
    if f.text is not None and code not in FREE_WORDS:
        yield "states the words of a hold, and has none"
    yield from _lists(f)
    yield from _role(gang, f, levels)


def _lists(f: ReasonFields) -> Iterator[str]:
    if f.resources and f.room_pods is None and f.asked is None:
        yield "names resources without the room that they leave"
    if f.asked is not None and len(f.resources) > 1:
        yield "does not say of which resource a pod requests so much"
    for names in (
        [one.gang for one in f.holders],
        [one.gang for one in f.by],
        [*f.unmoved],
        [*f.resources],
    ):
        if len(set(names)) < len(names):
            yield f"names {printable(max(names, key=names.count))} twice"


def _role(gang: Gang, f: ReasonFields, levels: Sequence[str]) -> Iterator[str]:
    """Whether it says which role it is about, and that has such slices."""
    role = role_named(gang, f.role)
    about = (f.room_pods, f.slices, f.node_gpus, f.asked, f.gpus_per_pod)
    if role is None and any(one is not None for one in about):
        yield "does not say which role it is about"
    elif role is not None and f.slices is not None and f.slice_pods:
        last = (role.first + role.min) // f.slice_pods
        whole = max(0, last - -(-role.first // f.slice_pods))
        if whole != f.slices or not _at(f.level, dict(role.slices).get(f.slice_pods), levels):
            yield f"role {role.name} has no {f.slices} slices of {f.slice_pods} pods"
        elif f.room_slices is not None and f.room_slices >= whole:
            yield f"there is room for {f.room_slices} slices, which is enough"


def _at(name: str | None, level: int | None, levels: Sequence[str]) -> bool:
    """Whether a level that slices have is the one that is named."""
    return level is not None and levels[level] == name


def _spelt(name: str) -> str:
    """As documents spell it."""
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)
