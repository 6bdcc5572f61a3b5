"""Taking the lock: free, held, over; what is written; who is told what."""

from __future__ import annotations

import json
from typing import Any

import pytest
from lease_wire import NAMESPACE, START, LeaseServer, LeaseWire, micro, take

from planner.cluster.lock import Lock, read_lease
from planner.errors import (
    LockedError,
    MissingPathError,
    NotPermittedError,
    UnavailableError,
)


def test_whoever_finds_it_taken_is_told_by_whom() -> None:
    server = LeaseServer()
    first = take(LeaseWire(server))
    server.clock.now += 5
    with pytest.raises(LockedError) as caught:
        take(LeaseWire(server), program="kubectl gangplan")
    (fault,) = caught.value.faults
    assert caught.value.exit_code == 75
    assert "\n".join(fault.lines()) == (
        "error: locked in namespace gangplan-system by apply of plan gp-1 by ana@login1 (lock"
        f" {first.id}, since 2026-11-21T10:00:00Z, until 2026-11-21T10:01:00Z)\n"
        "hint: wait with --lock-timeout; only if that run is dead: kubectl gangplan status --release"
        f" {first.id}"
    )


@pytest.mark.parametrize(("after", "over"), [(61.9, False), (62.0, True), (1000.0, True)])
def test_a_lock_is_taken_over_two_seconds_after_its_end_and_not_before(
    after: float, over: bool
) -> None:
    server = LeaseServer()
    take(LeaseWire(server))
    server.clock.now += after  # 61.9 s: Date says 61, which is less than 60 + 2
    if over:
        assert take(LeaseWire(server)).left_s() > 58
        assert server.spec["leaseTransitions"] == 1
    else:
        with pytest.raises(LockedError):
            take(LeaseWire(server))


def test_a_lock_given_back_is_free_at_once_and_keeps_what_the_last_run_left() -> None:
    server, done = LeaseServer(), {"status": "applied", "exit_code": 0}
    first = take(LeaseWire(server))
    assert first.release(done)
    assert server.spec["holderIdentity"] == ""
    assert list(server.notes) == ["gangplan.dev/last-run"]
    second = take(LeaseWire(server))
    assert second.id != first.id
    assert json.loads(server.notes["gangplan.dev/last-run"]) == done
    assert read_lease(LeaseWire(server), NAMESPACE).last_run == done
    assert second.release()
    assert read_lease(LeaseWire(server), NAMESPACE).last_run == done


def test_a_taker_may_wait_for_the_lock_and_says_so_once() -> None:
    server = LeaseServer()
    first = take(LeaseWire(server))
    told: list[str] = []

    def gives_back(number: int) -> None:
        if number == 7:
            assert first.release()

    wire = LeaseWire(server, before=gives_back)
    second = take(wire, wait_s=300, on_wait=lambda holder: told.append(holder.id))
    assert told == [first.id]
    # looked at 10:00:00, :02, ... :12; given back before the eighth look, at :14, and created anew
    assert [method for method, _ in wire.sent] == ["GET"] * 8 + ["PUT"]
    assert second.left_s() == 59


def test_of_many_takers_that_look_at_once_one_gets_it() -> None:
    server = LeaseServer()
    got: list[Lock] = []

    def others(number: int) -> None:
        if number == 1:  # the first has looked and is about to write
            got.append(take(LeaseWire(server)))

    with pytest.raises(LockedError, match=r"apply of plan gp-1 by ana@login1"):
        take(LeaseWire(server, before=others))
    server.clock.now += 100
    got.clear()
    with pytest.raises(LockedError):
        take(LeaseWire(server, before=others))  # the same for a takeover
    assert server.spec["holderIdentity"] == got[0].id


LATE = {"holderIdentity": "x", "renewTime": micro(START - 62)}


@pytest.mark.parametrize(
    ("spec", "held"),
    [
        ({}, False),
        ({"holderIdentity": ""}, False),
        ({"holderIdentity": None}, False),
        ({"holderIdentity": "x"}, True),  # nobody knows until when
        ({"holderIdentity": "x", "renewTime": "soon"}, True),
        ({"holderIdentity": "x", "renewTime": micro(START - 61)}, True),
        (LATE, False),
        ({"holderIdentity": "x", "acquireTime": micro(START - 62)}, False),
        (LATE | {"leaseDurationSeconds": 61}, True),
        (LATE | {"leaseDurationSeconds": -1}, False),
        (LATE | {"leaseDurationSeconds": -1, "renewTime": micro(START - 61)}, True),
        (LATE | {"leaseDurationSeconds": "9"}, False),
    ],
)
def test_a_lease_that_another_tool_made_is_read_for_what_it_says(
    spec: dict[str, Any], held: bool
) -> None:
    server = LeaseServer()
    server.taken_by("", START)
    assert server.tree is not None
    server.tree["spec"] = spec
    if held:
        with pytest.raises(LockedError):
            take(LeaseWire(server))
    else:
        assert take(LeaseWire(server)).lost is None


@pytest.mark.parametrize(
    ("fault", "error", "says"),
    [
        (
            "403",
            NotPermittedError,
            "not permitted to create the lock, lease gangplan-system/gangplan",
        ),
        ("401", NotPermittedError, "not permitted to create the lock"),
        ("422", UnavailableError, "cannot create the lock"),
        ("before", UnavailableError, "cannot create the lock"),
        ("500", UnavailableError, "cannot create the lock"),
    ],
)
def test_a_lock_that_cannot_be_written_is_an_error(
    fault: str, error: type[Exception], says: str
) -> None:
    wire = LeaseWire(LeaseServer(), fault=lambda _: fault if wire.sent[-1][0] == "POST" else None)
    with pytest.raises(error, match=says):
        take(wire)
    assert len(wire.sent) <= 10


def test_the_namespace_has_to_be_there() -> None:
    with pytest.raises(MissingPathError) as caught:
        take(LeaseWire(LeaseServer(namespace=False)))
    assert caught.value.faults[0].lines() == [
        'error: there is no namespace gangplan-system for the lock: namespaces "gangplan-system" not found',
        "hint: kubectl create namespace gangplan-system, or name another: --lock-namespace",
    ]
