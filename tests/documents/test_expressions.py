"""No regular expression of the product takes more than linear time, whatever it is matched against."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from backtracking import Mode, faults

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def expressions() -> list[dict[str, Any]]:
    script = [sys.executable, str(ROOT / "tests/expressions.py")]
    done = subprocess.run(
        script, capture_output=True, text=True, check=True, cwd=ROOT, env={"PYTHONPATH": str(ROOT)}
    )
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def test_no_expression_is_matched_in_more_than_linear_time(
    expressions: list[dict[str, Any]],
) -> None:
    assert len(expressions) > 130
    slow = {
        f"{one['file']}:{one['line']}": (one["pattern"], found)
        for one in expressions
        if one["pattern"] is not None
        and (found := faults(one["pattern"], one["flags"], one["mode"]))
    }
    assert not slow
    assert not {one["file"] for one in expressions if one["pattern"] is None}


def test_every_call_of_re_is_among_the_expressions(expressions: list[dict[str, Any]]) -> None:
    """Counted in another way: by words of the source."""
    calls = re.compile(r"\bre\.(?:compile|search|split|findall|finditer|subn?|match|fullmatch)\(")
    places = {(one["file"], one["line"]) for one in expressions}
    for package in ("models", "planner", "benchmarks"):
        for path in sorted((ROOT / package).rglob("*.py")):
            name = str(path.relative_to(ROOT))
            source = path.read_text(encoding="utf-8")
            assert not re.search(r"from re import|import re as|fnmatch", source), name
            assert len(calls.findall(source)) == sum(file == name for file, _ in places), name


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
