"""Where a pod runs or will run, and whether gangplan places it.

A bound pod runs on its node whatever else it says. Room that a run planned for a pod is held until it is
bound or gone; for other pods that are tied to a node ``room`` decides. What a tenant writes of a plan counts
for nothing.
"""

from __future__ import annotations

from collections.abc import Iterable

from models.apply.terms import PLAN
from models.documents.cluster import HOSTNAME_LABEL
from models.instance.policy import KubernetesPolicy
from models.units import MAX_SECONDS
from planner.read.findings import Remarks
from planner.read.kube.devices.claims import ClaimedGpus
from planner.read.kube.lookup import at, items, mapping, objects, text, true_conditions, whole
from planner.read.kube.pods.constraints import Term
from planner.read.kube.records import KubeNode, KubeObject, KubePod, Objects

EXPECTED = "expectedPod"
"""Likewise, of a pod that does not exist yet: gangplan made it from a template.

An object: ``mode``, how it can be started; ``node``, where room is kept for it.
"""

PINNED, CHOSEN = "pinned", "chosen"
"""Who ties a pod to the node it is not bound to: its own spec, or a scheduler in its status or claim."""

NO_SCHEDULER = "gangplan"
"""A scheduler that pods may name by mistake: gangplan is none, and nothing binds them."""

UNSERVED = f"names the scheduler {NO_SCHEDULER}, which there is not: gangplan binds no pods"
UNSERVED_HINT = "leave schedulerName to kube-scheduler, and gate its pods: {}"

FINISHED = ("Succeeded", "Failed")
DEFAULT_SCHEDULER = "default-scheduler"
_WAITING = (None, "Pending", "Unknown")


class Places:
    """Nodes by name, and node names by a hostname label that is one node's alone."""

    def __init__(self, nodes: Iterable[KubeNode]) -> None:
        self.nodes = {node.name: node for node in nodes}
        hosts: dict[str, list[str]] = {}
        for node in self.nodes.values():
            hosts.setdefault(node.labels.get(HOSTNAME_LABEL, node.name), []).append(node.name)
        self.hosts = {host: names[0] for host, names in hosts.items() if len(names) == 1}

    def pinned(self, pod: KubePod) -> str | None:
        """The one node that its spec allows: by hostname or, with required affinity, by name."""
        host = pod.selector.get(HOSTNAME_LABEL)
        if host is not None:
            return self.hosts.get(host)
        found = set(map(self._node_of, pod.affinity))
        return found.pop() if len(found) == 1 else None

    def _node_of(self, term: Term) -> str | None:
        for one in sorted(term, key=lambda one: not one.field):
            if one.operator == "In" and len(one.values) == 1:
                if one.field:
                    return one.values[0] if one.values[0] in self.nodes else None
                if one.key == HOSTNAME_LABEL:
                    return self.hosts.get(one.values[0])
        return None


def knows_gangplan(api: Objects, policy: KubernetesPolicy) -> bool:
    """Whether a pod waits for gangplan, or carries the label of what it started."""
    return any(
        policy.scheduling_gate
        in (one.get("name") for one in objects(pod.tree, "spec", "schedulingGates"))
        or PLAN in pod.labels
        for pod in api.of("Pod", "")
    )


def read_placement(
    pod: KubePod, claimed: ClaimedGpus, places: Places, policy: KubernetesPolicy, remarks: Remarks
) -> None:
    """Set where the pod is, how it is started if gangplan places it, and its phase.

    Its constraints have been read.
    """
    tree = pod.object.tree
    spec = mapping(tree, "spec")
    phase = text(tree, "status", "phase")
    pod.finished = phase if phase in FINISHED else None
    pod.terminating = at(tree, "metadata", "deletionTimestamp") is not None
    pod.scheduler = text(spec, "schedulerName") or DEFAULT_SCHEDULER
    gates = (text(gate, "name") for gate in objects(spec, "schedulingGates"))
    pod.gates = tuple(name for name in gates if name is not None)
    node = spec.get("nodeName")
    if node not in (None, ""):
        pod.node = node if isinstance(node, str) and node in places.nodes else None
        pod.bound = pod.finished is None
        if pod.bound and pod.node is None:
            remarks.add(
                pod.subject, "is bound to a node that is not in the input; it counts as missing"
            )
    elif pod.finished is None and phase not in _WAITING:
        remarks.add(pod.subject, "is running without a node; ignored")
    elif pod.finished is None and not pod.terminating:
        if pod.scheduler == NO_SCHEDULER:
            remarks.add(pod.subject, UNSERVED, UNSERVED_HINT.format(policy.scheduling_gate))
        elif EXPECTED not in tree and policy.scheduling_gate in pod.gates:
            pod.mode = "gate"
        else:
            pod.mode = text(tree, EXPECTED, "mode")
        owner = pod.object.owner
        # Pods that one node alone needs, as long as it is there, stand in no queue.
        pod.queued = owner is None or owner.kind not in ("DaemonSet", "Node")
        # What gangplan cannot start is only in what-ifs: else it would keep the plan from being applied.
        what_if = policy.plans_others and policy.plans(pod.scheduler)
        pod.planned = pod.mode is not None or (pod.queued and what_if)
        names = _ties(pod, claimed, places)
        if (kept := text(tree, EXPECTED, "node")) is not None:
            names.insert(0, (kept, None))
        if pod.start is not None:
            names.insert(0, (pod.start.pod.node, None))
        known = ((name, by) for name, by in names if name in places.nodes)
        pod.node, pod.tied = next(known, (None, None))
        if pod.node is None and any(name is not None for name, _ in names):
            remarks.add(pod.subject, "is planned on a node that is not in the input; it waits")


def _ties(
    pod: KubePod, claimed: ClaimedGpus, places: Places
) -> list[tuple[str | None, str | None]]:
    """Nodes that a waiting pod is tied to, and by whom.

    A pod that does not exist holds nothing, and one that others gate goes nowhere yet.
    """
    spec = mapping(pod.object.tree, "spec")
    if EXPECTED in pod.object.tree or (not pod.planned and items(spec, "schedulingGates")):
        return []
    found: list[tuple[str | None, str | None]] = []
    if not pod.planned:
        found.append((text(pod.object.tree, "status", "nominatedNodeName"), CHOSEN))
    if claimed.allocated and claimed.exclusive:
        found.append((claimed.node, CHOSEN))
    # A pod that is planned holds no room before: pinned to a node, it still waits for the plan.
    if not pod.planned:
        found.append((places.pinned(pod), PINNED))
    return found


# When Kubernetes ends a running pod: a word counts only where somebody keeps it.

DEFAULT_GRACE_S = 30
"""``terminationGracePeriodSeconds`` of a pod that states none: too short to count."""

LONGEST_GRACE_S = 3600
"""A pod that may take longer to end gives its room to nobody in time."""

_DEADLINE = ("spec", "activeDeadlineSeconds")
"""Of pods and Jobs."""

_JOB_CONTROLLER = "kubernetes.io/job-controller"
"""Who manages a Job without ``managedBy``; anybody else need not keep its deadline."""

_OVER = frozenset({"Complete", "Failed"})
"""Conditions of a Job that has finished: it ends no pod any more."""


def grace_s(pod: KubePod) -> int:
    """Seconds that a pod may take to end, once it is evicted or its deadline is over."""
    stated = whole(pod.object.tree, "spec", "terminationGracePeriodSeconds")
    return DEFAULT_GRACE_S if stated is None else max(0, stated)


def deadline_s(pod: KubePod, api: Objects) -> int | None:
    """Seconds after its start by which a pod has ended; None if nobody ends it.

    The deadline of the pod, or of the Job that controls it, and a grace period above the default.
    """
    owner, stated = pod.object.owner, [whole(pod.object.tree, *_DEADLINE)]
    job = api.owner_of(pod.object) if owner is not None and owner.controls else None
    if job is not None and _ends_pods(job):
        stated.append(whole(job.tree, *_DEADLINE))
    kept = [seconds for seconds in stated if seconds is not None and 0 < seconds <= MAX_SECONDS]
    if not kept:
        return None
    grace = grace_s(pod)
    end = min(kept) + (grace if grace > DEFAULT_GRACE_S else 0)
    return end if end <= MAX_SECONDS else None


def _ends_pods(job: KubeObject) -> bool:
    """Whether its deadline is kept: that of a Job which has not finished and which nobody else manages."""
    if (job.kind, job.group) != ("Job", "batch"):
        return False
    manager = text(job.tree, "spec", "managedBy") or _JOB_CONTROLLER
    return manager == _JOB_CONTROLLER and _OVER.isdisjoint(true_conditions(job.tree))
