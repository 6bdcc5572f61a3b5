"""Rates that are not known: links and NICs that a gang to be placed may need, and speeds of GPUs.

An instance that passes can be priced wherever its gangs may be placed. A speed is assumed, with a remark.
"""

from __future__ import annotations

from collections import Counter

from models.instance.cluster import Node
from models.instance.gang import Gang, Role
from models.instance.instance import Instance
from models.units import number, plural, shown
from planner.read.compact_cluster import MergedCluster
from planner.read.findings import Remarks


def check_rates(instance: Instance, merged: MergedCluster) -> None:
    """Report each kind of hardware once, at the first node that has it."""
    seen: set[tuple[object, object, str]] = set()
    suspects = [node for node in instance.cluster.nodes if _unknown(node)]
    if not suspects:
        return
    takers = [(gang, roles) for gang in instance.gangs if (roles := _to_place(gang))]
    for node in suspects:
        for what, hint in _unknown(node):
            key = (node.model, node.nics, what)
            gang = None if key in seen else _taker(instance, takers, node, what)
            if gang is not None and node.model is not None:
                seen.add(key)
                entry, number = merged.places[node.name]
                name = shown("/".join(gang.key))
                field = "nics" if what == NIC and node.nics is not None else "model"
                entry.fault(
                    ("spec", "nodes", number, field),
                    f"{what} of {shown(node.model.name)} is not known, and gang {name} may use it",
                    hint,
                )


LINK = "the NVLink rate"
NIC = "a NIC speed"


def _unknown(node: Node) -> list[tuple[str, str]]:
    """(what, hint) of every rate of the node's hardware that is not known."""
    if node.model is None:
        return []
    found = []
    if node.model.link_MBps is None and _has_links(node):
        found.append((LINK, "write a server model of its own with linkMBps"))
    if any(nic.megabits is None for nic in node.effective_nics):
        found.append((NIC, "give the node its own nics: [{name: eth0, gbps: 100}]"))
    return found


def _has_links(node: Node) -> bool:
    model = node.model
    if model is None or model.fabric == "nvswitch" or model.matrix is None:
        return model is not None
    return any(link.startswith("NV") for row in model.matrix for link in row)


def _to_place(gang: Gang) -> tuple[Role, ...]:
    """Roles with GPUs that have a pod to be placed."""
    if gang.hold is not None:
        return ()
    existing = Counter(pod.role for pod in gang.running_pods)
    counts = gang.target_counts()
    return tuple(role for i, role in enumerate(gang.roles) if existing[i] < counts[i] and role.gpus)


def _taker(
    instance: Instance, takers: list[tuple[Gang, tuple[Role, ...]]], node: Node, what: str
) -> Gang | None:
    """The first gang that may put a pod on the node and then needs the rate."""
    for gang, roles in takers:
        if _needs(instance, gang, node, what) and any(
            role.gpus <= node.gpus and instance.eligible(role, node) for role in roles
        ):
            return gang
    return None


def _needs(instance: Instance, gang: Gang, node: Node, what: str) -> bool:
    """Links matter to two GPUs in a server, NICs to two pods that may run in several."""
    counts = gang.target_counts()
    gpus = sum(count * role.gpus for count, role in zip(counts, gang.roles, strict=True))
    pods = sum(count for count, role in zip(counts, gang.roles, strict=True) if role.gpus)
    if what == LINK:
        return gpus > 1
    return pods > 1 and not _one_fabric(instance, gang, node)


def _one_fabric(instance: Instance, gang: Gang, node: Node) -> bool:
    """Whether the gang must stay in one server, or in one NVLink domain of several."""
    cluster = instance.cluster
    if gang.required is None:
        return False
    if gang.required == cluster.node_level:
        return True
    joined = gang.nvlink_across_nodes
    joined &= node.model is not None and node.model.nvlink_domain_nodes > 1
    return joined and any(level.nvlink for level in cluster.levels[: gang.required + 1])


def remark_speeds(instance: Instance, remarks: Remarks) -> None:
    """One remark for each server model without ``relativeSpeed``, if there is another GPU model.

    The models of most nodes come first; those with the same GPUs become one line.
    """
    speeds = instance.relative_speeds
    if not speeds.unknown or len({model.gpu for model in speeds.models}) < 2:
        return
    known = next((m for m in speeds.models if m.relative_speed == speeds.slowest), None)
    if known is None or speeds.slowest is None:
        assumed = "no server model here states one, so all count as equally fast"
    else:
        pace = f"{shown(known.name)}, the slowest with one ({number(speeds.slowest)})"
        assumed = f"they count as fast as those of {pace}"
    from models.rates.catalogue import relative_speed  # opened only when something asks for it

    nodes = Counter(id(node.model) for node in instance.cluster.nodes)
    for model in sorted(speeds.unknown, key=lambda m: (-nodes[id(m)], m.name)):
        published = relative_speed(model.gpu)
        hint = (
            "write it under serverModels of a Cluster: dense BF16 tensor peak of one GPU, TFLOP/s"
        )
        if published is not None:
            hint += f": {number(published)}"
        subject = f"ServerModel {shown(model.name)} ({plural(nodes[id(model)], 'node')})"
        remarks.add(subject, f"no relativeSpeed is stated for {model.gpu} GPUs; {assumed}", hint)
