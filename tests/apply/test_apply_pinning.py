"""What ties a gated pod to its node, within what the API server lets be added."""

from __future__ import annotations

import json
from typing import Any

import pytest

from models.apply.live_state import LiveNode, LivePod
from models.apply.starts import CannotPin, pin

HOST = "kubernetes.io/hostname"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
NAMED = {"key": "metadata.name", "operator": "In", "values": ["n1"]}
ALONE = LiveNode("n1", labels=((HOST, "host-1"),), hostname="host-1")
SHARED = LiveNode("n1", labels=((HOST, "host-1"),))  # another node has the same label
BARE = LiveNode("n1")


def pod(*, selector: dict[str, str] | None = None, terms: list[Any] | None = None) -> LivePod:
    affinity = "null" if terms is None else json.dumps({REQUIRED: {"nodeSelectorTerms": terms}})
    return LivePod(
        "team",
        "vit-0",
        "u-1",
        "7",
        selector=tuple(sorted((selector or {}).items())),
        node_affinity=affinity,
    )


def terms_of(spec: dict[str, Any]) -> list[Any]:
    found: list[Any] = spec["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]
    return found


@pytest.mark.parametrize("node", [ALONE, SHARED, BARE])
def test_a_selector_that_names_another_host_cannot_be_pinned(node: LiveNode) -> None:
    with pytest.raises(CannotPin, match="host-2"):
        pin(pod(selector={HOST: "host-2"}), node)


@pytest.mark.parametrize("node", [SHARED, BARE])
def test_without_a_hostname_of_its_own_the_nodes_name_is_required(node: LiveNode) -> None:
    assert pin(pod(), node) == {
        "affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchFields": [NAMED]}]}}}
    }


def test_every_alternative_that_can_match_names_the_node() -> None:
    gpu = {"key": "gpu", "operator": "Exists"}
    other = {"key": "metadata.name", "operator": "NotIn", "values": ["n9"]}
    terms = [{"matchExpressions": [gpu]}, {"matchFields": [other]}]

    assert terms_of(pin(pod(terms=terms), BARE)) == [
        {"matchExpressions": [gpu], "matchFields": [NAMED]},
        {"matchFields": [other, NAMED]},  # appended: inserting before is refused
    ]


def test_an_empty_alternative_matches_nothing_and_stays_empty() -> None:
    gpu = {"key": "gpu", "operator": "Exists"}

    assert terms_of(pin(pod(terms=[{}, {"matchExpressions": [gpu]}]), BARE))[0] == {}


def test_an_affinity_that_matches_nothing_cannot_be_pinned() -> None:
    with pytest.raises(CannotPin, match="matches no node"):
        pin(pod(terms=[{}, {"matchExpressions": []}]), BARE)
