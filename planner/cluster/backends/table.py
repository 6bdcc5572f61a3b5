"""The back ends ``annotation`` and ``none``: the node chooses by itself, the plan at most informs.

Promises: nothing is sent and nothing is refused; what that means is said by ``note``. Called through
``backend_of``.

How the GPUs that a plan chose reach the node: one back end each way, chosen by the Policy.

Promises: a back end says what it enforces; a pod whose GPUs it cannot carry is refused in words, never
started with others in silence. Called by ``planner.cluster.sending`` and ``planner.pipelines.apply_steps``.
"""

from __future__ import annotations

from collections.abc import Callable

from planner.cluster.backends.base import Backend, Plain


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


KEYS: dict[str, tuple[str, ...]] = {
    "annotation": (),
    "none": (),
    "hami": ("nvidia.com/use-gpuuuid",),
    "koordinator": ("scheduling.koordinator.sh/device-allocated",),
    "dra": (),
}
"""Annotations of pods that a back end writes beside those of the intent, by its name in the Policy."""


def backend_of(name: str) -> Backend:
    """The back end ``kubernetes.gpuBackend`` names. KeyError for a name the Policy does not take."""
    from planner.cluster.backends.dra import Dra
    from planner.cluster.backends.hami import Hami
    from planner.cluster.backends.koordinator import Koordinator

    backends: dict[str, Callable[[], Backend]] = {
        "annotation": Annotating,
        "none": Telling,
        "hami": Hami,
        "koordinator": Koordinator,
        "dra": Dra,
    }
    return backends[name]()
