"""Jobs of the Kubeflow training operators: MPIJob, PyTorchJob, TFJob and their kin.

Promises: the replica types are roles; a launcher made through a batch Job is of its MPIJob.
Called through ``gangs.table``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from planner.read.kube.dialects.base import Maker, MakerDialect, MakerKey, RolePlan, Seat, counted
from planner.read.kube.lookup import flag, mapping, number, text
from planner.read.kube.records import KubeObject, KubePod, Objects

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
    "xgboost": "XGBoostJob",
    "paddle": "PaddleJob",
    "jax": "JAXJob",
    "mx": "MXJob",
}
"""Kind by what the name of its operator begins with."""

_WAITS = "WaitForWorkersReady"
"""The launcher of such an MPIJob is made once all workers are ready."""

_ORDER = ("launcher", "chief", "master", "scheduler", "ps", "server", "worker", "evaluator")
"""Roles in the order shown: the API keeps replica types in a map, which has none."""


def claim(pod: KubePod, found: Objects) -> MakerKey | None:
    name = pod.labels.get(NAME) or _owner_name(pod, found)
    return MakerKey("TrainingJob", pod.object.namespace, name) if name else None


def _owner_name(pod: KubePod, found: Objects) -> str | None:
    """The training job that owns the pod, at most one batch Job between."""
    owner = pod.object.owner
    if owner is not None and owner.kind == "Job":
        job = found.owner_of(pod.object)
        owner = job.owner if job is not None else None
    if owner is None or owner.group != GROUP or owner.kind not in KINDS.values():
        return None
    return owner.name


def describe(key: MakerKey, pods: Sequence[KubePod], found: Objects) -> Maker:
    made = _object(key, pods, found)
    kind = made.kind if made is not None else _kinds(pods)[0]
    plans = _from_object(made) if made is not None else []
    known = {plan.name for plan in plans}
    seen = dict.fromkeys(_role(pod, key.name) for pod in pods)
    plans += [RolePlan(role, None) for role in seen if role not in known]
    if kind == "MPIJob" and made is not None and flag(made.tree, "spec", "runLauncherAsWorker"):
        plans = [_from_one(plan, pods, key.name) for plan in plans]
    if made is not None and text(made.tree, "spec", "launcherCreationPolicy") == _WAITS:
        plans = [replace(plan, later=plan.name == "launcher") for plan in plans]
    return Maker(key, kind, key.name, made, tuple(sorted(plans, key=_place)))


def _object(key: MakerKey, pods: Sequence[KubePod], found: Objects) -> KubeObject | None:
    for kind in _kinds(pods):
        made = found.named(GROUP, kind, key.namespace, key.name)
        if made is not None:
            return made
    return None


def _kinds(pods: Sequence[KubePod]) -> list[str]:
    """Kinds the job may have, the likeliest first: by owner, by operator, then any."""
    owners = [pod.object.owner.kind for pod in pods if pod.object.owner is not None]
    likely = [kind for kind in owners if kind in KINDS.values()]
    for operator in (pod.labels.get(OPERATOR) or "" for pod in pods):
        likely += [kind for start, kind in KINDS.items() if operator.startswith(start)]
    return list(dict.fromkeys([*likely, *KINDS.values()]))


def _from_object(made: KubeObject) -> list[RolePlan]:
    plans: dict[str, RolePlan] = {}
    for field, types in mapping(made.tree, "spec").items():
        if not field.endswith("ReplicaSpecs") or not isinstance(types, dict):
            continue
        for kind, replica in types.items():
            role = kind.lower()
            plans.setdefault(role, RolePlan(role, counted(replica, "replicas", absent=1)))
    return list(plans.values())


def _from_one(plan: RolePlan, pods: Sequence[KubePod], job: str) -> RolePlan:
    """Workers beside a launcher that is worker 0 count from 1, if theirs do."""
    if plan.name != "worker":
        return plan
    seats = [_seat(pod, job) for pod in pods]
    if Seat("worker", 0) in seats:
        return plan
    return replace(plan, first_index=1)


def _place(plan: RolePlan) -> tuple[int, str]:
    return (_ORDER.index(plan.name) if plan.name in _ORDER else len(_ORDER), plan.name)


def _role(pod: KubePod, job: str) -> str:
    role = pod.labels.get(ROLE) or pod.labels.get(JOB_ROLE)
    if role:
        return role.lower()
    rest = pod.name.removeprefix(f"{job}-").partition("-")[0]
    return rest if rest in _ORDER else "worker"


def seat(pod: KubePod, maker: Maker) -> Seat:
    return _seat(pod, maker.key.name)


def _seat(pod: KubePod, job: str) -> Seat:
    role = _role(pod, job)
    index = number(pod.labels.get(INDEX))
    if index is None:
        # Names end in the index, where a batch Job did not add letters of its own.
        index = 0 if role == "launcher" else number(pod.name.rpartition("-")[2])
    return Seat(role, index)


DIALECT = MakerDialect("TrainingJob", claim, describe, seat)
