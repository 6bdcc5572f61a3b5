"""What a pod prefers about other pods: preferred podAffinity, which other preferences are not read.

A wish that cannot be read, or is one of too many, is none. Which gangs it is about:
``planner.read.kube.pod_sets``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from planner.read.kube.lookup import Tree, items, mapping, objects, text, whole
from planner.read.kube.pods.pod_rules import PodRules, PodTerm, RuleKind

PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"

MAX_WISHES = 20
"""Most terms of a preferred podAffinity; of more none is read."""


@dataclass(frozen=True, slots=True)
class Wish:
    """Beside the pods of a term, in one domain of the label ``key``. ``weight``: 1 to 100."""

    weight: int
    key: str
    term: PodTerm


def wished(affinity: Tree) -> Sequence[Tree]:
    """The terms of a preferred podAffinity that are read."""
    found = items(affinity, RuleKind.AFFINITY.ignored, PREFERRED)
    return (
        objects(mapping(affinity, RuleKind.AFFINITY.ignored), PREFERRED)
        if len(found) <= MAX_WISHES
        else ()
    )


@dataclass(slots=True)
class Wishes:
    """Reads the wishes of the pods of one input; what they select is bounded apart from rules."""

    ignore: Collection[str]
    _terms: PodRules = field(default_factory=lambda: PodRules(()))
    _known: dict[tuple[Wish, ...], tuple[Wish, ...]] = field(default_factory=dict)

    def read(self, spec: Tree, namespace: str, labels: Mapping[str, str]) -> tuple[Wish, ...]:
        """The wishes of a pod, those of most weight first."""
        trees = wished(mapping(spec, "affinity"))
        if not trees or RuleKind.AFFINITY.ignored in self.ignore:
            return ()
        found = []
        for tree in trees:
            stated = mapping(tree, "podAffinityTerm")
            key = text(stated, "topologyKey")
            term = self._terms.term(stated, namespace, labels, alone=False)
            if key is not None and term is not None and term.selector is not None:
                found.append(Wish(whole(tree, "weight") or 1, key, term))
        found.sort(key=lambda wish: -wish.weight)
        return self._known.setdefault(tuple(found), tuple(found))
