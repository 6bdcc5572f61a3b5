"""``run --watch`` on a live cluster: changes lead to a run, nothing else does, only a signal ends it."""

from __future__ import annotations

import re
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest
from effort import HANG_S
from live_checks import placed
from live_cluster import Live
from live_objects import LEASE_PATH, Wanted
from live_relay import Answer, Call, Forward
from live_runs import children, run_words, started

pytest_plugins = ("live_fixtures",)


@dataclass(slots=True)
class Watching:
    """A process that watches, and what it has said so far."""

    live: Live
    process: subprocess.Popen[str]
    lines: list[str] = field(default_factory=list)

    def listen(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line.rstrip("\n"))

    def rounds(self) -> list[str]:
        """Why each round began."""
        begun = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ: (.*)"
        return [one[1] for line in self.lines if (one := re.fullmatch(begun, line))]

    def wait_for(self, count: int) -> None:
        """Until so many rounds have ended."""
        self.live.wait_until(
            lambda: sum(line.startswith("run ") for line in self.lines) >= count,
            f"round {count} after {self.lines[-4:]}",
        )

    def wait_for_pods(self, count: int) -> None:
        self.live.wait_until(lambda: len(placed(self.live.pods())) >= count, "pods to start")

    def end(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(HANG_S)


@contextmanager
def watching(live: Live) -> Iterator[Watching]:
    words = run_words(live, "--watch", "--min-interval", "1s", "--max-interval", "1h")
    with started(live, *words) as process:
        found = Watching(live, process)
        thread = threading.Thread(target=found.listen, daemon=True)
        thread.start()
        try:
            yield found
        finally:
            if process.poll() is None:
                process.kill()
            thread.join(HANG_S)
            assert not thread.is_alive(), "somebody still has its stderr"
            live.wait_until(lambda: not children(live), "kubectl to end with us")


def heartbeat(live: Live, name: str, seconds: int) -> None:
    """The status of a node as its kubelet renews it."""
    at = f"2026-11-22T10:00:{seconds:02}Z"
    ready = {"type": "Ready", "status": "True", "lastHeartbeatTime": at}
    live.send("PATCH", f"/api/v1/nodes/{name}/status", {"status": {"conditions": [ready]}})


@pytest.mark.slow
def test_what_happens_leads_to_a_run_and_nothing_else_does(live: Live) -> None:
    """A gang starts; heartbeats and our own writes start no run, or the next one would say so."""
    with watching(live) as seen:
        seen.wait_for(1)
        live.create(Wanted("one", 2, 8))
        seen.wait_for_pods(2)
        runs = len(seen.rounds())
        seen.wait_for(runs)
        for second in range(3):
            heartbeat(live, live.nodes[0], second)
        time.sleep(3.0)
        assert len(seen.rounds()) == runs
        live.create(Wanted("two", 2, 8))
        seen.wait_for_pods(4)
        assert set(seen.rounds()[1:]) == {"pods changed"}
        seen.wait_for(len(seen.rounds()))
        assert seen.end() == 128 + signal.SIGTERM
    assert seen.lines[-1] == "ended by SIGTERM (exit 143)"
    assert not [line for line in seen.lines if "Traceback" in line or line.startswith("error")]


@pytest.mark.slow
def test_a_signal_within_a_run_ends_it_as_it_ends_a_run(live: Live) -> None:
    """It comes before the first write to a pod: no pod starts after it, and the lock is free."""
    reached, go_on = threading.Event(), threading.Event()

    def hold(call: Call, forward: Forward) -> Answer | None:
        if call.writes_pods and not reached.is_set():
            reached.set()
            go_on.wait(HANG_S)
        return forward()

    live.create(Wanted("one", 2, 8), Wanted("two", 2, 8))
    with live.relay.meddling(hold), watching(live) as seen:
        assert reached.wait(HANG_S)
        seen.process.send_signal(signal.SIGTERM)
        go_on.set()
        assert seen.process.wait(HANG_S) == 128 + signal.SIGTERM
    assert [line for line in seen.lines if line.startswith("run interrupted (exit 143)")]
    assert not live.get(LEASE_PATH.format(live.lock_namespace))["spec"].get("holderIdentity")
    assert seen.rounds() == ["started"]
