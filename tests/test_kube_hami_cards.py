"""HAMi nodes offer whole cards if the Policy selects the HAMi back end, and only then."""

from __future__ import annotations

import json
from typing import Any

import pytest
from kube import node, objects
from kube_nodes import gpus_of

from models.instance.policy import KubernetesPolicy
from planner.read.findings import Remarks
from planner.read.kube.dialects.hami import Cards, whole_cards
from planner.read.kube.nodes.nodes import read_nodes
from planner.read.kube.records import KubeNode

REGISTER = "hami.io/node-nvidia-register"


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


@pytest.mark.parametrize("backend", ["annotation", "none", "dra"])
def test_elsewhere_none_of_them_is_given(backend: str) -> None:
    found, said = read(FOUR, backend)
    assert (found.shared, found.installed) == ("fractional", 4)
    assert "none of them is given" in said


def test_a_card_that_hami_counts_as_sick_is_not_given() -> None:
    """HAMi leaves `health` out where it is false."""
    sick = entry(2)
    sick.pop("health")
    found, _ = read(registered(entry(0), entry(1), sick, entry(3)))
    assert (found.gpus, found.installed, found.sick) == (3, 4, (2,))


def test_cards_that_are_partitioned_as_well_are_not_given() -> None:
    found, _ = read(FOUR, **{"nvidia.com/gpu.sharing-strategy": "mps"})
    assert found.shared == "time-sliced"


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
    assert whole_cards({REGISTER: register}) is None


def test_the_older_form_is_read_too() -> None:
    """uuid,count,memory,cores,type,numa,health[,index,mode]: the place is the index where none is."""
    plain = "GPU-a,10,81920,100,NVIDIA,0,true:GPU-b,10,81920,100,NVIDIA,1,false:"
    assert whole_cards({REGISTER: plain}) == Cards(2, (1,), 81920, 100, 10)
    turned = "GPU-a,10,1,100,NVIDIA,0,true,1,hami-core:GPU-b,10,1,100,NVIDIA,1,true,0,hami-core:"
    assert whole_cards({REGISTER: turned}) == Cards(2, (), 1, 100, 10)
    assert whole_cards({REGISTER: turned.replace("0,hami-core", "0,mig")}) is None
