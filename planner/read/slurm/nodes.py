"""The nodes of a Slurm cluster: ``scontrol show nodes --json``.

A node keeps its place for messages. What states and GPUs mean for a plan is decided in ``cluster_nodes``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from models.documents.base import Path
from models.host_ranges import MAX_NAMES
from models.units import described, shown
from planner.read.findings import Finding, Findings
from planner.read.kube.lookup import Tree, items
from planner.read.slurm.definitions import NAME_HINT, is_name
from planner.read.slurm.fields import first_known, number, said, tres, words
from planner.read.sources import Source

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
    return frozenset(_SHORT.get(text.upper(), text.upper()) for text in texts)


@dataclass(slots=True)
class SlurmNodes:
    """Every node of the input."""

    findings: Findings
    all: dict[str, SlurmNode] = field(default_factory=dict)
    clusters: list[str] = field(default_factory=list)

    def add(self, source: Source, tree: Tree) -> None:
        """Of a node that is stated twice the first counts."""
        for i, one in enumerate(items(tree, "nodes")):
            place = _Place(source, (*source.path, "nodes", i), self.findings)
            if not isinstance(one, dict):
                what = f"expected a node, not {described(one)}"
                place.fault("", what, "give it as scontrol wrote it")
                continue
            node = _from_json(one, place)
            if node is not None and len(self.all) < MAX_NAMES:
                self.all.setdefault(node.name, node)


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a node is written."""

    source: Source
    path: Path
    findings: Findings

    def fault(self, field_: str, what: str, hint: str) -> None:
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
        if isinstance(text, str):
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


def _gpus_used(text: str) -> int:
    """GPUs in a list of TRES that are in use; empty where nothing is."""
    return int(tres(text).get("gres/gpu", 0))
