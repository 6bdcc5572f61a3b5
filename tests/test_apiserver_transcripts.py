"""Every recorded exchange is replayed against the test API server, or left out for a stated reason."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
import transcripts_bindings
import transcripts_claims
import transcripts_gates
import transcripts_groups
import transcripts_leases
import transcripts_reading
import transcripts_rights
from apiserver_transcripts import comparable, rows

_CLOCK = "measures seconds, memory or throughput, which depend on the machine"
_CHANCE = "kube-scheduler chooses by chance, or with a profile that is not modelled"
_JOBS = "the Job controller is not modelled: pods are made by hand"
_EVENTS = "Events are not modelled"
_EXPLAIN = "the schemas behind kubectl explain are not served"
_APPLY = "server-side apply is not modelled, and nothing of ours uses it"
_STALE = "kubectl listed a kind from a discovery it had kept; without it, it knows no such kind"
_HEADER = "says what the recording is"
_PARTIAL = "with some of the alpha gates on; the fake server has all of them or none"
_FIVE = "the last of three pins without a PodGroup; what was full before is not recorded"

LEFT_OUT = {
    0: _HEADER,
    139: _EVENTS,
    **dict.fromkeys(range(144, 158), _CHANCE),
    158: _EXPLAIN,
    159: _EXPLAIN,
    163: _JOBS,
    164: _JOBS,
    182: "lists groups of rows that are left out",
    249: _EXPLAIN,
    **dict.fromkeys((270, 271, 272), _FIVE),
    297: _APPLY,
    298: _APPLY,
    **dict.fromkeys(range(338, 348), _CLOCK),
    **dict.fromkeys(range(348, 370), _CLOCK),
    371: _STALE,
    375: _EXPLAIN,
    **dict.fromkeys((420, 421, 422), _PARTIAL),
}
SCENES = tuple(
    scene
    for module in (
        transcripts_bindings,
        transcripts_claims,
        transcripts_gates,
        transcripts_groups,
        transcripts_leases,
        transcripts_reading,
        transcripts_rights,
    )
    for scene in module.SCENES
)
SCENE_OF = {number: scene for scene in SCENES for number in scene.numbers}
SEEN_IN_OTHERS = {333: "a note on rows 300 to 332"}


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


def test_every_line_is_replayed_once_or_left_out() -> None:
    assert sorted([*SCENE_OF, *SEEN_IN_OTHERS, *LEFT_OUT]) == list(range(len(rows())))


def test_most_exchanges_are_replayed() -> None:
    exchanges = [number for number, row in enumerate(rows()) if "path" in row or "stdout" in row]
    left = [number for number in exchanges if number in LEFT_OUT]
    # 365 exchanges of which 17 are left out: explain, apply, Jobs, Events, alpha gates in part.
    assert len(exchanges) - len(left) > 0.95 * len(exchanges)


@pytest.mark.parametrize("number", sorted(LEFT_OUT))
def test_what_is_left_out_is_still_what_it_was(number: int) -> None:
    words = json.dumps(rows()[number])
    marks = {
        _HEADER: "about",
        _EVENTS: "get events",
        _EXPLAIN: "explain",
        _APPLY: "--server-side",
        _JOBS: '"Job"',
        _PARTIAL: "only GenericWorkload+GangScheduling",
        _CLOCK: '"seconds"',
        _STALE: "podgroups.v1alpha2",
        _CHANCE: '"11"',
    }
    assert marks.get(LEFT_OUT[number], '"note"') in words
