"""Where a pod may go: selectors, affinity, tolerations, and constraints that are not modelled.

A constraint that cannot be read never widens the choice; preferences are ignored, but for wishes to be near
other pods. What a pod may state is bounded. Volumes: ``planner.read.kube.pods.volumes``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any, cast, get_args

from msgspec import Struct

from models.documents.cluster import HOSTNAME_LABEL
from models.documents.gang import NodeExpression, Operator, ToleratedEffect, Toleration
from planner.read.kube.lookup import (
    Known,
    Tree,
    at,
    is_label_key,
    is_label_value,
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
from planner.read.kube.records import KubeNode, KubePod, Objects

SOME_NODES_VOLUME = Ignorable("a volume that only some nodes can mount", "volumeZone")
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"

MAX_TERMS = 100
"""Most terms of a required node affinity, and of a required anti-affinity."""
MAX_EXPRESSIONS = 1_000
"""Most expressions of all its terms."""
MAX_VALUES = 10_000
"""Most values of all its expressions."""
MAX_VALUE = 2_000
"""Longest value of an expression: that of a document."""
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

_EFFECTS, _OPERATORS = get_args(ToleratedEffect), get_args(Operator)

IMPOSSIBLE = (
    NodeExpression(HOSTNAME_LABEL, "Exists"),
    NodeExpression(HOSTNAME_LABEL, "DoesNotExist"),
)
"""A term that no node matches: of a required affinity none of whose terms can match."""

Term = tuple[NodeExpression, ...]
Affinity = tuple[Term, ...]


class Narrower:
    """Keeps pods to nodes of which more expressions hold; those of one affinity still share one."""

    def __init__(self) -> None:
        self._once = Known()

    def narrow(self, pod: KubePod, more: Term) -> None:
        pod.affinity = self._once.of(narrowed, pod.affinity, more)


def narrowed(affinity: Affinity, more: Term) -> Affinity:
    """The affinity, with more expressions in each of its terms."""
    return tuple((*term, *more) for term in affinity or ((),))


_STATED = ("nodeSelector", "affinity", "tolerations", "topologySpreadConstraints")
"""Besides its RuntimeClass all that says where a pod may go."""


class _Where(Struct, frozen=True):
    """What a spec says of where its pods may be; ``unsupported``: of what is not modelled, in words."""

    selector: dict[str, str]
    affinity: Affinity
    tolerations: tuple[Toleration, ...]
    rules: tuple[PodRule, ...]
    unsupported: tuple[str, ...]


class Constraints:
    """Reads the constraints of the pods of one input; pods share what they state alike.

    ``ignore``: names that the Policy ignores.
    """

    def __init__(self, found: Objects, ignore: Collection[str]) -> None:
        self._input = found
        self._rules = PodRules(ignore)
        self._equal: dict[Affinity, Affinity] = {}
        self._once = Known()
        # by the identity of the parts that state it, which are kept for that
        self._known: dict[tuple[object, ...], tuple[object, _Where]] = {}

    def read(self, pod: KubePod, node: KubeNode | None) -> None:
        """Set ``selector``, ``affinity``, ``tolerations``, ``rules`` and ``unsupported``.

        ``node``: where the pod is. What a run added to pin it there is no wish of it.
        """
        spec, pinned = mapping(pod.object.tree, "spec"), _pinned(pod, node)
        parts = [spec.get(name) for name in _STATED]
        same = (pod.object.namespace, text(spec, "runtimeClassName"), *pinned, *map(id, parts))
        if same not in self._known:
            self._known[same] = (parts, self._read(spec, pod.object.namespace, *pinned))
        found = self._known[same][1]
        pod.selector, pod.tolerations, pod.rules = found.selector, found.tolerations, found.rules
        pod.affinity = pod.own_affinity = found.affinity
        pod.unsupported = found.unsupported

    def _read(
        self, spec: Tree, namespace: str, host: str | None = None, name: str = "", terms: str = ""
    ) -> _Where:
        """``host``, ``name``: our pin, to a hostname or in these terms by name."""
        labels, stated = len(mapping(spec, "nodeSelector")), texts(spec, "nodeSelector")
        stated = {k: v for k, v in stated.items() if is_label_key(k) and is_label_value(v)}
        odd = len(stated) != labels
        if host is not None and stated.get(HOSTNAME_LABEL) == host:
            del stated[HOSTNAME_LABEL]
        required = at(spec, "affinity", "nodeAffinity", REQUIRED)
        large = exceeds_bounds(objects(required, "nodeSelectorTerms"))
        own: Affinity = ()
        if required is not None and not large:
            written, pinned = items(required, "nodeSelectorTerms"), [*map(int, terms.split())]
            own = (
                read_terms(written, name, pinned) if pinned else self._once.of(read_terms, written)
            )
            own = self._equal.setdefault(own, own)
        rules, unread = self._rules.read(spec, namespace)
        listed = items(spec, "tolerations")
        tolerated: tuple[Toleration, ...] = ()
        if len(listed) <= MAX_TOLERATIONS:
            tolerated = self._once.of(read_tolerations, listed)
        plain = tuple(
            one
            for one in tolerated
            if is_label_value(one.value) and (not one.key or is_label_key(one.key))
        )
        found = (
            ("runtimeClass scheduling", self._is_tied_by_runtime(spec)),
            ("a nodeSelector that cannot be read", odd and labels <= MAX_SELECTORS),
            ("a required nodeAffinity that no node can match", own == (IMPOSSIBLE,)),
            ("a toleration that cannot be read", len(plain) < len(tolerated)),
            (TOO_MANY_TERMS, large),
            (TOO_MANY_SELECTORS, labels > MAX_SELECTORS),
            (TOO_MANY_TOLERATIONS, len(listed) > MAX_TOLERATIONS),
        )
        return _Where(
            stated if labels <= MAX_SELECTORS else {},
            # What is not read in full allows no node.
            (IMPOSSIBLE,) if large or labels > MAX_SELECTORS or unread else own,
            tolerated if len(plain) == len(tolerated) else plain,
            rules,
            (*unread, *(words for words, holds in found if holds)),
        )

    def _is_tied_by_runtime(self, spec: Tree) -> bool:
        """Whether its RuntimeClass selects nodes that the pod itself does not select."""
        name = text(spec, "runtimeClassName")
        found = self._input.named("node.k8s.io", "RuntimeClass", "", name) if name else None
        if found is None:
            return False
        own = texts(spec, "nodeSelector")
        wanted = texts(found.tree, "scheduling", "nodeSelector")
        return any(own.get(key) != value for key, value in wanted.items())


def _pinned(pod: KubePod, node: KubeNode | None) -> tuple[()] | tuple[str | None, str, str]:
    """What a run added to the spec of a pod that it started there: a hostname, or a name in terms."""
    start = pod.start
    if node is None or pod.mode is not None or start is None or start.pod.node != node.name:
        return ()
    if start.pod.pin == "hostname":
        return (node.labels.get(HOSTNAME_LABEL), "", "")
    return (None, node.name, start.pod.pin.partition(" ")[2])


_LARGE: list[Tree] = [{}] * (MAX_TERMS + 1)


class AffinityStore(Struct):
    """What is kept of the affinities of pods while objects are gathered.

    Of ``spec.affinity`` that is what is required, and what is wished about other pods, one object for all
    pods that state the same; of more than is read, only that it is more, and of more wishes nothing.
    """

    # by identity: reading makes equal parts of objects one
    _kept: dict[tuple[int, str], tuple[Tree, Tree]] = {}
    _parts: dict[str, int] = {}

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
        parts = node_parts(kept)
        for kind in _ABOUT_PODS:
            if terms := items(affinity, kind, REQUIRED):
                large = selects_too_much(terms)
                kept[kind] = {REQUIRED: _LARGE if large else terms}
                parts += 0 if large else _parts(terms)
        wishes = objects(mapping(affinity, "podAffinity"), PREFERRED)
        about = [mapping(one, "podAffinityTerm") for one in wishes]
        if wishes and not selects_too_much(about):
            kept["podAffinity"] = {**kept.get("podAffinity", {}), PREFERRED: wishes}
            parts += len(about) + _parts(about)
        if parts > FEW_PARTS:
            self._parts[namespace] = self._parts.get(namespace, 0) + parts
            if self._parts[namespace] > MAX_PARTS:
                nodes = {"nodeSelectorTerms": _LARGE}
                return {
                    kind: {REQUIRED: nodes if kind == "nodeAffinity" else _LARGE}
                    for kind in kept
                    if REQUIRED in kept[kind]
                }
        return kept


def _parts(terms: Iterable[object]) -> int:
    return sum(selector_parts(mapping(term, which)) for term in terms for which in SELECTORS)


_ABOUT_PODS = ("podAffinity", "podAntiAffinity")


def selects_too_much(terms: Sequence[Tree]) -> bool:
    """Whether the terms of an affinity to pods have more parts than are read."""
    return any(exceeds_bounds(terms, which) for which in SELECTORS)


def read_tolerations(written: object) -> tuple[Toleration, ...]:
    """Tolerations, each once; a malformed one tolerates nothing and is left out."""
    found: dict[Toleration, None] = {}
    for entry in objects(written):
        stated: list[Any] = [
            entry.get(name) or "" for name in ("key", "operator", "value", "effect")
        ]
        if not all(type(one) is str for one in stated) or stated[3] not in _EFFECTS:
            continue
        key, operator, value, effect = stated
        if operator == "Exists":
            found[Toleration(key, "Exists", "", effect)] = None
        elif operator in ("", "Equal") and key:
            found[Toleration(key, "Equal", value, effect)] = None
    return tuple(found)


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


def read_terms(terms: Iterable[object], name: str = "", pinned: Collection[int] = ()) -> Affinity:
    """Terms that can match a node; IMPOSSIBLE alone if none can.

    ``pinned``: of terms to which a run added the name of a node. One of nothing else was added, too.
    """
    found = [_read_term(tree) for tree in terms]
    added = NodeExpression("metadata.name", "In", (name,), field=True)
    for i in pinned:
        if i < len(found):
            found[i] = tuple(one for one in found[i] or () if one != added)
    if found == [()]:
        return ()
    return tuple(dict.fromkeys(filter(None, found))) or (IMPOSSIBLE,)


def _read_term(tree: object) -> Term | None:
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
    """None for what the API server refuses."""
    key, operator = text(entry, "key"), text(entry, "operator")
    written = items(entry, "values")
    values = tuple(value for value in written if isinstance(value, str))
    if key is None or operator not in _OPERATORS or len(values) != len(written):
        return None
    if not is_label_key(key) or any(len(v) > MAX_VALUE or not v.isprintable() for v in values):
        return None
    found = NodeExpression(key, cast("Operator", operator), values, field_)
    return None if any(found.field_errors()) else found
