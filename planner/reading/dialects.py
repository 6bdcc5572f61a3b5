"""Documents sorted by family: compact kinds typed, Kubernetes objects gathered, topology files read.

Promises: every document is typed, gathered or reported. What is no document at all is a fault,
but only a remark beside Kubernetes objects, whose folders hold other things too.
Called by ``planner.reading``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from models.documents import (
    API_VERSION,
    ClusterDocument,
    GangDocument,
    PolicyDocument,
    suggestion,
)
from models.quantities import described, shown
from planner.errors import Fault, InputError
from planner.reading.composing import Path
from planner.reading.findings import Finding, Findings
from planner.reading.parsing import parse
from planner.reading.recognition import guessed, is_object, is_of_ours, is_topology, subject_of
from planner.reading.remarks import Remarks
from planner.reading.sources import Source
from planner.reading.validating import Entry, validate

if TYPE_CHECKING:
    from planner.reading.kubernetes.forms import Objects
    from planner.reading.kubernetes.objects import Gatherer
    from planner.reading.slurm import SlurmTopology

KINDS = ("Cluster", "Gang", "Policy")
MAX_LISTS = 8
"""Deepest List in a List."""


@dataclass(slots=True)
class Documents:
    """Every typed document, and whether any could not be used at all."""

    findings: Findings
    clusters: list[Entry[ClusterDocument]] = field(default_factory=list)
    gangs: list[Entry[GangDocument]] = field(default_factory=list)
    policies: list[Entry[PolicyDocument]] = field(default_factory=list)
    unusable: set[str] = field(default_factory=set)
    remarks: Remarks = field(default_factory=Remarks)
    topologies: list[tuple[Source, SlurmTopology]] = field(default_factory=list)
    strangers: list[tuple[str, Finding]] = field(default_factory=list)
    _gatherer: Gatherer | None = None

    @property
    def gatherer(self) -> Gatherer:
        """Where Kubernetes objects go."""
        if self._gatherer is None:
            from planner.reading.kubernetes.objects import Gatherer  # only where there is one

            self._gatherer = Gatherer(self.remarks)
        return self._gatherer

    @property
    def objects(self) -> Objects | None:
        """Every Kubernetes object; None where there is none, and their readers stay closed."""
        return self._gatherer.objects if self._gatherer is not None else None

    def lose_all(self) -> None:
        """A text could not be read: it may have held anything."""
        self.unusable.update(KINDS)

    def settle(self) -> None:
        """Decide about what is no document, now that all is read."""
        for subject, stranger in self.strangers:
            inside_a_list = len(stranger.path) > 1
            if self.objects and (inside_a_list or not stranger.source.named):
                self.remarks.add(subject, f"{stranger.what}; it is left out")
            else:
                self.findings.add(stranger)
                self.lose_all()
        self.strangers = []

    def read(self, source: Source) -> None:
        """Add every document of a text."""
        if is_topology(source.name, source.text):
            self._topology(source)
            return
        composed = parse(source)
        for fault in composed.faults:
            self.findings.malformed(source, fault)
        if composed.faults:
            self.lose_all()
        if not composed.faults and all(tree is None for tree in composed.documents):
            hint = f"write a {KINDS[0]}, {KINDS[1]} or {KINDS[2]} into it, or remove it"
            self.findings.fault(Fault("no document in this file", hint, source.name, 1, 1))
        for number, tree in enumerate(composed.documents):
            if tree is not None:  # `---` with nothing below it
                for path, document in self._unwrapped(source, tree, (number,), 0):
                    self._typed(source, path, document)

    def _unwrapped(
        self, source: Source, tree: object, path: Path, depth: int
    ) -> Iterator[tuple[Path, dict[str, object]]]:
        """The document, or those of the List that it is."""
        if not isinstance(tree, dict):
            what = f"expected a document with apiVersion and kind, not {described(tree)}"
            hint = "put documents in a `kind: List`, or between `---`"
            stranger = Finding(source, path, what, hint)
            if depth:
                self.strangers.append((source.name, stranger))
            else:
                self.findings.add(stranger)
        elif is_object(tree) and tree.get("kind") != "List":
            self.gatherer.add(tree, source.name)
        elif depth and (found := guessed(tree)) is not None:
            self.gatherer.add(found, source.name)
            what = "its kind or apiVersion cannot be read; it is taken for what it looks like"
            self.remarks.add(subject_of(found), what)
        elif tree.get("kind") != "List":
            yield path, tree
        elif self._is_list(source, tree, path, depth):
            for i, item in enumerate(tree["items"]):
                yield from self._unwrapped(source, item, (*path, "items", i), depth + 1)

    def _topology(self, source: Source) -> None:
        from planner.reading.slurm import read_topology  # only where there is one

        try:
            self.topologies.append((source, read_topology(source)))
        except InputError as error:
            for fault in error.faults:
                self.findings.fault(fault)
            self.lose_all()

    def _is_list(self, source: Source, tree: dict[str, object], path: Path, depth: int) -> bool:
        for name in tree:
            if name not in ("apiVersion", "kind", "metadata", "items"):
                what = f"unknown field {shown(name)} in a List"
                hint = suggestion(name, ("apiVersion", "kind", "metadata", "items"), "fields")
                self._fault(source, (*path, name), what, hint, at_key=True)
        if tree.get("apiVersion") not in ("v1", API_VERSION):
            at = (*path, "apiVersion") if "apiVersion" in tree else path
            self._fault(source, at, "a List needs apiVersion v1", "write apiVersion: v1")
        if not isinstance(tree.get("items"), list):
            at = (*path, "items") if "items" in tree else path
            self._fault(source, at, "a List needs its documents in `items`", "write items: [...]")
            return False
        if depth >= MAX_LISTS:
            self._fault(source, path, f"more than {MAX_LISTS} Lists in one another", "unwrap them")
            return False
        return True

    def _typed(self, source: Source, path: Path, tree: dict[str, object]) -> None:
        kind = tree.get("kind")
        version = tree.get("apiVersion")
        if kind not in KINDS:
            what, hint = _unknown(tree)
            at = (*path, "kind") if "kind" in tree else path
            nothing = "kind" not in tree and "apiVersion" not in tree
            if nothing or (len(path) > 1 and not is_of_ours(tree)):
                subject = source.name if nothing else subject_of(tree)
                self.strangers.append((subject, Finding(source, at, what, hint)))
                return
            self._fault(source, at, what, hint)
            if not isinstance(kind, str):
                self.lose_all()
            return
        if version != API_VERSION:
            at = (*path, "apiVersion") if "apiVersion" in tree else path
            what = (
                f"apiVersion: {described(version)} is not read for kind {kind}"
                if "apiVersion" in tree
                else f"a {kind} without apiVersion"
            )
            self._fault(source, at, what, f"write apiVersion: {API_VERSION}")
            tree = {**tree, "apiVersion": API_VERSION}
        self._validated(source, path, tree, str(kind))

    def _validated(self, source: Source, path: Path, tree: dict[str, object], kind: str) -> None:
        if kind == "Cluster":
            cluster = validate(ClusterDocument, tree, source, path, self.findings)
            self.clusters += [cluster] if cluster else []
            self.unusable.update(() if cluster else (kind,))
        elif kind == "Gang":
            gang = validate(GangDocument, tree, source, path, self.findings)
            self.gangs += [gang] if gang else []
        else:
            policy = validate(PolicyDocument, tree, source, path, self.findings)
            self.policies += [policy] if policy else []

    def _fault(
        self, source: Source, path: Path, what: str, hint: str | None, *, at_key: bool = False
    ) -> None:
        self.findings.add(Finding(source, path, what, hint, at_key))


def _unknown(tree: dict[str, object]) -> tuple[str, str]:
    """(what, hint) for a document of no kind that is read."""
    kind, version = tree.get("kind"), tree.get("apiVersion")
    kinds = f"{', '.join(KINDS)} of {API_VERSION}, and List"
    if "kind" not in tree:
        return "a document without kind", f"kinds: {kinds}"
    if kind == "Plan":
        return (
            "a Plan is no input",
            "gangplan show and verify take it; plan --previous plans near it",
        )
    if not isinstance(kind, str):
        return f"kind: expected text, not {described(kind)}", f"kinds: {kinds}"
    if version is None or version == API_VERSION:
        return f"unknown kind {shown(kind)}", suggestion(kind, (*KINDS, "List"), "kinds")
    what = f"kind {shown(kind)} of {shown(str(version))} is not read"
    return what, f"kinds: {kinds}"
