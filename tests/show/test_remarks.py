"""Remarks: told together where they say the same, short, and folded on a terminal."""

from __future__ import annotations

import io
import json

from planner.read.findings import Remarks
from planner.show.console import Color, Console, LogFormat


def lines(*remarks: tuple[str, str, str | None]) -> list[str]:
    made = Remarks()
    for remark in remarks:
        made.add(*remark)
    return made.lines()


def test_the_same_remark_on_many_objects_is_one_line_with_the_first_of_them() -> None:
    made: list[tuple[str, str, str | None]] = [
        (f"Pod a/p-{number}", "is odd; it is left out", None) for number in range(1_203)
    ]
    made.append(("Pod b/q", "is strange", "look at it"))
    assert lines(*made, made[0]) == [
        "Pod a/p-0, a/p-1, a/p-2 and 1,200 more: is odd; it is left out",
        "Pod b/q: is strange (hint: look at it)",
    ]


def test_every_part_of_a_remark_is_printable_and_bounded() -> None:
    # A label may be any text: 400 characters are shown of each part.
    (line,) = lines(("Node \x1b[2J", "odd\n", "its label \r" + "x" * 500 + " is missing"))
    assert line.isprintable()
    assert line.startswith(r"Node \x1b[2J: odd\n (hint: its label \rxxx")
    assert line.endswith("x...)")


def test_objects_of_several_kinds_are_named_with_their_kinds() -> None:
    odd = [("Pod a/p", "is odd", None), ("Node n", "is odd", None)]
    assert lines(*odd) == ["Pod a/p, Node n: is odd"]
    assert lines(("in.json", "is odd", None), ("Node n", "is odd", None)) == [
        "in.json, Node n: is odd"
    ]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_warning_folds_between_words_on_a_terminal() -> None:
    seen = Terminal()
    Console(stderr=seen, environ={"NO_COLOR": "1", "COLUMNS": "40"}).warn("Node a: " + "word " * 10)
    # 38 columns: "warning: Node a:" takes 16 and each word 5, so four, then six behind two blanks.
    assert seen.getvalue().splitlines() == [
        "warning: Node a: word word word word",
        "  word word word word word word",
    ]


def test_a_warning_off_a_terminal_is_one_line_and_coloured_only_on_demand() -> None:
    seen = io.StringIO()
    console = Console(stderr=seen, environ={})
    console.warn("word " * 100)
    assert seen.getvalue().count("\n") == 1
    assert "\x1b" not in seen.getvalue()
    console.color = Color.always
    console.warn("x\x1b[2J")
    assert seen.getvalue().splitlines()[-1] == "\x1b[33mwarning:\x1b[0m x\\e[2J"


def test_where_stderr_speaks_json_a_warning_for_people_is_silent() -> None:
    seen = io.StringIO()
    console = Console(stderr=seen, environ={})
    console.log_format = LogFormat.json
    console.warn("x")
    console.event("warning", warning="x")
    assert [json.loads(line) for line in seen.getvalue().splitlines()] == [
        {"type": "warning", "warning": "x"}
    ]
