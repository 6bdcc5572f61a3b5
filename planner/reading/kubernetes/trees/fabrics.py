"""NVLink between servers needs an IMEX channel, a ComputeDomain claim: which gangs do without.

Promises: the Policy says what that means for the plan, and the user is told.
Called by ``assembling`` and ``trees.gangs``.
"""

from __future__ import annotations

from collections.abc import Sequence

from models.policy import KubernetesPolicy
from planner.reading.kubernetes.forms import KubeGang
from planner.reading.kubernetes.levels import Levels
from planner.reading.remarks import Remarks


def unclaimed(gang: KubeGang) -> bool:
    """Whether several pods of the gang have GPUs and not all of them hold a claim."""
    speaking = [pod for pod in gang.pods() if pod.gpus and pod.finished is None]
    return len(speaking) > 1 and not all(pod.fabric for pod in speaking)


def network_only(gang: KubeGang, policy: KubernetesPolicy) -> bool:
    """Whether NVLink between servers counts for nothing in the gang's bandwidth."""
    return policy.nvlink_across_nodes == "claimed" and unclaimed(gang)


def warn_of_fabrics(
    gangs: Sequence[KubeGang], levels: Levels, policy: KubernetesPolicy, remarks: Remarks
) -> None:
    """Name the gangs without claims, where there is NVLink between servers at all."""
    if not any(level.nvlink for level in levels.levels):
        return
    for gang in gangs:
        if not unclaimed(gang):
            continue
        if network_only(gang, policy):
            remarks.add(
                gang.subject,
                "holds no ComputeDomain claim; the plan counts the network between its servers, "
                "and no NVLink",
                "nvlinkAcrossNodes: assumed in the Policy counts NVLink all the same",
            )
        else:
            remarks.add(
                gang.subject,
                "holds no ComputeDomain claim; the plan counts NVLink between servers all the same",
                "without the claim its pods reach each other over the network only; "
                "nvlinkAcrossNodes: claimed in the Policy counts that",
            )
