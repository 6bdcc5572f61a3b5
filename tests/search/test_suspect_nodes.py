"""When a node failed, as a plan states it; as nodes of a cluster tell it: ``kube/cases/nodes.yaml``."""

from __future__ import annotations

from building import instance_document
from stated_cases import instance_of


def test_the_time_of_a_failure_is_in_the_plan() -> None:
    nodes = {"n1": {"gpus": 8, "failed": "-1h"}, "n2": 8}
    stated = instance_document(instance_of({"nodes": nodes, "gangs": {}}))
    servers = stated["cluster"]["spec"]["nodes"]
    assert [own.get("lastFailure") for own in servers] == ["2027-01-15T07:00:00Z", None]
