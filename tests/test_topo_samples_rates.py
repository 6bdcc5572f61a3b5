"""Where the matrix leaves the rate of a link open: a bandwidth table for every rate it may be."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from conftest import RunCli
from topo_text import nvidia_text

from models.rates import catalogue
from planner.read.model_files import read_topologies
from planner.read.topo.server_model import Recognition, recognise
from planner.show.bandwidth_table import bandwidth_table
from planner.show.server_model import links
from planner.show.table import draw

SAMPLES = Path(__file__).parent / "data" / "nvidia-smi"
KNOWN = catalogue.server_models()

Heading = tuple[str, str]
"""GPUs and rates of a heading."""

# Rates: contract, section 1. A bridge of GA102 has four links of 12,000; NV12 and NV18 are
# 12 x 20,000, 12 x 20,600, 18 x 20,600 and 18 x 40,100; PCIe NODE is 0.8 of one switch.
HEADINGS: dict[str, dict[Heading, str]] = {
    "08": {("H200, H100 or H20", "20,600 MB/s a link"): "370,800",
           ("B200 or B300", "40,100 MB/s a link"): "721,800"},
    "09": {("H100, H200 or H20", "20,600 MB/s a link"): "370,800",
           ("B200 or B300", "40,100 MB/s a link"): "721,800"},
    "11-": {("A100", "20,000 MB/s a link, 20,000 MB/s under one PCIe switch"): "240,000",
            ("H100 NVL", "20,600 MB/s a link, 40,000 MB/s under one PCIe switch"): "247,200"},
    "20": {("MI300X", "64,000 MB/s a link"): "64,000",
           ("MI350X or MI355X", "76,500 MB/s a link"): "76,500"},
}  # fmt: skip


def sample(start: str) -> Path:
    (found,) = SAMPLES.glob(f"{start}*.txt")
    return found


def readings(text: str, gpu: str | None = None) -> list[Recognition]:
    return [recognise(topology, KNOWN, gpu=gpu) for topology in read_topologies("f", text)]


def tables(out: str) -> dict[Heading, str]:
    """What the best pair reaches inside, by the heading above its table."""
    found = re.findall(
        r"^if its GPUs are (.*) \((.*)\)\nGPUs .*\n +1  unlimited .*\n +2 +([\d,]+) ",
        out,
        re.MULTILINE,
    )
    return {(gpus, rates): inside for gpus, rates, inside in found}


@pytest.mark.parametrize("start", HEADINGS)
def test_each_rate_that_the_gpus_may_have_has_its_table(start: str, cli: RunCli) -> None:
    shown = cli("topo", str(sample(start)))
    assert shown.code == 0
    assert tables(shown.out) == HEADINGS[start]
    assert "no bandwidth table" not in shown.out
    # What the columns mean is said once a server, whatever it has of tables.
    assert shown.out.count("MB/s, one direction") == shown.out.count("read from")
    assert "hint: say which GPU it has" in shown.err


def columns(text: str) -> list[list[str]]:
    """GPUs and inside of every row of a table; NICs may be known to be those of one server."""
    return [line.split()[:2] for line in text.splitlines() if re.match(r" +\d", line)]


def test_a_matrix_of_no_known_server_has_one_table_in_links(cli: RunCli) -> None:
    # A ring of five; a pair at NODE reaches 0.8 of 20,000.
    ring = [
        ["X" if a == b else "NV3" if (a - b) % 5 in {1, 4} else "NODE" for b in range(5)]
        for a in range(5)
    ]
    shown = cli("topo", "-", stdin=nvidia_text(ring).encode())
    assert "if its GPUs are" not in shown.out
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
    assert "several servers" in table[0]
