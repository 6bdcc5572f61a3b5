"""Files, folders, standard input and --policy: how texts are found and come together."""

from __future__ import annotations

import io
import json
from pathlib import Path

import handmade
import pytest
import yaml

from planner.errors import InputError, MissingPathError
from planner.read.inputs import load, read

HEAD = "apiVersion: gangplan.dev/v1alpha1\n"
CLUSTER = (
    HEAD
    + """kind: Cluster
metadata: {name: two-racks}
spec:
  levels: [{name: rack}]
  nodes:
  - {name: "gpu-[01-04]", model: DGX H100, domains: {rack: r1}}
  - {name: cpu-1, labels: {answer: NO}}
"""
)
GANG = (
    HEAD
    + """kind: Gang
metadata: {name: llama, namespace: research}
spec: {roles: [{name: worker, replicas: 2, gpus: 8}]}
status:
  pods: [{role: worker, index: 0, node: gpu-01}]
"""
)


def test_order_of_files_and_documents_does_not_matter(tmp_path: Path) -> None:
    one, two = tmp_path / "one.yaml", tmp_path / "two.yaml"
    one.write_text(CLUSTER)
    other = GANG.replace("llama", "bert").split("status:")[0]
    two.write_text(f"---\n{GANG}---\n---\n{other}")
    assert read([str(one), str(two)]) == read([str(two), str(one)])
    assert [g.name for g in read([str(two), str(one)]).gangs] == ["bert", "llama"]


def test_a_folder_is_read_recursively_without_hidden_files(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "x.yaml").write_text("{")
    (tmp_path / "a" / ".x.yaml").write_text("{")
    (tmp_path / "a" / "notes.txt").write_text("{")
    (tmp_path / "a" / "c.YAML").write_text(CLUSTER)
    (tmp_path / "a" / "b" / "g.yml").write_text(GANG)
    assert len(read([str(tmp_path)]).gangs) == 1


@pytest.mark.parametrize(
    "text", [CLUSTER, json.dumps(yaml.safe_load(CLUSTER.replace("NO", '"NO"')))]
)
def test_a_dash_is_standard_input_in_either_format(text: str) -> None:
    assert read(["-"], stdin=io.BytesIO(text.encode())).cluster.name == "two-racks"


def test_a_policy_file_replaces_the_policy_of_the_paths(tmp_path: Path) -> None:
    inside, instead = tmp_path / "in", tmp_path / "p.yaml"
    inside.mkdir()
    instead.write_text(HEAD + "kind: Policy\nspec: {gpuBinding: none, mix: {8: 1000}}\n")
    (inside / "c.yaml").write_text(CLUSTER)
    (inside / "p.yaml").write_text(HEAD + "kind: Policy\nspec: {solve: {seed: 3}}\n")
    assert read([str(inside)]).policy.solve.seed == 3
    policy = read([str(inside)], policy=str(instead)).policy
    assert (policy.solve.seed, policy.gpu_binding, policy.mix) == (0, "none", ((8, 1000),))


@pytest.mark.parametrize("text", [CLUSTER, GANG])
def test_a_policy_file_holds_a_policy_and_nothing_else(tmp_path: Path, text: str) -> None:
    inside, instead = tmp_path / "in", tmp_path / "p.yaml"
    inside.mkdir()
    instead.write_text(text)
    (inside / "c.yaml").write_text(CLUSTER)
    with pytest.raises(InputError, match="in the file of --policy"):
        read([str(inside)], policy=str(instead))


def test_every_missing_path_is_named(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("{")  # its own fault comes second
    with pytest.raises(MissingPathError) as caught:
        read([str(tmp_path / "x"), str(tmp_path / "c.yaml"), str(tmp_path / "y\x07")])
    assert [fault.what for fault in caught.value.faults] == [
        f"no such file or folder: {tmp_path}/x",
        f"no such file or folder: {tmp_path}/y\\x07",
    ]
    assert caught.value.exit_code == 66


def test_a_plan_in_a_folder_is_skipped_with_a_remark(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(CLUSTER)
    alone = read([str(tmp_path)])
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps(handmade.plan()))
    built = load([str(tmp_path)])
    assert built.instance == alone
    assert built.remarks == (f"{plan}: a Plan is not an input; it is skipped",)
    # A user who names the file gets an error that says which verbs read it.
    with pytest.raises(InputError) as caught:
        read([str(tmp_path), str(plan)])
    (fault,) = caught.value.faults
    assert (fault.what, fault.file, fault.line) == ("a Plan is not an input", str(plan), 1)
    assert (
        fault.hint
        == "gangplan show and verify read it; plan --previous keeps pods where it placed them"
    )
