"""Hostile plan documents: whatever they hold, the judge answers with violations and never raises.

Broken documents, one fault at a time, are in cases/form.yaml.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from effort import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from plan_documents import Doc, cluster, entry, made
from short_plans import good

from models.verify.check import Judge, check, derive
from models.verify.judged_rules import guards

PLANS = ("busy", "reclaim", "goodput", "pod_sets", "queues", "promise")


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
        *(
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
        ),
        *(float("nan"), float("inf"), "", "x" * 10000, "\x1b[31mred", "\ud800", "h1", "node", "²"),
        *("1e999999999", "1e99", "9999-99-99T99:99:99Z", "0000-01-01T00:00:00Z", [], [[]], [0]),
        *(
            list(range(2000)),
            [None],
            {},
            {"": None},
            {1: 2, "a": 3},
            {"size": 1, "required": "rack"},
        ),
        *({"min": 1, "max": 2**62, "step": 2**62}, (1, 2), b"bytes", {1, 2}, object()),
        *(nested(3), nested(3_000), circular()),
    ]


NASTY = range(len(nasty()))


def paths(value: object, prefix: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a document."""
    pairs = value.items() if isinstance(value, dict) else ()
    pairs = enumerate(value) if isinstance(value, list) else pairs
    found = [prefix] if prefix else []
    return found + [path for key, item in pairs for path in paths(item, (*prefix, key))]


PATHS = [(plan, path) for plan in PLANS for path in paths(good(plan))]


def holder(plan: Doc, path: tuple[Any, ...]) -> Any:  # noqa: ANN401  # any JSON
    for step in path[:-1]:
        plan = plan[step]
    return plan


def judged(plan: object, judge: Judge | None = None) -> set[str]:
    """Rules broken; the judge must not raise, and must use its own names."""
    found = (judge or Judge()).check(plan).violations
    assert {violation.rule for violation in found} <= guards().keys()
    assert all(one.message.isprintable() and 0 < len(one.message) < 2000 for one in found)
    return {violation.rule for violation in found}


@settings(max_examples=examples(400), deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_any_value_anywhere_is_judged(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(PLANS))
    plan = good(name)
    for _ in range(data.draw(st.integers(1, 3))):
        path = data.draw(st.sampled_from([path for whose, path in PATHS if whose == name]))
        try:
            holder(plan, path)[path[-1]] = nasty()[data.draw(st.sampled_from(NASTY))]
        except (KeyError, IndexError, TypeError):  # an earlier change took the place away
            continue
    judged(plan)


@settings(max_examples=examples(150), deadline=None, suppress_health_check=list(HealthCheck))
@given(st.sampled_from(PATHS), st.sampled_from(PATHS))
def test_any_part_in_any_other_place_is_judged(
    source: tuple[str, tuple[Any, ...]], target: tuple[str, tuple[Any, ...]]
) -> None:
    plan, value = good(target[0]), holder(good(source[0]), source[1])[source[1][-1]]
    holder(plan, target[1])[target[1][-1]] = value
    judged(plan)


@pytest.mark.parametrize("name", PLANS)
def test_a_field_left_out_never_raises(name: str) -> None:
    fields = {tuple(p for p in path if isinstance(p, str)): path for path in paths(good(name))}
    for path in [*fields.values()][:: examples(1, 0) or 3]:
        plan = good(name)
        if isinstance(path[-1], str):
            del holder(plan, path)[path[-1]]
            judged(plan)


def test_a_document_that_is_no_plan_is_a_fault_of_form() -> None:
    assert all(judged(value) == {"form"} for value in nasty())


def test_a_spec_that_is_no_json_is_found_even_where_any_field_may_be() -> None:
    for value in (float("nan"), nested(100_000), circular(), 10**5000, "\ud800"):
        plan = good("busy")
        entry(plan, "ball")["note"] = value
        assert judged(plan) == {"form"}


def test_a_broken_plan_has_no_values_and_its_faults_are_not_listed_without_end() -> None:
    plan = good("busy") | {"spec": 1}
    with pytest.raises(ValueError, match=r"^spec: Input should be a valid dictionary"):
        derive(plan)
    plan["spec"] = {"gangs": [1] * 100_000}
    assert len(check(plan)) == 50
    assert check(json.loads(json.dumps(good("busy")))) == []


def test_a_judge_repeats_what_is_wrong_with_the_instance() -> None:
    plan, judge = good("busy"), Judge()
    plan["instance"]["cluster"]["spec"]["nodes"][1]["model"] = "DGX H999"
    found = check(plan)
    assert {one.rule for one in found} == {"reference"}
    assert judge.check(plan).violations == judge.check(plan).violations == found
    assert judge.check({**plan, "spec": {}}).violations == check({**plan, "spec": {}})


def test_a_cluster_of_nothing_is_judged() -> None:
    assert judged(made(cluster([], []), [], [])) == set()
