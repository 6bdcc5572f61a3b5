"""Random plans near the best one of a tiny instance: the judge's word is the only rule and the only value.

Promises: nothing of the formulation or of evaluating, and of the exhaustive planner only who could start
where nothing runs. Called by the comparison of the judge with trying every plan.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from random import Random
from typing import Any

from building import instance_document
from exhaustive_queues import could_start, could_start_now

from models.documents.base import digest
from models.documents.plan import GangKey
from models.instance.gang import Gang
from models.instance.instance import Instance
from models.instance.solution import GangDecision
from models.verify.check import check, derive
from models.verify.judged_rules import guards

Entry = dict[str, Any]
"""What a plan document says of one gang."""

Values = tuple[tuple[str, int], ...]

_NAMES = list(guards())
BROKEN = frozenset(_NAMES[: _NAMES.index("gpu-count")]) - {"digest"}
"""Rules of the document's form: no plan made here may break them."""
FEASIBLE = frozenset(_NAMES[_NAMES.index("gpu-count") : _NAMES.index("decision")])
"""Rules of what may be done; the rest is about what a plan says of itself."""


class Shaken:
    """``said``: what every plan says of gangs besides, by namespace and name."""

    def __init__(self, instance: Instance, said: Mapping[GangKey, Entry] | None = None) -> None:
        self.instance, self.said = instance, said or {}
        document = instance_document(instance)
        unable = [
            {"gang": "/".join(gang.key), "proven": True, "now": could_start(instance, g)}
            for g, gang in enumerate(instance.gangs)
            if instance.queues and not gang.running_pods and gang.hold is None
            if not could_start_now(instance, g)
        ]
        search = {"solver": "none", "seed": 0, "effort": 0, "stoppedBy": "proof"}
        self.document: dict[str, Any] = {
            "apiVersion": "gangplan.dev/v1alpha1",
            "kind": "Plan",
            "metadata": {"name": "p", "createdAt": "2026-11-21T00:00:00Z", "generator": "test"},
            "instance": document,
            "status": {
                "outcome": "optimal",
                "objectives": [],
                "search": search,
                "notes": [],
                "unable": unable,
                "digests": {"instance": digest(document), "spec": digest({})},
            },
        }

    def plans(self, decisions: Sequence[GangDecision], seed: int, steps: int) -> Iterator[Values]:
        """Tiers of plans that pass, each one or two gangs away from the one before, or from this one."""
        r = Random(seed)
        best = [
            self._as_decided(*pair) for pair in zip(self.instance.gangs, decisions, strict=True)
        ]
        current = best
        for _ in range(steps):
            other = list(r.choice((best, current)))
            for g in r.sample(range(len(other)), min(len(other), r.choice((1, 1, 2)))):
                other[g] = self._anyhow(r, self.instance.gangs[g], other[g])
            if (found := self._valued(other)) is not None:
                current = other
                yield found

    def worth(self, decisions: Sequence[GangDecision]) -> Values | None:
        """Tiers of a plan, None where the judge refuses what it does."""
        pairs = zip(self.instance.gangs, decisions, strict=True)
        return self._valued([self._as_decided(*pair) for pair in pairs])

    def _valued(self, entries: Sequence[Entry]) -> Values | None:
        document = {**self.document, "spec": {"gangs": list(entries)}}
        found = check(document)
        assert not [v for v in found if v.rule in BROKEN], found
        broken = any(v.rule in FEASIBLE for v in found)
        return None if broken else tuple(derive(document).items())

    def _as_decided(self, gang: Gang, decision: GangDecision) -> Entry:
        pods = []
        for pod in decision.pods:
            gpus = None if pod.gpus is None else [i for i in range(64) if pod.gpus >> i & 1]
            gpus = gpus if gang.roles[pod.role].gpus else []
            pods.append(self._pod(gang, (pod.role, pod.index), pod.node, gpus))
        return self._entry(gang, pods)

    def _anyhow(self, r: Random, gang: Gang, entry: Entry) -> Entry:
        """The gang without pods, or with one of its sizes, each pod where it was, or anywhere."""
        if r.random() < 0.2:
            return self._entry(gang, [])
        names = [role.name for role in gang.roles]
        known = {(names.index(pod["role"]), pod["index"]): pod for pod in entry["pods"]}
        kept = r.choice((0.0, 0.5, 0.9))
        pods = []
        for number, role in enumerate(gang.roles):
            for index in role.indices(r.choice(role.allowed_counts())):
                if (pod := known.get((number, index))) and r.random() < kept:
                    pods.append(pod)
                    continue
                able = [
                    n
                    for n, node in enumerate(self.instance.cluster.nodes)
                    if node.gpus >= role.gpus
                ]
                n = r.choice(able)
                sets = list(combinations(range(self.instance.cluster.nodes[n].gpus), role.gpus))
                named = not (role.gpus and self._doubts and r.random() < 0.3)
                pods.append(
                    self._pod(gang, (number, index), n, list(r.choice(sets)) if named else None)
                )
        return self._entry(gang, pods)

    def _pod(self, gang: Gang, key: tuple[int, int], n: int, gpus: list[int] | None) -> Entry:
        role = gang.roles[key[0]].name
        found: Entry = {"name": f"{gang.name}-{role}-{key[1]}", "role": role, "index": key[1]}
        for pod in gang.pods:
            if (pod.role, pod.index) == key:
                found |= {"name": pod.name} | ({} if pod.uid is None else {"uid": pod.uid})
        return {**found, "node": self.instance.cluster.nodes[n].name, "gpus": gpus}

    @property
    def _doubts(self) -> bool:
        """Whether any GPU anywhere may be given without its name."""
        return (
            self.instance.policy.gpu_binding == "none"
            or any(node.unknown_unhealthy for node in self.instance.cluster.nodes)
            or any(p.gpus is None for gang in self.instance.gangs for p in gang.running_pods)
        )

    def _entry(self, gang: Gang, pods: list[Entry]) -> Entry:
        """What must be said of a gang, decision and figures left blank."""
        blank = dict.fromkeys(("bandwidthMBps", "share", "domains", "reason"))
        own = {"namespace": gang.namespace, "name": gang.name, "decision": "wait", "pods": pods}
        return {**own, **blank, **self.said.get(gang.key, {})}


def rank(values: Values) -> tuple[int, ...]:
    """Larger is better."""
    return tuple(
        -v if name in ("disruption", "span", "stranded", "stability") else v for name, v in values
    )
