"""Volume claims: which nodes reach a claim's volume, and what a claim without one waits for.

Follows kube-scheduler: an unbound claim is judged by its StorageClass. Nothing raises; a claim or class that
may be outside the input restricts nothing. Tenants write claims, administrators volumes and classes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction

from models.documents.gang import NodeExpression
from models.units import InvalidValueError, quantity
from planner.read.kube.lookup import at, is_object_name, items, mapping, objects, text
from planner.read.kube.pods.constraints import (
    IMPOSSIBLE,
    SOME_NODES_VOLUME,
    VOLUME_CLAIMS,
    Affinity,
    exceeds_bounds,
    read_terms,
)
from planner.read.kube.records import KubeObject, Objects

SELECTED_NODE = "volume.kubernetes.io/selected-node"
"""Annotation of an unbound claim: the node that a scheduler chose, where the provisioner makes the volume."""

NO_PROVISIONER = "kubernetes.io/no-provisioner"
"""Provisioner of classes whose volumes exist already, such as local disks."""

ANY_NODE = frozenset({"ReadWriteMany", "ReadOnlyMany"})
"""Access modes with which pods on several nodes share a volume."""

CLAIM, VOLUME, CLASS = "PersistentVolumeClaim", "PersistentVolume", "StorageClass"

_DEFAULT = (
    "storageclass.kubernetes.io/is-default-class",
    "storageclass.beta.kubernetes.io/is-default-class",
)
_ZONES = (
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
)
_ZONE_SEPARATOR = "__"

Key = tuple[str, str]
"""(namespace, name) of a claim."""


@dataclass(frozen=True, slots=True)
class VolumeClaim:
    """What one claim asks of the pods that use it.

    ``affinity``: the nodes that reach its volume, () for all. ``waits``: what must happen first, in words;
    ``problem``: what a plan does not model. ``storage_class``: if it takes one of the volumes of this class
    that exist, on the node of its pod. ``object``: the claim, if it can be used. ``unbound``: has no volume.
    """

    affinity: Affinity = ()
    waits: str | None = None
    problem: str | None = None
    storage_class: str | None = None
    object: KubeObject | None = None
    unbound: bool = True
    access_modes: frozenset[str] = frozenset()


def named_claims(spec: object, pod: str) -> Iterator[str]:
    """Names of the volume claims in a pod's ``spec``; that of an ephemeral volume is named after both."""
    for volume in objects(spec, "volumes"):
        if "persistentVolumeClaim" in volume:
            name = text(volume, "persistentVolumeClaim", "claimName")
            if name is not None:
                yield name
        elif "ephemeral" in volume and (name := text(volume, "name")):
            yield f"{pod}-{name}"


def volume_claims(pod: KubeObject) -> Iterator[str]:
    """The same of a pod of the input, which may be a recorded one: that has no volumes."""
    spec = mapping(pod.tree, "spec")
    yield from named_claims(spec, pod.name)
    if VOLUME_CLAIMS in pod.annotations and "volumes" not in spec:
        names = (name.strip() for name in pod.annotations[VOLUME_CLAIMS].split(","))
        yield from (name for name in names if name)


@dataclass(slots=True)
class VolumeClaims:
    """Reads the claims of one input, each once."""

    found: Objects
    _known: dict[Key, VolumeClaim | None] = field(default_factory=dict)
    _affinities: dict[str, Affinity | None] = field(default_factory=dict)
    _equal: dict[Affinity, Affinity] = field(default_factory=dict)
    _default: str | None = None
    _reserved: dict[Key, KubeObject] = field(default_factory=dict)

    def __post_init__(self) -> None:
        defaults = [
            one
            for one in self.found.of(CLASS, "storage.k8s.io")
            if any(one.annotations.get(key) == "true" for key in _DEFAULT)
        ]
        # Of several defaults Kubernetes takes the newest.
        newest = min(defaults, key=lambda one: (-(one.created or 0), one.name), default=None)
        self._default = None if newest is None else newest.name
        for volume in sorted(self.found.of(VOLUME, ""), key=lambda one: one.name):
            reference = mapping(volume.tree, "spec", "claimRef")
            namespace, name = text(reference, "namespace"), text(reference, "name")
            if namespace is not None and name is not None:
                claim = self.found.named("", CLAIM, namespace, name)
                if claim is not None and is_for(volume, claim):
                    self._reserved.setdefault((namespace, name), volume)

    def of(self, namespace: str, name: str) -> VolumeClaim | None:
        """None if it is unknown, because claims, volumes or classes are not in the input."""
        key = (namespace, name)
        if key not in self._known:
            claim = self.found.named("", CLAIM, namespace, name)
            if claim is not None:
                self._known[key] = self._read(claim)
            elif self.found.has_all(CLAIM):
                self._known[key] = VolumeClaim(waits=f"{CLAIM} {name} does not exist")
            else:
                self._known[key] = None
        return self._known[key]

    def _read(self, claim: KubeObject) -> VolumeClaim | None:
        if at(claim.tree, "metadata", "deletionTimestamp") is not None:
            return _waits(f"{claim.where} is being deleted")
        if text(claim.tree, "status", "phase") == "Lost":
            return _waits(f"{claim.where} has lost its volume")
        wanted = text(claim.tree, "spec", "volumeName")
        if wanted is not None:
            return self._bound(claim, wanted)
        reserved = self._reserved.get((claim.namespace, claim.name))
        return self._unbound(claim) if reserved is None else self._on(claim, reserved)

    def _bound(self, claim: KubeObject, name: str) -> VolumeClaim | None:
        """A claim that is bound, or made for one volume."""
        volume = self.found.named("", VOLUME, "", name)
        if volume is not None:
            taken = mapping(volume.tree, "spec", "claimRef")
            if taken and not is_for(volume, claim):
                return VolumeClaim(
                    waits=f"{claim.where} is for {volume.where}, which another claim has"
                )
            return self._on(claim, volume)
        if not self.found.has_all(VOLUME):
            return None
        return _waits(f"{claim.where} is for {VOLUME} {name}, which does not exist")

    def _on(self, claim: KubeObject, volume: KubeObject) -> VolumeClaim:
        if text(volume.tree, "status", "phase") in ("Released", "Failed"):
            return _waits(f"{volume.where} of {claim.where} is not usable")
        affinity = self.reach(volume)
        if affinity is None:
            return VolumeClaim(problem=SOME_NODES_VOLUME, unbound=False)
        modes = access_modes(claim)
        return VolumeClaim(affinity, object=claim, unbound=False, access_modes=modes)

    def _unbound(self, claim: KubeObject) -> VolumeClaim | None:
        """As its StorageClass says."""
        found = self._class_of(claim)
        if not isinstance(found, KubeObject):
            return found
        if text(found.tree, "volumeBindingMode") != "WaitForFirstConsumer":
            return _waits(f"{claim.where} is not bound yet, and {found.where} binds at once")
        chosen = claim.annotations.get(SELECTED_NODE)
        if text(found.tree, "provisioner") != NO_PROVISIONER:
            return self._dynamic(claim, found, chosen)
        if chosen:
            return _waits(f"{claim.where} has a selected node, which {found.where} cannot serve")
        if not self.found.has_all(VOLUME):
            return None
        return VolumeClaim(storage_class=found.name, object=claim, access_modes=access_modes(claim))

    def _class_of(self, claim: KubeObject) -> KubeObject | VolumeClaim | None:
        """The class of an unbound claim, or what the claim is without it."""
        stated = at(claim.tree, "spec", "storageClassName")
        name = self._default if stated is None else stated
        if isinstance(name, str) and name:
            found = self.found.named("storage.k8s.io", CLASS, "", name)
            if found is not None:
                return found
            missing = f"{claim.where} names {CLASS} {name}, which does not exist"
            return _waits(missing) if self.found.has_all(CLASS) else None
        if stated is None and not self.found.has_all(CLASS):
            return None
        return _waits(f"{claim.where} has no storage class and no volume")

    def _dynamic(self, claim: KubeObject, found: KubeObject, chosen: str | None) -> VolumeClaim:
        """A claim whose volume is made on the node of its pod, among those that the class allows."""
        if chosen and not is_object_name(chosen):
            return _waits(f"{claim.where} has a selected node that is none")
        terms = objects(found.tree, "allowedTopologies")
        if exceeds_bounds(terms) or len(terms) < len(items(found.tree, "allowedTopologies")):
            return VolumeClaim(problem=SOME_NODES_VOLUME)
        allowed = tuple(_labels(objects(term, "matchLabelExpressions")) for term in terms)
        # A term without labels allows every node.
        affinity: Affinity = () if () in allowed else allowed
        if chosen:
            node = NodeExpression("metadata.name", "In", (chosen,), field=True)
            affinity = tuple((*term, node) for term in affinity or ((),))
        equal = self._equal.setdefault(affinity, affinity)
        return VolumeClaim(equal, object=claim, access_modes=access_modes(claim))

    def reach(self, volume: KubeObject) -> Affinity | None:
        """The nodes that reach a volume, () for all; None if that cannot be read or is none."""
        if volume.name not in self._affinities:
            self._affinities[volume.name] = self._reach(volume)
        return self._affinities[volume.name]

    def _reach(self, volume: KubeObject) -> Affinity | None:
        required = at(volume.tree, "spec", "nodeAffinity", "required")
        terms = objects(required, "nodeSelectorTerms")
        if exceeds_bounds(terms):
            return None
        affinity = () if required is None else read_terms(terms)
        if affinity == (IMPOSSIBLE,):
            return None
        zones = tuple(
            NodeExpression(key, "In", tuple(volume.labels[key].split(_ZONE_SEPARATOR)))
            for key in _ZONES
            if key in volume.labels
        )
        if zones:
            affinity = tuple((*term, *zones) for term in affinity or ((),))
        return self._equal.setdefault(affinity, affinity)


def _waits(what: str) -> VolumeClaim:
    return VolumeClaim(waits=what)


def is_for(volume: KubeObject, claim: KubeObject) -> bool:
    """Whether a volume's claimRef is to this claim: by namespace and name, and by uid where both have one."""
    reference = mapping(volume.tree, "spec", "claimRef")
    if (text(reference, "namespace"), text(reference, "name")) != (claim.namespace, claim.name):
        return False
    return None in (text(reference, "uid"), claim.uid) or text(reference, "uid") == claim.uid


def access_modes(tree: KubeObject) -> frozenset[str]:
    """Of a claim or a volume."""
    return frozenset(one for one in items(tree.tree, "spec", "accessModes") if type(one) is str)


def storage(tree: object, *path: str) -> Fraction | None:
    """Bytes below a path; None for what is no quantity."""
    written = at(tree, *path)
    if isinstance(written, bool) or not isinstance(written, str | int):
        return None
    try:
        found = quantity(str(written))
    except InvalidValueError:
        return None
    return found if found >= 0 else None


def _labels(entries: list[dict[str, object]]) -> tuple[NodeExpression, ...]:
    """The expressions of one topology; IMPOSSIBLE if one cannot be read."""
    found = []
    for entry in entries:
        key, written = text(entry, "key"), items(entry, "values")
        values = tuple(one for one in written if type(one) is str)
        if key is None or not values or len(values) < len(written):
            return IMPOSSIBLE
        found.append(NodeExpression(key, "In", values))
    return tuple(found)
