"""Rules of a pod about other pods, as it states them: required affinity, anti-affinity, hard spreading.

What cannot be read, or is more than is read, becomes no rule but a sentence. Which pods a rule is about:
``planner.read.kube.pod_sets``.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Self

from planner.read.kube.lookup import (
    Tree,
    at,
    is_label_selector,
    items,
    mapping,
    objects,
    selector_parts,
    text,
    whole,
)

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
HARD = "DoNotSchedule"
SELECTORS = ("labelSelector", "namespaceSelector")
"""The selectors of a term of an affinity to pods."""

MAX_RULES = 20
"""Most rules of a pod about other pods."""
_TOO_MANY = f"of more than {MAX_RULES} terms, with all rules of the pod about others"
UNREADABLE_RULE = "that cannot be read, or with the others of its namespace is too long"
MAX_SELECTOR_PARTS = 200_000
"""Most labels, expressions and values in the selectors of the different rules of a namespace."""
MAX_SKEW = 1_000_000
"""Largest maxSkew and minDomains: those of a document."""


class Ignorable(str):
    """Words for what is not modelled. ``setting``: its name in ``kubernetes.ignore``, which ignores it."""

    __slots__ = ("setting",)
    setting: str

    def __new__(cls, words: str, setting: str) -> Self:
        one = super().__new__(cls, words)
        one.setting = setting
        return one


class RuleKind(Enum):
    """The name of a kind of rules in a Role, in ``kubernetes.ignore``, and in words."""

    ANTI_AFFINITY = ("antiAffinity", "podAntiAffinity", "required podAntiAffinity")
    AFFINITY = ("affinity", "podAffinity", "required podAffinity")
    SPREAD = ("spread", "topologySpread", f"topologySpreadConstraints with {HARD}")

    def __init__(self, document: str, ignored: str, words: str) -> None:
        self.document = document
        self.ignored = ignored
        self.words = words

    def problem(self, what: str) -> Ignorable:
        """Why a rule of this kind is not modelled. ``what`` goes on from the words of the kind."""
        return Ignorable(f"{self.words} {what}", self.ignored)


@dataclass(frozen=True, slots=True)
class Selector:
    """A label selector; equal if it is written alike."""

    written: str
    tree: Tree = field(compare=False)


@dataclass(frozen=True, slots=True)
class PodTerm:
    """Pods that a selector selects in these namespaces, and in those that ``of_namespaces`` selects.

    ``selector``: None selects no pod.
    """

    selector: Selector | None
    namespaces: tuple[str, ...]
    of_namespaces: Selector | None = None

    def __str__(self) -> str:
        """Such as ``research/app=trainer``."""
        where = ",".join(self.namespaces)
        if self.of_namespaces is not None:
            where = ",".join(filter(None, [where, _shown(self.of_namespaces.tree) or "*"]))
        return f"{where}/{_shown({} if self.selector is None else self.selector.tree) or '*'}"


@dataclass(frozen=True, slots=True)
class PodRule:
    """One rule. ``terms``: it is about the pods that all of them select. ``key``: the topologyKey.

    ``max_skew``, ``min_domains``: of a spread. ``honors_affinity``, ``honors_taints``: a spread counts only
    nodes that its pod's selector and node affinity match, and whose taints it tolerates.
    """

    kind: RuleKind
    key: str
    terms: tuple[PodTerm, ...]
    max_skew: int = 1
    min_domains: int = 1
    honors_affinity: bool = True
    honors_taints: bool = False


@dataclass(slots=True)
class PodRules:
    """Reads the rules of the pods of one input; pods that state the same share them."""

    ignore: Collection[str]
    # by the identity of trees, which are kept for that, and what a label or namespace adds to them
    _terms: dict[tuple[object, ...], tuple[Tree, PodTerm | None]] = field(default_factory=dict)
    _known: dict[tuple[PodRule, ...], tuple[PodRule, ...]] = field(default_factory=dict)
    _parts: dict[str, int] = field(default_factory=dict)

    def read(
        self, spec: Tree, namespace: str, labels: Mapping[str, str]
    ) -> tuple[tuple[PodRule, ...], tuple[str, ...]]:
        """The rules, none if any is unread; and why one is, in words."""
        if "affinity" not in spec and "topologySpreadConstraints" not in spec:
            return (), ()
        found: list[PodRule] = []
        faults: list[str] = []
        for kind, trees in self._stated(spec):
            if len(trees) + len(found) > MAX_RULES:
                faults.append(kind.problem(_TOO_MANY))
                continue
            read = (
                list(self._spread(trees, namespace, labels))
                if kind is RuleKind.SPREAD
                else self._affinity(kind, trees, namespace, labels)
            )
            if None in read:
                faults.append(kind.problem(UNREADABLE_RULE))
            found += [one for one in read if one is not None]
        rules = () if faults else tuple(dict.fromkeys(found))
        return self._known.setdefault(rules, rules), tuple(faults)

    def _stated(self, spec: Tree) -> Iterator[tuple[RuleKind, Sequence[object]]]:
        affinity = mapping(spec, "affinity")
        for kind in (RuleKind.ANTI_AFFINITY, RuleKind.AFFINITY):
            terms = items(affinity, kind.ignored, REQUIRED)
            if terms and kind.ignored not in self.ignore:
                yield kind, terms
        hard = [
            one
            for one in items(spec, "topologySpreadConstraints")
            if not isinstance(one, dict) or one.get("whenUnsatisfiable") != "ScheduleAnyway"
        ]
        if hard and RuleKind.SPREAD.ignored not in self.ignore:
            yield RuleKind.SPREAD, hard

    def _affinity(
        self, kind: RuleKind, trees: Sequence[object], namespace: str, labels: Mapping[str, str]
    ) -> list[PodRule | None]:
        """Terms of an affinity are about the pods that all of them select, as kube-scheduler counts."""
        keys = [text(tree, "topologyKey") for tree in trees]
        terms = [self.term(tree, namespace, labels, alone=False) for tree in trees]
        every = tuple(dict.fromkeys(term for term in terms if term is not None))
        together = kind is RuleKind.AFFINITY
        return [
            None
            if key is None or term is None
            else PodRule(kind, key, every if together else (term,))
            for key, term in zip(keys, terms, strict=True)
        ]

    def _spread(
        self, trees: Sequence[object], namespace: str, labels: Mapping[str, str]
    ) -> Iterator[PodRule | None]:
        for tree in trees:
            term = self.term(tree, namespace, labels, alone=True)
            key, skew = text(tree, "topologyKey"), whole(tree, "maxSkew") or 0
            least = 1 if at(tree, "minDomains") is None else whole(tree, "minDomains") or 0
            if term is None or key is None or skew < 1 or least < 1:
                yield None
                continue
            yield PodRule(
                RuleKind.SPREAD,
                key,
                (term,),
                min(skew, MAX_SKEW),
                min(least, MAX_SKEW),
                at(tree, "nodeAffinityPolicy") != "Ignore",
                at(tree, "nodeTaintsPolicy") == "Honor",
            )

    def term(
        self, tree: object, namespace: str, labels: Mapping[str, str], *, alone: bool
    ) -> PodTerm | None:
        """The pods of a term; None if it cannot be read. ``alone``: it knows no namespaces."""
        if not isinstance(tree, dict):
            return None
        keys = [
            (operator, key, labels.get(key) if isinstance(key, str) else None)
            for name, operator in (("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn"))
            for key in items(tree, name)
        ]
        same = (id(tree), namespace, tuple(value for _, _, value in keys))
        if same not in self._terms:
            # As the API server does, which writes them into the selector of an affinity.
            own = [
                {"key": key, "operator": operator, "values": [value]}
                for operator, key, value in keys
                if value is not None
            ]
            parts = sum(selector_parts(mapping(tree, which)) for which in SELECTORS) + len(own)
            self._parts[namespace] = self._parts.get(namespace, 0) + parts
            short = self._parts[namespace] <= MAX_SELECTOR_PARTS
            self._terms[same] = (tree, _term(tree, namespace, own, alone=alone) if short else None)
        return self._terms[same][1]


def _term(tree: Tree, namespace: str, own: Sequence[Tree], *, alone: bool) -> PodTerm | None:
    written, chosen = tree.get("labelSelector"), tree.get("namespaceSelector")
    selector = None
    if written is not None:
        if not is_label_selector(written):
            return None
        more = [*objects(written, "matchExpressions"), *own]
        selector = _selector({**written, "matchExpressions": more} if own else written)
    if alone:
        return PodTerm(selector, (namespace,))
    listed = items(tree, "namespaces")
    if any(not isinstance(one, str) for one in listed):
        return None
    if chosen is None:
        return PodTerm(selector, tuple(sorted(set(listed))) or (namespace,))
    if not is_label_selector(chosen):
        return None
    return PodTerm(selector, tuple(sorted(set(listed))), _selector(chosen))


def _selector(tree: Tree) -> Selector:
    kept = {name: tree[name] for name in ("matchLabels", "matchExpressions") if tree.get(name)}
    return Selector(json.dumps(kept, sort_keys=True), kept)


def _shown(selector: Tree) -> str:
    """A selector as kubectl writes it: ``app=trainer,tier in (a,b)``."""
    parts = [f"{key}={value}" for key, value in sorted(mapping(selector, "matchLabels").items())]
    for one in objects(selector, "matchExpressions"):
        key, values = one["key"], ",".join(items(one, "values"))
        parts.append(
            {
                "In": f"{key} in ({values})",
                "NotIn": f"{key} notin ({values})",
                "Exists": key,
                "DoesNotExist": f"!{key}",
            }[one["operator"]]
        )
    return ",".join(parts)
