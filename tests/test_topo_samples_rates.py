"""The bandwidth table of what a tool printed: in links while the GPU is not named."""

from __future__ import annotations

import re
from pathlib import Path

from conftest import RunCli
from topo_text import nvidia_text

from models.rates import catalogue
from planner.read.model_files import read_topologies
from planner.read.topo.server_model import PrintedServer, printed_server
from planner.show.bandwidth_table import bandwidth_table
from planner.show.server_model import links
from planner.show.table import draw

SAMPLES = Path(__file__).parent / "data" / "nvidia-smi"
KNOWN = catalogue.server_models()


def sample(start: str) -> Path:
    (found,) = SAMPLES.glob(f"{start}*.txt")
    return found


def readings(text: str, gpu: str | None = None) -> list[PrintedServer]:
    return [printed_server(topology, KNOWN, gpu=gpu) for topology in read_topologies("f", text)]


def test_without_a_gpu_model_the_table_counts_links(cli: RunCli) -> None:
    # A ring of five; a pair at NODE reaches 0.8 of 20,000.
    ring = [
        ["X" if a == b else "NV3" if (a - b) % 5 in {1, 4} else "NODE" for b in range(5)]
        for a in range(5)
    ]
    shown = cli("topo", "-", stdin=nvidia_text(ring).encode())
    assert re.search(r"^ +2 +16,000 +0 +0 +5 +0,2$", shown.out, re.MULTILINE)
    assert re.search(r"^ +5 +6 links +6 +3 +1 ", shown.out, re.MULTILINE)
    assert shown.err == "hint: say which GPU it has, such as --gpu A100\n"


def test_what_matters_fits_a_narrow_terminal() -> None:
    (reading,) = readings(sample("08").read_text(encoding="utf-8"))
    matrix = links(reading.model, reading)
    assert matrix is not None
    assert "0-55,112-167" in draw(matrix, width=100, color=False)
    narrow = draw(matrix, width=80, color=False)
    # The heading and a line a GPU.
    assert len(narrow.splitlines()) == 9
    assert max(map(len, narrow.splitlines())) <= 80
    assert "mlx5_6 mlx5_7" in narrow
    assert "CPUs" not in narrow
    (mesh,) = readings(sample("01").read_text(encoding="utf-8"))
    table = draw(bandwidth_table(mesh.model), width=80, color=False).splitlines()[:22]
    assert max(map(len, table)) <= 80
    assert "rings" in table[0]
