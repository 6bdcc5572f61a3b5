"""Paths to texts: files, folders, standard input, and the format of a text.

Missing and unreadable paths are all reported before anything is parsed. Every text is bounded and
UTF-8; the files of a folder are sorted.
"""

from __future__ import annotations

import errno
import gzip
import io
import os
import re
import stat
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal

from planner.errors import Fault, InputError, MissingPathError

MAX_BYTES = 256 * 2**20
"""Largest input file; a YAML text is bounded further by its values."""

SUFFIXES = (".yaml", ".yml", ".json", ".json.gz", ".yaml.gz", "topology.conf")
STDIN = "<stdin>"
GZIP_MAGIC = b"\x1f\x8b"

Format = Literal["json", "yaml", "either"]


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """One text and its name in messages. ``named``: the user named the file, not its folder."""

    name: str
    text: str
    format: Format
    named: bool = True


def read_sources(paths: Sequence[str], stdin: BinaryIO | None) -> tuple[list[Source], list[Fault]]:
    """Every text of the paths, each file once, and a fault for every file that is no text.

    Raises MissingPathError with every path that is missing or cannot be read, and InputError for
    a folder without a file to read.
    """
    files = _files(paths)
    given = set(paths)
    found: list[Source] = []
    faults: list[Fault] = []
    missing: list[Fault] = []
    for name in files:
        try:
            raw = _bytes(name, stdin)
        except OSError as error:
            missing.append(_unreadable(name, error))
            continue
        shown_as = STDIN if name == "-" else name
        text = _decoded(shown_as, raw) if isinstance(raw, bytes) else raw
        if isinstance(text, Fault):
            faults.append(text)
        else:
            found.append(Source(shown_as, text, _format(name), name in given))
    if missing:
        raise MissingPathError(*missing)
    return found, faults


def _files(paths: Sequence[str]) -> list[str]:
    """File names in order of the paths, folders expanded, every file once."""
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

    names = []
    for folder, below, files in os.walk(path, onerror=unreadable):
        below[:] = [name for name in below if not name.startswith(".")]
        for name in files:
            whole = str(Path(folder, name))
            if name.lower().endswith(SUFFIXES) and not name.startswith("."):
                names.append(whole)
    yield from sorted(name for name in names if _is_file(name))


def _is_file(name: str) -> bool:
    try:
        return stat.S_ISREG(Path(name).stat().st_mode)
    except OSError:
        return True  # a dangling link: reading it reports that


def _bytes(name: str, stdin: BinaryIO | None) -> bytes | Fault:
    """At most one byte more than allowed, unpacked. Raises OSError."""
    if name == "-":
        if stdin is None:
            raise FileNotFoundError(errno.ENOENT, "closed", STDIN)
        raw = stdin.read(MAX_BYTES + 1)
    else:
        with Path(name).open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    # A pipe has no suffix; no text starts with these two bytes.
    packed = raw.startswith(GZIP_MAGIC) or name.lower().endswith(".gz")
    if not packed or len(raw) > MAX_BYTES:
        return raw
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(raw)) as unpacked:
            return unpacked.read(MAX_BYTES + 1)
    except (gzip.BadGzipFile, EOFError, zlib.error):
        hint = "pack it again, or give it unpacked"
        return Fault("not a whole gzip file", hint, STDIN if name == "-" else name, 1, 1)


def _unreadable(name: str, error: OSError) -> Fault:
    if name == "-":
        return Fault("cannot read standard input: it is closed or broken", "give a file or a pipe")
    reason = error.strerror or type(error).__name__
    return Fault(f"cannot read {printable(name)}: {reason.lower()}", "check its permissions")


def _decoded(name: str, raw: bytes) -> str | Fault:
    """The text without a byte order mark, or a fault."""
    if len(raw) > MAX_BYTES:
        return Fault(
            f"more than {MAX_BYTES // 2**20} MiB in one file", "split it, or use host ranges", name
        )
    if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        return Fault("not UTF-8, but UTF-16 or UTF-32", "save the file as UTF-8", name, 1, 1)
    try:
        return raw.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        before = raw[: error.start]
        line = before.count(b"\n") + 1
        column = len(before[before.rfind(b"\n") + 1 :].decode("utf-8")) + 1
        what = f"not UTF-8: the byte 0x{raw[error.start]:02x} is not allowed here"
        return Fault(what, "save the file as UTF-8", name, line, column)


def _format(name: str) -> Format:
    lower = name.lower().removesuffix(".gz")
    if lower.endswith(".json"):
        return "json"
    return "yaml" if lower.endswith((".yaml", ".yml")) else "either"


_CONF = re.compile(r"(switchname|blockname|blocksizes|ringname)[ \t]*=", re.IGNORECASE)
_YAML = re.compile(r"-[ \t]+(topology|cluster_default|tree|block|flat|ring|torus3d)[ \t]*:")
_JSON = re.compile(r'\[\s*\{\s*"(topology|cluster_default)"\s*:')
_CONF_NAME = re.compile(r"(.*[/\\.])?topology\.conf", re.IGNORECASE | re.DOTALL)


def slurm_format(name: str, text: str) -> Literal["conf", "yaml"] | None:
    """The format of a Slurm topology file by its first line with content; None for another text.

    A file named ``topology.conf`` always is one.
    """
    at = 0
    while at < len(text):
        end = text.find("\n", at)
        end = len(text) if end < 0 else end
        line = text[at:end].strip()
        if line and not line.startswith(("#", "---", "%YAML")):
            if _CONF.match(line):
                return "conf"
            start = text.index(line[0], at)
            if (start == at and _YAML.match(line)) or _JSON.match(text, start):
                return "yaml"
            break
        at = end + 1
    return "conf" if _CONF_NAME.fullmatch(name) is not None else None


def printable(name: str) -> str:
    """A file name for a message: control characters and undecodable bytes escaped."""
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode("ascii")
        for c in name
    )
