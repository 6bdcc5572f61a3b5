"""The rights that ``deploy/`` grants are those that the program needs, and nothing more."""

from __future__ import annotations

import re
from itertools import product

import pytest
import yaml
from deploying import ACCOUNT, DEPLOY, TENANT, built, granted, shipped

from planner.cluster import rights
from planner.cluster.rights import VIEW, describe, role_of, snapshot_rights
from planner.cluster.transport import Right


def needed(
    *, evictions: bool = False, backend: str = "annotation", placing: bool = False
) -> set[Right]:
    """For everything that a ``run`` may send."""
    work = rights.work_rights([TENANT], evictions=evictions, backend=backend, resized=[TENANT])
    lock = {*rights.lock_rights("gangplan-system")}
    found = {*snapshot_rights(), *VIEW, *lock, *work}
    return found | set(rights.PLACING if placing else ())


def test_what_is_shipped_is_what_is_needed_and_nothing_more() -> None:
    grants = granted(shipped())
    assert len(grants) == len(set(grants))
    every = needed(evictions=True, backend="dra", placing=True) | set(rights.GATE)
    every |= needed(backend="kai")
    assert set(map(describe, grants)) == set(map(describe, every))
    assert set(grants) == every
    for right in grants:
        assert "*" not in (right.verb, right.group, right.resource, right.subresource)
    # resourceclaims/binding is asked for without a namespace, and allows nothing by itself
    wide = {describe(one) for one in grants if one.namespace is None}
    changing = {one for one in wide if not one.startswith(("list ", "get "))}
    assert changing == {
        "patch nodes",
        "patch provisioningrequests/status of autoscaling.x-k8s.io in all namespaces",
        "patch resourceclaims/binding of resource.k8s.io in all namespaces",
    }


@pytest.mark.parametrize("folder", ["default", "watch"])
def test_without_evictions_and_claims_their_rights_are_not_given(folder: str) -> None:
    """To watch needs no more rights than to run."""
    grants = granted((*built(folder), *built("tenants/example")))
    assert set(grants) == needed()
    assert not {"pods/eviction", "resourceclaims/status", "bindrequests/"} & {
        f"{right.resource}/{right.subresource}" for right in grants
    }


RULES = """rules:
# the uid of kube-system is the cluster's identity
- apiGroups: [""]
  resources: ["namespaces"]
  resourceNames: ["kube-system"]
  verbs: ["get"]
"""


def test_the_role_that_reads_has_a_rule_for_every_kind(request: pytest.FixtureRequest) -> None:
    """From the tables of kinds, a rule a group."""
    groups: dict[str, dict[str, None]] = {}
    for right in (*snapshot_rights(), *VIEW):
        if right.verb == "list":
            groups.setdefault(right.group, {})[right.resource] = None
    rules = "".join(
        f'- apiGroups: ["{group}"]\n  resources:\n'
        + "".join(f"  - {one}\n" for one in plurals)
        + '  verbs: ["list"]\n'
        for group, plurals in groups.items()
    )
    path = DEPLOY / "base" / "reading.yaml"
    head, _, rest = path.read_text().partition("rules:\n")
    text = f"{head}{RULES}{rules}---\n{rest.partition('---')[2].lstrip()}"
    if request.config.getoption("--refresh-golden"):
        path.write_text(text)
    assert path.read_text() == text, "a new kind? see --refresh-golden"


def test_every_right_is_said_to_come_from_the_role_that_grants_it() -> None:
    for tree in shipped():
        for rule in tree.get("rules", ()):
            for verb, group, resource in product(
                rule["verbs"], rule["apiGroups"], rule["resources"]
            ):
                plural, _, sub = resource.partition("/")
                assert role_of(Right(verb, group, plural, sub, "x")) == tree["metadata"]["name"]


def test_the_documented_rights_of_a_snapshot_are_those_of_the_reading_role() -> None:
    text = (DEPLOY.parent / "docs" / "snapshot.md").read_text()
    blocks = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    trees = [tree for block in blocks for tree in yaml.safe_load_all(block)]
    (role,) = [tree for tree in trees if tree.get("kind") == "ClusterRole"]
    ref = {"kind": "ClusterRole", "name": role["metadata"]["name"]}
    binding = {"kind": "ClusterRoleBinding", "metadata": {}, "roleRef": ref, "subjects": [ACCOUNT]}
    reading = {one for one in granted(built("base")) if one.namespace is None}
    assert set(granted([role, binding])) == reading
