"""The walls of the house that no import contract of pyproject.toml holds: what stays light and small."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from effort import HANG_S

ROOT = Path(__file__).parents[1]
SOURCES = sorted(
    p.relative_to(ROOT) for d in ("models", "planner") for p in (ROOT / d).rglob("*.py")
)


@cache
def tree(path: Path) -> ast.Module:
    """What a source file says."""
    return ast.parse((ROOT / path).read_text(encoding="utf-8"))


def module_name(path: Path) -> str:
    """Dotted name of a source file."""
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def statements(part: ast.AST) -> Iterator[ast.AST]:
    """Every statement below this part, without what stands in expressions."""
    for one in ast.iter_child_nodes(part):
        if isinstance(one, ast.stmt | ast.ExceptHandler | ast.match_case):
            yield one
            yield from statements(one)


@cache
def imports(path: Path) -> set[str]:
    """Every module a file imports, anywhere in it, relative ones resolved."""
    found: set[str] = set()
    package = module_name(path).split(".")
    if path.name != "__init__.py":
        package = package[:-1]
    for item in statements(tree(path)):
        if isinstance(item, ast.Import):
            found.update(alias.name for alias in item.names)
        elif isinstance(item, ast.ImportFrom):
            base = package[: len(package) - item.level + 1] if item.level else []
            name = ".".join([*base, *([item.module] if item.module else [])])
            found.add(name)
            found.update(f"{name}.{alias.name}" for alias in item.names)
    return found


def loaded(doing: str, *prefixes: str) -> list[str]:
    """Modules below these prefixes that a fresh Python holds after doing something, sorted."""
    script = (
        f"import sys; {doing}; "
        f"print(*sorted(name for name in sys.modules if (name + '.').startswith({prefixes!r})))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )
    assert done.stderr == ""
    return done.stdout.split()


def test_light_doors_do_not_load_the_solver() -> None:
    doors = "import models.verify, planner.read.inputs, planner.cli.app"
    assert loaded(doors, "ortools.", "pandas.", "numpy.") == []


def test_compact_documents_open_no_other_reader() -> None:
    others = [f"planner.read.{room}." for room in ("slurm", "kube", "topo")]
    prices = ["models.rates.server_bandwidth.", "models.rates.gang_bandwidth."]
    found = loaded(
        "from planner.read.inputs import read; read(['inputs/elastic'])", *others, *prices
    )
    assert found == ["planner.read.kube", "planner.read.kube.lookup"]


def test_a_topology_file_opens_only_its_own_reader(tmp_path: Path) -> None:
    (tmp_path / "topology.conf").write_text("SwitchName=s Nodes=a\n")
    doing = f"from planner.read.inputs import read; read([{str(tmp_path)!r}])"
    readers = ("planner.read.slurm.levels.", "planner.read.kube.pods.", "planner.read.topo.")
    assert loaded(doing, *readers) == ["planner.read.slurm.levels"]


CIRCLES = (
    # Rules ask who is known to be able to start, which is a question about all rules.
    """models.queues.cells models.starts.empty_counts
    models.starts.empty_search models.starts.empty_starts models.rules.giving_way
    models.program.demand_builder models.program.options models.program.servers
    models.rules.registry models.queues.queue_order
    models.queues.queue_shares models.queues.reservations models.queues.reserved_quotas
    models.rules.shape models.values.tier_values""",
    # A model, and parts of it whose functions name its type.
    """models.program.slots.slot_program models.program.slots.slot_rooms
    models.program.slots.slot_spread models.program.slots.slot_program""",
)
"""Files that import each other, also for types alone or inside functions: these, and no others."""


def test_no_files_import_each_other_that_did_not_before() -> None:
    """Whoever opens one of a circle has to read all of it."""
    files = {module_name(path): path for path in SOURCES}
    bit = {name: 1 << place for place, name in enumerate(files)}
    used = {name: imports(path) & files.keys() - {name} for name, path in files.items()}
    behind, before = {name: sum(bit[one] for one in own) for name, own in used.items()}, None
    while behind != before:
        before = dict(behind)
        for name, own in used.items():
            for one in own:
                behind[name] |= behind[one]
    circular = [name for name in files if behind[name] & bit[name]]
    found = {
        frozenset(o for o in circular if behind[name] & bit[o] and behind[o] & bit[name])
        for name in circular
    }
    known = [set(one.split()) for one in CIRCLES]
    assert [sorted(one) for one in found if not any(one <= circle for circle in known)] == []


MOST_SINGLES = 60
"""Files that one other file of their folder imports, and nobody else: more of them would be crumbs."""


def test_few_files_are_there_for_one_neighbour_alone() -> None:
    files = {module_name(path): path for path in SOURCES if path.name != "__init__.py"}
    users: dict[str, set[str]] = {name: set() for name in files}
    for name, path in files.items():
        for other in imports(path) & files.keys() - {name}:
            users[other].add(name)
    folder = {name: name.rpartition(".")[0] for name in files}
    singles = [
        name
        for name, own in users.items()
        if len(own) == 1 and folder[name] == folder[next(iter(own))]
    ]
    assert len(singles) <= MOST_SINGLES, sorted(singles)


PHRASE = re.compile(r"[A-Za-z]{2,},? [A-Za-z]{2,}")
"""Two words of a sentence."""

MATCHING = {
    "startswith",
    "endswith",
    "removeprefix",
    "removesuffix",
    "partition",
    "replace",
    "find",
}
"""Methods of texts, beside functions of ``re``, that look for a part of one."""

OTHERS_WORDS = {
    "planner/cli/app.py",  # Typer's
    "planner/cluster/kubectl.py",
    "planner/cluster/proxy.py",  # kubectl's
    "planner/cluster/writes.py",  # the API server's
    "planner/read/json_items.py",  # msgspec's
    "planner/read/model_files.py",
    "planner/read/topo/server_model.py",  # the confidence that a server model states
    "planner/read/topo/tools.py",
}
"""Files that look for words which other programs, or people, write."""


def constants() -> dict[tuple[str, str], ast.expr]:
    """What stands at the top of our files, by module and name."""
    return {
        (module_name(path), target.id): item.value
        for path in SOURCES
        for item in tree(path).body
        if isinstance(item, ast.Assign)
        for target in item.targets
        if isinstance(target, ast.Name)
    }


def matched(call: ast.Call) -> list[ast.expr]:
    """The arguments in which a call states what it looks for in a text."""
    if not isinstance(call.func, ast.Attribute):
        return []
    if isinstance(call.func.value, ast.Name) and call.func.value.id == "re":
        return call.args[:1]
    return call.args if call.func.attr in MATCHING else []


def test_nobody_looks_for_words_in_sentences_that_we_make() -> None:
    """What a program is to know of a text stands beside it in a field: words are for people alone."""
    known = constants()
    guilty = set()
    for path in SOURCES:
        own, items = module_name(path), list(ast.walk(tree(path)))
        whence = {
            alias.asname or alias.name: (item.module or "", alias.name)
            for item in items
            if isinstance(item, ast.ImportFrom)
            for alias in item.names
        }
        for call in (item for item in items if isinstance(item, ast.Call)):
            parts = [part for argument in matched(call) for part in ast.walk(argument)]
            for name in [part.id for part in parts if isinstance(part, ast.Name)]:
                stated = known.get(whence.get(name, (own, name)))
                parts += [] if stated is None else ast.walk(stated)
            said = (part.value for part in parts if isinstance(part, ast.Constant))
            if any(isinstance(one, str) and PHRASE.search(one) for one in said):
                guilty.add(str(path))
    assert guilty == OTHERS_WORDS


CEILINGS: dict[str, int] = {
    "models": 1000,
    "models/apply": 2925,
    "models/documents": 2513,
    "models/instance": 1914,
    "models/program": 5784,
    "models/queues": 1450,
    "models/rates": 1249,
    "models/results": 1145,
    "models/rules": 1363,
    "models/starts": 644,
    "models/values": 1092,
    "models/verify": 7384,
    "planner": 332,
    "planner/cli": 2044,
    "planner/cluster": 3474,
    "planner/pipelines": 2911,
    "planner/read": 3663,
    "planner/read/kube": 2620,
    "planner/read/kube/devices": 648,
    "planner/read/kube/dialects": 2787,
    "planner/read/kube/gangs": 1205,
    "planner/read/kube/levels": 564,
    "planner/read/kube/nodes": 795,
    "planner/read/kube/pods": 1650,
    "planner/read/kube/templates": 269,
    "planner/read/slurm": 1570,
    "planner/read/topo": 645,
    "planner/search": 1201,
    "planner/search/bound": 721,
    "planner/search/engines": 735,
    "planner/search/explain": 1606,
    "planner/search/improve": 936,
    "planner/search/promises": 570,
    "planner/search/start": 1407,
    "planner/show": 3571,
    "planner/week": 1277,
}
"""The most code lines of each room. They only fall: ``python tests/test_walls.py`` prints them as they are.

A change that needs more says in its commit what it deletes instead.
"""

SPLIT = ("planner/read", "planner/read/kube", "planner/search")
"""Folders whose own folders are rooms, beside those of ``models`` and ``planner``."""


def room_of(path: Path) -> str:
    """The room that a source file belongs to."""
    folder, *deeper = path.parts[:-1]
    while deeper:
        folder += "/" + deeper.pop(0)
        if folder not in SPLIT:
            break
    return folder


def code_lines(path: Path) -> int:
    """Lines on which a statement or an expression starts: no blank ones, comments or docstrings."""
    found: set[int] = set()
    ahead: list[ast.AST] = [tree(path)]
    while ahead:
        part = ahead.pop()
        for one in ast.iter_child_nodes(part):
            if isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant):
                continue
            if isinstance(one, ast.stmt | ast.expr):
                found.add(one.lineno)
            ahead.append(one)
    return len(found)


def rooms() -> dict[str, int]:
    """Code lines of every room."""
    found: Counter[str] = Counter()
    for path in SOURCES:
        found[room_of(path)] += code_lines(path)
    return dict(sorted(found.items()))


def test_no_room_grows_and_what_shrank_stays_small() -> None:
    found, faults = rooms(), []
    for room in sorted(found.keys() | CEILINGS.keys()):
        lines, most = found.get(room, 0), CEILINGS.get(room, 0)
        if lines > most:
            faults.append(
                f"{room} has {lines} code lines, its ceiling is {most}: delete something there, "
                "or raise it and say in the commit which other ceiling falls for that"
            )
        elif lines < most - max(2, most // 50):
            faults.append(f"{room} has {lines} code lines, its ceiling is {most}: lower it")
    assert not faults, "\n".join(faults)


SUITE = {"tests": 56_991, "tests/server": 1_500}
"""The most lines of Python in these folders of tests. They only fall, too."""


@pytest.mark.parametrize("folder", SUITE)
def test_the_suite_does_not_grow(folder: str) -> None:
    lines = sum(len(path.read_bytes().splitlines()) for path in (ROOT / folder).rglob("*.py"))
    assert lines <= SUITE[folder]


def test_what_tests_share_stands_in_no_test() -> None:
    texts = {p.name: p.read_text(encoding="utf-8") for p in (ROOT / "tests").rglob("*.py")}
    importing = re.compile(r"^ *(from|import) test_", re.MULTILINE)
    assert [name for name, text in texts.items() if importing.search(text)] == []


if __name__ == "__main__":
    stated = "".join(f'    "{room}": {lines},\n' for room, lines in rooms().items())
    sys.stdout.write(f"CEILINGS: dict[str, int] = {{\n{stated}}}\n")
