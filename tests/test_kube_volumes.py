"""Volumes of waiting pods: which nodes reach them, how many are free there, and what makes a gang wait."""

from __future__ import annotations

import copy
import itertools
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kube import node, pod
from kube_gangs import owned, thing
from kube_pods import read
from kube_volumes import NOW, claim, loaded, only_on, storage_class, using, volume
from outcomes import NOW as NOW_TEXT
from outcomes import planned

from models.results.plan import compose
from models.verify.check import check
from planner.read.kube.gangs.roles import MAX_TIES
from planner.read.kube.pods.volumes import (
    MAX_CLAIMS,
    MAX_SIZES,
    OWN_RESOURCE,
    TOO_MANY_CLAIMS,
    UNKNOWN,
)
from planner.search.solve import solve
from planner.show.reason_words import words

Tree = dict[str, Any]

SELECTED = "volume.kubernetes.io/selected-node"
DEFAULT = {"annotations": {"storageclass.kubernetes.io/is-default-class": "true"}}


def gang(size: int, *claims: str, name: str = "j", gpus: int = 8, **fields: Any) -> list[Tree]:  # noqa: ANN401
    """A Job of gated pods; ``claims``: of each, {} its index."""
    spec = {"parallelism": size, "completions": size, "completionMode": "Indexed"}
    pods = []
    for i in range(size):
        made = pod(
            f"{name}-{i}",
            gpus=gpus,
            labels={"batch.kubernetes.io/job-completion-index": str(i)},
            **{"gated": True, "volumes": using(*(one.format(i) for one in claims)), **fields},
        )
        pods.append(owned(made, "Job", "batch/v1", name))
    return [thing("Job", "batch/v1", name, spec), *pods]


def places(folder: Path, *trees: Tree, name: str = "j") -> list[str] | str:
    """The nodes of a gang's pods, sorted; the reason if it waits."""
    outcome = planned(loaded(folder, *trees).instance, small=False)
    reason = outcome.of(name).reason
    if outcome.decision(name) == "wait":
        assert reason is not None
        return f"{reason.code}: {words(reason)}"
    return sorted(outcome.nodes(name))


def nodes(count: int, **labels: str) -> list[Tree]:
    return [node(f"n{i}", **labels) for i in range(count)]


def claims(size: int, **fields: Any) -> list[Tree]:  # noqa: ANN401  # any field of a claim
    return [claim(f"c{i}", **fields) for i in range(size)]


def waits(name: str, *words: str) -> str:
    return f"Incomplete: PersistentVolumeClaim {name} {' '.join(words)}"


# local volumes


def test_a_gang_goes_to_the_nodes_that_have_a_volume_for_each_of_its_pods(tmp_path: Path) -> None:
    disks = [volume("p0", "n1"), volume("p1", "n3")]
    found = places(tmp_path, *nodes(4), storage_class(), *claims(2), *disks, *gang(2, "c{}"))
    assert found == ["n1", "n3"]


def test_a_gang_waits_where_one_of_its_pods_has_no_volume(tmp_path: Path) -> None:
    found = places(
        tmp_path, *nodes(4), storage_class(), *claims(2), volume("p0", "n1"), *gang(2, "c{}")
    )
    assert found == (
        "Resources: needs 2 pods of 8 GPUs; before this plan, the GPUs and the "
        "volumes.gangplan.dev/local-10Gi of its nodes are enough for 1 pod; even if no gang ran its pods "
        "would not fit: smaller requests would help"
    )


def test_two_gangs_do_not_get_one_volume(tmp_path: Path) -> None:
    two = [*gang(1, "c0", name="a", gpus=1), *gang(1, "c1", name="b", gpus=1)]
    disks = [volume("p0", "n0"), volume("p1", "n1")]
    trees = [*nodes(2), storage_class(), *claims(2), *two]
    outcome = planned(loaded(tmp_path, *trees, *disks).instance)
    assert sorted(outcome.nodes("a") + outcome.nodes("b")) == ["n0", "n1"]
    outcome = planned(loaded(tmp_path, *trees, disks[0]).instance)
    assert sorted(outcome.decisions().values()) == ["place", "wait"]


def test_a_volume_is_taken_by_claims_that_are_small_enough(tmp_path: Path) -> None:
    sizes = [claim("c0", size="5Gi"), claim("c1", size="60Gi")]
    trees = [*nodes(1), storage_class(), *sizes, *gang(1, "c0", "c1")]
    both = [volume("p0", "n0", size="50Gi"), volume("p1", "n0", size="100Gi")]
    assert places(tmp_path, *trees, *both) == ["n0"]
    small = volume("p1", "n0", size="59Gi")
    assert "no volume of its size" in places(tmp_path, *trees, both[0], small)
    # one large volume does for either claim, not for both
    assert "local-100Gi" in places(tmp_path, *trees, both[1], volume("p2", "n9", size="1Gi"))


@pytest.mark.parametrize(
    "change",
    [
        {"phase": "Released"},
        {"phase": "Pending"},
        {"of": "other"},
        {"volumeMode": "Block"},
        {"claimRef": {"namespace": "else", "name": "c0"}},
        {"metadata": {"deletionTimestamp": "2026-11-20T08:00:00Z"}},
        {"nodeAffinity": only_on("n9")},
        {"nodeAffinity": {"required": {"nodeSelectorTerms": [{}]}}},
        {"capacity": {"storage": "9Gi"}},
        {"capacity": {"storage": "1e400"}},
        {"capacity": None},
        {"capacity": {"storage": -1}},
    ],
)
def test_a_volume_counts_only_if_a_claim_can_take_it(change: Tree, tmp_path: Path) -> None:
    trees = [*nodes(1), storage_class(), claim("c0"), *gang(1, "c0")]
    assert places(tmp_path, *trees, volume("p", "n0")) == ["n0"]
    assert isinstance(places(tmp_path, *trees, volume("p", "n0", **change)), str)


def test_a_volume_reserved_for_a_claim_is_its_volume(tmp_path: Path) -> None:
    ref = {"namespace": "default", "name": "c0", "uid": "uid-default-c0"}
    mine = volume("p", "n1", claimRef=ref, phase="Bound")
    trees = [*nodes(3), storage_class(), claim("c0"), *gang(1, "c0")]
    assert places(tmp_path, *trees, mine) == ["n1"]
    other = volume("p", "n1", claimRef={**ref, "uid": "of-another"})
    assert isinstance(places(tmp_path, *trees, other), str)


def test_claims_that_choose_by_label_or_access_mode_wait_and_take_nothing(tmp_path: Path) -> None:
    trees = [*nodes(1), storage_class(), volume("p", "n0"), *gang(1, "c0")]
    odd = claim("c0", selector={"matchLabels": {"a": "b"}})
    assert "by label" in places(tmp_path, *trees, odd)
    many = claim("c0", accessModes=["ReadWriteMany"])
    shared = volume("q", "n0", accessModes=["ReadWriteMany"])
    assert "access modes" in places(tmp_path, *trees, shared, many)
    without = [tree for tree in trees if tree["kind"] != "PersistentVolume"]
    assert places(tmp_path, *without, shared, many) == ["n0"]
    odd = volume("q", "n0", accessModes=["ReadOnlyMany"], size="1Ti")
    assert places(tmp_path, *trees, odd, claim("c0")) == ["n0"]
    assert "no volume of its size" in places(tmp_path, *trees, odd, claim("c0", size="11Gi"))
    both = volume("q", "n0", accessModes=["ReadWriteOnce", "ReadWriteMany"])
    assert "access modes" in places(tmp_path, *trees, both, many)


def test_a_pod_that_holds_room_uses_up_a_volume_until_its_claim_is_bound(tmp_path: Path) -> None:
    tied = {"kubernetes.io/hostname": "n0"}
    other = pod("other", namespace="else", nodeSelector=tied, volumes=using("c"))
    theirs = claim("c", namespace="else")
    trees = [*nodes(2), storage_class(), claim("c0"), theirs, *gang(1, "c0", gpus=1)]
    disks = [volume("p0", "n0"), volume("p1", "n1")]
    assert places(tmp_path, *trees, *disks, other) == ["n1"]
    assert isinstance(places(tmp_path, *trees, disks[0], other), str)
    assert places(tmp_path, *trees, disks[0]) == ["n0"]


def test_claims_of_strangers_that_only_wait_take_nothing(tmp_path: Path) -> None:
    many = [claim(f"x{i}", namespace="else", size=f"{i + 1}Mi") for i in range(300)]
    greedy = pod("greedy", namespace="else", volumes=using(*(f"x{i}" for i in range(300))))
    bound = pod("bound", namespace="else", on="n0", volumes=using(*(f"x{i}" for i in range(300))))
    trees = [*nodes(1), storage_class(), claim("c0"), volume("p", "n0"), *gang(1, "c0")]
    assert places(tmp_path, *trees, *many, greedy, bound) == ["n0"]


def test_no_pod_requests_a_volume_as_if_it_were_a_resource(tmp_path: Path) -> None:
    name = "volumes.gangplan.dev/local-10Gi"
    cheat = pod("x", namespace="else", gated=True, gpus=1)
    cheat["spec"]["containers"][0]["resources"]["requests"][name] = "1000"
    held = pod("y", namespace="else", on="n0")
    held["spec"]["containers"][0]["resources"]["requests"][name] = "1000"
    liar = node("n1")
    liar["status"]["allocatable"][name] = "1000"
    trees = [node("n0"), liar, storage_class(), claim("c0"), volume("p", "n0"), *gang(1, "c0")]
    assert places(tmp_path, *trees, cheat, held) == ["n0"]
    assert places(tmp_path, *trees, cheat, held, name="x") == f"Unsupported: {OWN_RESOURCE}"


def test_pods_of_a_running_gang_that_wait_for_a_volume_are_a_role_of_their_own(
    tmp_path: Path,
) -> None:
    job, first, second = gang(2, "c{}")
    first["spec"] |= {"nodeName": "n0", "schedulingGates": []}
    first["status"]["phase"] = "Running"
    ref = {"namespace": "default", "name": "c0"}
    disks = [volume("p0", "n0", claimRef=ref, phase="Bound"), volume("p1", "n2")]
    bound = claim("c0", volumeName="p0", phase="Bound")
    trees = [*nodes(3), storage_class(), bound, claim("c1"), *disks, job, first, second]
    outcome = planned(loaded(tmp_path, *trees).instance)
    assert outcome.decision("j") == "complete"
    assert sorted(outcome.nodes("j")) == ["n0", "n2"]


def test_pods_with_volumes_on_several_nodes_still_share_the_domain_they_ask_for(
    tmp_path: Path,
) -> None:
    notes = {"kueue.x-k8s.io/podset-required-topology": "example.com/rack"}
    racks = [node(f"n{i}", **{"example.com/rack": f"r{i // 2}"}) for i in range(4)]
    bound = [claim(f"c{i}", volumeName=f"p{i}", phase="Bound") for i in (0, 1)]
    for other, found in ((3, ["n2", "n3"]), (1, None)):
        disks = [volume("p0", "n2", phase="Bound"), volume("p1", f"n{other}", phase="Bound")]
        trees = [*racks, storage_class(), *bound, *disks, *gang(2, "c{}", annotations=notes)]
        at = places(tmp_path, *trees)
        assert at == found if found else isinstance(at, str)


# volumes that several nodes reach


def zonal(count: int, zone: str = "a", **fields: Any) -> list[Tree]:  # noqa: ANN401
    affinity = only_on(zone, key="topology.kubernetes.io/zone")
    return [volume(f"{zone}{i}", nodeAffinity=affinity, **fields) for i in range(count)]


def in_zones(*zones: str) -> list[Tree]:
    return [node(f"n{i}", **{"topology.kubernetes.io/zone": zone}) for i, zone in enumerate(zones)]


def test_no_more_pods_go_to_a_zone_than_it_has_volumes(tmp_path: Path) -> None:
    trees = [*in_zones("b", "a", "a", "b"), storage_class(), *claims(3), *gang(3, "c{}")]
    assert places(tmp_path, *trees, *zonal(2), *zonal(1, "b")) in (
        ["n0", "n1", "n2"],
        ["n1", "n2", "n3"],
    )
    assert isinstance(places(tmp_path, *trees, *zonal(2)), str)


def test_volumes_of_a_zone_are_dealt_to_the_nodes_with_most_free_gpus(tmp_path: Path) -> None:
    busy = [pod(f"x{n}", gpus=4, on=f"n{n}", namespace="else") for n in (0, 1)]
    trees = [*in_zones("a", "a", "a", "a"), storage_class(), *claims(2), *busy]
    assert places(tmp_path, *trees, *zonal(2), *gang(2, "c{}")) == ["n2", "n3"]


# bound claims, classes that make volumes, and what waits


def test_a_bound_claim_ties_its_pod_to_the_nodes_of_its_volume(tmp_path: Path) -> None:
    bound = [claim(f"c{i}", volumeName=f"p{i}", phase="Bound") for i in (0, 1)]
    disks = [volume(f"p{i}", f"n{2 - i}", phase="Bound") for i in (0, 1)]
    trees = [*nodes(3), storage_class(), *bound, *gang(2, "c{}")]
    outcome = planned(loaded(tmp_path, *trees, *disks).instance)
    assert sorted(outcome.nodes("j")) == ["n1", "n2"]
    zoned = volume(
        "p0", phase="Bound", metadata={"labels": {"topology.kubernetes.io/zone": "a__b"}}
    )
    trees = [*in_zones("c", "b"), storage_class(), bound[0], zoned, *gang(1, "c0")]
    assert places(tmp_path, *trees) == ["n1"]


def test_a_class_allows_topologies_and_a_selected_node_decides(tmp_path: Path) -> None:
    term = {"matchLabelExpressions": [{"key": "topology.kubernetes.io/zone", "values": ["b"]}]}
    csi = storage_class("csi", provisioner="csi.example.com", allowedTopologies=[term])
    trees = [*in_zones("a", "b", "b"), *gang(1, "c0")]
    assert places(tmp_path, *trees, csi, claim("c0", of="csi")) in (["n1"], ["n2"])
    free = storage_class("csi", provisioner="csi.example.com")
    chosen = claim("c0", of="csi", metadata={"annotations": {SELECTED: "n2"}})
    assert places(tmp_path, *trees, free, chosen) == ["n2"]
    both = claim("c0", of="csi", metadata={"annotations": {SELECTED: "n0"}})
    assert places(tmp_path, *trees, csi, both).startswith("Never")  # type: ignore[union-attr]


GONE = {"deletionTimestamp": "2026-11-20T08:00:00Z"}


@pytest.mark.parametrize(
    ("trees", "words"),
    [
        ([], "does not exist"),
        ([claim("c0", namespace="else")], "does not exist"),
        ([claim("c0")], "names StorageClass local, which does not exist"),
        (
            [claim("c0"), storage_class(mode=NOW)],
            "is not bound yet, and StorageClass local binds at once",
        ),
        ([claim("c0", of=None), storage_class()], "has no storage class and no volume"),
        (
            [claim("c0", of=""), storage_class(metadata=DEFAULT)],
            "has no storage class and no volume",
        ),
        ([claim("c0", phase="Lost", volumeName="p")], "has lost its volume"),
        ([claim("c0", metadata=GONE), storage_class()], "is being deleted"),
        ([claim("c0", volumeName="p")], "is for PersistentVolume p, which does not exist"),
        (
            [
                claim("c0", volumeName="p"),
                volume("p", claimRef={"namespace": "else", "name": "c0"}),
            ],
            "is for PersistentVolume p, which another claim has",
        ),
        (
            [
                claim("c0", metadata={"annotations": {SELECTED: "x" * 9999}}),
                storage_class(provisioner="csi.example.com"),
            ],
            "has a selected node that is none",
        ),
        (
            [claim("c0", metadata={"annotations": {SELECTED: "n0"}}), storage_class()],
            "has a selected node, which StorageClass local cannot serve",
        ),
    ],
)
def test_a_claim_without_a_volume_to_come_is_waited_for(
    trees: list[Tree], words: str, tmp_path: Path
) -> None:
    assert places(tmp_path, *nodes(1), *trees, *gang(1, "c0")) == waits("c0", words)


def test_a_claim_that_names_no_class_has_the_default_one(tmp_path: Path) -> None:
    default = storage_class(metadata=DEFAULT, provisioner="csi.example.com")
    old = {**DEFAULT, "creationTimestamp": "2020-01-01T00:00:00Z"}
    older = storage_class("older", metadata=old, mode=NOW)
    default["metadata"]["creationTimestamp"] = "2021-01-01T00:00:00Z"
    trees = [*nodes(1), claim("c0", of=None), *gang(1, "c0")]
    assert places(tmp_path, *trees, default, older) == ["n0"]
    assert places(tmp_path, *trees, older) == waits(
        "c0", "is not bound yet, and StorageClass older binds at once"
    )


def test_the_claim_of_an_ephemeral_volume_is_named_after_pod_and_volume(tmp_path: Path) -> None:
    scratch = [{"name": "s", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}}]
    trees = [*nodes(2), storage_class(), volume("p", "n1"), *gang(1, volumes=scratch)]
    assert places(tmp_path, *trees) == waits("j-0-s", "does not exist")
    assert places(tmp_path, *trees, claim("j-0-s")) == ["n1"]


def test_a_list_of_all_kinds_says_as_much_as_lists_of_each(tmp_path: Path) -> None:
    trees = [*nodes(3), storage_class(), claim("c0"), volume("p", "n1"), *gang(1, "c0")]
    outcome = planned(loaded(tmp_path, *trees, lists=False).instance)
    assert outcome.nodes("j") == ["n1"]


def test_what_gangplan_binds_itself_gets_no_existing_volume(tmp_path: Path) -> None:
    ours = gang(1, "c0", schedulerName="gangplan", gated=False)
    found = places(tmp_path, *nodes(1), storage_class(), claim("c0"), volume("p", "n0"), *ours)
    assert found == (
        "Unsupported: PersistentVolumeClaim c0, to which only kube-scheduler gives a volume of its class"
    )
    csi = storage_class(provisioner="csi.example.com")
    assert places(tmp_path, *nodes(1), csi, claim("c0"), *ours) == ["n0"]


def test_a_claim_that_pods_share_before_it_has_a_volume_waits(tmp_path: Path) -> None:
    trees = [*nodes(2), volume("p", "n0"), *gang(2, "c0")]
    shared = "Unsupported: PersistentVolumeClaim c0, which 2 pods use before it has a volume"
    assert places(tmp_path, *trees, storage_class(), claim("c0")) == shared
    csi = storage_class(provisioner="csi.example.com")
    assert places(tmp_path, *trees, csi, claim("c0")) == shared
    many = claim("c0", accessModes=["ReadWriteMany"])
    assert places(tmp_path, *trees, csi, many) == ["n0", "n1"]
    once = claim("c0", accessModes=["ReadWriteOncePod"], volumeName="q", phase="Bound")
    found = places(tmp_path, *trees, once, volume("q", phase="Bound"))
    assert found == "Unsupported: PersistentVolumeClaim c0, which 2 pods use and only one may"


def test_without_lists_of_claims_nothing_is_assumed_and_that_is_a_remark(tmp_path: Path) -> None:
    read = loaded(tmp_path, *nodes(1), *gang(1, "c0"), lists=False)
    assert planned(read.instance).decision("j") == "place"
    assert any(UNKNOWN in line for line in read.remarks)


def test_a_policy_may_ignore_volumes(tmp_path: Path) -> None:
    policy = {
        "apiVersion": "gangplan.dev/v1alpha1",
        "kind": "Policy",
        "spec": {"kubernetes": {"ignore": ["volumeZone"]}},
    }
    assert places(tmp_path, policy, *nodes(1), *gang(1, "c0")) == ["n0"]


# malformed objects

JUNK = (None, 0, -1, 10**30, True, "", "x", "1e999Gi", [], [None], {}, {"a": []}, [[]], 1.5)


def _paths(tree: object, path: tuple[object, ...] = ()) -> Iterator[tuple[object, ...]]:
    inside = (
        tree.items()
        if isinstance(tree, dict)
        else enumerate(tree)
        if isinstance(tree, list)
        else ()
    )
    for key, below in inside:
        yield (*path, key)
        yield from _paths(below, (*path, key))


def _replaced(tree: Any, path: tuple[Any, ...], value: object) -> Any:  # noqa: ANN401
    if not path:
        return value
    copied = copy.copy(tree)
    copied[path[0]] = _replaced(tree[path[0]], path[1:], value)
    return copied


def test_a_malformed_object_ends_nothing_and_changes_no_other_gang(tmp_path: Path) -> None:
    term = {"matchLabelExpressions": [{"key": "topology.kubernetes.io/zone", "values": ["b"]}]}
    ref = {"namespace": "default", "name": "x1", "uid": "uid-default-x1"}
    odd = [
        claim("x0", selector={"matchLabels": {"a": "b"}}, volumeMode="Filesystem"),
        claim("x1", of="csi", metadata={"annotations": {SELECTED: "n0"}}),
        volume("px", "n0", of="odd", claimRef=ref, volumeMode="Filesystem"),
        storage_class(
            "csi", provisioner="csi.example.com", allowedTopologies=[term], metadata=DEFAULT
        ),
    ]
    users = [pod(f"x{i}", gated=True, volumes=using(f"x{i}")) for i in (0, 1)]
    sound = [*nodes(2), storage_class(), claim("c0"), volume("p", "n1"), *gang(1, "c0")]
    for number, one in enumerate(odd):
        for path in _paths(one):
            if path[0] in ("kind", "apiVersion") or path[:2] in (
                ("metadata",),
                ("metadata", "name"),
            ):
                continue
            for junk in JUNK:
                trees = [*odd[:number], _replaced(one, path, junk), *odd[number + 1 :]]
                pods, _ = read(*sound, *trees, *users)
                requests, affinity = pods["j-0"].volumes
                assert requests == (("volumes.gangplan.dev/local-10Gi", 1),), (path, junk)
                assert (affinity, pods["j-0"].waits_for, pods["j-0"].unsupported) == ((), (), ())


# the judge


def test_the_judge_refuses_more_pods_on_a_node_than_it_has_volumes(tmp_path: Path) -> None:
    disks = [volume("p0", "n0"), volume("p1", "n1")]
    two = [*gang(1, "c0", name="a", gpus=1), *gang(1, "c1", name="b", gpus=1)]
    instance = loaded(tmp_path, *nodes(2), storage_class(), *claims(2), *disks, *two).instance
    solution = solve(instance)
    same = [
        replace(one, pods=tuple(replace(pod, node=0, gpus=1 << g) for pod in one.pods))
        for g, one in enumerate(solution.decisions)
    ]
    forged = replace(solution, decisions=tuple(same))
    plan = compose(instance, forged, name="x", created_at=NOW_TEXT, generator="gangplan test")
    assert any("volumes.gangplan.dev/local-10Gi" in str(one) for one in check(plan))


# bounds


def test_a_pod_of_more_claims_than_are_read_waits(tmp_path: Path) -> None:
    csi = storage_class("csi", provisioner="csi.example.com")
    for count in (MAX_CLAIMS, MAX_CLAIMS + 1):
        names = [f"c{i}" for i in range(count)]
        trees = [*nodes(1), csi, *(claim(name, of="csi") for name in names), *gang(1, *names)]
        found = places(tmp_path, *trees)
        assert found == (["n0"] if count == MAX_CLAIMS else f"Unsupported: {TOO_MANY_CLAIMS}")


def test_many_sizes_are_counted_as_few(tmp_path: Path) -> None:
    disks = [volume(f"p{i}", f"n{i % 2}", size=f"{i + 1}Gi") for i in range(200)]
    asked = [claim(f"c{i}", size=f"{i + 1}Gi") for i in range(200)]
    own = [pod(f"x{i}", gated=True, volumes=using(f"c{i}")) for i in range(200)]
    read = loaded(tmp_path, *nodes(2), storage_class(), *disks, *asked, *own)
    names = {name for one in read.instance.gangs for name, _ in one.roles[0].requests}
    counted = sorted(name for name in names if name.startswith("volumes.gangplan.dev/"))
    assert len(counted) == MAX_SIZES
    assert "volumes.gangplan.dev/local-200Gi" in counted
    assert "volumes.gangplan.dev/local-13Gi" in counted  # 199 // 16 sizes are below it


def test_a_role_falls_into_so_many_and_no_more(tmp_path: Path) -> None:
    for size, held in ((MAX_TIES, False), (MAX_TIES + 1, True)):
        bound = [claim(f"c{i}", volumeName=f"p{i}", phase="Bound") for i in range(size)]
        disks = [volume(f"p{i}", f"n{i}", phase="Bound") for i in range(size)]
        trees = [*nodes(size), storage_class(), *bound, *disks, *gang(size, "c{}")]
        (found,) = loaded(tmp_path, *trees).instance.gangs
        assert len(found.roles) == (1 if held else MAX_TIES)
        assert (found.hold is not None) == held


def test_a_class_of_any_name_has_resources_of_valid_names(tmp_path: Path) -> None:
    for name in ("a" * 253, "x.y-z", "a"):
        for mode in ("Block", "Filesystem"):
            trees = [storage_class(name), claim("c0", of=name, volumeMode=mode)]
            disk = volume("p", "n0", of=name, volumeMode=mode)
            assert places(tmp_path, *nodes(1), *trees, disk, *gang(1, "c0")) == ["n0"]


# against brute force


def matched(asked: list[int], offered: list[int]) -> bool:
    """Whether each claim gets a volume of its own that is large enough: any order of them is tried."""
    return any(
        all(size <= got for size, got in zip(asked, order, strict=False))
        for order in itertools.permutations(offered, len(asked))
    )


@pytest.mark.parametrize("seed", range(40))
def test_a_gang_is_placed_exactly_if_its_claims_can_have_volumes(seed: int, tmp_path: Path) -> None:
    dice = random.Random(seed)
    disks = [(dice.randrange(2), dice.randint(1, 4)) for _ in range(dice.randint(1, 5))]
    sizes = [dice.randint(1, 4) for _ in range(dice.randint(1, 3))]
    each = dice.randint(1, 2)
    size_of = {f"c{i}-{k}": sizes[k % len(sizes)] for i in range(2) for k in range(each)}
    held = [
        *(claim(name, size=str(size)) for name, size in size_of.items()),
        *(volume(f"p{i}", f"n{n}", size=str(size)) for i, (n, size) in enumerate(disks)),
    ]
    names = tuple(f"c{{}}-{k}" for k in range(each))
    found = places(tmp_path, *nodes(2), storage_class(), *held, *gang(2, *names, gpus=0))
    asked = [size_of[f"c0-{k}"] for k in range(each)]
    there = [[size for n, size in disks if n == node] for node in range(2)]
    possible = [
        at
        for at in itertools.product(range(2), repeat=2)
        if all(matched(asked * at.count(n), there[n]) for n in range(2))
    ]
    assert isinstance(found, list) == bool(possible), (disks, asked, found)
    if isinstance(found, list):
        at = [int(name[1:]) for name in found]
        assert all(matched(asked * at.count(n), there[n]) for n in range(2))


@pytest.mark.parametrize("seed", range(40))
def test_kube_scheduler_finds_a_volume_for_every_pod_that_is_placed(
    seed: int, tmp_path: Path
) -> None:
    """Whatever the order of the pods: the smallest volume that fits and that the node reaches."""
    dice = random.Random(seed)
    disks = []
    for i in range(dice.randint(1, 6)):
        reach = sorted(dice.sample(range(3), dice.choice((1, 1, 2, 3))))
        disks.append((f"p{i}", reach, dice.randint(1, 3)))
    sizes = {name: dice.randint(1, 3) for name in "abcd"}
    trees = [
        *nodes(3),
        storage_class(),
        *(claim(name, size=str(size)) for name, size in sizes.items()),
        *(
            volume(name, size=str(size), nodeAffinity=only_on(*(f"n{n}" for n in reach)))
            for name, reach, size in disks
        ),
        *(tree for name in "abcd" for tree in gang(1, name, name=f"g-{name}", gpus=1)),
    ]
    outcome = planned(loaded(tmp_path, *trees).instance, small=False)
    placed = [name for name in "abcd" if outcome.decision(f"g-{name}") == "place"]
    for order in itertools.permutations(placed):
        left = list(disks)
        for name in order:
            n = int(outcome.nodes(f"g-{name}")[0][1:])
            fits = [one for one in left if n in one[1] and one[2] >= sizes[name]]
            assert fits, (seed, order, name, disks, sizes)
            left.remove(min(fits, key=lambda one: (one[2], one[0])))
