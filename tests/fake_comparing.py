"""Recorded exchanges, and how an answer differs from a recorded one.

Promises: what a server makes up (uids, versions, times, its own diffs of Go structures) is no
difference; everything else is. Called by ``fake_replaying`` and ``fake_kubectl``.
"""

from __future__ import annotations

import json
import re
from functools import lru_cache
from pathlib import Path

from fake_trees import Json, Tree

TRANSCRIPTS = Path(__file__).parent / "data" / "kube_api" / "transcripts.jsonl"

_FREE = ("uid", "resourceVersion", "creationTimestamp", "managedFields", "generation")
_TIMES = ("lastTransitionTime", "lastProbeTime", "observedGeneration", "allocationTimestamp")


@lru_cache(maxsize=1)
def rows() -> tuple[Tree, ...]:
    """All lines; the first is about the recording."""
    text = TRANSCRIPTS.read_text(encoding="utf-8")
    return tuple(json.loads(line) for line in text.splitlines())


def differences(ours: Json, recorded: Json) -> list[str]:
    """Where two answers differ in more than names and times that a server makes up."""
    left, right = plain(ours), plain(recorded)
    return list(_compared("", left, right))


def plain(tree: Json) -> Json:
    """Without what a server makes up, and without its diffs of Go structures."""
    if isinstance(tree, dict):
        if "causes" in tree:  # the real server says each as often as it looks
            tree = tree | {"causes": list({str(one): one for one in tree["causes"]}.values())}
        return {
            key: plain(value) if key != "deletionTimestamp" else "set"
            for key, value in tree.items()
            if key not in _FREE and key not in _TIMES and value not in ({}, [], None)
        }
    if isinstance(tree, list):
        return [plain(one) for one in tree]
    if isinstance(tree, str):
        tree = re.split(r"\n(?:@@|[-+] \w+: )", tree)[0]
        return re.sub(r"Invalid value: \{.*\}: field is", "Invalid value: {}: field is", tree)
    return tree


def _compared(where: str, ours: Json, recorded: Json) -> list[str]:
    if isinstance(ours, dict) and isinstance(recorded, dict):
        found = []
        for key in sorted(ours.keys() | recorded.keys()):
            if key not in ours:
                found.append(f"{where}.{key}: missing, recorded {recorded[key]!r}")
            elif key not in recorded:
                found.append(f"{where}.{key}: {ours[key]!r}, not recorded")
            else:
                found += _compared(f"{where}.{key}", ours[key], recorded[key])
        return found
    if isinstance(ours, list) and isinstance(recorded, list) and len(ours) == len(recorded):
        return [
            line
            for index, (a, b) in enumerate(zip(ours, recorded, strict=True))
            for line in _compared(f"{where}[{index}]", a, b)
        ]
    return [] if ours == recorded else [f"{where}: {ours!r}, recorded {recorded!r}"]
