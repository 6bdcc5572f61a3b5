"""What the judge says of edited plans, exactly: cases/*.yaml, in the forms of cases/README.md."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from effort import examples
from plan_documents import Doc, entry, off, sealed
from short_plans import CASES, MADE, edited, good, read, redecided

from models.verify.check import Judge, check, derive
from models.verify.judged_rules import guards, ordered

FILES = sorted(path.name for path in CASES.glob("*.yaml") if path.name != "plans.yaml")


def listed() -> list[Any]:
    found = []
    for name in FILES:
        for group in read(name):
            shared = {key: value for key, value in group.items() if key != "cases"}
            for one in group["cases"]:
                case = {**shared, **one}
                case["edits"] = [
                    edit
                    for edits in (group.get("edit"), one.get("edit"))
                    for edit in (edits if isinstance(edits, list) else [edits or {}])
                ]
                where = f"{name[:-5]}: {case.get('why', 'as it is')}"
                found.append(pytest.param(case, id=where.replace("[", "(").replace("]", ")")))
    return found


LISTED = listed()


def expected(finds: str) -> list[tuple[str, str | None]]:
    """``rule gang gang, rule``: one violation of each gang; of none where none is named; ``rule*``: any."""
    found: list[tuple[str, str | None]] = []
    for part in filter(None, finds.split(", ")):
        rule, *gangs = part.split()
        found += [(rule, name if "/" in name else f"default/{name}") for name in gangs]
        found += [] if gangs else [(rule, None)]
    return sorted(found, key=str)


def stated(case: Doc) -> Doc:
    plan = edited(good(case["plan"]), case["edits"])
    state = case.get("state", "restated")
    if state == "restated":
        redecided(plan)
    if case.get("then"):
        edited(plan, case["then"])
    return plan if state == "raw" else sealed(plan)


@pytest.mark.parametrize("case", LISTED)
def test_the_judge_finds_exactly_what_a_case_says(case: Doc) -> None:
    plan = stated(case)
    verdict = Judge().check(plan)
    found = verdict.violations
    wanted = expected(case.get("finds", ""))
    got = {(f"{v.rule}*", None) for v in found} & set(wanted)
    own = [(v.rule, v.gang) for v in found if (f"{v.rule}*", None) not in got]
    assert sorted([*got, *own], key=str) == wanted, found
    assert found == ordered(found)
    assert all(v.message.isprintable() and len(v.message) < 2000 for v in found)
    words = case.get("words", [])
    for said in [words] if isinstance(words, str) else words:
        assert any(said in one.message for one in found), (said, [one.message for one in found])
    if "remarks" in case:
        assert list(verdict.remarks) == case["remarks"]
    if "derives" in case:
        values = derive(plan)
        assert {name: values.get(name) for name in case["derives"]} == case["derives"]
        assert not case.get("order") or [*values] == [*case["derives"]]
    for name, fields in case.get("states", {}).items():
        assert {key: entry(plan, name)[key] for key in fields} == fields


def test_every_rule_of_the_judge_is_broken_in_a_case_alone() -> None:
    broken = [expected(param.values[0].get("finds", "")) for param in LISTED]
    alone = [{rule.rstrip("*") for rule, _ in one} for one in broken]
    assert {rule for rules in alone if len(rules) == 1 for rule in rules} == guards().keys()


def test_every_plan_is_good_as_it_is() -> None:
    inputs = {
        c["plan"] for (c,) in (p.values for p in LISTED) if str(c["plan"]).startswith("input ")
    }
    for plan in [*read("plans.yaml"), *MADE, *inputs]:
        assert check(redecided(good(plan)) if plan == "queues" else sealed(good(plan))) == [], plan


def test_cases_are_said_once() -> None:
    assert len({param.id for param in LISTED}) == len(LISTED)
    cases = [{k: v for k, v in param.values[0].items() if k != "why"} for param in LISTED]
    assert all(case not in cases[i + 1 :] for i, case in enumerate(cases))


@pytest.mark.parametrize("name", [*MADE, "reclaim"])
def test_a_tier_that_is_off_turned_left_out_or_out_of_order_is_found(name: str) -> None:
    plan = redecided(good(name))
    rows = plan["status"]["objectives"]
    for at, row in enumerate(rows):
        for by in (-1, 1):
            changed = copy.deepcopy(plan)
            off(changed, row["name"], by)
            assert [v.rule for v in check(changed)] == ["tier-value"], row
        sense = {"max": "min", "min": "max"}[row["sense"]]
        for rule, others in (
            ("tier-sense", [{**row, "sense": sense}]),
            ("tiers", []),
            ("tiers", [row, row]),
            ("tiers", [*rows[at + 1 : at + 2], row]),
        ):
            skipped = 2 if len(others) == 2 and others[0] is not row else 1
            objectives = [*rows[:at], *others, *rows[at + skipped :]]
            if len(objectives) == len(rows) and rule == "tiers" and at + 1 == len(rows):
                continue
            changed = {**plan, "status": {**plan["status"], "objectives": objectives}}
            rules = {v.rule for v in check(changed)} - {"BoundBeaten"}
            assert rules == {rule}, row


@pytest.mark.parametrize("case", LISTED[:: examples(1, 9)])
def test_a_judge_that_knows_another_instance_finds_the_same(case: Doc) -> None:
    plan, known, judge = stated(case), good(case["plan"]), Judge()
    judge.check(known)
    assert judge.check(plan).violations == judge.check(plan).violations == check(plan)
    judge.expect(plan["instance"])
    assert judge.check(plan).violations == check(plan)
    other = {**good(case["plan"]), "instance": plan["instance"]}
    assert judge.check(other).violations == check(other)
