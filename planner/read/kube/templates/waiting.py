"""Which workloads wait without pods, each once, and the pods that they would have.

Suspended jobs, and those that a holder of a dialect keeps back until they have quota or a turn. Their pods
are read like any others, but exist nowhere: a plan of them is a what-if, unless their system asks where to
run them. Nothing raises; what cannot be read, or is too much, is left out with a remark.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence

import msgspec
from msgspec import Struct

from models.apply.placement_requests import MODE
from models.instance.policy import KubernetesPolicy
from planner.read.findings import Remarks
from planner.read.kube.dialect_registry import (
    DIALECTS,
    gpu_systems,
    holders,
    makers,
    names,
    placement_requests,
)
from planner.read.kube.dialects.base import (
    Holder,
    Makes,
    PlacementRequest,
    PodSet,
    RequestState,
    Terms,
    completion_index,
)
from planner.read.kube.lookup import (
    Tree,
    at,
    distinct,
    flag,
    mapping,
    objects,
    text,
    texts,
    true_conditions,
)
from planner.read.kube.objects import kube_object
from planner.read.kube.pods.placement import DEFAULT_SCHEDULER, EXPECTED, FINISHED
from planner.read.kube.pods.requests import (
    effective_requests,
    is_about_gpus,
)
from planner.read.kube.records import ControllerKey, Key, KubeObject, KubePod, Objects, once

MAX_PODS = 10_000
"""Most pods that one workload without pods stands for."""

MAX_NAMESPACE_PODS = 50_000
"""Likewise all of a namespace."""

TOO_MANY = f"would have more than {MAX_PODS:,} pods, and has none; it is left out of the plan"
BEYOND = f"left out of the plan: together they would have more than {MAX_NAMESPACE_PODS:,} pods"
UNREADABLE = (
    "waits without pods, and how many it would have, or what they request, cannot be read; it is left "
    "out of the plan"
)

_OPEN = (RequestState.waits, RequestState.placed, RequestState.evicted)
"""States of requests whose pods are to come, or whose room is kept."""

_OVER = frozenset({"COMPLETE", "COMPLETED", "SUCCEEDED", "FAILED", "FINISHED", "STOPPED"})
"""Conditions of what has finished, and the words of JobSets and RayJobs for that, in capitals."""

_STATES = ("terminalState", "jobStatus", "jobDeploymentStatus")
"""Fields of a status that hold such a word."""

_ELSEWHERE = "kueue.x-k8s.io/multikueue"
"""Who manages a workload whose pods run in another cluster."""

_OF_SERVER = ("nodeName", "priority")
"""Fields of pods that their creators do not choose: in a template they would cheat others."""


class Expected(Struct):
    """Pods that do not exist yet. ``left_out``: how many are not planned, by scheduler."""

    pods: list[KubeObject] = []
    left_out: Counter[str] = msgspec.field(default_factory=Counter)


def expected_pods(api: Objects, policy: KubernetesPolicy, remarks: Remarks) -> Expected:
    """The pods that workloads without pods would have, if those of their schedulers are planned."""
    planned: dict[str, list[_Workload]] = {}
    found = Expected(requested_pods(api, policy, remarks))
    said = remarks if policy.plans_others else Remarks()
    for one in sorted(_Waiting(api).workloads(said), key=lambda one: one.age):
        if policy.plans_others and all(policy.plans(one.scheduler(pods)) for pods in one.sets):
            planned.setdefault(one.object.namespace, []).append(one)
        elif one.is_gang:
            for pods in one.sets:
                found.left_out[one.scheduler(pods)] += pods.role.size or 0
    taken = _names_taken(api, planned, found.pods)
    for namespace, queue in sorted(planned.items()):
        left, beyond = MAX_NAMESPACE_PODS, 0
        for one in queue:  # the oldest first, while there is place for all pods of one
            if one.count <= left:
                left -= one.count
                found.pods += one.pods(taken[namespace])
            else:
                beyond += 1
        if beyond:
            what = f"{beyond:,} waiting workloads without pods are {BEYOND}"
            remarks.add(f"namespace {namespace}", what)
    return found


def _names_taken(
    api: Objects, namespaces: Collection[str], made: Iterable[KubeObject] = ()
) -> dict[str, set[str]]:
    taken: dict[str, set[str]] = {namespace: set() for namespace in namespaces}
    for pod in (*api.of("Pod", ""), *made) if namespaces else ():
        taken.setdefault(pod.namespace, set()).add(pod.name)
    return taken


def requested_pods(api: Objects, policy: KubernetesPolicy, remarks: Remarks) -> list[KubeObject]:
    """Those that are made once a request is answered, and those of answered ones that are not bound yet."""
    requests = [one for one in placement_requests(api) if one.problem or one.state in _OPEN]
    taken = _names_taken(api, {one.object.namespace for one in requests})
    left = dict.fromkeys(taken, MAX_NAMESPACE_PODS)
    pods: list[KubeObject] = []
    for one in requests:
        namespace = one.object.namespace
        sizes = [made.role.size or 0 for made in one.sets]
        unread = not (sizes and all(sizes) and all(mapping(p.template, "spec") for p in one.sets))
        beyond = sum(sizes) > min(MAX_PODS, left[namespace])
        if why := one.problem or (unread and UNREADABLE) or (beyond and TOO_MANY):
            remarks.add(one.object.subject, why)
        else:
            left[namespace] -= sum(sizes)
            workload = _Workload(one.object, one.sets, Terms(suspended=False), one)
            pods += workload.pods(taken[namespace], policy.scheduling_gate)
    return pods


def _asked_for(api: Objects) -> frozenset[Key]:
    states = (RequestState.waits, RequestState.placed)
    found = (one.stands_for for one in placement_requests(api) if one.state in states)
    return frozenset[Key]().union(*found)


def remark_unseen(api: Objects, remarks: Remarks) -> None:
    """A remark where a system that suspends is at work and the input has no list of what waits."""
    seen = any(api.has_all(kind) for _, kind in makers())
    for dialect in () if seen else DIALECTS:
        if dialect.report_unseen is not None:
            dialect.report_unseen(api, remarks)


def _wants_gpus(pods: PodSet) -> bool:
    claims = at(pods.template, "spec", "resourceClaims")
    annotations = texts(pods.template, "metadata", "annotations")
    shares = any(one.alone({}, annotations) for one in gpu_systems())
    return bool(claims or shares) or any(map(is_about_gpus, effective_requests(pods.template)[0]))


class _Workload(Struct, frozen=True):
    """A workload without pods."""

    object: KubeObject
    sets: Sequence[PodSet]
    terms: Terms
    request: PlacementRequest | None = None

    @property
    def count(self) -> int:
        return sum(pods.role.size or 0 for pods in self.sets)

    @property
    def is_gang(self) -> bool:
        """Whether it would be planned: what neither wants GPUs nor starts together is left to others."""
        together = self.terms.together and self.count > 1
        return together or any(map(_wants_gpus, self.sets))

    def scheduler(self, pods: PodSet) -> str:
        """Who lets its pods start next."""
        named = text(pods.template, "spec", "schedulerName") or pods.scheduler
        return self.terms.scheduler or named or self.terms.default_scheduler or DEFAULT_SCHEDULER

    @property
    def age(self) -> tuple[bool, int, str, str]:
        """In the order of which the namespace's places are given."""
        created = self.object.created
        return (created is None, created or 0, self.object.kind, self.object.name)

    def spec(self, pods: PodSet, gate: str = "") -> Tree:
        """The spec of its pods of one template, as creators and admission leave it.

        ``gate``: that pods have which are made once a request is answered.
        """
        spec = {**mapping(pods.template, "spec"), "schedulerName": self.scheduler(pods)}
        for name in _OF_SERVER:
            spec.pop(name, None)
        # The claim of an ephemeral volume is made with its pod: that it does not exist is no fault.
        if self.request is not None:
            spec["schedulingGates"] = [] if self.request.nodes else [{"name": gate}]
        volumes, own = objects(spec, "volumes"), objects(spec, "tolerations")
        spec["volumes"] = [one for one in volumes if "ephemeral" not in one]
        spec["tolerations"] = [*own, *(one for one in self.terms.tolerations if one not in own)]
        if self.terms.priority is not None:
            spec["priority"] = self.terms.priority
        elif pods.priority_class is not None and text(spec, "priorityClassName") is None:
            spec["priorityClassName"] = pods.priority_class
        return spec

    def pods(self, taken: set[str], gate: str = "") -> Iterator[KubeObject]:
        """Its pods. ``taken``: names in use. ``gate``: see ``spec``."""
        for place, pods in enumerate(self.sets):
            spec = self.spec(pods, gate)
            labels = mapping(pods.template, "metadata", "labels")
            notes = mapping(pods.template, "metadata", "annotations")
            for number in self.numbers(place):
                made = pods.made(number)
                metadata: Tree = {
                    "name": distinct(made.name, taken),
                    "namespace": self.object.namespace,
                    "uid": made.uid,
                    "labels": {**labels, **made.labels},
                    "annotations": {**notes, **self.terms.annotations},
                    "ownerReferences": [made.owner] if made.owner else [],
                }
                tree = {"metadata": metadata, "spec": spec, EXPECTED: self.start(place, number)}
                if (found := kube_object(tree, "Pod", "v1", self.object.created)) is not None:
                    yield found

    def numbers(self, place: int) -> Sequence[int]:
        """Those of the pods of a set that do not exist."""
        if self.request is not None:
            return self.request.missing[place]
        return range(self.sets[place].role.size or 0)

    def start(self, place: int, number: int) -> Tree:
        """How a pod is started, or where room is kept for it."""
        if self.request is None:
            return {}
        if self.request.nodes:
            return {"node": self.request.nodes[place][number]}
        return {"mode": MODE}


class _Existing(Struct):
    """What the pods of the input say of workloads that have pods.

    ``busy``: whatever owns unfinished pods; ``controllers``, ``named``: the controllers and the
    groups that their labels and annotations name. ``done``: completion indexes of pods that succeeded, by
    Job.
    """

    busy: set[Key] = set()
    controllers: set[ControllerKey | None] = set()
    named: set[tuple[str, str]] = set()
    done: dict[Key, set[int]] = {}


@once
def _existing(api: Objects) -> _Existing:
    found = _Existing()
    lines: set[object] = set()
    holding = {one.name for dialect in DIALECTS if dialect.holder for one in dialect.groups}
    for pod in api.of("Pod", ""):
        phase, owner = text(pod.tree, "status", "phase"), pod.owner_key
        if phase not in FINISHED:
            groups, controller = names(api).of(pod)
            line = (owner, pod.owner and pod.owner.uid)
            if line not in lines:
                lines.add(line)
                found.busy.update(api.owners(pod))
            found.controllers.add(controller)
            found.named.update(key[1:] for key in groups if key.reader in holding)
        elif phase == "Succeeded" and owner is not None:
            index = completion_index(KubePod(pod))
            found.done.setdefault(owner, set()).update(() if index is None else (index,))
    return found


class _Waiting(Struct):
    """Everything of the input that says which workloads wait without pods."""

    api: Objects
    makers: dict[tuple[str, ...], Makes] = msgspec.field(default_factory=makers)
    holders: dict[tuple[str, str], Holder] = msgspec.field(
        default_factory=lambda: {(one.api_group, one.kind): one for one in holders()}
    )

    def workloads(self, remarks: Remarks) -> Iterator[_Workload]:
        """Every workload that waits without pods, once."""
        known = set[Key]()
        asked = _asked_for(self.api)
        for (group, kind), makes in self.makers.items():
            for one in self.api.of(kind, group):
                line = [key for key in (one.key, *self.api.owners(one)) if key in self.api.index]
                known.update(line)
                for holder in self.holders.values():
                    if (made := self.standing(holder, line)) is not None:
                        known.add(made.key)
                    if holder.standing(self.api) and holder.annotations:
                        known.update(_named(one, makes.pods(one), holder))
                below = any(key[:2] in self.makers for key in line[1:])
                if below or not asked.isdisjoint(line) or not self.waits(line):
                    continue
                done = frozenset(_existing(self.api).done.get(line[0], ()))
                sets = makes.left(one, done) if done and makes.left else makes.pods(one)
                yield from self.workload(line, list(sets), remarks)
        for holder in self.holders.values():
            for key, one in holder.standing(self.api).items():
                same = {key, one.key, *self.api.owners(one)}
                alone = known.isdisjoint(same) and asked.isdisjoint(same)
                alone = alone and holder.alone(self.api, key)
                if alone and self.waits([one.key]):
                    yield from self.workload([one.key], list(holder.pods(one)), remarks)

    def workload(
        self, line: Sequence[Key], sets: Sequence[PodSet], remarks: Remarks
    ) -> Iterator[_Workload]:
        """The workload, unless its pods cannot be read, are too many, or exist."""
        above = [self.api.index[key] for key in line]
        terms = Terms(_is_suspended(above[0]))
        for holder in self.holders.values():
            holder.set_terms(terms, self.api, above, self.standing(holder, line))
        found = _Workload(above[0], [pods for pods in sets if pods.role.size != 0], terms)
        if not all(pods.role.size and mapping(pods.template, "spec") for pods in found.sets):
            remarks.add(above[0].subject, UNREADABLE)
        elif found.count > MAX_PODS:
            remarks.add(above[0].subject, TOO_MANY)
        elif found.count:
            first = names(self.api).of(next(found.pods(set()))).controller
            if first is None or first not in _existing(self.api).controllers:
                yield found

    def waits(self, line: Sequence[Key]) -> bool:
        """Whether somebody keeps the pods of a workload back. ``line``: the workload and its owners."""
        standing = [self.standing(holder, line) for holder in self.holders.values()]
        every = (*(self.api.index[key] for key in line), *filter(None, standing))
        return (
            not any(map(_is_over, every)) and self.is_kept_back(line) and not self.has_pods(line[0])
        )

    def is_kept_back(self, line: Sequence[Key]) -> bool:
        one = self.api.index[line[0]]
        own = self.holders.get(line[0][:2]) or self.makers.get(line[0][:2])
        if own is not None and own.waits is not None:
            return own.waits(one)
        keepers = [holder for holder in self.holders.values() if holder.keeps]
        standing = ((holder, self.standing(holder, line)) for holder in keepers)
        return _is_suspended(one) or any(
            made is not None and holder.waits(made) for holder, made in standing
        )

    def has_pods(self, key: Key) -> bool:
        """Whether unfinished pods belong to a workload, or name a group after it."""
        existing = _existing(self.api)  # where nothing waits, pods are not looked at
        if key[:2] not in self.holders:
            return key in existing.busy
        owners = self.api.owners(self.api.index[key])
        lone = (self.api.index.get(owner) for owner in owners if owner[:2] == ("", "Pod"))
        return (
            key[2:] in existing.named
            or not existing.busy.isdisjoint(owners)
            or any(text(pod.tree, "status", "phase") not in FINISHED for pod in lone if pod)
        )

    def standing(self, holder: Holder, line: Sequence[Key]) -> KubeObject | None:
        """What stands for a workload or its owners: itself, what one owns, or what has its name."""
        own, kind = line[0], (holder.api_group, holder.kind)
        if own[:2] == kind:
            return self.api.index[own]
        found = holder.standing(self.api)
        owned = next((found[key] for key in line if key in found), None)
        makes = self.makers.get(own[:2])
        by_name = makes is not None and makes.group_of_its_name
        return owned or (self.api.index.get((*kind, *own[2:])) if by_name else None)


def _named(one: KubeObject, sets: Iterable[PodSet], holder: Holder) -> Iterator[Key]:
    """The objects that the templates of a workload put its pods in."""
    for pods in sets:
        notes = mapping(pods.template, "metadata", "annotations")
        for name in (text(notes, key) for key in holder.annotations):
            if name is not None:
                yield (holder.api_group, holder.kind, one.namespace, name)


def _is_over(one: KubeObject) -> bool:
    """Whether it finished, is being deleted, was switched off, or its pods run in another cluster."""
    spec = mapping(one.tree, "spec")
    managers = (text(spec, "managedBy"), text(spec, "runPolicy", "managedBy"))
    words = true_conditions(one.tree) | {text(one.tree, "status", name) for name in _STATES}
    return (
        not _OVER.isdisjoint(word.upper() for word in words if word)
        or at(one.tree, "metadata", "deletionTimestamp") is not None
        or _ELSEWHERE in managers
        or spec.get("active") is False
    )


def _is_suspended(one: KubeObject) -> bool:
    spec = mapping(one.tree, "spec")
    return flag(spec, "suspend") or flag(spec, "runPolicy", "suspend")
