"""What ties a pod to some nodes without standing in its own spec: volumes and runtime classes.

Promises: looks at objects of the input only; a volume nobody described ties nothing down, but is
counted. Called by ``constraints``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from planner.reading.kubernetes.forms import KubeObject, Objects
from planner.reading.kubernetes.looking import Tree, at, items, mapping, objects, text, texts

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
