"""A plan document written by hand: two racks of V100 servers, one gang of each kind of decision.

Small enough to read; the shape of the contract, independent of everything that composes plans.
"""

from __future__ import annotations

import copy
import json
from typing import Any

from plan_documents import sealed

from models.apply.requests import GangVerdict, Outcome, Verdict
from models.documents.plan import PlanDocument
from planner.show.run import RunReport


def _ask(name: str, priority: int, replicas: int, gpus: int, pods: list[Any]) -> dict[str, Any]:
    role = {"name": "worker", "replicas": replicas, "gpus": gpus}
    return {
        "apiVersion": "gangplan.dev/v1alpha1",
        "kind": "Gang",
        "metadata": {"name": name, "namespace": "research"},
        "spec": {"priority": priority, "roles": [role]},
        "status": {"pods": pods},
    }


def _pod(gang: str, index: int, node: str, gpus: list[int] | None) -> dict[str, Any]:
    return {
        "name": f"{gang}-worker-{index}",
        "role": "worker",
        "index": index,
        "node": node,
        "gpus": gpus,
    }


def tier(
    name: str, sense: str, value: int, bound: int | None = None, *, proof: str | None = "exact"
) -> dict[str, Any]:
    bound = value if bound is None else bound
    gap = abs(bound - value) / max(1, abs(value))
    stated = {"name": name, "sense": sense, "value": value, "best": value, "bound": bound}
    return {**stated, "gap": gap, "proof": proof}


def _gang(name: str, decision: str, pods: list[Any], **stated: object) -> dict[str, Any]:
    return {
        "namespace": "research",
        "name": name,
        "decision": decision,
        "pods": pods,
        "bandwidthMBps": None,
        "share": None,
        "domains": None,
        "reason": None,
        **stated,
    }


_STANDING = _pod("old", 0, "v100-4", [0, 1])

_PLAN: dict[str, Any] = {
    "apiVersion": "gangplan.dev/v1alpha1",
    "kind": "Plan",
    "metadata": {
        "name": "two-racks",
        "createdAt": "2026-11-20T08:00:00Z",
        "generator": "gangplan 0.2.0",
    },
    "instance": {
        "cluster": {
            "apiVersion": "gangplan.dev/v1alpha1",
            "kind": "Cluster",
            "metadata": {"name": "two-racks"},
            "spec": {
                "levels": [{"name": "rack"}],
                "serverModels": [
                    {"name": "DGX-1 V100", "gpu": "V100", "gpus": 8, "fabric": "direct"}
                ],
                "nodes": [
                    {
                        "name": f"v100-{i}",
                        "model": "DGX-1 V100",
                        "domains": {"rack": "r1" if i < 3 else "r2"},
                        "unhealthyGpus": [7] if i == 4 else [],
                        "unschedulable": False,
                        "ready": True,
                    }
                    for i in range(1, 5)
                ],
            },
        },
        "gangs": [
            _ask("big", 5, 9, 8, []),
            _ask("old", 0, 1, 2, [_STANDING]),
            _ask("pair", 10, 2, 2, []),
            _ask("whole", 10, 2, 8, []),
        ],
        "policy": {
            "apiVersion": "gangplan.dev/v1alpha1",
            "kind": "Policy",
            "spec": {"solve": {"budget": 60}},
        },
    },
    "spec": {
        "gangs": [
            _gang(
                "big",
                "wait",
                [],
                reason={"code": "NoRoom", "message": "72 GPUs asked, 32 installed"},
            ),
            _gang(
                "old",
                "keep",
                [_STANDING],
                bandwidthMBps=40000,
                share=1000,
                domains={"rack": 1, "node": 1},
            ),
            _gang(
                "pair",
                "place",
                [_pod("pair", 0, "v100-3", [0, 3]), _pod("pair", 1, "v100-3", [1, 2])],
                bandwidthMBps=36800,
                share=920,
                domains={"rack": 1, "node": 1},
            ),
            _gang(
                "whole",
                "place",
                [_pod("whole", i, f"v100-{i + 1}", list(range(8))) for i in range(2)],
                bandwidthMBps=50000,
                share=1000,
                domains={"rack": 1, "node": 2},
            ),
        ]
    },
    "status": {
        "outcome": "feasible",
        "objectives": [
            tier("admission/10", "max", 20),
            tier("admission/5", "max", 0),
            tier("admission/0", "max", 2),
            tier("bandwidth", "max", 21680, 22000),
            tier("span", "min", 16),
        ],
        "search": {"solver": "by hand", "seed": 0, "stoppedBy": "budget"},
        "notes": [],
        "digests": {},
    },
}


def plan() -> dict[str, Any]:
    """A fresh copy of the plan."""
    return sealed(copy.deepcopy(_PLAN))


def plan_text() -> str:
    return json.dumps(plan())


def report(exit_code: int = 0) -> RunReport:
    """A run of the plan by hand: big waits for 72 GPUs, pair is pending, whole starts; a gap in bandwidth."""
    document = plan()
    amounts = {"guarantee": 8, "limit": 40, "before": 2, "after": 20, "borrowed": 12, "waiting": 72}
    document["status"]["queues"] = [{"name": 'a"b', **amounts}]
    document["status"]["effectiveGpus"] = {"before": 2.0, "after": 22.5, "oneAtATime": 20.0}
    found = {"pair": Outcome.pending, "whole": Outcome.started}
    done = (GangVerdict(("research", name), one, "gp-1") for name, one in found.items())
    return RunReport(
        exit_code=exit_code,
        decided=PlanDocument.model_validate(document),
        applied=Verdict(tuple(done)),
        seconds={"read": 0.5, "solve": 12.0},
        idle={"now": 8.0},
        spread=1.5,
    )
