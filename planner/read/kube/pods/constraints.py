"""What ties a pod to some nodes without standing in its own spec: volumes and runtime classes.

Promises: looks at objects of the input only; a volume nobody described ties nothing down, but is
counted. Called by ``constraints``.

Where a pod may go: selectors, affinity, tolerations, and what of its wishes is not modelled.

Promises: a constraint that cannot be read never widens the choice; preferences are no constraints.
Called by ``pods``.

Pods that stand and share no domain with others: their required anti-affinity, seen from there.

Promises: exact where the selectors can be read; a namespace nobody described counts as selected.
Called by ``pods``.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache

from models.gang import Toleration
from planner.read.findings import Remarks
from planner.read.kube.lookup import Tree, at, items, mapping, matches, objects, text, texts, whole
from planner.read.kube.records import Expression, KubeNode, KubeObject, KubePod, Objects

CLAIMS = "gangplan.dev/volume-claims"
"""Annotation of a recorded pod: the names of its volume claims, its volumes being left out."""

_ZONES = (
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
)
_STORAGE = "storage.k8s.io"


@dataclass(slots=True)
class Volumes:
    """Volume claims of one input."""

    input: Objects
    _ties: dict[tuple[str, str], bool | None] = field(default_factory=dict)

    def tie_down(self, pod: KubeObject) -> bool | None:
        """Whether a volume of the pod is reached from some nodes only; None if one is unknown."""
        found = [self._tied(pod.namespace, name) for name in _claims(pod)]
        if True in found:
            return True
        return None if None in found else False

    def runtime_ties_down(self, spec: Tree) -> bool:
        """Whether its RuntimeClass selects nodes and the pod does not say so itself."""
        name = text(spec, "runtimeClassName") if "runtimeClassName" in spec else None
        found = self.input.named("node.k8s.io", "RuntimeClass", "", name) if name else None
        if found is None:
            return False
        own = texts(spec, "nodeSelector")
        wanted = texts(found.tree, "scheduling", "nodeSelector")
        return any(own.get(key) != value for key, value in wanted.items())

    def _tied(self, namespace: str, name: str) -> bool | None:
        key = (namespace, name)
        if key not in self._ties:
            self._ties[key] = self._claim_ties(namespace, name)
        return self._ties[key]

    def _claim_ties(self, namespace: str, name: str) -> bool | None:
        """Whether the claim's volume ties it down; None if the claim or its volume is unknown."""
        claim = self.input.named("", "PersistentVolumeClaim", namespace, name)
        if claim is None:
            return None
        bound = text(claim.tree, "spec", "volumeName")
        if bound is None:
            class_name = text(claim.tree, "spec", "storageClassName")
            found = self.input.named(_STORAGE, "StorageClass", "", class_name or "")
            return found is not None and bool(items(found.tree, "allowedTopologies"))
        volume = self.input.named("", "PersistentVolume", "", bound)
        if volume is None:
            return None
        if at(volume.tree, "spec", "nodeAffinity", "required") is not None:
            return True
        return any(key in volume.labels for key in _ZONES)


def _claims(pod: KubeObject) -> Iterator[str]:
    """Names of the pod's volume claims."""
    spec = mapping(pod.tree, "spec")
    if "volumes" in spec:
        for volume in objects(spec, "volumes"):
            if "persistentVolumeClaim" in volume:
                name = text(volume, "persistentVolumeClaim", "claimName")
                if name is not None:
                    yield name
            elif "ephemeral" in volume and (name := text(volume, "name")):
                yield f"{pod.name}-{name}"
    if CLAIMS in pod.annotations:
        for name in pod.annotations[CLAIMS].split(","):
            if name.strip():
                yield name.strip()


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


_KIND = "podAntiAffinity"
KEPT_OFF = (
    "kept off the nodes of pods that stand there and whose required podAntiAffinity selects it"
)


@dataclass(slots=True)
class _Repulsion:
    """One term of standing pods. ``values``: of the label ``key``, where they stand."""

    term: Tree
    namespace: str
    key: str
    values: dict[str, None] = field(default_factory=dict)


def kept_apart(
    pods: Iterable[KubePod],
    nodes: Iterable[KubeNode],
    found: Objects,
    ignore: Collection[str],
    remarks: Remarks,
) -> dict[tuple[str, str], KubePod]:
    """Pods of ours that wait, by key, where some domains are closed to them: with these left out."""
    if _KIND in ignore:
        return {}
    pods = list(pods)
    repulsions = _repulsions(pods, {node.name: node for node in nodes})
    if not repulsions:
        return {}
    changed = {}
    for pod in pods:
        closed: dict[str, dict[str, None]] = {}
        for one in repulsions if pod.ours else ():
            if _selects(one, pod, found):
                closed.setdefault(one.key, {}).update(one.values)
        if closed:
            remarks.add(pod.subject, KEPT_OFF)
            apart = tuple(
                Expression(key, "NotIn", tuple(sorted(closed[key]))) for key in sorted(closed)
            )
            terms = pod.affinity or ((),)
            changed[pod.key] = replace(pod, affinity=tuple((*term, *apart) for term in terms))
    return changed


def _repulsions(pods: Iterable[KubePod], nodes: dict[str, KubeNode]) -> list[_Repulsion]:
    """Every different term, with the domains it is about."""
    different: dict[str, _Repulsion] = {}
    for pod in pods:
        if pod.node is None or pod.finished is not None:
            continue
        node = nodes[pod.node]
        for term, key in _terms(mapping(pod.object.tree, "spec", "affinity", _KIND)):
            value = node.labels.get(key, node.name if key == HOSTNAME else None)
            if value:
                same = json.dumps([pod.object.namespace, term], sort_keys=True, default=str)
                own = different.setdefault(same, _Repulsion(term, pod.object.namespace, key))
                own.values[value] = None
    return list(different.values())


def _terms(rules: Tree) -> Iterator[tuple[Tree, str]]:
    """(term, topology key) of those that can select any pod."""
    if REQUIRED not in rules:
        return
    for term in objects(rules, REQUIRED):
        key = text(term, "topologyKey")
        if key is not None and isinstance(at(term, "labelSelector"), dict):
            yield term, key


def _selects(one: _Repulsion, pod: KubePod, found: Objects) -> bool:
    return matches(mapping(one.term, "labelSelector"), pod.labels) and _namespace(one, pod, found)


def _namespace(one: _Repulsion, pod: KubePod, found: Objects) -> bool:
    """Whether the term is about pods of this namespace: its own, unless it says others."""
    listed, selector = items(one.term, "namespaces"), at(one.term, "namespaceSelector")
    own = pod.object.namespace
    if own in listed:
        return True
    if not isinstance(selector, dict):
        return not listed and own == one.namespace
    described = found.named("", "Namespace", "", own)
    return not selector or described is None or matches(selector, described.labels)
