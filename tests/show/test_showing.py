"""The small parts of showing: host ranges, numbers, harmless text, tables, progress."""

from __future__ import annotations

import io
import json

from hypothesis import given
from hypothesis import strategies as st

from models.host_ranges import hosts
from planner.show.console import Console, LogFormat
from planner.show.progress import SearchProgress
from planner.show.table import Cell, Column, Table, draw
from planner.show.text import compress, gigabytes, nodes_and_gpus, percent, ranges


@given(
    st.lists(
        st.builds(
            lambda prefix, number, digits, suffix: f"{prefix}{number:0{digits}d}{suffix}",
            st.sampled_from(["gpu-", "r1-n", ""]),
            st.integers(0, 120),
            st.integers(1, 3),
            st.sampled_from(["", "-x"]),
        ),
        unique=True,
    )
)
def test_folded_hosts_expand_to_the_same_hosts(names: list[str]) -> None:
    folded = compress(names)
    parts = [part for part in _split(folded) if part]
    assert sorted(name for part in parts for name in hosts(part)) == sorted(names)


def _split(folded: str) -> list[str]:
    """Split at the commas outside brackets."""
    parts, depth = [""], 0
    for char in folded:
        depth += (char == "[") - (char == "]")
        if char == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += char
    return parts


def test_gpus_are_named_where_a_node_is_shared() -> None:
    assert ranges([0, 1, 2, 3, 6]) == "0-3,6"
    used = {"a1": "", "a2": "", "b1": "0-3", "b2": "0-3", "b3": "4"}
    assert nodes_and_gpus(used) == "a[1-2] b[1-2]:0-3 b3:4"
    assert nodes_and_gpus({"a1": "0", "b1": "0"}) == "a1:0 b1:0"


def test_a_gap_above_zero_never_reads_as_zero_and_rates_are_rounded_down() -> None:
    said = ["-", "0 %", "<0.01 %", "0.01 %", "1.48 %", ">9999 %"]
    assert list(map(percent, (None, 0, 1e-9, 0.0001, 0.0148, 200))) == said
    assert list(map(gigabytes, (None, 1_999, 370_800))) == ["-", "1.9", "370.8"]


TABLE = Table(
    (Column("NAME"), Column("GPUS", right=True, droppable=True), Column("WHERE", fold=True)),
    (
        (Cell("a", "good"), Cell("8"), Cell("gpu-1 gpu-2 gpu-3")),
        (Cell("東京"), Cell("1,024"), Cell("long " * 40)),
        (Cell("c"), Cell("-"), Cell("a-name-of-one-node-that-is-long:any")),
    ),
    ("one note",),
    below={0: Cell("it waits for somebody else", "warn")},
)


def test_a_narrow_terminal_loses_columns_but_no_text() -> None:
    # NAME and GPUS need 4 + 2 + 5 + 2 = 13, a text 16.
    assert "GPUS" in draw(TABLE, width=29)
    for width in (28, 21, 3):
        narrow = draw(TABLE, width=width)
        assert "GPUS" not in narrow
        assert narrow.count("long ") + narrow.count("long\n") == 40
        assert "a-name-of-one-node-that-is-long:any" in narrow


def test_a_text_without_room_stands_below_its_row_and_no_name_is_broken() -> None:
    assert draw(TABLE, width=40).splitlines() == [
        "NAME   GPUS  WHERE",
        "a         8  gpu-1 gpu-2 gpu-3",
        "    it waits for somebody else",
        "東京  1,024",
        *["    long long long long long long long"] * 5,
        "    long long long long long",
        "c         -",
        "    a-name-of-one-node-that-is-long:any",
        "one note",
    ]
    lines = draw(TABLE, width=10).splitlines()
    assert lines[:6] == ["NAME", "    WHERE", "a", "    gpu-1", "    gpu-2", "    gpu-3"]
    coloured = draw(TABLE, width=40, color=True)
    assert "\x1b[32ma\x1b[0m" in coloured
    assert "    \x1b[33mit waits for somebody else\x1b[0m\n" in coloured


class Clock:
    """Seconds that pass when told."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_talk_folds_between_words_on_a_terminal_and_commands_do_not() -> None:
    err = Terminal()
    console = Console(stderr=err, environ={"TERM": "xterm", "COLUMNS": "40"})
    console.say("word " * 12)
    console.say(command := "  kubectl delete pod -n research " + "llama-0 " * 4)
    console.next(again := "gangplan apply " + "plan.json " * 6)
    console.say_next()
    # 38 columns hold seven words of 4 and the blanks between them: 34
    assert err.getvalue().splitlines() == [
        "word word word word word word word",
        "  word word word word word",
        command,
        f"next: {again}",
    ]


def test_progress_off_a_terminal_is_a_line_ever_more_rarely() -> None:
    err, clock = io.StringIO(), Clock()
    progress = SearchProgress(Console(stderr=err, environ={}), clock, ["goodput/5", "span"], 60.0)
    progress.tick("solving", 10.0)
    assert err.getvalue() == ""
    progress.effective = 12.5
    for second in range(40):
        clock.now = 100.0 + second
        progress.update("goodput/5", 1000 + second, 1100)
        progress.tick("solving", 10.0)
    best = "s  the best plan has 12.5 effective GPUs; at most"
    assert err.getvalue().splitlines() == [
        # Nothing in the first second; gaps: 99/1001, 94/1006, 88/1012, 76/1024
        f"  1.0{best} 9.89 % more at priority 5; searching",
        f"  6.0{best} 9.34 % more at priority 5; searching",
        f" 12.0{best} 8.70 % more at priority 5; searching",
        f" 24.0{best} 7.42 % more at priority 5; searching",
    ]


def started(
    err: io.StringIO, clock: Clock, *, json_log: bool = False, **environ: str
) -> SearchProgress:
    """A search of four tiers that may take 120 seconds."""
    console = Console(stderr=err, environ={"TERM": "xterm", **environ})
    if json_log:
        console.log_format = LogFormat.json
    tiers = ["kept/0", "goodput/0", "bandwidth", "span"]
    return SearchProgress(console, clock, tiers, 120.0)


def test_the_live_line_says_what_is_reached_what_is_possible_and_how_to_end_it() -> None:
    err, clock = Terminal(), Clock()
    progress = started(err, clock, COLUMNS="125")
    progress.tick("first plan", 60.0)
    progress.effective = 1234.5
    progress.update("kept/0", 8, 8)
    progress.update("goodput/0", 1000, 1100)
    clock.now += 12.25
    progress.tick("solving", 47.6)
    clock.now += 12.25
    progress.update("kept/0", 8, 9)
    progress.update("goodput/0", 1000, 1200)
    progress.tick("building", 47.6)
    clock.now += 12.25
    progress.update("goodput/0", 1000, 1000)
    progress.tick("improving", 47.6)
    best = "s  the best plan has 1,234.5 effective GPUs; "
    assert err.getvalue().split("\r\x1b[2K")[1:] == [
        "  0.0s  making the first plan; Ctrl-C ends with it; 120 s left",
        f" 12.2{best}at most 10.00 % more at priority 0; Ctrl-C ends with it; 108 s left",
        # With what is done it takes more than 124 columns: 137
        f" 24.5{best}at most 20.00 % more at priority 0; Ctrl-C ends with it; 96 s left",
        f" 36.8{best}Ctrl-C ends with it; 83 s left; improving",
    ]


def test_json_events_have_the_same_fields() -> None:
    err, clock = io.StringIO(), Clock()
    progress = started(err, clock, json_log=True)
    progress.update("span", 7, 5)
    clock.now += 2
    progress.tick("improving", 47.61)
    assert json.loads(err.getvalue()) == {
        "type": "solve_progress",
        "seconds": 2.0,
        "phase": "improving",
        "tier": "span",
        "tier_number": 4,
        "tiers": 4,
        "value": 7,
        "bound": 5,
        "effective_gpus": None,
        "seconds_left": 118.0,
        "budget_left": 47.6,
    }
