"""Where the matrix leaves the rate of a link open: a bandwidth table at the slowest rate it may be."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from conftest import RunCli
from topo_text import nvidia_text

from models.rates import catalogue
from planner.read.model_files import read_topologies
from planner.read.topo.server_model import Recognition, recognise
from planner.show.server_model import bandwidth_table, links
from planner.show.table import draw

SAMPLES = Path(__file__).parents[1] / "data" / "nvidia-smi"
KNOWN = catalogue.server_models()

# GPU, rate of a link, and what two GPUs reach: NV12 and NV18 are 12 x 20,000 and 18 x 20,600.
SLOWEST = {
    "08": ("H200", "20.6", "370,800"),
    "09": ("H100", "20.6", "370,800"),
    "11-": ("A100", "20.0", "240,000"),
    "20": ("MI300X", "64.0", "64,000"),
}


def sample(start: str) -> Path:
    (found,) = SAMPLES.glob(f"{start}*.txt")
    return found


def readings(text: str, gpu: str | None = None) -> list[Recognition]:
    return [recognise(topology, KNOWN, gpu=gpu) for topology in read_topologies("f", text)]


@pytest.mark.parametrize("start", SLOWEST)
def test_the_table_is_for_the_slowest_links_that_it_may_have(start: str, cli: RunCli) -> None:
    gpu, rate, pair = SLOWEST[start]
    shown = cli("topo", str(sample(start)))
    assert re.findall(r"^ +2 +([\d,]+) ", shown.out, re.MULTILINE)[0] == pair
    assert f"If its GPUs are {gpu}: {rate} GB/s a link" in shown.out
    assert "hint: say which GPU it has with --gpu: " in shown.err
    named = cli("topo", str(sample(start)), "--gpu", gpu)
    assert "If its GPUs" not in named.out
    assert re.findall(r"^ +2 +([\d,]+) ", named.out, re.MULTILINE)[0] == pair


def test_a_matrix_of_no_known_server_has_a_table_once_its_gpu_is_named(cli: RunCli) -> None:
    ring = nvidia_text(
        [
            ["X" if a == b else "NV3" if (a - b) % 5 in {1, 4} else "NODE" for b in range(5)]
            for a in range(5)
        ]
    ).encode()
    shown = cli("topo", "-", stdin=ring)
    assert "\nno bandwidth table: the rate of one link" in shown.out
    assert shown.err == "hint: say which GPU it has with --gpu\n"
    # Three rings each way of links of 20,000: 6 x 20,000. A pair at NODE reaches 0.8 of 20,000.
    named = cli("topo", "-", "--gpu", "A100", stdin=ring).out
    assert re.search(r"^ +2 +16,000 +- +- +5 +0,2$", named, re.MULTILINE)
    assert re.search(r"^ +5 +120,000 +6 +3 +1 ", named, re.MULTILINE)


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
    assert "several servers" in table[0]
