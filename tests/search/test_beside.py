"""Gangs that should be near each other, and groups with a preferred level: as read, planned and judged.

A rack has two servers of 8 GPUs unless a test says otherwise.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from building import build, gang, level, role
from comparing import differences
from outcomes import NOW
from test_groups_of_roles import Doc, cluster, made
from test_groups_of_roles import gang as document
from test_groups_of_roles import role as role_document

from models.documents.canonical import canonical_instance
from models.instance.gang import Gang, Near, Together
from models.instance.instance import Instance
from models.results.plan import compose
from models.values.nearness import loosened, tied_gangs
from models.verify.check import check, derive
from planner.errors import InputError
from planner.read.inputs import read
from planner.search.solve import WHOLE_BELOW, solve

SIZES = (None, WHOLE_BELOW)
ALL = 0xFF


def near(one: Gang, *others: str, at: str = "rack") -> Gang:
    wanted = level(at)
    assert wanted is not None
    return replace(one, near=Near(others, wanted))


def planned(instance: Instance, size: int | None = None) -> tuple[list[set[str | None]], int]:
    """The racks of every gang, and the value of ``preference``; the judge finds nothing."""
    solution = solve(instance, size=size)
    plan = compose(instance, solution, name="p", created_at=NOW, generator="test")
    assert check(plan) == []
    values = {tier.name: tier.value for tier in solution.tiers}
    assert derive(plan) == values
    nodes = instance.cluster.nodes
    racks = [{nodes[pod.node].domains[-1] for pod in one.pods} for one in solution.decisions]
    return racks, values["preference"]


@pytest.mark.parametrize("size", SIZES)
def test_a_gang_that_starts_goes_beside_one_that_runs(size: int | None) -> None:
    # decode runs in r1; span and stranded alone would fill r2, where 4 GPUs of a server are taken
    runs = gang("decode", 1, 8, stands=[(0, 0, 0, ALL)])
    other = gang("other", 1, 4, stands=[(0, 0, 2, 0x0F)])
    free = gang("prefill", 1, 4)
    apart = planned(build(racks=2, nodes_per_rack=2, gangs=[runs, other, free]), size)
    assert apart == ([{"r1"}, {"r2"}, {"r2"}], 0)
    beside = near(free, "decode")
    together = planned(build(racks=2, nodes_per_rack=2, gangs=[runs, other, beside]), size)
    assert together == ([{"r1"}, {"r2"}, {"r1"}], 4)


@pytest.mark.parametrize("size", SIZES)
def test_two_gangs_that_start_go_to_the_one_rack_with_room_for_both(size: int | None) -> None:
    # r1 and r2 have one server left each, r3 has two: alone, each would take the fullest rack
    held = [gang(f"held-{n}", 1, 8, stands=[(0, 0, n, ALL)]) for n in (0, 2)]
    gangs = [gang("decode", 1, 8), *held, near(gang("prefill", 1, 8), "decode", "nobody")]
    racks, worth = planned(build(racks=3, nodes_per_rack=2, gangs=gangs), size)
    assert (racks[0], racks[3], worth) == ({"r3"}, {"r3"}, 8)


def test_gangs_of_another_namespace_and_those_that_do_not_run_are_nobody_to_be_near_to() -> None:
    elsewhere = replace(gang("decode", 1, 8, stands=[(0, 0, 0, ALL)]), namespace="other")
    waits = gang("cache", 9, 8)
    wants = near(gang("prefill", 1, 8), "cache", "decode")
    _, worth = planned(build(racks=2, nodes_per_rack=2, gangs=[waits, wants, elsewhere]))
    assert worth == 0


@pytest.mark.parametrize("size", SIZES)
def test_nobody_gains_admission_by_it(size: int | None) -> None:
    # one server is left, and it is beside decode: the gang of higher priority, or the older one, gets it
    runs = [gang(f"run-{n}", 1, 8, stands=[(0, 0, n, ALL)]) for n in range(3)]
    wants = near(gang("wants", 1, 8, submitted=200), "run-2")
    for first in (gang("first", 1, 8, priority=1), gang("first", 1, 8, submitted=100)):
        instance = build(racks=2, nodes_per_rack=2, gangs=[first, *runs, wants])
        racks, worth = planned(instance, size)
        assert (racks[0], racks[-1], worth) == ({"r2"}, set(), 0)


def test_roles_of_a_group_share_a_rack_where_one_has_room_and_start_apart_where_none_has() -> None:
    def wants(grouped: bool) -> Gang:
        roles = [
            role("cache", 1, 8),
            role("decode", 1, 8),
            role("head", 1, 0),
            role("prefill", 1, 8),
        ]
        rack = level("rack")
        assert rack is not None
        together = (Together("replica", (1, 2, 3), rack),) if grouped else ()
        return replace(gang("serve", roles=roles), together=together)

    # w of the group: 8 + 8; the head does not count, nor does the cache
    held = gang("held", 1, 8, stands=[(0, 0, 0, ALL)])
    room = build(racks=2, nodes_per_rack=2, gangs=[held, wants(grouped=True)])
    assert planned(room)[1] == 16
    assert differences(room) == []
    none = build(racks=3, nodes_per_rack=1, gangs=[wants(grouped=True)])
    racks, worth = planned(none)
    assert (len(racks[0]), worth) == (3, 0)


def test_slots_count_gangs_as_beside_each_other_wherever_they_are() -> None:
    gangs = [gang("a", 1, 8), near(gang("b", 1, 4), "a"), gang("c", 1, 2)]
    instance = build(racks=2, nodes_per_rack=2, gangs=gangs)
    assert tied_gangs(instance) == (0, 1)
    assert loosened(loosened(instance)).gangs == loosened(instance).gangs
    assert tied_gangs(loosened(instance)) == ()
    last = loosened(instance).gangs[1].near
    assert last is not None
    assert last.anywhere


NEAR: Doc = {"gangs": ["decode", "cache"], "level": "rack"}


def test_the_canonical_form_reads_as_the_same_instance(tmp_path: Path) -> None:
    groups = [
        {"name": "all", "roles": ["a", "b"], "topology": {"required": "block", "preferred": "rack"}}
    ]
    serve = document(
        "serve", role_document("a", 1), role_document("b", 1), groups=groups, near=NEAR
    )
    instance = made(tmp_path, cluster(), serve)
    (own,) = instance.gangs
    assert (own.near, own.together) == (Near(("cache", "decode"), 1), (Together("all", (0, 1), 1),))
    assert own.roles[0].pod_sets == ("default/serve/all",)
    form = canonical_instance(instance)
    file = tmp_path / "again.yaml"
    file.write_text(yaml.safe_dump_all([form["cluster"], *form["gangs"], form["policy"]]))
    again = read([str(file)])
    assert canonical_instance(again) == form
    assert again.gangs == instance.gangs


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"near": NEAR | {"gangs": []}}, "near to 0 gangs"),
        ({"near": NEAR | {"gangs": [f"g{n}" for n in range(65)]}}, "near to 65 gangs"),
        ({"near": NEAR | {"gangs": ["serve"]}}, "a gang cannot be near itself"),
        ({"near": NEAR | {"gangs": ["b", "b"]}}, "the gang 'b' is named twice"),
        ({"near": NEAR | {"level": "row"}}, "unknown level 'row'"),
        ({"groups": [{"name": "g", "roles": ["a"], "topology": {}}]}, "a group without a level"),
        (
            {"groups": [{"name": "g", "roles": ["head"], "topology": {"preferred": "rack"}}]},
            "no role of the group has GPUs",
        ),
        (
            {"groups": [{"name": "g", "roles": ["a"], "topology": {"preferred": "row"}}]},
            "unknown level 'row'",
        ),
    ],
)
def test_what_cannot_be_is_refused(tmp_path: Path, spec: Doc, message: str) -> None:
    roles = (role_document("a", 1), role_document("head", 1, 0))
    with pytest.raises(InputError, match=message):
        made(tmp_path, cluster(), document("serve", *roles, **spec))
