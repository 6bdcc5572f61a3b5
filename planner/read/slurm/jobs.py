"""The jobs of ``squeue --json``, of every data_parser version: what they ask for, and what they hold.

Array jobs are one job for each task, bounded; parts of a heterogeneous job stay jobs here. What a job asks
for that cannot be read is a problem of that job alone.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from fractions import Fraction

from models.documents.base import Path
from models.host_ranges import MAX_NAMES
from models.units import described, shown
from planner.read.findings import Finding, Findings, Remarks
from planner.read.kube.lookup import Tree, at, flag, items
from planner.read.slurm.fields import (
    NO_SHORT_VALUES,
    Gres,
    expanded,
    gpus,
    number,
    said,
    shares,
    tres,
    words,
)
from planner.read.sources import Source

MAX_TASKS = 1_000
"""Most waiting tasks of one array that are read."""

MAX_ALL_TASKS = 20_000
"""Most waiting tasks of all arrays."""

HOLDS = frozenset(
    {
        "RUNNING", "SUSPENDED", "COMPLETING", "CONFIGURING", "RESIZING", "STOPPED", "SIGNALING",
        "STAGE_OUT",
    }
)  # fmt: skip
"""States of jobs that hold their nodes; versions before 23.11 name one only, without RUNNING."""

_FREE = frozenset(
    {"", "None", "Priority", "Resources", "ReqNodeNotAvail", "SchedDefer", "WaitingForScheduling"}
)
"""Reasons of jobs that wait for nothing but room."""

_SHORT_NUMBERS = ("tasks_per_node", "sockets_per_node", "segment_size")
"""Fields of 16 bits."""

_HELD_STATES = ("REQUEUE_HOLD", "SPECIAL_EXIT", "RESV_DEL_HOLD")
"""States of jobs that wait; versions before 23.11 name one only, without PENDING."""


class SlurmJob:
    """One job, one task of an array, or one part of a heterogeneous job.

    ``runs``: it holds ``nodes``. ``held``: why Slurm does not start it, empty if it waits for room.
    ``node_count``: the least it asks for, or those it has; ``most_nodes``: 0 without a limit. ``asked``:
    GPUs for each node, task and socket, and for the job. ``cpus`` and ``memory`` (MiB): of all its
    nodes. ``held_gpus``: of each node that it holds, none where that is not stated. ``het``: the number of
    the whole job and of this part; ``het_parts``: how many it has. ``problems``: what cannot be planned.
    """

    def __init__(self, tree: Tree, job_id: int, states: set[str], *, runs: bool) -> None:
        problems = self.problems = list[str]()

        def amount(*names: str) -> int:
            """The first of these numbers that is set; 0 without one, and a problem if it is negative."""
            known = (number(tree, name) for name in names)
            found = next((one for one in known if one is not None), 0)
            if found in NO_SHORT_VALUES and names[0] in _SHORT_NUMBERS:
                return 0
            if found < 0:
                problems.append(f"its {names[0]} is negative ({found:,})")
            return max(0, found)

        self.label = str(job_id)
        self.runs = runs
        self.held = "" if runs else _held(tree, states)
        self.name, self.user, self.account = (
            said(tree, name) for name in ("name", "user_name", "account")
        )
        count = amount("node_count")
        if count > MAX_NAMES:
            problems.append(f"it asks for {count:,} nodes")
            count = 1
        self.node_count = max(1, count)
        nodes = expanded(_node_list(tree), MAX_NAMES) if runs else ()
        if nodes is None:
            problems.append("its list of nodes cannot be read")
        self.nodes = nodes or ()
        stated = tres(said(tree, "tres_alloc_str" if runs else "tres_req_str"))
        self.asked = self._asked(tree, stated)
        self.exclusive = self._exclusive(tree)
        self.priority = amount("priority")
        self.submitted = _time(tree, "submit_time")
        self.started = _time(tree, "start_time") if runs else None
        self.limit_minutes = number(tree, "time_limit") or 0
        self.partitions = words(tree, "partition")
        self.most_nodes = amount("max_nodes")
        self.tasks = amount("tasks")
        self.tasks_per_node = amount("tasks_per_node")
        self.sockets_per_node = amount("sockets_per_node")
        self.cpus = int(stated.get("cpu", 0)) or amount("cpus")
        self.memory = math.ceil(stated.get("mem", 0))
        details = items(tree, "gres_detail")
        self.held_gpus = [gpus(one) for one in details if isinstance(one, str)]
        self.features = said(tree, "features")
        self.required_nodes = said(tree, "required_nodes")
        self.excluded_nodes = said(tree, "excluded_nodes")
        self.reservation = said(tree, "resv_name")
        self.switches = amount("required_switches", "minimum_switches")
        self.switch_wait_s = amount("maximum_switch_wait_time")
        self.segment = amount("segment_size")
        whole = number(tree, "het_job_id") or 0
        self.het = (whole, number(tree, "het_job_offset") or 0) if whole > 0 else None
        parts = said(tree, "het_job_id_set").strip("[]")  # such as 120-122
        self.het_parts = len(expanded(f"[{parts}]", MAX_TASKS) or ()) if parts else 0

    def _asked(self, tree: Tree, stated: Mapping[str, Fraction]) -> dict[str, tuple[Gres, ...]]:
        """The GPUs that it asks for, for each of what; ``stated``: its TRES."""
        each = {one: said(tree, f"tres_per_{one}") for one in ("node", "task", "socket", "job")}
        asked = {one: gpus(text) for one, text in each.items()}
        if not any(asked.values()) and stated.get("gres/gpu"):
            every = gpus(",".join(f"{name}={amount}" for name, amount in stated.items()))
            # by type where that is known of all
            asked["job"] = tuple(one for one in every if one.kind is not None) or every
        for part in [part for text in each.values() for part in shares(text)][:1]:
            share = f"{part.name}:{part.count}"
            self.problems.append(f"it asks for {share}, parts of GPUs, which are not planned")
        return asked

    def _exclusive(self, tree: Tree) -> bool:
        """Whether it asks for whole nodes; whatever else is asked of nodes is a problem."""
        alone, exclusive = (
            {word.lower() for word in words(tree, name)} for name in ("shared", "exclusive")
        )
        if not self.runs:
            asks = sorted((alone | exclusive) & {"user", "mcs", "topo"})
            self.problems += [f"it asks for nodes with --exclusive={word}" for word in asks]
            if flag(tree, "contiguous"):
                self.problems.append("it asks for contiguous nodes")
            if host := said(tree, "batch_features"):
                self.problems.append(f"it asks for a batch host with {shown(host)}")
        return "none" in alone or bool(exclusive & {"true", "exclusive"})

    @property
    def subject(self) -> str:
        return f"job {self.label}"

    @property
    def asks_for_gpus(self) -> bool:
        return any(one.count for some in (*self.asked.values(), *self.held_gpus) for one in some)

    @property
    def kinds(self) -> set[str]:
        found = (one.kind for some in self.asked.values() for one in some)
        return {kind for kind in found if kind is not None}

    @property
    def gpus(self) -> int:
        """GPUs of all its nodes."""
        counts = {one: count(some) for one, some in self.asked.items()}
        if self.asked["node"]:
            return self.node_count * counts["node"]
        if self.runs and self.asked["job"]:
            return counts["job"]
        if self.asked["task"]:
            return max(1, self.tasks) * counts["task"]
        if self.asked["socket"]:
            return self.node_count * max(1, self.sockets_per_node) * counts["socket"]
        return counts["job"]

    @property
    def array(self) -> int:
        """The number of its array; -1 for a job that is no task."""
        array, mark, _ = self.label.partition("_")
        return int(array) if mark else -1

    def called(self, label: str) -> SlurmJob:
        """The same job by another name: a task of its array."""
        job = copy(self)
        job.label = label
        return job


def count(some: Sequence[Gres]) -> int:
    return sum(one.count for one in some)


@dataclass(slots=True)
class SlurmJobs:
    """Every job of the input that runs or waits.

    ``now``: when Slurm last changed one. ``limits``: most tasks of an array that run at a time.
    """

    findings: Findings
    remarks: Remarks
    all: dict[str, SlurmJob] = field(default_factory=dict)
    now: int | None = None
    tasks: int = 0
    limits: dict[int, int] = field(default_factory=dict)

    def throttled(self) -> list[SlurmJob]:
        """Every job; tasks of an array beyond those that may run at a time are held."""
        running = Counter(job.array for job in self.all.values() if job.runs)
        for job in self.all.values():
            if not job.runs and job.array in self.limits:
                running[job.array] += 1
                if running[job.array] > self.limits[job.array]:
                    job.held = job.held or "JobArrayTaskLimit"
        return list(self.all.values())

    def add(self, source: Source, tree: Tree) -> None:
        """The jobs of a document of squeue. Jobs that have ended are left out."""
        for i, one in enumerate(items(tree, "jobs")):
            path: Path = (*source.path, "jobs", i)
            if not isinstance(one, dict):
                what, hint = f"expected a job, not {described(one)}", "give it as squeue wrote it"
                self.findings.add(Finding(source, path, what, hint))
            elif isinstance(one.get("time"), dict) and isinstance(one.get("state"), dict):
                what = "a job of sacct, which lists jobs that have ended"
                self.findings.add(Finding(source, path, what, "write squeue --json > queue.json"))
                return
            elif (job_id := number(one, "job_id")) is None or job_id < 0:
                what = f"a job whose job_id is {described(one.get('job_id'))}"
                where = (*path, "job_id") if "job_id" in one else path
                self.findings.add(Finding(source, where, what, "every job of squeue has a number"))
            else:
                self._add_job(one, job_id)
        changed = number(tree, "last_update")
        if changed is not None and changed > (self.now or 0):
            self.now = changed

    def _add_job(self, tree: Tree, job_id: int) -> None:
        states = {word.upper() for word in words(tree, "job_state")}
        runs = bool(states & HOLDS)
        waits = not states.isdisjoint(("PENDING", *_HELD_STATES)) and "REVOKED" not in states
        if runs or waits:
            for job in self._tasks(SlurmJob(tree, job_id, states, runs=runs), tree):
                self.all.setdefault(job.label, job)
        array, most = number(tree, "array_job_id") or 0, number(tree, "array_max_tasks") or 0
        if array > 0 and most > 0:
            self.limits[array] = most

    def _tasks(self, job: SlurmJob, tree: Tree) -> Iterator[SlurmJob]:
        """The job itself; of an array that waits every task of it."""
        array, task = number(tree, "array_job_id") or 0, number(tree, "array_task_id")
        listed = said(tree, "array_task_string")
        if array <= 0 or (task is None and not listed):
            yield job
            return
        if task is not None and not listed:
            yield job.called(f"{array}_{task}")
            return
        numbers, cut = _task_numbers(listed, min(MAX_TASKS, MAX_ALL_TASKS - self.tasks))
        self.tasks += len(numbers)
        if cut:
            what = f"has more tasks that wait than the {len(numbers):,} that are planned"
            hint = "SLURM_BITSTR_LEN=0 in the environment of squeue lists every task"
            self.remarks.add(f"job {array}", what, hint if "..." in listed else None)
        for one in numbers:
            yield job.called(f"{array}_{one}")


_STEP = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9})(?::([0-9]{1,9}))?)?")


def _task_numbers(text: str, most: int) -> tuple[list[int], bool]:
    """The numbers in ``0-15%4`` or ``1-9:2,11``, at most so many, and whether there are more."""
    found: dict[int, None] = {}
    for part in text.partition("%")[0].split(","):
        match = _STEP.fullmatch(part.strip())
        if match is None:
            return list(found), True  # the list ends in "..." where Slurm cut it
        first, last = int(match[1]), int(match[2] or match[1])
        numbers = range(first, last + 1, max(1, int(match[3] or 1)))
        found |= dict.fromkeys(numbers[: most + 1])
        if len(found) > most:
            return list(found)[:most], True
    return list(found), False


def _node_list(tree: Tree) -> str:
    """The nodes that it has: older versions write them below ``job_resources`` only."""
    if plain := said(tree, "nodes"):
        return plain
    inside = at(tree, "job_resources", "nodes")
    return inside if isinstance(inside, str) else said(tree, "job_resources", "nodes", "list")


def _time(tree: Tree, name: str) -> int | None:
    found = number(tree, name)
    return found if found is not None and 0 < found < 2**33 else None


def _held(tree: Tree, states: set[str]) -> str:
    if held := next((one for one in _HELD_STATES if one in states), None):
        return held
    reason = re.split(r"[,\s(]", said(tree, "state_reason"))[0]
    dependency = said(tree, "dependency")
    if reason.startswith("Nodes_required_for_job") or reason in _FREE:
        reason = ""
    if reason == "Dependency" and dependency:
        return f"Dependency {dependency}"
    if not reason and (flag(tree, "hold") or number(tree, "priority") == 0):
        return "JobHeldUser"
    return reason
