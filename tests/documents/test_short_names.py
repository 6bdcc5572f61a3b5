"""Long names of domains and levels in tables: by the shortest form that tells them apart.

The nodes and jobs are as GKE and Kueue write them: the labels of a block, a subblock and a host are hashes,
and names of nodes begin with those of the cluster and the pool.
"""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest
from conftest import RunCli

from planner.show.plan.short_names import domain_shortener
from planner.show.text import width as width_of

GKE = "cloud.google.com/gce-topology-"
HEX = re.compile(r"[0-9a-f]{32}")
WIDTHS = (80, 100, 160)


def hashed(*path: object) -> str:
    """64 hexadecimal digits."""
    return hashlib.sha256(repr(path).encode()).hexdigest()


def node_name(*path: int) -> str:
    return f"gke-train-h100-pool-1-922a1d3f-{hashed('node', *path)[:4]}"


NODES = [(block, subblock, n) for block in range(2) for subblock in range(2) for n in range(4)]


def node(block: int, subblock: int, n: int) -> dict[str, Any]:
    name = node_name(block, subblock, n)
    labels = {
        "kubernetes.io/hostname": name,
        "node.kubernetes.io/instance-type": "a3-megagpu-8g",
        "cloud.google.com/gke-accelerator": "nvidia-h100-mega-80gb",
        f"{GKE}block": hashed(block),
        f"{GKE}subblock": hashed(block, subblock),
        f"{GKE}host": hashed(block, subblock, n),
    }
    room = {"cpu": "207", "memory": "1860Gi", "nvidia.com/gpu": "8", "pods": "110"}
    conditions = [{"type": "Ready", "status": "True"}]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "spec": {},
        "status": {"capacity": room, "allocatable": room, "conditions": conditions},
    }


def job(name: str, pods: int, level: str) -> dict[str, Any]:
    requests = {"cpu": "10", "nvidia.com/gpu": "8"}
    container = {"name": "main", "image": "train", "resources": {"limits": requests}}
    template = {
        "metadata": {"annotations": {"kueue.x-k8s.io/podset-required-topology": GKE + level}},
        "spec": {"restartPolicy": "Never", "containers": [container]},
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name,
            "namespace": "team",
            "uid": name,
            "labels": {"kueue.x-k8s.io/queue-name": "main"},
        },
        "spec": {
            "parallelism": pods,
            "completions": pods,
            "completionMode": "Indexed",
            "suspend": True,
            "template": template,
        },
    }


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("hashes")


@pytest.fixture
def hashes(folder: Path, cli: RunCli) -> str:
    """A plan of two blocks with two subblocks of four nodes: 16 nodes; `wide` fits no subblock."""
    out = folder / "plan.json"
    if out.exists():
        return str(out)
    items = [
        *(node(*path) for path in NODES),
        job("narrow", 3, "subblock"),
        job("wide", 6, "subblock"),
    ]
    path = folder / "all.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    made = cli("plan", str(path), "--scheduler", "all", "--out", str(out))
    assert made.code == 0, made.err
    assert not HEX.search(made.out)
    return str(out)


@pytest.mark.parametrize(
    "words",
    [
        ("show", "PLAN"),
        ("show", "PLAN", "--map"),
        ("explain", "PLAN", "wide", "--time-limit", "1s"),
        ("compare", "PLAN", "PLAN", "--all"),
        ("capacity", "PLAN"),
    ],
)
def test_no_table_has_a_whole_hash(words: tuple[str, ...], hashes: str, cli: RunCli) -> None:
    given = [hashes if word == "PLAN" else word for word in words]
    short = {f"{hashed(block)[:6]}…" for block in range(2)}
    for width in WIDTHS:
        shown = cli(*given, environ={"COLUMNS": str(width)})
        assert shown.code == 0, shown.err
        assert not HEX.search(shown.out)
        assert all(width_of(line) <= width for line in shown.out.splitlines()), shown.out
        if words[0] in ("explain", "capacity"):
            assert any(one in shown.out for one in short), shown.out


def test_a_domain_has_its_whole_name_where_it_is_asked_for(hashes: str, cli: RunCli) -> None:
    whole = {hashed(block, subblock) for block in range(2) for subblock in range(2)}
    for words in (("show", "-o", "wide"), ("capacity", "-o", "wide"), ("show", "-o", "json")):
        shown = cli(words[0], hashes, *words[1:])
        assert any(one in shown.out for one in whole), shown.out


LEVELS = ["block", "subblock", "rack"]


@pytest.mark.parametrize("width", WIDTHS)
def test_long_names_of_levels_are_short_in_tables(width: int, tmp_path: Path, cli: RunCli) -> None:
    levels = [f"cloud-google-com-gce-topology-{one}" for one in LEVELS]
    domains = [dict(zip(levels, ("b", "s", f"r{n // 2}"), strict=True)) for n in range(4)]
    nodes = [
        {"name": f"n{n}", "model": "DGX H100", "domains": own} for n, own in enumerate(domains)
    ]
    cluster = {
        "apiVersion": "gangplan.dev/v1alpha1",
        "kind": "Cluster",
        "metadata": {"name": "c"},
        "spec": {"levels": [{"name": one} for one in levels], "nodes": nodes},
    }
    (tmp_path / "cluster.json").write_text(json.dumps(cluster))
    environ = {"COLUMNS": str(width)}
    shape = f"2x8@{levels[2]}"
    short = cli("capacity", str(tmp_path), "--shape", shape, environ=environ).out
    # 4 nodes of 8 GPUs, 2 in a rack: 2 gangs of 2 pods of 8 GPUs, each in one rack.
    assert re.search(r"GANGS OF +GPUS +ANYWHERE +BLOCK +SUBBLOCK +RACK +NODE", short), short
    assert re.search(r"2x8@rack +16 +2 +0$", short, re.MULTILINE), short
    wide = cli("capacity", str(tmp_path), "--shape", shape, "-o", "wide", environ=environ).out
    assert "TOPOLOGY-" in wide  # whole names
    assert "TOPOLOGY-" not in short
    assert all(width_of(line) <= width for line in short.splitlines()), short


def test_only_whole_names_of_domains_are_shortened() -> None:
    block, other = hashed("a"), hashed("b")
    assert block[:6] != other[:6]
    shorten = domain_shortener(
        {"gce-topology-block-of-the-pod": [block, other, "pool-of-gke-h100-a"]}, ["pool-of-gke-h100-a"]
    )  # fmt: skip
    assert shorten(f"in {block}/{other}.") == f"in {block[:6]}…/{other[:6]}…."
    assert shorten(f"{GKE}block={block}") == f"{GKE}block={block}"
    assert shorten(f"--drain x-{block}") == f"--drain x-{block}"
    # A name that a gang or a node has, too, stays.
    assert shorten("pool-of-gke-h100-a") == "pool-of-gke-h100-a"
