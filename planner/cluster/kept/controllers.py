"""What is kept of the controllers whose pods are gangs: sizes, and the templates of their pods.

Promises: rules only; templates go through the rules of pods.
"""

from __future__ import annotations

from planner.cluster.kept.common import CONDITIONS, TEMPLATE_METADATA, kind
from planner.cluster.kept.groups import NETWORK_TOPOLOGY
from planner.cluster.kept.pods import TEMPLATE
from planner.cluster.pruning import Keep, amounts, each, labels, listed, record, scalar

REPLICATED = kind(
    spec=record({"replicas": scalar}),
    status=record(
        dict.fromkeys(("replicas", "readyReplicas", "desiredNumberScheduled"), scalar),
    ),
)
"""StatefulSet, ReplicaSet, DaemonSet: how many."""

_JOB_SPEC = record(
    {
        **dict.fromkeys(
            (
                "parallelism",
                "completions",
                "completionMode",
                "suspend",
                "managedBy",
                "activeDeadlineSeconds",
            ),
            scalar,
        ),
        "template": TEMPLATE,
    }
)
_COUNTS = dict.fromkeys(("active", "ready", "succeeded", "failed", "suspended"), scalar)

JOB = kind(
    spec=_JOB_SPEC,
    status=record(
        {
            **_COUNTS,
            **dict.fromkeys(
                ("completedIndexes", "failedIndexes", "startTime", "completionTime"), scalar
            ),
            "conditions": CONDITIONS,
        }
    ),
)

JOB_SET = kind(
    spec=record(
        {
            "suspend": scalar,
            "managedBy": scalar,
            "replicatedJobs": listed(
                record(
                    {
                        **dict.fromkeys(("name", "groupName", "replicas"), scalar),
                        "template": record({"metadata": TEMPLATE_METADATA, "spec": _JOB_SPEC}),
                    }
                )
            ),
            "startupPolicy": record({"startupPolicyOrder": scalar}),
        }
    ),
    status=record(
        {
            "conditions": CONDITIONS,
            "restarts": scalar,
            "terminalState": scalar,
            "replicatedJobsStatus": listed(record({"name": scalar, **_COUNTS})),
        }
    ),
)

LEADER_WORKER_SET = kind(
    spec=record(
        {
            "replicas": scalar,
            "startupPolicy": scalar,
            "leaderWorkerTemplate": record(
                {
                    "size": scalar,
                    "restartPolicy": scalar,
                    "leaderTemplate": TEMPLATE,
                    "workerTemplate": TEMPLATE,
                    "subGroupPolicy": record(
                        dict.fromkeys(("subGroupSize", "type", "subGroupPolicyType"), scalar)
                    ),
                }
            ),
        }
    ),
    status=record({"replicas": scalar, "readyReplicas": scalar, "conditions": CONDITIONS}),
)

_RUN_POLICY = record(
    {
        "suspend": scalar,
        "managedBy": scalar,
        "activeDeadlineSeconds": scalar,
        "schedulingPolicy": record(
            {
                **dict.fromkeys(
                    ("minAvailable", "queue", "priorityClass", "scheduleTimeoutSeconds"), scalar
                ),
                "minResources": amounts,
            }
        ),
    }
)
_REPLICA_TYPES = each(record({"replicas": scalar, "restartPolicy": scalar, "template": TEMPLATE}))


def kubeflow(replicas: str) -> Keep:
    """A training job of Kubeflow; ``replicas`` is the field that holds its replica types."""
    return kind(
        spec=record(
            {
                replicas: _REPLICA_TYPES,
                "runPolicy": _RUN_POLICY,
                "elasticPolicy": record({"minReplicas": scalar, "maxReplicas": scalar}),
                "runLauncherAsWorker": scalar,
                "slotsPerWorker": scalar,
                "suspend": scalar,
            }
        ),
        status=record({"conditions": CONDITIONS, "replicaStatuses": each(record(_COUNTS))}),
    )


TRAIN_JOB = kind(
    spec=record(
        {
            "suspend": scalar,
            "managedBy": scalar,
            "labels": labels,
            "runtimeRef": record(dict.fromkeys(("apiGroup", "kind", "name"), scalar)),
            "trainer": record(
                {
                    "numNodes": scalar,
                    "numProcPerNode": scalar,
                    "resourcesPerNode": record({"requests": amounts, "limits": amounts}),
                }
            ),
        }
    ),
    status=record(
        {"conditions": CONDITIONS, "jobsStatus": listed(record({"name": scalar, **_COUNTS}))}
    ),
)

_RAY_CLUSTER = {
    "suspend": scalar,
    "enableInTreeAutoscaling": scalar,
    "headGroupSpec": record({"template": TEMPLATE}),
    "workerGroupSpecs": listed(
        record(
            {
                **dict.fromkeys(
                    (
                        "groupName",
                        "replicas",
                        "minReplicas",
                        "maxReplicas",
                        "numOfHosts",
                        "suspend",
                    ),
                    scalar,
                ),
                "template": TEMPLATE,
            }
        )
    ),
}

RAY_CLUSTER = kind(
    spec=record(_RAY_CLUSTER), status=record({"state": scalar, "conditions": CONDITIONS})
)

RAY_JOB = kind(
    spec=record({"suspend": scalar, "rayClusterSpec": record(_RAY_CLUSTER)}),
    status=record(
        dict.fromkeys(("rayClusterName", "jobStatus", "jobDeploymentStatus"), scalar),
    ),
)

VOLCANO_JOB = kind(
    spec=record(
        {
            **dict.fromkeys(
                ("minAvailable", "minSuccess", "queue", "priorityClassName", "schedulerName"),
                scalar,
            ),
            "networkTopology": NETWORK_TOPOLOGY,
            "tasks": listed(
                record(
                    {
                        **dict.fromkeys(("name", "replicas", "minAvailable"), scalar),
                        "template": TEMPLATE,
                        "partitionPolicy": record(
                            {
                                **dict.fromkeys(
                                    ("totalPartitions", "partitionSize", "minPartitions"), scalar
                                ),
                                "networkTopology": NETWORK_TOPOLOGY,
                            }
                        ),
                    }
                )
            ),
        }
    ),
    status=record(
        {
            "state": record({"phase": scalar}),
            **dict.fromkeys(
                ("minAvailable", "pending", "running", "succeeded", "failed", "terminating"),
                scalar,
            ),
        }
    ),
)
