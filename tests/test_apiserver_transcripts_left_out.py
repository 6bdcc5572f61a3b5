"""Every recorded line is replayed against the fake API server, or left out for a stated reason."""

from __future__ import annotations

import json

import pytest
import test_apiserver_transcripts_bindings as bindings
import test_apiserver_transcripts_claims as claims
import test_apiserver_transcripts_gates as gates
import test_apiserver_transcripts_groups as groups
import test_apiserver_transcripts_leases as leases
import test_apiserver_transcripts_reading as reading
import test_apiserver_transcripts_rights as rights
from apiserver_transcripts import rows

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
REPLAYED = [
    *bindings.ROWS,
    *claims.ROWS,
    *gates.ROWS,
    *groups.ROWS,
    *leases.ROWS,
    *reading.ROWS,
    *rights.ROWS,
]


def test_every_line_is_replayed_once_or_left_out() -> None:
    assert sorted([*REPLAYED, *LEFT_OUT]) == list(range(len(rows())))


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
