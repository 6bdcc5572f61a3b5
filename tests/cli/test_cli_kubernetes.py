"""Clusters as they are on the command line: what people pipe in, mix, save and see."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path
from typing import Any

import kube
import pytest
import yaml
from conftest import RunCli
from effort import first_fast

from planner.show.console import MAX_REMARKS

EPOCH = {"SOURCE_DATE_EPOCH": "1795248000"}
IN_TRAIN = {"scheduling.x-k8s.io/pod-group": "train"}


def listed(*trees: dict[str, Any]) -> bytes:
    """What ``kubectl get -o json`` prints."""
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": trees}).encode()


def group(name: str, members: int) -> dict[str, Any]:
    return {
        "apiVersion": "scheduling.x-k8s.io/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"minMember": members},
    }


def h100(name: str, **labels: str) -> dict[str, Any]:
    tree = kube.node(name)
    tree["metadata"]["labels"] |= {"node.kubernetes.io/instance-type": "a3-highgpu-8g", **labels}
    return tree


TRAIN = (
    h100("n-1"),
    h100("n-2"),
    kube.pod("train-0", gpus=8, gated=True, labels=IN_TRAIN),
    kube.pod("train-1", gpus=8, gated=True, labels=IN_TRAIN),
    group("train", 2),
)


def document(cli: RunCli, *arguments: str, stdin: bytes = b"") -> dict[str, Any]:
    result = cli("plan", *arguments, "-o", "json", stdin=stdin, environ=EPOCH)
    assert result.code == 0, result.err
    plan: dict[str, Any] = json.loads(result.out)
    return plan


def decisions(plan: dict[str, Any]) -> dict[str, str]:
    return {gang["name"]: gang["decision"] for gang in plan["spec"]["gangs"]}


def test_what_kubectl_prints_is_planned_from_stdin(cli: RunCli) -> None:
    result = cli("plan", "-", "-o", "name", stdin=listed(*TRAIN))
    assert (result.code, result.out) == (0, "gang/default/train\n")
    assert "warning" not in result.err
    assert result.err.splitlines()[0].startswith("no levels: ")
    assert "next:" not in result.err, "nothing reads the same standard input again"


def test_a_packed_list_on_stdin_is_unpacked(cli: RunCli) -> None:
    packed = gzip.compress(listed(*TRAIN), mtime=0)
    assert document(cli, "-", stdin=packed) == document(cli, "-", stdin=listed(*TRAIN))
    cut = cli("plan", "-", stdin=packed[:-20])
    assert cut.code == 65
    assert cut.err.startswith("error: not a whole gzip file\n  --> <stdin>:1:1\nhint: ")


@pytest.mark.parametrize("kubectl", [listed(), b'{"apiVersion":"v1","kind":"NodeList","items":[]}'])
def test_a_list_of_nothing_is_told_what_to_ask_kubectl_for(kubectl: bytes, cli: RunCli) -> None:
    result = cli("plan", "-", stdin=kubectl)
    assert result.code == 65
    assert result.err.startswith("error: no Cluster in the input, and no Kubernetes Node\n")
    assert "kubectl get nodes,pods,namespaces -A -o json" in result.err


def test_control_characters_in_the_level_a_pod_asks_for_are_escaped_in_the_reason(
    cli: RunCli,
) -> None:
    ask = {"kueue.x-k8s.io/podset-required-topology": "\x1b[41mrack\nred"}
    plan = document(
        cli, "-", stdin=listed(h100("n-1"), kube.pod("p", gpus=8, gated=True, annotations=ask))
    )
    said = "it requires level \\x1b[41mrack\\nred, which this cluster does not have"
    assert plan["spec"]["gangs"][0]["reason"] == {
        "code": "Unsupported",
        "message": said,
        "fields": {"text": said},
    }


def test_a_level_that_a_gang_names_is_for_its_own_rule_only(cli: RunCli) -> None:
    block = "cloud.google.com/gce-topology-block"
    nodes = [h100(f"n-{i}", **{block: "b", "a/half": f"h{i // 2}"}) for i in range(4)]
    greedy = kube.pod("greedy", gpus=64, gated=True)
    theirs = (kube.pod("train-0", gpus=8, gated=True, labels=IN_TRAIN), *TRAIN[3:])
    plain = document(cli, "-", stdin=listed(*nodes, *theirs, greedy))
    greedy["metadata"]["annotations"] = {"kueue.x-k8s.io/podset-required-topology": "a/half"}
    plan = document(cli, "-", stdin=listed(*nodes, *theirs, greedy))
    levels = plan["instance"]["cluster"]["spec"]["levels"]
    assert [(level["name"], level.get("counted", True)) for level in levels] == [
        ("block", True),
        ("half", False),
    ]
    assert plan["status"]["objectives"] == plain["status"]["objectives"]
    [_, own] = [gang["domains"] for gang in plan["spec"]["gangs"]]
    assert own == {"block": 1, "half": 1, "node": 2}


def test_a_gang_with_an_affinity_of_more_than_is_read_is_held_alone(cli: RunCli) -> None:
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    expressions = [{"key": f"k{i}", "operator": "DoesNotExist"} for i in range(1001)]
    terms = {required: {"nodeSelectorTerms": [{"matchExpressions": expressions}]}}
    large = kube.pod("large", gpus=8, gated=True, affinity={"nodeAffinity": terms})
    plan = document(cli, "-", stdin=listed(*TRAIN, large))
    assert decisions(plan) == {"large": "wait", "train": "place"}
    reason = plan["spec"]["gangs"][0]["reason"]
    assert reason["code"] == "Unsupported"
    assert reason["message"].startswith(
        "a required nodeAffinity of more than 100 terms, 1,000 expr"
    )


def test_imagined_servers_and_gangs_are_planned_with_the_real_ones(
    cli: RunCli, tmp_path: Path
) -> None:
    rack = {"example.com/rack": "r1"}
    real = [h100("n-1", **rack), h100("n-2", **rack)]
    topology = {
        "apiVersion": "kueue.x-k8s.io/v1beta1",
        "kind": "Topology",
        "metadata": {"name": "racks"},
        "spec": {"levels": [{"nodeLabel": "example.com/rack"}]},
    }
    (tmp_path / "a.json").write_bytes(listed(*real, topology))
    (tmp_path / "b.json").write_bytes(listed(*TRAIN[2:]))
    (tmp_path / "what-if.yaml").write_text(
        """
apiVersion: gangplan.dev/v1alpha1
kind: Cluster
metadata: {name: on-order}
spec:
  nodes: [{name: "new-[1-4]", model: GCP a3-highgpu-8g, domains: {rack: r2}}]
---
apiVersion: gangplan.dev/v1alpha1
kind: Gang
metadata: {name: imagined, namespace: dream}
spec:
  topology: {required: rack}
  roles: [{name: worker, replicas: 4, gpus: 8}]
""",
        encoding="utf-8",
    )
    plan = document(cli, str(tmp_path))
    assert decisions(plan) == {"train": "place", "imagined": "place"}
    # 32 GPUs in one rack: only the new one has them, so the real gang keeps to the real servers
    where = {gang["name"]: {pod["node"] for pod in gang["pods"]} for gang in plan["spec"]["gangs"]}
    assert where["imagined"] == {f"new-{number}" for number in range(1, 5)}
    assert where["train"] == {"n-1", "n-2"}
    assert [level["name"] for level in plan["instance"]["cluster"]["spec"]["levels"]] == ["rack"]


BOXES = """
apiVersion: gangplan.dev/v1alpha1
kind: Cluster
metadata: {name: hardware}
spec:
  serverModels:
  - name: Our Box
    gpu: H100
    gpus: 2
    fabric: pcie
    matrix: [[X, PIX], [PIX, X]]
    pcieMBps: 20000
    sysMBps: 10000
---
apiVersion: gangplan.dev/v1alpha1
kind: Policy
spec: {kubernetes: {serverModels: [{nodeSelector: {}, model: our-box}]}}
"""


def test_a_server_model_of_ones_own_describes_real_nodes(cli: RunCli, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(
        listed(kube.node("n-1", gpus=2), kube.pod("p", gpus=2, gated=True))
    )
    (tmp_path / "boxes.yaml").write_text(BOXES, encoding="utf-8")
    plan = document(cli, str(tmp_path))
    assert plan["instance"]["cluster"]["spec"]["nodes"][0]["model"] == "Our Box"
    # two GPUs under one PCIe switch
    assert [gang["bandwidthMBps"] for gang in plan["spec"]["gangs"]] == [20_000]
    assert "remarks" not in plan["status"]


def test_what_is_wrong_in_ones_own_document_beside_a_cluster_is_an_error_with_its_place(
    cli: RunCli, tmp_path: Path
) -> None:
    (tmp_path / "a.json").write_bytes(listed(*TRAIN))
    own = "apiVersion: gangplan.dev/v1alpha1\nkind: Gang\nmetadata: {name: a}\nspec:\n  role: []\n"
    (tmp_path / "b.yaml").write_text(own, encoding="utf-8")
    result = cli("plan", str(tmp_path))
    assert (result.code, result.out) == (65, "")
    assert f"  --> {tmp_path / 'b.yaml'}:5:3" in result.err


def test_the_levels_that_were_found_can_be_saved_and_used(cli: RunCli, tmp_path: Path) -> None:
    nodes = [
        h100(f"n-{block}{rack}{number}", **{"b/block": f"b{block}", "b/rack": f"b{block}r{rack}"})
        for block in (1, 2)
        for rack in (1, 2)
        for number in (1, 2)
    ]
    topology = {
        "apiVersion": "kueue.x-k8s.io/v1beta1",
        "kind": "Topology",
        "metadata": {"name": "ours"},
        "spec": {"levels": [{"nodeLabel": "b/block"}, {"nodeLabel": "b/rack"}]},
    }
    with_topology, without = tmp_path / "with.json", tmp_path / "without.json"
    with_topology.write_bytes(listed(*nodes, topology, *TRAIN[2:]))
    without.write_bytes(listed(*nodes, *TRAIN[2:]))
    saved = tmp_path / "levels.yaml"
    result = cli("validate", str(with_topology), "--save-policy", str(saved))
    assert result.code == 0
    assert "levels from Kueue Topology ours: block (2 domains), rack (4)" in result.err
    assert result.err.splitlines()[-1] == f"next: gangplan plan {with_topology} --policy {saved}"
    levels = yaml.safe_load(saved.read_text())["spec"]["kubernetes"]["levels"]
    assert levels == [
        {"name": "block", "label": "b/block"},
        {"name": "rack", "label": "b/rack"},
    ]
    again = cli("validate", str(without), "--policy", str(saved))
    assert again.code == 0
    assert "levels from the Policy: block (2 domains), rack (4)" in again.err
    found = document(cli, str(with_topology))["instance"]["cluster"]
    assert document(cli, str(without), "--policy", str(saved))["instance"]["cluster"] == found


def test_levels_of_an_input_that_states_its_own_cannot_be_saved(
    cli: RunCli, tmp_path: Path
) -> None:
    own = kube.SNAPSHOTS.parent / "quickstart"
    result = cli("validate", str(own), "--save-policy", str(tmp_path / "levels.yaml"))
    assert result.code == 64
    assert "error: no levels were found: the input states its own" in result.err
    assert not (tmp_path / "levels.yaml").exists()


def odd(count: int) -> list[dict[str, Any]]:
    """Nodes, each odd in its own way: an instance type nobody knows, a name a GPU."""
    nodes = [kube.node(f"odd-{number}") for number in range(count)]
    for number, node in enumerate(nodes):
        node["metadata"]["labels"]["nvidia.com/gpu.product"] = f"Mystery {number}"
    return nodes


def test_a_dry_run_tells_the_first_remarks_and_who_tells_the_rest(
    cli: RunCli, tmp_path: Path
) -> None:
    path = tmp_path / "odd.json"
    path.write_bytes(listed(*odd(12), *TRAIN))
    told = [line for line in cli("plan", str(path)).err.splitlines() if "warning:" in line]
    assert len(told) == MAX_REMARKS + 1
    assert told[-1] == f"warning: and 16 more; gangplan validate {path} shows all"
    every = [line for line in cli("validate", str(path)).err.splitlines() if "warning:" in line]
    assert len(every) == 24  # of each GPU model without a speed, and of each node
    assert every[:MAX_REMARKS] == told[:-1]
    for number, line in enumerate(every[:12]):
        assert line.startswith("warning: ServerModel 'unknown 8x MYSTERY-")
        assert "(1 node): no relativeSpeed is stated for MYSTERY-" in line, number
    assert every[12].startswith("warning: Node odd-0: server with 8 x ")
    assert "gangplan.dev/server-model" in every[12]


def test_remarks_are_in_the_plan_and_shown_with_it_and_do_not_disturb_the_check(
    cli: RunCli, tmp_path: Path
) -> None:
    source, saved = tmp_path / "odd.json", tmp_path / "plan.json"
    source.write_bytes(listed(*odd(12), *TRAIN))
    planned = cli("plan", str(source), "--out", str(saved), "-o", "json", environ=EPOCH)
    plan = json.loads(planned.out)
    assert json.loads(saved.read_text()) == plan
    every = [line for line in cli("validate", str(source)).err.splitlines() if "warning:" in line]
    assert [f"warning: {line}" for line in plan["status"]["remarks"]] == every
    assert cli("verify", str(saved)).code == 0
    shown = cli("show", str(saved))
    told = [line for line in shown.err.splitlines() if "warning:" in line]
    assert told[:-1] == every[:MAX_REMARKS]
    assert told[-1] == f"warning: and 16 more; gangplan show {saved} -o wide shows all"
    wide = cli("show", str(saved), "-o", "wide")
    assert [line for line in wide.err.splitlines() if "warning:" in line] == every
    for output in ("json", "yaml", "name"):
        assert "warning" not in cli("show", str(saved), "-o", output).err


def test_a_pod_with_a_constraint_that_no_level_can_keep_waits_until_the_policy_ignores_it(
    cli: RunCli, tmp_path: Path
) -> None:
    term = {"topologyKey": "rack", "labelSelector": {"matchLabels": {"a": "b"}}}
    beside = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    stdin = listed(h100("n-1"), kube.pod("alone", gpus=8, gated=True, affinity=beside))
    (gang,) = document(cli, "-", stdin=stdin)["spec"]["gangs"]
    assert (gang["decision"], gang["reason"]["code"]) == ("wait", "Unsupported")
    assert gang["reason"]["message"] == (
        "required podAffinity; to plan it anyway, set "
        "kubernetes.ignore: [podAffinity] in the Policy"
    )
    policy = tmp_path / "policy.yaml"
    policy.write_text(
        "apiVersion: gangplan.dev/v1alpha1\nkind: Policy\n"
        "spec: {kubernetes: {ignore: [podAffinity]}}\n",
        encoding="utf-8",
    )
    ignoring = document(cli, "-", "--policy", str(policy), stdin=stdin)
    assert decisions(ignoring) == {"alone": "place"}


@pytest.mark.parametrize("name", first_fast(["v100-mpi", "nvl72"]))
def test_names_and_order_of_files_and_objects_change_nothing(
    name: str, cli: RunCli, tmp_path: Path
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    left_out = shutil.ignore_patterns("*.facts", "*.md")
    shutil.copytree(kube.SNAPSHOTS / name, first, ignore=left_out)
    second.mkdir()
    for number, path in enumerate(sorted(first.iterdir(), reverse=True)):
        trees = kube.listed(path)
        (second / f"{number:02d}.json").write_bytes(listed(*reversed(trees)))
    plans = [document(cli, str(folder)) for folder in (first, second)]
    assert plans[0]["instance"] == plans[1]["instance"]
    assert plans[0]["spec"] == plans[1]["spec"]
    assert plans[0]["status"]["digests"] == plans[1]["status"]["digests"]
    assert plans[0]["status"].get("remarks") == plans[1]["status"].get("remarks")
