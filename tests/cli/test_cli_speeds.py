"""GPU generations, gangs without GPUs and moved gangs, as ``plan``, ``validate`` and ``audit`` show them.

Speeds are worked out by hand: r is the published peak over that of the fastest GPU, in steps of 20 permille.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import yaml
from conftest import Result, RunCli
from kube import node

V1 = "gangplan.dev/v1alpha1"
MESH = [["X" if a == b else "SYS" for b in range(4)] for a in range(4)]


def box(name: str, gpu: str, **more: Any) -> dict[str, Any]:  # noqa: ANN401
    """A server model of four GPUs without links, as somebody writes it who knows no more of it."""
    return {"name": name, "gpu": gpu, "gpus": 4, "fabric": "pcie", "matrix": MESH, **more}


def cluster(*models: dict[str, Any], **nodes: str) -> dict[str, Any]:
    """Nodes by name, with their server model."""
    listed = [{"name": name, "model": model, "domains": {}} for name, model in nodes.items()]
    spec = {"serverModels": list(models), "nodes": listed}
    return {"apiVersion": V1, "kind": "Cluster", "metadata": {"name": "mixed"}, "spec": spec}


def gang(name: str, pods: int, gpus: int, **more: Any) -> dict[str, Any]:  # noqa: ANN401
    spec = {"roles": [{"name": "worker", "replicas": pods, "gpus": gpus}], **more.pop("spec", {})}
    return {"apiVersion": V1, "kind": "Gang", "metadata": {"name": name}, "spec": spec, **more}


def written(folder: Path, *documents: dict[str, Any]) -> str:
    path = folder / "in.yaml"
    path.write_text(yaml.safe_dump_all(documents), encoding="utf-8")
    return str(path)


def planned(cli: RunCli, path: str) -> tuple[dict[str, Any], Result]:
    """The plan of a file, and what ``plan`` said."""
    out = Path(path).with_suffix(".plan.json")
    result = cli("plan", path, "--out", str(out))
    assert result.code == 0, result.err
    plan: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
    assert cli("verify", str(out)).code == 0
    return plan, result


def by_name(plan: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {one["name"]: one for one in plan["spec"]["gangs"]}


def columns(table: str, gang: str) -> dict[str, str]:
    """The row of a gang by the titles of its columns, of a table as it is printed."""
    lines = table.splitlines()
    head = next(line for line in lines if "DECISION" in line)
    row = next(line for line in lines if re.search(rf"\b{gang}\b", line))
    ends = {found.group(): found.end() for found in re.finditer(r"\S+(?: \S+)*", head)}
    return {
        title: match.group()
        for title, end in ends.items()
        if (match := re.search(r"\S+(?: %)?$", row[:end])) is not None
    }


# a server model without a speed


def test_a_model_of_unknown_speed_takes_no_gang_from_the_h100s_and_a_warning_names_it(
    cli: RunCli, tmp_path: Path
) -> None:
    # 989.5 of an H100, 312 of an A100; the other cards count as 312 too. Both pods fit on the H100s.
    nodes = {"h1": "DGX H100", "a1": "DGX A100", "l1": "four cards", "l2": "four cards"}
    mixed = cluster(box("four cards", "FX9000"), **nodes)
    path = written(tmp_path, mixed, gang("p1", 1, 4), gang("p2", 1, 4))
    plan, said = planned(cli, path)
    for one in by_name(plan).values():
        assert [pod["node"] for pod in one["pods"]] == ["h1"]
        assert one["speed"] == 1000
    # 8 H100s, and 16 that count as A100s: 8 + 16 x 312 / 989.4
    assert "8 of at most 13.045 effective GPUs" in said.out
    warning = (
        "warning: ServerModel 'four cards' (2 nodes): no relativeSpeed is stated for FX9000 GPUs; they "
        "count as fast as those of 'DGX A100' (312), the slowest with one (hint: write it under "
        "serverModels of a Cluster: dense BF16 tensor peak of one GPU, TFLOP/s)"
    )
    assert warning in said.err.splitlines()
    for verb in ("validate", "audit"):
        assert warning in cli(verb, path).err.splitlines()
    log = [json.loads(line) for line in cli("plan", path, "--log-format", "json").err.splitlines()]
    warnings = [one["warning"] for one in log if one["type"] == "warning"]
    assert warning.removeprefix("warning: ") in warnings
    assert warning.removeprefix("warning: ") in plan["status"]["remarks"]


def test_a_kubernetes_node_with_gpus_that_nobody_knows_affects_itself_alone(
    cli: RunCli, tmp_path: Path
) -> None:
    product, kind = "nvidia.com/gpu.product", "node.kubernetes.io/instance-type"
    trees = [
        node("h1", **{product: "NVIDIA-H100-80GB-HBM3", kind: "a3-highgpu-8g"}),
        node("a1", **{product: "NVIDIA-A100-SXM4-40GB", kind: "p4d.24xlarge"}),
        node("x1", **{product: "NVIDIA-FX-9000-NEXT", kind: "fx9.48xlarge"}),
    ]
    path = written(tmp_path, *trees, gang("p1", 1, 4), gang("p2", 1, 4))
    plan, said = planned(cli, path)
    for one in by_name(plan).values():
        assert [pod["node"] for pod in one["pods"]] == ["h1"]
    assert "ServerModel 'unknown 8x NVIDIA-FX-9000-NEXT' (1 node): no relativeSpeed" in said.err
    assert "server with 8 x NVIDIA-FX-9000-NEXT unknown, treated as PCIe-only" in said.err


# gangs without GPUs


def test_a_gang_without_gpus_starts_and_is_no_effective_gpu_anywhere(
    cli: RunCli, tmp_path: Path
) -> None:
    # Eight GPUs, all used at full speed, and two pods without GPUs: one in the goodput tier, none here.
    running = {"name": "held-0", "role": "worker", "index": 0, "node": "h1"}
    waiting = written(
        tmp_path,
        cluster(h1="DGX H100"),
        gang("launcher", 2, 0),
        gang("train", 1, 6),
        gang("held", 1, 2, status={"pods": [running]}),
    )
    plan, said = planned(cli, waiting)
    assert {name: one["decision"] for name, one in by_name(plan).items()} == {
        "launcher": "place",
        "train": "place",
        "held": "keep",
    }
    assert plan["status"]["effectiveGpus"] == {"before": 2, "after": 8, "oneAtATime": 8}
    assert plan["status"]["objectives"][0]["value"] == 9000
    assert "8 of at most 8 effective GPUs (2 before the plan)" in said.out
    saved = waiting.replace(".yaml", ".plan.json")
    assert "8 of at most 8 effective GPUs" in cli("show", saved).out
    compared = cli("compare", saved, saved, "-o", "json").out
    assert '"effectiveGpus": 8.0' in compared
    page = tmp_path / "page.html"
    assert cli("report", saved, "--out", str(page)).code == 0
    assert "2 → 8" in page.read_text(encoding="utf-8")
    plan["status"]["effectiveGpus"]["after"] = 9
    Path(saved).write_text(json.dumps(plan), encoding="utf-8")
    refused = cli("verify", saved)
    assert refused.code == 5
    assert "status.effectiveGpus.after: says 9, is 8" in refused.out + refused.err


# gangs that move
