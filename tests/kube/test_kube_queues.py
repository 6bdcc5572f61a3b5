"""Queues of Kueue, KAI, Volcano and scheduler-plugins as queues of the instance."""

from __future__ import annotations

from pathlib import Path

import kube
import pytest
from kube_queues import GPU, Tree, by_name, kueue, read, thing

from planner.read.instance_builder import LoadedInput
from planner.read.kube import queues
from planner.read.kube.dialects import kueue_quotas, scheduler_plugins


def wanting(name: str, namespace: str = "research", **labels: str) -> Tree:
    """A waiting pod of one GPU, which is a gang."""
    return kube.pod(name, namespace=namespace, gpus=1, gated=True, labels=labels)


def queue_of(found: LoadedInput) -> dict[str, str | None]:
    return {gang.name: gang.queue for gang in found.instance.gangs}


def parent(found: LoadedInput, name: str) -> str | None:
    above = by_name(found)[name].parent
    return None if above is None else found.instance.queues[above].name


def said(found: LoadedInput, what: str) -> bool:
    return any(what in line for line in found.remarks)


def kai(name: str, above: str | None = None, **gpu: float) -> Tree:
    spec: Tree = {"resources": {"gpu": gpu, "cpu": {"quota": -1, "limit": -1}}}
    return thing(
        "scheduling.run.ai/v2", "Queue", name, spec | {"parentQueue": above} if above else spec
    )


def elastic(name: str, namespace: str, spec: Tree) -> Tree:
    return thing(f"{scheduler_plugins.GROUP}/v1alpha1", "ElasticQuota", name, spec, namespace)


MINE = elastic("mine", "research", {"min": {GPU: 20}, "max": {GPU: 4}})


def test_circles_and_towers_of_parents_are_cut(tmp_path: Path) -> None:
    tower = [kai(f"t{i}", f"t{i + 1}", quota=1) for i in range(queues.MAX_DEPTH + 2)]
    found = read(
        tmp_path,
        kai("a", "b", quota=1),
        kai("b", "a", quota=1),
        kai("c", "lost", quota=1),
        kueue("Cohort", "x", {"parentName": "y"}),
        kueue("Cohort", "y", {"parent": "x"}, version="v1alpha1"),
        kueue("ClusterQueue", "in-x", {"cohortName": "x"}),
        *tower,
    )
    assert sorted(filter(None, (parent(found, name) for name in "ab"))) in (["a"], ["b"])
    assert parent(found, "c") is None
    assert sorted(filter(None, (parent(found, f"cohort-{name}") for name in "xy"))) in (
        ["cohort-x"],
        ["cohort-y"],
    )
    heights = []
    for queue in found.instance.queues:
        at, height = queue.parent, 0
        while at is not None:
            at, height = found.instance.queues[at].parent, height + 1
        heights.append(height)
    assert max(heights) == queues.MAX_DEPTH
    for what in (queues.CIRCLE, queues.TOO_DEEP, queues.NO_PARENT, kueue_quotas.CIRCLE):
        assert said(found, what), what


def test_queues_beyond_the_bound_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queues, "MAX_QUOTAS", 2)
    found = read(
        tmp_path,
        MINE,
        *(kai(name, quota=1) for name in ("a", "b", "c")),
        wanting("one", **{"kai.scheduler/queue": "c"}),
        wanting("two"),
    )
    assert set(by_name(found)) == {"a", "b"}
    assert queue_of(found) == {"one": "c", "two": None}  # a name that limits nothing
    assert said(found, queues.TOO_MANY)
