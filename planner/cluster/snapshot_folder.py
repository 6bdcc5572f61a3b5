"""A folder of lists, written whole or not at all: next to its place, then renamed.

Until the end the target stays as it was; nothing half-written is left, whatever happens.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Collection, Iterable, Iterator
from itertools import chain, count
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

from planner.atomic_files import cannot_write, sync_folder
from planner.errors import CannotWriteError
from planner.signals import ignored
from planner.untrusted_text import safe

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

    def __init__(self, target: Path, *, replaceable: Collection[str], force: bool) -> None:
        """``replaceable``: names of files that ``force`` may replace."""
        self._shown = target
        self._replaceable = replaceable
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
        foreign = [name for name in inside if name not in self._replaceable]
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
