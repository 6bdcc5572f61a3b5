"""Groups of roles that share a domain: as read, planned and judged.

The cluster has three racks of four servers with 8 GPUs; every plan is held against all plans.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from outcomes import NOW

from models.documents.canonical import canonical_instance
from models.instance.instance import Instance
from models.results.plan import compose
from models.verify.check import check
from planner.errors import InputError
from planner.read.inputs import read
from planner.search.solve import WHOLE_BELOW, solve

SIZES = (None, WHOLE_BELOW)

Doc = dict[str, Any]

BY_ADMISSION: Doc = {"preset": "admission"}


def cluster(racks: int = 3, nodes: int = 4) -> Doc:
    servers = [
        {"name": f"r{r}-n{n}", "model": "DGX H100", "domains": {"block": "b", "rack": f"r{r}"}}
        for r in range(racks)
        for n in range(nodes)
    ]
    return _of("Cluster", "c", levels=[{"name": "block"}, {"name": "rack"}], nodes=servers)


def _of(kind: str, name: str, **spec: object) -> Doc:
    head = {"apiVersion": "gangplan.dev/v1alpha1", "kind": kind}
    return {**head, "metadata": {"name": name}, "spec": spec}


def gang(name: str, *roles: Doc, pods: tuple[Doc, ...] = (), **spec: object) -> Doc:
    status = {"status": {"pods": list(pods)}} if pods else {}
    return _of("Gang", name, roles=list(roles), **spec) | status


def role(name: str, replicas: int, gpus: int = 8, **more: object) -> Doc:
    return {"name": name, "replicas": replicas, "gpus": gpus, **more}


def group(name: str, *roles: str, level: str = "rack") -> Doc:
    return {"name": name, "roles": list(roles), "topology": {"required": level}}


def made(path: Path, *documents: Doc) -> Instance:
    file = path / "input.yaml"
    policy = _of("Policy", "p", **BY_ADMISSION)
    file.write_text(yaml.safe_dump_all([*documents, policy]), encoding="utf-8")
    return read([str(file)])


def planned(instance: Instance, size: int | None = None) -> list[tuple[str, list[tuple[str, str]]]]:
    """Of every gang its decision, and role and rack of every pod; the judge finds nothing."""
    solution = solve(instance, size=size)
    document = compose(instance, solution, name="p", created_at=NOW, generator="test")
    assert check(document) == []
    nodes = instance.cluster.nodes
    return [
        (
            one.decision,
            [(own.roles[p.role].name, nodes[p.node].name.partition("-")[0]) for p in one.pods],
        )
        for own, one in zip(instance.gangs, solution.decisions, strict=True)
    ]


def fixed(name: str, *nodes: str) -> Doc:
    """A gang that holds these servers."""
    pods = tuple(
        {"role": "worker", "index": i, "node": n, "gpus": list(range(8))}
        for i, n in enumerate(nodes)
    )
    return gang(name, role("worker", len(nodes)), pods=pods)


# groups

REPLICAS = (
    role("prefill-0", 2),
    role("decode-0", 1),
    role("prefill-1", 2),
    role("decode-1", 1),
)
IN_RACKS = [
    group("replica-0", "prefill-0", "decode-0"),
    group("replica-1", "prefill-1", "decode-1"),
]


@pytest.mark.parametrize("size", SIZES)
def test_each_group_of_roles_has_one_rack(tmp_path: Path, size: int | None) -> None:
    # r0 and r1 have 3 servers left, r2 has 2: each replica of 3 fits r0 or r1 only
    held = fixed("held", "r0-n0", "r1-n0", "r2-n0", "r2-n1")
    instance = made(tmp_path, cluster(), held, gang("serve", *REPLICAS, groups=IN_RACKS))
    ((decision, pods),) = planned(instance, size)[1:]
    assert decision == "place"
    racks = [{rack for name, rack in pods if name.endswith(end)} for end in ("-0", "-1")]
    assert [len(own) for own in racks] == [1, 1]
    assert racks[0] | racks[1] == {"r0", "r1"}


def test_a_group_that_fits_no_rack_waits_and_the_same_roles_without_it_start(
    tmp_path: Path,
) -> None:
    held = fixed("held", "r0-n0", "r0-n1", "r1-n0", "r1-n1", "r2-n0", "r2-n1")
    roles = (role("prefill", 2), role("decode", 1))
    apart = made(tmp_path, cluster(), held, gang("serve", *roles))
    assert planned(apart)[1][0] == "place"
    together = gang("serve", *roles, groups=[group("replica", "prefill", "decode")])
    assert planned(made(tmp_path, cluster(), held, together))[1] == ("wait", [])


# as documents


def test_the_canonical_form_reads_as_the_same_instance(tmp_path: Path) -> None:
    serve = gang("serve", *REPLICAS, groups=IN_RACKS)
    instance = made(tmp_path, cluster(), serve)
    document = canonical_instance(instance)
    file = tmp_path / "again.yaml"
    parts = [document["cluster"], *document["gangs"], document["policy"]]
    file.write_text(yaml.safe_dump_all(parts), encoding="utf-8")
    again = read([str(file)])
    assert canonical_instance(again) == document


@pytest.mark.parametrize(
    ("roles", "spec", "message"),
    [
        ([role("a", 1)], {"groups": [group("g", "b")]}, "unknown role 'b'"),
        ([role("a", 1)], {"groups": [group("a", "a")]}, "two groups or roles are named 'a'"),
        ([role("a", 1)], {"groups": [group("g")]}, "a group without roles"),
        ([role("a", 1)], {"groups": [group("g", "a", level="row")]}, "unknown level 'row'"),
    ],
)
def test_what_no_group_can_be_is_refused(
    tmp_path: Path, roles: list[Doc], spec: Doc, message: str
) -> None:
    with pytest.raises(InputError) as raised:
        made(tmp_path, cluster(), gang("bad", *roles, **spec))
    assert message in str(raised.value)
