"""Hostile plan documents: whatever they hold, the judge answers with violations and never raises."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest
from effort import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from plan_busy import busy_plan
from plan_documents import (
    Doc,
    cluster,
    decided,
    dgx,
    entry,
    gang,
    made,
    node,
    restated,
    role,
    sealed,
    wanted,
)
from plan_goodput import goodput_plan
from plan_pod_sets import pod_sets_plan
from plan_reclaim import reclaim_plan

from models.verify.check import check, derive
from models.verify.judged_rules import guards

Place = tuple[Callable[[], Doc], tuple[Any, ...]]
"""A plan, and a path in it."""


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


def circular() -> Doc:
    value: Doc = {}
    value["self"] = value
    return value


def nasty() -> list[Any]:
    """Fresh ones each time: a document may be changed inside them."""
    return [
        None,
        True,
        False,
        0,
        1,
        -1,
        2**31,
        2**63,
        10**5000,
        -(10**5000),
        0.5,
        -0.0,
        1e308,
        5e-324,
        float("nan"),
        float("inf"),
        "",
        "x" * 10000,
        "\x1b[31mred",
        "\ud800",
        "h1",
        "node",
        "1e999999999",
        "1e99",
        "²",
        "9999-99-99T99:99:99Z",
        "0000-01-01T00:00:00Z",
        [],
        [[]],
        [0],
        list(range(2000)),
        [None],
        {},
        {"": None},
        {1: 2, "a": 3},
        {"size": 1, "required": "rack"},
        {"min": 1, "max": 2**62, "step": 2**62},
        (1, 2),
        b"bytes",
        {1, 2},
        object(),
        nested(3),
        nested(3_000),
        circular(),
    ]


NASTY = range(len(nasty()))


def paths(value: object, prefix: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a document."""
    found = [prefix] if prefix else []
    items = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, item in items:
        found += paths(item, (*prefix, key))
    return found


PLANS = (busy_plan, reclaim_plan, goodput_plan, pod_sets_plan)
PATHS = [(make, path) for make in PLANS for path in paths(make())]


def put(plan: Doc, path: tuple[Any, ...], value: object) -> None:
    holder: Any = plan
    for step in path[:-1]:
        holder = holder[step]
    holder[path[-1]] = value


def judged(plan: Doc) -> set[str]:
    """Rules broken; the judge must not raise, and must use its own names."""
    found = check(plan)
    rules = {violation.rule for violation in found}
    assert rules <= guards().keys()
    for violation in found:
        assert violation.message
        assert violation.message.isprintable()
        assert len(violation.message) < 2000
    return rules


@settings(max_examples=examples(400), deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_any_value_anywhere_is_judged(data: st.DataObject) -> None:
    make = data.draw(st.sampled_from(PLANS))
    plan = make()
    for _ in range(data.draw(st.integers(1, 3))):
        path = data.draw(st.sampled_from([path for whose, path in PATHS if whose is make]))
        try:
            put(plan, path, nasty()[data.draw(st.sampled_from(NASTY))])
        except (KeyError, IndexError, TypeError):  # an earlier change took the place away
            continue
    judged(plan)


@settings(max_examples=examples(150), deadline=None, suppress_health_check=list(HealthCheck))
@given(st.sampled_from(PATHS), st.sampled_from(PATHS))
def test_any_part_in_any_other_place_is_judged(source: Place, target: Place) -> None:
    plan, value = target[0](), source[0]()
    for step in source[1]:
        value = value[step]
    put(plan, target[1], value)
    judged(plan)


@pytest.mark.parametrize(
    ("make", "path"),
    [place for place in PATHS if isinstance(place[1][-1], str)][::5],
    ids=lambda part: getattr(part, "__name__", str(part)),
)
def test_a_field_left_out_never_raises(make: Callable[[], Doc], path: tuple[Any, ...]) -> None:
    plan: Any = make()
    holder = plan
    for step in path[:-1]:
        holder = holder[step]
    del holder[path[-1]]
    judged(plan)


@pytest.mark.parametrize("which", NASTY)
def test_a_document_that_is_no_plan_is_a_fault_of_form(which: int) -> None:
    assert judged(nasty()[which]) == {"form"}


CLUSTER = ("instance", "cluster", "spec")
H1 = (*CLUSTER, "nodes", 1)
BALL = ("instance", "gangs", 0, "spec")

FORM: list[tuple[str, tuple[Any, ...], Any]] = [
    ("a NIC finer than a megabit", (*CLUSTER, "serverModels", 0, "nics", 0, "gbps"), 1e-4),
    (
        "more levels than any network has",
        (*CLUSTER, "levels"),
        [{"name": f"l{i}"} for i in range(33)],
    ),
    ("an unknown metadata field", ("instance", "policy", "metadata", "colour"), "red"),
    ("workers that are no number", ("instance", "policy", "spec", "solve", "workers"), "2"),
    ("too few NUMA nodes", (*CLUSTER, "serverModels", 0, "numa"), [0]),
    ("a source that is no text", (*CLUSTER, "serverModels", 0, "sources"), [1]),
    ("a queue that is no text", (*BALL, "queue"), 1),
    ("a service that is no text", (*BALL, "service"), 1),
    ("a step of nothing but communication", (*BALL, "communication", "fraction"), 0.96),
    ("less than no communication", (*BALL, "communication", "fraction"), -0.01),
    ("a speed that is counted at times", (*BALL, "communication", "speed"), "sometimes"),
    ("GPUs that stand still", (*CLUSTER, "serverModels", 0, "relativeSpeed"), 0),
    ("a relative speed in words", (*CLUSTER, "serverModels", 0, "relativeSpeed"), "fast"),
    ("a speed below nothing", ("spec", "gangs", 0, "speed"), -20),
    ("half a permille", ("spec", "gangs", 0, "speed"), 0.5),
    ("an unknown mode", ("instance", "gangs", 1, "status", "pods", 0, "mode"), "magic"),
    ("a word for a flag", (*H1, "ready"), "yes"),
    ("a label that is no text", (*H1, "labels"), {"disk": 1}),
    ("labels in a list", (*H1, "labels"), ["disk"]),
    ("names that are no text", (*H1, "labels"), {1: "disk"}),
    ("a time that is none", (*BALL, "submittedAt"), "2026-02-30T00:00:00Z"),
    ("an unknown toleration", (*BALL, "roles", 0, "tolerations"), [{"operator": "Lt"}]),
    ("another version", ("apiVersion",), "gangplan.dev/v2"),
    ("another kind", ("kind",), "Plot"),
    ("no time", ("metadata", "createdAt"), "yesterday"),
    ("an unknown field in the instance", ("instance", "extra"), {}),
    ("an unknown field in a gang", ("instance", "gangs", 0, "spec", "colour"), "red"),
    ("a misspelt rule", ("instance", "gangs", 0, "spec", "topology"), {"requird": "rack"}),
    ("a policy without a mix", ("instance", "policy", "spec", "mix"), None),
    ("a mix of words", ("instance", "policy", "spec", "mix"), {"one": 1000}),
    ("a mix with a leading zero", ("instance", "policy", "spec", "mix"), {"08": 1000}),
    ("an unknown objective", ("instance", "policy", "spec", "objectives", 0, "name"), "beauty"),
    ("an objective twice", ("instance", "policy", "spec", "objectives", 1, "name"), "admission"),
    (
        "a tolerance of nothing",
        ("instance", "policy", "spec", "objectives", 0, "tolerance"),
        float("nan"),
    ),
    ("a share above one", ("instance", "policy", "spec", "minBandwidthShare"), 1.01),
    (
        "oversubscription below one",
        ("instance", "cluster", "spec", "levels", 0, "oversubscription"),
        0.99,
    ),
    ("a level called node", ("instance", "cluster", "spec", "levels", 0, "name"), "node"),
    (
        "a lopsided matrix",
        ("instance", "cluster", "spec", "serverModels", 1, "matrix", 0, 1),
        "NV2",
    ),
    ("a ragged matrix", ("instance", "cluster", "spec", "serverModels", 1, "matrix", 0), ["X"]),
    (
        "an unknown path",
        ("instance", "cluster", "spec", "serverModels", 1, "matrix", 0, 5),
        "BUS",
    ),
    ("a mesh without a matrix", ("instance", "cluster", "spec", "serverModels", 1, "matrix"), None),
    (
        "a server of too many GPUs",
        ("instance", "cluster", "spec", "serverModels", 1, "gpus"),
        10**9,
    ),
    ("true as a number", ("instance", "gangs", 0, "spec", "priority"), True),
    ("a fraction of a GPU", ("instance", "gangs", 0, "spec", "roles", 0, "gpus"), 0.5),
    ("no replicas", ("instance", "gangs", 0, "spec", "roles", 0, "replicas"), 0),
    (
        "a range upside down",
        ("instance", "gangs", 0, "spec", "roles", 0, "replicas"),
        {"min": 3, "max": 2},
    ),
    (
        "a step of nothing",
        ("instance", "gangs", 0, "spec", "roles", 0, "replicas"),
        {"min": 1, "max": 2, "step": 0},
    ),
    (
        "a quantity that explodes",
        ("instance", "gangs", 0, "spec", "roles", 0, "requests", "cpu"),
        "1e999999999",
    ),
    (
        "a negative quantity",
        ("instance", "cluster", "spec", "nodes", 1, "allocatable", "cpu"),
        "-1",
    ),
    ("a negative number", ("instance", "cluster", "spec", "nodes", 1, "allocatable", "cpu"), -1),
    ("an unknown decision", ("spec", "gangs", 0, "decision"), "perhaps"),
    ("a pod without a node", ("spec", "gangs", 0, "pods", 0, "node"), None),
    ("a negative index", ("spec", "gangs", 0, "pods", 0, "index"), -1),
    ("a value that is no integer", ("status", "objectives", 0, "value"), 16.0),
    ("a bound of nothing", ("status", "objectives", 0, "bound"), None),
    ("a gap below zero", ("status", "objectives", 0, "gap"), -0.5),
    ("an infinite gap", ("status", "objectives", 0, "gap"), float("inf")),
    ("a proof by hope", ("status", "objectives", 0, "proof"), "hope"),
    ("an unknown outcome", ("status", "outcome"), "fine"),
    ("stopped by nothing", ("status", "search", "stoppedBy"), None),
    ("no digests", ("status", "digests"), {}),
]


RULES_OF = ("instance", "policy", "spec")
MOVE = ("instance", "gangs", 5, "status")
MOVES = ("status", "moves", 0)

LATER: list[tuple[str, tuple[Any, ...], Any]] = [
    ("an unknown limit", (*RULES_OF, "moves"), {"maxPods": 1}),
    ("limits in a list", (*RULES_OF, "moves"), [1]),
    ("less than no gangs", (*RULES_OF, "moves", "maxGangs"), -1),
    ("half a gang", (*RULES_OF, "moves", "maxGangs"), 1.5),
    ("less than no GPUs", (*RULES_OF, "moves", "maxGPUs"), -1),
    ("a gain below nothing", (*RULES_OF, "moves", "minGain"), -0.1),
    ("a gain in words", (*RULES_OF, "moves", "minGain"), "0.5"),
    ("an unknown weight", (*RULES_OF, "disruption", "weight"), "pods"),
    ("a cap that is no duration", (*RULES_OF, "disruption", "cap"), "a day"),
    ("a cap without a unit", (*RULES_OF, "disruption", "cap"), "3600"),
    ("a cap below nothing", (*RULES_OF, "disruption", "cap"), "-1s"),
    ("a cap of nothing", (*RULES_OF, "disruption", "cap"), ""),
    ("a cap in seconds", (*RULES_OF, "disruption", "cap"), 3600),
    ("an unknown disruption field", (*RULES_OF, "disruption", "most"), "1h"),
    ("a starvation limit of null", (*RULES_OF, "starvation"), {"after": None}),
    ("a limit that is no duration", (*RULES_OF, "starvation", "after"), "1y"),
    ("a unit before its number", (*RULES_OF, "starvation", "after"), "h1"),
    ("an unknown starvation field", (*RULES_OF, "starvation", "before"), "1h"),
    ("a now that is no time", (*RULES_OF, "now"), "now"),
    ("a checkpoint that is no time", (*MOVE, "lastCheckpoint"), 1),
    ("a start that is no time", (*MOVE, "startedAt"), "2026-11-21"),
    ("a time to resize that is none", (*MOVE[:3], "spec", "resizeAfter"), "soon"),
    ("an unknown status field", (*MOVE, "endedAt"), "2026-11-21T00:00:00Z"),
    ("a planned place with GPUs", (*MOVE, "planned", 0, "gpus"), [1]),
    ("a planned place without an index", (*MOVE, "planned", 0), {"role": "launcher", "node": "a1"}),
    ("a planned place below nothing", (*MOVE, "planned", 0, "index"), -1),
    ("planned places in a word", (*MOVE, "planned"), "a1"),
    ("a mark in a word", ("spec", "gangs", 0, "aged"), "yes"),
    ("moves in an object", ("status", "moves"), {}),
    ("a set that is none", MOVES, "default/move"),
    ("a set without GPUs", MOVES, {"gangs": [], "bought": {}, "gain": 0}),
    ("gangs in a word", (*MOVES, "gangs"), "default/move"),
    ("a gang that is a number", (*MOVES, "gangs", 0), 1),
    ("less than no GPUs moved", (*MOVES, "gpus"), -1),
    ("a GPU bought in a word", (*MOVES, "bought", "gpus"), "1"),
    ("nothing bought", (*MOVES, "bought"), None),
    ("a gain that is none", (*MOVES, "gain"), None),
    ("a gain without end", (*MOVES, "gain"), float("inf")),
    ("a gain that is true", (*MOVES, "gain"), True),
]


@pytest.mark.parametrize(("path", "value"), [f[1:] for f in LATER], ids=[f[0] for f in LATER])
def test_a_fault_of_form_in_what_runs_is_found(path: tuple[Any, ...], value: object) -> None:
    plan = reclaim_plan()
    put(plan, path, value)
    assert judged(plan) == {"form"}


@pytest.mark.parametrize(("path", "value"), [f[1:] for f in FORM], ids=[f[0] for f in FORM])
def test_a_fault_of_form_is_found(path: tuple[Any, ...], value: object) -> None:
    plan = busy_plan()
    put(plan, path, value)
    # What referred to the thing that is now malformed may be noted too.
    assert "form" in judged(plan) <= {"form", "reference"}


def _twice(*path: str | int) -> Callable[[Doc], None]:
    """List the first entry of a list a second time, next to itself."""

    def change(plan: Doc) -> None:
        holder: Any = plan
        for step in path:
            holder = holder[step]
        holder.insert(0, copy.deepcopy(holder[0]))

    return change


TWICE: list[tuple[str, Callable[[Doc], None]]] = [
    ("nodes", _twice("instance", "cluster", "spec", "nodes")),
    ("server models", _twice("instance", "cluster", "spec", "serverModels")),
    ("gangs", _twice("instance", "gangs")),
    ("roles", _twice("instance", "gangs", 0, "spec", "roles")),
    ("standing pods", _twice("instance", "gangs", 1, "status", "pods")),
    ("stated gangs", _twice("spec", "gangs")),
    ("stated pods", _twice("spec", "gangs", 0, "pods")),
]


@pytest.mark.parametrize("change", [t[1] for t in TWICE], ids=[t[0] for t in TWICE])
def test_what_may_be_there_once_is_not_there_twice(change: Callable[[Doc], None]) -> None:
    plan = busy_plan()
    change(plan)
    assert judged(plan) == {"reference"}


NOWHERE: list[tuple[tuple[Any, ...], object]] = [
    (("instance", "cluster", "spec", "nodes", 1, "model"), "DGX H999"),
    (("instance", "cluster", "spec", "nodes", 1, "domains"), {"row": "r1"}),
    (("instance", "cluster", "spec", "nodes", 1, "unhealthyGpus"), [8]),
    (("instance", "gangs", 0, "spec", "topology"), {"required": "row"}),
    (("instance", "gangs", 1, "status", "pods", 0, "node"), "h9"),
    (("instance", "gangs", 1, "status", "pods", 0, "gpus"), [5, 6, 7, 8]),
]


@pytest.mark.parametrize(("path", "value"), NOWHERE, ids=lambda part: str(part).replace(" ", ""))
def test_what_points_nowhere_is_found(path: tuple[Any, ...], value: object) -> None:
    plan = busy_plan()
    put(plan, path, value)
    assert judged(plan) == {"reference"}


RULES_OF = ("instance", "gangs", 0, "spec", "roles", 0, "antiAffinity", 0)

POD_SETS: list[tuple[tuple[Any, ...], object, str]] = [
    ((*RULES_OF, "level"), "row", "reference"),
    ((*RULES_OF, "podSet"), "", "form"),
    ((*RULES_OF, "maxSkew"), 1, "form"),
    (("instance", "gangs", 1, "spec", "roles", 0, "podSets"), ["a", "a"], "reference"),
    (("instance", "gangs", 3, "spec", "roles", 0, "spread", 0, "maxSkew"), 0, "form"),
    (("instance", "gangs", 3, "spec", "roles", 0, "spread", 0, "minDomains"), 10**9, "form"),
]


@pytest.mark.parametrize(
    ("path", "value", "rule"), POD_SETS, ids=lambda part: str(part).replace(" ", "")
)
def test_a_fault_of_pod_sets_is_found(path: tuple[Any, ...], value: object, rule: str) -> None:
    plan = pod_sets_plan()
    put(plan, path, value)
    assert judged(plan) == {rule}


@pytest.mark.parametrize("which", range(5))
def test_a_spec_that_is_no_json_is_found_even_where_any_field_may_be(which: int) -> None:
    value = [float("nan"), nested(100_000), circular(), 10**5000, "\ud800"][which]
    plan = busy_plan()
    entry(plan, "ball")["note"] = value
    assert judged(plan) == {"form"}


def test_a_broken_plan_has_no_values() -> None:
    plan = busy_plan()
    plan["spec"] = 1
    with pytest.raises(ValueError, match=r"^spec: Input should be a valid dictionary"):
        derive(plan)


MOVE_SET = {
    "gangs": [],
    "gpus": 0,
    "bought": {"gangs": [], "gpus": 0, "bandwidth": 0, "wholeNodes": 0, "wholeDomains": 0},
    "gain": 0.0,
}


def test_control_characters_in_names_do_not_reach_a_message() -> None:
    plan = busy_plan()
    wanted(plan, "idle")["metadata"]["name"] = "idle\x1b[2J"
    assert judged(sealed(plan)) == {"form"}
    plan = busy_plan()
    plan["status"]["objectives"][0]["name"] = "kept\x1b[2J"
    plan["status"]["moves"] = [{**MOVE_SET, "gangs": ["\x1b[2J"]}]
    entry(plan, "ball")["domains"]["\x1b[2J"] = 1
    assert judged(sealed(plan)) == {"tiers", "bought", "domains"}


def test_faults_of_form_are_not_listed_without_end() -> None:
    plan = busy_plan()
    plan["spec"]["gangs"] = [1] * 100_000
    assert len(check(plan)) == 50


def test_huge_but_harmless_numbers_are_judged_exactly() -> None:
    plan = busy_plan()
    wanted(plan, "idle")["spec"]["roles"][0].update(replicas=10**6, gpus=10**5)
    wanted(plan, "kilo")["spec"]["priority"] = -2 * 10**9
    assert check(restated(plan)) == []


def test_servers_of_a_thousand_unknown_gpus_are_priced_at_once() -> None:
    nic = {"name": "eth", "gbps": 400, "gpus": list(range(0, 1024, 2))}
    model = dgx("huge", 1024, nics=[nic])
    places = [("h1", None), ("h2", None)]
    plan = made(
        cluster([model], [node(n, "huge", unknownUnhealthy=1) for n, _ in places]),
        [gang("a", role("worker", 2, 500))],
        [decided("a", "place", *places)],
    )
    assert judged(plan) == set()
    # The 500 may all be odd, far from the NIC: min(25000, 62.5 x 400).
    assert entry(plan, "a")["bandwidthMBps"] == 25000


def test_a_plan_that_went_through_json_is_judged_alike() -> None:
    assert check(json.loads(json.dumps(busy_plan()))) == []
