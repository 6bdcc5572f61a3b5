"""Paths to texts: files, folders, standard input, and the format of a text.

Missing and unreadable paths are all reported before anything is parsed. Every text is UTF-8; a long one
is read a piece at a time. The files of a folder are sorted.
"""

from __future__ import annotations

import codecs
import errno
import gzip
import io
import os
import re
import stat
import zlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, Literal, cast

from msgspec import Struct
from msgspec.structs import replace

from planner.errors import Fault, InputError, MissingPathError

WHOLE_BYTES = 16 * 2**20
"""Longest text that is held whole from the start."""

MAX_BYTES = 256 * 2**20
"""Longest document, and longest text of a format that is not read a piece at a time."""

_PIECE_BYTES = 2**20

_NOTE_BYTES = 1_024
"""Beginning of a text that says whether Slurm wrote it."""

SUFFIXES = (".yaml", ".yml", ".json", ".json.gz", ".yaml.gz", "topology.conf")
STDIN = "<stdin>"
KUBECTL = "kubectl get nodes,pods,namespaces -A -o json"
"""What prints the least that a plan needs."""

GZIP_MAGIC = b"\x1f\x8b"

Format = Literal["json", "yaml", "either"]


class Source(Struct, frozen=True, eq=False):
    """One text and its name in messages. ``named``: the user named the file, not its folder.

    ``rest``: what follows ``text`` in a long file, a piece at a time and only once; it raises
    InputError and MissingPathError. A source may be a part of a file: ``line`` and ``column`` are
    where it starts, ``path`` is where its value is in the documents of the file.
    """

    name: str
    text: str
    format: Format
    named: bool = True
    rest: Iterator[str] | None = None
    line: int = 1
    column: int = 1
    path: tuple[str | int, ...] = (0,)

    def fault(self, what: str, place: tuple[int, int], hint: str | None = None) -> Fault:
        return Fault(what, hint, self.name, *place)

    def place(self, line: int, column: int) -> tuple[int, int]:
        """A place in this part of a text as a place in the whole."""
        return line + self.line - 1, column + self.column - 1 if line == 1 else column


def open_sources(paths: Sequence[str], stdin: BinaryIO | None) -> Iterator[Source | Fault]:
    """Every text of the paths, each file once, or a fault for a file that is no text.

    A file is open until the next is asked for. Raises MissingPathError with every path that is missing or
    cannot be read, and InputError for a folder without a file to read.
    """
    files = _files(paths)
    given = set(paths)
    missing = [fault for name in files if (fault := _refusal(name, stdin)) is not None]
    if missing:
        raise MissingPathError(*missing)
    for name in files:
        with ExitStack() as opened:
            yield _source(name, stdin, opened, named=name in given)


def whole(source: Source) -> Source:
    """The source with all of its text. Raises InputError beyond MAX_BYTES, MissingPathError."""
    text = source.text
    for piece in source.rest or ():
        text += piece
        if len(text) > MAX_BYTES:
            what = f"more than {MAX_BYTES // 2**20} MiB of YAML"
            raise InputError(source.fault(what, (1, 1), "write JSON"))
    return replace(source, text=text, rest=None)


def too_long(name: str) -> Fault:
    """The fault of a text that would have to be held whole."""
    what = f"more than {WHOLE_BYTES // 2**20} MiB in one file"
    return Fault(what, "split it, or use host ranges", name)


def _files(paths: Sequence[str]) -> list[str]:
    missing: list[Fault] = []
    empty: list[Fault] = []
    names: dict[str, str] = {}
    for path in paths:
        if path == "-":
            names.setdefault("-", "-")
        elif not path or not _exists(path):  # Path("") would be the folder we are in
            hint = "check the spelling, or the folder you are in"
            missing.append(Fault(f"no such file or folder: {printable(path) or repr(path)}", hint))
        elif Path(path).is_dir():
            inside = list(_folder(path, missing))
            if not inside:
                what = f"nothing to read in folder {printable(path)}"
                empty.append(Fault(what, f"put {', '.join('*' + s for s in SUFFIXES[:3])} there"))
            for name in inside:
                names.setdefault(os.path.realpath(name), name)
        else:
            names.setdefault(os.path.realpath(path), path)
    if missing:
        raise MissingPathError(*missing)
    if empty:
        raise InputError(*empty)
    return list(names.values())


def _exists(path: str) -> bool:
    try:
        return Path(path).exists()
    except (OSError, ValueError):  # too long, a loop of links, a NUL in it
        return False


def _folder(path: str, missing: list[Fault]) -> Iterator[str]:
    """Files of a folder and its folders, sorted; hidden ones left out."""

    def unreadable(error: OSError) -> None:
        missing.append(_unreadable(str(error.filename), error))

    names: list[str] = []
    for folder, below, files in os.walk(path, onerror=unreadable):
        below[:] = [name for name in below if not name.startswith(".")]
        names += (
            str(Path(folder, name))
            for name in files
            if name.lower().endswith((*SUFFIXES, ".txt")) and not name.startswith(".")
        )
    yield from sorted(name for name in names if _is_file(name) and not _is_note(name))


def _is_file(name: str) -> bool:
    try:
        return stat.S_ISREG(Path(name).stat().st_mode)
    except OSError:
        return True  # a dangling link: reading it reports that


def _is_note(name: str) -> bool:
    """Whether a text of a folder is none of Slurm: a README, for people."""
    if not name.lower().endswith(".txt"):
        return False
    try:
        with Path(name).open("rb") as file:
            return not is_node_records(file.read(_NOTE_BYTES).decode("utf-8", "replace"))
    except OSError:
        return True


def _refusal(name: str, stdin: BinaryIO | None) -> Fault | None:
    """Why a path cannot be opened; None if it can, or is no plain file."""
    try:
        if name == "-":
            if stdin is None:
                raise FileNotFoundError(errno.ENOENT, "closed", STDIN)
        elif _is_file(name):
            Path(name).open("rb").close()
    except OSError as error:
        return _unreadable(name, error)
    return None


def _source(name: str, stdin: BinaryIO | None, opened: ExitStack, *, named: bool) -> Source | Fault:
    """The text of a file: whole, or its beginning and the rest. Raises MissingPathError."""
    shown_as = STDIN if name == "-" else name
    pieces = _pieces(name, shown_as, stdin, opened)
    try:
        text = next(pieces)
        more = next(pieces, None)
    except InputError as error:
        return error.faults[0]
    rest = None if more is None else chain([more], pieces)
    return Source(shown_as, text, _format(name), named, rest)


def _pieces(name: str, shown_as: str, stdin: BinaryIO | None, opened: ExitStack) -> Iterator[str]:
    """The text of a file, the first piece the longest. Raises InputError, MissingPathError."""
    decoder = codecs.getincrementaldecoder("utf-8-sig")()
    place = (1, 1)
    size = WHOLE_BYTES
    try:
        file = _unpacked(name, stdin, opened)
        while True:
            raw = file.read(size)
            last = len(raw) < size
            text = decoder.decode(raw, last)
            yield text
            if last:
                return
            place = _place_after(place, text)
            size = _PIECE_BYTES
    except UnicodeDecodeError as error:
        raise InputError(_not_utf8(error, place, shown_as)) from None
    except (gzip.BadGzipFile, EOFError, zlib.error):
        hint = "pack it again, or give it unpacked"
        raise InputError(Fault("not a whole gzip file", hint, shown_as, 1, 1)) from None
    except OSError as error:
        raise MissingPathError(_unreadable(name, error)) from error


def _place_after(place: tuple[int, int], text: str) -> tuple[int, int]:
    lines = text.count("\n")
    column = len(text) - text.rfind("\n") if lines else place[1] + len(text)
    return place[0] + lines, column


def _not_utf8(error: UnicodeDecodeError, place: tuple[int, int], name: str) -> Fault:
    """The fault of a text of which all before ``place`` has been decoded."""
    raw = bytes(error.object)  # bytes that an earlier piece ended with come first
    what, hint = (
        f"not UTF-8: the byte 0x{raw[error.start]:02x} is not allowed here",
        "save the file as UTF-8",
    )
    if place == (1, 1) and raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        what = "not UTF-8, but UTF-16 or UTF-32"
    return Fault(what, hint, name, *_place_after(place, raw[: error.start].decode("utf-8")))


def _unpacked(name: str, stdin: BinaryIO | None, opened: ExitStack) -> io.BufferedIOBase:
    file: io.BufferedReader[Any]
    if stdin is not None and name == "-":
        file = io.BufferedReader(cast("io.RawIOBase", stdin))
        opened.callback(file.detach)  # else it would be closed
    else:
        file = opened.enter_context(Path(name).open("rb"))  # noqa: SIM115  # the stack closes it
    # A pipe has no suffix; no text starts with these two bytes.
    if file.peek(2)[:2] == GZIP_MAGIC or name.lower().endswith(".gz"):
        return gzip.GzipFile(fileobj=file, mode="rb")
    return file


def _unreadable(name: str, error: OSError) -> Fault:
    if name == "-":
        return Fault("cannot read standard input: it is closed or broken", "give a file or a pipe")
    reason = error.strerror or type(error).__name__
    return Fault(f"cannot read {printable(name)}: {reason.lower()}", "check its permissions")


def _format(name: str) -> Format:
    lower = name.lower().removesuffix(".gz")
    if lower.endswith(".json"):
        return "json"
    return "yaml" if lower.endswith((".yaml", ".yml")) else "either"


_CONF = re.compile(r"(?:\s|#[^\n]*\n)*+(?:switchname|blockname|blocksizes)[ \t]*=", re.IGNORECASE)
_CONF_NAME = re.compile(r"(.*[/\\.])?topology\.conf", re.IGNORECASE | re.DOTALL)


def is_topology_conf(name: str, text: str) -> bool:
    """Whether a text is a topology file of Slurm, by its name or its first line with content."""
    return (_CONF_NAME.fullmatch(name) or _CONF.match(text)) is not None


_NODE_RECORDS = re.compile(r"\s*NodeName=\S+\s+(?:Arch|CoresPerSocket|CPUAlloc)=")


def is_node_records(text: str) -> bool:
    return _NODE_RECORDS.match(text) is not None


def is_hived(tree: dict[str, object]) -> bool:
    """Whether a document is a configuration of HiveD."""
    parts = (tree.get("physicalCluster"), tree.get("virtualClusters"))
    return "kind" not in tree and all(isinstance(part, dict) for part in parts)


SLURM_LISTS = {
    "nodes": "real_memory", "jobs": "job_id", "sinfo": "partition", "partitions": "", "reservations": "",
}  # fmt: skip
"""Names of the lists that Slurm's commands write as JSON, and a field that each entry of them has."""


def is_slurm_output(tree: dict[str, object]) -> bool:
    """Whether a document is what a command of Slurm wrote with ``--json``."""
    if "kind" in tree or "apiVersion" in tree:
        return False
    lists = {name: one for name in SLURM_LISTS if isinstance(one := tree.get(name), list)}
    return bool(lists) and (
        isinstance(tree.get("meta"), dict)
        or any(
            isinstance(one, dict) and SLURM_LISTS[n] in one for n in lists for one in lists[n][:1]
        )
    )


def printable(name: str) -> str:
    """A file name for a message: control characters and undecodable bytes escaped."""
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode("ascii")
        for c in name
    )
