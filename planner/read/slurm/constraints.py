"""The nodes that a job of Slurm may use: partitions, features, lists of nodes, reservations.

They become labels that a node has, or expressions on its name. What they cannot say is NotExpressed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import product

from models.units import shown
from planner.read.findings import Remarks
from planner.read.kube.lookup import LabelSets, bits
from planner.read.slurm.fields import expanded
from planner.read.slurm.jobs import SlurmJob
from planner.read.slurm.node_documents import Json, NodeDocuments
from planner.read.slurm.nodes import (
    FEATURE,
    PARTITION,
    RESERVATION,
    SlurmNode,
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


class Constraints:
    """What jobs ask of nodes. ``documents``: None where a Cluster states the nodes, and not Slurm.

    ``labelled``: keys of labels of nodes that Clusters state.
    """

    def __init__(
        self, documents: NodeDocuments | None, labelled: Collection[str], remarks: Remarks
    ) -> None:
        self.remarks = remarks
        self.memory_counts = documents is None or documents.memory_counts
        self.by_name = {} if documents is None else documents.nodes
        self.nodes = list(self.by_name.values())
        self.largest = max((node.count for node in self.nodes), default=0)
        labels = [node.labels for node in self.nodes]
        self.sets = LabelSets(labels)
        keys = (key for keys in (labelled, *labels) for key in keys)
        self.knows_partitions = any(key.startswith(f"slurm/{PARTITION}.") for key in keys)
        self.named = 0
        self._whole: dict[object, tuple[set[int], set[int]]] = {}

    def of(self, job: SlurmJob) -> Json:
        """What a role says of the nodes that the job may use. Raises NotExpressed."""
        selector: dict[str, str] = {}
        alternatives = [self._partitions(job, selector), _features(job, selector)]
        lists = self._lists(job)
        found: Json = {"nodeSelector": selector}
        if any(alternatives) or lists:
            found["nodeAffinity"] = [
                [*(one for part in parts for one in part), *lists]
                for parts in product(*filter(None, alternatives))
            ]
        if len(found.get("nodeAffinity", ())) > MAX_TERMS:
            raise NotExpressed("its partitions and features have too many alternatives")
        if job.reservation:
            key, value = f"slurm/{RESERVATION}", label_value(job.reservation)
            selector[key] = value
            found["tolerations"] = [{"key": key, "value": value, "effect": "NoSchedule"}]
        return found

    def _partitions(self, job: SlurmJob, selector: dict[str, str]) -> list[list[Json]]:
        """Alternatives of labels; one partition is a label that nodes must have."""
        if not self.knows_partitions:
            if job.partitions:
                what = "the input does not say which nodes are in which partition; jobs may use all"
                self.remarks.add("Slurm partitions", what, "scontrol show nodes --json says it")
            return []
        masks = {name: self._having(label_key(PARTITION, name)) for name in job.partitions}
        every = 0
        for mask in masks.values():
            every |= mask
        # of one partition, or of several of which one has all nodes of the others
        if not masks or every in masks.values():
            for name in [name for name in masks if masks[name] == every][:1]:
                selector[label_key(PARTITION, name)] = "true"
            return []
        if job.node_count > 1 or not job.asked["node"]:
            self._check_apart(masks)
        return [[_exists(label_key(PARTITION, name))] for name in masks]

    def _having(self, key: str) -> int:
        """Nodes with this label, as bits."""
        return self.sets.matching({"matchExpressions": [_exists(key)]})

    def _check_apart(self, masks: Mapping[str, int]) -> None:
        """A job runs in one partition only: that holds if each has GPU models of its own."""
        seen: set[str] = set()
        for mask in masks.values():
            servers = (self.nodes[i].server for i in bits(mask))
            own = {server.gpu for server in servers if server is not None}
            if seen & own:
                names = ", ".join(masks)
                raise NotExpressed(
                    f"it may run in any one of the partitions {names}, not in several"
                )
            seen |= own

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

    def _eligible(self, asked: Json) -> Iterator[SlurmNode]:
        """Nodes that satisfy the labels; expressions on names are not looked at."""
        found = self.sets.all
        for key in asked["nodeSelector"]:
            found &= self._having(key)
        any_of = 0 if "nodeAffinity" in asked else found
        for term in asked.get("nodeAffinity", ()):
            mask = found
            for one in term:
                mask &= self._having(one["key"]) if one["operator"] == "Exists" else mask
            any_of |= mask
        return (self.nodes[i] for i in bits(any_of))

    def whole_nodes(
        self, job: SlurmJob, kind: str | None, gpus: int, cpus: int
    ) -> tuple[int, int, bool]:
        """(GPUs, cpus) that a job which asks for whole nodes requests of each, on the nodes it may use.

        And whether these are all that any such node has. ``kind``: the type of the GPUs that it asks for,
        None for any.
        """
        if not self.nodes:
            return gpus, cpus, False
        asked = gpus if job.asked["node"] else 0
        key = (job.partitions, job.features, job.reservation, kind, asked)
        if key not in self._whole:
            fitting = [
                node
                for node in self._eligible(self.of(job))
                if node.count >= max(asked, 1) and kind in (None, node.kind)
            ]
            self._whole[key] = ({one.count for one in fitting}, {one.cpus for one in fitting})
        counts, every = self._whole[key]
        full = len(counts) == len(every) == 1 and bool(asked)
        if counts and not full:
            what = (
                "asks for whole nodes, and those that it may use differ: it counts with the GPUs that"
                " it asks for, on nodes without other jobs with GPUs"
            )
            self.remarks.add(job.subject, what)
        return min(counts) if full else gpus, min(every, default=cpus), full

    def mixed(self, nodes: Iterable[str]) -> bool:
        """Whether these nodes have several GPU models."""
        servers = (self.by_name[name].server for name in nodes if name in self.by_name)
        return len({server.gpu for server in servers if server is not None}) > 1


def _exists(key: str) -> Json:
    return {"key": key, "operator": "Exists"}


def _features(job: SlurmJob, selector: dict[str, str]) -> list[list[Json]]:
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
            selector[label_key(FEATURE, names[0])] = "true"
            continue
        alternatives = [[*one, name] for one in alternatives for name in names]
        if len(alternatives) > MAX_TERMS:
            raise refused
    return [[_exists(label_key(FEATURE, name)) for name in one] for one in alternatives if one]
