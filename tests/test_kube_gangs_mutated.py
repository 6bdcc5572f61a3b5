"""Mutated snapshots: nothing raises, no pod that holds room is lost, other gangs do not change."""

from __future__ import annotations

import copy
from collections import Counter
from functools import cache
from typing import Any

import pytest
from effort import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kube import load
from kube_gangs import TRUSTING, simple_pod

from planner.read.findings import Remarks
from planner.read.kube.gangs.gangs import read_gangs
from planner.read.kube.objects import kube_object
from planner.read.kube.records import KubeGang, KubeObject, KubePod, Objects

SNAPSHOTS = ("h100-gke", "nvl72", "v100-mpi")
ODD: list[Any] = [
    None, True, False, 0, 1, -1, 3, 1.5, 10**9, 10**30, float("nan"), "", "x", "0", "1", "-1", "9" * 40,
    "\x1b[31m", "\ud800", "a/b", [], [[]], [{}], {}, {"": {}}, {"name": {"name": []}}, ["a"], {"gang": 1},
]  # fmt: skip
LABELS = [
    "jobset.sigs.k8s.io/jobset-name",
    "jobset.sigs.k8s.io/job-index",
    "batch.kubernetes.io/job-completion-index",
    "leaderworkerset.sigs.k8s.io/name",
    "leaderworkerset.sigs.k8s.io/group-index",
    "training.kubeflow.org/job-name",
    "training.kubeflow.org/replica-type",
    "training.kubeflow.org/replica-index",
    "volcano.sh/job-name",
    "ray.io/cluster",
    "grove.io/podgang",
    "scheduling.x-k8s.io/pod-group",
    "kueue.x-k8s.io/pod-group-name",
    "gangplan.dev/gang",
]
NOTES = [
    "scheduling.k8s.io/group-name",
    "pod-group-name",
    "kueue.x-k8s.io/podset-required-topology",
    "kueue.x-k8s.io/podset-slice-required-topology",
    "kueue.x-k8s.io/podset-slice-size",
    "kueue.x-k8s.io/podset-slice-required-topology-constraints",
    "kueue.x-k8s.io/podset-group-name",
    "volcano.sh/network-topology-highest-tier",
    "gangplan.dev/submitted-at",
    "gangplan.dev/communication-pattern",
    "gangplan.dev/communication-fraction",
    "gangplan.dev/communication-speed",
    "gangplan.dev/mix-models",
    "gangplan.dev/min",
    "gangplan.dev/max",
    "gangplan.dev/step",
]
often = settings(
    max_examples=examples(60),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@cache
def recorded(snapshot: str) -> tuple[list[KubeObject], dict[tuple[str, str], KubePod]]:
    """The objects that gangs are read from, and the pods in the neutral form."""
    found = load(snapshot)
    kept = [
        one
        for kind in sorted(found.by_kind)
        for one in found.by_kind[kind]
        if kind not in {"Node", "DaemonSet", "ResourceSlice"}
        and (one.owner is None or one.owner.kind != "DaemonSet")
    ]
    return kept, {one.key: one for one in map(simple_pod, kept) if one.object.kind == "Pod"}


def gangs_of(objects: list[KubeObject], pods: list[KubePod]) -> list[KubeGang]:
    found = Objects()
    for one in objects:
        found.add(one)
    return read_gangs(found, pods, TRUSTING, Remarks())


def told(gang: KubeGang) -> tuple[Any, ...]:
    """All that a gang says."""
    roles = [
        (role.name, role.size, role.first_index, role.required, role.preferred, role.slices)
        for role in gang.roles
    ]
    mixed = [role.mix_models for role in gang.roles]
    members = [[(index, pod.key) for index, pod in role.members] for role in gang.roles]
    asked = (gang.required, gang.preferred, gang.queue, gang.priority, gang.submitted_at)
    marks = (gang.preemptible, gang.movable, gang.missing, gang.problems)
    speed = (gang.communication, gang.service, mixed)
    return (gang.namespace, gang.name, gang.kind, roles, members, asked, marks, speed)


@cache
def before(snapshot: str) -> dict[tuple[str, str], tuple[Any, ...]]:
    objects, pods = recorded(snapshot)
    return {(one.namespace, one.name): told(one) for one in gangs_of(objects, list(pods.values()))}


def places(tree: object, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every path of a tree, but into containers and what else gangs have no business with."""
    found = [path] if path else []
    if isinstance(tree, dict):
        for name, value in tree.items():
            if name not in {"containers", "initContainers", "volumes", "tolerations", "status"}:
                found += places(value, (*path, name))
    elif isinstance(tree, list):
        for number, value in enumerate(tree):
            found += places(value, (*path, number))
    return found


def mutate(tree: dict[str, Any], draw: st.DataObject) -> None:
    """Drop or replace something in a tree, or give it an odd label or annotation."""
    how = draw.draw(st.sampled_from(["drop", "replace", "label", "annotation"]))
    if how in {"drop", "replace"}:
        whole = {("metadata",), ("metadata", "name")}  # without a name it is no object
        path = draw.draw(st.sampled_from([at for at in places(tree) if at not in whole]))
        inside: Any = tree
        for step in path[:-1]:
            inside = inside[step]
        if how == "drop":
            del inside[path[-1]]
        else:
            inside[path[-1]] = draw.draw(st.sampled_from(ODD))
        return
    metadata = tree.get("metadata")
    field, keys = ("labels", LABELS) if how == "label" else ("annotations", NOTES)
    if isinstance(metadata, dict):
        notes = metadata.get(field)
        value = draw.draw(st.sampled_from(ODD) | st.text(max_size=8))
        key = draw.draw(st.sampled_from(keys))
        metadata[field] = {**(notes if isinstance(notes, dict) else {}), key: value}


def mutated(one: KubeObject, draw: st.DataObject) -> KubeObject | None:
    tree = copy.deepcopy(one.tree)
    mutate(tree, draw)
    version = f"{one.group}/{one.version}" if one.group else one.version
    return kube_object(tree, one.kind, version, one.created)


def one_of(objects: list[KubeObject], draw: st.DataObject) -> KubeObject:
    return objects[draw.draw(st.integers(0, len(objects) - 1))]


def check(gangs: list[KubeGang], pods: list[KubePod]) -> None:
    """What holds of every answer."""
    names = [(gang.namespace, gang.name) for gang in gangs]
    assert names == sorted(set(names))
    counted = Counter(pod.key for gang in gangs for pod in gang.pods())
    assert set(counted.values()) <= {1}
    for pod in pods:
        if pod.bound and pod.gpus:
            assert counted[pod.key] == 1, pod.key
    for gang in gangs:
        assert len({role.name for role in gang.roles}) == len(gang.roles)
        assert gang.roles
        for role in gang.roles:
            indexes = [index for index, _ in role.members]
            assert indexes == sorted(set(indexes))
            assert all(0 <= index - role.first_index < role.size for index in indexes)
            assert 1 <= role.size <= 1_000_000
            assert len({pod.gpus for _, pod in role.members}) <= 1
            assert gang.missing is not None or len(role.members) == role.size
            assert all(one.size > 0 and role.size % one.size == 0 for one in role.slices)
        held = any(pod.bound for pod in gang.pods())
        assert held or any(pod.to_place for pod in gang.pods())


@pytest.mark.parametrize("snapshot", SNAPSHOTS)
@often
@given(draw=st.data())
def test_one_odd_pod_changes_only_the_gangs_it_is_in(snapshot: str, draw: st.DataObject) -> None:
    objects, pods = recorded(snapshot)
    broken = one_of([one for one in objects if one.kind == "Pod"], draw)
    odd = mutated(broken, draw)
    assert odd is not None
    objects = [odd if one is broken else one for one in objects]
    read = [simple_pod(odd) if pod.object is broken else pod for pod in pods.values()]
    gangs = gangs_of(objects, read)
    check(gangs, read)
    names = {(broken.namespace, broken.name), (odd.namespace, odd.name)}
    after = {(gang.namespace, gang.name): told(gang) for gang in gangs}
    for key, value in before(snapshot).items():
        members = {pod for role in value[4] for _, pod in role}
        now = {pod for role in after.get(key, (0, 0, 0, 0, []))[4] for _, pod in role}
        if not (members | now) & names:
            assert after[key] == value


@pytest.mark.parametrize("snapshot", SNAPSHOTS)
@often
@given(draw=st.data())
def test_one_odd_group_or_controller_changes_only_its_own_gangs(
    snapshot: str, draw: st.DataObject
) -> None:
    objects, pods = recorded(snapshot)
    kinds = sorted({one.kind for one in objects} - {"Pod"})
    kind = draw.draw(st.sampled_from(kinds))
    broken = one_of([one for one in objects if one.kind == kind], draw)
    odd = mutated(broken, draw)
    objects = [one if one is not broken else odd for one in objects if one is not broken or odd]
    gangs = gangs_of([one for one in objects if one is not None], list(pods.values()))
    check(gangs, list(pods.values()))
    after = {(gang.namespace, gang.name): told(gang) for gang in gangs}
    same = [key for key, value in before(snapshot).items() if after.get(key) == value]
    # A LeaderWorkerSet of these snapshots makes at most three gangs; all else makes one.
    assert len(same) >= len(before(snapshot)) - 3


@pytest.mark.parametrize("snapshot", SNAPSHOTS)
@often
@given(draw=st.data())
def test_many_odd_objects_never_raise_and_lose_no_pod(snapshot: str, draw: st.DataObject) -> None:
    objects, _ = recorded(snapshot)
    chosen = draw.draw(st.sets(st.integers(0, len(objects) - 1), min_size=2, max_size=12))
    changed: list[KubeObject] = []
    for place, one in enumerate(objects):
        odd = mutated(one, draw) if place in chosen else one
        changed += [odd] if odd is not None else []
    found = Objects()
    kept = [one for one in changed if found.add(one)]
    pods = [simple_pod(one) for one in kept if one.kind == "Pod"]
    gangs = read_gangs(found, pods, TRUSTING, Remarks())
    check(gangs, pods)
