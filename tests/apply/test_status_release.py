"""``gangplan status --release ID``: through the real kubectl, and its races from memory."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from conftest import Result, RunCli
from lease_wire import LEASES, NAMESPACE, PATH, START, LeaseServer, LeaseWire, take
from snapshots import real_kubectl
from wire_server import Answer, Asked, Server, answer, on_localhost

from planner.cluster.lock import unlock
from planner.errors import NotPermittedError, UnavailableError


@pytest.fixture
def lease() -> LeaseServer:
    return LeaseServer()


@pytest.fixture
def served(lease: LeaseServer, tmp_path: Path) -> Iterator[tuple[Server, Path]]:
    """The Lease over HTTP, whose Date is when the lock was taken: see ``wire_server.DATE``."""

    def play(asked: Asked) -> Answer:
        body = json.loads(asked.body) if asked.body else None
        code, tree, _ = lease.cluster.handle(asked.method, urlsplit(asked.target).path, body)
        return answer(code, tree)

    with on_localhost(tmp_path, play) as found:
        yield found


def run(cli: RunCli, config: Path, *arguments: str) -> Result:
    environ = {**os.environ, "KUBECTL": real_kubectl()}
    return cli("status", "--kubeconfig", str(config), "--release", *arguments, environ=environ)


def test_the_lock_of_a_dead_run_is_freed_and_no_other(
    lease: LeaseServer, served: tuple[Server, Path], cli: RunCli
) -> None:
    dead = take(LeaseWire(lease))
    held = (
        f"apply of plan gp-1 by ana@login1 (lock {dead.id},"
        " since 2026-11-21T10:00:00Z, until 2026-11-21T10:01:00Z)\n"
    )
    server, config = served
    result = run(cli, config, "0123456789")
    assert (result.code, result.out, lease.spec["holderIdentity"]) == (75, "", dead.id)
    assert result.err == (
        f"error: the lock in namespace gangplan-system is not '0123456789': {held}"
        f"hint: only if that run is dead: gangplan status --release {dead.id}\n"
    )
    asked = len(server.targets())
    result = run(cli, config, dead.id)
    assert (result.code, result.out) == (0, "")
    assert result.err == (
        f"released in namespace gangplan-system: {held}"
        "warning: if that run is alive, it stops within seconds and starts no further gang\n"
        "next: gangplan status\n"
    )
    assert lease.spec["holderIdentity"] == ""
    assert server.targets()[asked:] == [PATH, f"{PATH}?fieldManager=gangplan"]
    lease.clock.now += 6
    assert not dead.holds()


@pytest.mark.parametrize("made", [False, True])
def test_what_is_over_is_freed_without_a_warning_and_what_nobody_holds_stays_as_it_is(
    made: bool, lease: LeaseServer, served: tuple[Server, Path], cli: RunCli
) -> None:
    if made:
        lease.taken_by("0123456789", START - 61)
        result = run(cli, served[1], "0123456789")
        assert (result.code, "warning" in result.err) == (0, False)
    asked = len(served[0].asked)
    result = run(cli, served[1], "0123456789")
    free = "the lock in namespace gangplan-system is free; nothing was changed\n"
    assert (result.code, result.err) == (0, free)
    assert {one.method for one in served[0].asked[asked:]} == {"GET"}


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        [""],
        ["a", "b"],
        ["a", "--lock-namespace", "a/b"],
        ["a", "--request-timeout", "soon"],
        ["a", "--request-timeout", "0s"],
    ],
)
def test_what_cannot_be_meant_is_a_usage_error(arguments: list[str], cli: RunCli) -> None:
    result = cli("status", "--release", *arguments, environ=dict(os.environ))
    assert (result.code, result.out) == (64, "")
    assert result.err.startswith("error: ")


def free(wire: LeaseWire, identity: str) -> object:
    return unlock(wire, namespace=NAMESPACE, identity=identity, sleep=wire.sleep)


def test_a_holder_that_renews_meanwhile_is_still_unlocked(lease: LeaseServer) -> None:
    alive = take(LeaseWire(lease))

    def renews(number: int) -> None:
        if number == 1:
            lease.clock.now += 30
            assert alive.holds()

    wire = LeaseWire(lease, before=renews)
    assert free(wire, alive.id) is not None
    assert [method for method, _ in wire.sent] == ["GET", "PUT", "GET", "PUT"]
    assert lease.spec["holderIdentity"] == ""
    lease.clock.now += 30
    assert not alive.holds()


def test_a_lock_that_another_takes_meanwhile_is_left_to_it(lease: LeaseServer) -> None:
    lease.taken_by("dead", START - 100)
    others = []

    def takes(number: int) -> None:
        if number == 1:
            others.append(take(LeaseWire(lease)))

    assert free(LeaseWire(lease, before=takes), "dead") is not None
    assert lease.spec["holderIdentity"] == others[0].id


@pytest.mark.parametrize("fault", ["before", "after", "409", "500", "429"])
@pytest.mark.parametrize("number", range(4))
def test_a_fault_at_any_request_does_not_keep_it_locked(
    fault: str, number: int, lease: LeaseServer
) -> None:
    lease.taken_by("dead", START)
    free(LeaseWire(lease, fault=lambda n: fault if n == number else None), "dead")
    assert lease.spec["holderIdentity"] == ""


@pytest.mark.parametrize(
    ("fault", "error"), [("403", NotPermittedError), ("before", UnavailableError)]
)
def test_a_server_that_will_not_is_an_error(
    fault: str, error: type[Exception], lease: LeaseServer
) -> None:
    lease.taken_by("dead", START)
    wire = LeaseWire(lease, fault=lambda _: fault if wire.sent[-1][0] == "PUT" else None)
    with pytest.raises(error):
        free(wire, "dead")
    assert len(wire.sent) <= 10
    assert LEASES in wire.sent[0][1]
