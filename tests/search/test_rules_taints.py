"""Rule 2: taints and tolerations as Kubernetes has them; the rest is in ``rule_cases/resources.yaml``."""

from __future__ import annotations

import pytest
from building import build, gang, node, role
from building_servers import switched
from outcomes import planned

from models.documents.gang import Toleration
from models.instance.cluster import Taint

NO_ENTRY = Taint("dedicated", "infra", "NoSchedule")


@pytest.mark.parametrize("effect", ["NoSchedule", "NoExecute"])
def test_taint_rule_forbids_a_pod_without_toleration(effect: str) -> None:
    nodes = [node("n", switched(), taints=[Taint("dedicated", "infra", effect)])]
    outcome = planned(build(nodes=nodes, gangs=[gang("a")]))
    assert outcome.decision("a") == "wait"
    assert outcome.reason("a") == "Never"


@pytest.mark.parametrize(
    ("toleration", "decision"),
    [
        (Toleration("dedicated", "Equal", "infra", "NoSchedule"), "place"),
        (Toleration("dedicated", "Equal", "infra"), "place"),  # an empty effect matches all
        (Toleration("dedicated", "Exists"), "place"),
        (Toleration("", "Exists"), "place"),  # tolerates everything
        (Toleration("dedicated", "Equal", "other"), "wait"),
        (Toleration("dedicated", "Exists", "", "NoExecute"), "wait"),
        (Toleration("other", "Exists"), "wait"),
    ],
)
def test_taint_rule_matches_tolerations_as_kubernetes_does(
    toleration: Toleration, decision: str
) -> None:
    roles = [role(tolerations=[toleration])]
    nodes = [node("n", switched(), taints=[NO_ENTRY])]
    assert planned(build(nodes=nodes, gangs=[gang("a", roles=roles)])).decision("a") == decision


def test_taint_rule_ignores_a_mere_preference() -> None:
    nodes = [node("n", switched(), taints=[Taint("dedicated", "infra", "PreferNoSchedule")])]
    assert planned(build(nodes=nodes, gangs=[gang("a")])).decision("a") == "place"
