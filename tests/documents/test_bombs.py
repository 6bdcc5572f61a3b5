"""Bombs and files of megabytes that repeat one thing: one error, in bounded memory and processor time."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from effort import HANG_S, spread

from planner.errors import InputError
from planner.read.inputs import read

ROOT = Path(__file__).parents[2]
MILLION = 1_000_000
API = '"apiVersion": "gangplan.dev/v1alpha1"'
CLUSTER_JSON = f'{{{API}, "kind": "Cluster", "metadata": {{"name": "c"}}, "spec": {{"nodes": ['
CLUSTER = (
    "apiVersion: gangplan.dev/v1alpha1\nkind: Cluster\nmetadata: {name: c}\n"
    "spec:\n  nodes:\n  - {name: n, model: DGX H100}\n"
)
LETTERS = "abcdefghijklmnopqr"
STEPS = list(zip(LETTERS, LETTERS[1:], strict=False))
MERGES = "".join(f"{b}: &{b} {{p: *{a}, q: *{a}, <<: *{a}}}\n" for a, b in STEPS)
LISTS = "".join(f"{b}: &{b} [{', '.join(['*' + a] * 10)}]\n" for a, b in STEPS[:9])
ITEM = '{"kind": "List", "items": [\n {"kind": "Pod"}, '

QUICK = {
    "aliases.yaml": "a: &a [x, x, x]\n" + LISTS,
    "merges.yaml": "a: &a {x: 1}\n" + MERGES,
    "deep-keys.yaml": "".join(" " * i + "a:\n" for i in range(2000)),
    "deep.json": "[" * MILLION,
    "ranges.yaml": CLUSTER + '  - {name: "n[0-99999]-[0-99999]-[0-99999]"}\n',
    "many-ranges.yaml": CLUSTER
    + "".join(f'  - {{name: "a{i}-[1-200000]"}}\n' for i in range(2000)),
    "long-range.yaml": CLUSTER + '  - {name: "n[' + "1," * 400 + '1]"}\n',
    "numbers.json": "[" + "9" * MILLION + "]",
    "number.yaml": "a: " + "9" * MILLION,
    "exponent.json": f'{{{API}, "kind": "Policy", "spec": {{"minBandwidthShare": 1e999999999}}}}',
    "quantity.yaml": CLUSTER.replace("H100", "H100, allocatable: {cpu: 1e999999999, x: 9.9e-99}"),
    "lists.json": '{"kind":"List","apiVersion":"v1","items":[' * 60 + "]}" * 60,
    # a tool's output, for `topo`, and topology.conf
    "comments.txt": "# of a file from Windows\r\n" * 10_000 + "x",
    "blanks.txt": (" " * 16_000 + "\n") * 30 + "x",
    "titles.txt": ("GPU0" + " CPU Affinity" * 1_250 + " x\n") * 30,
    "headings.txt": ("=" * 8_000 + " Weight" + " a" * 4_000 + "\n") * 30,
    "servers.txt": "\tGPU0\tGPU1\nGPU0\tX\tNV1\nGPU1\tNV1\tX\n" * 5_000,
    "ranges.conf": "SwitchName=s Nodes=" + "a[1-999999999999999999]" * 40_000,
    "quotes.conf": 'SwitchName=s Nodes="' * 40_000,
}
SLOW: dict[str, Callable[[], str]] = {
    "deep-flow.yaml": lambda: "[" * MILLION,
    "deep-block.yaml": lambda: "- " * 500_000,
    "deep-objects.json": lambda: '{"a":' * 500_000,
    "empties.json": lambda: "[" + "{}," * 2 * MILLION + "{}]",
    "strings.json": lambda: '{"kind": "' + "x" * 30 * MILLION + '"}',
    "key.yaml": lambda: '"' + "k" * 5 * MILLION + '": 1',
    "fields.json": lambda: (
        "{" + "".join(f'"k{i}":0,' for i in range(500_000)) + f'{API}, "kind": "Gang"}}'
    ),
    "nodes.json": lambda: CLUSTER_JSON + "0," * 900_000 + "0]}}",
    "bad-nodes.json": lambda: CLUSTER_JSON + "0," * 190_000 + "0]}}",
    "scalars.yaml": lambda: "[" + "x," * 500_000 + "x]",
    "many-comments.txt": lambda: "# of a file from Windows\r\n" * 100_000 + "x",
    "many-blanks.txt": lambda: (" " * 16_000 + "\n") * 300 + "x",
    "many-titles.txt": lambda: ("GPU0" + " CPU Affinity" * 1_250 + " x\n") * 300,
    "many-headings.txt": lambda: ("=" * 8_000 + " Weight" + " a" * 4_000 + "\n") * 300,
    "blank-lines.txt": lambda: "\n" * 5 * MILLION + "x",
    "gpus.txt": lambda: "GPU0 " * MILLION,
    "digits.txt": lambda: "GPU1" + "1" * 5 * MILLION,
    "escapes.txt": lambda: "\x1b[" * 2 * MILLION,
    "brackets.conf": lambda: "SwitchName=s Nodes=" + "[" * 900_000,
    "unknown.conf": lambda: (
        "".join(f"SwitchName=s{n} Nodes=n{n}\n" for n in range(30_000))
        + "".join(f"SwitchName=t{n} Switches=u{n}\n" for n in range(3_000))
    ),
    "tower.conf": lambda: "".join(f"SwitchName=s{n} Switches=s{n + 1}\n" for n in range(30_000)),
    "continued.conf": lambda: "#" * MILLION + "\n" + "\\\n" * MILLION,
}
"""Made when needed: they are megabytes."""

CHILD = """
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, (1_500_000_000, 1_500_000_000))
resource.setrlimit(resource.RLIMIT_CPU, (60, 60))
from planner.cli.app import run
from planner.show.console import Console
for path in sys.argv[1:]:
    print("### " + path, flush=True)
    console = Console("gangplan", stdout=sys.stdout, stderr=sys.stdout, stdin=sys.stdin.buffer, environ={})
    print("code", run(["topo" if path.endswith(".txt") else "validate", path], console), flush=True)
"""


def refused(*paths: Path) -> dict[str, list[str]]:
    """The lines that are said of each file, of a child that may take little."""
    command = [sys.executable, "-c", CHILD, *map(str, paths)]
    done = subprocess.run(
        command, check=False, cwd=ROOT, capture_output=True, text=True, timeout=HANG_S
    )
    said = {}
    for part in done.stdout.split("### ")[1:]:
        path, *lines = part.splitlines()
        assert lines[-1:] == ["code 65"], (path, lines[-3:], done.stderr[-2000:])
        said[path] = lines[:-1]
        assert lines[0].startswith("error: ")
        assert all(line.isprintable() and len(line) < 1000 for line in lines)
    assert (list(said), done.returncode) == ([str(path) for path in paths], 0), done.stderr[-2000:]
    return said


def written(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    if name.endswith(".conf"):
        path = folder / name.removesuffix(".conf") / "topology.conf"
        path.parent.mkdir()
    path.write_text(text, encoding="utf-8", newline="")
    return path


def test_bombs_are_refused_in_bounded_memory_and_time(tmp_path: Path) -> None:
    refused(*(written(tmp_path, *one) for one in spread(list(QUICK.items()), 2)))


@pytest.mark.slow
@pytest.mark.parametrize("name", SLOW)
def test_a_large_bomb_is_refused_in_bounded_memory_and_time(tmp_path: Path, name: str) -> None:
    refused(written(tmp_path, name, SLOW[name]()))


@pytest.mark.parametrize(
    ("name", "start", "deeper", "place"),
    [
        # The 66th value inside one another: behind 65 brackets, or 65 fields of five characters.
        ("deep.json", "", "[", "1:66"),
        # 66 of them: the document is read for itself
        pytest.param("deep-objects.json", "", '{"a":', "1:331", marks=pytest.mark.slow),
        # behind a brace and 64 brackets
        ("deep-item.json", '{"kind": "List", "items": [\n {"a":\n', "[", "3:65"),
        # libyaml reads ahead, and how far depends on its version.
        ("deep.yaml", "kind: List\nitems: ", "[", "2:"),
    ],
)
def test_a_nesting_without_end_is_refused_while_it_is_read(
    tmp_path: Path, name: str, start: str, deeper: str, place: str
) -> None:
    path = tmp_path / f"{name}.gz"
    # 20 MB and more from a file of some 20 KB; whole, the file would take a minute.
    with gzip.open(path, "wt", compresslevel=1) as file:
        file.write(start)
        for _ in range(20):
            file.write(deeper * (MILLION // len(deeper)))
    began = time.process_time()
    with pytest.raises(InputError) as caught:
        read([str(path)])
    assert time.process_time() - began < 20
    (fault,) = caught.value.faults
    assert (fault.what, fault.file) == ("nested more than 64 levels deep", str(path))
    assert f"{fault.line}:{fault.column}".startswith(place)
    assert fault.hint is not None


@pytest.mark.parametrize(
    ("start", "more"),
    [
        pytest.param(ITEM + "[", "[],", marks=pytest.mark.slow),
        pytest.param(ITEM + '{"a":[0,', '{"b":1},', marks=pytest.mark.slow),
    ],
)
def test_an_item_without_end_is_refused_while_it_is_read(
    tmp_path: Path, start: str, more: str
) -> None:
    path = tmp_path / "wide.json.gz"
    # 20 million values: read whole they take minutes, and gigabytes.
    with gzip.open(path, "wt", compresslevel=1) as file:
        file.write(start)
        for _ in range(10):
            file.write(more * MILLION)
    ((what, place, *_),) = refused(path).values()
    assert what == "error: an item of more than 1,000,000 values or 32 Mi characters"
    assert place == f"  --> {path}:2:19"  # behind a blank and the pod


@pytest.mark.slow
def test_a_large_cluster_is_read_in_seconds(tmp_path: Path) -> None:
    room = {"cpu": "208", "memory": "2Ti", "pods": 110}
    nodes = [
        {"name": f"n{i:05d}", "model": "DGX H100", "allocatable": room}
        | {"domains": {"block": f"b{i // 100}", "rack": f"r{i // 8}"}}
        for i in range(5000)
    ]
    spec = {"levels": [{"name": "block"}, {"name": "rack"}], "nodes": nodes}
    cluster = {"apiVersion": "gangplan.dev/v1alpha1", "kind": "Cluster", "metadata": {"name": "c"}}
    cluster["spec"] = spec
    (tmp_path / "c.json").write_text(json.dumps(cluster))
    (tmp_path / "c.yaml").write_text(yaml.dump(cluster, Dumper=yaml.CSafeDumper))
    for name, budget in (("c.json", 1.0), ("c.yaml", 3.0)):
        start = time.process_time()
        assert len(read([str(tmp_path / name)]).cluster.nodes) == 5000
        assert time.process_time() - start < budget
