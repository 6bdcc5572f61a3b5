"""Dialects: each is one file that nothing else names, and the rest stands without it."""

from __future__ import annotations

import os
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
    """Without each, and without all but Kubernetes' own objects, of which pods and Jobs are."""
    place = without([part] if part else EACH, tmp_path / "program")
    done = subprocess.run(
        [sys.executable, "-P", "-c", IMPORTED, str(SNAPSHOTS / "v100-mpi"), str(place)],
        env={**os.environ, "PYTHONPATH": str(place), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    nodes, gangs = map(int, done.stdout.split())
    assert nodes == 4
    assert gangs > 0
