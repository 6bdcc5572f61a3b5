"""Discovery: which kinds a fake cluster serves, as kubectl asks for them.

Promises: the unaggregated form, which every kubectl understands; nothing is served that is not in the
table of kinds. Called by ``fake_cluster``.
"""

from __future__ import annotations

from fake_kinds import Kind, Kinds
from fake_trees import Tree

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
