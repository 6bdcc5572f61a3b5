"""``gangplan drain-order``: every node once, every gang once, and what restarts has room where it goes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import Path

import pytest
from conftest import RunCli
from effort import spread
from tiny_busy import busy

from models.documents.drain_order import DrainOrderDocument
from models.hardware import bits
from models.instance.instance import Instance
from models.program.base_state import standing_pods
from planner.search.drain_order import Wave, drain_order

ROOT = Path(__file__).parent.parent
QUEUES = str(ROOT / "inputs" / "queues")
SEEDS = 300


def standing(instance: Instance) -> dict[int, Counter[int]]:
    """Pods of every running gang by node."""
    found = {i: Counter(p.node for p in g.running_pods) for i, g in enumerate(instance.gangs)}
    return {
        i: Counter({n: c for n, c in on.items() if n is not None}) for i, on in found.items() if on
    }


def faults(instance: Instance, drained: Collection[int], waves: Sequence[Wave]) -> list[str]:
    """What is wrong with an order, from its waves alone."""
    found = []
    nodes = Counter(n for wave in waves for n in wave.nodes)
    if nodes != Counter(drained):
        found.append("not every node once")
    there = standing(instance)
    settled = set(range(len(instance.cluster.nodes))) - set(drained)
    restarted: Counter[int] = Counter()
    places = dict(enumerate(standing_pods(instance)))
    for number, wave in enumerate(waves):
        hit = {gang for gang, on in there.items() if not on.keys().isdisjoint(wave.nodes)}
        if hit != {one.gang for one in wave.restarts}:
            found.append(f"wave {number} interrupts {hit}")
        for one in wave.restarts:
            restarted[one.gang] += 1
            allowed = settled if one.at_once else settled | set(wave.nodes)
            if not allowed.issuperset(one.nodes):
                found.append(f"gang {one.gang} restarts on nodes that are not done")
            there[one.gang] = Counter(pod.node for pod in one.pods)
            places[one.gang] = one.pods
        held: Counter[tuple[int, int]] = Counter()
        for pods in places.values():
            held.update((pod.node, gpu) for pod in pods for gpu in bits(pod.gpus or 0))
        found += [f"wave {number}: GPU {gpu} twice" for gpu, pods in held.items() if pods > 1]
        settled |= set(wave.nodes)
    found += [f"gang {gang} restarts {n} times" for gang, n in restarted.items() if n > 1]
    return found


def drawn(seed: int) -> tuple[Instance, list[int], int]:
    instance = busy(seed)
    count = len(instance.cluster.nodes)
    drained = [n for n in range(count) if (seed + n) % 4]
    return instance, drained, 1 + seed % 3


@pytest.mark.parametrize("seed", spread(range(SEEDS), 60))
def test_every_gang_restarts_once(seed: int) -> None:
    instance, drained, at_most = drawn(seed)
    waves = drain_order(instance, drained, at_most)
    assert faults(instance, drained, waves) == []
    for wave in waves:
        if len(wave.nodes) > at_most:  # only where gangs join its nodes
            on = [set(pods) & set(wave.nodes) for pods in standing(instance).values()]
            assert any(len(own) > 1 for own in on)


def test_random_orders_interrupt_and_move_gangs() -> None:
    """Otherwise the test above compares nothing."""
    seen: Counter[bool] = Counter()
    for seed in range(60):
        waves = drain_order(*drawn(seed))
        seen.update(one.at_once for wave in waves for one in wave.restarts)
    assert min(seen[True], seen[False]) > 10


def order(cli: RunCli, *options: str) -> DrainOrderDocument:
    return DrainOrderDocument.model_validate_json(
        cli("drain-order", QUEUES, "-o", "json", *options).out
    )


def test_the_document_states_waves_in_order(cli: RunCli) -> None:
    found = order(cli)
    assert [wave.nodes for wave in found.status.waves[:2]] == [("r2-n4",), ("r1-n3",)]
    (sweep,) = found.status.waves[1].gangs
    assert (sweep.name, sweep.gpus, sweep.restarts, sweep.nodes) == (
        "sweep-a",
        8,
        "atOnce",
        ("r2-n4",),
    )
    pretrain = found.status.waves[3].gangs[0]
    assert (pretrain.name, pretrain.restarts, pretrain.nodes) == (
        "pretrain",
        "afterWave",
        ("r1-n1", "r1-n2"),
    )
    assert (found.status.interrupted, found.status.interrupted_gpus, found.status.waiting_gpus) == (
        5,
        52,
        32,
    )


def test_gangs_that_a_drain_would_end_come_last_and_are_named(cli: RunCli) -> None:
    found = order(cli)
    stoppable = [gang.stoppable for wave in found.status.waves for gang in wave.gangs]
    assert stoppable == sorted(stoppable, reverse=True)
    assert any("notebooks/lab" in note and "product/serve" in note for note in found.status.notes)


def test_named_nodes_alone_are_drained(cli: RunCli) -> None:
    found = order(cli, "--node", "r1-n[3-4]")
    assert found.spec.nodes == ("r1-n3", "r1-n4")
    assert {gang.name for wave in found.status.waves for gang in wave.gangs} == {"sweep-a", "lab"}
    assert found.status.waiting_gpus == 0


def test_the_table_is_as_agreed(cli: RunCli) -> None:
    out = cli("drain-order", QUEUES, "-o", "wide").out
    assert "8 nodes in 6 waves, at most 1 out at once" in out
    assert "5 gangs with 52 GPUs restart, each once; 32 GPUs of them wait" in out


@pytest.mark.parametrize(
    ("options", "code", "what"),
    [
        (("--node", "r9"), 64, "no node 'r9'"),
        (("--node", "r1-n[3-"), 64, "--node"),
        (("--at-most", "0"), 64, "--at-most"),
    ],
)
def test_bad_options_are_usage_errors(
    cli: RunCli, options: tuple[str, ...], code: int, what: str
) -> None:
    result = cli("drain-order", QUEUES, *options)
    assert result.code == code
    assert what in result.err
    assert result.out == ""
