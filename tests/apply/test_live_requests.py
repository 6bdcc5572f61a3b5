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
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from effort import HANG_S, examples
from live_cluster import VARIABLE, Live
from live_objects import TAINT
from live_relay import Answer, Call, Forward
from live_runs import Killer, killed, ran, run_words
from played_kueue import (
    CONSUMES,
    NODE_LABELS,
    REQUESTS,
    PlayedKueue,
    Tree,
    all_over,
    come_and_go,
    true,
)

pytest_plugins = ("live_fixtures",)
pytestmark = pytest.mark.skipif(VARIABLE not in os.environ, reason="needs a real API server")

JOB = ("ConfigMap", "v1", "/api/v1/{}configmaps")
"""A Job would make pods of its own, or end ours."""

BUSY = (429, 500, 502, 503, 504)
"""Of a server, or kubectl's proxy on the way, on a machine that is very busy: asked again."""

TOLERATIONS = [{"key": TAINT, "operator": "Exists"}]

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
        while True:
            try:
                with urllib.request.urlopen(request, timeout=HANG_S) as reply:
                    return reply.status, json.load(reply)
            except urllib.error.HTTPError as error:
                if error.code not in BUSY:
                    return error.code, json.load(error)

    yield PlayedKueue(api, namespace=live.namespace, job=JOB)
    live.kubectl("delete", *names)


def what(call: Call) -> str:
    """A kind of write: ``PATCH nodes``."""
    kinds = ("leases", "configmaps", "nodes", "provisioningrequests")
    return f"{call.method} {next(one for one in kinds if f'/{one}' in call.path)}"


def labels(live: Live) -> list[Tree]:
    found = (live.get(f"/api/v1/nodes/{name}")["metadata"]["labels"] for name in live.nodes)
    return [own for one in found if (own := {k: v for k, v in one.items() if k in NODE_LABELS})]


def test_gangs_of_kueue_come_and_go_on_a_real_api_server(live: Live, kueue: PlayedKueue) -> None:
    """Jobs unchanged, on seven nodes; most runs are killed, before or after any of their writes."""
    chance = random.Random(11)
    struck: Counter[str] = Counter()
    words = run_words(live, "--wait", "0s")

    def run() -> None:
        if chance.random() < 0.3:
            assert ran(live, *words).code in (0, 7)
            return
        after, writes = chance.random() < 0.5, chance.choice((3, 6, 12))
        killer = Killer(chance.randrange(writes) + 1, after, counts=lambda call: call.writes)
        killed(live, killer, *words)
        if killer.struck is not None:
            struck[f"{'after' if after else 'before'} {what(killer.struck)}"] += 1

    def all_bound() -> bool:
        """kube-scheduler found room for each pod that was let go."""
        pods = live.pods().values()
        ours = (pod for pod in pods if CONSUMES in pod["metadata"].get("annotations", {}))
        return all("nodeName" in pod["spec"] for pod in ours)

    def sound(revoked: Collection[str]) -> None:
        live.wait_until(all_bound, "all pods of Kueue to be bound")
        kueue.sound(live.pods().values(), revoked)

    count = examples(200, 20)
    come_and_go(count, chance, lambda: kueue, run, sound, tolerations=TOLERATIONS)
    kinds = ("PUT leases", "PATCH nodes", "PATCH provisioningrequests")
    wanted = {f"{when} {kind}" for when in ("before", "after") for kind in kinds}
    assert wanted <= struck.keys() or count < 200, struck
    assert ran(live, *words).code == 0
    assert labels(live) == []
    assert all_over(kueue)


def test_an_answer_reaches_no_request_that_was_made_anew_under_its_name(
    live: Live, kueue: PlayedKueue
) -> None:
    """Kueue tries again while the answer is on its way: the next run places what is asked then."""
    kueue.submit("llama", (2, 8), tolerations=TOLERATIONS)
    kueue.step()
    (first,) = kueue.all(REQUESTS)
    path = f"{REQUESTS.format(kueue.here)}/{first['metadata']['name']}"
    answers = list[Answer | None]()

    def anew(call: Call, forward: Forward) -> Answer | None:
        if call.method != "PATCH" or "/provisioningrequests/" not in call.path:
            return forward()
        if not answers:
            metadata = {key: first["metadata"][key] for key in ("name", "ownerReferences")}
            kueue.api("DELETE", path, None, "")
            kueue.api("POST", REQUESTS.format(kueue.here), first | {"metadata": metadata}, "")
        answers.append(forward())
        return answers[-1]

    words = run_words(live, "--wait", "0s")
    ran(live, *words, meddler=anew)
    (second,) = kueue.all(REQUESTS)
    assert (len(answers), second.get("status", {}).get("conditions")) == (1, None)
    assert ran(live, *words).code == 0
    (placed,) = kueue.all(REQUESTS)
    assert (placed["metadata"]["uid"], true(placed, "Provisioned")) == (
        second["metadata"]["uid"],
        True,
    )
    mark = placed["status"]["provisioningClassDetails"]["gangplan.dev/placement-0"]
    assert labels(live) == [{"gangplan.dev/placement-0": mark}] * 2
    kueue.finish("llama")
    assert ran(live, *words).code == 0
    assert labels(live) == []
