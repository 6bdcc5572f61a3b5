"""Nodes of Slurm as entries of a Cluster: states, labels, and what jobs of the input leave of them.

What Slurm counts as used and no gang holds is not offered: cpu, memory, and GPUs.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from models.documents.server import MAX_GPUS
from models.hardware import FindModel, ServerModel, slug
from models.instance.policy import KubernetesPolicy, Policy
from models.units import plural, shown
from planner.read.findings import Remarks
from planner.read.kube.lookup import clean, is_label_key, is_label_value
from planner.read.slurm.fields import Gres, gpus, gres, is_slice, malformed
from planner.read.slurm.nodes import SlurmNode
from planner.read.slurm.servers import GPU_LABEL, server_of

Json = dict[str, Any]

PARTITION, FEATURE, RESERVATION = "partition", "feature", "reservation"

_DEAD = frozenset({"DOWN", "ERROR", "UNKNOWN", "FAIL", "INVALID_REG", "NOT_RESPONDING"})
"""States of nodes that are not ready."""

_CLOSED = frozenset({"DRAIN", "MAINT", "REBOOT_ISSUED", "BLOCKED", "POWERING_DOWN", "POWER_DOWN"})
"""States of nodes that take no new job."""

_ASLEEP = frozenset({"POWERED_DOWN", "POWERING_UP"})
"""States of nodes that Slurm starts when a job needs them."""


def label_key(kind: str, name: str) -> str:
    """The label of nodes of a partition, or with a feature: ``slurm/partition.gpu``."""
    key = f"slurm/{kind}.{name}"
    if is_label_key(key):
        return key
    return f"slurm/{kind}.{clean(name, 30)}-{zlib.crc32(name.encode()):08x}"


def label_value(name: str) -> str:
    """The name of a GPU type or reservation as the value of a label."""
    return name if is_label_value(name) else f"{clean(name, 50)}-{zlib.crc32(name.encode()):08x}"


@dataclass(slots=True)
class Installed:
    """The GPUs of a node. ``kind``: the type that is planned, ``total``: GPUs of every type.

    ``first`` and ``count``: the indices of those of that type; ``used``: indices in use, None where only
    ``used_count`` is known.
    """

    kind: str | None = None
    total: int = 0
    first: int = 0
    count: int = 0
    used: frozenset[int] | None = None
    used_count: int = 0


@dataclass(slots=True)
class Held:
    """What pods of gangs hold of a node: GPUs by index, how many, cpu, and memory in MiB."""

    indices: set[int] = field(default_factory=set)
    known: bool = True
    gpus: int = 0
    cpus: int = 0
    memory: int = 0


@dataclass(slots=True)
class NodeDocuments:
    """Turns nodes into entries of a Cluster.

    ``models``: those used. ``memory_counts``: whether Slurm gives memory to jobs, or only cpu.
    """

    nodes: Mapping[str, SlurmNode]
    policy: Policy
    find: FindModel
    remarks: Remarks
    installed: dict[str, Installed] = field(default_factory=dict)
    labels: dict[str, dict[str, str]] = field(default_factory=dict)
    servers: dict[str, ServerModel] = field(default_factory=dict)
    models: dict[str, ServerModel] = field(default_factory=dict)
    memory_counts: bool = True

    def __post_init__(self) -> None:
        settings: KubernetesPolicy = self.policy.kubernetes
        for name, node in self.nodes.items():
            installed = self.installed[name] = _installed(node, self.remarks)
            labels = self.labels[name] = _labels(node, installed)
            if installed.total:
                model = server_of(
                    node, installed.kind, installed.total, labels, settings, self.find, self.remarks,
                    alone=installed.count == installed.total,
                )  # fmt: skip
                self.servers[name] = model
                self.models[slug(model.name)] = model
        busy = [node for node in self.nodes.values() if node.cpus_used]
        self.memory_counts = not busy or any(node.memory_used for node in busy)
        if not self.memory_counts:
            self.remarks.add("Slurm nodes", "no memory is in use where jobs run; it does not limit")

    @property
    def largest(self) -> int:
        """GPUs of the largest node."""
        return max((one.count for one in self.installed.values()), default=0)

    def tree(self, node: SlurmNode, domains: Mapping[str, str], held: Held) -> Json:
        """The entry of a node in these domains."""
        subject = f"node {node.name}"
        asleep = bool(node.states & _ASLEEP) and "DOWN" not in node.states
        dead = node.states & (_DEAD - {"NOT_RESPONDING"} if asleep else _DEAD)
        closed = bool(node.states & _CLOSED)
        if asleep and not dead and not closed:
            what = "is powered down; what starts there waits until Slurm has started it"
            self.remarks.add(subject, what)
        tree: Json = {
            "name": node.name,
            "domains": dict(domains),
            **self._amounts(node, held),
            "labels": self.labels[node.name],
            "ready": not dead,
        }
        if node.reservation:
            taint = {"key": f"slurm/{RESERVATION}", "effect": "NoSchedule"}
            tree["taints"] = [{**taint, "value": label_value(node.reservation)}]
        elif "RESERVED" in node.states:
            closed = True
            what = "is in a reservation whose name is not stated; nothing is placed on it"
            self.remarks.add(subject, what, "scontrol show nodes --json names it")
        tree["unschedulable"] = closed
        if node.name in self.servers:
            model = self.servers[node.name]
            tree["model"] = model.name
            sick, unknown = self._unusable(node, model, held)
            tree |= {"unhealthyGpus": sick, "unknownUnhealthy": unknown}
        return tree

    def _amounts(self, node: SlurmNode, held: Held) -> Json:
        """What is left for gangs: what the node has, less what others than its gangs use; and that."""
        cpus = min(node.cpus, max(0, (node.cpus_used or 0) - held.cpus))
        left, others = {"cpu": str(node.cpus - cpus)}, {"cpu": str(cpus)} if cpus else {}
        if self.memory_counts:
            memory = min(node.memory, max(0, (node.memory_used or 0) - held.memory))
            left["memory"] = f"{node.memory - memory}Mi"
            others |= {"memory": f"{memory}Mi"} if memory else {}
        return {"allocatable": left, **({"held": others} if others else {})}

    def _unusable(self, node: SlurmNode, model: ServerModel, held: Held) -> tuple[list[int], int]:
        """GPUs that no gang can have: indices, and how many more of unknown index."""
        found = self.installed[node.name]
        own = range(found.first, found.first + found.count)
        sick = {gpu for gpu in range(found.total) if gpu not in own}
        unknown = model.gpus - found.total
        missing = max(0, found.used_count - held.gpus)
        if missing:
            what = "has GPUs in use by jobs that are not in the input; they are not given"
            self.remarks.add(f"node {node.name}", what, "squeue --json > queue.json lists them")
        if missing and found.used is not None and held.known:
            sick |= found.used
        elif missing:
            unknown += missing
        sick -= held.indices
        sick |= _shared(node, model.gpus) - held.indices
        sick = {gpu for gpu in sick if gpu < model.gpus}
        return sorted(sick), max(0, min(unknown, model.gpus - len(sick) - held.gpus))


def _installed(node: SlurmNode, remarks: Remarks) -> Installed:
    """The GPUs of a node: those of the type it has most of, in the order in which Slurm counts them."""
    subject = f"node {node.name}"
    if (bad := malformed(node.gres)) is not None:
        hint = "write it like gpu:h100:8, as Slurm does"
        node.where("gres", f"gres: {shown(bad)} are no GPUs that can be read", hint)
        return Installed()
    every = [one for one in gpus(node.gres) if one.count]
    if any(is_slice(one.kind) for one in every):
        remarks.add(subject, "has MIG slices, which are not planned; they are left out")
    if any(one.name in ("shard", "mps") and one.count for one in gres(node.gres)):
        remarks.add(subject, "offers shares of its GPUs; only whole GPUs are planned")
    whole = [one for one in every if not is_slice(one.kind)]
    total = sum(one.count for one in whole)
    if total > MAX_GPUS:
        hint = f"the most is {MAX_GPUS:,}"
        node.where("gres", f"gres: {total:,} GPUs in one node", hint)
        return Installed()
    if not whole:
        return Installed()
    most = max(whole, key=lambda one: one.count)
    if len({one.kind for one in whole}) > 1:
        own = f"{plural(most.count, 'GPU')} of type {most.kind}"
        what = f"has GPUs of several types; only its {own} are planned"
        remarks.add(subject, what)
    first = sum(one.count for one in whole[: whole.index(most)])
    in_use = [one for one in gpus(node.gres_used) if one.count and not is_slice(one.kind)]
    counted = sum(one.count for one in in_use)
    used_count = min(max(counted, node.gpus_used or 0), total)
    return Installed(most.kind, total, first, most.count, _indices(in_use, used_count), used_count)


def _indices(in_use: Sequence[Gres], count: int) -> frozenset[int] | None:
    """The indices of the GPUs in use; None if they are not those of all."""
    if any(one.indices is None for one in in_use):
        return None
    found = frozenset(index for one in in_use for index in one.indices or ())
    return found if len(found) == count else None


def _shared(node: SlurmNode, gpus_: int) -> set[int]:
    """GPUs of which shares are in use; of unknown ones as many as there are shares, the lowest."""
    found: set[int] = set()
    for one in gres(node.gres_used):
        if one.name in ("shard", "mps") and one.count:
            parts = one.parts or tuple([1] * min(one.count, gpus_))
            found.update(gpu for gpu, used in enumerate(parts) if used)
    return found


def _labels(node: SlurmNode, installed: Installed) -> dict[str, str]:
    """Its partitions, features, GPU type and reservation as labels."""
    found = {label_key(PARTITION, name): "true" for name in node.partitions}
    found |= {label_key(FEATURE, name): "true" for name in node.features}
    if installed.kind is not None:
        found[GPU_LABEL] = label_value(installed.kind)
    if node.reservation:
        found[f"slurm/{RESERVATION}"] = label_value(node.reservation)
    return found


def count_pods(gangs: Sequence[Json]) -> dict[str, Held]:
    """What the running pods of these gangs hold, by node."""
    found: dict[str, Held] = {}
    for gang in gangs:
        roles = {role["name"]: role for role in gang["spec"]["roles"]}
        for pod in gang["status"]["pods"]:
            role = roles[pod["role"]]
            held = found.setdefault(pod["node"], Held())
            held.gpus += role["gpus"]
            held.cpus += role["requests"].get("cpu", 0)
            held.memory += int(str(role["requests"].get("memory", "0")).removesuffix("Mi"))
            if pod["gpus"] is None:
                held.known = held.known and not role["gpus"]
            else:
                held.indices.update(pod["gpus"])
    return found
