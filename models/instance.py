"""Instance: one cluster, its gangs and a policy, frozen; the only thing the planner works on.

Promises: gangs sorted by (namespace, name), nodes by name, every default filled in; no I/O.
Built by ``planner.reading``; used by solving, evaluating and composing.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from models.cluster import Cluster, Node
from models.gang import Gang, Role, Toleration
from models.hardware import slug
from models.policy import Policy


@dataclass(frozen=True)
class Instance:
    cluster: Cluster
    gangs: tuple[Gang, ...]
    policy: Policy

    @cached_property
    def latest_submission(self) -> int:
        """T: the latest submittedAt of the input, 0 if none is given."""
        return max((g.submitted_at for g in self.gangs if g.submitted_at is not None), default=0)

    @cached_property
    def incomplete(self) -> frozenset[int]:
        """Indices of running gangs that have pods missing."""
        return frozenset(i for i, g in enumerate(self.gangs) if g.running and g.missing())

    def age(self, gang: Gang) -> int:
        """Seconds T - submittedAt; an absent submittedAt counts 0."""
        return 0 if gang.submitted_at is None else self.latest_submission - gang.submitted_at

    def min_share(self, gang: Gang) -> Fraction:
        """minBandwidthShare of the gang, or the policy's default."""
        own = gang.min_bandwidth_share
        return self.policy.min_bandwidth_share if own is None else own

    def labels_of(self, node: Node) -> dict[str, str]:
        """The node's labels with the implied ones: level labels (short value) and the hostname."""
        labels = {"kubernetes.io/hostname": node.name}
        for level, value in zip(self.cluster.levels, node.domains, strict=True):
            if level.label is not None and value is not None:
                labels[level.label] = value
        labels.update(node.labels)
        return labels

    def ours(self, node: Node) -> bool:
        """Whether the policy's nodeSelector gives us this node."""
        labels = self.labels_of(node)
        return all(labels.get(key) == value for key, value in self.policy.node_selector)

    def schedulable(self, node: Node) -> bool:
        """Ours, ready and not cordoned."""
        return node.ready and not node.unschedulable and self.ours(node)

    def eligible(self, role: Role, node: Node) -> bool:
        """Whether a pod of the role may be placed on the node, leaving room aside."""
        if not self.schedulable(node):
            return False
        labels = self.labels_of(node)
        if any(labels.get(key) != value for key, value in role.node_selector):
            return False
        if any(
            taint.effect in ("NoSchedule", "NoExecute")
            and not any(
                tolerates(t, taint.key, taint.value, taint.effect) for t in role.tolerations
            )
            for taint in node.taints
        ):
            return False
        return role.model is None or model_matches(role.model, node)


def model_matches(wanted: str, node: Node) -> bool:
    """Whether ``wanted`` names the node's GPU model or its server model (name or alias), as slugs."""
    if node.model is None:
        return False
    return slug(wanted) in (slug(node.model.gpu), *node.model.slugs)


def tolerates(toleration: Toleration, key: str, value: str, effect: str) -> bool:
    """Kubernetes' rule: an empty effect matches all, an empty key with Exists matches every taint."""
    if toleration.effect and toleration.effect != effect:
        return False
    if toleration.operator == "Exists":
        return toleration.key in ("", key)
    return toleration.key == key and toleration.value == value
