"""Plans of gangs whose bandwidth is that of groups: where they go, and what is proven of it."""

from __future__ import annotations

from pathlib import Path

import yaml
from building import build, gang, node, parallel
from building_servers import switched
from bundles import packed
from conftest import RunCli
from kube import node as kube_node
from kube import pod
from kube_gangs import owned, thing

from models.instance.instance import Instance
from models.instance.solution import Solution
from planner.search.solve import solve


def solved(instance: Instance) -> tuple[Solution, dict[str, tuple[int, int]]]:
    """The solution; value and bound by tier."""
    solution = solve(instance)
    return solution, {tier.name: (tier.value, tier.bound) for tier in solution.tiers}


def nodes_of(solution: Solution, gang: int = 0) -> list[int]:
    return sorted(pod.node for pod in solution.decisions[gang].pods)


def test_stages_share_a_rack_rather_than_split_over_two() -> None:
    # rack 1 has three servers and rack 2 two. Two and two keep each stage in one rack, three and one do not.
    nodes = [node(f"n{i}", switched(8), "b1", "r1" if i < 3 else "r2") for i in range(5)]
    one = parallel(gang("a", 4, 8), tensor=8, pipeline=2)
    solution, tiers = solved(build(nodes=nodes, gangs=[one], oversubscription=(1, 4)))
    assert sum(n < 3 for n in nodes_of(solution)) == 2
    # 233 / (224/370,800 + 8/6,250 + 4/6,250) of 233 / (224/370,800 + 9/6,250): 80.9 %
    assert tiers["bandwidth"] == (32 * 809, 32 * 809)


def test_data_groups_fit_one_rack_where_a_pipeline_may_cross() -> None:
    # a wants two stages of one server: whichever. b all-reduces and is 1/4 as fast over two racks.
    nodes = [node(f"n{i}", switched(8), "b1", "r1" if i % 2 else "r2") for i in range(4)]
    stages = parallel(gang("a", 2, 8), tensor=8, pipeline=2)
    instance = build(nodes=nodes, gangs=[stages, gang("b", 2, 8)], oversubscription=(1, 4))
    solution, tiers = solved(instance)
    assert len({n % 2 for n in nodes_of(solution, 1)}) == 1
    assert tiers["bandwidth"] == (32000, 32000)


def test_the_rank_is_part_of_what_a_plan_sends(tmp_path: Path, cli: RunCli) -> None:
    notes = {"gangplan.dev/parallelism": "tensor=8"}
    labels = [{"batch.kubernetes.io/job-completion-index": str(i)} for i in range(2)]
    pods = [
        pod(f"j-{i}", gpus=4, gated=True, labels=labels[i], annotations=notes) for i in range(2)
    ]
    objects = [
        {
            "apiVersion": "gangplan.dev/v1alpha1",
            "kind": "Policy",
            "spec": {"kubernetes": {"trustCommunication": True}},
        },
        kube_node("n1"),
        kube_node("n2"),
        thing(
            "Job",
            "batch/v1",
            "j",
            {"parallelism": 2, "completions": 2, "completionMode": "Indexed"},
        ),
        *(owned(p, "Job", "batch/v1", "j") for p in pods),
        thing("Namespace", "v1", "kube-system", {}, namespace="", uid="uid-of-the-cluster"),
    ]
    file = str(tmp_path / "plan.json")
    assert cli("plan", "-", "--out", file, stdin=packed(objects)).code == 0
    sent = cli("apply", file, "--dry-run=client", "-o", "yaml").out
    found = [one for one in yaml.safe_load_all(sent) if one is not None]
    ranks = {
        one["metadata"]["name"]: one["metadata"]["annotations"]["gangplan.dev/rank"]
        for one in found
    }
    assert ranks == {"j-0": "0", "j-1": "4"}
    said = cli("explain", file, "j").out
    assert "tensor 8 at" in said
    assert "ranks" in said
