"""Jobs of Slurm as gangs: a pod for each node, or for each task or GPU where only those are asked for.

A job that Slurm holds is held with Slurm's reason; one that asks for what cannot be expressed is held as
Unsupported. Every gang states ``slurm`` as its scheduler, so no plan of it can be applied.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from models.documents.base import API_VERSION
from models.documents.gang import MAX_GPUS_A_POD, MAX_PODS, MAX_PRIORITY
from models.instance.policy import SLURM
from models.units import duration_text, plural, shortened, time_text
from planner.read.findings import Remarks
from planner.read.kube.lookup import clean
from planner.read.slurm.constraints import Constraints, NotExpressed
from planner.read.slurm.fields import Gres, is_slice
from planner.read.slurm.jobs import SlurmJob
from planner.read.slurm.node_documents import Json, label_value
from planner.read.slurm.servers import GPU_LABEL
from planner.read.sources import printable

_MAX_MESSAGE = 1000
_MAX_NAME = 60

GATED, UNSUPPORTED, INCOMPLETE = "Gated", "Unsupported", "Incomplete"


@dataclass(slots=True)
class GangDocuments:
    """Turns jobs into gangs.

    ``leaf``: the level of leaf switches, ``block``: that of blocks, None without one. ``nodes``: names of
    the nodes of the cluster. ``now``: seconds, 0 if unknown.
    """

    constraints: Constraints
    nodes: Collection[str]
    remarks: Remarks
    classes: PriorityClasses
    leaf: str | None = None
    block: str | None = None
    now: int = 0
    without_gpus: Counter[bool] = field(default_factory=Counter)
    """Jobs that are left out because they have no GPUs; by whether they run."""

    def trees(self, jobs: Iterable[SlurmJob]) -> list[Json]:
        """The gangs of all jobs that have GPUs; parts of a heterogeneous job are one gang."""
        groups: dict[tuple[str, int], list[SlurmJob]] = defaultdict(list)
        for job in jobs:
            number = job.het[0] if job.het is not None else len(groups)
            groups["het" if job.het is not None else "job", number].append(job)
        found = []
        for parts in groups.values():
            if not any(job.asks_for_gpus for job in parts):
                self.without_gpus[parts[0].runs] += 1
                continue
            parts.sort(key=lambda job: (job.het or (0, 0))[1])
            tree = self._tree(parts)
            if tree is not None:
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
            "queue": clean(job.account) if job.account else None,
            "priority": self.classes.of(job),
            "topology": self._topology(parts) | ({"exclusive": "node"} if alone else {}),
            "roles": roles,
        }
        if job.submitted is not None:
            spec["submittedAt"] = time_text(job.submitted)
        if (limit := max((part.limit_minutes or 0 for part in parts), default=0)) > 0:
            spec["expectedDuration"] = duration_text(min(limit, 10**8) * 60)
        status: Json = {"pods": pods, "scheduler": SLURM, "schedulerPriority": job.priority}
        if job.runs and job.started is not None:
            status["startedAt"] = time_text(job.started)
        if (hold := _hold(parts, problems)) is not None:
            status["hold"] = hold
        return {
            "apiVersion": API_VERSION,
            "kind": "Gang",
            "metadata": {
                "name": clean(f"{job.label}-{job.name}" if job.name else job.label, _MAX_NAME),
                "namespace": clean(job.user) if job.user else "unknown",
            },
            "spec": {name: value for name, value in spec.items() if value is not None},
            "status": status,
        }

    # ---- jobs that run

    def _running(self, job: SlurmJob, name: str, roles: list[Json], pods: list[Json]) -> None:
        """A role for each number of GPUs that a node of the job has, and its pods."""
        here = [(i, node) for i, node in enumerate(job.nodes) if node in self.nodes]
        if len(here) < len(job.nodes):
            what = "runs on nodes that are not in the input; those are left out"
            self.remarks.add(job.subject, what)
        held = self._held_gpus(job)
        by_count: dict[int, list[tuple[str, tuple[int, ...] | None]]] = defaultdict(list)
        for i, node in here:
            count, indices = held[i]
            by_count[count].append((node, indices))
        for number, count in enumerate(sorted(by_count, reverse=True)):
            role = name if not number else f"{name}-{number + 1}"
            requests: Json = {"cpu": job.cpus // len(job.nodes)}
            requests["memory"] = f"{job.memory // len(job.nodes)}Mi"
            tree: Json = {
                "name": role,
                "replicas": len(by_count[count]),
                "gpus": count,
                "requests": self.constraints.counted(requests),
                "mixModels": self.constraints.mixed(node for node, _ in by_count[count]),
            }
            try:
                self._keep_to(job, tree)
            except NotExpressed:
                what = (
                    "asks for nodes in a way that is not planned; it counts as if it could use any"
                )
                self.remarks.add(job.subject, what)
            roles.append(tree)
            for index, (node, indices) in enumerate(by_count[count]):
                known = None if indices is None else list(indices)
                pods.append({"role": role, "index": index, "node": node, "gpus": known})

    def _held_gpus(self, job: SlurmJob) -> list[tuple[int, tuple[int, ...] | None]]:
        """(GPUs, their indices) of each node of a job that runs."""
        nodes = len(job.nodes)
        if job.held_gpus is not None and len(job.held_gpus) == nodes:
            found = []
            for one in job.held_gpus:
                whole = [gres for gres in one if not is_slice(gres.kind)]
                count = sum(gres.count for gres in whole)
                indices = tuple(i for gres in whole for i in gres.indices or ())
                found.append((count, indices if len(set(indices)) == count else None))
            return found
        each = -(-_total(job) // max(1, nodes))
        return [(min(each, MAX_GPUS_A_POD), None)] * nodes

    # ---- jobs that wait

    def _fill(self, role: Json, job: SlurmJob) -> bool:
        """State the pods of a job that waits, up to what cannot be expressed. Raises NotExpressed.

        Returns whether nodes without other gangs have to be asked for, too.
        """
        alone = False
        pods, gpus = self._size(job)
        role |= {"replicas": pods, "gpus": gpus}
        cpus, memory = -(-job.cpus // pods), -(-job.memory // pods)
        if job.exclusive:
            kind = next(iter(_kinds(job)), None)
            role["gpus"], cpus, full = self.constraints.whole_nodes(job, kind, gpus, cpus)
            alone = not full
        requests = {"cpu": cpus} | ({"memory": f"{memory}Mi"} if memory else {})
        role["requests"] = self.constraints.counted(requests)
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
        where = self.constraints.of(job)
        role["nodeSelector"] = dict(where.selector)
        role["tolerations"] = where.tolerations
        if where.terms:
            role["nodeAffinity"] = where.terms
        kinds = _kinds(job)
        if len(kinds) == 1 and role["gpus"]:
            role["nodeSelector"][GPU_LABEL] = label_value(next(iter(kinds)))
        pods = role["replicas"]
        alone = job.runs or bool(job.per_node) or pods == job.node_count
        if pods > 1 and alone and 2 * role["gpus"] <= self.constraints.largest:
            role["antiAffinity"] = [{"level": "node"}]  # Slurm gives a job different nodes

    def _size(self, job: SlurmJob) -> tuple[int, int]:
        """(pods, GPUs of each). Raises NotExpressed."""
        kinds = _kinds(job)
        if len(kinds) > 1:
            raise NotExpressed(
                f"it asks for GPUs of the types {' and '.join(sorted(kinds))} at once"
            )
        kind = next(iter(kinds), None)
        if is_slice(kind):
            raise NotExpressed(f"it asks for MIG slices ({kind})")
        total = _total(job)
        if not total:
            return self._bounded(job.node_count, 0)
        if job.per_node or job.per_socket:
            pods = job.node_count
        elif job.most_nodes == 1:
            pods = 1
        elif job.tasks_per_node and job.tasks and job.tasks % job.tasks_per_node == 0:
            pods = job.tasks // job.tasks_per_node
        elif job.node_count > 1 and total % job.node_count == 0:
            pods = job.node_count
        elif job.per_task and job.tasks:
            pods = job.tasks
        else:
            pods = total  # GPUs on any nodes
        if total % pods:
            raise NotExpressed(f"its {total} GPUs are not equal parts for {plural(pods, 'node')}")
        return self._bounded(pods, total // pods)

    @staticmethod
    def _bounded(pods: int, gpus: int) -> tuple[int, int]:
        if pods > MAX_PODS or gpus > MAX_GPUS_A_POD:
            raise NotExpressed(f"it asks for {plural(gpus, 'GPU')} on {plural(pods, 'node')}")
        return pods, gpus

    def _topology(self, parts: Sequence[SlurmJob]) -> Json:
        """What ``--switches`` asks for."""
        job = parts[0]
        found: Json = {}
        switches = [part.switches for part in parts if part.switches]
        if job.runs or not switches:
            return found
        asked = f"asks for --switches={switches[0]}"
        waited = self.now - (job.submitted or self.now)
        if self.leaf is None:
            self.remarks.add(job.subject, f"{asked}, and no switches are known; it is ignored")
        elif len(parts) > 1 or max(switches) > 1:
            what = f"{asked}: one switch is preferred, more than asked for are possible"
            self.remarks.add(job.subject, what)
            found["preferred"] = self.leaf
        elif 0 < job.switch_wait_s < waited:
            self.remarks.add(
                job.subject, f"{asked}, but has waited for that long enough: preferred"
            )
            found["preferred"] = self.leaf
        else:
            found["required"] = self.leaf
        return found


def _total(job: SlurmJob) -> int:
    """GPUs of all its nodes."""
    if job.runs and job.per_job and not job.per_node:
        return sum(one.count for one in job.per_job)
    if job.per_node:
        return job.node_count * sum(one.count for one in job.per_node)
    if job.per_task:
        return max(1, job.tasks) * sum(one.count for one in job.per_task)
    if job.per_socket:
        sockets = job.node_count * max(1, job.sockets_per_node)
        return sockets * sum(one.count for one in job.per_socket)
    return sum(one.count for one in job.per_job)


def _kinds(job: SlurmJob) -> set[str]:
    """The types of GPUs that it asks for."""
    asked: tuple[Gres, ...] = (*job.per_node, *job.per_task, *job.per_socket, *job.per_job)
    return {one.kind for one in asked if one.kind is not None}


def _hold(parts: Sequence[SlurmJob], problems: Sequence[str]) -> Json | None:
    """Why none of its pods starts."""
    if all(part.runs for part in parts):
        return None
    if held := next((part.held for part in parts if part.held), ""):
        return {"code": GATED, "message": _message(f"Slurm holds it: {held}")}
    if problems:
        return {"code": UNSUPPORTED, "message": _message("; ".join(dict.fromkeys(problems)))}
    if parts[0].het_parts > len(parts):
        message = f"{len(parts)} of its {parts[0].het_parts} parts are in the input"
        return {"code": INCOMPLETE, "message": message}
    return None


def _message(text: str) -> str:
    return shortened(printable(text), _MAX_MESSAGE)


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
