"""The intent: what a run means to do with a pod, as the record of its gang's start says it.

What stands on the pod itself is for people and programs, and gangplan believes none of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pydantic import TypeAdapter


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
"""Plan id: a label, so that ``kubectl get pods -l`` finds the pods."""

NODE = "gangplan.dev/node"
GPUS = "gangplan.dev/gpus"
RANK = "gangplan.dev/rank"
"""Rank of the pod's first GPU among those of its role, where the plan deals ranks."""

GANG = "gangplan.dev/gang"
"""The gang of a pod, where its owner names it: a label."""

KEYS = (NODE, GPUS, RANK)
"""Annotations of a pod that is started."""

MANAGER = "gangplan"
"""Field manager of all our writes."""


@dataclass(frozen=True, slots=True)
class Intent:
    """``gpus``: ascending indices; None if the node chooses.

    ``rank``: of its first GPU, None where the plan deals none. ``terms``: None if it states none.
    ``pin``: what of the pod's spec is our pin and not its own wish: ``hostname`` (of its node selector),
    ``terms 0 2`` (the node's name in these terms of its required node affinity), ``none`` (its own
    constraints left it only that node).
    """

    plan: str
    node: str
    gpus: tuple[int, ...] | None = None
    rank: int | None = None
    pin: str = ""
    terms: Terms | None = None

    def annotations(self) -> dict[str, str]:
        """As its pod has it for others to read."""
        gpus, rank = self.gpus or (), self.rank
        written = {
            NODE: self.node,
            GPUS: ",".join(map(str, gpus)),
            RANK: "" if rank is None else str(rank),
        }
        return {key: word for key, word in written.items() if word}

    def labels(self) -> dict[str, str]:
        return {PLAN: self.plan}

    def text(self) -> str:
        """As JSON."""
        return _FORM.dump_json(self, exclude_defaults=True).decode()


_FORM = TypeAdapter(Intent)


def read_intent(written: object) -> Intent | None:
    """The intent in JSON; None for what is none."""
    try:
        return _FORM.validate_json(written, strict=True) if isinstance(written, str) else None
    except ValueError:
        return None
