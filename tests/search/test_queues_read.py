"""Queues as documents and as Kueue has them: pins, what is not lent, order; and what is shown of pins."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import kube
import yaml
from building import instance_document
from conftest import RunCli
from kube_queues import FLAVORS, by_name, groups, kueue, read
from stated_cases import instance_of

from models.instance.queue import Amount, Pin
from models.results.plan import compose
from models.verify.check import check
from planner.read.inputs import instance_from_document, load
from planner.search.solve import solve

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


def test_lending_limits_of_cluster_queues_and_cohorts_are_read(tmp_path: Path) -> None:
    quota = {"nominalQuota": 8, "lendingLimit": "3"}
    team = groups(("h100", quota), ("a100", {"nominalQuota": 4}))
    above = groups(("h100", {"nominalQuota": 1, "lendingLimit": 5}))
    found = read(
        tmp_path,
        *FLAVORS,
        kueue("ClusterQueue", "team", {"cohortName": "all", "resourceGroups": team}),
        kueue("ClusterQueue", "alone", {"resourceGroups": groups(("h100", quota))}),
        kueue("Cohort", "all", {"parentName": "company", "resourceGroups": above}),
    )
    limits = {name: one.lending_limit for name, one in by_name(found).items()}
    # 3 of 8 H100, and all 4 A100; 5 of 8 + 1 H100, and the A100 of its member
    assert limits["team"] == Amount(7, (("a100", 4), ("h100", 3)))
    assert limits["cohort-all"] == Amount(9, (("a100", 4), ("h100", 5)))
    # Kueue takes no lending limit without a cohort
    assert limits["alone"] == Amount()


def test_strict_fifo_of_a_cluster_queue_is_read(tmp_path: Path) -> None:
    spec = {"resourceGroups": groups(("any", {"nominalQuota": 3}))}
    orders = {"strict": "StrictFIFO", "loose": "BestEffortFIFO", "plain": None}
    specs = {
        name: spec | ({"queueingStrategy": own} if own else {}) for name, own in orders.items()
    }
    found = read(tmp_path, *(kueue("ClusterQueue", name, own) for name, own in specs.items()))
    assert [one.name for one in by_name(found).values() if one.strict] == ["strict"]


def test_the_canonical_form_of_pins_reads_as_the_same_instance(tmp_path: Path) -> None:
    pins = [{"level": "rack", "domain": "r0"}, {"nodes": ["n[1,3]"]}, {"count": 1, "level": "rack"}]
    found = load([save(tmp_path, queue("a", cells=pins))]).instance
    assert found.queues[0].pins == (Pin(0, "r0"), Pin(nodes=("n1", "n3")))
    document = instance_document(found)
    assert document["queues"][0]["spec"]["cells"] == [
        {"count": 1, "level": "rack"},
        {"level": "rack", "domain": "r0"},
        {"nodes": ["n1", "n3"]},
    ]
    path = tmp_path / "again.yaml"
    path.write_text(
        yaml.safe_dump_all([document["cluster"], document["policy"], *document["queues"]])
    )
    assert instance_document(load([str(path)]).instance) == document


def test_what_is_gone_from_a_live_cluster_is_a_remark(tmp_path: Path) -> None:
    items = {"apiVersion": "v1", "kind": "List", "items": [kube.node("n1"), kube.node("n2")]}
    (tmp_path / "objects.yaml").write_text(yaml.safe_dump(items))
    cells = [{"nodes": ["n[1-3]"]}]
    (tmp_path / "queue.yaml").write_text(yaml.safe_dump(queue("a", cells=cells)))
    found = load([str(tmp_path)])
    assert found.instance.queues[0].pins == (Pin(nodes=("n1", "n2")),)
    assert any("pins node 'n3', which is not in the cluster" in line for line in found.remarks)


def test_explain_names_pinned_nodes_and_whose_they_are(tmp_path: Path, cli: RunCli) -> None:
    roles = [{"name": "worker", "replicas": 2, "gpus": 8, "mixModels": True}]
    pin = queue("a", cells=[{"nodes": ["n[1-3]"]}])
    path = save(tmp_path, pin, {**gang("g", "b", 2), "spec": {"roles": roles}})
    plan = str(tmp_path / "plan.json")
    assert cli("plan", path, "--out", plan).code == 0
    assert "pinned to queue a" in cli("explain", plan, "g").out
    assert "node n[1-3]" in cli("show", plan).out


def test_pinned_gpus_are_stated_as_a_guarantee() -> None:
    instance = instance_of(
        {"nodes": "2x2", "queues": {"a": "pins=[n01&n02]"}, "gangs": {"g": "4x8"}}
    )
    plan = compose(
        instance, solve(instance), name="p", created_at="2026-11-21T00:00:00Z", generator="t"
    )
    assert check(plan) == []
    (stated,) = plan["status"]["queues"]
    assert (stated["guarantee"], stated["cells"]) == (16, [{"count": 2, "nodes": ["n01", "n02"]}])


def test_a_plan_in_bands_states_own_priorities_and_its_instance_is_read_as_it_was() -> None:
    gangs = {
        "a": "1x8 left=60s priority=7 submitted=-1m",
        "b": "1x8 on=n01 preemptible priority=-3",
    }
    policy = {"order": "shortest", "now": "0s"}
    instance = instance_of({"nodes": 1, "gangs": gangs, "policy": policy})
    document = json.loads(json.dumps(instance_document(instance)))
    assert [one["spec"]["priority"] for one in document["gangs"]] == [7, -3]
    again = instance_from_document(document)
    assert [one.priority for one in again.gangs] == [one.priority for one in instance.gangs]
    assert [one.priority for one in instance.gangs] != [7, -3]
