"""Labels that may be topology levels are reported; others are not."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from kube_levels import Tree, found, node, topology

from models.instance.policy import KubernetesPolicy

RACK, SUPERPOD = "topology.example.com/rack", "example.com/superpod"
Value = Callable[[int], str]


def cluster(count: int, **labels: Value) -> list[Tree]:
    """Nodes with these labels, each a function of the node's number."""
    return [
        node(f"n{i:02}", {key: value(i) for key, value in labels.items()}) for i in range(count)
    ]


def test_labels_that_are_called_like_topology_are_reported_widest_first() -> None:
    labels: dict[str, Value] = {
        RACK: lambda i: f"r{i // 4}",
        SUPERPOD: lambda i: f"s{i // 8}",
        "topology.kubernetes.io/zone": lambda i: f"z{i // 16}",
    }
    trees = cluster(32, **labels)
    levels, _, said = found(trees)
    assert [level.name for level in levels.levels] == ["zone"]
    assert said == [
        f"Label {key} ({count} values): divides the nodes evenly, but is no known level; tiers do not count"
        " it (hint: if that is topology, a Policy with kubernetes:"
        f" {{levels: [{{name: NAME, label: {key}}}]}})"
        for key, count in ((SUPERPOD, 4), (RACK, 8))
    ]
    assert found(trees[::-1])[2] == said


OTHERS: dict[str, tuple[str, Value]] = {
    "one value": ("example.com/rack", lambda _: "r1"),
    "one a node": ("example.com/rack", lambda i: f"r{i}"),
    "uneven": ("example.com/rack", lambda i: "r1" if i < 14 else "r2"),
    "version in its name": ("example.com/switch-version", lambda i: f"v{i // 4}"),
    "a value that is no name": ("example.com/rack", lambda i: f"r{i // 4} \x1b[31m"),
    "a key that is no name": ("\x1b[31m/rack", lambda i: f"r{i // 4}"),
    "teams": ("team", lambda i: f"t{i // 4}"),
    "fault domains": ("oci.oraclecloud.com/fault-domain", lambda i: f"FAULT-DOMAIN-{i // 4}"),
    "reservations": ("topology.k8s.aws/capacity-block-id", lambda i: f"cb{i // 4}"),
}


@pytest.mark.parametrize(("key", "value"), OTHERS.values(), ids=OTHERS)
def test_other_labels_are_not_reported(key: str, value: Value) -> None:
    assert found(cluster(16, **{key: value}))[2] == []


def test_nothing_is_reported_where_levels_are_stated() -> None:
    trees = cluster(8, **{RACK: lambda i: f"r{i // 4}", SUPERPOD: lambda i: f"s{i // 2}"})
    assert found([*trees, topology("one", SUPERPOD)])[2] == []
    assert found(trees, policy=KubernetesPolicy(levels=()))[2] == []
