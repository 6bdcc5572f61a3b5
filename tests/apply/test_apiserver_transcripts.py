"""Recorded exchanges are replayed against the test API server."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import transcripts_claims
import transcripts_gates
import transcripts_groups
import transcripts_leases
import transcripts_rights
from apiserver_transcripts import comparable, rows

SCENES = tuple(
    scene
    for module in (
        transcripts_claims,
        transcripts_gates,
        transcripts_groups,
        transcripts_leases,
        transcripts_rights,
    )
    for scene in module.SCENES
)
SCENE_OF = {number: scene for scene in SCENES for number in scene.numbers}


@pytest.fixture(scope="module")
def replayed(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], list[str]]:
    """How the answer to a recorded request differs. A scene is played when the first of its rows is."""
    played: dict[int, list[str]] = {}

    def differences(number: int) -> list[str]:
        if number not in played:
            played.update(SCENE_OF[number].play(tmp_path_factory.mktemp("scene")))
        return played[number]

    return differences


@pytest.mark.parametrize(
    "number", comparable(tuple(SCENE_OF)), ids=lambda n: f"{n}-{rows()[n]['note'][:40]}"
)
def test_the_server_answers_as_the_recorded_one(
    number: int, replayed: Callable[[int], list[str]]
) -> None:
    assert replayed(number) == []
