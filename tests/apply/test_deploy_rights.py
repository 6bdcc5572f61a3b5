from __future__ import annotations

from itertools import product

import pytest
from deploying import DEPLOY, TENANT, built, granted, run_rights, shipped

from planner.cluster.rights import VIEW, describe, role_of, snapshot_rights
from planner.cluster.transport import Right

LOCK = "gangplan-system"
PARTS = ("verbs", "apiGroups", "resources")


def _needed(*, evictions: bool = False, backend: str = "annotation") -> list[Right]:
    return list(run_rights([TENANT], lock_namespace=LOCK, evictions=evictions, backend=backend))


def test_what_is_shipped_is_what_is_needed_and_nothing_more() -> None:
    grants = granted(shipped())
    assert len(grants) == len(set(grants))
    assert set(map(describe, grants)) == set(map(describe, _needed(evictions=True, backend="dra")))
    assert set(grants) == set(_needed(evictions=True, backend="dra"))


RULES = """rules:
# the uid of kube-system is the cluster's identity
- apiGroups: [""]
  resources: ["namespaces"]
  resourceNames: ["kube-system"]
  verbs: ["get"]
"""


def reading_rules() -> str:
    """The rules of the role that reads, from the tables of kinds; a rule a group."""
    groups: dict[str, dict[str, None]] = {}
    for right in (*snapshot_rights(), *VIEW):
        if right.verb == "list":
            groups.setdefault(right.group, {})[right.resource] = None
    rules = (
        f'- apiGroups: ["{group}"]\n  resources:\n'
        + "".join(f"  - {one}\n" for one in plurals)
        + '  verbs: ["list"]\n'
        for group, plurals in groups.items()
    )
    return RULES + "".join(rules)


def test_the_role_that_reads_has_a_rule_for_every_kind(request: pytest.FixtureRequest) -> None:
    path = DEPLOY / "base" / "reading.yaml"
    head, _, rest = path.read_text().partition("rules:\n")
    text = f"{head}{reading_rules()}---\n{rest.partition('---')[2].lstrip()}"
    if request.config.getoption("--refresh-golden"):
        path.write_text(text)
    assert path.read_text() == text, "a new kind? see --refresh-golden"


def test_without_evictions_and_claims_their_rights_are_not_given() -> None:
    grants = granted((*built("default"), *built("tenants/example")))
    assert set(grants) == set(_needed())
    assert not {"pods/eviction", "resourceclaims/status"} & {
        f"{right.resource}/{right.subresource}" for right in grants
    }


def test_to_watch_needs_no_more_rights_than_to_run() -> None:
    grants = granted((*built("watch"), *built("tenants/example")))
    assert set(grants) == set(_needed())


def test_no_right_of_changing_anything_is_given_in_all_namespaces() -> None:
    # resourceclaims/binding is asked for without a namespace, and allows nothing by itself
    wide = {describe(one) for one in granted(shipped()) if one.namespace is None}
    changing = {one for one in wide if not one.startswith(("list ", "get namespaces kube-system"))}
    assert changing == {"patch resourceclaims/binding of resource.k8s.io in all namespaces"}


def test_every_right_is_said_to_come_from_the_role_that_grants_it() -> None:
    for tree in shipped():
        for rule in tree.get("rules", ()):
            for verb, group, resource in product(*(rule[k] for k in PARTS)):
                plural, _, sub = resource.partition("/")
                assert role_of(Right(verb, group, plural, sub, "x")) == tree["metadata"]["name"]


def test_no_rule_holds_a_wildcard() -> None:
    for right in granted(shipped()):
        assert "*" not in (right.verb, right.group, right.resource, right.subresource)


def test_the_documented_rights_of_a_snapshot_are_those_of_the_reading_role() -> None:
    import re
    from pathlib import Path

    import yaml

    text = (Path(__file__).parents[2] / "docs" / "snapshot.md").read_text()
    (role,) = [
        tree
        for block in re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
        for tree in yaml.safe_load_all(block)
        if tree.get("kind") == "ClusterRole"
    ]
    binding = {
        "kind": "ClusterRoleBinding",
        "metadata": {},
        "roleRef": {"kind": "ClusterRole", "name": role["metadata"]["name"]},
        "subjects": [
            {"kind": "ServiceAccount", "name": "gangplan", "namespace": "gangplan-system"}
        ],
    }
    reading = {one for one in granted(built("base")) if one.namespace is None}
    assert set(granted([role, binding])) == reading
