"""Sabotage of rules and tiers about queues: a plan or its queues are changed, and the judge names the rule.

The plan, and what is promised in it, is in plan_queues.py.
"""

from __future__ import annotations

import copy

import pytest
from plan_documents import (
    Change,
    Doc,
    best_is,
    both,
    decided,
    entry,
    gang,
    objective,
    off,
    restated,
    role,
    sealed,
    server,
    stands,
    wanted,
)
from plan_queues import HIGH, STATED, TIERS, queue, queues_plan, spec_of

from models.verify.check import check, derive


def _queue(name: str, **changes: object) -> Change:
    return lambda plan: spec_of(plan, name).update(changes)


def _gang(name: str, **changes: object) -> Change:
    return lambda plan: wanted(plan, name)["spec"].update(changes)


def _also(node: str, *gpus: int, **spec: object) -> Change:
    """One more gang, the last by name, on free GPUs."""

    def change(plan: Doc) -> None:
        plan["instance"]["gangs"].append(gang("more", role(gpus=len(gpus)), **spec))
        plan["spec"]["gangs"].append(decided("more", "place", (node, list(gpus))))

    return change


def _of_another(name: str) -> Change:
    """Another scheduler starts the gang, and it names no queue."""
    return lambda plan: wanted(plan, name)["status"].update(scheduler="default-scheduler")


def _child(name: str, parent: str | None, **spec: object) -> Change:
    def change(plan: Doc) -> None:
        plan["instance"]["queues"].append(queue(name, parent=parent, **spec))

    return change


def broken(change: Change) -> list[tuple[str, str | None]]:
    """Rules of the violations with their gangs; of who could start the plan knows nothing new."""
    plan = queues_plan()
    change(plan)
    plan["instance"]["queues"].sort(key=lambda one: one["metadata"]["name"])
    return [(v.rule, v.gang) for v in check(restated(plan)) if v.rule != "could-start"]


NO_RACK = both(_queue("ads", guarantee={"gpus": 12}), _also("n5", 0))
"""A firm gang of no queue stands in the last rack; fewer GPUs are promised elsewhere."""

SHORT = _queue("ads", guarantee={"gpus": 21})
"""21 + 4 + 8 + 4 are promised, 12 held by firm gangs of no queue: 49 of 48."""

KEPT = both(
    _queue("ads", lendingLimit={"gpus": 0}),
    _queue("bio", lendingLimit={"models": {"V100": 0}}),
    _queue("cv", lendingLimit={"gpus": 0}),
)
"""Of 48 GPUs ads keeps 16, half of them held, cv 8; 24 others are held. Of 8 V100 bio keeps 4, 4 are held."""

NEXT_TO_CV = both(
    _child("top", None, limit={"gpus": 15}),
    _queue("bio", parent="top"),
    _queue("cv", parent="top", lendingLimit={"gpus": 0}),
)
"""bio holds 8 next to the 8 that cv keeps."""

GIVES_WAY = ("preemption", "default/bor")

CELLS = ("cells", None)

PINS_N3 = _queue("cv", cells=[{"nodes": ["n3"]}])
"""In place of its rack: the node where firm starts, which is in no queue."""

PINS_N5 = both(
    _queue("lab", cells=[{"nodes": ["n5"]}]),
    lambda plan: plan["instance"]["gangs"].pop(4),
    lambda plan: plan["spec"]["gangs"].pop(4),
    _also("n3", 0),
)
"""The only node of rack r3, where cv has its place; one more gang that cannot be stopped is in r2."""

NODE_CELL = _queue("cv", cells=[{"count": 1, "level": "node", "model": "H100"}])

CASES: list[tuple[str, Change, list[tuple[str, str | None]]]] = [
    ("nothing", lambda plan: None, []),
    # 2.15
    ("a model's limit", _queue("bio", limit={"models": {"H100": 7}}), [("quota", None)]),
    ("of another model", _queue("bio", limit={"models": {"V100": 0}}), []),
    ("in all", _queue("bio", limit={"gpus": 7}), [("quota", None)]),
    ("held before", both(_queue("bio", limit={"gpus": 7}), stands("b-start")), []),
    ("within a guarantee", _queue("lab", limit={"gpus": 3}), [("quota", None)]),
    (
        "of a parent",
        both(_child("top", None, limit={"gpus": 7}), _queue("bio", parent="top")),
        [("quota", None)],
    ),
    (
        "of a queue below",
        both(
            _child("dept", "lab", borrowing=False, guarantee={"gpus": 2}),
            _gang("l-start", queue="dept"),
        ),
        [("quota", None)],
    ),
    ("not preemptible", _queue("lab", nonPreemptibleLimit={"gpus": 3}), [("quota", None)]),
    ("just not preemptible", _queue("lab", nonPreemptibleLimit={"gpus": 4}), []),
    ("preemptible", _queue("bio", nonPreemptibleLimit={"models": {"H100": 0}}), []),
    (
        "not preemptible before",
        both(_queue("ads", nonPreemptibleLimit={"gpus": 7})),
        [],
    ),
    # 2.16
    ("all that there is", _queue("ads", guarantee={"gpus": 20}), []),
    ("more than there is", SHORT, [("guarantee", None)]),
    ("more before", both(SHORT, stands("firm"), stands("firm-v")), []),
    ("of preemptible gangs", both(SHORT, _gang("firm-v", preemptible=True)), []),
    ("inside a guarantee", both(SHORT, _gang("firm", queue="ads")), []),
    ("of a model", _queue("bio", guarantee={"models": {"V100": 5}}), [("guarantee", None)]),
    ("of nothing there", both(SHORT, _queue("ads", guarantee={})), []),
    (
        "sick GPUs",
        lambda plan: server(plan, "v1").update(unhealthyGpus=HIGH),
        [("guarantee", None)],
    ),
    ("a guarantee below", _child("sub", "ads", guarantee={"gpus": 8}), []),
    ("more below than above", _child("sub", "ads", guarantee={"gpus": 13}), [("guarantee", None)]),
    # 2.22
    ("all that is lent", KEPT, []),
    ("more", both(KEPT, _queue("ads", guarantee={"gpus": 17})), [("lending", None)]),
    (
        "more of a model",
        both(KEPT, _also("v1", 4, preemptible=True)),
        [("lending", None), ("lending", None)],
    ),
    ("by preemptible", both(KEPT, _also("n5", 0, preemptible=True)), [("lending", None)]),
    (
        "by those of another scheduler",
        both(KEPT, _also("n5", 0, preemptible=True), _of_another("more")),
        [],
    ),
    (
        "more lent before",
        both(
            KEPT,
            _queue("ads", guarantee={"gpus": 17}),
            *map(stands, ("b-start", "firm", "firm-v")),
        ),
        [],
    ),
    ("kept below a limit", NEXT_TO_CV, [("lending", None)]),
    ("kept just below it", both(NEXT_TO_CV, _queue("top", limit={"gpus": 16})), []),
    ("kept below it before", both(NEXT_TO_CV, stands("b-start")), []),
    # 2.17
    ("the last rack", NO_RACK, [("cells", None)]),
    ("a queue's own rack", both(NO_RACK, _gang("firm-v", queue="cv")), [("cells", None)]),
    ("its own pods", both(_queue("ads", guarantee={"gpus": 12}), _also("n5", 0, queue="cv")), []),
    (
        "pods below",
        both(
            _queue("ads", guarantee={"gpus": 12}),
            _child("sub", "cv"),
            _also("n5", 0, queue="sub"),
        ),
        [],
    ),
    (
        "preemptible pods",
        both(_queue("ads", guarantee={"gpus": 12}), _also("n5", 0, preemptible=True)),
        [],
    ),
    (
        "a rack lost before",
        both(NO_RACK, stands("firm"), lambda plan: server(plan, "n5").update(unhealthyGpus=[7])),
        [],
    ),
    # 2.26
    ("a pinned node", PINS_N3, [("pinned", "default/firm")]),
    ("pinned to its queue", both(PINS_N3, _gang("firm", queue="cv")), []),
    ("pinned, and it ran there", both(PINS_N3, stands("firm")), []),
    ("pinned, and preemptible", _queue("cv", cells=[{"nodes": ["n2"]}]), []),
    ("pinned, and of another scheduler", both(PINS_N3, _of_another("firm")), []),
    (
        "pinned below its queue",
        both(PINS_N3, _child("top", None), _queue("cv", parent="top"), _gang("firm", queue="top")),
        [("pinned", "default/firm")],
    ),
    (
        "pinned above its queue",
        both(PINS_N3, _child("sub", "cv"), _gang("firm", queue="sub")),
        [],
    ),
    (
        "a pinned rack",
        both(
            _queue("ads", guarantee={"gpus": 8}),
            _queue("cv", cells=[{"level": "rack", "domain": "b/r2"}]),
        ),
        [("pinned", "default/firm"), ("pinned", "default/l-start")],
    ),
    ("a cell in a pinned rack", both(PINS_N5, _queue("ads", guarantee={"gpus": 8})), [CELLS]),
    ("a cell beside it", both(PINS_N5, _queue("ads", guarantee={"gpus": 8}), NODE_CELL), []),
    (
        "a guest at its own guarantee",
        both(_gang("bor", queue="bio"), _queue("lab", cells=[{"nodes": ["n4"]}])),
        [],
    ),
    (
        "a guest that is none",
        both(_gang("bor", queue="lab"), _queue("lab", cells=[{"nodes": ["n4"]}])),
        [GIVES_WAY],
    ),
    (
        "a guest, and no reclaiming",
        both(_queue("lab", cells=[{"nodes": ["n4"]}], reclaim=False)),
        [GIVES_WAY],
    ),
    # reclaiming
    ("no reclaiming", _queue("lab", reclaim=False), [GIVES_WAY]),
    ("beyond the guarantee", _queue("lab", guarantee={"gpus": 3}, borrowing=True), [GIVES_WAY]),
    ("from a queue within its own", _gang("bor", queue="ads"), [GIVES_WAY]),
    ("from one at its own", _gang("bor", queue="bio"), [GIVES_WAY]),
    (
        "from one above its own",
        both(_gang("bor", queue="bio"), _queue("bio", guarantee={"models": {"V100": 3}})),
        [],
    ),
    (
        "from peers",
        both(_gang("bor", queue="lab"), _queue("lab", guarantee={"gpus": 8})),
        [GIVES_WAY],
    ),
    ("what may not stop", _gang("bor", preemptible=False), [("standing", "default/bor")]),
]


@pytest.mark.parametrize(("change", "rules"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_the_judge_names_the_broken_rule(
    change: Change, rules: list[tuple[str, str | None]]
) -> None:
    assert broken(change) == rules


def test_the_tiers_about_queues_are_those_worked_out_by_hand() -> None:
    found = derive(queues_plan())
    assert {name: value for name, value in found.items() if name in TIERS} == TIERS
    names = list(found)
    assert names[:2] == ["guarantee/5", "guarantee/0"]
    assert names[names.index("fair/1") - 1].startswith(("admission/", "waiting/"))


def _role(name: str, **changes: object) -> Change:
    return lambda plan: wanted(plan, name)["spec"]["roles"][0].update(changes)


MODEL = _queue("bio", guarantee={"gpus": 0, "models": {"V100": 8}})
TOP = both(
    _child("top", None, guarantee={"gpus": 10}),
    _queue("bio", parent="top"),
    _queue("lab", parent="top", guarantee={"gpus": 3}),
)
SHARED = both(
    _child("top", None, guarantee={"gpus": 8}),
    _queue("bio", parent="top", guarantee={}),
    _queue("lab", parent="top"),
    _gang("b-start", priority=9),
)
BEYOND = both(_queue("ads", guarantee={"gpus": 7}), _also("n5", 0, queue="ads"))
RIVAL = _also("n5", 0, 1, 2, queue="lab", preemptible=True)

WITHIN: list[tuple[str, Change, dict[int, int]]] = [
    (
        "of models together",
        _queue("bio", guarantee={"models": {"V100": 7, "H100": 1}}),
        {5: 8, 0: 8 + 4},
    ),
    ("of a model alone", MODEL, {5: 8, 0: 8 + 4}),
    ("on no node of the model", both(MODEL, _role("b-start", model="H100")), {5: 8, 0: 4}),
    ("one that waits", _queue("cv", guarantee={"gpus": 16}), {5: 8, 0: 4}),
    ("a queue above", TOP, {5: 8, 0: 8}),
    ("the higher priority first", both(TOP, _gang("l-start", priority=1)), {5: 8, 1: 4}),
    ("queues below first", SHARED, {5: 8, 0: 4}),
    ("what a firm gang holds beyond it", BEYOND, {0: 4}),
    ("a gang beyond it that may stop", both(BEYOND, _gang("a-run", preemptible=True)), {0: 4 + 1}),
    ("the name last", RIVAL, {5: 8, 0: 4}),
    (
        "the oldest first",
        both(RIVAL, _gang("more", submittedAt="2026-11-21T00:00:00Z")),
        {5: 8, 0: 3},
    ),
    ("who runs first", both(RIVAL, stands("more")), {5: 8, 0: 3}),
]


@pytest.mark.parametrize(("change", "values"), [w[1:] for w in WITHIN], ids=[w[0] for w in WITHIN])
def test_a_gang_is_within_what_those_before_it_leave(
    change: Change, values: dict[int, int]
) -> None:
    plan = queues_plan()
    change(plan)
    plan["instance"]["queues"].sort(key=lambda one: one["metadata"]["name"])
    found = derive(plan)
    assert {n: v for n, v in found.items() if n.startswith("guarantee/")} == {
        f"guarantee/{priority}": value for priority, value in values.items()
    }


def test_a_proof_of_a_guarantee_that_one_more_gang_could_use_is_refuted() -> None:
    plan = queues_plan()
    wanted(plan, "c-wait")["spec"]["roles"][0]["replicas"] = 1  # 8 GPUs: fits on n5, and within cv
    entry(plan, "c-wait")["reason"]["code"] = "Unknown"
    stated = objective(restated(plan), "guarantee/0")
    assert check(plan) == []
    stated.update(best_is(4))
    (found,) = check(plan)
    assert (found.rule, found.gang) == ("NotMaximal", "default/c-wait")
    assert found.message.startswith("guarantee/0: ")
    assert found.message.endswith("starting beside the others gives 12")


@pytest.mark.parametrize("name", TIERS)
def test_a_wrong_or_missing_tier_is_found(name: str) -> None:
    plan = restated(queues_plan())
    off(plan, name, 1)
    assert [v.rule for v in check(plan)] == ["tier-value"]
    plan["status"]["objectives"].remove(objective(plan, name))
    assert [v.rule for v in check(plan)] == ["tiers"]


def _stating(queues: list[Doc]) -> list[str]:
    plan = restated(queues_plan())
    plan["status"]["queues"] = queues
    return [v.rule for v in check(sealed(plan))]


def test_what_is_stated_of_queues_is_derived_again() -> None:
    assert _stating(STATED) == []
    assert _stating(STATED[1:]) == ["queues"]
    assert _stating([]) == ["queues"]
    for i, stated in enumerate(STATED):
        for field in ("guarantee", "before", "after", "borrowed", "waiting"):
            wrong = copy.deepcopy(STATED)
            wrong[i][field] = stated[field] + 1
            assert _stating(wrong) == ["queues"], (stated["name"], field)
    wrong = copy.deepcopy(STATED)
    wrong[1]["models"][0]["after"] = 7
    wrong[2]["cells"][0]["count"] = 2
    del wrong[3]["limit"]
    assert _stating(wrong) == ["queues"] * 3


def test_a_quota_is_no_reason_where_none_binds() -> None:
    plan = queues_plan()
    entry(plan, "c-wait")["reason"]["code"] = "Quota"
    assert check(restated(plan)) == []
    wanted(plan, "c-wait")["spec"]["preemptible"] = True  # and cv has no limit
    assert [v.rule for v in check(restated(plan))] == ["reason"]
