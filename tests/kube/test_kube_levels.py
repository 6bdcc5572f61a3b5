"""The levels of Kubernetes clusters: their sources, their domains, and the levels that gangs name."""

from __future__ import annotations

import kube
import yaml
from kube_levels import CLIQUE, Tree, found, labelled, names, node, topology

from models.documents.cluster import MAX_LEVELS, Level, PolicyLevel
from models.documents.policy import PolicyDocument
from models.instance.policy import KubernetesPolicy, kubernetes_policy
from planner.read.kube.levels.levels import Levels
from planner.read.kube.records import LevelAsk
from planner.read.slurm import levels as slurm
from planner.read.sources import Source

GKE = "cloud.google.com/gce-topology"
ZONE = "topology.kubernetes.io/zone"


# --- the recorded clusters


def test_h100_gke_has_the_blocks_and_subblocks_of_its_kueue_topology() -> None:
    levels, nodes, said = found(kube.load("h100-gke"), f"{GKE}-block", f"{GKE}-host")
    assert levels.levels == (
        Level("block", f"{GKE}-block"),
        Level("subblock", f"{GKE}-subblock"),
    )
    facts = kube.expected("h100-gke")["nodes"]
    for one in nodes:
        labels = facts[one.name]["topologyLabels"]
        assert levels.domain(one.name) == (labels[f"{GKE}-block"], labels[f"{GKE}-subblock"])
    assert levels.found == "levels from Kueue Topology gke-default: block (3 domains), subblock (9)"
    assert levels.resolve(LevelAsk(label=f"{GKE}-block")) == 0
    # every host is a node of its own, as is every hostname
    assert levels.resolve(LevelAsk(label=f"{GKE}-host")) == 2
    assert levels.resolve(LevelAsk(label="kubernetes.io/hostname")) == 2
    assert said == []


def test_nvl72_has_the_tiers_of_its_hypernodes_and_cliques() -> None:
    levels, nodes, said = found(kube.load("nvl72"), CLIQUE)
    assert levels.levels == (
        Level("hypernode-tier-3"),
        Level("hypernode-tier-2"),
        Level("hypernode-tier-1"),
        Level("clique", CLIQUE, nvlink=True),
    )
    assert len(nodes) == 108
    for one in nodes:
        # gb200-rRR-nNN; racks 1 and 2 below spine-1 and so on; rack 5 in two halves of 9
        rack = int(one.name[7:9])
        clique = one.labels.get(CLIQUE)
        half = {"1": "nvl-5-a", "2": "nvl-5-b"}[str(clique)[-1]] if rack == 5 else f"nvl-{rack}"
        assert levels.domain(one.name) == ("core-1", f"spine-{(rack + 1) // 2}", half, clique)
    assert levels.domain("gb200-r02-n18")[3] is None
    assert levels.found == (
        "levels from HyperNodes: hypernode-tier-3 (1 domain), hypernode-tier-2 (3),"
        " hypernode-tier-1 (7), clique (7, NVLink, from nvidia.com/gpu.clique)"
    )
    # tier 0 is the lowest there is; a tier above all is the highest
    asked = [levels.resolve(LevelAsk(tier=tier)) for tier in range(5)]
    assert asked == [3 - tier for tier in (1, 1, 2, 3, 3)]
    assert levels.resolve(LevelAsk(tier_name="spine")) == 1
    assert levels.resolve(LevelAsk(tier_name="nope")) is None
    assert levels.resolve(LevelAsk(label=CLIQUE)) == 3
    [line] = said
    assert line == (
        "Node gb200-r02-n18: is in no NVLink domain, but its neighbours are; it counts alone"
        f" (hint: its label {CLIQUE} is missing)"
    )


def cliques(*values: str | None, **more: str) -> list[Tree]:
    """Nodes with these cliques; ``more``: labels of all of them."""
    return labelled(
        **{
            f"n{i}": {**({} if value is None else {CLIQUE: value}), **more}
            for i, value in enumerate(values)
        }
    )


def test_a_topology_file_goes_before_the_objects() -> None:
    file = slurm.read_topology(
        Source("topology.conf", "SwitchName=s Nodes=a,b\nSwitchName=t Nodes=c", "either")
    )
    trees = cliques("u.1", "u.1", "u.2", "u.2", **{ZONE: "z"})
    for tree, name in zip(trees, "abcd", strict=True):
        tree["metadata"]["name"] = name
    levels, _, said = found([*trees, topology("t", ZONE)], ZONE, topology=file)
    assert names(levels) == ["zone", "leaf", "clique"]
    assert [levels.domain(name)[1] for name in "abcd"] == ["s", "s", "t", None]
    assert said[0] == "Node d: is not in the topology file; it is alone at every level"


def test_levels_that_gangs_name_put_out_none_of_the_cluster() -> None:
    # ten levels of the cluster, each inside the one before; the gangs name five around them
    own = [f"a/k{number}" for number in range(MAX_LEVELS)]
    more = [f"b/m{number}" for number in range(5)]
    trees = [
        node(f"n{i}", {key: f"v{i // 2 ** (11 - k)}" for k, key in enumerate(own)} |
                      {key: str(i < 1024) for key in more})
        for i in range(0, 2048, 2)
    ]  # fmt: skip
    plain, _, _ = found([*trees, topology("t", *own)])
    levels, _, said = found([*trees, topology("t", *own)], *more)
    assert len(plain.levels) == MAX_LEVELS
    assert levels.levels == plain.levels
    assert levels.resolve(LevelAsk(label="b/m0")) == 1  # the same two halves
    assert said == []
    # with room for one more the first that is named counts
    nine = [*trees, topology("t", *own[1:])]
    levels, _, _ = found(nine, "b/m0", "b/m1", "a/k0")
    assert [level.counted for level in levels.levels] == [True, False, *[True] * 8]
    resolved = [levels.resolve(LevelAsk(label=key)) for key in ("b/m0", "b/m1", "a/k0")]
    assert resolved == [1, 1, None]


# --- the Policy that is saved


def test_the_saved_policy_gives_the_same_levels_again() -> None:
    gathered = kube.load("h100-gke")
    first, nodes, _ = found(gathered, ZONE)
    again, _, _ = found(gathered, ZONE, policy=saved(first))
    assert again.levels == first.levels
    assert all(again.domain(one.name) == first.domain(one.name) for one in nodes)


def saved(levels: Levels) -> KubernetesPolicy:
    document = PolicyDocument.model_validate(
        yaml.load(levels.policy_text(), Loader=yaml.CSafeLoader)
    )
    assert list(document.field_errors()) == []
    return kubernetes_policy(document.spec.kubernetes)


def test_the_name_of_an_object_cannot_break_out_of_the_saved_policy() -> None:
    name = "t\nspec: {nodeSelector: {a: b}}"
    trees = [node(f"n{i}", {"a/row": "r"}) for i in range(2)]
    levels, _, _ = found([*trees, topology(name, "a/row")])
    assert "\n" not in levels.found
    assert saved(levels).levels == (PolicyLevel("row", "a/row"),)
