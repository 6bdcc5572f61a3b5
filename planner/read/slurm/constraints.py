"""The nodes that a job of Slurm may use: partitions, features, lists of nodes, reservations.

They become labels that a node has, or expressions on its name. What they cannot say is NotExpressed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import product

from models.hardware import ServerModel
from models.units import shown
from planner.read.findings import Remarks
from planner.read.kube.lookup import LabelSets, bits
from planner.read.slurm.fields import expanded
from planner.read.slurm.jobs import SlurmJob
from planner.read.slurm.node_documents import (
    FEATURE,
    PARTITION,
    RESERVATION,
    Json,
    NodeDocuments,
    label_key,
    label_value,
)

MAX_TERMS = 64
"""Most alternatives of one job: of features, and of partitions."""

MAX_NAMED = 10_000
"""Most nodes that one job includes or excludes."""

MAX_ALL_NAMED = 200_000
"""Most nodes that all jobs include or exclude."""


class NotExpressed(Exception):  # noqa: N818  # of the job, not of the program
    """What a job asks for that a gang cannot state."""


@dataclass(slots=True)
class Where:
    """Labels that nodes must have; terms of which one must hold; tolerations of a reservation."""

    selector: dict[str, str] = field(default_factory=dict)
    terms: list[list[Json]] = field(default_factory=list)
    tolerations: list[Json] = field(default_factory=list)


@dataclass(slots=True)
class Constraints:
    """What jobs ask of nodes. ``nodes``: None where a Cluster states them, and not Slurm.

    ``labelled``: keys of labels that some node has.
    """

    nodes: NodeDocuments | None
    labelled: Collection[str]
    remarks: Remarks
    largest: int = 0
    named: int = 0
    names: list[str] = field(default_factory=list)
    sets: LabelSets = field(default_factory=lambda: LabelSets([]))
    _whole: dict[object, tuple[set[int], set[int]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.nodes is not None:
            self.names = list(self.nodes.labels)
            self.sets = LabelSets([self.nodes.labels[name] for name in self.names])

    def of(self, job: SlurmJob) -> Where:
        """The nodes that the job may use. Raises NotExpressed."""
        where = Where()
        alternatives = [self._partitions(job, where), _features(job, where)]
        alternatives = [one for one in alternatives if one]
        lists = self._lists(job)
        if alternatives or lists:
            where.terms = [
                [*(one for part in parts for one in part), *lists]
                for parts in product(*alternatives)
            ]
        if len(where.terms) > MAX_TERMS:
            raise NotExpressed("its partitions and features have too many alternatives")
        if job.reservation:
            value = label_value(job.reservation)
            where.selector[f"slurm/{RESERVATION}"] = value
            where.tolerations = [
                {"key": f"slurm/{RESERVATION}", "value": value, "effect": "NoSchedule"}
            ]
        return where

    def _partitions(self, job: SlurmJob, where: Where) -> list[list[Json]]:
        """Alternatives of labels; one partition is a label that nodes must have."""
        if not any(key.startswith(f"slurm/{PARTITION}.") for key in self.labelled):
            if job.partitions:
                what = "the input does not say which nodes are in which partition; jobs may use all"
                self.remarks.add("Slurm partitions", what, "scontrol show nodes --json says it")
            return []
        names = list(dict.fromkeys(job.partitions))
        masks = {name: self.sets.having(label_key(PARTITION, name)) for name in names}
        every = 0
        for mask in masks.values():
            every |= mask
        widest = next((name for name in names if masks[name] == every), None)
        if len(names) <= 1 or widest is not None:
            for name in [widest] if widest is not None else names:
                where.selector[label_key(PARTITION, name)] = "true"
            return []
        if job.node_count > 1 or not job.per_node:
            self._check_apart(masks)
        return [[_exists(label_key(PARTITION, name))] for name in names]

    def _check_apart(self, masks: Mapping[str, int]) -> None:
        """A job runs in one partition only: that holds if each has GPU models of its own."""
        seen: set[str] = set()
        for mask in masks.values():
            own = {model.gpu for model in self._models(mask)}
            if seen & own:
                names = ", ".join(masks)
                raise NotExpressed(
                    f"it may run in any one of the partitions {names}, not in several"
                )
            seen |= own

    def _models(self, mask: int) -> list[ServerModel]:
        servers = {} if self.nodes is None else self.nodes.servers
        named = (self.names[i] for i in bits(mask))
        return [servers[name] for name in named if name in servers]

    def _lists(self, job: SlurmJob) -> list[Json]:
        """Expressions on the names of nodes."""
        found = []
        for text, operator in ((job.required_nodes, "In"), (job.excluded_nodes, "NotIn")):
            if not text:
                continue
            names = expanded(text, MAX_NAMED)
            self.named += len(names or ())
            if names is None or self.named > MAX_ALL_NAMED:
                raise NotExpressed(
                    f"it names nodes that cannot be read, or too many: {shown(text)}"
                )
            if operator == "In" and len(names) != job.node_count:
                have = f"names {len(names)} of its {job.node_count} nodes"
                raise NotExpressed(f"it {have} ({shown(text)}), which is not planned")
            found.append(
                {"key": "metadata.name", "operator": operator, "values": list(names), "field": True}
            )
        return found

    def _eligible(self, where: Where) -> list[str]:
        """Nodes that satisfy the labels; expressions on names are not looked at."""
        found = self.sets.all
        for key in where.selector:
            found &= self.sets.having(key)
        if where.terms:
            any_of = 0
            for term in where.terms:
                mask = self.sets.all
                for one in term:
                    mask &= self.sets.having(one["key"]) if one["operator"] == "Exists" else mask
                any_of |= mask
            found &= any_of
        return [self.names[i] for i in bits(found)]

    def whole_nodes(
        self, job: SlurmJob, kind: str | None, gpus: int, cpus: int
    ) -> tuple[int, int, bool]:
        """(GPUs, cpus) that a job which asks for whole nodes requests of each, on the nodes it may use.

        And whether these are all that any such node has. ``kind``: the type of the GPUs that it asks for,
        None for any.
        """
        if self.nodes is None:
            return gpus, cpus, False
        asked = gpus if job.per_node else 0
        key = (job.partitions, job.features, job.reservation, kind, asked)
        if key not in self._whole:
            fitting = [
                (self.nodes.installed[name].count, self.nodes.nodes[name].cpus)
                for name in self._eligible(self.of(job))
                if self.nodes.installed[name].count >= max(asked, 1)
                and kind in (None, self.nodes.installed[name].kind)
            ]
            self._whole[key] = ({count for count, _ in fitting}, {own for _, own in fitting})
        counts, every = self._whole[key]
        full = len(counts) == len(every) == 1 and bool(asked)
        if counts and not full:
            what = (
                "asks for whole nodes, and those that it may use differ: it counts with the GPUs that"
                " it asks for, on nodes without other jobs with GPUs"
            )
            self.remarks.add(job.subject, what)
        return min(counts) if full else gpus, min(every, default=cpus), full

    def counted(self, requests: Json) -> Json:
        """The requests without memory, where Slurm gives jobs no memory."""
        if self.nodes is not None and not self.nodes.memory_counts:
            return {name: amount for name, amount in requests.items() if name != "memory"}
        return requests

    def mixed(self, nodes: Iterable[str]) -> bool:
        """Whether these nodes have several GPU models."""
        servers = {} if self.nodes is None else self.nodes.servers
        return len({servers[name].gpu for name in nodes if name in servers}) > 1


def _exists(key: str) -> Json:
    return {"key": key, "operator": "Exists"}


def _features(job: SlurmJob, where: Where) -> list[list[Json]]:
    """Alternatives of ``a|b``; the features of ``a&b`` are labels that nodes must have."""
    text = job.features.replace(" ", "")
    if not text:
        return []
    refused = NotExpressed(f"its constraint {shown(text)} is not planned")
    if job.node_count == 1 and text.startswith("[") and text.endswith("]") and "*" not in text:
        text = text[1:-1]  # of one node, "all of one of these" is "one of these"
    alternatives: list[list[str]] = [[]]
    for part in text.split("&"):
        plain = part[1:-1] if part.startswith("(") and part.endswith(")") else part
        if "|" in part and plain == part and "&" in text:
            raise refused  # how a mix of both is grouped depends on the version of Slurm
        names = plain.split("|")
        if any(not name or set(name) & set("[]()*!,") for name in names):
            raise refused
        if len(names) == 1:
            where.selector[label_key(FEATURE, names[0])] = "true"
            continue
        alternatives = [[*one, name] for one in alternatives for name in names]
        if len(alternatives) > MAX_TERMS:
            raise refused
    return [[_exists(label_key(FEATURE, name)) for name in one] for one in alternatives if one]
