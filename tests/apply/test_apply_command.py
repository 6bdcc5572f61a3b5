"""``gangplan apply``: a saved plan carried out on the cluster it is of, and what is said about it; its dry
runs; and runs that receive a signal, lose their lock, or leave pods to be bound.
"""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from apiserver import Call
from apply_runs import TOLERATE, Bench, Tree, a_cluster, bench, placed, refusing
from conftest import RunCli

from models.apply.records import read_record
from planner.show.text import compress
from planner.signals import Interrupted

pytest_plugins = ("apply_fixtures",)

LEASE = "/apis/coordination.k8s.io/v1/namespaces/gangplan-system/leases/gangplan"
CHOSEN = "only says which ones the plan chose"
"""What the annotations of GPUs are worth: b takes half a node, and which half is up to the node."""


# ---- one run


@dataclass
class Applied:
    run: Bench
    plan: Path
    said: Any
    writes: list[Call]


@pytest.fixture(scope="module")
def applied(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Applied]:
    """The plan of ``gated``, applied."""
    with (
        pytest.MonkeyPatch.context() as patch,
        bench(a_cluster(), tmp_path_factory.mktemp("applied"), patch) as run,
    ):
        plan = run.plan()
        said = run.apply(plan)
        yield Applied(
            run, plan, said, [one for one in run.cluster.writes if "/leases" not in one.path]
        )


def test_every_gang_is_started_where_the_plan_says_and_the_table_says_so(applied: Applied) -> None:
    assert applied.said.code == 0, applied.said.err
    assert applied.run.bound() == placed(applied.plan)
    assert len(placed(applied.plan)) == 4
    assert applied.said.out.splitlines() == [
        "GANG       OUTCOME  PODS",
        "default/a  started     2",
        "default/b  started     2",
    ]
    note, done, following = applied.said.err.splitlines()
    assert CHOSEN in note
    assert (done, following) == ("gangs: 2 started (8 writes)", "next: gangplan status")


def test_every_pod_tells_which_plan_put_it_where_with_which_gpus(applied: Applied) -> None:
    pod = applied.run.cluster.pod("a-0")["metadata"]
    assert re.fullmatch("gp-[0-9a-f]{20}", pod["labels"]["gangplan.dev/plan"])
    ours = ((key.partition("gangplan.dev/")[2], one) for key, one in pod["annotations"].items())
    notes = {key: one for key, one in ours if key}
    assert notes["node"] == applied.run.cluster.pod("a-0")["spec"].get("nodeName")
    assert (notes["gpus"], sorted(notes)) == ("0,1,2,3,4,5,6,7", ["gpus", "node"])


def test_every_write_names_the_uid_and_the_version_it_is_about(applied: Applied) -> None:
    """A start of each of 4 pods; the records of 2 gangs, again once they are whole."""
    pods = [call for call in applied.writes if "/pods/" in call.path]
    made = [call for call in applied.writes if call.method == "POST"]
    assert (len(applied.writes), len(pods), len(made)) == (8, 4, 2)
    for call in applied.writes:
        assert call.query["fieldManager"] == "gangplan"
        if call in made:
            continue
        assert call.body["metadata"]["uid"]
        assert call.body["metadata"]["resourceVersion"]


def test_the_record_of_a_gang_comes_before_its_first_pod_and_says_where_all_go(
    applied: Applied,
) -> None:
    paths = [call.path for call in applied.writes]
    first = next(number for number, path in enumerate(paths) if "/pods/a-" in path)
    records = [read_record(call.body["data"]["start"]) for call in applied.writes[:first]
               if "/configmaps" in call.path]  # fmt: skip
    (record,) = [one for one in records if one is not None and one.gang == ("default", "a")]
    where = {one.name: one.node for one in record.pods}
    assert where == {
        name: applied.run.cluster.pod(name)["spec"].get("nodeName") for name in ("a-0", "a-1")
    }
    assert not record.whole


def test_the_proxy_lets_nothing_through_that_apply_does_not_need(applied: Applied) -> None:
    accepted = applied.run.opened[0]["accept"]
    assert not any("," in pattern or "eviction" in pattern for pattern in accepted)
    assert not any("secrets" in pattern or pattern in (".*", "^.*$") for pattern in accepted)


def last_run(run: Bench) -> tuple[bool, str, int, Tree]:
    """Whether somebody holds the lock, and of the note of the last run its status, exit code and counts."""
    lease = run.cluster.handle("GET", LEASE)[1]
    note = json.loads(lease["metadata"]["annotations"]["gangplan.dev/last-run"])
    holder = lease["spec"].get("holderIdentity")
    return bool(holder), note["status"], note["exit_code"], note["counts"]


def test_applied_again_it_writes_nothing_and_nothing_would_change(applied: Applied) -> None:
    run, plan = applied.run, str(applied.plan)
    assert last_run(run) == (False, "applied", 0, {"started": 2, "evicted": 0})
    before = run.written()
    said = run.apply(applied.plan, "-o", "json")
    assert (said.code, said.data()["status"]) == (0, "unchanged")
    said = run.run("apply", DRY, plan, "--detailed-exitcode", "-o", "name")
    nothing = "no changes: the plan has nothing left to start, stop or resize\n"
    assert (said.code, said.out, said.err) == (0, "", nothing)
    assert run.written() == before


def test_json_logs_and_data_tell_each_change_the_start_the_end_and_a_summary(gated: Bench) -> None:
    said = gated.apply(gated.plan(), "--log-format", "json", "-o", "json")
    data = said.data()
    found = [(gang["name"], gang["outcome"], gang["pods"]) for gang in data["gangs"]]
    assert found == [("a", "started", 2), ("b", "started", 2)]
    assert (data["status"], data["exitCode"], data["writes"]) == ("applied", 0, 8)
    kinds = ["verify_done", "change", "change", "apply_start", "apply_done", "summary"]
    assert [event["type"] for event in said.events] == kinds
    expected: list[tuple[int, Tree]] = [
        (1, {"gang": "default/a", "action": "start", "starts": 2, "gpus": 16}),
        (3, {"gangs": 2, "pods": 4}),
        (4, {"gangs": {"started": 2.0}, "partial": []}),
        (5, {"status": "applied", "exit_code": 0, "verb": "apply"}),
    ]
    for place, facts in expected:
        assert {key: said.events[place][key] for key in facts} == facts


# ---- asking


def test_without_a_terminal_it_wants_yes_before_it_reads_anything(gated: Bench) -> None:
    said = gated.run("apply", "no-such-plan.json")
    assert (said.code, gated.opened) == (64, [])
    assert "--yes" in said.err
    said = gated.run("apply", "plan.json", "--log-format", "json", answers=b"y\n")
    assert (said.code, said.events[0]["type"]) == (64, "error")


def test_on_a_terminal_it_shows_what_will_happen_and_asks(gated: Bench) -> None:
    plan = gated.plan()
    said = gated.run("apply", str(plan), "--wait", "0s", answers=b"y\n")
    assert said.code == 0
    assert "default/a  start" in said.out
    words = " ".join(said.err.split())  # a narrow terminal folds the question
    question = r"apply plan gp-\w+ to context test \(4 pods to start, 0 to stop\)\? \[y/N\]"
    assert re.search(question, words)
    assert CHOSEN in said.err
    assert gated.bound() == placed(plan)


@pytest.mark.parametrize("answer", [b"n\n", b"\n", b"", b"yeah\n", b"\xff\xfe\n"])
def test_anything_but_yes_changes_nothing(gated: Bench, answer: bytes) -> None:
    said = gated.run("apply", str(gated.plan()), answers=answer)
    assert (said.code, gated.cluster.writes) == (130, [])
    assert "nothing was applied" in said.err


@pytest.mark.parametrize(
    ("number", "said_last"),
    [(signal.SIGINT, "nothing was applied"), (signal.SIGTERM, "interrupted; nothing was saved")],
)
def test_a_signal_at_the_question_means_no(
    gated: Bench, monkeypatch: pytest.MonkeyPatch, number: signal.Signals, said_last: str
) -> None:
    plan = gated.plan()

    def interrupted(*_: object) -> bytes:
        raise Interrupted(number)

    monkeypatch.setattr("apply_runs.Keyboard.readline", interrupted)
    said = gated.run("apply", str(plan), answers=b"")
    assert (said.code, gated.cluster.writes) == (128 + number, [])
    assert said.err.splitlines()[-1].endswith(said_last)


# ---- dry runs

DRY, SERVER = "--dry-run=client", "--dry-run=server"


def test_a_dry_run_asks_the_server_for_everything_and_writes_nothing(gated: Bench) -> None:
    plan = gated.plan()
    before = gated.cluster.objects.revision
    said = gated.run("apply", str(plan), SERVER, "-o", "json")
    assert said.code == 0, said.err
    asked = [call for call in gated.cluster.calls if "/pods/" in call.path]
    assert gated.cluster.objects.revision == before
    assert all(call.query.get("dryRun") == "All" for call in asked)
    assert {call.path.split("/")[6] for call in asked} == {"a-0", "a-1", "b-0", "b-1"}
    assert said.data()["dryRun"] is True


def test_a_dry_run_says_what_the_server_would_refuse(gated: Bench) -> None:
    said_no = 'admission webhook "policy.example.com" denied the request: no'
    plan = gated.plan()
    gated.cluster.before.append(refusing("/pods/b-1", 403, said_no))
    said = gated.run("apply", str(plan), SERVER)
    assert said.code == 7
    assert said_no in said.out
    assert "gangs would be: 1 started, 1 partial (dry run, nothing was written)" in said.err


def test_a_preview_changes_nothing_and_has_a_row_a_gang(gated: Bench) -> None:
    plan = gated.plan()
    said = gated.run("apply", DRY, str(plan))
    assert {call.method for call in gated.cluster.calls} == {"GET"}
    assert not any("/leases" in call.path for call in gated.cluster.calls)
    where = placed(plan)
    assert said.out.splitlines() == [
        "GANG       ACTION  PODS  GPUS  NODES",
        f"default/a  start      2    16  {compress(sorted({where['a-0'], where['a-1']}), ' ')}",
        f"default/b  start      2     8  {where['b-0']}",
    ]
    note, line, following = said.err.splitlines()
    assert CHOSEN in note
    assert (line, following) == ("4 pods to start, 0 to stop", f"next: gangplan apply {plan}")
    assert (
        gated.run("apply", DRY, str(plan), "-o", "name").out == "gang/default/a\ngang/default/b\n"
    )
    assert said.code == 0
    assert gated.run("apply", DRY, str(plan), "--detailed-exitcode").code == 2, "if it is asked to"


def test_the_objects_of_a_preview_are_what_apply_leaves(gated: Bench, applied: Applied) -> None:
    plan = gated.plan()
    text = gated.run("apply", DRY, str(plan), "-o", "yaml").out
    patches = [one for one in yaml.safe_load_all(text) if one is not None]
    assert {one["metadata"]["name"] for one in patches} == placed(plan).keys()
    for patch in patches:
        pod = applied.run.cluster.pod(patch["metadata"]["name"])
        assert pod["metadata"]["uid"] == patch["metadata"]["uid"]
        for part in ("labels", "annotations"):
            assert patch["metadata"][part].items() <= pod["metadata"][part].items()
        assert patch["spec"]["nodeSelector"].items() <= pod["spec"]["nodeSelector"].items()
        gate = {"name": "gangplan.dev/placement", "$patch": "delete"}
        assert patch["spec"]["schedulingGates"] == [gate]
        assert not pod["spec"].get("schedulingGates")


@pytest.mark.parametrize("words", [[], [SERVER], [DRY, "-o", "yaml"], [DRY, "-o", "json"]])
def test_an_exit_code_without_a_comparison_is_a_usage_error(words: list[str], cli: RunCli) -> None:
    said = cli("apply", "plan.json", "--detailed-exitcode", *words)
    assert (said.code, said.out) == (64, "")
    assert said.err.startswith("error: --detailed-exitcode needs --dry-run=client")


def test_names_with_escape_codes_do_nothing_to_the_terminal(gated: Bench) -> None:
    plan = gated.plan()

    def poison(tree: Tree) -> Tree:
        annotations = {**tree["metadata"].get("annotations", {}), "gangplan.dev/gang": "\x1b[2Jx\n"}
        return {**tree, "metadata": {**tree["metadata"], "annotations": annotations}}

    gated.cluster.change("Pod", "a-0", poison)
    for output in ("table", "json", "yaml"):
        said = gated.run("apply", DRY, str(plan), "-o", output)
        assert said.code == 0
        assert "\x1b" not in said.out + said.err


# ---- signals and locks


def at_start(run: Bench, at: str, deed: Callable[[Call], object]) -> list[str]:
    """Once, the deed after the first start of a pod whose path holds ``at``; that path."""
    done: list[str] = []

    def hook(call: Call) -> None:
        if call.writes and at in call.path and "nodeSelector" in str(call.body) and not done:
            done.append(call.path)
            deed(call)

    run.cluster.after.append(hook)
    return done


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_lets_what_is_begun_become_whole(ten: Bench, number: int, code: int) -> None:
    """The lock is given back with a note, and the same command resumes."""
    plan = ten.plan()
    at_start(ten, "/pods/a-", lambda _: os.kill(os.getpid(), number))
    said = ten.apply(plan, "-o", "json")
    bound = {name for name, node in ten.bound().items() if node is not None}
    assert (said.code, bound) == (code, {f"{name}-{n}" for name in "abcdefgh" for n in (0, 1)})
    outcomes = {gang["name"]: gang["outcome"] for gang in said.data()["gangs"]}
    assert outcomes["i"] == outcomes["j"] == "halted"
    assert said.data()["status"] == "stopped"
    assert said.err.splitlines()[-1].endswith("(resumes it)")
    assert last_run(ten)[:3] == (False, "stopped", code)
    assert ten.apply(plan).code == 0
    assert ten.bound() == placed(plan)


def test_a_lock_that_somebody_took_meanwhile_is_left_alone(ten: Bench) -> None:
    plan = ten.plan()

    def take(_: Call) -> None:
        lease = ten.cluster.handle("GET", LEASE)[1]
        lease["spec"]["holderIdentity"] = "somebody"
        ten.cluster.put(lease)

    at_start(ten, "/pods/a-", take)
    assert ten.apply(plan).code == 0, "a Lease stops no writes: uid and version of each write do"
    lease = ten.cluster.handle("GET", LEASE)[1]
    assert lease["spec"]["holderIdentity"] == "somebody", "not released: it was not ours any more"


def test_a_signal_before_the_first_write_leaves_the_cluster_as_it_was(ten: Bench) -> None:
    plan = ten.plan()

    def hook(call: Call) -> None:
        if call.path == "/api/v1/pods":
            os.kill(os.getpid(), signal.SIGTERM)

    ten.cluster.after.append(hook)
    assert (ten.apply(plan).code, ten.written()) == (143, [])


# ---- pods that are to be bound, and rivals in the planned room


def test_pins_that_the_scheduler_has_not_bound_yet_are_no_failure_for_a_while(gated: Bench) -> None:
    """They are not written again; past the limit they are reported and undone: nobody said a word of them."""
    plan = gated.plan()
    gated.cluster.scheduler.on = False
    said = gated.apply(plan)
    assert (said.code, said.out.count("pending")) == (0, 2)
    assert said.err.splitlines()[-1] == "next: gangplan status   (2 gangs to be bound)"
    before = gated.written()
    gated.cluster.advance(299)
    assert gated.outcomes(plan) == (0, {"a": "pending", "b": "pending"})
    assert gated.written() == before
    gated.cluster.advance(2)
    late = gated.apply(plan)
    assert (late.code, late.err.count("delete --raw")) == (7, 4)
    assert "was not bound to node" in late.out
    assert gated.outcomes(plan, "--evict-partial") == (0, {"a": "undone", "b": "undone"})
    assert gated.bound() == {}


def test_pending_pins_are_whole_once_bound(gated: Bench) -> None:
    plan = gated.plan()
    gated.cluster.scheduler.on = False
    assert gated.apply(plan, "-o", "name").out == "gang/default/a\ngang/default/b\n"
    gated.cluster.scheduler.on = True
    gated.cluster.settle()
    assert gated.outcomes(plan) == (0, {"a": "unchanged", "b": "unchanged"})
    assert gated.bound() == placed(plan)


def other(done: list[str]) -> str:
    """The pod of a that was not started first."""
    return "a-1" if done[0].endswith("a-0") else "a-0"


def test_a_rival_in_the_planned_room_is_reported_with_its_undo_commands(gated: Bench) -> None:
    """It comes once the first pod of a is started, and takes the node of the second."""
    plan = gated.plan()
    where = placed(plan)

    def rival(_: Call) -> None:
        gated.cluster.add_pod("rival", gpus=8, node=where[other(came)], tolerations=TOLERATE)

    came = at_start(gated, "/pods/a-", rival)
    said = gated.apply(plan, "-o", "json")
    found = {gang["name"]: gang for gang in said.data()["gangs"]}
    assert (said.code, found["a"]["outcome"], found["b"]["outcome"]) == (7, "partial", "started")
    assert len(found["a"]["undo"]) == 2
    assert f"node {where[other(came)]} has 0 free GPUs, the plan needs 8" in found["a"]["why"]
    undone = gated.apply(plan, "--evict-partial", "-o", "json")
    assert (undone.code, undone.data()["evicted"]) == (0, 2)
    assert {name for name, node in gated.bound().items() if node} == {"b-0", "b-1", "rival"}


def test_only_pods_whose_start_is_recorded_are_ever_evicted(gated: Bench) -> None:
    """Somebody deletes the records: then nobody knows who started a-0."""
    plan = gated.plan()
    cluster, where = gated.cluster, placed(plan)
    came = at_start(
        gated, "/pods/a-",
        lambda _: cluster.add_pod("rival", gpus=8, node=where[other(came)], tolerations=TOLERATE),
    )  # fmt: skip
    assert gated.outcomes(plan)[1]["a"] == "partial"
    path = "/api/v1/namespaces/gangplan-system/configmaps"
    for tree in cluster.handle("GET", path)[1]["items"]:
        cluster.handle("DELETE", f"{path}/{tree['metadata']['name']}")
    gated.apply(plan, "--evict-partial")
    assert not [path for _, path in gated.written() if path.endswith("/eviction")]


def test_a_node_that_lost_the_label_of_a_pin_is_reported(gated: Bench) -> None:
    """The first pod of a is bound; then the node of the second is called otherwise, and no pin fits it."""
    plan = gated.plan()
    where = placed(plan)

    def renamed(node: Tree) -> Tree:
        labels = {**node["metadata"]["labels"], "kubernetes.io/hostname": "elsewhere"}
        return {**node, "metadata": {**node["metadata"], "labels": labels}}

    came = at_start(
        gated, "/pods/a-", lambda _: gated.cluster.change("Node", where[other(came)], renamed)
    )  # fmt: skip
    said = gated.apply(plan)
    assert said.code == 7, said.err
    assert f"lacks the label kubernetes.io/hostname={where[other(came)]}" in said.out
    assert said.err.count("delete --raw") == 2, "of the one that is bound, and the one that is not"
