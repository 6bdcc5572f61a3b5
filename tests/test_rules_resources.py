"""Rule 2 (and 6): cpu, memory and pods of every node; taints, selectors, cordons, readiness.

Each rule: what just fits is placed, one more is not.
"""

from __future__ import annotations

import pytest
from building import GIB, build, gang, node, role
from building_servers import switched
from outcomes import planned

from models.documents.gang import Toleration
from models.instance.cluster import Taint

NO_ENTRY = Taint("dedicated", "infra", "NoSchedule")


@pytest.mark.parametrize(
    ("resource", "each", "room"),
    [("cpu", 4000, 8000), ("memory", 3 * GIB, 6 * GIB), ("example.com/licence", 1, 2)],
)
def test_resource_rule_allows_the_last_unit_and_forbids_one_more(
    resource: str, each: int, room: int
) -> None:
    gangs = [gang("a", pods=2, requests={resource: each})]
    full = build(nodes=[node("n", switched(), allocatable={resource: room})], gangs=gangs)
    assert planned(full).decision("a") == "place"
    short = build(nodes=[node("n", switched(), allocatable={resource: room - 1})], gangs=gangs)
    assert planned(short).decision("a") == "wait"
    assert planned(short).reason("a") == "Never"
    # what a pod of no gang holds may come back
    held = node("n", switched(), allocatable={resource: room - 1}, held={resource: 1})
    later = planned(build(nodes=[held], gangs=gangs))
    assert (later.decision("a"), later.reason("a")) == ("wait", "Resources")


def test_resource_rule_counts_one_of_pods_for_every_pod() -> None:
    nodes = [node("n", switched(), allocatable={"pods": 3})]
    roles = [role("head", gpus_per_pod=0), role("worker", 2, 1)]
    fits = planned(build(nodes=nodes, gangs=[gang("a", roles=roles)]))
    assert fits.decision("a") == "place"
    roles = [role("head", gpus_per_pod=0), role("worker", 3, 1)]
    assert planned(build(nodes=nodes, gangs=[gang("a", roles=roles)])).decision("a") == "wait"


def test_resource_rule_lets_an_absent_resource_pass() -> None:
    instance = build(gangs=[gang("a", requests={"cpu": 10**9})])
    assert planned(instance).decision("a") == "place"


def test_resource_rule_weighs_cpu_against_gpus_of_another_node() -> None:
    # n1 has GPUs for three pods and cpu for one, n2 the other way round: two pods fit, three do not.
    nodes = [
        node("n1", switched(8), allocatable={"cpu": 7999}),
        node("n2", switched(2), allocatable={"cpu": 64000}),
    ]
    three = build(nodes=nodes, gangs=[gang("a", pods=3, gpus_per_pod=2, requests={"cpu": 4000})])
    assert planned(three).decision("a") == "wait"
    two = build(nodes=nodes, gangs=[gang("a", pods=2, gpus_per_pod=2, requests={"cpu": 4000})])
    assert sorted(planned(two).nodes("a")) == ["n1", "n2"]


def test_staying_pods_may_overfill_a_resource_that_no_new_pod_asks_for() -> None:
    runs = gang("r", requests={"cpu": 9000}, stands=[(0, 0, 0, 1)])
    nodes = [node("n", switched(), allocatable={"cpu": 8000})]
    without = build(nodes=nodes, gangs=[runs, gang("a")])
    assert planned(without).decisions() == {"a": "place", "r": "keep"}
    asking = build(nodes=nodes, gangs=[runs, gang("a", requests={"cpu": 1})])
    assert planned(asking).decisions() == {"a": "wait", "r": "keep"}


@pytest.mark.parametrize("effect", ["NoSchedule", "NoExecute"])
def test_taint_rule_forbids_a_pod_without_toleration(effect: str) -> None:
    nodes = [node("n", switched(), taints=[Taint("dedicated", "infra", effect)])]
    outcome = planned(build(nodes=nodes, gangs=[gang("a")]))
    assert outcome.decision("a") == "wait"
    assert outcome.reason("a") == "Never"


@pytest.mark.parametrize(
    ("toleration", "decision"),
    [
        (Toleration("dedicated", "Equal", "infra", "NoSchedule"), "place"),
        (Toleration("dedicated", "Equal", "infra"), "place"),  # an empty effect matches all
        (Toleration("dedicated", "Exists"), "place"),
        (Toleration("", "Exists"), "place"),  # tolerates everything
        (Toleration("dedicated", "Equal", "other"), "wait"),
        (Toleration("dedicated", "Exists", "", "NoExecute"), "wait"),
        (Toleration("other", "Exists"), "wait"),
    ],
)
def test_taint_rule_matches_tolerations_as_kubernetes_does(
    toleration: Toleration, decision: str
) -> None:
    roles = [role(tolerations=[toleration])]
    nodes = [node("n", switched(), taints=[NO_ENTRY])]
    assert planned(build(nodes=nodes, gangs=[gang("a", roles=roles)])).decision("a") == decision


def test_taint_rule_ignores_a_mere_preference() -> None:
    nodes = [node("n", switched(), taints=[Taint("dedicated", "infra", "PreferNoSchedule")])]
    assert planned(build(nodes=nodes, gangs=[gang("a")])).decision("a") == "place"


@pytest.mark.parametrize(
    ("selector", "decision"),
    [
        ({"pool": "a"}, "place"),
        ({"pool": "b"}, "wait"),
        ({"zone": "a"}, "wait"),  # no such label
        ({"pool": "a", "example.com/rack": "r1"}, "place"),  # a level's label is implied
        ({"kubernetes.io/hostname": "n"}, "place"),
        ({"kubernetes.io/hostname": "m"}, "wait"),
    ],
)
def test_selector_rule_wants_every_label(selector: dict[str, str], decision: str) -> None:
    nodes = [node("n", switched(), labels={"pool": "a"})]
    roles = [role(selector=selector)]
    assert planned(build(nodes=nodes, gangs=[gang("a", roles=roles)])).decision("a") == decision


def test_selector_rule_binds_each_role_by_itself() -> None:
    nodes = [
        node("n1", switched(2), labels={"pool": "a"}),
        node("n2", switched(2), labels={"pool": "b"}),
    ]
    roles = [role("head", selector={"pool": "b"}), role("worker", 2, 1, selector={"pool": "a"})]
    outcome = planned(build(nodes=nodes, gangs=[gang("a", roles=roles)]))
    assert outcome.nodes("a") == ["n2", "n1", "n1"]


@pytest.mark.parametrize("state", [{"unschedulable": True}, {"ready": False}])
def test_cordon_and_readiness_rules_forbid_new_pods_and_let_old_ones_stay(
    state: dict[str, bool],
) -> None:
    runs = gang("r", gpus_per_pod=4, stands=[(0, 0, 0, 15)])
    nodes = [node("n", switched(), **state)]  # type: ignore[arg-type]  # one of the two flags
    outcome = planned(build(nodes=nodes, gangs=[runs, gang("a")], mix={1: 1000}))
    assert outcome.decisions() == {"a": "wait", "r": "keep"}
    assert outcome.value("admission/0") == 4
    assert outcome.value("stranded") == 0  # what is left there counts as free for nobody


def test_policy_selector_says_which_nodes_are_ours() -> None:
    nodes = [node("n1", switched(4), labels={"pool": "a"}), node("n2", switched(8))]
    ours = build(nodes=nodes, gangs=[gang("a", gpus_per_pod=4)], selector={"pool": "a"})
    assert planned(ours).nodes("a") == ["n1"]
    larger = build(nodes=nodes, gangs=[gang("a", gpus_per_pod=5)], selector={"pool": "a"})
    assert planned(larger).decision("a") == "wait"
