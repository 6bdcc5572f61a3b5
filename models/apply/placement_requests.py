"""What gangplan answers to a request for a placement: labels of nodes, and details in its status.

Kueue asks through a ProvisioningRequest (autoscaling.x-k8s.io). A node selector is one value of one label, a
node may have pods of several gangs, and Kueue's configuration names labels once and for all: so there are
``SLOTS`` labels, and a request takes the first that none of its nodes has for another one. Details that are
missing give no selector.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

CLASS = "placement.gangplan.dev"
"""``spec.provisioningClassName`` of what is asked of gangplan. The API allows no slash in it."""

SLOTS = 8
"""Labels that a ProvisioningRequestConfig of Kueue can turn into node selectors."""

SLOT_KEYS = tuple(f"gangplan.dev/placement-{slot}" for slot in range(SLOTS))
"""Labels of nodes, and the details that name their values."""

MODE = "request"
"""``mode`` of pods that are made once a request is answered."""

PLAN_DETAIL = "gangplan.dev/plan"
_NODES = "gangplan.dev/nodes-"
_LONGEST = 32_000
"""Characters of one detail; the API allows 32,768, and 64 details."""

_MAX_DETAILS = 48


@dataclass(frozen=True, slots=True)
class LiveRequest:
    """One request of a ``gang`` as the cluster has it. ``version``: metadata.resourceVersion.

    ``state``: waits, placed, evicted, idle, dead or over. ``nodes``: of its pods, once it has them; ``plan``:
    the id of the plan that gave it them. ``pods``: how many came of it; ``missing``: how many are not bound.
    ``pending``: of these that are not bound, the oldest first. ``admitted``: its system has let it start.
    ``since``: when the oldest was made, else when it got its nodes, in seconds. ``message``: of its status.
    """

    namespace: str
    name: str
    uid: str
    version: str
    state: str
    nodes: tuple[str, ...] = ()
    plan: str | None = None
    pods: int = 0
    missing: int = 0
    pending: tuple[str, ...] = ()
    admitted: bool = False
    since: int | None = None
    message: str = ""
    gang: tuple[str, str] = ("", "")

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def keeps_nodes(self) -> bool:
        """Whether nodes are labelled for it."""
        return self.state in ("placed", "evicted")


def uid_of_pod(request: str, number: int, index: int) -> str:
    """By which a plan names a pod of a request before it exists."""
    return f"{request}-{number}-{index}"


def request_of(pod: str) -> str:
    """The uid of the request of such a pod."""
    return pod.rsplit("-", 2)[0]


def mark_of(uid: str) -> str:
    """The value of the labels of a request: a hash of its uid."""
    return hashlib.sha256(uid.encode()).hexdigest()[:16]


def node_details(nodes: Sequence[Sequence[str]]) -> dict[str, str]:
    """The nodes of the pods of each pod set, as details: ``n1*2,n2;n3``, in pieces.

    Raises ValueError if they are too long for a status.
    """
    sets = (
        ",".join(
            name if count == 1 else f"{name}*{count}"
            for name, count in ((name, len(list(same))) for name, same in groupby(one))
        )
        for one in nodes
    )
    text = ";".join(sets)
    pieces = range(0, len(text), _LONGEST)
    if len(pieces) > _MAX_DETAILS:
        raise ValueError("its nodes are too many for the status of a request")
    return {f"{_NODES}{n}": text[at : at + _LONGEST] for n, at in enumerate(pieces)}


def detailed_nodes(details: Mapping[str, str], counts: Sequence[int]) -> list[list[str]] | None:
    """The nodes that details say, of as many pods as each set has; None if they say no such thing."""
    pieces = (details.get(f"{_NODES}{n}", "") for n in range(_MAX_DETAILS))
    sets = [list(map(_counted, one.split(","))) for one in "".join(pieces).split(";")]
    if [sum(count for _, count in one) for one in sets] != list(counts):
        return None
    return [[name for name, count in one for _ in range(count)] for one in sets]


def _counted(written: str) -> tuple[str, int]:
    """A node and how many pods it has; 0 if that cannot be read."""
    name, star, count = written.partition("*")
    if not star:
        return name, bool(name)
    return name, int(count) if count.isascii() and count.isdecimal() and len(count) < 7 else 0
