"""Objectives that --defragment and --previous add to a policy's own."""

from __future__ import annotations

import pytest

from models.documents.policy import Objective
from models.instance.policy import Policy
from planner.pipelines.adjustments import with_defragment, with_stability


def policy(listed: str) -> Policy:
    return Policy(objectives=tuple(Objective(name) for name in listed.split()))


def names(policy: Policy) -> str:
    return " ".join(objective.name for objective in policy.objectives)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("admission waiting disruption span", "admission waiting defragment disruption span"),
        ("disruption admission", "defragment disruption admission"),
        ("admission bandwidth waiting span", "admission bandwidth waiting defragment span"),
        ("bandwidth span", "defragment bandwidth span"),
        ("", "defragment"),
        # behind disruption it would move nothing
        ("admission disruption defragment", "admission defragment disruption"),
        ("admission bandwidth defragment", "admission defragment bandwidth"),
        # where it works already it stays
        ("defragment admission disruption", "defragment admission disruption"),
        ("admission defragment span disruption", "admission defragment span disruption"),
        ("admission defragment bandwidth", "admission defragment bandwidth"),
    ],
)
def test_defragment_goes_just_before_disruption(before: str, after: str) -> None:
    assert names(with_defragment(policy(before))) == after


def test_stability_goes_last_and_only_once() -> None:
    assert names(with_stability(policy("admission span"))) == "admission span stability"
    assert names(with_stability(policy("stability span"))) == "stability span"
    assert names(with_stability(with_defragment(Policy()))).endswith("stranded stability")
