"""The plan document: one JSON document, complete in itself (contract, section 5).

Promises: same instance and solution, same bytes of ``instance`` and ``spec``; no clock, no files.
Called by ``planner.pipelines.plan``, which hands in the time and saves the result.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from models.canonical import digest, instance_document
from models.gang import Gang
from models.hardware import bits
from models.instance import Instance
from models.solution import GangDecision, MoveSet, PodPlacement, Solution, TierResult
from models.tier_values import Evaluation

API_VERSION = "gangplan.dev/v1alpha1"


def compose(  # what is planned, and what the document says of itself
    instance: Instance,
    solution: Solution,
    *,
    name: str,
    created_at: str,
    generator: str,
    remarks: Sequence[str] = (),
) -> dict[str, Any]:
    """The plan document of a solution. ``created_at``: RFC 3339 UTC. ``remarks``: of the reading."""
    evaluation = Evaluation(instance, solution.decisions)
    document = instance_document(instance)
    spec = {
        "gangs": [
            _gang(instance, evaluation, index, gang, solution.decisions[index])
            for index, gang in enumerate(instance.gangs)
        ]
    }
    optimal = all(tier.bound == tier.best for tier in solution.tiers)
    return {
        "apiVersion": API_VERSION,
        "kind": "Plan",
        "metadata": {"name": name, "createdAt": created_at, "generator": generator},
        "instance": document,
        "spec": spec,
        "status": {
            "outcome": "optimal" if optimal else "feasible",
            "objectives": [_objective(tier) for tier in solution.tiers],
            "search": {
                "solver": solution.solver,
                "seed": instance.policy.solve.seed,
                "effort": round(solution.effort, 3),
                "stoppedBy": solution.stopped_by,
            },
            **_moves(instance, solution.moves),
            "notes": list(solution.notes),
            **({"remarks": list(remarks)} if remarks else {}),
            "digests": {"instance": digest(document), "spec": digest(spec)},
        },
    }


def dumps(plan: dict[str, Any]) -> str:
    """Deterministic text of a plan: keys in document order, two spaces, one newline at the end."""
    return json.dumps(plan, ensure_ascii=False, indent=2, allow_nan=False) + "\n"


def _objective(tier: TierResult) -> dict[str, Any]:
    return {
        "name": tier.name,
        "sense": tier.sense,
        "value": tier.value,
        "best": tier.best,
        "bound": tier.bound,
        "gap": tier.gap,
        "proof": tier.proof,
    }


def _moves(instance: Instance, moves: Sequence[MoveSet]) -> dict[str, Any]:
    """The field ``moves`` of a plan that moves gangs, no field of one that does not."""

    def names(gangs: Sequence[int]) -> list[str]:
        return ["/".join(instance.gangs[gang].key) for gang in gangs]

    stated = [
        {
            "gangs": names(move.gangs),
            "gpus": move.moved_gpus,
            "bought": {
                "gangs": names(move.admitted),
                "gpus": move.gpus,
                "bandwidth": move.bandwidth,
                "wholeNodes": move.whole_nodes,
                "wholeDomains": move.whole_domains,
            },
            "gain": move.gain / 1000,
        }
        for move in moves
    ]
    return {"moves": stated} if stated else {}


def _gang(
    instance: Instance, evaluation: Evaluation, index: int, gang: Gang, decision: GangDecision
) -> dict[str, Any]:
    value = evaluation.values[index]
    cluster = instance.cluster
    names = [cluster.level_name(level) for level in range(cluster.node_level + 1)]
    reason = decision.reason
    return {
        "namespace": gang.namespace,
        "name": gang.name,
        "decision": decision.decision,
        **({"aged": True} if instance.aged(gang) else {}),
        "pods": [_pod(instance, gang, pod) for pod in sorted(decision.pods, key=_pod_order)],
        "bandwidthMBps": None if value is None or value.bandwidth is None else int(value.bandwidth),
        "share": None if value is None else value.share,
        "domains": None if value is None else dict(zip(names, value.domains, strict=True)),
        "reason": None if reason is None else {"code": reason.code, "message": reason.message},
    }


def _pod_order(pod: PodPlacement) -> tuple[int, int]:
    return (pod.role, pod.index)


def _pod(instance: Instance, gang: Gang, pod: PodPlacement) -> dict[str, Any]:
    stated: dict[str, Any] = {
        "name": gang.pod_name(pod.role, pod.index),
        "role": gang.roles[pod.role].name,
        "index": pod.index,
        "node": instance.cluster.nodes[pod.node].name,
        "gpus": None if pod.gpus is None else list(bits(pod.gpus)),
    }
    uid = gang.pod_uid(pod.role, pod.index)
    if uid is not None:
        stated["uid"] = uid
    return stated
