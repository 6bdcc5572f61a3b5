"""Existing volumes of classes without a provisioner, counted node by node as resources of the nodes.

A claim of r bytes asks for one of every counted size up to its own, and a node offers as many of a size s as
it has free volumes of at least s bytes: for claims that differ in size alone, all of them have a volume
exactly when every such sum fits (Hall). Volumes that several nodes reach are dealt out to single nodes.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from hashlib import sha256

from models.documents.cluster import HOSTNAME_LABEL
from models.instance.gang import NodeExpression, holds
from models.units import quantity_text
from planner.read.findings import Remarks
from planner.read.kube.lookup import SHORT, at, mapping, text
from planner.read.kube.pods.constraints import Affinity
from planner.read.kube.pods.volume_claims import (
    CLASS,
    VOLUME,
    VolumeClaim,
    VolumeClaims,
    access_modes,
    storage,
)
from planner.read.kube.records import KubeNode, KubeObject

DOMAIN = "volumes.gangplan.dev/"
"""Of the names of these resources, which exist in plans alone: ``volumes.gangplan.dev/local-ssd-100Gi``."""

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
