"""What the volumes of pods mean for the plan: nodes they may use, volumes they use up, and why they wait.

A claim takes nothing from others until its pod has room somewhere. Writes ``affinity``, ``requests``,
``unsupported``, ``waits_for`` and ``rooted`` of pods, and what nodes offer of existing volumes.

Existing volumes of classes without a provisioner are resources of the nodes: a claim of r bytes asks for one
of every counted size up to its own, and a node offers as many of a size s as it has free volumes of at least
s bytes. For claims that differ in size alone, all of them have a volume exactly when every such sum fits
(Hall). Volumes that several nodes reach are dealt out to single nodes.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from hashlib import sha256

from models.documents.cluster import HOSTNAME_LABEL
from models.documents.gang import NodeExpression
from models.instance.gang import holds
from models.instance.policy import KubernetesPolicy
from models.units import quantity_text
from planner.read.findings import Remarks
from planner.read.kube.lookup import SHORT, at, mapping, text
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
    CLASS,
    VOLUME,
    Key,
    VolumeClaim,
    VolumeClaims,
    access_modes,
    storage,
    volume_claims,
)
from planner.read.kube.records import KubeNode, KubeObject, KubePod, Objects

UNKNOWN = "its volumes are not in the input; every node is assumed to reach them"
MAX_CLAIMS = 100
"""Most volume claims of a waiting pod."""

TOO_MANY_CLAIMS = f"more than {MAX_CLAIMS} volume claims"
DOMAIN = "volumes.gangplan.dev/"
"""Of the names of these resources, which exist in plans alone: ``volumes.gangplan.dev/local-ssd-100Gi``."""
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


MAX_SIZES = 16
"""Most sizes of the volumes of one class that are distinguished; claims count as of the next larger one."""

OVERLAPPING = "reach some of the nodes of others of their class; they are not counted"

Pool = tuple[str, str]
"""(StorageClass, volumeMode)."""

Level = tuple[Pool, int]
"""A pool and the position of a counted size in it."""


@dataclass(slots=True)
class VolumePools:
    """The volumes of one input. ``nodes``: in order.

    Of one class those count that one node may mount to write, if there are any; ``_odd``: the others.
    """

    claims: VolumeClaims
    nodes: Sequence[KubeNode]
    remarks: Remarks
    _of: dict[Pool, list[KubeObject]] = field(default_factory=dict)
    _odd: dict[Pool, list[KubeObject]] = field(default_factory=dict)
    _served: dict[tuple[Pool, frozenset[str]], bool] = field(default_factory=dict)
    _sizes: dict[Pool, list[Fraction]] = field(default_factory=dict)
    _reaches: dict[Affinity, frozenset[int]] = field(default_factory=dict)
    _by_label: dict[str, dict[str, set[int]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for volume in sorted(self.claims.found.of(VOLUME, ""), key=lambda one: one.name):
            storage_class = text(volume.tree, "spec", "storageClassName")
            if storage_class is not None:
                pool = (storage_class, _mode(volume))
                usual = "ReadWriteOnce" in access_modes(volume)
                (self._of if usual else self._odd).setdefault(pool, []).append(volume)
        for pool in self._odd.keys() - self._of.keys():
            self._of[pool] = self._odd.pop(pool)

    def level(self, claim: VolumeClaim) -> Level | str:
        """The size that an unbound claim counts as; a text says why no volume fits it."""
        one = claim.object
        assert one is not None
        assert claim.storage_class is not None
        pool = (claim.storage_class, _mode(one))
        among = f"the volumes of {CLASS} {pool[0]}"
        if at(one.tree, "spec", "selector") is not None:
            return f"{one.where} chooses among {among} by label, which is not counted"
        if not self._serve(pool, claim.access_modes):
            return f"{one.where} chooses among {among} by access modes, which is not counted"
        size = storage(one.tree, "spec", "resources", "requests", "storage")
        if size is None:
            return f"{one.where} requests an amount that is too large or cannot be read"
        sizes = self._sizes_of(pool)
        found = bisect_left(sizes, size)
        if found == len(sizes):
            return f"{one.where} has no volume of its size among {among}"
        return pool, found

    def _serve(self, pool: Pool, modes: frozenset[str]) -> bool:
        """Whether just the volumes that count have these access modes: claims then differ in size alone."""
        key = (pool, modes)
        if key not in self._served:
            counted, odd = (
                [access_modes(v) for v in of.get(pool, ())] for of in (self._of, self._odd)
            )
            self._served[key] = all(map(modes.issubset, counted)) and not any(
                map(modes.issubset, odd)
            )
        return self._served[key]

    def name(self, level: Level) -> str:
        """The resource of a level."""
        pool, position = level
        size = quantity_text("memory", int(self._sizes_of(pool)[position]))
        block = "" if pool[1] == "Filesystem" else f"-{pool[1]}"
        tail = f"{block}-{size}"
        if len(pool[0] + tail) > SHORT:
            digest = sha256(pool[0].encode()).hexdigest()[:8]
            kept = SHORT - len(tail) - len(digest) - 1
            return f"{DOMAIN}{pool[0][:kept]}_{digest}{tail}"
        return f"{DOMAIN}{pool[0]}{tail}"

    def _sizes_of(self, pool: Pool) -> list[Fraction]:
        """The counted sizes, ascending, whole bytes; the largest is that of the largest volume."""
        if pool not in self._sizes:
            found = sorted({size for one in self._of.get(pool, ()) if (size := _capacity(one))})
            if len(found) > MAX_SIZES:
                last = len(found) - 1
                found = [found[last * (i + 1) // MAX_SIZES] for i in range(MAX_SIZES)]
            self._sizes[pool] = found
        return self._sizes[pool]

    def offers(
        self,
        levels: Iterable[Level],
        started: Mapping[int, Sequence[Level]],
        each: Mapping[Pool, int],
        free_gpus: Sequence[int],
    ) -> list[Counter[str]]:
        """What every node offers of these levels, by name.

        ``started``: the levels of claims of pods that have room on a node, which takes volumes there.
        ``each``: how many claims of a pool a waiting pod has. ``free_gpus``: of every node.
        """
        found: list[Counter[str]] = [Counter() for _ in self.nodes]
        by_pool: dict[Pool, list[int]] = defaultdict(list)
        for pool, position in sorted(set(levels)):
            by_pool[pool].append(position)
        for pool, positions in by_pool.items():
            taken = {
                n: [position for one, position in own if one == pool] for n, own in started.items()
            }
            sizes = self._sizes_of(pool)
            for n, held in self._dealt(pool, taken, each.get(pool, 1), free_gpus).items():
                for position in positions:
                    count = sum(size >= sizes[position] for size in held)
                    if count:
                        found[n][self.name((pool, position))] = count
        return found

    def _dealt(
        self, pool: Pool, taken: Mapping[int, list[int]], each: int, free_gpus: Sequence[int]
    ) -> dict[int, list[Fraction]]:
        """Sizes of the free volumes that count for each node."""
        groups: dict[frozenset[int], list[Fraction]] = defaultdict(list)
        for volume in self._of[pool]:
            size, reach = _capacity(volume), self._reach(volume)
            if size and reach and _is_free(volume):
                groups[reach].append(size)
        kept = self._disjoint(pool, groups)
        sizes = self._sizes_of(pool)
        found: dict[int, list[Fraction]] = defaultdict(list)
        for reach, free in kept.items():
            if len(reach) == 1:
                found[next(iter(reach))] += free
                continue
            free.sort()
            for n in sorted(reach & taken.keys()):
                for position in sorted(taken[n], reverse=True):
                    # As kube-scheduler: the smallest that fits.
                    if (first := bisect_left(free, sizes[position])) < len(free):
                        found[n].append(free.pop(first))
            usable = [n for n in reach if self.nodes[n].ready and not self.nodes[n].unschedulable]
            order = sorted(usable, key=lambda n: (-free_gpus[n], n))
            for i, size in enumerate(reversed(free)):
                if order:
                    found[order[i // each % len(order)]].append(size)
        return found

    def _disjoint(
        self, pool: Pool, groups: Mapping[frozenset[int], list[Fraction]]
    ) -> dict[frozenset[int], list[Fraction]]:
        """Groups of volumes whose nodes do not overlap: of two that do, the larger group.

        kube-scheduler may give a pod a volume of either, so both cannot be counted.
        """
        single = {next(iter(reach)): len(free) for reach, free in groups.items() if len(reach) == 1}
        kept: dict[frozenset[int], list[Fraction]] = {}
        covered: set[int] = set()
        several = [reach for reach in groups if len(reach) > 1]
        for reach in sorted(several, key=lambda one: (-len(groups[one]), sorted(one))):
            alone = sum(count for n, count in single.items() if n in reach)
            if covered.isdisjoint(reach) and len(groups[reach]) > alone:
                kept[reach] = groups[reach]
                covered |= reach
        for n in single:
            if n not in covered:
                kept[frozenset((n,))] = groups[frozenset((n,))]
        if len(kept) < len(groups):
            self.remarks.add(f"{CLASS} {pool[0]}", f"volumes that {OVERLAPPING}")
        return kept

    def _reach(self, volume: KubeObject) -> frozenset[int]:
        affinity = self.claims.reach(volume)
        if affinity is None:
            return frozenset()
        if affinity not in self._reaches:
            terms = (self._suited(term) for term in affinity)
            every = range(len(self.nodes))
            self._reaches[affinity] = frozenset(set().union(*terms) if affinity else every)
        return self._reaches[affinity]

    def _suited(self, term: Sequence[NodeExpression]) -> set[int]:
        """Nodes where all expressions hold; those of a label with listed values are looked up."""
        listed = next((one for one in term if one.operator == "In" and not one.field), None)
        if listed is None:
            suited = set(range(len(self.nodes)))
        else:
            known = self._valued(listed.key)
            suited = set().union(*(known.get(value, ()) for value in listed.values))
        return {n for n in suited if all(self._holds(one, n) for one in term)}

    def _valued(self, key: str) -> dict[str, set[int]]:
        if key not in self._by_label:
            found: dict[str, set[int]] = {}
            for n in range(len(self.nodes)):
                if (value := self._value(key, n)) is not None:
                    found.setdefault(value, set()).add(n)
            self._by_label[key] = found
        return self._by_label[key]

    def _value(self, key: str, n: int) -> str | None:
        node = self.nodes[n]
        return node.labels.get(key, node.name if key == HOSTNAME_LABEL else None)

    def _holds(self, one: NodeExpression, n: int) -> bool:
        value = self.nodes[n].name if one.field else self._value(one.key, n)
        return holds(one, value)


def _mode(one: KubeObject) -> str:
    """volumeMode of a claim or a volume."""
    return text(one.tree, "spec", "volumeMode") or "Filesystem"


def _capacity(volume: KubeObject) -> Fraction | None:
    """Whole bytes."""
    found = storage(volume.tree, "spec", "capacity", "storage")
    return None if found is None else Fraction(int(found))


def _is_free(volume: KubeObject) -> bool:
    """Whether any claim may take it."""
    return (
        text(volume.tree, "status", "phase") == "Available"
        and not mapping(volume.tree, "spec", "claimRef")
        and at(volume.tree, "metadata", "deletionTimestamp") is None
    )
