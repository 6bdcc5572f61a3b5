"""rocm-smi: weights decide which GPUs are linked, NUMA nodes what is far."""

from __future__ import annotations

import pytest
from topo_text import relabelled, rocm_nodes, rocm_table

from models.rates import catalogue
from planner.errors import InputError
from planner.read.model_files import read_topologies
from planner.read.topo.server_model import Recognition, recognise

WEIGHT = "Weight between two GPUs"
HOPS = "Hops between two GPUs"
TYPE = "Link Type between two GPUs"

MI250X = catalogue.find("AMD MI250X 4-module node (8 GCDs)")
assert MI250X is not None
assert MI250X.matrix is not None
MODULES = MI250X.matrix
NODES = (3, 3, 1, 1, 0, 0, 2, 2)


def readings(text: str, gpu: str | None = None) -> list[Recognition]:
    known = catalogue.server_models()
    return [recognise(topology, known, gpu=gpu) for topology in read_topologies("f", text)]


def square(gpus: int, cell: str) -> list[list[str]]:
    return [["0" if a == b else cell for b in range(gpus)] for a in range(gpus)]


def mi250x(matrix: tuple[tuple[str, ...], ...] = MODULES) -> str:
    """A node prints XGMI for every pair: 15 a direct link, 30 over another GPU."""
    weights = [
        ["0" if cell == "X" else "15" if cell.startswith("NV") else "30" for cell in row]
        for row in matrix
    ]
    return (
        rocm_table(WEIGHT, weights)
        + rocm_table(HOPS, square(8, "1"))
        + rocm_table(TYPE, square(8, "XGMI"))
    )


def test_weights_tell_direct_links_where_hops_do_not() -> None:
    (reading,) = readings(mi250x())
    matrix = reading.model.matrix
    assert matrix is not None
    linked = [[cell.startswith("NV") for cell in row] for row in matrix]
    assert linked == [[cell.startswith("NV") for cell in row] for row in MODULES]
    assert matrix[0][3] == "SYS"
    assert any("does not count links" in remark for remark in reading.remarks)


def test_links_are_counted_as_on_the_one_server_with_these_nodes() -> None:
    (reading,) = readings(mi250x() + rocm_nodes(NODES))
    assert [like.model for like in reading.best] == [MI250X]
    assert reading.model.matrix == MODULES
    assert reading.model.link_MBps == 50000


def test_links_are_not_counted_where_another_numbering_leaves_it_open() -> None:
    order = (2, 3, 0, 1, 4, 5, 6, 7)
    text = mi250x(relabelled(MODULES, order)) + rocm_nodes([NODES[g] for g in order])
    (reading,) = readings(text)
    assert MI250X in [like.model for like in reading.matches]
    assert reading.model.matrix is not None
    assert {cell for row in reading.model.matrix for cell in row} == {"X", "NV1", "SYS"}
    assert any("taken to have one" in remark for remark in reading.remarks)


@pytest.mark.parametrize(
    ("weight", "nodes", "path"),
    [
        ("40", None, "NODE"),  # 20 up to the processor, 20 down
        ("40", (0, 1), "SYS"),
        ("40", (1, 1), "NODE"),
        ("52", None, "SYS"),
        ("72", (0, 1), "SYS"),
    ],
)
def test_pcie_inside_a_socket_and_across(
    weight: str, nodes: tuple[int, int] | None, path: str
) -> None:
    text = rocm_table(WEIGHT, square(2, weight)) + rocm_table(TYPE, square(2, "PCIE"))
    (reading,) = readings(text + (rocm_nodes(nodes) if nodes else ""))
    assert reading.model.matrix == (("X", path), (path, "X"))
    assert reading.model.numa == nodes


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        ("GPU1   15           0", "GPU1   15", "the row of GPU1 is cut off: 1 of 2 cells"),
        ("GPU1   XGMI         0", "", "the row of GPU1 is missing"),
        ("GPU1   XGMI", "GPU1   WIFI", "'WIFI' between GPU1 and GPU0 is no path"),
        ("GPU1   15", "GPU1   16", "GPU0 to GPU1 is '15', GPU1 to GPU0 is '16'"),
    ],
)
def test_what_is_broken_is_said(old: str, new: str, what: str) -> None:
    text = rocm_table(WEIGHT, square(2, "15")) + rocm_table(TYPE, square(2, "XGMI"))
    assert old in text
    with pytest.raises(InputError) as refused:
        readings(text.replace(old, new))
    assert what in refused.value.faults[0].what
    assert refused.value.faults[0].line is not None
