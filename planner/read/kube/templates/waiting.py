"""Which workloads wait without pods, each once, and the pods that they would have.

Suspended jobs, those whose quota Kueue holds back, and those whose pods Volcano holds back until their group
has a turn. Their pods are read like any others, but exist nowhere: a plan of them is a what-if. Nothing
raises; what cannot be read, or is too much, is left out with a remark.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from models.instance.policy import KubernetesPolicy
from planner.read.findings import Remarks
from planner.read.kube.dialect_registry import controller_readers, makers
from planner.read.kube.dialects import kueue, volcano
from planner.read.kube.dialects.base import ControllerKey
from planner.read.kube.dialects.job import completion_index, job_pods
from planner.read.kube.dialects.kueue_workloads import KIND as WORKLOAD
from planner.read.kube.dialects.kueue_workloads import Workloads
from planner.read.kube.dialects.made_pods import Makes, PodSet
from planner.read.kube.lookup import (
    Tree,
    at,
    distinct,
    flag,
    mapping,
    objects,
    text,
    texts,
)
from planner.read.kube.objects import kube_object
from planner.read.kube.pods.placement import DEFAULT_SCHEDULER, EXPECTED, FINISHED
from planner.read.kube.pods.requests import (
    KAI_FRACTION,
    KAI_MEMORY,
    effective_requests,
    is_about_gpus,
)
from planner.read.kube.records import Key, KubeObject, KubePod, Objects

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

UNSEEN = "jobs that it suspends have no pods, so these lists do not show them"
WITH_WORKLOADS = (
    "gangplan snapshot --out DIR records them, or list them too: "
    "kubectl get nodes,pods,namespaces,workloads.kueue.x-k8s.io -A -o json"
)

_OVER = frozenset({"COMPLETE", "COMPLETED", "SUCCEEDED", "FAILED", "FINISHED", "STOPPED"})
"""Conditions of what has finished, and the words of JobSets and RayJobs for that, in capitals."""

_STATES = ("terminalState", "jobStatus", "jobDeploymentStatus")
"""Fields of a status that hold such a word."""

_NO_GANGS = ("Pod", "ReplicaSet", "StatefulSet", "DaemonSet")
"""What Volcano makes PodGroups for that are no gangs."""

_OF_SERVER = ("nodeName", "priority")
"""Fields of pods that their creators do not choose: in a template they would cheat others."""


@dataclass(slots=True)
class Expected:
    """Pods that do not exist yet. ``left_out``: how many are not planned, by scheduler."""

    pods: list[KubeObject] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)


def expected_pods(api: Objects, policy: KubernetesPolicy, remarks: Remarks) -> Expected:
    """The pods that workloads without pods would have, if those of their schedulers are planned."""
    planned: dict[str, list[_Workload]] = {}
    found = Expected()
    said = remarks if policy.plans_others else Remarks()
    for one in sorted(_Waiting.of(api).workloads(said), key=lambda one: one.age):
        if policy.plans_others and all(policy.plans(one.scheduler(pods)) for pods in one.sets):
            planned.setdefault(one.object.namespace, []).append(one)
        elif one.is_gang:
            for pods in one.sets:
                found.left_out[one.scheduler(pods)] += pods.count or 0
    taken: dict[str, set[str]] = {namespace: set() for namespace in planned}
    for pod in api.of("Pod", "") if planned else ():
        taken.setdefault(pod.namespace, set()).add(pod.name)
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


def remark_unseen(api: Objects, remarks: Remarks) -> None:
    """A remark where Kueue is at work and the input has no list of what it suspends."""
    suspended = {kind for _, kind in makers()} | {WORKLOAD}
    if any(map(api.has_all, suspended)):
        return
    marks = [(pod.namespace + "/", *pod.labels, *pod.annotations) for pod in api.of("Pod", "")]
    if (
        any(api.of(kind, kueue.GROUP) for kind in ("ClusterQueue", "LocalQueue"))
        or api.named("", "Namespace", "", "kueue-system") is not None
        or any(key.startswith(("kueue-system/", f"{kueue.GROUP}/")) for one in marks for key in one)
    ):
        remarks.add("Kueue", UNSEEN, WITH_WORKLOADS)


def _wants_gpus(pods: PodSet) -> bool:
    """Whether a pod of them wants GPUs."""
    claims = at(pods.template, "spec", "resourceClaims")
    shares = texts(pods.template, "metadata", "annotations").keys() & {KAI_FRACTION, KAI_MEMORY}
    return bool(claims or shares) or any(
        map(is_about_gpus, effective_requests(pods.template).amounts)
    )


@dataclass(frozen=True, slots=True)
class _Workload:
    """A workload without pods. ``held``: Kueue holds its quota back; ``priority``: in Kueue's queue.

    ``group``: its PodGroup, of Volcano. ``tolerations``: that Kueue adds when it admits it.
    """

    object: KubeObject
    sets: Sequence[PodSet]
    held: bool = False
    priority: int | None = None
    group: KubeObject | None = None
    tolerations: tuple[Tree, ...] = ()

    @property
    def count(self) -> int:
        return sum(pods.count or 0 for pods in self.sets)

    @property
    def is_gang(self) -> bool:
        """Whether it would be planned: what neither wants GPUs nor starts together is left to others."""
        together = self.group is not None and self.count > 1
        return together or any(map(_wants_gpus, self.sets))

    def scheduler(self, pods: PodSet) -> str:
        """Who lets its pods start next."""
        if self.held:
            return kueue.SCHEDULER
        default = DEFAULT_SCHEDULER if self.group is None else volcano.SCHEDULER
        return text(pods.template, "spec", "schedulerName") or pods.scheduler or default

    @property
    def age(self) -> tuple[bool, int, str, str]:
        """In the order of which the namespace's places are given."""
        created = self.object.created
        return (created is None, created or 0, self.object.kind, self.object.name)

    def spec(self, pods: PodSet) -> Tree:
        """The spec of its pods of one template, as creators and admission leave it."""
        spec = {**mapping(pods.template, "spec"), "schedulerName": self.scheduler(pods)}
        for name in _OF_SERVER:
            spec.pop(name, None)
        # The claim of an ephemeral volume is made with its pod: that it does not exist is no fault.
        volumes, own = objects(spec, "volumes"), objects(spec, "tolerations")
        spec["volumes"] = [one for one in volumes if "ephemeral" not in one]
        spec["tolerations"] = [*own, *(one for one in self.tolerations if one not in own)]
        if self.priority is not None:
            spec["priority"] = self.priority
        elif pods.priority_class is not None and text(spec, "priorityClassName") is None:
            spec["priorityClassName"] = pods.priority_class
        return spec

    def pods(self, taken: set[str]) -> Iterator[KubeObject]:
        """Its pods. ``taken``: names in use."""
        group = {} if self.group is None else {volcano.ANNOTATION: self.group.name}
        for pods in self.sets:
            spec = self.spec(pods)
            labels = mapping(pods.template, "metadata", "labels")
            notes = {**mapping(pods.template, "metadata", "annotations"), **group}
            for made in map(pods.made, range(pods.count or 0)):
                metadata: Tree = {
                    "name": distinct(made.name, taken),
                    "namespace": self.object.namespace,
                    "labels": {**labels, **made.labels},
                    "annotations": notes,
                    "ownerReferences": [made.owner] if made.owner else [],
                }
                tree: Tree = {"metadata": metadata, "spec": spec, EXPECTED: True}
                if (found := kube_object(tree, "Pod", "v1", self.object.created)) is not None:
                    yield found


@dataclass(slots=True)
class _Existing:
    """What the pods of the input say of workloads that have pods.

    ``busy``: unfinished pods and whatever owns them; ``controllers``, ``named``: the controllers and the
    groups that their labels and annotations name. ``done``: completion indexes of pods that succeeded, by
    Job.
    """

    busy: set[Key] = field(default_factory=set)
    controllers: set[ControllerKey | None] = field(default_factory=set)
    named: set[tuple[str, str | None]] = field(default_factory=set)
    done: dict[Key, set[int]] = field(default_factory=dict)

    @classmethod
    def of(cls, api: Objects) -> _Existing:
        found = cls()
        for pod in map(KubePod, api.of("Pod", "")):
            phase, owner = text(pod.object.tree, "status", "phase"), pod.object.owner_key
            if phase not in FINISHED:
                found.busy.update((pod.object.key, *api.owners(pod.object)))
                found.controllers.add(_controller(pod, api))
                names = (kueue.group_name(pod), volcano.group_name(pod))
                found.named.update((pod.object.namespace, name) for name in names)
            elif phase == "Succeeded" and owner is not None:
                index = completion_index(pod)
                found.done.setdefault(owner, set()).update(() if index is None else (index,))
        return found


def _controller(pod: KubePod, api: Objects) -> ControllerKey | None:
    keys = (reader.key(pod, api) for reader in controller_readers())
    return next((key for key in keys if key is not None), None)


@dataclass(slots=True)
class _Waiting:
    """Everything of the input that says which workloads wait without pods.

    ``queued``: Workloads of Kueue, ``groups``: PodGroups of Volcano by owner.
    """

    api: Objects
    queued: Workloads
    groups: dict[Key, KubeObject] = field(default_factory=dict)
    makers: dict[tuple[str, ...], Makes] = field(default_factory=makers)

    @classmethod
    def of(cls, api: Objects) -> _Waiting:
        found = cls(api, api.once(Workloads.of))
        for one in api.of("PodGroup", volcano.GROUP):
            found.groups.setdefault(one.owner_key or one.key, one)
        return found

    def workloads(self, remarks: Remarks) -> Iterator[_Workload]:
        """Every workload that waits without pods, once."""
        known: set[Key] = set()
        for (group, kind), makes in self.makers.items():
            for one in self.api.of(kind, group):
                line = [key for key in (one.key, *self.api.owners(one)) if key in self.api.index]
                known.update(line)
                if (named := self.group(one)) is not None:
                    known.add(named.key)
                if self.groups:
                    known.update(_named_groups(one, makes.pods(one)))
                if any(key[:2] in self.makers for key in line[1:]) or not self.waits(line):
                    continue
                done = self.api.once(_Existing.of).done.get(line[0])
                sets = job_pods(one, frozenset(done)) if done else makes.pods(one)
                yield from self.workload(line, list(sets), remarks)
        for key, one in self.queued.by_owner.items():
            if not known & {key, *self.api.owners(one)} and self.waits([one.key]):
                yield from self.workload([one.key], list(kueue.workload_pods(one)), remarks)
        for key, one in self.groups.items():
            # An owner of a kind that is in the input is gone.
            alone = key[1] not in _NO_GANGS and not self.api.of(key[1], key[0])
            alone = (key == one.key or alone) and known.isdisjoint((key, one.key))
            if alone and self.waits([one.key]):
                yield from self.workload([one.key], volcano.group_pods(one), remarks)

    def workload(
        self, line: Sequence[Key], sets: Sequence[PodSet], remarks: Remarks
    ) -> Iterator[_Workload]:
        """The workload, unless its pods cannot be read, are too many, or exist."""
        one = self.api.index[line[0]]
        queued = self.kueue(line)
        queue = self.queue(line, queued)
        suspended_for_kueue = _is_suspended(one) and queue is not None
        held = suspended_for_kueue if queued is None else _is_held(queued)
        found = _Workload(
            one,
            [pods for pods in sets if pods.count != 0],
            held=held,
            priority=self.queued.priority(queued, map(self.api.index.__getitem__, line)),
            group=self.group(one),
            tolerations=self.tolerations(one.namespace, queue) if held else (),
        )
        if not all(pods.count and mapping(pods.template, "spec") for pods in found.sets):
            remarks.add(one.subject, UNREADABLE)
        elif found.count > MAX_PODS:
            remarks.add(one.subject, TOO_MANY)
        elif found.count:
            first = _controller(KubePod(next(found.pods(set()))), self.api)
            if first is None or first not in self.api.once(_Existing.of).controllers:
                yield found

    def waits(self, line: Sequence[Key]) -> bool:
        """Whether somebody keeps the pods of a workload back. ``line``: the workload and its owners."""
        one = self.api.index[line[0]]
        queued = self.kueue(line)
        every = [*(self.api.index[key] for key in line), *([queued] if queued is not None else [])]
        return (
            not any(map(_is_over, every)) and self.is_kept_back(one) and not self.has_pods(line[0])
        )

    def is_kept_back(self, one: KubeObject) -> bool:
        match one.group, one.kind:
            case kueue.GROUP, _:
                return _is_held(one)
            case volcano.GROUP, _:
                return volcano.is_pending(one)
        makes, group = self.makers.get((one.group, one.kind)), self.group(one)
        if makes is not None and makes.waits is not None:
            return makes.waits(one)
        return _is_suspended(one) or (group is not None and volcano.is_pending(group))

    def has_pods(self, key: Key) -> bool:
        """Whether unfinished pods belong to a workload, or name a group after it."""
        existing = self.api.once(_Existing.of)  # where nothing waits, pods are not looked at
        if key[0] not in (kueue.GROUP, volcano.GROUP):
            return key in existing.busy
        owners = self.api.owners(self.api.index[key])
        return key[2:] in existing.named or not existing.busy.isdisjoint(owners)

    def kueue(self, line: Sequence[Key]) -> KubeObject | None:
        """Kueue's Workload of a workload or of its owners."""
        one = self.api.index[line[0]]
        if (one.group, one.kind) == (kueue.GROUP, "Workload"):
            return one
        return self.queued.owned_by(line)

    def queue(self, line: Sequence[Key], queued: KubeObject | None) -> str | None:
        """The LocalQueue that its Workload, or a label of it or of its owners, names."""
        own = None if queued is None else text(queued.tree, "spec", "queueName")
        labels = (self.api.index[key].labels.get(kueue.QUEUE) for key in line)
        return own or next((name for name in labels if name), None)

    def tolerations(self, namespace: str, queue: str | None) -> tuple[Tree, ...]:
        """Those of the flavors that a queue may give: which one, Kueue decides."""
        local = self.api.named(kueue.GROUP, "LocalQueue", namespace, queue or "")
        name = None if local is None else text(local.tree, "spec", "clusterQueue")
        cluster = self.api.named(kueue.GROUP, "ClusterQueue", "", name or "")
        groups = objects(None if cluster is None else cluster.tree, "spec", "resourceGroups")
        names = {
            text(flavor, "name"): None for group in groups for flavor in objects(group, "flavors")
        }
        flavors = (self.api.named(kueue.GROUP, "ResourceFlavor", "", one) for one in names if one)
        trees = [one.tree for one in flavors if one is not None]
        return tuple(each for tree in trees for each in objects(tree, "spec", "tolerations"))

    def group(self, one: KubeObject) -> KubeObject | None:
        """Its PodGroup: the one that it owns, else one of its name, as operators make it."""
        if (one.group, one.kind) == (volcano.GROUP, "PodGroup"):
            return one
        makes = self.makers.get((one.group, one.kind))
        named = self.api.named(volcano.GROUP, "PodGroup", one.namespace, one.name)
        by_name = makes is not None and makes.group_of_its_name
        return self.groups.get(one.key, named if by_name else None)


def _named_groups(one: KubeObject, sets: Iterable[PodSet]) -> Iterator[Key]:
    """The PodGroups that the templates of a workload put its pods in."""
    for pods in sets:
        notes = mapping(pods.template, "metadata", "annotations")
        for name in (text(notes, key) for key in (volcano.ANNOTATION, volcano.VOLCANO_ANNOTATION)):
            if name is not None:
                yield (volcano.GROUP, "PodGroup", one.namespace, name)


def _conditions(one: KubeObject) -> set[str | None]:
    """The types of the conditions that are true."""
    found = objects(one.tree, "status", "conditions")
    return {text(entry, "type") for entry in found if entry.get("status") == "True"}


def _is_over(one: KubeObject) -> bool:
    """Whether it finished, is being deleted, was switched off, or its pods run in another cluster."""
    spec = mapping(one.tree, "spec")
    managers = (text(spec, "managedBy"), text(spec, "runPolicy", "managedBy"))
    words = _conditions(one) | {text(one.tree, "status", name) for name in _STATES}
    return (
        not _OVER.isdisjoint(word.upper() for word in words if word)
        or at(one.tree, "metadata", "deletionTimestamp") is not None
        or kueue.MULTIKUEUE in managers
        or spec.get("active") is False
    )


def _is_suspended(one: KubeObject) -> bool:
    spec = mapping(one.tree, "spec")
    return flag(spec, "suspend") or flag(spec, "runPolicy", "suspend")


def _is_held(workload: KubeObject) -> bool:
    """Whether Kueue has not admitted it yet."""
    return "Admitted" not in _conditions(workload)
