"""Jobs of Slurm as gangs: a pod for each node, or for each task or GPU where only those are asked for.

Partitions, features, lists of nodes and reservations become labels of nodes, or expressions on their names.
A job that Slurm holds is held with Slurm's reason; one that asks for what cannot be expressed is held as
Unsupported. Every gang states ``slurm`` as its scheduler, so no plan of it can be applied.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise, product

from models.documents.base import document_tree
from models.documents.gang import MAX_GPUS_A_POD, MAX_PODS, MAX_PRIORITY
from models.instance.policy import SLURM
from models.units import duration_text, plural, shortened, shown, time_text
from planner.read.findings import Remarks
from planner.read.kube.lookup import LabelSets, bits, clean
from planner.read.slurm.fields import expanded, is_slice
from planner.read.slurm.jobs import SlurmJob, count
from planner.read.slurm.nodes import (
    FEATURE,
    GPU_LABEL,
    PARTITION,
    RESERVATION,
    Json,
    NodeDocuments,
    SlurmNode,
    label_key,
    label_value,
)
from planner.read.sources import printable

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


_MAX_MESSAGE = 1000
_MAX_NAME = 60

GATED, UNSUPPORTED, INCOMPLETE = "Gated", "Unsupported", "Incomplete"


@dataclass(slots=True)
class GangDocuments:
    """Turns jobs into gangs.

    ``leaf``: the level of leaf switches, ``block``: that of blocks, None without one. ``nodes``: names of
    the nodes of the cluster. ``now``: seconds, 0 if unknown. ``without_gpus``: jobs that are left out
    because they have no GPUs; by whether they run.
    """

    constraints: Constraints
    nodes: Collection[str]
    classes: PriorityClasses
    leaf: str | None
    block: str | None
    now: int
    without_gpus: Counter[bool] = field(default_factory=Counter)

    @property
    def remarks(self) -> Remarks:
        return self.constraints.remarks

    def trees(self, jobs: Iterable[SlurmJob]) -> list[Json]:
        """The gangs of all jobs that have GPUs; parts of a heterogeneous job are one gang."""
        groups: dict[object, list[SlurmJob]] = defaultdict(list)
        for job in jobs:
            groups[job.label if job.het is None else job.het[0]].append(job)
        found = []
        for parts in groups.values():
            if not any(job.asks_for_gpus for job in parts):
                self.without_gpus[parts[0].runs] += 1
                continue
            parts.sort(key=lambda job: (job.het or (0, 0))[1])
            if (tree := self._tree(parts)) is not None:
                found.append(tree)
        return found

    def _tree(self, parts: Sequence[SlurmJob]) -> Json | None:
        """The gang of a job; None if it runs on no node of the input."""
        job = parts[0]
        problems = [problem for part in parts for problem in part.problems]
        roles: list[Json] = []
        pods: list[Json] = []
        alone = False
        for i, part in enumerate(parts):
            name = "node" if part.het is None else f"het-{i}"
            if part.runs:
                self._running(part, name, roles, pods)
                continue
            role: Json = {"name": name, "replicas": 1, "gpus": 0, "requests": {}}
            try:
                alone = self._fill(role, part) or alone
            except NotExpressed as error:
                problems.append(str(error))
            roles.append(role)
        if not roles:
            return None
        spec: Json = {
            "priority": self.classes.of(job),
            "topology": self._topology(parts) | ({"exclusive": "node"} if alone else {}),
            "roles": roles,
        }
        if job.account:
            spec["queue"] = clean(job.account)
        if job.submitted is not None:
            spec["submittedAt"] = time_text(job.submitted)
        if (limit := max(part.limit_minutes for part in parts)) > 0:
            spec["expectedDuration"] = duration_text(min(limit, 10**8) * 60)
        status: Json = {"pods": pods, "scheduler": SLURM, "schedulerPriority": job.priority}
        if job.runs and job.started is not None:
            status["startedAt"] = time_text(job.started)
        if (hold := _hold(parts, problems)) is not None:
            status["hold"] = hold
        name = f"{job.label}-{job.name}" if job.name else job.label
        namespace = clean(job.user) if job.user else "unknown"
        tree = document_tree("Gang", clean(name, _MAX_NAME), spec, namespace=namespace)
        return {**tree, "status": status}

    def _requests(self, cpus: int, memory: int) -> Json:
        """Without memory, where Slurm gives jobs no memory."""
        counts = self.constraints.memory_counts
        return {"cpu": cpus} | ({"memory": f"{memory}Mi"} if counts and memory else {})

    # ---- jobs that run

    def _running(self, job: SlurmJob, name: str, roles: list[Json], pods: list[Json]) -> None:
        """A role for each number of GPUs that a node of the job has, and its pods."""
        by_count: dict[int, list[tuple[str, list[int] | None]]] = defaultdict(list)
        for node, (gpus, indices) in zip(job.nodes, _held_gpus(job), strict=True):
            if node in self.nodes:
                by_count[gpus].append((node, indices))
        if sum(map(len, by_count.values())) < len(job.nodes):
            what = "runs on nodes that are not in the input; those are left out"
            self.remarks.add(job.subject, what)
        for number, gpus in enumerate(sorted(by_count, reverse=True)):
            here = by_count[gpus]
            tree: Json = {
                "name": name if not number else f"{name}-{number + 1}",
                "replicas": len(here),
                "gpus": gpus,
                "requests": self._requests(
                    job.cpus // len(job.nodes), job.memory // len(job.nodes)
                ),
                "mixModels": self.constraints.mixed(node for node, _ in here),
            }
            try:
                self._keep_to(job, tree)
            except NotExpressed:
                what = (
                    "asks for nodes in a way that is not planned; it counts as if it could use any"
                )
                self.remarks.add(job.subject, what)
            roles.append(tree)
            pods += (
                {"role": tree["name"], "index": index, "node": node, "gpus": known}
                for index, (node, known) in enumerate(here)
            )

    # ---- jobs that wait

    def _fill(self, role: Json, job: SlurmJob) -> bool:
        """State the pods of a job that waits, up to what cannot be expressed. Raises NotExpressed.

        Returns whether nodes without other gangs have to be asked for, too.
        """
        alone = False
        pods, gpus = _size(job)
        role |= {"replicas": pods, "gpus": gpus}
        cpus, memory = -(-job.cpus // pods), -(-job.memory // pods)
        if job.exclusive:
            kind = next(iter(job.kinds), None)
            role["gpus"], cpus, full = self.constraints.whole_nodes(job, kind, gpus, cpus)
            alone = not full
        role["requests"] = self._requests(cpus, memory)
        self._keep_to(job, role)
        if job.segment > 1:
            if self.block is None:
                self.remarks.add(job.subject, "asks for --segment without blocks; it is ignored")
            elif pods % job.segment == 0:
                role["slice"] = {"size": job.segment, "required": self.block}
            else:
                raise NotExpressed(f"its {pods} nodes are not whole segments of {job.segment}")
        return alone

    def _keep_to(self, job: SlurmJob, role: Json) -> None:
        """Keep a role to the nodes that its job may use, one pod a node. Raises NotExpressed."""
        role |= self.constraints.of(job)
        if len(job.kinds) == 1 and role["gpus"]:
            role["nodeSelector"][GPU_LABEL] = label_value(next(iter(job.kinds)))
        pods = role["replicas"]
        alone = job.runs or bool(job.asked["node"]) or pods == job.node_count
        if pods > 1 and alone and 2 * role["gpus"] <= self.constraints.largest:
            role["antiAffinity"] = [{"level": "node"}]  # Slurm gives a job different nodes

    def _topology(self, parts: Sequence[SlurmJob]) -> Json:
        job = parts[0]
        switches = [part.switches for part in parts if part.switches]
        if job.runs or not switches:
            return {}
        waited = self.now - (job.submitted or self.now)
        kind, said = "preferred", ""
        if self.leaf is None:
            said = ", and no switches are known; it is ignored"
        elif len(parts) > 1 or max(switches) > 1:
            said = ": one switch is preferred, more than asked for are possible"
        elif 0 < job.switch_wait_s < waited:
            said = ", but has waited for that long enough: preferred"
        else:
            kind = "required"
        if said:
            self.remarks.add(job.subject, f"asks for --switches={switches[0]}{said}")
        return {} if self.leaf is None else {kind: self.leaf}


def _held_gpus(job: SlurmJob) -> list[tuple[int, list[int] | None]]:
    if not job.held_gpus or len(job.held_gpus) != len(job.nodes):
        each = -(-job.gpus // max(1, len(job.nodes)))
        return [(min(each, MAX_GPUS_A_POD), None)] * len(job.nodes)
    found: list[tuple[int, list[int] | None]] = []
    for one in job.held_gpus:
        whole = [gres for gres in one if not is_slice(gres.kind)]
        indices = [i for gres in whole for i in gres.indices or ()]
        found.append((count(whole), indices if len(set(indices)) == count(whole) else None))
    return found


def _size(job: SlurmJob) -> tuple[int, int]:
    if len(job.kinds) > 1:
        raise NotExpressed(
            f"it asks for GPUs of the types {' and '.join(sorted(job.kinds))} at once"
        )
    for kind in filter(is_slice, job.kinds):
        raise NotExpressed(f"it asks for MIG slices ({kind})")
    total = job.gpus
    if not total or job.asked["node"] or job.asked["socket"]:
        pods = job.node_count
    elif job.most_nodes == 1:
        pods = 1
    elif job.tasks_per_node and job.tasks and job.tasks % job.tasks_per_node == 0:
        pods = job.tasks // job.tasks_per_node
    elif job.node_count > 1 and total % job.node_count == 0:
        pods = job.node_count
    elif job.asked["task"] and job.tasks:
        pods = job.tasks
    else:
        pods = total  # GPUs on any nodes
    if total % pods:
        raise NotExpressed(f"its {total} GPUs are not equal parts for {plural(pods, 'node')}")
    gpus = total // pods
    if pods > MAX_PODS or gpus > MAX_GPUS_A_POD:
        raise NotExpressed(f"it asks for {plural(gpus, 'GPU')} on {plural(pods, 'node')}")
    return pods, gpus


def _hold(parts: Sequence[SlurmJob], problems: Sequence[str]) -> Json | None:
    code, why = "", ""
    if all(part.runs for part in parts):
        return None
    if held := next((part.held for part in parts if part.held), ""):
        code, why = GATED, f"Slurm holds it: {held}"
    elif problems:
        code, why = UNSUPPORTED, "; ".join(dict.fromkeys(problems))
    elif parts[0].het_parts > len(parts):
        code, why = INCOMPLETE, f"{len(parts)} of its {parts[0].het_parts} parts are in the input"
    return {"code": code, "message": shortened(printable(why), _MAX_MESSAGE)} if code else None


class PriorityClasses:
    """The priorities of gangs: at most ``most``, each the highest priority of the jobs that it stands for.

    Of n classes, the n - 1 widest gaps between the priorities of waiting jobs are the borders. Jobs that
    run get the nearest class, and those that Slurm holds the one below which they would stand.
    """

    def __init__(self, jobs: Iterable[SlurmJob], most: int) -> None:
        waiting = sorted({job.priority for job in jobs if not job.runs and not job.held})
        self.stated = len(waiting)
        gaps = [high - low for low, high in pairwise(waiting)]
        borders = sorted(range(len(gaps)), key=lambda i: (-gaps[i], -i))[: most - 1]
        self.tops = [waiting[i] for i in sorted(borders)] + waiting[-1:]
        self._divisor = max(1, -(-max(self.tops, default=0) // MAX_PRIORITY))

    def of(self, job: SlurmJob) -> int:
        """The priority of a job's gang; 0 where no job waits."""
        tops = self.tops
        if not tops:
            return 0
        at = min(bisect_left(tops, job.priority), len(tops) - 1)
        if job.runs and at and job.priority - tops[at - 1] < abs(tops[at] - job.priority):
            at -= 1
        return tops[at] // self._divisor
