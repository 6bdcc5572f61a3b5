"""403 in the middle of an apply: for a moment after the API server restarted, or because a right is gone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from apiserver import Answer, Call, FakeCluster
from apply_runs import Bench, a_cluster, bench, placed
from effort import spread

GANGS = tuple((name, 2, 1) for name in "abcdefghij")
ROLE: dict[str, Any] = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRole",
    "metadata": {"name": "all"},
    "rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}],
}


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    """Ten gangs of two pods, and an account that may do everything."""
    cluster = a_cluster(gangs=GANGS)
    cluster.put(ROLE)
    cluster.put(
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "all"},
            "roleRef": {"kind": "ClusterRole", "name": "all"},
            "subjects": [{"kind": "User", "name": "gangplan"}],
        }
    )
    cluster.add_user("t", "gangplan")
    with bench(cluster, tmp_path, monkeypatch) as found:
        found.user = "gangplan"
        yield found


class At:
    """Does something at the ``at``-th request that needs a right, other than the first reviews."""

    def __init__(self, made: Bench, at: int) -> None:
        self.at, self.seen, self.met = at, 0, False
        self.cluster: FakeCluster = made.cluster
        made.cluster.before.append(self)

    def __call__(self, call: Call) -> Answer | None:
        self.seen += call.user is not None and "/pods" in call.path
        if self.seen == self.at and not self.met:
            self.met = True
            self.happen()
        return None

    def happen(self) -> None:
        raise NotImplementedError


class Restart(At):
    """The API server restarts: the next three questions about rights are denied."""

    def happen(self) -> None:
        self.cluster.rights.unread = 3


class Loss(At):
    """The account may still read and keep its lock, and start nothing."""

    verbs = ("get", "list")

    def happen(self) -> None:
        lock = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["*"]}
        read = {"apiGroups": ["*"], "resources": ["*"], "verbs": list(self.verbs)}
        self.cluster.put({**ROLE, "rules": [lock, read]})


class TotalLoss(Loss):
    """The account may not even read any more."""

    verbs = ()


def half_way(made: Bench) -> set[str]:
    """Gangs with one of their two pods bound."""
    bound = [name[0] for name, node in made.bound().items() if node is not None]
    return {name for name in bound if bound.count(name) == 1}


@pytest.mark.parametrize("at", spread(range(3, 30), 7))
def test_a_restart_at_any_request_changes_nothing(made: Bench, at: int) -> None:
    plan = made.plan()
    restart = Restart(made, at)
    said = made.apply(plan)
    assert (said.code, restart.met, made.cluster.rights.unread) == (0, True, 0), said.err
    assert made.bound() == placed(plan)


@pytest.mark.parametrize("loss", [Loss, TotalLoss])
@pytest.mark.parametrize("at", [4, 9, 17])
def test_rights_lost_in_mid_gang_are_called_that_and_the_same_command_resumes(
    made: Bench, at: int, loss: type[Loss]
) -> None:
    plan = made.plan()
    lost = loss(made, at)
    said = made.apply(plan)
    assert lost.met
    assert said.code == 7, said.err
    assert "not permitted: " in said.out + said.err
    assert 'User "gangplan" cannot ' in said.out + said.err
    assert "does not answer" not in said.out + said.err
    assert len(half_way(made)) <= 8

    made.cluster.put(ROLE)
    made.cluster.advance(120)  # the lock may not have been released
    said = made.apply(plan)
    assert said.code == 0, said.err
    assert made.bound() == placed(plan)


def test_a_right_that_stays_lost_is_waited_for_once(made: Bench) -> None:
    """Four more tries of one request, not of each."""
    plan = made.plan()
    Loss(made, 4)
    made.apply(plan)
    refused: dict[str, int] = {}
    for call in made.cluster.calls:
        if call.answer is not None and call.answer[0] == 403:
            key = call.method + call.path.rpartition("/")[2]
            refused[key] = refused.get(key, 0) + 1
    assert max(refused.values()) >= 5
    assert sum(count > 3 for count in refused.values()) <= 2


def test_without_the_right_from_the_start_nothing_is_written(made: Bench) -> None:
    plan = made.plan()
    Loss(made, 0).happen()
    said = made.apply(plan)
    assert (said.code, made.written()) == (77, [])
    assert "not permitted: " in said.err


def test_a_refusal_of_an_admission_plugin_is_no_lost_right(made: Bench) -> None:
    """It is reported as it is, and not asked again."""
    plan = made.plan()
    tries: list[str] = []

    def refuses(call: Call) -> Answer | None:
        if call.method != "PATCH" or not call.path.endswith("/pods/b-0"):
            return None
        tries.append(call.path)
        said = 'admission webhook "w.example.com" denied the request: no'
        return (
            403,
            {"kind": "Status", "status": "Failure", "reason": "Forbidden", "message": said},
            {},
        )

    made.cluster.before.append(refuses)
    said = made.apply(plan)
    assert said.code == 7
    assert 'admission webhook "w.example.com" denied the request: no' in said.out
    assert "not permitted" not in said.out + said.err
    assert len(tries) <= 2
