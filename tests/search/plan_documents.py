"""Plan documents built by hand for the tests of the judge: plain dicts, no reader, no solver.

``sealed`` recomputes the digests, ``restated`` also every figure and tier value that follows from the pods.
"""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Callable
from typing import Any

from models.verify.check import Judge

Doc = dict[str, Any]

Change = Callable[[Doc], object]
"""What a test does to a plan."""

API = "gangplan.dev/v1alpha1"

V100_LINKS = [
    ["X", "NV1", "NV1", "NV2", "NV2", "SYS", "SYS", "SYS"],
    ["NV1", "X", "NV2", "NV1", "SYS", "NV2", "SYS", "SYS"],
    ["NV1", "NV2", "X", "NV2", "SYS", "SYS", "NV1", "SYS"],
    ["NV2", "NV1", "NV2", "X", "SYS", "SYS", "SYS", "NV1"],
    ["NV2", "SYS", "SYS", "SYS", "X", "NV1", "NV1", "NV2"],
    ["SYS", "NV2", "SYS", "SYS", "NV1", "X", "NV2", "NV1"],
    ["SYS", "SYS", "NV1", "SYS", "NV1", "NV2", "X", "NV2"],
    ["SYS", "SYS", "SYS", "NV1", "NV2", "NV1", "NV2", "X"],
]
"""DGX-1 V100: two quads and eight double links, as nvidia-smi prints it."""


def dgx(name: str = "DGX H100", gpus: int = 8, gbps: int = 400, **more: object) -> Doc:
    """Switched: 18 x 20,600 = 370,800 MB/s; one NIC a GPU of ``gbps``, 8 x 400 Gb/s = 400,000 MB/s."""
    model = {
        "name": name,
        "aliases": [],
        "vendor": "NVIDIA",
        "gpu": "H100",
        "gpus": gpus,
        "fabric": "nvswitch",
        "matrix": None,
        "linkMBps": 20600,
        "linksPerGpu": 18,
        "pcieMBps": 40000,
        "sysMBps": 10000,
        "nics": [{"name": f"mlx5_{g}", "gbps": gbps, "gpus": [g]} for g in range(gpus)],
        "nvlinkDomainNodes": 1,
        "sources": [],
        "confidence": "sourced",
    }
    return model | more


def mesh(name: str = "DGX-1 V100") -> Doc:
    """No switch: 20,000 MB/s a link; two 100 Gb/s NICs, one a socket."""
    return {
        "name": name,
        "aliases": ["DGX-1 Volta"],
        "vendor": "NVIDIA",
        "gpu": "V100",
        "gpus": 8,
        "fabric": "direct",
        "matrix": copy.deepcopy(V100_LINKS),
        "linkMBps": 20000,
        "linksPerGpu": 6,
        "pcieMBps": 10000,
        "sysMBps": 10000,
        "nics": [
            {"name": "ib0", "gbps": 100, "gpus": [0, 1, 2, 3]},
            {"name": "ib1", "gbps": 100, "gpus": [4, 5, 6, 7]},
        ],
        "nvlinkDomainNodes": 1,
    }


def level(name: str, oversubscription: float = 1, *, nvlink: bool = False) -> Doc:
    return {
        "name": name,
        "label": f"example.com/{name}",
        "oversubscription": oversubscription,
        "nvlink": nvlink,
    }


def node(name: str, model: str | None, place: str = "", **more: object) -> Doc:
    """``place``: short names of its domains at block and rack, such as ``b1/r1``."""
    short = [part for part in place.split("/") if part]
    return {
        "name": name,
        "model": model,
        "domains": dict(zip(("block", "rack"), short, strict=False)),
        "allocatable": {},
        "unschedulable": False,
        "ready": True,
        "unknownUnhealthy": 0,
        "unhealthyGpus": [],
        "labels": {},
        "taints": [],
        "nics": None,
    } | more


def cluster(models: list[Doc], nodes: list[Doc], levels: list[Doc] | None = None) -> Doc:
    return {
        "apiVersion": API,
        "kind": "Cluster",
        "metadata": {"name": "by-hand"},
        "spec": {
            "levels": [level("block"), level("rack")] if levels is None else levels,
            "serverModels": models,
            "nodes": nodes,
        },
    }


def role(name: str = "worker", replicas: object = 1, gpus: int = 1, **more: object) -> Doc:
    return {
        "name": name,
        "replicas": replicas,
        "gpus": gpus,
        "requests": {},
        "topology": {"required": None, "preferred": None},
        "slice": None,
        "nodeSelector": {},
        "tolerations": [],
        "model": None,
        "mixModels": False,
    } | more


def standing(of: str, node: str, gpus: list[int] | None, index: int = 0, **more: object) -> Doc:
    """A pod that runs."""
    pod = {"name": f"{of}-worker-{index}", "role": "worker", "index": index}
    return pod | {"node": node, "gpus": gpus} | more


def gang(name: str, *roles: Doc, pods: tuple[Doc, ...] = (), **spec: object) -> Doc:
    return {
        "apiVersion": API,
        "kind": "Gang",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "queue": None,
            "priority": 0,
            "submittedAt": None,
            "expectedDuration": None,
            "preemptible": False,
            "movable": False,
            "topology": {"required": None, "preferred": None, "minBandwidthShare": None},
            "roles": list(roles) or [role()],
            "communication": {"pattern": "all-reduce", "weight": 1},
        }
        | spec,
        "status": {"pods": list(pods)},
    }


def policy(**spec: object) -> Doc:
    names = [
        "admission",
        "waiting",
        "disruption",
        "preference",
        "bandwidth",
        "growth",
        "span",
        "stranded",
    ]
    return {
        "apiVersion": API,
        "kind": "Policy",
        "metadata": {"name": "default"},
        "spec": {
            "objectives": [{"name": name, "tolerance": 0} for name in names],
            "mix": {"1": 1000},
            "minBandwidthShare": 0,
            "gpuBinding": "exact",
            "nodeSelector": {},
            "solve": {"budget": 60, "timeLimit": "120s", "workers": 2, "seed": 0},
        }
        | spec,
    }


Place = tuple[str, "list[int] | None"]


def decided(name: str, decision: str, *places: Place, role: str = "worker", why: str = "") -> Doc:
    """An entry of ``spec.gangs``: pod i of one role on ``places[i]`` = (node, GPUs)."""
    pods = [
        {"name": f"{name}-{role}-{i}", "role": role, "index": i, "node": where, "gpus": gpus}
        for i, (where, gpus) in enumerate(places)
    ]
    return {
        "namespace": "default",
        "name": name,
        "decision": decision,
        "pods": pods,
        "bandwidthMBps": None,
        "share": None,
        "domains": None,
        "reason": {"code": why, "message": f"{name}: {why}"} if why else None,
    }


def stopped(name: str, comes: str, code: str = "Preempted", priority: int = 0) -> Doc:
    """An entry of a gang that gives way to another; ``restated`` corrects that one's priority."""
    entry = decided(name, "preempt", why=code)
    entry["reason"]["fields"] = {"by": [{"gang": f"default/{comes}", "priority": priority}]}
    return entry


def tier(name: str, value: int, sense: str = "max") -> Doc:
    """A tier of which nothing is proven: plans by hand need not be the best."""
    bound = value + FAR if sense == "max" else value - FAR
    gap = abs(bound - value) / max(1, abs(value))
    bounds = {"value": value, "best": value, "bound": bound}
    return {"name": name, "sense": sense, **bounds, "gap": gap, "proof": None}


def proven(name: str, value: int, sense: str = "max") -> Doc:
    """A tier that is solved and proven."""
    bounds = {"value": value, "best": value, "bound": value}
    return {"name": name, "sense": sense, **bounds, "gap": 0.0, "proof": "exact"}


def off(plan: Doc, name: str, by: int) -> None:
    """Change the value that a plan states of a tier."""
    stated = objective(plan, name)
    stated.update(tier(name, stated["value"] + by, stated["sense"]))


def closed(plan: Doc) -> Doc:
    """The same document, every tier stated as proven; changes it in place."""
    for one in plan["status"]["objectives"]:
        one.update(proven(one["name"], one["value"], one["sense"]))
    plan["status"]["outcome"] = "optimal"
    plan["status"]["search"]["stoppedBy"] = "proof"
    return plan


FAR = 10**15
"""A bound is so far from a value where nothing is proven."""


def document(
    clusters: Doc, gangs: list[Doc], decisions: list[Doc], rules: Doc | None = None
) -> Doc:
    """A whole plan, figures and tiers still unstated: see ``restated``."""
    return {
        "apiVersion": API,
        "kind": "Plan",
        "metadata": {
            "name": "by-hand",
            "createdAt": "2026-11-20T10:00:00Z",
            "generator": "gangplan 0",
        },
        "instance": {"cluster": clusters, "gangs": gangs, "policy": rules or policy()},
        "spec": {"gangs": decisions},
        "status": {
            "outcome": "feasible",
            "objectives": [],
            "search": {"solver": "by hand", "seed": 0, "stoppedBy": "budget"},
            "digests": {"instance": "sha256:", "spec": "sha256:"},
        },
    }


def sealed(plan: Doc, *parts: str) -> Doc:
    """The same document with digests that fit, of these parts or of both; changes it in place."""
    for part in parts or ("instance", "spec"):
        text = json.dumps(plan[part], sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        sum_ = hashlib.sha256(text.encode()).hexdigest()
        plan["status"]["digests"][part] = f"sha256:{sum_}"
    return plan


def restated(plan: Doc, judge: Judge | None = None) -> Doc:
    """The same document with every figure and tier value that follows from its pods.

    Unless it says so otherwise, gangs that move do so in one set that bought nothing. It states no
    effective GPUs. ``judge``: who is to check it, so that the instance is read once.
    """
    asked = {g["metadata"]["name"]: g["spec"] for g in plan["instance"]["gangs"]}
    for stated in plan["spec"]["gangs"]:
        for one in ((stated["reason"] or {}).get("fields") or {}).get("by", ()):
            one["priority"] = asked.get(one["gang"].rpartition("/")[2], {}).get("priority", 0)
    tiers, figures, queues = (judge or Judge()).derived(plan)
    for stated in plan["spec"]["gangs"]:
        found = figures[stated["namespace"], stated["name"]]
        stated["bandwidthMBps"] = found.bandwidth
        stated["share"] = found.share
        stated["speed"] = found.speed
        stated.pop("speedAfter", None)
        stated["domains"] = found.domains
    plan["status"]["objectives"] = [
        tier(name, value, "min" if name in MINIMISED else "max") for name, value in tiers.items()
    ]
    plan["status"]["outcome"] = "feasible" if plan["status"]["objectives"] else "optimal"
    plan["status"]["search"]["stoppedBy"] = "budget"
    moved = [g for g in plan["instance"]["gangs"] if _moves(g, entry(plan, g["metadata"]["name"]))]
    names = [f"default/{g['metadata']['name']}" for g in moved]
    plan["status"].pop("effectiveGpus", None)
    plan["status"].pop("unchecked", None)
    named = queues if plan["instance"].get("queues") else []
    plan["status"]["queues"] = json.loads(json.dumps(named))  # lists in place of tuples
    before = plan["status"].pop("moves", [])
    if names and sorted(name for one in before for name in one["gangs"]) == names:
        plan["status"]["moves"] = before
    elif names:
        plan["status"]["moves"] = [moves(names, sum(standing_gpus(g) for g in moved))]
    listed = [o["name"] for o in plan["instance"]["policy"]["spec"]["objectives"]]
    for one in plan["status"].get("moves", []):
        if "goodput" in listed:
            one["bought"].setdefault("effectiveGpus", 0)
        else:
            one["bought"].pop("effectiveGpus", None)
    return sealed(plan)


MINIMISED = ("disruption", "span", "stranded", "stability")


def _moves(wanted: Doc, stated: Doc) -> bool:
    """Whether a standing pod of a gang is on another node or on other GPUs."""
    now = {
        (p["role"], p["index"]): (p["node"], p["gpus"] or None)
        for p in wanted["status"]["pods"]
        if p.get("node")
    }
    after = {(p["role"], p["index"]): (p["node"], p["gpus"] or None) for p in stated["pods"]}
    return any(now[key] != after[key] for key in now.keys() & after.keys())


def standing_gpus(wanted: Doc) -> int:
    """GPUs that a gang holds now."""
    asks = {role["name"]: role["gpus"] for role in wanted["spec"]["roles"]}
    return sum(
        asks[p["role"]] if p["gpus"] is None else len(p["gpus"])
        for p in wanted["status"]["pods"]
        if p.get("node")
    )


def moves(names: list[str], moved: int, /, **bought: object) -> Doc:
    """A set of moves; ``bought``: what differs from nothing, ``gain`` among it."""
    gain = bought.pop("gain", 0.0)
    nothing = {"gangs": [], "gpus": 0, "bandwidth": 0, "wholeNodes": 0, "wholeDomains": 0}
    return {"gangs": names, "gpus": moved, "bought": nothing | bought, "gain": gain}


def made(clusters: Doc, gangs: list[Doc], decisions: list[Doc], rules: Doc | None = None) -> Doc:
    """A whole plan, restated."""
    return restated(document(clusters, gangs, decisions, rules))


def entry(plan: Doc, name: str) -> Doc:
    """What the plan says of a gang."""
    return next(e for e in plan["spec"]["gangs"] if e["name"] == name)


def wanted(plan: Doc, name: str) -> Doc:
    """The gang's own document in the instance."""
    return next(g for g in plan["instance"]["gangs"] if g["metadata"]["name"] == name)


def server(plan: Doc, name: str) -> Doc:
    """A node's document in the instance."""
    return next(n for n in plan["instance"]["cluster"]["spec"]["nodes"] if n["name"] == name)


def objective(plan: Doc, name: str) -> Doc:
    """What the plan says of a tier."""
    return next(t for t in plan["status"]["objectives"] if t["name"] == name)


def both(*changes: Change) -> Change:
    return lambda plan: [change(plan) for change in changes]


def stands(name: str) -> Change:
    """What the plan places ran there before."""

    def change(plan: Doc) -> None:
        pods = [
            standing(name, p["node"], p["gpus"], p["index"], role=p["role"], name=p["name"])
            for p in entry(plan, name)["pods"]
        ]
        wanted(plan, name)["status"]["pods"] = pods
        entry(plan, name)["decision"] = "keep"

    return change
