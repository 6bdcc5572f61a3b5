"""MIG: the sets of instances that a GPU can have, documents that state them, and plans with them."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from functools import cache
from itertools import product
from random import Random
from typing import Any

import pytest
import yaml
from building import instance_document
from effort import examples

from models.documents.base import digest
from models.instance.instance import Instance
from models.mig import (
    NONE_HAS,
    board_named,
    boards,
    cover,
    fewest,
)
from models.results.plan import compose
from models.verify.check import check
from planner.read.inputs import instance_from_document, load
from planner.read.kube.nodes.products import mig_boards
from planner.search.solve import solve

Json = dict[str, Any]
Places = tuple[tuple[int, ...], int, int]
"""Where a profile may begin, its slices, and how many of it a GPU has at most."""

# as nvidia-smi mig -lgipp prints them, apart from models/mig.yaml
EIGHT: dict[str, Places] = {
    "1g": ((0, 1, 2, 3, 4, 5, 6), 1, 7), "2g": ((0, 2, 4), 2, 3), "3g": ((0, 4), 4, 2),
    "4g": ((0,), 4, 1), "7g": ((0,), 8, 1),
}  # fmt: skip
DOUBLE: dict[str, Places] = {**EIGHT, "1g double": ((0, 2, 4, 6), 2, 4)}
MEDIA: dict[str, Places] = {**DOUBLE, "1g+me": (EIGHT["1g"][0], 1, 1)}
FOUR: dict[str, Places] = {
    "1g": ((0, 1, 2, 3), 1, 4), "2g": ((0, 2), 2, 2), "4g": ((0,), 4, 1),
}  # fmt: skip
NAMES = {
    "A100-40": {"1g": "1g.5gb", "1g double": "1g.10gb", "2g": "2g.10gb", "3g": "3g.20gb",
                "4g": "4g.20gb", "7g": "7g.40gb", "1g+me": "1g.5gb+me"},
    "A100-80": {"1g": "1g.10gb", "1g double": "1g.20gb", "2g": "2g.20gb", "3g": "3g.40gb",
                "4g": "4g.40gb", "7g": "7g.80gb", "1g+me": "1g.10gb+me"},
    "A30": {"1g": "1g.6gb", "2g": "2g.12gb", "4g": "4g.24gb"},
    "H200": {"1g": "1g.18gb", "1g double": "1g.35gb", "2g": "2g.35gb", "3g": "3g.71gb",
             "4g": "4g.71gb", "7g": "7g.141gb", "1g+me": "1g.18gb+me"},
    "GB300": {"1g": "1g.35gb", "1g double": "1g.70gb", "2g": "2g.70gb", "3g": "3g.139gb",
              "4g": "4g.139gb", "7g": "7g.278gb", "1g+me": "1g.35gb+me"},
}  # fmt: skip
LAYOUTS = {name: FOUR if name == "A30" else MEDIA for name in NAMES}
BOARDS = {board.name: board for board in boards()}


@cache
def placed(kinds: tuple[tuple[str, Places], ...]) -> list[tuple[int, tuple[str, ...]]]:
    """(occupied slices, kinds) of every way to place instances on one GPU, the empty one too."""
    places = [
        (k, ((1 << size) - 1) << at, most) for k, (starts, size, most) in kinds for at in starts
    ]
    found: list[tuple[int, tuple[str, ...]]] = [(0, ())]
    ahead: list[tuple[int, int, tuple[str, ...]]] = [(0, 0, ())]
    while ahead:
        first, taken, chosen = ahead.pop()
        for number, (kind, mask, most) in enumerate(places[first:], start=first):
            if not mask & taken and chosen.count(kind) < most:
                state = (taken | mask, (*chosen, kind))
                found.append(state)
                ahead.append((number + 1, *state))
    return found


def multisets(kinds: Mapping[str, Places]) -> set[tuple[str, ...]]:
    return {tuple(sorted(chosen)) for _, chosen in placed(tuple(kinds.items()))}


@pytest.mark.parametrize("name", NAMES)
def test_a_board_can_have_these_sets_and_no_other(name: str) -> None:
    kinds, names, board = LAYOUTS[name], NAMES[name], BOARDS[name]
    legal = multisets(kinds)
    # every set with at most one more of a kind than there may be
    for counts in product(*(range(most + 2) for _, _, most in kinds.values())):
        asked = [kind for kind, count in zip(kinds, counts, strict=True) for _ in range(count)]
        if len(asked) <= 9:
            stands = board.can_have(names[kind] for kind in asked)
            assert stands == (tuple(sorted(asked)) in legal), asked


def test_of_two_kinds_with_media_engines_one_is_on_a_gpu() -> None:
    assert BOARDS["A30"].can_have(["1g.6gb+me", "2g.12gb"])
    assert not BOARDS["A30"].can_have(["1g.6gb+me", "2g.12gb+me"])


@pytest.mark.parametrize("name", NAMES)
def test_instances_have_places_where_they_may_begin_and_none_lies_over_another(name: str) -> None:
    """For every set beside every set of slices that is left by one that a GPU can have."""
    kinds, names, board = LAYOUTS[name], NAMES[name], BOARDS[name]
    starts = {names[kind]: (at, size) for kind, (at, size, _) in kinds.items()}
    states = placed(tuple(kinds.items()))
    possible = {(taken, tuple(sorted(chosen))) for taken, chosen in states}
    full = (1 << 4 if name == "A30" else 1 << 8) - 1
    for own in multisets(kinds):
        asked = tuple(names[kind] for kind in own)
        masks = [one for one, chosen in possible if chosen == own]
        for taken in {state for state, _ in states}:
            fits = any(not one & taken for one in masks)
            found = board.places(asked, taken)
            assert (found is not None) == fits, (asked, taken)
            mask = taken
            assert found is None or sorted(kind for kind, _ in found) == sorted(asked)
            for kind, start in found or ():
                at, size = starts[kind]
                slices = (1 << size) - 1 << start
                assert start in at
                assert not mask & slices
                mask |= slices
            assert mask <= full


@pytest.mark.parametrize("name", NAMES)
def test_beside_instances_in_use_a_board_can_have_what_their_slices_leave(name: str) -> None:
    """For every placed state: what comes beside it makes a state that there is, and nothing else does."""
    kinds, names, board = LAYOUTS[name], NAMES[name], BOARDS[name]
    places = [(kind, at) for kind, (starts, _, _) in kinds.items() for at in starts]
    states: dict[frozenset[tuple[str, int]], set[tuple[str, ...]]] = {frozenset(): set()}
    for state in list_states(kinds, places):
        states[state] = set()
    for state in states:
        for (
            kind,
            at,
        ) in state:  # as many levels as a GPU has instances: each state feeds those within it
            within = state - {(kind, at)}
            states[within].add((kind,))
    r = Random(name)
    for state in r.sample(sorted(states, key=sorted), min(len(states), examples(800, 150))):
        beside = board.in_use([(names[kind], at) for kind, at in sorted(state)])
        assert beside is not None
        for kind in kinds:
            assert board.can_have([names[kind]], beside) == ((kind,) in states[state]), (
                state,
                kind,
            )
        more = r.choices(sorted(kinds), k=2)
        larger = (other for other in states if state < other and len(other) == len(state) + 2)
        there = any(sorted(kind for kind, _ in other - state) == sorted(more) for other in larger)
        assert board.can_have([names[kind] for kind in more], beside) == there, (state, more)
    for kind, at in places:
        assert board.in_use([(names[kind], at), (names[kind], at)]) is None
        assert board.in_use([(names[kind], 9)]) is None


@pytest.mark.parametrize("name", ["H100-80", "A30"])
def test_the_fewest_gpus_for_instances_are_those_that_cover_them(name: str) -> None:
    board, r = board_named(name), Random(name)
    assert board is not None
    names = tuple(one.names[0] for one in board.profiles)
    for _ in range(200):
        wanted = tuple(r.sample(names, 3))
        asked = tuple(r.choice((0, 0, 1, 2, 5)) for _ in wanted)
        masks = [(1 << r.randrange(5)) - 1 << r.randrange(4) for _ in range(r.randrange(3))]
        rooms = tuple(board.geometries(wanted, (mask, ())) for mask in masks)
        found = cover(board.geometries(wanted), asked, rooms)
        assert found is not None
        assert fewest(board.geometries(wanted), asked, rooms) == len(found[1])
    assert cover(((0, 1),), (1, 0)) is None
    assert fewest(((0, 1),), (1, 0)) == NONE_HAS


def list_states(
    kinds: Mapping[str, Places], places: list[tuple[str, int]]
) -> Iterable[frozenset[tuple[str, int]]]:
    """Every set of instances at places of their own on one GPU, but for the empty one."""
    found: list[frozenset[tuple[str, int]]] = [frozenset()]
    for kind, at in places:
        size, most = kinds[kind][1:]
        mine = set(range(at, at + size))
        found += [
            own | {(kind, at)}
            for own in found
            if sum(other == kind for other, _ in own) < most
            and not any(mine & set(range(a, a + kinds[k][1])) for k, a in own)
        ]
    return found[1:]


@pytest.mark.parametrize(
    ("written", "found"),
    [
        ("NVIDIA-A100-SXM4-40GB", "A100-40"),
        ("NVIDIA-A100-80GB-PCIe", "A100-80"),
        ("NVIDIA-A100-SXM-64GB", ""),
        ("NVIDIA-A800-SXM4-80GB", "A100-80"),
        ("NVIDIA-A800-40GB-Active", "A100-40"),
        ("NVIDIA-H100-80GB-HBM3", "H100-80"),
        ("NVIDIA-H100-80GB-HBM3-MIG-1g.10gb", "H100-80"),
        ("NVIDIA-H100-PCIe", "H100-80"),
        ("NVIDIA-H100-SXM5-96GB", "H100-96"),
        ("NVIDIA H100 96GB HBM3", "H100-96"),
        ("NVIDIA-H100-SXM5-94GB", ""),
        ("NVIDIA-H100-NVL", "H100 NVL"),
        ("NVIDIA-H800", "H100-80"),
        ("NVIDIA-H800-PCIe", "H100-80"),
        ("NVIDIA-H800-NVL", "H100 NVL"),
        ("NVIDIA-H20", "H100-96"),
        ("NVIDIA-H20-3e", ""),
        ("NVIDIA-GH200-480GB", "H100-96"),
        ("NVIDIA-GH200-144G-HBM3e", "GH200-144"),
        ("NVIDIA-H200", "H200"),
        ("NVIDIA-H200-NVL", "H200"),
        ("NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition", "RTX PRO 6000"),
        ("NVIDIA-RTX-PRO-6000-Blackwell-Workstation-Edition", "RTX PRO 6000"),
        ("NVIDIA-RTX-PRO-5000-Blackwell", ""),
        ("NVIDIA-L4", ""),
    ],
)
def test_the_name_of_a_product_and_its_memory_tell_the_board(written: str, found: str) -> None:
    """As gpu-feature-discovery and NVIDIA's driver of claims write it; nothing: it is not known."""
    assert [board.name for board in mig_boards(written)] == ([found] if found else [])


CLUSTER = """
apiVersion: gangplan.dev/v1alpha1
kind: Cluster
metadata: {name: parts}
spec:
  nodes:
  - {name: whole, model: DGX H100}
  - name: mixed
    model: DGX H100
    mig:
    - {gpus: [0, 1], profiles: [3g.40gb, 2g.20gb, 1g.10gb, 1g.10gb]}
    - {gpus: [7], profiles: [7g.80gb]}
"""


def gang(name: str, *roles: Json) -> Json:
    named = [{"name": f"r{n}", **role} for n, role in enumerate(roles)]
    return {
        "apiVersion": "gangplan.dev/v1alpha1", "kind": "Gang",
        "metadata": {"name": name, "namespace": "ml"}, "spec": {"roles": named},
    }  # fmt: skip


def asked(profile: str, pods: int) -> Json:
    return {"replicas": pods, "gpu": {"profile": profile}}


def read(*gangs: Json, held: Mapping[str, int] | None = None) -> Instance:
    cluster = yaml.load(CLUSTER, Loader=yaml.CSafeLoader)
    if held:
        cluster["spec"]["nodes"][1]["held"] = dict(held)
    text = yaml.safe_dump_all([cluster, *gangs])
    return load(["-"], stdin=io.BytesIO(text.encode())).instance


def planned(instance: Instance) -> Json:
    found = compose(
        instance, solve(instance), name="p", created_at="2026-11-21T00:00:00Z", generator="test"
    )
    copied: Json = json.loads(json.dumps(found))
    return copied


def decisions(plan: Json) -> dict[str, str]:
    return {one["name"]: one["decision"] for one in plan["spec"]["gangs"]}


def rules(plan: object) -> set[str]:
    return {violation.rule for violation in check(plan)}


def test_instances_become_a_resource_and_their_gpus_are_not_given_whole() -> None:
    found = read(gang("a", asked("1g.10gb", 1)), gang("b", asked("1g.24gb", 1)))
    whole, mixed = sorted(found.cluster.nodes, key=lambda node: node.name, reverse=True)
    # 2 GPUs with one 3g, one 2g and two 1g each, and one 7g; nobody has a 1g.24gb
    assert dict(mixed.allocatable) == {
        "nvidia.com/mig-1g.10gb": 4, "nvidia.com/mig-1g.24gb": 0, "nvidia.com/mig-2g.20gb": 2,
        "nvidia.com/mig-3g.40gb": 2, "nvidia.com/mig-7g.80gb": 1,
    }  # fmt: skip
    assert (mixed.gpus, mixed.whole_gpus, mixed.healthy_gpus) == (8, 5, 5)
    assert mixed.healthy == 0b01111100
    assert dict(whole.allocatable) == {"nvidia.com/mig-1g.10gb": 0, "nvidia.com/mig-1g.24gb": 0}


def test_the_instance_of_a_plan_reads_as_the_same_input() -> None:
    instance = read(
        gang("a", asked("1g.10gb", 3), {"replicas": 1, "gpus": 4}),
        held={"nvidia.com/mig-2g.20gb": 1},
    )
    written = json.loads(json.dumps(instance_document(instance)))
    nodes = {node["name"]: node for node in written["cluster"]["spec"]["nodes"]}
    assert nodes["mixed"]["mig"][1] == {"gpus": [7], "profiles": ["7g.80gb"]}
    assert nodes["mixed"]["unhealthyGpus"] == []
    assert "mig" not in nodes["whole"]
    again = instance_from_document(written)
    assert again == instance
    assert digest(instance_document(again)) == digest(written)


def test_partitioned_gpus_of_unknown_index_are_not_given_and_stay_so_on_the_empty_cluster() -> None:
    cluster = yaml.load(CLUSTER, Loader=yaml.CSafeLoader)
    cluster["spec"]["nodes"][1] = {
        "name": "mixed", "model": "DGX H100", "unknownPartitioned": 3, "unknownUnhealthy": 1,
        "allocatable": {"nvidia.com/mig-1g.10gb": 21},
    }  # fmt: skip
    gangs = [
        gang("five", {"replicas": 2, "gpus": 5}), gang("six", {"replicas": 2, "gpus": 6}),
        gang("serve", asked("1g.10gb", 21)),
    ]  # fmt: skip
    text = yaml.safe_dump_all([cluster, *gangs])
    instance = load(["-"], stdin=io.BytesIO(text.encode())).instance
    mixed = instance.cluster.nodes[0]
    assert (mixed.healthy_gpus, mixed.whole_gpus, mixed.unknown_unhealthy) == (4, 5, 4)
    written = json.loads(json.dumps(instance_document(instance)))
    assert instance_from_document(written) == instance
    plan = planned(instance)
    assert rules(plan) == set()
    # 8 + 4 GPUs now, 8 + 5 if the sick one were healthy
    waiting = (one for one in plan["spec"]["gangs"] if one["decision"] == "wait")
    reasons = {one["name"]: one["reason"]["code"] for one in waiting}
    assert decisions(plan) == {"five": "wait", "six": "wait", "serve": "place"}
    assert reasons == {"five": "NoRoom", "six": "Never"}


def test_gangs_of_instances_are_placed_beside_gangs_of_whole_gpus() -> None:
    # 13 whole GPUs: 8 on one node, 5 on the other, with four 1g and two 3g
    plan = planned(
        read(
            gang("train", {"replicas": 1, "gpus": 8}),
            gang("tune", {"replicas": 1, "gpus": 5}),
            gang("serve", asked("1g.10gb", 4), asked("3g.40gb", 2)),
            gang("both", asked("2g.20gb", 2), {"replicas": 1, "gpus": 5}),
        )
    )
    assert rules(plan) == set()
    found = decisions(plan)
    assert (found["train"], found["serve"]) == ("place", "place")
    # 5 GPUs are left after the 8: one of the two
    assert sorted((found["tune"], found["both"])) == ["place", "wait"]
    pods = next(one["pods"] for one in plan["spec"]["gangs"] if one["name"] == "serve")
    assert {pod["node"] for pod in pods} == {"mixed"}


def _sabotaged(change: Callable[[Json], None]) -> set[str]:
    plan = planned(
        read(gang("serve", asked("1g.10gb", 4)), gang("train", {"replicas": 1, "gpus": 5}))
    )
    assert rules(plan) == set()
    changed = deepcopy(plan)
    change(changed)
    return rules(changed)


def _node(plan: Json, name: str) -> Json:
    nodes: list[Json] = plan["instance"]["cluster"]["spec"]["nodes"]
    return next(node for node in nodes if node["name"] == name)


def test_the_judge_refuses_more_pods_than_instances() -> None:
    def fewer(plan: Json) -> None:
        _node(plan, "mixed")["allocatable"]["nvidia.com/mig-1g.10gb"] = "3"

    assert "resources" in _sabotaged(fewer)


def test_the_judge_refuses_to_give_a_partitioned_gpu_whole() -> None:
    def onto(plan: Json) -> None:
        train = next(one for one in plan["spec"]["gangs"] if one["name"] == "train")
        (pod,) = train["pods"]
        pod.update(node="mixed", gpus=[1, 2, 3, 4, 5])

    assert "gpu-unhealthy" in _sabotaged(onto)


def test_the_judge_refuses_a_gpu_that_is_partitioned_twice_and_a_profile_that_is_no_request() -> (
    None
):
    def twice(plan: Json) -> None:
        _node(plan, "mixed")["mig"].append({"gpus": [7], "profiles": []})

    def unread(plan: Json) -> None:
        serve = next(g for g in plan["instance"]["gangs"] if g["metadata"]["name"] == "serve")
        serve["spec"]["roles"][0]["gpu"] = {"profile": "1g.10gb"}

    assert "form" in _sabotaged(twice)
    assert "form" in _sabotaged(unread)
