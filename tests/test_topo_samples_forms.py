"""The same matrix in the forms in which people hand it on: pasted, quoted, logged, cut, doubled."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from planner.errors import InputError
from planner.read.topo.reader import read_topologies
from planner.read.topo.topology import Topology

SAMPLES = Path(__file__).parent / "data" / "nvidia-smi"
WHOLE = sorted(p.stem for p in SAMPLES.glob("*.txt") if "TRUNCATED" not in p.stem)

PEER_ACCESS = "\n \tGPU0\tGPU1\t\n GPU0\tX\tOK\t\n GPU1\tOK\tX\t\n\nLegend:\n\n  OK   = Status Ok\n"


def each_line(change: Callable[[str], str]) -> Callable[[str], str]:
    return lambda text: "\n".join(change(line) for line in text.split("\n"))


def around_labels(before: str, after: str) -> Callable[[str], str]:
    return lambda text: re.sub(
        r"(?m)^([ \t]*)(GPU0[ \t]+GPU1.*)$", rf"\g<1>{before}\g<2>{after}", text
    )


FORMS: dict[str, Callable[[str], str]] = {
    "Windows line ends": lambda text: text.replace("\n", "\r\n"),
    "line ends of a terminal recording": lambda text: text.replace("\n", "\r\r\n"),
    "tabs as blanks": lambda text: text.expandtabs(8),
    "blanks as tabs": lambda text: re.sub(r"  +", "\t", text),
    "single blanks": lambda text: re.sub(r"[ \t]+", " ", text),
    "blanks that do not break": lambda text: text.replace(" ", "\u00a0"),
    "quoted in a mail": each_line(lambda line: f"> {line}"),
    "fenced": lambda text: f"Hello,\n```\n{text}\n```\nthanks",
    "a table of Markdown": each_line(lambda line: "| " + re.sub(r"  +|\t", " | ", line) + " |"),
    "a comment": each_line(lambda line: f"# {line}"),
    "behind a prompt": lambda text: f"root@node2:~# nvidia-smi topo -m\n{text}\nroot@node2:~# ",
    "in prose": lambda text: (
        f"## Bug\nI have GPU0 and GPU1, GPU0: an H-something.\n\n{text}\n\n"
        "As you see GPU0 is SYS to GPU4.\nGPU0 GPU1 hang.\nGPU0 X marks the spot\n"
    ),
    "in a log": each_line(lambda line: f"2026-11-21T08:00:00Z pod/x {line}"),
    "underlined": around_labels("\x1b[4m", "\x1b[0m"),
    "underlined, the escapes eaten": around_labels("[4m", "[0m"),
    "underlined, the escapes spelled": around_labels("^[[4m", "^[[0m"),
    "empty lines between": lambda text: text.replace("\n", "\n\n"),
    "indented": each_line(lambda line: f"        {line}"),
    "no blanks at the ends": each_line(str.rstrip),
    "before the matrix of peer access": lambda text: text + PEER_ACCESS,
    "below the list of GPUs": lambda text: f"GPU 0: NVIDIA Foo (UUID: GPU-5baec991)\n{text}",
}


def read(text: str) -> list[Topology]:
    """What is read, less where it stands and what is remarked."""
    return [
        replace(found, file="", line=0, product=None, remarks=())
        for found in read_topologies("f.txt", text)
    ]


def sample(stem: str) -> str:
    return (SAMPLES / f"{stem}.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize("form", FORMS)
def test_the_form_does_not_matter(form: str) -> None:
    for stem in WHOLE:
        text = sample(stem)
        assert read(FORMS[form](text)) == read(text), stem


def test_a_matrix_twice_is_two_servers() -> None:
    for stem in WHOLE:
        text = sample(stem)
        assert read(f"{text}\n{text}") == read(text) * 2, stem


def test_all_samples_in_one_text_are_all_given() -> None:
    text = "\n".join(sample(stem) for stem in WHOLE)
    apart = [found for stem in WHOLE for found in read(sample(stem))]
    together = read(text)
    assert len(together) == len(apart)
    assert sorted(map(repr, together)) == sorted(map(repr, apart))


def test_the_order_of_rows_does_not_matter() -> None:
    lines = sample("02-v100x8-onecx-numa-split").split("\n")
    # Line 0 holds the labels, 1 to 8 the GPUs, 9 the NIC.
    mixed = [lines[0], *lines[9:0:-1], *lines[10:]]
    assert read("\n".join(mixed)) == read("\n".join(lines))


def test_the_order_of_columns_does_not_matter() -> None:
    text = "GPU2\tGPU0\tNIC0\tGPU1\nGPU0\tNV1\tX\tPIX\tNV2\nGPU1\tSYS\tNV2\tSYS\tX\nGPU2\tX\tNV1\tSYS\tSYS\n"
    (found,) = read(text)
    assert found.matrix == (("X", "NV2", "NV1"), ("NV2", "X", "SYS"), ("NV1", "SYS", "X"))
    assert found.nics[0].paths == ("PIX", "SYS", "SYS")


def test_one_gpu_is_a_server_too() -> None:
    (found,) = read("\tGPU0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\nGPU0\t X \t0-31\t0\t\tN/A\n")
    assert (found.gpus, found.matrix, found.numa, found.cpus) == (1, (("X",),), ((0,),), ("0-31",))


@pytest.mark.parametrize(
    ("columns", "first", "second", "cpus", "numa"),
    [
        # Run together: 0-31 and 0, 32-63 and 1; the lists would overlap if they were whole.
        ("CPU Affinity\tNUMA Affinity", "0-310", "32-631", ("0-31", "32-63"), ((0,), (1,))),
        # A range of 46 CPUs and one of 1,279: the last digit is the NUMA node.
        (
            "CPU Affinity\tNUMA Affinity\tGPU NUMA ID",
            "0-45,92-1370 N/A",
            "46-91,138-183 1 N/A",
            ("0-45,92-137", "46-91,138-183"),
            ((0,), (1,)),
        ),
        # Nothing proves that 0-63 is 0-6 and 3: the NUMA node is missing.
        ("CPU Affinity\tNUMA Affinity", "0-63", "0-63", ("0-63", "0-63"), None),
        ("CPU Affinity\tNUMA Affinity", "0-63 N/A", "0-63 N/A", ("0-63", "0-63"), None),
        ("CPU Affinity\tNUMA Affinity", "0-230N/A", "0-23N/A", ("0-230", "0-23"), None),
        ("CPU Affinity\tNUMA Affinity", "0-7, 16-23 0", "8-15, 24-31 1",
         ("0-7,16-23", "8-15,24-31"), ((0,), (1,))),
        ("NUMA Affinity", "3", "1", None, ((3,), (1,))),
        ("CPU AffinityNUMA AffinityGPU NUMA ID", "0-7 0 N/A", "8-15 1 N/A", ("0-7", "8-15"), ((0,), (1,))),
        ("CPU Affinity\tMemory Affinity\tNUMA Affinity", "0-7 5 0", "8-15 5 1",
         ("0-7", "8-15"), ((0,), (1,))),
        ("", "", "", None, None),
    ],
)  # fmt: skip
def test_columns_after_the_matrix(
    columns: str,
    first: str,
    second: str,
    cpus: tuple[str, ...] | None,
    numa: tuple[tuple[int, ...], ...] | None,
) -> None:
    (found,) = read(f"\tGPU0\tGPU1\t{columns}\nGPU0\tX\tSYS\t{first}\nGPU1\tSYS\tX\t{second}\n")
    assert (found.cpus, found.numa) == (cpus, numa)


@pytest.mark.parametrize(
    "name", ["mlx5_bond_0", "bnxt_re0", "rocep1s0", "rdmap16s27", "ib_mlx", "hfi1_0", "cxi0"]
)
def test_nics_have_any_name(name: str) -> None:
    (found,) = read(f"\tGPU0\t{name}\nGPU0\tX\tPHB\n{name}\tPHB\tX\n")
    assert [nic.name for nic in found.nics] == [name]


def test_labels_and_cells_that_run_together_are_taken_apart() -> None:
    (found,) = read("GPU0GPU1mlx5_0 CPU Affinity\nGPU0 XNV12 PIX0-31\nGPU1 NV12X PIX0-31\n")
    assert found.matrix == (("X", "NV12"), ("NV12", "X"))
    assert found.cpus == ("0-31", "0-31")


def test_a_legend_that_names_two_nics_alike_tells_nothing() -> None:
    text = "\tGPU0\tNIC0\tNIC1\nGPU0\tX\tPIX\tSYS\n\nNIC0: mlx5_0\nNIC1: mlx5_0\n"
    assert [nic.name for nic in read(text)[0].nics] == ["NIC0", "NIC1"]


def test_each_matrix_has_its_own_legend() -> None:
    machine = "\tGPU0\tNIC0\nGPU0\tX\tPIX\n\nNIC Legend:\n\n  NIC0: {}\n"
    text = machine.format("mlx5_4") + machine.format("mlx5_bond_0")
    assert [found.nics[0].name for found in read(text)] == ["mlx5_4", "mlx5_bond_0"]


LEGEND = "\n  X    = Self\n  NODE = Connection\n  PIX  = Connection\n"


@pytest.mark.parametrize(
    ("text", "warned"),
    [
        ("$ nvidia-smi topo -mp\n\tGPU0\tGPU1\nGPU0\tX\tPIX\nGPU1\tPIX\tX\n", True),
        (f"\tGPU0\tGPU1\nGPU0\tX\tPIX\nGPU1\tPIX\tX\n{LEGEND}", True),
        (f"\tGPU0\tGPU1\nGPU0\tX\tPIX\nGPU1\tPIX\tX\n{LEGEND}  NV#  = Connection\n", False),
        (f"\tGPU0\tGPU1\nGPU0\tX\tNV4\nGPU1\tNV4\tX\n{LEGEND}", False),
    ],
)
def test_a_matrix_of_pcie_alone_may_hide_links_and_that_is_said(text: str, warned: bool) -> None:
    (found,) = read_topologies("f", text)
    assert any("topo -mp" in remark for remark in found.remarks) == warned


def test_mig_slices_beside_the_matrix_are_no_gpus() -> None:
    listed = (
        "GPU 0: NVIDIA A100-SXM4-80GB (UUID: GPU-1)\n  MIG 1g.10gb Device 0: (UUID: MIG-1)\n"
        "GPU 1: NVIDIA A100-SXM4-80GB (UUID: GPU-2)\n\n"
    )
    (found,) = read_topologies("f", listed + "\tGPU0\tGPU1\nGPU0\tX\tNV12\nGPU1\tNV12\tX\n")
    assert (found.gpus, found.product) == (2, "NVIDIA A100-SXM4-80GB")
    assert any("MIG" in remark for remark in found.remarks)


def broken(stem: str, change: Callable[[list[str]], list[str]]) -> str:
    """What is said of a sample after a change of its lines."""
    with pytest.raises(InputError) as refused:
        read("\n".join(change(sample(stem).split("\n"))))
    (fault,) = refused.value.faults
    assert fault.file == "f.txt"
    return f"{fault.line}:{fault.column} {fault.what}"


def in_line(number: int, old: str, new: str) -> Callable[[list[str]], list[str]]:
    """Replace the first ``old`` in a line, which counts from 1."""
    return lambda lines: [
        line.replace(old, new, 1) if n == number else line for n, line in enumerate(lines, 1)
    ]


ONE_NIC = "02-v100x8-onecx-numa-split"


def test_what_is_broken_is_said_with_its_place() -> None:
    assert broken(ONE_NIC, lambda lines: lines[:4]) == (
        "1:9 the matrix is cut off: the rows of GPU3 to GPU7 are missing"
    )
    assert broken(ONE_NIC, lambda lines: [*lines[:3], *lines[4:]]) == (
        "1:9 the matrix is cut off: the row of GPU2 is missing"
    )
    assert broken(ONE_NIC, lambda lines: [*lines[:8], lines[8][:40]]) == (
        "9:1 the row of GPU7 is cut off: 4 of 9 cells"
    )
    # GPU0's row: label of 4, five blanks, X, then NV1 in column 17.
    assert (
        broken(ONE_NIC, in_line(2, "NV1", "NVX")) == "2:17 'NVX' between GPU0 and GPU1 is no path"
    )
    assert broken(ONE_NIC, in_line(2, "NV1", "NV2")) == (
        "2:17 the matrix is not symmetric: GPU0 to GPU1 is 'NV2', GPU1 to GPU0 is 'NV1'"
    )
    assert broken(ONE_NIC, in_line(10, "PIX", "SYS")) == (
        "4:73 the matrix is not symmetric: GPU2 to mlx5_0 is 'PIX', mlx5_0 to GPU2 is 'SYS'"
    )
    assert broken(ONE_NIC, in_line(2, " X ", "PIX")) == "2:9 'PIX' between GPU0 and GPU0"
    assert broken(ONE_NIC, in_line(1, "GPU7", "GPU6")) == "1:9 GPU6 heads two columns"
    assert broken(ONE_NIC, in_line(1, "    GPU7", "        ")) == (
        "2:73 the row of GPU0 has more cells than there are columns, 8"
    )
    assert broken(ONE_NIC, lambda lines: lines[1:]) == (
        "1:None the matrix is cut off: the line of labels above it, GPU0 GPU1 ..., is missing"
    )
    assert broken(ONE_NIC, lambda lines: lines[:1]) == (
        "1:9 the matrix is cut off: GPU0 and more head columns, but there are no rows"
    )


def test_a_second_matrix_without_rows_is_not_passed_over() -> None:
    whole = sample(ONE_NIC)
    said = broken(ONE_NIC, lambda lines: [*lines, *lines[:1]])
    place, what = said.split(" ", 1)
    assert place == f"{whole.count(chr(10)) + 2}:9"
    assert what == "the matrix is cut off: GPU0 and more head columns, but there are no rows"
    # Prose that happens to name GPUs alone is no matrix.
    assert read(f"{whole}\nGPU0 GPU1\n") == read(whole)


def test_a_table_of_rocm_smi_needs_its_heading() -> None:
    for cell in ("15", "XGMI"):
        with pytest.raises(InputError, match="rocm-smi without the heading"):
            read(f"\tGPU0\tGPU1\nGPU0\t0\t{cell}\nGPU1\t{cell}\t0\n")


def test_more_cells_that_differ_are_counted() -> None:
    said = broken(ONE_NIC, lambda lines: in_line(3, "NV2", "NV1")(in_line(2, "NV1", "NV2")(lines)))
    # GPU0-GPU1 and GPU1-GPU2.
    assert said.endswith("GPU1 to GPU0 is 'NV1'; 1 more pairs differ")


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("NVIDIA-SMI has failed because it couldn't communicate with the driver", "itself failed"),
        ("No devices were found\n", "itself failed: 'No devices were found'"),
        ("| NVIDIA-SMI 580.105.08   Driver Version: 580.105.08 |\n", "but no topology in it"),
        (PEER_ACCESS, "topo -p2p"),
        ("WEIGHT TABLE:\n             0000:0c:00.0\n0000:0c:00.0 0\n", "amd-smi"),
        ('{"system": {"(Topology) Hops between DRM devices 0 and 1": "1"}}', "without --json"),
        ("x" * 20_000, "line 1 has 20000 characters"),
        ("\x00\x01\x02", "no topology and no server model"),
    ],
)
def test_a_text_without_a_topology_is_refused_for_what_it_is(text: str, what: str) -> None:
    with pytest.raises(InputError) as refused:
        read(text)
    (fault,) = refused.value.faults
    assert what in fault.what


def test_too_many_gpus_are_refused_without_reading_them() -> None:
    labels = " ".join(f"GPU{g}" for g in range(300))
    rows = "\n".join(
        f"GPU{a} " + " ".join("X" if a == b else "NV18" for b in range(300)) for a in range(300)
    )
    with pytest.raises(InputError, match="300 GPUs in one server, more than 64"):
        read(f"{labels}\n{rows}\n")
