"""What a text or a document is, told before any reader of it is opened.

Promises: looks at as little as tells; never raises. Stays light: it is asked of every input.
Called by ``planner.reading.dialects``.
"""

from __future__ import annotations

import re

from models.documents.base import API_VERSION
from planner.reading.kubernetes.looking import Tree, items, mapping, text

OWN_GROUP = API_VERSION.partition("/")[0]

COMPACT_KINDS = frozenset({"Cluster", "Gang", "Policy", "Plan"})
"""Kinds of ours: read as Kubernetes objects only if their group says so beyond doubt."""


def is_object(tree: Tree) -> bool:
    """Whether a document is a Kubernetes object, or a typed list of them, and no document of ours."""
    kind, version = tree.get("kind"), tree.get("apiVersion")
    if not isinstance(kind, str) or not isinstance(version, str) or not kind or not version:
        return False
    group = version.rpartition("/")[0]
    if group == OWN_GROUP:
        return False
    return kind not in COMPACT_KINDS or group.endswith(".k8s.io")


def is_of_ours(tree: Tree) -> bool:
    """Whether a document says, by its group or its kind, that it is one of ours."""
    group = (text(tree, "apiVersion") or "").rpartition("/")[0]
    return group == OWN_GROUP or text(tree, "kind") in COMPACT_KINDS


def guessed(tree: Tree) -> Tree | None:
    """A Pod or a Node that does not say so, by what it holds; None for anything else."""
    if is_object(tree) or is_of_ours(tree):
        return None
    kind = text(tree, "kind")
    if kind not in ("Pod", "Node"):
        if kind is not None:
            return None
        if items(tree, "spec", "containers"):
            kind = "Pod"
        elif mapping(tree, "status", "allocatable") or mapping(tree, "status", "capacity"):
            kind = "Node"
        else:
            return None
    return {**tree, "kind": kind, "apiVersion": "v1"}


def subject_of(tree: Tree) -> str:
    """How messages name a document that may be no object."""
    kind, namespace = text(tree, "kind") or "object", text(tree, "metadata", "namespace")
    name = text(tree, "metadata", "name") or "without a name"
    return f"{kind} {namespace}/{name}" if namespace else f"{kind} {name}"


_CONF = re.compile(r"(switchname|blockname|blocksizes|ringname)[ \t]*=", re.IGNORECASE)
_YAML = re.compile(r"-[ \t]+(topology|cluster_default|tree|block|flat|ring|torus3d)[ \t]*:")
_JSON = re.compile(r'\[\s*\{\s*"(topology|cluster_default)"\s*:')
_NAMED = re.compile(r"(.*[/\\.])?topology\.conf", re.IGNORECASE | re.DOTALL)


def is_topology(name: str, text: str) -> bool:
    """Whether a text is a Slurm topology file, by its first line that says something.

    A file called ``topology.conf`` is one whatever it says.
    """
    return topology_form(text) is not None or _NAMED.fullmatch(name) is not None


def topology_form(text: str) -> str | None:
    """``conf`` or ``yaml``; None for a text that is neither."""
    at = 0
    while at < len(text):
        end = text.find("\n", at)
        end = len(text) if end < 0 else end
        line = text[at:end].strip()
        if line and not line.startswith(("#", "---", "%YAML")):
            if _CONF.match(line):
                return "conf"
            if text[at] == "-" and _YAML.match(line):
                return "yaml"
            start = at + len(text[at:end]) - len(text[at:end].lstrip())
            return "yaml" if _JSON.match(text, start) else None
        at = end + 1
    return None
