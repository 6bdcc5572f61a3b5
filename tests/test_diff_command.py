"""``gangplan diff``: what applying a plan would change, field by field."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from apiserver import FakeCluster
from apply_runs import OWN, TOLERATE, Bench, a_cluster, bench, placed


@pytest.fixture
def gated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    """Three nodes of 8 GPUs; a: 2 pods of 8, b: 2 pods of 4, all gated."""
    with bench(a_cluster(), tmp_path, monkeypatch) as made:
        yield made


def fields(made: Bench, plan: Path, name: str) -> dict[str, tuple[object, object]]:
    found = made.run("diff", str(plan), "-o", "json").data()
    return {
        one["field"]: (one["before"], one["after"])
        for one in found
        if one["object"] == f"pod/default/{name}"
    }


def test_every_field_that_applying_changes_is_listed_with_both_values(gated: Bench) -> None:
    plan = gated.plan()
    where = placed(plan)["b-0"]
    found = fields(gated, plan, "b-0")

    (plan_id,) = {found["metadata.labels.gangplan.dev/plan"][1]}
    assert found == {
        "metadata.annotations.gangplan.dev/gang": (None, "b"),
        "metadata.annotations.gangplan.dev/gang-size": (None, "2"),
        "metadata.annotations.gangplan.dev/gpus": (None, "0,1,2,3"),
        "metadata.annotations.gangplan.dev/node": (None, where),
        "metadata.annotations.gangplan.dev/plan": (None, plan_id),
        "metadata.annotations.gangplan.dev/terms": (None, "priority=0"),
        "metadata.labels.gangplan.dev/plan": (None, plan_id),
        "spec.nodeName": (None, where),
        "spec.nodeSelector.kubernetes.io/hostname": (None, where),
        "spec.schedulingGates": (["gangplan.dev/placement"], []),
    }


def test_what_diff_announces_is_what_apply_does(gated: Bench) -> None:
    """Each field is compared with the pod before and after."""
    plan = gated.plan()
    announced = {name: fields(gated, plan, name) for name in placed(plan)}
    gated.apply(plan)

    for name, found in announced.items():
        pod = gated.cluster.pod(name)
        for field, (_, after) in found.items():
            part, _, key = field.partition(".")
            if field == "spec.schedulingGates":
                assert [gate["name"] for gate in pod["spec"].get("schedulingGates", [])] == after
            elif field == "spec.nodeName":
                assert pod["spec"]["nodeName"] == after
            else:
                under, _, key = key.partition(".")
                assert pod[part][under][key] == after, field


def test_diff_changes_nothing_and_needs_no_lock(gated: Bench) -> None:
    plan = gated.plan()
    gated.run("diff", str(plan))

    assert {call.method for call in gated.cluster.calls} == {"GET"}
    assert not any("/leases" in call.path for call in gated.cluster.calls)


def test_the_exit_code_tells_changes_only_where_it_is_asked_to(gated: Bench) -> None:
    plan = gated.plan()

    assert gated.run("diff", str(plan)).code == 0
    assert gated.run("diff", str(plan), "--detailed-exitcode").code == 2
    gated.apply(plan)
    said = gated.run("diff", str(plan), "--detailed-exitcode", "-o", "json")
    assert (said.code, said.data()) == (0, [])
    assert said.err.splitlines() == ["no changes: the cluster matches the plan"]


def test_the_table_names_an_object_once_and_says_what_is_next(gated: Bench) -> None:
    plan = gated.plan()
    said = gated.run("diff", str(plan))

    assert said.out.splitlines().count("pod/default/a-0") == 1
    where = placed(plan)["a-0"]
    assert f"  spec.nodeName                                + {where}" in said.out.splitlines()
    gate = "  spec.schedulingGates                         - gangplan.dev/placement"
    assert gate in said.out.splitlines()
    assert max(map(len, said.out.splitlines())) <= 80
    assert said.err.splitlines() == [
        "4 objects would change",
        f"next: gangplan apply {plan}",
    ]


def test_evictions_are_changes_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = FakeCluster()
    cluster.add_node("n1", taints=[OWN])
    low = {"gangplan.dev/preemptible": "true"}
    cluster.gang_of_pods("low", 1, nodes=["n1"], tolerations=TOLERATE, annotations=low)
    cluster.gang_of_pods("high", 1, priority=1000, tolerations=TOLERATE)
    with bench(cluster, tmp_path, monkeypatch) as made:
        plan = made.plan()
        said = made.run("diff", str(plan))
        assert fields(made, plan, "low-0") == {"spec.nodeName": ("n1", None)}
    assert said.err.splitlines()[-2:] == [
        "1 pod would be evicted, which needs --allow-evictions",
        f"next: gangplan apply --allow-evictions {plan}",
    ]
    assert said.out.splitlines()[-2:] == [
        "pod/default/low-0",
        "  spec.nodeName                                - n1",
    ]


def test_what_moved_since_the_plan_was_made_is_said(gated: Bench) -> None:
    plan = gated.plan()
    gated.cluster.remove("Pod", "b-1")
    gated.cluster.cordon("n1")

    said = gated.run("diff", str(plan), "-o", "json")

    assert said.code == 0
    assert "warning: stale: pod default/b-1 is gone" in said.err
    assert "warning: stale: node n1 is cordoned" in said.err
    assert "next: gangplan snapshot --out DIR" in said.err
    assert "next: gangplan apply" not in said.err


def test_labels_with_escape_codes_do_nothing_to_the_terminal(gated: Bench) -> None:
    plan = gated.plan()
    gated.cluster.scheduler.on = False

    def poison(tree: dict) -> dict:  # type: ignore[type-arg]
        annotations = {**tree["metadata"].get("annotations", {}), "gangplan.dev/gang": "\x1b[2Jx\n"}
        return {**tree, "metadata": {**tree["metadata"], "annotations": annotations}}

    gated.cluster.change("Pod", "a-0", poison)
    for output in ("table", "json", "yaml"):
        said = gated.run("diff", str(plan), "-o", output)
        assert said.code == 0
        assert "\x1b" not in said.out + said.err
