"""Volumes of waiting pods: which nodes reach them, and what makes a gang wait."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kube import node, pod
from kube_gangs import owned, thing
from kube_volumes import claim, loaded, storage_class, using, volume
from outcomes import planned

from planner.read.kube.gangs.roles import MAX_TIES
from planner.read.kube.pods.volumes import (
    MAX_CLAIMS,
    TOO_MANY_CLAIMS,
)
from planner.show.reason_words import words

Tree = dict[str, Any]


def gang(size: int, *claims: str, name: str = "j", gpus: int = 8, **fields: Any) -> list[Tree]:  # noqa: ANN401
    """A Job of gated pods; ``claims``: of each, {} its index."""
    spec = {"parallelism": size, "completions": size, "completionMode": "Indexed"}
    pods = []
    for i in range(size):
        made = pod(
            f"{name}-{i}",
            gpus=gpus,
            labels={"batch.kubernetes.io/job-completion-index": str(i)},
            **{"gated": True, "volumes": using(*(one.format(i) for one in claims)), **fields},
        )
        pods.append(owned(made, "Job", "batch/v1", name))
    return [thing("Job", "batch/v1", name, spec), *pods]


def places(folder: Path, *trees: Tree, name: str = "j") -> list[str] | str:
    """The nodes of a gang's pods, sorted; the reason if it waits."""
    outcome = planned(loaded(folder, *trees).instance, small=False)
    reason = outcome.of(name).reason
    if outcome.decision(name) == "wait":
        assert reason is not None
        return f"{reason.code}: {words(reason)}"
    return sorted(outcome.nodes(name))


def nodes(count: int, **labels: str) -> list[Tree]:
    return [node(f"n{i}", **labels) for i in range(count)]


# bounds


def test_a_pod_of_more_claims_than_are_read_waits(tmp_path: Path) -> None:
    csi = storage_class("csi")
    for count in (MAX_CLAIMS, MAX_CLAIMS + 1):
        names = [f"c{i}" for i in range(count)]
        trees = [*nodes(1), csi, *(claim(name, of="csi") for name in names), *gang(1, *names)]
        found = places(tmp_path, *trees)
        assert found == (["n0"] if count == MAX_CLAIMS else f"Unsupported: {TOO_MANY_CLAIMS}")


def test_a_role_falls_into_so_many_and_no_more(tmp_path: Path) -> None:
    for size, held in ((MAX_TIES, False), (MAX_TIES + 1, True)):
        bound = [claim(f"c{i}", volumeName=f"p{i}", phase="Bound") for i in range(size)]
        disks = [volume(f"p{i}", f"n{i}", phase="Bound") for i in range(size)]
        trees = [*nodes(size), storage_class(), *bound, *disks, *gang(size, "c{}")]
        (found,) = loaded(tmp_path, *trees).instance.gangs
        assert len(found.roles) == (1 if held else MAX_TIES)
        assert (found.hold is not None) == held
