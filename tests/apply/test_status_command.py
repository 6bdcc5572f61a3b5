"""``gangplan status``: the lock, the last run, incomplete gangs, pins that wait."""

from __future__ import annotations

import copy
import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from apiserver import Answer, Call
from apiserver_http import serving
from conftest import RunCli
from run_bench import (
    LEASE,
    Cut,
    RunBench,
    is_write,
    memory_bench,
    nodes,
    while_solving,
)
from snapshots import environment


@pytest.fixture
def bench(tmp_path: Path, cli: RunCli, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunBench]:
    cluster = nodes(3)
    for name in ("a", "b", "c"):
        cluster.gang_of_pods(name, 2, gpus=4)
    with memory_bench(cluster, tmp_path, cli, monkeypatch) as made:
        yield made


def document(bench: RunBench, *options: str) -> dict[str, Any]:
    result = bench.verb("status", "-o", "json", *options)
    assert result.code == 0, result.err
    found: dict[str, Any] = json.loads(result.out)
    return found


def half_there(bench: RunBench) -> str:
    """Cut a run after one start of its first gang; the gang's name."""
    bench.cluster.before.append(Cut(1))
    assert bench.run().code == 7
    bench.cluster.before.clear()
    bench.cluster.advance(120)
    (begun,) = [name for name, node in bench.places().items() if node is not None]
    return begun[:-2]


def test_a_cluster_that_was_never_planned_has_nothing_to_tell(bench: RunBench) -> None:
    result = bench.verb("status")
    assert (result.code, result.err) == (0, "")
    assert result.out == "lock      free\nlast run  none recorded\n"
    assert document(bench) == {
        "context": "test",
        "cluster": document(bench)["cluster"],
        "lock": None,
        "lastRun": None,
        "gangs": [],
        "pending": [],
        "ignored": [],
    }
    assert bench.cluster.writes == []


def test_after_a_run_it_tells_how_it_went(bench: RunBench) -> None:
    assert bench.run().code == 0
    found = document(bench)
    plan = found["lastRun"]["plan"]
    assert (found["lock"], found["gangs"], found["pending"]) == (None, [], [])
    out = bench.verb("status").out.splitlines()
    assert out[1].startswith("last run  applied (exit 0), at ")
    assert re.search(r", [0-9.]+ effective GPUs$", out[1])
    assert f"plan {plan}, 3 started" in out[1]
    assert len(out) == 2


def test_the_holder_of_the_lock_is_named_with_the_way_to_free_it(
    bench: RunBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables: list[str] = []
    documents: list[dict[str, Any]] = []

    def look() -> None:
        tables.append(bench.verb("status").out)
        documents.append(document(bench))

    while_solving(monkeypatch, look)
    assert bench.run().code == 0
    lock = documents[0]["lock"]
    assert (lock["operation"], lock["user"], lock["expired"]) == ("run", "tester", False)
    assert f"held: run by tester@{lock['host']} (lock {lock['id']}, since" in tables[0]
    assert f"if that run is dead: gangplan status --release {lock['id']}" in tables[0]


def test_a_gang_that_is_partial_is_shown_with_the_commands_that_undo_it(
    bench: RunBench,
) -> None:
    name = half_there(bench)
    found = document(bench)
    (gang,) = found["gangs"]
    assert (gang["namespace"], gang["name"], gang["state"]) == ("default", name, "partial")
    assert (gang["size"], gang["started"], gang["bound"]) == (2, 1, 1)
    assert len(gang["undo"]) == 1
    out = bench.verb("status").out
    assert f"default/{name}  partial   1 of 2" in out
    assert gang["undo"][0] in out
    assert bench.run().code == 0
    assert document(bench)["gangs"] == []


@pytest.mark.parametrize("shell", ["sh", "bash"])
def test_the_commands_that_undo_delete_that_pod_and_no_other(
    bench: RunBench, tmp_path: Path, shell: str
) -> None:
    """Pasted into a shell, with the real kubectl: a pod made again under the name is left alone."""
    name = half_there(bench)
    (gang,) = document(bench, "--kubeconfig", str(tmp_path / "kubeconfig"))["gangs"]
    (command,) = gang["undo"]
    begun = next(pod for pod, node in bench.places().items() if node is not None)
    assert begun.startswith(f"{name}-")

    def pasted(text: str) -> int:
        folder = environment(tmp_path)
        return subprocess.run([shell, "-c", text], check=False, env=folder).returncode

    with serving(bench.cluster, tmp_path, tls=False):
        uid = bench.cluster.pod(begun)["metadata"]["uid"]
        assert pasted(command.replace(uid, "another-uid")) != 0
        assert begun in bench.places()
        calls = len(bench.cluster.writes)
        assert pasted(command) == 0
        assert begun not in bench.places()
        # One request that names the uid: nothing can come between a look and the deletion.
        (deleted,) = bench.cluster.writes[calls:]
        assert (deleted.method, deleted.body["preconditions"]) == ("DELETE", {"uid": uid})


def test_pins_that_the_scheduler_has_not_bound_are_shown_with_its_reason(
    bench: RunBench,
) -> None:
    """Another client takes the room between the re-read and the scheduler: it cannot bind the pods."""
    taken: list[str] = []

    def take(call: Call) -> Answer | None:
        if is_write(call) and "schedulingGates" in str(call.body) and not taken:
            for name in ("n0", "n1", "n2"):
                taken.append(name)
                bench.cluster.add_pod(f"rival-{name}", gpus=8, node=name)
        return None

    bench.cluster.before.append(take)
    result = bench.run()
    assert result.code == 7, result.err  # there is no room where they are pinned to
    found = document(bench)
    for gang in found["gangs"]:
        assert (gang["state"], gang["started"], len(gang["undo"])) == ("stuck", 2, 2)
        assert "has 0 free GPUs, the plan needs 8" in gang["why"]
        assert set(gang["undo"]) <= set(bench.verb("status").out.splitlines())
    assert len(found["gangs"]) == 3
    assert {pin["name"] for pin in found["pending"]} == set(bench.places()) - {
        f"rival-{name}" for name in taken
    }
    assert "Insufficient nvidia.com/gpu" in found["pending"][0]["why"]
    assert "Insufficient nvidia.com/gpu" in bench.verb("status").out


def test_what_others_wrote_on_the_lock_moves_no_cursor(bench: RunBench) -> None:
    assert bench.run().code == 0
    tree = copy.deepcopy(bench.lease())
    tree["spec"]["holderIdentity"] = "--help \x1b[31m"
    notes = tree["metadata"]["annotations"]
    notes["gangplan.dev/user"] = "\x1b[2Jroot"
    notes["gangplan.dev/last-run"] = json.dumps(
        {
            "status": "\x1b]0;x\x07",
            "exit_code": [1],
            "counts": {"\u202e": "x\ny"},
            "finished": 7,
            "effective_gpus": ["\x1b[2J"],
        }
    )
    assert bench.cluster.handle("PUT", LEASE, tree)[0] == 200
    for output in ("table", "json"):
        out = bench.verb("status", "-o", output).out
        assert not set(out) & {"\x1b", "\x07", "\u202e"}
        assert "\x1b" not in out
    assert "gangplan status --release '--help" in bench.verb("status").out


def test_a_policy_names_another_gate(bench: RunBench, tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text(
        "apiVersion: gangplan.dev/v1alpha1\nkind: Policy\n"
        "spec: {kubernetes: {schedulingGate: example.com/mine}}\n",
        encoding="utf-8",
    )
    half_there(bench)
    # By that Policy the gated pod is not gated by us: kube-scheduler's to bind, so it is pending.
    found = document(bench, "--policy", str(path))
    assert [gang["state"] for gang in found["gangs"]] == []
    assert len(found["pending"]) == 1
    assert bench.verb("status", "--policy", str(tmp_path / "nowhere")).code == 66
    assert bench.verb("status", "--policy", "-").code == 64


def test_a_run_does_not_wait_for_pins_of_an_earlier_one(bench: RunBench) -> None:
    """They are the scheduler's by now: the second run writes nothing and waits for nothing."""
    bench.cluster.scheduler.on = False
    assert bench.run().code == 0  # pins that merely wait are no failure
    before = bench.asked()
    second = bench.run("--wait", "1h")
    assert second.code == 0, second.err
    assert bench.written(since=before) == []
    assert len(document(bench)["pending"]) == 6
