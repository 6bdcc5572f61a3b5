"""Gangs that another controller's gate holds: they wait in the plan, and nobody waits for them."""

from __future__ import annotations

import json

from live_checks import overfull, partial, placed
from live_cluster import Live
from live_objects import GATE, Wanted, listed, pods
from live_runs import planned, ran, run_words

pytest_plugins = ("live_fixtures",)

KUEUE = "kueue.x-k8s.io/admission"
QUEUED = Wanted("queued", 4, 8)
LATE = Wanted("late", 5, 8)


def create_queued(live: Live) -> None:
    """As a webhook of Kueue leaves the pods of a gang that is gated for gangplan, too."""
    made = pods(QUEUED, live.namespace, live.run)
    for tree in made:
        tree["spec"]["schedulingGates"] = [{"name": KUEUE}, {"name": GATE}]
    live.kubectl("create", "--validate=false", "-f", "-", given=listed(made))


def admit(live: Live) -> None:
    """What Kueue does with a workload that it admits."""
    for name in live.pods():
        if name.startswith("queued-"):
            patch = {"spec": {"schedulingGates": [{"$patch": "delete", "name": KUEUE}]}}
            live.send("PATCH", f"/api/v1/namespaces/{live.namespace}/pods/{name}", patch)


def test_a_gang_that_waits_for_another_gate_starves_nobody_and_starts_when_it_is_gone(
    live: Live,
) -> None:
    create_queued(live)
    live.create(LATE)
    done = ran(live, *run_words(live))
    assert done.code == 0, done.err
    live.wait_until(lambda: len(placed(live.pods())) == 5, "the later gang")
    gangs = json.loads(planned(live).read_text(encoding="utf-8"))["spec"]["gangs"]
    reasons = {gang["name"]: gang["reason"] for gang in gangs}
    assert reasons["queued"]["code"] == "Gated"
    assert KUEUE in reasons["queued"]["fields"]["text"]
    live.delete_pods(*(name for name in live.pods() if name.startswith("late-")))
    admit(live)
    assert ran(live, *run_words(live)).code == 0
    live.wait_until(lambda: len(placed(live.pods())) == 4, "the admitted gang")
    assert (partial(live.pods()), overfull(live.pods())) == ([], [])
