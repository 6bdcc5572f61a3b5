"""What a plan, its tables, explanations and metrics say of queues."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import handmade
import yaml
from conftest import RunCli

from models.documents.plan import PlanDocument, PlanQueue
from planner.show import metrics
from planner.show.run import RunReport

KEY = {"apiVersion": "gangplan.dev/v1alpha1"}


def queue(name: str, **spec: Any) -> dict[str, Any]:  # noqa: ANN401
    return {**KEY, "kind": "Queue", "metadata": {"name": name}, "spec": spec}


def save(tmp_path: Path, *documents: dict[str, Any]) -> str:
    nodes = [
        {"name": f"n{i}", "model": "DGX H100", "domains": {"rack": f"r{i % 2}"}}
        for i in range(1, 5)
    ]
    nodes.append({"name": "v1", "model": "DGX-1 V100", "domains": {"rack": "r9"}})
    spec = {"levels": [{"name": "rack"}], "nodes": nodes}
    cluster = {**KEY, "kind": "Cluster", "metadata": {"name": "both"}, "spec": spec}
    path = tmp_path / "in.yaml"
    path.write_text(yaml.safe_dump_all([cluster, *documents]))
    return str(path)


def gang(name: str, of: str, replicas: int, *nodes: str) -> dict[str, Any]:
    """Pods of 8 GPUs; those on nodes run. One that waits may borrow."""
    role = {"name": "worker", "replicas": replicas, "gpus": 8, "mixModels": True}
    pods = [
        {"role": "worker", "index": i, "node": node, "gpus": list(range(8))}
        for i, node in enumerate(nodes)
    ]
    about = {"name": name, "namespace": "default"}
    spec = {"queue": of, "preemptible": not nodes, "roles": [role]}
    return {**KEY, "kind": "Gang", "metadata": about, "spec": spec, "status": {"pods": pods}}


QUEUES = (
    queue("company"),
    queue(
        "research",
        parent="company",
        guarantee={"models": {"H100": 8, "V100": 8}},
        borrowing=False,
        limit={"models": {"H100": 64}},
        cells=[
            {"count": 1, "level": "rack"},
            {"count": 2, "gpus": 4, "model": "V100"},
            {"count": 1, "level": "rack"},
        ],
    ),
    queue("product", parent="company", guarantee={"gpus": 8}, limit={"gpus": 40}),
)


def test_a_plan_states_what_queues_are_promised_and_hold(cli: RunCli, tmp_path: Path) -> None:
    path = save(
        tmp_path,
        *QUEUES,
        gang("a", "research", 2, "n1", "v1"),
        gang("b", "product", 1, "n2"),
        gang("c", "product", 1),
        gang("d", "research", 9),
        gang("e", "unheard-of", 1),
    )
    saved = str(tmp_path / "out.plan")
    assert cli("plan", path, "--out", saved).code == 0
    stated = json.loads(Path(saved).read_text())["status"]["queues"]
    models = [
        # without borrowing the guarantee ends what the limit would allow
        {"model": "h100", "guarantee": 8, "limit": 8, "before": 8, "after": 8},
        {"model": "v100", "guarantee": 8, "limit": 8, "before": 8, "after": 8},
    ]
    cells = [
        {"count": 2, "level": "rack", "model": "h100"},
        {"count": 2, "gpus": 4, "model": "v100"},
    ]
    of_company = {"guarantee": 0, "before": 24, "after": 32, "borrowed": 32, "waiting": 72}
    assert stated == [
        {"name": "company", **of_company},
        {
            "name": "product",
            "parent": "company",
            "guarantee": 8,
            "limit": 40,
            "before": 8,
            "after": 16,
            "borrowed": 8,
            "waiting": 0,
        },
        {
            "name": "research",
            "parent": "company",
            # two racks of two servers of 8 and two halves of one, not 8 + 8
            "guarantee": 2 * 16 + 2 * 4,
            "limit": 40,
            "before": 16,
            "after": 16,
            "borrowed": 0,
            "waiting": 72,
            "models": models,
            "cells": cells,
        },
    ]
    shown = cli("show", saved, "-o", "wide").out
    assert "research             company         40     40      16     16" in shown
    assert "2 rack of h100, 2 x 4 GPUs of v100" in shown
    explained = cli("explain", saved, "default/c").out
    rows = [line.split() for line in explained.splitlines()]
    assert ["product", "company", "8", "40", "8", "16", "8", "0"] in rows
    assert ["company", "0", "-", "24", "32", "32", "72"] in rows
    document = json.loads(cli("explain", saved, "default/c", "-o", "json").out)
    assert [one["name"] for one in document["queues"]] == ["product", "company"]


def test_the_metrics_of_many_queues_end() -> None:
    amounts = {"guarantee": 8, "before": 1, "after": 2, "borrowed": 0, "waiting": 3}
    names = [f"q{i:04}" for i in range(metrics.MAX_QUEUES + 1)]
    queues = [PlanQueue.model_construct(name=name, limit=None, **amounts) for name in names]
    queues[0] = queues[0].model_copy(update={"limit": 9, "name": 'q"0'})
    plan = PlanDocument.model_validate(handmade.plan())
    status = plan.status.model_copy(update={"queues": queues})
    run = RunReport(decided=plan.model_copy(update={"status": status}))
    text = metrics.text(run, None)
    assert 'gangplan_queue_limit_gpus{queue="q\\"0"} 9' in text
    assert text.count("gangplan_queue_limit_gpus{") == 1
    assert 'gangplan_queue_held_gpus{queue="q0001"} 2' in text
    assert text.count("gangplan_queue_waiting_gpus{") == metrics.MAX_QUEUES
