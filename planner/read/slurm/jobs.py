"""The jobs of ``squeue --json``, of every data_parser version: what they ask for, and what they hold.

Array jobs are one job for each task, bounded; parts of a heterogeneous job stay jobs here. What a job asks
for that cannot be read is a problem of that job alone.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
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
    first_known,
    gpus,
    gres,
    number,
    said,
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


@dataclass(frozen=True, slots=True)
class SlurmJob:
    """One job, one task of an array, or one part of a heterogeneous job.

    ``runs``: it holds ``nodes``. ``held``: why Slurm does not start it, empty if it waits for room.
    ``node_count``: the least it asks for, or those it has; ``most_nodes``: 0 without a limit. ``per_node``,
    ``per_task``, ``per_socket``, ``per_job``: GPUs as asked for. ``cpus`` and ``memory`` (MiB): of all its
    nodes. ``held_gpus``: of each node that it holds, None where that is not stated. ``het``: the number of
    the whole job and of this part; ``het_parts``: how many it has. ``problems``: what cannot be planned.
    """

    number: int
    label: str
    name: str
    user: str
    account: str
    runs: bool
    held: str = ""
    priority: int = 0
    submitted: int | None = None
    started: int | None = None
    limit_minutes: int | None = None
    partitions: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    node_count: int = 1
    most_nodes: int = 0
    tasks: int = 0
    tasks_per_node: int = 0
    sockets_per_node: int = 0
    per_node: tuple[Gres, ...] = ()
    per_task: tuple[Gres, ...] = ()
    per_socket: tuple[Gres, ...] = ()
    per_job: tuple[Gres, ...] = ()
    cpus: int = 0
    memory: int = 0
    held_gpus: tuple[tuple[Gres, ...], ...] | None = None
    features: str = ""
    required_nodes: str = ""
    excluded_nodes: str = ""
    exclusive: bool = False
    reservation: str = ""
    switches: int = 0
    switch_wait_s: int = 0
    segment: int = 0
    het: tuple[int, int] | None = None
    het_parts: int = 0
    problems: tuple[str, ...] = ()

    @property
    def subject(self) -> str:
        """What a remark calls it."""
        return f"job {self.label}"

    @property
    def asks_for_gpus(self) -> bool:
        asked = (*self.per_node, *self.per_task, *self.per_socket, *self.per_job)
        held = (one for node in self.held_gpus or () for one in node)
        return any(one.count for one in (*asked, *held))


@dataclass(slots=True)
class SlurmJobs:
    """Every job of the input that runs or waits.

    ``now``: when Slurm last changed one. ``limits``: most tasks of an array that run at a time.
    """

    findings: Findings
    remarks: Remarks
    all: dict[str, SlurmJob] = field(default_factory=dict)
    clusters: list[str] = field(default_factory=list)
    now: int | None = None
    tasks: int = 0
    limits: dict[int, int] = field(default_factory=dict)

    def throttled(self) -> Iterator[SlurmJob]:
        """Every job; tasks of an array beyond those that may run at a time are held."""
        running = Counter(_array_of(job) for job in self.all.values() if job.runs)
        for job in self.all.values():
            array = _array_of(job)
            if not job.runs and array in self.limits:
                running[array] += 1
                if running[array] > self.limits[array] and not job.held:
                    yield replace(job, held="JobArrayTaskLimit")
                    continue
            yield job

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
                at_key = "job_id" in one
                what = f"a job whose job_id is {described(one.get('job_id'))}"
                where = (*path, "job_id") if at_key else path
                hint = "every job of squeue has a number"
                self.findings.add(Finding(source, where, what, hint))
            else:
                for job in self._tasks(_job(one, job_id), one):
                    self.all.setdefault(job.label, job)
                array, most = number(one, "array_job_id") or 0, number(one, "array_max_tasks") or 0
                if array > 0 and most > 0:
                    self.limits[array] = most
        changed = number(tree, "last_update")
        if changed is not None and changed > (self.now or 0):
            self.now = changed

    def _tasks(self, job: SlurmJob | None, tree: Tree) -> Iterator[SlurmJob]:
        """The job itself; of an array that waits every task of it."""
        if job is None:
            return
        array, task = number(tree, "array_job_id") or 0, number(tree, "array_task_id")
        listed = said(tree, "array_task_string")
        if array <= 0 or (task is None and not listed):
            yield job
            return
        if task is not None and not listed:
            yield replace(job, label=f"{array}_{task}")
            return
        numbers, cut = _task_numbers(listed, min(MAX_TASKS, MAX_ALL_TASKS - self.tasks))
        self.tasks += len(numbers)
        job = replace(job, label=str(array))
        if cut:
            what = f"has more tasks that wait than the {len(numbers):,} that are planned"
            hint = "SLURM_BITSTR_LEN=0 in the environment of squeue lists every task"
            self.remarks.add(job.subject, what, hint if "..." in listed else None)
        for one in numbers:
            yield replace(job, label=f"{array}_{one}")


def _array_of(job: SlurmJob) -> int:
    """The number of its array; -1 for a job that is no task."""
    array, mark, _ = job.label.partition("_")
    return int(array) if mark else -1


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
        for one in numbers[: most + 1]:
            found[one] = None
        if len(found) > most:
            return list(found)[:most], True
    return list(found), False


def _job(tree: Tree, job_id: int) -> SlurmJob | None:
    """The job of an entry; None if it has ended."""
    states = {word.upper() for word in words(tree, "job_state")}
    runs = bool(states & HOLDS)
    waits = not states.isdisjoint(("PENDING", *_HELD_STATES)) and "REVOKED" not in states
    if not runs and not waits:
        return None
    problems: list[str] = []
    count = _count(tree, problems)
    asked = tres(said(tree, "tres_alloc_str" if runs else "tres_req_str"))
    nodes = expanded(_node_list(tree), MAX_NAMES) if runs else ()
    if nodes is None:
        problems.append("its list of nodes cannot be read")
    details = items(tree, "gres_detail")
    parts, hets = number(tree, "het_job_id") or 0, number(tree, "het_job_offset") or 0
    hets_of = said(tree, "het_job_id_set")  # such as 120-122
    own = {name: gpus(said(tree, f"tres_per_{name}")) for name in ("node", "task", "socket", "job")}
    if not any(own.values()) and asked.get("gres/gpu"):
        own["job"] = _from_tres(asked)
    if shared := _shared(tree):
        problems.append(f"it asks for {shared}, parts of GPUs, which are not planned")
    shared_words, exclusive = (
        {word.lower() for word in words(tree, name)} for name in ("shared", "exclusive")
    )
    if not runs:
        asks = sorted((shared_words | exclusive) & {"user", "mcs", "topo"})
        problems += [f"it asks for nodes with --exclusive={word}" for word in asks]
        problems += _unplanned(tree)
    return SlurmJob(
        number=job_id,
        label=str(job_id),
        name=said(tree, "name"),
        user=said(tree, "user_name"),
        account=said(tree, "account"),
        runs=runs,
        held="" if runs else _held(tree, states),
        priority=max(0, _amount(tree, problems, "priority")),
        submitted=_time(tree, "submit_time"),
        started=_time(tree, "start_time") if runs else None,
        limit_minutes=number(tree, "time_limit"),
        partitions=words(tree, "partition"),
        nodes=nodes or (),
        node_count=count,
        most_nodes=_amount(tree, problems, "max_nodes"),
        tasks=_amount(tree, problems, "tasks"),
        tasks_per_node=_amount(tree, problems, "tasks_per_node"),
        sockets_per_node=_amount(tree, problems, "sockets_per_node"),
        per_node=own["node"],
        per_task=own["task"],
        per_socket=own["socket"],
        per_job=own["job"],
        cpus=max(int(asked.get("cpu", 0)), 0) or _amount(tree, problems, "cpus"),
        memory=-(-asked["mem"].numerator // asked["mem"].denominator) if "mem" in asked else 0,
        held_gpus=tuple(gpus(one) for one in details if isinstance(one, str)) or None,
        features=said(tree, "features"),
        required_nodes=said(tree, "required_nodes"),
        excluded_nodes=said(tree, "excluded_nodes"),
        exclusive="none" in shared_words or bool(exclusive & {"true", "exclusive"}),
        reservation=said(tree, "resv_name"),
        switches=_amount(tree, problems, "required_switches", "minimum_switches"),
        switch_wait_s=_amount(tree, problems, "maximum_switch_wait_time"),
        segment=_amount(tree, problems, "segment_size"),
        het=(parts, hets) if parts > 0 else None,
        het_parts=len(expanded(f"[{hets_of.strip('[]')}]", MAX_TASKS) or ()) if hets_of else 0,
        problems=tuple(problems),
    )


def _amount(tree: Tree, problems: list[str], *names: str) -> int:
    """The first of these numbers that is set; 0 without one, and a problem if it is negative."""
    found = first_known(number(tree, name) for name in names) or 0
    if found in NO_SHORT_VALUES and names[0] in _SHORT_NUMBERS:
        return 0
    if found < 0:
        problems.append(f"its {names[0]} is negative ({found:,})")
        return 0
    return found


def _count(tree: Tree, problems: list[str]) -> int:
    """The number of its nodes."""
    count = _amount(tree, problems, "node_count")
    if count > MAX_NAMES:
        problems.append(f"it asks for {count:,} nodes")
        return 1
    return max(1, count)


def _node_list(tree: Tree) -> str:
    """The nodes that it has: older versions write them below ``job_resources`` only."""
    plain = said(tree, "nodes")
    inside = at(tree, "job_resources", "nodes")
    if plain:
        return plain
    return inside if isinstance(inside, str) else said(tree, "job_resources", "nodes", "list")


def _time(tree: Tree, name: str) -> int | None:
    found = number(tree, name)
    return found if found is not None and 0 < found < 2**33 else None


def _from_tres(asked: Mapping[str, Fraction]) -> tuple[Gres, ...]:
    """The GPUs in a list of TRES: by type where that is known of all."""
    every = gpus(",".join(f"{name}={amount}" for name, amount in asked.items()))
    typed = tuple(one for one in every if one.kind is not None)
    return typed or every


def _shared(tree: Tree) -> str:
    """Shares of GPUs that it asks for."""
    for name in ("node", "task", "socket", "job"):
        for one in gres(said(tree, f"tres_per_{name}")):
            if one.name in ("shard", "mps") and one.count:
                return f"{one.name}:{one.count}"
    return ""


def _held(tree: Tree, states: set[str]) -> str:
    """Why Slurm does not start it, whatever is free."""
    for one in _HELD_STATES:
        if one in states:
            return one
    reason = re.split(r"[,\s(]", said(tree, "state_reason"))[0]
    dependency = said(tree, "dependency")
    if reason.startswith("Nodes_required_for_job") or reason in _FREE:
        reason = ""
    if reason == "Dependency" and dependency:
        return f"Dependency {dependency}"
    if not reason and (flag(tree, "hold") or number(tree, "priority") == 0):
        return "JobHeldUser"
    return reason


def _unplanned(tree: Tree) -> Iterator[str]:
    """What a job that waits asks for that a plan cannot express."""
    if flag(tree, "contiguous"):
        yield "it asks for contiguous nodes"
    if said(tree, "batch_features"):
        yield f"it asks for a batch host with {shown(said(tree, 'batch_features'))}"
