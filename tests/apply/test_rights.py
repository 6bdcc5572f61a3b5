from __future__ import annotations

import re
from dataclasses import dataclass, field

import pytest
from msgspec import structs

from models.apply.plan_actions import GangActions, PlanActions, PodStart, PodStop, Resize
from planner.cluster.rights import (
    OPTIONAL,
    describe,
    missing_rights,
    not_permitted,
    plan_rights,
    require,
    require_run,
    snapshot_rights,
)
from planner.cluster.transport import JSON, Reply, Right, Tree, accepted
from planner.errors import NotPermittedError, UnavailableError


@dataclass
class Reviewer:
    """Answers SelfSubjectAccessReviews: everything is allowed but ``denied``."""

    denied: set[Right] = field(default_factory=set)
    reply: Reply | None = None
    asked: list[Tree] = field(default_factory=list)

    def send(
        self, method: str, path: str, body: Tree | None = None, *, content_type: str = JSON
    ) -> Reply:
        assert (method, content_type) == ("POST", JSON)
        assert path == "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        assert body is not None
        attributes = body["spec"]["resourceAttributes"]
        self.asked.append(attributes)
        if self.reply is not None:
            return self.reply
        words = ("verb", "group", "resource", "subresource", "namespace", "name")
        none = {"namespace": None}
        right = Right(*(attributes.get(word, none.get(word, "")) for word in words))
        return Reply(201, {"status": {"allowed": right not in self.denied}})


def _pod(namespace: str, name: str) -> PodStart:
    return PodStart(namespace, name, f"u-{name}", "worker", 0, "n1", None, 8)


def _orders(*gangs: GangActions) -> PlanActions:
    plan = "gp-" + "0" * 20
    return PlanActions(plan, "uid", 1_795_219_200, "g", "annotation", gangs, ())


PLACE = GangActions("a", "g", "place", 0, starts=(_pod("a", "p"),))
STOP = GangActions("b", "h", "preempt", 0, stops=(PodStop("b", "v", "u", "worker", 0, "n1", 8),))


def _worded(*gangs: GangActions, evictions: bool = False, backend: str = "annotation") -> list[str]:
    rights = plan_rights(_orders(*gangs), lock_namespace="l", evictions=evictions, backend=backend)
    return [describe(right) for right in rights]


def test_apply_machine_needs_to_read_to_lock_and_to_start_pods_where_the_plan_starts_some() -> None:
    assert _worded(PLACE) == [
        "get namespaces kube-system",
        "list nodes",
        "list pods in all namespaces",
        "list resourceslices.resource.k8s.io",
        "list resourceclaims.resource.k8s.io in all namespaces",
        "list deviceclasses.resource.k8s.io",
        "create leases.coordination.k8s.io in namespace l",
        "get leases.coordination.k8s.io gangplan in namespace l",
        "update leases.coordination.k8s.io gangplan in namespace l",
        *(
            f"{verb} configmaps in namespace l"
            for verb in ("list", "get", "create", "update", "delete")
        ),
        "get pods in namespace a",
        "patch pods in namespace a",
    ]


def test_evicting_is_needed_only_where_pods_go_and_it_is_allowed() -> None:
    orders, more = _orders(PLACE, STOP), {"lock_namespace": "l", "backend": "none"}
    for evictions, undoing, namespaces in (
        (False, False, []),
        (True, False, ["b"]),
        (True, True, ["a", "b"]),
    ):
        rights = plan_rights(orders, evictions=evictions, undoing=undoing, **more)
        assert [one.namespace for one in rights if one.subresource == "eviction"] == namespaces


def test_scales_are_set_only_where_a_gang_is_resized_and_evicting_is_allowed() -> None:
    resize = structs.replace(PLACE, decision="resize", resizes=(Resize("worker", 4, 2),))
    assert _worded(resize) == _worded(PLACE)
    assert _worded(PLACE, evictions=True) == _worded(PLACE)
    extra = [one for one in _worded(resize, evictions=True) if "apps" in one]
    assert len(extra) == 9  # get, get scale and patch scale of three kinds
    assert extra[-1] == "patch deployments/scale of apps in namespace a"


def test_claims_are_written_only_by_the_back_end_that_has_them() -> None:
    extra = [one for one in _worded(PLACE, backend="dra") if one not in _worded(PLACE)]
    assert extra == [
        "get resourceclaims.resource.k8s.io in namespace a",
        "patch resourceclaims.resource.k8s.io in namespace a",
        "patch resourceclaims/status of resource.k8s.io in namespace a",
        "patch resourceclaims/binding of resource.k8s.io in all namespaces",
    ]


def test_reading_asks_only_for_groups_that_are_served() -> None:
    groups = {right.group for right in snapshot_rights({"apps", "jobset.x-k8s.io"})}
    assert groups == {"", "apps", "jobset.x-k8s.io"}
    assert {"ray.io", "kueue.x-k8s.io"} < {right.group for right in snapshot_rights()}


def test_the_roles_to_bind_are_named_with_their_namespaces() -> None:
    rights = plan_rights(
        _orders(PLACE, structs.replace(PLACE, namespace="b")),
        lock_namespace="l",
        evictions=False,
        backend="dra",
    )
    claims = [right for right in rights if right.resource == "resourceclaims"]
    error = not_permitted([right for right in claims if right.verb != "list"])
    (fault,) = error.faults
    assert fault.hint is not None
    roles = "bind gangplan-allocating in namespace a and b, gangplan-reserving; "
    assert fault.hint.startswith(roles)


def test_what_is_demanded_and_missing_ends_the_run_with_77() -> None:
    patch = Right("patch", "", "pods", namespace="a")
    with pytest.raises(NotPermittedError) as caught:
        require(Reviewer({patch}), [patch])
    (fault,) = caught.value.faults
    assert fault.what == "not permitted: patch pods in namespace a"
    assert fault.hint == (
        "bind gangplan-starting in namespace a; gangplan doctor lists all missing rights"
    )


def test_a_server_that_does_not_say_is_no_permission() -> None:
    rights = [Right("list", "", "nodes")]
    for reply in (Reply(0, why="connection reset"), Reply(500), Reply(201, {"status": "yes"})):
        with pytest.raises(UnavailableError, match="cannot check the right to list nodes"):
            missing_rights(Reviewer(reply=reply), rights)
    odd = Reply(201, {"status": {"allowed": "true"}})
    assert missing_rights(Reviewer(reply=odd), rights) == rights


def test_what_only_makes_a_plan_better_is_not_demanded_of_a_run() -> None:
    denied = set(OPTIONAL)
    require_run(Reviewer(denied), None, (), "l")
    with pytest.raises(NotPermittedError, match="not permitted: list pods in all namespaces"):
        require_run(Reviewer({*denied, Right("list", "", "pods")}), None, (), "l")


LEASES = "/apis/coordination.k8s.io/v1/namespaces/l/leases"


@pytest.mark.parametrize(
    ("right", "through", "kept"),
    [
        (
            Right("get", "", "pods", namespace="a"),
            ["/api/v1/namespaces/a/pods/p"],
            ["/api/v1/namespaces/b/pods/p", "/api/v1/namespaces/a/pods", "/api/v1/pods/p/x"],
        ),
        (
            Right("create", "", "pods", "eviction", namespace="a"),
            ["/api/v1/namespaces/a/pods/p/eviction"],
            ["/api/v1/namespaces/a/pods/p", "/api/v1/namespaces/a/pods/p/exec"],
        ),
        (
            Right("update", "coordination.k8s.io", "leases", namespace="l", name="gangplan"),
            [f"{LEASES}/gangplan"],
            [
                f"{LEASES}/other",
                LEASES,
                "/apis/coordinationXk8s.io/v1/namespaces/l/leases/gangplan",
            ],
        ),
        (Right("create", "coordination.k8s.io", "leases", namespace="l"), [LEASES], ["/apis"]),
        (
            Right("list", "apps", "deployments"),
            [
                *("/apis/apps/v1/deployments", "/apis/apps/v1/namespaces/a/deployments"),
                *("/apis", "/apis/apps/v1", "/apis/apps/v1beta2/deployments"),
            ],
            ["/apis/apps/v1/deployments/d", "/apis/batch/v1", "/apis/apps/v1/../deployments"],
        ),
        (Right("list", "", "nodes"), ["/api/v1/nodes"], ["/api/v1/nodes/n1", "/apis", "/api/v1"]),
    ],
)
def test_the_proxy_lets_the_paths_of_rights_through_and_no_others(
    right: Right, through: list[str], kept: list[str]
) -> None:
    patterns = [re.compile(pattern) for pattern in accepted([right])]
    found = [path for path in through + kept if any(one.fullmatch(path) for one in patterns)]
    assert found == through
