"""Every verb that shows something, on every shipped input, in colour and in three widths.

Colour only repeats what the text says, so that the text is the same without; nothing is unexpected, and no
line is wider than its terminal.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from apply_runs import a_cluster, bench
from conftest import Result, RunCli
from effort import examples, first_fast, spread
from input_folders import input_folder, input_names

from planner.cli.app import app
from planner.show.text import width as width_of

ALL_WIDTHS = (80, 100, 160)
WIDTHS, NARROW = tuple(spread(ALL_WIDTHS, 2)), tuple(spread(ALL_WIDTHS, 3))
"""``NARROW``: of what takes longer to work out than to show."""
COLOUR = re.compile(r"\x1b\[[0-9;]*m")

# One that has every kind of table first: queues, what reservations and moves show, NVLink domains.
FIRST = ("queues", "quickstart", "reservations", "moves", "nvl72", "parallelism", "elastic")
SMALL = [*FIRST, *(name for name in input_names() if name not in FIRST)]
ALL = ("--scheduler", "all", "--budget", "1")

VERBS = ["", *(one.name for one in app.registered_commands if one.name)]

Saved = Callable[[str], str]


@pytest.fixture(scope="session")
def plans(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The plans that were made, by the name of their input."""
    return {"": str(tmp_path_factory.mktemp("plans"))}


@pytest.fixture
def saved(plans: dict[str, str], cli: RunCli) -> Saved:
    """The plan of an input, made once; briefly, since what is shown does not depend on how good it is."""

    def make(name: str) -> str:
        if name not in plans:
            path = Path(plans[""]) / f"{name.replace('/', '-')}.json"
            made = cli("plan", str(input_folder(name)), *ALL, "--out", str(path))
            assert made.code == 0, made.err
            plans[name] = str(path)
        return plans[name]

    return make


def seen(
    cli: RunCli,
    *words: str,
    code: int = 0,
    widths: tuple[int, ...] = WIDTHS,
    folded: bool = True,
    same: bool = True,
) -> None:
    """A command in each width, with and without colour. ``folded``: whether its lines fit the width.

    ``same``: whether it does the same twice, as a search does not that has a limit in seconds.
    """
    for width in widths:
        environ = {"COLUMNS": str(width)}
        coloured = cli(*words, "--color", "always", environ=environ)
        plain = cli(*words, "--color", "never", environ=environ)
        told = f"{' '.join(words)} at {width}: {coloured.err}"
        assert (coloured.code, plain.code) == (code, code), told
        assert "unexpected" not in coloured.err, told
        assert "\x1b" not in plain.out, told
        assert "\x1b" not in COLOUR.sub("", coloured.out), told
        assert not same or COLOUR.sub("", coloured.out) == plain.out, told
        wide = [line for line in plain.out.splitlines() if width_of(line) > width]
        assert not folded or not wide, f"{told}\n{wide[:3]}"


def gang_of(plan: str, *decisions: str) -> str | None:
    """The first gang with such a decision."""
    gangs = json.loads(Path(plan).read_text())["spec"]["gangs"]
    found = (f"{one['namespace']}/{one['name']}" for one in gangs if one["decision"] in decisions)
    return next(found, None)


@pytest.mark.parametrize("name", first_fast(SMALL, examples(len(SMALL), 2)))
def test_a_plan_is_shown_in_colour_by_every_verb(name: str, saved: Saved, cli: RunCli) -> None:
    plan = saved(name)
    for form in ("table", "wide"):
        seen(cli, "show", plan, "-o", form)
        seen(cli, "show", plan, "-o", form, "--all")
    seen(cli, "show", plan, "--map")
    for form in ("json", "yaml", "name"):
        seen(cli, "show", plan, "-o", form, widths=(80,), folded=False)
    for kind in (("wait",), ("place", "complete"), ("keep",), ("preempt", "move", "resize")):
        if (gang := gang_of(plan, *kind)) is not None:
            seen(cli, "explain", plan, gang, "--time-limit", "0s", widths=NARROW)
    seen(cli, "compare", plan, saved("quickstart"))
    seen(cli, "compare", plan, plan, "-o", "wide")
    seen(cli, "verify", plan)
    seen(cli, "capacity", plan)
    seen(cli, "capacity", plan, "-o", "wide")


@pytest.mark.parametrize("name", first_fast(SMALL, examples(len(SMALL), 1)))
def test_an_input_is_read_planned_and_audited_in_colour(name: str, cli: RunCli) -> None:
    path = str(input_folder(name))
    seen(cli, "validate", path)
    seen(cli, "plan", path, *ALL, widths=NARROW)
    seen(cli, "audit", path, widths=NARROW, same=False)


@pytest.mark.parametrize("name", first_fast(["quickstart", "moves", "preemption", "nvl72"]))
def test_what_explain_proves_is_shown_in_colour(name: str, saved: Saved, cli: RunCli) -> None:
    plan = saved(name)
    for kind in (("wait", "preempt"), ("place", "move")):
        if (gang := gang_of(plan, *kind)) is not None:
            seen(cli, "explain", plan, gang, "--time-limit", "60s", widths=NARROW)


def test_what_a_cluster_is_asked_is_shown_in_colour(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with bench(a_cluster(), tmp_path, monkeypatch) as made:
        plan = str(made.plan())

        def asked(*words: str, environ: dict[str, str] | None = None, **_: object) -> Result:
            said = made.run(*words, **(environ or {}))
            return Result(said.code, said.out, said.err)

        seen(asked, "status")
        for how in ("client", "server"):
            seen(asked, "apply", plan, "--dry-run", how)
        seen(asked, "apply", plan, "--dry-run=client", "-oyaml", widths=NARROW, folded=False)
        assert made.apply(Path(plan)).code == 0
        seen(asked, "status")
        seen(asked, "apply", plan, "--dry-run=client")


def test_help_fits(
    cli: RunCli, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for width in ALL_WIDTHS:
        monkeypatch.setenv("COLUMNS", str(width))
        for verb in VERBS:
            assert cli(*verb.split(), "--help").code == 0
            lines = capsys.readouterr().out.splitlines()
            assert len(lines) > 5
            assert max(map(len, lines)) <= width, verb
