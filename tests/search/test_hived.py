"""HiveD's promise: what fits into the cells of a queue is always placed, whatever the others run.

And HiveD's published cases, as far as gangplan has the words: cells are not pinned, and a queue without a
limit borrows what is promised to nobody, where HiveD refuses.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from hived import Shared, drawn, example

from models.instance.gang import Gang, Role
from models.instance.instance import Instance


def gone_through(instance: Instance, seed: int, steps: int) -> Shared:
    shared = Shared(instance, random.Random(seed))
    for _ in range(steps):
        shared.step()
    return shared


def asked(
    name: str,
    queue: str | None,
    model: str,
    gpus: Sequence[int],
    *,
    priority: int = 1,
    lent: bool = False,
) -> Gang:
    """A gang of one role for each pod. ``lent``: HiveD's opportunistic job."""
    roles = tuple(Role(f"r{i}", 1, 1, 1, size, model=model) for i, size in enumerate(gpus))
    return Gang("default", name, roles, priority=priority, queue=queue, preemptible=lent)


def test_hiveds_example_keeps_its_promise_through_arrivals_and_departures() -> None:
    shared = gone_through(example(), 0, 150)
    assert (shared.promised > 20, shared.refused > 10) == (True, True)


def test_drawn_clusters_keep_their_promise() -> None:
    runs = [gone_through(drawn(seed), seed, 50) for seed in range(3, 6)]
    assert (sum(one.promised for one in runs) > 10, sum(one.stopped for one in runs) > 0) == (
        True,
        True,
    )


def test_hiveds_published_cases_start_as_there() -> None:
    """``casesThatShouldSucceed`` of pkg/algorithm/hived_algorithm_test.go.

    Source: github.com/microsoft/hivedscheduler, Copyright (c) Microsoft Corporation, MIT License. Left out:
    what is about pinned cells (groups 11, 18 to 23), invalid requests, and group 7, which waits there, as
    half nodes make no node, and starts here on nodes that are all promised to its own queue.
    """
    shared = Shared(example(), random.Random(0))
    v100, p100, ct1 = "dgx2-v100", "dgx1-p100", "ct1"
    for gang in (
        asked("group1", "VC1", v100, [1], priority=1),
        asked("group2", "VC1", v100, [1], priority=2),
        asked("group3", "VC1", v100, [8], priority=3),
        asked("group4", "VC1", v100, [1], priority=0, lent=True),
        asked("group5", "VC1", v100, [16, 16], priority=2),
        asked("group9", "VC2", p100, [7, 5], priority=2),
        asked("group12", "VC1", v100, [16, 16], priority=2),
        asked("group13", "VC1", v100, [16, 16], priority=2),
        asked("group14", "VC1", v100, [16, 16], priority=0, lent=True),
        asked("group15", "VC2", ct1, [2], priority=1, lent=True),  # preempted lazily: opportunistic
        asked("group16", "VC2", ct1, [2], priority=2, lent=True),
    ):
        assert shared.come(gang) == "place", gang.name
    # there it stops group16 at once, here it takes the third node: VC1's GPU is reachable on the others
    assert shared.come(asked("group17", "VC2", ct1, [2], priority=3)) == "place"
    assert shared.come(asked("more", "VC2", ct1, [2], priority=3)) == "place"
    assert shared.stopped == 1
    # now only one node is left without firm pods, of which VC1 is promised a GPU
    assert shared.come(asked("most", "VC2", ct1, [2], priority=3)) == "wait"
    # VC1 holds 7 of its 10 DGX2 nodes, 13 are there: 3 are promised to nobody, and that is all VC2 gets
    assert shared.come(asked("group6", "VC2", v100, [16] * 4)) == "wait"
    assert shared.come(asked("group6", "VC1", v100, [16] * 3)) == "place"
