"""The back end ``dra`` and MIG instances: each claim gets one of its profile, none is given twice."""

from __future__ import annotations

from typing import Any

import backend_world as dra
import pytest
from apiserver import LOST
from dynamic_mig import asks, asks_whole, devices, gpu_name, made
from made_instances import GPUS, add, held, hold, partitionable

from models.apply.requests import Conflict, Done, Event, Rejected
from models.apply.terms import PLAN as MARK
from planner.cluster.backends import backend_of

# ---- instances that are there


def test_each_gets_one_of_its_own_until_none_is_left() -> None:
    found = dra.parted()
    for name, profile in (("a", dra.SMALL), ("b", dra.SMALL), ("c", dra.SMALL), ("d", dra.LARGE)):
        found.create(dra.claim(name, dra.part(profile)))
    backend = backend_of("dra")
    for name in "abd":
        assert dra.give(found, dra.add_pod(found, f"p{name}", name), (), backend=backend) == Done()
    assert [dra.devices_of(found, name) for name in "abd"] == [[dra.FIRST], [dra.SECOND], [dra.BIG]]
    last = dra.add_pod(found, "pc", "c")
    refused = Conflict(f"no {dra.SMALL} of node n1 is free for claim c")
    assert dra.give(found, last, (), backend=backend) == refused
    assert dra.give(found, last, ()) == refused
    found.remove("Pod", "pa")
    found.remove("ResourceClaim", "a")
    assert dra.give(found, last, (), backend=backend) == Done()
    assert dra.devices_of(found, "c") == [dra.FIRST]


def test_a_pod_may_take_several_and_whole_gpus() -> None:
    found = dra.parted()
    found.create(dra.claim("two", dra.part(dra.LARGE, "x"), dra.part(dra.SMALL, "y")))
    found.create(dra.claim("one", dra.part()))
    found.create(dra.claim("whole", dra.GPU))
    assert dra.give(found, dra.add_pod(found, "p", "two", "whole", "one"), (0,)) == Done()
    given = [dra.devices_of(found, name) for name in ("two", "whole", "one")]
    assert given == [[dra.BIG, dra.FIRST], ["gpu-0"], [dra.SECOND]]
    found.create(dra.claim("both", dra.GPU, dra.part()))
    refused = dra.give(found, dra.add_pod(found, "q", "both"), (0,))
    assert refused == Rejected("claim both requests GPUs and parts of GPUs at once")


def test_an_instance_whose_write_had_no_answer_is_given_to_no_other_claim() -> None:
    """The write may still arrive when the list of claims does not show it."""
    found = dra.parted()
    for name in ("c", "d"):
        found.create(dra.claim(name, dra.part()))
    pod, backend = dra.add_pod(found, "p", "c"), backend_of("dra")
    found.before.append(
        lambda call: LOST if call.path.partition("?")[0].endswith("/c/status") else None
    )
    assert dra.give(found, pod, (), backend=backend) != Done()
    found.before.clear()
    found.advance(60)
    assert dra.give(found, dra.add_pod(found, "q", "d"), (), backend=backend) == Done()
    assert dra.devices_of(found, "d") == [dra.SECOND]
    assert dra.give(found, pod, (), backend=backend) == Done()
    assert dra.devices_of(found, "c") == [dra.FIRST]


def test_an_instance_of_another_node_is_taken_back_if_it_is_ours() -> None:
    found = dra.parted("n1", "n2")
    found.create(dra.claim("c", dra.part()))
    pod = dra.add_pod(found, "p", "c")
    assert dra.give(found, pod, (), "n1") == Done()
    assert dra.give(found, pod, (), "n2") == Done()
    assert dra.status_of(found, "c")["allocation"]["devices"]["results"][0]["pool"] == "n2"
    assert dra.release(found, pod) == Done()
    assert dra.devices_of(found, "c") == []
    assert MARK not in dra.metadata_of(found, "c").get("annotations", {})


# ---- instances that claims make

OLD = made(0, "1g.10gb", 4, GPUS)
"""What another pod has."""


@pytest.mark.parametrize(
    ("wanted", "gpus", "expected"),
    [
        ([asks_whole(1)], (0,),
         Conflict(f"device {gpu_name(0, GPUS)} of node n1 is held by claim default/claim-old")),
        ([asks_whole(1)], (1,), [gpu_name(1, GPUS)]),
        # where no plan says it, GPUs that have instances get more, as far back as can be
        ([asks("1g.10gb"), asks("2g.20gb", "s")], (),
         [made(0, "1g.10gb", 6, GPUS), made(0, "2g.20gb", 2, GPUS)]),
        # instances of one claim take different slices
        ([asks("1g.10gb"), asks("1g.20gb", "s"), asks("1g.10gb", "t")], (),
         [made(0, "1g.10gb", 6, GPUS), made(0, "1g.20gb", 2, GPUS), made(0, "1g.10gb", 5, GPUS)]),
        ([asks("7g.80gb")], (), [made(1, "7g.80gb", 0, GPUS)]),
        ([asks("7g.80gb"), asks("7g.80gb", "s")], (),
         Conflict("no 7g.80gb of node n1 is free for claim claim-p")),
    ],
)  # fmt: skip
def test_a_claim_gets_devices_beside_those_in_use(
    wanted: list[dict[str, Any]], gpus: tuple[int, ...], expected: Event | list[str]
) -> None:
    found = partitionable()
    add(found, "old", asks("1g.10gb"), on="n1")
    hold(found, "old", OLD)
    said = dra.give(found, add(found, "p", *wanted), gpus)
    assert said == (Done() if isinstance(expected, list) else expected)
    assert dra.devices_of(found, "claim-p") == (expected if isinstance(expected, list) else [])


def test_a_pod_with_a_whole_gpu_gets_its_instance_of_another_until_none_is_left() -> None:
    found = partitionable()
    found.create(dra.claim("claim-q", asks()))
    found.create(dra.claim("claim-w", asks_whole(1)))
    assert dra.give(found, dra.add_pod(found, "p", "claim-q", "claim-w"), (0,)) == Done()
    assert held(found) == {"w": gpu_name(0, GPUS), "q": made(1, "1g.10gb", 6, GPUS)}
    refused = Conflict("no 7g.80gb of node n1 is free for claim claim-r")
    assert dra.give(found, add(found, "r", asks("7g.80gb")), ()) == refused


def test_a_tainted_instance_is_not_made() -> None:
    listed = devices(GPUS)
    for one in listed:
        if one["name"] in {made(0, "3g.40gb", 0, GPUS), made(1, "3g.40gb", 4, GPUS)}:
            one["taints"] = [{"key": "xid", "effect": "NoSchedule"}]
    found = partitionable(listed)
    add(found, "old", asks("1g.10gb"), on="n1")
    hold(found, "old", OLD)
    assert dra.give(found, add(found, "p", asks("3g.40gb")), ()) == Done()
    assert held(found)["p"] == made(1, "3g.40gb", 0, GPUS)
