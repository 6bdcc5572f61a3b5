"""Volcano's HyperNodes: trees of nodes in tiers, to one column a tier.

A tier means what Volcano means by it: pods within one HyperNode of that tier or a lower one. Work is bounded
whatever the objects hold; malformed members are ignored with a remark.
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Callable, Mapping, Sequence

from models.units import shown
from planner.read.findings import Remarks
from planner.read.kube.dialects import base
from planner.read.kube.levels.node_domains import Column, Tiers
from planner.read.kube.lookup import Tree, is_name, mapping, matches, objects, text, texts, whole
from planner.read.kube.records import KubeNode, KubeObject, Objects

GROUP = "topology.volcano.sh"
MAX_MEMBERS = 2_000_000
"""Most (HyperNode, node) pairs."""
MAX_SEARCHES = 400_000
"""Most names that patterns and label selectors are matched against: a second or two."""
MAX_TIERS = 16
"""Most tiers: the lowest count."""
_MAX_PATTERN = 500
_PATTERN_MEMORY = 1 << 16

_IGNORED = "has a malformed member; ignored"
_LITERAL = re.compile(r"(\^?)([A-Za-z0-9-]+)(?![A-Za-z0-9-]*[*?{])")
"""Text that every match of a pattern without alternatives begins with."""


def read_tiers(gathered: Objects, nodes: Sequence[KubeNode], remarks: Remarks) -> Tiers:
    """The tiers of all HyperNodes."""
    by_tier = _by_tier(gathered, remarks)
    members = _Members(nodes, remarks)
    columns: dict[int, Column] = {}
    names: dict[str, int] = {}
    below: dict[str, str] = {}
    for tier in sorted(by_tier):
        found: dict[str, list[str]] = {}
        values: dict[str, str] = {}
        for one in sorted(by_tier[tier], key=lambda one: one.name):
            found[one.name] = members.of(one)
            owners = [values.setdefault(node, one.name) for node in found[one.name]]
            if any(owner != one.name for owner in owners):
                what = "shares nodes with another HyperNode of its tier; they count for the first"
                remarks.add(one.where, what)
            name = text(one.tree, "spec", "tierName")
            if name is not None and names.setdefault(name, tier) != tier:
                what = "has the tierName of a lower tier, which the name then means"
                remarks.add(one.where, what)
        members.learn(found)
        # A HyperNode of a lower tier that is in none of this one is a domain of its own here.
        below = {**below, **values}
        if below:
            columns[tier] = Column(f"hypernode-tier-{tier}", below, tiers=(tier,))
    return Tiers(columns, names)


def _by_tier(gathered: Objects, remarks: Remarks) -> dict[int, list[KubeObject]]:
    by_tier: dict[int, list[KubeObject]] = {}
    for one in gathered.of("HyperNode", GROUP):
        tier = whole(one.tree, "spec", "tier")
        if tier is None or tier < 0:
            remarks.add(one.where, "spec.tier is not a tier number; ignored")
        elif not is_name(one.name):
            remarks.add(one.where, "its name cannot be the name of a domain; ignored")
        else:
            by_tier.setdefault(tier, []).append(one)
    for tier in sorted(by_tier)[MAX_TIERS:]:
        for one in by_tier.pop(tier):
            remarks.add(one.where, f"is of one of more than {MAX_TIERS} tiers; ignored")
    return by_tier


class _Members:
    """Members of HyperNodes, resolved to nodes; HyperNodes are resolved from the lowest tier up."""

    def __init__(self, nodes: Sequence[KubeNode], remarks: Remarks) -> None:
        self.nodes = nodes
        self.position = {node.name: i for i, node in enumerate(nodes)}
        self.remarks = remarks
        # Kind and name of a member to its nodes, sorted by name.
        names: dict[str, Sequence[str]] = {name: (name,) for name in sorted(self.position)}
        self.known = {"Node": names, "HyperNode": dict[str, Sequence[str]]()}
        self.pairs = 0
        self.searches = 0
        self.by_label: dict[tuple[str, str], list[KubeNode]] = {}
        for node in nodes:
            for pair in node.labels.items():
                self.by_label.setdefault(pair, []).append(node)

    def learn(self, found: Mapping[str, Sequence[str]]) -> None:
        """Add the HyperNodes of one tier, which higher ones may have as members."""
        self.known["HyperNode"] = dict(sorted({**self.known["HyperNode"], **found}.items()))

    def of(self, hypernode: KubeObject) -> list[str]:
        """Names of the nodes of a HyperNode, in the order of the nodes."""
        found: set[str] = set()
        for member in objects(hypernode.tree, "spec", "members"):
            kind, selector = text(member, "type") or "", mapping(member, "selector")
            by_name = not selector.keys().isdisjoint({"exactMatch", "regexMatch"})
            more: list[Sequence[str]]
            if kind == "Node" and "labelMatch" in selector and not by_name:
                more = [self.select_by_labels(hypernode, mapping(selector, "labelMatch"))]
            elif kind in self.known:
                index = self.known[kind]
                more = [index[name] for name in self.select_by_name(hypernode, selector, index)]
            else:
                self.remarks.add(hypernode.where, _IGNORED)
                continue
            self.pairs += sum(map(len, more))
            if self.pairs > MAX_MEMBERS:
                what = "too many members of HyperNodes; the rest is ignored"
                self.remarks.add(hypernode.where, what)
                break
            found.update(*more)
        return sorted(found, key=self.position.__getitem__)

    def select_by_name(
        self, hypernode: KubeObject, selector: Tree, index: Mapping[str, object]
    ) -> list[str]:
        """The names that exactMatch or regexMatch finds."""
        exact = text(selector, "exactMatch", "name")
        pattern = text(selector, "regexMatch", "pattern")
        what = _IGNORED
        if exact is not None:
            if exact in index:
                return [exact]
            what = "has a member that is not in the input, or not of a lower tier; ignored"
        elif pattern is not None:
            what = f"the pattern {shown(pattern)} is not supported; its members are unknown"
            if (search := _compiled(pattern)) is not None:
                candidates = _candidates(pattern, list(index))
                within = self.can_search(hypernode, len(candidates))
                return [name for name in candidates if within and search(name)]
        self.remarks.add(hypernode.where, what)
        return []

    def select_by_labels(self, hypernode: KubeObject, selector: Tree) -> list[str]:
        """Nodes that a label selector finds; an empty one finds none."""
        wanted = texts(selector, "matchLabels")
        expressions = objects(selector, "matchExpressions")
        malformed = len(wanted) != len(mapping(selector, "matchLabels"))
        if malformed or not (wanted or expressions):
            self.remarks.add(hypernode.where, _IGNORED)
            return []
        candidates: Sequence[KubeNode] = self.nodes
        if wanted:
            candidates = min((self.by_label.get(pair, []) for pair in wanted.items()), key=len)
        if not self.can_search(hypernode, len(candidates) * (1 + len(wanted) + len(expressions))):
            return []
        return [node.name for node in candidates if matches(selector, node.labels)]

    def can_search(self, hypernode: KubeObject, searches: int) -> bool:
        """Whether so many more searches are within bounds."""
        self.searches += searches
        if self.searches > MAX_SEARCHES:
            what = "too many patterns and selectors to match; its members are unknown"
            self.remarks.add(hypernode.where, what)
        return self.searches <= MAX_SEARCHES


def _compiled(pattern: str) -> Callable[[str], object] | None:
    """Searches as Go's regexp does, in linear time and bounded memory; None if not supported."""
    if len(pattern) > _MAX_PATTERN or not pattern.isascii():
        return None
    import re2  # only HyperNodes need it

    options = re2.Options()
    options.max_mem = _PATTERN_MEMORY
    options.log_errors = False
    try:
        search: Callable[[str], object] = re2.compile(pattern, options=options).search
    except re2.error:
        return None
    return search


def _candidates(pattern: str, names: Sequence[str]) -> Sequence[str]:
    """The sorted names that contain the literal text a match begins with."""
    found = None if "|" in pattern else _LITERAL.match(pattern)
    if found is None:
        return names
    anchored, literal = found.groups()
    if not anchored:
        return [name for name in names if literal in name]
    first = bisect.bisect_left(names, literal)
    return names[first : bisect.bisect_left(names, literal + "\U0010ffff", first)]


_KINDS = """
hypernodes.topology.volcano.sh HyperNode v1alpha1 cluster
  spec {
    tier tierName
    members[+] {
      type
      selector {
        exactMatch { name } regexMatch { pattern=Long } labelMatch=Selector
      }
    }
  }
"""

DIALECT = base.Dialect("HyperNodes", precedence=61, tiers=read_tiers, kinds=_KINDS)
