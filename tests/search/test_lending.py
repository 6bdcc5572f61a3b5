"""What queues do not lend (2.22): by hand, and read from Kueue."""

from __future__ import annotations

from pathlib import Path

from test_kube_queues import FLAVORS, by_name, groups, kueue, read
from test_queue_plans import asks, cluster, decided, promised, runs

from models.instance.queue import Amount, Queue
from models.instance.solution import Reason
from planner.search.solve import solve

KEEPS = Amount(4)
"""Lends 4 of its GPUs."""


def test_what_a_queue_does_not_lend_stays_free_of_preemptible_gangs_of_others() -> None:
    # 16 GPUs, of which "own" keeps 16 - 4: others hold at most 4
    queues = [promised("own", 16, lending_limit=KEEPS), Queue("team")]
    asking = [asks("a", "team", 4, firm=False), asks("b", None, 4, firm=False)]
    found = solve(cluster(queues, asking))
    assert sorted(decided(found)) == ["place", "wait"]
    reason = next(one.reason for one in found.decisions if one.reason)
    assert reason == Reason.of("Quota", gpus=4, queue="own", limit=12)
    assert decided(solve(cluster([promised("own", 16), queues[1]], asking))) == ["place", "place"]


def test_what_a_queue_holds_of_what_it_keeps_leaves_the_rest_to_others() -> None:
    # "own" keeps 8 and holds 8: the other 8 are lent
    queues = [promised("own", 12, lending_limit=KEEPS), Queue("team")]
    asking = [asks("a", "own", 8, firm=False), asks("b", "team", 8, firm=False)]
    assert decided(solve(cluster(queues, asking))) == ["place", "place"]


def test_who_held_more_than_is_lent_keeps_it_and_gets_no_more() -> None:
    queues = [promised("own", 12, lending_limit=Amount(0)), Queue("team")]
    asking = [runs("a", "team", 0), asks("b", "team", 4, firm=False)]
    assert decided(solve(cluster(queues, asking))) == ["keep", "wait"]


def test_what_a_sister_keeps_counts_as_held_in_the_queue_above() -> None:
    # "all" may hold 12, and "x" below it keeps 8 - 2: 6 are left
    queues = [
        Queue("all", limit=Amount(12)),
        promised("x", 8, parent=0, lending_limit=Amount(2)),
        Queue("y", parent=0),
    ]
    found = solve(cluster(queues, [asks("a", "y", 4), asks("b", "y", 4, firm=False)]))
    assert sorted(decided(found)) == ["place", "wait"]
    reason = next(one.reason for one in found.decisions if one.reason)
    assert reason == Reason.of("Quota", gpus=4, queue="all", held=10, limit=12)


def test_lending_limits_of_cluster_queues_and_cohorts_are_read(tmp_path: Path) -> None:
    quota = {"nominalQuota": 8, "lendingLimit": "3"}
    found = read(
        tmp_path,
        *FLAVORS,
        kueue(
            "ClusterQueue",
            "team",
            {
                "cohortName": "all",
                "resourceGroups": groups(("h100", quota), ("a100", {"nominalQuota": 4})),
            },
        ),
        kueue("ClusterQueue", "alone", {"resourceGroups": groups(("h100", quota))}),
        kueue(
            "Cohort",
            "all",
            {
                "parentName": "company",
                "resourceGroups": groups(("h100", {"nominalQuota": 1, "lendingLimit": 5})),
            },
        ),
    )
    read_as = by_name(found)
    # 3 of 8 H100, and all 4 A100
    assert read_as["team"].lending_limit == Amount(7, (("a100", 4), ("h100", 3)))
    # 5 of 8 + 1 H100, and the A100 of its member
    assert read_as["cohort-all"].lending_limit == Amount(9, (("a100", 4), ("h100", 5)))
    # Kueue takes no lending limit without a cohort
    assert read_as["alone"].lending_limit == Amount()
