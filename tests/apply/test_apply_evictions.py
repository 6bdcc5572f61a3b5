"""Plans that stop, shrink or move what runs: withheld, or carried out through the Eviction API."""

from __future__ import annotations

import pytest
from apiserver import FakeCluster
from apply_runs import OWN, TOLERATE, Bench, OnCluster, Tree

pytest_plugins = ("apply_fixtures",)

PREEMPTIBLE = {"gangplan.dev/preemptible": "true"}


def contested(**low: object) -> FakeCluster:
    """Two nodes of 8 GPUs, held by the two pods of low; high wants both, with priority 1000."""
    cluster = FakeCluster()
    for name in ("n1", "n2"):
        cluster.add_node(name, taints=[OWN])
    given = {"nodes": ["n1", "n2"], "tolerations": TOLERATE, "annotations": PREEMPTIBLE, **low}
    cluster.gang_of_pods("low", 2, **given)
    cluster.gang_of_pods("high", 2, priority=1000, tolerations=TOLERATE)
    cluster.add_namespace("gangplan-system")
    return cluster


@pytest.fixture
def fight(on_cluster: OnCluster) -> Bench:
    return on_cluster(contested())


def guard(fight: Bench, name: str = "b", **spec: object) -> None:
    """A budget over the pods of low."""
    spec["selector"] = {"matchLabels": {"batch.kubernetes.io/job-name": "low"}}
    about = {"name": name, "namespace": "default"}
    kind = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget"}
    fight.cluster.create({**kind, "metadata": about, "spec": spec})


WITHHELD = (7, {"high": "withheld", "low": "withheld"})


def test_gangs_are_evicted_with_leave_only_and_as_many_pods_as_allowed(fight: Bench) -> None:
    """One of two is not enough: half of low is of no use to high. The winner starts once they are gone."""
    plan = fight.plan()
    assert fight.outcomes(plan) == WITHHELD
    assert fight.outcomes(plan, "--allow-evictions", "--max-evictions", "1") == WITHHELD
    assert fight.written() == []
    code, found = fight.outcomes(plan, "--allow-evictions", "--max-evictions", "2")
    assert (code, found) == (0, {"high": "started", "low": "stopped"})
    assert fight.bound() == {"high-0": "n1", "high-1": "n2"}
    evictions = [call for call in fight.cluster.writes if call.path.endswith("/eviction")]
    assert [call.path.split("/")[-2] for call in evictions] == ["low-0", "low-1"]
    assert all(call.body["deleteOptions"]["preconditions"]["uid"] for call in evictions)
    accepted = ["|".join(given["accept"]) for given in fight.opened]
    assert ["eviction" in patterns for patterns in accepted] == [False, True, True], "of the proxy"


def test_the_winner_waits_for_pods_that_take_their_time(on_cluster: OnCluster) -> None:
    """Terminating pods hold their room: nothing of high is started before they are gone."""
    made = on_cluster(contested(grace=30))
    plan = made.plan()
    said = made.apply(plan, "--allow-evictions")
    assert said.code == 7
    assert "not gone yet" in said.out
    assert made.cluster.pod("high-0")["spec"].get("nodeName") is None
    assert "resumes" in said.err or "once there is room" in said.err
    for name in ("low-0", "low-1"):
        made.cluster.remove("Pod", name)
    assert made.apply(plan, "--allow-evictions").code == 0
    assert made.bound() == {"high-0": "n1", "high-1": "n2"}


def test_pods_that_come_back_wait_and_the_winner_keeps_its_place(on_cluster: OnCluster) -> None:
    made = on_cluster(contested(comes_back=True))
    plan = made.plan()
    assert made.apply(plan, "--allow-evictions").code == 0
    assert made.bound() == {"high-0": "n1", "high-1": "n2", "low-0": None, "low-1": None}
    before = made.written()
    assert made.apply(plan, "--allow-evictions").code == 0
    assert made.written() == before


def test_the_question_tells_what_is_withheld_and_what_is_evicted(fight: Bench) -> None:
    plan = fight.plan()
    without = fight.run("apply", str(plan), answers=b"n\n")
    with_leave = fight.run("apply", str(plan), "--allow-evictions", answers=b"n\n")
    # the question is folded where the terminal ends
    assert "2 gangs withheld without --allow-evictions)?" in " ".join(without.err.split())
    assert "withheld without --allow-evictions: needs the room of default/low" in without.out
    assert "(2 pods to start, 2 to stop)?" in " ".join(with_leave.err.split())
    assert "    needs the room of default/low" in with_leave.out


def test_a_dry_run_asks_for_evictions_too(fight: Bench) -> None:
    plan = fight.plan()
    said = fight.run("apply", str(plan), "--dry-run", "server", "--allow-evictions", "-o", "json")
    evictions = [call for call in fight.cluster.calls if call.path.endswith("/eviction")]
    assert said.code == 0
    assert [call.query["dryRun"] for call in evictions] == ["All", "All"]
    assert fight.bound()["low-0"] == "n1"


def test_a_preview_tells_evictions(fight: Bench) -> None:
    plan = fight.plan()
    said = fight.run("apply", "--dry-run=client", str(plan))
    allowed = fight.run("apply", "--dry-run=client", "--allow-evictions", str(plan))
    following = f"next: gangplan apply --allow-evictions {plan}"
    withheld = "0 pods to start, 0 to stop; 2 gangs withheld without --allow-evictions"
    assert said.err.splitlines()[-2:] == [withheld, following]
    assert "withheld without --allow-evictions: stops 2 pods" in said.out
    assert allowed.err.splitlines()[-2:] == ["2 pods to start, 2 to stop", following]
    assert "needs the room of default/low" in allowed.out


def test_a_gang_that_moves_starts_again_where_the_plan_says(on_cluster: OnCluster) -> None:
    """Two small gangs on two nodes leave no whole node for wide; one of them moves to the other.

    n1: left-0 (4 of 8), n2: right-0 (4 of 8); wide wants 8 on one node.
    """
    cluster = FakeCluster()
    movable = {"annotations": {"gangplan.dev/movable": "true"}, "comes_back": True}
    for name, node in (("left", "n1"), ("right", "n2")):
        cluster.add_node(node, taints=[OWN])
        cluster.gang_of_pods(name, 1, gpus=4, nodes=[node], tolerations=TOLERATE, **movable)
    cluster.gang_of_pods("wide", 1, priority=10, tolerations=TOLERATE)
    cluster.add_namespace("gangplan-system")
    made = on_cluster(cluster)
    code, found = made.outcomes(made.plan(), "--allow-evictions")
    where = made.bound()
    assert (code, found["wide"]) == (0, "started"), found
    assert where["left-0"] == where["right-0"]
    assert {where["left-0"], where["wide-0"]} == {"n1", "n2"}


# ---- disruption budgets


def test_apply_and_its_dry_runs_say_alike_that_a_budget_withholds_a_gang(fight: Bench) -> None:
    """One of two pods may go; the server's dry runs would allow both, one by one."""
    plan = fight.plan()
    guard(fight, minAvailable=1)
    why = "the disruption budget default/b allows 1 of 2 evictions"
    for more in (["--dry-run", "server"], []):
        said = fight.apply(plan, "--allow-evictions", "-o", "json", *more)
        found = {gang["name"]: (gang["outcome"], gang["why"]) for gang in said.data()["gangs"]}
        assert said.code == 7
        assert found == {"high": ("withheld", why), "low": ("withheld", why)}
        assert "once there is room and disruption budgets allow it" in said.err
    said = fight.run("apply", "--dry-run=client", str(plan))
    assert f"withheld: gang default/high: {why}" in said.err
    assert not [call for call in fight.cluster.calls if call.path.endswith("/eviction")]


def test_a_pod_in_two_budgets_is_never_evicted(fight: Bench) -> None:
    plan = fight.plan()
    guard(fight, "b", minAvailable=0)
    guard(fight, "c", minAvailable=0)
    said = fight.apply(plan, "--allow-evictions")
    assert said.code == 7
    assert "is in the disruption budgets b and c" in said.out
    assert fight.written() == []


def test_pods_that_go_count_against_the_budget(on_cluster: OnCluster) -> None:
    """Somebody else has evicted low-0, which takes its time: one more is too many."""
    made = on_cluster(contested(grace=30))
    plan = made.plan()
    guard(made, minAvailable=1)
    path = "/api/v1/namespaces/default/pods/low-0/eviction"
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "low-0"}}
    assert made.cluster.handle("POST", path, body)[0] == 201
    said = made.apply(plan, "--allow-evictions")
    assert said.code == 7
    assert "the disruption budget default/b allows 0 of 1 evictions" in said.out


@pytest.mark.parametrize(
    ("policy", "unready", "code"),
    [
        ("AlwaysAllow", ["low-0", "low-1"], 0),
        ("IfHealthyBudget", ["low-0", "low-1"], 7),
        ("IfHealthyBudget", ["low-1"], 7),
    ],
)
def test_unready_pods_go_as_the_budget_says(
    fight: Bench, policy: str, unready: list[str], code: int
) -> None:
    """minAvailable 1: with two unready pods the budget is not healthy, with one low-0 has to stay."""
    plan = fight.plan()
    guard(fight, minAvailable=1, unhealthyPodEvictionPolicy=policy)

    def unhealthy(tree: Tree) -> Tree:
        conditions = [{**one, "status": "False"} for one in tree["status"]["conditions"]]
        return {**tree, "status": {**tree["status"], "conditions": conditions}}

    for name in unready:
        fight.cluster.change("Pod", name, unhealthy)
    said = fight.apply(plan, "--allow-evictions")
    assert said.code == code, said.out
    evicted = [path for _, path in fight.written() if path.endswith("/eviction")]
    assert len(evicted) == (2 if code == 0 else 0)
