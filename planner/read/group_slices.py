"""Slices that keep the tensor and expert groups of a role in one server or NVLink domain (section 3).

Called once, when the gangs of an input are known. A role that keeps its groups together already, or whose
groups are no wider than a pod, stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from models.instance.cluster import Cluster
from models.instance.gang import Gang, Role
from models.units import plural
from planner.read.findings import Remarks

HINT = "use a degree whose GPUs fit a server or an NVLink domain, in whole pods"


def with_group_slices(
    gangs: Iterable[Gang], cluster: Cluster, remarks: Remarks
) -> tuple[Gang, ...]:
    """The gangs, with slices where a group within a role is wider than a pod."""
    found = list(gangs)
    units = _Units(cluster) if any(gang.parallel for gang in found) else None
    for number, gang in enumerate(found):
        if units is None or not gang.parallel:
            continue
        roles = []
        for role in gang.roles:
            sliced, why = _sliced(role, units, joined=gang.nvlink_across_nodes)
            if why is not None:
                remarks.add(f"gang {gang.namespace}/{gang.name}", f"role {role.name}: {why}", HINT)
            roles.append(sliced)
        found[number] = replace(gang, roles=tuple(roles))
    return tuple(found)


class _Units:
    """GPUs of the largest server, and of the largest domain in which NVLink joins servers."""

    def __init__(self, cluster: Cluster) -> None:
        nodes = [node for node in cluster.nodes if node.gpus]
        self.node_level = cluster.node_level
        self.server = max((node.gpus for node in nodes), default=0)
        joined = all(node.model and node.model.nvlink_domain_nodes > 1 for node in nodes)
        levels = (number for number, level in enumerate(cluster.levels) if level.nvlink)
        self.nvlink = next(levels, None) if joined else None
        self.domain = 0
        for domain in () if self.nvlink is None else cluster.domains[self.nvlink]:
            self.domain = max(self.domain, sum(cluster.nodes[n].gpus for n in domain.nodes))

    def level(self, gpus: int, *, joined: bool) -> int | None:
        """The level that keeps so many GPUs together; None where no domain of it is large enough."""
        if joined and self.nvlink is not None:
            return self.nvlink if gpus <= self.domain else None
        return self.node_level if gpus <= self.server else None


def _sliced(role: Role, units: _Units, *, joined: bool) -> tuple[Role, str | None]:
    """The role, and why a tensor group of it cannot be kept together."""
    why, degrees = None, role.parallelism
    if degrees is None or not role.gpus:
        return role, None
    tensor = degrees.tensor
    if tensor > 1 and tensor % role.gpus and role.gpus % tensor:
        return (
            role,
            f"tensor groups of {plural(tensor, 'GPU')} are no whole pods and not in one pod",
        )
    for gpus in sorted({tensor, tensor * degrees.expert}, reverse=True):
        if gpus <= role.gpus or gpus % role.gpus:
            continue
        level, pods = units.level(gpus, joined=joined), gpus // role.gpus
        layers = None if level is None else _layers(role, pods, level)
        if layers is not None:
            size, innermost = layers[0]
            role = replace(
                role, slice_size=size, slice_level=innermost, outer_slices=tuple(layers[1:])
            )
        elif gpus == tensor:
            wide = f"tensor groups of {plural(gpus, 'GPU')}"
            why = (
                f"{wide} are wider than every server and NVLink domain, and go over the network"
                if level is None
                else f"its own slices do not keep {wide} together"
            )
    return role, why


def _layers(role: Role, pods: int, level: int) -> list[tuple[int, int]] | None:
    """The slices of the role with those of a group, innermost first; None where they do not nest."""
    own = list(role.slice_layers)
    if any(not size % pods and within >= level for size, within in own):
        return own
    if role.first_index % pods:
        return None
    layers = sorted([*own, (pods, level)])
    pairs = zip(layers, layers[1:], strict=False)
    nested = all(b % a == 0 and a < b and wide < narrow for (a, narrow), (b, wide) in pairs)
    return layers if nested else None
