"""``gangplan apply`` where it must not, or cannot wholly, do what the plan says."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from apiserver import FakeCluster
from apply_runs import TOLERATE, Bench, Tree, a_cluster, bench, placed, refusing
from plan_documents import sealed

from models.units import time_text


@pytest.fixture
def gated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    """Three nodes of 8 GPUs; a: 2 pods of 8, b: 2 pods of 4, all gated. 16 + 8 GPUs fill them."""
    with bench(a_cluster(), tmp_path, monkeypatch) as made:
        yield made


# ---- refusals before the first write


def test_a_plan_that_does_not_hold_is_refused(gated: Bench) -> None:
    plan = gated.plan()
    document = json.loads(plan.read_text(encoding="utf-8"))
    document["spec"]["gangs"][0]["pods"][0]["node"] = "n3"
    plan.write_text(json.dumps(document), encoding="utf-8")

    said = gated.apply(plan)

    assert (said.code, gated.opened) == (5, [])


@pytest.mark.parametrize("mode", [None, "gate"])
def test_a_what_if_that_was_edited_to_look_like_a_plan_starts_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str | None
) -> None:
    """Whatever a file says: pods without the gate that are not gangplan's are no pods to start."""
    cluster = a_cluster(gangs=[("b", 2, 4)])
    together = {"scheduling.x-k8s.io/pod-group": "theirs"}
    for name in ("theirs-0", "theirs-1"):
        cluster.add_pod(
            name, gpus=4, schedulerName="volcano", labels=together, tolerations=TOLERATE
        )
    with bench(cluster, tmp_path, monkeypatch) as made:
        plan = made.plan("--scheduler", "all")
        assert placed(plan).keys() >= {"b-0", "theirs-0", "theirs-1"}
        document = json.loads(plan.read_text(encoding="utf-8"))
        del document["instance"]["policy"]["spec"]["kubernetes"]["schedulerNames"]
        for gang in document["instance"]["gangs"]:
            if gang["status"].pop("scheduler", None) is not None and mode is not None:
                for pod in gang["status"]["pods"]:
                    pod["mode"] = mode
        plan.write_text(json.dumps(document), encoding="utf-8")
        assert made.apply(plan).code == 5, "its digest does not fit"
        plan.write_text(json.dumps(sealed(document)), encoding="utf-8")
        assert made.run("verify", str(plan)).code == 0
        for words in (["--dry-run", "server"], []):
            said = made.apply(plan, *words)
            assert (said.code, made.written()) == (6, [])
            assert "pod default/theirs-0 lost its gate" in said.err


def test_a_plan_without_running_gangs_that_was_edited_to_look_like_any_other_starts_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever a file leaves out: the GPUs are counted on the live nodes again."""
    cluster = a_cluster(gangs=[("b", 2, 4)])
    for n in (1, 2, 3):
        cluster.add_pod(f"runs-{n}", gpus=8, node=f"n{n}", tolerations=TOLERATE)
    with bench(cluster, tmp_path, monkeypatch) as made:
        plan = made.plan("--without", "runs-1")
        assert set(placed(plan)) >= {"b-0", "b-1"}
        document = json.loads(plan.read_text(encoding="utf-8"))
        assert made.apply(plan).code == 65
        del document["instance"]["whatIf"]
        plan.write_text(json.dumps(document), encoding="utf-8")
        assert made.apply(plan).code == 5, "its digest does not fit"
        plan.write_text(json.dumps(sealed(document)), encoding="utf-8")
        assert made.run("verify", str(plan)).code == 0
        for words in (["--dry-run", "server"], []):
            said = made.apply(plan, *words)
            assert (said.code, made.written()) == (6, [])
            assert "node n1 has 0 free GPUs, the plan needs 8" in said.err


def test_the_plan_of_another_cluster_is_refused(
    gated: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = gated.plan()
    other = FakeCluster()

    def renamed(tree: Tree) -> Tree:
        return {**tree, "metadata": {**tree["metadata"], "uid": "other"}}

    other.change("Namespace", "kube-system", renamed)

    with bench(other, tmp_path, monkeypatch) as elsewhere:
        said = elsewhere.apply(plan)

    assert (said.code, other.writes) == (65, [])
    assert "this cluster has other" in said.err
    assert "--context" in said.err


def test_a_plan_without_the_uid_of_its_cluster_is_refused(gated: Bench) -> None:
    source = gated.folder / "plan.json.read"
    gated.plan()
    (source / "identity.json").unlink()
    plan = gated.folder / "nameless.json"
    assert gated.run("plan", str(source), "--out", str(plan)).code == 0

    said = gated.apply(plan)

    assert (said.code, gated.opened) == (65, [])
    assert "which cluster" in said.err


def test_a_plan_that_is_too_old_is_refused_by_the_servers_clock(gated: Bench) -> None:
    """Ages are counted on the server's clock: the plan is of now, the server's now is fixed."""
    plan = gated.plan()
    document = json.loads(plan.read_text(encoding="utf-8"))
    document["metadata"]["createdAt"] = "2020-01-01T00:00:00Z"
    plan.write_text(json.dumps(document), encoding="utf-8")

    said = gated.apply(plan, "--max-age", "1h")

    assert (said.code, gated.cluster.writes) == (6, [])
    assert "--max-age is 1h" in said.err


@pytest.mark.parametrize(("ahead_s", "code"), [(60, 0), (61, 6)])
def test_a_plan_from_the_future_is_refused_beyond_what_clocks_differ(
    gated: Bench, ahead_s: int, code: int
) -> None:
    plan = gated.plan()
    document = json.loads(plan.read_text(encoding="utf-8"))
    document["metadata"]["createdAt"] = time_text(int(gated.cluster.clock()) + ahead_s)
    plan.write_text(json.dumps(document), encoding="utf-8")

    assert gated.apply(plan, "--max-age", "1h").code == code


def test_what_moved_is_listed_and_nothing_is_written(gated: Bench) -> None:
    plan = gated.plan()
    where = placed(plan)
    gated.cluster.cordon(where["a-0"])
    gated.cluster.remove("Pod", "b-1")

    said = gated.apply(plan)

    assert (said.code, gated.written()) == (6, [])
    assert "pod default/b-1 is gone" in said.err
    assert f"node {where['a-0']} is cordoned" in said.err
    assert said.err.count("hint:") == 1


def test_harmless_change_does_not_make_a_plan_stale(gated: Bench) -> None:
    plan = gated.plan()
    for node in ("n1", "n2", "n3"):
        gated.cluster.touch("Node", node)
    for pod in ("a-0", "b-0"):
        gated.cluster.touch("Pod", pod)
    gated.cluster.gang_of_pods("later", 2, gpus=8, tolerations=TOLERATE)

    assert gated.apply(plan).code == 0


@pytest.mark.parametrize("name", ["../x", "", "UPPER", "a b"])
def test_what_cannot_be_the_namespace_of_the_lock_is_refused(gated: Bench, name: str) -> None:
    said = gated.apply(gated.plan(), "--lock-namespace", name)

    assert (said.code, gated.opened) == (64, []), said.err
    assert "is not the name of a namespace" in said.err


def test_a_missing_right_is_named_before_the_first_write(gated: Bench) -> None:
    plan = gated.plan()
    gated.cluster.add_user("token", "weak")
    gated.user = "weak"

    said = gated.apply(plan)

    assert (said.code, gated.cluster.writes) == (77, [])


def test_who_holds_the_lock_is_said(gated: Bench) -> None:
    plan = gated.plan()
    now = "2026-01-01T00:00:00.000000Z"
    lease = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {
            "name": "gangplan",
            "namespace": "gangplan-system",
            "annotations": {
                "gangplan.dev/user": "ana",
                "gangplan.dev/host": "login1",
                "gangplan.dev/operation": "run",
            },
        },
        "spec": {"holderIdentity": "4f2a9c01d7", "leaseDurationSeconds": 10**8, "renewTime": now},
    }
    gated.cluster.put(lease)

    said = gated.apply(plan)

    assert (said.code, gated.written()) == (75, [])
    assert "ana@login1" in said.err
    assert "gangplan status --release 4f2a9c01d7" in said.err


def test_the_lock_is_given_back_with_a_note_of_the_run(gated: Bench) -> None:
    plan = gated.plan()
    gated.apply(plan)

    lease = gated.cluster.handle(
        "GET", "/apis/coordination.k8s.io/v1/namespaces/gangplan-system/leases/gangplan"
    )[1]
    note = json.loads(lease["metadata"]["annotations"]["gangplan.dev/last-run"])
    assert not lease["spec"].get("holderIdentity")
    assert (note["status"], note["exit_code"], note["counts"]) == (
        "applied",
        0,
        {"started": 2, "evicted": 0},
    )


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--wait", "soon"),
        ("--max-age", "1 fortnight"),
        ("--request-timeout", "0s"),
        ("--lock-timeout", "-1s"),
    ],
)
def test_a_duration_that_is_none_is_a_usage_error(gated: Bench, option: str, value: str) -> None:
    said = gated.run("apply", "plan.json", "--yes", option, value)

    assert said.code == 64
    assert option in said.err


# ---- part-way


def test_a_conflict_of_one_gang_does_not_stop_the_other(gated: Bench) -> None:
    plan = gated.plan()

    gated.cluster.before.append(refusing("/pods/a-1", 422, "no", "schedulingGates"))
    said = gated.apply(plan, "-o", "json")

    outcomes = {gang["name"]: gang["outcome"] for gang in said.data()["gangs"]}
    assert outcomes["b"] == "started"
    assert outcomes["a"] in ("skipped", "partial", "halted")
    assert said.code == 7


# ---- names that bite


def test_escape_codes_in_what_the_server_says_never_reach_the_terminal(gated: Bench) -> None:
    plan = gated.plan()

    said_no = "\x1b[31mred\x1b[0m\nnext: rm -rf /"
    gated.cluster.before.append(refusing("/pods/a-1", 422, said_no))
    for output in ("table", "json", "yaml", "name"):
        said = gated.apply(plan, "-o", output)
        assert said.code == 7
        assert "\x1b" not in said.out + said.err
        assert "\nnext: rm" not in said.out + said.err


def test_a_plan_file_that_looks_like_an_option_is_named_so_that_it_can_be_typed_again(
    gated: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = gated.plan()
    (gated.folder / "--help").write_bytes(plan.read_bytes())
    monkeypatch.chdir(gated.folder)

    said = gated.run("apply", "--dry-run", "server", "--", "--help")

    assert said.code == 0
    assert said.err.splitlines()[-1] == "next: gangplan apply -- --help"


def test_the_pods_of_others_are_not_touched(gated: Bench) -> None:
    gated.cluster.add_pod(
        "stranger", gpus=0, node="n1", tolerations=TOLERATE, labels={"gangplan.dev/plan": "x"}
    )
    plan = gated.plan()
    gated.apply(plan)

    assert not [path for _, path in gated.written() if "stranger" in path]
