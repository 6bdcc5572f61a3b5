"""A folder of lists, written whole or not at all: beside its place, then renamed.

Promises: until the end nothing stands at the target but what stood there; whatever happens, nothing
half-written is left. Called by ``planner.cluster.snapshot``.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import signal
import threading
from collections.abc import Collection, Iterable, Iterator
from itertools import chain, count
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

from planner.atomic_files import sync_folder
from planner.errors import CannotWriteError, Fault
from planner.signals import CAUGHT
from planner.untrusted_text import safe

_ENCODE = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode

_HINTS = {
    errno.ENOENT: "make the folder above it first",
    errno.ENOTDIR: "a part of the path is a file",
    errno.EACCES: "you may not write there: choose another folder",
    errno.EPERM: "you may not write there: choose another folder",
    errno.EROFS: "that file system is read-only: choose another folder",
    errno.ENOSPC: "the disk is full: free some room or choose another folder",
    errno.EDQUOT: "your quota is used up: free some room or choose another folder",
    errno.ENAMETOOLONG: "choose a shorter name",
}


class ListFile:
    """One file, written as the items of a list come in."""

    def __init__(self, stream: BinaryIO, kind: str, api_version: str) -> None:
        self._stream = stream
        self._kind = kind
        self._api_version = api_version
        self.items = 0

    def begin(self, resource_version: str | None) -> None:
        """Start the list, forgetting what was written before."""
        self._stream.seek(0)
        self._stream.truncate()
        self.items = 0
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


class Folder:
    """A folder in the making. Use it as a context manager; ``keep`` puts it in its place."""

    def __init__(self, target: Path, *, ours: Collection[str], force: bool) -> None:
        """``ours``: names of files that a folder may hold and still be replaced."""
        self._shown = safe(str(target))
        self._ours = ours
        self._force = force
        try:
            self._target = target.resolve()
        except (OSError, RuntimeError, ValueError) as error:
            raise self._failure(error) from error
        self._aside = self._target.parent / f"{self._target.name}.partial-{os.getpid()}"
        self._kept = False

    def __enter__(self) -> Self:
        """Raises CannotWriteError before any work is done where it is plain that it cannot be kept."""
        self._check()
        self._aside = self._free("partial")
        try:
            self._aside.mkdir()
        except (OSError, ValueError) as error:
            raise self._failure(error) from error
        except BaseException:
            shutil.rmtree(self._aside, ignore_errors=True)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not self._kept:
            with _undisturbed():
                shutil.rmtree(self._aside, ignore_errors=True)

    @contextlib.contextmanager
    def list_file(
        self, name: str, kind: str, api_version: str, *, even_empty: bool
    ) -> Iterator[ListFile]:
        """A file of the folder; one without items is left out unless ``even_empty``."""
        path = self._aside / name
        try:
            with path.open("wb") as stream:
                file = ListFile(stream, kind, api_version)
                yield file
                if file.items or even_empty:
                    file.end()
            if not file.items and not even_empty:
                path.unlink()
        except OSError as error:
            raise self._failure(error) from error

    def keep(self) -> int:
        """Put the folder in its place; bytes written. Raises CannotWriteError, the old one kept."""
        try:
            size = sum(file.stat().st_size for file in self._aside.iterdir())
            sync_folder(self._aside)
            self._check()
            with _undisturbed():
                self._swap()
                self._kept = True
            sync_folder(self._target.parent)
        except OSError as error:
            raise self._failure(error) from error
        return size

    def _check(self) -> None:
        """Raises CannotWriteError where something stands that must not be replaced."""
        try:
            if not self._target.exists():
                return
            if not self._target.is_dir():
                raise self._refused("it is a file", "name a new folder")
            if self._target.is_mount() or self._target == Path.cwd():
                raise self._refused("it is in use", f"name a new folder in it: {self._shown}/now")
            inside = sorted(entry.name for entry in self._target.iterdir())
        except (OSError, ValueError) as error:
            raise self._failure(error) from error
        strange = [name for name in inside if name not in self._ours]
        if strange and self._force:
            named = ", ".join(safe(name) for name in strange[:3])
            more = " and more" if len(strange) > 3 else ""
            what = f"it holds what is no part of a snapshot: {named}{more}"
            raise self._refused(what, "name a new folder")
        if inside and not self._force:
            hint = "name a new folder, or replace the snapshot in it with --force"
            raise self._refused("the folder is not empty", hint)

    def _swap(self) -> None:
        """Rename over nothing or an empty folder; a full one steps aside first, and back if needed."""
        old = self._free("old")
        if self._target.is_dir() and any(self._target.iterdir()):
            self._target.rename(old)
            try:
                self._aside.rename(self._target)
            except BaseException:
                old.rename(self._target)
                raise
            shutil.rmtree(old, ignore_errors=True)
        else:
            self._aside.rename(self._target)

    def _free(self, what: str) -> Path:
        """A name beside the target that is free.

        In containers every run has the same pid: one that was killed may have left its own behind.
        """
        stem = f"{self._target.name}.{what}-{os.getpid()}"
        names = chain([stem], (f"{stem}-{number}" for number in count(2)))
        paths = (self._target.with_name(name) for name in names)
        return next(path for path in paths if not os.path.lexists(path))

    def _refused(self, why: str, hint: str) -> CannotWriteError:
        return CannotWriteError(Fault(f"cannot write {self._shown}: {why}", hint))

    def _failure(self, error: Exception) -> CannotWriteError:
        if isinstance(error, OSError):
            hint = _HINTS.get(error.errno or 0, "choose another folder")
            return self._refused(error.strerror or str(error), hint)
        return self._refused(str(error), "choose another folder")


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """Signals that arrive meanwhile are dropped: it takes a moment, and half of it would be litter."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in CAUGHT}
    for number in CAUGHT:
        signal.signal(number, signal.SIG_IGN)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
