"""No regular expression of the product takes more than linear time, whatever it is matched against."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from backtracking import Mode, faults

from planner.read.schemas import schemas

ROOT = Path(__file__).resolve().parents[2]
SOURCES = {
    path: path.read_text(encoding="utf-8")
    for package in ("models", "planner", "benchmarks")
    for path in sorted((ROOT / package).rglob("*.py"))
    if path.name != "__main__.py"
}
GIVEN = {"pattern"}
"""Arguments that are expressions of documents, written where a field is declared."""
CALL = re.compile(r"\bre\.(compile|search|split|findall|finditer|subn?|match|fullmatch)$")


def mode_of(uses: set[str]) -> Mode:
    """The loosest use; of none that is seen, a search."""
    anchored = uses and uses <= {"fullmatch", "match"}
    return ("match" if "match" in uses else "fullmatch") if anchored else "search"


USES = re.compile(r"\b(\w+)\.(fullmatch|match|search|split|findall|finditer|subn?)\b")


def uses_in(texts: Iterable[str]) -> dict[str, set[str]]:
    """What is done with each name."""
    found: dict[str, set[str]] = {}
    for name, use in (one for text in texts for one in USES.findall(text)):
        found.setdefault(name, set()).add(use)
    return found


def patterns(value: object) -> Iterator[re.Pattern[Any]]:
    """Expressions of a module's name, in a dict or a tuple, too."""
    if isinstance(value, re.Pattern):
        yield value
    elif isinstance(value, dict | tuple | list):
        for one in value.values() if isinstance(value, dict) else value:
            yield from patterns(one)


def expressions() -> Iterator[tuple[str, str | bytes, int, Mode]]:
    """(where, pattern, flags, use) of every regular expression of the product."""
    everywhere = uses_in(SOURCES.values())
    for path, source in SOURCES.items():
        own_uses = uses_in([source])
        name = str(path.relative_to(ROOT))
        assert not re.search(r"from re import|import re as|fnmatch", source), name
        module = name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        for own, value in vars(importlib.import_module(module)).items():
            if f"\n{own}" in source:  # not imported
                uses = (own_uses if own.startswith("_") else everywhere).get(own, set())
                for one in patterns(value):
                    yield f"{name}: {own}", one.pattern, one.flags, mode_of(uses)
        tree = ast.parse(source)
        made = {id(node) for top in tree.body for node in inside(top)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and (found := CALL.search(ast.unparse(node.func))):
                given = node.args[0]
                if id(node) not in made:
                    known = isinstance(given, ast.Constant) or ast.unparse(given) in GIVEN
                    assert known, (name, node.lineno, ast.unparse(given))
                if isinstance(given, ast.Constant) and found[1] != "compile":
                    yield f"{name}:{node.lineno}", given.value, 0, mode_of({found[1]})


def inside(top: ast.stmt) -> Iterator[ast.AST]:
    """Nodes that run when a module is imported."""
    if not isinstance(top, ast.FunctionDef | ast.ClassDef):
        yield from ast.walk(top)


def of_schemas(tree: object) -> Iterator[str]:
    if isinstance(tree, dict):
        if isinstance(tree.get("pattern"), str):
            yield tree["pattern"]
        tree = list(tree.values())
    for one in tree if isinstance(tree, list) else ():
        yield from of_schemas(one)


@pytest.mark.slow
def test_no_expression_is_matched_in_more_than_linear_time() -> None:
    every = list(expressions())
    every += [("schema", one, 0, "fullmatch") for one in {*of_schemas([*schemas().values()])}]
    assert len(every) > 130
    unique = {(pattern, flags & ~re.UNICODE, mode): where for where, pattern, flags, mode in every}
    slow = {where: (one, found) for one, where in unique.items() if (found := faults(*one))}
    assert not slow


@pytest.mark.parametrize(
    ("pattern", "flags", "mode", "found"),
    [
        # the one that made `topo` hang on comments with CRLF, and its remedy
        (r"(?:#[^\n]*\r?\n)*x", 0, "match", ["exponential", "quadratic"]),
        (r"(?:#[^\n]*\n)*x", 0, "match", []),
        # what a loop passes in two ways
        (r"(?:a|a)*b", 0, "match", ["exponential"]),
        (r"(?:a+)+b", 0, "match", ["exponential", "quadratic"]),
        (r"(?:a*)*b", 0, "match", ["exponential"]),
        (r"(?:a|b|ab)*c", 0, "match", ["exponential", "quadratic"]),
        (r"(?:Ax|ax)*b", 0, "match", []),
        (r"(?:Ax|ax)*b", re.IGNORECASE, "match", ["exponential", "quadratic"]),
        (r"(?:a{0,40}){0,40}b", 0, "match", ["exponential"]),
        (r"(?:a{0,40}b){0,40}c", 0, "match", []),
        # two loops over the same text, one after the other
        (r"a*a*b", 0, "match", ["quadratic"]),
        (r"a*ba*c", 0, "match", []),
        (r"a{0,9}a*b", 0, "match", []),
        (r"a{0,256}a*b", 0, "match", []),
        (r"a{0,257}a*b", 0, "match", ["quadratic"]),
        (r"(.*-)?x.*", 0, "fullmatch", ["quadratic"]),
        (r"(.*-)?x.*", re.DOTALL, "fullmatch", []),  # what follows x always fits
        # a search begins anywhere
        (r"\s+x", 0, "match", []),
        (r"\s+x", 0, "search", ["quadratic"]),
        (r"\s+", 0, "search", []),
        (r"^\s*x", 0, "search", []),
        (r"^\s*x", re.MULTILINE, "search", ["quadratic"]),
        (r"^[ \t]*x", re.MULTILINE, "search", []),
        (r"x(?=\s*y)", 0, "match", []),
        (r"x(?=\s*y)", 0, "search", ["quadratic in a lookahead"]),
    ],
)
def test_the_check_tells_slow_expressions_from_quick_ones(
    pattern: str, flags: int, mode: Mode, found: list[str]
) -> None:
    assert faults(pattern, flags, mode) == found
