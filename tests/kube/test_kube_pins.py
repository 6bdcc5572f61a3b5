"""Pins of gangs that gangplan started: no wish of theirs, so that they move as without it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kube import node, pod
from kube_pods import one
from outcomes import planned
from test_kube_gangs_plans import gang_of, instance

from models.apply.intents import Intent, SealKey
from models.documents.gang import NodeExpression
from planner.cluster.live_view import for_planning

HOST = "kubernetes.io/hostname"
PLAN = "gp-0123456789abcdef0123"
KEY = SealKey("secret", since=0)
NAMED = {"key": "metadata.name", "operator": "In", "values": ["n0"]}
WIDE = {"matchExpressions": [{"key": "size", "operator": "Exists"}]}


def affinity(*terms: dict[str, Any]) -> dict[str, Any]:
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    return {"nodeAffinity": {required: {"nodeSelectorTerms": list(terms)}}}


def started(
    name: str = "a", on: str = "n0", pin: str = "hostname", *, gpus: int = 4, **spec: object
) -> dict[str, Any]:
    """A movable pod that gangplan started, with the record of its pin; ``spec``: with the pin."""
    intent = Intent(PLAN, name, 1, on, None, pin=pin)
    notes = intent.annotations() | {"gangplan.dev/movable": "true"}
    return pod(name, gpus=gpus, on=on, labels=intent.labels(), annotations=notes, **spec)


def own(tree: dict[str, Any]) -> tuple[dict[str, str], tuple[tuple[NodeExpression, ...], ...]]:
    """Selector and affinity that count as the pod's own."""
    found = one(node("n0", size="big"), node("n1"), tree)
    return found.selector, found.affinity


SIZED = NodeExpression("size", "Exists")


def test_the_name_of_the_node_goes_from_the_terms_that_got_it() -> None:
    alone = started(pin="terms 0", affinity=affinity({"matchFields": [NAMED]}))
    assert own(alone) == ({}, ())
    # the first term named the node before: it stays
    two = affinity({"matchFields": [NAMED]}, {**WIDE, "matchFields": [NAMED]})
    named = NodeExpression("metadata.name", "In", ("n0",), field=True)
    assert own(started(pin="terms 1", affinity=two)) == ({}, ((named,), (SIZED,)))
    assert own(started(pin="none", affinity=two))[1] == ((named,), (SIZED, named))


def test_a_host_name_that_the_pod_asked_for_itself_ties_it() -> None:
    asked = {HOST: "n0"}
    assert own(started(pin="none", nodeSelector=asked))[0] == asked
    # it was never pinned
    assert own(started(pin="", nodeSelector=asked))[0] == asked
    # its intent is for another node, or is none
    other = started(nodeSelector=asked)
    other["metadata"]["annotations"]["gangplan.dev/node"] = "n1"
    assert own(other)[0] == asked
    odd = started(nodeSelector=asked)
    odd["metadata"]["annotations"]["gangplan.dev/pin"] = "terms"
    assert own(odd)[0] == asked


def test_a_gang_that_gangplan_started_moves_as_it_would_without_its_pin(tmp_path: Path) -> None:
    """Two of 4 GPUs on two nodes of 8: one moves beside the other for a gang of 8."""
    ends = [pod(f"full-{i}", gpus=8, on=f"n{i}") for i in (2, 3)]
    big = pod("big", gpus=8, gated=True)

    def decisions(*pins: dict[str, Any]) -> tuple[dict[str, str], list[str]]:
        trees = [started(f"s{i}", f"n{i}", **pins[i]) for i in (0, 1)]
        found = planned(instance(tmp_path, *ends, big, *trees))
        return found.decisions(), found.nodes("big")

    free = decisions({"pin": "none"}, {"pin": "none"})
    assert free[0]["big"] == "place"
    assert sorted(free[0].values()).count("move") == 1
    hosts = [{"nodeSelector": {HOST: f"n{i}"}} for i in (0, 1)]
    assert decisions(*hosts) == free
    names = [{"matchFields": [{**NAMED, "values": [f"n{i}"]}]} for i in (0, 1)]
    assert decisions(*({"pin": "terms 0", "affinity": affinity(one)} for one in names)) == free
    tied = decisions(*(one | {"pin": "none"} for one in hosts))
    assert tied[0]["big"] == "wait"


def test_a_run_believes_the_record_only_under_our_seal(tmp_path: Path) -> None:
    """A tenant can copy everything, managedFields included, but the seal."""
    tree = started(nodeSelector={HOST: "n0"})
    metadata = tree["metadata"]
    metadata["creationTimestamp"] = "2026-11-20T08:00:00Z"
    names = {f"f:{key}": {} for key in metadata["annotations"]}
    owned = {"f:labels": {"f:gangplan.dev/plan": {}}, "f:annotations": names}
    metadata["managedFields"] = [{"manager": "gangplan", "fieldsV1": {"f:metadata": owned}}]
    intent = Intent(PLAN, "a", 1, "n0", None, pin="hostname")
    sealed = KEY.seal("default", "a", metadata["uid"], intent)
    unpinned = KEY.seal("default", "a", metadata["uid"], Intent(PLAN, "a", 1, "n0", None))

    def selector(seal: str, key: SealKey | None = KEY) -> tuple[tuple[str, str], ...]:
        metadata["annotations"]["gangplan.dev/seal"] = seal
        found = instance(tmp_path, for_planning(tree, key))
        return gang_of(found, "a").roles[0].node_selector

    assert selector(sealed) == ()
    assert selector(unpinned) == selector("0" * 32) == ((HOST, "n0"),)
    # a snapshot has no key: managedFields decide
    assert selector("0" * 32, None) == ()
    del metadata["managedFields"]
    assert selector(sealed, None) == ((HOST, "n0"),)
