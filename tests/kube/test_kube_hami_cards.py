"""HAMi nodes offer whole cards if the Policy selects the HAMi back end, and only then."""

from __future__ import annotations

import json
from typing import Any

import pytest
from kube import node, objects
from kube_nodes import gpus_of

from models.instance.policy import KubernetesPolicy
from planner.read.findings import Remarks
from planner.read.kube.dialects.hami import REGISTER, whole_cards
from planner.read.kube.nodes.nodes import read_nodes
from planner.read.kube.records import KubeNode


def entry(index: int, **more: Any) -> dict[str, Any]:  # noqa: ANN401  # fields of JSON
    """A card as HAMi writes it: an index of 0 is left out."""
    found: dict[str, Any] = {"id": f"GPU-{index}", "count": 10, "health": True}
    return found | ({"index": index} if index else {}) | more


def registered(*entries: dict[str, Any]) -> str:
    return json.dumps(list(entries))


def read(register: str, backend: str = "hami", **labels: str) -> tuple[KubeNode, str]:
    """A node that advertises ten shares of each of its four cards."""
    tree = gpus_of(node("n1", **labels), "40", "40")
    tree["metadata"].setdefault("annotations", {})[REGISTER] = register
    remarks = Remarks()
    (found,) = read_nodes(objects(tree), KubernetesPolicy(gpu_backend=backend), remarks)
    return found, "\n".join(remarks.lines())


FOUR = registered(*(entry(i) for i in range(4)))


def test_whole_cards_are_given_where_hami_is_told_which() -> None:
    found, said = read(FOUR)
    assert (found.shared, found.gpus, found.installed, found.sick) == (None, 4, 4, ())
    assert said == ""


def test_a_card_that_hami_counts_as_sick_is_not_given() -> None:
    """HAMi leaves `health` out where it is false."""
    sick = entry(2)
    sick.pop("health")
    found, _ = read(registered(entry(0), entry(1), sick, entry(3)))
    assert (found.gpus, found.installed, found.sick) == (3, 4, (2,))


@pytest.mark.parametrize(
    "register",
    [
        "",
        "[",
        "[1, 2]",
        "[]",
        registered(entry(1), entry(2)),  # nobody knows what GPU 0 is
        registered(entry(0), entry(0)),
        registered(entry(0), entry(1, mode="mig")),
        registered(entry(0), {"count": 10}),
        registered(entry(0) | {"index": -1}),
    ],
)
def test_a_registration_that_is_odd_gives_no_cards(register: str) -> None:
    assert whole_cards(REGISTER, {REGISTER: register}) is None
