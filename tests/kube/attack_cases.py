"""Attacks as data: what a tenant writes against another, in short forms of the objects of a small cluster.

A case has the lists ``victim``, ``mallory`` and ``other``, whose objects are in the namespace of that
name. Short forms: ``{pod: NAME}``, with ``at`` (the node where it runs), ``gpus``, ``cpu``, ``created``,
``status``, ``metadata`` and fields of its spec; ``{job: NAME, pods: N}``, an Indexed Job of such pods, of
which the first are ``running`` on these nodes; ``{gang: NAME}`` with the spec of a Gang. Anything else is
an object as it is. Pods that do not run wait at the gate, ``native`` ones for their scheduler. There are as
many ``nodes`` as stated, else four, of 8 H100 and 200 cpu each.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from kube import node, pod

Json = dict[str, Any]
FILES = Path(__file__).parents[1].joinpath("data") / "attacks"
TENANTS = ("victim", "mallory", "other")
CREATED = "2026-11-20T08:00:00Z"
NOW = 1795176000  # 2026-11-20T12:00:00Z
GATE = [{"name": "gangplan.dev/placement"}]
_FIELDS = ("pod", "at", "gpus", "cpu", "created", "status", "metadata", "labels", "annotations")


def cases() -> dict[str, Json]:
    """Every case by its sentence."""
    found: dict[str, Json] = {}
    for path in sorted(FILES.glob("*.yaml")):
        for case in yaml.load(path.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader):
            assert found.setdefault(case["attack"], case) is case, f"{case['attack']} stands twice"
    return found


def objects(case: Json, *, without: str = "") -> list[Json]:
    """The objects of the case, without those of one tenant."""
    model = {"gangplan.dev/server-model": case.get("model", "DGX H100")}
    found = [h100(f"gpu-{i}", model, case) for i in range(1, case.get("nodes", 4) + 1)]
    for namespace in ("kube-system", *TENANTS):
        metadata = {"name": namespace, "uid": f"uid-{namespace}"}
        found.append({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    spec = {"now": "2026-11-20T12:00:00Z", **case.get("policy", {})}
    found.append(_document("Policy", "p", spec))
    found += copy.deepcopy(case.get("cluster", []))
    for tenant in TENANTS:
        if tenant != without:
            for one in copy.deepcopy(case.get(tenant, [])):
                found += _expanded(one, tenant)
    return found


def h100(name: str, model: Json, case: Json) -> Json:
    made = node(name)
    made["metadata"]["labels"] |= case.get("labels", {}) | {
        "block": "b0" if name < "gpu-3" else "b1"
    }
    made["metadata"]["annotations"] = model
    for amounts in (made["status"]["capacity"], made["status"]["allocatable"]):
        amounts |= {"cpu": "200", "memory": "2Ti", "pods": "110", **case.get("allocatable", {})}
    return made


def _expanded(one: Json, namespace: str) -> Iterator[Json]:
    if "pod" in one:
        yield _pod(one, namespace)
    elif "job" in one:
        yield from _job(one, namespace)
    elif "gang" in one:
        name = one.pop("gang")
        status = {"status": one.pop("status")} if "status" in one else {}
        yield {**_document("Gang", name, one, namespace), **status}
    else:
        one["metadata"].setdefault("namespace", namespace)
        one["metadata"].setdefault("creationTimestamp", CREATED)
        yield one


def _document(kind: str, name: str, spec: Json, namespace: str | None = None) -> Json:
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
    return {
        "apiVersion": "gangplan.dev/v1alpha1",
        "kind": kind,
        "metadata": metadata,
        "spec": spec,
    }


def _pod(one: Json, namespace: str) -> Json:
    spec = {key: value for key, value in one.items() if key not in _FIELDS}
    if one.get("at") is None and not spec.pop("native", False):
        spec.setdefault("schedulingGates", GATE)
    made = pod(
        one["pod"],
        namespace=namespace,
        gpus=one.get("gpus", 0),
        on=one.get("at"),
        labels=one.get("labels"),
        annotations=one.get("annotations"),
        **spec,
    )
    made["metadata"] |= {"creationTimestamp": one.get("created", CREATED)} | one.get("metadata", {})
    for container in made["spec"]["containers"]:
        requests = container.setdefault("resources", {}).setdefault("requests", {})
        requests["cpu"] = str(one.get("cpu", 1))
    made["status"] |= one.get("status", {})
    return made


def _job(one: Json, namespace: str) -> Iterator[Json]:
    name, count, running = one.pop("job"), one.pop("pods"), one.pop("running", [])
    uid, created = f"uid-{namespace}-{name}", one.get("created", CREATED)
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": uid, "controller": True}
    yield {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": uid,
            "creationTimestamp": one.pop("made", created),
            "annotations": one.pop("notes", {}),
        },
        "spec": {
            "parallelism": count,
            "completions": count,
            "completionMode": "Indexed",
            **one.pop("spec", {}),
        },
    }
    for index in range(count):
        labels = {"batch.kubernetes.io/job-completion-index": str(index), "job-name": name}
        own = {**one, "pod": f"{name}-{index}", "labels": labels | one.get("labels", {})}
        if index < len(running):
            own |= {"at": running[index], "created": one.get("started", created)}
        own.pop("started", None)
        made = _pod(own, namespace)
        made["metadata"]["ownerReferences"] = [owner]
        yield made
