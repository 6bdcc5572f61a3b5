"""Rules of pods about other pods, as they come out in gangs and nodes; hosts' ports as resources."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from typing import Any

import pytest
from kube import node, pod
from kube_pods import thing

from models.documents.gang import NodeExpression
from models.instance.cluster import Node
from models.instance.gang import Gang, NextTo, Role, Spread
from models.instance.instance import Instance
from planner.read.inputs import load
from planner.read.kube import pod_sets
from planner.read.kube.pods import host_ports, pod_rules
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


def beside(*terms: Tree) -> Tree:
    return {"affinity": {"podAffinity": {REQUIRED: list(terms)}}}


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


def sets_of(nodes: tuple[Node, ...]) -> dict[str, dict[str, int]]:
    return {one.name: dict(one.pod_sets) for one in nodes if one.pod_sets}


def held(found: Instance, name: str) -> str:
    hold = named(found, name)[0].hold
    assert hold is not None
    return f"{hold.code}: {hold.message.partition(';')[0]}"


# which pods


def test_a_gang_whose_pods_keep_apart_needs_no_set() -> None:
    found = instance(*racks("r1", "r1"), *gang("a", **apart(term())))
    _, role = named(found, "a")
    assert (role.anti_affinity, role.pod_sets) == ((NextTo(found.cluster.node_level),), ())


def test_a_set_holds_the_roles_of_all_gangs_and_pods_of_none() -> None:
    in_words = {"matchExpressions": [{"key": "app", "operator": "In", "values": ["trainer"]}]}
    found = instance(
        *racks("r1", "r1", "r2"),
        *gang("a", **apart(term())),
        *gang("b", **apart(term(selector=in_words), term(RACK))),  # the same pods in other words
        *gang("run", 1, on=["n1"]),
        *gang("c", app="web"),
        service("s", "n0"),
        pod("t", on="n0", namespace="other", labels={"app": "trainer"}),
        pod("u", labels={"app": "trainer"}),  # nobody has bound it
    )
    name, node_level = "default/app=trainer", found.cluster.node_level
    assert [named(found, one)[1].pod_sets for one in ("a", "b", "run", "c")] == [(name,)] * 3 + [()]
    assert named(found, "a")[1].anti_affinity == (NextTo(node_level, name),)
    both = (NextTo(node_level, name), NextTo(node_level - 1, name))
    assert named(found, "b")[1].anti_affinity == both
    assert sets_of(found.cluster.nodes) == {"n0": {name: 1}}


def test_pods_on_nodes_that_nobody_knows_are_in_no_set() -> None:
    lost = service("s", "gone")
    found = instance(*racks("r1", "r1"), *gang("a", app="x", **apart(term()), **spread(RACK)), lost)
    _, role = named(found, "a")
    assert (role.anti_affinity, role.spread, sets_of(found.cluster.nodes)) == ((), (), {})


def test_an_anti_affinity_of_a_running_gang_that_reaches_other_namespaces_is_named() -> None:
    away = apart(term(RACK, {}, namespaceSelector={}))
    trees = [*racks("r1", "r1"), *gang("a", namespace="other")]
    for where, told in ((["n0"], True), ([], False)):
        text = json.dumps(listed([*trees, *gang("run", 1, on=where, **away)]))
        said = load(["-"], stdin=io.BytesIO(text.encode())).remarks
        what = f"keeps waiting pods of other namespaces off its {RACK}"
        assert any(what in line for line in said) == told


def test_terms_of_an_affinity_are_about_the_pods_that_all_of_them_select() -> None:
    tier = {"matchLabels": {"tier": "hot"}}
    cache = pod("cache", on="cpu", labels={"app": "trainer", "tier": "hot"})
    found = instance(
        *racks("r1"),
        node("cpu", gpus=0, **{RACK: "r1"}),  # stays, for the pod that counts
        node("idle", gpus=0, **{RACK: "r1"}),
        *gang("a", app="web", **beside(term(RACK), term(RACK, tier))),
        cache,
        service("s", "n0"),
    )
    (rule,) = named(found, "a")[1].affinity
    assert rule.pod_set == "default/app=trainer and default/tier=hot"
    assert sets_of(found.cluster.nodes) == {"cpu": {rule.pod_set: 1}}
    assert [one.name for one in found.cluster.nodes] == ["cpu", "n0"]


@pytest.mark.parametrize(
    ("fields", "sets"),
    [
        ({"namespaces": ["other"]}, ["other/app=trainer"]),
        ({"namespaceSelector": {}}, ["*/app=trainer"]),
        ({"namespaceSelector": {"matchLabels": {"team": "x"}}}, ["team=x/app=trainer"]),
        ({"matchLabelKeys": ["gangplan.dev/gang"]}, []),  # its own pods
        (
            {"mismatchLabelKeys": ["gangplan.dev/gang"]},
            ["default/app=trainer,gangplan.dev/gang notin (a)"],
        ),
    ],
)
def test_namespaces_and_keys_of_labels_choose_as_kubernetes_does(
    fields: Tree, sets: list[str]
) -> None:
    other = thing("Namespace", "other", "v1", metadata={"labels": {"team": "x"}})
    found = instance(
        *racks("r1", "r1"),
        other,
        thing("Namespace", "default", "v1"),
        *gang("a", **apart(term(**fields))),
        *gang("b"),
        *gang("o", namespace="other"),
    )
    rules = named(found, "a")[1].anti_affinity
    assert [rule.pod_set for rule in rules if rule.pod_set] == sets
    there = {one.name for one in found.gangs if set(sets) & set(one.roles[0].pod_sets)}
    expected = {
        "namespaces": {"o"},
        "namespaceSelector": {"a", "b", "o"} if fields.get("namespaceSelector") == {} else {"o"},
        "matchLabelKeys": set(),
        "mismatchLabelKeys": {"b"},
    }
    assert there == expected[next(iter(fields))]


def test_an_affinity_to_pods_that_nobody_knows_holds_the_gang() -> None:
    name = "kubernetes.io/metadata.name"
    by_name = beside(term(RACK, namespaceSelector={"matchLabels": {name: "default"}}))
    assert named(instance(*racks("r1"), *gang("a", **by_name), *gang("b")), "a")[0].hold is None
    elsewhere = {"team": "x", name: "other"}  # no namespace that is known
    nobody = beside(term(RACK, namespaceSelector={"matchLabels": elsewhere}))
    assert named(instance(*racks("r1"), *gang("a", **nobody), *gang("b")), "a")[0].hold is None
    unknown = beside(term(RACK, namespaceSelector={"matchLabels": {"team": "x"}}))
    found = instance(*racks("r1"), *gang("a", **unknown), *gang("b"))
    assert held(found, "a") == (
        "Unsupported: required podAffinity to pods of namespaces whose labels are not in the input: record "
        "them, which takes the right to list namespaces"
    )


def test_where_a_selector_means_some_pods_of_a_role_a_set_is_larger_or_the_gang_waits() -> None:
    first = {"matchLabels": {"rank": "0"}}
    one, two = gang("b")
    one["metadata"]["labels"]["rank"] = "0"
    others = [*racks("r1", "r1"), one, two]
    found = instance(*others, *gang("a", app="x", **apart(term(selector=first))))
    assert named(found, "b")[1].pod_sets == ("default/rank=0",)
    found = instance(*others, *gang("a", app="x", **beside(term(selector=first))))
    assert held(found, "a") == "Unsupported: required podAffinity to some pods of a role only"
    own = spread(RACK, labelSelector=first)
    (rule,) = named(instance(*others, *gang("a", app="x", **own)), "a")[1].spread
    assert (rule.pod_set, rule.min_domains) == ("default/rank=0", ALL)


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
    for rule, words in (
        (beside(term("x")), "required podAffinity"),
        (spread("x"), "topologySpreadConstraints with DoNotSchedule"),
    ):
        what = held(instance(*nodes, *gang("a", **rule)), "a")
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
    for rule, narrowed in ((beside(term(RACK)), 1), (spread(RACK), 1), (apart(term(RACK)), 0)):
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
    bare = gang("a", schedulerName="gangplan", **fields)
    for tree in bare:
        del tree["spec"]["schedulingGates"]
    assert spread_of(*racks("r1", "r2"), *bare).min_domains == 2
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
    leaving = service("s", "n0")
    leaving["metadata"]["deletionTimestamp"] = "2026-11-20T09:00:00Z"
    mine = gang("a", **spread(RACK))
    assert spread_of(*racks("r1", "r2"), *mine, leaving).min_domains == ALL
    assert spread_of(*racks("r1", "r2"), *mine, service("s", "n0")).min_domains == 1


def test_a_node_that_others_close_still_counts_as_one_of_its_domain() -> None:
    """kube-scheduler looks at node affinity, not at who keeps a pod off a node."""
    loner = pod("loner", on="n0", affinity={"podAntiAffinity": {REQUIRED: [term()]}})
    found = instance(*racks("r1", "r1", "r2"), loner, *gang("a", **spread(RACK)), *gang("b"))
    _, role = named(found, "a")
    (closing,) = role.anti_affinity
    assert (closing.level, closing.pod_set) == (found.cluster.node_level, f"kept off {HOST}")
    assert sets_of(found.cluster.nodes) == {"n0": {closing.pod_set: 1}}
    assert (role.node_affinity, role.spread[0].min_domains) == ((), 1)
    assert named(found, "b")[1].node_affinity == ((NodeExpression(HOST, "NotIn", ("n0",)),),)


def test_a_domain_of_which_a_pod_may_use_a_part_is_closed_if_others_may_be_in_the_rest() -> None:
    """Nodes of another vendor count, and a document keeps the role off them by a label."""
    nodes = [*racks("r1", "r2"), node("amd", resource="amd.com/gpu", **{RACK: "r1"})]
    trees = [*nodes, *gang("a", **spread(RACK))]
    _, role = named(instance(*trees), "a")
    assert (role.node_affinity, role.spread[0].min_domains) == ((), ALL)
    other = gang("b", 1)
    resources = other[0]["spec"]["containers"][0]["resources"]["requests"]
    resources["amd.com/gpu"] = resources.pop("nvidia.com/gpu")
    closed = ((NodeExpression(RACK, "NotIn", ("r1",)),),)
    for more in (other, [service("s", "amd")]):
        assert named(instance(*trees, *more), "a")[1].node_affinity == closed


# gangs that run


def test_the_anti_affinity_of_a_gang_that_runs_is_its_rule_and_closes_nothing() -> None:
    nodes = racks("r1", "r2")
    running = gang("run", 1, app="x", on=["n0"], **apart(term(RACK)))
    found = instance(*nodes, *running, *gang("a", 1))
    assert named(found, "a")[1].node_affinity == ()
    (rule,) = named(found, "run")[1].anti_affinity
    assert named(found, "a")[1].pod_sets == (rule.pod_set,)


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
    rules["affinity"] |= beside(term("x"))["affinity"]
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


def test_rules_that_select_too_many_pods_hold_the_youngest_gangs_of_their_namespace(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each set is charged to a namespace once, with a rule, and the roles and nodes in it."""
    everyone = apart(term(selector={}, namespaceSelector={}))
    greedy = [tree for i in range(3) for tree in gang(f"g{i}", 1, namespace="greedy", **everyone)]
    modest = gang("m", 1, namespace="modest", **apart(term()))
    monkeypatch.setattr(pod_sets, "MAX_MEMBERS", 9)
    found = instance(*racks("r1"), *greedy, *modest)
    assert [one.name for one in found.gangs if one.hold] == []
    monkeypatch.setattr(pod_sets, "MAX_MEMBERS", 8)
    found = instance(*racks("r1"), *greedy, *modest)
    assert [one.name for one in found.gangs if one.hold] == ["g2"]
    assert pod_sets.BEYOND_SHARE in held(found, "g2")


def test_beyond_so_many_domains_that_others_close_a_spread_is_stricter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loners = [
        pod(f"loner-{i}", on=f"n{i}", affinity={"podAntiAffinity": {REQUIRED: [term()]}})
        for i in range(2)
    ]
    trees = [*racks("r1", "r1", "r2"), *loners, *gang("a", **spread(RACK))]
    for most, least in ((2, 1), (1, ALL)):
        monkeypatch.setattr(pod_sets, "MAX_CLOSED", most)
        _, role = named(instance(*trees), "a")
        assert (bool(role.node_affinity), role.spread[0].min_domains) == (least == ALL, least)


def test_names_of_sets_are_printable_short_and_distinct() -> None:
    long = [{"matchLabels": {"app": "trainer", "k" * 60: "v" * 60 + str(i)}} for i in range(2)]
    mine = gang("a", **apart(*(term(RACK, one) for one in long)))
    others = gang("b")
    for i, tree in enumerate(others):
        tree["metadata"]["labels"] |= long[i]["matchLabels"]
    (_, role) = named(instance(*racks("r1", "r1"), *mine, *others), "a")
    names = [rule.pod_set or "" for rule in role.anti_affinity]
    assert len(set(names)) == 2
    assert all(len(name) <= pod_sets.LONGEST_NAME + 2 and name.isprintable() for name in names)


# ports


def ports(*stated: Tree, gpus: int = 1, **spec: object) -> Tree:
    requests = {"cpu": "1", **({"nvidia.com/gpu": str(gpus)} if gpus else {})}
    return {
        "containers": [{"name": "m", "resources": {"requests": requests}, "ports": list(stated)}],
        **spec,
    }


def port(number: int, address: str = "", protocol: str = "TCP") -> Tree:
    return {"containerPort": 1, "hostPort": number, "hostIP": address, "protocol": protocol}


def amounts(found: Instance, name: str) -> dict[str, int]:
    """Ports that a gang asks for, or that a node offers."""
    (of,) = [one.allocatable for one in found.cluster.nodes if one.name == name] or [
        one.roles[0].requests for one in found.gangs if one.name == name
    ]
    start = host_ports.DOMAIN
    return {key.removeprefix(start): value for key, value in of if key.startswith(start)}


def test_a_port_is_a_resource_of_every_node_less_what_others_hold() -> None:
    exporter = pod("e", on="n0", **ports(port(80), port(81), gpus=0))
    found = instance(
        *racks("r1", "r1"), *gang("a", **ports(port(80), port(80, protocol="UDP"))), exporter
    )
    assert amounts(found, "a") == {"tcp-80": 1, "udp-80": 1}
    assert amounts(found, "n0") == {"tcp-80": 0, "udp-80": 1}
    assert amounts(found, "n1") == {"tcp-80": 1, "udp-80": 1}


def test_who_takes_a_port_on_every_address_takes_it_from_all() -> None:
    one, two, odd = "10.0.0.1", "10.0.0.2", "fe80::1"
    found = instance(
        *racks("r1", "r1"),
        *gang("every", 1, **ports(port(80, "0.0.0.0"))),  # no server of ours
        *gang("one", 1, **ports(port(80, one))),
        *gang("both", 1, **ports(port(80, one), port(80, two))),
        *gang("odd", 1, **ports(port(80, odd))),
    )
    assert amounts(found, "every") == {"tcp-80": 3}
    assert amounts(found, "one") == {"tcp-80": 1, "tcp-80-10.0.0.1": 1}
    assert amounts(found, "both") == {"tcp-80": 2, "tcp-80-10.0.0.1": 1, "tcp-80-10.0.0.2": 1}
    (hashed,) = amounts(found, "odd").keys() - {"tcp-80"}
    offered = {"tcp-80": 3, "tcp-80-10.0.0.1": 1, "tcp-80-10.0.0.2": 1, hashed: 1}
    assert amounts(found, "n1") == offered


def test_a_pod_on_the_network_of_its_node_takes_all_of_its_ports() -> None:
    stated = {"containerPort": 29500}
    init = {"name": "i", "ports": [{"containerPort": 7}]}
    sidecar = {"name": "s", "ports": [{"containerPort": 9}], "restartPolicy": "Always"}
    fields = ports(stated, initContainers=[init, sidecar])
    assert amounts(instance(*racks("r1"), *gang("a", **fields)), "a") == {}
    found = instance(*racks("r1"), *gang("a", hostNetwork=True, **fields))
    assert amounts(found, "a") == {"tcp-9": 1, "tcp-29500": 1}


def test_only_ports_that_gangs_ask_for_count_and_a_policy_may_ignore_them() -> None:
    exporter = pod("e", on="n0", **ports(port(9100), gpus=0))
    assert amounts(instance(*racks("r1"), *gang("a"), exporter), "n0") == {}
    mine = gang("a", **ports(port(9100)))
    ignoring = instance(*racks("r1"), *mine, exporter, policy={"ignore": ["hostPort"]})
    assert amounts(ignoring, "a") == amounts(ignoring, "n0") == {}


def test_ports_beyond_what_is_counted_hold_the_youngest_gangs_of_their_namespace(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(host_ports, "MAX_NAMES", 4)
    greedy = [tree for i in range(4) for tree in gang(f"g{i}", 1, **ports(port(80 + i)))]
    modest = gang("m", 1, namespace="modest", **ports(port(80)))
    found = instance(*racks("r1"), *greedy, *modest)
    assert [one.name for one in found.gangs if one.hold] == ["g3"]
    assert host_ports.BEYOND_SHARE in held(found, "g3")
    many = ports(*(port(i) for i in range(1, 52)))
    assert "hostPorts, more than 50 of them" in held(
        instance(*racks("r1"), *gang("a", **many)), "a"
    )
