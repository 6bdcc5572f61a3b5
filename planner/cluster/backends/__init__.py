"""How the GPUs that a plan chose reach the node: back ends, of which a Policy chooses one."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from planner.cluster.backends.base import Backend


def backend_of(name: str) -> Backend:
    """The back end that ``kubernetes.gpuBackend`` of the Policy names. KeyError for an unknown name."""
    from planner.cluster.backends.base import Advisory, Hami, NodeChoice
    from planner.cluster.backends.dra import Dra
    from planner.cluster.backends.kai import Kai

    return {one.name: one for one in (Advisory, NodeChoice, Hami, Dra, Kai)}[name]()
