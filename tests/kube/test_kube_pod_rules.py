"""Rules of pods about other pods, as they come out in gangs and nodes."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from bundles import read_all
from kube import pod
from kube_pods import HOST, RACK, Tree, racks, thing

from models.instance.gang import Gang, NextTo, Role
from models.instance.instance import Instance
from planner.read.kube.pods import pod_rules

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
TRAINERS = {"matchLabels": {"app": "trainer"}}
"""minDomains of a spread whose least domain counts as empty."""


def instance(*trees: Tree, policy: Tree | None = None) -> Instance:
    stated = {"apiVersion": "gangplan.dev/v1alpha1", "kind": "Policy", "metadata": {"name": "p"}}
    more = [] if policy is None else [{**stated, "spec": {"kubernetes": policy}}]
    return read_all([*trees, *more])


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


def named(found: Instance, name: str) -> tuple[Gang, Role]:
    (one,) = (one for one in found.gangs if one.name == name)
    (role,) = one.roles
    return one, role


def held(found: Instance, name: str) -> str:
    hold = named(found, name)[0].hold
    assert hold is not None
    return f"{hold.code}: {hold.message.partition(';')[0]}"


# which pods


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
