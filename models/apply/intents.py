"""The intent: labels and annotations on a pod that say what a plan is about to do with it.

One way to write it and one way to read it; anything that deviates from the format is no intent. A seal
distinguishes intents that a run wrote from those that anyone with write access to the pod could add.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from models.units import InvalidValueError, epoch_seconds, time_text

_TERMS = re.compile(
    r"priority=(?P<priority>0|-?[1-9][0-9]{0,9})(?P<preemptible> preemptible)?(?P<movable> movable)?"
    r"(?: since=(?P<since>[0-9T:-]{19}Z))?(?: until=(?P<until>[0-9T:-]{19}Z))?"
    r"(?: queue=(?P<queue>[A-Za-z0-9_.-]{1,253}))?"
)


@dataclass(frozen=True, slots=True)
class Terms:
    """``until``: its expected end in seconds since the epoch, None for none. ``queue``: in the plan.

    ``since``: when it started first, on pods that complete a gang that runs; None on those of its start,
    which say themselves when they started.
    """

    priority: int
    preemptible: bool = False
    movable: bool = False
    until: int | None = None
    queue: str | None = None
    since: int | None = None

    def text(self) -> str:
        """As the annotation has it: ``priority=10 preemptible until=2026-11-21T14:00:00Z queue=research``."""
        words = [f"priority={self.priority}"]
        words += ["preemptible"] * self.preemptible + ["movable"] * self.movable
        if self.since is not None:
            words.append(f"since={time_text(self.since)}")
        if self.until is not None:
            words.append(f"until={time_text(self.until)}")
        if self.queue is not None:
            words.append(f"queue={self.queue}")
        return " ".join(words)


def read_terms(written: str) -> Terms | None:
    """The terms in an annotation; None if it is not in the exact form that we write."""
    found = _TERMS.fullmatch(written)
    if found is None:
        return None
    try:
        since, until = (
            None if found[name] is None else epoch_seconds(found[name])
            for name in ("since", "until")
        )
    except InvalidValueError:
        return None
    return Terms(
        int(found["priority"]),
        found["preemptible"] is not None,
        found["movable"] is not None,
        until,
        found["queue"],
        since,
    )


def strictest(each: Iterable[Terms]) -> Terms | None:
    """What binds a gang whose pods were started under several terms: the worst of each for it.

    The queue is that of the first.
    """
    known = list(each)
    if not known:
        return None
    return Terms(
        min(one.priority for one in known),
        any(one.preemptible for one in known),
        any(one.movable for one in known),
        min((one.until for one in known if one.until is not None), default=None),
        known[0].queue,
        min((one.since for one in known if one.since is not None), default=None),
    )


PLAN = "gangplan.dev/plan"
"""Plan id. A label, so that ``kubectl get pods -l`` finds the pods, and an annotation."""

NODE = "gangplan.dev/node"
GPUS = "gangplan.dev/gpus"
RANK = "gangplan.dev/rank"
"""Rank of the pod's first GPU among those of its role, where the plan deals ranks."""

GANG = "gangplan.dev/gang"
SIZE = "gangplan.dev/gang-size"
"""Number of pods of the gang that start together; each of them carries an intent."""

WHOLE = "gangplan.dev/whole"
"""Set on a few pods once every pod of the gang has started, so that later losses do not look partial."""

MEMBERS = "gangplan.dev/members"
"""On the first pods of a gang to start: the other pods that start with it, as JSON; see ``Member``.

They get their own intent only when they start, so a run that is cut off leaves this record of them."""
PIN = "gangplan.dev/pin"
"""What a run added to the pod's spec to pin it; see ``Intent.pin``."""

TERMS = "gangplan.dev/terms"
"""What the gang was started under; see ``models.apply.intents``."""

SEAL = "gangplan.dev/seal"
"""Proof that a run wrote the intent on this pod; see ``SealKey``."""

KEYS = (PLAN, NODE, GPUS, RANK, GANG, SIZE, WHOLE, MEMBERS, PIN, TERMS, SEAL)

MANAGER = "gangplan"
"""Field manager of all our writes; ``metadata.managedFields`` shows it as the author of an intent."""

_NEEDED = (PLAN, GANG, SIZE, NODE)
_FORMS = {
    PLAN: re.compile(r"gp-[0-9a-f]{20}").fullmatch,
    GANG: re.compile(r".{1,253}", re.DOTALL).fullmatch,
    SIZE: re.compile(r"[1-9][0-9]{0,5}|1000000").fullmatch,
    NODE: re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?").fullmatch,
    GPUS: re.compile(r"[0-9]{1,4}(?:,[0-9]{1,4}){0,1023}").fullmatch,
    RANK: re.compile(r"0|[1-9][0-9]{0,11}").fullmatch,
    WHOLE: re.compile("true").fullmatch,
    PIN: re.compile(r"none|hostname|terms(?: [0-9]{1,4}){1,1000}").fullmatch,
}
"""What an annotation that we write can be; the others have readers of their own."""

MAX_RECORD_CHARS = 32_768
"""Longest record of members; reading takes 64 KiB of annotations of a pod. Larger gangs are started in two
steps, an intent on every pod first."""


@dataclass(frozen=True, slots=True)
class Member:
    """Another pod of the gang, in the same namespace: where it is going to start."""

    name: str
    uid: str
    node: str
    gpus: tuple[int, ...] | None
    rank: int | None = None


@dataclass(frozen=True, slots=True)
class Intent:
    """``gang``: name within the pod's namespace. ``size``: pods that start together.

    ``gpus``: ascending indices; None if the node chooses. ``whole``: every pod of the gang has started.
    ``members``: the other pods to start, which have no intent of their own until then.
    ``pin``: what of the pod's spec is our pin and not its own wish: ``hostname`` (of its node selector),
    ``terms 0 2`` (the node's name in these terms of its required node affinity), ``none`` (its own
    constraints left it only that node); empty before it is pinned, and if gangplan binds it.
    ``rank``: of its first GPU, None where the plan deals none. ``terms``: None if it states none.
    """

    plan: str
    gang: str
    size: int
    node: str
    gpus: tuple[int, ...] | None
    whole: bool = False
    members: tuple[Member, ...] = ()
    pin: str = ""
    rank: int | None = None
    terms: Terms | None = None

    def annotations(self) -> dict[str, str]:
        written = {
            PLAN: self.plan,
            GANG: self.gang,
            SIZE: str(self.size),
            NODE: self.node,
            GPUS: ",".join(map(str, self.gpus or ())),
            RANK: "" if self.rank is None else str(self.rank),
            WHOLE: "true" * self.whole,
            MEMBERS: record_of(self.members) if self.members else "",
            PIN: self.pin,
            TERMS: "" if self.terms is None else self.terms.text(),
        }
        return {key: word for key, word in written.items() if word}

    def labels(self) -> dict[str, str]:
        return {PLAN: self.plan}

    def matches(self, other: Intent | None) -> bool:
        """Whether both say the same of this pod: equal but for ``whole``, ``members``, ``pin``, ``terms``.

        Those of one plan have the same terms.
        """
        return other is not None and _plain(self) == _plain(other)


def _plain(intent: Intent) -> Intent:
    return replace(intent, whole=False, members=(), pin="", terms=None)


def record_of(members: Iterable[Member]) -> str:
    """The annotation that names members: JSON lists of name, uid, node and GPUs, and the rank if any."""
    rows = [
        [one.name, one.uid, one.node, one.gpus, *([] if one.rank is None else [one.rank])]
        for one in members
    ]
    return json.dumps(rows, separators=(",", ":"))


def _members_of(record: str) -> tuple[Member, ...] | None:
    """The members that an annotation names; None if it is not in the exact form that we write."""
    if len(record) > MAX_RECORD_CHARS:
        return None
    try:
        rows: list[list[Any]] = json.loads(record)
        found = tuple(
            Member(name, uid, node, None if gpus is None else tuple(gpus), *rank)
            for name, uid, node, gpus, *rank in rows
            if all(isinstance(word, str) for word in (name, uid, node))
        )
        indices = [index for one in found for index in one.gpus or ()]
        indices += [one.rank for one in found if one.rank is not None]
    except (ValueError, TypeError, RecursionError):
        return None
    sound = found and all(type(index) is int for index in indices)
    return found if sound and record_of(found) == record else None


def read_intent(labels: Mapping[str, str], annotations: Mapping[str, str]) -> Intent | None:
    """The intent of a pod; None without one or if it is not in the exact form that we write."""
    if labels.get(PLAN) != annotations.get(PLAN) or not annotations.keys() >= {*_NEEDED}:
        return None
    if not all(form(annotations[key]) for key, form in _FORMS.items() if key in annotations):
        return None
    members = _members_of(annotations[MEMBERS]) if MEMBERS in annotations else ()
    terms = read_terms(annotations[TERMS]) if TERMS in annotations else None
    if members is None or (terms is None and TERMS in annotations):
        return None
    plan, gang, size, node = (annotations[key] for key in _NEEDED)
    gpus, rank, pin = annotations.get(GPUS), annotations.get(RANK), annotations.get(PIN, "")
    indices = None if gpus is None else tuple(map(int, gpus.split(",")))
    dealt, whole = None if rank is None else int(rank), WHOLE in annotations
    return Intent(plan, gang, int(size), node, indices, whole, members, pin, dealt, terms)


@dataclass(frozen=True, slots=True)
class SealKey:
    """``key``: secret shared by the runs on this cluster. ``since``: its creation, seconds since the epoch.

    Intents on pods older than the key are accepted without a seal: runs with an earlier key may have
    written them, and nobody can change a pod's creation timestamp.
    """

    key: str = field(repr=False)
    since: int

    def seal(self, namespace: str, name: str, uid: str, intent: Intent) -> str:
        """The seal of an intent on exactly this pod."""
        sealed = [namespace, name, uid, sorted(intent.annotations().items())]
        text = json.dumps(sealed, separators=(",", ":"))
        return hmac.new(self.key.encode(), text.encode(), hashlib.sha256).hexdigest()[:32]

    def holds(
        self, pod: tuple[str, str, str], intent: Intent, seal: str, created: int | None
    ) -> bool:
        """Whether a run wrote this intent on this pod: namespace, name and uid of it.

        ``created``: when it was, None if unknown.
        """
        if created is not None and created <= self.since:
            return True
        own = self.seal(*pod, intent)
        return hmac.compare_digest(own.encode(), seal.encode("utf-8", "replace"))
