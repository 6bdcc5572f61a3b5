"""Dialects: each is one file that nothing else names, and the rest stands without it."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import kube
import pytest
import toy_dialect
from effort import first_fast
from kube import SNAPSHOTS

from planner.read.compact_cluster import catalogue_model
from planner.read.document_kinds import Documents
from planner.read.findings import Findings
from planner.read.instance_builder import LoadedInput, build
from planner.read.kube import dialect_registry as registry
from planner.read.kube.kinds import ALL

ROOT = Path(__file__).parents[2]
RACK = "example.com/rack"


def built(*trees: dict[str, Any]) -> LoadedInput:
    documents = Documents(Findings())
    for tree in trees:
        documents.gatherer.add(tree, "a test")
    return build(documents, catalogue_model)


def crew() -> list[dict[str, Any]]:
    """Two nodes of one rack; a Crew of three, of which one runs on GPUs 2 and 5 of n1."""
    labels = {toy_dialect.CREW: "miners"}
    return [
        kube.node("n1", **{RACK: "r1"}),
        kube.node("n2", **{RACK: "r1"}),
        kube.node("n3", **{RACK: "r2"}),
        {
            "apiVersion": "toy.example.com/v1",
            "kind": "Crew",
            "metadata": {"name": "miners", "namespace": "default"},
            "spec": {"hands": 3, "together": RACK},
        },
        kube.pod(
            "miners-0", gpus=2, on="n1", labels=labels, annotations={toy_dialect.SLOTS: "2,5"}
        ),
        kube.pod("miners-1", gpus=2, gated=True, labels=labels),
        kube.pod("miners-2", gpus=2, gated=True, labels=labels),
    ]


def test_a_new_dialect_is_one_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "DIALECTS", (*registry.DIALECTS, toy_dialect.DIALECT))
    found = built(*crew())
    (gang,) = found.instance.gangs
    assert (gang.name, gang.hold) == ("miners", None)
    assert [(role.max, role.gpus) for role in gang.roles] == [(3, 2)]
    assert gang.required is not None
    assert found.instance.cluster.levels[gang.required].label == RACK
    # GPUs 2 and 5: bits 2 and 5
    assert [pod.gpus for pod in gang.pods] == [1 << 2 | 1 << 5, None, None]


def test_without_it_the_pods_are_gangs_of_one() -> None:
    found = built(*crew())
    assert [gang.name for gang in found.instance.gangs] == ["miners-0", "miners-1", "miners-2"]


def test_names_of_dialects_and_readers_are_distinct() -> None:
    for names in (
        [one.name for one in registry.DIALECTS],
        [one.name for one in registry.group_readers()],
        [one.kind for one in registry.controller_readers()],
        [one.name for one in registry.holding_readers()],
    ):
        assert len(set(names)) == len(names)


READ, BACKENDS = Path("planner/read"), Path("planner/cluster/backends")
DIALECTS = READ / "kube/dialects"


def files_with(name: str, folder: Path) -> list[str]:
    found = (ROOT / folder).glob("*.py")
    return sorted(str(folder / one.name) for one in found if f"\n{name} = " in one.read_text())


EACH = [
    *files_with("DIALECT", DIALECTS),
    *files_with("BACKEND", BACKENDS),
    str(READ / "hived.py"),
    str(READ / "slurm"),
]
"""Every scheduler or controller, source of levels, back end, and input of another system."""

IMPORTED = """
import importlib, pkgutil, sys
import planner.cluster, planner.pipelines, planner.read
assert planner.__file__.startswith(sys.argv[2])
for package in (planner.read, planner.cluster, planner.pipelines):
    for one in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        importlib.import_module(one.name)
from planner.read.inputs import load
found = load([sys.argv[1]])
print(len(found.instance.cluster.nodes), len(found.instance.gangs))
"""

CASES = """
import json, sys
import test_cases
from short_forms import brief, cases, read
from planner.errors import InputError
for param in test_cases.GROUPS:
    for objects, expected in cases(param.values[0]):
        try:
            same = brief(read(objects)) == {k: v for k, v in expected.items() if k != "plan"}
        except InputError:
            same = False
        words = json.dumps(objects, default=str)
        if not same and not any(one in words for one in sys.argv[1:]):
            print(param.id)
"""
"""Prints the cases that are read otherwise, and have none of the words that are given."""


def words_of(part: str) -> list[str]:
    """What the texts in the code of a part name: labels, API groups, resources, kinds."""
    path = ROOT / part
    files = sorted(path.rglob("*.py")) if path.is_dir() else [path]
    texts = [
        one.value
        for file in files
        for one in ast.walk(ast.parse(file.read_text()))
        if isinstance(one, ast.Constant) and isinstance(one.value, str)
    ]
    found = {word.strip("./-") for text in texts for word in re.findall(r"[\w./-]+", text)}
    named = re.compile(r"\w+[./-][\w./-]+|[A-Z][a-z]+[A-Z]\w+")
    kinds = {kind.name for kind in ALL} - {"Pod", "Node"}
    return sorted(one for one in found - {"metadata.name"} if named.fullmatch(one) or one in kinds)


def without(parts: Sequence[str], place: Path) -> Path:
    """The program without these files and folders, in a folder of links."""
    gone = {ROOT / part for part in parts}
    inner = {above for one in gone for above in one.parents if above.is_relative_to(ROOT)}

    def link(folder: Path, into: Path) -> None:
        into.mkdir()
        for entry in folder.iterdir():
            if entry in inner:
                link(entry, into / entry.name)
            elif entry not in gone:
                (into / entry.name).symlink_to(entry)

    link(ROOT, place)
    return place


def run_without(parts: Sequence[str], place: Path, script: str, *more: str) -> list[str]:
    """What a script prints in the program without these parts."""
    program = without(parts, place / "program")
    folders = [program, *(program / "tests" / one for one in ("", *TEST_FOLDERS))]
    done = subprocess.run(
        [sys.executable, "-P", "-c", script, *more],
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(map(str, folders)),
            "PYTHONDONTWRITEBYTECODE": "1",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split("\n")[:-1]


TEST_FOLDERS = ("kube", "oracle", "search", "documents")


@pytest.mark.parametrize("part", first_fast(("", *EACH)))
def test_the_rest_stands_without_any_of_them(part: str, tmp_path: Path) -> None:
    """Without each, and without all: every module is there, and pods are read."""
    snapshot = (str(SNAPSHOTS / "v100-mpi"), str(tmp_path))
    (said,) = run_without([part] if part else EACH, tmp_path, IMPORTED, *snapshot)
    nodes, gangs = map(int, said.split())
    assert nodes == 4
    assert gangs > 0


@pytest.mark.slow
@pytest.mark.parametrize("part", [one for one in EACH if one.startswith(str(READ / "kube"))])
def test_without_a_dialect_only_what_names_it_is_read_otherwise(part: str, tmp_path: Path) -> None:
    assert run_without([part], tmp_path, CASES, *words_of(part)) == []


REFUSED = """
import sys
from planner.errors import InputError
from planner.read.inputs import load
try:
    load([sys.argv[1]])
except InputError as error:
    print(error.faults[0].what)
"""


@pytest.mark.parametrize(
    ("system", "written"),
    [
        pytest.param("hived", {"physicalCluster": {}, "virtualClusters": {}}, id="hived"),
        pytest.param("slurm", {"meta": {}, "nodes": []}, id="slurm"),
    ],
)
def test_a_file_of_a_system_that_is_taken_out_is_bad_input(
    system: str, written: dict[str, Any], tmp_path: Path
) -> None:
    (tmp_path / "file.json").write_text(json.dumps(written))
    part = READ / (f"{system}.py" if system == "hived" else system)
    said = run_without([str(part)], tmp_path, REFUSED, str(tmp_path / "file.json"))
    assert said == [f"a file of {system}, which this program does not read"]
