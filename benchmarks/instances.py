"""Seeded instances of every shape the planner is measured on, and the recorded ones.

Promises: the same arguments give the same Instance; all are valid input under the contract.
Called by ``benchmarks.run`` and by tests; ``python -m benchmarks.instances`` describes them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from benchmarks.building import total_gpus
from benchmarks.busy import busy
from benchmarks.mesh import mesh
from benchmarks.no_room import SHAPES, no_room
from benchmarks.nvl72 import nvl72
from benchmarks.planted import Planted, planted, traps
from benchmarks.running import running
from benchmarks.shared import CHANGES, shared
from benchmarks.switched import priorities, switched
from benchmarks.world import fleet, recorded
from models.instance.instance import Instance

__all__ = [
    "CASES",
    "Planted",
    "busy",
    "fleet",
    "large",
    "mesh",
    "no_room",
    "nvl72",
    "planted",
    "priorities",
    "running",
    "shared",
    "small",
    "switched",
    "traps",
    "v100_mesh",
]


def small(seed: int = 0) -> Instance:
    """SMALL: 64 DGX H100, 60 waiting gangs."""
    return switched(64, 60, seed)


def large(seed: int = 0) -> Instance:
    """LARGE: 512 DGX H100, 300 waiting gangs."""
    return switched(512, 300, seed)


def v100_mesh(seed: int = 0, variant: str = "pod") -> Instance:
    """MESH: 1,000 DGX-1 V100, 1,000 waiting gangs of 1 to 8 GPUs."""
    return mesh(1000, 1000, seed, variant=variant)


def _with(change: str) -> Instance:
    needed = ("queues",) if change in ("cells", "fair") else ()
    return shared(busy(512, 300, 1), *needed, change)


def _traps(nodes: int) -> Instance:
    return traps(nodes, 1).instance


BUSY = (
    (64, 60), (128, 100), (256, 170), (512, 300), (1024, 500), (2048, 700), (4096, 1000), (12500, 2000),
)  # fmt: skip
"""(nodes, waiting gangs)."""

CASES: dict[str, Callable[[], Instance]] = {
    "small": small,
    "small-tight": lambda: switched(64, 60, 1, tight=True),
    "small-odd": lambda: switched(64, 60, 2, odd_sizes=True),
    "large": large,
    "large-wide": lambda: switched(
        512, 300, 1, rack_sizes=(8, 16), rack_oversubscription="1.5", occupied=0.0
    ),
    "mesh-pod": lambda: v100_mesh(variant="pod"),
    "mesh-node": lambda: v100_mesh(variant="node"),
    "mesh-free": lambda: v100_mesh(variant="free"),
    "priorities-3": lambda: priorities(3),
    "priorities-300": lambda: priorities(300),
    "nvl72": lambda: nvl72(16, 40, 0),
    "planted": lambda: planted(32, 0).instance,
    **{f"traps-{nodes}": partial(_traps, nodes) for nodes in (64, 512)},
    **{f"fleet-{nodes}": partial(fleet, nodes, 1) for nodes in (64, 512, 4096)},
    "recorded-lingjun": partial(recorded, "lingjun"),
    **{
        f"recorded-{name}": partial(recorded, f"snapshots/{name}")
        for name in ("h100-gke", "nvl72", "v100-mpi")
    },
    "running": lambda: running(512, 300, 200, 0),
    **{f"busy-{nodes}": partial(busy, nodes, waiting, 1) for nodes, waiting in BUSY},
    "running-small": lambda: running(64, 60, 40, 0),
    "shared": lambda: shared(busy(512, 500, 1)),
    **{f"shared-{name}": partial(_with, name) for name in CHANGES},
    **{f"no-room-{shape}": partial(no_room, shape) for shape in SHAPES},
}
"""Every case by name, as ``benchmarks.run`` takes them."""


def describe(instance: Instance) -> str:
    """One line: nodes, GPUs, running and waiting gangs, free GPUs and what the queue asks."""
    running = [gang for gang in instance.gangs if gang.running]
    waiting = [gang for gang in instance.gangs if not gang.running]
    held = sum(gang.roles[pod.role].gpus for gang in running for pod in gang.running_pods)
    installed = sum(node.healthy.bit_count() for node in instance.cluster.nodes)
    return (
        f"{len(instance.cluster.nodes)} nodes, {installed} GPUs, {len(running)} running gangs,"
        f" {installed - held} GPUs free, {len(waiting)} waiting gangs asking"
        f" {sum(map(total_gpus, waiting))}"
    )


if __name__ == "__main__":
    for case, build in CASES.items():
        print(f"{case}: {describe(build())}")
