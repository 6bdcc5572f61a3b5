"""Notes in the Lease: what is written is read again, what is odd is left out, and they stay short."""

from __future__ import annotations

from models.apply.notes import (
    AVOID_S,
    EVICTED_S,
    EvictNote,
    RunNotes,
    read_notes,
)

PLAN = "gp-" + "a" * 20
UID = "0f8fad5b-d9cb-469f-a165-70867728950e"
NOW = 1_795_255_200


def evicted(notes: RunNotes, now: int, *gangs: tuple[str, str], moved: bool = False) -> RunNotes:
    """Gangs are noted as being stopped, and then are seen to have lost a pod."""
    for gang in gangs:
        counts = EvictNote(gang, now, 1, moved, NOW - 60)
        notes = notes.with_stop(gang, PLAN, [UID], counts)
    return notes.counted(gangs, now).without_stops(gangs)


def test_notes_are_read_as_they_were_written() -> None:
    notes = RunNotes().with_stop(("team", "low"), PLAN, [UID, "b" * 36])
    notes = evicted(
        notes.with_avoided([(("team", "a"), "n0")], NOW), NOW, ("team", "far"), moved=True
    )
    counts = EvictNote(("team", "near"), NOW, 1)
    notes = notes.with_stop(("team", "near"), PLAN, [UID], counts)
    assert read_notes(notes.text()) == notes
    assert notes.stops[0].pods == ("0f8fad5b-d9cb", "b" * 13)
    assert RunNotes().text() == ""


def test_what_is_no_note_is_left_out() -> None:
    for written in (
        "",
        "{",
        "[]",
        '{"stops": 1, "avoid": "x"}',
        '{"stops": [1, {"gang": ["a"]}, {"gang": ["a", "b"], "plan": 1, "pods": ["u"]}]}',
        '{"evicted": [{"gang": ["a", "b"], "at": "x", "times": 1}]}',
        '{"avoid": [{"gang": ["a", "b"], "node": "", "until": 1}, {"gang": ["a", "b"], "node": "n"}]}',
    ):
        assert read_notes(written) == RunNotes(), written


def test_a_gang_noted_twice_keeps_the_pods_of_the_first_note() -> None:
    notes = RunNotes().with_stop(("t", "g"), PLAN, ["u1", "u2"])
    notes = notes.with_stop(("t", "g"), "p", ["u2", "u3"])
    assert [(one.plan, one.pods) for one in notes.stops] == [("p", ("u1", "u2", "u3"))]
    assert notes.without_stops([("t", "g")]) == RunNotes()


def test_a_node_is_avoided_for_an_hour_and_not_longer_if_the_clock_is_set_back() -> None:
    notes = RunNotes().with_avoided([(("t", "g"), "n0")], NOW)
    assert [one.node for one in notes.avoided(NOW + AVOID_S - 1)] == ["n0"]
    assert notes.avoided(NOW + AVOID_S) == ()
    assert notes.avoided(NOW - 1) == ()


def test_evictions_are_counted_until_a_day_after_the_last() -> None:
    notes = evicted(RunNotes(), NOW, ("t", "a"), ("t", "b"))
    notes = evicted(notes, NOW + EVICTED_S - 1, ("t", "a"))
    assert notes.evictions(NOW + EVICTED_S) == (
        EvictNote(("t", "a"), NOW + EVICTED_S - 1, 2, since=NOW - 60),
    )
    assert notes.evictions(NOW - 1) == ()
    again = evicted(notes, NOW + 3 * EVICTED_S, ("t", "a"))
    assert again.evictions(NOW + 3 * EVICTED_S) == (
        EvictNote(("t", "a"), NOW + 3 * EVICTED_S, 1, since=NOW - 60),
    )


def test_an_eviction_counts_once_a_pod_is_gone_and_once_only() -> None:
    first = EvictNote(("t", "a"), NOW, 1)
    notes = RunNotes().with_stop(("t", "a"), PLAN, ["u1", "u2"], first)
    assert notes.counted([("t", "b")], NOW) == notes
    assert notes.evictions(NOW) == ()
    notes = notes.counted([("t", "a")], NOW)
    again = EvictNote(("t", "a"), NOW + 1, 1)
    notes = notes.with_stop(("t", "a"), "p", ["u2"], again).counted([("t", "a")], NOW + 1)
    assert notes.evictions(NOW + 1) == (first,)


def test_no_namespace_crowds_the_notes_of_others_out() -> None:
    notes = RunNotes().with_avoided([(("quiet", "g"), "n0")], NOW)
    notes = evicted(notes, NOW, ("quiet", "g"))
    many = [(("loud", f"g{number:03}"), "n0") for number in range(200)]
    notes = notes.with_avoided(many, NOW + 1)
    notes = evicted(notes, NOW + 1, *(("loud", f"g{i}") for i in range(1000)))
    assert 100 < len(notes.avoid) < len(many)
    assert len(notes.evicted) > 300
    for kept in (notes.avoid, notes.evicted):
        assert ("quiet", "g") in {one.gang for one in kept}
    assert notes.fits
    assert len(notes.text()) < 60_000
