"""What ``explain`` finds: ways to start a gang that were done, and who is blamed in a plan."""

from __future__ import annotations

import copy
import json
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from conftest import RunCli
from effort import first_fast, spread
from plan_documents import sealed
from starting import starts
from tiny import tiny

from models.instance.instance import Instance
from models.instance.solution import GangDecision
from planner.pipelines.explain import why_waiting
from planner.search.explain.remedies import RemedyFinder
from planner.search.explain.trial import Remedy
from planner.search.explain.world import Replan, World
from planner.search.solve import solve
from planner.show.explain import why_tables

INPUTS = Path(__file__).parents[2] / "inputs"

HOLDING = ("NoRoom", "RequiredTopology", "Resources", "Outranked")
"""Codes whose gangs are those without which there would be room."""

UNKNOWN = ("unknown_unhealthy", "unknown_gpus", "binding_none", "sick_holders", "overfull")
"""Nobody knows which GPUs are held: the reference takes the worst, a plan may choose."""

SHAPED, PODS = ("queues", "cells", "spares", "exclusive", "balance"), ("apart", "together", "even")
FAST = [(12, ()), (105, SHAPED), (110, SHAPED)]
RANDOM = [
    *((seed, ()) for seed in range(40)),
    *((seed, SHAPED) for seed in range(100, 125)),
    *((seed, PODS) for seed in range(200, 225)),
]
LONG = [pytest.param(*one, marks=pytest.mark.slow) for one in RANDOM if one not in FAST]


def remedies_of(world: World) -> tuple[Remedy, ...]:
    """Those that are found in any time."""
    replan = Replan(lambda instance: solve(instance).decisions, 200)
    return RemedyFinder(world, replan, lambda: False).remedies()


def started_by_a_new_plan(world: World) -> bool:
    """With everything free again: who has the gang asked about start?"""
    return bool(solve(world.instance).decisions[world.gang].pods)


@pytest.mark.parametrize(("seed", "more"), [*FAST, *LONG])
def test_remedies_start_it_and_so_does_the_end_of_those_who_are_blamed(
    seed: int, more: tuple[str, ...]
) -> None:
    fewer = ("running",) if "spares" in more else ()  # spares depend on what stood free before
    instance = tiny(seed, ("cpu_gangs", *UNKNOWN, *fewer), more)
    decisions = solve(instance).decisions
    numbers = {"/".join(one.key): i for i, one in enumerate(instance.gangs)}
    for gang, decision in enumerate(decisions):
        if decision.decision != "wait":
            continue
        world = World(instance, decisions, gang)
        why = why_waiting(world, 30, threading.Event())
        if why.fits:
            assert starts(instance, decisions, gang)
        for remedy in remedies_of(world) if instance.gangs[gang].hold is None else ():
            there = remedy.world
            if remedy.first or remedy.kind in ("move", "wait"):
                assert starts(there.instance, there.decisions, gang), (remedy.kind, remedy.change)
            else:
                assert started_by_a_new_plan(there), (remedy.kind, remedy.change)
        blamed = () if decision.reason is None else decision.reason.fields.by
        if blamed and decision.reason is not None and decision.reason.code in HOLDING:
            without = world.without([numbers[one.gang] for one in blamed])
            assert started_by_a_new_plan(without), decision.reason


CLUSTER = """
apiVersion: gangplan.dev/v1alpha1
kind: Cluster
metadata: {name: two-racks}
spec:
  levels: [{name: rack}]
  nodes:
  - {name: "a-[1-2]", model: DGX H100, domains: {rack: a}}
  - {name: b-1, model: DGX H100, domains: {rack: b}}
  - {name: b-2, model: DGX H100, domains: {rack: b}, CONDITION}
"""
GANG = """---
apiVersion: gangplan.dev/v1alpha1
kind: Gang
metadata: {name: NAME}
spec:
  submittedAt: 2026-11-20T08:00:00Z
  roles: [{name: worker, replicas: PODS, gpus: 8}]
  MORE
status: {PODSTATUS}
"""


def cluster(condition: str = "unschedulable: false") -> str:
    return CLUSTER.replace("CONDITION", condition)


def gang(name: str, pods: int, more: str = "priority: 0", nodes: Sequence[str] = ()) -> str:
    stands = ", ".join(
        f"{{name: {name}-{i}, role: worker, index: {i}, node: {node}, gpus: [0,1,2,3,4,5,6,7]}}"
        for i, node in enumerate(nodes)
    )
    text = GANG.replace("PODSTATUS", f"pods: [{stands}]" if nodes else "")
    return text.replace("NAME", name).replace("PODS", str(pods)).replace("MORE", more)


Ask = Callable[[str, str], dict[str, Any]]


@pytest.fixture
def explained(cli: RunCli, tmp_path: Path) -> Ask:
    """Plans the documents, and asks about a gang."""

    def ask(text: str, name: str) -> dict[str, Any]:
        (tmp_path / "in.yaml").write_text(text, encoding="utf-8")
        plan = str(tmp_path / "plan.json")
        assert cli("plan", str(tmp_path / "in.yaml"), "--out", plan).code == 0
        result = cli("explain", plan, name, "-o", "json")
        assert result.code == 0, result.err
        found: dict[str, Any] = json.loads(result.out)
        return found

    return ask


def remedies(found: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {one["type"]: one for one in found["why"]["remedies"]}


def test_of_a_rack_that_others_share_the_level_is_a_remedy_and_so_are_they(explained: Ask) -> None:
    # one node of each rack is held: two nodes are free, but not in one rack
    text = cluster() + gang("left", 1, nodes=["a-1"]) + gang("right", 1, nodes=["b-1"])
    found = explained(text + gang("new", 2, "topology: {required: rack}"), "new")
    assert found["reason"]["fields"]["by"] == [{"gang": "default/left", "priority": 0, "gpus": 8}]
    ways = remedies(found)
    assert ways["required"]["change"] == {"required": None, "from": "rack"}
    assert ways["required"]["do"] == "require no level instead of rack"
    assert [pod["node"] for pod in ways["required"]["pods"]] == ["a-2", "b-2"]
    assert ways["move"]["gangs"] == ["default/left"]
    assert {pod["node"] for pod in ways["move"]["pods"]} == {"a-1", "a-2"}
    assert [pod["node"] for pod in ways["move"]["moved"]] == ["b-2"]
    assert ways["smaller"]["change"] == {"role": "worker", "pods": 1, "from": 2}
    assert ways["addNode"]["change"]["count"] == 1


def test_of_wider_levels_the_next_one_that_will_do_is_a_remedy(explained: Ask) -> None:
    ways = remedies(explained(cluster() + gang("new", 2, "topology: {required: node}"), "new"))
    assert ways["required"]["change"] == {"required": "rack", "from": "node"}


def test_the_taint_that_keeps_a_gang_off_is_named_and_not_the_one_it_tolerates(
    explained: Ask,
) -> None:
    taints = "{key: gpu, effect: NoSchedule}, {key: infra, effect: NoSchedule}"
    text = cluster(f"taints: [{taints}]") + gang("all", 3, nodes=["a-1", "a-2", "b-1"])
    tolerates = "gpus: 8, tolerations: [{key: gpu, operator: Exists}]}"
    ways = remedies(explained(text + gang("new", 1).replace("gpus: 8}", tolerates), "new"))
    assert ways["taints"]["change"] == {"drop": "taints", "name": "infra", "role": "worker"}


def test_what_is_reserved_for_a_gang_says_until_when_it_waits(cli: RunCli, tmp_path: Path) -> None:
    out = str(tmp_path / "plan.json")
    assert cli("plan", str(INPUTS / "reservations"), "--out", out).code == 0
    found = json.loads(cli("explain", out, "train/pretrain", "-o", "json").out)
    assert remedies(found)["wait"]["at"] == found["reserved"]["start"] == "2026-11-23T13:00:00Z"


def test_who_would_take_the_room_first_gets_it_too(explained: Ask) -> None:
    held = gang("all", 4, nodes=["a-1", "a-2", "b-1", "b-2"])
    text = cluster() + held + gang("before", 1, "priority: 5") + gang("new", 1)
    assert remedies(explained(text, "new"))["addNode"]["change"]["count"] == 2
    assert remedies(explained(text, "before"))["addNode"]["change"]["count"] == 1


def test_a_placed_gang_is_compared_with_other_domains(explained: Ask) -> None:
    # half of each rack is free: either would do for one pod; two pods keep together in the free rack
    text = cluster() + gang("left", 1, nodes=["a-1"]) + gang("new", 2)
    found = explained(text, "new")["place"]
    assert (found["level"], found["domain"]) == ("rack", "b")
    (other,) = found["others"]
    assert (other["domain"], other["possible"]) == ("a", False)
    room = {"pods": 2, "gpus": 16, "roomPods": 1, "roomGpus": 8}
    assert (other["code"], other["fields"]) == ("NoRoom", room)


@pytest.mark.parametrize("name", first_fast(["quickstart", "queues", "snapshots/v100-mpi"], 2))
def test_remedies_of_recorded_clusters_start_the_gang_in_a_new_plan(
    name: str, cli: RunCli, tmp_path: Path
) -> None:
    out = str(tmp_path / "plan.json")
    assert cli("plan", str(INPUTS / name), "--out", out).code == 0
    tried = 0
    for key, instance, decisions in spread(_waiting(out), 4):
        index = [gang.key for gang in instance.gangs].index(key)
        if instance.gangs[index].hold is not None:
            continue
        for remedy in remedies_of(World(instance, decisions, index)):
            if remedy.first or remedy.kind == "move":  # others come first; who moves is fixed there
                continue
            planned = solve(remedy.world.instance).decisions[index]
            assert planned.pods, (key, remedy.kind, remedy.change)
            tried += 1
    assert tried


def _waiting(path: str) -> list[tuple[tuple[str, str], Instance, tuple[GangDecision, ...]]]:
    from models.results.explanation import decisions_of
    from planner.read import plan_files
    from planner.read.inputs import instance_from_document

    content = plan_files.read_bytes(path)
    plan = plan_files.read_plan(content, path)
    instance = instance_from_document(plan_files.parse(content, path)["instance"])
    keys = [gang.key for gang in plan.spec.gangs if gang.decision == "wait"]
    return [(key, instance, decisions_of(plan, instance)) for key in keys]


def test_the_documented_answer_is_what_is_printed(cli: RunCli, tmp_path: Path) -> None:
    page = (INPUTS.parent / "docs" / "explain.md").read_text(encoding="utf-8")
    shown = page.partition("$ gangplan explain plan.json gpt2-medium\n")[2].partition("```")[0]
    out = str(tmp_path / "plan.json")
    assert cli("plan", str(INPUTS / "quickstart"), "--out", out).code == 0
    assert cli("explain", out, "gpt2-medium", "--time-limit", "1m").out.startswith(shown)
    assert shown.count("\n") > 6


def half(name: str, nodes: Sequence[str], more: str = "preemptible: true") -> str:
    """Gangs of one GPU each, as many as fit on these nodes."""
    found = ""
    for number, (node, gpu) in enumerate((node, gpu) for node in nodes for gpu in range(8)):
        text = gang(f"{name}-{number:02d}", 1, more, [node])
        found += text.replace("gpus: [0,1,2,3,4,5,6,7]", f"gpus: [{gpu}]").replace(
            "gpus: 8", "gpus: 1"
        )
    return found


def test_one_remedy_stops_so_many_gangs_and_no_more(explained: Ask) -> None:
    # all nodes are full of gangs of one GPU; a node needs 8 of them to go, two nodes 16 (the most is 12)
    crowd = half("small", ["a-1", "a-2", "b-1", "b-2"])
    one = remedies(explained(cluster() + crowd + gang("new", 1), "new"))["stop"]
    assert len(one["gangs"]) == 8
    assert {pod["node"] for pod in one["pods"]} == {"a-1"}
    assert one["do"].endswith(": 8 not of lower priority, by hand")
    assert "stop" not in remedies(explained(cluster() + crowd + gang("new", 2), "new"))


@pytest.mark.usefixtures("search_clock")
def test_the_time_is_kept_and_what_is_not_proven_is_said() -> None:
    instance = tiny(17, UNKNOWN)
    decisions = solve(instance).decisions
    waits = [i for i, one in enumerate(decisions) if one.decision == "wait"]
    waiting = next(i for i in waits if instance.gangs[i].hold is None)
    stop = threading.Event()
    stop.set()
    for seconds, event in ((0, threading.Event()), (60, stop)):
        why = why_waiting(World(instance, decisions, waiting), seconds, event)
        assert (why.fits, why.remedies, why.complete) == ((), (), False)
        table = why_tables.remedies(instance.gangs[waiting], why)
        assert (len(table.rows), len(table.notes)) == (0, 1)
        assert "asks with more time" in table.notes[0]


def test_nothing_is_proven_of_a_plan_that_was_changed_or_does_not_fit(
    cli: RunCli, tmp_path: Path
) -> None:
    (tmp_path / "in.yaml").write_text(cluster() + gang("a", 2) + gang("b", 5), encoding="utf-8")
    path = tmp_path / "plan.json"
    assert cli("plan", str(tmp_path / "in.yaml"), "--out", str(path)).code == 0
    plan = json.loads(path.read_text(encoding="utf-8"))
    (placed,) = (one for one in plan["spec"]["gangs"] if one["name"] == "a")
    placed["pods"] = [placed["pods"][0]] * 2
    again = sealed(copy.deepcopy(plan))
    for document, said in ((plan, "does not match"), (again, "nothing is proven of it")):
        path.write_text(json.dumps(document), encoding="utf-8")
        result = cli("explain", str(path), "b", "-o", "json")
        assert (result.code, json.loads(result.out)["why"]) == (0, None)
        assert said in result.err


OVERDUE = """---
apiVersion: gangplan.dev/v1alpha1
kind: Policy
spec: {now: 2026-11-20T08:00:00Z}
"""


def test_the_largest_request_that_works_is_said_and_empty_nodes_count_cpu(explained: Ask) -> None:
    # 100 cpu and 1,000 Gi a node, of which the gang that runs there takes 36 and 200: 64 and 800 are left
    text = cluster().replace(
        "model: DGX H100,", 'model: DGX H100, allocatable: {cpu: "100", memory: 1000Gi},'
    )
    held = gang("held", 4, nodes=["a-1", "a-2", "b-1", "b-2"])
    held = held.replace("gpus: 8}", 'gpus: 8, requests: {cpu: "36", memory: 200Gi}}')
    fat = gang("fat", 1).replace("gpus: 8}", 'gpus: 0, requests: {cpu: "120"}}')
    found = explained(text + held + fat, "fat")
    request = remedies(found)["request"]
    assert request["change"] == {"request": "cpu", "most": "64", "from": "120"}
    assert request["do"] == "request at most 64 cpu a pod instead of 120"
    big = gang("big", 1).replace("gpus: 8}", "gpus: 0, requests: {memory: 900Gi}}")
    found = explained(text + held + big, "big")
    assert remedies(found)["request"]["change"]["most"] == "800Gi"


def test_the_nodes_to_add_are_those_with_fewest_gpus_that_are_enough(explained: Ask) -> None:
    # a pod of 4: one node of 8 would do, and one of 4 does, too
    text = cluster().replace(
        "  nodes:\n",
        "  nodes:\n  - {name: z, model: GB200 NVL72 compute tray, domains: {rack: c}}\n",
    )
    full = [gang("h", 4, nodes=["a-1", "a-2", "b-1", "b-2"])]
    full.append(
        gang("g", 1, nodes=["z"])
        .replace("gpus: 8", "gpus: 4")
        .replace("[0,1,2,3,4,5,6,7]", "[0,1,2,3]")
    )
    new = gang("new", 1).replace("gpus: 8", "gpus: 4")
    added = remedies(explained(text + "".join(full) + new, "new"))["addNode"]
    assert added["change"] == {
        "count": 1,
        "like": "z",
        "model": "GB200 NVL72 compute tray",
        "gpus": 4,
    }
    two = gang("new", 2, "topology: {required: rack}")  # 8 GPUs a pod: only nodes of 8 suit it
    added = remedies(explained(text + "".join(full) + two, "new"))["addNode"]
    assert (added["change"]["count"], added["change"]["gpus"]) == (2, 16)
    assert added["change"]["level"] == "rack"


def test_remedies_come_in_the_order_in_which_a_person_tries_them(explained: Ask) -> None:
    # 8 GPUs of one node are needed. b-2 has no disk left, and nobody tolerates that; on a-1 one GPU is held
    # by left, which would find room on b-1, where right holds one, too; low has a-2 and ends in half an hour
    one = {"gpus: 8": "gpus: 1", "[0,1,2,3,4,5,6,7]": "[0]"}
    taint = "{key: node.kubernetes.io/disk-pressure, effect: NoSchedule}"
    text = cluster(f"taints: [{taint}]") + OVERDUE
    for name, node in (("left", "a-1"), ("right", "b-1")):
        held = gang(name, 1, nodes=[node])
        for old, new in one.items():
            held = held.replace(old, new)
        text += held
    low = gang("low", 1, "expectedDuration: 1h", ["a-2"])
    text += low.replace("status: {", "status: {startedAt: 2026-11-20T07:30:00Z, ")
    found = explained(text + gang("new", 1), "new")["why"]
    assert [(one["type"], one["who"], one.get("byHand", False)) for one in found["remedies"]] == [
        ("wait", "-", False),
        ("node", "operator", False),
        ("move", "operator", True),
        ("stop", "operator", True),
        ("addNode", "operator", False),
    ]
    assert found["remedies"][3]["gangs"] == ["default/left"]
