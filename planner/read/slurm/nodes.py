"""The nodes of a Slurm cluster: ``scontrol show nodes`` as text or JSON, and ``sinfo --json``.

A node keeps its place for messages. As an entry of a Cluster it offers what jobs of the input leave: what
Slurm counts as used and no gang holds is not offered. A server model is that which the Policy names, else
that of its instance type, GPU type and features. Slurm says how many GPUs of which type a node has, not how
they are linked: what is assumed is a remark.
"""

from __future__ import annotations

import re
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from models.documents.base import NAME_HINT, Path
from models.documents.cluster import HOSTNAME_LABEL
from models.documents.gang import GangDocument
from models.documents.server import MAX_GPUS, NicDocument
from models.hardware import FindModel, ServerModel, slug
from models.host_ranges import MAX_NAMES
from models.instance.policy import KubernetesPolicy
from models.units import described, plural, shown
from planner.errors import Fault
from planner.read.findings import Finding, Findings, Remarks
from planner.read.kube.lookup import (
    LONGEST,
    Tree,
    clean,
    is_label_key,
    is_label_value,
    is_name,
    items,
)
from planner.read.kube.nodes.products import Product, board, instance, plain_instance, product
from planner.read.kube.nodes.servers import DESCRIBE, own_nics, unknown_model
from planner.read.slurm.fields import (
    Gres,
    expanded,
    gpus,
    is_slice,
    malformed,
    number,
    said,
    shares,
    tres,
    words,
)
from planner.read.sources import Source

_MARKS = {
    "*": "NOT_RESPONDING",
    "~": "POWERED_DOWN",
    "#": "POWERING_UP",
    "%": "POWERING_DOWN",
    "!": "POWER_DOWN",
    "$": "MAINT",
    "@": "REBOOT_REQUESTED",
    "^": "REBOOT_ISSUED",
    "-": "PLANNED",
}
"""What the last characters of a state mean, in the tables of sinfo and in older versions."""

_SHORT = {
    **dict.fromkeys(("DRNG", "DRAINED", "DRAINING"), "DRAIN"),
    **dict.fromkeys(("POWER_SAVING", "POWER"), "POWERED_DOWN"),
    "MAINTENANCE": "MAINT",
    "NO_RESPOND": "NOT_RESPONDING",
    "INVAL": "INVALID_REG",
    "FAILING": "FAIL",
    "RESV": "RESERVED",
}
"""States that have had several names, as far as they matter here."""

_FIELDS = {
    "states": ("state", "node.state", "State"),
    "gres": ("gres", "gres.total", "Gres"),
    "gres_used": ("gres_used", "gres.used", "GresUsed"),
    "tres_used": ("tres_used", "", "AllocTRES"),
    "cpus": ("effective_cpus cpus", "cpus.maximum", "CPUEfctv CPUTot"),
    "memory": ("real_memory", "memory.maximum", "RealMemory"),
    "system_memory": ("specialized_memory", "", "MemSpecLimit"),
    "cpus_used": ("alloc_cpus", "cpus.allocated", "CPUAlloc"),
    "memory_used": ("alloc_memory", "memory.allocated", "AllocMem"),
    "features": ("active_features features", "features.active", "ActiveFeatures"),
    "partitions": ("partitions", "partition.name", "Partitions"),
    "reservation": ("reservation", "reservation", "ReservationName"),
    "instance_type": ("instance_type", "", "InstanceType"),
}
"""Where a field is in ``scontrol --json``, ``sinfo --json`` and the text of scontrol; the first counts."""

JSON, SINFO, TEXT = range(3)

PARTITION, FEATURE, RESERVATION = "partition", "feature", "reservation"
GPU_LABEL = "slurm/gpu"
"""Label of the type of GPUs of a node, as Slurm names it."""


def label_key(kind: str, name: str) -> str:
    """The label of nodes of a partition, or with a feature: ``slurm/partition.gpu``."""
    key = f"slurm/{kind}.{name}"
    if is_label_key(key):
        return key
    return f"slurm/{kind}.{clean(name, 30)}-{zlib.crc32(name.encode()):08x}"


def label_value(name: str) -> str:
    """The name of a GPU type or reservation as the value of a label."""
    return name if is_label_value(name) else f"{clean(name, 50)}-{zlib.crc32(name.encode()):08x}"


@dataclass(frozen=True, slots=True)
class _Entry:
    """A node as it is written. ``line``: of a text; then there is no path."""

    tree: object
    form: int
    source: Source
    path: Path
    findings: Findings
    line: int | None = None

    def fault(self, where: Path, what: str, hint: str) -> None:
        """Report something wrong; ``where``: the path of a field, () for the whole."""
        if self.line is not None:
            self.findings.fault(Fault(what, hint, self.source.name, self.line, 1))
        else:
            self.findings.add(Finding(self.source, (*self.path, *where), what, hint))

    def paths(self, name: str) -> list[list[str]]:
        return [one.split(".") for one in _FIELDS[name][self.form].split()]

    def said(self, name: str) -> str:
        return next((said(self.tree, *path) for path in self.paths(name)), "")

    def words(self, name: str) -> tuple[str, ...]:
        found = (words(self.tree, *path) for path in self.paths(name))
        return next((one for one in found if one), ())

    def amount(self, name: str) -> int | None:
        """A number of the node, which cannot be negative."""
        found = map(self._amount, self.paths(name))
        return next((one for one in found if one is not None), None)

    def _amount(self, path: Sequence[str]) -> int | None:
        found = number(self.tree, *path)
        if found is not None and found < 0:
            what = f"{'.'.join(path)}: {found:,} cannot be negative"
            self.fault(tuple(path), what, "Slurm writes 0 or more")
            return None
        return found

    def node(self, where: str, name: object) -> SlurmNode | None:
        """The node of that name; None, with a fault, if it cannot be one."""
        if isinstance(name, str) and is_name(name):
            return SlurmNode(name, self)
        what, hint = f"a node without a name, but {described(name)}", "give it as Slurm wrote it"
        if isinstance(name, str) and re.search(r"\[[0-9,-]+\]", name):
            what = f"{shown(name)} are several nodes: this is no output of scontrol show nodes"
            hint = "a slurm.conf is not read; write scontrol show nodes --json > nodes.json"
        elif isinstance(name, str):
            what, hint = f"{shown(name)} cannot be the name of a node", NAME_HINT
        self.fault((where,) if where else (), what, hint)
        return None


class SlurmNode:
    """One node as Slurm states it: memory in MiB; what is in use is None where it is not stated.

    ``kind``: the type of GPUs that is planned, ``gpus``: their number of every type, of which those of that
    type have the indices from ``first`` on, ``count`` of them. ``used``: indices in use, None where only
    ``used_count`` is known. ``server``: its model, if it has GPUs.
    """

    def __init__(self, name: str, entry: _Entry) -> None:
        self.name = name
        self.entry = entry
        self.states = states_of((*entry.words("states"), *words(entry.tree, "state_flags")))
        self.gres, self.gres_used = entry.said("gres"), entry.said("gres_used")
        self.cpus, self.cpus_used = entry.amount("cpus") or 0, entry.amount("cpus_used")
        system = entry.amount("system_memory") or 0
        self.memory = max(0, (entry.amount("memory") or 0) - system)
        self.memory_used = entry.amount("memory_used")
        self.features, self.partitions = entry.words("features"), entry.words("partitions")
        self.reservation = entry.said("reservation")
        self.instance_type = entry.said("instance_type")
        self.kind: str | None = None
        self.gpus = self.first = self.count = self.used_count = 0
        self.used: frozenset[int] | None = None
        self.server: ServerModel | None = None
        self.labels: dict[str, str] = {}

    @property
    def subject(self) -> str:
        return f"node {self.name}"

    def count_gpus(self, remarks: Remarks) -> None:
        """Find its labels and GPUs: of the type it has most of, in the order in which Slurm counts them."""
        whole = self._whole_gpus(remarks)
        if whole:
            most = max(whole, key=lambda one: one.count)
            if len({one.kind for one in whole}) > 1:
                own = f"{plural(most.count, 'GPU')} of type {most.kind}"
                remarks.add(self.subject, f"has GPUs of several types; only its {own} are planned")
            self.kind, self.count = most.kind, most.count
            self.gpus = sum(one.count for one in whole)
            self.first = sum(one.count for one in whole[: whole.index(most)])
            in_use = [one for one in gpus(self.gres_used) if one.count and not is_slice(one.kind)]
            stated = int(tres(self.entry.said("tres_used")).get("gres/gpu", 0))
            self.used_count = min(max(sum(one.count for one in in_use), stated), self.gpus)
            indices = frozenset(index for one in in_use for index in one.indices or ())
            known = all(one.indices is not None for one in in_use)
            self.used = indices if known and len(indices) == self.used_count else None
        self.labels = {label_key(PARTITION, name): "true" for name in self.partitions}
        self.labels |= {label_key(FEATURE, name): "true" for name in self.features}
        if self.kind is not None:
            self.labels[GPU_LABEL] = label_value(self.kind)
        if self.reservation:
            self.labels[f"slurm/{RESERVATION}"] = label_value(self.reservation)

    def _whole_gpus(self, remarks: Remarks) -> list[Gres]:
        if (bad := malformed(self.gres)) is not None:
            what = f"gres: {shown(bad)} are no GPUs that can be read"
            self.entry.fault(("gres",), what, "write it like gpu:h100:8, as Slurm does")
            return []
        every = [one for one in gpus(self.gres) if one.count]
        whole = [one for one in every if not is_slice(one.kind)]
        if len(whole) < len(every):
            remarks.add(self.subject, "has MIG slices, which are not planned; they are left out")
        if shares(self.gres):
            remarks.add(self.subject, "offers shares of its GPUs; only whole GPUs are planned")
        total = sum(one.count for one in whole)
        if total > MAX_GPUS:
            what = f"gres: {total:,} GPUs in one node"
            self.entry.fault(("gres",), what, f"the most is {MAX_GPUS:,}")
            return []
        return whole


def states_of(texts: Sequence[str]) -> frozenset[str]:
    """States in capital letters, under their present names."""
    found = set()
    for text in texts:
        word = text.upper()
        while word and word[-1] in _MARKS:
            found.add(_MARKS[word[-1]])
            word = word[:-1]
        found.add(_SHORT.get(word, word))
    return frozenset(found)


@dataclass(slots=True)
class SlurmNodes:
    """Every node of the input. ``partial``: those of ``sinfo``, which count only where no others are."""

    findings: Findings
    stated: dict[str, SlurmNode] = field(default_factory=dict)
    partial: dict[str, SlurmNode] = field(default_factory=dict)

    @property
    def all(self) -> dict[str, SlurmNode]:
        return self.stated or self.partial

    def add(self, source: Source, tree: Tree) -> None:
        """The nodes of ``scontrol show nodes --json``, or else of ``sinfo --json``.

        sinfo has one entry for each partition and node, or group of nodes.
        """
        form = JSON if isinstance(tree.get("nodes"), list) else SINFO
        kind, called, tool = (
            ("nodes", "a node", "scontrol") if form == JSON else ("sinfo", "an entry of sinfo", "sinfo")
        )  # fmt: skip
        for i, one in enumerate(items(tree, kind)):
            entry = _Entry(one, form, source, (*source.path, kind, i), self.findings)
            if not isinstance(one, dict):
                what = f"expected {called}, not {described(one)}"
                entry.fault((), what, f"give it as {tool} wrote it")
            elif form == JSON:
                self._keep(entry.node("name" if "name" in one else "", one.get("name")))
            else:
                self._add_group(entry)

    def add_text(self, source: Source) -> None:
        """The nodes of ``scontrol show nodes`` as text, with or without ``--oneliner``."""
        for line, record in _records(source.text):
            entry = _Entry(record, TEXT, source, (), self.findings, line)
            self._keep(entry.node("", record.get("NodeName")))

    def _add_group(self, entry: _Entry) -> None:
        """The nodes of an entry of sinfo: those of a group are equal, and idle."""
        texts = [text for text in items(entry.tree, "nodes", "nodes") if isinstance(text, str)]
        names = [name for text in texts for name in expanded(text, MAX_NAMES) or (text,)]
        in_use = entry.amount("cpus_used") or any(
            one.count for one in gpus(entry.said("gres_used"))
        )
        if len(names) > 1 and in_use:
            what = f"{len(names):,} nodes in one entry: which of them holds what is not said"
            hint = "write scontrol show nodes --json > nodes.json, or sinfo -N --json"
            entry.fault(("nodes",), what, hint)
            return
        for name in names:
            node = entry.node("nodes", name)
            if node is not None and (known := self.partial.get(name)) is not None:
                known.partitions = tuple(dict.fromkeys((*known.partitions, *node.partitions)))
            else:
                self._keep(node, partial=True)

    def _keep(self, node: SlurmNode | None, *, partial: bool = False) -> None:
        """Of a node that is stated twice the first counts: lists of partitions overlap."""
        into = self.partial if partial else self.stated
        if node is not None and len(into) < MAX_NAMES:
            into.setdefault(node.name, node)


_KEY = re.compile(r"(?:^|(?<=\s))([A-Za-z_]{2,40})=(\S*)")


def _records(text: str) -> Iterator[tuple[int, dict[str, str]]]:
    """(line, values by key) of every node; a node begins with ``NodeName=`` at the start of a line.

    Of a key that appears twice the first counts: reasons and comments, which anybody may write, come last.
    """
    record: dict[str, str] = {}
    start = 0
    for number_, line in enumerate(text.split("\n"), 1):
        if line.startswith("NodeName="):
            if record:
                yield start, record
            record, start = {}, number_
        if start:
            for key, value in _KEY.findall(line):
                record.setdefault(key, value)
    if record:
        yield start, record


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
            if (nics := own_nics(node.server)) is not None:
                name = shown(node.server.name)
                what = f"NIC speeds of {name} are unknown; those NICs are ignored"
                self.remarks.add(node.subject, what, DESCRIBE)
                tree["nics"] = [NicDocument.of(nic).to_json() for nic in nics]
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
