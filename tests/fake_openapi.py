"""OpenAPI documents, as far as kubectl reads them: which requests take dryRun and fieldValidation.

Promises: version 3 as JSON, version 2 as the protobuf that kubectl before 1.27 insists on; the schema of
a Binding, which kubectl checks by itself, and of nothing else. Called by ``fake_http``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from fake_kinds import Kind, Kinds
from fake_trees import Json, Tree

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
    return _varint(number << 3 | 2) + _varint(len(raw)) + raw


def _varint(number: int) -> bytes:
    parts = bytearray()
    while number > 127:
        parts.append(number & 127 | 128)
        number >>= 7
    parts.append(number)
    return bytes(parts)
