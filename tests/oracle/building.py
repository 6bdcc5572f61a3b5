"""Small builders of nodes, gangs and instances for tests, straight from the dataclasses.

Promises: no files, no readers, no randomness; defaults that make a test read as a sentence.
Called by the tests of the rules, of the exhaustive planner and of the cases of other schedulers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

from building_servers import switched

from models.documents.canonical import canonical_instance
from models.documents.cluster import Level, Taint
from models.documents.gang import Hold, Parallelism, Toleration
from models.documents.policy import Objective, SolveLimits, preset_objectives
from models.hardware import Nic, ServerModel
from models.instance.cluster import Cluster, Node
from models.instance.gang import ExistingPod, Gang, NodeAffinity, Role
from models.instance.instance import Instance
from models.instance.policy import Policy
from models.starts.empty_starts import EmptyStarts

OBJECTIVES = preset_objectives("admission")
"""Objectives of every instance made by ``build`` that is not asked for others."""

LEVELS = ("block", "rack", "node")
"""Levels of every cluster made by ``build``, widest first; ``node`` is the innermost."""


def instance_document(instance: Instance) -> dict[str, Any]:
    """The canonical JSON of an instance, as a plan holds it."""
    return canonical_instance(instance)


def node(
    name: str,
    model: ServerModel | None,
    block: str | None = "b1",
    rack: str | None = "r1",
    *,
    allocatable: dict[str, int] | None = None,
    labels: dict[str, str] | None = None,
    taints: Sequence[Taint] = (),
    nics: tuple[Nic, ...] | None = None,
    unschedulable: bool = False,
    ready: bool = True,
    unhealthy: Sequence[int] = (),
    unknown_unhealthy: int = 0,
    held: dict[str, int] | None = None,
) -> Node:
    """One node of ``build``'s cluster; ``unhealthy`` are GPU indices."""
    return Node(
        name=name,
        model=model,
        domains=(block, rack),
        allocatable=tuple(sorted((allocatable or {}).items())),
        labels=tuple(sorted((labels or {}).items())),
        taints=tuple(taints),
        nics=nics,
        unschedulable=unschedulable,
        ready=ready,
        unhealthy=mask(*unhealthy),
        unknown_unhealthy=unknown_unhealthy,
        held=tuple(sorted((held or {}).items())),
    )


def mask(*gpus: int) -> int:
    """Bit mask of GPU indices."""
    return sum(1 << gpu for gpu in set(gpus))


def level(name: str | None) -> int | None:
    """Dense index of one of ``LEVELS``."""
    return None if name is None else LEVELS.index(name)


def role(
    name: str = "worker",
    pods: int = 1,
    gpus_per_pod: int = 1,
    *,
    most: int | None = None,
    step: int = 1,
    same: str | None = None,
    prefer: str | None = None,
    slices: tuple[int, str] | None = None,
    requests: dict[str, int] | None = None,
    selector: dict[str, str] | None = None,
    tolerations: Sequence[Toleration] = (),
    model: str | None = None,
    mix_models: bool = False,
    first: int = 0,
    affinity: NodeAffinity = (),
    outer: Sequence[tuple[int, str]] = (),
) -> Role:
    """A role; elastic from ``pods`` to ``most`` if that is given; ``slices`` = (size, level)."""
    return Role(
        name=name,
        min=pods,
        max=pods if most is None else most,
        step=step,
        gpus=gpus_per_pod,
        elastic=most is not None,
        requests=tuple(sorted((requests or {}).items())),
        required=level(same),
        preferred=level(prefer),
        slice_size=slices[0] if slices else None,
        slice_level=level(slices[1]) if slices else None,
        node_selector=tuple(sorted((selector or {}).items())),
        tolerations=tuple(tolerations),
        model=model,
        mix_models=mix_models,
        first_index=first,
        node_affinity=affinity,
        outer_slices=tuple((size, LEVELS.index(name)) for size, name in outer),
    )


def gang(
    name: str,
    pods: int = 1,
    gpus_per_pod: int = 1,
    *,
    roles: Sequence[Role] = (),
    same: str | None = None,
    prefer: str | None = None,
    slices: tuple[int, str] | None = None,
    requests: dict[str, int] | None = None,
    priority: int = 0,
    submitted: int | None = None,
    weight: int = 1,
    pattern: str = "all-reduce",
    min_share: Fraction | str | None = None,
    stands: Sequence[tuple[int, int, int, int | None]] = (),
    preemptible: bool = False,
    movable: bool = False,
    held: str | None = None,
    joined: bool = True,
) -> Gang:
    """A gang of ``roles``, or of one role of ``pods`` x ``gpus_per_pod``.

    ``stands``: running pods as (role, index, node, mask of GPUs or None where unknown).
    ``held``: the code of its hold. ``joined``: whether NVLink between servers counts for it.
    """
    own = tuple(roles) or (role("worker", pods, gpus_per_pod, slices=slices, requests=requests),)
    return Gang(
        namespace="default",
        name=name,
        roles=own,
        priority=priority,
        submitted_at=submitted,
        preemptible=preemptible,
        movable=movable,
        required=level(same),
        preferred=level(prefer),
        min_bandwidth_share=None if min_share is None else Fraction(min_share),
        pattern=pattern,
        weight=weight,
        nvlink_across_nodes=joined,
        pods=tuple(
            ExistingPod(f"{name}-{own[r].name}-{i}", r, i, uid=None, node=n, gpus=m)
            for r, i, n, m in stands
        ),
        hold=None if held is None else Hold(held, "it is held"),
    )


def build(
    *,
    blocks: int = 1,
    racks: int = 1,
    nodes_per_rack: int = 1,
    gpus: int = 8,
    model: ServerModel | None = None,
    nodes: Sequence[Node] | None = None,
    gangs: Sequence[Gang] = (),
    mix: dict[int, int] | None = None,
    oversubscription: tuple[int | str, int | str] = (1, 1),
    nvlink: str | None = None,
    binding: str = "exact",
    min_share: Fraction | str = "0",
    selector: dict[str, str] | None = None,
    objectives: Sequence[str] = OBJECTIVES,
) -> Instance:
    """An instance of ``nodes``, or of ``blocks`` x ``racks`` x ``nodes_per_rack`` equal servers.

    ``racks`` counts the racks of one block. Nodes are named n01, n02, ... in that order.
    ``oversubscription``: of block and rack; ``nvlink``: the level that shares one NVLink fabric.
    """
    if nodes is None:
        hardware = model or switched(gpus)
        places = [
            (f"b{b + 1}", f"r{r + 1}")
            for b in range(blocks)
            for r in range(racks)
            for _ in range(nodes_per_rack)
        ]
        nodes = [node(f"n{i + 1:02}", hardware, b, r) for i, (b, r) in enumerate(places)]
    levels = tuple(
        Level(name, f"example.com/{name}", Fraction(over), nvlink == name)
        for name, over in zip(LEVELS[:2], oversubscription, strict=True)
    )
    policy = Policy(
        objectives=tuple(Objective(name) for name in objectives),
        mix=tuple(sorted((mix or {1: 1000}).items())),
        min_bandwidth_share=Fraction(min_share),
        gpu_binding=binding,
        node_selector=tuple(sorted((selector or {}).items())),
        solve=SolveLimits(workers=1),
    )
    cluster = Cluster("test", levels, tuple(sorted(nodes, key=lambda n: n.name)))
    return Instance(cluster, tuple(sorted(gangs, key=lambda g: g.key)), policy, starts=EmptyStarts)


def parallel(one: Gang, **degrees: int) -> Gang:
    """The gang with these degrees in its first role."""
    role = replace(one.roles[0], parallelism=Parallelism(**degrees))
    return replace(one, roles=(role, *one.roles[1:]))
