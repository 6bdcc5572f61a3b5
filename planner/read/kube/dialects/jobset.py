"""JobSet, and TrainJob, which runs a JobSet: replicated Jobs are roles.

The index of a pod is job index x pods of one Job + completion index.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from planner.read.kube.dialects import base
from planner.read.kube.lookup import items, mapping, number, objects, text, whole
from planner.read.kube.records import (
    KubeObject,
    KubePod,
    LevelAsk,
    Objects,
    ReplicaRange,
    SliceAsk,
)

GROUP = "jobset.x-k8s.io"
TRAINER = "trainer.kubeflow.org"
_KEY = "jobset.sigs.k8s.io/"
NAME = f"{_KEY}jobset-name"
ROLE = f"{_KEY}replicatedjob-name"
REPLICAS = f"{_KEY}replicatedjob-replicas"
JOB_INDEX = f"{_KEY}job-index"
STEP = f"{TRAINER}/trainjob-ancestor-step"
EXCLUSIVE = "alpha.jobset.sigs.k8s.io/exclusive-topology"
_POLICY = ("spec", "mlPolicy", "torch", "elasticPolicy")


def describe(of: base.Controlled) -> base.Controller:
    key, jobset, pods, api = of
    train = api.named(TRAINER, "TrainJob", key.namespace, key.name)
    owner = None if jobset is None else jobset.owner
    if jobset is not None and owner is not None and owner.kind == "TrainJob":
        train = api.owner_of(jobset)
        name, kind = owner.name, "TrainJob"
    else:
        name, kind = key.name, "JobSet" if train is None else "TrainJob"
    nodes = _torch_range(train, api)
    roles = {} if jobset is None else base.roles_of(jobset_pods(jobset, nodes))
    roles.pop("", None)
    for role in _roles_of_pods(pods, api):
        # The labels of pods fill in what no object says.
        if role.name not in roles or roles[role.name].size is None:
            roles[role.name] = role
    return base.Controller(key, kind, name, train if train is not None else jobset, roles)


def _torch_range(train: KubeObject | None, api: Objects) -> ReplicaRange | None:
    if train is None:
        return None
    kind, name = (text(train.tree, "spec", "runtimeRef", field) for field in ("kind", "name"))
    kind = kind or "ClusterTrainingRuntime"
    namespace = train.namespace if kind == "TrainingRuntime" else ""
    runtime = api.named(TRAINER, kind, namespace, name or "")
    policy = mapping(None if runtime is None else runtime.tree, *_POLICY)
    return base.allowed_range(
        *(base.count(policy, f"{bound}Nodes", absent=None) for bound in ("min", "max"))
    )


def jobset_pods(jobset: KubeObject, nodes: ReplicaRange | None = None) -> Iterator[base.PodSet]:
    """``nodes``: how many pods the role that trains may have."""
    everywhere = jobset.annotations.get(EXCLUSIVE)
    in_order = text(jobset.tree, "spec", "startupPolicy", "startupPolicyOrder") == "InOrder"
    done = {
        text(one, "name"): whole(one, "succeeded") or 0
        for one in objects(jobset.tree, "status", "replicatedJobsStatus")
    }
    for place, replicated in enumerate(objects(jobset.tree, "spec", "replicatedJobs")):
        name = text(replicated, "name") or ""
        jobs = base.count(replicated, "replicas", absent=1)
        job = mapping(replicated, "template", "spec")
        each = base.parallel_pods(job)
        label = text(replicated, "template", "metadata", "annotations", EXCLUSIVE) or everywhere
        later = bool(items(replicated, "dependsOn")) or (in_order and place > 0)
        step = text(replicated, "template", "metadata", "labels", STEP)
        allowed = nodes if (step or name) in ("trainer", "node") else None
        level = LevelAsk(label=label) if label else None
        stride = max(each or 1, 1)
        role = base.RoleSpec(
            name,
            base.product(jobs, each),
            stride=stride,
            later=later,
            # Each Job has a domain of the exclusive label.
            required=level if jobs == 1 else None,
            slices=(SliceAsk(stride, level),) if level and jobs != 1 and stride > 1 else (),
            range=allowed,
            succeeded=base.product(done.get(name, 0), each) or 0,
        )
        made = partial(_jobset_pod, jobset, name, jobs, each or 1)
        yield base.PodSet(role, mapping(job, "template"), made)


def _roles_of_pods(pods: Sequence[KubePod], api: Objects) -> list[base.RoleSpec]:
    """Roles as pods describe them: Jobs from their labels, pods of one from its Job or the pods."""
    by_role: dict[str, list[KubePod]] = {}
    for pod in pods:
        by_role.setdefault(_role(pod), []).append(pod)
    roles = []
    for role, members in sorted(by_role.items()):
        jobs = max(number(pod.labels.get(REPLICAS)) or 1 for pod in members)
        made = (api.owner_of(pod.object) for pod in members)
        trees = (one.tree for one in made if one is not None and one.kind == "Job")
        parallel = (base.parallel_pods(mapping(tree, "spec")) or 1 for tree in trees)
        each = max([*parallel, *(1 + (base.completion_index(pod) or 0) for pod in members)])
        roles.append(base.RoleSpec(role, jobs * each, stride=each))
    return roles


def _role(pod: KubePod) -> str:
    return base.mark(pod, ROLE) or "worker"


def role_index(pod: KubePod, controller: base.Controller) -> base.RoleIndex:
    role = _role(pod)
    spec = controller.roles.get(role)
    index = base.completion_index(pod)
    if index is None:
        return base.RoleIndex(role, None)
    job = number(base.mark(pod, JOB_INDEX))
    if spec is None or job is None:
        jobs = 1 if spec is None or spec.size is None else spec.size // max(spec.stride, 1)
        return base.RoleIndex(role, index if jobs <= 1 else None)
    return base.RoleIndex(role, job * spec.stride + index if index < spec.stride else None)


def _jobset_pod(
    one: KubeObject, role: str, jobs: int | None, each: int, number: int
) -> base.MadePod:
    job, index = divmod(number, each)
    name = f"{one.name}-{role}-{job}"
    labels = {
        NAME: one.name,
        ROLE: role,
        REPLICAS: str(jobs),
        JOB_INDEX: str(job),
        base.JOB_NAME: name,
        base.COMPLETION_INDEX: str(index),
    }
    return base.MadePod(f"{name}-{index}", labels, base.reference("batch/v1", "Job", name))


_KINDS = """
fragment TorchPolicy
  torch { elasticPolicy { minNodes maxNodes } }
jobsets.jobset.x-k8s.io JobSet v1alpha2
  spec {
    suspend managedBy startupPolicy { startupPolicyOrder }
    replicatedJobs[] {
      name groupName replicas template { metadata=TemplateMetadata spec=JobSpec }
      dependsOn[] { name }
    }
  }
  status {
    conditions[]=Condition restarts terminalState
    replicatedJobsStatus[] { name ...Counts }
  }
trainjobs.trainer.kubeflow.org TrainJob v1alpha1
  spec {
    suspend managedBy labels[*]=Label runtimeRef { apiGroup kind name }
  }
  status { conditions[]=Condition }
trainingruntimes.trainer.kubeflow.org TrainingRuntime v1alpha1
  spec { mlPolicy=TorchPolicy }
clustertrainingruntimes.trainer.kubeflow.org ClusterTrainingRuntime v1alpha1 cluster
  spec { mlPolicy=TorchPolicy }
"""

DIALECT = base.Dialect(
    "JobSet",
    precedence=30,
    controller=base.ControllerReader(
        "JobSet",
        describe,
        role_index,
        labels=(NAME,),
        annotations=(NAME,),
        owners=((GROUP, "JobSet"),),
    ),
    annotations="jobset.sigs.k8s.io/ alpha.jobset.sigs.k8s.io/ trainer.kubeflow.org/",
    kinds=_KINDS,
    makes={(GROUP, "JobSet"): base.Makes(jobset_pods)},
    without={
        f"{plural}.{TRAINER}": "elastic TrainJobs are planned with the number of nodes of their JobSets"
        for plural in ("trainingruntimes", "clustertrainingruntimes")
    },
)
