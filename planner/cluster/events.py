"""What the answer of the API server means to the machine.

Promises: pure; told apart by status, and by the server's words only where the status is shared.
Called by ``sending`` and the GPU back ends.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from models.applying.asking import Busy, Conflict, Done, Event, Gone, Lost, Refused
from models.applying.seen import PodSeen
from planner.cluster.refusals import one_line
from planner.cluster.wire import Reply, Tree
from planner.reading.kubernetes.looking import objects

_OTHER_UID = re.compile(r"UID in (?:the )?precondition")
"""Words of the 409 that a wrong uid gets from bindings and evictions, which a wrong version gets, too."""

_TWO_BUDGETS = "more than one PodDisruptionBudget"
"""Words of the 500 for a pod that several budgets cover: no later try would do."""


def event_of(  # noqa: PLR0911  # one return a meaning
    reply: Reply, pod: Callable[[Tree], PodSeen | None], *, eviction: bool = False
) -> Event:
    """The answer to a write. ``pod``: reads the pod that an answer may hold."""
    said = one_line(reply.message)
    match reply.status:
        case _ if reply.ok:
            return _done(reply.body, pod)
        case 404:
            return Gone(said)
        case 409:
            return Gone(said) if _OTHER_UID.search(reply.message) else Conflict(said)
        case 422 if _about_uid(reply.body):
            return Gone(said)
        case 429:
            return Busy(said) if eviction else Lost(said)
        case status if 400 <= status < 500 or (eviction and _TWO_BUDGETS in reply.message):
            return Refused(said)
        case _:
            return Lost(said)


def _done(body: Tree, pod: Callable[[Tree], PodSeen | None]) -> Done | Lost:
    """A pod, a scale, or the Status that bindings and evictions are answered with; nothing else is a yes."""
    match body.get("kind"):
        case "Pod":
            return Done(pod(body))
        case "Scale":
            return Done()
        case "Status" if body.get("status") != "Failure":
            return Done()
    return Lost("the server's answer is neither a Pod nor its success")


def looked(reply: Reply, pod: Callable[[Tree], PodSeen | None]) -> Done | Gone | Lost:
    """The answer to reading one pod."""
    if reply.ok and (seen := pod(reply.body)) is not None:
        return Done(seen)
    said = one_line(reply.message)
    return Gone(said) if reply.status == 404 else Lost(said)


def _about_uid(body: Tree) -> bool:
    """Whether a 422 says that another pod stands under the name."""
    causes = objects(body, "details", "causes")
    return any(cause.get("field") == "metadata.uid" for cause in causes)
