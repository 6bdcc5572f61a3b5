"""What a text or a document is, told before any reader of it is opened.

Promises: looks at as little as tells; never raises. Stays light: it is asked of every input.
Called by ``planner.read.document_kinds``.

Documents sorted by family: compact kinds typed, Kubernetes objects gathered, topology files read.

Promises: every document is typed, gathered or reported. What is no document at all is a fault,
but only a remark beside Kubernetes objects, whose folders hold other things too.
Called by ``planner.read.inputs``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from models.documents.base import API_VERSION, Path, suggestion
from models.documents.cluster import ClusterDocument
from models.documents.gang import GangDocument
from models.documents.policy import PolicyDocument
from models.units import described, shown
from planner.errors import Fault, InputError
from planner.read.findings import Finding, Findings, Remarks
from planner.read.kube.lookup import Tree, items, mapping, text
from planner.read.parser import parse
from planner.read.sources import Source
from planner.read.validation import Entry, validate

OWN_GROUP = API_VERSION.partition("/")[0]

COMPACT_KINDS = frozenset({"Cluster", "Gang", "Policy", "Plan"})
"""Kinds of ours: read as Kubernetes objects only if their group says so beyond doubt."""


def is_object(tree: Tree) -> bool:
    """Whether a document is a Kubernetes object, or a typed list of them, and no document of ours."""
    kind, version = tree.get("kind"), tree.get("apiVersion")
    if not isinstance(kind, str) or not isinstance(version, str) or not kind or not version:
        return False
    group = version.rpartition("/")[0]
    if group == OWN_GROUP:
        return False
    return kind not in COMPACT_KINDS or group.endswith(".k8s.io")


def is_of_ours(tree: Tree) -> bool:
    """Whether a document says, by its group or its kind, that it is one of ours."""
    group = (text(tree, "apiVersion") or "").rpartition("/")[0]
    return group == OWN_GROUP or text(tree, "kind") in COMPACT_KINDS


def guessed(tree: Tree) -> Tree | None:
    """A Pod or a Node that does not say so, by what it holds; None for anything else."""
    if is_object(tree) or is_of_ours(tree):
        return None
    kind = text(tree, "kind")
    if kind not in ("Pod", "Node"):
        if kind is not None:
            return None
        if items(tree, "spec", "containers"):
            kind = "Pod"
        elif mapping(tree, "status", "allocatable") or mapping(tree, "status", "capacity"):
            kind = "Node"
        else:
            return None
    return {**tree, "kind": kind, "apiVersion": "v1"}


def subject_of(tree: Tree) -> str:
    """How messages name a document that may be no object."""
    kind, namespace = text(tree, "kind") or "object", text(tree, "metadata", "namespace")
    name = text(tree, "metadata", "name") or "without a name"
    return f"{kind} {namespace}/{name}" if namespace else f"{kind} {name}"


_CONF = re.compile(r"(switchname|blockname|blocksizes|ringname)[ \t]*=", re.IGNORECASE)
_YAML = re.compile(r"-[ \t]+(topology|cluster_default|tree|block|flat|ring|torus3d)[ \t]*:")
_JSON = re.compile(r'\[\s*\{\s*"(topology|cluster_default)"\s*:')
_NAMED = re.compile(r"(.*[/\\.])?topology\.conf", re.IGNORECASE | re.DOTALL)


def is_topology(name: str, text: str) -> bool:
    """Whether a text is a Slurm topology file, by its first line that says something.

    A file called ``topology.conf`` is one whatever it says.
    """
    return topology_form(text) is not None or _NAMED.fullmatch(name) is not None


def topology_form(text: str) -> str | None:
    """``conf`` or ``yaml``; None for a text that is neither."""
    at = 0
    while at < len(text):
        end = text.find("\n", at)
        end = len(text) if end < 0 else end
        line = text[at:end].strip()
        if line and not line.startswith(("#", "---", "%YAML")):
            if _CONF.match(line):
                return "conf"
            if text[at] == "-" and _YAML.match(line):
                return "yaml"
            start = at + len(text[at:end]) - len(text[at:end].lstrip())
            return "yaml" if _JSON.match(text, start) else None
        at = end + 1
    return None


if TYPE_CHECKING:
    from planner.read.kube.objects import Gatherer
    from planner.read.kube.records import Objects
    from planner.read.slurm.levels import SlurmTopology

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
            from planner.read.kube.objects import Gatherer  # only where there is one

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
        parsed = parse(source)
        for fault in parsed.faults:
            self.findings.malformed(source, fault)
        if parsed.faults:
            self.lose_all()
        if not parsed.faults and all(tree is None for tree in parsed.documents):
            hint = f"write a {KINDS[0]}, {KINDS[1]} or {KINDS[2]} into it, or remove it"
            self.findings.fault(Fault("no document in this file", hint, source.name, 1, 1))
        for number, tree in enumerate(parsed.documents):
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
        from planner.read.slurm.cluster import read_topology  # only where there is one

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
        if kind == "Plan" and not source.named:
            self.remarks.add(source.name, "a Plan is not an input; it is skipped")
            return
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
            "a Plan is not an input",
            "gangplan show and verify read it; plan --previous keeps pods where it placed them",
        )
    if not isinstance(kind, str):
        return f"kind: expected text, not {described(kind)}", f"kinds: {kinds}"
    if version is None or version == API_VERSION:
        return f"unknown kind {shown(kind)}", suggestion(kind, (*KINDS, "List"), "kinds")
    what = f"kind {shown(kind)} of {shown(str(version))} is not read"
    return what, f"kinds: {kinds}"
