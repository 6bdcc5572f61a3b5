"""How the GPUs that a plan chose reach the node: one back end each way, chosen by the Policy."""

from __future__ import annotations

from planner.cluster.backends.annotations import Advisory, Annotated, NodeChoice
from planner.cluster.backends.base import Backend
from planner.read.kube.dialect_registry import annotation_backends


def backend_of(name: str) -> Backend:
    """The back end that ``kubernetes.gpuBackend`` names. KeyError for an unknown name."""
    from planner.cluster.backends.dra import Dra

    if name == Dra.name:
        return Dra()
    plain: dict[str, Backend] = {one.name: one for one in (Advisory(), NodeChoice())}
    return plain[name] if name in plain else Annotated(annotation_backends()[name])
