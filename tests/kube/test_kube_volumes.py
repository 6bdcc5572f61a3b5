"""Volumes of waiting pods: which nodes reach them, and what makes a gang wait."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kube import node, pod
from kube_gangs import owned, thing
from kube_pods import read
from kube_volumes import NOW, claim, loaded, storage_class, using, volume
from outcomes import planned

from planner.read.kube.gangs.roles import MAX_TIES
from planner.read.kube.pods.volumes import (
    MAX_CLAIMS,
    TOO_MANY_CLAIMS,
    UNKNOWN,
)
from planner.show.reason_words import words

Tree = dict[str, Any]


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


def waits(name: str, *words: str) -> str:
    return f"Incomplete: PersistentVolumeClaim {name} {' '.join(words)}"


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


def in_zones(*zones: str) -> list[Tree]:
    return [node(f"n{i}", **{"topology.kubernetes.io/zone": zone}) for i, zone in enumerate(zones)]


def test_a_claim_that_waits_for_its_first_consumer_restricts_nothing(tmp_path: Path) -> None:
    trees = [*nodes(2), storage_class(), claim("c0"), claim("c1"), *gang(2, "c{}")]
    assert places(tmp_path, *trees) == ["n0", "n1"]


# bound claims, and what waits


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
            [claim("c0", of=""), storage_class()],
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
    ],
)
def test_a_claim_without_a_volume_to_come_is_waited_for(
    trees: list[Tree], words: str, tmp_path: Path
) -> None:
    assert places(tmp_path, *nodes(1), *trees, *gang(1, "c0")) == waits("c0", words)


def test_the_claim_of_an_ephemeral_volume_is_named_after_pod_and_volume(tmp_path: Path) -> None:
    scratch = [{"name": "s", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}}]
    trees = [
        *nodes(2),
        storage_class(),
        volume("p", "n1", phase="Bound"),
        *gang(1, volumes=scratch),
    ]
    assert places(tmp_path, *trees) == waits("j-0-s", "does not exist")
    assert places(tmp_path, *trees, claim("j-0-s", volumeName="p")) == ["n1"]


def test_a_list_of_all_kinds_says_as_much_as_lists_of_each(tmp_path: Path) -> None:
    bound = claim("c0", volumeName="p", phase="Bound")
    trees = [*nodes(3), bound, volume("p", "n1", phase="Bound"), *gang(1, "c0")]
    outcome = planned(loaded(tmp_path, *trees, lists=False).instance)
    assert outcome.nodes("j") == ["n1"]


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
    ref = {"namespace": "default", "name": "x1", "uid": "uid-default-x1"}
    odd = [
        claim("x0"),
        claim("x1", of="csi", volumeName="px"),
        volume("px", "n0", claimRef=ref),
        storage_class("csi"),
    ]
    users = [pod(f"x{i}", gated=True, volumes=using(f"x{i}")) for i in (0, 1)]
    bound = claim("c0", volumeName="p", phase="Bound")
    sound = [*nodes(2), bound, volume("p", "n1", phase="Bound"), *gang(1, "c0")]
    pods, _ = read(*sound)
    wanted = pods["j-0"].affinity
    assert wanted
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
                found = pods["j-0"]
                assert (found.affinity, found.waits_for, found.unsupported) == (wanted, (), ())


# bounds


def test_a_pod_of_more_claims_than_are_read_waits(tmp_path: Path) -> None:
    csi = storage_class("csi")
    for count in (MAX_CLAIMS, MAX_CLAIMS + 1):
        names = [f"c{i}" for i in range(count)]
        trees = [*nodes(1), csi, *(claim(name, of="csi") for name in names), *gang(1, *names)]
        found = places(tmp_path, *trees)
        assert found == (["n0"] if count == MAX_CLAIMS else f"Unsupported: {TOO_MANY_CLAIMS}")


def test_a_role_falls_into_so_many_and_no_more(tmp_path: Path) -> None:
    for size, held in ((MAX_TIES, False), (MAX_TIES + 1, True)):
        bound = [claim(f"c{i}", volumeName=f"p{i}", phase="Bound") for i in range(size)]
        disks = [volume(f"p{i}", f"n{i}", phase="Bound") for i in range(size)]
        trees = [*nodes(size), storage_class(), *bound, *disks, *gang(size, "c{}")]
        (found,) = loaded(tmp_path, *trees).instance.gangs
        assert len(found.roles) == (1 if held else MAX_TIES)
        assert (found.hold is not None) == held


# against brute force


def matched(asked: list[int], offered: list[int]) -> bool:
    """Whether each claim gets a volume of its own that is large enough: any order of them is tried."""
    return any(
        all(size <= got for size, got in zip(asked, order, strict=False))
        for order in itertools.permutations(offered, len(asked))
    )
