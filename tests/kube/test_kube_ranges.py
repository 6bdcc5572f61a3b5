"""The numbers of pods that annotations let a role of Kubernetes objects run with."""

from __future__ import annotations

from typing import Any

from bundles import load_all
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from kube import node, pod
from kube_gangs import owned, thing

from models.apply.plan_actions import actions_of
from models.documents.plan import PlanDocument
from models.results.plan import compose
from models.verify.check import check
from planner.read.instance_builder import LoadedInput
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


# ---- whatever states their pods are in


STATES = ("runs", "ends", "waits", "finished", "none")


@settings(max_examples=examples(300, 12), deadline=None)
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
