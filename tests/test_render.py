"""``gangplan render``: the objects a plan sends, in stable bytes, and nothing that can be sent by mistake."""

from __future__ import annotations

import copy
import errno
import json
import shlex
from pathlib import Path
from typing import Any

import plan_documents as docs
import pytest
import yaml
from conftest import RunCli

from models.apply import plan_actions
from models.apply.intents import read_intent
from models.documents.plan import PlanDocument
from planner import atomic_files

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


def stream(cli: RunCli, path: str) -> list[Doc]:
    result = cli("render", path)
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


@pytest.mark.parametrize("form", ["yaml", "json"])
def test_it_begins_with_what_must_not_be_done_with_it(file: str, form: str, cli: RunCli) -> None:
    text = cli("render", file, "-o", form).out
    assert HEADER in text
    if form == "yaml":
        first = text.splitlines()[0]
        assert first == f"# Plan {plan_id()}: 3 pods to start, 1 pod to evict."
        assert text.index(HEADER) < text.index("---")


def test_the_same_plan_gives_the_same_bytes_whenever_it_was_made(file: str, cli: RunCli) -> None:
    before = cli("render", file)
    later = plan()
    later["metadata"] |= {"createdAt": "2027-01-01T00:00:00Z", "generator": "gangplan 9"}
    reordered = dict(reversed(later.items()))
    assert cli("render", write(reordered)).out == before.out


def test_json_holds_the_same_objects_with_their_commands(file: str, cli: RunCli) -> None:
    found = json.loads(cli("render", file, "-o", "json").out)
    objects = [one for gang in found["gangs"] for one in gang["objects"]]
    assert [one["manifest"] for one in objects] == stream(cli, file)
    assert found["metadata"] == {"name": plan_id(), "cluster": "u-cluster"}
    words = shlex.split(objects[-1]["command"])
    url = "/api/v1/namespaces/default/pods/last-worker-0/eviction"
    assert words == ["kubectl", "create", "--raw", url, "-f", objects[-1]["path"]]


def test_a_folder_has_a_file_an_object_and_nothing_that_tools_sync(file: str, cli: RunCli) -> None:
    result = cli("render", file, "--to", "out")
    assert result.code == 0
    assert result.out == ""
    assert result.err.endswith("next: gangplan apply plan.json\n")
    names = {str(one.relative_to("out")) for one in Path("out").rglob("*") if one.is_file()}
    assert names == {
        "RENDERED",
        "default/bind/bind-worker-0.patch",
        "default/gate/gate-worker-0.patch",
        "default/gate/gate-worker-1.patch",
        "default/last/last-worker-0.eviction",
    }
    eviction = json.loads(Path("out/default/last/last-worker-0.eviction").read_text("utf-8"))
    assert eviction == stream(cli, file)[-1], "`create --raw` sends the file as it is: JSON"
    patch = yaml.safe_load(Path("out/default/gate/gate-worker-0.patch").read_text("utf-8"))
    assert patch == stream(cli, file)[1]
    index = Path("out/RENDERED").read_text("utf-8")
    assert HEADER in index
    assert max(len(line) for line in index.splitlines() if line.startswith("#")) <= 80


def test_what_a_later_plan_no_longer_has_goes(file: str, cli: RunCli) -> None:
    cli("render", file, "--to", "out")
    Path("out/notes.txt").write_text("mine", encoding="utf-8")
    later = plan()
    docs.entry(later, "bind").update(docs.decided("bind", "wait", why="NoRoom"))
    assert cli("render", write(docs.restated(later)), "--to", "out").code == 0
    assert not Path("out/default/bind").exists()
    assert Path("out/notes.txt").read_text("utf-8") == "mine"
    assert Path("out/default/gate/gate-worker-0.patch").exists()


def test_an_edited_index_removes_nothing_outside(file: str, cli: RunCli) -> None:
    cli("render", file, "--to", "out")
    Path("keep.patch").write_text("mine", encoding="utf-8")
    with Path("out/RENDERED").open("a", encoding="utf-8") as stream_:
        stream_.write(
            "../x/keep.patch\tkubectl\na/../../keep.patch\t\n/a/keep.patch\t\nnotes.txt\t\n"
        )
    Path("out/notes.txt").write_text("mine", encoding="utf-8")
    assert cli("render", file, "--to", "out").code == 0
    assert Path("keep.patch").exists()
    assert Path("out/notes.txt").exists()


def test_a_folder_with_other_things_is_left_alone(file: str, cli: RunCli) -> None:
    Path("out").mkdir()
    Path("out/mine.yaml").write_text("a: 1", encoding="utf-8")
    result = cli("render", file, "--to", "out")
    assert result.code == 73
    assert "contains no rendering" in result.err
    assert list(Path("out").iterdir()) == [Path("out/mine.yaml")]


def test_a_plan_without_uids_is_for_reading_alone(file: str, cli: RunCli) -> None:
    document = plan()
    document["instance"]["cluster"]["metadata"].pop("uid")
    for gang in [*document["instance"]["gangs"], *document["spec"]["gangs"]]:
        for pod in gang.get("pods", gang.get("status", {}).get("pods", [])):
            pod.pop("uid", None)
    text = cli("render", write(docs.restated(document))).out
    assert "not to be applied" in text
    assert "# kubectl" not in text
    assert "uid:" not in text
    assert "# - evict default/last-worker-0" in text
    found = [one for one in yaml.safe_load_all(text) if one is not None]
    assert [one["kind"] for one in found] == ["Pod", "Pod", "Pod"]
    result = cli("render", file, "--to", "out")
    assert "warning: the plan has no pod uids" in result.err
    assert "next:" not in result.err


def test_a_plan_that_the_verifier_refuses_is_not_rendered(file: str, cli: RunCli) -> None:
    document = plan()
    document["spec"]["gangs"][0]["pods"][0]["gpus"] = [3, 4, 5, 6]
    result = cli("render", write(docs.sealed(document)))
    assert (result.code, result.out) == (5, "")
    assert file == "plan.json"


def test_names_that_could_leave_the_folder_are_refused(file: str, cli: RunCli) -> None:
    document = copy.deepcopy(plan())
    for pod in (
        docs.entry(document, "bind")["pods"][0],
        docs.wanted(document, "bind")["status"]["pods"][0],
    ):
        pod["name"] = "../../evil"
    result = cli("render", write(docs.sealed(document)), "--to", "out")
    said = "error: form: instance.gangs[0].status.pods[0].name: '../../evil' cannot be a name"
    assert (result.code, result.err.splitlines()[0]) == (5, said)
    assert not Path("out").exists()
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
    result = cli("render", write(moved), "-o", "json")
    assert result.code == 0, result.err
    away_, grow_ = json.loads(result.out)["gangs"]
    assert [one["manifest"]["kind"] for one in away_["objects"]] == ["Eviction"]
    later = "pod away-worker-0, once its controller has made it: node h2, GPUs 0,1,2,3"
    assert away_["remarks"] == [later]
    assert grow_["objects"] == []
    assert grow_["remarks"] == [
        "role worker: 1 to 2 pods, by its controller's scale field",
        "pod grow-worker-1, once its controller has made it: node h1, GPUs 0,1,2,3",
    ]
    assert f"# - {later}\n" in cli("render", file).out


def test_a_first_rendering_that_fails_leaves_no_folder(
    file: str, cli: RunCli, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = OSError(errno.ENOSPC, "No space left on device")
    real = atomic_files.save
    saved: list[Path] = []

    def save(path: Path, text: str) -> None:
        if len(saved) == 3:  # the index and two objects
            raise full
        saved.append(path)
        real(path, text)

    monkeypatch.setattr(atomic_files, "save", save)
    for folder in ("out", "empty"):
        saved.clear()
        result = cli("render", file, "--to", folder)
        assert (result.code, result.err.splitlines()[0]) == (
            73,
            f"error: cannot write {folder}: No space left on device",
        )
        assert len(saved) == 3
        if folder == "out":
            assert not Path(folder).exists()
            Path("empty").mkdir()
    assert list(Path("empty").iterdir()) == []
