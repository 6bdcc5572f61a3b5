"""What the judge says of edited plans, exactly: cases/*.yaml, in the forms of cases/README.md."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
from effort import examples
from plan_documents import Doc, entry, restated, sealed, tier
from plan_goodput import GOODPUT, goodput_plan
from short_plans import CASES, MADE, edited, good, read, redecided

from models.verify.check import Judge, Verdict, check, derive
from models.verify.judged_rules import guards, ordered

FILES = sorted(path.name for path in CASES.glob("*.yaml") if path.name != "plans.yaml")


def groups(name: str) -> list[list[Doc]]:
    """The cases of a file, by group: each with what its group says for all."""
    found = []
    for group in read(name):
        shared = {key: value for key, value in group.items() if key != "cases"}
        found.append([{**shared, **one, "file": name} for one in group["cases"]])
        for case, one in zip(found[-1], group["cases"], strict=True):
            both = (group.get("edit"), one.get("edit"))
            case["edits"] = [
                e for own in both for e in (own if isinstance(own, list) else [own or {}])
            ]
    return found


GROUPS = [group for name in FILES for group in groups(name)]
LISTED = [case for group in GROUPS for case in group]


def expected(finds: str) -> list[tuple[str, str | None]]:
    """``rule gang gang, rule``: one violation of each gang; of none where none is named; ``rule*``: any."""
    found: list[tuple[str, str | None]] = []
    for part in filter(None, finds.split(", ")):
        rule, *gangs = part.split()
        found += [(rule, name if "/" in name else f"default/{name}") for name in gangs]
        found += [] if gangs else [(rule, None)]
    return sorted(found, key=str)


def stated(case: Doc) -> tuple[Doc, Verdict]:
    """The plan of a case, and what is found."""
    plan = edited(good(case["plan"]), case["edits"])
    state, then = case.get("state", "restated"), case.get("then")
    if state == "restated":
        verdict = redecided(plan)
        if then is None:
            return plan, verdict
    edited(plan, then)
    return plan, Judge().check(plan if state == "raw" else sealed(plan))


def faults(case: Doc) -> Iterator[Any]:
    """What is not as the case says."""
    plan, verdict = stated(case)
    found, wanted = verdict.violations, expected(case.get("finds", ""))
    any_of = {(f"{v.rule}*", None) for v in found} & set(wanted)
    own = [(v.rule, v.gang) for v in found if (f"{v.rule}*", None) not in any_of]
    if sorted([*any_of, *own], key=str) != wanted or found != ordered(found):
        yield found
    yield from (v for v in found if not (v.message.isprintable() and 0 < len(v.message) < 2000))
    words = case.get("words", [])
    for said in [words] if isinstance(words, str) else words:
        if all(said not in one.message for one in found):
            yield said, [one.message for one in found]
    if list(verdict.remarks) != case.get("remarks", list(verdict.remarks)):
        yield verdict.remarks
    if "derives" in case:
        values, hand = derive(plan), case["derives"]
        yield from ((n, values.get(n)) for n, value in hand.items() if values.get(n) != value)
        if case.get("order") and [*values] != [*hand]:
            yield [*values]
    for name, fields in case.get("states", {}).items():
        says = entry(plan, name)
        yield from ((name, key, says[key]) for key, value in fields.items() if says[key] != value)


@pytest.mark.parametrize(
    "group", GROUPS, ids=lambda group: f"{group[0]['file']}: {group[0]['why']}"
)
def test_the_judge_finds_exactly_what_the_cases_say(group: list[Doc]) -> None:
    assert [(case["why"], fault) for case in group for fault in faults(case)] == []


def test_every_rule_of_the_judge_is_broken_in_a_case_alone() -> None:
    broken = [{rule.rstrip("*") for rule, _ in expected(c.get("finds", ""))} for c in LISTED]
    assert {rule for rules in broken if len(rules) == 1 for rule in rules} == guards().keys()


def test_every_plan_is_good_as_it_is() -> None:
    inputs = {case["plan"] for case in LISTED if str(case["plan"]).startswith("input ")}
    for plan in [*read("plans.yaml"), *MADE, *inputs]:
        document = good(plan)
        assert check(restated(document) if plan == "queues" else document) == [], plan


def test_cases_are_said_once() -> None:
    names = [(case["file"], str(case["plan"]), str(case["edits"]), case["why"]) for case in LISTED]
    assert len(set(names)) == len(names)
    cases = sorted(repr({k: v for k, v in case.items() if k != "why"}) for case in LISTED)
    assert [one for one, other in pairwise(cases) if one == other] == []


@pytest.mark.parametrize("name", [*MADE, "reclaim"])
def test_a_tier_that_is_off_turned_left_out_or_out_of_order_is_found(name: str) -> None:
    plan, judge = restated(good(name)), Judge()
    rows = plan["status"]["objectives"]

    def rules(at: int, *others: Doc, until: int = 1) -> list[str]:
        objectives = [*rows[:at], *others, *rows[at + until :]]
        changed = {**plan, "status": {**plan["status"], "objectives": objectives}}
        return [v.rule for v in judge.check(changed).violations]

    for at, row in enumerate(rows):
        for by in (-1, 1):
            value = tier(row["name"], row["value"] + by, row["sense"])
            assert rules(at, value) == ["tier-value"], row
        turned = tier(row["name"], row["value"], {"max": "min", "min": "max"}[row["sense"]])
        assert set(rules(at, turned)) - {"BoundBeaten"} == {"tier-sense"}, row
        assert rules(at) == rules(at, row, row) == ["tiers"], row
        assert at == 0 or rules(at - 1, row, rows[at - 1], until=2) == ["tiers"], row


def test_a_judge_that_knows_another_instance_finds_the_same() -> None:
    for case in LISTED[:: 61 - 60 * examples(1, 0)]:
        (plan, verdict), known, judge = stated(case), good(case["plan"]), Judge()
        judge.check(known)
        assert judge.check(plan) == judge.check(plan) == verdict, case["why"]
        judge.expect(plan["instance"])
        assert judge.check(plan) == verdict, case["why"]
        other = {**known, "instance": plan["instance"]}
        assert judge.check(other).violations == check(other), case["why"]


def test_tiers_of_the_plan_by_speed_are_as_worked_out_by_hand() -> None:
    found = {one["name"]: one["value"] for one in goodput_plan()["status"]["objectives"]}
    assert found == GOODPUT
