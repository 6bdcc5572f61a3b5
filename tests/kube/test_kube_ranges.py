"""The numbers of pods that annotations let a role of Kubernetes objects run with."""

from __future__ import annotations

from typing import Any

import pytest
from bundles import load_all
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from kube import node, pod
from kube_gangs import owned, read, seats, thing

from models.apply.plan_actions import actions_of
from models.documents.plan import PlanDocument
from models.results.plan import compose
from models.verify.check import check
from planner.read.instance_builder import LoadedInput
from planner.read.kube.gangs.ranges import NO_RANGE
from planner.search.solve import solve

Tree = dict[str, Any]

MIN, MAX, STEP = "gangplan.dev/min", "gangplan.dev/max", "gangplan.dev/step"
PLAN = "gp-" + "0" * 20
HASH = "6f8d"


def stated(least: object = 2, most: object = 6, step: object = None) -> dict[str, str]:
    written = {MIN: least, MAX: most, STEP: step}
    return {key: str(value) for key, value in written.items() if value is not None}


def deployment(
    waiting: int = 0,
    *,
    on: tuple[str, ...] = (),
    notes: dict[str, str] | None = None,
    template: dict[str, str] | None = None,
    replicas: int | None = None,
    owner: str | None = "Deployment",
    ours: bool = True,
) -> list[Tree]:
    """The ReplicaSet of a Deployment ``vit`` and its pods: those that run ``on`` nodes, then gated ones.

    ``notes``: annotations of the Deployment, which its ReplicaSet has, too; ``template``: of the pods.
    ``ours``: a plan has started those that run.
    """
    size = len(on) + waiting if replicas is None else replicas
    made = thing(
        "ReplicaSet", "apps/v1", f"vit-{HASH}", {"replicas": size}, annotations=notes or {}
    )
    if owner is not None:
        owned(made, owner, "apps/v1", "vit")
    labels = {"pod-template-hash": HASH} | ({"gangplan.dev/plan": PLAN} if ours else {})
    pods = [
        pod(f"vit-{HASH}-{number}", gpus=8, on=place, gated=place is None, labels=labels,
            annotations=template)
        for number, place in enumerate([*on, *[None] * waiting])
    ]  # fmt: skip
    return [made, *(owned(one, "ReplicaSet", "apps/v1", f"vit-{HASH}") for one in pods)]


def stateful(
    *ordinals: int, on: tuple[str, ...] = (), notes: dict[str, str] | None = None, start: int = 0
) -> list[Tree]:
    """A StatefulSet ``vit`` and the pods of these ordinals: the first ones run ``on`` nodes."""
    spec = {"replicas": len(ordinals), "ordinals": {"start": start}}
    made = thing("StatefulSet", "apps/v1", "vit", spec, annotations=notes or stated())
    places = [*on, *[None] * (len(ordinals) - len(on))]
    pods = [
        pod(
            f"vit-{ordinal}",
            gpus=8,
            on=place,
            gated=place is None,
            labels={"gangplan.dev/plan": PLAN},
        )
        for ordinal, place in zip(ordinals, places, strict=True)
    ]
    return [made, *(owned(one, "StatefulSet", "apps/v1", "vit") for one in pods)]


def built(*objects: Tree) -> LoadedInput:
    return load_all([*(node(f"n{number}") for number in range(1, 7)), *objects])


def counts(*objects: Tree) -> tuple[int, int, int]:
    """(min, max, step) of the only role of the only gang, which is whole."""
    (gang,) = built(*objects).instance.gangs
    (role,) = gang.roles
    assert gang.hold is None, gang.hold
    return role.min, role.max, role.step


def held(*objects: Tree) -> str:
    (gang,) = built(*objects).instance.gangs
    assert gang.hold is not None
    return f"{gang.hold.code}: {gang.hold.message}"


# ---- gangs that wait


@pytest.mark.parametrize("where", ["notes", "template"])
def test_pods_of_a_deployment_with_a_range_are_one_gang(where: str) -> None:
    found = deployment(4, **{where: stated(2, 4, 2)})
    (gang,) = built(*found).instance.gangs
    assert (gang.name, len(gang.pods), gang.service) == ("vit", 4, None)
    assert counts(*found) == (2, 4, 2)


def test_without_a_range_they_are_replicas_of_a_service() -> None:
    gangs = built(*deployment(3)).instance.gangs
    assert {gang.service for gang in gangs} == {"Deployment/vit"}
    assert len(gangs) == 3


def test_it_waits_for_its_least_number_of_pods() -> None:
    assert "Incomplete" in held(*deployment(1, notes=stated(2, 6), replicas=4))


def test_the_controllers_annotation_comes_before_that_of_its_pods() -> None:
    assert counts(*deployment(4, notes=stated(2, 4), template=stated(3, 4))) == (2, 4, 1)


@pytest.mark.parametrize(
    ("least", "most", "step", "said"),
    [
        ("two", 4, None, NO_RANGE),
        (0, 4, None, NO_RANGE),
        (2, -4, None, NO_RANGE),
        (2, "4.5", None, NO_RANGE),
        (2, 10**9, None, NO_RANGE),
        (2, 4, "", NO_RANGE),
        (4, 2, None, NO_RANGE),
        (2, None, None, NO_RANGE),
        (20_001, 30_000, None, "asks for far more pods"),
    ],
)  # fmt: skip
def test_a_value_that_cannot_be_used_is_one_remark_and_no_range(
    least: object, most: object, step: object, said: str
) -> None:
    gangs, remarks = read(*deployment(3, notes=stated(least, most, step)))
    assert (gangs["vit"].roles[0].size, gangs["vit"].roles[0].range) == (3, None)
    assert len(remarks.all) == 1
    assert said in remarks.all[0].what


def test_a_native_group_keeps_its_minimum_and_another_does_not() -> None:
    """kube-scheduler binds no pod below the minCount of a native group."""
    found = deployment(6, notes=stated(2, 6))
    for one in found[1:]:
        one["spec"]["schedulingGroup"] = {"podGroupName": "g"}
    spec = {"schedulingPolicy": {"gang": {"minCount": 4}}}
    group = thing("PodGroup", "scheduling.k8s.io/v1alpha2", "g", spec)
    assert counts(group, *found) == (4, 6, 1)
    found = deployment(6, notes=stated(2, 6))
    for one in found[1:]:
        one["metadata"]["annotations"] |= {
            "pod-group-name": "vit",
        }
    assert counts(*found) == (2, 6, 1)


def test_of_several_roles_the_controllers_annotation_concerns_the_workers() -> None:
    spec = {"pytorchReplicaSpecs": {"Master": {"replicas": 1}, "Worker": {"replicas": 3}}}
    job = thing("PyTorchJob", "kubeflow.org/v1", "vit", spec, annotations=stated(1, 3))
    pods = [
        owned(
            pod(
                f"vit-{role}-{index}", gpus=8, gated=True,
                labels={
                    "training.kubeflow.org/job-name": "vit",
                    "training.kubeflow.org/replica-type": role,
                    "training.kubeflow.org/replica-index": str(index),
                },
            ),
            "PyTorchJob", "kubeflow.org/v1", "vit",
        )
        for role, index in [("master", 0), ("worker", 0), ("worker", 1), ("worker", 2)]
    ]  # fmt: skip
    (gang,) = built(job, *pods).instance.gangs
    assert [(role.name, role.min, role.max) for role in gang.roles] == [
        ("master", 1, 1), ("worker", 1, 3),
    ]  # fmt: skip


# ---- gangs that run


def test_a_plan_at_most_doubles_a_role_and_adds_sixteen() -> None:
    """However many its owner allows: the variables of the program are as many."""
    assert counts(*deployment(0, on=("n1", "n2"), notes=stated(1, 10**9 - 1))) == (1, 20, 1)
    assert counts(*deployment(0, on=("n1", "n2"), notes=stated(2, 10**9 - 1, 10))) == (2, 12, 10)


def test_without_a_scale_it_grows_by_the_pods_that_exist_and_never_shrinks() -> None:
    found = deployment(2, on=("n1", "n2"), notes=stated(1, 6), owner="Rollout")
    assert counts(*found) == (2, 4, 1)


def test_pods_that_another_scheduler_started_are_never_resized() -> None:
    """New ones would go wherever that scheduler likes."""
    found = deployment(0, on=("n1", "n2"), notes=stated(1, 6), ours=False)
    assert counts(*found) == (2, 2, 1)
    for one in found[1:]:
        one["metadata"]["labels"]["gangplan.dev/plan"] = "gp-" + "0" * 20
    assert counts(*found) == (1, 6, 1)


def test_pods_that_run_come_before_those_that_wait_and_unready_ones_last() -> None:
    """In the order in which a ReplicaSet keeps them: its plan gives up the last ones."""
    made, *pods = deployment(2, on=("n1", "n2", "n3"), notes=stated(1, 6))
    ready = {"type": "Ready", "status": "True"}
    for one in (pods[0], pods[2]):
        one["status"]["conditions"] = [ready]
    pods[2]["metadata"]["annotations"]["gangplan.dev/whole"] = "true"
    gangs, _ = read(made, *pods)
    order = sorted(seats(gangs["vit"]).items(), key=lambda seat: seat[1])
    assert [name.rpartition("-")[2] for name, _ in order] == ["2", "0", "1", "3", "4"]


def test_pods_of_a_stateful_set_have_their_ordinals() -> None:
    gangs, _ = read(*stateful(5, 6, 7, start=5, notes=stated(1, 3)))
    assert seats(gangs["vit"]) == {f"vit-{n}": ("worker", n) for n in (5, 6, 7)}


# ---- whatever states their pods are in


STATES = ("runs", "ends", "waits", "finished", "none")


@settings(max_examples=examples(300, 25), deadline=None)
@given(
    kind=st.sampled_from(["Deployment", "StatefulSet", "Rollout"]),
    states=st.lists(st.sampled_from(STATES), min_size=1, max_size=6),
    least=st.integers(1, 5),
    more=st.integers(0, 6),
    step=st.integers(1, 3),
    movable=st.booleans(),
    rival=st.sampled_from([None, "n1", "n2"]),
)
def test_a_plan_orders_only_pods_that_exist_or_that_a_scale_makes(
    kind: str, states: list[str], least: int, more: int, step: int, movable: bool, rival: str | None
) -> None:
    """A plan that starts a pod nobody has made, and nobody will, could not be applied at all.

    ``rival``: a node that a pod of higher priority wants.
    """
    notes = stated(least, least + more, step)
    notes["gangplan.dev/movable" if movable else "gangplan.dev/preemptible"] = "true"
    found = (
        stateful(*range(len(states)), notes=notes)
        if kind == "StatefulSet"
        else deployment(len(states), notes=notes, owner=kind)
    )
    made, pods = found[0], found[1:]
    for number, (one, state) in enumerate(zip(pods, states, strict=True)):
        if state in {"runs", "ends"}:
            one["spec"].pop("schedulingGates", None)
            one["spec"]["nodeName"] = f"n{number + 1}"
            one["status"]["phase"] = "Running"
        if state == "ends":
            one["metadata"]["deletionTimestamp"] = "2026-11-20T09:00:00Z"
        if state == "finished":
            one["status"]["phase"] = "Failed"
    there = [one for one, state in zip(pods, states, strict=True) if state != "none"]
    if rival is not None:
        there.append(pod("rival", gpus=8, gated=True, priority=10))
        there[-1]["spec"]["nodeSelector"] = {"kubernetes.io/hostname": rival}
    system = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": "kube-system", "uid": "u"},
    }
    loaded = built(system, made, *there)
    for gang in loaded.instance.gangs:
        running = {pod.name for pod in gang.pods if pod.node is not None}
        assert running <= {one["metadata"]["name"] for one in there}
    solution = solve(loaded.instance)
    document = compose(
        loaded.instance, solution, name="test", created_at="2026-11-21T00:00:00Z", generator="test"
    )
    assert check(document) == []
    plan = PlanDocument.model_validate(document)
    for gang in actions_of(plan).gangs:
        grows = {one.role for one in gang.resizes if one.after > one.before}
        assert {order.role for order in gang.starts if not order.uid} <= grows
        assert kind != "Rollout" or not gang.resizes
