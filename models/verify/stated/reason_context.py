"""Fields of reasons that mean something only beside others: without those nobody could check them.

Room is that of a role, in a domain of a level, of a model that all pods need, or of a resource.
"""

from __future__ import annotations

from collections.abc import Iterator

from models.documents.reason import ReasonFields
from models.verify.facts import Gang
from models.verify.stated.reason_rooms import role_named
from models.verify.violation import printable

NEEDS = {
    "room_pods": ("pods",),
    "domain": ("level",),
    "pods": ("gpus",),
    "held": ("queue", "limit"),
}
"""Fields that must be stated for another one to mean something; of all codes but ``Incomplete``."""


FREE_WORDS = ("NoRoom", "RequiredTopology")
"""Codes whose words may be a finding of the search: these plans list them as not checked."""


def lonely(gang: Gang, code: str, f: ReasonFields) -> Iterator[str]:
    """What is stated without that which it is about, or twice."""
    for name, others in NEEDS.items():
        if getattr(f, name) is None:
            continue
        missing = [other for other in others if getattr(f, other) is None]
        if missing:
            yield f"states {_spelt(name)} without {_spelt(missing[0])}"
    if f.text is not None and code not in FREE_WORDS:
        yield "states the words of a hold, and has none"
    if f.resources and f.room_pods is None and f.offered is None:
        yield "names resources without the room that they leave"
    if f.resources and f.offered is not None and len(f.resources) > 1:
        yield "does not say of which resource a node offers so much"
    for names in ([one.gang for one in f.by], [*f.resources]):
        if len(set(names)) < len(names):
            yield f"names {printable(max(names, key=names.count))} twice"
    about = f.room_pods is not None or f.offered is not None
    if about and role_named(gang, f.role) is None:
        yield "does not say which role it is about"


def _spelt(name: str) -> str:
    """As documents spell it."""
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)
