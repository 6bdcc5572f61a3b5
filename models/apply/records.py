"""The record of a start: what a plan means to do with all pods of a gang, written before any is touched.

One a gang and plan, kept where tenants cannot write, until the last of its pods is over. From it alone a
later run knows what an earlier one left half-way, what a pod was started under, and which GPUs it holds.
"""

from __future__ import annotations

import hashlib
import zlib
from dataclasses import dataclass
from typing import NamedTuple

from pydantic import TypeAdapter

from models.apply.plan_actions import Key
from models.apply.terms import GPUS, NODE, RANK, Terms

RecordKey = tuple[Key, str]
"""Gang and plan."""

MAX_RECORD = 1_000_000
"""Bytes of a record as it is kept: an object holds 1 MiB. Some 8,000 pods as text, 30,000 packed."""

MAX_UNPACKED = 32 * 2**20


class PodPlace(NamedTuple):
    """Where a pod is going to start. ``gpus``: ascending indices; None if the node chooses.

    ``rank``: of its first GPU, None where the plan deals none. ``pin``: what of its spec is our pin, not its
    own wish: ``hostname`` (of its node selector), ``terms 0 2`` (the node's name in these terms of its
    required node affinity), ``none`` (its own constraints left it only that node).
    """

    name: str
    uid: str
    node: str
    gpus: tuple[int, ...] | None = None
    rank: int | None = None
    pin: str = ""

    def annotations(self) -> dict[str, str]:
        """As its pod has it for others to read."""
        gpus, rank = self.gpus or (), self.rank
        written = {
            NODE: self.node,
            GPUS: ",".join(map(str, gpus)),
            RANK: "" if rank is None else str(rank),
        }
        return {key: word for key, word in written.items() if word}


@dataclass(frozen=True, slots=True)
class StartRecord:
    """``pods``: all that start together, in the gang's namespace. ``whole``: each of them has started.

    ``begun``: when a run last began to start them, by the server's clock in seconds since the epoch, None if
    unknown.
    """

    gang: Key
    plan: str
    pods: tuple[PodPlace, ...]
    terms: Terms | None = None
    whole: bool = False
    begun: int | None = None

    @property
    def key(self) -> RecordKey:
        return self.gang, self.plan

    @property
    def pod(self) -> PodPlace:
        """Of a record of one pod."""
        return self.pods[0]

    def parts(self) -> dict[tuple[Key, str], StartRecord]:
        """By key and uid of each pod what is recorded of it, as a record of it alone."""
        return {
            ((self.gang[0], one.name), one.uid): StartRecord(
                self.gang, self.plan, (one,), self.terms
            )
            for one in self.pods
        }

    def text(self) -> str:
        """As JSON."""
        return _FORM.dump_json(self, exclude_defaults=True).decode()


_FORM = TypeAdapter(StartRecord)


def record_name(key: RecordKey) -> str:
    """The name of the object that keeps it: the same for each run, so that none writes it twice."""
    (namespace, name), plan = key
    digest = hashlib.sha256(f"{namespace}\n{name}\n{plan}".encode()).hexdigest()
    return f"gangplan-start-{digest[:20]}"


def read_record(written: str) -> StartRecord | None:
    """A record from its JSON; None for what is none."""
    try:
        return _FORM.validate_json(written, strict=True)
    except ValueError:
        return None


def packed(written: str) -> bytes | None:
    """A text that is too long as it is; None if it is too long for any record."""
    found = zlib.compress(written.encode(), 9)
    return found if len(found) <= MAX_RECORD else None


def unpacked(found: bytes) -> str:
    """The text again; empty for what is no packed text, or has more than MAX_UNPACKED bytes."""
    try:
        reader = zlib.decompressobj()
        written = reader.decompress(found, MAX_UNPACKED)
        return written.decode() if reader.eof else ""
    except (zlib.error, ValueError):
        return ""
