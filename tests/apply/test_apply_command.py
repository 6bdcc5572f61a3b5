"""``gangplan apply``: a saved plan carried out on the cluster it is of, and what is said about it."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from apply_runs import Bench, a_cluster, bench, placed, refusing

from planner.signals import Interrupted


@pytest.fixture
def gated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    """Three nodes of 8 GPUs; a: 2 pods of 8, b: 2 pods of 4. 16 + 8 GPUs fill them."""
    with bench(a_cluster(), tmp_path, monkeypatch) as made:
        yield made


# ---- what it does


def test_every_gang_is_started_where_the_plan_says(gated: Bench) -> None:
    plan = gated.plan()

    said = gated.apply(plan)

    assert said.code == 0, said.err
    assert gated.bound() == placed(plan)
    assert len(placed(plan)) == 4


def test_every_pod_tells_which_plan_put_it_where_with_which_gpus(gated: Bench) -> None:
    plan = gated.plan()
    gated.apply(plan)

    pod = gated.cluster.pod("a-0")["metadata"]
    gpus = pod["annotations"]["gangplan.dev/gpus"]
    assert pod["labels"]["gangplan.dev/plan"].startswith("gp-")
    assert pod["annotations"]["gangplan.dev/node"] == gated.cluster.node_of("a-0")
    assert gpus == "0,1,2,3,4,5,6,7"
    assert pod["annotations"]["gangplan.dev/gang-size"] == "2"


def test_apply_machine_again_writes_nothing(gated: Bench) -> None:
    plan = gated.plan()
    gated.apply(plan)
    before = gated.written()

    said = gated.apply(plan, "-o", "json")

    assert (said.code, said.data()["status"]) == (0, "unchanged")
    assert gated.written() == before


def test_every_write_names_the_uid_and_the_version_it_is_about(gated: Bench) -> None:
    gated.apply(gated.plan())

    writes = [call for call in gated.cluster.writes if "/pods/" in call.path]
    assert len(writes) >= 8  # a start, with the intent or after it, and a mark for each of 4 pods
    for call in writes:
        metadata = call.body["metadata"]
        assert metadata["uid"]
        assert metadata["resourceVersion"]
        assert call.query["fieldManager"] == "gangplan"


def test_the_first_start_of_a_gang_carries_its_intent_and_the_record_of_the_others(
    gated: Bench,
) -> None:
    gated.apply(gated.plan())

    calls = [call for call in gated.cluster.writes if "/pods/a-" in call.path]
    first, second = (call.body["metadata"]["annotations"] for call in calls[:2])
    assert all("nodeSelector" in call.body["spec"] for call in calls[:2])
    (member,) = json.loads(first["gangplan.dev/members"])
    assert calls[1].path.endswith(f"/{member[0]}")
    assert member[2] == second["gangplan.dev/node"]


# ---- asking


def test_without_a_terminal_it_wants_yes_before_it_reads_anything(gated: Bench) -> None:
    said = gated.run("apply", "no-such-plan.json")

    assert said.code == 64
    assert "--yes" in said.err
    assert not gated.opened


def test_json_logs_are_no_place_for_a_question(gated: Bench) -> None:
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
    assert "only says which ones the plan chose" in said.err, (
        "what the annotations of GPUs are worth"
    )
    assert gated.bound() == placed(plan)


@pytest.mark.parametrize("answer", [b"n\n", b"\n", b"", b"yeah\n", b"\xff\xfe\n"])
def test_anything_but_yes_changes_nothing(gated: Bench, answer: bytes) -> None:
    plan = gated.plan()

    said = gated.run("apply", str(plan), answers=answer)

    assert (said.code, gated.cluster.writes) == (130, [])
    assert "nothing was applied" in said.err


@pytest.mark.parametrize(
    ("number", "said_last"),
    [
        (signal.SIGINT, "nothing was applied"),
        (signal.SIGTERM, "interrupted; nothing was saved"),
    ],
)
def test_a_signal_at_the_question_means_no_and_leaves_the_line(
    gated: Bench, monkeypatch: pytest.MonkeyPatch, number: signal.Signals, said_last: str
) -> None:
    plan = gated.plan()

    def interrupted(*_: object) -> bytes:
        raise Interrupted(number)

    monkeypatch.setattr("apply_runs.Keyboard.readline", interrupted)
    said = gated.run("apply", str(plan), answers=b"")

    assert (said.code, gated.cluster.writes) == (128 + number, [])
    assert said.err.splitlines()[-1].endswith(said_last)


# ---- what it says


def test_the_result_is_a_table_and_the_last_line_says_what_is_next(gated: Bench) -> None:
    said = gated.apply(gated.plan())

    assert said.out.splitlines() == [
        "GANG       OUTCOME  PODS",
        "default/a  started     2",
        "default/b  started     2",
    ]
    note, done, following = said.err.splitlines()
    assert "only says which ones the plan chose" in note, (
        "b takes half a node: which half is up to the node"
    )
    assert (done, following) == ("gangs: 2 started (8 writes)", "next: gangplan status")


def test_as_data_it_tells_every_gang(gated: Bench) -> None:
    data = gated.apply(gated.plan(), "-o", "json").data()

    assert [(gang["name"], gang["outcome"], gang["pods"]) for gang in data["gangs"]] == [
        ("a", "started", 2),
        ("b", "started", 2),
    ]
    assert (data["status"], data["exitCode"], data["writes"]) == ("applied", 0, 8)


def test_names_are_for_the_next_program(gated: Bench) -> None:
    assert gated.apply(gated.plan(), "-o", "name").out == "gang/default/a\ngang/default/b\n"


def test_json_logs_tell_each_change_the_start_the_end_and_a_summary(gated: Bench) -> None:
    said = gated.apply(gated.plan(), "--log-format", "json", "-o", "name")

    kinds = [event["type"] for event in said.events]
    assert kinds == ["verify_done", "change", "change", "apply_start", "apply_done", "summary"]
    change, start, done, summary = (said.events[place] for place in (1, 3, 4, 5))
    assert (change["gang"], change["action"], change["starts"], change["gpus"]) == (
        "default/a",
        "start",
        2,
        16,
    )
    assert (start["gangs"], start["pods"]) == (2, 4)
    assert (done["gangs"], done["partial"]) == ({"started": 2.0}, [])
    assert (summary["status"], summary["exit_code"], summary["verb"]) == ("applied", 0, "apply")


# ---- the dry run


def test_a_dry_run_asks_the_server_for_everything_and_writes_nothing(gated: Bench) -> None:
    plan = gated.plan()
    before = gated.cluster.store.revision

    said = gated.run("apply", str(plan), "--dry-run", "server", "-o", "json")

    asked = [call for call in gated.cluster.calls if "/pods/" in call.path]
    assert said.code == 0, said.err
    assert gated.cluster.store.revision == before
    assert all(call.query.get("dryRun") == "All" for call in asked)
    assert {call.path.split("/")[6] for call in asked} == {"a-0", "a-1", "b-0", "b-1"}
    assert said.data()["dryRun"] is True


def test_a_dry_run_says_what_the_server_would_refuse(gated: Bench) -> None:
    plan = gated.plan()

    said_no = 'admission webhook "policy.example.com" denied the request: no'
    gated.cluster.before.append(refusing("/pods/b-1", 403, said_no))

    said = gated.run("apply", str(plan), "--dry-run", "server")

    assert said.code == 7
    assert said_no in said.out
    assert "gangs would be: 1 started, 1 partial (dry run, nothing was written)" in said.err


def test_the_proxy_lets_nothing_through_that_apply_does_not_need(gated: Bench) -> None:
    gated.apply(gated.plan())

    accepted = gated.opened[0]["accept"]
    assert not any("," in pattern for pattern in accepted)
    assert not any("eviction" in pattern for pattern in accepted)
    assert not any("secrets" in pattern or pattern in (".*", "^.*$") for pattern in accepted)
