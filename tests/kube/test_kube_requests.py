"""Requests of a pod: sums, init containers, overhead, pod level, resizes."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from strategies import texts, trees

from models.units import MAX_AMOUNT
from planner.read.kube.pods.requests import effective_requests


def _container(name: str = "c", *, always: bool = False, **requests: object) -> dict[str, Any]:
    """A container; ``gpu`` stands for nvidia.com/gpu."""
    named = {"nvidia.com/gpu" if key == "gpu" else key: value for key, value in requests.items()}
    extra = {"restartPolicy": "Always"} if always else {}
    return {"name": name, "resources": {"requests": named}, **extra}


def _asks(
    *containers: dict[str, Any], status: dict[str, Any] | None = None, **spec: object
) -> dict[str, int]:
    pod = {"spec": {"containers": list(containers), **spec}, "status": status or {}}
    return effective_requests(pod)[0]


def test_containers_add_up_and_are_rounded_once_at_the_end() -> None:
    # 100u + 100u of a CPU are 200u, which is one millicore, not two; 0.5 + 0.5 bytes are 1
    found = _asks(_container(cpu="100u", memory="0.5"), _container(cpu="100u", memory="500m"))
    assert found == {"cpu": 1, "memory": 1}


def test_the_peak_of_the_init_sequence_counts_where_it_is_larger() -> None:
    # running: 2 CPUs, 1Gi; the second init container alone: 1 CPU, 4Gi
    start = [_container(cpu="500m", memory="3Gi"), _container(cpu="1", memory="4Gi")]
    found = _asks(_container(cpu="2", memory="1Gi"), initContainers=start)
    assert found == {"cpu": 2000, "memory": 4 * 2**30}


def test_restartable_init_containers_run_on_beside_everything_that_starts_later() -> None:
    # sequence: init 1 CPU (alone), sidecar 1 CPU, init 3 CPU beside it = 4; running: 2 + 1 = 3
    start = [
        _container("a", cpu="1"),
        _container("side", always=True, cpu="1"),
        _container("b", cpu="3"),
    ]
    assert _asks(_container(cpu="2"), initContainers=start) == {"cpu": 4000}
    # a sidecar that starts last is beside no init container: peak 3, running 2 + 2 = 4
    start = [_container("b", cpu="3"), _container("side", always=True, cpu="2")]
    assert _asks(_container(cpu="2"), initContainers=start) == {"cpu": 4000}


def test_pod_level_requests_replace_the_sums_of_cpu_and_memory_only() -> None:
    found = _asks(
        _container(cpu="1", memory="1Gi", gpu="2"),
        resources={
            "requests": {"cpu": "6", "nvidia.com/gpu": "8"},
            "limits": {"memory": "9Gi", "hugepages-2Mi": "4Mi"},
        },
        overhead={"cpu": "1"},
    )
    # cpu: 6 of the pod, 1 overhead; memory: asked by a container, so the pod's limit adds nothing
    assert found == {
        "cpu": 7000,
        "memory": 2**30,
        "nvidia.com/gpu": 2,
        "hugepages-2Mi": 4 * 2**20,
    }


def test_a_resize_in_place_counts_the_larger_of_wish_and_fact() -> None:
    status = {
        "containerStatuses": [
            {
                "name": "c",
                "resources": {"requests": {"cpu": "3"}},
                "allocatedResources": {"cpu": "2", "memory": "5Gi"},
            }
        ]
    }
    found = _asks(_container(cpu="1", memory="2Gi"), status=status)
    assert found == {"cpu": 3000, "memory": 5 * 2**30}
    found = _asks(_container(cpu="4", memory="2Gi"), status=status)
    assert found == {"cpu": 4000, "memory": 5 * 2**30}


def test_a_resize_that_can_never_happen_is_not_counted() -> None:
    held = {"containerStatuses": [{"name": "c", "allocatedResources": {"cpu": "2"}}]}
    condition = {"type": "PodResizePending", "status": "True", "reason": "Infeasible"}
    for status in ({"conditions": [condition]}, {"resize": "Infeasible"}):
        found = _asks(_container(cpu="900", memory="1Gi"), status=held | status)
        assert found == {"cpu": 2000, "memory": 2**30}


def test_resizes_of_restartable_init_containers_count_and_of_others_do_not() -> None:
    status = {
        "initContainerStatuses": [
            {"name": "side", "allocatedResources": {"cpu": "2"}},
            {"name": "once", "allocatedResources": {"cpu": "50"}},
        ]
    }
    start = [_container("side", always=True, cpu="1"), _container("once", cpu="1")]
    # 1 + 2 CPUs run; before that, 2 + 1 start
    assert _asks(_container(cpu="1"), initContainers=start, status=status) == {"cpu": 3000}


def test_numbers_without_quotes_are_read_and_zeros_left_out() -> None:
    found = _asks(_container(cpu=2, memory=1.5, gpu=0, x=Decimal("0.25")))
    assert found == {"cpu": 2000, "memory": 2, "x": 1}


def test_what_is_no_amount_is_named_and_counts_as_nothing() -> None:
    odd: list[Any] = ["eight", -1, "-1", True, [4], 10**400, "1" * 200, float("nan"), None]
    for value in odd:
        found = effective_requests({"spec": {"containers": [_container(cpu="1", gpu=value)]}})
        assert found == ({"cpu": 1000}, ("nvidia.com/gpu",))


def test_amounts_stay_within_what_documents_take() -> None:
    huge = [_container(cpu="1000000000000000") for _ in range(3)]
    assert _asks(*huge) == {"cpu": MAX_AMOUNT}


_FIELDS = [
    "containers",
    "initContainers",
    "resources",
    "requests",
    "limits",
    "cpu",
    "name",
    "restartPolicy",
    "containerStatuses",
    "allocatedResources",
    "overhead",
]
_ODD = trees(st.floats() | texts(8), st.sampled_from(_FIELDS), leaves=20)


@given(_ODD, _ODD)
def test_any_tree_is_read_without_an_error(spec: object, status: object) -> None:
    found, _ = effective_requests({"spec": spec, "status": status})
    assert all(0 < amount <= MAX_AMOUNT for amount in found.values())
