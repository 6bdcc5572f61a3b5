"""What the volumes of pods mean for the plan: nodes they may use, volumes they use up, and why they wait.

A claim takes nothing from others until its pod has room somewhere. Writes ``affinity``, ``requests``,
``unsupported``, ``waits_for`` and ``rooted`` of pods, and what nodes offer of existing volumes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from models.instance.policy import KubernetesPolicy
from planner.read.findings import Remarks
from planner.read.kube.pods.constraints import (
    IMPOSSIBLE,
    MAX_EXPRESSIONS,
    MAX_TERMS,
    MAX_VALUES,
    SOME_NODES_VOLUME,
    Affinity,
)
from planner.read.kube.pods.host_ports import DOMAIN as PORT_DOMAIN
from planner.read.kube.pods.volume_claims import (
    ANY_NODE,
    Key,
    VolumeClaim,
    VolumeClaims,
    volume_claims,
)
from planner.read.kube.pods.volume_pools import DOMAIN, Level, Pool, VolumePools
from planner.read.kube.records import KubeNode, KubePod, Objects

UNKNOWN = "its volumes are not in the input; every node is assumed to reach them"
MAX_CLAIMS = 100
"""Most volume claims of a waiting pod."""

TOO_MANY_CLAIMS = f"more than {MAX_CLAIMS} volume claims"
OWN_DOMAINS = (DOMAIN, PORT_DOMAIN)
OWN_RESOURCE = f"a resource of {DOMAIN} or {PORT_DOMAIN}, which pods cannot request"

_ONE_POD = "ReadWriteOncePod"


def read_volumes(
    pods: Sequence[KubePod],
    nodes: Sequence[KubeNode],
    found: Objects,
    policy: KubernetesPolicy,
    remarks: Remarks,
) -> None:
    """Read the volumes of unfinished pods; nodes offer what their claims still have to take."""
    requested = set[str]().union(*(pod.requests for pod in pods))
    own = {name for name in requested if name.startswith(OWN_DOMAINS)}
    for pod in pods if own else ():
        if not own.isdisjoint(pod.requests):
            pod.requests = {k: v for k, v in pod.requests.items() if k not in own}
            pod.unsupported += (OWN_RESOURCE,)
    if "volumeZone" in policy.ignore:
        return
    unfinished = (pod for pod in pods if pod.finished is None)
    named = [(pod, tuple(dict.fromkeys(volume_claims(pod.object)))) for pod in unfinished]
    named = [(pod, names) for pod, names in named if names]
    if not named:
        return
    claims = VolumeClaims(found)
    reader = _PodVolumes(claims, VolumePools(claims, nodes, remarks), policy, remarks)
    reader.users = Counter((pod.object.namespace, name) for pod, names in named for name in names)
    for pod, names in named:
        reader.read(pod, names)
    reader.count(pods, nodes)


@dataclass(slots=True)
class _PodVolumes:
    """``users``: unfinished pods of each claim. ``levels``: of the claims that take existing volumes."""

    claims: VolumeClaims
    pools: VolumePools
    policy: KubernetesPolicy
    remarks: Remarks
    users: Counter[Key] = field(default_factory=Counter)
    levels: list[tuple[KubePod, list[Level]]] = field(default_factory=list)
    _joined: dict[tuple[Affinity, Affinity], Affinity] = field(default_factory=dict)

    def read(self, pod: KubePod, names: Sequence[str]) -> None:
        """What can be said of a pod alone."""
        namespace = pod.object.namespace
        if len(names) > MAX_CLAIMS and not pod.bound:
            pod.unsupported += (TOO_MANY_CLAIMS,)
            names = names[:MAX_CLAIMS]
        known = [(name, self.claims.of(namespace, name)) for name in names]
        if pod.to_place and any(claim is None for _, claim in known):
            self.remarks.add(pod.subject, UNKNOWN)
        affinity: Affinity = ()
        problems: dict[str, None] = {}
        levels: list[Level] = []
        for name, claim in known:
            if claim is None:
                continue
            affinity = self._join(affinity, claim.affinity)
            pod.waits_for += () if claim.waits is None else (claim.waits,)
            found = self._need(pod, claim, self.users[namespace, name])
            if isinstance(found, str):
                problems[found] = None
            elif found is not None:
                levels.append(found)
        pod.rooted = bool(affinity or levels or problems)
        if pod.bound:
            return  # its volumes are there, or nobody will bind them
        joined = self._join(pod.affinity, affinity)
        if joined == (IMPOSSIBLE,) != pod.affinity:
            problems[SOME_NODES_VOLUME] = None
        pod.affinity = joined
        pod.volumes = ((), affinity)
        pod.unsupported = tuple(dict.fromkeys((*pod.unsupported, *problems)))
        if levels:
            self.levels.append((pod, levels))

    def _need(  # noqa: PLR0911  # one return a case
        self, pod: KubePod, claim: VolumeClaim, users: int
    ) -> Level | str | None:
        """The level of an existing volume that it takes, if any, or why a plan cannot place the pod."""
        if claim.problem is not None or claim.object is None:
            return claim.problem
        name = claim.object.where
        if users > 1 and _ONE_POD in claim.access_modes:
            return f"{name}, which {users} pods use and only one may"
        if not claim.unbound:
            return None
        if users > 1 and (claim.storage_class or not claim.access_modes & ANY_NODE):
            return f"{name}, which {users} pods use before it has a volume"
        if claim.storage_class is None:
            return None
        if pod.scheduler == self.policy.scheduler_name:
            return f"{name}, to which only kube-scheduler gives a volume of its class"
        return self.pools.level(claim)

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

    def count(self, pods: Sequence[KubePod], nodes: Sequence[KubeNode]) -> None:
        """Let pods request, and nodes offer, the existing volumes of the levels in use."""
        if not self.levels:
            return
        place = {node.name: n for n, node in enumerate(nodes)}
        free = [node.gpus for node in nodes]
        for pod in pods:
            if pod.node is not None and pod.finished is None:
                free[place[pod.node]] -= pod.gpus
        started: dict[int, list[Level]] = {}
        for pod, own in self.levels:
            if pod.node is not None:
                started.setdefault(place[pod.node], []).extend(own)
        used = sorted({level for _, own in self.levels for level in own})
        each: dict[Pool, int] = {}
        for pod, own in self.levels:
            for pool, claims in Counter(pool for pool, _ in own).items() if pod.to_place else ():
                each[pool] = min(claims, each.get(pool, claims))
        for pod, own in self.levels:
            amounts = Counter(self._requests(own, used))
            pod.volumes = (tuple(sorted(amounts.items())), pod.volumes[1])
            pod.requests = dict(sorted((pod.requests | amounts).items()))
        for node, offered in zip(nodes, self.pools.offers(used, started, each, free), strict=True):
            node.allocatable = {
                **{k: v for k, v in node.allocatable.items() if not k.startswith(DOMAIN)},
                **offered,
            }

    def _requests(self, own: Sequence[Level], used: Sequence[Level]) -> Iterator[str]:
        """A claim takes a volume of its size and of every smaller one that is counted."""
        for pool, position in own:
            for other, smaller in used:
                if other == pool and smaller <= position:
                    yield self.pools.name((other, smaller))
