"""Plans of Kubernetes objects, in one process, that the judge accepts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bundles import load_all

from models.instance.gang import Gang
from models.instance.instance import Instance
from models.results.plan import compose
from models.verify.check import check
from planner.search.solve import solve
from planner.show.reason_words import words


def decided(objects: Sequence[dict[str, Any]], now: int) -> dict[str, str]:
    """What the plan says of each gang, by namespace/name: a decision, or of one that waits the code why."""
    found = load_all(objects, now=now)
    made = {"name": "p", "created_at": "2026-11-20T12:00:00Z", "generator": "test"}
    plan = compose(found.instance, solve(found.instance), words, **made)
    assert check(plan) == []
    return {
        f"{one['namespace']}/{one['name']}": one["reason"]["code"]
        if one["decision"] == "wait"
        else one["decision"]
        for one in plan["spec"]["gangs"]
    }


def gang_of(found: Instance, name: str) -> Gang:
    (gang,) = [gang for gang in found.gangs if gang.name == name]
    return gang
