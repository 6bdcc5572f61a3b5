"""What a node tells of its GPUs before anything is made of it, and the names this is told under.

Promises: data only. Built by ``nodes``; read by ``node_gpus`` and ``sharing``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from planner.reading.kubernetes.devices.slices import NodeDevices
from planner.reading.kubernetes.forms import KubeObject

if TYPE_CHECKING:
    from planner.reading.kubernetes.nodes.cards import Cards

MOST_GPUS = 1024
"""Most GPUs of one server; more is a mistake, or shares counted as GPUs."""

NVIDIA, AMD, ACK = "nvidia.com/gpu", "amd.com/gpu", "aliyun.com/gpu"

PRODUCT = "nvidia.com/gpu.product"
ACK_MODE = "ack.node.gpu.schedule"


@dataclass(frozen=True, slots=True)
class Told:
    """What is known about one node. ``capacity``, ``allocatable``: of the GPU resources it names.

    ``others``: allocatable of everything else. ``health``: its Koordinator Device, if any.
    ``extended``: resource names by which a driver's GPUs may be asked without a claim. ``doubled``:
    drivers beside which some node offers the same GPUs by a resource: the resource counts then.
    ``cards``: those that HAMi registered, where it is told which of them to give.
    """

    node: KubeObject
    capacity: Mapping[str, int]
    allocatable: Mapping[str, int]
    others: Mapping[str, int]
    slices: Sequence[NodeDevices]
    health: KubeObject | None
    extended: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    doubled: Collection[str] = ()
    cards: Cards | None = None
