"""Where a pod may go: selectors, affinity, tolerations, and constraints that are not modelled.

A constraint that cannot be read never widens the choice; preferences are ignored, but for wishes to be near
other pods. What a pod may state is bounded. Volumes: ``planner.read.kube.pods.volumes``.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import sha256
from typing import cast

from models.documents.cluster import HOSTNAME_LABEL
from models.documents.gang import NodeExpression, Operator, ToleratedEffect, Toleration
from planner.read.findings import Remarks
from planner.read.kube.lookup import (
    Tree,
    at,
    items,
    mapping,
    objects,
    selector_parts,
    text,
    texts,
)
from planner.read.kube.pods.pod_rules import (
    REQUIRED,
    SELECTORS,
    Ignorable,
    PodRule,
    PodRules,
)
from planner.read.kube.records import KubePod, Objects

SOME_NODES_VOLUME = Ignorable("a volume that only some nodes can mount", "volumeZone")
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"

MAX_TERMS = 100
"""Most terms of a required node affinity, and of a required anti-affinity."""
MAX_EXPRESSIONS = 1_000
"""Most expressions of all its terms."""
MAX_VALUES = 10_000
"""Most values of all its expressions."""
MAX_PARTS = 200_000
"""Most expressions and values of all affinities of a namespace; equal affinities are one."""
FEW_PARTS = 10
"""An affinity with no more of them is not counted."""
MAX_SELECTORS = 100
"""Most labels of a nodeSelector."""
MAX_TOLERATIONS = 100
"""Most tolerations."""

TOO_MANY_TERMS = (
    f"a required nodeAffinity of more than {MAX_TERMS} terms, {MAX_EXPRESSIONS:,} expressions or"
    f" {MAX_VALUES:,} values, or of more than the {MAX_PARTS:,} of its namespace"
)
TOO_MANY_SELECTORS = f"a nodeSelector of more than {MAX_SELECTORS} labels"
TOO_MANY_TOLERATIONS = f"more than {MAX_TOLERATIONS} tolerations"

IMPOSSIBLE = (
    NodeExpression(HOSTNAME_LABEL, "Exists"),
    NodeExpression(HOSTNAME_LABEL, "DoesNotExist"),
)
"""A term that no node matches: of a required affinity none of whose terms can match."""

Term = tuple[NodeExpression, ...]
Affinity = tuple[Term, ...]
Texts = dict[str, str]
Tolerations = tuple[Toleration, ...]
Rules = tuple[PodRule, ...]
Why = tuple[str, ...]

_STATED = ("nodeSelector", "affinity", "tolerations", "topologySpreadConstraints")
"""Besides its RuntimeClass all that says where a pod may go."""


@dataclass(slots=True)
class Constraints:
    """Reads the constraints of the pods of one input. ``ignore``: names that the Policy ignores."""

    input: Objects
    ignore: Collection[str]
    remarks: Remarks
    _affinities: dict[int, tuple[object, Affinity]] = field(default_factory=dict)
    _tolerations: dict[int, tuple[object, tuple[Toleration, ...]]] = field(default_factory=dict)
    _equal: dict[Affinity, Affinity] = field(default_factory=dict)
    _read: dict[tuple[object, ...], tuple[object, Texts, Affinity, Tolerations, Rules, Why]] = (
        field(default_factory=dict)
    )
    _rules: PodRules = field(init=False)

    def __post_init__(self) -> None:
        self._rules = PodRules(self.ignore)

    def read(self, pod: KubePod, spec: Tree) -> None:
        """Set ``selector``, ``affinity``, ``tolerations``, ``rules`` and ``unsupported``.

        ``spec``: without our pin. Pods share the trees that say the same, which are kept for that.
        """
        parts = [spec.get(name) for name in _STATED]
        same = (pod.object.namespace, text(spec, "runtimeClassName"), *map(id, parts))
        if same not in self._read:
            self._set(pod, spec)
            found = (pod.selector, pod.affinity, pod.tolerations, pod.rules, pod.unsupported)
            self._read[same] = (parts, *found)
            return
        _, pod.selector, pod.affinity, pod.tolerations, pod.rules, pod.unsupported = self._read[
            same
        ]
        pod.own_affinity = pod.affinity

    def _set(self, pod: KubePod, spec: Tree) -> None:
        affinity = mapping(spec, "affinity")
        labels = len(mapping(spec, "nodeSelector"))
        pod.selector = texts(spec, "nodeSelector") if labels <= MAX_SELECTORS else {}
        required = at(affinity, "nodeAffinity", REQUIRED)
        terms = objects(required, "nodeSelectorTerms")
        large = exceeds_bounds(terms)
        own = self._read_once(required) if required is not None and not large else ()
        pod.rules, unread = self._rules.read(spec, pod.object.namespace)
        # What is not read in full allows no node.
        unknown = large or labels > MAX_SELECTORS or unread
        pod.affinity = (IMPOSSIBLE,) if unknown else own
        pod.own_affinity = pod.affinity
        tolerations = len(items(spec, "tolerations"))
        pod.tolerations = self._tolerated(spec) if tolerations <= MAX_TOLERATIONS else ()
        odd = len(pod.selector) != labels <= MAX_SELECTORS
        found = (
            ("runtimeClass scheduling", self._is_tied_by_runtime(spec)),
            ("a nodeSelector that cannot be read", odd),
            ("a required nodeAffinity that no node can match", own == (IMPOSSIBLE,)),
            (TOO_MANY_TERMS, large),
            (TOO_MANY_SELECTORS, labels > MAX_SELECTORS),
            (TOO_MANY_TOLERATIONS, tolerations > MAX_TOLERATIONS),
        )
        pod.unsupported = (*unread, *(words for words, holds in found if holds))

    def _read_once(self, required: object) -> Affinity:
        """The affinity of a tree, which pods may share; one object for equal ones."""
        same = id(required)
        if same not in self._affinities:
            found = read_terms(objects(required, "nodeSelectorTerms"))
            self._affinities[same] = (required, self._equal.setdefault(found, found))
        return self._affinities[same][1]

    def _tolerated(self, spec: Tree) -> tuple[Toleration, ...]:
        """The tolerations of a list, which pods may share."""
        same = id(written := spec.get("tolerations"))
        if same not in self._tolerations:
            self._tolerations[same] = (written, read_tolerations(spec))
        return self._tolerations[same][1]

    def _is_tied_by_runtime(self, spec: Tree) -> bool:
        """Whether its RuntimeClass selects nodes that the pod itself does not select."""
        name = text(spec, "runtimeClassName")
        found = self.input.named("node.k8s.io", "RuntimeClass", "", name) if name else None
        if found is None:
            return False
        own = texts(spec, "nodeSelector")
        wanted = texts(found.tree, "scheduling", "nodeSelector")
        return any(own.get(key) != value for key, value in wanted.items())


_LARGE: list[Tree] = [{}] * (MAX_TERMS + 1)


@dataclass(slots=True)
class AffinityStore:
    """What is kept of the affinities of pods while objects are gathered.

    Of ``spec.affinity`` that is what is required, and what is wished about other pods, one object for all
    pods that state the same; of more than is read, only that it is more, and of more wishes nothing.
    """

    _known: dict[bytes, Tree] = field(default_factory=dict)
    _kept: dict[tuple[int, str], tuple[Tree, Tree]] = field(default_factory=dict)
    _parts: dict[str, int] = field(default_factory=dict)
    _wished: dict[str, int] = field(default_factory=dict)
    _wishes: dict[bytes, bool] = field(default_factory=dict)

    def keep(self, affinity: Tree, namespace: str) -> Tree:
        """What is read of an affinity in a namespace; pods share the trees that say the same."""
        same = (id(affinity), namespace)
        if same not in self._kept:
            self._kept[same] = (affinity, self._reduced(affinity, namespace))
        return self._kept[same][1]

    def _reduced(self, affinity: Tree, namespace: str) -> Tree:
        node = at(affinity, "nodeAffinity", REQUIRED)
        kept: Tree = {}
        if node is not None:
            large = exceeds_bounds(objects(node, "nodeSelectorTerms"))
            kept["nodeAffinity"] = {REQUIRED: {"nodeSelectorTerms": _LARGE} if large else node}
        for kind in _ABOUT_PODS:
            if terms := items(affinity, kind, REQUIRED):
                kept[kind] = {REQUIRED: _LARGE if selects_too_much(terms) else terms}
        if (wishes := objects(mapping(affinity, "podAffinity"), PREFERRED)) and self._keeps(
            wishes, namespace
        ):
            kept["podAffinity"] = {**kept.get("podAffinity", {}), PREFERRED: wishes}
        same = sha256(json.dumps(kept, default=str).encode()).digest()
        if same in self._known:
            return self._known[same]
        parts = node_parts(kept) + sum(
            selector_parts(mapping(term, which))
            for kind in _ABOUT_PODS
            for term in items(kept, kind, REQUIRED)
            for which in SELECTORS
        )
        if parts > FEW_PARTS:
            self._parts[namespace] = self._parts.get(namespace, 0) + parts
            if self._parts[namespace] > MAX_PARTS:
                large_ones = {
                    "nodeAffinity": {REQUIRED: {"nodeSelectorTerms": _LARGE}},
                    **{kind: {REQUIRED: _LARGE} for kind in _ABOUT_PODS},
                }
                return {kind: large_ones.get(kind, tree) for kind, tree in kept.items()}
        self._known[same] = kept
        return kept

    def _keeps(self, wishes: Sequence[Tree], namespace: str) -> bool:
        """Whether the wishes of a namespace are still few enough."""
        same = sha256(json.dumps((namespace, wishes), default=str).encode()).digest()
        if same not in self._wishes:
            terms = [mapping(one, "podAffinityTerm") for one in wishes]
            parts = sum(
                selector_parts(mapping(term, which)) for term in terms for which in SELECTORS
            )
            self._wished[namespace] = self._wished.get(namespace, 0) + parts + len(terms)
            few = self._wished[namespace] <= MAX_PARTS
            self._wishes[same] = few and not selects_too_much(terms)
        return self._wishes[same]


_ABOUT_PODS = ("podAffinity", "podAntiAffinity")


def selects_too_much(terms: Sequence[Tree]) -> bool:
    """Whether the terms of an affinity to pods have more parts than are read."""
    return any(exceeds_bounds(terms, which) for which in SELECTORS)


def read_tolerations(spec: Tree) -> tuple[Toleration, ...]:
    """Tolerations, each once; a malformed one tolerates nothing and is left out."""
    found: dict[Toleration, None] = {}
    for entry in objects(spec, "tolerations"):
        values = tuple(entry.get(name) or "" for name in ("key", "operator", "value", "effect"))
        if all(type(value) is str for value in values):
            toleration = _toleration(*values)
            if toleration is not None:
                found[toleration] = None
    return tuple(found)


@lru_cache(maxsize=4096)
def _toleration(key: str, operator: str, value: str, effect: str) -> Toleration | None:
    """None for operators and effects that are not supported."""
    operator = operator or "Equal"
    if effect not in ("", "NoSchedule", "PreferNoSchedule", "NoExecute"):
        return None
    if operator == "Exists":
        return Toleration(key, "Exists", "", cast("ToleratedEffect", effect))
    if operator != "Equal" or not key:
        return None
    return Toleration(key, "Equal", value, cast("ToleratedEffect", effect))


def exceeds_bounds(terms: Sequence[Tree], *path: str) -> bool:
    """Whether terms, with expressions at the path, have more parts than are read."""
    if len(terms) > MAX_TERMS:
        return True
    selectors = [mapping(term, *path) for term in terms]
    expressions = [
        one
        for selector in selectors
        for which in ("matchExpressions", "matchFields")
        for one in items(selector, which)
    ]
    labels = sum(len(mapping(selector, "matchLabels")) for selector in selectors)
    if len(expressions) + labels > MAX_EXPRESSIONS:
        return True
    return sum(len(items(one, "values")) for one in expressions) > MAX_VALUES


def node_parts(affinity: Tree) -> int:
    """Expressions and values of a required node affinity."""
    required = at(affinity, "nodeAffinity", REQUIRED)
    return sum(map(selector_parts, objects(required, "nodeSelectorTerms")))


def read_terms(terms: Iterable[Tree]) -> Affinity:
    """Terms that can match a node; IMPOSSIBLE alone if none can."""
    found = (_read_term(tree) for tree in terms)
    return tuple(dict.fromkeys(term for term in found if term is not None)) or (IMPOSSIBLE,)


def _read_term(tree: Tree) -> Term | None:
    """Expressions of a node selector term; None if it can match no node."""
    found: list[NodeExpression] = []
    for which, field_ in (("matchExpressions", False), ("matchFields", True)):
        for entry in items(tree, which):
            expression = _expression(entry, field_=field_)
            if expression is None:
                return None
            found.append(expression)
    return tuple(found) or None


def _expression(entry: object, *, field_: bool) -> NodeExpression | None:
    key, operator = text(entry, "key"), text(entry, "operator")
    written = items(entry, "values")
    values = tuple(value for value in written if isinstance(value, str))
    if key is None or operator is None or len(values) != len(written):
        return None
    if field_ and key != "metadata.name":
        return None
    if not _is_valid(operator, values, field_=field_):
        return None
    return NodeExpression(key, cast("Operator", operator), values, field_)


def _is_valid(operator: str, values: tuple[str, ...], *, field_: bool) -> bool:
    """Whether the API server accepts the operator with these values."""
    if operator in ("In", "NotIn"):
        return len(values) >= 1
    if field_:
        return False
    if operator in ("Exists", "DoesNotExist"):
        return not values
    return operator in ("Gt", "Lt") and len(values) == 1 and _is_integer(values[0])


def _is_integer(written: str) -> bool:
    digits = written.removeprefix("-").removeprefix("+")
    return digits.isascii() and digits.isdecimal() and len(digits) <= 18
