"""Pods that do not run yet: which of them hold room on the node they are tied to."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from bundles import load_all
from kube import node, pod
from kube_pods import asking, read, thing

from planner.read.instance_builder import LoadedInput
from planner.read.kube.pods.room import (
    HELD,
    HINT,
    NO_MATCH,
    NO_ROOM,
    NO_SCHEDULER,
    NOT_ADMITTED,
    UNKNOWN,
)

HOST = "kubernetes.io/hostname"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"

Json = dict[str, Any]


def tied(name: str = "x", **fields: Any) -> Json:  # noqa: ANN401  # any field of a pod
    """A pod of a stranger, pinned to n1."""
    return pod(name, **{"namespace": "stranger", "nodeSelector": {HOST: "n1"}, **fields})


def requesting(name: str, requests: Json, **fields: Any) -> Json:  # noqa: ANN401
    return tied(name, containers=[asking(requests)], **fields)


# whose scheduler exists


def test_a_scheduler_counts_that_runs_a_pod_of_another_namespace() -> None:
    ghost = tied(gpus=8, schedulerName="volcano")
    pods, lines = read(node("n1"), ghost)
    assert pods["x"].node is None
    assert lines == [f"Pod stranger/x: {NO_SCHEDULER} (hint: {HINT})"]
    # the tenant's own pod, bound by the tenant, shows nothing
    own = pod("own", namespace="stranger", on="n2", schedulerName="volcano")
    assert read(node("n1"), node("n2"), ghost, own)[0]["x"].node is None
    other = pod("other", namespace="team", on="n2", schedulerName="volcano")
    assert read(node("n1"), node("n2"), ghost, other)[0]["x"].node == "n1"
    other["status"] = {"phase": "Pending"}  # bound, but its kubelet has not taken it
    assert read(node("n1"), node("n2"), ghost, other)[0]["x"].node is None


def test_a_policy_lists_the_schedulers_that_count() -> None:
    other = pod("other", namespace="team", on="n2", schedulerName="volcano")
    for listed, places in (
        (("volcano",), {"d": None, "v": "n1"}),
        (("default-scheduler",), {"d": "n1", "v": None}),
        ((), {"d": None, "v": None}),
    ):
        pods, _ = read(
            *(node("n1"), node("n2"), other),
            *(tied("d", gpus=1), tied("v", gpus=1, schedulerName="volcano")),
            other_schedulers=listed,
        )
        assert {name: pods[name].node for name in places} == places


# what takes it


def test_a_pod_holds_room_on_a_node_that_takes_it() -> None:
    term = {"matchExpressions": [{"key": "pool", "operator": "In", "values": ["a"]}]}
    affinity = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [term]}}}
    wanted = tied(gpus=8, affinity=affinity)
    assert read(node("n1", pool="a"), wanted)[0]["x"].node == "n1"
    pods, lines = read(node("n1", pool="b"), wanted)
    assert pods["x"].node is None
    assert lines == [f"Pod stranger/x: {NO_MATCH}"]
    both = tied(nodeSelector={HOST: "n1", "pool": "a"})
    assert read(node("n1", pool="a"), both)[0]["x"].node == "n1"
    assert read(node("n1"), both)[0]["x"].node is None


# what fits


@pytest.mark.parametrize(
    ("name", "all_of_it", "more"),
    [
        ("cpu", "92", "92001m"),  # of 96, 4 of which a pod has
        ("memory", "1008Gi", "1009Gi"),  # of 1 Ti, 16 Gi of which a pod has
        ("nvidia.com/gpu", "6", "7"),  # of 8, 2 of which a pod has
        ("example.com/nic", "3", "4"),
    ],
)
def test_a_pod_holds_room_if_all_that_it_requests_is_free(
    name: str, all_of_it: str, more: str
) -> None:
    there = node("n1")
    there["status"]["allocatable"]["example.com/nic"] = "3"
    beside = pod("beside", gpus=2, on="n1")
    fits, no = requesting("fits", {name: all_of_it}), requesting("no", {name: more})
    assert read(there, beside, fits)[0]["fits"].node == "n1"
    pods, lines = read(there, beside, no)
    assert pods["no"].node is None
    assert lines == [f"Pod stranger/no: {NO_ROOM}"]


def test_of_several_pods_the_first_that_fit_hold_the_room() -> None:
    """By priority, then by age, as the scheduler takes them: 3 + 4 of 8 GPUs, not 2 more."""
    urgent, old, young = (
        tied("urgent", gpus=3, priority=9),
        tied("old", gpus=4),
        tied("a", gpus=2),
    )
    old["metadata"]["creationTimestamp"] = "2026-11-20T07:00:00Z"
    for order in ((urgent, old, young), (young, old, urgent)):
        pods, lines = read(node("n1"), *order)
        assert {name: found.node for name, found in pods.items()} == {
            "urgent": "n1",
            "old": "n1",
            "a": None,
        }
        assert sorted(lines) == [
            f"Pod stranger/a: {NO_ROOM}",
            f"Pod stranger/urgent, stranger/old: {HELD}",
        ]


def test_a_pod_that_requires_what_is_not_modelled_holds_no_room() -> None:
    term = {"topologyKey": HOST, "labelSelector": {"matchLabels": {"app": "nobody"}}}
    never = tied(gpus=8, affinity={"podAffinity": {REQUIRED: [term]}})
    pods, lines = read(node("n1"), never)
    assert (pods["x"].node, lines) == (None, [f"Pod stranger/x: {UNKNOWN}"])
    assert read(node("n1"), never, ignore=("podAffinity",))[0]["x"].node == "n1"


# pods that are bound


def test_a_bound_pod_that_its_kubelet_refuses_counts_as_failed() -> None:
    """A tenant may write ``spec.nodeName`` itself; the kubelet refuses what does not fit."""
    running = pod("running", gpus=6, on="n1")
    bound = pod("bound", gpus=2, on="n1")
    refused = pod("refused", gpus=1, on="n1")
    bound["status"] = refused["status"] = {"phase": "Pending"}
    bound["metadata"]["creationTimestamp"] = "2026-11-20T07:00:00Z"
    pods, lines = read(node("n1"), refused, bound, running)
    assert {name: (found.node, found.finished) for name, found in pods.items()} == {
        "running": ("n1", None),
        "bound": ("n1", None),
        "refused": (None, "Failed"),
    }
    assert lines == [f"Pod default/refused: {NOT_ADMITTED}"]
    # once the kubelet has taken it, it holds whatever it requests
    refused["status"]["startTime"] = "2026-11-20T09:00:00Z"
    assert read(node("n1"), refused, bound, running)[0]["refused"].node == "n1"


# whom they repel


# which GPUs


@pytest.mark.parametrize(("cpu", "held"), [("1", True), ("1000000000", False)])
def test_a_pod_of_ours_with_an_allocated_claim_holds_what_fits(cpu: str, held: bool) -> None:
    """An allocation ties the pod to n1, whatever else it requests."""
    claim = thing(
        *("ResourceClaim", "c", "resource.k8s.io/v1", "default"),
        status={
            "allocation": {
                "devices": {"results": [{"driver": "gpu.nvidia.com", "pool": "n1", "device": "x"}]},
                "nodeSelector": {
                    "nodeSelectorTerms": [
                        {
                            "matchFields": [
                                {"key": "metadata.name", "operator": "In", "values": ["n1"]}
                            ]
                        }
                    ]
                },
            }
        },
    )
    claims = [{"name": "gpu", "resourceClaimName": "c"}]
    mine = pod("p", gated=True, resourceClaims=claims, containers=[asking({"cpu": cpu})])
    pods, lines = read(node("n1"), claim, mine)
    assert (pods["p"].node, pods["p"].to_place) == (("n1", False) if held else (None, True))
    assert lines == [f"Pod default/p: {HELD if held else NO_ROOM}"]
    assert "a resource claim that is allocated already" in pods["p"].unsupported


def test_a_claim_of_another_namespace_is_nobodys() -> None:
    """A claim whose owner reference names the uid of a stranger's pod is not that pod's."""
    victim = pod("v", namespace="team", on="n1", resourceClaims=[{"name": "gpu"}])
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "v", "uid": "uid-team-v"}
    results = [{"driver": "gpu.nvidia.com", "pool": "n1", "device": f"gpu-{i}"} for i in range(8)]
    for namespace, gpus in (("team", 8), ("stranger", 0)):
        forged = thing(
            *("ResourceClaim", "c", "resource.k8s.io/v1", namespace),
            metadata={
                "ownerReferences": [owner],
                "annotations": {"resource.kubernetes.io/pod-claim-name": "gpu"},
            },
            status={
                "allocation": {"devices": {"results": results}},
                "reservedFor": [{"resource": "pods", "name": "v", "uid": "uid-team-v"}],
            },
        )
        assert read(node("n1"), victim, forged)[0]["v"].gpus == gpus


# gangs whose pods request different amounts


def member(name: str, requests: Json, **fields: Any) -> Json:  # noqa: ANN401
    """A pod of the gang `x` of a stranger, in one role with all others."""
    return pod(
        name,
        namespace="stranger",
        labels={"kueue.x-k8s.io/pod-group-name": "x"},
        annotations={"gangplan.dev/movable": "true"},
        containers=[asking(requests)],
        **fields,
    )


def free_cpus(found: LoadedInput) -> dict[str, int]:
    """Millicores that running gangs leave of each node."""
    instance = found.instance
    free = {one.name: dict(one.allocatable)["cpu"] for one in instance.cluster.nodes}
    for gang in instance.gangs:
        for one in gang.pods:
            if one.node is not None:
                name = instance.cluster.nodes[one.node].name
                free[name] -= dict(gang.roles[one.role].requests).get("cpu", 0)
    return free


@pytest.mark.parametrize(
    "large",
    [
        {"on": "n3"},  # runs on a larger node
        {},  # left to another scheduler
        {"gated": True},  # ours to place
    ],
)
def test_a_large_pod_of_a_gang_makes_its_small_ones_hold_no_more(large: Json) -> None:
    """Of 96 cpus a node, small pods hold 1; the large one holds 80 where it runs."""
    nodes = [node(name) for name in ("n1", "n2", "n3")]
    small = [member(f"s-{name}", {"cpu": "1"}, on=name) for name in ("n1", "n2")]
    found = load_all([*nodes, *small, member("large", {"cpu": "80"}, **large)])
    held = 80_000 if "on" in large else 0
    assert free_cpus(found) == {"n1": 95_000, "n2": 95_000, "n3": 96_000 - held}
    (gang,) = found.instance.gangs
    assert gang.movable == ("on" not in large)
    if "gated" in large:
        assert gang.hold is not None
        assert "that wait request more than those that run" in gang.hold.message


# the whole reading


def _victims() -> list[Json]:
    """Two nodes with 8 GPUs, a running pod and a waiting gang that needs what is left."""
    waiting = [
        pod(
            f"v-{i}",
            namespace="team",
            gpus=size,
            gated=True,
            labels={"kueue.x-k8s.io/pod-group-name": "v"},
            annotations={"kueue.x-k8s.io/pod-group-total-count": "2"},
        )
        for i, size in enumerate((8, 6))
    ]
    return [node("n1"), node("n2"), pod("r", namespace="team", gpus=2, on="n2"), *waiting]


def _strangers() -> dict[str, list[Json]]:
    both = ("n1", "n2")
    everyone = {"topologyKey": HOST, "labelSelector": {}, "namespaceSelector": {}}
    repels = {"podAntiAffinity": {REQUIRED: [everyone]}}
    marks = {
        "labels": {"gangplan.dev/plan": "gp-0123456789abcdef0123"},
        "annotations": {
            "gangplan.dev/plan": "gp-0123456789abcdef0123",
            "gangplan.dev/gang": "x",
            "gangplan.dev/gang-size": "1",
            "gangplan.dev/gpus": "0,1,2,3,4,5,6,7",
        },
    }
    marked = []
    for name in both:
        one = copy.deepcopy(marks)
        one["annotations"]["gangplan.dev/node"] = name
        marked.append(tied(f"m-{name}", gpus=8, **one, nodeSelector={HOST: name}))
        marked[-1]["spec"]["schedulerName"] = "ghost"
    bound = [
        pod(f"b-{n}", namespace="stranger", on=n, containers=[asking({"cpu": 10**9})]) for n in both
    ]
    for one in bound:
        one["status"] = {"phase": "Pending"}
    return {
        "ghosts": [
            tied(f"g-{n}", gpus=8, schedulerName="ghost", nodeSelector={HOST: n}) for n in both
        ],
        "vouched for by their own tenant": [
            pod("vouch", namespace="stranger", on="n1", schedulerName="ghost", containers=[{}]),
            *(tied(f"g-{n}", gpus=6, schedulerName="ghost", nodeSelector={HOST: n}) for n in both),
        ],
        "huge": [
            requesting(f"h-{n}", {"cpu": 10**9, "nvidia.com/gpu": 1}, nodeSelector={HOST: n})
            for n in both
        ],
        "repelling": [
            tied(f"a-{n}", schedulerName="ghost", affinity=repels, nodeSelector={HOST: n})
            for n in both
        ],
        "marked": marked,
        "bound by the tenant": bound,
    }


def _cluster(found: LoadedInput) -> tuple[object, object]:
    instance = found.instance
    victims = [gang for gang in instance.gangs if gang.namespace == "team"]
    return victims, instance.cluster


@pytest.mark.parametrize("attack", _strangers())
def test_strangers_change_nothing_but_the_remarks(attack: str) -> None:
    alone = load_all(_victims())
    strangers = _strangers()[attack]
    found = load_all([*_victims(), *strangers])
    if attack != "vouched for by their own tenant":  # there one pod runs, and takes its slot
        assert _cluster(found) == _cluster(alone)
    assert [gang for gang in found.instance.gangs if gang.namespace == "stranger"] == []
    (named,) = set(found.remarks) - set(alone.remarks)
    assert named.startswith("Pod stranger/")
