"""Pods and nodes as numbers, so that selectors find them as bit masks.

Work grows with what selectors state plus what pods and nodes have, not with their product.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

from models.documents.cluster import HOSTNAME_LABEL
from models.documents.gang import NodeExpression
from models.instance.gang import NodeAffinity, holds
from planner.read.kube.lookup import LabelSets, Tree, bits, mapping, mask_key, objects, union
from planner.read.kube.records import KubeNode, KubePod, Objects

NAMESPACE_LABEL = "kubernetes.io/metadata.name"


class PodKinds:
    """Pods; those of one namespace with equal labels are of one kind, and have one number.

    ``keys``: labels that count; None: all.
    """

    def __init__(
        self, pods: Iterable[KubePod], found: Objects, keys: Collection[str] | None = None
    ) -> None:
        self.numbers: dict[tuple[str, frozenset[tuple[str, str]]], int] = {}
        self.of: list[tuple[KubePod, int]] = []
        for pod in pods:
            labels = pod.labels.items()
            named = labels if keys is None else (one for one in labels if one[0] in keys)
            same = (pod.object.namespace, frozenset(named))
            self.of.append((pod, self.numbers.setdefault(same, len(self.numbers))))
        self.labels = LabelSets([dict(labels) for _, labels in self.numbers])
        self.inside: dict[str, int] = {}
        for (namespace, _), number in self.numbers.items():
            self.inside[namespace] = self.inside.get(namespace, 0) | 1 << number
        self.namespaces = list(self.inside)
        described = [found.named("", "Namespace", "", name) for name in self.namespaces]
        self.namespace_labels = LabelSets(
            [
                {**({} if one is None else one.labels), NAMESPACE_LABEL: name}
                for name, one in zip(self.namespaces, described, strict=True)
            ]
        )
        self.unknown = sum(1 << number for number, one in enumerate(described) if one is None)

    def selected(
        self,
        selector: Tree,
        namespaces: Iterable[str],
        of_namespaces: Tree | None,
        *,
        unknown: bool = True,
    ) -> int:
        """Kinds that a selector selects in these namespaces, and in those that a selector selects.

        ``unknown``: whether a namespace that is not in the input counts as selected, where its name does not
        decide.
        """
        found = self.labels.matching(selector)
        return found and found & self._covered(namespaces, of_namespaces, unknown=unknown)

    def _covered(self, listed: Iterable[str], selector: Tree | None, *, unknown: bool) -> int:
        covered = union(self.inside.get(one, 0) for one in listed)
        if selector is None:
            return covered
        if not selector:
            return self.labels.all
        by_name = _by_name(selector)
        chosen = self.namespace_labels.matching(selector)
        if by_name != selector:
            chosen &= ~self.unknown
            chosen |= self.unknown & self.namespace_labels.matching(by_name) if unknown else 0
        return covered | union(self.inside[self.namespaces[number]] for number in bits(chosen))


def _by_name(selector: Tree) -> Tree:
    """What a selector of namespaces says of their names, which the API server writes into a label."""
    labels = mapping(selector, "matchLabels")
    found: Tree = {}
    if NAMESPACE_LABEL in labels:
        found["matchLabels"] = {NAMESPACE_LABEL: labels[NAMESPACE_LABEL]}
    more = objects(selector, "matchExpressions")
    if named := [one for one in more if one.get("key") == NAMESPACE_LABEL]:
        found["matchExpressions"] = named
    return found


class Population(PodKinds):
    """Pods of roles, and bound pods of no gang, that exist. Sets of kinds are bit masks.

    ``roles``: the pods of each. ``terminating``: kinds of pods that leave. ``keys``: as above.
    """

    def __init__(
        self,
        roles: Sequence[Sequence[KubePod]],
        pods: Iterable[KubePod],
        found: Objects,
        keys: Collection[str],
    ) -> None:
        members = {pod.key: n for n, own in enumerate(roles) for pod in own}
        there = (pod for pod in pods if pod.key in members or (pod.bound and pod.node is not None))
        super().__init__((pod for pod in there if pod.finished is None), found, keys)
        self.terminating = 0
        self._of_role = [0] * len(roles)
        self._roles: dict[int, set[int]] = {}
        self._loose: dict[int, Counter[str]] = {}
        for pod, kind in self.of:
            if pod.key in members:
                self._of_role[members[pod.key]] |= 1 << kind
                self._roles.setdefault(kind, set()).add(members[pod.key])
            else:
                self._loose.setdefault(kind, Counter())[str(pod.node)] += 1
            if pod.terminating and pod.node is not None:
                self.terminating |= 1 << kind
        self._with_loose = union(1 << kind for kind in self._loose)
        self._roles_in: dict[bytes, tuple[int, ...]] = {}
        self._loose_in: dict[bytes, Counter[str]] = {}
        self._torn: dict[bytes, bool] = {}

    def weight(self, kinds: int) -> int:
        """Roles and nodes that have pods of these kinds, once for each kind."""
        roles = sum(len(self._roles.get(kind, ())) for kind in bits(kinds))
        return roles + sum(len(self._loose[kind]) for kind in bits(kinds & self._with_loose))

    def roles_in(self, kinds: int) -> tuple[int, ...]:
        """Numbers of the roles with pods of these kinds."""
        key = mask_key(kinds)
        if key not in self._roles_in:
            found = {n for kind in bits(kinds) for n in self._roles.get(kind, ())}
            self._roles_in[key] = tuple(sorted(found))
        return self._roles_in[key]

    def loose_in(self, kinds: int) -> Counter[str]:
        """Pods of no gang of these kinds, by node."""
        key = mask_key(kinds)
        if key not in self._loose_in:
            found = self._loose_in.setdefault(key, Counter())
            for kind in bits(kinds & self._with_loose):
                found.update(self._loose[kind])
        return self._loose_in[key]

    def is_torn(self, kinds: int) -> bool:
        """Whether some pods of a role are of these kinds and others are not."""
        key = mask_key(kinds)
        if key not in self._torn:
            self._torn[key] = any(self._of_role[n] & ~kinds for n in self.roles_in(kinds))
        return self._torn[key]

    def is_own(self, role: int, kinds: int) -> bool:
        """Whether no pods but those of one role are of these kinds."""
        return self.roles_in(kinds) == (role,) and not self.loose_in(kinds)


class NodeMasks:
    """Nodes in order, as bits. ``installed``: those with GPUs."""

    def __init__(self, nodes: Sequence[KubeNode]) -> None:
        self.sets = LabelSets([{HOSTNAME_LABEL: node.name, **node.labels} for node in nodes])
        self.all = self.sets.all
        self.number = {node.name: number for number, node in enumerate(nodes)}
        self.installed = union(1 << n for n, node in enumerate(nodes) if node.installed)
        self._by_value: dict[str, dict[str, int]] = {}
        self._matching: dict[tuple[object, ...], tuple[NodeAffinity, int]] = {}

    def having(self, key: str) -> int:
        """Nodes with this label."""
        return self.sets.having(key)

    def by_value(self, key: str) -> dict[str, int]:
        """Nodes with each value of this label."""
        if key not in self._by_value:
            self._by_value[key] = self.sets.by_value(key)
        return self._by_value[key]

    def matching(self, selector: Mapping[str, str], affinity: NodeAffinity) -> int:
        """Nodes that a node selector and any term of an affinity match."""
        same = (tuple(sorted(selector.items())), id(affinity))
        if same not in self._matching:
            found = self.sets.matching({"matchLabels": selector})
            if affinity:
                found &= union(self._term(term) for term in affinity)
            self._matching[same] = (affinity, found)  # the affinity keeps its id
        return self._matching[same][1]

    def _term(self, term: Sequence[NodeExpression]) -> int:
        found = self.all
        for one in term:
            found &= self._expression(one)
        return found

    def _expression(self, one: NodeExpression) -> int:
        if one.field:
            known = {name: 1 << number for name, number in self.number.items()}
        else:
            known = self.by_value(one.key)
        if one.operator in ("In", "NotIn"):
            listed = union(known[value] for value in one.values if value in known)
            return listed if one.operator == "In" else self.all & ~listed
        found = union(mask for value, mask in known.items() if holds(one, value))
        return found | (self.all & ~self.having(one.key) if holds(one, None) else 0)
