"""Gangs with parts of GPUs that are too large, beside sick GPUs: planner and judge count on nodes in order.

A reason says what a user means: could it start with every node in order, and nobody running?
"""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest
from conftest import RunCli
from dynamic_mig import asks, claim, devices, holding, loaded, server, user
from effort import examples

from models.instance.instance import Instance
from models.results.plan import compose
from models.verify.check import check
from planner.read.inputs import load
from planner.search.solve import solve

Json = dict[str, Any]

HEAD = {"apiVersion": "gangplan.dev/v1alpha1"}
BUSY = {"name": "busy-0", "role": "w", "index": 0, "node": "n1"}


def gang(name: str, *roles: Json, pods: tuple[Json, ...] = (), **spec: object) -> Json:
    found = {
        **HEAD,
        "kind": "Gang",
        "metadata": {"name": name},
        "spec": {"roles": list(roles), **spec},
    }
    return {**found, "status": {"pods": list(pods)}} if pods else found


def asking(replicas: int, part: Json | int, name: str = "w") -> Json:
    asked = {"gpus": part} if isinstance(part, int) else {"gpu": part}
    return {"name": name, "replicas": replicas, **asked}


def instances(*counts: tuple[int, str]) -> list[Json]:
    return [asking(n, {"profile": profile}, f"r{i}") for i, (n, profile) in enumerate(counts)]


def read(path: Path, nodes: list[Json], gangs: list[Json], binding: str = "exact") -> Instance:
    policy = {**HEAD, "kind": "Policy", "spec": {"gpuBinding": binding}}
    cluster = {**HEAD, "kind": "Cluster", "metadata": {"name": "c"}, "spec": {"nodes": nodes}}
    path.write_text(json.dumps({**HEAD, "kind": "List", "items": [cluster, policy, *gangs]}))
    return load([str(path)]).instance


def planned(instance: Instance) -> tuple[dict[str, Json], list[str]]:
    """What is stated of each gang, and what the judge says against the plan."""
    outcome = solve(instance)
    made = compose(instance, outcome, name="p", created_at="2026-11-21T00:00:00Z", generator="test")
    faults = [f"{one.rule} {one.gang}: {one.message}" for one in check(made)]
    return {one["name"]: one for one in made["spec"]["gangs"]}, faults


FIVE_HOLD = [gang("busy", asking(1, 5), pods=({**BUSY, "gpus": [1, 2, 3, 4, 5]},))]
SEVEN_HOLD = [gang("busy", asking(1, 7), pods=({**BUSY, "gpus": [1, 2, 3, 4, 5, 6, 7]},))]
SOMEWHERE = [gang("busy", asking(1, 7), pods=(BUSY,))]
MIG = {"dynamicMig": "H100-80"}
SHARED = {"sharing": {"memory": "80Gi", "pods": 10}}
EIGHT, NINE = [(8, "4g.40gb")], [(9, "4g.40gb")]
TOGETHER = [(8, "4g.40gb"), (2, "4g.40gb"), (9, "1g.10gb")]

# An H100 has one 4g.40gb: eight GPUs have eight, whichever are sick, in use or not told apart today.
CASES: dict[str, tuple[Json, list[Json], list[Json], bool]] = {
    "eight, one somewhere is sick": ({**MIG, "unknownUnhealthy": 1}, [], instances(*EIGHT), True),
    "nine, one somewhere is sick": ({**MIG, "unknownUnhealthy": 1}, [], instances(*NINE), False),
    "eight, one is sick, all in use": ({**MIG, "unhealthyGpus": [0]}, SEVEN_HOLD, instances(*EIGHT), True),
    "nine, one is sick, all in use": ({**MIG, "unhealthyGpus": [0]}, SEVEN_HOLD, instances(*NINE), False),
    "eight, all are sick": ({**MIG, "unhealthyGpus": [*range(8)]}, [], instances(*EIGHT), True),
    "eight, some are in use somewhere": (MIG, SOMEWHERE, instances(*EIGHT), True),
    "eight, another in MIG mode": (
        {**MIG, "mig": [{"gpus": [7], "profiles": []}], "unhealthyGpus": [0]},
        FIVE_HOLD,
        instances(*EIGHT),
        True,
    ),
    # ten of one role would be counted, eight and two are not
    "eight and more, one somewhere is sick": ({**MIG, "unknownUnhealthy": 1}, [], instances(*TOGETHER), True),
    "sixteen halves, one somewhere is sick": (
        {**SHARED, "unknownUnhealthy": 1}, [], [asking(16, {"fraction": 0.5})], True
    ),
    "seventeen halves, one is sick": (
        {**SHARED, "unhealthyGpus": [0]}, [], [asking(17, {"fraction": 0.5})], False
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_never_means_not_even_with_every_node_in_order(name: str, tmp_path: Path) -> None:
    node, running, roles, could = CASES[name]
    server_ = {"name": "n1", "model": "DGX H100", **node}
    gangs = [*running, gang("large", *roles), gang("other", asking(1, 1))]
    found, faults = planned(read(tmp_path / "input.json", [server_], gangs))
    assert faults == []
    assert (found["large"]["reason"]["code"] != "Never") == could
    idle = "all" not in name
    assert found["other"]["decision"] == ("place" if idle else "wait")


def test_a_tainted_gpu_of_claims_keeps_no_other_gang_waiting() -> None:
    listed = devices()
    for one in listed:
        if one["name"].startswith("gpu-7"):
            one["taints"] = [{"key": "xid", "effect": "NoExecute"}]
    held = holding("runs", 3, "3g.40gb", 4)
    for count, code in ((8, "Resources"), (9, "Never")):  # of 4g.40gb each of eight GPUs has one
        claims = [claim(f"c{i}", asks("4g.40gb")) for i in range(count)]
        large = user("large", *(f"c{i}" for i in range(count)))
        trees = [
            *server(listed=listed),
            *claims,
            large,
            claim("o", asks()),
            user("other", "o"),
            *held,
        ]
        found, faults = planned(loaded(*trees).instance)
        assert faults == []
        assert found["other"]["decision"] == "place"
        assert found["large"]["reason"]["code"] == code


def test_what_if_shares_no_gpu_that_may_be_partitioned(cli: RunCli, tmp_path: Path) -> None:
    nodes: list[Json] = [
        {"name": "n1", "model": "DGX H100", **MIG},
        {"name": "n2", "model": "DGX H100", **SHARED},
    ]
    path, out = tmp_path / "input.json", tmp_path / "plan.json"
    gangs = [gang("half", asking(1, {"fraction": 0.5})), gang("small", *instances((1, "1g.10gb")))]
    read(path, nodes, gangs)
    done = cli("plan", str(path), "--drain", "n2", "--out", str(out))
    assert done.code == 0, done.err
    decided = {one["name"]: one["decision"] for one in json.loads(out.read_text())["spec"]["gangs"]}
    assert decided == {"half": "wait", "small": "place"}


def drawn(seed: int, path: Path) -> Instance:
    r = Random(seed)
    nodes, gangs = list[Json](), list[Json]()
    for name in [f"n{i}" for i in range(r.choice((1, 1, 2)))]:
        node: Json = {"name": name, "model": "DGX H100", **r.choice((MIG, MIG, SHARED, {}))}
        sick = r.sample(range(8), r.choice((1, 1, 2, 7)))
        states = ({"unhealthyGpus": sorted(sick)}, {"unknownUnhealthy": 1}, {"unschedulable": True})
        node |= r.choice((*states, {"ready": False}, {}))
        working = [gpu for gpu in range(8) if gpu not in node.get("unhealthyGpus", ())]
        r.shuffle(working)
        if "dynamicMig" in node and r.random() < 0.3:
            node["mig"] = [{"gpus": [working.pop()], "profiles": []}]
        may: Json = r.choice(({}, {"preemptible": True}, {"movable": True}))
        at = {"role": "w", "index": 0, "node": name}
        if "dynamicMig" in node and working and r.random() < 0.6:
            own = {**at, "name": f"i{name}-0", "gpus": [working.pop()], "start": 4}
            gangs.append(gang(f"i{name}", asking(1, {"profile": "3g.40gb"}), pods=(own,), **may))
        if "sharing" in node and working and r.random() < 0.6:
            own = {**at, "name": f"s{name}-0", "gpus": [working.pop()]}
            gangs.append(gang(f"s{name}", asking(1, {"fraction": 0.5}), pods=(own,), **may))
        if working and r.random() < 0.5:
            k = r.choice((1, len(working)))
            own = {**at, "name": f"b{name}-0"} | (
                {"gpus": sorted(working[:k])} if r.random() < 0.7 else {}
            )
            gangs.append(gang(f"b{name}", asking(1, k), pods=(own,), **may))
        nodes.append(node)
    profiles = ["1g.10gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb"]
    parts = [
        *({"profile": one} for one in profiles),
        *({"fraction": f} for f in (0.3, 0.5, 0.9)),
        1,
        8,
    ]
    for i in range(r.choice((1, 2, 3))):
        roles = [
            asking(r.choice((1, 2, 8, 9, 16)), r.choice(parts), f"r{k}")
            for k in range(r.choice((1, 2, 3)))
        ]
        gangs.append(gang(f"w{i}", *roles, priority=r.choice((0, 20))))
    return read(path, nodes, gangs, r.choice(("exact", "none")))


def test_the_judge_accepts_what_is_said_of_gangs_too_large(tmp_path: Path) -> None:
    seeds = range(examples(400, 16))
    found = {seed: planned(drawn(seed, tmp_path / "i.json"))[1] for seed in seeds}
    assert {seed: faults for seed, faults in found.items() if faults} == {}
