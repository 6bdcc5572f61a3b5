"""``gangplan apply --dry-run=client -o yaml``: the objects a plan sends, in stable bytes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import plan_documents as docs
import pytest
import yaml
from conftest import Result, RunCli

from models.apply import plan_actions
from models.apply.intents import read_intent
from models.documents.plan import PlanDocument

Doc = dict[str, Any]

HEADER = "Never `kubectl apply`"


def waiting(of: str, index: int, mode: str | None) -> Doc:
    """A pod that waits to be started, as a snapshot tells of it."""
    pod = {"name": f"{of}-worker-{index}", "role": "worker", "index": index, "node": None}
    return pod | {"gpus": None, "uid": f"u-{of}-{index}"} | ({"mode": mode} if mode else {})


def known(plan: Doc) -> Doc:
    """The plan of a cluster with an identity; its pods carry the uids that the input names."""
    plan["instance"]["cluster"]["metadata"]["uid"] = "u-cluster"
    for gang in plan["instance"]["gangs"]:
        uids = {(p["role"], p["index"]): p.get("uid") for p in gang["status"]["pods"]}
        for pod in docs.entry(plan, gang["metadata"]["name"])["pods"]:
            if uid := uids.get((pod["role"], pod["index"])):
                pod["uid"] = uid
    return docs.restated(plan)


def plan_id() -> str:
    return plan_actions.plan_id(PlanDocument.model_validate(plan()))


def plan(**rules: Any) -> Doc:  # noqa: ANN401  # fields of the Policy
    """Two servers: ``gate`` and ``bind`` start on them, ``last`` gives way, ``calm`` stays."""
    calm = docs.standing("calm", "h2", [4, 5, 6, 7]) | {"uid": "u-calm"}
    last = docs.standing("last", "h1", list(range(8))) | {"uid": "u-last"}
    gangs = [
        docs.gang("bind", docs.role(gpus=4), pods=(waiting("bind", 0, "gate"),), priority=9),
        docs.gang("calm", docs.role(gpus=4), pods=(calm,)),
        docs.gang(
            "gate",
            docs.role(replicas=2, gpus=4),
            pods=(waiting("gate", 0, "gate"), waiting("gate", 1, "gate")),
            priority=9,
        ),
        docs.gang("last", docs.role(gpus=8), pods=(last,), preemptible=True),
    ]
    decisions = [
        docs.decided("bind", "place", ("h2", [0, 1, 2, 3])),
        docs.decided("calm", "keep", ("h2", [4, 5, 6, 7])),
        docs.decided("gate", "place", ("h1", [0, 1, 2, 3]), ("h1", [4, 5, 6, 7])),
        docs.stopped("last", "gate"),
    ]
    labels = {"kubernetes.io/hostname": "host-of-h1"}
    nodes = [
        docs.node("h1", "DGX H100", "b1/r1", labels=labels),
        docs.node("h2", "DGX H100", "b1/r1"),
    ]
    made = docs.document(docs.cluster([docs.dgx()], nodes), gangs, decisions, docs.policy(**rules))
    return known(made)


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    return write(plan())


def write(document: Doc) -> str:
    Path("plan.json").write_text(json.dumps(document), encoding="utf-8")
    return "plan.json"


def objects(cli: RunCli, path: str, form: str = "yaml") -> Result:
    return cli("apply", path, "--dry-run=client", "-o", form)


def stream(cli: RunCli, path: str) -> list[Doc]:
    result = objects(cli, path)
    assert (result.code, result.err) == (0, "")
    return [one for one in yaml.safe_load_all(result.out) if one is not None]


def test_every_pod_that_starts_or_stops_has_an_object(file: str, cli: RunCli) -> None:
    """By gang: bind, gate, last; calm is kept and has none."""
    found = [(one["kind"], one["metadata"]["name"]) for one in stream(cli, file)]
    assert found == [
        ("Pod", "bind-worker-0"),
        ("Pod", "gate-worker-0"),
        ("Pod", "gate-worker-1"),
        ("Eviction", "last-worker-0"),
    ]


def test_a_gated_pod_is_patched_as_apply_would(file: str, cli: RunCli) -> None:
    patch = stream(cli, file)[1]
    assert patch["metadata"]["uid"] == "u-gate-0"
    assert patch["spec"] == {
        "schedulingGates": [{"name": "gangplan.dev/placement", "$patch": "delete"}],
        "nodeSelector": {"kubernetes.io/hostname": "host-of-h1"},
    }
    intent = read_intent(patch["metadata"]["labels"], patch["metadata"]["annotations"])
    assert intent is not None
    assert (intent.plan, intent.gang, intent.size) == (plan_id(), "gate", 2)
    assert (intent.node, intent.gpus) == ("h1", (0, 1, 2, 3))


def test_a_node_without_a_hostname_of_its_own_is_pinned_by_name(cli: RunCli, file: str) -> None:
    document = plan()
    document["instance"]["cluster"]["spec"]["nodes"][0]["labels"] = {"kubernetes.io/hostname": "h2"}
    patch = stream(cli, write(docs.restated(document)))[1]
    field = {"key": "metadata.name", "operator": "In", "values": ["h1"]}
    required = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    assert "nodeSelector" not in patch["spec"]
    assert patch["spec"]["affinity"] == {
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}
    }
    assert file == "plan.json"


def test_an_eviction_names_the_uid(file: str, cli: RunCli) -> None:
    *_, eviction = stream(cli, file)
    assert eviction["deleteOptions"] == {"preconditions": {"uid": "u-last"}}


def test_it_begins_with_what_must_not_be_done_with_it(file: str, cli: RunCli) -> None:
    text = objects(cli, file).out
    first = text.splitlines()[0]
    assert first == f"# Plan {plan_id()}: 3 pods to start, 1 pod to evict."
    assert text.index(HEADER) < text.index("---")
    assert max(len(line) for line in text.splitlines() if line.startswith("#")) <= 80


def test_the_same_plan_gives_the_same_bytes_whenever_it_was_made(file: str, cli: RunCli) -> None:
    before = objects(cli, file)
    later = plan()
    later["metadata"] |= {"createdAt": "2027-01-01T00:00:00Z", "generator": "gangplan 9"}
    reordered = dict(reversed(later.items()))
    assert objects(cli, write(reordered)).out == before.out


def test_json_holds_the_same_objects(file: str, cli: RunCli) -> None:
    found = json.loads(objects(cli, file, "json").out)
    assert [one for gang in found["gangs"] for one in gang["objects"]] == stream(cli, file)
    assert found["plan"] == plan_id()


def test_a_plan_without_uids_has_no_objects(file: str, cli: RunCli) -> None:
    document = plan()
    document["instance"]["cluster"]["metadata"].pop("uid")
    result = objects(cli, write(docs.restated(document)))
    assert (result.code, result.out) == (65, "")
    assert "the plan does not say which cluster it is for" in result.err
    assert file == "plan.json"


def test_a_plan_that_the_verifier_refuses_is_not_rendered(file: str, cli: RunCli) -> None:
    document = plan()
    document["spec"]["gangs"][0]["pods"][0]["gpus"] = [3, 4, 5, 6]
    result = objects(cli, write(docs.sealed(document)))
    assert (result.code, result.out) == (5, "")
    assert file == "plan.json"


def test_what_no_object_can_say_is_in_a_remark(file: str, cli: RunCli) -> None:
    """``away`` moves from h1 to h2: one pod is evicted, and started once its controller made it anew.

    ``grow`` runs 1 of up to 2 pods and gets the second, which is not there yet.
    """
    away = docs.standing("away", "h1", [0, 1, 2, 3]) | {"uid": "u-away"}
    grow = docs.standing("grow", "h1", [4, 5, 6, 7]) | {"uid": "u-grow"}
    elastic = docs.role(replicas={"min": 1, "max": 2}, gpus=4)
    gangs = [
        docs.gang("away", docs.role(gpus=4), pods=(away,), movable=True),
        docs.gang("grow", elastic, pods=(grow,)),
    ]
    decisions = [
        docs.decided("away", "move", ("h2", [0, 1, 2, 3])),
        docs.decided("grow", "resize", ("h1", [4, 5, 6, 7]), ("h1", [0, 1, 2, 3])),
    ]
    nodes = [docs.node(name, "DGX H100", "b1/r1") for name in ("h1", "h2")]
    moved = known(docs.document(docs.cluster([docs.dgx()], nodes), gangs, decisions))
    result = objects(cli, write(moved), "json")
    assert result.code == 0, result.err
    away_, grow_ = json.loads(result.out)["gangs"]
    assert [one["kind"] for one in away_["objects"]] == ["Eviction"]
    later = "pod away-worker-0, once its controller has made it: node h2, GPUs 0,1,2,3"
    assert away_["remarks"] == [later]
    assert grow_["objects"] == []
    assert grow_["remarks"] == [
        "role worker: 1 to 2 pods, by its controller's scale field",
        "pod grow-worker-1, once its controller has made it: node h1, GPUs 0,1,2,3",
    ]
    assert f"# - {later}\n" in objects(cli, file).out
