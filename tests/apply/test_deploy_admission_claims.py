"""What the admission policies let the planner's account do to ResourceClaims."""

from __future__ import annotations

import pytest
from admission import Asked, Tree, policies, refused

PLAN = "gp-0123456789abcdef0123"
FINALIZER = "resource.kubernetes.io/delete-protection"
ALLOCATION = {
    "devices": {"results": [{"request": "gpu", "driver": "d", "pool": "n1", "device": "gpu-0"}]},
    "allocationTimestamp": "2026-11-21T00:00:00Z",
}
OTHER_ALLOCATION = {"devices": {"results": []}}
USER = {"resource": "pods", "name": "p", "uid": "u1"}
OTHER_USER = {"resource": "pods", "name": "q", "uid": "u2"}


def _claim(*, marked: bool = True, finalizers: tuple[str, ...] = (), **status: object) -> Tree:
    metadata: Tree = {"name": "c", "namespace": "research", "uid": "k", "resourceVersion": "3"}
    if marked:
        metadata["annotations"] = {"gangplan.dev/plan": PLAN}
    if finalizers:
        metadata["finalizers"] = list(finalizers)
    spec = {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "g"}}]}}
    return {"metadata": metadata, "spec": spec} | ({"status": status} if status else {})


def _on_claim(old: Tree, new: Tree, sub: str = "") -> list[str]:
    asked = Asked("resourceclaims", "UPDATE", new, old, sub=sub, group="resource.k8s.io")
    return refused(asked)


def test_a_claim_may_be_marked_guarded_allocated_reserved_and_freed_again() -> None:
    steps = [
        (_claim(marked=False), _claim(finalizers=(FINALIZER,)), ""),
        (_claim(), _claim(allocation=ALLOCATION, reservedFor=[USER]), "status"),
        (
            _claim(allocation=ALLOCATION),
            _claim(allocation=ALLOCATION, reservedFor=[USER]),
            "status",
        ),
        (_claim(allocation=ALLOCATION, reservedFor=[USER]), _claim(), "status"),
        (_claim(allocation=ALLOCATION), _claim(), "status"),
        (_claim(finalizers=(FINALIZER,)), _claim(marked=False, finalizers=(FINALIZER,)), ""),
    ]
    for old, new, sub in steps:
        assert _on_claim(old, new, sub) == []


def _with(tree: Tree, part: str, **fields: object) -> Tree:
    return tree | {part: tree.get(part, {}) | fields}


FORBIDDEN_OF_CLAIMS: dict[str, tuple[Tree, Tree, str]] = {
    "what it asks": (_claim(), _with(_claim(), "spec", devices={}), ""),
    "a label": (_claim(), _with(_claim(), "metadata", labels={"a": "b"}), ""),
    "an owner": (_claim(), _with(_claim(), "metadata", ownerReferences=[{"uid": "x"}]), ""),
    "a name": (_claim(), _with(_claim(), "metadata", name="d"), ""),
    "another annotation": (
        _claim(marked=False),
        _with(_claim(marked=False), "metadata", annotations={"a": "b"}),
        "",
    ),
    "an annotation gone": (_with(_claim(), "metadata", annotations={"a": "b"}), _claim(), ""),
    "a finalizer": (_claim(), _claim(finalizers=("x.io/y",)), ""),
    "a finalizer gone": (_claim(finalizers=(FINALIZER,)), _claim(), ""),
    "devices unmarked": (
        _claim(marked=False),
        _claim(marked=False, allocation=ALLOCATION),
        "status",
    ),
    "devices and mark at once": (_claim(marked=False), _claim(allocation=ALLOCATION), "status"),
    "other devices": (
        _claim(allocation=ALLOCATION),
        _claim(allocation=OTHER_ALLOCATION),
        "status",
    ),
    "another's devices": (
        _claim(marked=False, allocation=ALLOCATION),
        _claim(marked=False),
        "status",
    ),
    "devices in use": (
        _claim(allocation=ALLOCATION, reservedFor=[USER, OTHER_USER]),
        _claim(),
        "status",
    ),
    "a reservation dropped": (
        _claim(allocation=ALLOCATION, reservedFor=[USER, OTHER_USER]),
        _claim(allocation=ALLOCATION, reservedFor=[USER]),
        "status",
    ),
    "a reservation of no pod": (
        _claim(allocation=ALLOCATION),
        _claim(allocation=ALLOCATION, reservedFor=[{**USER, "resource": "nodes"}]),
        "status",
    ),
    "a driver's words": (_claim(), _claim(devices=[{"driver": "d", "data": {}}]), "status"),
    "a status of tomorrow": (_claim(), _claim(someday=1), "status"),
    "a driver's words gone": (_claim(devices=[{"driver": "d"}]), _claim(), "status"),
}


@pytest.mark.parametrize(
    ("old", "new", "sub"), FORBIDDEN_OF_CLAIMS.values(), ids=FORBIDDEN_OF_CLAIMS.keys()
)
def test_nothing_else_of_a_claim_may_be_changed(old: Tree, new: Tree, sub: str) -> None:
    assert len(_on_claim(old, new, sub)) >= 1


@pytest.mark.parametrize("operation", ["CREATE", "DELETE"])
def test_claims_are_neither_made_nor_deleted(operation: str) -> None:
    asked = Asked("resourceclaims", operation, _claim(), None, group="resource.k8s.io")
    assert len(refused(asked)) == 1


def test_every_rule_refuses_something_that_no_other_rule_does() -> None:
    """A rule that could be left out would be one that no test here holds to."""
    alone = {said[0] for case in FORBIDDEN_OF_CLAIMS.values() if len(said := _on_claim(*case)) == 1}
    (rules,) = [one.validations for one in policies() if one.name == "gangplan-claims"]
    assert alone == {message for message, _ in rules}
