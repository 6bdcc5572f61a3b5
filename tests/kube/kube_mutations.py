"""Recorded objects, broken at any place."""

from __future__ import annotations

import copy
from functools import cache
from typing import Any

import kube

Tree = dict[str, Any]


ODD: list[object] = [
    None, True, False, 0, -1, 1, 2**31, 2**63, 10**30, -(10**30), 0.5, "", " ", "x", "-1", "1e9",
    "999999999999999999999", "NaN", "../../etc", "a/b/c", "\x00\x1b[31m", "ü" * 300, "y" * 5000,
    [], {}, [None], [[]], {"a": {"b": []}}, [{"name": None}], ["x", 1], {"": ""}, {"x y": "\n"},
]  # fmt: skip


@cache
def recorded(name: str) -> tuple[Tree, ...]:
    trees: list[Tree] = []
    for path in sorted((kube.SNAPSHOTS / name).glob("*.json*")):
        trees += kube.listed(path)
    return tuple(trees)


def places(tree: object, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """Every place below a tree, but its kind and apiVersion."""
    found: list[tuple[str | int, ...]] = []
    steps: list[tuple[str | int, object]] = []
    if isinstance(tree, dict):
        steps = [(k, v) for k, v in tree.items() if path or k not in ("kind", "apiVersion")]
    elif isinstance(tree, list):
        steps = list(enumerate(tree))
    for step, value in steps:
        found.append((*path, step))
        found += places(value, (*path, step))
    return found


def broken(tree: Tree, path: tuple[str | int, ...], odd: object, how: str) -> Tree:
    """A copy with the place removed, replaced, renamed or doubled."""
    result = copy.deepcopy(tree)
    here: Any = result
    for step in path[:-1]:
        here = here[step]
    last = path[-1]
    if how == "remove":
        del here[last]
    elif how == "rename" and isinstance(here, dict):
        here[str(odd)[:80]] = here.pop(last)
    elif how == "double" and isinstance(here, list):
        here.append(copy.deepcopy(here[int(last)]))
    else:
        here[last] = copy.deepcopy(odd)
    return result
