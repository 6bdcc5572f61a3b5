"""Parts that many kinds have: metadata, selectors, conditions.

Promises: rules only. Used by the other files of this package.
"""

from __future__ import annotations

from planner.cluster.pruning import Keep, known_annotations, labels, listed, names, record, scalar

OWNER = record(dict.fromkeys(("apiVersion", "kind", "name", "uid", "controller"), scalar))

METADATA = record(
    {
        **dict.fromkeys(
            (
                "name",
                "namespace",
                "uid",
                "resourceVersion",
                "creationTimestamp",
                "deletionTimestamp",
                "generation",
            ),
            scalar,
        ),
        "labels": labels,
        "annotations": known_annotations,
        "ownerReferences": listed(OWNER),
    }
)

TEMPLATE_METADATA = record({"name": scalar, "labels": labels, "annotations": known_annotations})

REQUIREMENTS = listed(record({"key": scalar, "operator": scalar, "values": names}))

SELECTOR = record({"matchLabels": labels, "matchExpressions": REQUIREMENTS})
"""A label selector."""

NODE_SELECTOR = record(
    {
        "nodeSelectorTerms": listed(
            record({"matchExpressions": REQUIREMENTS, "matchFields": REQUIREMENTS})
        )
    }
)

TAINTS = listed(record(dict.fromkeys(("key", "value", "effect"), scalar)))
TOLERATIONS = listed(
    record(dict.fromkeys(("key", "operator", "value", "effect", "tolerationSeconds"), scalar))
)
CONDITIONS = listed(record(dict.fromkeys(("type", "status", "reason"), scalar)))


def kind(**parts: Keep) -> Keep:
    """An object of these parts beside what every object has."""
    return record({"apiVersion": scalar, "kind": scalar, "metadata": METADATA, **parts})
