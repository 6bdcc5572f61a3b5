"""``gangplan topo``: server models by name, by alias and from files."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import RunCli

from models.rates import catalogue

MESH = """
name: four in a ring
gpu: V100
gpus: 4
fabric: direct
linkMBps: 20000
linksPerGpu: 2
matrix:
- [X, NV1, SYS, NV1]
- [NV1, X, NV1, SYS]
- [SYS, NV1, X, NV1]
- [NV1, SYS, NV1, X]
"""


def test_a_model_is_shown_by_name_and_by_alias(
    cli: RunCli, golden: Callable[[str, str], None]
) -> None:
    by_name = cli("topo", "DGX-1 V100")
    assert (by_name.code, by_name.err) == (0, "")
    assert cli("topo", "dgx-1v") == by_name
    golden("topo-dgx-1-v100.txt", by_name.out)


def test_without_a_name_the_catalogue_is_listed(cli: RunCli) -> None:
    models = {model.name: model for model in catalogue.server_models()}
    shown = cli("topo")
    assert (shown.code, shown.err) == (0, "next: gangplan topo 'DGX A100'\n")
    title, *lines = shown.out.splitlines()
    assert " ".join(title.split()) == "SERVER MODEL GPUS GPU FABRIC LINKS A GPU ALIASES"
    assert len(lines) == len(models)
    # 18 NVLinks of 20,600 MB/s a GPU
    (line,) = (line for line in lines if line.startswith("DGX H100 "))
    row = ["DGX H100", "8", "H100", "nvswitch", "18 x 20.6 GB/s", "HGX H100 8-GPU"]
    assert re.split(r"\s{2,}", line) == row
    names = cli("topo", "-o", "name").out.splitlines()
    assert sorted(names) == sorted(models)
    for entry in json.loads(cli("topo", "-o", "json").out):
        model = models.pop(entry["name"])
        assert (entry["gpu"], entry["gpus"], entry["fabric"]) == (
            model.gpu,
            model.gpus,
            model.fabric,
        )
        assert (entry.get("linkMBps"), entry.get("linksPerGpu")) == (
            model.link_MBps,
            model.links_per_gpu,
        )
        assert entry.get("aliases", []) == list(model.aliases)
    assert not models
    refused = cli("topo", "--gpu", "H100")
    assert (refused.code, refused.out) == (64, "")
    assert "hint: name a file with it, or - for stdin" in refused.err


@pytest.mark.parametrize(
    ("gpu", "shown"),
    [
        ("h100", "DGX H100"),
        ("NVIDIA-H100-80GB-HBM3", "DGX H100"),
        ("V100", "DGX-1 V100"),
        ("a100", "DGX A100"),
        ("gb200", "GB200 NVL72 compute tray"),
    ],
)
def test_a_gpu_shows_its_commonest_server_and_names_the_others(
    gpu: str, shown: str, cli: RunCli
) -> None:
    result = cli("topo", gpu)
    assert (result.code, result.out) == (0, cli("topo", shown).out)
    note = result.err.partition("others: ")
    assert note[0].startswith(f"note: {shown} is the commonest server of ")
    model = catalogue.find(shown)
    assert model is not None
    others = {one.name for one in catalogue.server_models() if one.gpu == model.gpu} - {shown}
    separator = "; | and " if ";" in note[2] else ", | and "
    assert set(re.split(separator, note[2].strip())) == others


def test_a_model_is_read_from_a_file_and_from_a_cluster(cli: RunCli, tmp_path: Path) -> None:
    alone = tmp_path / "mesh.yaml"
    alone.write_text(MESH, encoding="utf-8")
    inline = "".join(f"    {line}\n" for line in MESH.strip().splitlines())
    cluster = tmp_path / "cluster.yaml"
    cluster.write_text(
        "apiVersion: gangplan.dev/v1alpha1\nkind: Cluster\nmetadata: {name: c}\nspec:\n"
        f"  serverModels:\n  -{inline[3:]}",
        encoding="utf-8",
    )
    shown = cli("topo", str(alone))
    assert (shown.code, shown.err) == (0, "")
    # A ring of four single links carries one directed ring each way: 2 x 20,000 MB/s.
    assert re.search(r"^ +4 +40,000 +2 ", shown.out, re.MULTILINE)
    assert cli("topo", str(cluster)) == shown
    assert cli("topo", "-", stdin=MESH.encode()) == shown


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "error: no server model in this file"),
        ("- 1\n- 2\n", "error: no server model in this file"),
        (MESH.replace("gpus: 4", "gpus: four"), ":4:7"),
        (MESH.replace("X, NV1, SYS, NV1", "X, NV2, SYS, NV1"), "NV2"),
        (MESH + "colour: red\n", "unknown field 'colour'"),
        ("name: [", "error: "),
    ],
)
def test_a_bad_file_is_65_with_its_place(
    content: str, said: str, cli: RunCli, tmp_path: Path
) -> None:
    path = tmp_path / "model.yaml"
    path.write_text(content, encoding="utf-8")
    result = cli("topo", str(path))
    assert (result.code, result.out) == (65, "")
    assert f"  --> {path}" in result.err
    assert said in result.err
