"""Under ``order: shortest`` no tenant is taken for shorter than it is by what it writes.

The cases are in ``length_attacks.yaml``: documents in, the decision about the victim out.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kube
import pytest
import yaml
from outcomes import planned

from planner.read.inputs import load

CASES = yaml.safe_load((Path(__file__).parent / "length_attacks.yaml").read_text())
OWN = {"apiVersion": "gangplan.dev/v1alpha1"}
NOW = "2026-11-20T12:00:00Z"


def at(clock: str) -> str:
    return f"2026-11-20T{clock}:00Z"


def named(key: str) -> dict[str, str]:
    namespace, name = key.split("/")
    return {"name": name, "namespace": namespace}


def gang(key: str, given: dict[str, Any]) -> dict[str, Any]:
    spec, count = dict(given), given.get("pods", 1)
    gpus, clock, since = spec.pop("gpus", 8), spec.pop("at"), spec.pop("since", None)
    first, runs, _ = spec.pop("first", since), spec.pop("runs", count), spec.pop("pods", None)
    role = {"name": "w", "replicas": count, "gpus": gpus}
    found = OWN | {"kind": "Gang", "metadata": named(key)}
    found["spec"] = spec | {"submittedAt": at(clock), "roles": [role]}
    if since is not None:
        pods = [
            {"name": f"w-{i}", "role": "w", "index": i, "node": f"n{i}", "gpus": [*range(gpus)]}
            for i in range(runs)
        ]
        found["status"] = {"startedAt": at(since), "runsSince": at(first), "pods": pods}
    return found


def job(key: str, given: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """An indexed Job of pods of eight GPUs."""
    meta = named(key) | {"uid": key, "creationTimestamp": at(given["at"])}
    count = given["pods"]
    marks = {f"gangplan.dev/{name}": said for name, said in given.get("annotations", {}).items()}
    spec = {"parallelism": count, "completions": count, "completionMode": "Indexed"}
    if "deadline" in given:
        spec["activeDeadlineSeconds"] = given["deadline"]
    head = {"apiVersion": "batch/v1", "kind": "Job"}
    yield head | {"metadata": meta | {"annotations": marks}, "spec": spec}
    for index in range(count):
        labels = {"batch.kubernetes.io/job-completion-index": str(index)}
        pod = kube.pod(
            f"{meta['name']}-{index}",
            namespace=meta["namespace"],
            gpus=8,
            gated=True,
            labels=labels,
        )
        owner = head | {"name": meta["name"], "uid": key, "controller": True}
        pod["metadata"] |= {
            "creationTimestamp": meta["creationTimestamp"],
            "ownerReferences": [owner],
        }
        yield pod


def past(rows: list[Any]) -> Iterator[dict[str, Any]]:
    """The jobs of a trace."""
    for number, (namespace, count, seconds, pods, gpus, *more) in enumerate(rows):
        for i in range(count):
            found = {"name": f"j{number}-{i}", "namespace": namespace, "submitSeconds": 60 * i}
            found |= {"durationSeconds": seconds, "pods": pods, "gpus": gpus}
            if more and more[0]:
                found["queue"] = more[0]
            yield found | (more[1] if len(more) > 1 else {})


def documents(case: dict[str, Any], without: str | None) -> Iterator[dict[str, Any]]:
    """The input, or what is left of it without a namespace in the trace and in the queue."""
    names = [f"n{i}" for i in range(case["nodes"])]
    if "jobs" in case:
        model = {"gangplan.dev/server-model": "DGX H100"}
        for name in names:
            node = kube.node(name)
            node["metadata"]["annotations"] = model
            yield node
    else:
        nodes = [{"name": name, "model": "DGX H100"} for name in names]
        yield OWN | {"kind": "Cluster", "metadata": {"name": "c"}, "spec": {"nodes": nodes}}
    policy = {"now": NOW, "order": "shortest", "minRunTime": "30m"}
    yield OWN | {"kind": "Policy", "spec": policy | case.get("policy", {})}
    jobs = [*past(row for row in case.get("trace", ()) if row[0] != without)]
    if jobs:
        yield OWN | {"kind": "Trace", "metadata": {"name": "t"}, "spec": {"jobs": jobs}}
    for key, given in case.get("gangs", {}).items():
        if not key.startswith(f"{without}/"):
            yield gang(key, given)
    for key, given in case.get("jobs", {}).items():
        if not key.startswith(f"{without}/"):
            yield from job(key, given)


@pytest.mark.parametrize("without", [None, "mallory"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case["name"]))
def test_no_tenant_is_taken_for_shorter_than_it_is(
    case: dict[str, Any], without: str | None, tmp_path: Path
) -> None:
    path = tmp_path / "input.json"
    items = [*documents(case, without)]
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    outcome = planned(load([str(path)]).instance)
    victims = [one for one in outcome.instance.gangs if one.namespace == "victim"]
    assert [outcome.decision(one.name) for one in victims] == [case["victim"]]
