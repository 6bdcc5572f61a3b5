"""A rendering as text: a YAML stream, one JSON document, or the files of a folder.

Promises: stable bytes; every form begins with what it may be used for and what not. Called by the verb
``render``.
"""

from __future__ import annotations

import json
from typing import Any

from planner.showing.formats import yaml_text
from planner.showing.rendering import Item, Rendering
from planner.showing.text import document_safe, json_safe, plural, safe
from planner.showing.wrapping import wrapped

INDEX = "RENDERED"
"""File of a folder that lists the others; by it a folder is known as ours."""

_WIDTH = 78
"""Of a line of the comment; with its sign it fits 80 columns."""

_API_VERSION = "gangplan.dev/v1alpha1"


def heading(found: Rendering) -> list[str]:
    """What these objects are for, and what must not be done with them."""
    lines = [
        f"Plan {found.plan}: {counted(found)}.",
        f"Cluster: {safe(found.cluster) or 'not known'}.",
        "",
        "For review: the objects that `gangplan apply` sends, in a fixed order; the",
        "same plan gives the same bytes. Commit them, read the difference, then run",
        "`gangplan apply PLAN`. Never `kubectl apply` or `kubectl create -f` them, nor",
        "let Argo CD or Flux sync them: a Binding would bind without looking at the",
        "pod's uid, and a patch starts one pod of a gang. By hand, one at a time: the",
        "command of each, in a folder of `gangplan render --to DIR`; nothing then",
        "checks the lock, the room, or that the whole gang starts.",
    ]
    if not found.known:
        lines.append("This plan knows no uids of cluster and pods: not to be applied.")
    return [*lines, "", *wrapped(f"GPUs: {found.note}.", _WIDTH)]


def counted(found: Rendering) -> str:
    """How many pods start and, if there are any, are evicted."""
    evicted = f", {plural(found.evicted, 'pod')} to evict" if found.evicted else ""
    return f"{plural(found.started, 'pod')} to start{evicted}"


def yaml_stream(found: Rendering) -> str:
    """A document an object, the command that sends it in the comment above."""
    parts = [_comment(heading(found))]
    for gang in found.gangs:
        title = f"{gang.gang}: {gang.decision}"
        parts.append(_comment(["", title, *(f"- {safe(remark)}" for remark in gang.remarks)]))
        for item in gang.items:
            parts += ["---\n", _comment([_command(item)]), yaml_text(item.manifest)]
    return "".join(parts)


def json_document(found: Rendering) -> str:
    """One document of our own kind, which no ``kubectl`` takes."""
    document: dict[str, Any] = {
        "apiVersion": _API_VERSION,
        "kind": "Rendering",
        "metadata": {"name": found.plan, "cluster": found.cluster or None},
        "use": " ".join(line for line in heading(found) if line),
        "gangs": [
            {
                "gang": gang.gang,
                "decision": gang.decision,
                "remarks": list(gang.remarks),
                "objects": [
                    {"path": item.path, "command": item.command or None, "manifest": item.manifest}
                    for item in gang.items
                ],
            }
            for gang in found.gangs
        ],
    }
    return json_safe(json.dumps(document, indent=2, ensure_ascii=False) + "\n")


def files(found: Rendering) -> dict[str, str]:
    """Text by path; INDEX last."""
    written = {item.path: _file(item) for item in found.items}
    lines = [_comment(heading(found))]
    for gang in found.gangs:
        lines.append(_comment(["", f"{gang.gang}: {gang.decision}"]))
        lines.append(_comment([f"- {safe(remark)}" for remark in gang.remarks]))
        lines += [f"{item.path}\t{_command(item)}\n" for item in gang.items]
    return {**written, INDEX: "".join(lines)}


def listed(index: str) -> list[str]:
    """Paths that an INDEX lists."""
    return [
        line.partition("\t")[0] for line in index.splitlines() if line and not line.startswith("#")
    ]


def _file(item: Item) -> str:
    """YAML where kubectl reads it, JSON where it is sent as it is."""
    if item.kind == "patch":
        return yaml_text(item.manifest)
    text = json.dumps(item.manifest, indent=2, ensure_ascii=False) + "\n"
    return text if document_safe(text) else json_safe(text)


def _command(item: Item) -> str:
    return item.command or "not to be sent: the plan does not know the uid of this pod"


def _comment(lines: list[str]) -> str:
    return "".join(f"# {line}".rstrip() + "\n" for line in lines)
