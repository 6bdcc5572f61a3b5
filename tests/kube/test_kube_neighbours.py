"""Plans of clusters whose pods state rules about each other, against kube-scheduler's own filters."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from bundles import read_all
from effort import spread as part
from kube import node, pod
from kube_feasible import field_errors
from kube_neighbours import REQUIRED

from models.results.plan import compose
from planner.search.solve import solve

Tree = dict[str, Any]

HOST, RACK, ZONE = "kubernetes.io/hostname", "example.com/rack", "topology.kubernetes.io/zone"


def planned(trees: list[Tree], *, budget: int = 0) -> Tree:
    """The plan that a stopped search starts from, or the one that a small budget finds."""
    instance = read_all(trees)
    limits = replace(instance.policy.solve, budget=budget or 1)
    instance = replace(instance, policy=replace(instance.policy, solve=limits))
    stop = threading.Event()
    if not budget:
        stop.set()
    solution = solve(instance, stop=stop)
    return compose(
        instance, solution, name="p", created_at="2026-01-01T00:00:00Z", generator="test"
    )


# --- the filters


def term(key: str, **labels: str) -> Tree:
    return {"topologyKey": key, "labelSelector": {"matchLabels": labels}}


# --- plans


class Cluster:
    """A small cluster whose pods state random rules about each other."""

    def __init__(self, number: int) -> None:
        self.r = Random(number)  # not a secret
        r = self.r
        self.even = number % 2 == 0  # mostly spreads
        self.trees: list[Tree] = []
        for i in range(r.randint(3, 6)):
            labels = {RACK: f"r{i // 2}", ZONE: f"z{i // 4}", "gpu": r.choice(("a", "b"))}
            if r.random() < 0.1:
                del labels[RACK]
            one = node(f"n{i}", gpus=r.choice((4, 8)), **labels)
            one["metadata"]["labels"]["nvidia.com/gpu.product"] = "NVIDIA-H100-80GB-HBM3"
            if r.random() < 0.15:
                one["spec"]["taints"] = [{"key": "x", "effect": "NoSchedule"}]
            self.trees.append(one)
        if r.random() < 0.4:
            self.trees.append(node("cpu", gpus=0, **{RACK: r.choice(("r0", "r9")), ZONE: "z0"}))
        names = [tree["metadata"]["name"] for tree in self.trees]
        for i in range(r.randint(0, 3)):
            app = {"app": r.choice("xyz")}
            more = {"affinity": self.apart()} if r.random() < 0.4 else {}
            one = pod(f"s{i}", on=r.choice(names), labels=app, **more)
            if r.random() < 0.25:
                one["metadata"]["deletionTimestamp"] = "2026-11-20T09:00:00Z"
            self.trees.append(one)
        for i in range(r.randint(2, 4)):
            self.gang(f"g{i}", names)

    def apart(self, app: str | None = None) -> Tree:
        found = term(self.r.choice((HOST, RACK, RACK, ZONE)), app=app or self.r.choice("xyz"))
        if self.r.random() < 0.1:
            found["labelSelector"] = {"matchExpressions": [{"key": "app", "operator": "Exists"}]}
        return {"podAntiAffinity": {REQUIRED: [found]}}

    def gang(self, name: str, nodes: list[str]) -> None:
        r = self.r
        odds = 0.1 if self.even else 0.35
        labels = {"gangplan.dev/gang": name, "app": r.choice(("x", "y", name, name, name))}
        spec: Tree = {"affinity": self.apart(labels["app"]) if r.random() < odds else {}}
        if r.random() < (0.9 if self.even else 0.3):
            keys = r.sample((HOST, RACK, ZONE), r.choice((1, 1, 2)))
            spec["topologySpreadConstraints"] = [self.spread(key, labels["app"]) for key in keys]
        if r.random() < 0.2:
            spec["nodeSelector"] = {"gpu": "a"}
        running = r.random() < 0.25
        gpus = r.choice((1, 2, 4))
        for i in range(r.randint(1, 4)):
            place = r.choice([n for n in nodes if n != "cpu"]) if running else None
            one = pod(f"{name}-{i}", gpus=gpus, gated=not running, on=place, labels=labels, **spec)
            self.trees.append(one)

    def spread(self, key: str, own: str) -> Tree:
        found: Tree = {
            "topologyKey": key,
            "maxSkew": self.r.choice((1, 1, 2)),
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"app": own}},
        }
        for name, values, odds in (
            ("minDomains", (2, 3), 0.2),
            ("nodeAffinityPolicy", ("Ignore", "Honor"), 0.2),
            ("nodeTaintsPolicy", ("Ignore", "Honor"), 0.3),
        ):
            if self.r.random() < odds:
                found[name] = self.r.choice(values)
        return found


SIZE = 10


@pytest.mark.parametrize("first", part(range(0, 60 * SIZE, SIZE), 60))
def test_the_filters_take_every_pod_that_a_plan_starts_beside_others(first: int) -> None:
    decided: Counter[str] = Counter()
    for number in range(first, first + SIZE):
        trees = Cluster(number).trees
        plan = planned(trees, budget=number // 2 % 2)
        found = [line for line in field_errors(trees, plan) if "asks" not in line]
        assert found == [], number
        decided.update(gang["decision"] for gang in plan["spec"]["gangs"])
    assert decided["place"] > SIZE // 2
    assert decided["wait"] > SIZE // 4
