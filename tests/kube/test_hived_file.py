"""HiveD's configuration file as queues with cells."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import kube
import yaml
from bundles import packed

from models.documents.queue import MAX_CELLS
from models.instance.queue import Cell, Pin
from planner.read import hived
from planner.read.inputs import load
from planner.read.instance_builder import LoadedInput
from planner.read.kube.dialects import hived as dialect

RACK, NODE = 0, 1

CONFIGURATION = """
kubeApiServerAddress: http://10.10.10.10:8080
physicalCluster:
  skuTypes: {V100: {gpu: 1, cpu: 4, memory: 8192Mi}}
  cellTypes:
    V100-SOCKET: {childCellType: V100, childCellNumber: 4}
    V100-NODE: {childCellType: V100-SOCKET, childCellNumber: 2, isNodeLevel: true}
    3-V100-NODE: {childCellType: V100-NODE, childCellNumber: 3}
    6-V100-NODE: {childCellType: 3-V100-NODE, childCellNumber: 2}
    H-NODE: {childCellType: H, childCellNumber: 8, isNodeLevel: true}
    H-RACK: {childCellType: H-NODE, childCellNumber: 2}
  physicalCells:
  - cellType: 6-V100-NODE
    cellChildren:
    - {pinnedCellId: FIRST, cellChildren: [{cellAddress: v1}, {cellAddress: v2}, {cellAddress: v3}]}
    - {cellChildren: [{cellAddress: v4}, {cellAddress: v5}, {cellAddress: v6}]}
  - {cellType: H-RACK, cellChildren: [{cellAddress: h1}, {cellAddress: h2}]}
virtualClusters:
  VC1:
    virtualCells:
    - {cellType: 6-V100-NODE.3-V100-NODE, cellNumber: 1}
    - {cellType: 6-V100-NODE.3-V100-NODE.V100-NODE, cellNumber: 2}
    - {cellType: V100-NODE.V100-SOCKET, cellNumber: 1}
    - {cellType: V100-NODE.V100-SOCKET.V100, cellNumber: 3}
    - {cellType: H-RACK, cellNumber: 1}
    pinnedCells: [{pinnedCellId: FIRST}]
  VC2: {virtualCells: [{cellType: 6-V100-NODE, cellNumber: 1}]}
  VC3: {}
"""


def read(tmp_path: Path, configuration: str, *more: Any) -> LoadedInput:  # noqa: ANN401
    v100 = [
        {"name": f"v{i}", "model": "DGX-1 V100", "domains": {"rack": f"r{(i + 2) // 3}"}}
        for i in range(1, 7)
    ]
    h100 = [{"name": f"h{i}", "model": "DGX H100", "domains": {"rack": "r3"}} for i in (1, 2)]
    cluster = {
        "apiVersion": "gangplan.dev/v1alpha1",
        "kind": "Cluster",
        "metadata": {"name": "both"},
        "spec": {"levels": [{"name": "rack"}], "nodes": [*v100, *h100]},
    }
    (tmp_path / "hived.yaml").write_text(configuration)
    (tmp_path / "cluster.yaml").write_text(yaml.safe_dump_all([cluster, *more]))
    return load([str(tmp_path)])


def cells(found: LoadedInput, name: str) -> tuple[Cell, ...]:
    return next(one.cells for one in found.instance.queues if one.name == name)


def test_a_virtual_cluster_is_a_queue_with_cells(tmp_path: Path) -> None:
    found = read(tmp_path, CONFIGURATION)
    assert cells(found, "VC1") == (
        Cell(1, RACK, None, "v100"),
        Cell(2, NODE, None, "v100"),
        Cell(1, None, 4, "v100"),
        Cell(3, None, 1, "v100"),
        Cell(1, RACK, None, "h100"),
    )
    # no level has six of these nodes in each domain
    assert cells(found, "VC2") == (Cell(6, NODE, None, "v100"),)
    assert cells(found, "VC3") == ()
    (first,) = [one for one in found.instance.queues if one.name == "VC1"]
    assert first.pins == (Pin(nodes=("v1", "v2", "v3")),)
    assert len(found.remarks) == 2
    assert "no level has such domains" in found.remarks[0]
    assert "cells of level node of v100: 8 promised to all queues together" in found.remarks[1]


def test_a_pinned_cell_that_is_no_nodes_of_its_own_is_promised_wherever(tmp_path: Path) -> None:
    def pins(configuration: str) -> tuple[LoadedInput, list[tuple[Pin, ...]]]:
        found = read(tmp_path, configuration)
        return found, [one.pins for one in found.instance.queues]

    gone = CONFIGURATION.replace("[{cellAddress: v1}, {cellAddress: v2}, {cellAddress: v3}]", "[]")
    twice = CONFIGURATION.replace("VC3: {}", "VC3: {pinnedCells: [{pinnedCellId: FIRST}]}")
    socket = CONFIGURATION.replace(
        "- {cellType: H-RACK, cellChildren",
        "- {cellType: V100-SOCKET, pinnedCellId: HALF}\n  - {cellType: H-RACK, cellChildren",
    ).replace("VC3: {}", "VC3: {pinnedCells: [{pinnedCellId: HALF}]}")
    found, none = pins(gone)
    assert none == [(), (), ()]
    assert cells(found, "VC1")[0] == Cell(2, RACK, None, "v100")
    assert any(hived.PINNED.format(hived.PARTS) in line for line in found.remarks)
    found, first = pins(twice)
    assert first == [(Pin(nodes=("v1", "v2", "v3")),), (), ()]
    assert cells(found, "VC3") == (Cell(1, RACK, None, "v100"),)
    assert any(hived.PINNED.format(hived.PINNED_BEFORE) in line for line in found.remarks)
    found, _ = pins(socket)
    assert cells(found, "VC3") == (Cell(1, None, 4, "v100"),)


def test_a_pod_that_names_a_pinned_cell_is_kept_to_its_nodes(tmp_path: Path) -> None:
    pods = []
    for name, pin in (("inside", "FIRST"), ("nowhere", "SECOND"), ("any", None)):
        spec = {"virtualCluster": "VC1", "priority": 1, "pinnedCellId": pin}
        note = {dialect.SPEC: yaml.safe_dump({k: v for k, v in spec.items() if v is not None})}
        pods.append(kube.pod(name, gpus=1, gated=True, annotations=note))
    items = [*(kube.node(f"v{i}") for i in range(1, 5)), *pods]
    path = tmp_path / "objects.json"
    path.write_bytes(packed(items))
    (tmp_path / "hived.yaml").write_text(CONFIGURATION)
    instance = load([str(tmp_path)]).instance
    able = {
        gang.name: sorted(instance.cluster.nodes[n].name for n in instance.eligible_nodes(role))
        for gang in instance.gangs
        for role in gang.roles
    }
    assert able["inside"] == ["v1", "v2", "v3"]
    assert able["any"] == ["v1", "v2", "v3", "v4"]
    held = {gang.name: gang.hold for gang in instance.gangs}
    assert held["inside"] is None
    assert held["any"] is None
    hold = held["nowhere"]
    assert hold is not None
    assert hold.code == "Unsupported"
    assert "'SECOND'" in hold.message


def test_odd_files_are_remarks(tmp_path: Path) -> None:
    tower = {f"t{i}": {"childCellType": f"t{i + 1}"} for i in range(hived.MAX_HEIGHT + 1)}
    sizes = {f"g{i}": {"childCellType": "V100", "childCellNumber": i} for i in range(2, 200)}
    configuration = {
        "physicalCluster": {
            "cellTypes": {"loop": {"childCellType": "loop"}, "odd": 7, **tower, **sizes},
            "physicalCells": [{"cellType": 3, "cellChildren": "x"}, "y", {"cellType": "loop"}],
        },
        "virtualClusters": {
            "a": {
                "virtualCells": [
                    {"cellType": "loop", "cellNumber": 1},
                    {"cellType": "t0", "cellNumber": 1},
                    {"cellType": "V100"},
                    {"cellType": "V100", "cellNumber": -1},
                    {"cellType": "V100", "cellNumber": 10**15},
                    {"cellType": "K80", "cellNumber": 1},
                    "z",
                ],
                "pinnedCells": [{"pinnedCellId": "nowhere"}],
            },
            "b": {"virtualCells": [{"cellType": name, "cellNumber": 1} for name in sizes]},
            "c": None,
            7: {},
            "\n": {},
            **{f"q{i}": {} for i in range(hived.MAX_CLUSTERS)},
        },
    }
    found = read(tmp_path, yaml.safe_dump(configuration, sort_keys=False))
    assert cells(found, "a") == (Cell(10**9, None, 1, "v100"),)
    assert len(cells(found, "b")) == MAX_CELLS
    assert len(found.instance.queues) == hived.MAX_CLUSTERS - 1  # less the one of a bad name
    said = "\n".join(found.remarks)
    for what in (
        hived.UNKNOWN_TYPE,
        hived.NO_NUMBER,
        hived.NO_PIN,
        hived.TOO_MANY_CELLS,
        hived.TOO_MANY,
        hived.BAD_NAME,
        hived.NO_NODES.format("'K80'"),
    ):
        assert what in said, what


def test_pods_name_their_virtual_cluster_and_opportunistic_ones_are_preemptible(
    tmp_path: Path,
) -> None:
    path = tmp_path / "objects.json"
    pods = []
    for name, priority in (("firm", 1), ("loose", -1)):
        spec = yaml.safe_dump({"virtualCluster": "VC2", "priority": priority})
        pods.append(kube.pod(name, gpus=1, gated=True, annotations={dialect.SPEC: spec}))
    items = [kube.node("v1"), *pods]
    path.write_bytes(packed(items))
    assert [gang.queue for gang in load([str(path)]).instance.gangs] == [None, None]
    (tmp_path / "hived.yaml").write_text(CONFIGURATION)
    found = load([str(tmp_path)]).instance.gangs
    assert [(gang.queue, gang.preemptible) for gang in found] == [("VC2", False), ("VC2", True)]
