"""Rules of a pod about other pods, as it states them: required anti-affinity and hard spreading.

What is about pods elsewhere by its form, cannot be read, or is more than is read, becomes no rule but a
sentence. Which pods a rule is about: ``planner.read.kube.pod_sets``.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Self

from msgspec import Struct

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
ELSEWHERE = "with namespaceSelector, namespaces, matchLabelKeys or mismatchLabelKeys"
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
    """The name of a kind of rules in ``kubernetes.ignore``, and in words."""

    ANTI_AFFINITY = ("podAntiAffinity", "required podAntiAffinity")
    SPREAD = ("topologySpread", f"topologySpreadConstraints with {HARD}")

    def __init__(self, ignored: str, words: str) -> None:
        self.ignored = ignored
        self.words = words

    def problem(self, what: str) -> Ignorable:
        """Why a rule of this kind is not modelled. ``what`` goes on from the words of the kind."""
        return Ignorable(f"{self.words} {what}", self.ignored)


AFFINITY = "podAffinity"
JOINS = Ignorable(f"required {AFFINITY}", AFFINITY)


@dataclass(frozen=True, slots=True)
class Selector:
    """A label selector of pods of a namespace; equal if it is written alike."""

    namespace: str
    written: str
    tree: Tree = field(compare=False)

    def __str__(self) -> str:
        """Such as ``research/app=trainer``, as kubectl writes it."""
        parts = [
            f"{key}={value}" for key, value in sorted(mapping(self.tree, "matchLabels").items())
        ]
        for one in objects(self.tree, "matchExpressions"):
            key, values = one["key"], ",".join(items(one, "values"))
            parts.append(
                {
                    "In": f"{key} in ({values})",
                    "NotIn": f"{key} notin ({values})",
                    "Exists": key,
                    "DoesNotExist": f"!{key}",
                }[one["operator"]]
            )
        return f"{self.namespace}/{','.join(parts) or '*'}"


class PodRule(Struct, frozen=True):
    """One rule, about the pods that ``selector`` selects. ``key``: the topologyKey.

    ``max_skew``, ``min_domains``: of a spread. ``honors_affinity``, ``honors_taints``: a spread counts only
    nodes that its pod's selector and node affinity match, and whose taints it tolerates.
    """

    kind: RuleKind
    key: str
    selector: Selector
    max_skew: int = 1
    min_domains: int = 1
    honors_affinity: bool = True
    honors_taints: bool = False


class PodRules(Struct):
    """Reads the rules of the pods of one input; pods that state the same share them."""

    ignore: Collection[str]
    # by the identity of trees, which are kept for that, and the namespace
    _selectors: dict[tuple[int, str], tuple[object, Selector | None]] = {}
    _parts: dict[str, int] = {}

    def read(self, spec: Tree, namespace: str) -> tuple[tuple[PodRule, ...], tuple[str, ...]]:
        """The rules, none if any is unread; and why one is, in words."""
        if "affinity" not in spec and "topologySpreadConstraints" not in spec:
            return (), ()
        found: list[PodRule] = []
        faults: list[str] = []
        affinity = mapping(spec, "affinity")
        if items(affinity, AFFINITY, REQUIRED) and AFFINITY not in self.ignore:
            faults.append(JOINS)
        for kind, trees in self._stated(spec, affinity):
            if len(trees) + len(found) > MAX_RULES:
                faults.append(kind.problem(_TOO_MANY))
            elif any(is_elsewhere(tree, namespace) for tree in trees):
                faults.append(kind.problem(ELSEWHERE))
            else:
                read = [self._rule(kind, tree, namespace) for tree in trees]
                if None in read:
                    faults.append(kind.problem(UNREADABLE_RULE))
                found += [one for one in read if isinstance(one, PodRule)]
        return () if faults else tuple(dict.fromkeys(found)), tuple(faults)

    def _stated(self, spec: Tree, affinity: Tree) -> Iterator[tuple[RuleKind, Sequence[object]]]:
        terms = items(affinity, RuleKind.ANTI_AFFINITY.ignored, REQUIRED)
        if terms and RuleKind.ANTI_AFFINITY.ignored not in self.ignore:
            yield RuleKind.ANTI_AFFINITY, terms
        hard = [
            one
            for one in items(spec, "topologySpreadConstraints")
            if not isinstance(one, dict) or one.get("whenUnsatisfiable") != "ScheduleAnyway"
        ]
        if hard and RuleKind.SPREAD.ignored not in self.ignore:
            yield RuleKind.SPREAD, hard

    def _rule(self, kind: RuleKind, tree: object, namespace: str) -> PodRule | bool | None:
        """The rule; False if it is about no pod, None if it cannot be read."""
        selector, key = self.selector(tree, namespace), text(tree, "topologyKey")
        if key is None or selector is None:
            return None
        nobody = at(tree, "labelSelector") is None
        if kind is RuleKind.ANTI_AFFINITY:
            return not nobody and PodRule(kind, key, selector)
        skew = whole(tree, "maxSkew") or 0
        least = 1 if at(tree, "minDomains") is None else whole(tree, "minDomains") or 0
        if skew < 1 or least < 1:
            return None
        return not nobody and PodRule(
            kind,
            key,
            selector,
            min(skew, MAX_SKEW),
            min(least, MAX_SKEW),
            at(tree, "nodeAffinityPolicy") != "Ignore",
            at(tree, "nodeTaintsPolicy") == "Honor",
        )

    def selector(self, tree: object, namespace: str) -> Selector | None:
        """The selector of a term; None if it cannot be read."""
        same = (id(tree), namespace)
        if same not in self._selectors:
            written = mapping(tree, "labelSelector")
            parts = self._parts.get(namespace, 0) + selector_parts(written)
            self._parts[namespace] = parts
            stated = at(tree, "labelSelector")
            fine = isinstance(tree, dict) and (stated is None or is_label_selector(stated))
            kept = {
                name: written[name]
                for name in ("matchLabels", "matchExpressions")
                if written.get(name)
            }
            found = Selector(namespace, json.dumps(kept, sort_keys=True), kept) if fine else None
            self._selectors[same] = (tree, found if parts <= MAX_SELECTOR_PARTS else None)
        return self._selectors[same][1]


def is_elsewhere(tree: object, namespace: str) -> bool:
    """Whether a term selects pods by more than labels in its own namespace."""
    spaces = items(tree, "namespaces")
    keys = (*items(tree, "matchLabelKeys"), *items(tree, "mismatchLabelKeys"))
    selects = at(tree, "namespaceSelector") is not None
    return selects or bool(keys) or any(one != namespace for one in spaces)
