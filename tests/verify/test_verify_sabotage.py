"""Whatever a plan states is checked or is listed as not checked.

The table of both has a row for each field of the schema. Every value that a plan states is changed, one at a
time and with digests that fit: the judge refuses it, or the field is listed.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, get_args

import pytest
from effort import examples
from plan_documents import Doc, sealed
from pydantic import BaseModel
from short_plans import good
from short_plans import planned as plan_by_search
from tiny import busy, busy_by_speed, tiny, tiny_by_speed
from tiny_geometries import crowded
from tiny_reserving import timed

from models.documents.plan import PlanDocument
from models.documents.reason import CODES, UNSTATED, ReasonFields
from models.documents.stated import NEWER, ROWS, WHYS, Unchecked, unchecked
from models.instance.instance import Instance
from models.verify.check import Judge, Verdict, check

INPUTS = (
    *(
        "elastic",
        "goodput",
        "moves",
        "parallelism",
        "preemption",
        *["affinity", "starvation"][: examples(2, 0)],
    ),
    *(
        "queues",
        "quickstart",
        "reservations",
        "shape",
        "mig",
        "mig-dynamic",
        "mig-in-use",
        "shares",
    ),
)
"""Inputs with plans of every kind of decision and of most kinds of reasons."""

QUEUED = ("queues", "cells", "fair", "balance", "exclusive", "spares", "wide")

LEAVES = "leaves"
"""Stands for a plan in which all who have instances of some GPU leave it."""

AS_RIGHT = ("node", "gpus", "rank", "gpu", "profiles", "gpuGroup", "parts")
"""Fields that may be otherwise in a plan that is as right: pods elsewhere.

Another GPU partitioned or shared, or one with an instance or a part of another size that nobody needs.
"""

REASON = "spec.gangs[].reason."


def drawn(seed: int) -> Instance:
    draws = (tiny, busy, tiny_by_speed, busy_by_speed, lambda s, _, more: timed(s, more))
    return draws[seed % len(draws)](seed, (), QUEUED if seed % 2 else ("wide",))


@cache
def _plan(what: str | int) -> str:
    if isinstance(what, int):
        return json.dumps(plan_by_search(drawn(what)))
    return (
        json.dumps(plan_by_search(crowded(9)))
        if what == LEAVES
        else json.dumps(good(f"input {what}"))
    )


def planned(what: str | int) -> Doc:
    document: Doc = json.loads(_plan(what))
    return document


PLANS = [*INPUTS, LEAVES, *range(3000, 3000 + examples(120, 1)), 3010, 3038, 3061, 3065]


# The table


def fields(model: type[BaseModel], path: str = "") -> Iterator[str]:
    """Paths of the fields of a document type, down to those that have a row."""
    for name, one in model.model_fields.items():
        here = f"{path}{one.alias or name}"
        inner, many = _inside(one.annotation)
        if here in ROWS or inner is None:
            yield here
        else:
            yield from fields(inner, here + "[]." * many + "." * (not many))


def _inside(annotation: Any) -> tuple[type[BaseModel] | None, bool]:  # noqa: ANN401  # of any field
    """The document type that a field holds, and whether it holds a list of them."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation, False
    for one in get_args(annotation):
        inner, _ = _inside(one)
        if inner is not None:
            return inner, str(annotation).startswith("tuple") or "tuple[" in str(annotation)
    return None, False


def test_each_field_of_a_plan_has_a_row_and_each_row_a_field() -> None:
    assert sorted(fields(PlanDocument)) == sorted(ROWS)


def test_the_page_says_of_every_field_what_the_table_says() -> None:
    page = Path("docs/verify.md").read_text(encoding="utf-8")
    assert "\n".join(f"- *{word}*: {why}" for word, why in WHYS.items()) in page
    words = {why: word for word, why in WHYS.items()}
    told: dict[str, str] = {}
    for line in page.partition("Fields:\n")[2].splitlines():
        if line.startswith("- "):
            paths, _, said = line[2:].partition(": ")
            told |= dict.fromkeys(paths.replace("`", "").split(", "), said)
    assert sorted(told) == sorted(ROWS)
    for path, row in ROWS.items():
        assert set(row.codes) <= CODES.keys(), path
        of = f" (of {', '.join(f'`{code}`' for code in row.codes)})" if row.codes else ""
        _, said, why = told[path].partition("not checked: ")
        assert told[path], path
        assert why == (f"*{words[row.why]}*{of}" if row.why else ""), (path, said)


@pytest.mark.parametrize("what", PLANS)
def test_a_plan_lists_what_is_not_checked(what: str | int) -> None:
    plan = planned(what)
    verdict = Judge().check(plan)
    assert verdict.violations == []
    listed = [
        Unchecked(one["field"], tuple(one.get("codes", ())), one["why"])
        for one in plan["status"]["unchecked"]
    ]
    assert listed == [*verdict.unchecked]


def test_a_plan_that_hides_what_is_not_checked_is_refused() -> None:
    plan = planned("reservations")
    for at, one in enumerate(plan["status"]["unchecked"]):
        hidden = copy.deepcopy(plan)
        del hidden["status"]["unchecked"][at]
        assert [v.rule for v in check(hidden)] == ["unchecked"], one["field"]


def test_a_field_of_a_newer_version_is_listed() -> None:
    plan = planned("quickstart")
    plan["spec"]["gangs"][0]["luck"] = {"stars": 3}
    plan["status"]["unchecked"] = []
    found = Judge().check(sealed(plan))
    assert found.violations == []
    assert Unchecked("spec.gangs[].luck", (), NEWER) in found.unchecked


# Every value


def values(plan: Doc) -> Iterator[tuple[str, str, list[str | int]]]:
    """(path, code of the reason, steps to it) of every value that a plan states outside its instance."""

    def walk(value: Any, path: str, code: str, steps: list[str | int]) -> Iterator[Any]:  # noqa: ANN401
        if path == REASON[:-1] and value is not None:
            code = value["code"]
        if isinstance(value, dict):
            for key, one in value.items():
                yield from walk(one, f"{path}.{key}", code, [*steps, key])
        elif isinstance(value, list):
            for at, one in enumerate(value):
                yield from walk(one, f"{path}[]", code, [*steps, at])
        else:
            yield path.removesuffix("[]"), code, steps

    for top in ("metadata", "spec", "status"):
        yield from walk(plan[top], top, "", [top])


@cache
def known() -> dict[str, list[Any]]:
    """Values by the path where they stand in some plan."""
    found: dict[str, list[Any]] = {}
    for plan in map(planned, PLANS):
        for path, _, steps in values(plan):
            at: Any = plan
            for step in steps:
                at = at[step]
            if at not in (own := found.setdefault(path, [])):
                own.append(at)
    return found


def changed(plan: Doc, steps: list[str | int], path: str, random: Random) -> bool:
    """Put another value there, of its kind; whether there is one."""
    at: Any = plan
    for step in steps[:-1]:
        at = at[step]
    old = at[steps[-1]]
    others = [one for one in known()[path] if one != old]
    if isinstance(old, bool):
        others = [not old]
    elif isinstance(old, int | float):
        others += [old + 1, abs(old - 1), 2 * old + 3]
    elif isinstance(old, str) and not others:
        others = [f"{old}x"]
    others = [one for one in others if one != old]
    if others:
        at[steps[-1]] = random.choice(others)
    return bool(others)


def listed(verdict: Verdict, path: str, code: str = "") -> bool:
    """Whether the judge says that it does not check the field."""
    return any(
        (path == one.field or path.startswith((f"{one.field}.", f"{one.field}[")))
        and (not one.codes or code in one.codes)
        for one in verdict.unchecked
    )


def remarked(plan: Doc) -> Doc:
    """The plan with digests that fit, and a list of all that is not checked."""
    plan["status"]["unchecked"] = [
        {"field": one.field, "codes": [*one.codes], "why": one.why} for one in unchecked(plan)
    ]
    return sealed(plan, "spec")


def change_values(what: str | int) -> None:
    plan, judge, random = planned(what), Judge(), Random(f"{what}")
    every = list(values(plan))
    random.shuffle(every)
    seen: dict[tuple[str, str], int] = {}
    for path, code, steps in every:
        seen[path, code] = seen.get((path, code), 0) + 1
        if seen[path, code] > TIMES or path.startswith("status.digests"):
            continue
        turned = {
            **plan,
            **{top: copy.deepcopy(plan[top]) for top in ("metadata", "spec", "status")},
        }
        if not changed(turned, steps, path, random):
            continue
        verdict = judge.check(sealed(turned, "spec"), refute=False)
        if not verdict.violations and not listed(verdict, path, code):
            refuted = judge.check(turned).violations
            assert refuted or path.endswith(AS_RIGHT), (what, path, code, steps)


TIMES = examples(2, 1)
"""Values of one path, and one code of reasons, that are changed in each plan."""


def test_a_changed_value_is_refused_or_listed() -> None:
    """One test of all plans, as each has values of all. A field that no plan has is not tried."""
    for what in PLANS:
        change_values(what)
    never = {path for path in ROWS if not any(one.startswith(path) for one in known())}
    assert {path for path in never if not path.startswith(REASON)} <= {
        "apiVersion",
        "kind",
        "instance",
        "status.remarks",
        "status.leftOut",
        "status.unclaiming",  # below, by itself
        *(f"spec.gangs[].reserved.{name}" for name in ("beside", "pods[].uid", "pods[].rank")),
        "spec.gangs[].passedOver",
        *(f"spec.gangs[].delayed.{name}" for name in ("promised", "cause", "by")),
    }
    assert len([path for path in ROWS if path.startswith(REASON) and path not in never]) >= 17


# A gang that starts though it never could


def test_a_gang_that_never_could_start_may_start_where_its_queue_holds_more_than_its_limit() -> (
    None
):
    # the queue of g3 may hold nothing, and holds 4 GPUs, of which g3 takes 2
    instance = busy_by_speed(71047, more=("queues", "cells", "fair", "preemptible"))
    plan = json.loads(json.dumps(plan_by_search(instance)))
    assert "unable" not in plan["status"]
    assert plan["status"]["unclaiming"] == ["default/g3"]
    assert [g["decision"] for g in plan["spec"]["gangs"] if g["name"] == "g3"] == ["place"]
    assert check(plan) == []
    plan["status"]["unable"] = [{"gang": "default/g3", "proven": True}]
    (found,) = (v for v in check(remarked(plan)) if v.rule == "could-start")
    assert found.message == "is said not to be able to start, but it starts"
    del plan["status"]["unable"]
    plan["status"]["unclaiming"] *= 2
    assert "could-start" in {v.rule for v in check(remarked(plan))}


# Every code


def forged(plan: Doc, wanted: Doc, code: str, random: Random) -> Doc:
    """A reason of another code for a gang, with fields that its own words or others of the plan have."""
    role = wanted["spec"]["roles"][0]
    pods = role["replicas"] if isinstance(role["replicas"], int) else role["replicas"]["min"]
    gpus = pods * role["gpus"]
    others = [g for g in plan["spec"]["gangs"] if g["name"] != wanted["metadata"]["name"]]
    one = random.choice(others) if others else None
    queues = plan["instance"].get("queues", [])
    every: Doc = {
        "gpus": gpus,
        "pods": pods,
        "room_pods": max(0, pods - 1),
        "room_gpus": max(0, gpus - 1),
        "level": next((x["name"] for x in plan["instance"]["cluster"]["spec"]["levels"]), "node"),
        "resources": ["cpu"],
        "by": [] if one is None else [{"gang": f"{one['namespace']}/{one['name']}", "priority": 0}],
        "queue": queues[0]["metadata"]["name"] if queues else "q",
        "held": 0,
        "limit": max(0, gpus - 1),
        "text": "another gate",
    }
    found = {name: value for name, value in every.items() if name in CODES[code].fields}
    if code == "Never":
        found.pop("room_pods"), found.pop("room_gpus")
    return {"code": code, "message": "", "fields": ReasonFields.with_values(**found).to_json()}


RESTS_ON = ("proven", "text", "roomPods", "roomGpus", "limit")
"""Fields of findings on which a reason may rest where they are listed as not checked."""


@pytest.mark.parametrize("what", PLANS)
def test_another_code_is_refused_or_listed(what: str | int) -> None:
    plan, judge, random = planned(what), Judge(), Random(f"{what}")
    waiting = [i for i, g in enumerate(plan["spec"]["gangs"]) if g["decision"] == "wait"]
    own = {g["reason"]["code"]: g["reason"] for g in plan["spec"]["gangs"] if g["reason"]}
    for i in random.sample(waiting, min(len(waiting), examples(4, 1))):
        stated, wanted = plan["spec"]["gangs"][i]["reason"], plan["instance"]["gangs"][i]
        for code in CODES.keys() - {stated["code"], UNSTATED}:  # that one states nothing
            reasons = [forged(plan, wanted, code, random), stated | {"code": code}]
            reasons += [{"code": code, "message": "", "fields": {}}]
            reasons += [own[code]] if code in own else []
            for reason in reasons if examples(1, 0) else [random.choice(reasons)]:
                turned = copy.deepcopy(plan)
                turned["instance"] = plan["instance"]
                turned["spec"]["gangs"][i]["reason"] = reason
                verdict = judge.check(remarked(turned), refute=False)
                rests = listed(verdict, f"{REASON}code", code) or any(
                    listed(verdict, f"{REASON}fields.{name}", code)
                    for name in RESTS_ON
                    if name in reason["fields"]
                )
                refused = verdict.violations or rests or judge.check(turned).violations
                assert refused, (stated, reason)
