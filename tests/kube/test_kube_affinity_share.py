"""How many expressions the node affinities of all gangs may have, and what happens past it."""

from __future__ import annotations

from typing import Any

from kube import pod
from kube_pods import one

from planner.read.kube.gang_builder import BEYOND_SHARE, hold_beyond_share
from planner.read.kube.pods.constraints import FEW_PARTS, IMPOSSIBLE
from planner.read.kube.pods.pod_rules import REQUIRED
from planner.read.kube.records import KubeGang, KubeRole


def gang(namespace: str, name: str, born: int, parts: int) -> KubeGang:
    """A gang of one pod with so many expressions and values."""
    assert parts % 2 == 0
    expressions: list[Any] = [
        {"key": f"k{i}", "operator": "In", "values": ["v"]} for i in range(parts // 2)
    ]
    terms = {"nodeSelectorTerms": [{"matchExpressions": expressions}]}
    tree = pod(name, gated=True, namespace=namespace, affinity={"nodeAffinity": {REQUIRED: terms}})
    role = KubeRole("worker", 1, [(0, one(tree))])
    return KubeGang(namespace, name, "Pod", [role], submitted_at=born)


def held(*gangs: KubeGang, most: int) -> list[str]:
    """Names of the gangs that are held; the others keep what they ask for."""
    hold_beyond_share(gangs, most)
    for one_gang in gangs:
        [only] = one_gang.pods()
        assert (only.affinity == (IMPOSSIBLE,)) == (BEYOND_SHARE in one_gang.problems)
    return [one_gang.name for one_gang in gangs if one_gang.problems]


def test_the_youngest_gangs_of_the_namespace_that_needs_most_are_held() -> None:
    def queue() -> list[KubeGang]:
        return [
            gang("greedy", "g2", 20, 40),
            gang("greedy", "g1", 10, 40),
            gang("greedy", "g3", 30, 40),
            gang("modest", "m1", 99, 20),
        ]

    assert held(*queue(), most=140) == []
    # modest needs 20 of its 69, so 119 are left for greedy
    assert held(*queue(), most=139) == ["g3"]
    assert held(*queue(), most=99) == ["g2", "g3"]
    # 59 are shared evenly: 29 each, of which modest needs 20
    assert held(*queue(), most=59) == ["g2", "g1", "g3"]


def test_small_affinities_are_not_counted() -> None:
    many = [gang("a", f"g{i}", i, FEW_PARTS) for i in range(5)]
    assert held(*many, most=FEW_PARTS) == []
    assert held(*many, gang("b", "large", 0, FEW_PARTS + 2), most=FEW_PARTS) == ["large"]
