"""What a plan, its tables, explanations and metrics say of queues."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import handmade
import yaml

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
