"""Plans that count GPUs in thousandths: cases as data, and what people see of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from conftest import RunCli

CASES = yaml.load(
    Path(__file__).parents[1].joinpath("gpu_units.yaml").read_text(), Loader=yaml.CSafeLoader
)

NODES = [{"name": "n", "model": "DGX H100", "sharing": {"memory": "80Gi", "pods": 10}}]


def document(kind: str, name: str, spec: object, **more: object) -> dict[str, object]:
    metadata = {"name": name}
    return {
        "apiVersion": "gangplan.dev/v1alpha1",
        "kind": kind,
        "metadata": metadata,
        "spec": spec,
        **more,
    }


def gang(
    name: str, pods: int, asks: dict[str, Any], spec: dict[str, Any], runs: tuple[int, ...] = ()
) -> dict[str, object]:
    roles = [{"name": "w", "replicas": pods, **asks}]
    on = [{"role": "w", "index": i, "node": "n", "gpus": [gpu]} for i, gpu in enumerate(runs)]
    return document(
        "Gang", name, {**spec, "roles": roles}, **({"status": {"pods": on}} if on else {})
    )


def planned(cli: RunCli, folder: Path, case: dict[str, Any]) -> dict[str, Any]:
    documents = [
        document("Cluster", "c", {"nodes": case.get("nodes", NODES)}),
        document("Policy", "p", {"preset": "admission"}),
        *(
            document("Queue", own["name"], {k: v for k, v in own.items() if k != "name"})
            for own in case.get("queues", ())
        ),
        *(gang(*own) for own in case["gangs"]),
    ]
    (folder / "input.yaml").write_text(yaml.safe_dump_all(documents))
    done = cli("plan", str(folder / "input.yaml"), "--out", str(folder / "plan.json"))
    assert done.code == 0, done.err
    plan: dict[str, Any] = json.loads((folder / "plan.json").read_text())
    return plan


@pytest.mark.parametrize("case", CASES, ids=[case["what"] for case in CASES])
def test_gpus_count_in_thousandths_where_pods_have_parts(
    case: dict[str, Any], cli: RunCli, tmp_path: Path
) -> None:
    plan = planned(cli, tmp_path, case)
    assert {one["name"]: one["decision"] for one in plan["spec"]["gangs"]} == case["decisions"]
    stated = {one["name"]: one["value"] for one in plan["status"]["objectives"]}
    assert {name: stated[name] for name in case["values"]} == case["values"]
    assert (plan["status"]["gpuUnit"], plan["status"]["outcome"]) == (1000, "optimal")
    assert cli("verify", str(tmp_path / "plan.json")).code == 0


def test_people_see_gpus(cli: RunCli, tmp_path: Path) -> None:
    """8 x 0.9 are 7.2 GPUs; a queue with limit 7 holds none of them, and one with limit 8 holds them."""
    case = {
        "queues": [{"name": "q", "limit": {"gpus": 8}}, {"name": "r", "limit": {"gpus": 7}}],
        "gangs": [
            ["a", 8, {"gpu": {"fraction": 0.9}}, {"queue": "q"}],
            ["b", 8, {"gpu": {"fraction": 0.9}}, {"queue": "r"}],
        ],
    }
    plan = planned(cli, tmp_path, case)
    a, b = plan["spec"]["gangs"]
    assert (a["gpus"], b["gpus"], a["decision"], b["decision"]) == (7.2, 7.2, "place", "wait")
    assert [(q["after"], q["waiting"]) for q in plan["status"]["queues"]] == [(7.2, 0), (0, 7.2)]
    assert plan["status"]["effectiveGpus"]["after"] == 7.2
    words = "needs 7.2 GPUs; queue 'r' lets gangs like it hold at most 7"
    assert words in b["reason"]["message"]
    shown = cli("show", str(tmp_path / "plan.json")).out
    assert "7.2 of at most 8 effective GPUs" in shown
    (row,) = [line.split() for line in shown.splitlines() if "default/a" in line]
    assert row[4] == "7.2"


@pytest.mark.parametrize(
    ("gpus", "message", "hint"),
    [
        (
            "0.1234",
            "the number 0.1234 is not in thousandths of a GPU",
            "write at most three decimals",
        ),
        ("-0.5", "the number -0.5 is too small", "write 0 or more"),
        ("'8'", "expected a number of GPUs, not the text '8'", "write it like 8 or 0.5, unquoted"),
    ],
)
def test_an_amount_of_a_queue_that_is_none_is_one_error(
    gpus: str, message: str, hint: str, cli: RunCli, tmp_path: Path
) -> None:
    (tmp_path / "queue.yaml").write_text(
        "apiVersion: gangplan.dev/v1alpha1\nkind: Queue\nmetadata: {name: q}\n"
        f"spec: {{limit: {{gpus: {gpus}}}}}\n"
    )
    done = cli("validate", str(tmp_path), str(Path("inputs/quickstart")))
    assert done.code == 65
    assert f"error: spec.limit.gpus: {message}" in done.err
    assert f"hint: {hint}" in done.err


def test_whole_gpus_and_decimals_of_a_queue_alone_count_thousandths(
    cli: RunCli, tmp_path: Path
) -> None:
    """Without parts a limit of 2.5 lets two GPUs start; without decimals nothing is counted so."""
    gangs = [["a", 2, {"gpus": 1}, {"queue": "q"}], ["b", 1, {"gpus": 1}, {"queue": "q"}]]
    for limit, unit, value in ((2.5, 1000, 2000), (2, 1, 2)):
        case = {"queues": [{"name": "q", "limit": {"gpus": limit}}], "gangs": gangs}
        status = planned(cli, tmp_path, case)["status"]
        assert status.get("gpuUnit", 1) == unit
        assert [o["value"] for o in status["objectives"] if o["name"] == "admission/0"] == [value]
