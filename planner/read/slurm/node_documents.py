"""Nodes of Slurm as entries of a Cluster: states, labels, server models, and what jobs of the input leave.

What Slurm counts as used and no gang holds is not offered: cpu, memory, and GPUs. A server model is that
which the Policy names, else that of its instance type, GPU type and features. Slurm says how many GPUs of
which type a node has, not how they are linked: what is assumed is a remark.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from models.documents.cluster import HOSTNAME_LABEL
from models.documents.gang import GangDocument
from models.hardware import FindModel, ServerModel, slug
from models.instance.policy import KubernetesPolicy
from models.units import shown
from planner.read.findings import Remarks
from planner.read.kube.lookup import LONGEST
from planner.read.kube.nodes.products import Product, board, instance, plain_instance, product
from planner.read.kube.nodes.servers import unknown_model
from planner.read.slurm.fields import shares
from planner.read.slurm.nodes import GPU_LABEL, RESERVATION, SlurmNode, label_value

Json = dict[str, Any]

_DEAD = frozenset({"DOWN", "ERROR", "UNKNOWN", "FAIL", "INVALID_REG", "NOT_RESPONDING"})
"""States of nodes that are not ready."""

_CLOSED = frozenset({"DRAIN", "MAINT", "REBOOT_ISSUED", "BLOCKED", "POWERING_DOWN", "POWER_DOWN"})
"""States of nodes that take no new job."""

_ASLEEP = frozenset({"POWERED_DOWN", "POWERING_UP"})
"""States of nodes that Slurm starts when a job needs them."""


@dataclass(slots=True)
class Held:
    """What pods of gangs hold of a node: GPUs by index, how many, cpu, and memory in MiB."""

    indices: set[int] = field(default_factory=set)
    known: bool = True
    gpus: int = 0
    cpus: int = 0
    memory: int = 0


def count_pods(gangs: Iterable[GangDocument]) -> dict[str, Held]:
    """What the running pods of these gangs hold, by node."""
    found: dict[str, Held] = defaultdict(Held)
    for gang in gangs:
        roles = {role.name: role for role in gang.spec.roles}
        for pod in gang.status.pods:
            role, held = roles[pod.role], found[pod.node or ""]
            held.gpus += role.gpus
            held.cpus += role.requests.get("cpu", 0) // 1000
            held.memory += role.requests.get("memory", 0) // 2**20
            held.known = held.known and (pod.gpus is not None or not role.gpus)
            held.indices.update(pod.gpus or ())
    return found


class NodeDocuments:
    """Turns nodes into entries of a Cluster.

    ``models``: those used. ``memory_counts``: whether Slurm gives memory to jobs, or only cpu.
    """

    def __init__(
        self,
        nodes: Mapping[str, SlurmNode],
        policy: KubernetesPolicy,
        find: FindModel,
        remarks: Remarks,
    ) -> None:
        self.nodes = nodes
        self.remarks = remarks
        self.models: dict[str, ServerModel] = {}
        for node in nodes.values():
            node.count_gpus(remarks)
            if node.gpus:
                node.server = _Server(node, find, remarks).model(policy)
                self.models[slug(node.server.name)] = node.server
        busy = [node for node in nodes.values() if node.cpus_used]
        self.memory_counts = not busy or any(node.memory_used for node in busy)
        if not self.memory_counts:
            remarks.add("Slurm nodes", "no memory is in use where jobs run; it does not limit")

    def tree(self, node: SlurmNode, domains: Mapping[str, str], held: Held) -> Json:
        """The entry of a node in these domains."""
        asleep = bool(node.states & _ASLEEP) and "DOWN" not in node.states
        dead = node.states & (_DEAD - {"NOT_RESPONDING"} if asleep else _DEAD)
        closed = bool(node.states & _CLOSED)
        if asleep and not dead and not closed:
            what = "is powered down; what starts there waits until Slurm has started it"
            self.remarks.add(node.subject, what)
        tree: Json = {
            "name": node.name,
            "domains": domains,
            **self._amounts(node, held),
            "labels": node.labels,
            "ready": not dead,
        }
        if node.reservation:
            taint = {"key": f"slurm/{RESERVATION}", "effect": "NoSchedule"}
            tree["taints"] = [{**taint, "value": label_value(node.reservation)}]
        elif "RESERVED" in node.states:
            closed = True
            what = "is in a reservation whose name is not stated; nothing is placed on it"
            self.remarks.add(node.subject, what, "scontrol show nodes --json names it")
        tree["unschedulable"] = closed
        if node.server is not None:
            sick, unknown = self._unusable(node, node.server, held)
            tree |= {
                "model": node.server.name, "unhealthyGpus": sick, "unknownUnhealthy": unknown
            }  # fmt: skip
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
        sick = set(range(node.gpus)) - set(range(node.first, node.first + node.count))
        unknown = model.gpus - node.gpus
        missing = max(0, node.used_count - held.gpus)
        if missing:
            what = "has GPUs in use by jobs that are not in the input; they are not given"
            self.remarks.add(node.subject, what, "squeue --json > queue.json lists them")
        if missing and node.used is not None and held.known:
            sick |= node.used
        else:
            unknown += missing
        for one in shares(
            node.gres_used
        ):  # of unknown GPUs as many as there are shares, the lowest
            parts = one.parts or (1,) * min(one.count, model.gpus)
            sick.update(gpu for gpu, used in enumerate(parts) if used)
        listed = sorted(gpu for gpu in sick - held.indices if gpu < model.gpus)
        return listed, max(0, min(unknown, model.gpus - len(listed) - held.gpus))


class _Server:
    """The server model of a node with GPUs, and the remarks on it."""

    def __init__(self, node: SlurmNode, find: FindModel, remarks: Remarks) -> None:
        self.node = node
        self.find = find
        self.remarks = remarks
        selector = f"{GPU_LABEL}: {node.labels[GPU_LABEL]}" if GPU_LABEL in node.labels else ""
        self.fix = (
            f"name the servers in a Policy: kubernetes: {{serverModels: [{{nodeSelector: {{{selector}}},"
            " model: NAME}]}; gangplan topo lists the models"
        )

    def model(self, policy: KubernetesPolicy) -> ServerModel:
        """As the Policy names it, else by its instance type, else by its GPUs."""
        what = _product(self.node)
        if (model := self._stated(policy)) is not None:
            return model
        plain = plain_instance(self.node.instance_type)
        model = self.find(instance(plain) or plain) if plain else None
        if model is not None and model.gpu == what.gpu and self._fits(model):
            return model
        return self._assumed(what)

    def _remark(self, what: str, *, fix: bool = True) -> None:
        self.remarks.add(self.node.subject, what, self.fix if fix else None)

    def _stated(self, policy: KubernetesPolicy) -> ServerModel | None:
        name = policy.server_model_of({HOSTNAME_LABEL: self.node.name, **self.node.labels})
        model = self.find(name) if name and len(name) <= LONGEST else None
        if model is None and name is not None:
            self._remark(f"server model {shown(name)} (Policy) is unknown; ignored")
        return model if model is not None and self._fits(model) else None

    def _fits(self, model: ServerModel) -> bool:
        name = shown(model.name)
        if model.gpus < self.node.gpus:
            self._remark(f"has more GPUs than {name}; that model is not used")
            return False
        if not model.usable:
            self._remark(f"links of {name} are unknown; that model is not used")
            return False
        if model.gpus > self.node.gpus:
            fewer = f"has fewer GPUs than {name}; the missing ones count as unhealthy"
            self._remark(fewer, fix=False)
        return True

    def _assumed(self, what: Product) -> ServerModel:
        node = self.node
        # one of unknown form also as on the board that most servers of it have
        forms = [what, *([replace(what, form="board")] if what.form == "open" else [])]
        for one in forms if node.count == node.gpus else ():
            named = board(one, node.gpus, cloud=False)
            model = None if named is None else self.find(named)
            if model is not None and model.gpus >= node.gpus:
                sure = what.form != "open"
                doubt = "" if sure else f", though {node.kind or what.gpu} may be another board"
                self._remark(f"links and NICs of {shown(model.name)} are assumed{doubt}")
                return model
        model = unknown_model(what.gpu, node.gpus)
        kind = f"server with {model.gpus} x {model.gpu}"
        name = kind if what.known else f"{model.gpus} GPUs of a type"
        self._remark(f"{name} unknown, treated as PCIe-only without NICs")
        return model


def _product(node: SlurmNode) -> Product:
    """Its GPUs: by their type, else by a feature that is the name of a GPU."""
    found = product(node.kind or "GPU")
    if found.known and found.form != "open":
        return found
    for one in map(product, node.features):
        if one.known and (not found.known or (one.gpu == found.gpu and one.form != "open")):
            return one
    return found
