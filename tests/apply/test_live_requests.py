"""Gangs that Kueue asks to place, on a real API server with its kube-scheduler; Kueue is played.

Needs an API server that takes CustomResourceDefinitions: see ``live_cluster``.
"""

from __future__ import annotations

import json
import os
import random
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from effort import HANG_S, examples
from live_checks import overfull
from live_cluster import VARIABLE, Live
from live_objects import TAINT
from live_relay import Call
from live_runs import Killer, killed, ran, run_words
from played_kueue import CONSUMES, NODE_LABELS, REQUESTS, WORKLOADS, PlayedKueue, Tree, true

pytest_plugins = ("live_fixtures",)
pytestmark = pytest.mark.skipif(VARIABLE not in os.environ, reason="needs a real API server")

JOB = ("ConfigMap", "v1", "/api/v1/{}configmaps")
"""A Job would make pods of its own, or end ours."""

CRDS = Path(__file__).parents[1] / "data" / "kueue_crds.yaml"


@pytest.fixture
def kueue(live: Live) -> Iterator[PlayedKueue]:
    documents = list(yaml.safe_load_all(CRDS.read_text(encoding="utf-8")))
    live.kubectl("apply", "-f", "-", given={"kind": "List", "apiVersion": "v1", "items": documents})
    names = [f"crd/{one['metadata']['name']}" for one in documents]
    live.kubectl("wait", "--for=condition=Established", *names)

    def api(method: str, path: str, body: Any, content: str) -> tuple[int, Tree]:  # noqa: ANN401
        request = urllib.request.Request(
            live.url + path,
            data=None if body is None else json.dumps(body).encode(),
            method=method,
            headers={"Content-Type": content or "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=HANG_S) as reply:
                return reply.status, json.load(reply)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)

    yield PlayedKueue(api, namespace=live.namespace, job=JOB)
    live.kubectl("delete", *names)


def settled(live: Live, kueue: PlayedKueue, revoked: set[str]) -> None:
    """Every gang of Kueue is bound as a whole: kube-scheduler found room for each pod that was let go.

    No request has failed, and no workload was given up but those that somebody else ``revoked``.
    """

    def waiting() -> list[str]:
        pods = live.pods().values()
        ours = (pod for pod in pods if CONSUMES in pod["metadata"].get("annotations", {}))
        return [pod["metadata"]["name"] for pod in ours if "nodeName" not in pod["spec"]]

    live.wait_until(lambda: not waiting(), "all pods of Kueue to be bound")
    assert overfull(live.pods()) == []
    given_up = [one for one in kueue.all(WORKLOADS) if not one["spec"]["active"]]
    assert {one["metadata"]["name"] for one in given_up} == {f"job-{name}" for name in revoked}
    requests = kueue.all(REQUESTS)
    assert not any(true(one, "Failed") for one in requests)
    assert sum(true(one, "CapacityRevoked") for one in requests) == len(revoked)


def what(call: Call) -> str:
    """A kind of write: ``PATCH nodes``."""
    kinds = ("leases", "configmaps", "nodes", "provisioningrequests")
    return f"{call.method} {next(one for one in kinds if f'/{one}' in call.path)}"


def labels(live: Live) -> list[Tree]:
    found = (live.get(f"/api/v1/nodes/{name}")["metadata"]["labels"] for name in live.nodes)
    return [own for one in found if (own := {k: v for k, v in one.items() if k in NODE_LABELS})]


def test_gangs_of_kueue_come_and_go_on_a_real_api_server(live: Live, kueue: PlayedKueue) -> None:
    """Jobs unchanged, of all sizes on seven nodes; every other run is killed, at any of its writes.

    Some are stopped by Kueue and come again; of some somebody revokes the nodes.
    """
    chance = random.Random(11)
    revoked: set[str] = set()
    struck: Counter[str] = Counter()
    waiting = [f"g{number}" for number in range(examples(200, 20))]
    tolerations = [{"key": TAINT, "operator": "Exists"}]
    words = run_words(live, "--wait", "0s")
    ended: set[str] = set()
    came: set[str] = set()
    for _ in range(10 * len(waiting)):
        for name in waiting[: chance.randrange(2, 7)]:
            pods, gpus = chance.choice([(1, 1), (1, 4), (2, 4), (2, 8), (3, 2), (4, 8), (1, 8)])
            priority = chance.randrange(3)
            kueue.submit(name, (pods, gpus), priority=priority, tolerations=tolerations)
            waiting.remove(name)
            came.add(name)
        kueue.step()
        if chance.random() < 0.5:
            after, writes = chance.random() < 0.5, chance.choice((3, 6, 12))
            killer = Killer(chance.randrange(writes) + 1, after, counts=lambda call: call.writes)
            killed(live, killer, *words)
            if killer.struck is not None:
                struck[f"{'after' if after else 'before'} {what(killer.struck)}"] += 1
        else:
            done = ran(live, *words)
            assert done.code in (0, 7), done.err
        kueue.step()
        settled(live, kueue, revoked)
        for name in sorted(name for name in came - ended if kueue.pods_of(name)):
            fate = chance.random()
            if fate < 0.6:
                kueue.finish(name)
                ended.add(name)
            elif fate < 0.7:
                kueue.evict(name)
            elif fate < 0.73:
                kueue.revoke(name)
                ended.add(name)
                revoked.add(name)
        if not waiting and came == ended:
            break
    assert came == ended
    kinds = ("PUT leases", "PATCH nodes", "PATCH provisioningrequests")
    wanted = {f"{when} {kind}" for when in ("before", "after") for kind in kinds}
    assert wanted <= struck.keys() or len(came) < 200, struck
    assert ran(live, *words).code == 0
    assert labels(live) == []
    over = ("BookingExpired", "CapacityRevoked")
    assert all(any(true(one, kind) for kind in over) for one in kueue.all(REQUESTS))
