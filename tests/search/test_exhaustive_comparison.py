"""The search finds and proves the best plan of every tiny instance: equal to trying every plan.

A failure names the seed: ``python tests/oracle/exhaustive_sweep.py --seeds N:N+1 --narrow`` takes it apart
(with ``--more a,b,c`` for the series that have more of a kind, ``--busy`` for those where most things run).
"""

from __future__ import annotations

import pytest
from comparing import differences, wrong
from effort import examples, first_fast
from tiny import tiny
from tiny_busy import busy
from tiny_instances import INSTANCES
from tiny_pods import POD_RULES
from tiny_run_times import CALMED

CHUNK = 10
SEEDS = 200
MORE = {
    "running": ("running", "incomplete", "unknown_gpus", "sick_holders", "unknown_unhealthy"),
    "topology": ("slices", "role_topology", "required", "gaps", "preferred"),
    "networks": ("nics", "own_nics", "binding_none", "min_share", "unhealthy"),
    "resources": ("resources", "roles", "launchers", "cpu_nodes", "cpu_gangs", "taints"),
    "models": ("mixed", "mix_models", "role_model", "cordons", "selectors"),
    "policies": ("objectives", "elastic", "movable", "weights", "pattern_none", "ours"),
    "servers": ("wide",),
    "levels for rules": ("uncounted", "required", "slices", "preferred"),
    "pods": POD_RULES,
    "pods without GPUs": (*POD_RULES, "launchers", "cpu_gangs", "required", "selectors", "taints"),
    "launchers that grow": ("growing_launchers", "launchers", "cpu_gangs", "resources"),
    "instances": INSTANCES,
}
"""What each of the smaller series has three times as much of."""

FOUND = {962297: ("instances", "cpu_gangs", "launchers", "resources", "priorities")}
"""Seeds on which the search was wrong once: a gang without GPUs that is stopped was taken to stay."""

BUSY_SEEDS = 300
BUSY = {
    "pods": POD_RULES,
    "stops": ("preemptible", "priorities", "required", "slices"),
    "sizes": ("elastic", "elastic_running", "resize_after", "checkpoints"),
    "launchers that grow": ("growing_launchers", "launchers", "resources", "elastic_running"),
    "moves": ("movable", "defragment", "launchers", "roles"),
    "limits": ("movable", "moves_limit", "preemptible"),
    "budgets": ("budgets", "preemptible", "movable", "priorities"),
    "ages": ("starvation", "clock", "submitted", "lost_runtime", "checkpoints"),
    "earlier plans": ("stability", "movable", "slices", "first_index"),
    "failures": ("incomplete", "elastic", "preemptible", "held"),
    "bad nodes": ("stragglers", "unknown_gpus", "unknown_unhealthy", "sick_holders", "overfull"),
    "everything": (
        *("running", "movable", "preemptible", "elastic", "priorities", "launchers"),
        *("moves_limit", "stability", "defragment", "starvation", "lost_runtime", "resize_after"),
    ),
    "policies": ("objectives", "min_share", "binding_none", "pattern_none", "weights"),
    "wide": ("wide", "movable", "elastic", "objectives"),
    "levels for rules": ("uncounted", "required", "defragment", "movable"),
    **CALMED,
    "instances": (*INSTANCES, "movable", "preemptible", "priorities"),
    "pods that move": (*POD_RULES, "movable", "preemptible", "elastic", "incomplete", "priorities"),
}
"""What each series of busy clusters has three times as much of."""


@pytest.mark.parametrize("first", first_fast(range(0, SEEDS, CHUNK), 2))
def test_the_search_equals_trying_every_plan(first: int) -> None:
    assert wrong(range(first, first + CHUNK), lambda seed: differences(tiny(seed))) == {}


@pytest.mark.parametrize("name", MORE)
def test_the_search_equals_trying_every_plan_with_more_of_a_kind(name: str) -> None:
    seeds = range(1000, 1000 + examples(20, 3))
    assert wrong(seeds, lambda seed: differences(tiny(seed, more=MORE[name]))) == {}


def test_the_search_equals_trying_every_plan_where_it_did_not_once() -> None:
    assert wrong(FOUND, lambda seed: differences(tiny(seed, more=FOUND[seed]))) == {}


@pytest.mark.parametrize("first", first_fast(range(0, BUSY_SEEDS, 25), 1))
def test_the_search_equals_trying_every_plan_where_most_things_run(first: int) -> None:
    assert wrong(range(first, first + 25), lambda seed: differences(busy(seed))) == {}


@pytest.mark.parametrize("name", BUSY)
def test_the_search_equals_trying_every_plan_with_more_of_what_runs(name: str) -> None:
    seeds = range(1000, 1000 + examples(30, 4))
    assert wrong(seeds, lambda seed: differences(busy(seed, more=BUSY[name]))) == {}
