"""Free room on nodes, exact, and equal with and without the pod index."""

from __future__ import annotations

from dataclasses import replace

from apply_world import World, order_for
from hypothesis import given
from hypothesis import strategies as st

from models.apply.live_state import PodIndex, overcommitted, pods_on, shortages, usage

steps = st.lists(
    st.tuples(
        st.integers(0, 5), st.sampled_from(["n0", "n1", None]), st.integers(0, 3), st.booleans()
    ),
    max_size=20,
)


@given(steps)
def test_a_roster_knows_at_any_time_who_takes_room_where(
    changes: list[tuple[int, str | None, int, bool]],
) -> None:
    world = World()
    for name in ("n0", "n1"):
        world.node(name)
    for i in range(6):
        world.pod(f"p-{i}", 2, mode="none")
    plain = world.view()
    kept = replace(plain, pods=PodIndex(plain.pods))
    for number, node, way, flag in changes:
        key = ("default", f"p-{number}")
        old = plain.pods.get(key)
        if old is None or way == 0:
            for view in (plain, kept):
                view.pods.pop(key, None)
            continue
        new = replace(old, node=node, finished=flag) if way == 1 else replace(old, held_at=node)
        plain.pods[key] = kept.pods[key] = new
    assert kept.pods == plain.pods
    for nodes in ({"n0"}, {"n1"}, {"n0", "n1"}):
        by_name = [sorted(p.name for p in pods_on(view, nodes)) for view in (plain, kept)]
        assert by_name[0] == by_name[1]
        assert usage(plain, nodes) == usage(kept, nodes)
        assert overcommitted(plain, nodes) == overcommitted(kept, nodes)


def test_pods_that_start_together_are_weighed_together() -> None:
    world = World()
    world.node("n0", allocatable=(("cpu", 3000),))
    pods = [world.pod(f"a-{i}", 4, requests=(("cpu", 1500),)) for i in range(3)]
    orders = [order_for(pod, "n0") for pod in pods]
    assert shortages(world.view(), orders[:2]) == []
    # Three of 4 GPUs on 8, three of 1,500 millicores on 3,000.
    assert shortages(world.view(), orders) == [
        ("n0", "has 8 free GPUs, the plan needs 12"),
        ("n0", "lacks free cpu: 1,500 short"),
    ]


def test_a_resource_that_a_node_does_not_state_does_not_limit() -> None:
    world = World()
    world.node("n0")
    pod = world.pod("a-0", 0, requests=(("example.com/thing", 5),))
    assert shortages(world.view(), [order_for(pod, "n0")]) == []


def test_overfull_is_a_node_with_more_than_it_has_or_one_gpu_twice() -> None:
    world = World()
    world.node("n0")
    world.node("n1")
    world.pod("a-0", 8, mode="none", node="n0")
    pinned = world.pod("a-1", 1, mode="none")
    world.pins[pinned.uid] = "n0"
    # A pod that is only pinned there waits for room.
    assert overcommitted(world.view(), ["n0", "n1"]) == []
    world.pod("a-2", 1, mode="none", node="n0")
    world.pod("b-0", 1, mode="none", node="n1", indices=(3,))
    world.pod("b-1", 1, mode="none", node="n1", indices=(3,))
    assert overcommitted(world.view(), ["n0", "n1"]) == ["n0", "n1"]
