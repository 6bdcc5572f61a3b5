"""Nodes where new pods of a role may stand in a tiny instance, in the words of Kubernetes.

Promises: own code; takes nothing from the formulation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from exhaustive_prices import labels_of, usable

from models.documents.gang import NodeExpression, Toleration
from models.hardware import slug
from models.instance.cluster import Node, Taint
from models.instance.gang import Role
from models.instance.instance import Instance


def tolerated(tolerations: Sequence[Toleration], taint: Taint) -> bool:
    """Kubernetes' matching of one taint; PreferNoSchedule never keeps a pod away."""
    if taint.effect not in ("NoSchedule", "NoExecute"):
        return True
    return any(
        t.effect in ("", taint.effect)
        and (
            (t.operator == "Exists" and t.key in ("", taint.key))
            or (t.operator != "Exists" and (t.key, t.value) == (taint.key, taint.value))
        )
        for t in tolerations
    )


NAME = "(metadata.name)"
"""Stands among the labels for the field; no label is called so."""


def attracted(role: Role, labels: Mapping[str, str]) -> bool:
    """Whether the role's node affinity holds: some term has expressions, and all of them hold."""
    fulfilled = [
        [met(one, labels.get(NAME if one.field else one.key)) for one in term]
        for term in role.node_affinity
    ]
    return not fulfilled or any(term != [] and False not in term for term in fulfilled)


def met(one: NodeExpression, value: str | None) -> bool:
    """One expression against the label's value."""
    if one.operator in ("Gt", "Lt"):
        if value is None or not value.isdigit() or int(value) >= 1 << 63:
            return False
        difference = int(value) - int(one.values[0])
        return difference > 0 if one.operator == "Gt" else difference < 0
    return {
        "In": value in one.values,
        "NotIn": value not in one.values,
        "Exists": value is not None,
        "DoesNotExist": value is None,
    }[one.operator]


def may_stand(instance: Instance, role: Role, node: Node) -> bool:
    """Whether a new pod of the role may go to the node, whatever room there is."""
    labels = labels_of(instance.cluster, node)
    wanted = None if role.model is None else slug(role.model)
    names = (slug(node.model.gpu), *node.model.slugs) if node.model else ()
    return (
        usable(instance, node)
        and all(labels.get(key) == value for key, value in role.node_selector)
        and attracted(role, {**labels, NAME: node.name})
        and all(tolerated(role.tolerations, taint) for taint in node.taints)
        and (wanted is None or wanted in names)
        and (role.gpus == 0 or node.model is not None)
    )
