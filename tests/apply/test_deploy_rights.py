"""The rights that ``deploy/`` grants are those that the program needs, and nothing more."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable

import pytest
import yaml
from deploying import ACCOUNT, DEPLOY, TENANT, built, granted, shipped

from planner.cluster import rights
from planner.cluster.rights import VIEW, describe, role_of, snapshot_rights
from planner.cluster.transport import Right


def needed(
    *, evictions: bool = False, backend: str = "annotation", placing: bool = False
) -> dict[Right, None]:
    """For everything that a ``run`` may send, in the order of the tables."""
    work = rights.work_rights([TENANT], evictions=evictions, backend=backend, resized=[TENANT])
    lock = rights.lock_rights("gangplan-system")
    found = (*snapshot_rights(), *VIEW, *lock, *work, *(rights.PLACING if placing else ()))
    return dict.fromkeys(found)


def every() -> dict[Right, None]:
    """For everything that any of the verbs may send, on any cluster."""
    found = needed(evictions=True, backend="dra", placing=True) | needed(backend="kai")
    return found | dict.fromkeys(rights.GATE)


def test_what_is_shipped_is_what_is_needed_and_nothing_more() -> None:
    grants = granted(shipped())
    assert len(grants) == len(set(grants))
    assert set(map(describe, grants)) == set(map(describe, every()))
    assert set(grants) == set(every())
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
    assert set(grants) == set(needed())
    assert not {"pods/eviction", "resourceclaims/status", "bindrequests/"} & {
        f"{right.resource}/{right.subresource}" for right in grants
    }


def rules(rights: Iterable[Right]) -> str:
    """Of a role: a rule for all resources of a group with the same verbs."""
    verbs: dict[tuple[str, str, str], dict[str, None]] = {}
    for right in rights:
        resource = "/".join(filter(None, (right.resource, right.subresource)))
        verbs.setdefault((right.group, resource, right.name), {})[right.verb] = None
    alike: dict[tuple[str, str, tuple[str, ...]], list[str]] = {}
    for (group, resource, name), may in verbs.items():
        alike.setdefault((group, name, tuple(may)), []).append(resource)
    text = "rules:\n"
    for (group, name, may), resources in alike.items():
        text += f'- apiGroups: ["{group}"]\n  resources:'
        lines = "".join(f"\n  - {one}" for one in resources)
        text += lines if len(resources) > 3 else f" {json.dumps(resources)}"
        text += f'\n  resourceNames: ["{name}"]' if name else ""
        text += f"\n  verbs: {json.dumps(may)}\n"
    return text


def test_every_role_is_written_from_the_table_of_rights(request: pytest.FixtureRequest) -> None:
    table: dict[str, list[Right]] = {}
    for right in every():
        table.setdefault(role_of(right), []).append(right)
    for path in sorted(DEPLOY.rglob("*.yaml")):
        parts = path.read_text().split("---\n")
        made = list(parts)
        for number, part in enumerate(parts):
            head = part.partition("rules:\n")[0]
            if re.search(r"^kind: (Cluster)?Role$", head, re.MULTILINE):
                name = yaml.safe_load(head)["metadata"]["name"]
                made[number] = head + rules(table.pop(name))
        if request.config.getoption("--refresh-golden"):
            path.write_text("---\n".join(made))
        assert path.read_text() == "---\n".join(made), (
            f"{path.name}: another right? see --refresh-golden"
        )
    assert not table


def test_the_documented_rights_of_a_snapshot_are_those_of_the_reading_role() -> None:
    text = (DEPLOY.parent / "docs" / "snapshot.md").read_text()
    blocks = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    trees = [tree for block in blocks for tree in yaml.safe_load_all(block)]
    (role,) = [tree for tree in trees if tree.get("kind") == "ClusterRole"]
    ref = {"kind": "ClusterRole", "name": role["metadata"]["name"]}
    binding = {"kind": "ClusterRoleBinding", "metadata": {}, "roleRef": ref, "subjects": [ACCOUNT]}
    reading = {one for one in granted(built("base")) if one.namespace is None}
    assert set(granted([role, binding])) == reading
