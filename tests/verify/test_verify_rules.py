"""Sabotage of feasibility: pods or the instance are changed, all figures restated, one rule is broken."""

from __future__ import annotations

import pytest
from plan_busy import INFRA, busy_plan
from plan_documents import Change, Doc, both, decided, entry, restated, server, stopped, wanted

from models.verify.check import check


def rules_broken(plan: Doc) -> set[str]:
    """Rules broken once every figure is stated as it follows from the pods."""
    return {violation.rule for violation in check(restated(plan))}


def _move(name: str, position: int, node: str, gpus: list[int] | None) -> Change:
    return lambda plan: entry(plan, name)["pods"][position].update(node=node, gpus=gpus)


def _server(name: str, /, **changes: object) -> Change:
    return lambda plan: server(plan, name).update(changes)


def _role(name: str, position: int, /, **changes: object) -> Change:
    return lambda plan: wanted(plan, name)["spec"]["roles"][position].update(changes)


def _spec(name: str, /, **changes: object) -> Change:
    return lambda plan: wanted(plan, name)["spec"].update(changes)


def _policy(**changes: object) -> Change:
    return lambda plan: plan["instance"]["policy"]["spec"].update(changes)


def _drop_last(name: str) -> Change:
    return lambda plan: entry(plan, name)["pods"].pop()


def _add(name: str, index: int, node: str, gpus: list[int] | None, role: str = "worker") -> Change:
    pod = {
        "name": f"{name}-{role}-{index}",
        "role": role,
        "index": index,
        "node": node,
        "gpus": gpus,
    }
    return lambda plan: entry(plan, name)["pods"].append(pod)


def _wait(name: str) -> Change:
    """Drop every pod of a gang."""
    return lambda plan: entry(plan, name).update(decided(name, "wait", why="NoRoom"))


def _stop(name: str) -> Change:
    return lambda plan: entry(plan, name).update(stopped(name, "nobody"))


ALL = list(range(8))

FREE_HOST = _move("host", 0, "h6", None)
"""host leaves h4: its four GPUs there are free, the two of gone stay unknown."""

BROKEN: list[tuple[str, str, Change]] = [
    # GPUs
    ("two pods of a gang share a GPU", "gpu-shared", _move("dual", 2, "h3", [5, 6])),
    ("a placed pod takes a standing pod's GPU", "gpu-shared", _move("fixr", 1, "m2", [0])),
    ("two gangs share GPUs", "gpu-shared", _move("dual", 1, "h3", [3, 4])),
    ("a sick GPU is given", "gpu-unhealthy", _server("h1", unhealthyGpus=[0])),
    ("too few GPUs", "gpu-count", _move("ball", 1, "h2", ALL[:7])),
    ("too many GPUs", "gpu-count", _move("fixr", 1, "m2", [1, 2])),
    ("GPUs for a pod that asks for none", "gpu-count", _move("kilo", 0, "h6", [0])),
    ("GPUs not named where they are known", "gpu-binding", _move("fixr", 1, "m2", None)),
    ("GPUs not named on a switched server", "gpu-binding", _move("ball", 0, "h1", None)),
    (
        "GPUs named where some are held unknown",
        "unknown-gpus",
        _move("host", 0, "h4", [0, 1, 2, 3]),
    ),
    (
        "GPUs named where some are sick unknown",
        "unknown-gpus",
        both(FREE_HOST, _move("host", 0, "h6", [0, 1, 2, 3])),
    ),
    ("more unknown GPUs than can be free", "unknown-gpus", _server("h4", unhealthyGpus=[0, 1, 2])),
    ("one sick GPU too many", "unknown-gpus", _server("h4", unknownUnhealthy=3)),
    ("indices named where the node decides", "gpu-binding", _policy(gpuBinding="none")),
    # resources
    ("too little cpu", "resources", _server("h1", allocatable={"cpu": "47999m"})),
    ("cpu on a node with a running pod", "resources", _server("h3", allocatable={"cpu": "95"})),
    ("too little memory", "resources", _server("c1", allocatable={"memory": "1023Mi"})),
    ("too few pods", "resources", _server("c1", allocatable={"pods": 1})),
    ("no pods at all", "resources", _server("h2", allocatable={"pods": 0})),
    (
        "a resource of any name",
        "resources",
        both(
            _server("h1", allocatable={"example.com/fpga": 1}),
            _role("ball", 0, requests={"example.com/fpga": 2}),
        ),
    ),
    (
        "one pod too many on a node with a pod that stays",
        "resources",
        _server("m2", allocatable={"pods": 1}),
    ),
    # nodes
    ("a cordoned node", "schedulable", _server("h1", unschedulable=True)),
    ("a node not ready", "schedulable", _server("m2", ready=False)),
    (
        "a node that is not ours",
        "schedulable",
        both(
            _policy(nodeSelector={"ours": "yes"}),
            *(_server(n, labels={"ours": "yes"}) for n in ("c1", "h1", "h4", "m2")),
            _server("h3", labels={"ours": "yes", "disk": "fast"}),
        ),
    ),
    ("a taint", "taint", _server("h1", taints=[INFRA])),
    (
        "a taint that throws out",
        "taint",
        _server("h1", taints=[{"key": "gone", "value": "", "effect": "NoExecute"}]),
    ),
    (
        "another value is tolerated",
        "taint",
        both(
            _server("h1", taints=[INFRA]),
            _server("h2", taints=[INFRA]),
            _role(
                "ball",
                0,
                tolerations=[
                    {"key": "dedicated", "operator": "Equal", "value": "lab", "effect": ""}
                ],
            ),
        ),
    ),
    (
        "another effect is tolerated",
        "taint",
        both(
            _server("h1", taints=[INFRA]),
            _role(
                "ball",
                0,
                tolerations=[{"key": "dedicated", "operator": "Exists", "effect": "NoExecute"}],
            ),
        ),
    ),
    ("a selector", "selector", _server("h3", labels={"disk": "slow"})),
    ("a selector without a label", "selector", _server("h3", labels={})),
    ("another GPU model", "selector", _role("ball", 0, model="H200")),
    ("a GPU model on a server without", "selector", _role("kilo", 0, model="H100")),
    # gangs
    ("a pod short", "all-or-nothing", _drop_last("ball")),
    ("a pod too many", "all-or-nothing", _add("host", 1, "h6", None)),
    ("a role left out", "all-or-nothing", lambda p: entry(p, "dual")["pods"].pop(0)),
    (
        "a hole in the indices",
        "all-or-nothing",
        lambda p: entry(p, "ball")["pods"][1].update(index=2, name="ball-worker-2"),
    ),
    (
        "a count between the steps",
        "all-or-nothing",
        both(_role("ball", 0, replicas={"min": 1, "max": 3, "step": 2})),
    ),
    # topology
    ("a gang over two racks", "required", _spec("dual", topology={"required": "rack"})),
    (
        "a gang over two nodes",
        "required",
        _spec("ball", topology={"required": "node", "preferred": "rack"}),
    ),
    ("a launcher in another block", "required", _server("c1", domains={"block": "b3"})),
    ("a launcher in no block", "required", _server("c1", domains={})),
    (
        "a completed gang over two racks",
        "required",
        both(
            _spec("fixr", topology={"required": "rack"}),
            _role("fixr", 0, mixModels=True),
            _move("fixr", 1, "h6", None),
        ),
    ),
    ("a role over two nodes", "required", _role("ball", 0, topology={"required": "node"})),
    ("a slice over two nodes", "slice", _role("ball", 0, slice={"size": 2, "required": "node"})),
    (
        "a slice with a pod that stays",
        "slice",
        both(
            _role("fixr", 0, mixModels=True, slice={"size": 8, "required": "node"}),
            _move("fixr", 1, "h6", None),
        ),
    ),
    ("two GPU models in one role", "one-model", _move("fixr", 1, "h6", None)),
    # what runs
    ("a running gang is stopped", "standing", _stop("core")),
    ("a movable gang is stopped", "standing", _stop("even")),
    ("a running pod moves", "standing", _move("core", 0, "h6", None)),
    (
        "a running pod changes a GPU",
        "standing",
        both(_move("dual", 1, "h3", [3, 5]), _move("core", 0, "h3", [0, 1, 2, 4])),
    ),
    ("a preemptible pod moves", "standing", _move("just", 0, "h6", None)),
    ("a preemptible gang stops for no gang", "preemption", _stop("just")),
    (
        "a pod of an incomplete gang moves",
        "standing",
        both(_move("gone", 0, "h6", None), _move("host", 0, "h4", [0, 1, 2, 3])),
    ),
    (
        "a movable pod moves before it is complete",
        "standing",
        both(_drop_last("fixr"), _move("fixr", 0, "m2", [1])),
    ),
    (
        "half of what is missing comes back",
        "completion",
        both(_role("gone", 0, replicas=3), _add("gone", 1, "h6", None)),
    ),
    (
        "more than what is missing comes back",
        "completion",
        both(_add("gone", 1, "h6", None), _add("gone", 2, "h6", None)),
    ),
    ("an elastic gang loses its lower pod", "shrinking", lambda p: entry(p, "even")["pods"].pop(0)),
    (
        "an elastic gang grows above max",
        "all-or-nothing",
        both(_add("even", 2, "m1", [4]), _add("even", 3, "m1", [7])),
    ),
    # shares
    (
        "placed below its share",
        "min-share",
        both(_spec("fixr", topology={"minBandwidthShare": 0.5001})),
    ),
    ("placed below everybody's share", "min-share", _policy(minBandwidthShare=0.501)),
]


@pytest.mark.parametrize(("rule", "change"), [s[1:] for s in BROKEN], ids=[s[0] for s in BROKEN])
def test_a_breach_is_found(rule: str, change: Change) -> None:
    plan = busy_plan()
    change(plan)
    _redecide(plan)
    assert rules_broken(plan) == {rule}


def _redecide(plan: Doc) -> None:
    """State the decisions that fit the pods, so that only the rule itself is broken."""
    for violation in check(restated(plan)):
        if violation.rule == "decision":
            name = str(violation.gang).split("/")[1]
            entry(plan, name)["decision"] = violation.message.rsplit(" ", 1)[1]
    for stated in plan["spec"]["gangs"]:
        if stated["decision"] not in ("wait", "preempt", "keep"):
            stated["reason"] = None


ALLOWED: list[tuple[str, Change]] = [
    ("exactly the cpu there is", _server("h1", allocatable={"cpu": "48"})),
    ("exactly the memory there is", _server("c1", allocatable={"memory": "1Gi"})),
    ("a resource no pod asks for", _server("h1", allocatable={"nvidia.com/mig": 0})),
    ("a node overfilled by pods that stay", _server("m1", allocatable={"pods": 1})),
    ("a cordoned node under a pod that stays", _server("m1", unschedulable=True)),
    ("a tainted node under a pod that stays", _server("m1", taints=[INFRA])),
    ("a sick GPU under a pod that stays", _server("m1", unhealthyGpus=[0])),
    (
        "a level required of pods that all stay",
        both(
            _spec("even", topology={"required": "node"}),
            lambda p: wanted(p, "even")["status"]["pods"][1].update(node="m2", gpus=[3]),
            _move("even", 1, "m2", [3]),
        ),
    ),
    (
        "a taint that is only preferred",
        _server("h1", taints=[dict(INFRA, effect="PreferNoSchedule")]),
    ),
    (
        "a taint tolerated by name",
        both(
            _server("h1", taints=[INFRA]),
            _role("ball", 0, tolerations=[{"key": "dedicated", "operator": "Exists"}]),
        ),
    ),
    (
        "every taint tolerated",
        both(_server("h1", taints=[INFRA]), _role("ball", 0, tolerations=[{"operator": "Exists"}])),
    ),
    ("an implied label of a level", _role("ball", 0, nodeSelector={"example.com/rack": "r1"})),
    ("an implied label of a node", _role("kilo", 0, nodeSelector={"kubernetes.io/hostname": "c1"})),
    ("a server model by alias", _role("fixr", 0, model="DGX-1 Volta")),
    (
        "two GPU models where mixing is allowed",
        both(_role("fixr", 0, mixModels=True), _move("fixr", 1, "h6", None)),
    ),
    (
        "a short last slice elsewhere",
        both(_role("ball", 0, slice={"size": 1, "required": "node"})),
    ),
    ("exactly the unknown GPUs that can be free", _server("h4", unhealthyGpus=[0, 1])),
    ("a gang that just reaches its share", _spec("fixr", topology={"minBandwidthShare": 0.5})),
    ("a gang that stays below its share", _spec("even", topology={"minBandwidthShare": 1})),
    ("a gang waits that could be placed", _wait("ball")),
    ("a movable pod moves", _move("even", 1, "m2", [3])),
    ("a movable elastic gang shrinks from the top", _drop_last("even")),
    ("an elastic gang grows in place", _add("even", 2, "m1", [4])),
    (
        "a movable gang moves and grows",
        both(_move("even", 0, "m2", [3]), _add("even", 2, "m1", [4])),
    ),
    ("missing pods come back", both(_add("gone", 1, "h6", None))),
    (
        "a grown gang may fall below its share",
        both(_spec("even", topology={"minBandwidthShare": 1}), _add("even", 2, "m2", [4])),
    ),
]


@pytest.mark.parametrize("change", [s[1] for s in ALLOWED], ids=[s[0] for s in ALLOWED])
def test_what_is_allowed_passes(change: Change) -> None:
    plan = busy_plan()
    change(plan)
    _redecide(plan)
    assert check(restated(plan)) == []


def test_with_the_node_deciding_meshes_and_unknown_servers_carry_no_indices() -> None:
    plan = busy_plan()
    _policy(gpuBinding="none")(plan)
    entry(plan, "fixr")["pods"][1]["gpus"] = None
    # GPU 0 stands, the other is any of 1 to 7: at worst over SYS, min(10000, 0.8 x 10000) = 8000 of 40000.
    assert check(restated(plan)) == []
    stated = entry(plan, "fixr")
    assert (stated["bandwidthMBps"], stated["share"]) == (8000, 200)


def test_with_the_node_deciding_a_gang_that_takes_the_rest_may_name_it() -> None:
    plan = busy_plan()
    _policy(gpuBinding="none")(plan)
    server(plan, "m2")["unhealthyGpus"] = [2, 3, 4, 5, 6, 7]
    assert check(restated(plan)) == []
