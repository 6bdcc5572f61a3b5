"""Where a pod may go: selectors, affinity, tolerations, and what of its wishes is not modelled.

Promises: a constraint that cannot be read never widens the choice; preferences are no constraints.
Called by ``pods``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from functools import lru_cache

from models.gang import Toleration
from planner.reading.kubernetes.forms import Expression, KubeObject
from planner.reading.kubernetes.looking import Tree, at, items, mapping, objects, text, texts, whole
from planner.reading.kubernetes.pods.volumes import Volumes

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
HOSTNAME = "kubernetes.io/hostname"

ANTI_AFFINITY, AFFINITY = "required podAntiAffinity", "required podAffinity"
SPREAD = "topologySpreadConstraints with DoNotSchedule"
SOME_NODES_VOLUME = "a volume that only some nodes reach"
HOST_PORT = "hostPort"
IGNORABLE = {
    ANTI_AFFINITY: "podAntiAffinity",
    AFFINITY: "podAffinity",
    SPREAD: "topologySpread",
    SOME_NODES_VOLUME: "volumeZone",
    HOST_PORT: "hostPort",
}
"""Constraints that a Policy may ignore: the words shown to people, and its name for them."""

IMPOSSIBLE = (Expression(HOSTNAME, "Exists"), Expression(HOSTNAME, "DoesNotExist"))
"""A term that no node matches: of an affinity whose terms can match none."""

Term = tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Constraints:
    """See ``KubePod``: the fields of the same names.

    ``unknown_volumes``: a volume claim of the pod, or its volume, is not in the input.
    """

    selector: dict[str, str] = field(default_factory=dict)
    affinity: tuple[Term, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    unsupported: tuple[str, ...] = ()
    unknown_volumes: bool = False


def read_constraints(pod: KubeObject, ignore: Collection[str], volumes: Volumes) -> Constraints:
    """Constraints of a pod; those of ``ignore`` (names of the Policy) are left out."""
    spec = mapping(pod.tree, "spec")
    selector = texts(spec, "nodeSelector")
    odd = len(selector) != len(mapping(spec, "nodeSelector"))
    affinity = mapping(spec, "affinity")
    node_affinity = _node_affinity(affinity) if affinity else ()
    tied = False if "volumeZone" in ignore else volumes.tie_down(pod)
    return Constraints(
        selector=selector,
        affinity=node_affinity,
        tolerations=read_tolerations(spec),
        unsupported=tuple(
            words
            for words, holds in (
                *_pod_rules(affinity, ignore),
                (SPREAD, _spread(spec, ignore)),
                (SOME_NODES_VOLUME, tied is True),
                (HOST_PORT, _host_port(spec, ignore)),
                ("runtimeClass scheduling", volumes.runtime_ties_down(spec)),
                ("a nodeSelector that cannot be read", odd),
                ("a required nodeAffinity that no node can match", node_affinity == (IMPOSSIBLE,)),
            )
            if holds
        ),
        unknown_volumes=tied is None,
    )


def _pod_rules(affinity: Tree, ignore: Collection[str]) -> Iterator[tuple[str, bool]]:
    """Rules between pods that are required, in words."""
    for kind, words in (("podAntiAffinity", ANTI_AFFINITY), ("podAffinity", AFFINITY)):
        if kind in affinity and kind not in ignore:
            yield words, bool(items(affinity, kind, REQUIRED))


def _spread(spec: Tree, ignore: Collection[str]) -> bool:
    if "topologySpreadConstraints" not in spec or "topologySpread" in ignore:
        return False
    return any(
        constraint.get("whenUnsatisfiable") != "ScheduleAnyway"
        for constraint in objects(spec, "topologySpreadConstraints")
    )


def _host_port(spec: Tree, ignore: Collection[str]) -> bool:
    if "hostPort" in ignore:
        return False
    return any(
        (whole(port, "hostPort") or 0) > 0
        for which in ("containers", "initContainers")
        if which in spec
        for container in objects(spec, which)
        if "ports" in container
        for port in objects(container, "ports")
    )


def read_tolerations(spec: Tree) -> tuple[Toleration, ...]:
    """Tolerations, each once; one that cannot be read tolerates nothing and is left out."""
    found: dict[Toleration, None] = {}
    for entry in objects(spec, "tolerations"):
        values = tuple(entry.get(name) or "" for name in ("key", "operator", "value", "effect"))
        if all(type(value) is str for value in values):
            toleration = _toleration(*values)
            if toleration is not None:
                found[toleration] = None
    return tuple(found)


@lru_cache(maxsize=4096)
def _toleration(key: str, operator: str, value: str, effect: str) -> Toleration | None:
    """None for operators and effects that no toleration of ours has."""
    operator = operator or "Equal"
    if effect not in ("", "NoSchedule", "PreferNoSchedule", "NoExecute"):
        return None
    if operator == "Exists":
        return Toleration(key, operator, "", effect)
    if operator != "Equal" or not key:
        return None
    return Toleration(key, operator, value, effect)


def _node_affinity(affinity: Tree) -> tuple[Term, ...]:
    """Terms that can match a node; IMPOSSIBLE alone where terms are required and none can."""
    required = at(affinity, "nodeAffinity", REQUIRED)
    if required is None:
        return ()
    found: dict[Term, None] = {}
    for tree in objects(required, "nodeSelectorTerms"):
        term = read_term(tree)
        if term is not None:
            found[term] = None
    return tuple(found) or (IMPOSSIBLE,)


def read_term(tree: Tree) -> Term | None:
    """Expressions of a node selector term; None where it can match no node."""
    found: list[Expression] = []
    for which, field_ in (("matchExpressions", False), ("matchFields", True)):
        entries = items(tree, which)
        for entry in entries:
            expression = _expression(entry, field_=field_)
            if expression is None:
                return None
            found.append(expression)
    return tuple(found) or None


def _expression(entry: object, *, field_: bool) -> Expression | None:
    key, operator = text(entry, "key"), text(entry, "operator")
    written = items(entry, "values")
    values = tuple(value for value in written if isinstance(value, str))
    if key is None or operator is None or len(values) != len(written):
        return None
    if field_ and key != "metadata.name":
        return None
    if not _meaningful(operator, values, field_=field_):
        return None
    return Expression(key, operator, values, field_)


def _meaningful(operator: str, values: tuple[str, ...], *, field_: bool) -> bool:
    """Whether the API server would take the operator with these values."""
    if operator in ("In", "NotIn"):
        return len(values) >= 1
    if field_:
        return False
    if operator in ("Exists", "DoesNotExist"):
        return not values
    return operator in ("Gt", "Lt") and len(values) == 1 and _whole(values[0])


def _whole(written: str) -> bool:
    digits = written.removeprefix("-").removeprefix("+")
    return digits.isascii() and digits.isdecimal() and len(digits) <= 18
