"""Every regular expression of the product: run as a script, prints them as JSON.

A process of its own records what is compiled while each module is imported; calls inside functions are
found in the source. ``{"file", "line", "pattern", "flags", "mode"}``; ``pattern`` is null where the
expression is not known before the program runs.
"""

# ruff: noqa: ANN401  # what re is given has no type

from __future__ import annotations

import ast
import importlib
import json
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("models", "planner", "benchmarks")
ANCHORED = {"fullmatch", "match"}
FUNCTIONS = {"compile", "search", "split", "findall", "finditer", "sub", "subn", *ANCHORED}


def main() -> None:
    recorded: dict[tuple[str, int], list[tuple[str | bytes, int]]] = {}
    compile_ = re._compile  # type: ignore[attr-defined]

    def record(pattern: Any, flags: Any) -> Any:
        compiled = compile_(pattern, flags)
        frame = sys._getframe(2)
        place = (frame.f_code.co_filename, frame.f_lineno)
        recorded.setdefault(place, []).append((compiled.pattern, compiled.flags))
        return compiled

    re._compile = record  # type: ignore[attr-defined]
    found = []
    sources = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
    for path in sources:
        names = path.relative_to(ROOT).with_suffix("").parts
        if names[-1] != "__main__":
            importlib.import_module(".".join(names[:-1] if names[-1] == "__init__" else names))
    trees = {path: _parts(path) for path in sources}
    for path, tree in trees.items():
        for one in _expressions(path, tree, recorded):
            mode = _mode(one.pop("call"), tree, trees.values())
            found.append({**one, "mode": mode})
    json.dump(found, sys.stdout)


def _parts(path: Path) -> list[ast.AST]:
    """The nodes of a source that matter here."""
    kinds = (ast.Attribute, ast.Assign, ast.Call, ast.FunctionDef)
    return [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, kinds)]


def _expressions(
    path: Path, tree: list[ast.AST], recorded: dict[Any, list[Any]]
) -> Iterator[dict[str, Any]]:
    for call in tree:
        if not (isinstance(call, ast.Call) and _is_re(call.func)):
            continue
        place = {"file": str(path.relative_to(ROOT)), "line": call.lineno}
        compiled = [
            one
            for line in range(call.lineno, (call.end_lineno or call.lineno) + 1)
            for one in recorded.get((str(path), line), ())
        ]
        if not compiled and isinstance(call.args[0], ast.Constant):
            one = re.compile(call.args[0].value)
            compiled = [(one.pattern, one.flags)]
        for pattern, flags in compiled or [(None, 0)]:
            text = pattern.decode("latin-1") if isinstance(pattern, bytes) else pattern
            yield {**place, "pattern": text, "flags": flags & ~re.UNICODE, "call": call}


def _is_re(function: ast.expr) -> bool:
    return (
        isinstance(function, ast.Attribute)
        and isinstance(function.value, ast.Name)
        and function.value.id == "re"
        and function.attr in FUNCTIONS
    )


def _mode(call: ast.Call, tree: list[ast.AST], trees: Iterable[list[ast.AST]]) -> str:
    """The loosest use of the expression, by its name in any module; of one without a name, a search."""
    assert isinstance(call.func, ast.Attribute)
    uses = {
        node.attr for node in tree if isinstance(node, ast.Attribute) and node.value is call
    }  # re.compile(...).fullmatch
    if call.func.attr != "compile":
        uses = {call.func.attr}
    elif not uses:
        names = {
            target.id
            for statement in tree
            if isinstance(statement, ast.Assign) and statement.value is call
            for target in statement.targets
            if isinstance(target, ast.Name)
        }
        uses = {
            node.attr
            for other in ((tree,) if all(name.startswith("_") for name in names) else trees)
            for node in other
            if isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id in names
        }
        passed = any(
            isinstance(argument, ast.Name) and argument.id in names
            for node in tree
            if isinstance(node, ast.Call)
            for argument in node.args
        )
        uses = (uses | (_uses_of_parameters(tree) if passed else set())) or {"search"}
    return "search" if uses - ANCHORED else "match" if "match" in uses else "fullmatch"


def _uses_of_parameters(tree: list[ast.AST]) -> set[str]:
    """What functions of a module do with the expressions they are given; without one, a search."""
    uses = {
        node.attr
        for function in tree
        if isinstance(function, ast.FunctionDef)
        for one in function.args.args
        if one.annotation is not None and "re.Pattern" in ast.unparse(one.annotation)
        for node in ast.walk(function)
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == one.arg
    }
    return uses or {"search"}


if __name__ == "__main__":
    main()
