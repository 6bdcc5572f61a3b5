"""What annotations say of a gang's communication, of parallelism, and of roles on several GPU models.

They count on a controller or a group, else where every pod with GPUs has the same one; the parallelism of a
role on its pods first. What cannot be read is remarked and ignored.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_args

from models.documents.communication import DEFAULT_FRACTION, Communication, Pattern
from models.documents.gang import Parallelism
from models.instance.policy import KubernetesPolicy
from models.step_time import MOST_FRACTION
from models.units import InvalidValueError, exact, number, whole_number
from planner.read.findings import Remarks
from planner.read.kube.records import KubeGang, KubeObject

PATTERN = "gangplan.dev/communication-pattern"
FRACTION = "gangplan.dev/communication-fraction"
SPEED = "gangplan.dev/communication-speed"
MIX_MODELS = "gangplan.dev/mix-models"
PARALLELISM = "gangplan.dev/parallelism"

MAX_DEGREES = 500
"""Longest text that states degrees of parallelism."""

_DEGREES_FORM = "like tensor=8,pipeline=4 (tensor, pipeline, data, expert, context)"

FASTER = "annotation {} may make it count as faster than others; ignored"
TRUST_HINT = "kubernetes: {trustCommunication: true} in a Policy, if tenants may say so"


def read_communication(
    gang: KubeGang, objects: Sequence[KubeObject], policy: KubernetesPolicy, remarks: Remarks
) -> dict[str, Any]:
    """The fields of a gang that its annotations state. ``objects``: controllers and groups.

    What would make the gang count as faster than one that says nothing counts only if the policy trusts it:
    a plan starts the faster one of two equal gangs.
    """
    found: dict[str, Any] = {}
    for name, key, form in _FIELDS:
        written = _stated(gang, objects, key, remarks)
        if written is None:
            continue
        try:
            value = number(exact(written)) if name == "fraction" else written
            read = Communication.model_validate({name: value})
        except ValueError:
            remarks.add(gang.subject, f"annotation {key} is not {form}; ignored")
            continue
        faster = (name, value) in (("pattern", "none"), ("speed", "ignore"))
        faster |= name == "fraction" and read.fraction < DEFAULT_FRACTION
        if policy.trust_communication or not faster:
            counted = {"counts_speed": read.speed == "count"}
            found |= counted if name == "speed" else {name: getattr(read, name)}
        else:
            remarks.add(gang.subject, FASTER.format(key), TRUST_HINT)
    return found


def mark_mixed_roles(gang: KubeGang, objects: Sequence[KubeObject]) -> None:
    """Set ``mix_models`` of the roles whose pods, or whose controller or group, are marked."""
    everywhere = any(one.annotations.get(MIX_MODELS) == "true" for one in objects)
    for role in gang.roles:
        marks = {pod.annotations.get(MIX_MODELS) for _, pod in role.members}
        role.mix_models = everywhere or marks == {"true"}


def mark_parallel_roles(
    gang: KubeGang, objects: Sequence[KubeObject], policy: KubernetesPolicy, remarks: Remarks
) -> None:
    """Set ``parallelism`` of the roles with GPUs: as their pods state, else their controller or group.

    Only if the policy trusts it: groups that need little bandwidth make a gang count as faster.
    """
    everywhere = next(
        (one.annotations[PARALLELISM] for one in objects if PARALLELISM in one.annotations), None
    )
    for role in gang.roles:
        pods = [pod for _, pod in role.members if pod.gpus]
        written = {pod.annotations.get(PARALLELISM) for pod in pods}
        if len(written) > 1:
            remarks.add(gang.subject, f"its pods differ in annotation {PARALLELISM}; ignored")
            continue
        stated = next(iter(written), None) or everywhere
        if stated is None or not pods:
            continue
        try:
            degrees = _degrees(stated)
        except ValueError:
            remarks.add(gang.subject, f"annotation {PARALLELISM} is not {_DEGREES_FORM}; ignored")
            continue
        if policy.trust_communication:
            role.parallelism = degrees
        else:
            remarks.add(gang.subject, FASTER.format(PARALLELISM), TRUST_HINT)


def _degrees(written: str) -> Parallelism:
    if len(written) > MAX_DEGREES:
        raise InvalidValueError("too long")
    pairs = [part.partition("=") for part in written.split(",")]
    tree = {name.strip(): whole_number(degree) for name, _, degree in pairs}
    if len(tree) < len(pairs):
        raise InvalidValueError("a degree twice")
    return Parallelism.read(tree)


def _stated(
    gang: KubeGang, objects: Sequence[KubeObject], key: str, remarks: Remarks
) -> str | None:
    for one in objects:
        if key in one.annotations:
            return one.annotations[key]
    written = {pod.annotations.get(key) for pod in gang.pods() if pod.gpus}
    if len(written) > 1:
        remarks.add(gang.subject, f"its pods differ in annotation {key}; ignored")
        return None
    return next(iter(written), None)


_FIELDS = (
    ("pattern", PATTERN, f"one of {', '.join(get_args(Pattern))}"),
    ("fraction", FRACTION, f"a number from 0 to {number(MOST_FRACTION)}"),
    ("speed", SPEED, "count or ignore"),
)
"""Fields of ``communication``: name, annotation, and the form that its text must have."""
