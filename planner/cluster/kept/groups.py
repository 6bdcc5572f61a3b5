"""What is kept of gangs and queues as schedulers describe them.

Promises: rules only.
"""

from __future__ import annotations

from planner.cluster.kept.common import CONDITIONS, SELECTOR, kind
from planner.cluster.kept.pods import RESOURCE_CLAIMS
from planner.cluster.pruning import amounts, each, listed, names, number, record, scalar

# scheduling.k8s.io, of Kubernetes itself

_POLICY = record({"basic": record({}), "gang": record({"minCount": scalar})})
_CONSTRAINTS = record({"topology": listed(record({"key": scalar}))})
_GROUP = {
    "schedulingPolicy": _POLICY,
    "schedulingConstraints": _CONSTRAINTS,
    "disruptionMode": scalar,
    "priorityClassName": scalar,
    "priority": scalar,
    "resourceClaims": RESOURCE_CLAIMS,
    "parentCompositePodGroupName": scalar,
}

POD_GROUP = kind(
    spec=record(
        {
            **_GROUP,
            "podGroupTemplateRef": record(
                {
                    "workload": record({"workloadName": scalar, "podGroupTemplateName": scalar}),
                    "workloadName": scalar,
                    "podGroupTemplateName": scalar,
                }
            ),
        }
    ),
    status=record({"conditions": CONDITIONS}),
)

COMPOSITE_POD_GROUP = kind(spec=record(_GROUP))

_OLD_GROUP = {"policy": _POLICY}  # v1alpha1 of Kubernetes 1.35

WORKLOAD = kind(
    spec=record(
        {
            "controllerRef": record(dict.fromkeys(("apiGroup", "kind", "name"), scalar)),
            "podGroupTemplates": listed(record({"name": scalar, **_GROUP})),
            "podGroups": listed(record({"name": scalar, **_OLD_GROUP})),
        }
    )
)

# scheduler-plugins, and the older group that Koordinator and ACK use

PLUGIN_POD_GROUP = kind(
    spec=record({"minMember": scalar, "minResources": amounts, "scheduleTimeoutSeconds": scalar}),
    status=record({"phase": scalar}),
)

# Volcano

NETWORK_TOPOLOGY = record(
    dict.fromkeys(("mode", "highestTierAllowed", "highestTierName"), scalar),
)

VOLCANO_POD_GROUP = kind(
    spec=record(
        {
            **dict.fromkeys(("minMember", "queue", "priorityClassName"), scalar),
            "minTaskMember": each(number),
            "minResources": amounts,
            "networkTopology": NETWORK_TOPOLOGY,
            "subGroupPolicy": listed(
                record(
                    {
                        "name": scalar,
                        "networkTopology": NETWORK_TOPOLOGY,
                        "subGroupSize": scalar,
                        "minSubGroups": scalar,
                        "labelSelector": SELECTOR,
                        "matchLabelKeys": names,
                    }
                )
            ),
        }
    ),
    status=record({"phase": scalar, "conditions": CONDITIONS}),
)

VOLCANO_QUEUE = kind(
    spec=record(
        {
            **dict.fromkeys(("weight", "reclaimable", "parent", "priority", "type"), scalar),
            "capability": amounts,
            "deserved": amounts,
            "guarantee": record({"resource": amounts}),
        }
    ),
    status=record({"state": scalar}),
)

# KAI

_KAI_TOPOLOGY = record(
    dict.fromkeys(("topology", "requiredTopologyLevel", "preferredTopologyLevel"), scalar)
)
_SHARE = record(dict.fromkeys(("quota", "overQuotaWeight", "limit"), scalar))

KAI_POD_GROUP = kind(
    spec=record(
        {
            **dict.fromkeys(
                (
                    "minMember",
                    "minSubGroup",
                    "queue",
                    "priorityClassName",
                    "preemptibility",
                    "preemptionDelay",
                    "schedulingBackoff",
                    "stalenessGracePeriod",
                ),
                scalar,
            ),
            "topologyConstraint": _KAI_TOPOLOGY,
            "subGroups": listed(
                record(
                    {
                        **dict.fromkeys(("name", "minMember", "minSubGroup", "parent"), scalar),
                        "topologyConstraint": _KAI_TOPOLOGY,
                    }
                )
            ),
        }
    ),
    status=record({"phase": scalar, "conditions": CONDITIONS}),
)

KAI_QUEUE = kind(
    spec=record(
        {
            **dict.fromkeys(
                ("parentQueue", "priority", "preemptMinRuntime", "reclaimMinRuntime"), scalar
            ),
            "resources": record(dict.fromkeys(("gpu", "cpu", "memory"), _SHARE)),
        }
    )
)

# Grove

_PACKED = record(
    {"packConstraint": record({"required": scalar, "preferred": scalar}), "topologyName": scalar}
)

POD_GANG = kind(
    spec=record(
        {
            "priorityClassName": scalar,
            "topologyConstraint": _PACKED,
            "podgroups": listed(
                record(
                    {
                        "name": scalar,
                        "minReplicas": scalar,
                        "podReferences": listed(record({"namespace": scalar, "name": scalar})),
                        "topologyConstraint": _PACKED,
                    }
                )
            ),
        }
    )
)
