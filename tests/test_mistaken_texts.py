"""What people pipe by mistake in their first minute has one clear error, with a hint."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from conftest import RunCli
from kube import node, pod

FORBIDDEN = (
    'Error from server (Forbidden): nodes is forbidden: User "alice" cannot list resource "nodes"'
    ' in API group "" at the cluster scope'
)
NODES = json.dumps({"apiVersion": "v1", "kind": "List", "items": [node("gpu-01")]}, indent=4)
REFUSAL = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
RIGHT = "kubectl auth can-i list nodes -A must say yes"
ALONE = "run the command before the pipe alone"

TEXTS = {
    "nothing": ("", "standard input is empty", ALONE),
    "blank lines": ("\n \n", "standard input is empty", ALONE),
    "no right": (f"{FORBIDDEN}\n", f"an error message, not documents: {FORBIDDEN}", RIGHT),
    "no server": (
        "The connection to the server localhost:8080 was refused - did you specify the right host or port?\n",
        "an error message, not documents: The connection to the server localhost:8080 was refused",
        ALONE,
    ),
    "no kubectl": (
        "bash: kubectl: command not found\n",
        "an error message, not documents: bash: kubectl: command not found",
        ALONE,
    ),
    "a page": (
        "\ufeff\r\n<!DOCTYPE html>\n<html><title>\x1b[31m403</title></html>",
        "a web page, not documents: <!DOCTYPE html>",
        "a login page answered",
    ),
    "a refusal": (
        json.dumps({**REFUSAL, "message": "nodes is forbidden: \x1b[31m", "code": 403}),
        "a refusal of the API server, not documents: nodes is forbidden: \\x1b[31m",
        RIGHT,
    ),
    "a table": (
        "NAME    STATUS   ROLES    AGE   VERSION\ngpu-1   Ready    <none>   10d   v1.31\n",
        "a table or text for people, not documents: NAME    STATUS",
        "add -o json: kubectl get nodes,pods,namespaces -A -o json",
    ),
    "names": ("node/gpu-1\nnode/gpu-2\n", "a table or text for people", "add -o json"),
    "a description": ("Name:         gpu-1\nRoles:   <none>\n", "a table or text", "add -o json"),
    "messages and JSON": (
        f"Warning: v1 is deprecated\n{NODES}",
        "messages before the JSON: Warning: v1 is deprecated",
        "leave out 2>&1",
    ),
    "a number": ("42\n", "expected a document with apiVersion and kind, not the number 42", ""),
}


@pytest.mark.parametrize("name", TEXTS)
def test_a_mistake_is_one_error_with_a_hint(name: str, cli: RunCli) -> None:
    text, what, hint = TEXTS[name]
    result = cli("plan", "-", stdin=text.encode())
    assert (result.code, result.out) == (65, "")
    assert result.err.startswith(f"error: {what}")
    assert result.err.count("error: ") == 1 + what.count("error: ")
    (hinted,) = (line for line in result.err.splitlines() if line.startswith("hint: "))
    assert hint in hinted
    assert "\x1b" not in result.err


def test_such_a_file_in_a_folder_of_objects_is_left_out(cli: RunCli, tmp_path: Path) -> None:
    (tmp_path / "nodes.json").write_text(NODES)
    (tmp_path / "errors.yaml").write_text("error: none\n")
    result = cli("validate", str(tmp_path))
    assert result.code == 0
    assert "errors.yaml: a document without kind; it is left out" in result.err


def test_a_refusal_that_cannot_be_read_is_left_to_the_parser(cli: RunCli) -> None:
    cut = b'{"kind": "Status", "apiVersion": "v1"'
    assert cli("plan", "-", stdin=cut).err.startswith("error: not JSON: ")
    deep = cut + b', "a": ' + b"[" * 100_000
    assert cli("plan", "-", stdin=deep).err.startswith("error: nested more than 64 levels deep")


def test_nodes_without_pods_are_said_to_be_free(cli: RunCli) -> None:
    said = (
        "warning: Kubernetes pods: none in the input, so all GPUs count as free (hint: kubectl get"
    )
    assert said in cli("validate", "-", stdin=NODES.encode()).err
    trees = [node("gpu-01"), pod("train", gpus=1, gated=True)]
    objects = json.dumps({"apiVersion": "v1", "kind": "List", "items": trees}).encode()
    assert "none in the input" not in cli("validate", "-", stdin=objects).err
    listed = f'{NODES}\n{{"apiVersion": "v1", "kind": "PodList", "items": []}}'.encode()
    assert "none in the input" not in cli("validate", "-", stdin=listed).err
