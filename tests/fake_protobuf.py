"""The few protobuf bodies that kubectl sends: reviews of one's own rights, and options of deletions.

Promises: the same trees as the JSON of those kinds; ValueError for any other kind. Called by
``fake_http``.
"""

from __future__ import annotations

from fake_trees import Tree

MAGIC = b"k8s\x00"
CONTENT_TYPE = "application/vnd.kubernetes.protobuf"

_ATTRIBUTES = {
    1: "namespace",
    2: "verb",
    3: "group",
    4: "version",
    5: "resource",
    6: "subresource",
    7: "name",
}


def decoded(raw: bytes) -> Tree:
    """The object in a body. Raises ValueError."""
    if not raw.startswith(MAGIC):
        raise ValueError("no Kubernetes protobuf")
    envelope = _fields(raw[len(MAGIC) :])
    words = _fields(_bytes(envelope, 1))
    version, kind = _text(words, 1), _text(words, 2)
    inner = _fields(_bytes(envelope, 2))
    tree: Tree = {"apiVersion": version, "kind": kind, "metadata": {}}
    match kind:
        case "SelfSubjectAccessReview":
            return tree | {"spec": _access(_fields(_bytes(inner, 2)))}
        case "SelfSubjectRulesReview":
            return tree | {"spec": {"namespace": _text(_fields(_bytes(inner, 2)), 1)}}
        case "SelfSubjectReview":
            return tree
    raise ValueError(f"no decoder for {kind}")


def _access(spec: dict[int, bytes | int]) -> Tree:
    if 1 in spec:
        found = _fields(_bytes(spec, 1))
        words = {name: _text(found, number) for number, name in _ATTRIBUTES.items()}
        return {"resourceAttributes": {name: word for name, word in words.items() if word}}
    found = _fields(_bytes(spec, 2))
    return {"nonResourceAttributes": {"path": _text(found, 1), "verb": _text(found, 2)}}


def _text(fields: dict[int, bytes | int], number: int) -> str:
    return _bytes(fields, number).decode()


def _bytes(fields: dict[int, bytes | int], number: int) -> bytes:
    found = fields.get(number, b"")
    if not isinstance(found, bytes):
        raise ValueError(f"field {number} is a number")  # noqa: TRY004  # one error for bad bodies
    return found


def _fields(raw: bytes) -> dict[int, bytes | int]:
    """Fields of a message by number; of repeated ones the last."""
    found: dict[int, bytes | int] = {}
    at = 0
    while at < len(raw):
        tag, at = _varint(raw, at)
        if tag & 7 == 0:
            found[tag >> 3], at = _varint(raw, at)
        elif tag & 7 == 2:
            size, at = _varint(raw, at)
            found[tag >> 3] = raw[at : at + size]
            at += size
        else:
            raise ValueError(f"wire type {tag & 7}")
    return found


def _varint(raw: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        if at >= len(raw):
            raise ValueError("it ends in the middle of a number")
        byte = raw[at]
        at += 1
        number |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return number, at
