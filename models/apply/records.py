"""The record of a start: what a plan means to do with all pods of a gang, written before any is touched.

One a gang and plan, kept where tenants cannot write, until the last of its pods is over. From it alone a
later run knows what an earlier one left half-way, what a pod was started under, and which GPUs it holds.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from pydantic import TypeAdapter

from models.apply.intents import Intent, Terms
from models.apply.plan_actions import Key

RecordKey = tuple[Key, str]
"""Gang and plan."""

MAX_RECORD = 1_000_000
"""Bytes of a record as it is kept: an object holds 1 MiB. Some 8,000 pods as text, 30,000 packed."""

MAX_UNPACKED = 32 * 2**20


class PodPlace(NamedTuple):
    """Where a pod is going to start; ``pin``: see ``Intent``."""

    name: str
    uid: str
    node: str
    gpus: tuple[int, ...] | None = None
    rank: int | None = None
    pin: str = ""


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

    def intents(self) -> Iterable[tuple[Key, str, Intent]]:
        """Of each pod: its key, its uid, and what is meant with it."""
        namespace = self.gang[0]
        for one in self.pods:
            intent = Intent(self.plan, one.node, one.gpus, one.rank, one.pin, self.terms)
            yield (namespace, one.name), one.uid, intent

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
