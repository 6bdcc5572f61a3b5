"""What is kept of pods and of the pod templates in controllers.

Promises: of a container only its name, resources, restart policy and host ports; of volumes only the
names of a pod's claims, as the annotation CLAIMS.
"""

from __future__ import annotations

from typing import Any

from planner.cluster.kept.common import (
    CONDITIONS,
    NODE_SELECTOR,
    REQUIREMENTS,
    SELECTOR,
    TEMPLATE_METADATA,
    TOLERATIONS,
    kind,
)
from planner.cluster.pruning import GONE, Keep, amounts, labels, listed, names, record, scalar

CLAIMS = "gangplan.dev/volume-claims"
"""Annotation of a recorded pod: the names of its volume claims, joined by commas."""

RESOURCES = record(
    {
        "requests": amounts,
        "limits": amounts,
        "claims": listed(record({"name": scalar, "request": scalar})),
    }
)

_PORT = record({"hostPort": scalar, "hostIP": scalar, "protocol": scalar})


def _port(value: Any) -> Any:  # noqa: ANN401  # trees of JSON have no narrower type
    """A port that takes one of the node's; GONE for any other."""
    return _PORT(value) if type(value) is dict and value.get("hostPort") else GONE


def _some(rule: Keep) -> Keep:
    """A list that is left out when nothing of it is kept."""
    inner = listed(rule)

    def keep(value: Any) -> Any:  # noqa: ANN401
        found = inner(value)
        return found if found is not GONE and found else GONE

    return keep


_CONTAINERS = listed(
    record({"name": scalar, "resources": RESOURCES, "restartPolicy": scalar, "ports": _some(_port)})
)

_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"

_POD_TERM = record(
    {
        "labelSelector": SELECTOR,
        "topologyKey": scalar,
        "namespaces": names,
        "namespaceSelector": SELECTOR,
        "matchLabelKeys": names,
        "mismatchLabelKeys": names,
    }
)
_POD_AFFINITY = record(
    {
        _REQUIRED: listed(_POD_TERM),
        _PREFERRED: listed(record({"weight": scalar, "podAffinityTerm": _POD_TERM})),
    }
)
_NODE_AFFINITY = record(
    {
        _REQUIRED: NODE_SELECTOR,
        _PREFERRED: listed(
            record(
                {
                    "weight": scalar,
                    "preference": record(
                        {"matchExpressions": REQUIREMENTS, "matchFields": REQUIREMENTS}
                    ),
                }
            )
        ),
    }
)

_SPREAD = record(
    {
        **dict.fromkeys(
            (
                "maxSkew",
                "minDomains",
                "topologyKey",
                "whenUnsatisfiable",
                "nodeAffinityPolicy",
                "nodeTaintsPolicy",
            ),
            scalar,
        ),
        "labelSelector": SELECTOR,
        "matchLabelKeys": names,
    }
)

RESOURCE_CLAIMS = listed(
    record(
        dict.fromkeys(
            (
                "name",
                "resourceClaimName",
                "resourceClaimTemplateName",
                "podGroupResourceClaim",
            ),
            scalar,
        )
    )
)

POD_SPEC = record(
    {
        **dict.fromkeys(
            (
                "nodeName",
                "schedulerName",
                "priority",
                "priorityClassName",
                "preemptionPolicy",
                "runtimeClassName",
                "restartPolicy",
                "hostNetwork",
                "activeDeadlineSeconds",
            ),
            scalar,
        ),
        "nodeSelector": labels,
        "affinity": record(
            {
                "nodeAffinity": _NODE_AFFINITY,
                "podAffinity": _POD_AFFINITY,
                "podAntiAffinity": _POD_AFFINITY,
            }
        ),
        "tolerations": TOLERATIONS,
        "topologySpreadConstraints": listed(_SPREAD),
        "schedulingGates": listed(record({"name": scalar})),
        "schedulingGroup": record({"podGroupName": scalar}),
        "workloadRef": record(
            dict.fromkeys(("name", "podGroup", "podGroupReplicaKey"), scalar),
        ),
        "overhead": amounts,
        "resources": RESOURCES,
        "resourceClaims": RESOURCE_CLAIMS,
        "containers": _CONTAINERS,
        "initContainers": _CONTAINERS,
    }
)

TEMPLATE = record({"metadata": TEMPLATE_METADATA, "spec": POD_SPEC})
"""A pod template: what its pods will ask for, and where they may go."""

_CONTAINER_STATUSES = listed(
    record({"name": scalar, "allocatedResources": amounts, "resources": RESOURCES})
)

_POD = kind(
    spec=POD_SPEC,
    status=record(
        {
            **dict.fromkeys(
                ("phase", "reason", "nominatedNodeName", "startTime", "resize"), scalar
            ),
            "conditions": CONDITIONS,
            "resources": RESOURCES,
            "allocatedResources": amounts,
            "containerStatuses": _CONTAINER_STATUSES,
            "initContainerStatuses": _CONTAINER_STATUSES,
            "resourceClaimStatuses": listed(record({"name": scalar, "resourceClaimName": scalar})),
            "extendedResourceClaimStatus": record(
                {
                    "resourceClaimName": scalar,
                    "requestMappings": listed(
                        record(
                            dict.fromkeys(("containerName", "resourceName", "requestName"), scalar)
                        )
                    ),
                }
            ),
        }
    ),
)


def pod(value: Any) -> Any:  # noqa: ANN401
    """A pod, its volumes reduced to the names of its claims."""
    kept = _POD(value)
    if kept is GONE or "metadata" not in kept:
        return GONE
    metadata = kept["metadata"]
    notes = metadata.get("annotations", {})
    notes.pop(CLAIMS, None)  # what a tenant wrote there is no fact
    if claims := _claims(value, metadata.get("name")):
        metadata["annotations"] = {**notes, CLAIMS: ",".join(claims)}
    return kept


def _claims(value: dict[str, Any], name: object) -> list[str]:
    """Names of the claims behind the pod's volumes; an ephemeral one is named after pod and volume."""
    spec = value.get("spec")
    volumes = spec.get("volumes") if type(spec) is dict else None
    found: dict[str, None] = {}
    for volume in volumes if type(volumes) is list else ():
        if type(volume) is not dict:
            continue
        claim = volume.get("persistentVolumeClaim")
        if type(claim) is dict and type(claim.get("claimName")) is str:
            found[claim["claimName"]] = None
        elif "ephemeral" in volume and type(volume.get("name")) is str:
            found[f"{name}-{volume['name']}"] = None
    return list(found)
