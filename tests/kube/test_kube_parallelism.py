"""Degrees of parallelism in annotations of Kubernetes objects, and ranks on pods that run."""

from __future__ import annotations

from typing import Any

import pytest
from bundles import load_all
from kube import node, pod
from kube_gangs import owned, thing
from test_kube_communication import TRUSTING, job, worker

from models.documents.gang import Parallelism
from models.instance.gang import Gang
from planner.read.instance_builder import LoadedInput
from planner.read.kube.pods.placement import PROVEN

KEY = "gangplan.dev/parallelism"
DEGREES = Parallelism(tensor=8, pipeline=2)

Tree = dict[str, Any]


def workers(count: int, notes: dict[str, str] | None = None, gpus: int = 8) -> list[Tree]:
    return [worker(i, gpus=gpus, notes=notes) for i in range(count)]


def built(*objects: Tree) -> LoadedInput:
    return load_all([node(f"n{i}") for i in range(4)] + [TRUSTING, *objects])


def gang_of(found: LoadedInput) -> Gang:
    (gang,) = found.instance.gangs
    return gang


def test_degrees_stand_on_the_controller_or_on_every_pod() -> None:
    notes = {KEY: "tensor=8,pipeline=2"}
    for objects in ([job(4, annotations=notes), *workers(4)], [job(4), *workers(4, notes)]):
        found = built(*objects)
        assert gang_of(found).roles[0].parallelism == DEGREES
        assert not [line for line in found.remarks if KEY in line]


@pytest.mark.parametrize(
    "written",
    [
        "", " ", "8", "tensor", "tensor=", "tensor=8.0", "tensor=-8", "tensor=0", "tensor=8,tensor=8",
        "depth=2", "tensor=\u0668", "tensor=9999999", "[8]", '{"tensor": 8}', "tensor=" + "9" * 480,
        "tensor=8" + " " * 600, "tensor=8;pipeline=2",
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_a_remark(written: str) -> None:
    found = built(job(1), *workers(1, {KEY: written}))
    assert gang_of(found).roles[0].parallelism is None
    if written:
        (line,) = [line for line in found.remarks if KEY in line]
        assert line.startswith(f"Job default/j: annotation {KEY} is not like tensor=8,pipeline=4")


def test_a_tensor_group_wider_than_a_pod_is_a_slice_of_one_server() -> None:
    found = built(job(8), *workers(8, {KEY: "tensor=4"}, gpus=1))
    (role,) = gang_of(found).roles
    assert (role.slice_size, role.slice_level) == (4, found.instance.cluster.node_level)
    found = built(job(8), *workers(8, {KEY: "expert=8"}, gpus=1))
    assert gang_of(found).roles[0].slice_layers == ((8, found.instance.cluster.node_level),)
    # sixteen fit no server: experts go over the network, a tensor group is a remark
    found = built(job(16), *workers(16, {KEY: "expert=16"}, gpus=1))
    assert gang_of(found).roles[0].slice_layers == ()
    assert not [line for line in found.remarks if "network" in line]
    found = built(job(16), *workers(16, {KEY: "tensor=16"}, gpus=1))
    assert gang_of(found).roles[0].slice_layers == ()
    (line,) = [line for line in found.remarks if "tensor groups of 16 GPUs are wider" in line]
    assert line.startswith("gang default/j: role worker:")


def standing(index: int, *, proven: bool, **notes: str) -> Tree:
    made = pod(
        f"j-{index}",
        gpus=8,
        on=f"n{index}",
        labels={
            "batch.kubernetes.io/job-completion-index": str(index),
            "gangplan.dev/plan": "gp-" + "0" * 20,
        },
        annotations={"gangplan.dev/rank": notes["rank"]},
    )
    if proven:
        made[PROVEN] = True
    return owned(made, "Job", "batch/v1", "j")


@pytest.mark.parametrize(("proven", "ranks"), [(True, [8, 0]), (False, [None, None])])
def test_a_rank_counts_only_where_a_run_of_gangplan_wrote_it(
    proven: bool, ranks: list[int | None]
) -> None:
    pods = [standing(i, proven=proven, rank=str(8 - 8 * i)) for i in range(2)]
    found = built(thing("Job", "batch/v1", "j", {"completions": 2, "parallelism": 2}), *pods)
    assert [one.rank for one in gang_of(found).running_pods] == ranks
