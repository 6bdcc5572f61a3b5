"""Rules of pods about other pods, as they come out in gangs and nodes."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from typing import Any

import pytest
from kube import node, pod
from kube_pods import thing

from models.documents.gang import NodeExpression
from models.instance.gang import Gang, NextTo, Role, Spread
from models.instance.instance import Instance
from planner.read.inputs import load
from planner.read.kube.pods import pod_rules
from planner.read.kube.pods.constraints import IMPOSSIBLE

Tree = dict[str, Any]

HOST, RACK = "kubernetes.io/hostname", "example.com/rack"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
TRAINERS = {"matchLabels": {"app": "trainer"}}
ALL = 1_000_000
"""minDomains of a spread whose least domain counts as empty."""


def listed(trees: Sequence[Tree]) -> Tree:
    return {"apiVersion": "v1", "kind": "List", "items": list(trees)}


def instance(*trees: Tree, policy: Tree | None = None) -> Instance:
    stated = {"apiVersion": "gangplan.dev/v1alpha1", "kind": "Policy", "metadata": {"name": "p"}}
    more = [] if policy is None else [{**stated, "spec": {"kubernetes": policy}}]
    text = json.dumps(listed([*trees, *more]))
    return load(["-"], stdin=io.BytesIO(text.encode())).instance


def racks(*names: str, **labels: str) -> list[Tree]:
    """Nodes n0, n1, ... in these racks; "" is none."""
    found = [
        node(f"n{i}", **labels, **({RACK: name} if name else {})) for i, name in enumerate(names)
    ]
    for tree in found:
        tree["metadata"]["labels"]["nvidia.com/gpu.product"] = "NVIDIA-H100-80GB-HBM3"
    return found


def term(key: str = HOST, selector: Tree | None = None, **more: object) -> Tree:
    return {"topologyKey": key, "labelSelector": TRAINERS if selector is None else selector, **more}


def apart(*terms: Tree) -> Tree:
    return {"affinity": {"podAntiAffinity": {REQUIRED: list(terms)}}}


def spread(*keys: str, **more: object) -> Tree:
    hard = {"maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": TRAINERS, **more}
    return {"topologySpreadConstraints": [{**hard, "topologyKey": key} for key in keys]}


def gang(
    name: str,
    size: int = 2,
    app: str = "trainer",
    *,
    on: Sequence[str | None] = (),
    namespace: str = "default",
    **spec: object,
) -> list[Tree]:
    """Pods of one waiting gang; of one that runs on these nodes."""
    marks = {"gangplan.dev/gang": name, "app": app}
    return [
        pod(
            f"{name}-{i}", namespace=namespace, gpus=8, gated=where is None, on=where,
            labels=dict(marks), **spec,
        )
        for i, where in enumerate(on or [None] * size)
    ]  # fmt: skip


def service(name: str, on: str, **more: Any) -> Tree:  # noqa: ANN401  # the same
    """A bound pod of no gang."""
    return pod(name, on=on, labels={"app": "trainer"}, **more)


def named(found: Instance, name: str) -> tuple[Gang, Role]:
    (one,) = (one for one in found.gangs if one.name == name)
    (role,) = one.roles
    return one, role


def held(found: Instance, name: str) -> str:
    hold = named(found, name)[0].hold
    assert hold is not None
    return f"{hold.code}: {hold.message.partition(';')[0]}"


# which pods


def test_a_gang_whose_pods_keep_apart_needs_no_set() -> None:
    found = instance(*racks("r1", "r1"), *gang("a", **apart(term())))
    _, role = named(found, "a")
    assert (role.anti_affinity, role.pod_sets) == ((NextTo(found.cluster.node_level),), ())


def test_a_rule_about_several_roles_of_its_gang_has_a_set() -> None:
    job = {"pytorchReplicaSpecs": {"Master": {"replicas": 1}, "Worker": {"replicas": 2}}}
    made = thing("PyTorchJob", "a", "kubeflow.org/v1", "default", spec=job)
    own = {"training.kubeflow.org/job-name": "a"}
    rules = {**apart(term(selector={"matchLabels": own})), **spread(RACK)}
    rules["topologySpreadConstraints"][0]["labelSelector"] = {"matchLabels": own}
    pods = [
        pod(
            f"a-{kind}-{i}",
            gpus=8,
            gated=True,
            labels={**own, "training.kubeflow.org/replica-type": kind},
            owner=made,
            **rules,
        )
        for kind, i in (("master", 0), ("worker", 0), ("worker", 1))
    ]
    found = instance(*racks("r1", "r1", "r2"), made, *pods)
    (gang_,) = found.gangs
    name = "default/training.kubeflow.org/job-name=a"
    assert [one.pod_sets for one in gang_.roles] == [(name,)] * 2
    for role in gang_.roles:
        assert role.anti_affinity == (NextTo(found.cluster.node_level, name),)
        assert role.spread[0].pod_set == name


OUTSIDE = "that selects pods outside of its gang"
ELSEWHERE = "with namespaceSelector, namespaces, matchLabelKeys or mismatchLabelKeys"


@pytest.mark.parametrize(
    ("rules", "more", "why"),
    [
        (apart(term()), gang("b"), f"required podAntiAffinity {OUTSIDE}"),
        (apart(term()), [service("s", "n0")], f"required podAntiAffinity {OUTSIDE}"),
        (spread(RACK), gang("b"), f"topologySpreadConstraints with DoNotSchedule {OUTSIDE}"),
        (apart(term(namespaces=["other"])), [], f"required podAntiAffinity {ELSEWHERE}"),
        (apart(term(namespaceSelector={})), [], f"required podAntiAffinity {ELSEWHERE}"),
        (
            spread(RACK, matchLabelKeys=["app"]),
            [],
            f"topologySpreadConstraints with DoNotSchedule {ELSEWHERE}",
        ),
        ({"affinity": {"podAffinity": {REQUIRED: [term()]}}}, [], "required podAffinity"),
    ],
)
def test_rules_about_other_pods_than_its_own_hold_a_gang(
    rules: Tree, more: list[Tree], why: str
) -> None:
    found = instance(*racks("r1", "r1", "r2"), *gang("a", **rules), *more)
    assert held(found, "a") == f"Unsupported: {why}"


@pytest.mark.parametrize("more", [gang("b", app="web"), gang("b", namespace="other"), []])
def test_pods_that_it_does_not_select_hold_nobody(more: list[Tree]) -> None:
    rules = {**apart(term(namespaces=["default"])), **spread(RACK)}
    found = instance(*racks("r1", "r1", "r2"), *gang("a", **rules), *more)
    assert named(found, "a")[0].hold is None
    assert named(found, "a")[1].anti_affinity == (NextTo(found.cluster.node_level),)


def test_pods_on_nodes_that_nobody_knows_are_not_selected() -> None:
    lost = service("s", "gone")
    found = instance(*racks("r1", "r1"), *gang("a", app="x", **apart(term()), **spread(RACK)), lost)
    _, role = named(found, "a")
    assert (role.anti_affinity, role.spread) == ((), ())


def test_a_selector_that_means_some_pods_of_a_role_holds_the_gang() -> None:
    one, two = gang("a", **apart(term(selector={"matchLabels": {"rank": "0"}})))
    one["metadata"]["labels"]["rank"] = "0"
    assert held(instance(*racks("r1", "r1"), one, two), "a") == (
        "Unsupported: required podAntiAffinity that selects some pods of a role only"
    )


def test_pods_of_a_role_with_different_rules_wait() -> None:
    one, two = gang("a")
    one["spec"] |= apart(term())
    found = instance(*racks("r1", "r1"), one, two)
    assert held(found, "a") == (
        "Unsupported: pods of role worker have different rules about other pods"
    )


# which domains


def test_a_label_that_no_node_has_is_no_bound_for_pods_apart_and_no_place_for_others() -> None:
    nodes = racks("r1")
    assert named(instance(*nodes, *gang("a", **apart(term("x")))), "a")[1].anti_affinity == ()
    what = held(instance(*nodes, *gang("a", **spread("x"))), "a")
    words = "topologySpreadConstraints with DoNotSchedule"
    assert what == f"Unsupported: {words} over x, a label that no node has"


def test_values_that_are_not_the_domains_of_a_level_hold_the_gang() -> None:
    def zoned(*zones: str) -> list[Tree]:
        nodes = racks("r1", "r1", "r2", "r2")
        for tree, zone in zip(nodes, zones, strict=True):
            tree["metadata"]["labels"]["topology.kubernetes.io/zone"] = zone
        return nodes

    mine = gang("a", **apart(term(RACK)))
    assert named(instance(*zoned("a", "a", "b", "b"), *mine), "a")[0].hold is None
    for zones in (("a", "b", "a", "b"), ("a", "b", "b", "b")):
        stated = [
            {"name": "zone", "label": "topology.kubernetes.io/zone"},
            {"name": "rack", "label": RACK},
        ]
        found = instance(*zoned(*zones), *mine, policy={"levels": stated})
        assert "over example.com/rack, whose values are not the domains of level rack" in held(
            found, "a"
        )


def test_pods_go_only_to_nodes_with_the_labels_of_their_domains() -> None:
    nodes = racks("r1", "r2", "")
    for rule, narrowed in ((spread(RACK), 1), (apart(term(RACK)), 0)):
        _, role = named(instance(*nodes, *gang("a", **rule)), "a")
        assert role.node_affinity == ((NodeExpression(RACK, "Exists"),),) * narrowed


# spreading


def spread_of(*trees: Tree, name: str = "a") -> Spread:
    (rule,) = named(instance(*trees), name)[1].spread
    return rule


def test_a_spread_has_its_skew_and_its_domains() -> None:
    rule = spread_of(*racks("r1", "r2"), *gang("a", **spread(RACK, maxSkew=2)))
    assert (rule.max_skew, rule.min_domains, rule.pod_set) == (2, 1, None)
    huge = spread_of(*racks("r1", "r2"), *gang("a", **spread(RACK, maxSkew=10**9)))
    assert huge.max_skew == pod_rules.MAX_SKEW
    soft = spread(RACK, whenUnsatisfiable="ScheduleAnyway")
    assert named(instance(*racks("r1"), *gang("a", **soft)), "a")[1].spread == ()


def test_a_gate_that_pins_a_pod_leaves_fewer_domains_than_the_least_number() -> None:
    """kube-scheduler then counts the least as 0."""
    fields = spread(RACK, minDomains=2)
    assert spread_of(*racks("r1", "r2"), *gang("a", **fields)).min_domains == ALL
    ignored = spread(RACK, minDomains=2, nodeAffinityPolicy="Ignore")
    assert spread_of(*racks("r1", "r2"), *gang("a", **ignored)).min_domains == 2


@pytest.mark.parametrize(
    ("labels", "more", "least"),
    [
        ({RACK: "r1"}, {}, 1),  # a rack that is there anyway
        ({RACK: "r9"}, {}, ALL),
        ({}, {}, 1),  # in no rack
        ({RACK: "r9"}, {"nodeSelector": {"gpu": "yes"}}, 1),
        ({RACK: "r9"}, {"nodeSelector": {"gpu": "yes"}, "nodeAffinityPolicy": "Ignore"}, ALL),
        ({RACK: "r9", "taint": "yes"}, {}, ALL),
        ({RACK: "r9", "taint": "yes"}, {"nodeTaintsPolicy": "Honor"}, 1),
    ],
)
def test_nodes_that_are_left_out_count_as_empty_domains_where_kube_scheduler_counts_them(
    labels: Tree, more: Tree, least: int
) -> None:
    left_out = node("cpu", gpus=0, **{k: v for k, v in labels.items() if k != "taint"})
    if "taint" in labels:
        left_out["spec"]["taints"] = [{"key": "x", "effect": "NoSchedule"}]
    selector = {"nodeSelector": more.pop("nodeSelector", {})}
    mine = gang("a", **selector, **spread(RACK, **more))
    assert spread_of(*racks("r1", "r2", gpu="yes"), left_out, *mine).min_domains == least


def test_pods_that_leave_do_not_count_so_the_least_domain_counts_as_empty() -> None:
    found = gang("a", on=["n0", "n1", "n1"], **spread(RACK))
    found[0]["metadata"]["deletionTimestamp"] = "2026-11-20T09:00:00Z"
    assert spread_of(*racks("r1", "r2"), *found).min_domains == ALL


def test_a_node_that_others_close_still_counts_as_one_of_its_domain() -> None:
    """kube-scheduler looks at node affinity, not at who keeps a pod off a node: the least counts as empty."""
    terms = [term(selector={"matchLabels": {"gangplan.dev/gang": "a"}})]
    loner = pod("loner", on="n0", affinity={"podAntiAffinity": {REQUIRED: terms}})
    found = instance(*racks("r1", "r1", "r2"), loner, *gang("a", **spread(RACK)))
    _, role = named(found, "a")
    closed = NodeExpression(HOST, "NotIn", ("n0",))
    assert (role.node_affinity, role.spread[0].min_domains) == (((closed,),), ALL)


def test_a_spread_that_counts_pods_where_its_own_may_not_be_holds_the_gang() -> None:
    """One ran on a node that the others may not use any more."""
    nodes = racks("r1", "r1", "r2", gpu="yes")
    del nodes[0]["metadata"]["labels"]["gpu"]
    more = spread(RACK, nodeAffinityPolicy="Ignore")
    selects = {"nodeSelector": {"gpu": "yes"}}
    pods = [*gang("a", on=["n0"], **more, **selects), *gang("a", 3, **more, **selects)[1:]]
    assert held(instance(*nodes, *pods), "a").endswith("on nodes where its own may not be")


# gangs that run


def test_the_anti_affinity_of_a_gang_that_runs_closes_its_domain_to_others() -> None:
    nodes = racks("r1", "r2")
    running = gang("run", 1, app="x", on=["n0"], **apart(term(RACK)))
    found = instance(*nodes, *running, *gang("a", 1))
    assert named(found, "a")[1].node_affinity == ((NodeExpression(RACK, "NotIn", ("r1",)),),)
    assert named(found, "run")[1].node_affinity == (IMPOSSIBLE,)
    own = gang("run", 1, on=["n0"], **apart(term(RACK)))
    found = instance(*nodes, *own, *gang("a", 1, app="x"))
    assert [named(found, name)[1].node_affinity for name in ("a", "run")] == [(), ()]


def test_one_that_no_level_can_keep_closes_its_domain_and_the_gang_stays() -> None:
    """Colours cut the racks that the Policy states."""
    nodes = racks("r1", "r1", "r2", "r2")
    for tree, colour in zip(nodes, ("red", "blue", "red", "blue"), strict=True):
        tree["metadata"]["labels"]["colour"] = colour
    running = gang("run", 1, app="x", on=["n0"], **apart(term("colour")))
    stated = {"levels": [{"name": "rack", "label": RACK}]}
    found = instance(*nodes, *running, *gang("a", 1), policy=stated)
    assert named(found, "a")[1].node_affinity == ((NodeExpression("colour", "NotIn", ("red",)),),)
    _, role = named(found, "run")
    assert (role.anti_affinity, role.node_affinity) == ((), (IMPOSSIBLE,))


def test_a_policy_leaves_such_rules_out() -> None:
    rules = {**apart(term(RACK)), **spread(RACK)}
    rules["affinity"]["podAffinity"] = {REQUIRED: [term("x")]}
    mine = gang("a", **rules)
    ignore = {"ignore": ["podAntiAffinity", "podAffinity", "topologySpread"]}
    one, role = named(instance(*racks("r1", "r2"), *mine, policy=ignore), "a")
    assert (one.hold, role.anti_affinity, role.affinity, role.spread) == (None, (), (), ())


# bounds


def test_a_pod_has_so_many_rules_and_no_more() -> None:
    many = [term(selector={"matchLabels": {"k": str(i)}}) for i in range(pod_rules.MAX_RULES)]
    assert named(instance(*racks("r1"), *gang("a", **apart(*many))), "a")[0].hold is None
    found = instance(*racks("r1"), *gang("a", **apart(*many, term())))
    assert held(found, "a").startswith(
        "Unsupported: required podAntiAffinity of more than 20 terms"
    )


def test_a_namespace_has_so_many_parts_of_selectors_and_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pod_rules, "MAX_SELECTOR_PARTS", 3)
    two = [term(selector={"matchLabels": {"a": "b", "k": str(i)}}) for i in range(2)]
    trees = [*gang("a", **apart(two[0])), *gang("b", **apart(two[1]))]
    found = instance(*racks("r1"), *trees, *gang("c", namespace="other", **apart(two[1])))
    assert [one.name for one in found.gangs if one.hold] == ["b"]
