"""The back ends ``annotation`` and ``none``: the node chooses by itself, the plan at most informs.

Promises: nothing is sent and nothing is refused; what that means is said by ``note``. Called through
``backend_of``.
"""

from __future__ import annotations

from planner.cluster.backends.base import Plain


class Annotating(Plain):
    """``gangplan.dev/gpus`` on the pod names its GPUs: part of the intent, so nothing more is written."""

    name = "annotation"

    def note(self) -> str:
        return (
            "gangplan.dev/gpus on a pod tells which GPUs the plan gave it and enforces nothing: "
            "the node chooses"
        )


class Telling(Plain):
    """The node chooses. The intent still names the GPUs, or the next plan would not know them."""

    name = "none"

    def note(self) -> str:
        return "the node chooses the GPUs of each pod; only whole nodes are certain"
