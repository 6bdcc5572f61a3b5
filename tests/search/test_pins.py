"""Rule 2.26: no gang that cannot be stopped comes to pinned nodes of another queue; others are guests there.

Servers of eight GPUs, two in each rack, in block b1 unless a test says otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import kube
import pytest
import yaml
from building import LEVELS, build, gang, instance_document, mask, role
from conftest import RunCli
from outcomes import NOW, Outcome, planned
from test_queue_status import gang as stated_gang
from test_queue_status import queue, save

from models.instance.gang import Gang
from models.instance.instance import Instance
from models.instance.queue import Amount, Pin, Queue
from models.queues.pins import guest_of, pinned_nodes
from models.results.plan import compose
from models.verify.check import check
from planner.read.inputs import load
from planner.search.solve import solve

RACK, NODE = LEVELS.index("rack"), LEVELS.index("node")
EVERY = mask(*range(8))


def pinned(*gangs: Gang, racks: int = 2, more: Sequence[Queue] = (), **pins: Pin) -> Instance:
    """Racks of two servers. ``pins``: of each queue, by its name."""
    queues = (*(Queue(name, pins=(pin,)) for name, pin in pins.items()), *more)
    built = build(racks=racks, nodes_per_rack=2, gangs=gangs)
    return replace(built, queues=tuple(sorted(queues, key=lambda one: one.name)))


def of(name: str | None, one: Gang, *, preemptible: bool = False) -> Gang:
    return replace(one, queue=name, preemptible=preemptible)


def runs(name: str, node: int, *, priority: int = 0) -> Gang:
    return gang(name, 1, 8, stands=[(0, 0, node, EVERY)], priority=priority)


def names(instance: Instance) -> list[str]:
    return [node.name for node in instance.cluster.nodes]


def nodes_of(found: Outcome) -> set[str]:
    return {node for one in found.instance.gangs for node in found.nodes(one.name)}


def test_strangers_that_cannot_be_stopped_start_beside_a_pinned_node() -> None:
    first = names(pinned())[0]
    three = [gang(f"g{i}", 1, 8) for i in range(3)]
    found = planned(pinned(*three, a=Pin(nodes=(first,))))
    assert set(found.decisions().values()) == {"place"}
    assert first not in nodes_of(found)
    four = planned(pinned(*three, gang("one-more", 1, 8), a=Pin(nodes=(first,))))
    assert sorted(four.decisions().values()) == ["place", "place", "place", "wait"]
    # with the pinned node the fourth would have room
    assert set(planned(pinned(*three, gang("one-more", 1, 8))).decisions().values()) == {"place"}


@pytest.mark.parametrize(
    ("one", "there"),
    [
        (of(None, gang("g", 1, 8)), "wait"),
        (of("b", gang("g", 1, 8)), "wait"),
        (of("top", gang("g", 1, 8)), "wait"),  # of the queue above, not of a
        (of("a", gang("g", 1, 8)), "place"),
        (of("below", gang("g", 1, 8)), "place"),
        (of(None, gang("g", 1, 8), preemptible=True), "place"),
        (of(None, gang("g", roles=[role("launcher", 1, 0)])), "place"),  # no GPUs
    ],
)
def test_the_queue_and_those_below_it_come_and_who_can_be_stopped(one: Gang, there: str) -> None:
    domain = "/".join(str(name) for name in build(racks=1).cluster.nodes[0].domains[: RACK + 1])
    instance = build(racks=1, nodes_per_rack=2, gangs=[one])
    queues = (
        Queue("a", parent=3, pins=(Pin(RACK, domain),)),
        Queue("b"),
        Queue("below", parent=0),
        Queue("top"),
    )
    found = planned(replace(instance, queues=queues))
    assert found.decision("g") == there


def test_a_wait_for_a_pinned_node_says_so() -> None:
    pins = Pin(nodes=tuple(names(pinned())[:3]))
    found = planned(pinned(gang("g", 2, 8), a=pins))
    assert found.reason("g") == "Quota"
    busy_one = planned(
        pinned(of(None, gang("g", 1, 8)), runs("r", 3), a=Pin(nodes=tuple(names(pinned())[:2])))
    )
    assert busy_one.decision("g") == "place"
    own = [of("a", runs("r", 2)), of("a", runs("s", 3))]  # they use up what is promised to a
    full = planned(pinned(gang("g", 1, 8), *own, a=Pin(nodes=pins.nodes[:2])))
    reason = full.of("g").reason
    assert reason is not None
    assert (reason.code, reason.fields.queue) == ("Quota", "a")


def test_a_guest_within_its_own_guarantee_gives_the_pinned_node_back() -> None:
    first = names(pinned())[0]
    guest = of("b", runs("guest", 0, priority=50), preemptible=True)
    owner = of(
        "a", gang("owner", roles=[role("w", 1, 8, selector={"kubernetes.io/hostname": first})])
    )
    b = Queue("b", guarantee=Amount(8))
    assert guest_of(pinned(guest, owner, a=Pin(nodes=(first,)), more=[b]), 0) == {0}
    found = planned(pinned(guest, owner, a=Pin(nodes=(first,)), more=[b]))
    assert found.decisions() == {"guest": "preempt", "owner": "place"}
    # where the node is not pinned, b holds no more than its guarantee
    plain = pinned(guest, owner, more=[Queue("a", guarantee=Amount(8)), b])
    assert planned(plain).decisions() == {"guest": "keep", "owner": "wait"}
    lax = replace(pinned(a=Pin(nodes=(first,)), more=[b]).queues[0], reclaim=False)
    stays = pinned(guest, owner, more=[lax, b])
    assert planned(stays).decisions() == {"guest": "keep", "owner": "wait"}


def test_pinned_gpus_are_guaranteed() -> None:
    instance = pinned(of(None, gang("g", 4, 8)), a=Pin(nodes=tuple(names(pinned())[:2])))
    assert {q: sorted(n) for q, n in pinned_nodes(instance).items()} == {0: [0, 1]}
    assert planned(instance).reason("g") == "Quota"  # 32 of 32 with 16 promised
    status = solve_status(instance)
    assert status["guarantee"] == 16
    assert status["cells"] == [{"count": 2, "nodes": names(instance)[:2]}]


def solve_status(instance: Instance) -> dict[str, object]:
    document = compose(
        instance, solve(instance), name="small", created_at=NOW, generator="gangplan 0.0.0"
    )
    assert check(document) == []
    found: dict[str, object] = document["status"]["queues"][0]
    return found


def test_the_canonical_form_reads_as_the_same_instance(tmp_path: Path) -> None:
    pins = [{"level": "rack", "domain": "r0"}, {"nodes": ["n[1,3]"]}, {"count": 1, "level": "rack"}]
    found = load([save(tmp_path, queue("a", cells=pins))]).instance
    assert found.queues[0].pins == (Pin(0, "r0"), Pin(nodes=("n1", "n3")))
    document = instance_document(found)
    assert document["queues"][0]["spec"]["cells"] == [
        {"count": 1, "level": "rack"},
        {"level": "rack", "domain": "r0"},
        {"nodes": ["n1", "n3"]},
    ]
    path = tmp_path / "again.yaml"
    parts = [document["cluster"], document["policy"], *document["queues"]]
    path.write_text(yaml.safe_dump_all(parts))
    assert instance_document(load([str(path)]).instance) == document


def test_what_is_gone_from_a_live_cluster_is_a_remark(tmp_path: Path) -> None:
    items = [kube.node("n1"), kube.node("n2")]
    (tmp_path / "objects.yaml").write_text(
        yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": items})
    )
    cells = [{"nodes": ["n[1-3]"]}]
    (tmp_path / "queue.yaml").write_text(yaml.safe_dump(queue("a", cells=cells)))
    found = load([str(tmp_path)])
    assert found.instance.queues[0].pins == (Pin(nodes=("n1", "n2")),)
    assert any("pins node 'n3', which is not in the cluster" in line for line in found.remarks)


def test_explain_names_the_nodes_and_whose_they_are(tmp_path: Path, cli: RunCli) -> None:
    pin = queue("a", cells=[{"nodes": ["n[1-3]"]}])
    path = save(tmp_path, pin, {**stated_gang("g", "b", 2), "spec": {"roles": ROLES}})
    plan = str(tmp_path / "plan.json")
    assert cli("plan", path, "--out", plan).code == 0
    shown = cli("explain", plan, "g").out
    assert "pinned to queue a" in shown
    assert "node n[1-3]" in cli("show", plan).out


ROLES = [{"name": "worker", "replicas": 2, "gpus": 8, "mixModels": True}]
