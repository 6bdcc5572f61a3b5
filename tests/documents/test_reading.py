"""What is read from good input, and how paths, formats and Lists come together."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import pytest
import yaml

from models.instance.gang import Gang
from models.instance.instance import Instance
from planner.errors import InputError
from planner.read.inputs import read

HEAD = "apiVersion: gangplan.dev/v1alpha1\n"
CLUSTER = (
    HEAD
    + """kind: Cluster
metadata: {name: two-racks, uid: c-1}
spec:
  levels:
  - {name: block, label: example.com/block, oversubscription: 2.5}
  - {name: rack, label: example.com/rack, nvlink: true}
  nodes:
  - {name: "gpu-[10,01-02]", model: dgx h100, domains: {block: b1, rack: r1}}
  - name: gpu-03
    model: DGX-H100
    domains: {block: b1}
    allocatable: {cpu: 1500.5m, memory: 1.5Gi, pods: 110, example.com/x: 2500m}
    unschedulable: true
    ready: false
    unhealthyGpus: [3, 0]
    unknownUnhealthy: 1
    labels: {zone: "010", answer: NO}
    taints: [{key: dedicated, value: infra, effect: NoSchedule}]
    nics: [{name: eth0, gbps: 2.5, gpus: [1, 0]}, {name: eth1}]
  - {name: cpu-1}
"""
)
GANG = (
    HEAD
    + """kind: Gang
metadata: {name: llama, namespace: research}
spec:
  queue: research
  priority: 100
  submittedAt: 2026-11-20T08:00:00Z
  expectedDuration: 6h
  preemptible: true
  topology: {required: block, preferred: rack, minBandwidthShare: 0.1}
  roles:
  - name: launcher
    replicas: 1
    gpus: 0
    topology: {required: node}
  - name: worker
    replicas: {min: 2, max: 6, step: 2}
    gpus: 8
    requests: {cpu: 0.0015, memory: 1.5}
    slice: {size: 2, required: rack}
    nodeSelector: {zone: "010"}
    tolerations: [{operator: Exists}]
    model: H100
    mixModels: true
  communication: {pattern: none, weight: 3}
status:
  pods:
  - {name: odd, uid: u-1, role: worker, index: 0, node: gpu-01, gpus: [7, 0, 1, 2, 3, 4, 5, 6]}
  - {role: worker, index: 1, node: gpu-02}
  - {role: launcher, index: 0, mode: gate}
"""
)


def instance_of(folder: Path, **files: str) -> Instance:
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text, encoding="utf-8")
    return read([str(folder)])


def test_every_field_of_a_cluster_is_read(tmp_path: Path) -> None:
    cluster = instance_of(tmp_path, c__yaml=CLUSTER).cluster
    assert (cluster.name, cluster.uid) == ("two-racks", "c-1")
    assert [(x.name, x.label, x.oversubscription, x.nvlink) for x in cluster.levels] == [
        ("block", "example.com/block", Fraction(5, 2), False),
        ("rack", "example.com/rack", Fraction(1), True),
    ]
    assert [node.name for node in cluster.nodes] == [
        "cpu-1",
        "gpu-01",
        "gpu-02",
        "gpu-03",
        "gpu-10",
    ]
    node = cluster.nodes[3]
    assert node.model is not None
    assert node.model.name == "DGX H100"
    assert node.domains == ("b1", None)
    # offers round down: 1500.5 millicores, 2.5 of x
    assert node.allocatable == (
        ("cpu", 1500),
        ("example.com/x", 2),
        ("memory", 1610612736),
        ("pods", 110),
    )
    assert (node.unschedulable, node.ready) == (True, False)
    assert (node.unhealthy, node.unknown_unhealthy) == (0b1001, 1)
    assert node.labels == (("answer", "NO"), ("zone", "010"))
    assert [(t.key, t.value, t.effect) for t in node.taints] == [
        ("dedicated", "infra", "NoSchedule")
    ]
    assert node.nics is not None
    assert [(nic.name, nic.megabits, nic.gpus) for nic in node.nics] == [
        ("eth0", 2500, (0, 1)),
        ("eth1", None, None),
    ]
    assert cluster.nodes[0].model is None


def test_every_field_of_a_gang_is_read(tmp_path: Path) -> None:
    (gang,) = instance_of(tmp_path, c__yaml=CLUSTER, g__yaml=GANG).gangs
    assert gang.key == ("research", "llama")
    assert (gang.queue, gang.priority, gang.preemptible, gang.movable) == (
        "research",
        100,
        True,
        False,
    )
    # date -ud 2026-11-20T08:00:00Z +%s
    assert (gang.submitted_at, gang.expected_duration_s) == (1795161600, 21600)
    assert (gang.required, gang.preferred, gang.min_bandwidth_share) == (0, 1, Fraction(1, 10))
    assert (gang.pattern, gang.weight) == ("none", 3)
    launcher, worker = gang.roles
    assert (launcher.min, launcher.max, launcher.elastic, launcher.required) == (1, 1, False, 2)
    assert (worker.min, worker.max, worker.step, worker.elastic) == (2, 6, 2, True)
    # requests round up: 1.5 millicores, 1.5 bytes
    assert worker.requests == (("cpu", 2), ("memory", 2))
    assert (worker.slice_size, worker.slice_level) == (2, 1)
    assert worker.node_selector == (("zone", "010"),)
    assert [(t.key, t.operator, t.value, t.effect) for t in worker.tolerations] == [
        ("", "Exists", "", "")
    ]
    assert (worker.model, worker.mix_models) == ("H100", True)
    assert [(p.name, p.role, p.index, p.uid, p.node, p.gpus, p.mode) for p in gang.pods] == [
        ("llama-launcher-0", 0, 0, None, None, None, "gate"),
        ("odd", 1, 0, "u-1", 1, 255, None),
        ("llama-worker-1", 1, 1, None, 2, None, None),
    ]


def test_defaults_are_those_of_the_documents(tmp_path: Path) -> None:
    text = (
        HEAD + "kind: Gang\nmetadata: {name: a}\nspec: {roles: [{name: w, replicas: 1, gpus: 1}]}\n"
    )
    instance = instance_of(tmp_path, c__yaml=CLUSTER, g__yaml=text)
    (gang,) = instance.gangs
    assert gang == Gang("default", "a", gang.roles)
    assert [o.name for o in instance.policy.objectives] == [
        "goodput", "waiting", "disruption", "preference", "bandwidth", "growth", "span", "stranded",
    ]  # fmt: skip
    assert instance.policy.starvation_after_s == 24 * 60 * 60
    assert instance.policy.solve.budget == 60
    assert instance.policy.solve.time_limit_s == 120


def test_json_and_yaml_give_the_same_instance(tmp_path: Path) -> None:
    (tmp_path / "yaml").mkdir()
    (tmp_path / "json").mkdir()
    good = GANG.replace("2026-11-20T08:00:00Z", '"2026-11-20T08:00:00Z"').replace("NO", '"NO"')
    documents = [yaml.safe_load(text.replace("NO", '"NO"')) for text in (CLUSTER, good)]
    bundle = {"apiVersion": "v1", "kind": "List", "items": documents}
    from_json = instance_of(tmp_path / "json", all__json=json.dumps(bundle))
    from_yaml = instance_of(tmp_path / "yaml", all__yml=f"{CLUSTER}---\n{GANG}")
    assert from_json == from_yaml


def test_anchors_and_merges_are_read(tmp_path: Path) -> None:
    text = (
        CLUSTER
        + "  - &x {name: a, unschedulable: true, ready: false}\n  - {<<: *x, name: b, ready: true}\n"
    )
    nodes = {node.name: node for node in instance_of(tmp_path, c__yaml=text).cluster.nodes}
    assert (nodes["b"].unschedulable, nodes["b"].ready) == (True, True)


def test_clusters_are_merged_under_the_first_name(tmp_path: Path) -> None:
    other = (
        CLUSTER.replace("gpu-", "hpc-").replace("cpu-1", "cpu-2").replace("two-racks", "a-racks")
    )
    cluster = instance_of(
        tmp_path, c__yaml=CLUSTER, d__yaml=other.replace(", uid: c-1", "")
    ).cluster
    assert cluster.name == "a-racks"
    assert cluster.uid == "c-1"
    assert len(cluster.nodes) == 10


def test_an_inline_server_model_is_found_by_any_writing_of_its_name(tmp_path: Path) -> None:
    box = (
        "{name: My Box/2, aliases: [old box], gpu: X1, gpus: 2, fabric: direct, linkMBps: 1000,"
        " matrix: [[X, NV2], [NV2, X]]}"
    )
    text = CLUSTER.replace("  nodes:\n", f"  serverModels: [{box}]\n  nodes:\n")
    text += '  - {name: x-1, model: MY_BOX 2}\n  - {name: x-2, model: "Old--Box"}\n'
    nodes = {node.name: node for node in instance_of(tmp_path, c__yaml=text).cluster.nodes}
    assert nodes["x-1"].model == nodes["x-2"].model
    assert nodes["x-1"].gpus == 2


def test_the_default_mix_counts_gangs_at_max_and_one_node_a_gpu_model(tmp_path: Path) -> None:
    gangs = "---\n".join(
        HEAD + f"kind: Gang\nmetadata: {{name: g{i}}}\nspec: {{roles: [{{name: w, replicas: {r},"
        f" gpus: {g}}}]}}\n"
        for i, (r, g) in enumerate([(1, 1), (1, 1), (1, 4), ("{min: 1, max: 2}", 8), (3, 0)])
    )
    policy = instance_of(tmp_path, c__yaml=CLUSTER, g__yaml=gangs).policy
    # sizes 1, 1, 4, 16, zeros left out, and a node of 8: five requests of 200 permille each
    assert policy.mix == ((1, 400), (4, 200), (8, 200), (16, 200))


def test_the_default_mix_adds_up_to_1000_with_ties_to_the_smaller_size(tmp_path: Path) -> None:
    gangs = "---\n".join(
        HEAD + f"kind: Gang\nmetadata: {{name: g{n}}}\n"
        f"spec: {{roles: [{{name: w, replicas: 1, gpus: {n}}}]}}\n"
        for n in (1, 2, 3, 4, 5)
    )
    policy = instance_of(tmp_path, c__yaml=CLUSTER, g__yaml=gangs).policy
    # six sizes (8 is the node): 1000 / 6 = 166 remainder 4, which goes to the four smallest
    assert policy.mix == ((1, 167), (2, 167), (3, 167), (4, 167), (5, 166), (8, 166))


def test_a_running_gang_may_stand_on_hardware_of_unknown_speed(tmp_path: Path) -> None:
    text = CLUSTER + "  - {name: x, model: DGX H100, nics: [{name: e}]}\n"
    gang = (
        HEAD
        + "kind: Gang\nmetadata: {name: a}\nspec:\n  roles: [{name: w, replicas: 2, gpus: 4}]\n"
    )
    gang += "status:\n  pods:\n"
    first = "  - {role: w, index: 0, node: x, gpus: [0, 1, 2, 3]}\n"
    second = "  - {role: w, index: 1, node: x, gpus: [4, 5, 6, 7]}\n"
    assert instance_of(tmp_path, c__yaml=text, g__yaml=gang + first + second)
    with pytest.raises(InputError, match="is not known"):  # its missing pod may go anywhere
        instance_of(tmp_path, c__yaml=text, g__yaml=gang + first)
