"""``gangplan apply`` where it must not, or cannot wholly, do what the plan says; and rights that are lost."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from apiserver import Answer, Call, FakeCluster
from apply_runs import TOLERATE, Bench, OnCluster, Tree, a_cluster, bench, placed, refusing
from effort import spread
from plan_documents import sealed

from models.units import time_text

pytest_plugins = ("apply_fixtures",)


def edited(plan: Path, change: Callable[[Tree], object], *, seals: bool = False) -> None:
    document = json.loads(plan.read_text(encoding="utf-8"))
    change(document)
    plan.write_text(json.dumps(sealed(document) if seals else document), encoding="utf-8")


# ---- before the first write


def test_a_plan_that_does_not_hold_is_refused(gated: Bench) -> None:
    plan = gated.plan()
    edited(plan, lambda document: document["spec"]["gangs"][0]["pods"][0].update(node="n3"))
    assert (gated.apply(plan).code, gated.opened) == (5, [])


def looks_like_any(made: Bench, plan: Path, change: Callable[[Tree], object], why: str) -> None:
    """Edited so, the plan passes the verifier, and starts nothing."""
    edited(plan, change)
    assert made.apply(plan).code == 5, "its digest does not fit"
    edited(plan, lambda _: None, seals=True)
    assert made.run("verify", str(plan)).code == 0
    for words in (["--dry-run", "server"], []):
        said = made.apply(plan, *words)
        assert (said.code, made.written()) == (6, [])
        assert why in said.err


@pytest.mark.parametrize("mode", [None, "gate"])
def test_an_edited_what_if_starts_nothing(on_cluster: OnCluster, mode: str | None) -> None:
    """Whatever a file says: pods without the gate that are not gangplan's are no pods to start."""
    cluster = a_cluster(gangs=[("b", 2, 4)])
    together = {"scheduling.x-k8s.io/pod-group": "theirs"}
    for name in ("theirs-0", "theirs-1"):
        more = {"schedulerName": "volcano", "labels": together, "tolerations": TOLERATE}
        cluster.add_pod(name, gpus=4, **more)
    made = on_cluster(cluster)
    plan = made.plan("--scheduler", "all")
    assert placed(plan).keys() >= {"b-0", "theirs-0", "theirs-1"}

    def change(document: Tree) -> None:
        del document["instance"]["policy"]["spec"]["kubernetes"]["schedulerNames"]
        for gang in document["instance"]["gangs"]:
            if gang["status"].pop("scheduler", None) is not None and mode is not None:
                for pod in gang["status"]["pods"]:
                    pod["mode"] = mode

    looks_like_any(made, plan, change, "pod default/theirs-0 lost its gate")


def test_an_edited_plan_without_running_gangs_starts_nothing(
    on_cluster: OnCluster,
) -> None:
    """Whatever a file leaves out: the GPUs are counted on the live nodes again."""
    cluster = a_cluster(gangs=[("b", 2, 4)])
    for n in (1, 2, 3):
        cluster.add_pod(f"runs-{n}", gpus=8, node=f"n{n}", tolerations=TOLERATE)
    made = on_cluster(cluster)
    plan = made.plan("--without", "runs-1")
    assert set(placed(plan)) >= {"b-0", "b-1"}
    assert made.apply(plan).code == 65
    why = "node n1 has 0 free GPUs, the plan needs 8"
    looks_like_any(made, plan, lambda document: document["instance"].pop("whatIf"), why)


def test_a_plan_of_another_cluster_is_refused(
    gated: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = gated.plan()
    other = FakeCluster()
    other.change("Namespace", "kube-system", lambda tree: tree | {"metadata": {
        **tree["metadata"], "uid": "other"}})  # fmt: skip
    with bench(other, tmp_path, monkeypatch) as elsewhere:
        said = elsewhere.apply(plan)
    assert (said.code, other.writes) == (65, [])
    assert "this cluster has other" in said.err
    assert "--context" in said.err
    source, nameless = gated.folder / "plan.json.read", gated.folder / "nameless.json"
    (source / "identity.json").unlink()
    assert gated.run("plan", str(source), "--out", str(nameless)).code == 0
    said = gated.apply(nameless)
    assert (said.code, gated.opened) == (65, [])
    assert "which cluster" in said.err


@pytest.mark.parametrize(("age_s", "code"), [(3600, 0), (3601, 6), (-60, 0), (-61, 6)])
def test_ages_are_by_the_servers_clock(gated: Bench, age_s: int, code: int) -> None:
    """The server's now is fixed; clocks differ by a minute at most."""
    plan = gated.plan()
    made = time_text(int(gated.cluster.clock()) - age_s)
    edited(plan, lambda document: document["metadata"].update(createdAt=made))
    said = gated.apply(plan, "--max-age", "1h")
    assert said.code == code
    assert bool(gated.cluster.writes) is (code == 0)
    assert ("--max-age is 1h" in said.err) is (age_s == 3601)


def test_harmless_change_is_none_and_others_are_not_touched(gated: Bench) -> None:
    marked = {"labels": {"gangplan.dev/plan": "x"}, "tolerations": TOLERATE}
    gated.cluster.add_pod("stranger", gpus=0, node="n1", **marked)
    plan = gated.plan()
    for node in ("n1", "n2", "n3"):
        gated.cluster.touch("Node", node)
    for pod in ("a-0", "b-0"):
        gated.cluster.touch("Pod", pod)
    gated.cluster.gang_of_pods("later", 2, gpus=8, tolerations=TOLERATE)
    assert gated.apply(plan).code == 0
    assert not [path for _, path in gated.written() if "stranger" in path]


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        *[("--lock-namespace", name, "is not the name of a namespace")
          for name in ("../x", "", "UPPER", "a b")],
        ("--wait", "soon", "--wait"),
        ("--max-age", "1 fortnight", "--max-age"),
        ("--request-timeout", "0s", "--request-timeout"),
        ("--lock-timeout", "-1s", "--lock-timeout"),
    ],
)  # fmt: skip
def test_a_senseless_option_is_a_usage_error(
    gated: Bench, option: str, value: str, said: str
) -> None:
    found = gated.apply(gated.plan(), option, value)
    assert (found.code, gated.opened) == (64, []), found.err
    assert said in found.err


def test_who_holds_the_lock_is_said(gated: Bench) -> None:
    plan = gated.plan()
    notes = {
        "gangplan.dev/user": "ana",
        "gangplan.dev/host": "login1",
        "gangplan.dev/operation": "run",
    }
    held = {"holderIdentity": "4f2a9c01d7", "leaseDurationSeconds": 10**8}
    gated.cluster.put(
        {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": "gangplan", "namespace": "gangplan-system", "annotations": notes},
            "spec": held | {"renewTime": "2026-01-01T00:00:00.000000Z"},
        }
    )
    said = gated.apply(plan)
    assert (said.code, gated.written()) == (75, [])
    assert "ana@login1" in said.err
    assert "gangplan status --release 4f2a9c01d7" in said.err


# ---- part-way


def test_escape_codes_in_what_the_server_says_never_reach_the_terminal(gated: Bench) -> None:
    plan = gated.plan()
    said_no = "\x1b[31mred\x1b[0m\nnext: rm -rf /"
    gated.cluster.before.append(refusing("/pods/a-1", 422, said_no))
    for output in ("table", "json", "yaml", "name"):
        said = gated.apply(plan, "-o", output)
        assert said.code == 7
        assert "\x1b" not in said.out + said.err
        assert "\nnext: rm" not in said.out + said.err


def test_a_plan_named_like_an_option_can_be_typed_again(
    gated: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    (gated.folder / "--help").write_bytes(gated.plan().read_bytes())
    monkeypatch.chdir(gated.folder)
    said = gated.run("apply", "--dry-run", "server", "--", "--help")
    assert said.code == 0
    assert said.err.splitlines()[-1] == "next: gangplan apply -- --help"


# ---- rights: 403 for a moment after the API server restarted, or because a right is gone

RBAC = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": "all"}}
ROLE: Tree = RBAC | {
    "kind": "ClusterRole",
    "rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}],
}


@pytest.fixture
def made(ten: Bench) -> Bench:
    """Ten gangs of two pods, and an account that may do everything."""
    ten.cluster.put(ROLE)
    ref = {"kind": "ClusterRole", "name": "all"}
    subjects = [{"kind": "User", "name": "gangplan"}]
    ten.cluster.put(RBAC | {"kind": "ClusterRoleBinding", "roleRef": ref, "subjects": subjects})
    ten.cluster.tokens["t"] = "gangplan"
    ten.user = "gangplan"
    return ten


def at_request(made: Bench, at: int, deed: Callable[[FakeCluster], object]) -> list[int]:
    """The deed at the ``at``-th request about pods, other than the first reviews."""
    seen: list[int] = []

    def hook(call: Call) -> Answer | None:
        if call.user is not None and "/pods" in call.path:
            seen.append(call.number)
            if len(seen) == at:
                deed(made.cluster)
        return None

    made.cluster.before.append(hook)
    return seen


def restarts(cluster: FakeCluster) -> None:
    """The next three questions about rights are denied."""
    cluster.unread = 3


def loses(*verbs: str) -> Callable[[FakeCluster], object]:
    """The account may still keep its lock, and do only that with other objects."""
    lock = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["*"]}
    rest = {"apiGroups": ["*"], "resources": ["*"], "verbs": list(verbs)}
    return lambda cluster: cluster.put({**ROLE, "rules": [lock, rest]})


@pytest.mark.parametrize("at", spread(range(3, 23), 10))
def test_a_restart_at_any_request_changes_nothing(made: Bench, at: int) -> None:
    plan = made.plan()
    seen = at_request(made, at, restarts)
    said = made.apply(plan)
    assert (said.code, len(seen) >= at, made.cluster.unread) == (0, True, 0), said.err
    assert made.bound() == placed(plan)


@pytest.mark.parametrize(("at", "left"), [(4, ("get", "list")), (9, ()), (17, ("get", "list"))])
def test_rights_lost_in_mid_gang_are_told_and_it_resumes(
    made: Bench, at: int, left: tuple[str, ...]
) -> None:
    """A right that stays lost is waited for once: four more tries of one request, not of each."""
    plan = made.plan()
    seen = at_request(made, at, loses(*left))
    said = made.apply(plan)
    assert len(seen) >= at
    assert said.code == 7, said.err
    assert "not permitted: " in said.out + said.err
    assert 'User "gangplan" cannot ' in said.out + said.err
    assert "does not answer" not in said.out + said.err
    started = [name[0] for name, node in made.bound().items() if node is not None]
    assert sum(started.count(name) == 1 for name in set(started)) <= 8
    if at == 4:
        refused: dict[str, int] = {}
        for call in made.cluster.calls:
            if call.answer is not None and call.answer[0] == 403:
                key = call.method + call.path.rpartition("/")[2]
                refused[key] = refused.get(key, 0) + 1
        assert max(refused.values()) >= 5
        assert sum(count > 3 for count in refused.values()) <= 3  # of pods, and two of records

    made.cluster.put(ROLE)
    made.cluster.advance(120)  # the lock may not have been released
    assert made.apply(plan).code == 0
    assert made.bound() == placed(plan)


def test_a_refusal_of_an_admission_plugin_is_no_lost_right(made: Bench) -> None:
    """It is reported as it is, and not asked again."""
    plan = made.plan()
    said_no = 'admission webhook "w.example.com" denied the request: no'
    refuses = refusing("/pods/b-0", 403, said_no)
    made.cluster.before.append(refuses)
    said = made.apply(plan)
    assert said.code == 7
    assert said_no in said.out
    assert "not permitted" not in said.out + said.err
    tries = [call for call in made.cluster.calls if refuses(call) is not None]
    assert len(tries) <= 2
