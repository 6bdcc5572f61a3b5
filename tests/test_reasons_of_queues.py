"""Reasons of gangs as Kueue, Volcano and Slurm state them; every plan is judged.

Servers have 8 GPUs.
"""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import kube
import kube_levels as levels
import pytest
from kube_gangs import thing
from outcomes import NOW
from slurm_output import job, node, number, read, running

from models.instance.solution import Reason
from models.results.plan import compose
from models.verify.check import check
from planner.read.inputs import load
from planner.read.instance_builder import LoadedInput
from planner.search.solve import solve
from planner.show.reason_words import words

Tree = dict[str, Any]
GPU = "nvidia.com/gpu"


def reasons(found: LoadedInput) -> dict[str, Reason]:
    """Why gangs wait, by name; the judge agrees."""
    solution = solve(found.instance)
    document = compose(found.instance, solution, words, name="p", created_at=NOW, generator="test")
    assert check(document) == []
    pairs = zip(found.instance.gangs, solution.decisions, strict=True)
    return {gang.name: one.reason for gang, one in pairs if one.reason is not None}


def held(reason: Reason) -> list[tuple[str, int]]:
    return [(one.gang, one.gpus) for one in reason.fields.holders]


# Slurm


def on(name: int, first: int, last: int, called: str) -> Tree:
    """A job that runs on these nodes, whole."""
    nodes = range(first, last + 1)
    detail = ["gpu:h100:8(IDX:0-7)" for _ in nodes]
    asked = f"cpu={32 * len(nodes)},mem=1M,node={len(nodes)},gres/gpu={8 * len(nodes)}"
    return running(name, f"n[{first:03}-{last:03}]", detail, name=called, tres_alloc_str=asked)


def dit(nodes: int = 40) -> Tree:
    asked = f"cpu={32 * nodes},mem=1M,node={nodes},billing=1,gres/gpu={8 * nodes}"
    return job(9, name="dit", node_count=number(nodes), tres_req_str=asked, tasks=number(nodes))


@pytest.mark.parametrize(
    ("spare", "names"),
    [
        # 40 nodes, of which llama-70 holds six and the others two each: 30 are free, all must end
        (0, ["llama-70", "moe", "vit"]),
        # with two more either small job is needless, with four llama-70 alone is in the way
        (2, ["llama-70", "moe"]),
        (4, ["llama-70"]),
    ],
)
def test_a_slurm_job_names_the_jobs_without_all_of_which_it_could_start(
    spare: int, names: list[str], tmp_path: Path
) -> None:
    nodes = [node(f"n{i:03}") for i in range(1, 41 + spare)]
    jobs = [on(1, 1, 6, "llama-70"), on(2, 7, 8, "moe"), on(3, 9, 10, "vit"), dit()]
    reason = reasons(read(tmp_path, nodes, jobs))["9-dit"]
    assert (reason.code, reason.fields.pods, reason.fields.room_pods) == ("NoRoom", 40, 30 + spare)
    gpus = {
        "llama-70": ("mchen/1-llama-70", 48),
        "moe": ("mchen/2-moe", 16),
        "vit": ("mchen/3-vit", 16),
    }
    assert held(reason) == [gpus[name] for name in names]
    assert not reason.fields.instead


def test_nobody_is_named_whose_end_would_not_do_nor_who_starts(tmp_path: Path) -> None:
    """Twelve jobs of one node each hold what dit lacks: more than are named. Another job starts here."""
    nodes = [node(f"n{i:03}") for i in range(1, 43)]
    small = [on(100 + i, i, i, f"small-{i}") for i in range(1, 13)]
    new = job(50, name="new", priority=number(90))
    found = reasons(read(tmp_path, nodes, [*small, dit(), new]))
    reason = found["9-dit"]
    # 42 nodes without twelve; at least ten small jobs would have to end
    assert (reason.code, reason.fields.room_pods, held(reason)) == ("NoRoom", 30, [])
    assert reason.fields.help == "othersEnd"
    assert "50-new" not in found


# Kueue


def loaded(*trees: Tree) -> LoadedInput:
    bundle = {"apiVersion": "v1", "kind": "List", "items": list(trees)}
    return load(["-"], queue=("*",), stdin=io.BytesIO(json.dumps(bundle).encode()))


def server(name: str, cpu: str = "100") -> Tree:
    tree = kube.node(name)
    tree["metadata"]["labels"]["nvidia.com/gpu.product"] = "NVIDIA-H100-80GB-HBM3"
    tree["status"]["allocatable"] |= {"cpu": cpu, "memory": "1000Gi"}
    return tree


def quota(name: str, gpus: int, cohort: str) -> Tree:
    resources = [{"name": GPU, "nominalQuota": gpus, "borrowingLimit": 0}]
    flavor = {"name": "h100", "resources": resources}
    spec = {
        "cohort": cohort,
        "namespaceSelector": {},
        "resourceGroups": [{"coveredResources": [GPU], "flavors": [flavor]}],
    }
    return thing("ClusterQueue", "kueue.x-k8s.io/v1beta1", name, spec)


def suspended(name: str, pods: int, gpus: int, cpu: str) -> Tree:
    """A Job as Kueue suspends it."""
    requests = {GPU: str(gpus), "cpu": cpu}
    container = {"name": "main", "resources": {"requests": requests, "limits": requests}}
    spec = {
        "suspend": True,
        "parallelism": pods,
        "completions": pods,
        "completionMode": "Indexed",
        "template": {"spec": {"containers": [container], "restartPolicy": "Never"}},
    }
    labels = {"kueue.x-k8s.io/queue-name": "main"}
    made = thing("Job", "batch/v1", name, spec, labels=labels)
    made["metadata"] |= {"namespace": "team", "creationTimestamp": "2026-11-20T08:00:00Z"}
    return made


QUEUES = [
    thing("ResourceFlavor", "kueue.x-k8s.io/v1beta1", "h100", {"nodeLabels": {}}),
    quota("team-a", 8, "all"),
    quota("team-b", 24, "all"),
    {
        **thing("LocalQueue", "kueue.x-k8s.io/v1beta1", "main", {"clusterQueue": "team-a"}),
        "metadata": {"name": "main", "namespace": "team"},
    },
]


def test_a_kueue_job_larger_than_its_quota_or_a_pod_larger_than_any_node_never_starts() -> None:
    nodes = [server(f"n{i}") for i in range(4)]
    jobs = [
        suspended("wide", 2, 8, "10"),  # 16 GPUs; the queue may hold 8, and borrow none
        suspended("heavy", 1, 4, "120"),  # 120 cpu; nodes have 100
        suspended("fine", 1, 8, "100"),
    ]
    found = reasons(loaded(*nodes, *QUEUES, *jobs))
    assert "fine" not in found
    assert found["wide"].code == "Never"
    assert (found["wide"].fields.queue, found["wide"].fields.limit) == ("team-a", 8)
    assert found["wide"].fields.gpus == 16
    heavy = found["heavy"].fields
    assert (found["heavy"].code, heavy.resources) == ("Never", ("cpu",))
    assert (heavy.asked, heavy.offered) == ("120", "100")


def test_what_pods_of_no_gang_hold_is_no_reason_for_never() -> None:
    """A pod with 40 cpu and no GPU runs on each node: 60 of 100 are left, and 80 are asked for."""
    nodes = [server(f"n{i}") for i in range(2)]
    others = []
    for i in range(2):
        other = kube.pod(f"web-{i}", gpus=0, on=f"n{i}")
        other["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "40"}}
        others.append(other)
    found = reasons(loaded(*nodes, *others, suspended("heavy", 1, 8, "80")))
    assert (found["heavy"].code, found["heavy"].fields.resources) == ("Resources", ("cpu",))


# Volcano


def test_a_volcano_job_names_who_holds_the_hypernode_with_most_room() -> None:
    """Two HyperNodes of three nodes: of s0 one node is held, of s1 two. Three nodes are asked for."""
    nodes = [server(f"n{i}") for i in range(6)]
    switches = [
        levels.hypernode(f"s{s}", 1, *(levels.exact(f"n{3 * s + i}") for i in range(3)))
        for s in (0, 1)
    ]
    group = thing("PodGroup", "scheduling.volcano.sh/v1beta1", "wide", {"minMember": 3})
    group["spec"]["networkTopology"] = {"mode": "hard", "highestTierAllowed": 1}
    group["metadata"]["namespace"] = "default"
    mark = {"scheduling.k8s.io/group-name": "wide"}
    wide = [kube.pod(f"wide-{i}", gpus=8, annotations=mark) for i in range(3)]
    for one in wide:
        one["spec"]["schedulerName"] = "volcano"
    busy = [kube.pod(f"busy-{n}", gpus=8, on=f"n{n}") for n in (0, 3, 4)]
    found = reasons(loaded(*nodes, *switches, group, *wide, *busy))["wide"]
    assert (found.code, found.fields.level) == ("RequiredTopology", "hypernode-tier-1")
    assert (found.fields.domain, found.fields.room_pods) == ("s0", 2)
    assert held(found) == [("default/busy-0", 8)]
    assert words(found) == (
        "needs 3 pods of 8 GPUs in one hypernode-tier-1; before this plan, the hypernode-tier-1 with the "
        "most room, s0, has room for 2 pods (16 GPUs free); 8 GPUs there are held by default/busy-0; there "
        "is room for it once default/busy-0 ends"
    )
