"""Any file gives a valid model or an InputError with its place, in bounded time."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import texts

from models.documents.server import ServerModelDocument
from models.rates import catalogue
from planner.errors import InputError
from planner.read.model_files import MAX_TEXT, MAX_TOPOLOGIES, read_topologies
from planner.read.topo.server_model import recognise
from planner.show.server_model import advice, facts, links, model_document, model_yaml

TEXTS = [
    path.read_text(encoding="utf-8")
    for path in sorted((Path(__file__).parents[1] / "data" / "nvidia-smi").glob("*.txt"))
]
KNOWN = catalogue.server_models()
WORDS = (
    "X", "NV1", "NV99", "NV18", "PIX", "PXB", "PHB", "NODE", "SYS", "SOC", "GPU0", "GPU7", "NIC0", "mlx5_0",
    "N/A", "0", "15", "XGMI", "PCIE", "0-31", "0,1", "9-1", "\x1b[4m", "\t", "|", ">", "", "9" * 30, "-1",
    "GPU9999", "GPU0:", "\u00e9", "\x00", "\u202e", "CPU Affinity", "NUMA Affinity", "GPU NUMA ID", "=====",
    "Weight between two GPUs", "\nGPU[3] : (Topology) Numa Node: 7\n", "NIC1: \u202emlx5_3", "MIG 1g.5gb",
)  # fmt: skip


def check(text: str) -> bool:
    """Whether it is read; then all that follows from it holds. Anything but InputError comes out."""
    try:
        topologies = read_topologies("f.txt", text)
        readings = [
            recognise(topology, KNOWN, gpu=gpu) for topology in topologies for gpu in (None, "H100")
        ]
    except InputError as refused:
        for fault in refused.faults:
            assert fault.file == "f.txt"
            assert len(fault.lines()) <= 3
        return False
    for reading in readings:
        facts(reading.model, reading)
        links(reading.model, reading)
        advice(reading)
        document = model_document(reading.model)
        assert model_yaml(document).isprintable() is False  # it has lines
        read_again = ServerModelDocument.model_validate(document)
        assert read_again.field_errors() == ()
        assert read_again.to_server_model() == reading.model
    return True


CHANGES = st.tuples(st.integers(0, 6), st.integers(0, 10**6), st.integers(0, 10**6))


@settings(deadline=None, max_examples=examples(300, 20))
@given(st.sampled_from(TEXTS), st.lists(CHANGES, min_size=1, max_size=6))
def test_mutated_output_is_read_or_refused(text: str, changes: list[tuple[int, int, int]]) -> None:
    for kind, where, what in changes:
        text = mutated(text, kind, where, what)
    check(text)


def mutated(text: str, kind: int, where: int, what: int) -> str:
    """One change: cut, insert, replace a word; drop, double or swap lines; end early."""
    lines = text.split("\n")
    at, row = where % (len(text) + 1), where % len(lines)
    match kind:
        case 0:
            return text[:at] + text[at + 1 + what % 30 :]
        case 1:
            return text[:at] + WORDS[what % len(WORDS)] + text[at:]
        case 2:
            words = lines[row].split(" ")
            words[what % len(words)] = WORDS[what // 7 % len(WORDS)]
            lines[row] = " ".join(words)
        case 3:
            del lines[row]
        case 4:
            lines.insert(row, lines[what % len(lines)])
        case 5:
            other = what % len(lines)
            lines[row], lines[other] = lines[other], lines[row]
        case _:
            return text[:at]
    return "\n".join(lines)


@settings(deadline=None, max_examples=examples(200, 15))
@given(
    st.lists(
        st.one_of(st.sampled_from(WORDS), st.sampled_from(["\n", "GPU1", "GPU2"])), max_size=60
    )
)
def test_words_of_a_matrix_in_any_order_are_read_or_refused(words: list[str]) -> None:
    check(" ".join(words))


@settings(deadline=None, max_examples=examples(100, 15))
@given(texts(300))
def test_any_text_is_read_or_refused(text: str) -> None:
    check(text)


def test_a_text_longer_than_any_tool_prints_is_refused() -> None:
    with pytest.raises(InputError, match="no topology"):
        read_topologies("f.txt", "\n" * 1_000)
    with pytest.raises(InputError, match="more than 16,000,000 characters"):
        read_topologies("f.txt", "\n" * (MAX_TEXT + 1))


def test_a_text_of_more_servers_than_are_shown_is_refused() -> None:
    server = "\tGPU0\tGPU1\nGPU0\tX\tNV1\nGPU1\tNV1\tX\n"
    assert len(read_topologies("f.txt", server * MAX_TOPOLOGIES)) == MAX_TOPOLOGIES
    with pytest.raises(InputError, match="more than 256 servers in one text"):
        read_topologies("f.txt", server * (MAX_TOPOLOGIES + 1))


@pytest.mark.slow
def test_long_and_strange_texts_end_soon() -> None:
    dice = random.Random(1)
    texts = [
        "GPU0\t" + "A" * 5_000_000,
        "\n" * 500_000,
        (" " * 16_000 + "\n") * 200,
        ("GPU0 " * 3_000 + "\n") * 100,
        ("[" * 16_000 + "\n") * 100,
        ("\x1b]" * 8_000 + "\n") * 50,
        ("CPU " * 4_000 + "GPU0 GPU1 " + "CPU " * 4_000 + "\n") * 50,
        "GPU0 GPU1\n" + "GPU0 X NV1 " + "N/A" * 5_000 + "\n",
        "GPU0 GPU1\n" + ("GPU0 " + "XNV1" * 4_000 + "Q\n") * 50,
        "".join(chr(dice.randrange(256)) for _ in range(500_000)),
        "\tGPU0\tGPU1\tCPU Affinity\nGPU0\tX\tPIX\t" + "0-99999," * 2_000 + "7\nGPU1\tPIX\tX\t0\n",
        "".join(f"\tGPU{gpu}" for gpu in range(64))
        + "\tCPU Affinity\tNUMA Affinity\n"
        + "".join(
            f"GPU{gpu}"
            + "".join("\tX" if gpu == other else "\tNV1" for other in range(64))
            + "\t0-1\t"
            + ",".join(["0-16383"] * 1_900)
            + "\n"
            for gpu in range(64)
        ),
        ("=" * 16_000 + "!\n") * 50,
        ("== " * 5_000 + "!\n") * 50,
        "GPU" + " " * 8_000 + "1" + " " * 8_000 + "opology",
        "\n" * 200_000 + "\tGPU0\tGPU1\nGPU0\tX\tNV1\nGPU1\tNV1\tX\n" + "\n" * 200_000,
    ]
    for text in texts:
        started = time.process_time()
        check(text)
        assert time.process_time() - started < 10
