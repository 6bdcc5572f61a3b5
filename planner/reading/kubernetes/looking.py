"""Looking into untrusted trees: values of the wanted type, or nothing.

Promises: never raises, whatever the tree holds. Called by every reader of Kubernetes objects, dozens of
times an object: hence the loop that each of the common ones has of its own.
"""

from __future__ import annotations

from typing import Any

Tree = dict[str, Any]

_NOTHING: Tree = {}


def at(tree: object, *path: str) -> object:
    """The value below a path of field names; None where any step is missing or no object."""
    for name in path:
        if not isinstance(tree, dict):
            return None
        tree = tree.get(name)
    return tree


def mapping(tree: object, *path: str) -> Tree:
    """The object below the path; empty where there is none."""
    for name in path:
        if not isinstance(tree, dict):
            return _NOTHING
        tree = tree.get(name)
    return tree if isinstance(tree, dict) else _NOTHING


def items(tree: object, *path: str) -> list[Any]:
    """The list below the path; empty where there is none."""
    for name in path:
        if not isinstance(tree, dict):
            return []
        tree = tree.get(name)
    return tree if isinstance(tree, list) else []


def objects(tree: object, *path: str) -> list[Tree]:
    """The objects in the list below the path; entries of other types are passed over."""
    found = items(tree, *path)
    return [entry for entry in found if isinstance(entry, dict)] if found else []


def text(tree: object, *path: str) -> str | None:
    """The non-empty text below the path."""
    for name in path:
        if not isinstance(tree, dict):
            return None
        tree = tree.get(name)
    return tree if isinstance(tree, str) and tree else None


def whole(tree: object, *path: str) -> int | None:
    """The integer below the path; booleans, fractions and huge numbers are none."""
    value = at(tree, *path)
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) > 2**53:
        return None
    return value


def flag(tree: object, *path: str) -> bool:
    """Whether the value below the path is true."""
    return at(tree, *path) is True


def texts(tree: object, *path: str) -> dict[str, str]:
    """The object below the path, its text values only: labels, annotations, selectors."""
    return {k: v for k, v in mapping(tree, *path).items() if isinstance(v, str)}


def number(text_: str | None) -> int | None:
    """A non-negative integer written in decimal, of at most nine digits: an index or a count."""
    if text_ is None or not text_.isascii() or not text_.isdecimal() or len(text_) > 9:
        return None
    return int(text_)
