"""Indexes of pods without index labels: from names, replicas, sub-groups and labels of parts."""

from __future__ import annotations

from typing import Any

import pytest
from kube import pod
from kube_gangs import owned, read, thing


def ray_pod(name: str, replica: str, host: int, **labels: str) -> dict[str, Any]:
    return pod(
        name,
        gpus=1,
        gated=True,
        labels={
            "ray.io/cluster": "ray-x7k2p",
            "ray.io/node-type": "worker",
            "ray.io/group": "tp",
            "ray.io/replica-host-index": str(host),
            "ray.io/worker-group-replica-name": replica,
            **labels,
        },
    )


def ray_cluster(**metadata: object) -> dict[str, Any]:
    spec = {"workerGroupSpecs": [{"groupName": "tp", "replicas": 2, "numOfHosts": 2}]}
    return thing("RayCluster", "ray.io/v1", "ray-x7k2p", spec, **metadata)


@pytest.mark.parametrize("there", [True, False])
def test_the_cluster_of_a_ray_job_goes_by_the_name_of_the_job(there: bool) -> None:
    origin = {"ray.io/originated-from-crd": "RayJob", "ray.io/originated-from-cr-name": "tune"}
    made = owned(ray_cluster(), "RayJob", "ray.io/v1", "tune")
    job = thing("RayJob", "ray.io/v1", "tune", {})
    pods = [ray_pod("a", "tp-a", 0, **origin)]
    submitter = owned(pod("tune-s", gated=True), "Job", "batch/v1", "tune")
    given = [made, job] if there else []
    gangs, _ = read(*given, *pods, submitter)
    assert {name: gang.kind for name, gang in gangs.items()} == {
        "tune": "RayJob",
        "tune-job": "Job",
    }
