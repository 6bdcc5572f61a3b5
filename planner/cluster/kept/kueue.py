"""What is kept of Kueue's queues, flavors and workloads.

Promises: rules only.
"""

from __future__ import annotations

from planner.cluster.kept.common import CONDITIONS, SELECTOR, TAINTS, TOLERATIONS, kind
from planner.cluster.kept.pods import TEMPLATE
from planner.cluster.pruning import amounts, dns_names, labels, listed, names, record, scalar

RESOURCE_FLAVOR = kind(
    spec=record(
        {
            "nodeLabels": labels,
            "nodeTaints": TAINTS,
            "tolerations": TOLERATIONS,
            "topologyName": scalar,
        }
    )
)

LOCAL_QUEUE = kind(spec=record({"clusterQueue": scalar, "stopPolicy": scalar}))

CLUSTER_QUEUE = kind(
    spec=record(
        {
            **dict.fromkeys(("cohort", "cohortName", "queueingStrategy", "stopPolicy"), scalar),
            "namespaceSelector": SELECTOR,
            "preemption": record(
                dict.fromkeys(("withinClusterQueue", "reclaimWithinCohort"), scalar)
            ),
            "resourceGroups": listed(
                record(
                    {
                        "coveredResources": names,
                        "flavors": listed(
                            record(
                                {
                                    "name": scalar,
                                    "resources": listed(
                                        record(
                                            dict.fromkeys(
                                                (
                                                    "name",
                                                    "nominalQuota",
                                                    "borrowingLimit",
                                                    "lendingLimit",
                                                ),
                                                scalar,
                                            )
                                        )
                                    ),
                                }
                            )
                        ),
                    }
                )
            ),
        }
    )
)

_TOPOLOGY_REQUEST = record(
    {
        **dict.fromkeys(
            (
                "required",
                "preferred",
                "unconstrained",
                "podIndexLabel",
                "subGroupIndexLabel",
                "subGroupCount",
                "podSetGroupName",
                "podSetSliceRequiredTopology",
                "podSetSliceSize",
            ),
            scalar,
        ),
        "podsetSliceRequiredTopologyConstraints": listed(
            record({"topology": scalar, "size": scalar})
        ),
    }
)
_PER_LEVEL = record(
    {
        "universal": scalar,
        "individual": record({"prefix": scalar, "suffix": scalar, "roots": names}),
    }
)
_ASSIGNMENT = record(
    {
        "levels": names,
        "domains": listed(record({"values": names, "count": scalar})),
        "slices": listed(
            record(
                {
                    "domainCount": scalar,
                    "valuesPerLevel": listed(_PER_LEVEL),
                    "podCounts": record({"universal": scalar, "individual": names}),
                }
            )
        ),
    }
)

WORKLOAD = kind(
    spec=record(
        {
            **dict.fromkeys(("queueName", "priority", "priorityClassName", "active"), scalar),
            "podSets": listed(
                record(
                    {
                        **dict.fromkeys(("name", "count", "minCount"), scalar),
                        "template": TEMPLATE,
                        "topologyRequest": _TOPOLOGY_REQUEST,
                    }
                )
            ),
        }
    ),
    status=record(
        {
            "conditions": CONDITIONS,
            "unhealthyNodes": listed(record({"name": scalar})),
            "admission": record(
                {
                    "clusterQueue": scalar,
                    "podSetAssignments": listed(
                        record(
                            {
                                "name": scalar,
                                "count": scalar,
                                "flavors": dns_names,
                                "resourceUsage": amounts,
                                "topologyAssignment": _ASSIGNMENT,
                            }
                        )
                    ),
                }
            ),
        }
    ),
)
