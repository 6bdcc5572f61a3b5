"""Groups with a preferred level: as read, planned and judged.

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
from models.instance.gang import Gang, Together
from models.instance.instance import Instance
from models.results.plan import compose
from models.verify.check import check, derive
from planner.errors import InputError
from planner.read.inputs import read
from planner.search.solve import AGGREGATED_FROM, WHOLE_BELOW, solve

SIZES = (None, AGGREGATED_FROM, WHOLE_BELOW)
ALL = 0xFF


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


def test_the_canonical_form_reads_as_the_same_instance(tmp_path: Path) -> None:
    groups = [
        {"name": "all", "roles": ["a", "b"], "topology": {"required": "block", "preferred": "rack"}}
    ]
    serve = document("serve", role_document("a", 1), role_document("b", 1), groups=groups)
    instance = made(tmp_path, cluster(), serve)
    (own,) = instance.gangs
    assert own.together == (Together("all", (0, 1), 1),)
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
