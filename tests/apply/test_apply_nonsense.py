"""Answers that no API server gives: a yes that is none is not taken for one."""

from __future__ import annotations

import pytest

from models.apply.live_state import LivePod
from models.apply.requests import Done, Event, NoAnswer
from planner.cluster.transport import Reply, Tree
from planner.cluster.writes import event_of

POD = LivePod("team", "vit-0", "u-1", "7")


def read(tree: Tree) -> LivePod:
    del tree
    return POD


@pytest.mark.parametrize(
    ("body", "event"),
    [
        ({"kind": "Pod"}, Done(POD)),
        ({"kind": "Status", "status": "Success"}, Done()),
        ({"kind": "Status"}, Done()),
        ({"kind": "Status", "status": "Failure"}, None),
        ({"kind": "PodList", "items": []}, None),
        ({"kind": ["Pod"]}, None),
        ({"ok": True}, None),
        ({}, None),
    ],
)
@pytest.mark.parametrize("eviction", [False, True])
@pytest.mark.parametrize("code", [200, 201, 202])
def test_a_yes_is_a_pod_or_a_success(
    body: Tree, event: Event | None, eviction: bool, code: int
) -> None:
    found = event_of(Reply(code, body), read, eviction=eviction)
    assert found == (event or NoAnswer("the server's answer is neither a Pod nor its success"))
