"""Preferred podAffinity between pods of different gangs, as it comes out in gangs."""

from __future__ import annotations

from typing import Any

from bundles import load_all
from kube import pod
from kube_pods import RACK, racks

from models.documents.gang import MAX_NEAR
from planner.read.findings import Remarks
from planner.read.instance_builder import LoadedInput
from planner.read.kube.objects import Gatherer
from planner.read.kube.pods.constraints import PREFERRED

Tree = dict[str, Any]

DECODE = {"matchLabels": {"app": "decode"}}


def wish(key: str = RACK, weight: int = 1, selector: Tree = DECODE, **more: object) -> Tree:
    return {
        "weight": weight,
        "podAffinityTerm": {"topologyKey": key, "labelSelector": selector, **more},
    }


def asks(*wishes: Tree) -> Tree:
    return {"affinity": {"podAffinity": {PREFERRED: list(wishes)}}}


def one(name: str, app: str, gpus: int = 8, namespace: str = "default", **spec: object) -> Tree:
    found = pod(name, gpus=gpus, gated=True, **spec)
    found["metadata"] |= {"labels": {"app": app}, "namespace": namespace}
    return found


def loaded(*trees: Tree, ignore: tuple[str, ...] = ()) -> LoadedInput:
    levels = {"levels": [{"name": "rack", "label": RACK}], "ignore": list(ignore)}
    policy = {
        "apiVersion": "gangplan.dev/v1alpha1",
        "kind": "Policy",
        "metadata": {"name": "p"},
        "spec": {"kubernetes": levels},
    }
    return load_all([*racks("r1", "r1", "r2", "r2"), *trees, policy])


def test_more_gangs_than_a_document_names_are_a_remark() -> None:
    trees = [one(f"decode-{n}", "decode") for n in range(MAX_NEAR + 1)]
    prefill = one("prefill", "prefill", **asks(wish()))
    few, found = loaded(*trees[:-1], prefill), loaded(*trees, prefill)
    nears = (
        {gang.name: gang.near for gang in one.instance.gangs}["prefill"] for one in (few, found)
    )
    assert [near is None for near in nears] == [False, True]
    assert any("more than 64 gangs" in one for one in found.remarks)


def test_wishes_are_kept_while_objects_are_gathered_and_large_ones_are_not() -> None:
    gatherer = Gatherer(Remarks())
    large = {"matchExpressions": [{"key": "a", "operator": "In", "values": ["x"] * 20_000}]}
    for name, spec in (("a", asks(wish())), ("b", asks(wish(selector=large)))):
        gatherer.add(pod(name, **spec), "a file")
    kept = [found.tree["spec"].get("affinity") for found in gatherer.objects.of("Pod")]
    assert kept[0] == {"podAffinity": {PREFERRED: [wish()]}}
    assert not kept[1]
