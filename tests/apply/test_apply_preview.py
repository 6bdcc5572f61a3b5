"""``gangplan apply --dry-run=client``: what applying a plan would change."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from apiserver import FakeCluster
from apply_runs import OWN, TOLERATE, Bench, a_cluster, bench, placed
from conftest import RunCli

from planner.show.text import compress


@pytest.fixture
def gated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    """Three nodes of 8 GPUs; a: 2 pods of 8, b: 2 pods of 4, all gated."""
    with bench(a_cluster(), tmp_path, monkeypatch) as made:
        yield made


DRY = "--dry-run=client"


def test_it_changes_nothing_and_needs_no_lock(gated: Bench) -> None:
    plan = gated.plan()
    gated.run("apply", DRY, str(plan))

    assert {call.method for call in gated.cluster.calls} == {"GET"}
    assert not any("/leases" in call.path for call in gated.cluster.calls)


def test_the_objects_are_what_apply_leaves(gated: Bench) -> None:
    plan = gated.plan()
    text = gated.run("apply", DRY, str(plan), "-o", "yaml").out
    patches = [one for one in yaml.safe_load_all(text) if one is not None]
    assert {one["metadata"]["name"] for one in patches} == placed(plan).keys()
    gated.apply(plan)

    for patch in patches:
        pod = gated.cluster.pod(patch["metadata"]["name"])
        assert pod["metadata"]["uid"] == patch["metadata"]["uid"]
        for part in ("labels", "annotations"):
            assert patch["metadata"][part].items() <= pod["metadata"][part].items()
        assert patch["spec"]["nodeSelector"].items() <= pod["spec"]["nodeSelector"].items()
        assert patch["spec"]["schedulingGates"] == [
            {"name": "gangplan.dev/placement", "$patch": "delete"}
        ]
        assert not pod["spec"].get("schedulingGates")


def test_the_exit_code_tells_changes_only_where_it_is_asked_to(gated: Bench) -> None:
    plan = gated.plan()

    assert gated.run("apply", DRY, str(plan)).code == 0
    assert gated.run("apply", DRY, str(plan), "--detailed-exitcode").code == 2
    gated.apply(plan)
    said = gated.run("apply", DRY, str(plan), "--detailed-exitcode", "-o", "name")
    assert (said.code, said.out) == (0, "")
    assert said.err.splitlines() == [
        "no changes: the plan has nothing left to start, stop or resize"
    ]


@pytest.mark.parametrize(
    "words", [[], ["--dry-run=server"], [DRY, "-o", "yaml"], [DRY, "-o", "json"]]
)
def test_an_exit_code_without_a_comparison_is_a_usage_error(words: list[str], cli: RunCli) -> None:
    said = cli("apply", "plan.json", "--detailed-exitcode", *words)
    assert (said.code, said.out) == (64, "")
    assert said.err.startswith("error: --detailed-exitcode needs --dry-run=client")


def test_the_table_has_a_row_a_gang_and_says_what_is_next(gated: Bench) -> None:
    plan = gated.plan()
    said = gated.run("apply", DRY, str(plan))

    where = placed(plan)
    assert said.out.splitlines() == [
        "GANG       ACTION  PODS  GPUS  NODES",
        f"default/a  start      2    16  {compress(sorted({where['a-0'], where['a-1']}), ' ')}",
        f"default/b  start      2     8  {where['b-0']}",
    ]
    note, line, following = said.err.splitlines()
    assert "only says which ones the plan chose" in note
    assert (line, following) == ("4 pods to start, 0 to stop", f"next: gangplan apply {plan}")
    assert gated.run("apply", DRY, str(plan), "-o", "name").out == (
        "gang/default/a\ngang/default/b\n"
    )


def test_evictions_are_changes_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = FakeCluster()
    cluster.add_node("n1", taints=[OWN])
    low = {"gangplan.dev/preemptible": "true"}
    cluster.gang_of_pods("low", 1, nodes=["n1"], tolerations=TOLERATE, annotations=low)
    cluster.gang_of_pods("high", 1, priority=1000, tolerations=TOLERATE)
    with bench(cluster, tmp_path, monkeypatch) as made:
        plan = made.plan()
        said = made.run("apply", DRY, str(plan))
        allowed = made.run("apply", DRY, "--allow-evictions", str(plan))
    following = f"next: gangplan apply --allow-evictions {plan}"
    withheld = "0 pods to start, 0 to stop; 2 gangs withheld without --allow-evictions"
    assert said.err.splitlines()[-2:] == [withheld, following]
    assert "withheld without --allow-evictions: stops 1 pod" in said.out
    assert allowed.err.splitlines()[-2:] == ["1 pod to start, 1 to stop", following]
    assert "needs the room of default/low" in allowed.out


def test_what_apply_would_refuse_is_refused(gated: Bench) -> None:
    plan = gated.plan()
    gated.cluster.remove("Pod", "b-1")
    gated.cluster.cordon("n1")

    said = gated.run("apply", DRY, str(plan))

    assert (said.code, said.out) == (6, "")
    assert "error: stale: pod default/b-1 is gone" in said.err
    assert "error: stale: node n1 is cordoned" in said.err
    old = gated.run("apply", DRY, "--max-age", "0s", str(plan))
    assert old.code == 6


def test_names_with_escape_codes_do_nothing_to_the_terminal(gated: Bench) -> None:
    plan = gated.plan()
    gated.cluster.scheduler.on = False

    def poison(tree: dict) -> dict:  # type: ignore[type-arg]
        annotations = {**tree["metadata"].get("annotations", {}), "gangplan.dev/gang": "\x1b[2Jx\n"}
        return {**tree, "metadata": {**tree["metadata"], "annotations": annotations}}

    gated.cluster.change("Pod", "a-0", poison)
    for output in ("table", "json", "yaml"):
        said = gated.run("apply", DRY, str(plan), "-o", output)
        assert said.code == 0
        assert "\x1b" not in said.out + said.err
