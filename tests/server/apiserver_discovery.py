"""Discovery and OpenAPI documents for kubectl, and the protobuf bodies that it sends."""

from __future__ import annotations

import json
from collections.abc import Iterator

from apiserver_kinds import Json, Kind, Kinds, Tree

VERSION = {
    "major": "1",
    "minor": "36",
    "gitVersion": "v1.36.2",
    "gitCommit": "fake",
    "gitTreeState": "clean",
    "buildDate": "2026-11-20T00:00:00Z",
    "goVersion": "go1.26",
    "compiler": "gc",
    "platform": "linux/amd64",
}
_SUB_KINDS = {
    "binding": ("Binding", "", "v1", ["create"]),
    "eviction": ("Eviction", "policy", "v1", ["create"]),
    "scale": ("Scale", "autoscaling", "v1", ["get", "patch", "update"]),
}


def discovered(kinds: Kinds, path: str) -> Tree | None:
    """The answer to GET ``path``; None where it is no discovery."""
    match path.rstrip("/"):
        case "/version":
            return dict(VERSION)
        case "/api":
            return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}
        case "/apis":
            groups = [_group(name, found) for name, found in _groups(kinds).items()]
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}
        case "/healthz" | "/livez" | "/readyz":
            return {"kind": "Status", "apiVersion": "v1", "status": "Success"}
    return _of_group(kinds, path)


def _of_group(kinds: Kinds, path: str) -> Tree | None:
    """A group and its versions, or the kinds of one version."""
    for name, versions in _groups(kinds).items():
        if path == f"/apis/{name}":
            return {"kind": "APIGroup", "apiVersion": "v1"} | _group(name, versions)
    alike = [kind for kind in kinds.all if kind.root == path]
    if not alike:
        return None
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": alike[0].api_version,
        "resources": [row for kind in alike for row in _rows(kind)],
    }


def _groups(kinds: Kinds) -> dict[str, list[str]]:
    """Versions by group; the stable ones first."""
    found: dict[str, list[str]] = {}
    for kind in kinds.all:
        if kind.group and kind.version not in found.setdefault(kind.group, []):
            found[kind.group].append(kind.version)
    return {group: sorted(versions, key=lambda v: (len(v), v)) for group, versions in found.items()}


def _group(name: str, versions: list[str]) -> Tree:
    listed = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"name": name, "versions": listed, "preferredVersion": listed[0]}


def _rows(kind: Kind) -> list[Tree]:
    row: Tree = {
        "name": kind.plural,
        "singularName": kind.name.lower(),
        "namespaced": kind.namespaced,
        "kind": kind.name,
        "verbs": list(kind.verbs),
    }
    if kind.short:
        row["shortNames"] = list(kind.short)
    rows = [row]
    for sub in kind.subs:
        below: Tree = {
            "name": f"{kind.plural}/{sub}",
            "singularName": "",
            "namespaced": kind.namespaced,
            "kind": kind.name,
            "verbs": ["get", "patch", "update"],
        }
        if sub in _SUB_KINDS:
            name, group, version, verbs = _SUB_KINDS[sub]
            below |= {"kind": name, "verbs": verbs}
            if group:
                below |= {"group": group, "version": version}
        rows.append(below)
    return rows


V2 = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"

_PARAMETERS = ("dryRun", "fieldManager", "fieldValidation")
_TEXT: Tree = {"type": "string"}
_BINDING = {
    "io.k8s.api.core.v1.Binding": {
        "required": ["target"],
        "properties": {
            "apiVersion": _TEXT,
            "kind": _TEXT,
            "metadata": {},
            "target": {"ref": "#/definitions/io.k8s.api.core.v1.ObjectReference"},
        },
    },
    "io.k8s.api.core.v1.ObjectReference": {
        "required": [],
        "properties": dict.fromkeys(
            [
                "apiVersion",
                "fieldPath",
                "kind",
                "name",
                "namespace",
                "resourceVersion",
                "uid",
            ],
            _TEXT,
        ),
    },
}


def described(kinds: Kinds, path: str) -> Tree | None:
    """Of ``/openapi/v3`` and below; None for other paths."""
    roots = dict.fromkeys(kind.root.removeprefix("/") for kind in kinds.all)
    if path == "/openapi/v3":
        listed = {root: {"serverRelativeURL": f"/openapi/v3/{root}?hash=1"} for root in roots}
        return {"paths": listed}
    root = path.removeprefix("/openapi/v3/")
    if root == path or root not in roots:
        return None
    paths = {
        url: {
            method: {
                "x-kubernetes-group-version-kind": _gvk(kind),
                "parameters": [
                    {"name": name, "in": "query", "schema": {"type": "string"}}
                    for name in _PARAMETERS
                ],
                "responses": {},
            }
            for method in methods
        }
        for url, kind, methods in _paths(kinds)
        if kind.root == f"/{root}"
    }
    return {
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": "v1.36.2"},
        "paths": paths,
        "components": {"schemas": {}},
    }


def swagger(kinds: Kinds) -> bytes:
    """The whole in version 2: a protobuf of openapi.v2.Document."""
    paths = b"".join(
        _field(2, _named(url, b"".join(_operation(method, kind) for method in methods)))
        for url, kind, methods in _paths(kinds)
    )
    definitions = b"".join(
        _field(1, _named(name, _schema(one, name))) for name, one in _BINDING.items()
    )
    info = _field(1, "Kubernetes") + _field(2, "v1.36.2")
    return _field(1, "2.0") + _field(2, info) + _field(8, paths) + _field(9, definitions)


def _paths(kinds: Kinds) -> Iterator[tuple[str, Kind, list[str]]]:
    for kind in kinds.all:
        base = f"{kind.root}/namespaces/{{namespace}}" if kind.namespaced else kind.root
        if "create" in kind.verbs:
            yield f"{base}/{kind.plural}", kind, ["post"]
        if "patch" in kind.verbs:
            yield f"{base}/{kind.plural}/{{name}}", kind, ["put", "patch", "delete"]


def _gvk(kind: Kind) -> Tree:
    return {"group": kind.group, "kind": kind.name, "version": kind.version}


_METHODS = {"put": 3, "post": 4, "delete": 5, "patch": 8}


def _operation(method: str, kind: Kind) -> bytes:
    parameters = b"".join(
        _field(8, _field(1, _field(2, _field(3, _field(2, "query") + _field(4, name)))))
        for name in _PARAMETERS
    )
    extension = _field(13, _extension("x-kubernetes-group-version-kind", _gvk(kind)))
    return _field(_METHODS[method], parameters + extension)


def _schema(schema: Tree, name: str) -> bytes:
    """Of an object with these properties."""
    parts = [_field(19, one) for one in schema["required"]]
    parts.append(_field(22, _field(1, "object")))
    properties = b"".join(
        _field(1, _named(key, _property(one))) for key, one in schema["properties"].items()
    )
    parts.append(_field(25, properties))
    if name.endswith(".Binding"):
        gvk = [{"group": "", "kind": "Binding", "version": "v1"}]
        parts.append(_field(31, _extension("x-kubernetes-group-version-kind", gvk)))
    return b"".join(parts)


def _property(schema: Tree) -> bytes:
    if "ref" in schema:
        return _field(1, schema["ref"])
    return _field(22, _field(1, schema.get("type", "object")))


def _extension(name: str, value: Json) -> bytes:
    """A NamedAny, whose value is YAML; JSON is."""
    return _named(name, _field(2, json.dumps(value)))


def _named(name: str, value: bytes) -> bytes:
    return _field(1, name) + _field(2, value)


def _field(number: int, value: str | bytes) -> bytes:
    """A length-delimited field of a protobuf."""
    raw = value.encode() if isinstance(value, str) else value
    return _write_varint(number << 3 | 2) + _write_varint(len(raw)) + raw


def _write_varint(number: int) -> bytes:
    parts = bytearray()
    while number > 127:
        parts.append(number & 127 | 128)
        number >>= 7
    parts.append(number)
    return bytes(parts)


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
        tag, at = _read_varint(raw, at)
        if tag & 7 == 0:
            found[tag >> 3], at = _read_varint(raw, at)
        elif tag & 7 == 2:
            size, at = _read_varint(raw, at)
            found[tag >> 3] = raw[at : at + size]
            at += size
        else:
            raise ValueError(f"wire type {tag & 7}")
    return found


def _read_varint(raw: bytes, at: int) -> tuple[int, int]:
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
