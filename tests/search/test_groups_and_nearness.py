"""Groups of roles that share a domain, and gangs near each other: as documents, and as planned from them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from bundles import read_all
from outcomes import NOW

from models.documents.canonical import canonical_instance
from models.instance.gang import Near, Together
from models.instance.instance import Instance
from models.results.plan import compose
from models.verify.check import check
from planner.read.inputs import instance_from_document
from planner.search.solve import WHOLE_BELOW, solve

Doc = dict[str, Any]


def of(kind: str, name: str, **spec: object) -> Doc:
    head = {"apiVersion": "gangplan.dev/v1alpha1", "kind": kind}
    return {**head, "metadata": {"name": name}, "spec": spec}


def role(name: str, replicas: int) -> Doc:
    return {"name": name, "replicas": replicas, "gpus": 8}


def group(name: str, *roles: str, **topology: str) -> Doc:
    return {"name": name, "roles": list(roles), "topology": topology or {"required": "rack"}}


SERVERS = [
    {"name": f"r{r}-n{n}", "model": "DGX H100", "domains": {"block": "b", "rack": f"r{r}"}}
    for r in range(3)
    for n in range(4)
]


def made(*gangs: Doc, held: str = "") -> Instance:
    """Three racks of four servers, of which a gang holds some."""
    levels = [{"name": "block"}, {"name": "rack"}]
    documents = [
        of("Cluster", "c", levels=levels, nodes=SERVERS),
        of("Policy", "p", preset="admission"),
    ]
    places = held.split()
    if places:
        pods = [
            {"role": "worker", "index": i, "node": n, "gpus": list(range(8))}
            for i, n in enumerate(places)
        ]
        runs = of("Gang", "held", roles=[role("worker", len(places))])
        documents.append(runs | {"status": {"pods": pods}})
    found: Instance = read_all([*documents, *gangs])
    return found


def racks(instance: Instance, size: int | None = None) -> tuple[str, dict[str, set[str]]]:
    """The decision about gang ``serve``, and the racks of each of its roles; the judge finds nothing."""
    solution = solve(instance, size=size)
    document = compose(instance, solution, name="p", created_at=NOW, generator="test")
    assert check(document) == []
    (entry,) = (one for one in document["spec"]["gangs"] if one["name"] == "serve")
    found: dict[str, set[str]] = {}
    for pod in entry["pods"]:
        found.setdefault(pod["role"], set()).add(pod["node"][:2])
    return entry["decision"], found


REPLICAS = [role("prefill-0", 2), role("decode-0", 1), role("prefill-1", 2), role("decode-1", 1)]
IN_RACKS = [
    group("replica-0", "prefill-0", "decode-0"),
    group("replica-1", "prefill-1", "decode-1"),
]


@pytest.mark.parametrize("size", [None, WHOLE_BELOW])
def test_each_group_of_roles_has_one_rack(size: int | None) -> None:
    """r0 and r1 have 3 servers left, r2 has 2: each replica of 3 fits r0 or r1 only."""
    serve = of("Gang", "serve", roles=REPLICAS, groups=IN_RACKS)
    decision, found = racks(made(serve, held="r0-n0 r1-n0 r2-n0 r2-n1"), size)
    assert decision == "place"
    assert found["prefill-0"] == found["decode-0"] != found["prefill-1"] == found["decode-1"]
    assert sorted(map(len, found.values())) == [1] * 4
    assert set().union(*found.values()) == {"r0", "r1"}


def test_a_group_that_fits_no_rack_waits_and_the_same_roles_without_it_start() -> None:
    held = "r0-n0 r0-n1 r1-n0 r1-n1 r2-n0 r2-n1"
    roles = [role("prefill", 2), role("decode", 1)]
    assert racks(made(of("Gang", "serve", roles=roles), held=held))[0] == "place"
    together = of("Gang", "serve", roles=roles, groups=[group("replica", "prefill", "decode")])
    assert racks(made(together, held=held)) == ("wait", {})


def test_the_canonical_form_reads_as_the_same_instance() -> None:
    groups = [*IN_RACKS, group("all", "decode-0", "decode-1", required="block", preferred="rack")]
    near = {"gangs": ["decode", "cache"], "level": "rack"}
    instance = made(of("Gang", "serve", roles=REPLICAS, groups=groups, near=near))
    (own,) = instance.gangs
    names = [one.name for one in own.roles]
    decodes = tuple(names.index(name) for name in ("decode-0", "decode-1"))
    assert (own.near, own.together) == (
        Near(("cache", "decode"), 1),
        (Together("all", decodes, 1),),
    )
    form = json.loads(json.dumps(canonical_instance(instance)))
    again = instance_from_document(form)
    assert canonical_instance(again) == form
    assert again.gangs == instance.gangs
