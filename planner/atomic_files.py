"""Writes that are whole or absent: next to the target in its folder, flushed to disk, renamed over it.

An interrupted or failed write leaves the old file as it was and nothing half-written.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import tempfile
from collections.abc import Iterable
from pathlib import Path

from planner.errors import CannotWriteError, Fault, UsageError
from planner.untrusted_text import safe


def sync_folder(folder: Path) -> None:
    """Make renames in the folder outlive a power cut, if the file system can. Never fails."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


_HINTS = {
    errno.ENOENT: "make the folder above it first",
    errno.ENOTDIR: "a part of the path is a file",
    errno.EACCES: "you may not write there: choose another path",
    errno.EPERM: "you may not write there: choose another path",
    errno.EROFS: "that file system is read-only: choose another path",
    errno.ENOSPC: "the disk is full: free some room or choose another path",
    errno.EDQUOT: "your quota is used up: free some room or choose another path",
    errno.ENAMETOOLONG: "choose a shorter name",
}

_OTHER = "choose another path"


def check_target(path: Path, inputs: Iterable[str] = ()) -> None:
    """Fail before the work starts: the target's folder must accept a new file, and be none of the inputs.

    Raises CannotWriteError, UsageError.
    """
    for one in inputs:
        with contextlib.suppress(OSError):  # a word that is too long for a path
            if one != "-" and path.exists() and Path(one).is_file() and path.samefile(one):
                what = f"--out would overwrite the input {one}"
                raise UsageError(Fault(what, "name another file"))
    try:
        if path.is_dir():
            raise cannot_write(path, "it is a folder", "name a file in it")
        if path.exists() and not path.is_file():
            return
        handle, aside = tempfile.mkstemp(prefix=".gangplan-", dir=_real(path).parent)
        os.close(handle)
        Path(aside).unlink()
    except (OSError, ValueError) as error:
        raise cannot_write(path, error) from error


def save(path: Path, text: str) -> None:
    """Write ``text`` as UTF-8. A symbolic link stays one; an existing file keeps its permissions.

    Raises CannotWriteError, with the old content still in place.
    """
    try:
        if path.is_dir():
            raise cannot_write(path, "it is a folder", "name a file in it")
        target = _real(path)
        if target.exists() and not target.is_file():
            target.write_text(text, encoding="utf-8")  # a pipe or a device: nothing to rename over
            return
        _replace(target, encoded(text))
    except (OSError, ValueError) as error:
        raise cannot_write(path, error) from error


def encoded(text: str) -> bytes:
    """The bytes that ``save`` writes."""
    return text.encode("utf-8", errors="backslashreplace")


def save_private(path: Path, content: bytes) -> None:
    """Write for this user alone, with the folders above. A symbolic link is replaced. Raises OSError."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    _replace(path, content, mode=0o600)


def _replace(target: Path, content: bytes, *, mode: int | None = None) -> None:
    handle, name = tempfile.mkstemp(
        prefix=f".{target.name[:32]}.", suffix=".tmp", dir=target.parent
    )
    aside = Path(name)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fchmod(stream.fileno(), _mode(target) if mode is None else mode)
            os.fsync(stream.fileno())
        aside.replace(target)
    except BaseException:
        with contextlib.suppress(OSError):
            aside.unlink()
        raise
    sync_folder(target.parent)


def _mode(target: Path) -> int:
    """The permissions of the file replaced, or those a new file would get."""
    with contextlib.suppress(FileNotFoundError):
        return stat.S_IMODE(target.stat().st_mode)
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask


def _real(path: Path) -> Path:
    """The target of a symbolic link. Raises OSError for one that another user has planted."""
    if not path.is_symlink():
        return path
    if planted(path.lstat(), path.parent.stat(), os.geteuid()):
        raise OSError(errno.EACCES, "the symbolic link there belongs to another user")
    return path.resolve()


def planted(link: os.stat_result, folder: os.stat_result, user: int) -> bool:
    """Whether a link in a folder that all may write to, such as /tmp, is of neither us nor its owner.

    The kernel follows none of these either (fs.protected_symlinks); looking where it leads would.
    """
    shared = folder.st_mode & stat.S_ISVTX and folder.st_mode & stat.S_IWOTH
    return bool(shared) and link.st_uid not in {user, folder.st_uid}


def cannot_write(path: Path, why: str | Exception, hint: str = _OTHER) -> CannotWriteError:
    """The error for a path; of an OSError its message, and what to do about it."""
    if isinstance(why, OSError):
        hint, why = _HINTS.get(why.errno or 0, _OTHER), why.strerror or str(why)
    return CannotWriteError(Fault(f"cannot write {safe(str(path))}: {why}", hint))
