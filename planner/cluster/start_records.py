"""The records of starts as ConfigMaps in the namespace of the lock, where tenants cannot write.

One object a record. Each is written over the version that was last seen, so that a run which lost its lock
writes over nothing that another run wrote.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from models.apply.records import (
    MAX_RECORD,
    RecordKey,
    StartRecord,
    packed,
    read_record,
    record_name,
    unpacked,
)
from models.apply.requests import Denied, Done, Event, Gone, NoAnswer
from models.apply.terms import KEYS, MANAGER
from planner.cluster.pages import NotServedError, list_objects
from planner.cluster.transport import ApiRequest, Reply, Transport, Tree, core
from planner.cluster.writes import denied, event_of
from planner.errors import NotPermittedError
from planner.read.kube.lookup import mapping, text
from planner.read.kube.records import START
from planner.untrusted_text import one_line

LABEL = "gangplan.dev/record"
"""Label of the ConfigMaps that are records, and of no others."""

SELECTOR = f"labelSelector={LABEL}%3Dstart"
_TEXT, _PACKED = "start", "start.zlib"
_QUERY = f"?fieldManager={MANAGER}&fieldValidation=Strict"


@dataclass(slots=True)
class StartRecords:
    """``namespace``: of the lock. ``known``: every record that was read, and not removed since.

    ``starts``: what they say of each pod, by its uid. ``optional``: without the right to read them there are
    none, as far as is known. ``unread``: names of objects that claim to be records and are none.
    """

    wire: Transport
    namespace: str
    optional: bool = False
    known: dict[RecordKey, StartRecord] = field(default_factory=dict)
    starts: dict[str, StartRecord] = field(default_factory=dict)
    unread: tuple[str, ...] = ()
    _versions: dict[str, tuple[str, str]] = field(default_factory=dict)

    def read(self) -> bool:
        """Read all of them; whether that is permitted. Raises UnavailableError, NotPermittedError."""
        try:
            trees = list_objects(self.wire, f"{self._path()}?{SELECTOR}")
        except (NotPermittedError, NotServedError) as error:
            if not self.optional:
                raise
            return isinstance(error, NotServedError)
        self.known, self.starts, self._versions = {}, {}, {}
        found = [(text(tree, "metadata", "name") or "", self._learn(tree)) for tree in trees]
        self.unread = tuple(sorted(name for name, record in found if record is None))
        return True

    def write(self, record: StartRecord, *, dry: bool) -> ApiRequest:
        """The request that writes a record. Raises ValueError if it is too long."""
        name = record_name(record.key)
        metadata: Tree = {
            "name": name,
            "namespace": self.namespace,
            "labels": {LABEL: "start", "app.kubernetes.io/managed-by": MANAGER},
        }
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, **_data(record)}
        query = _QUERY + "&dryRun=All" * dry
        if name not in self._versions:
            return ApiRequest("POST", self._path() + query, body)
        metadata["uid"], metadata["resourceVersion"] = self._versions[name]
        return ApiRequest("PUT", self._path(name) + query, body)

    def remove(self, key: RecordKey, *, dry: bool) -> ApiRequest:
        """The request that removes one."""
        name = record_name(key)
        uid, version = self._versions.get(name, ("", ""))
        body = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {"uid": uid, "resourceVersion": version},
        }
        return ApiRequest("DELETE", self._path(name) + "?dryRun=All" * dry, body)

    def answer(self, key: RecordKey, reply: Reply, *, dry: bool) -> Event:
        """The event of the reply to one of these requests."""
        if not reply.ok:
            return event_of(reply)
        if dry:
            return Done()
        if reply.body.get("kind") == "ConfigMap":
            record, odd = self._learn(reply.body), NoAnswer("the server's answer is no record")
            return odd if record is None else Done(record=record)
        if reply.body.get("kind") == "Status":
            self._forget(key)
            return Done()
        return NoAnswer("the server's answer is neither a ConfigMap nor its success")

    def look(self, key: RecordKey) -> Done | Gone | Denied | NoAnswer:
        """Read one again."""
        reply = self.wire.send("GET", self._path(record_name(key)))
        if reply.ok and (record := self._learn(reply.body)) is not None:
            return Done(record=record)
        if reply.status == 404:
            self._forget(key)
            return Gone(one_line(reply.message))
        if reply.status in {401, 403}:
            return denied(reply.message)
        return NoAnswer(one_line(reply.message))

    def _path(self, name: str | None = None) -> str:
        return core("configmaps", namespace=self.namespace, name=name)

    def _learn(self, tree: Tree) -> StartRecord | None:
        """Keep a record and its version; None for an object that is none."""
        metadata = mapping(tree, "metadata")
        name, uid, version = (text(metadata, one) for one in ("name", "uid", "resourceVersion"))
        record = read_record(_written(tree))
        if record is None or None in (uid, version) or name != record_name(record.key):
            return None
        self._forget(record.key)
        self.known[record.key] = record
        self.starts.update((of, start) for (_, of), start in record.parts().items())
        self._versions[record_name(record.key)] = (uid or "", version or "")
        return record

    def _forget(self, key: RecordKey) -> None:
        self._versions.pop(record_name(key), None)
        before = self.known.pop(key, None)
        for one in () if before is None else before.pods:
            self.starts.pop(one.uid, None)


def _data(record: StartRecord) -> Tree:
    written = record.text()
    if len(written) <= MAX_RECORD:
        return {"data": {_TEXT: written}}
    found = packed(written)
    if found is None:
        raise ValueError(f"the record of {len(record.pods):,} pods is too long")
    return {"binaryData": {_PACKED: base64.b64encode(found).decode()}}


def _written(tree: Tree) -> str:
    """The text of a record; empty for an object without."""
    written = text(tree, "data", _TEXT)
    if written is not None:
        return written
    try:
        return unpacked(base64.b64decode(text(tree, "binaryData", _PACKED) or "", validate=True))
    except binascii.Error:
        return ""


def claims_place(metadata: Any) -> bool:  # noqa: ANN401  # a struct made at run time
    """Whether a pod says of itself where it is planned."""
    return not (metadata.annotations or {}).keys().isdisjoint(KEYS)


def meant(pod: Tree, starts: Mapping[str, StartRecord]) -> Tree:
    """A pod with what is meant with it, by uids, in place of what it says of that itself.

    The GPUs that a bound pod names count, whoever wrote them, where nothing is recorded.
    """
    metadata = mapping(pod, "metadata")
    start = starts.get(text(metadata, "uid") or "")
    notes, bound = mapping(metadata, "annotations"), text(pod, "spec", "nodeName")
    if start is None and (bound or notes.keys().isdisjoint(KEYS)):
        return pod
    kept = {key: value for key, value in notes.items() if bound or key not in KEYS}
    kept |= {} if start is None else start.pod.annotations()
    found = {**pod, "metadata": {**metadata, "annotations": kept}}
    return found if start is None else {**found, START: start.text()}
