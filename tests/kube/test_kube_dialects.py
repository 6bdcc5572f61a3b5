"""Dialects: each is one file that nothing else names, and the rest stands without it."""

from __future__ import annotations

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
    labels, slots = {toy_dialect.CREW: "miners"}, {toy_dialect.SLOTS: "2,5"}
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
        kube.pod("miners-0", gpus=2, on="n1", labels=labels, annotations=slots),
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
    names = [one.name for one in (*registry.group_readers(), *registry.holding_readers())]
    kinds = [one.kind for one in registry.controller_readers()]
    for some in ([one.name for one in registry.DIALECTS], names, kinds):
        assert len(set(some)) == len(some)


EACH = [
    str(file.relative_to(ROOT))
    for file in sorted((ROOT / "planner").rglob("*.py"))
    if re.search("^(DIALECT|BACKEND) = ", file.read_text(), re.MULTILINE)
]
EACH += ["planner/read/hived.py", "planner/read/slurm"]
"""Every scheduler or controller, source of levels, back end, and input of another system."""

SCRIPT = """
import importlib, json, pkgutil, sys
import planner.cluster, planner.pipelines, planner.read
from short_forms import brief, cases, read
program, *words = sys.argv[1:]
assert planner.__file__.startswith(program)
for package in (planner.read, planner.cluster, planner.pipelines):
    for one in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        importlib.import_module(one.name)
for param in importlib.import_module("test_cases").GROUPS:
    for objects, expected in cases(param.values[0]):
        text = json.dumps(objects, default=str)
        if not any(one in text for one in words):
            found = brief(read(objects))
            assert found == {k: v for k, v in expected.items() if k != "plan"}, param.id
            print(param.id)
"""
"""Imports every module, and reads the cases that have none of the words that are given."""


def words_of(part: str) -> set[str]:
    """What the code of a part names: labels, API groups, resources, kinds."""
    files = [ROOT / part] if part.endswith(".py") else (ROOT / part).rglob("*.py")
    found = {w.strip("./-") for file in files for w in re.findall(r"[\w./-]+", file.read_text())}
    kinds = {kind.name for kind in ALL} - {"Pod", "Node"}
    names = r"\w+[./-].+|[A-Z][a-z]+[A-Z].+|[a-z]+Ref"
    return {w for w in found if w in kinds or re.fullmatch(names, w)}


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


@pytest.mark.parametrize("part", first_fast(("", *EACH)))
def test_the_rest_stands_without_any_of_them(part: str, tmp_path: Path) -> None:
    """Without each, and without all: what has nothing of it is read as before."""
    parts = [part] if part else EACH
    program = without(parts, tmp_path / "program")
    tests = (program / "tests" / one for one in ("", "kube", "oracle", "search", "documents"))
    path = os.pathsep.join(map(str, (program, *tests)))
    command = [sys.executable, "-P", "-B", "-c", SCRIPT, str(program)]
    command += sorted(set[str]().union(*map(words_of, parts)))
    env = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout
