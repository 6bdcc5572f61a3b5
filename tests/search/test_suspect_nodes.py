"""When a node failed: as a plan states it, and as nodes of a cluster tell it."""

from __future__ import annotations

import pytest
from building import instance_document
from kube import node
from kube_nodes import one
from stated_cases import instance_of

from models.units import epoch_seconds

KEY = "gangplan.dev/last-failure"


def test_the_time_of_a_failure_is_in_the_plan() -> None:
    nodes = {"n1": {"gpus": 8, "failed": "-1h"}, "n2": 8}
    stated = instance_document(instance_of({"nodes": nodes, "gangs": {}}))
    servers = stated["cluster"]["spec"]["nodes"]
    assert [own.get("lastFailure") for own in servers] == ["2027-01-15T07:00:00Z", None]


@pytest.mark.parametrize(
    ("since", "annotation", "failed"),
    [
        ("2026-11-01T00:09:59Z", None, None),  # it joined ten minutes before
        ("2026-11-01T00:10:00Z", None, "2026-11-01T00:10:00Z"),
        ("yesterday", None, None),
        ("2026-11-01T00:01:00Z", "2026-11-02T00:00:00Z", "2026-11-02T00:00:00Z"),
        ("2026-11-02T00:00:00Z", "2026-11-01T12:00:00Z", "2026-11-02T00:00:00Z"),  # the later one
        ("2026-11-01T00:01:00Z", "soon", None),
    ],
)
def test_a_node_failed_when_it_came_back_or_when_a_health_check_says(
    since: str, annotation: str | None, failed: str | None
) -> None:
    tree = node("n")
    notes = {} if annotation is None else {KEY: annotation}
    tree["metadata"] |= {"creationTimestamp": "2026-11-01T00:00:00Z", "annotations": notes}
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": since}
    tree["status"]["conditions"] = [ready]
    found, said = one(tree)
    assert found.failed_at == (None if failed is None else epoch_seconds(failed))
    ignored = f"annotation {KEY} is not a time; ignored"
    assert (ignored in said) is (annotation == "soon")
