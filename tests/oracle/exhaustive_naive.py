"""The best plan of the smallest instances, by putting every pod everywhere and asking the checker.

Promises: the checker's word is the only rule and the only value; nothing of the formulation or of
evaluating, and of the exhaustive planner only who could start where nothing runs. Hopeless beyond a handful
of pods. Called by tests of the exhaustive planner.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, product
from math import comb, prod
from random import Random
from types import MappingProxyType
from typing import Any

from building import instance_document
from exhaustive_starting import could_start, could_start_now

from models.documents.canonical import digest
from models.documents.plan import GangKey
from models.instance.gang import Gang
from models.instance.instance import Instance
from models.verify.check import check, derive
from models.verify.judged_rules import guards

Entry = dict[str, Any]
"""What a plan document says of one gang."""

Values = tuple[tuple[str, int], ...]

NOTHING: Mapping[GangKey, Entry] = MappingProxyType({})

_NAMES = list(guards())
BROKEN = frozenset(_NAMES[: _NAMES.index("gpu-count")]) - {"digest"}
"""Rules of the document's form: no plan made here may break them."""

FEASIBLE = frozenset(_NAMES[_NAMES.index("gpu-count") : _NAMES.index("decision")])
"""Rules of what may be done; the rest is about what a plan says of itself."""

ALONE = FEASIBLE - {
    *("preemption", "moves", "min-share", "gpu-binding", "unknown-gpus", "affinity", "spread"),
    *("exclusive", "spares", "reserved"),
}
"""Of these a gang is guilty by itself: what breaks one with all others gone breaks it with them."""

MINIMISED = ("disruption", "span", "stranded", "stability")


class Naive:
    """Every plan of an instance. ``entries[g]``: what may be said of gang g, were it alone.

    ``said``: what every plan says of gangs besides, by namespace and name.
    """

    def __init__(self, instance: Instance, said: Mapping[GangKey, Entry] = NOTHING) -> None:
        self.instance = instance
        self.said = said
        document = instance_document(instance)
        promised = instance.queues
        self.document: dict[str, Any] = {
            "apiVersion": "gangplan.dev/v1alpha1",
            "kind": "Plan",
            "metadata": {
                "name": "naive",
                "createdAt": "2026-11-21T00:00:00Z",
                "generator": "test",
            },
            "instance": document,
            "spec": {"gangs": []},
            "status": {
                "outcome": "optimal",
                "objectives": [],
                "search": {"solver": "none", "seed": 0, "effort": 0, "stoppedBy": "proof"},
                "notes": [],
                "unable": [
                    {"gang": "/".join(gang.key), "proven": True, "now": could_start(instance, g)}
                    for g, gang in enumerate(instance.gangs)
                    if promised and self._not_now(g)
                ],
                "digests": {"instance": digest(document), "spec": digest({})},
            },
        }
        gone = [self._entry(gang, []) for gang in instance.gangs]
        self.entries = [
            [
                entry
                for entry in self._anywhere(gang)
                if not self._broken([*gone[:g], entry, *gone[g + 1 :]]) & {(r, g) for r in ALONE}
            ]
            for g, gang in enumerate(instance.gangs)
        ]

    def _not_now(self, g: int) -> bool:
        """Whether a gang waits that could not even start where nothing runs, as the nodes are."""
        gang = self.instance.gangs[g]
        waits = not gang.running_pods and gang.hold is None
        return waits and not could_start_now(self.instance, g)

    @property
    def size(self) -> int:
        """How many plans there are to ask for."""
        return prod(len(entries) for entries in self.entries)

    @staticmethod
    def effort(instance: Instance) -> int:
        """How many plans of single gangs are asked for before there is a first one of all."""
        nodes = instance.cluster.nodes
        total = 0
        for gang in instance.gangs:
            counts = [max(role.max, _stands(gang, n)) for n, role in enumerate(gang.roles)]
            total += prod(
                (1 + sum(1 + comb(node.gpus, role.gpus) for node in nodes)) ** count
                for role, count in zip(gang.roles, counts, strict=True)
            )
        return total

    def best(self) -> Values:
        """Tiers of the best plan of all."""
        return max((v for v in map(self._valued, product(*self.entries)) if v), key=self._rank)

    def walked(self, seed: int, steps: int) -> Iterator[Values]:
        """Tiers of feasible plans, each one or two gangs away from the one before; all stand at first."""
        r = Random(seed)
        current = [self._standing(gang) for gang in self.instance.gangs]
        for _ in range(steps):
            other = list(current)
            for g in r.sample(range(len(other)), min(len(other), r.randint(1, 2))):
                other[g] = r.choice(self.entries[g])
            found = self._valued(other)
            if found:
                current = other
                yield found

    def beats(self, one: Values, other: Values) -> bool:
        """Whether one plan's tiers are better than the other's."""
        return self._rank(one) > self._rank(other)

    def _rank(self, values: Values) -> tuple[int, ...]:
        return tuple(-v if name in MINIMISED else v for name, v in values)

    def _valued(self, entries: Sequence[Entry]) -> Values | None:
        """Tiers of a plan, None where the checker refuses what it does."""
        if self._broken(entries):
            return None
        return tuple(derive(self._plan(entries)).items())

    def _plan(self, entries: Sequence[Entry]) -> dict[str, Any]:
        return {**self.document, "spec": {"gangs": list(entries)}}

    def _broken(self, entries: Sequence[Entry]) -> set[tuple[str, int]]:
        """Rules of ``FEASIBLE`` broken, and by which gang, -1 for none."""
        names = {f"{e['namespace']}/{e['name']}": g for g, e in enumerate(entries)}
        found = check(self._plan(entries))
        assert not [v for v in found if v.rule in BROKEN], found
        return {
            (v.rule, -1 if v.gang is None else names[v.gang]) for v in found if v.rule in FEASIBLE
        }

    def _anywhere(self, gang: Gang) -> Iterator[Entry]:
        """Every pod nowhere, or on any node with any GPUs, named or not."""
        keys = sorted(
            {(n, i) for n, role in enumerate(gang.roles) for i in role.indices(role.max)}
            | {(p.role, p.index) for p in gang.running_pods}
        )
        for chosen in product(*(self._places(gang, key) for key in keys)):
            taken = [(p["node"], gpu) for p in chosen if p for gpu in p["gpus"] or ()]
            if len(set(taken)) == len(taken) or gang.running:
                yield self._entry(gang, [pod for pod in chosen if pod])

    def _places(self, gang: Gang, key: tuple[int, int]) -> list[Entry | None]:
        role = gang.roles[key[0]]
        name = f"{gang.name}-{role.name}-{key[1]}"
        named: Entry = {"name": name, "role": role.name, "index": key[1]}
        for pod in gang.pods:
            if (pod.role, pod.index) == key:
                named |= {"name": pod.name} | ({} if pod.uid is None else {"uid": pod.uid})
        found: list[Entry | None] = [None]
        for node in self.instance.cluster.nodes:
            sets: list[list[int] | None] = [
                list(s) for s in combinations(range(node.gpus), role.gpus)
            ]
            if role.gpus and node.gpus >= role.gpus and self._doubts:
                sets.append(None)
            found += [{**named, "node": node.name, "gpus": gpus} for gpus in sets]
        for pod in gang.running_pods:  # wherever it stands, whatever that is
            if (pod.role, pod.index) == key and pod.gpus is None and role.gpus:
                node = self.instance.cluster.nodes[pod.node or 0]
                stay: Entry = {**named, "node": node.name, "gpus": None}
                found += [] if stay in found else [stay]
        return found

    @property
    def _doubts(self) -> bool:
        """Whether any GPU anywhere may be given without its name."""
        return (
            self.instance.policy.gpu_binding == "none"
            or any(node.unknown_unhealthy for node in self.instance.cluster.nodes)
            or any(p.gpus is None for gang in self.instance.gangs for p in gang.running_pods)
        )

    def _standing(self, gang: Gang) -> Entry:
        """The gang as it stands."""
        found = []
        for key in sorted((p.role, p.index) for p in gang.running_pods):
            (pod,) = (p for p in gang.running_pods if (p.role, p.index) == key)
            node = self.instance.cluster.nodes[pod.node or 0].name
            for place in self._places(gang, key):
                gpus = None if pod.gpus is None else [i for i in range(64) if pod.gpus >> i & 1]
                if place and (place["node"], place["gpus"]) == (node, gpus):
                    found.append(place)
        return self._entry(gang, found)

    def _entry(self, gang: Gang, pods: list[Entry]) -> Entry:
        """What must be said of a gang, decision and figures left blank."""
        return {
            "namespace": gang.namespace,
            "name": gang.name,
            "decision": "wait",
            "pods": pods,
            "bandwidthMBps": None,
            "share": None,
            "domains": None,
            "reason": None,
            **self.said.get(gang.key, {}),
        }


def _stands(gang: Gang, role: int) -> int:
    return sum(pod.role == role for pod in gang.running_pods)
