"""``gangplan topo`` on the output of nvidia-smi and rocm-smi: tables, documents, errors, advice."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from conftest import RunCli

from models.documents.server import ServerModelDocument

SAMPLES = Path(__file__).parents[1] / "data" / "nvidia-smi"
REFUSED = ("05-", "22-", "23-")


def path(start: str) -> str:
    (found,) = SAMPLES.glob(f"{start}*.txt")
    return str(found)


def documents(out: str) -> list[ServerModelDocument]:
    return [ServerModelDocument.model_validate(tree) for tree in yaml.safe_load_all(out)]


def test_every_sample_is_shown_or_refused_with_65(cli: RunCli) -> None:
    for sample in sorted(SAMPLES.glob("*.txt")):
        result = cli("topo", str(sample))
        if sample.name.startswith(REFUSED):
            assert (result.code, result.out) == (65, "")
            assert result.err.startswith("error: the ")
            assert f"\n  --> {sample}:" in result.err
            assert result.err.count("\n") == 3
        else:
            assert result.code == 0
            assert result.out.startswith("server model")
            assert "error" not in result.err


def test_the_model_that_is_written_can_be_planned_with(cli: RunCli, tmp_path: Path) -> None:
    model = cli("topo", path("03-"), "--name", "our V100", "-o", "yaml").out
    cluster = {
        "apiVersion": "gangplan.dev/v1alpha1",
        "kind": "Cluster",
        "metadata": {"name": "c"},
        "spec": {
            "serverModels": [yaml.safe_load(model)],
            "nodes": [{"name": "gpu-[1-2]", "model": "our-v100"}],
        },
    }
    (tmp_path / "cluster.yaml").write_text(yaml.safe_dump(cluster), encoding="utf-8")
    result = cli("validate", str(tmp_path))
    assert result.code == 0
    assert result.out.startswith("valid: 2 nodes, 16 GPUs")


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("dgx-1-v100", "--gpu", "V100"), 64, "--gpu is for the output of nvidia-smi and rocm-smi"),
        (("dgx-1-v100", "--name", "mine"), 64, "--name is for the output"),
        ((path("07-"), "--name", " "), 64, "--name is no name"),
        ((path("07-"), "--gpu", "x" * 101), 64, "--gpu is no name"),
        ((path("22-"), "-o", "yaml"), 65, "the output is cut off: the table `Link Type between"),
        (("nvidia-smi.txt",), 66, "no such file or folder: nvidia-smi.txt"),
        (("/nowhere/topo",), 66, "no such file or folder"),
    ],
)
def test_what_cannot_be_done_is_an_error(
    arguments: tuple[str, ...], code: int, said: str, cli: RunCli
) -> None:
    result = cli("topo", *arguments)
    assert (result.code, result.out) == (code, "")
    assert result.err.startswith(f"error: {said}")
    assert result.err.count("\n") <= 3


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b"", "no server model in this file"),
        (b"hello world\n", "no topology and no server model in this file"),
        (b"\xff\xfeG\x00P\x00", "not UTF-8, but UTF-16"),
        (b"\x80\x81", "not UTF-8"),
        (b"\x00\x01\x02\x03", "no topology and no server model"),
        (b"GPU0 " + b"A" * 100_000, "no topology and no server model"),
        (b"GPU0 GPU1\n", "the matrix is cut off"),
        (b"GPU0 X NV1\nGPU1 NV1 X\n", "no topology and no server model"),
        (b"GPU[0] : (Topology) Numa Node: 3\n", "`Link Type between two GPUs` is missing"),
    ],
)
def test_a_file_without_a_topology_is_65(
    raw: bytes, said: str, cli: RunCli, tmp_path: Path
) -> None:
    bad = tmp_path / "nvidia-smi.txt"
    bad.write_bytes(raw)
    result = cli("topo", str(bad))
    assert (result.code, result.out) == (65, "")
    assert said in result.err
    assert f"  --> {bad}" in result.err
    assert result.err.count("error:") == 1


def test_the_documented_outputs_are_what_is_printed(
    cli: RunCli, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = SAMPLES.parent.parent.parent
    monkeypatch.chdir(root)
    page = (root / "docs" / "topo.md").read_text(encoding="utf-8")
    runs = re.findall(r"^```\n\$ (.*?)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert len(runs) == 3
    for command, shown in runs:
        # ``...`` stands for lines left out, before or after.
        kept = shown.removeprefix("...\n").removesuffix("...\n")
        out = cli(*command.split()[1:]).out
        assert kept == out if kept == shown else kept in out
    (written,) = re.findall(r"^```yaml\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert cli("topo", path("07b-"), "-o", "yaml").out == written


def test_names_from_the_text_drive_no_terminal(cli: RunCli) -> None:
    text = "\tGPU0\tNIC0\nGPU0\tX\tPIX\n\nNIC0: a\u202eb\n"
    for output in ("table", "yaml", "json", "name"):
        result = cli("topo", "-", "-o", output, stdin=text.encode())
        assert result.code == 0
        assert not any(bad in result.out + result.err for bad in "\x1b\x07\u202e")
