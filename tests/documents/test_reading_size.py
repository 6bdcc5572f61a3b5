"""Size: bombs are refused in bounded memory and time, large clusters are read in seconds."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from effort import HANG_S, first_fast

from planner.errors import InputError
from planner.read.inputs import read

ROOT = Path(__file__).parents[2]
API = '"apiVersion": "gangplan.dev/v1alpha1"'
CLUSTER_JSON = f'{{{API}, "kind": "Cluster", "metadata": {{"name": "c"}}, "spec": {{"nodes": ['
CLUSTER = (
    "apiVersion: gangplan.dev/v1alpha1\nkind: Cluster\nmetadata: {name: c}\n"
    "spec:\n  nodes:\n  - {name: n, model: DGX H100}\n"
)
LETTERS = "abcdefghijklmnopqr"
STEPS = list(zip(LETTERS, LETTERS[1:], strict=False))


def lists_of_aliases(then: str, now: str) -> str:
    return f"{now}: &{now} [{', '.join(['*' + then] * 10)}]\n"


def merges_of_aliases(then: str, now: str) -> str:
    return f"{now}: &{now} {{p: *{then}, q: *{then}, <<: *{then}}}\n"


BOMBS = {
    "aliases.yaml": "a: &a [x, x, x]\n" + "".join(lists_of_aliases(*step) for step in STEPS[:9]),
    "merges.yaml": "a: &a {x: 1}\n" + "".join(merges_of_aliases(*step) for step in STEPS),
    "deep-flow.yaml": "[" * 1_000_000,
    "deep-block.yaml": "- " * 500_000,
    "deep-keys.yaml": "".join(" " * i + "a:\n" for i in range(2000)),
    "deep.json": "[" * 1_000_000,
    "deep-objects.json": '{"a":' * 500_000,
    "ranges.yaml": CLUSTER + '  - {name: "n[0-99999]-[0-99999]-[0-99999]"}\n',
    "many-ranges.yaml": CLUSTER
    + "".join(f'  - {{name: "a{i}-[1-200000]"}}\n' for i in range(2000)),
    "long-range.yaml": CLUSTER + '  - {name: "n[' + "1," * 400 + '1]"}\n',
    "numbers.json": "[" + "9" * 1_000_000 + "]",
    "number.yaml": "a: " + "9" * 1_000_000,
    "exponent.json": f'{{{API}, "kind": "Policy", "spec": {{"minBandwidthShare": 1e999999999}}}}',
    "quantity.yaml": CLUSTER.replace("H100", "H100, allocatable: {cpu: 1e999999999, x: 9.9e-99}"),
    "lists.json": '{"kind":"List","apiVersion":"v1","items":[' * 60 + "]}" * 60,
    "empties.json": "[" + "{}," * 2_000_000 + "{}]",
    "strings.json": '{"kind": "' + "x" * 30_000_000 + '"}',
    "key.yaml": '"' + "k" * 5_000_000 + '": 1',
    "fields.json": "{" + "".join(f'"k{i}":0,' for i in range(500_000)) + f'{API}, "kind": "Gang"}}',
    "nodes.json": CLUSTER_JSON + "0," * 900_000 + "0]}}",
    "bad-nodes.json": CLUSTER_JSON + "0," * 190_000 + "0]}}",
    "scalars.yaml": "[" + "x," * 500_000 + "x]",
}

CHILD = """
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, (1_500_000_000, 1_500_000_000))
resource.setrlimit(resource.RLIMIT_CPU, (60, 60))
from planner.errors import InputError
from planner.read.inputs import read
try:
    read([sys.argv[1]])
except InputError as error:
    for fault in error.faults:
        print("\\n".join(fault.lines()))
    sys.exit(65)
"""


def child(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *arguments]
    return subprocess.run(
        command, check=False, cwd=ROOT, capture_output=True, text=True, timeout=HANG_S
    )


# The largest bombs take seconds: six small ones are the sample.
@pytest.mark.parametrize(
    "name", first_fast(sorted(BOMBS, key=lambda name: (name == "bad-nodes.json", name)), 6)
)
def test_a_bomb_is_refused_in_bounded_memory_and_time(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text(BOMBS[name])
    result = child("-c", CHILD, str(path))
    assert result.returncode == 65, result.stderr[-2000:]
    assert result.stdout.startswith("error: ")
    assert max(map(len, result.stdout.splitlines())) < 1000


@pytest.mark.parametrize(
    ("name", "start", "deeper", "place"),
    [
        # The 66th value inside one another: behind 65 brackets, or 65 fields of five characters.
        ("deep.json", "", "[", "1:66"),
        ("deep-objects.json", "", '{"a":', "1:331"),  # 66 of them: the document is read for itself
        (
            "deep-item.json",
            '{"kind": "List", "items": [\n {"a":\n',
            "[",
            "3:65",
        ),  # behind a brace and 64 brackets
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
            file.write(deeper * 1_000_000)
    began = time.process_time()
    with pytest.raises(InputError) as refused:
        read([str(path)])
    assert time.process_time() - began < 20
    (fault,) = refused.value.faults
    assert fault.what == "nested more than 64 levels deep"
    assert fault.file == str(path)
    assert f"{fault.line}:{fault.column}".startswith(place)
    assert fault.hint is not None


@pytest.mark.parametrize(
    ("start", "more"),
    [
        ('{"kind": "List", "items": [\n {"kind": "Pod"}, [', "[],"),
        pytest.param(
            '{"kind": "List", "items": [\n {"kind": "Pod"}, {"a":[0,',
            '{"b":1},',
            marks=pytest.mark.slow,
        ),
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
            file.write(more * 1_000_000)
    result = child("-c", CHILD, str(path))
    assert result.returncode == 65, result.stderr[-2000:]
    what, place = result.stdout.splitlines()[:2]
    assert what == "error: an item of more than 1,000,000 values or 32 Mi characters"
    assert place == f"  --> {path}:2:19"  # behind a blank and the pod


@pytest.mark.slow
def test_a_large_cluster_is_read_in_seconds(tmp_path: Path) -> None:
    def node(i: int) -> dict[str, object]:
        domains = {"block": f"b{i // 100}", "rack": f"r{i // 8}"}
        room = {"cpu": "208", "memory": "2Ti", "pods": 110}
        return {"name": f"n{i:05d}", "model": "DGX H100", "domains": domains, "allocatable": room}

    levels = [{"name": "block"}, {"name": "rack"}]
    cluster = {
        "apiVersion": "gangplan.dev/v1alpha1",
        "kind": "Cluster",
        "metadata": {"name": "c"},
        "spec": {"levels": levels, "nodes": [node(i) for i in range(5000)]},
    }
    (tmp_path / "c.json").write_text(json.dumps(cluster))
    (tmp_path / "c.yaml").write_text(yaml.dump(cluster, Dumper=yaml.CSafeDumper))
    for name, budget in (("c.json", 1.0), ("c.yaml", 3.0)):
        start = time.process_time()
        assert len(read([str(tmp_path / name)]).cluster.nodes) == 5000
        assert time.process_time() - start < budget


def test_reading_does_not_load_the_solver_or_the_screen() -> None:
    loaded = "print(sorted({'ortools', 'rich', 'jinja2', 'pandas', 'numpy'} & set(sys.modules)))"
    code = (
        f"import sys; from planner.read.inputs import read; read(['inputs/quickstart']); {loaded}"
    )
    assert child("-c", code).stdout.strip() == "[]"
