"""Names, labels and annotations that mean something to a shell, a terminal or a URL: here they do nothing."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest
from live_checks import placed
from live_cluster import Live
from live_objects import MARK, Wanted, node, pods
from live_relay import Answer, Call, Forward
from live_runs import apply_words, placements, planned, ran, run_words

pytest_plugins = ("live_fixtures",)

Tree = dict[str, Any]

ESCAPE = "\x1b[2J\x1b]0;owned\x07[red]"
NAMES = ("--help", "../../nodes/x", "-o=json", "a..b", ESCAPE, "x?dryRun=All", "x%2f..%2fy")


class Haunted:
    """Adds objects to the lists that the server gives: no API server would have taken their names."""

    def __init__(self, live: Live) -> None:
        self._live = live

    def __call__(self, call: Call, forward: Forward) -> Answer | None:
        answer = forward()
        if call.method != "GET" or answer.code != 200:
            return answer
        if call.path == "/api/v1/nodes":
            return self._with(answer, [self._node(f"..{index}") for index in (1, 2)])
        if call.path == "/api/v1/pods":
            return self._with(answer, [self._pod(index) for index in range(len(NAMES))])
        return answer

    def _with(self, answer: Answer, more: list[Tree]) -> Answer:
        tree = answer.tree()
        tree["items"] += more
        headers = tuple(h for h in answer.headers if h[0].lower() != "content-encoding")
        return Answer(200, json.dumps(tree).encode(), headers)

    def _node(self, name: str) -> Tree:
        tree = node(name, self._live.run)
        tree["metadata"] |= {"uid": f"uid-{name}", "resourceVersion": "1"}
        return tree

    def _pod(self, index: int) -> Tree:
        (tree,) = pods(Wanted("haunted", 1, 1), self._live.namespace, self._live.run)
        tree["metadata"] |= {
            "name": NAMES[index],
            "uid": f"uid-{index}",
            "resourceVersion": "1",
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {MARK: ESCAPE, "gang": ESCAPE},
            "annotations": {"scheduling.x-k8s.io/pod-group": f"{ESCAPE}{index}"},
        }
        tree["status"] = {"phase": "Pending"}
        return tree


def harmless(said: str) -> bool:
    """No control characters but the ends of lines."""
    return not any(ord(letter) < 32 and letter != "\n" for letter in said)


def test_hostile_names_in_the_cluster_reach_no_url_and_no_terminal(live: Live) -> None:
    live.create(Wanted("one", 2, 8))
    done = ran(live, *run_words(live), meddler=Haunted(live))
    # no pod can have such a name: its gang waits, and the others are started
    assert done.code == 0, done.err
    assert harmless(done.out + done.err), done.err
    assert "Traceback" not in done.err
    for call in done.calls:
        assert not any(bad in call.target for bad in ("..", "%2f", "help", "\x1b", "haunted")), call
    assert {call.path.split("/")[6] for call in done.calls if call.writes_pods} == {
        "one-0",
        "one-1",
    }


@pytest.mark.slow
def test_gangs_with_hostile_names_are_applied_like_others(live: Live) -> None:
    """Annotations may hold anything: a real API server takes these."""
    live.create(
        Wanted("one", 2, 8, "gate", called=f"{ESCAPE}$(reboot)"),
        Wanted("two", 2, 8, called="--help"),
        Wanted("three", 2, 8, called="../../../etc/passwd"),
    )
    plan = planned(live)
    looked = ran(live, "apply", "--dry-run=client", str(plan))
    done = ran(live, *apply_words(live, plan))
    told = ran(live, "status", "--lock-namespace", live.lock_namespace)
    assert (looked.code, done.code, told.code) == (0, 0, 0), looked.err + done.err + told.err
    assert placed(live.pods()) == placements(plan)
    for one in (looked, done, told):
        assert harmless(one.out + one.err)


def test_a_plan_with_hostile_names_is_refused_or_does_nothing(live: Live) -> None:
    live.create(Wanted("one", 2, 8), Wanted("two", 2, 8))
    plan = planned(live)
    for bad in NAMES[:2]:
        plan.write_text(_renamed(plan.read_text(encoding="utf-8"), "one-0", bad), encoding="utf-8")
        done = ran(live, *apply_words(live, plan))
        assert done.code in {5, 6, 65}, (bad, done.err)
        assert harmless(done.out + done.err)
        assert [str(call) for call in done.calls if call.writes_pods] == []
        plan = planned(live)
    assert ran(live, *apply_words(live, plan)).code == 0
    assert placed(live.pods()) == placements(plan)


def _renamed(document: str, old: str, new: str) -> str:
    """A plan with one string for another, and the digests that it then has."""
    tree: Tree = json.loads(document.replace(json.dumps(old), json.dumps(new)))
    tree["status"]["digests"] = {part: _digest(tree[part]) for part in ("instance", "spec")}
    return json.dumps(tree)


def _digest(tree: Tree) -> str:
    text = json.dumps(tree, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"
