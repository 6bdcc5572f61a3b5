"""What is kept of nodes, their devices, volumes and the classes that pods name.

Promises: rules only. No address, image list, provider id or driver parameter is among them.
"""

from __future__ import annotations

from planner.cluster.kept.common import (
    CONDITIONS,
    NODE_SELECTOR,
    REQUIREMENTS,
    TAINTS,
    TOLERATIONS,
    kind,
)
from planner.cluster.pruning import amounts, each, labels, listed, names, record, scalar

NODE = kind(
    spec=record({"unschedulable": scalar, "taints": TAINTS}),
    status=record({"capacity": amounts, "allocatable": amounts, "conditions": CONDITIONS}),
)

NAMESPACE = kind()

PRIORITY_CLASS = kind(value=scalar, globalDefault=scalar, preemptionPolicy=scalar)

RUNTIME_CLASS = kind(
    scheduling=record({"nodeSelector": labels, "tolerations": TOLERATIONS}),
    overhead=record({"podFixed": amounts}),
)

STORAGE_CLASS = kind(
    volumeBindingMode=scalar,
    allowedTopologies=listed(
        record({"matchLabelExpressions": listed(record({"key": scalar, "values": names}))})
    ),
)

PERSISTENT_VOLUME = kind(
    spec=record(
        {
            "storageClassName": scalar,
            "claimRef": record(dict.fromkeys(("namespace", "name", "uid"), scalar)),
            "nodeAffinity": record({"required": NODE_SELECTOR}),
        }
    ),
    status=record({"phase": scalar}),
)

PERSISTENT_VOLUME_CLAIM = kind(
    spec=record({"storageClassName": scalar, "volumeName": scalar}),
    status=record({"phase": scalar}),
)

_ATTRIBUTES = each(record(dict.fromkeys(("string", "int", "bool", "version"), scalar)))
_CAPACITY = each(record({"value": scalar}))
_COUNTERS = {"counters": _CAPACITY}
_DEVICE = {
    "attributes": _ATTRIBUTES,
    "capacity": _CAPACITY,
    "consumesCounters": listed(record({"counterSet": scalar, **_COUNTERS})),
    "nodeName": scalar,
    "allNodes": scalar,
    "nodeSelector": NODE_SELECTOR,
    "taints": TAINTS,
}

RESOURCE_SLICE = kind(
    spec=record(
        {
            **dict.fromkeys(("driver", "nodeName", "allNodes", "perDeviceNodeSelection"), scalar),
            "nodeSelector": NODE_SELECTOR,
            "pool": record(dict.fromkeys(("name", "generation", "resourceSliceCount"), scalar)),
            "sharedCounters": listed(record({"name": scalar, **_COUNTERS})),
            "devices": listed(record({"name": scalar, "basic": record(_DEVICE), **_DEVICE})),
        }
    )
)

_SELECTORS = listed(record({"cel": record({"expression": scalar})}))

DEVICE_CLASS = kind(spec=record({"selectors": _SELECTORS, "extendedResourceName": scalar}))

DEVICE_TAINT_RULE = kind(
    spec=record(
        {
            "taint": record(dict.fromkeys(("key", "value", "effect"), scalar)),
            "deviceSelector": record(
                {
                    **dict.fromkeys(("driver", "pool", "device", "deviceClassName"), scalar),
                    "selectors": _SELECTORS,
                }
            ),
        }
    )
)

_EXACT = {
    **dict.fromkeys(("deviceClassName", "allocationMode", "count", "adminAccess"), scalar),
    "selectors": _SELECTORS,
    "tolerations": TOLERATIONS,
    "capacity": record({"requests": amounts}),
}
_CONFIG = record(
    {
        "requests": names,
        "opaque": record(
            {
                "driver": scalar,
                "parameters": record(
                    dict.fromkeys(("apiVersion", "kind", "domainID", "allocationMode"), scalar)
                ),
            }
        ),
    }
)
_CLAIM_SPEC = record(
    {
        "devices": record(
            {
                "requests": listed(
                    record(
                        {
                            "name": scalar,
                            **_EXACT,  # v1beta1 has it here, later versions below
                            "exactly": record(_EXACT),
                            "firstAvailable": listed(record({"name": scalar, **_EXACT})),
                        }
                    )
                ),
                "constraints": listed(
                    record(
                        {"requests": names, "matchAttribute": scalar, "distinctAttribute": scalar}
                    )
                ),
                "config": listed(_CONFIG),
            }
        )
    }
)

RESOURCE_CLAIM = kind(
    spec=_CLAIM_SPEC,
    status=record(
        {
            "allocation": record(
                {
                    "allocationTimestamp": scalar,
                    "nodeSelector": NODE_SELECTOR,
                    "devices": record(
                        {
                            "results": listed(
                                record(
                                    {
                                        **dict.fromkeys(
                                            (
                                                "request",
                                                "driver",
                                                "pool",
                                                "device",
                                                "adminAccess",
                                                "shareID",
                                            ),
                                            scalar,
                                        ),
                                        "consumedCapacity": amounts,
                                    }
                                )
                            )
                        }
                    ),
                }
            ),
            "reservedFor": listed(
                record(dict.fromkeys(("apiGroup", "resource", "name", "uid"), scalar))
            ),
        }
    ),
)

RESOURCE_CLAIM_TEMPLATE = kind(spec=record({"spec": _CLAIM_SPEC}))

COMPUTE_DOMAIN = kind(
    spec=record(
        {
            "numNodes": scalar,
            "channel": record(
                {"allocationMode": scalar, "resourceClaimTemplate": record({"name": scalar})}
            ),
        }
    ),
    status=record(
        {
            "status": scalar,
            "nodes": listed(record(dict.fromkeys(("name", "cliqueID", "index", "status"), scalar))),
        }
    ),
)

HYPER_NODE = kind(
    spec=record(
        {
            "tier": scalar,
            "tierName": scalar,
            "members": listed(
                record(
                    {
                        "type": scalar,
                        "selector": record(
                            {
                                "exactMatch": record({"name": scalar}),
                                "regexMatch": record({"pattern": scalar}),
                                "labelMatch": record(
                                    {"matchLabels": labels, "matchExpressions": REQUIREMENTS}
                                ),
                            }
                        ),
                    }
                )
            ),
        }
    ),
    status=record({"nodeCount": scalar}),
)

TOPOLOGY = kind(spec=record({"levels": listed(record({"nodeLabel": scalar, "alias": scalar}))}))
"""Kueue's and KAI's: label keys, widest first."""

DEVICE = kind(
    spec=record(
        {
            "devices": listed(
                record(
                    {
                        **dict.fromkeys(("type", "id", "minor", "moduleID", "health"), scalar),
                        "resources": amounts,
                        "labels": labels,
                        "topology": record(
                            dict.fromkeys(("socketID", "nodeID", "pcieID", "busID"), scalar)
                        ),
                    }
                )
            )
        }
    )
)
"""Koordinator's: the GPUs of the node of the same name."""

CLUSTER_NETWORK_TOPOLOGY = kind(
    spec=record(
        {
            "networkTopologySpec": listed(
                record(
                    {
                        "topologyLayer": scalar,
                        "parentTopologyLayer": scalar,
                        "labelKey": names,
                    }
                )
            )
        }
    )
)
