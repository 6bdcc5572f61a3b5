"""Where a pod may go: selectors, affinity, tolerations, volumes, and constraints that are not modelled.

A constraint that cannot be read never widens the choice; preferences are ignored. An unknown volume
restricts nothing.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache

from models.gang import Toleration
from planner.read.findings import Remarks
from planner.read.kube.lookup import Tree, at, items, mapping, matches, objects, text, texts, whole
from planner.read.kube.records import Expression, KubeNode, KubeObject, KubePod, Objects

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
HOSTNAME = "kubernetes.io/hostname"

VOLUME_CLAIMS = "gangplan.dev/volume-claims"
"""Annotation of a recorded pod: the names of its volume claims; its volumes are not recorded."""

_ZONES = (
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
)

ANTI_AFFINITY, AFFINITY = "required podAntiAffinity", "required podAffinity"
SPREAD = "topologySpreadConstraints with DoNotSchedule"
SOME_NODES_VOLUME = "a volume that only some nodes can mount"
HOST_PORT = "hostPort"
IGNORABLE = {
    ANTI_AFFINITY: "podAntiAffinity",
    AFFINITY: "podAffinity",
    SPREAD: "topologySpread",
    SOME_NODES_VOLUME: "volumeZone",
    HOST_PORT: "hostPort",
}
"""Constraints that a Policy may ignore: in messages, and their name in ``kubernetes.ignore``."""

IMPOSSIBLE = (Expression(HOSTNAME, "Exists"), Expression(HOSTNAME, "DoesNotExist"))
"""A term that no node matches: of a required affinity none of whose terms can match."""

Term = tuple[Expression, ...]


@dataclass(slots=True)
class Constraints:
    """Reads the constraints of the pods of one input. ``ignore``: names that the Policy ignores."""

    input: Objects
    ignore: Collection[str]
    remarks: Remarks
    _tied: dict[tuple[str, str], bool | None] = field(default_factory=dict)

    def read(self, pod: KubePod) -> None:
        """Set ``selector``, ``affinity``, ``tolerations`` and ``unsupported``."""
        spec = mapping(pod.object.tree, "spec")
        affinity = mapping(spec, "affinity")
        pod.selector = texts(spec, "nodeSelector")
        pod.affinity = _node_affinity(affinity) if affinity else ()
        pod.tolerations = read_tolerations(spec)
        tied = False if "volumeZone" in self.ignore else self._has_tied_volume(pod.object)
        if pod.ours and tied is None:
            what = "its volumes are not in the input; every node is assumed to reach them"
            self.remarks.add(pod.subject, what)
        odd = len(pod.selector) != len(mapping(spec, "nodeSelector"))
        found = (
            (ANTI_AFFINITY, self._requires(affinity, "podAntiAffinity")),
            (AFFINITY, self._requires(affinity, "podAffinity")),
            (SPREAD, "topologySpread" not in self.ignore and _must_spread(spec)),
            (SOME_NODES_VOLUME, tied is True),
            (HOST_PORT, "hostPort" not in self.ignore and _has_host_port(spec)),
            ("runtimeClass scheduling", self._is_tied_by_runtime(spec)),
            ("a nodeSelector that cannot be read", odd),
            ("a required nodeAffinity that no node can match", pod.affinity == (IMPOSSIBLE,)),
        )
        pod.unsupported = tuple(words for words, holds in found if holds)

    def _requires(self, affinity: Tree, kind: str) -> bool:
        return (
            kind in affinity and kind not in self.ignore and bool(items(affinity, kind, REQUIRED))
        )

    def _is_tied_by_runtime(self, spec: Tree) -> bool:
        """Whether its RuntimeClass selects nodes that the pod itself does not select."""
        name = text(spec, "runtimeClassName")
        found = self.input.named("node.k8s.io", "RuntimeClass", "", name) if name else None
        if found is None:
            return False
        own = texts(spec, "nodeSelector")
        wanted = texts(found.tree, "scheduling", "nodeSelector")
        return any(own.get(key) != value for key, value in wanted.items())

    def _has_tied_volume(self, pod: KubeObject) -> bool | None:
        """Whether only some nodes can mount one of its volumes; None if one is unknown."""
        tied = set()
        for name in _volume_claims(pod):
            key = (pod.namespace, name)
            if key not in self._tied:
                self._tied[key] = self._is_tied(*key)
            tied.add(self._tied[key])
        return True if True in tied else None if None in tied else False

    def _is_tied(self, namespace: str, name: str) -> bool | None:
        claim = self.input.named("", "PersistentVolumeClaim", namespace, name)
        if claim is None:
            return None
        bound = text(claim.tree, "spec", "volumeName")
        if bound is None:
            class_name = text(claim.tree, "spec", "storageClassName") or ""
            found = self.input.named("storage.k8s.io", "StorageClass", "", class_name)
            return found is not None and bool(items(found.tree, "allowedTopologies"))
        volume = self.input.named("", "PersistentVolume", "", bound)
        if volume is None:
            return None
        if at(volume.tree, "spec", "nodeAffinity", "required") is not None:
            return True
        return any(key in volume.labels for key in _ZONES)


def _volume_claims(pod: KubeObject) -> Iterator[str]:
    """Names of the pod's volume claims."""
    for volume in objects(pod.tree, "spec", "volumes"):
        if "persistentVolumeClaim" in volume:
            name = text(volume, "persistentVolumeClaim", "claimName")
            if name is not None:
                yield name
        elif "ephemeral" in volume and (name := text(volume, "name")):
            yield f"{pod.name}-{name}"
    if VOLUME_CLAIMS in pod.annotations:
        names = (name.strip() for name in pod.annotations[VOLUME_CLAIMS].split(","))
        yield from (name for name in names if name)


def _must_spread(spec: Tree) -> bool:
    return any(
        constraint.get("whenUnsatisfiable") != "ScheduleAnyway"
        for constraint in objects(spec, "topologySpreadConstraints")
    )


def _has_host_port(spec: Tree) -> bool:
    return any(
        (whole(port, "hostPort") or 0) > 0
        for which in ("containers", "initContainers")
        if which in spec
        for container in objects(spec, which)
        if "ports" in container
        for port in objects(container, "ports")
    )


def read_tolerations(spec: Tree) -> tuple[Toleration, ...]:
    """Tolerations, each once; a malformed one tolerates nothing and is left out."""
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
    """None for operators and effects that are not supported."""
    operator = operator or "Equal"
    if effect not in ("", "NoSchedule", "PreferNoSchedule", "NoExecute"):
        return None
    if operator == "Exists":
        return Toleration(key, operator, "", effect)
    if operator != "Equal" or not key:
        return None
    return Toleration(key, operator, value, effect)


def _node_affinity(affinity: Tree) -> tuple[Term, ...]:
    """Terms that can match a node; IMPOSSIBLE alone if terms are required and none can."""
    required = at(affinity, "nodeAffinity", REQUIRED)
    if required is None:
        return ()
    terms = (_read_term(tree) for tree in objects(required, "nodeSelectorTerms"))
    return tuple(dict.fromkeys(term for term in terms if term is not None)) or (IMPOSSIBLE,)


def _read_term(tree: Tree) -> Term | None:
    """Expressions of a node selector term; None if it can match no node."""
    found: list[Expression] = []
    for which, field_ in (("matchExpressions", False), ("matchFields", True)):
        for entry in items(tree, which):
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
    if not _is_valid(operator, values, field_=field_):
        return None
    return Expression(key, operator, values, field_)


def _is_valid(operator: str, values: tuple[str, ...], *, field_: bool) -> bool:
    """Whether the API server accepts the operator with these values."""
    if operator in ("In", "NotIn"):
        return len(values) >= 1
    if field_:
        return False
    if operator in ("Exists", "DoesNotExist"):
        return not values
    return operator in ("Gt", "Lt") and len(values) == 1 and _is_integer(values[0])


def _is_integer(written: str) -> bool:
    digits = written.removeprefix("-").removeprefix("+")
    return digits.isascii() and digits.isdecimal() and len(digits) <= 18


EXCLUDED = "kept off nodes of running pods whose required podAntiAffinity selects it"


@dataclass(slots=True)
class _AntiAffinity:
    """One term of running pods. ``values``: of the topology label ``key``, where they run."""

    term: Tree
    namespace: str
    key: str
    values: dict[str, None] = field(default_factory=dict)

    def selects(self, pod: KubePod, found: Objects) -> bool:
        return matches(mapping(self.term, "labelSelector"), pod.labels) and self._covers(pod, found)

    def _covers(self, pod: KubePod, found: Objects) -> bool:
        """Whether the term is about the pod's namespace: by default only its own.

        A namespace that is not in the input counts as selected.
        """
        listed, selector = items(self.term, "namespaces"), at(self.term, "namespaceSelector")
        namespace = pod.object.namespace
        if namespace in listed:
            return True
        if not isinstance(selector, dict):
            return not listed and namespace == self.namespace
        described = found.named("", "Namespace", "", namespace)
        return not selector or described is None or matches(selector, described.labels)


def exclude_by_anti_affinity(
    pods: Iterable[KubePod], nodes: Iterable[KubeNode], found: Objects, remarks: Remarks
) -> None:
    """Exclude waiting pods of ours from the domains of running pods whose anti-affinity selects them."""
    pods = list(pods)
    terms = _anti_affinities(pods, {node.name: node for node in nodes})
    if not terms:
        return
    for pod in pods:
        closed: dict[str, dict[str, None]] = {}
        for term in terms if pod.ours else ():
            if term.selects(pod, found):
                closed.setdefault(term.key, {}).update(term.values)
        if closed:
            remarks.add(pod.subject, EXCLUDED)
            apart = tuple(
                Expression(key, "NotIn", tuple(sorted(closed[key]))) for key in sorted(closed)
            )
            pod.affinity = tuple((*term, *apart) for term in pod.affinity or ((),))


def _anti_affinities(pods: Iterable[KubePod], nodes: dict[str, KubeNode]) -> list[_AntiAffinity]:
    """Every different required term of running pods, with the domains it closes."""
    different: dict[str, _AntiAffinity] = {}
    for pod in pods:
        if pod.node is None or not pod.bound:
            continue  # a pod that is not bound repels nobody
        node, namespace = nodes[pod.node], pod.object.namespace
        for term in objects(pod.object.tree, "spec", "affinity", "podAntiAffinity", REQUIRED):
            key = text(term, "topologyKey")
            if key is None or not isinstance(at(term, "labelSelector"), dict):
                continue
            value = node.labels.get(key, node.name if key == HOSTNAME else None)
            if value:
                same = json.dumps([namespace, term], sort_keys=True, default=str)
                one = different.setdefault(same, _AntiAffinity(term, namespace, key))
                one.values[value] = None
    return list(different.values())
