"""Records a live cluster into a folder: what planning needs of it, and nothing else.

Nodes are read first, then pods, then the other kinds. Pages are pruned as they come, so that memory
stays bounded. The folder is written whole or not at all: next to its place, then renamed.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import chain, count
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

import msgspec
from msgspec import Raw, Struct

from models.apply.records import StartRecord
from planner.atomic_files import cannot_write, sync_folder
from planner.cluster.live_view import THE_CLUSTER
from planner.cluster.pages import ListPages, ServedKind, discover, failed, tree_of
from planner.cluster.rights import OPTIONAL, RECORDS, snapshot_rights
from planner.cluster.start_records import StartRecords, claims_place, meant
from planner.cluster.store import Listed, Store, without_gc
from planner.cluster.transport import IDENTITY, Reply, Right, Transport, Tree, accepted, core
from planner.errors import Fault, NotPermittedError, UnavailableError
from planner.read.kube.decoders import REFUSED
from planner.read.kube.kinds import (
    FILE_NAMES,
    NAMESPACES,
    NODES,
    OTHERS,
    PODS,
    Kind,
    file_name,
)
from planner.read.kube.lookup import text
from planner.read.kube.objects import Gatherer, belongs_to_nothing
from planner.read.kube.pods.placement import FINISHED
from planner.read.kube.pruning import GONE
from planner.read.kube.records import START
from planner.signals import ignored
from planner.untrusted_text import one_line, safe

ACCEPT = accepted((*snapshot_rights(), Right("get", "", "namespaces"), RECORDS))
"""Paths that recording reads, for ``proxy.connect``."""


EVEN_EMPTY = ("PersistentVolume", "PersistentVolumeClaim", "StorageClass")
"""Kinds whose empty list says something: a claim that is not in it does not exist."""


@dataclass(frozen=True, slots=True)
class SnapshotRequest:
    """``namespaces``: only these, for namespaced kinds; empty: all. ``skip``: resources left out.

    ``starts``: what is recorded of pods, by their uids; None: read those of ``lock_namespace``.
    ``leave``: whether a pod is left out that keeps no room for its start.
    """

    namespaces: tuple[str, ...] = ()
    skip: frozenset[str] = frozenset()
    starts: Mapping[str, StartRecord] | None = None
    lock_namespace: str = ""
    leave: Callable[[Tree], bool] | None = None

    def planned(self, pod: Tree) -> Tree | None:
        """The pod with what is recorded of its start; None if it is left out."""
        found = meant(pod, self.starts or {})
        return None if self.leave is not None and START not in found and self.leave(pod) else found


class LiveLists:
    """The lists of a cluster in memory, for a plan. ``store``: keeps what it has read."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lists: list[_LiveList] = []

    @contextmanager
    def list_file(
        self, kind: Kind, api_version: str, request: SnapshotRequest, *, even_empty: bool
    ) -> Iterator[_LiveList]:
        """A list in the making; without objects it is left out unless it was begun and ``even_empty``.

        One that is handed out as begun is not read.
        """
        made = _LiveList(kind, api_version, request)
        if kind in self._store.listed:
            made.begin(None)
            made.keep(self._store.listed[kind])
        else:
            made.read = self._store.reader(kind)
        yield made
        if made.items or (even_empty and made.begun):
            self._lists.append(made)

    def gather(self, gatherer: Gatherer) -> None:
        """Give every object to the reader of the input."""
        gatherer.made = self._store.made
        for one in self._lists:
            one.gather(gatherer)


class _LiveList(Struct):
    kind: Kind
    api_version: str
    request: SnapshotRequest
    read: Callable[[Raw], Listed | None] = lambda _: None
    begun: bool = False
    trees: list[Listed] = []

    @property
    def items(self) -> int:
        return len(self.trees)

    def begin(self, _: str | None) -> None:
        self.trees.clear()
        self.begun = True

    def add(self, items: Iterable[Raw]) -> None:
        self.keep(found for one in items if (found := self.read(one)) is not None)

    def keep(self, found: Iterable[Listed]) -> None:
        if self.kind is not PODS:
            self.trees += found
            return
        for tree, reduced in found:
            pod = self.request.planned(tree)
            if pod is not None and not belongs_to_nothing(pod):
                self.trees.append((pod, reduced))

    def gather(self, gatherer: Gatherer) -> None:
        header = {"kind": f"{self.kind.name}List", "apiVersion": self.api_version, "items": []}
        for number, (tree, reduced) in enumerate(self.trees):
            if reduced:
                gatherer.add_reduced(tree, self.kind.name, self.api_version, THE_CLUSTER)
            else:
                gatherer.add_item(tree, header, number, THE_CLUSTER)
        gatherer.add(header, THE_CLUSTER)


class Recorded(Struct):
    """``counts``: objects of each resource. ``cluster``: its uid.

    ``forbidden``: missing rights, and each without its place.
    """

    counts: dict[str, int] = {}
    absent: list[Kind] = []
    forbidden: dict[str, str] = {}
    cluster: str | None = None
    restarts: int = 0
    bytes: int = 0

    def consequences(self) -> Iterator[str]:
        """What plans of it do that they would not do with the missing rights."""
        for right, without in OPTIONAL.items():
            wanted = f"{right.verb} {right.resource}" + (f".{right.group}" if right.group else "")
            if wanted in self.forbidden.values():
                yield f"without the right to {wanted}, {without}"


Progress = Callable[[str, int, int], None]
"""Called with the resource, the objects read, and an estimate of how many there are in all."""


def record(
    transport: Transport, folder: SnapshotFolder, request: SnapshotRequest, progress: Progress
) -> Recorded:
    """Read the cluster into the folder, and keep the folder.

    Raises CannotWriteError, UnavailableError, NotPermittedError (nodes or pods may not be listed).
    """
    recorded = read_lists(transport, folder, request, progress)
    recorded.bytes = folder.keep()
    return recorded


def read_lists(
    transport: Transport,
    lists: SnapshotFolder | LiveLists,
    request: SnapshotRequest,
    progress: Progress,
) -> Recorded:
    """Read every list that planning needs. Raises UnavailableError, NotPermittedError."""
    recorder = _Recorder(transport, request, lists, progress)
    with without_gc():
        recorder.run()
    return recorder.recorded


@dataclass(slots=True)
class _Recorder:
    _transport: Transport
    _request: SnapshotRequest
    _lists: SnapshotFolder | LiveLists
    _progress: Progress
    recorded: Recorded = field(default_factory=Recorded)

    def run(self) -> None:
        if self._request.starts is None:
            self._request = replace(self._request, starts=self._starts())
        for kind in (NODES, PODS):
            self._record(ServedKind(kind, kind.versions[0]))
        self._record_namespaces()
        wanted = [kind for kind in OTHERS if kind.resource not in self._request.skip]
        served, self.recorded.absent = discover(self._transport, wanted)
        for one in served:
            try:
                self._record(one)
            except UnavailableError as error:
                # One broken kind, for example without its conversion webhook, need not stop the rest.
                (fault,) = error.faults
                hint = f"{fault.hint}; or leave this kind out: --skip {one.kind.resource}"
                raise UnavailableError(Fault(fault.what, hint)) from error

    def _starts(self) -> Mapping[str, StartRecord]:
        """What the records of starts mean with pods; nothing where they may not be read."""
        records = StartRecords(self._transport, self._request.lock_namespace, optional=True)
        if not records.read():
            right = f"list configmaps in namespace {records.namespace}"
            self.recorded.forbidden[right] = "list configmaps"
        return records.starts

    def _record(self, served: ServedKind) -> None:
        """One kind into one file."""
        kind = served.kind
        required = kind in (NODES, PODS)
        even_empty = required or kind.name in EVEN_EMPTY
        with self._lists.list_file(
            kind, served.api_version, self._request, even_empty=even_empty
        ) as file:
            if not file.begun:
                self._list(served, file)

    def _list(self, served: ServedKind, file: ListFile | _LiveList) -> None:
        """Every page, in the place of what the file has; it stays where none may be read."""
        kind = served.kind
        everywhere = not (kind.namespaced and self._request.namespaces)
        places = [None] if everywhere else self._request.namespaces
        paths = {served.path(place): place for place in places}
        pages = ListPages(self._transport, *paths)
        listed = False
        for page in pages:
            if page.first:
                file.begin(page.resource_version)
            file.add(page.items)
            self._progress(kind.resource, file.items, file.items + page.left)
            listed = True
        for path, reply in pages.refused:
            self._refused(kind, paths[path], reply, file)
        self.recorded.restarts += pages.restarts
        if listed and file.items:
            self.recorded.counts[kind.resource] = file.items

    def _refused(
        self, kind: Kind, place: str | None, reply: Reply, file: ListFile | _LiveList
    ) -> None:
        """Note what could not be listed. Raises NotPermittedError for nodes and pods."""
        where = "" if place is None else f" in namespace {place}"
        if place is None and kind.namespaced:
            where = " in all namespaces"
        anywhere = f"list {kind.resource}"
        right = anywhere + where
        if kind in (NODES, PODS):
            raise _required(kind, right, reply, everywhere=place is None)
        if reply.status == 403:
            self.recorded.forbidden[right] = anywhere
        elif not file.items and kind not in self.recorded.absent:
            self.recorded.absent.append(kind)

    def _record_namespaces(self) -> None:
        """All namespaces, by whose labels selectors choose them, or those asked for; and kube-system.

        The uid of kube-system is the cluster's identity.
        """
        wanted = (core(NAMESPACES.plural, name=name) for name in self._request.namespaces)
        named = [self._namespace(path) for path in dict.fromkeys((IDENTITY, *wanted))]
        self.recorded.cluster = text(named[0], "metadata", "uid")
        with self._lists.list_file(NAMESPACES, "v1", self._request, even_empty=False) as file:
            file.begin(None)
            file.add([Raw(msgspec.json.encode(one)) for one in named if one is not None])
            if not self._request.namespaces:
                self._list(ServedKind(NAMESPACES, NAMESPACES.versions[0]), file)

    def _namespace(self, path: str) -> Tree | None:
        """One namespace; None if it is not there, or, noted, may not be read."""
        reply = self._transport.send("GET", path)
        if reply.status in {404, 410}:
            return None
        if reply.status == 403:
            self.recorded.forbidden[f"get {path.removeprefix('/api/v1/')}"] = "get namespaces"
            return None
        if not reply.ok:
            raise failed(reply, f"GET {path}")
        return reply.body


def _required(
    kind: Kind, right: str, reply: Reply, *, everywhere: bool
) -> NotPermittedError | UnavailableError:
    """The error where nodes or pods cannot be listed."""
    message = one_line(reply.message)
    if reply.status != 403:
        what = f"the server has no {kind.resource}: {message}"
        return UnavailableError(Fault(what, "is this the API server of a Kubernetes cluster?"))
    hint = "ask for the ClusterRole in docs/snapshot.md"
    if kind is PODS and everywhere:
        hint += ", or record the namespaces you may read: --namespace NAME"
    return NotPermittedError(Fault(f"not permitted: {right} ({message})", hint))


_ENCODE = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


class ListFile(Struct):
    """One file, written as the items of a list arrive."""

    _stream: BinaryIO
    _kind: Kind
    _api_version: str
    _request: SnapshotRequest
    items: int = 0
    begun: bool = False

    def begin(self, resource_version: str | None) -> None:
        """Start the list, discarding what was written before."""
        self._stream.seek(0)
        self._stream.truncate()
        self.items = 0
        self.begun = True
        metadata = {} if resource_version is None else {"resourceVersion": resource_version}
        kind = f"{self._kind.name}List"
        head = {"apiVersion": self._api_version, "kind": kind, "metadata": metadata}
        self._stream.write(_ENCODE(head)[:-1].encode("ascii") + b',"items":[')

    def add(self, items: Iterable[Raw]) -> None:
        """What is kept of the items, one a line; written in one piece."""
        lines = list(self._pruned(items))
        if lines:
            self._stream.write((b",\n" if self.items else b"\n") + b",\n".join(lines))
            self.items += len(lines)

    def _pruned(self, items: Iterable[Raw]) -> Iterator[bytes]:
        """What is kept of each object, as JSON; finished pods that no gang needs are left out."""
        decode, pods = self._kind.decode, self._kind is PODS
        for item in items:
            try:
                found = decode(item)
            except REFUSED:
                found = None
            if found is None or (pods and self._is_special(found)):
                yield from self._by_fields(item)
            elif found.metadata is not None:
                yield msgspec.json.encode(found)

    def _is_special(self, pod: Any) -> bool:  # noqa: ANN401  # a struct made at run time
        """Whether more than its kept fields says what is kept of a pod: a place, its end, or a rule."""
        metadata, status = pod.metadata, pod.status
        return (
            self._request.leave is not None
            or (status is not None and status.phase in FINISHED)
            or (
                metadata is not None
                and (metadata.uid in (self._request.starts or {}) or claims_place(metadata))
            )
        )

    def _by_fields(self, item: Raw) -> Iterator[bytes]:
        """What is kept of an object, field by field; of pods without places that only a tenant claims."""
        tree = tree_of(item)
        if tree is None:
            return
        if self._kind is PODS:
            found = self._request.planned(tree)
            if found is None:
                return
            tree = found
        kept = self._kind.prune(tree)
        if kept is GONE or "metadata" not in kept:
            return
        if not (self._kind is PODS and belongs_to_nothing(kept)):
            yield _ENCODE(kept).encode("ascii")

    def end(self) -> None:
        self._stream.write(b"\n]}\n")
        self._stream.flush()
        os.fsync(self._stream.fileno())


class SnapshotFolder:
    """A folder in the making, as a context manager; ``keep`` puts it in its place."""

    def __init__(self, target: Path, *, force: bool) -> None:
        """``force``: files of a snapshot may be replaced."""
        self._shown = target
        self._force = force
        try:
            self._target = target.resolve()
        except (OSError, RuntimeError, ValueError) as error:
            raise cannot_write(self._shown, error) from error
        self._partial = self._target.parent / f"{self._target.name}.partial-{os.getpid()}"
        self._kept = False

    def __enter__(self) -> Self:
        """Raises CannotWriteError before any work is done if it surely cannot be kept."""
        self._check()
        self._partial = self._free("partial")
        try:
            self._partial.mkdir()
        except (OSError, ValueError) as error:
            raise cannot_write(self._shown, error) from error
        except BaseException:
            shutil.rmtree(self._partial, ignore_errors=True)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not self._kept:
            with ignored():
                shutil.rmtree(self._partial, ignore_errors=True)

    @contextmanager
    def list_file(
        self, kind: Kind, api_version: str, request: SnapshotRequest, *, even_empty: bool
    ) -> Iterator[ListFile]:
        """A file of the folder, as of ``LiveLists``."""
        path = self._partial / file_name(kind)
        try:
            with path.open("wb") as stream:
                file = ListFile(stream, kind, api_version, request)
                yield file
                kept = file.items > 0 or (even_empty and file.begun)
                if kept:
                    file.end()
            if not kept:
                path.unlink()
        except OSError as error:
            raise cannot_write(self._shown, error) from error

    def keep(self) -> int:
        """Put the folder in its place; bytes written. Raises CannotWriteError, the old one kept."""
        try:
            size = sum(file.stat().st_size for file in self._partial.iterdir())
            sync_folder(self._partial)
            self._check()
            with ignored():
                self._swap()
                self._kept = True
            sync_folder(self._target.parent)
        except OSError as error:
            raise cannot_write(self._shown, error) from error
        return size

    def _check(self) -> None:
        """Raises CannotWriteError if the target must not be replaced."""
        try:
            if not self._target.exists():
                return
            if not self._target.is_dir():
                raise cannot_write(self._shown, "it is a file", "name a new folder")
            if self._target.is_mount() or self._target == Path.cwd():
                hint = f"name a new folder in it: {safe(str(self._shown))}/now"
                raise cannot_write(self._shown, "it is in use", hint)
            inside = sorted(entry.name for entry in self._target.iterdir())
        except (OSError, ValueError) as error:
            raise cannot_write(self._shown, error) from error
        foreign = [name for name in inside if name not in FILE_NAMES]
        if foreign and self._force:
            names = ", ".join(safe(name) for name in foreign[:3])
            more = " and more" if len(foreign) > 3 else ""
            what = f"it holds files that are not of a snapshot: {names}{more}"
            raise cannot_write(self._shown, what, "name a new folder")
        if inside and not self._force:
            hint = "name a new folder, or replace the snapshot in it with --force"
            raise cannot_write(self._shown, "the folder is not empty", hint)

    def _swap(self) -> None:
        """Rename over nothing or an empty folder; a full one is moved away first, and back if needed."""
        old = self._free("old")
        if self._target.is_dir() and any(self._target.iterdir()):
            self._target.rename(old)
            try:
                self._partial.rename(self._target)
            except BaseException:
                old.rename(self._target)
                raise
            shutil.rmtree(old, ignore_errors=True)
        else:
            self._partial.rename(self._target)

    def _free(self, what: str) -> Path:
        """A free name next to the target.

        In containers every run has the same pid: one that was killed may have left a folder.
        """
        stem = f"{self._target.name}.{what}-{os.getpid()}"
        names = chain([stem], (f"{stem}-{number}" for number in count(2)))
        paths = (self._target.with_name(name) for name in names)
        return next(path for path in paths if not os.path.lexists(path))
