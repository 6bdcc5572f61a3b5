"""The levels of Kubernetes clusters: their sources, their domains, and the levels that gangs name."""

from __future__ import annotations

from fractions import Fraction

import kube
import pytest
import yaml
from kube_levels import CLIQUE, Tree, exact, found, hypernode, labelled, names, node, topology

from models.documents.cluster import MAX_LEVELS, Level
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
    assert levels.resolve(LevelAsk(label=f"{GKE}-block")) == "block"
    # every host is a node of its own, as is every hostname
    assert levels.resolve(LevelAsk(label=f"{GKE}-host")) == "node"
    assert levels.resolve(LevelAsk(label="kubernetes.io/hostname")) == "node"
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
    assert asked == [f"hypernode-tier-{tier}" for tier in (1, 1, 2, 3, 3)]
    assert levels.resolve(LevelAsk(tier_name="spine")) == "hypernode-tier-2"
    assert levels.resolve(LevelAsk(tier_name="nope")) is None
    assert levels.resolve(LevelAsk(label=CLIQUE)) == "clique"
    [line] = said
    assert line == (
        "Node gb200-r02-n18: is in no NVLink domain, but its neighbours are; it counts alone"
        f" (hint: its label {CLIQUE} is missing)"
    )


# --- label families


@pytest.mark.parametrize("key", [ZONE, "network.topology.nvidia.com/datacenter"])
def test_one_zone_or_datacenter_around_every_node_is_no_level(key: str) -> None:
    rack = "fabric.topograph.run/tier-0"
    same = {f"n{i}": {key: "one", rack: f"r{i // 2}"} for i in range(4)}
    assert names(found(labelled(**same))[0]) == ["leaf"]
    # Two of them, or a node that is in none, and it says something.
    other = {**same, "n3": {key: "two", rack: "r1"}}
    assert len(names(found(labelled(**other))[0])) == 2
    without = {**same, "n3": {rack: "r1"}}
    assert len(names(found(labelled(**without))[0])) == 2


@pytest.mark.parametrize(
    ("keys", "wanted"),
    [
        ([f"{GKE}-subblock", f"{GKE}-block", ZONE], ["zone", "block", "subblock"]),
        (
            [f"topology.k8s.aws/network-node-layer-{n}" for n in (3, 10, 1, 2)],
            ["layer-1", "layer-2", "layer-3", "layer-10"],  # 1 is the widest
        ),
        (
            ["oci.oraclecloud.com/host.rack_id", "oci.oraclecloud.com/host.network_block_id"],
            ["network-block", "rack"],
        ),
        (
            ["ib.coreweave.cloud/leafgroup", "node.coreweave.cloud/rack",
             "ib.coreweave.cloud/superpod", "backend.coreweave.cloud/fabric"],
            ["fabric", "superpod", "leafgroup", "rack"],
        ),
        (
            [f"fabric.topograph.run/tier-{n}" for n in (0, 1, 2, 3)],
            ["tier-3", "core", "spine", "leaf"],  # 0 is the nearest
        ),
        (
            [f"network.topology.nvidia.com/{key}" for key in ("block", "spine", "datacenter")],
            ["core", "spine", "leaf"],
        ),
        (
            [f"topologyconf.slurm.nebius.ai/tier-{n}" for n in (1, 2, 3)],
            ["tier-3", "tier-2", "tier-1"],
        ),
        (
            ["topology.kubernetes.io/region", "failure-domain.beta.kubernetes.io/zone"],
            ["region", "zone"],
        ),
    ],
)  # fmt: skip
def test_label_families_are_ordered_from_the_widest(keys: list[str], wanted: list[str]) -> None:
    levels, _, said = found(
        labelled(**{f"n{i}": dict.fromkeys(keys, f"v{i // 2}") for i in range(4)})
    )
    assert names(levels) == wanted
    assert sorted(str(level.label) for level in levels.levels) == sorted(keys)
    assert all(levels.domain(f"n{i}") == (f"v{i // 2}",) * len(keys) for i in range(4))
    assert said == []


def test_levels_of_single_nodes_are_none() -> None:
    levels, _, _ = found(
        labelled(**{f"n{i}": {f"{GKE}-block": "b", f"{GKE}-host": f"h{i}"} for i in range(3)})
    )
    assert names(levels) == ["block"]
    assert levels.resolve(LevelAsk(label=f"{GKE}-host")) == "node"


# --- NVLink domains


def cliques(*values: str | None, **more: str) -> list[Tree]:
    """Nodes with these cliques; ``more``: labels of all of them."""
    return labelled(
        **{
            f"n{i}": {**({} if value is None else {CLIQUE: value}), **more}
            for i, value in enumerate(values)
        }
    )


def test_cliques_are_a_level_of_their_own_inside_what_is_wider() -> None:
    levels, _, said = found(cliques("u.1", "u.1", "u.2", "u.2", **{f"{GKE}-block": "b"}))
    assert levels.levels == (Level("block", f"{GKE}-block"), Level("clique", CLIQUE, nvlink=True))
    assert said == []


def test_a_level_that_has_exactly_the_cliques_is_marked_instead() -> None:
    trees = [
        node(f"n{i}", {CLIQUE: f"u.{i // 2}", f"{GKE}-subblock": f"s{i // 2}"}) for i in range(4)
    ]
    levels, _, _ = found(trees)
    assert levels.levels == (Level("subblock", f"{GKE}-subblock", nvlink=True),)
    assert levels.resolve(LevelAsk(label=CLIQUE)) == "subblock"
    # A gang that asks for the clique asks for it under its own label.
    levels, _, _ = found(trees, CLIQUE)
    assert levels.levels == (
        Level("subblock", f"{GKE}-subblock", nvlink=True),
        Level("clique", CLIQUE, counted=False),
    )
    assert levels.resolve(LevelAsk(label=CLIQUE)) == "clique"
    assert levels.resolve(LevelAsk(label=f"{GKE}-subblock")) == "subblock"


def test_a_clique_of_zeros_is_none() -> None:
    zero = "00000000-0000-0000-0000-000000000000.0"
    levels, _, said = found(cliques(zero, zero, "u.1", "u.1"))
    assert levels.levels == (Level("clique", None, nvlink=True),)
    assert levels.domain("n0") == (None,)
    assert "n1: nvidia.com/gpu.clique names no NVLink cluster, only zeros; ignored" in said[0]
    assert found(cliques(zero, zero))[0].levels == ()


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("accelerator.topograph.run/domain", "nvlink-domain"),
        ("network.topology.nvidia.com/accelerator", "nvlink-domain"),
        ("ds.coreweave.com/nvlink.domain", "nvlink-domain"),
        ("topology.k8s.aws/ultraserver-id", "ultraserver"),
    ],
)
def test_other_labels_mark_nvlink_domains_where_there_are_no_cliques(key: str, name: str) -> None:
    trees = [node(f"n{i}", {key: f"d{i // 2}"}) for i in range(4)]
    assert found(trees)[0].levels == (Level(name, key, nvlink=True),)
    both = [node(f"n{i}", {key: f"d{i // 4}", CLIQUE: f"u.{i // 2}"}) for i in range(8)]
    assert found(both)[0].levels == (Level(name, key), Level("clique", CLIQUE, nvlink=True))


# --- the Policy


def test_the_policy_goes_before_all_else_and_says_itself_what_is_nvlink() -> None:
    own = (Level("row", "example.com/row", Fraction(3, 2)), Level("cell", CLIQUE))
    trees = [
        node(f"n{i}", {"example.com/row": "r", CLIQUE: f"u.{i // 2}", ZONE: "z"}) for i in range(4)
    ]
    levels, _, _ = found([*trees, topology("t", ZONE)], policy=KubernetesPolicy(levels=own))
    assert levels.levels == own
    assert levels.domain("n3") == ("r", "u.1")
    assert levels.found == "levels from the Policy: row (1 domain), cell (2)"


def test_a_level_of_the_policy_that_no_node_has_stays_and_is_remarked() -> None:
    policy = KubernetesPolicy(levels=(Level("row", "example.com/row"),))
    levels, _, said = found([kube.node("a")], policy=policy)
    assert levels.levels == policy.levels
    assert said == [
        "Policy level row: no node has the label of this level; every node is alone there"
    ]


# --- Topology objects


def test_the_topology_that_the_flavor_of_the_gpu_nodes_names_is_chosen() -> None:
    trees = [node(f"n{i}", {"a/row": "r", ZONE: "z", "pool": "gpu"}) for i in range(2)]
    flavor: Tree = {
        "apiVersion": "kueue.x-k8s.io/v1beta1",
        "kind": "ResourceFlavor",
        "metadata": {"name": "f"},
        "spec": {"nodeLabels": {"pool": "gpu"}, "topologyName": "second"},
    }
    both = [topology("first", "a/row", ZONE), topology("second", ZONE)]
    assert names(found([*trees, *both])[0]) == ["row", "zone"]
    levels, _, said = found([*trees, *both, flavor])
    assert names(levels) == ["zone"]
    [line] = said
    assert line == (
        "Kueue Topology first: not used; the levels are those of Kueue Topology second"
        " (hint: state `levels` in the Policy to use others)"
    )


def test_a_topology_of_kai_gives_its_aliases_as_names() -> None:
    trees = [node(f"n{i}", {"a/row": "r", "a/rack": f"k{i // 2}"}) for i in range(4)]
    kai = topology("k", "a/row", "a/rack", "kubernetes.io/hostname", kai=True, p0="Big Row")
    levels, _, _ = found([*trees, kai])
    assert levels.levels == (Level("Big-Row", "a/row"), Level("rack", "a/rack"))
    assert levels.found.startswith("levels from KAI Topology k: ")


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


# --- what gangs name


RACKS = [
    node(f"n{i}", {"a/row": f"w{i // 4}", "a/rack": f"k{i // 2}", "a/pod": f"p{i // 4}",
                          "a/pair": f"x{i % 2}", "a/all": "1"})
    for i in range(8)
]  # fmt: skip


def asked(*keys: str) -> tuple[Levels, list[str]]:
    levels, _, said = found([*RACKS, topology("t", "a/row", "a/rack")], *keys)
    return levels, said


def test_a_label_that_a_gang_names_becomes_a_level_where_it_nests() -> None:
    levels, said = asked("a/all")
    assert names(levels) == ["all", "row", "rack"]
    assert levels.resolve(LevelAsk(label="a/all")) == "all"
    assert said == []


def test_a_level_that_several_labels_tell_alike_goes_by_the_one_that_a_gang_names() -> None:
    keys = ("backend.coreweave.cloud/leafgroup", "ib.coreweave.cloud/leafgroup")
    nodes = labelled(**{f"n{i}": dict.fromkeys(keys, f"l{i // 2}") for i in range(4)})
    assert found(nodes)[0].levels == (Level("leafgroup", keys[0]),)
    assert found(nodes, keys[1])[0].levels == (Level("leafgroup", keys[1]),)
    # Two gangs, two labels, one level: the first counts.
    levels, _, _ = found(nodes, *keys)
    assert levels.levels == (Level("leafgroup", keys[0]),)
    assert levels.resolve(LevelAsk(label=keys[1])) == "leafgroup"


def test_a_label_that_cuts_the_domains_of_other_levels_is_no_level() -> None:
    # evens and odds of all racks: inside a rack each would stand alone
    levels, said = asked("a/pair")
    assert names(levels) == ["row", "rack"]
    assert levels.resolve(LevelAsk(label="a/pair")) is None
    assert levels.why_not(LevelAsk(label="a/pair")) == "which cuts domains of other levels"
    [line] = said
    assert line == (
        "level pair: left out: a gang names it, but it cuts domains of other levels; gangs that require"
        " it are held (hint: state `levels` in the Policy)"
    )


def test_a_label_that_a_node_lacks_is_no_level_around_the_racks() -> None:
    # n6 and n7 share rack k3; without a value n7 would be alone in its rack as well
    trees = [node(f"n{i}", {"a/rack": f"k{i // 2}", "a/hall": f"h{i // 4}"}) for i in range(8)]
    racks = topology("t", "a/rack")
    assert names(found([*trees, racks], "a/hall")[0]) == ["hall", "rack"]
    del trees[7]["metadata"]["labels"]["a/hall"]
    levels, _, _ = found([*trees, racks], "a/hall")
    assert names(levels) == ["rack"]
    # inside the racks nothing is cut: it is alone there anyway
    for i, tree in enumerate(trees[:7]):
        tree["metadata"]["labels"]["a/hall"] = f"h{i}" if i < 5 else "h5"
    assert names(found([*trees, racks], "a/hall")[0]) == ["rack"]
    trees[6]["metadata"]["labels"]["a/hall"] = "h6"
    assert found([*trees, racks], "a/hall")[0].resolve(LevelAsk(label="a/hall")) == "node"


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
    assert levels.resolve(LevelAsk(label="b/m0")) == "k1"  # the same two halves
    assert said == []
    # with room for one more the first that is named counts
    nine = [*trees, topology("t", *own[1:])]
    levels, _, _ = found(nine, "b/m0", "b/m1", "a/k0")
    assert [level.counted for level in levels.levels] == [True, False, *[True] * 8]
    resolved = [levels.resolve(LevelAsk(label=key)) for key in ("b/m0", "b/m1", "a/k0")]
    assert resolved == ["m0", "m0", None]


# --- the Policy that is saved


def test_the_saved_policy_gives_the_same_levels_again() -> None:
    gathered = kube.load("h100-gke")
    first, nodes, _ = found(gathered, ZONE)
    again, _, _ = found(gathered, ZONE, policy=saved(first))
    assert again.levels == first.levels
    assert all(again.domain(one.name) == first.domain(one.name) for one in nodes)


def saved(levels: Levels) -> KubernetesPolicy:
    document = PolicyDocument.model_validate(yaml.safe_load(levels.policy_text()))
    assert list(document.field_errors()) == []
    return kubernetes_policy(document.spec.kubernetes)


def test_the_name_of_an_object_cannot_break_out_of_the_saved_policy() -> None:
    name = "t\nspec: {nodeSelector: {a: b}}"
    trees = [node(f"n{i}", {"a/row": "r"}) for i in range(2)]
    levels, _, _ = found([*trees, topology(name, "a/row")])
    assert "\n" not in levels.found
    assert saved(levels).levels == (Level("row", "a/row"),)


def test_a_tier_that_the_policy_does_not_state_is_added_for_a_gang() -> None:
    halves = [(0, 4), (4, 8)]
    tiers = [
        hypernode(f"h{first}", 1, *(exact(f"n{i}") for i in range(first, last)))
        for first, last in halves
    ]
    policy = KubernetesPolicy(levels=(Level("rack", "a/rack"),))
    levels, _, _ = found([*RACKS, *tiers], LevelAsk(tier=1), policy=policy)
    assert names(levels) == ["hypernode-tier-1", "rack"]
    assert levels.resolve(LevelAsk(tier=1)) == "hypernode-tier-1"
    # a tier that half of the nodes lack would leave each of those alone in its rack
    levels, _, _ = found([*RACKS, tiers[0]], LevelAsk(tier=1), policy=policy)
    assert (names(levels), levels.resolve(LevelAsk(tier=1))) == (["rack"], None)
