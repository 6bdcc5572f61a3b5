"""Documents by family: compact kinds are typed, Kubernetes objects collected, others' files read.

Every document is typed, collected or reported. A text that is no document is a fault, or a
remark if there are Kubernetes objects, whose folders hold other files too.
"""

from __future__ import annotations

from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, TypeGuard

import msgspec
from msgspec import Struct
from pydantic import BaseModel

from models.documents.base import API_VERSION, Path, Read, suggestion
from models.documents.cluster import ClusterDocument
from models.documents.gang import GangDocument
from models.documents.policy import PolicyDocument
from models.documents.queue import QueueDocument
from models.units import described, shown
from planner.errors import Fault, InputError
from planner.read.findings import Finding, Findings, Remarks
from planner.read.json_items import read_items
from planner.read.kube.lookup import Tree, items, mapping, text
from planner.read.parser import TOO_DEEP, Item
from planner.read.sources import (
    Source,
    is_hived,
    is_node_records,
    is_slurm_output,
    is_topology_conf,
    too_long,
)
from planner.read.validation import Entry, validate

if TYPE_CHECKING:
    from planner.read.kube.objects import Gatherer
    from planner.read.kube.records import Objects
    from planner.read.slurm.assembly import SlurmState
    from planner.read.slurm.levels import SlurmTopology

OWN_GROUP = API_VERSION.partition("/")[0]

COMPACT_KINDS = frozenset({"Cluster", "Gang", "Policy", "Plan"})
"""Kinds of gangplan; Kubernetes objects of such a kind have a group that ends in .k8s.io. A Queue is known
by its group, for other schedulers have that kind too."""


def is_object(tree: object) -> TypeGuard[Tree]:
    """Whether a document is a Kubernetes object or a typed list of them, and no plain List."""
    if not isinstance(tree, dict):
        return False
    kind, version = text(tree, "kind"), text(tree, "apiVersion")
    if kind in (None, "List") or version is None:
        return False
    group = version.rpartition("/")[0]
    return group != OWN_GROUP and (kind not in COMPACT_KINDS or group.endswith(".k8s.io"))


def is_compact(tree: Tree) -> bool:
    """Whether a document has the group or a kind of gangplan."""
    group = (text(tree, "apiVersion") or "").rpartition("/")[0]
    return group == OWN_GROUP or text(tree, "kind") in COMPACT_KINDS


def as_object(tree: Tree) -> Tree | None:
    """A Pod or Node without a readable kind or apiVersion, by its fields; None for anything else."""
    kind = text(tree, "kind")
    if kind is None and items(tree, "spec", "containers"):
        kind = "Pod"
    elif kind is None and any(mapping(tree, "status", one) for one in ("allocatable", "capacity")):
        kind = "Node"
    if kind not in ("Pod", "Node") or is_object(tree) or is_compact(tree):
        return None
    return {**tree, "kind": kind, "apiVersion": "v1"}


def subject_of(tree: Tree) -> str:
    """Kind and name of a document for a message."""
    kind, namespace = text(tree, "kind") or "object", text(tree, "metadata", "namespace")
    name = text(tree, "metadata", "name") or "without a name"
    return f"{kind} {namespace}/{name}" if namespace else f"{kind} {name}"


KINDS: dict[str, tuple[type[BaseModel], str]] = {
    "Cluster": (ClusterDocument, "clusters"),
    "Gang": (GangDocument, "gangs"),
    "Policy": (PolicyDocument, "policies"),
    "Queue": (QueueDocument, "queues"),
}
"""Our kinds: their documents, and where ``Documents`` has them."""

MAX_LISTS = 8
"""Deepest List in a List."""

MAX_WAITING = 20_000
"""Most items that do not say what they are in a list that says it after them."""


class Documents(Struct):
    """Every typed document.

    ``topologies``: files of Slurm, ``slurm``: what its commands wrote;
    ``hived``: configurations of HiveD.
    """

    findings: Findings
    clusters: list[Entry[ClusterDocument]] = []
    gangs: list[Entry[GangDocument]] = []
    policies: list[Entry[PolicyDocument]] = []
    queues: list[Entry[QueueDocument]] = []
    remarks: Remarks = msgspec.field(default_factory=Remarks)
    topologies: list[tuple[Source, SlurmTopology]] = []
    hived: list[tuple[Source, Tree]] = []
    slurm: SlurmState | None = None
    unrecognised: list[tuple[str, Finding]] = []
    _gatherer: Gatherer | None = None
    _known: Read = {}

    @property
    def gatherer(self) -> Gatherer:
        if self._gatherer is None:
            # only where there is one
            from planner.read.kube.object_bounds import ObjectReducer
            from planner.read.kube.objects import Gatherer

            self._gatherer = Gatherer(self.remarks, ObjectReducer())
        return self._gatherer

    @property
    def objects(self) -> Objects | None:
        """Every Kubernetes object; None without any, so that their readers are not imported."""
        return self._gatherer.objects if self._gatherer is not None else None

    def report_unrecognised(self) -> None:
        """Report what is no document, once everything is read."""
        for subject, finding in self.unrecognised:
            in_list = len(finding.path) > 1
            if self.objects and (in_list or not finding.source.named):
                self.remarks.add(subject, f"{finding.what}; it is left out")
            else:
                self.findings.add(finding)
        self.unrecognised = []

    def read(self, source: Source) -> None:
        """Add every document of a text. Raises MissingPathError for a file that breaks off."""
        if self._slurm_text(source):
            return
        empty = True
        waiting: list[Item] = []
        try:
            for item in read_items(source, partial(self._take, source.name)):
                empty = empty and item.tree is None
                if item.header is not None:
                    self._in_list(item, source, waiting)
                    continue
                if item.listed:
                    for one in waiting:
                        self._in_list(one, source, None)
                    waiting.clear()
                if item.tree is not None:  # `---` with nothing below it
                    self._document(item, source, 0)
        except InputError as error:
            empty = False
            self.findings.placed += error.faults
        if empty:
            *most, last = KINDS
            hint = f"write a {', '.join(most)} or {last} into it, or remove it"
            self.findings.fault(Fault("no document in this file", hint, source.name, 1, 1))

    def _take(self, where: str, header: Tree, written: bytes) -> bool:
        """Keep an item of a list as it is written, if it is an object like most."""
        if is_object(header):
            version, kind = header["apiVersion"], header["kind"].removesuffix("List")
        else:
            from planner.read.kube.decoders import head  # only where there may be objects

            version, kind = head(written)
            if kind.endswith("List") or not is_object({"apiVersion": version, "kind": kind}):
                return False
        return self.gatherer.add_json(written, kind, version, where)

    def _in_list(self, item: Item, source: Source, waiting: list[Item] | None) -> None:
        """An item of a list. One that only the list can tell waits until that says what it holds."""
        tree, header = item.tree, item.header
        assert header is not None
        if is_object(header):
            self.gatherer.add_item(tree, header, item.path[-1], source.name, item.oddities)
        elif waiting is None or header.get("kind") == "List" or is_object(tree):
            self._document(item, source, 1)
        else:
            if len(waiting) >= MAX_WAITING:
                what = f"a list of more than {MAX_WAITING:,} items before its kind"
                raise InputError(source.fault(what, (1, 1), "write the kind first"))
            part = item.part()
            item.part = lambda: part
            waiting.append(item)

    def _document(self, item: Item, source: Source, depth: int) -> None:
        tree = item.tree
        if item.form is None and isinstance(tree, dict) and tree.get("apiVersion") == API_VERSION:
            kind = tree.get("kind")
            if isinstance(kind, str) and kind in KINDS:  # most of a large input
                self._validate(item.part(), item.path, tree, kind)
                return
        if depth and TOO_DEEP in item.oddities:
            finding = Finding(item.part(), item.path, "nested too deep to be read", None)
            self.unrecognised.append((f"item {item.path[-1]} of {source.name}", finding))
            return
        if is_object(tree):
            self.gatherer.add(tree, source.name, item.oddities, listed=item.listed)
            return
        part = item.part()
        ours = not isinstance(tree, dict) or tree.get("kind") == "List" or is_compact(tree)
        if item.form is not None and (not depth or ours or is_object(tree)):
            form = item.form()
            self.findings.placed += form.faults
            if not form.documents:
                return
        self._unwrap(part, tree, item.path, depth)

    def _unwrap(self, source: Source, tree: object, path: Path, depth: int) -> None:
        """Add the document, or those of the List that it is."""
        if not isinstance(tree, dict):
            what = f"expected a document with apiVersion and kind, not {described(tree)}"
            hint = "put documents in a `kind: List`, or between `---`"
            finding = Finding(source, path, what, hint)
            if depth:
                self.unrecognised.append((source.name, finding))
            else:
                self.findings.add(finding)
        elif is_object(tree):
            self.gatherer.add(tree, source.name)
        elif is_hived(tree) or (not depth and is_slurm_output(tree)):
            self._of_system(source, tree)
        elif depth and (found := as_object(tree)) is not None:
            self.gatherer.add(found, source.name)
            what = "kind or apiVersion is unreadable; the kind is inferred from its fields"
            self.remarks.add(subject_of(found), what)
        elif tree.get("kind") != "List":
            self._add(source, path, tree)
        elif self._is_list(source, tree, path, depth):
            for i, item in enumerate(tree["items"]):
                self._unwrap(source, item, (*path, "items", i), depth + 1)

    def _of_system(self, source: Source, tree: dict[str, Any]) -> None:
        if not is_hived(tree):
            if self._reads("slurm", source):
                self._slurm_state().add(source, tree)
        elif self._reads("hived", source):
            self.hived.append((source, tree))

    def _reads(self, system: str, source: Source) -> bool:
        """Whether this program has the reader of another system's files; else the file is a fault."""
        if find_spec(f"planner.read.{system}") is not None:
            return True
        what = f"a file of {system}, which this program does not read"
        self.findings.fault(Fault(what, "install it with that reader", source.name, 1, 1))
        return False

    def _slurm_state(self) -> SlurmState:
        if self.slurm is None:
            from planner.read.slurm.assembly import SlurmState  # only where there is one

            self.slurm = SlurmState(self.findings, self.remarks)
        return self.slurm

    def _slurm_text(self, source: Source) -> bool:
        """Whether the text is a topology file or a list of nodes of Slurm; then it is read."""
        topology = is_topology_conf(source.name, source.text)
        if not topology and not is_node_records(source.text):
            return False
        if source.rest is not None:
            self.findings.fault(too_long(source.name))
        elif not self._reads("slurm", source):
            return True
        elif topology:
            self._topology(source)
        else:
            self._slurm_state().nodes.add_text(source)
        return True

    def _topology(self, source: Source) -> None:
        from planner.read.slurm.levels import read_topology  # only where there is one

        try:
            self.topologies.append((source, read_topology(source)))
        except InputError as error:
            self.findings.placed += error.faults

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

    def _add(self, source: Source, path: Path, tree: dict[str, object]) -> None:
        kind = tree.get("kind")
        version = tree.get("apiVersion")
        if kind == "Plan" and not source.named:
            self.remarks.add(source.name, "a Plan is not an input; it is skipped")
            return
        if not isinstance(kind, str) or kind not in KINDS:
            what, hint = _unknown(tree)
            at = (*path, "kind") if "kind" in tree else path
            nothing = "kind" not in tree and "apiVersion" not in tree
            if nothing or (len(path) > 1 and not is_compact(tree)):
                subject = source.name if nothing else subject_of(tree)
                self.unrecognised.append((subject, Finding(source, at, what, hint)))
                return
            self._fault(source, at, what, hint)
            return
        if version != API_VERSION:
            at = (*path, "apiVersion") if "apiVersion" in tree else path
            what = f"a {kind} without apiVersion"
            if "apiVersion" in tree:
                what = f"apiVersion: {described(version)} is not read for kind {kind}"
            self._fault(source, at, what, f"write apiVersion: {API_VERSION}")
            tree = {**tree, "apiVersion": API_VERSION}
        self._validate(source, path, tree, kind)

    def _validate(self, source: Source, path: Path, tree: dict[str, object], kind: str) -> None:
        model, name = KINDS[kind]
        entry = validate(model, tree, source, path, self.findings, self._known)
        if entry is not None:
            getattr(self, name).append(entry)

    def _fault(
        self, source: Source, path: Path, what: str, hint: str | None, *, at_key: bool = False
    ) -> None:
        self.findings.add(Finding(source, path, what, hint, at_key))


def _unknown(tree: dict[str, object]) -> tuple[str, str]:
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
    return f"kind {shown(kind)} of {shown(str(version))} is not read", f"kinds: {kinds}"
