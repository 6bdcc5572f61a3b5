"""``gangplan status``: the lock, the last run, incomplete gangs, pins that wait."""

from __future__ import annotations

import json
import re
import subprocess
from typing import Any

import pytest
from apiserver import Answer, Call
from apiserver_http import serving
from run_bench import LEASE, Benches, Cut, RunBench, is_start, nodes, while_solving
from snapshots import environment

pytest_plugins = ("run_fixtures",)


@pytest.fixture
def bench(memory: Benches) -> RunBench:
    cluster = nodes(3)
    for name in ("a", "b", "c"):
        cluster.gang_of_pods(name, 2, gpus=4)
    return memory(cluster)


def document(bench: RunBench, *options: str) -> dict[str, Any]:
    result = bench.verb("status", "-o", "json", *options)
    assert result.code == 0, result.err
    found: dict[str, Any] = json.loads(result.out)
    return found


def half_there(bench: RunBench) -> str:
    """Cut a run after one start of its first gang; the name of the pod that was started."""
    with bench.meddled(Cut(1)):
        bench.ran(code=7)
    bench.cluster.advance(120)
    (begun,) = [name for name, node in bench.places().items() if node is not None]
    return begun


def test_a_cluster_that_was_never_planned_has_nothing_to_tell(bench: RunBench) -> None:
    result = bench.verb("status")
    assert (result.code, result.err) == (0, "")
    assert result.out == "lock      free\nlast run  none recorded\n"
    system = bench.cluster.handle("GET", "/api/v1/namespaces/kube-system")[1]
    assert document(bench) == {
        "context": "test",
        "cluster": system["metadata"]["uid"],
        "lock": None,
        "lastRun": None,
        "gangs": [],
        "pending": [],
        "ignored": [],
    }
    assert bench.cluster.writes == []


def test_after_a_run_it_tells_how_it_went(bench: RunBench) -> None:
    bench.ran()
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
    told: list[str] = []
    while_solving(
        monkeypatch,
        lambda: told.extend(bench.verb("status", "-o", form).out for form in ("table", "json")),
    )
    bench.ran()
    lock = json.loads(told[1])["lock"]
    assert (lock["operation"], lock["user"], lock["expired"]) == ("run", "tester", False)
    assert f"held: run by tester@{lock['host']} (lock {lock['id']}, since" in told[0]
    assert f"if that run is dead: gangplan status --release {lock['id']}" in told[0]


@pytest.mark.parametrize("shell", ["sh", "bash"])
def test_a_gang_that_is_partial_is_shown_with_commands_that_delete_its_pod_and_no_other(
    bench: RunBench, shell: str
) -> None:
    """Pasted into a shell, with the real kubectl: a pod made again under the name is left alone."""
    begun, folder = half_there(bench), bench.folder
    gang, *others = document(bench, "--kubeconfig", str(folder / "kubeconfig"))["gangs"]
    assert {(one["state"], *one["undo"]) for one in others} == {("intended",)}
    (command,) = gang["undo"]
    assert (gang["namespace"], gang["name"], gang["state"]) == ("default", begun[:-2], "partial")
    assert (gang["size"], gang["started"], gang["bound"]) == (2, 1, 1)
    out = bench.verb("status", "--kubeconfig", str(folder / "kubeconfig")).out
    assert f"default/{begun[:-2]}  partial    1 of 2" in out
    assert command in out

    def pasted(text: str) -> int:
        return subprocess.run([shell, "-c", text], check=False, env=environment(folder)).returncode

    with serving(bench.cluster, folder, tls=False):
        uid = bench.cluster.pod(begun)["metadata"]["uid"]
        assert pasted(command.replace(uid, "another-uid")) != 0
        assert begun in bench.places()
        calls = len(bench.cluster.writes)
        assert pasted(command) == 0
        assert begun not in bench.places()
        # One request that names the uid: nothing can come between a look and the deletion.
        (deleted,) = bench.cluster.writes[calls:]
        assert (deleted.method, deleted.body["preconditions"]) == ("DELETE", {"uid": uid})


def test_a_partial_gang_is_gone_from_it_once_a_run_has_made_it_whole(bench: RunBench) -> None:
    half_there(bench)
    bench.ran()
    assert document(bench)["gangs"] == []


def test_pins_that_the_scheduler_has_not_bound_are_shown_with_its_reason(bench: RunBench) -> None:
    """Another client takes the room between the re-read and the scheduler: it cannot bind the pods."""
    taken: list[str] = []

    def take(call: Call) -> Answer | None:
        if is_start(call) and not taken:
            for name in ("n0", "n1", "n2"):
                taken.append(f"rival-{name}")
                bench.cluster.add_pod(f"rival-{name}", gpus=8, node=name)
        return None

    bench.cluster.before.append(take)
    bench.ran(code=7)  # there is no room where they are pinned to
    found, out = document(bench), bench.verb("status").out
    for gang in found["gangs"]:
        assert (gang["state"], gang["started"], len(gang["undo"])) == ("stuck", 2, 2)
        assert "has 0 free GPUs, the plan needs 8" in gang["why"]
        assert set(gang["undo"]) <= set(out.splitlines())
    assert len(found["gangs"]) == 3
    assert {pin["name"] for pin in found["pending"]} == set(bench.places()) - set(taken)
    assert "Insufficient nvidia.com/gpu" in found["pending"][0]["why"]
    assert "Insufficient nvidia.com/gpu" in out


def test_what_others_wrote_on_the_lock_moves_no_cursor(bench: RunBench) -> None:
    bench.ran()
    odd = {
        "status": "\x1b]0;x\x07",
        "exit_code": [1],
        "counts": {"\u202e": "x\ny"},
        "finished": 7,
        "effective_gpus": ["\x1b[2J"],
    }
    notes = {"gangplan.dev/user": "\x1b[2Jroot", "gangplan.dev/last-run": json.dumps(odd)}
    spec = {"holderIdentity": "--help \x1b[31m"}
    bench.patch(LEASE, {"spec": spec, "metadata": {"annotations": notes}})
    for output in ("table", "json"):
        out = bench.verb("status", "-o", output).out
        assert not set(out) & {"\x1b", "\x07", "\u202e"}
    assert "gangplan status --release '--help" in bench.verb("status").out


def test_a_policy_names_another_gate(bench: RunBench) -> None:
    mine = {"kubernetes": {"schedulingGate": "example.com/mine"}}
    half_there(bench)
    # The five gated pods with a record are gated by another gate then: kube-scheduler binds them, so pending.
    found = document(bench, "--policy", bench.file("policy.json", "Policy", mine))
    assert (found["gangs"], len(found["pending"])) == ([], 5)
    assert bench.verb("status", "--policy", str(bench.folder / "nowhere")).code == 66
    assert bench.verb("status", "--policy", "-").code == 64
