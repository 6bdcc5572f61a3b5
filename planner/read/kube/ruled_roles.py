"""Roles with rules about other pods, and the nodes that their spreads count.

kube-scheduler counts nodes that the documents may not have, and the other way round. Where that matters a
role is kept off domains, or the least of its domains counts as empty: never is more allowed.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from models.documents.gang import NodeExpression
from models.instance.eligibility import tolerated
from planner.read.kube.lookup import mask_key, union
from planner.read.kube.pods.constraints import Affinity
from planner.read.kube.pods.pod_kinds import NodeMasks, Population
from planner.read.kube.pods.pod_rules import MAX_SKEW, PodRule, RuleKind
from planner.read.kube.records import KubeGang, KubeNode, KubePod, KubeRole


@dataclass(slots=True)
class RoleRule:
    """A rule of a role. ``kinds``: of the pods that it is about; ``least``: minDomains."""

    stated: PodRule
    level: str
    kinds: int
    least: int

    @property
    def kind(self) -> RuleKind:
        return self.stated.kind


@dataclass(slots=True, eq=False)
class RuledRole:
    """A role with what is read of its rules. ``problems``: why its gang is held.

    ``keys``: labels that its nodes must have. ``closed``: by label, values of domains that pods of no gang
    keep it off.
    """

    gang: KubeGang
    role: KubeRole
    model: KubePod
    rules: list[RoleRule] = field(default_factory=list)
    keys: dict[str, None] = field(default_factory=dict)
    problems: dict[str, None] = field(default_factory=dict)
    closed: dict[str, set[str]] = field(default_factory=dict)

    @property
    def pods(self) -> list[KubePod]:
        return [pod for _, pod in self.role.members]

    def narrow(self, more: Sequence[NodeExpression]) -> None:
        """Keep its pods to nodes of which these expressions hold, too."""
        if not more:
            return
        known: dict[int, Affinity] = {}
        pods = self.pods
        for pod in pods:
            terms = pod.affinity or ((),)
            if id(pod.affinity) not in known:
                known[id(pod.affinity)] = tuple((*term, *more) for term in terms)
        for pod in pods:
            pod.affinity = known[id(pod.affinity)]


class SpreadNodes:
    """Fits roles to the nodes that their documents and kube-scheduler both know.

    ``partial``: names of GPUs that not every node offers.
    """

    def __init__(
        self,
        roles: Sequence[RuledRole],
        there: Population,
        nodes: Sequence[KubeNode],
        masks: NodeMasks,
        partial: Collection[str],
    ) -> None:
        self._roles = roles
        self._there = there
        self._nodes = nodes
        self._masks = masks
        self._partial = partial
        self._without_gpus = any(not one.model.gpus for one in roles)
        self._reached: dict[bytes, int] = {}

    def fit(self, one: RuledRole) -> None:
        """Keep a role to nodes with the labels of its domains, and its spreads to what both know."""
        self._require_labels(one)
        spreads = [rule for rule in one.rules if rule.kind is RuleKind.SPREAD]
        while True in [self._cut(one, rule) for rule in spreads]:
            pass  # what one leaves out, another may count
        for rule in spreads:
            self._tighten(one, rule)

    def _require_labels(self, one: RuledRole) -> None:
        """Keep a role to nodes that have the labels of its domains."""
        lacking = [key for key in one.keys if self._masks.all & ~self._masks.having(key)]
        one.narrow([NodeExpression(key, "Exists") for key in sorted(lacking)])

    def _cut(self, one: RuledRole, rule: RoleRule) -> bool:
        """Close the domains of which the role's document has only some nodes that kube-scheduler counts.

        Unless none of the pods that count can be on the others. Whether any was closed.
        """
        planned = self._planned(one)
        others = self._counted(one, rule) & ~planned & self._reach(rule.kinds)
        masks = self._masks.by_value(rule.stated.key)
        cut = sorted(value for value, mask in masks.items() if mask & others and mask & planned)
        one.narrow([NodeExpression(rule.stated.key, "NotIn", tuple(cut))] if cut else [])
        return bool(cut)

    def _tighten(self, one: RuledRole, rule: RoleRule) -> None:
        """Let the least domain count as empty where the document knows less than kube-scheduler."""
        meant, planned = self._counted(one, rule), self._planned(one)
        sure = self._sure(one, rule)
        likely = self._masks.all if self._without_gpus else sure
        masks = self._masks.by_value(rule.stated.key).values()
        unlike = meant & ~planned or planned & ~meant & likely
        absent = any(mask & meant and not mask & planned & sure for mask in masks)
        vague = rule.kinds & self._there.terminating or self._there.is_torn(rule.kinds)
        # A pod that is pinned to its planned node has one domain to go to, which are fewer.
        pinned = rule.least > 1 and rule.stated.honors_affinity and one.model.mode == "gate"
        if unlike or absent or vague or pinned:
            rule.least = MAX_SKEW

    def _counted(self, one: RuledRole, rule: RoleRule) -> int:
        """Nodes that kube-scheduler counts: those with the labels of all spreads of the pod."""
        found, model = self._masks.all, one.model
        for other in model.rules:
            if other.kind is RuleKind.SPREAD:
                found &= self._masks.having(other.key)
        if rule.stated.honors_affinity:
            found &= self._masks.matching(model.selector, model.own_affinity)
        if rule.stated.honors_taints:
            found &= union(
                1 << n
                for n, node in enumerate(self._nodes)
                if not node.unschedulable and tolerated(model.tolerations, node.taints)
            )
        return found

    def _planned(self, one: RuledRole) -> int:
        """Nodes that match the selector and the affinity of the role as its document has them."""
        model = one.model
        found = self._masks.matching(model.selector, model.affinity)
        name = model.gpu_resource
        if name is not None and name in self._partial and (model.gpus or model.part):
            found &= union(1 << n for n, node in enumerate(self._nodes) if name in node.gpu_names)
        return found

    def _sure(self, one: RuledRole, rule: RoleRule) -> int:
        """Nodes that surely are in the document of the cluster."""
        if not one.model.gpus and any(pod.to_place for pod in one.pods):
            return self._masks.all
        number, loose = self._masks.number, self._there.loose_in(rule.kinds)
        return self._masks.installed | union(1 << number[name] for name in loose)

    def _reach(self, kinds: int) -> int:
        """Nodes where pods of these kinds are, or may be placed."""
        key = mask_key(kinds)
        if key not in self._reached:
            number = self._masks.number
            names = dict.fromkeys(self._there.loose_in(kinds))
            found = 0
            for n in self._there.roles_in(kinds):
                found |= self._planned(self._roles[n])
                names |= dict.fromkeys(pod.node for pod in self._roles[n].pods if pod.node)
            self._reached[key] = found | union(1 << number[name] for name in names)
        return self._reached[key]
