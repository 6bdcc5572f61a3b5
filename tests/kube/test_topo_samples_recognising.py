"""Known servers are recognised by their matrix, under any numbering, and nothing else is."""

from __future__ import annotations

import time
from itertools import permutations
from math import comb

from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from topo_text import nvidia_text, paths, relabelled

from models.hardware import ServerModel
from models.rates import catalogue
from planner.read.model_files import read_topologies
from planner.read.topo.server_model import INFERRED, Recognition, isomorphism, recognise

KNOWN = catalogue.server_models()
NVIDIA = [
    model
    for model in KNOWN
    if model.vendor == "NVIDIA"
    and (model.matrix or model.switched)
    and model.gpus > 1
    and not model.confidence.startswith(INFERRED)
]


def found(text: str, gpu: str | None = None) -> Recognition:
    (topology,) = read_topologies("f", text)
    return recognise(topology, KNOWN, gpu=gpu)


def named(name: str) -> ServerModel:
    model = catalogue.find(name)
    assert model is not None
    return model


@settings(deadline=None, max_examples=examples(150, 15))
@given(st.data())
def test_any_numbering_of_a_known_server_is_recognised(data: st.DataObject) -> None:
    model = data.draw(st.sampled_from(NVIDIA))
    order = data.draw(st.permutations(range(model.gpus)))
    matrix = relabelled(paths(model), order)
    numa = None if model.numa is None else [model.numa[g] for g in order]
    grace = model.gpu.startswith("GB")
    reading = found(nvidia_text(matrix, numa, grace=grace))
    like = next(like for like in reading.matches if like.model == model)
    # The permutation maps every path onto one of the model's.
    theirs = paths(model)
    for a in range(model.gpus):
        for b in range(model.gpus):
            assert theirs[like.gpus[a]][like.gpus[b]] == matrix[a][b]
    assert like in reading.best
    assert reading.model.matrix == matrix
    if numa is not None:
        assert reading.model.numa == tuple(numa)
        groups = [model.numa[g] for g in like.gpus] if model.numa else []
        assert all(
            (groups[a] == groups[b]) == (numa[a] == numa[b])
            for a in range(model.gpus)
            for b in range(model.gpus)
        )


def test_part_of_a_known_server_is_not_guessed() -> None:
    # Four GPUs of a DGX-1 V100, as a container sees them: the links are known, the GPU is not.
    reading = found(nvidia_text(relabelled(paths(named("DGX-1 V100")), (0, 1, 2, 3))))
    assert (reading.matches, reading.gpu, reading.model.link_MBps) == ((), None, None)
    # Half a DGX A100: more links than a GPU has for its neighbours go through a switch.
    half = nvidia_text([["X" if a == b else "NV12" for b in range(4)] for a in range(4)])
    assert (found(half).model.fabric, found(half).model.link_MBps) == ("nvswitch", None)
    assert found(half, "A100").model.link_MBps == 20000
    # Half an HGX H100 has the links of a Grace tray, whose GPU memory has NUMA nodes of its own.
    four = [["X" if a == b else "NV18" for b in range(4)] for a in range(4)]
    assert found(nvidia_text(four)).model.link_MBps is None
    assert found(nvidia_text(four, (0, 0, 1, 1), grace=True)).model.link_MBps == 40100


def test_the_same_count_of_links_otherwise_joined_is_another_server() -> None:
    # Two rings of four and one of eight: every GPU has two links in both.
    one = [["X" if a == b else "NV1" if (a - b) % 8 in (1, 7) else "SYS" for b in range(8)]
           for a in range(8)]  # fmt: skip
    two = [
        ["X" if a == b else "NV1" if a // 4 == b // 4 and (a - b) % 4 in (1, 3) else "SYS"
         for b in range(8)]
        for a in range(8)
    ]  # fmt: skip
    assert isomorphism(_colours(one), _colours(two)) is None
    assert (
        isomorphism(_colours(one), _colours(relabelled(one, (3, 1, 4, 7, 5, 2, 6, 0)))) is not None
    )


def _colours(matrix: object) -> list[list[str]]:
    assert isinstance(matrix, (list, tuple))
    return [list(row) for row in matrix]


@settings(deadline=None, max_examples=examples(80, 12))
@given(st.integers(2, 6), st.data())
def test_a_renumbering_is_found_exactly_where_one_exists(size: int, data: st.DataObject) -> None:
    cells = st.sampled_from("012")
    small = _drawn(size, data, cells)
    large = _drawn(size, data, cells)
    exists = any(
        all(small[a][b] == large[p[a]][p[b]] for a in range(size) for b in range(size))
        for p in permutations(range(size))
    )
    assert (isomorphism(small, large) is not None) == exists


def _drawn(size: int, data: st.DataObject, cells: st.SearchStrategy[str]) -> list[list[str]]:
    drawn = iter(data.draw(st.lists(cells, min_size=comb(size, 2), max_size=comb(size, 2))))
    matrix = [["X"] * size for _ in range(size)]
    for a in range(size):
        for b in range(a):
            matrix[a][b] = matrix[b][a] = next(drawn)
    return matrix


def test_links_alone_tell_a_rate_only_if_every_server_with_them_has_it() -> None:
    eight = [["X" if a == b else "NV18" for b in range(8)] for a in range(8)]
    reading = found(nvidia_text(eight))
    assert (reading.gpu, reading.model.link_MBps, reading.model.gpu) == (
        None,
        None,
        "unknown",
    )
    assert reading.model.pcie_MBps == 40000
    a100 = [["X" if a == b else "NV12" for b in range(8)] for a in range(8)]
    assert found(nvidia_text(a100)).model.link_MBps == 20000
    # Two of 12 links may be any bridge.
    pair = found(nvidia_text([["X", "NV12"], ["NV12", "X"]]))
    assert (pair.model.link_MBps, pair.gpu, pair.best) == (None, None, ())
    # Six links to each of three peers are an H100 board of four, unless the GPU is a V100 of six links.
    six = nvidia_text([["X" if a == b else "NV6" for b in range(4)] for a in range(4)])
    assert (found(six).model.fabric, found(six).model.link_MBps) == ("direct", None)
    assert (found(six, "H100").model.fabric, found(six, "H100").model.link_MBps) == (
        "direct",
        20600,
    )
    assert (found(six, "V100").model.fabric, found(six, "V100").model.link_MBps) == (
        "nvswitch",
        20000,
    )


def rook(a: int, b: int) -> bool:
    """Same row or column of a board of four by four: 16 GPUs, six neighbours each, all alike."""
    return a // 4 == b // 4 or a % 4 == b % 4


def shrikhande(a: int, b: int) -> bool:
    """Its twin: the same counts of neighbours of neighbours, and yet another graph."""
    step = ((a // 4 - b // 4) % 4, (a - b) % 4)
    return step in {(0, 1), (0, 3), (1, 0), (3, 0), (1, 1), (3, 3)}


def test_graphs_that_counting_cannot_tell_apart_end_fast() -> None:
    graphs = {
        name: [["X" if a == b else "NV1" if joined(a, b) else "SYS" for b in range(16)] for a in range(16)]
        for name, joined in (("rook", rook), ("shrikhande", shrikhande))
    }  # fmt: skip
    started = time.process_time()
    assert isomorphism(_colours(graphs["rook"]), _colours(graphs["shrikhande"])) is None
    order = (5, 3, 9, 1, 15, 0, 2, 12, 7, 11, 4, 6, 8, 14, 10, 13)
    assert isomorphism(_colours(graphs["rook"]), _colours(relabelled(graphs["rook"], order)))
    for rows in graphs.values():
        assert found(nvidia_text(rows)).matches == ()
    assert time.process_time() - started < 5
