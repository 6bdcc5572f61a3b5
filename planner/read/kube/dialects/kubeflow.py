"""Jobs of the Kubeflow training operators: MPIJob, PyTorchJob, TFJob and the like.

Replica types are roles; a launcher that a batch Job creates belongs to its MPIJob.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from planner.read.kube.dialects import base
from planner.read.kube.lookup import Tree, flag, items, mapping, number, text, whole
from planner.read.kube.records import KubeObject, KubePod

GROUP = "kubeflow.org"
_KEY = "training.kubeflow.org/"
NAME = f"{_KEY}job-name"
ROLE = f"{_KEY}replica-type"
JOB_ROLE = f"{_KEY}job-role"
INDEX = f"{_KEY}replica-index"
OPERATOR = f"{_KEY}operator-name"

KINDS = {
    "mpi": "MPIJob",
    "pytorch": "PyTorchJob",
    "tf": "TFJob",
    "jax": "JAXJob",
}
"""Kind by what the name of its operator begins with."""

_AFTER_WORKERS = "WaitForWorkersReady"
"""The operator creates the launcher of such an MPIJob once all workers are ready."""

SCALED = "PyTorchJob"
"""The kind whose subresource ``scale`` sets the number of its workers."""

_ENDS = ("launcher", "chief", "master")
"""Roles whose success is that of the job: the operator starts nothing any more."""

_ORDER = ("launcher", "chief", "master", "scheduler", "ps", "server", "worker", "evaluator")
"""Roles in the order shown: the API keeps replica types in a map, which has none."""


def describe(of: base.Controlled) -> base.Controller:
    key, _, pods, api = of
    kinds = _kinds(pods)
    jobs = (api.named(GROUP, kind, key.namespace, key.name) for kind in kinds)
    job = next((one for one in jobs if one is not None), None)
    kind = job.kind if job is not None else kinds[0]
    roles = base.roles_of(training_pods(job)) if job is not None else {}
    for role in (_role(pod, key.name) for pod in pods):
        roles.setdefault(role, base.RoleSpec(role, None))
    found = [replace(one, ends_gang=one.name in _ENDS) for one in roles.values()]
    spec = mapping(None if job is None else job.tree, "spec")
    if kind == "MPIJob" and flag(spec, "runLauncherAsWorker"):
        # The launcher is worker 0, and the others count from 1 unless one of them is 0.
        first = int(base.RoleIndex("worker", 0) not in [_role_index(pod, key.name) for pod in pods])
        found = [replace(one, first_index=first * (one.name == "worker")) for one in found]
    if text(spec, "launcherCreationPolicy") == _AFTER_WORKERS:
        found = [replace(one, later=one.name == "launcher") for one in found]
    if kind == SCALED:
        found = [_elastic(one, spec) if one.name == "worker" else one for one in found]
    return base.Controller(
        key, kind, key.name, job, {one.name: one for one in sorted(found, key=_place)}
    )


def _elastic(workers: base.RoleSpec, spec: Tree) -> base.RoleSpec:
    """The workers with the range of the elasticPolicy; its metrics let an autoscaler set their number."""
    policy = mapping(spec, "elasticPolicy")
    least, most = (base.count(policy, f"{bound}Replicas", absent=None) for bound in ("min", "max"))
    allowed = base.allowed_range(most if least is None else least, least if most is None else most)
    return replace(workers, range=allowed, scalable=not items(policy, "metrics"))


def _kinds(pods: Sequence[KubePod]) -> list[str]:
    """Kinds the job may have, the likeliest first: by owner, by operator, then any."""
    owners = [pod.object.owner.kind for pod in pods if pod.object.owner is not None]
    likely = [kind for kind in owners if kind in KINDS.values()]
    for operator in (pod.labels.get(OPERATOR) or "" for pod in pods):
        likely += [kind for start, kind in KINDS.items() if operator.startswith(start)]
    return list(dict.fromkeys([*likely, *KINDS.values()]))


def _place(role: base.RoleSpec) -> tuple[int, str]:
    return (_ORDER.index(role.name) if role.name in _ORDER else len(_ORDER), role.name)


def _role(pod: KubePod, job: str) -> str:
    role = pod.labels.get(ROLE) or pod.labels.get(JOB_ROLE)
    if role:
        return role.lower()
    rest = pod.name.removeprefix(f"{job}-").partition("-")[0]
    return rest if rest in _ORDER else "worker"


def role_index(pod: KubePod, controller: base.Controller) -> base.RoleIndex:
    return _role_index(pod, controller.key.name)


def _role_index(pod: KubePod, job: str) -> base.RoleIndex:
    role = _role(pod, job)
    index = number(pod.labels.get(INDEX))
    if index is None:
        # Names end in the index, where a batch Job did not add letters of its own.
        index = 0 if role == "launcher" else number(pod.name.rpartition("-")[2])
    return base.RoleIndex(role, index)


def training_pods(job: KubeObject) -> Iterator[base.PodSet]:
    """The pods of a job of Kubeflow's operators; the launcher of an MPIJob too, whenever it starts."""
    spec = mapping(job.tree, "spec")
    launched = job.kind == "MPIJob" and flag(spec, "runLauncherAsWorker")
    types = (types for field, types in spec.items() if field.endswith("ReplicaSpecs"))
    for kind, replica in (one for own in types if isinstance(own, dict) for one in own.items()):
        name, labels = kind.lower(), {NAME: job.name, ROLE: kind.lower()}
        done = whole(job.tree, "status", "replicaStatuses", kind, "succeeded") or 0
        role = base.RoleSpec(name, base.count(replica, "replicas", absent=1), succeeded=done)
        first = int(launched and name == "worker")
        made = base.numbered(f"{job.name}-{name}", labels, base.owned_by(job), INDEX, first)
        yield base.PodSet(role, mapping(replica, "template"), made)


_KINDS = """
fragment KubeflowReplicas
  replicas restartPolicy template=PodTemplate
fragment KubeflowSpec
  runPolicy {
    suspend managedBy activeDeadlineSeconds
    schedulingPolicy {
      minAvailable queue minResources[*]=Quantity
    }
  }
  elasticPolicy { minReplicas maxReplicas metrics[] { type } }
  runLauncherAsWorker launcherCreationPolicy suspend
fragment KubeflowStatus
  conditions[]=Condition replicaStatuses[*]=Counts
mpijobs.kubeflow.org MPIJob v2beta1 v1
  spec { mpiReplicaSpecs[*]=KubeflowReplicas ...KubeflowSpec } status=KubeflowStatus
pytorchjobs.kubeflow.org PyTorchJob v1
  spec { pytorchReplicaSpecs[*]=KubeflowReplicas ...KubeflowSpec } status=KubeflowStatus
tfjobs.kubeflow.org TFJob v1
  spec { tfReplicaSpecs[*]=KubeflowReplicas ...KubeflowSpec } status=KubeflowStatus
jaxjobs.kubeflow.org JAXJob v1
  spec { jaxReplicaSpecs[*]=KubeflowReplicas ...KubeflowSpec } status=KubeflowStatus
"""

DIALECT = base.Dialect(
    "Kubeflow",
    precedence=40,
    controller=base.ControllerReader(
        "TrainingJob",
        describe,
        role_index,
        labels=(NAME,),
        owners=tuple((GROUP, kind) for kind in KINDS.values()),
    ),
    annotations="training.kubeflow.org/",
    kinds=_KINDS,
    makes={
        (GROUP, kind): base.Makes(training_pods, group_of_its_name=True) for kind in KINDS.values()
    },
    scales={(GROUP, SCALED): base.Scale("pytorchjobs", role="worker")},
)
