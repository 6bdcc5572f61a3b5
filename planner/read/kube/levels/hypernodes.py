"""Volcano HyperNodes: trees of nodes in tiers, to one column a tier.

Promises: a tier means what Volcano means by it: pods within one HyperNode of that tier or a lower
one; bounded work whatever the objects hold; odd members are passed over with a remark.
Called by ``levels``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from models.units import InvalidValueError
from planner.read.findings import Remarks
from planner.read.kube.levels.columns import Column, Found, is_name
from planner.read.kube.levels.patterns import compiled
from planner.read.kube.lookup import Tree, mapping, objects, text, texts, whole
from planner.read.kube.records import KubeNode, KubeObject, LevelAsk, Objects

GROUP = "topology.volcano.sh"
MAX_MEMBERS = 2_000_000
"""Most (HyperNode, node) pairs that are looked at."""
MAX_WORK = 2_000_000
"""Most steps that all patterns of a reading take together: a second or two."""
MAX_TIERS = 16
"""Most tiers: the lowest count."""

_IGNORED = "a member that is not understood: ignored"


@dataclass(frozen=True, slots=True)
class Tiers:
    """The tiers there are, ascending, each with its column; ``names``: tier names to tiers."""

    columns: Mapping[int, Column] = field(default_factory=dict)
    names: Mapping[str, int] = field(default_factory=dict)

    def tier(self, ask: LevelAsk) -> int | None:
        """The tier a gang may spread over: the highest there is up to the one it names."""
        tier = ask.tier
        if ask.tier_name is not None:
            tier = self.names.get(ask.tier_name)
        if tier is None or not self.columns:
            return None
        if tier == 0:
            return min(self.columns)
        return max((one for one in self.columns if one <= tier), default=None)

    def found(self) -> Found:
        """The tiers as levels, widest first."""
        return Found("HyperNodes", tuple(self.columns[tier] for tier in sorted(self.columns)[::-1]))


def read_tiers(gathered: Objects, nodes: Sequence[KubeNode], remarks: Remarks) -> Tiers:
    """The tiers of all HyperNodes; without any, none."""
    by_tier: dict[int, list[KubeObject]] = {}
    for one in gathered.of("HyperNode", GROUP):
        tier = whole(one.tree, "spec", "tier")
        if tier is None or tier < 0:
            remarks.add(one.where, "spec.tier is no number of a tier: ignored")
        elif not is_name(one.name):
            remarks.add(one.where, "its name cannot name a domain: ignored")
        else:
            by_tier.setdefault(tier, []).append(one)
    members = _Members(nodes, remarks)
    inside: dict[int, dict[str, str]] = {}
    for tier in sorted(by_tier)[MAX_TIERS:]:
        for one in by_tier.pop(tier):
            remarks.add(one.where, f"more than {MAX_TIERS} tiers: this one is ignored")
    for tier in sorted(by_tier):
        ordered = sorted(by_tier[tier], key=lambda one: one.name)
        found = [(one, members.of(one)) for one in ordered]
        inside[tier] = _values(found, remarks)
        members.learn({one.name: names for one, names in found})
    return Tiers(_columns(inside), _names(by_tier, remarks))


def _values(found: Iterable[tuple[KubeObject, list[str]]], remarks: Remarks) -> dict[str, str]:
    """Node to HyperNode at one tier; a node in two of them is in the first by name."""
    values: dict[str, str] = {}
    for one, names in found:
        shared = [name for name in names if values.setdefault(name, one.name) != one.name]
        if shared:
            what = "shares nodes with another HyperNode of its tier: they count for the first"
            remarks.add(one.where, what)
    return values


def _columns(inside: Mapping[int, Mapping[str, str]]) -> dict[int, Column]:
    """A column a tier. Where a node has none at a tier, the nearest below it stands in.

    A HyperNode of tier 1 that is in none of tier 2 is a place of its own at tier 2.
    """
    result: dict[int, Column] = {}
    below: Mapping[str, str] = {}
    for tier in sorted(inside):
        values = {**below, **inside[tier]}
        if values:
            result[tier] = Column(f"hypernode-tier-{tier}", values, tiers=(tier,))
        below = values
    return result


def _names(by_tier: Mapping[int, Sequence[KubeObject]], remarks: Remarks) -> dict[str, int]:
    """Tier names to tiers; one name for two tiers means the lower one."""
    names: dict[str, int] = {}
    for tier in sorted(by_tier):
        for one in by_tier[tier]:
            name = text(one.tree, "spec", "tierName")
            if name is not None and names.setdefault(name, tier) != tier:
                what = "its tierName is also that of a lower tier, which the name then means"
                remarks.add(one.where, what)
    return names


class _Members:
    """Members of HyperNodes, resolved to nodes; HyperNodes are met from the lowest tier up."""

    def __init__(self, nodes: Sequence[KubeNode], remarks: Remarks) -> None:
        self.nodes = nodes
        self.position = {node.name: i for i, node in enumerate(nodes)}
        self.sorted = sorted(self.position)
        self.remarks = remarks
        self.known: dict[str, list[str]] = {}
        self.known_sorted: list[str] = []
        self.pairs = 0
        self.work = 0
        self.by_label: dict[tuple[str, str], list[KubeNode]] = {}
        for node in nodes:
            for pair in node.labels.items():
                self.by_label.setdefault(pair, []).append(node)

    def learn(self, found: Mapping[str, list[str]]) -> None:
        """Take in the HyperNodes of one tier: higher ones may have them as members."""
        self.known.update(found)
        self.known_sorted = sorted(self.known)

    def of(self, hypernode: KubeObject) -> list[str]:
        """Names of the nodes of a HyperNode, in the order of the nodes."""
        found: set[str] = set()
        for member in objects(hypernode.tree, "spec", "members"):
            kind = text(member, "type")
            selector = mapping(member, "selector")
            if kind == "Node":
                more = self.some_nodes(hypernode, selector)
            elif kind == "HyperNode":
                more = self.some_hypernodes(hypernode, selector)
            else:
                self.remarks.add(hypernode.where, _IGNORED)
                continue
            self.pairs += len(more)
            if self.pairs > MAX_MEMBERS:
                what = "HyperNodes with too many members: the rest of them is passed over"
                self.remarks.add(hypernode.where, what)
                break
            found.update(more)
        return sorted(found, key=self.position.__getitem__)

    def some_nodes(self, hypernode: KubeObject, selector: Tree) -> list[str]:
        """Nodes that one selector finds."""
        if "labelMatch" in selector and not selector.keys() & {"exactMatch", "regexMatch"}:
            return self.labelled(hypernode, mapping(selector, "labelMatch"))
        return self.named(hypernode, selector, self.sorted, self.position)

    def some_hypernodes(self, hypernode: KubeObject, selector: Tree) -> list[str]:
        """Nodes of the HyperNodes of lower tiers that one selector finds."""
        found = self.named(hypernode, selector, self.known_sorted, self.known)
        sizes = sum(len(self.known[name]) for name in found)
        if self.pairs + sizes > MAX_MEMBERS:
            self.pairs += sizes
            return []
        return list(dict.fromkeys(node for name in found for node in self.known[name]))

    def named(
        self,
        hypernode: KubeObject,
        selector: Tree,
        names: Sequence[str],
        index: Mapping[str, object],
    ) -> list[str]:
        """The names that exactMatch or regexMatch finds."""
        exact = text(selector, "exactMatch", "name")
        pattern = text(selector, "regexMatch", "pattern")
        if exact is not None:
            if exact in index:
                return [exact]
            what = "a member that is not in the input, or not of a lower tier: passed over"
            self.remarks.add(hypernode.where, what)
        elif pattern is not None:
            return self.matching(hypernode, pattern, names)
        else:
            self.remarks.add(hypernode.where, _IGNORED)
        return []

    def matching(self, hypernode: KubeObject, pattern: str, names: Sequence[str]) -> list[str]:
        """The names in which the pattern matches somewhere."""
        try:
            automaton = compiled(pattern)
        except InvalidValueError as refused:
            self.remarks.add(hypernode.where, f"{refused.what}: its members are passed over")
            return []
        found = []
        for name in automaton.among(names):
            before = automaton.spent
            if self.work > MAX_WORK:
                what = "patterns that are too costly to match: their members are passed over"
                self.remarks.add(hypernode.where, what)
                return []
            if automaton.search(name):
                found.append(name)
            self.work += automaton.spent - before
        return found

    def labelled(self, hypernode: KubeObject, selector: Tree) -> list[str]:
        """Nodes that a label selector finds; an empty one finds none."""
        wanted = texts(selector, "matchLabels")
        expressions = objects(selector, "matchExpressions")
        whole_ = len(wanted) == len(mapping(selector, "matchLabels"))
        if not whole_ or not (wanted or expressions):
            self.remarks.add(hypernode.where, _IGNORED)
            return []
        candidates: Sequence[KubeNode] = self.nodes
        if wanted:
            candidates = min((self.by_label.get(pair, []) for pair in wanted.items()), key=len)
        self.work += len(candidates) * (1 + len(wanted) + len(expressions))
        if self.work > MAX_WORK:
            what = "selectors that are too costly to match: their members are passed over"
            self.remarks.add(hypernode.where, what)
            return []
        return [
            node.name
            for node in candidates
            if wanted.items() <= node.labels.items()
            and all(_holds(one, node.labels) for one in expressions)
        ]


def _holds(expression: Tree, labels: Mapping[str, str]) -> bool:
    """Whether one requirement of a label selector holds; one that is malformed does not."""
    key, operator = text(expression, "key"), text(expression, "operator")
    if key is None:
        return False
    listed = expression.get("values")
    values = listed if isinstance(listed, list) else []
    if operator == "Exists":
        return key in labels
    if operator == "DoesNotExist":
        return key not in labels
    if operator == "In":
        return key in labels and labels[key] in values
    return operator == "NotIn" and labels.get(key) not in values
