"""Rule 5: the pods of a role that ask for GPUs run on one GPU model, unless the models may mix.

Each rule: what just fits is placed, one more is not.
"""

from __future__ import annotations

import pytest
from building import build, gang, node, role
from building_servers import switched
from outcomes import planned

from models.instance.solution import Reason

NODES = [node("n1", switched(2, gpu="H100")), node("n2", switched(2, gpu="A100"))]


def test_model_rule_allows_a_role_on_one_model_and_forbids_it_on_two() -> None:
    assert planned(build(nodes=NODES, gangs=[gang("a", pods=2)])).decision("a") == "place"
    assert planned(build(nodes=NODES, gangs=[gang("a", pods=3)])).decision("a") == "wait"


def test_model_rule_is_lifted_by_mix_models() -> None:
    roles = [role("worker", 3, 1, mix_models=True)]
    assert planned(build(nodes=NODES, gangs=[gang("a", roles=roles)])).decision("a") == "place"


def test_model_rule_lets_two_roles_run_on_two_models() -> None:
    roles = [role("worker", 2, 1), role("server", 2, 1)]
    outcome = planned(build(nodes=NODES, gangs=[gang("a", roles=roles)]))
    first, second, third, fourth = outcome.nodes("a")
    assert first == second != third == fourth


def test_model_rule_counts_two_servers_of_one_gpu_model_as_one() -> None:
    nodes = [node("n1", switched(2, name="maker one")), node("n2", switched(2, name="maker two"))]
    assert planned(build(nodes=nodes, gangs=[gang("a", pods=4)])).decision("a") == "place"


def test_model_rule_does_not_bind_pods_without_gpus() -> None:
    nodes = [*NODES, node("n3", None)]
    roles = [role("head", 3, 0, requests={"cpu": 1000}), role("worker", 2, 1)]
    limited = [
        node(n.name, n.model, allocatable={"cpu": 1000}) for n in nodes
    ]  # one head a node, three models (or none)
    outcome = planned(build(nodes=limited, gangs=[gang("a", roles=roles)]))
    assert sorted(outcome.nodes("a")[:3]) == ["n1", "n2", "n3"]


@pytest.mark.parametrize(
    ("wanted", "where"),
    [
        ("A100", "n2"),
        ("a100", "n2"),
        ("switched h100 2", "n1"),  # a server model
        ("Switched_H100-2", "n1"),  # compared as slugs
    ],
)
def test_model_of_a_role_names_a_gpu_model_or_a_server_model(wanted: str, where: str) -> None:
    gangs = [gang("a", roles=[role("worker", 1, 1, model=wanted)])]
    assert planned(build(nodes=NODES, gangs=gangs)).nodes("a") == [where]


def test_model_that_no_node_has_makes_the_gang_wait() -> None:
    gangs = [gang("a", roles=[role("worker", 1, 1, model="B200")])]
    outcome = planned(build(nodes=NODES, gangs=gangs))
    assert outcome.decision("a") == "wait"
    assert outcome.reason("a") == "Never"


def test_completed_role_stays_on_the_model_its_pods_stand_on() -> None:
    broken = gang("a", pods=3, stands=[(0, 0, 0, 1)])
    assert planned(build(nodes=NODES, gangs=[broken])).decision("a") == "keep"
    fits = gang("a", pods=2, stands=[(0, 0, 0, 1)])
    assert planned(build(nodes=NODES, gangs=[fits])).nodes("a") == ["n1", "n1"]


def test_a_gang_that_fits_on_two_models_only_is_told_that_it_must_fit_on_one() -> None:
    nodes = [node("h", switched(gpu="H100")), node("a", switched(gpu="A100"))]
    outcome = planned(build(nodes=nodes, gangs=[gang("a", pods=2, gpus_per_pod=8)]))
    reason = outcome.of("a").reason
    assert reason is not None
    needs = {"pods": 2, "gpus_per_pod": 8, "gpus": 16, "one_model": True}
    room = {"counted": "empty", "model": "H100", "room_pods": 1, "room_gpus": 8}
    assert reason == Reason.of("Never", **needs, **room)
