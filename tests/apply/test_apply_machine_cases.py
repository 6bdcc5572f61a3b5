"""Runs of the apply machine step by step, with what others do between them: ``machine_cases.yaml``."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import apply_world as sim
import pytest
import yaml

from models.apply import requests as req
from models.apply.plan_actions import PlanActions
from models.apply.staleness import changes

CASES = yaml.load(
    Path(__file__).with_name("machine_cases.yaml").read_text("utf-8"), Loader=yaml.CSafeLoader
)
WORLDS = {
    "crowded": sim.crowded,
    "chain": sim.chain,
    "four": sim.four,
    "evicted in part": sim.evicted_in_part,
}

RUNS = ("apply", "other", "elsewhere", "complete", "resize", "recover")

Step = dict[str, Any]


def another_controller(world: sim.World, _: req.Request) -> None:
    pod = world.pods.get(("default", "m-0"))
    if pod is not None and pod.terminating and pod.owner == "job-m":
        world.change(pod.key, owner="job-z")


def stranger(world: sim.World, _: req.Request) -> None:
    going = [key for key, pod in world.pods.items() if pod.terminating and key[1][0] == "v"]
    if len(going) == 2:
        for key in going:
            world.delete(key)
        world.pod("r-0", 8, mode="none", node="n0")


def renamed(world: sim.World, request: req.Evict) -> None:
    world.recreates.clear()
    if request.pod.name[0] == "m":
        world.pod(f"{request.pod.name}x-0", 4, owner="job-m")


def recorded(world: sim.World, request: req.WriteRecord) -> req.Event:
    world.records[request.record.key] = replace(request.record, pods=request.record.pods[:1])
    return req.Conflict("409")


def no_devices(_: sim.World, one: req.Request) -> req.Event | None:
    last = isinstance(one, req.AllocateDevices) and one.pod.name == "a-1"
    return req.Rejected("no") if last or isinstance(one, req.ReleaseDevices) else None


MEANWHILE = {
    "another run records a": sim.on(req.WriteRecord, recorded),
    "the new m-0 is made by another controller": sim.on(object, another_controller),
    "no pod comes back": sim.on(req.Evict, lambda world, _: world.recreates.clear()),
    "pods of m come back under other names": sim.on(req.Evict, renamed),
    "a stranger takes the room of v": sim.on(req.ReadCluster, stranger),
    "no note is taken": sim.on(req.Remember, sim.loses),
    "evictions are refused": sim.on(req.Evict, lambda *_: req.Rejected("no such right")),
    "devices of a-1 are not given, nor any taken back": sim.on(object, no_devices),
}


@dataclass
class Story:
    world: sim.World
    plan: PlanActions

    def go(self, step: Step) -> None:
        """What others do, then the run if there is one, then what is there."""
        self.others(step)
        played = None
        for kind in RUNS:
            if kind in step:
                played = self.run(kind, step)
        if "bound" in step:
            assert sim.bound(self.world) == step["bound"]
        if "stale" in step:
            assert changes(self.plan, self.world.view()) == step["stale"]
        if "recorded" in step:
            assert {gang[1] for gang, _ in self.world.records} == set(step["recorded"])
        if played is not None:
            self.said(played, step)

    def others(self, deeds: Step) -> None:
        world = self.world
        for name, more in deeds.get("pod", {}).items():
            world.pod(name, mode="none", **more)
        for name, gpus in deeds.get("waiting", {}).items():
            world.pod(name, gpus)
        for name, more in deeds.get("change", {}).items():
            world.change(("default", name), **{key: frozen(one) for key, one in more.items()})
        for name, more in deeds.get("node", {}).items():
            node = world.nodes.pop(name)
            world.nodes |= {} if more is None else {name: replace(node, **more)}
        for name in deeds.get("recreate", ()):
            world.recreates = {("default", name)}
        for name in (*deeds.get("delete", ()), *deeds.get("recreate", ())):
            if ("default", name) in world.pods:
                world.delete(("default", name))
        for _ in range(deeds.get("wait", 0)):
            world.wait()
        if budget := deeds.get("budget"):
            covered = frozenset(key for key in world.pods if key[1].startswith(budget["of"]))
            world.budgets = {"b": (budget["least"], covered)}
            world.reads_budgets = budget.get("read", True)

    def fault(self, step: Step) -> sim.Fault | None:
        if "killed" in step:
            kind, most = step["killed"].split()
            return sim.killed_after(int(most), getattr(req, kind))
        if "before" in step:
            ((which, deeds),) = step["before"].items()
            kind, _, pod = which.partition(" ")
            return sim.on(
                getattr(req, kind),
                lambda _, one: self.others(deeds) if not pod or one.pod.name == pod else None,
            )
        return MEANWHILE[step["meanwhile"]] if "meanwhile" in step else None

    def run(self, kind: str, step: Step) -> sim.Played | None:
        if kind == "elsewhere":
            plan = sim.elsewhere(self.world, self.plan)
        elif kind == "other":
            plan = replace(self.plan, plan=sim.OTHER_PLAN, gangs=())
        elif kind in ("complete", "resize"):
            pods = step["with pods"].items()
            starts = [sim.order_for(self.world.pods["default", one], node) for one, node in pods]
            plan = sim.orders(self.world, sim.gang("a", starts, kind), plan=sim.OTHER_PLAN)
        else:
            plan = self.plan
        fault, limits = self.fault(step), step.get("with", {})
        with pytest.raises(sim.Killed) if "killed" in step else contextlib.nullcontext():
            if kind == "recover":
                return sim.recover(self.world, fault, **limits)
            return sim.apply(self.world, plan, fault, **limits)
        return None

    def said(self, played: sim.Played, step: Step) -> None:
        (outcomes,) = (step[kind] for kind in RUNS if kind in step)
        assert played.outcomes == outcomes
        sent = {
            **step.get("sent", {}),
            **({"Evict": len(step["evicted"])} if "evicted" in step else {}),
        }
        for kind, count in sent.items():
            asked = played.of(req.ReadCluster if kind == "wait" else getattr(req, kind))
            assert sum(kind != "wait" or one.after_s > 0 for one in asked) == count, kind
        checks: dict[str, Callable[[], object]] = {
            "why": lambda: played.one.why[: len(step["why"]) or None],
            "undo": lambda: len(played.one.undo),
            "writes": lambda: len(played.of(*sim.WRITES)),
            "counted": lambda: played.verdict.evicted,
            "every why": lambda: " ".join({one.why for one in played.verdict.gangs}),
            "evicted": lambda: [one.pod.name for one in played.of(req.Evict)],
            "notes": lambda: len(self.world.notes.stops),
        }
        found = {key: check() for key, check in checks.items() if key in step}
        assert found == {key: step[key] for key in found}
        assert step.get("says", "") in "".join(one.why for one in played.verdict.gangs)


def frozen(value: object) -> object:
    return tuple(map(frozen, value)) if isinstance(value, list) else value


@pytest.mark.parametrize("name", CASES)
def test_each_step_does_and_leaves_what_is_said(name: str) -> None:
    case = CASES[name]
    sizes, gpus = case.get("gangs"), case.get("gpus", 4)
    backend = case.get("backend", "annotation")
    made = sim.gangs_of(sizes, backend, gpus) if sizes else WORLDS[case["world"]]()
    story = Story(*made)
    for step in case["steps"]:
        story.go(step)
