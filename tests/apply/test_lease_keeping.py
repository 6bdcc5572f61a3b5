"""Keeping the lock: what is left of it, renewing it, losing it, giving it back; with faults anywhere."""

from __future__ import annotations

import contextlib
import itertools
import json
import threading
from typing import Any

import pytest
from effort import HANG_S, examples
from hypothesis import given, settings
from hypothesis import strategies as st
from lease_wire import NAMESPACE, START, LeaseServer, LeaseWire, micro, take
from strategies import texts, trees

from models.apply.notes import RunNotes
from planner.cluster import lock as locking
from planner.cluster.lock import Lease, Lock
from planner.errors import LockedError, UnavailableError


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """No pauses between the tries to give it back."""
    monkeypatch.setattr(locking, "_PAUSE_S", 0.0)


def test_what_is_left_runs_down_with_a_second_to_spare() -> None:
    server = LeaseServer()
    lock = take(LeaseWire(server))
    found = []
    for _ in range(4):
        found.append(lock.left_s())
        server.clock.now += 25
    # renewed at 10:00:00; the Date it was read from may have been cut by almost a second
    assert found == [59, 34, 9, 0]


def test_notes_that_a_lease_cannot_hold_are_not_written_and_it_stays_ours() -> None:
    """An API server takes 256 KiB of annotations, and renewals write them, too."""
    server = LeaseServer()
    lock = take(LeaseWire(server))
    assert not lock.remember(RunNotes().with_stop(("a", "x"), "p", map(str, range(100_000))))
    server.clock.now += 40
    lock.renew_if_needed()
    assert lock.left_s() == 59
    assert lock.remember(STOPPING)


def test_a_lock_whose_answer_was_lost_counts_from_when_it_was_written() -> None:
    slow = {2: (10.0, 0.0)}
    wire = LeaseWire(
        LeaseServer(),
        delay=lambda n: slow.get(n, (0.0, 0.0)),
        fault=lambda n: "after" if n == 1 else None,
    )
    assert take(wire).left_s() == 39  # its Date is ten seconds later, and may have taken ten


STOPPING = RunNotes().with_stop(("team", "low"), "gp-0", ["uid-1", "uid-2"])


def test_notes_stay_with_the_lease_through_renewals_release_and_the_next_run() -> None:
    server = LeaseServer()
    lock = take(LeaseWire(server))
    assert lock.remember(STOPPING)
    server.clock.now += 10
    lock.renew_if_needed()
    assert lock.release({"status": "applied"})
    assert Lease(NAMESPACE, server.tree).notes == STOPPING
    later = take(LeaseWire(server))
    assert later.notes == STOPPING
    assert later.remember(RunNotes())
    assert "gangplan.dev/notes" not in server.notes


@pytest.mark.parametrize(
    ("freed", "why"), [(True, "it was unlocked"), (False, "the Lease gangplan-system/")]
)
def test_a_lock_that_somebody_freed_or_deleted_is_lost(freed: bool, why: str) -> None:
    server = LeaseServer()
    lock = take(LeaseWire(server))
    if freed:
        server.taken_by("", START)
    else:
        server.cluster.remove("Lease", "gangplan", NAMESPACE)
    server.clock.now += 30
    assert not lock.holds()
    assert (lock.lost or "").startswith(why)
    assert not lock.release({})


def test_a_server_that_does_not_answer_lets_the_lock_run_down() -> None:
    server = LeaseServer()
    wire = LeaseWire(server)
    lock = take(wire)
    wire.fault = lambda _: "before"
    found = []
    for _ in range(5):
        server.clock.now += 12
        found.append(lock.holds(margin_s=10))
    assert found == [True, True, True, True, False]  # 47, 35, 23, 11 s left, none
    assert lock.lost is None
    wire.fault = lambda _: None
    assert lock.holds()


def test_a_bug_while_it_is_kept_is_not_swallowed() -> None:
    asked = threading.Event()

    def broken(_: int) -> str:
        asked.set()
        raise ZeroDivisionError

    wire = LeaseWire(server := LeaseServer())
    lock = take(wire)
    wire.fault = broken
    server.clock.now += 30
    with pytest.raises(ZeroDivisionError), lock.renewing(tick_s=0.001):
        asked.wait(HANG_S)


FAULTS = ("before", "after", "409", "500", "503", "429")


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("start", ["none", "free", "over"])
def test_a_fault_at_any_request_changes_nothing_in_the_end(fault: str, start: str) -> None:
    for number in range(8):
        server = LeaseServer()
        if start != "none":
            server.taken_by("" if start == "free" else "dead", START - 100)
        wire = LeaseWire(server, fault=lambda n, at=number: fault if n == at else None)  # type: ignore[misc]
        lock = take(wire)
        for _ in range(3):
            server.clock.now += 25
            assert lock.holds(), number
        assert lock.release({"status": "applied"})
        assert server.spec["holderIdentity"] == ""
        assert json.loads(server.notes["gangplan.dev/last-run"]) == {"status": "applied"}
        assert {identity for _, identity in server.holders} - {"", "dead"} == {lock.id}


@pytest.mark.parametrize("fault", ["before", "after", "500"])
def test_two_faults_at_any_two_requests_change_nothing_either(fault: str) -> None:
    for pair in itertools.combinations(range(9), 2):
        server = LeaseServer()
        wire = LeaseWire(server, fault=lambda n, pair=pair: fault if n in pair else None)  # type: ignore[misc]
        lock = take(wire)
        server.clock.now += 25
        lock.renew_if_needed()
        server.clock.now += 2
        assert lock.holds(), pair
        assert lock.release({"status": "applied"}), pair
        assert server.spec["holderIdentity"] == "", pair


delays = st.floats(0, 20)


@settings(max_examples=examples(150, 60), deadline=None)
@given(data=st.data(), start=st.floats(0, 1, exclude_max=True), offset=st.floats(-1e6, 1e6))
def test_it_is_never_believed_to_be_ours_when_another_could_take_it(
    data: st.DataObject, start: float, offset: float
) -> None:
    """However slow the answers, whatever is lost, and wherever between two seconds it begins."""
    travel = data.draw(st.lists(st.tuples(delays, delays), min_size=1, max_size=12))
    server = LeaseServer(now=START + start)
    trouble = [""]
    wire = LeaseWire(
        server,
        offset=offset,
        delay=lambda n: travel[n % len(travel)],
        fault=lambda _: trouble[0] or None,
    )
    try:
        lock = take(wire)
    except UnavailableError:
        return
    step = st.tuples(st.floats(0, 40), st.sampled_from(["", *FAULTS]))
    for passes, trouble[0] in data.draw(st.lists(step, max_size=8)):
        server.clock.now += passes
        lock.renew_if_needed()
        left = lock.left_s()
        # another may take it once Date, whole seconds, is 2 beyond the end that stands in the Lease
        holder = Lease(NAMESPACE, server.tree, float(int(server.clock.now))).holder
        assert holder is not None
        assert holder.until is not None
        assert holder.id == lock.id
        assert left <= max(0.0, holder.until - server.clock.now) + 1e-6
        assert not (left and holder.expired)


@settings(max_examples=examples(120), deadline=None)
@given(data=st.data())
def test_two_never_hold_it_at_once(data: st.DataObject) -> None:
    """Three takers in any order, with pauses and lost answers, each believing only its own lock."""
    server = LeaseServer()
    trouble: list[str | None] = [None]
    wires = [LeaseWire(server, fault=lambda _: trouble[0]) for _ in range(3)]
    locks: list[Lock | None] = [None, None, None]
    for _ in range(data.draw(st.integers(1, 25))):
        who = data.draw(st.integers(0, 2))
        server.clock.now += data.draw(st.sampled_from([0.0, 0.4, 3.0, 21.0, 59.0, 63.0]))
        trouble[0] = data.draw(st.sampled_from([None, None, None, "before", "after", "409"]))
        lock = locks[who]
        if lock is None:
            with contextlib.suppress(LockedError, UnavailableError):
                locks[who] = take(wires[who])
        elif data.draw(st.booleans()):
            lock.release({})
            locks[who] = None
        else:
            lock.renew_if_needed()
        believers = [one.id for one in locks if one is not None and one.left_s() > 0]
        assert len(believers) <= 1
        if believers:
            assert server.spec["holderIdentity"] == believers[0]


ODD = trees(texts(8) | st.just(micro(START)), texts(5), leaves=8)
FIELDS = ["holderIdentity", "renewTime", "acquireTime", "leaseDurationSeconds", "leaseTransitions"]
NOTES = ["gangplan.dev/user", "gangplan.dev/acquired", "gangplan.dev/last-run", "x"]


def odd(names: list[str]) -> st.SearchStrategy[Any]:
    return st.dictionaries(st.sampled_from(names), ODD) | ODD


@settings(max_examples=examples(150, 80), deadline=None)
@given(spec=odd(FIELDS), notes=odd(NOTES))
def test_whatever_stands_in_a_lease_is_read_and_shown_on_one_line(spec: Any, notes: Any) -> None:  # noqa: ANN401
    metadata = {"annotations": notes, "resourceVersion": "1"}
    found = Lease(NAMESPACE, {"metadata": metadata, "spec": spec}, START)
    if found.holder is not None:
        assert found.holder.describe().isprintable()
    server = LeaseServer()
    server.taken_by("", START)
    assert server.tree is not None
    server.tree["spec"] = spec
    pairs = notes.items() if isinstance(notes, dict) else ()  # a server stores no others
    kept = {key: word for key, word in pairs if key in NOTES and isinstance(word, str)}
    server.tree["metadata"]["annotations"] = kept
    found = Lease(NAMESPACE, server.tree, START)
    try:
        assert take(LeaseWire(server)).release({})
    except LockedError:
        assert found.holder is not None


def test_a_server_whose_clock_goes_back_an_hour_makes_the_lock_no_longer() -> None:
    server = LeaseServer()
    wire = LeaseWire(server, delay=lambda n: (0.0, 10.0 * (n == 2)))
    lock = take(wire)
    server.clock.now += 10
    real, wire.offset = server.clock.now, wire.offset + 3600  # our clock goes on as it did
    server.clock.now -= 3600
    lock.renew_if_needed()
    found = [lock.left_s()]
    for passed in (30, 19, 1):
        server.clock.now += passed
        found.append(lock.left_s())
    # renewed once, then 60 s of ours run down, 10 of them until the answer came, whatever the server says
    assert found == [50, 20, 1, 0]
    assert wire.clock() - 60 == real + LeaseWire(server).offset
