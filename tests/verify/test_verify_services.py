"""Gangs of one service run on one GPU model: what the judge lets pass and what it finds."""

from __future__ import annotations

from plan_documents import (
    Doc,
    cluster,
    decided,
    dgx,
    gang,
    made,
    mesh,
    node,
    role,
    standing,
    stopped,
)

from models.verify.check import check
from models.verify.violation import Violation


def servers() -> Doc:
    """h1 and h2 have H100, s1 and s2 A100, m1 V100, c1 none."""
    models = [dgx(), dgx("DGX A100", gpu="A100"), mesh()]
    places = {"c1": None, "h1": "DGX H100", "h2": "DGX H100", "m1": "DGX-1 V100"}
    places |= {"s1": "DGX A100", "s2": "DGX A100"}
    return cluster(models, [node(name, model) for name, model in places.items()])


def found(plan: Doc) -> list[tuple[str, str | None]]:
    return [(violation.rule, violation.gang) for violation in check(plan)]


def one(name: str, *roles: Doc, service: str | None = "chat", **more: object) -> Doc:
    return gang(name, *roles, service=service, **more)


def runs(name: str, where: str, **more: object) -> Doc:
    """A gang of the service with one GPU."""
    return one(name, pods=(standing(name, where, [0]),), **more)


def placed(*nodes: str, **more: object) -> Doc:
    """Gangs ``a``, ``b``, ... of the service, a GPU on one of these nodes each."""
    spots = {"abcd"[i]: (where, [i]) for i, where in enumerate(nodes)}
    starts = [decided(name, "place", spot) for name, spot in spots.items()]
    return made(servers(), [one(name, **more) for name in spots], starts)


# none runs


def test_gangs_of_a_service_that_start_share_a_gpu_model() -> None:
    assert found(placed("h1", "h1", "h2")) == []
    assert found(placed("s1", "s2")) == []
    both = [("service", "default/a"), ("service", "default/b")]
    assert found(placed("h1", "s1")) == both


def test_the_violation_says_which_models() -> None:
    assert check(placed("h1", "s1"))[0] == Violation(
        "service",
        "default/a",
        "is placed on H100, but its service 'chat' is placed on A100, H100",
    )


def test_a_gang_of_a_service_has_one_gpu_model_in_all_its_roles() -> None:
    def plan(service: str | None) -> Doc:
        first = decided("a", "place", ("h1", [0]), role="decode")
        second = decided("a", "place", ("s1", [0]), role="prefill")
        roles = (role("decode"), role("prefill"))
        merged = first | {"pods": first["pods"] + second["pods"]}
        return made(servers(), [one("a", *roles, service=service)], [merged])

    assert found(plan(None)) == []
    assert found(plan("chat")) == [("service", "default/a")]


# some run


def joined(where: str, *running: Doc, **more: object) -> Doc:
    """Gang ``a`` of the service starts on a node, and others run and stay."""
    kept = []
    for doc in running:
        (pod,) = doc["status"]["pods"]
        kept.append(decided(doc["metadata"]["name"], "keep", (pod["node"], pod["gpus"])))
    starts = decided("a", "place", (where, [3]))
    return made(servers(), [one("a", **more), *running], [starts, *kept])


def test_a_gang_joins_the_gpu_model_its_service_runs_on() -> None:
    assert found(joined("h2", runs("r", "h1"))) == []
    assert found(joined("s1", runs("r", "h1"))) == [("service", "default/a")]
    assert found(joined("s1", runs("r", "h1"), service=None)) == []
    assert found(joined("s1", runs("r", "h1", service="code"))) == []


def test_of_several_models_that_a_service_runs_on_any_will_do_and_those_that_stay_may() -> None:
    two = (runs("r", "h1"), runs("s", "s1"))
    assert found(joined("h1", *two)) == []
    assert found(joined("s2", *two)) == []
    assert found(joined("m1", *two)) == [("service", "default/a")]


def test_a_gang_that_moves_keeps_to_the_models_its_service_runs_on_before_the_plan() -> None:
    def moved(where: str, *others: Doc) -> Doc:
        gangs = [runs("a", "h1", movable=True), *others]
        stay = [decided(o["metadata"]["name"], "keep", ("s2", [0])) for o in others]
        return made(servers(), gangs, [decided("a", "move", (where, [5])), *stay])

    assert found(moved("h2")) == []
    assert found(moved("s1")) == [("service", "default/a")]
    assert found(moved("s1", runs("b", "s2"))) == []


def test_a_gang_that_is_stopped_still_ran_before_the_plan() -> None:
    def plan(where: str) -> Doc:
        gangs = [
            one("a"),
            runs("old", "h1", preemptible=True),
            gang("top", role("worker", 1, 8), priority=5),
        ]
        taken = decided("top", "place", ("h1", list(range(8))))
        starts = decided("a", "place", (where, [0]))
        return made(servers(), gangs, [starts, stopped("old", "top"), taken])

    assert found(plan("h2")) == []
    assert found(plan("s1")) == [("service", "default/a")]


def test_a_gang_that_is_completed_keeps_to_the_model_of_what_stands_of_it() -> None:
    def plan(where: str, service: str | None = "chat") -> Doc:
        comes = decided("a", "complete", (where, [0]), role="extra")
        stays = decided("a", "complete", ("h1", [0]))
        roles = (role("extra"), role("worker"))
        gangs = [one("a", *roles, service=service, pods=(standing("a", "h1", [0]),))]
        return made(servers(), gangs, [comes | {"pods": comes["pods"] + stays["pods"]}])

    assert found(plan("h2")) == []
    assert found(plan("s1")) == [("service", "default/a")]
    assert found(plan("s1", service=None)) == []
