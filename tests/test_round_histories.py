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


@pytest.mark.parametrize(("seed", "rounds"), spread([(2, 22), (3, 50), (0, 30), (4, 30)], 2))
def test_the_judge_accepts_every_plan_of_a_history(seed: int, rounds: int, tmp_path: Path) -> None:
    history = played(seed, rounds, tmp_path)
    assert history.counts["place"] > rounds // 4
    assert [one for one in history.broken if one[1] == "verify"] == []
