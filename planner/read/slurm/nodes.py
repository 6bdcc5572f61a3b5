"""The nodes of a Slurm cluster: ``scontrol show nodes`` as text or JSON, and ``sinfo --json``.

A node keeps its place for messages. What states and GPUs mean for a plan is decided in ``cluster_nodes``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from models.documents.base import Path
from models.host_ranges import MAX_NAMES
from models.units import described, shown
from planner.errors import Fault
from planner.read.findings import Finding, Findings
from planner.read.kube.lookup import Tree, items
from planner.read.slurm.definitions import NAME_HINT, is_name
from planner.read.slurm.fields import expanded, first_known, gpus, number, said, tres, words
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
    "ALLOC": "ALLOCATED",
    "DRNG": "DRAIN",
    "DRAINED": "DRAIN",
    "DRAINING": "DRAIN",
    "MAINTENANCE": "MAINT",
    "NO_RESPOND": "NOT_RESPONDING",
    "POWER_SAVING": "POWERED_DOWN",
    "POWER": "POWERED_DOWN",
    "INVAL": "INVALID_REG",
    "FAILING": "FAIL",
    "RESV": "RESERVED",
    "MIX": "MIXED",
}
"""States that have had several names."""


@dataclass(slots=True)
class SlurmNode:
    """One node as Slurm states it.

    ``gres``: installed, ``gres_used``: in use, as texts; ``gpus_used``: their number, where only that is
    known. ``cpus``: those that jobs may use; ``memory``: MiB. ``cpus_used`` and ``memory_used`` are None
    where they are not stated. ``where``: reports a fault of the node.
    """

    name: str
    states: frozenset[str]
    gres: str
    gres_used: str
    cpus: int
    memory: int
    where: Callable[[str, str, str], None]
    gpus_used: int | None = None
    cpus_used: int | None = None
    memory_used: int | None = None
    features: tuple[str, ...] = ()
    partitions: tuple[str, ...] = ()
    reservation: str = ""
    instance_type: str = ""


def states_of(texts: tuple[str, ...]) -> frozenset[str]:
    """States in capital letters, under their present names."""
    found = set()
    for text in texts:
        word = text.upper()
        while word and word[-1] in _MARKS:
            found.add(_MARKS[word[-1]])
            word = word[:-1]
        found.add(_SHORT.get(word, word))
    return frozenset(found - {""})


@dataclass(slots=True)
class SlurmNodes:
    """Every node of the input. ``partial``: those of ``sinfo``, which count only where no others are."""

    findings: Findings
    stated: dict[str, SlurmNode] = field(default_factory=dict)
    partial: dict[str, SlurmNode] = field(default_factory=dict)
    clusters: list[str] = field(default_factory=list)

    @property
    def all(self) -> dict[str, SlurmNode]:
        return self.stated or self.partial

    def add(self, source: Source, tree: Tree) -> None:
        """The nodes of ``scontrol show nodes --json``, or else of ``sinfo --json``.

        sinfo has one entry for each partition and node, or group of nodes.
        """
        stated = isinstance(tree.get("nodes"), list)
        kind = "nodes" if stated else "sinfo"
        for i, one in enumerate(items(tree, kind)):
            place = _Place(source, (*source.path, kind, i), self.findings)
            if not isinstance(one, dict):
                name, tool = ("a node", "scontrol") if stated else ("an entry of sinfo", "sinfo")
                place.fault(
                    "", f"expected {name}, not {described(one)}", f"give it as {tool} wrote it"
                )
                continue
            if stated:
                self._keep(_from_json(one, place), self.stated)
                continue
            for node in _from_sinfo(one, place):
                known = self.partial.get(node.name)
                if known is None:
                    self._keep(node, self.partial)
                else:
                    more = (name for name in node.partitions if name not in known.partitions)
                    known.partitions = (*known.partitions, *more)

    def add_text(self, source: Source) -> None:
        """The nodes of ``scontrol show nodes`` as text, with or without ``--oneliner``."""
        for line, record in _records(source.text):
            place = _Place(source, (), self.findings, line)
            self._keep(_from_text(record, place), self.stated)

    def _keep(self, node: SlurmNode | None, into: dict[str, SlurmNode]) -> None:
        """Of a node that is stated twice the first counts: lists of partitions overlap."""
        if node is not None and len(into) < MAX_NAMES:
            into.setdefault(node.name, node)


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a node is written. ``line``: of a text; then there is no path."""

    source: Source
    path: Path
    findings: Findings
    line: int | None = None

    def fault(self, field_: str, what: str, hint: str) -> None:
        if self.line is not None:
            self.findings.fault(Fault(what, hint, self.source.name, self.line, 1))
        else:
            steps: Path = tuple(field_.split(".")) if field_ else ()
            self.findings.add(Finding(self.source, (*self.path, *steps), what, hint))

    def amount(self, tree: object, *path: str) -> int | None:
        """A number of the node, which cannot be negative."""
        found = number(tree, *path)
        if found is not None and found < 0:
            named = ".".join(path)
            self.fault(named, f"{named}: {found:,} cannot be negative", "Slurm writes 0 or more")
            return None
        return found

    def name(self, field_: str, text: object) -> str | None:
        """A node's name, or a fault."""
        if isinstance(text, str) and is_name(text):
            return text
        if isinstance(text, str) and re.search(r"\[[0-9,-]+\]", text):
            what = f"{shown(text)} are several nodes: this is no output of scontrol show nodes"
            hint = "a slurm.conf is not read; write scontrol show nodes --json > nodes.json"
        elif isinstance(text, str):
            what, hint = f"{shown(text)} cannot be the name of a node", NAME_HINT
        else:
            what, hint = (
                f"a node without a name, but {described(text)}",
                "give it as Slurm wrote it",
            )
        self.fault(field_, what, hint)
        return None


def _from_json(tree: Tree, place: _Place) -> SlurmNode | None:
    name = place.name("name" if "name" in tree else "", tree.get("name"))
    if name is None:
        return None
    cpus = first_known(place.amount(tree, one) for one in ("effective_cpus", "cpus"))
    memory = (place.amount(tree, "real_memory") or 0) - (
        place.amount(tree, "specialized_memory") or 0
    )
    return SlurmNode(
        name=name,
        states=states_of((*words(tree, "state"), *words(tree, "state_flags"))),
        gres=said(tree, "gres"),
        gres_used=said(tree, "gres_used"),
        gpus_used=_gpus_used(said(tree, "tres_used")),
        cpus=cpus or 0,
        memory=max(0, memory),
        cpus_used=place.amount(tree, "alloc_cpus"),
        memory_used=place.amount(tree, "alloc_memory"),
        features=words(tree, "active_features") or words(tree, "features"),
        partitions=words(tree, "partitions"),
        reservation=said(tree, "reservation"),
        instance_type=said(tree, "instance_type"),
        where=place.fault,
    )


def _from_sinfo(tree: Tree, place: _Place) -> Iterator[SlurmNode]:
    """The nodes of an entry: those of a group are equal, and idle."""
    listed = items(tree, "nodes", "nodes")
    texts = [text for text in listed if isinstance(text, str)]
    names = [name for text in texts for name in expanded(text, MAX_NAMES) or (text,)]
    in_use = place.amount(tree, "cpus", "allocated") or any(
        one.count for one in gpus(said(tree, "gres", "used"))
    )
    if len(names) > 1 and in_use:
        what = f"{len(names):,} nodes in one entry: which of them holds what is not said"
        hint = "write scontrol show nodes --json > nodes.json, or sinfo -N --json"
        place.fault("nodes", what, hint)
        return
    states = words(tree, "node", "state")
    for text in names:
        name = place.name("nodes", text)
        if name is not None:
            yield SlurmNode(
                name=name,
                states=states_of(states),
                gres=said(tree, "gres", "total"),
                gres_used=said(tree, "gres", "used"),
                cpus=place.amount(tree, "cpus", "maximum") or 0,
                memory=place.amount(tree, "memory", "maximum") or 0,
                cpus_used=place.amount(tree, "cpus", "allocated"),
                memory_used=place.amount(tree, "memory", "allocated"),
                features=words(tree, "features", "active"),
                partitions=words(tree, "partition", "name"),
                reservation=said(tree, "reservation"),
                where=place.fault,
            )


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


def _from_text(record: dict[str, str], place: _Place) -> SlurmNode | None:
    name = place.name("", record.get("NodeName"))
    if name is None:
        return None
    cpus = first_known(place.amount(record, one) for one in ("CPUEfctv", "CPUTot"))
    memory = (place.amount(record, "RealMemory") or 0) - (place.amount(record, "MemSpecLimit") or 0)
    return SlurmNode(
        name=name,
        states=states_of(words(record, "State")),
        gres=said(record, "Gres"),
        gres_used=said(record, "GresUsed"),
        gpus_used=_gpus_used(said(record, "AllocTRES")),
        cpus=cpus or 0,
        memory=max(0, memory),
        cpus_used=place.amount(record, "CPUAlloc"),
        memory_used=place.amount(record, "AllocMem"),
        features=words(record, "ActiveFeatures"),
        partitions=words(record, "Partitions"),
        reservation=said(record, "ReservationName"),
        instance_type=said(record, "InstanceType"),
        where=place.fault,
    )


def _gpus_used(text: str) -> int:
    """GPUs in a list of TRES that are in use; empty where nothing is."""
    return int(tres(text).get("gres/gpu", 0))
