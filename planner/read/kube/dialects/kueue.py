"""Kueue: groups of plain pods, the topology that podset annotations ask for, and Workloads.

A label names the group, an annotation counts its pods; the group needs all of them. The pod sets of a
Workload are the roles of pods that nothing but the Workload describes yet.
Its order counts while a Workload waits and after it was admitted. Kueue writes Workloads; labels that name a
priority class are the tenant's, and count for pods only where Workloads are not in the input.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

from msgspec import Struct

from models.instance.policy import KUEUE
from planner.read.findings import Remarks
from planner.read.kube.dialects import base, kueue_quotas
from planner.read.kube.lookup import (
    Tree,
    at,
    conditions,
    holds_condition,
    mapping,
    number,
    objects,
    text,
    texts,
    time_of,
    whole,
)
from planner.read.kube.records import (
    Key,
    KubeNode,
    KubeObject,
    KubePod,
    LevelAsk,
    Objects,
    SliceAsk,
    once,
)

GROUP = kueue_quotas.GROUP
SCHEDULER = KUEUE
KIND = "Workload"
QUEUE = f"{GROUP}/queue-name"
PRIORITY = f"{GROUP}/priority-class"
"""Names the WorkloadPriorityClass that counts in Kueue's queue."""

GATE = kueue_quotas.GATE
PODSET = f"{GROUP}/podset"
PODSET_INDEX = f"{GROUP}/pod-group-pod-index"
NAME = "kueue.x-k8s.io/pod-group-name"
TOTAL = "kueue.x-k8s.io/pod-group-total-count"
_KEY = "kueue.x-k8s.io/podset-"
REQUIRED = f"{_KEY}required-topology"
PREFERRED = f"{_KEY}preferred-topology"
UNCONSTRAINED = f"{_KEY}unconstrained-topology"
SLICE_LEVEL = f"{_KEY}slice-required-topology"
SLICE_SIZE = f"{_KEY}slice-size"
SLICES = f"{_KEY}slice-required-topology-constraints"
PODSET_GROUP = f"{_KEY}group-name"
_KEYS = (REQUIRED, PREFERRED, UNCONSTRAINED, SLICE_LEVEL, SLICE_SIZE, SLICES, PODSET_GROUP)
_MAX_LAYERS = 3

BOTH = "asks for a required and a preferred topology, which Kueue refuses; both count"
NO_LEVEL = "asks for slices without a level"
BAD_SLICES = "asks for slices in a form that cannot be read"


def describe(of: base.Grouped) -> base.PodGroup:
    counts = {pod.annotations.get(TOTAL) for pod in of.pods} - {None}
    found = base.PodGroup(
        of.key, minimum=max((number(one) or 0 for one in counts), default=0) or None
    )
    if len(counts) > 1:
        of.remarks.add(found.subject, f"its pods disagree about {TOTAL}; the largest counts")
    return found


def podset_topology(annotations: dict[str, str], job_size: int) -> base.Asked:
    """What a pod's annotations ask; ``job_size``: default size of slices, 0 if there is none."""
    values = tuple(annotations.get(key) for key in _KEYS)
    return (
        _read(values, job_size) if any(value is not None for value in values) else base.ASKS_NOTHING
    )


@lru_cache(maxsize=4096)
def _read(values: tuple[str | None, ...], job_size: int) -> base.Asked:
    required, preferred, free, level, size, layers, group = values
    remarks = []
    if required and preferred:
        remarks.append(BOTH)
    if free is not None and free.lower() != "false" and (required or preferred):
        remarks.append("asks for a topology and for none, which Kueue refuses; the topology counts")
    slices, problem = _slices(level, size, layers, job_size)
    return base.Asked(
        LevelAsk(label=required) if required else None,
        LevelAsk(label=preferred) if preferred else None,
        slices,
        group or None,
        tuple(remarks),
        (problem,) if problem else (),
    )


def _slices(
    level: str | None, size: str | None, layers: str | None, job_size: int
) -> tuple[tuple[SliceAsk, ...], str | None]:
    if layers is not None:
        return _layered(layers)
    if not level:
        return (), NO_LEVEL if size else None
    pods = number(size) if size is not None else job_size
    if not pods:
        return (), "asks for slices without a size" if size is None else BAD_SLICES
    return (SliceAsk(pods, LevelAsk(label=level)),), None


def _layered(written: str) -> tuple[tuple[SliceAsk, ...], str | None]:
    """Slices in slices, from the widest level to the nearest."""
    parsed = base.json_value(written)
    if not isinstance(parsed, list) or not parsed:
        return (), BAD_SLICES
    if len(parsed) > _MAX_LAYERS:
        return (), "asks for more than three layers of slices, which Kueue refuses"
    found = []
    for entry in parsed:
        label, size = text(entry, "topology"), whole(entry, "size")
        if size is None:
            size = number(text(entry, "size"))
        if label is None or size is None or size < 1:
            return (), BAD_SLICES
        found.append(SliceAsk(size, LevelAsk(label=label)))
    if any(wide.size % near.size for wide, near in zip(found, found[1:], strict=False)):
        return (), "asks for slices whose sizes do not divide each other"
    return tuple(found), None


def describe_workload(of: base.Controlled) -> base.Controller:
    key, made, *_ = of
    owner = None if made is None else made.owner
    kind, name = ("Workload", key.name) if owner is None else (owner.kind, owner.name)
    roles = {} if made is None else base.roles_of(workload_pods(made))
    queue = text(of.tree, "spec", "queueName")
    return base.Controller(key, kind, name, made, roles, queue=queue)


def workload_pods(workload: KubeObject) -> Iterator[base.PodSet]:
    """The pod sets of a Kueue Workload, for owners whose templates are not in the input."""
    owner = base.owned_by(workload)
    name = workload.name if workload.owner is None else workload.owner.name
    for podset in objects(workload.tree, "spec", "podSets"):
        role, size = text(podset, "name") or "main", base.count(podset, "count", absent=1)
        spec = base.RoleSpec(role, size, range=base.allowed_range(whole(podset, "minCount"), size))
        made = base.numbered(f"{name}-{role}", {PODSET: role}, owner, PODSET_INDEX)
        yield base.PodSet(spec, mapping(podset, "template"), made)


def set_terms(
    terms: base.Terms, api: Objects, line: Sequence[KubeObject], workload: KubeObject | None
) -> None:
    """Kueue's order counts, and it lets go what it has not admitted."""
    own = None if workload is None else text(workload.tree, "spec", "queueName")
    queue = own or next((name for one in line if (name := one.labels.get(QUEUE))), None)
    held = terms.suspended and queue is not None if workload is None else waits(workload)
    terms.priority = _workloads(api).priority(workload, line)
    if held:
        terms.scheduler = SCHEDULER
        terms.tolerations = _tolerations(api, line[0].namespace, queue)


def waits(workload: KubeObject) -> bool:
    return not holds_condition(workload.tree, "Admitted")


def _tolerations(api: Objects, namespace: str, queue: str | None) -> tuple[Tree, ...]:
    """Those of the flavors that a queue may give: which one, Kueue decides."""
    local = api.named(GROUP, "LocalQueue", namespace, queue or "")
    name = None if local is None else text(local.tree, "spec", "clusterQueue")
    cluster = api.named(GROUP, "ClusterQueue", "", name or "")
    groups = objects(None if cluster is None else cluster.tree, "spec", "resourceGroups")
    names = {text(flavor, "name"): None for group in groups for flavor in objects(group, "flavors")}
    flavors = (api.named(GROUP, "ResourceFlavor", "", one) for one in names if one)
    trees = [one.tree for one in flavors if one is not None]
    return tuple(each for tree in trees for each in objects(tree, "spec", "tolerations"))


UNSEEN = "jobs that it suspends have no pods, so these lists do not show them"
WITH_WORKLOADS = (
    "gangplan snapshot --out DIR records them, or list them too: "
    "kubectl get nodes,pods,namespaces,workloads.kueue.x-k8s.io -A -o json"
)


def report_unseen(api: Objects, remarks: Remarks) -> None:
    """A remark where Kueue is at work, and its Workloads are not in the input."""
    if api.has_all("Workload"):
        return
    marks = [(pod.namespace + "/", *pod.labels, *pod.annotations) for pod in api.of("Pod", "")]
    if (
        any(api.of(kind, GROUP) for kind in ("ClusterQueue", "LocalQueue"))
        or api.named("", "Namespace", "", "kueue-system") is not None
        or any(key.startswith(("kueue-system/", f"{GROUP}/")) for one in marks for key in one)
    ):
        remarks.add("Kueue", UNSEEN, WITH_WORKLOADS)


_NAMES = (f"{GROUP}/pod-group-name", f"{GROUP}/prebuilt-workload-name", f"{GROUP}/workload")
"""Labels and annotations of pods and controllers that name their Workload."""

_CLASSES = {"PriorityClass": "scheduling.k8s.io", "WorkloadPriorityClass": GROUP}
"""API groups of the kinds that a Workload may take its priority from."""


class Workloads(Struct, frozen=True):
    """Workloads by owner (by their own name, if they have none), found once for all objects."""

    api: Objects
    by_owner: dict[Key, KubeObject] = {}

    def owned_by(self, line: Iterable[Key]) -> KubeObject | None:
        """The Workload of the first of these objects that has one."""
        return next((self.by_owner[key] for key in line if key in self.by_owner), None)

    def standing_for(self, every: Iterable[KubeObject]) -> KubeObject | None:
        """The Workload of pods, their controllers and groups: the one that they name, else their owners'."""
        if not self.by_owner:
            return None
        for one in every:
            notes = (part.get(key) for key in _NAMES for part in (one.labels, one.annotations))
            named = (self.api.named(GROUP, KIND, one.namespace, name) for name in notes if name)
            found = next((made for made in named if made is not None), None)
            found = found or self.owned_by([one.key, *self.api.owners(one)])
            if found is not None:
                return found
        return None

    def priority(self, workload: KubeObject | None, every: Iterable[KubeObject]) -> int | None:
        """The priority in Kueue's queue; None if it is that of the pods.

        ``every``: the objects whose labels may name a class if no Workload states a priority.
        """
        own = None if workload is None else whole(workload.tree, "spec", "priority")
        if own is not None:
            return own
        names = (one.labels.get(PRIORITY) for one in every)
        classes = [("WorkloadPriorityClass", name) for name in names if name]
        if workload is not None:
            classes[:0] = _stated_class(workload)
        found = (self.api.named(_CLASSES[kind], kind, "", name) for kind, name in classes)
        values = (whole(one.tree, "value") for one in found if one is not None)
        return next((value for value in values if value is not None), None)

    def priority_of_pods(self, every: Iterable[KubeObject]) -> int | None:
        """The priority of pods that exist; ``every``: they, their controllers and groups.

        Where Workloads are in the input, what has none is not Kueue's.
        """
        every = list(every)
        workload = self.standing_for(every)
        if workload is not None:
            return self.priority(workload, every)
        if self.api.has_all(KIND):
            return None
        return self.priority(None, (one for one in every if one.labels.get(QUEUE)))


@once
def _workloads(api: Objects) -> Workloads:
    found = Workloads(api)
    for one in api.of(KIND, GROUP):
        key = one.owner_key or one.key
        found.by_owner[key] = max(one, found.by_owner.get(key, one), key=_precedence)
    return found


def _stated_class(workload: KubeObject) -> list[tuple[str, str]]:
    """(kind, name) of the class that a Workload names: in a reference, before v1beta2 in two fields."""
    kind, name = (
        text(workload.tree, "spec", "priorityClassRef", part) for part in ("kind", "name")
    )
    if name is None:
        name = text(workload.tree, "spec", "priorityClassName")
        source = text(workload.tree, "spec", "priorityClassSource") or ""
        kind = "PriorityClass" if source.startswith("scheduling") else "WorkloadPriorityClass"
    return [(kind, name)] if name is not None and kind in _CLASSES else []


def _precedence(workload: KubeObject) -> tuple[bool, int, str]:
    """Of the Workloads of one owner the newest that is not over counts."""
    return (not is_finished(workload), workload.created or 0, workload.name)


def is_finished(workload: KubeObject) -> bool:
    """Whether it has finished or is being deleted."""
    ended = holds_condition(workload.tree, "Finished")
    return ended or at(workload.tree, "metadata", "deletionTimestamp") is not None


def released_at(api: Objects, every: Sequence[KubeObject]) -> int | None:
    """When Kueue let its Workload go last, seconds since the epoch; None while it does not, or if unknown."""
    workload = _workloads(api).standing_for(every)
    found = [] if workload is None else conditions(workload.tree, "Admitted")
    admitted = (one.get("lastTransitionTime") for one in found if one.get("status") == "True")
    return time_of(next(admitted, None))


def pod_index(pod: KubePod) -> int | None:
    """The number of a pod of a group: in the label that an annotation names, else in Kueue's own."""
    stated = number(pod.labels.get(pod.annotations.get(f"{PODSET_INDEX}-label") or ""))
    return number(pod.labels.get(PODSET_INDEX)) if stated is None else stated


def followed(api: Objects, nodes: Sequence[KubeNode]) -> Counter[str | None]:
    """GPU nodes of the ResourceFlavors that name a Topology, by its name."""
    result: Counter[str | None] = Counter()
    for flavor in api.of("ResourceFlavor", GROUP):
        wanted = texts(flavor.tree, "spec", "nodeLabels").items()
        covered = sum(wanted <= node.labels.items() for node in nodes if node.gpus)
        result[text(flavor.tree, "spec", "topologyName")] += covered
    return result


_KINDS = """
fragment KueueQuotas
  flavors[] {
    name resources[] { name nominalQuota borrowingLimit lendingLimit }
  }
topologies.kueue.x-k8s.io Topology v1beta2 v1beta1 cluster
  spec { levels[] { nodeLabel alias } }
resourceflavors.kueue.x-k8s.io ResourceFlavor v1beta2 v1beta1 cluster
  spec {
    nodeLabels[*]=Label tolerations[]=Toleration topologyName
  }
clusterqueues.kueue.x-k8s.io ClusterQueue v1beta2 v1beta1 cluster
  spec {
    cohort cohortName queueingStrategy stopPolicy namespaceSelector=Selector
    admissionChecksStrategy { admissionChecks[] { name } }
    preemption { reclaimWithinCohort } fairSharing { weight }
    resourceGroups[]=KueueQuotas
  }
cohorts.kueue.x-k8s.io Cohort v1beta2 v1beta1 v1alpha1 cluster
  spec { parentName parent fairSharing { weight } resourceGroups[]=KueueQuotas }
workloadpriorityclasses.kueue.x-k8s.io WorkloadPriorityClass v1beta2 v1beta1 cluster
  value
localqueues.kueue.x-k8s.io LocalQueue v1beta2 v1beta1
  spec { clusterQueue stopPolicy }
workloads.kueue.x-k8s.io Workload v1beta2 v1beta1
  spec {
    queueName priority priorityClassName priorityClassSource active
    priorityClassRef { group kind name }
    podSets[] {
      name count minCount template=PodTemplate
    }
  }
  status {
    conditions[]=TimedCondition
    admission {
      clusterQueue
    }
  }
"""

DIALECT = base.Dialect(
    "Kueue",
    precedence=130,
    groups=(base.GroupReader("Kueue", None, describe, labels=(NAME,)),),
    controller=base.ControllerReader(
        "KueueWorkload",
        describe_workload,
        base.marked_role(PODSET, PODSET_INDEX, "main"),
        owners=((GROUP, "Workload"),),
    ),
    quotas=kueue_quotas.QUOTAS,
    queue_keys={QUEUE: 0},
    index=pod_index,
    holder=base.Holder(
        GROUP,
        "Workload",
        lambda api: _workloads(api).by_owner,
        waits,
        workload_pods,
        set_terms,
        priority=lambda api, every: _workloads(api).priority_of_pods(every),
        released_at=released_at,
    ),
    topology=podset_topology,
    topologies=base.TopologyReader(GROUP, "Kueue", followed),
    report_unseen=report_unseen,
    annotations="kueue.x-k8s.io/",
    kinds=_KINDS,
    without={
        f"workloadpriorityclasses.{GROUP}": (
            "suspended jobs that have no Workload yet count with the priorities of their templates"
        ),
        f"cohorts.{GROUP}": (
            "Cohorts of Kueue are not read: plans keep to the quotas of ClusterQueues alone"
        ),
    },
)
