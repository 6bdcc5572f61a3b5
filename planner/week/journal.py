"""The journal: a folder with a file a day, to which each round adds one record. Nothing here reads a cluster.

A record has the figures of its moment and what changed since the record before it; the first of a file has
everything. A file is a sequence of gzip members, one a record, so that ``zcat`` reads it; a member that was
not written whole is cut off by the next round. Pods have neither names nor uids in it.
"""

from __future__ import annotations

import fcntl
import gzip
import hashlib
import hmac
import os
import re
import secrets
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import IO, Annotated, Any

import msgspec
from msgspec import Meta, Struct

from models.units import time_text
from planner.atomic_files import cannot_write
from planner.errors import Fault, InputError, MissingPathError

Tree = dict[str, Any]

FILE = re.compile(r"\d{4}-\d\d-\d\d\.jsonl\.gz")
"""Names of its files: the day in UTC. No other file of the folder is looked at."""

KEY_FILE = "names.key"
"""What ``--anonymize`` makes names with: who has it can find out which names they were."""

MAX_RECORD = 2**28
"""Bytes of a record; 12,500 nodes with 60,000 pods have a tenth of it."""

MAX_FILE = 2**30

_CHUNK = 2**16


class Changes(Struct, frozen=True, omit_defaults=True):
    """``head``: cluster without nodes, policy and queues. ``gone``: names; ``left``: gangs as ns/name."""

    head: Tree | None = None
    nodes: tuple[Tree, ...] = ()
    gangs: tuple[Tree, ...] = ()
    gone: tuple[str, ...] = ()
    left: tuple[str, ...] = ()


class Record(Struct, frozen=True, omit_defaults=True):
    """``time``: seconds since the epoch. ``after``: of the record that ``changes`` refer to, if any."""

    time: int
    figures: Figures
    changes: Changes
    after: int | None = None
    journal: int = 1


@dataclass(slots=True)
class State:
    """A cluster as it was at ``time``: documents, nodes by name and gangs by ns/name."""

    time: int | None = None
    head: Tree = field(default_factory=dict)
    nodes: dict[str, Tree] = field(default_factory=dict)
    gangs: dict[str, Tree] = field(default_factory=dict)

    @classmethod
    def of(cls, document: Tree, time: int, rename: Callable[[Tree], Tree] | None = None) -> State:
        """The state that a canonical instance describes. ``rename``: of the documents that have names."""
        cluster, named = document["cluster"], rename or (lambda one: one)
        spec = {**cluster["spec"], "nodes": []}
        policy = {**document["policy"], "spec": {**document["policy"]["spec"]}}
        policy["spec"].pop("now", None)
        nodes = [named(one) for one in cluster["spec"]["nodes"]]
        gangs = [named(_without_pod_names(one)) for one in document["gangs"]]
        queues = [named(one) for one in document.get("queues", ())]
        if rename is not None:
            metadata = {**rename(cluster["metadata"]), "uid": None}
            cluster, spec = {**cluster, "metadata": metadata}, {**spec, "disruptionBudgets": []}
            policy = {**policy, "spec": _renamed_policy(policy["spec"], named)}
        head = {"cluster": {**cluster, "spec": spec}, "policy": policy, "queues": queues}
        return cls(
            time,
            msgspec.json.decode(msgspec.json.encode(head)),
            {one["name"]: one for one in nodes},
            {name_of(one): one for one in gangs},
        )

    def changes_to(self, other: State) -> Changes:
        """What makes this state the other one."""
        return Changes(
            None if self.head == other.head else other.head,
            tuple(one for name, one in other.nodes.items() if self.nodes.get(name) != one),
            tuple(one for name, one in other.gangs.items() if self.gangs.get(name) != one),
            tuple(self.nodes.keys() - other.nodes.keys()),
            tuple(self.gangs.keys() - other.gangs.keys()),
        )

    def after(self, record: Record) -> State | None:
        """The state that a record leads to; None where the record before it is missing."""
        whole = record.after is None
        if not whole and record.after != self.time:
            return None
        made, changes = State() if whole else self, record.changes
        nodes, gangs = dict(made.nodes), dict(made.gangs)
        for name in changes.gone:
            nodes.pop(name, None)
        for name in changes.left:
            gangs.pop(name, None)
        nodes.update({one["name"]: one for one in changes.nodes})
        gangs.update({name_of(one): one for one in changes.gangs})
        return State(record.time, changes.head or made.head, nodes, gangs)

    def document(self) -> Tree:
        """The canonical instance, with names of pods as compact gangs have them."""
        cluster = self.head["cluster"]
        nodes = [self.nodes[name] for name in sorted(self.nodes)]
        return {
            "cluster": {**cluster, "spec": {**cluster["spec"], "nodes": nodes}},
            "gangs": list(self.gangs.values()),
            "policy": self.head["policy"],
            "queues": self.head["queues"],
        }


def name_of(gang: Tree) -> str:
    """``namespace/name`` of the document of a gang."""
    return f"{gang['metadata']['namespace']}/{gang['metadata']['name']}"


def _without_pod_names(gang: Tree) -> Tree:
    status = dict(gang["status"])
    status.pop("planned", None)
    kept = ("role", "index", "node", "gpus", "mode")
    status["pods"] = [{key: pod[key] for key in kept if key in pod} for pod in status["pods"]]
    return {**gang, "status": status}


# ---- writing


def append(
    folder: Path, time: int, document: Tree, figures: Figures, *, keep_s: int, anonymize: bool
) -> tuple[Path, int, bool]:
    """Add a record; its file, its bytes, and whether a half-written record was cut off before it.

    Files of days that ended ``keep_s`` ago are removed. Raises CannotWriteError, InputError for a record that
    is not younger than the last one.
    """
    path = folder / f"{time_text(time)[:10]}.jsonl.gz"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        rename = _renamer(_key(folder)) if anonymize else None
        with path.open("a+b") as stream:
            fcntl.flock(stream, fcntl.LOCK_EX)
            stream.seek(0)
            last, end, whole = State(), 0, True
            for found, until in _records(stream):
                end = until
                state = None if found is None else last.after(found)
                whole, last = state is not None, state or State()
            size = stream.seek(0, os.SEEK_END)
            if last.time is not None and last.time >= time:
                times = time_text(last.time), time_text(time)
                what = "the last record is of {}, this one of {}".format(*times)
                raise InputError(Fault(what, "set the clock, or wait for it", str(path)))
            state = State.of(document, time, rename)
            after = last.time if whole else None
            base = last if after is not None else State()
            figures = figures if rename is None else _renamed_figures(figures, rename)
            record = Record(time, figures, base.changes_to(state), after)
            content = gzip.compress(msgspec.json.encode(record) + b"\n", mtime=0)
            stream.truncate(end)
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        _forget(folder, time - keep_s)
    except OSError as error:
        raise cannot_write(path, error) from error
    return path, len(content), end < size


def _forget(folder: Path, before: int) -> None:
    """Remove the files of days that ended before a time."""
    for path in _files(folder):
        day = datetime.fromisoformat(path.name[:10]).replace(tzinfo=UTC)
        if (day + timedelta(days=1)).timestamp() <= before:
            path.unlink()


def _key(folder: Path) -> bytes:
    path = folder / KEY_FILE
    if not path.exists():
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "wb") as stream:
            stream.write(secrets.token_bytes(32))
    return path.read_bytes()


# ---- names


_NAMED = {"name", "namespace", "queue", "node", "role", "parent", "domain", "value"}
_NAMED_VALUES = {"domains", "labels", "nodeSelector", "matchLabels"}
_NAMED_LISTS = {"values", "nodes", "roles"}


def _renamer(key: bytes) -> Callable[[Tree], Tree]:
    """Replaces every name in a document by one that says nothing, the same one everywhere and each time."""

    def alias(name: object) -> object:
        if not isinstance(name, str) or not name or name.isdigit():
            return name
        parts = name.split("/")
        return "/".join(
            "n" + hmac.new(key, p.encode(), hashlib.sha256).hexdigest()[:12] for p in parts
        )

    def renamed(tree: Any, under: str = "") -> Any:  # noqa: ANN401  # whatever JSON holds
        if isinstance(tree, dict):
            if under in _NAMED_VALUES:
                return {name: alias(one) for name, one in tree.items()}
            return {name: renamed(one, name) for name, one in tree.items()}
        if isinstance(tree, list | tuple):
            plain = under in _NAMED_LISTS
            return [alias(one) if plain and isinstance(one, str) else renamed(one) for one in tree]
        if under == "message":
            return "left out"
        return alias(tree) if under in _NAMED else tree

    return renamed


def _renamed_policy(spec: Tree, rename: Callable[[Tree], Tree]) -> Tree:
    """The policy with the names that it has of nodes; levels and objectives keep theirs."""
    kept = {**spec, **rename({"nodeSelector": spec.get("nodeSelector", {})})}
    kept.pop("kubernetes", None)
    return kept


def _renamed_figures(figures: Figures, rename: Callable[[Tree], Tree]) -> Figures:
    def alias(name: str) -> str:
        found: str = rename({"name": name})["name"]
        return found

    tree = msgspec.to_builtins(figures)
    for idle in (tree["now"], tree["moving"], tree["quotas"]):
        idle["gangs"] = [
            (alias(gang), gpus, list(map(alias, nodes))) for gang, gpus, nodes in idle["gangs"]
        ]
        idle["moved"] = [(alias(gang), *rest) for gang, *rest in idle["moved"]]
    return msgspec.convert(tree, Figures)


# ---- reading


@dataclass(frozen=True, slots=True)
class Round:
    """A record, and the cluster of its moment, None where a record before it is missing."""

    record: Record
    state: State | None


class Journal:
    """The rounds of a journal, the oldest first. ``remarks``: what was odd, once they were read."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)
        self.remarks: list[str] = []

    def rounds(self) -> Iterator[Round]:
        """Raises MissingPathError, and InputError where nothing can be read."""
        state, last = State(), None
        for record, file in self._read():
            if last is not None and record.time <= last:
                self.remarks.append(f"{file}: a record of {time_text(record.time)} is late")
                continue
            try:
                found = state.after(record)
            except (AttributeError, KeyError, TypeError):  # documents without their names
                self.remarks.append(f"{file}: a record is none, and left out")
                continue
            # None but a whole record follows one whose cluster is unknown.
            state, last = found or State(), record.time
            yield Round(record, found)
        if last is None:
            what = "no journal: no file here has a record that can be read"
            hint = "a journal is the folder that `gangplan run --shadow FOLDER` writes"
            raise InputError(Fault(what, hint, str(self._folder)))

    def _read(self) -> Iterator[tuple[Record, str]]:
        """Records, and the files that they are in."""
        try:
            for path in _files(self._folder):
                with path.open("rb") as stream:
                    size, end = stream.seek(0, os.SEEK_END), 0
                    stream.seek(0)
                    for record, until in _records(stream):
                        end = until
                        if record is None:
                            self.remarks.append(f"{path.name}: a record is none, and left out")
                        else:
                            yield record, path.name
                if end < size:
                    left = f"{size - end:,} bytes after its last whole record are left out"
                    self.remarks.append(f"{path.name}: {left}")
        except OSError as error:
            what = f"cannot read {error.filename}: {error.strerror}"
            raise MissingPathError(Fault(what, "check the path")) from error


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if FILE.fullmatch(path.name))


def _records(stream: IO[bytes]) -> Iterator[tuple[Record | None, int]]:
    """Records, None for one that is none, and where each ends; up to the first that is not whole."""
    decode = msgspec.json.Decoder(Record).decode
    content = memoryview(stream.read(MAX_FILE))
    at = 0
    while at < len(content):
        text, at = _member(content, at)
        if text is None:
            return
        try:
            record = decode(text)
        except msgspec.MsgspecError:
            record = None
        yield record, at


def _member(content: memoryview, at: int) -> tuple[bytes | None, int]:
    """The text of the gzip member that begins here, None where there is no whole one; and where it ends."""
    unpack, parts, size = zlib.decompressobj(31), [], 0
    while not unpack.eof and at < len(content) and size < MAX_RECORD:
        chunk = content[at : at + _CHUNK]
        try:
            parts.append(unpack.decompress(chunk, MAX_RECORD))
        except zlib.error:
            return None, at
        at += len(chunk) - len(unpack.unused_data)
        size += len(parts[-1])
    return (b"".join(parts), at) if unpack.eof else (None, at)


Amount = Annotated[int, Meta(ge=0)]


class Start(Struct, frozen=True, array_like=True):
    """A gang that could have run, and on which nodes."""

    gang: str
    gpus: Amount
    nodes: tuple[str, ...] = ()


class Idle(Struct, frozen=True):
    """Thousandths of GPUs of waiting gangs that could have run. ``proven``: no plan starts more.

    ``gangs``: who; ``moved``: who would restart for it, with GPUs and the GPU-seconds of work that are lost,
    None if not known.
    """

    gpus: Amount = 0
    proven: bool = True
    gangs: tuple[Start, ...] = ()
    moved: tuple[tuple[str, Amount, Amount | None], ...] = ()


class Figures(Struct, frozen=True):
    """``now``: with nothing moved; ``moving``: beyond that, with at most ``restarts`` gangs restarted.

    ``quotas``: beyond ``now``, if no queue had a limit. ``spread``: what running gangs lose by where they
    stand. ``stranded``: free GPUs by the cause why the usual requests cannot use them.
    """

    installed: Amount
    held: Amount
    free: Amount
    effective: Amount
    spread: Amount
    stranded: dict[str, Amount]
    restarts: Amount
    now: Idle = Idle()
    moving: Idle = Idle()
    quotas: Idle = Idle()
