"""A write as the API server takes it, and its answer as an event of the apply machine.

A lost answer is NoAnswer, never success.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from models.apply.intents import MANAGER
from models.apply.live_state import LivePod
from models.apply.requests import (
    BlockedByBudget,
    Conflict,
    Denied,
    Done,
    Event,
    Gone,
    NoAnswer,
    Rejected,
)
from planner.cluster.api_paths import core
from planner.cluster.retry import lacks_right
from planner.cluster.transport import JSON, STRATEGIC, ApiRequest, Reply, Tree
from planner.read.kube.lookup import objects
from planner.untrusted_text import one_line


def pod_request(  # as many arguments as such a request has
    method: str, namespace: str, name: str, body: Tree, *, dry: bool, sub: str = ""
) -> ApiRequest:
    path = core("pods", namespace=namespace, name=name, sub=sub)
    path += f"?fieldManager={MANAGER}&fieldValidation=Strict" + "&dryRun=All" * dry
    return ApiRequest(method, path, body, STRATEGIC if method == "PATCH" else JSON)


_OTHER_UID = re.compile(r"UID in (?:the )?precondition")
"""Text of the 409 of evictions for a wrong uid; a wrong version is a 409, too."""

_TWO_BUDGETS = "more than one PodDisruptionBudget"
"""Text of the 500 for a pod that several budgets cover: a retry does not help."""


def event_of(  # noqa: PLR0911  # one return a meaning
    reply: Reply, pod: Callable[[Tree], LivePod | None], *, eviction: bool = False
) -> Event:
    """The answer to a write, by its status, and by its text only where statuses are shared.

    ``pod``: reads the pod of an answer.
    """
    message = one_line(reply.message)
    match reply.status:
        case _ if reply.ok:
            return _done(reply.body, pod)
        case 404:
            return Gone(message)
        case 403 if lacks_right(reply):
            return denied(reply.message)
        case 409:
            return Gone(message) if _OTHER_UID.search(reply.message) else Conflict(message)
        case 422 if _about_uid(reply.body):
            return Gone(message)
        case 429:
            return BlockedByBudget(message) if eviction else NoAnswer(message)
        case status if 400 <= status < 500 or (eviction and _TWO_BUDGETS in reply.message):
            return Rejected(message)
        case _:
            return NoAnswer(message)


def denied(message: str) -> Denied:
    """The account lacks a right."""
    return Denied(one_line(f"not permitted: {message}"))


def _done(body: Tree, pod: Callable[[Tree], LivePod | None]) -> Done | NoAnswer:
    """A pod, a scale, or the Status of evictions; anything else is no success."""
    match body.get("kind"):
        case "Pod":
            return Done(pod(body))
        case "Scale":
            return Done()
        case "Status" if body.get("status") != "Failure":
            return Done()
    return NoAnswer("the server's answer is neither a Pod nor its success")


def _about_uid(body: Tree) -> bool:
    """Whether a 422 is about another pod with the same name."""
    causes = objects(body, "details", "causes")
    return any(cause.get("field") == "metadata.uid" for cause in causes)
