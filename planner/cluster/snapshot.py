"""Records a live cluster into a folder: what planning needs of it, and nothing else.

Nodes are read first, then pods, then the other kinds. Pages are pruned as they come, so that memory
stays bounded. The folder is written whole or not at all: next to its place, then renamed.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain, count
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

from models.apply.intents import SealKey
from planner.atomic_files import cannot_write, sync_folder
from planner.cluster.api_paths import IDENTITY, core, list_paths
from planner.cluster.discovery import ServedKind, discover
from planner.cluster.live_view import for_planning
from planner.cluster.pages import ListPages, failed
from planner.cluster.rights import OPTIONAL
from planner.cluster.transport import Reply, Transport, Tree
from planner.errors import CannotWriteError, Fault, NotPermittedError, UnavailableError
from planner.read.kube.kinds import (
    ALL,
    FILE_NAMES,
    NAMESPACES,
    NODES,
    OTHERS,
    PODS,
    Kind,
    file_name,
)
from planner.read.kube.lookup import text
from planner.read.kube.objects import belongs_to_nothing
from planner.read.kube.pruning import GONE
from planner.signals import ignored
from planner.untrusted_text import one_line, safe

ACCEPT = list_paths(ALL)
"""Paths that recording reads, for ``proxy.connect``."""


EVEN_EMPTY = ("PersistentVolume", "PersistentVolumeClaim", "StorageClass")
"""Kinds whose empty list says something: a claim that is not in it does not exist."""


@dataclass(frozen=True, slots=True)
class SnapshotRequest:
    """``namespaces``: only these, for namespaced kinds; empty: all. ``skip``: resources left out.

    ``seal_key``: of the lock, if known; pods that claim our marks without its seal lose them.
    ``leave``: whether a pod is left out.
    """

    namespaces: tuple[str, ...] = ()
    skip: frozenset[str] = frozenset()
    seal_key: SealKey | None = None
    leave: Callable[[Tree], bool] = lambda _: False


@dataclass(slots=True)
class Recorded:
    """``counts``: objects of each resource. ``cluster``: its uid.

    ``forbidden``: missing rights, and each without its place.
    """

    counts: dict[str, int] = field(default_factory=dict)
    absent: list[Kind] = field(default_factory=list)
    forbidden: dict[str, str] = field(default_factory=dict)
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
    recorder = _Recorder(transport, request, folder, progress)
    with _without_gc():
        recorder.run()
        recorder.recorded.bytes = folder.keep()
    return recorder.recorded


@contextmanager
def _without_gc() -> Iterator[None]:
    """Trees of JSON have no cycles, and searching them takes as long as parsing."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


class _Recorder:
    def __init__(
        self,
        transport: Transport,
        request: SnapshotRequest,
        folder: SnapshotFolder,
        progress: Progress,
    ) -> None:
        self._transport = transport
        self._request = request
        self._folder = folder
        self._progress = progress
        self.recorded = Recorded()

    def run(self) -> None:
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

    def _record(self, served: ServedKind) -> None:
        """One kind into one file."""
        kind = served.kind
        required = kind in (NODES, PODS)
        with self._folder.list_file(
            file_name(kind),
            f"{kind.name}List",
            served.api_version,
            even_empty=required or kind.name in EVEN_EMPTY,
        ) as file:
            self._list(served, file)

    def _list(self, served: ServedKind, file: ListFile) -> None:
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
            file.add(self._pruned(kind, page.items))
            self._progress(kind.resource, file.items, file.items + page.left)
            listed = True
        for path, reply in pages.refused:
            self._refused(kind, paths[path], reply, file)
        self.recorded.restarts += pages.restarts
        if listed and file.items:
            self.recorded.counts[kind.resource] = file.items

    def _pruned(self, kind: Kind, items: list[Any]) -> Iterator[Tree]:
        """What is kept of each object; of pods without marks that only a tenant claims.

        Finished pods that no gang needs are left out.
        """
        prune = kind.prune
        for item in items:
            kept = item
            if kind is PODS and isinstance(item, dict):
                if self._request.leave(item):
                    continue
                kept = for_planning(item, self._request.seal_key)
            kept = prune(kept)
            if kept is GONE or "metadata" not in kept:
                continue
            if not (kind is PODS and belongs_to_nothing(kept)):
                yield kept

    def _refused(self, kind: Kind, place: str | None, reply: Reply, file: ListFile) -> None:
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
        with self._folder.list_file(
            file_name(NAMESPACES), "NamespaceList", "v1", even_empty=False
        ) as file:
            file.begin(None)
            file.add(self._pruned(NAMESPACES, [one for one in named if one is not None]))
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


class ListFile:
    """One file, written as the items of a list arrive."""

    def __init__(self, stream: BinaryIO, kind: str, api_version: str) -> None:
        self._stream = stream
        self._kind = kind
        self._api_version = api_version
        self.items = 0
        self.begun = False

    def begin(self, resource_version: str | None) -> None:
        """Start the list, discarding what was written before."""
        self._stream.seek(0)
        self._stream.truncate()
        self.items = 0
        self.begun = True
        metadata = {} if resource_version is None else {"resourceVersion": resource_version}
        head = {"apiVersion": self._api_version, "kind": self._kind, "metadata": metadata}
        self._stream.write(_ENCODE(head)[:-1].encode("ascii") + b',"items":[')

    def add(self, items: Iterable[dict[str, Any]]) -> None:
        """One object a line; written in one piece."""
        lines = [_ENCODE(item) for item in items]
        if lines:
            text = (",\n" if self.items else "\n") + ",\n".join(lines)
            self._stream.write(text.encode("ascii"))
            self.items += len(lines)

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
            raise self._failure(error) from error
        self._partial = self._target.parent / f"{self._target.name}.partial-{os.getpid()}"
        self._kept = False

    def __enter__(self) -> Self:
        """Raises CannotWriteError before any work is done if it surely cannot be kept."""
        self._check()
        self._partial = self._free("partial")
        try:
            self._partial.mkdir()
        except (OSError, ValueError) as error:
            raise self._failure(error) from error
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

    @contextlib.contextmanager
    def list_file(
        self, name: str, kind: str, api_version: str, *, even_empty: bool
    ) -> Iterator[ListFile]:
        """A file of the folder; one without items is left out unless it was begun and ``even_empty``."""
        path = self._partial / name
        try:
            with path.open("wb") as stream:
                file = ListFile(stream, kind, api_version)
                yield file
                kept = file.items > 0 or (even_empty and file.begun)
                if kept:
                    file.end()
            if not kept:
                path.unlink()
        except OSError as error:
            raise self._failure(error) from error

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
            raise self._failure(error) from error
        return size

    def _check(self) -> None:
        """Raises CannotWriteError if the target must not be replaced."""
        try:
            if not self._target.exists():
                return
            if not self._target.is_dir():
                raise self._refused("it is a file", "name a new folder")
            if self._target.is_mount() or self._target == Path.cwd():
                hint = f"name a new folder in it: {safe(str(self._shown))}/now"
                raise self._refused("it is in use", hint)
            inside = sorted(entry.name for entry in self._target.iterdir())
        except (OSError, ValueError) as error:
            raise self._failure(error) from error
        foreign = [name for name in inside if name not in FILE_NAMES]
        if foreign and self._force:
            names = ", ".join(safe(name) for name in foreign[:3])
            more = " and more" if len(foreign) > 3 else ""
            what = f"it holds files that are not of a snapshot: {names}{more}"
            raise self._refused(what, "name a new folder")
        if inside and not self._force:
            hint = "name a new folder, or replace the snapshot in it with --force"
            raise self._refused("the folder is not empty", hint)

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

    def _refused(self, why: str, hint: str) -> CannotWriteError:
        return cannot_write(self._shown, why, hint)

    def _failure(self, error: Exception) -> CannotWriteError:
        return cannot_write(self._shown, error)
