"""Plans for the tests of the report: one with hostile texts wherever a text may stand, and a large one."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import handmade
from plan_documents import V100_LINKS, sealed

from models.documents.plan import PlanDocument
from planner.show.report.page import html
from planner.show.report.plan_page import plan_page

SCRIPT = "<script>alert(1)</script>"
ATTRIBUTE = "\" onmouseover='alert(2)' x=\"</title></style><img src=x onerror=alert(3)>"
COMMENT = "<!-- ]]> \u2028 \u2029 </script><svg onload=alert(4)> {{ 7 * 7 }} \x1b[31m \u202egnp"


def hostile() -> dict[str, Any]:
    """The plan by hand, with markup in each text that is not a name of Kubernetes."""
    plan = handmade.plan()
    spec = plan["instance"]["cluster"]["spec"]
    model = spec["serverModels"][0]
    model["name"], model["matrix"] = f"V100 {SCRIPT}", V100_LINKS
    for node in spec["nodes"]:
        node["model"] = model["name"]
    spec["nodes"][2]["unschedulable"] = True
    plan["metadata"]["generator"] = f"gangplan {SCRIPT}"
    gangs = plan["spec"]["gangs"]
    gangs[0]["reason"]["message"] = f"{SCRIPT} {COMMENT}"
    gangs[0]["reason"]["code"] = "No-Room"
    gangs[0]["reserved"] = {
        "start": "2026-11-20T09:00:00Z",
        "domain": f"rack {ATTRIBUTE}",
        "nodes": ["v100-4"],
        "pods": [],
        "beside": [SCRIPT],
    }
    plan["status"]["notes"] = [SCRIPT, ATTRIBUTE]
    plan["status"]["remarks"] = [COMMENT]
    plan["status"]["objectives"][0]["name"] = f"admission/{SCRIPT}"
    plan["status"]["search"]["solver"] = ATTRIBUTE
    return sealed(plan)


def large(nodes: int = 12_500, in_rack: int = 32, racks: int = 16) -> dict[str, Any]:
    """Nodes of 8 GPUs in racks and blocks: a gang for each 3 nodes but the last fifth, half of them new."""
    plan = handmade.plan()
    named = [f"gpu-{number:05}" for number in range(nodes)]
    spec = plan["instance"]["cluster"]["spec"]
    spec["levels"] = [{"name": "block"}, {"name": "rack"}]
    spec["nodes"] = [
        {
            "name": name,
            "model": "DGX-1 V100",
            "domains": {
                "block": f"b{number // in_rack // racks}",
                "rack": f"b{number // in_rack // racks}-r{number // in_rack % racks}",
            },
            "unschedulable": number % 401 == 0,
        }
        for number, name in enumerate(named)
    ]
    asked, decided = [], []
    for gang, first in enumerate(range(0, nodes * 4 // 5, 3)):
        name = f"job-{gang:04}"
        pods = [
            {"name": f"{name}-{i}", "role": "worker", "index": i, "node": node, "gpus": [*range(8)]}
            for i, node in enumerate(named[first : first + 3])
        ]
        keeps = gang % 2 == 0
        role = {"name": "worker", "replicas": len(pods), "gpus": 8}
        asked.append(
            {
                "apiVersion": "gangplan.dev/v1alpha1",
                "kind": "Gang",
                "metadata": {"name": name, "namespace": "research"},
                "spec": {"priority": 0, "roles": [role]},
                "status": {"pods": pods if keeps else []},
            }
        )
        decided.append(
            {
                "namespace": "research",
                "name": name,
                "decision": "keep" if keeps else "place",
                "pods": pods,
                "bandwidthMBps": 50000,
                "share": 1000,
                "domains": {"block": 1, "rack": 1, "node": 3},
                "reason": None,
            }
        )
    plan["instance"]["gangs"], plan["spec"]["gangs"] = asked, decided
    return plan


def plan_of(document: dict[str, Any]) -> PlanDocument:
    return PlanDocument.model_validate_json(json.dumps(document))


def page_of(document: dict[str, Any]) -> str:
    return html(plan_page(plan_of(document)))


@cache
def large_page() -> str:
    return page_of(large())
