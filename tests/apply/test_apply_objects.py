"""The orders read from a plan: pods to start and stop, and assumptions about nodes; and as objects in stable
bytes (``gangplan apply --dry-run=client -o yaml``).
"""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path
from typing import Any

import plan_changes
import plan_documents as docs
import pytest
import yaml
from conftest import Result, RunCli

from models.apply import plan_actions
from models.apply.plan_actions import InapplicablePlanError, PlanActions, plan_id
from models.documents.plan import PlanDocument

Doc = dict[str, Any]

# ---- objects


def known(plan: Doc) -> Doc:
    """The plan of a cluster with an identity; its pods carry the uids that the input names."""
    plan["instance"]["cluster"]["metadata"]["uid"] = "u-cluster"
    for gang in plan["instance"]["gangs"]:
        uids = {(p["role"], p["index"]): p.get("uid") for p in gang["status"]["pods"]}
        for pod in docs.entry(plan, gang["metadata"]["name"])["pods"]:
            if uid := uids.get((pod["role"], pod["index"])):
                pod["uid"] = uid
    return docs.restated(plan)


def waiting(of: str, index: int) -> Doc:
    """A gated pod, as a snapshot tells of it."""
    pod = {"name": f"{of}-worker-{index}", "role": "worker", "index": index, "mode": "gate"}
    return pod | {"node": None, "gpus": None, "uid": f"u-{of}-{index}"}


def standing(of: str, node: str, gpus: list[int]) -> Doc:
    return docs.standing(of, node, gpus) | {"uid": f"u-{of}"}


def plan() -> Doc:
    """Two servers: ``gate`` and ``bind`` start on them, ``last`` gives way, ``calm`` stays."""
    four = docs.role(gpus=4)
    gate = (waiting("gate", 0), waiting("gate", 1))
    gangs = [
        docs.gang("bind", four, pods=(waiting("bind", 0),), priority=9),
        docs.gang("calm", four, pods=(standing("calm", "h2", [4, 5, 6, 7]),)),
        docs.gang("gate", docs.role(replicas=2, gpus=4), pods=gate, priority=9),
        docs.gang(
            "last", docs.role(gpus=8), pods=(standing("last", "h1", [*range(8)]),), preemptible=True
        ),
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
    return known(
        docs.document(docs.cluster([docs.dgx()], nodes), gangs, decisions, docs.policy())
    )  # fmt: skip


PLAN_ID = plan_id(PlanDocument.model_validate(plan()))


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
    """By gang: bind, gate, last; calm is kept and has none. As apply would send them; JSON holds the same."""
    found = stream(cli, file)
    assert [(one["kind"], one["metadata"]["name"]) for one in found] == [
        ("Pod", "bind-worker-0"),
        ("Pod", "gate-worker-0"),
        ("Pod", "gate-worker-1"),
        ("Eviction", "last-worker-0"),
    ]
    patch, eviction = found[1], found[3]
    assert patch["metadata"]["uid"] == "u-gate-0"
    assert patch["spec"] == {
        "schedulingGates": [{"name": "gangplan.dev/placement", "$patch": "delete"}],
        "nodeSelector": {"kubernetes.io/hostname": "host-of-h1"},
    }
    assert patch["metadata"]["labels"] == {"gangplan.dev/plan": PLAN_ID}
    place = {"gangplan.dev/node": "h1", "gangplan.dev/gpus": "0,1,2,3"}
    assert patch["metadata"]["annotations"] == place
    assert eviction["deleteOptions"] == {"preconditions": {"uid": "u-last"}}
    as_json = json.loads(objects(cli, file, "json").out)
    assert [one for gang in as_json["gangs"] for one in gang["objects"]] == found
    assert as_json["plan"] == PLAN_ID


@pytest.mark.usefixtures("file")
def test_a_node_without_a_hostname_of_its_own_is_pinned_by_name(cli: RunCli) -> None:
    document = plan()
    document["instance"]["cluster"]["spec"]["nodes"][0]["labels"] = {"kubernetes.io/hostname": "h2"}
    patch = stream(cli, write(docs.restated(document)))[1]
    field = {"key": "metadata.name", "operator": "In", "values": ["h1"]}
    required = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    assert "nodeSelector" not in patch["spec"]
    name = "requiredDuringSchedulingIgnoredDuringExecution"
    assert patch["spec"]["affinity"] == {"nodeAffinity": {name: required}}


def test_the_objects_begin_with_a_warning_and_are_stable(file: str, cli: RunCli) -> None:
    text = objects(cli, file).out
    assert text.splitlines()[0] == f"# Plan {PLAN_ID}: 3 pods to start, 1 pod to evict."
    assert text.index("Never `kubectl apply`") < text.index("---")
    assert max(len(line) for line in text.splitlines() if line.startswith("#")) <= 80
    later = plan()
    later["metadata"] |= {"createdAt": "2027-01-01T00:00:00Z", "generator": "gangplan 9"}
    assert objects(cli, write(dict(reversed(later.items())))).out == text


@pytest.mark.usefixtures("file")
def test_a_plan_without_uids_or_that_the_verifier_refuses_has_no_objects(cli: RunCli) -> None:
    document = plan()
    document["instance"]["cluster"]["metadata"].pop("uid")
    result = objects(cli, write(docs.restated(document)))
    assert (result.code, result.out) == (65, "")
    assert "the plan does not say which cluster it is for" in result.err
    document = plan()
    document["spec"]["gangs"][0]["pods"][0]["gpus"] = [3, 4, 5, 6]
    result = objects(cli, write(docs.sealed(document)))
    assert (result.code, result.out) == (5, "")


def test_what_no_object_can_say_is_in_a_remark(file: str, cli: RunCli) -> None:
    """``away`` moves from h1 to h2: one pod is evicted, and started once its controller made it anew.

    ``grow`` runs 1 of up to 2 pods and gets the second, which is not there yet; ``less`` gives up its second,
    which its controller removes.
    """
    away, grow = standing("away", "h1", [0, 1, 2, 3]), standing("grow", "h1", [4, 5, 6, 7])
    first, less = standing("less", "h2", [4, 5]), standing("less", "h2", [6, 7])
    less |= {"name": "less-worker-1", "index": 1, "uid": "u-less-1"}
    elastic = docs.role(replicas={"min": 1, "max": 2}, gpus=4)
    gangs = [
        docs.gang("away", docs.role(gpus=4), pods=(away,), movable=True),
        docs.gang("grow", elastic, pods=(grow,)),
        docs.gang("less", {**elastic, "gpus": 2}, pods=(first, less), movable=True),
    ]
    decisions = [
        docs.decided("away", "move", ("h2", [0, 1, 2, 3])),
        docs.decided("grow", "resize", ("h1", [4, 5, 6, 7]), ("h1", [0, 1, 2, 3])),
        docs.decided("less", "resize", ("h2", [4, 5])),
    ]
    nodes = [docs.node(name, "DGX H100", "b1/r1") for name in ("h1", "h2")]
    write(known(docs.document(docs.cluster([docs.dgx()], nodes), gangs, decisions)))
    result = objects(cli, file, "json")
    assert result.code == 0, result.err
    away_, grow_, less_ = json.loads(result.out)["gangs"]
    assert [one["kind"] for one in away_["objects"]] == ["Eviction"]
    later = "pod away-worker-0, once its controller has made it: node h2, GPUs 0,1,2,3"
    assert away_["remarks"] == [later]
    assert grow_["objects"] == []
    assert grow_["remarks"] == [
        "role worker: 1 to 2 pods, by its controller's scale field",
        "pod grow-worker-1, once its controller has made it: node h1, GPUs 0,1,2,3",
    ]
    assert less_["objects"] == []
    assert less_["remarks"] == ["role worker: 2 to 1 pods, by its controller's scale field"]
    assert f"# - {later}\n" in objects(cli, file).out


# ---- orders


def document() -> Doc:
    """The plan in which everything happens, of a live cluster: each pod has a uid, waiting ones a mode.

    tune moves from n01 to n06, batch stops on n02, llama starts on both, serve grows from 2 to 3, shrink
    shrinks from 2 to 1, half gets its missing pod.
    """
    plan: Doc = copy.deepcopy(plan_changes.plan())
    plan["instance"]["cluster"]["metadata"]["uid"] = "kube-system-uid"
    gangs = {gang["metadata"]["name"]: gang for gang in plan["instance"]["gangs"]}
    for gang in gangs.values():
        for pod in gang["status"]["pods"]:
            pod["uid"] = f"uid-{pod['name']}"
    for stated in plan["spec"]["gangs"]:
        pods = gangs[stated["name"]]["status"]["pods"]
        here = {(pod["role"], pod["index"]) for pod in pods}
        for pod in stated["pods"]:
            if (pod["role"], pod["index"]) not in here and stated["name"] != "serve":
                named = {key: pod[key] for key in ("name", "role", "index")}
                pods.append({**named, "uid": f"uid-{pod['name']}", "mode": "gate"})
    return plan


def gang_of(document: Doc, name: str) -> Doc:
    gangs = document["instance"]["gangs"]
    found: Doc = next(one for one in gangs if one["metadata"]["name"] == name)
    return found


def actions_of(document: Doc) -> PlanActions:
    return plan_actions.actions_of(PlanDocument.model_validate(document))


def test_nodes_are_relied_on_with_what_selectors_taints_and_levels_say() -> None:
    plan = document()
    cluster = plan["instance"]["cluster"]["spec"]
    cluster["nodes"][0] |= {
        "labels": {"pool": "a", "unused": "x", "offers.gangplan.dev/nvidia": "true"},
        "taints": [
            {"key": "gpu", "value": "", "effect": "NoSchedule"},
            {"key": "rather-not", "value": "", "effect": "PreferNoSchedule"},
        ],
        "unhealthyGpus": [3],
    }
    for level in cluster["levels"]:
        level["label"] = f"example.com/{level['name']}"
    role = gang_of(plan, "llama")["spec"]["roles"][0]
    role["nodeSelector"] = {"pool": "a", "offers.gangplan.dev/nvidia": "true"}
    role["nodeAffinity"] = [[{"key": "spot", "operator": "DoesNotExist", "values": []}]]
    relied = {one.name: one for one in actions_of(plan).nodes}
    # Nodes that pods start on: llama n01 n02, half n05, serve and tune n06.
    assert sorted(relied) == ["n01", "n02", "n05", "n06"]
    n01 = relied["n01"]
    assert n01.gpus == 7
    places = (("example.com/block", "b1"), ("example.com/rack", "r1"))
    assert n01.labels == (*places, ("pool", "a"), ("spot", None))
    assert n01.taints == (("gpu", "", "NoSchedule"),)


def test_the_id_of_a_plan_is_a_label_value_and_differs_with_either_digest() -> None:
    plan = document()
    ids = {plan_id(PlanDocument.model_validate(plan))}
    for part in ("instance", "spec"):
        other = copy.deepcopy(plan)
        other["status"]["digests"][part] = "sha256:other"
        ids.add(plan_id(PlanDocument.model_validate(other)))
    assert len(ids) == 3
    assert all(re.fullmatch(r"gp-[0-9a-f]{20}", one) for one in ids)


@pytest.mark.parametrize(("gang", "word"), [("llama", "starts"), ("batch", "stops")])
def test_a_plan_without_the_uid_of_a_pod_cannot_be_ordered(gang: str, word: str) -> None:
    plan = document()
    for pod in gang_of(plan, gang)["status"]["pods"]:
        pod.pop("uid")
    with pytest.raises(InapplicablePlanError, match=rf"{word} the pod '{gang}-worker-0'"):
        actions_of(plan)


def test_a_pod_with_a_part_that_stays_where_it_is_does_not_restart_when_its_gang_moves() -> None:
    plan = document()
    tune = gang_of(plan, "tune")
    tune["spec"]["roles"].append({"name": "book", "replicas": 1, "gpu": {"fraction": 0.5}})
    book = {"name": "book-0", "role": "book", "index": 0, "node": "n03", "gpus": [6]}
    tune["status"]["pods"].append({**book, "uid": "uid-book"})
    stated = next(one for one in plan["spec"]["gangs"] if one["name"] == "tune")
    stated["pods"].append({**book, "gpus": []})
    (moved,) = [gang for gang in actions_of(plan).gangs if gang.name == "tune"]
    assert [stop.role for stop in moved.stops] == ["worker"]
    assert [start.role for start in moved.starts] == ["worker"]
