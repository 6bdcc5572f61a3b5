"""Volumes of pods: the nodes that their bound volumes reach, and what their claims wait for.

A claim that waits for its first consumer restricts nothing: kube-scheduler gives it a volume where its pod
goes. Nothing raises; a claim or class that may be outside the input restricts nothing. Tenants write claims,
administrators volumes and classes. Writes ``affinity``, ``unsupported``, ``waits_for``, ``volumes`` and
``rooted`` of pods.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct

from models.documents.gang import NodeExpression
from models.instance.policy import KubernetesPolicy
from planner.read.findings import Remarks
from planner.read.kube.lookup import at, mapping, objects, text
from planner.read.kube.pods.constraints import (
    IMPOSSIBLE,
    MAX_EXPRESSIONS,
    MAX_TERMS,
    MAX_VALUES,
    SOME_NODES_VOLUME,
    Affinity,
    exceeds_bounds,
    narrowed,
    read_terms,
)
from planner.read.kube.records import KubeObject, KubePod, Objects

UNKNOWN = "its volumes are not in the input; every node is assumed to reach them"
MAX_CLAIMS = 100
"""Most volume claims of a waiting pod."""

TOO_MANY_CLAIMS = f"more than {MAX_CLAIMS} volume claims"

CLAIM, VOLUME, CLASS = "PersistentVolumeClaim", "PersistentVolume", "StorageClass"

_ZONES = (
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
)
_ZONE_SEPARATOR = "__"


def read_volumes(
    pods: Sequence[KubePod], found: Objects, policy: KubernetesPolicy, remarks: Remarks
) -> None:
    reader = _Volumes(found, remarks)
    for pod in pods if "volumeZone" not in policy.ignore else ():
        if pod.finished is None and (names := tuple(dict.fromkeys(_claims(pod.object)))):
            reader.read(pod, names)


def _claims(pod: KubeObject) -> Iterator[str]:
    """Names of the volume claims of a pod; that of an ephemeral volume is named after both."""
    for volume in objects(pod.tree, "spec", "volumes"):
        if "persistentVolumeClaim" in volume:
            if (name := text(volume, "persistentVolumeClaim", "claimName")) is not None:
                yield name
        elif "ephemeral" in volume and (name := text(volume, "name")):
            yield f"{pod.name}-{name}"


class _Claim(Struct, frozen=True):
    """What one claim asks of the pods that use it.

    ``affinity``: the nodes that reach its volume, () for all, None for none. ``waits``: what must happen
    first, in words.
    """

    affinity: Affinity | None = ()
    waits: str | None = None


class _Volumes:
    """Reads the claims of one input, each once."""

    def __init__(self, found: Objects, remarks: Remarks) -> None:
        self.found, self.remarks = found, remarks
        self._known: dict[tuple[str, str], _Claim | None] = {}
        self._equal: dict[Affinity, Affinity] = {}
        self._joined: dict[tuple[Affinity, Affinity], Affinity] = {}

    def read(self, pod: KubePod, names: Sequence[str]) -> None:
        """``names``: of its claims."""
        namespace = pod.object.namespace
        if len(names) > MAX_CLAIMS and not pod.bound:
            pod.unsupported += (TOO_MANY_CLAIMS,)
            names = names[:MAX_CLAIMS]
        claims = [self._claim(namespace, name) for name in names]
        if pod.to_place and None in claims:
            self.remarks.add(pod.subject, UNKNOWN)
        known = [claim for claim in claims if claim is not None]
        pod.waits_for += tuple(claim.waits for claim in known if claim.waits is not None)
        affinity: Affinity = ()
        for claim in known:
            affinity = self._join(affinity, claim.affinity or ())
        nowhere = any(claim.affinity is None for claim in known)
        pod.rooted = bool(affinity) or nowhere
        if pod.bound:
            return  # its volumes are there, or nobody will bind them
        joined = self._join(pod.affinity, affinity)
        nowhere |= joined == (IMPOSSIBLE,) != pod.affinity
        pod.affinity, pod.volumes = joined, affinity
        if nowhere:
            pod.unsupported += (SOME_NODES_VOLUME,)

    def _join(self, one: Affinity, other: Affinity) -> Affinity:
        """Nodes that both allow; IMPOSSIBLE alone if that has more parts than are read."""
        if not one or not other:
            return one or other
        if (one, other) not in self._joined:
            terms = (
                tuple(dict.fromkeys(tuple(dict.fromkeys((*a, *b))) for a in one for b in other))
                if len(one) * len(other) <= MAX_TERMS
                else (IMPOSSIBLE,)
            )
            parts = sum(map(len, terms))
            values = sum(len(expression.values) for term in terms for expression in term)
            if parts > MAX_EXPRESSIONS or values > MAX_VALUES:
                terms = (IMPOSSIBLE,)
            self._joined[one, other] = terms
        return self._joined[one, other]

    def _claim(self, namespace: str, name: str) -> _Claim | None:
        """None if it is unknown, because claims, volumes or classes are not in the input."""
        key = (namespace, name)
        if key not in self._known:
            claim = self.found.named("", CLAIM, namespace, name)
            missing = f"{CLAIM} {name} does not exist"
            self._known[key] = self._absent(CLAIM, missing) if claim is None else self._read(claim)
        return self._known[key]

    def _absent(self, kind: str, missing: str) -> _Claim | None:
        """What is not in the input; None if it may exist."""
        return _Claim(waits=missing) if self.found.has_all(kind) else None

    def _read(self, claim: KubeObject) -> _Claim | None:  # noqa: PLR0911  # one return a case
        if at(claim.tree, "metadata", "deletionTimestamp") is not None:
            return _Claim(waits=f"{claim.where} is being deleted")
        if text(claim.tree, "status", "phase") == "Lost":
            return _Claim(waits=f"{claim.where} has lost its volume")
        name = text(claim.tree, "spec", "volumeName")
        if name is None:
            return self._unbound(claim)
        volume = self.found.named("", VOLUME, "", name)
        if volume is None:
            missing = f"{claim.where} is for {VOLUME} {name}, which does not exist"
            return self._absent(VOLUME, missing)
        reference = mapping(volume.tree, "spec", "claimRef")
        named = text(reference, "namespace"), text(reference, "name")
        uids = {text(reference, "uid"), claim.uid} - {None}  # they count where both have one
        if reference and (named != (claim.namespace, claim.name) or len(uids) > 1):
            return _Claim(waits=f"{claim.where} is for {volume.where}, which another claim has")
        if text(volume.tree, "status", "phase") in ("Released", "Failed"):
            return _Claim(waits=f"{volume.where} of {claim.where} is not usable")
        return _Claim(self._reach(volume))

    def _unbound(self, claim: KubeObject) -> _Claim | None:
        name = text(claim.tree, "spec", "storageClassName")
        if not name:
            return _Claim(waits=f"{claim.where} has no storage class and no volume")
        found = self.found.named("storage.k8s.io", CLASS, "", name)
        if found is None:
            missing = f"{claim.where} names {CLASS} {name}, which does not exist"
            return self._absent(CLASS, missing)
        if text(found.tree, "volumeBindingMode") != "WaitForFirstConsumer":
            return _Claim(waits=f"{claim.where} is not bound yet, and {found.where} binds at once")
        return _Claim()

    def _reach(self, volume: KubeObject) -> Affinity | None:
        """The nodes that reach a volume, () for all; None if that cannot be read or is none."""
        required = at(volume.tree, "spec", "nodeAffinity", "required")
        terms = objects(required, "nodeSelectorTerms")
        affinity = () if required is None else read_terms(terms)
        if affinity == (IMPOSSIBLE,) or exceeds_bounds(terms):
            return None
        zones = tuple(
            NodeExpression(key, "In", tuple(volume.labels[key].split(_ZONE_SEPARATOR)))
            for key in _ZONES
            if key in volume.labels
        )
        if zones:
            affinity = narrowed(affinity, zones)
        return self._equal.setdefault(affinity, affinity)
