"""Clusters that live on from plan to plan: the judge accepts every plan, and no promise breaks."""

from __future__ import annotations

from pathlib import Path

import pytest
from effort import spread
from round_histories import History, World


def played(seed: int, rounds: int, folder: Path) -> History:
    world = World.of(seed, rounds, perturbed=seed % 2 == 1)
    history = History(world, folder, previous=False, show=False)
    history.play()
    return history


@pytest.mark.parametrize(("seed", "rounds"), spread([(2, 22), (3, 50), (0, 30), (4, 30)], 4))
def test_the_judge_accepts_every_plan_of_a_history(seed: int, rounds: int, tmp_path: Path) -> None:
    history = played(seed, rounds, tmp_path)
    assert history.counts["place"] > rounds // 4
    assert [one for one in history.broken if one[1] == "verify"] == []


@pytest.mark.parametrize(("seed", "rounds"), spread([(3, 14), (1, 60), (2, 60), (4, 60)], 4))
def test_with_everything_on_every_plan_is_saved_and_every_slip_has_a_cause(
    seed: int, rounds: int, tmp_path: Path
) -> None:
    """Seed 3: two gangs were reserved the same nodes from round 10 on, and nothing was saved for an hour."""
    history = History(
        World.of(seed, rounds, perturbed=True, full=True), tmp_path, previous=True, show=False
    )
    history.play()
    assert history.counts["place"] > rounds // 4
    assert [one for one in history.broken if one[1] != "aged"] == []
