"""The forms in which a matrix is read, and what is refused: text around its lines, cut and wrapped lines."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from planner.errors import InputError
from planner.read.model_files import read_topologies
from planner.read.topo.tools import Topology

SAMPLES = Path(__file__).parents[1] / "data" / "nvidia-smi"
PARTIAL = ("05-", "22-", "23-")
WHOLE = sorted(p.stem for p in SAMPLES.glob("*.txt") if not p.stem.startswith(PARTIAL))


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
    "behind a prompt": lambda text: f"root@node2:~# nvidia-smi topo -m\n{text}\nroot@node2:~# ",
    "underlined": around_labels("\x1b[4m", "\x1b[0m"),
    "indented": each_line(lambda line: f"        {line}" if "=" not in line else line),
    "no blanks at the ends": each_line(str.rstrip),
}

REFUSED: dict[str, Callable[[str], str]] = {
    "quoted in a mail": each_line(lambda line: f"> {line}"),
    "a table of Markdown": each_line(lambda line: "| " + re.sub(r"  +|\t", " | ", line) + " |"),
    "a comment": each_line(lambda line: f"# {line}"),
    "in a log": each_line(lambda line: f"2026-11-21T08:00:00Z pod/x {line}"),
    "underlined, the escapes spelled": around_labels("^[[4m", "^[[0m"),
    "empty lines between": lambda text: text.replace("\n", "\n\n"),
    "wrapped by a terminal": each_line(
        lambda line: "\n".join(line.expandtabs()[at : at + 60] for at in range(0, len(line), 60))
    ),
    "cut by a terminal": each_line(lambda line: line.expandtabs()[:60]),
}


def read(text: str) -> list[Topology]:
    """The topologies of a text, without places and remarks."""
    return [replace(found, file="", line=0, remarks=()) for found in read_topologies("f.txt", text)]


def sample(stem: str) -> str:
    return (SAMPLES / f"{stem}.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize("form", FORMS)
def test_the_form_does_not_matter(form: str) -> None:
    for stem in WHOLE:
        text = sample(stem)
        assert read(FORMS[form](text)) == read(text), stem


@pytest.mark.parametrize("form", REFUSED)
def test_wrapped_and_cut_text_is_refused_with_one_error(form: str) -> None:
    # Wide enough that a terminal of 60 columns wraps it, and a matrix of nvidia-smi.
    for stem in ("01-dgx1-v100-4nic-tabs", "06-a100x8-8nic-nic-legend"):
        with pytest.raises(InputError) as refused:
            read(REFUSED[form](sample(stem)))
        (fault,) = refused.value.faults
        assert (fault.file, fault.line is not None) == ("f.txt", True)
        assert fault.hint is not None
        assert "save" in fault.hint


def test_a_matrix_twice_is_two_servers() -> None:
    for stem in WHOLE:
        text = sample(stem)
        assert read(f"{text}\n{text}") == read(text) * 2, stem


@pytest.mark.parametrize(
    ("columns", "first", "second", "cpus", "numa"),
    [
        # The tool pads a long list with no blank: 0-45,92-137 and 0. Which is which is not known.
        (
            "CPU Affinity\tNUMA Affinity\tGPU NUMA ID",
            "0-45,92-1370 N/A",
            "46-91,138-183 1 N/A",
            (None, "46-91,138-183"),
            (None, (1,)),
        ),
        ("CPU Affinity\tNUMA Affinity", "0-63", "0-63", None, None),
        ("CPU Affinity\tNUMA Affinity", "0-63 N/A", "0-63 N/A", ("0-63", "0-63"), None),
        ("NUMA Affinity", "3", "1", None, ((3,), (1,))),
        ("CPU Affinity\tMemory Affinity\tNUMA Affinity", "0-7 5 0", "8-15 5 1",
         ("0-7", "8-15"), ((0,), (1,))),
        ("", "", "", None, None),
    ],
)  # fmt: skip
def test_columns_after_the_matrix(
    columns: str,
    first: str,
    second: str,
    cpus: tuple[str | None, ...] | None,
    numa: tuple[tuple[int, ...] | None, ...] | None,
) -> None:
    (found,) = read(f"\tGPU0\tGPU1\t{columns}\nGPU0\tX\tSYS\t{first}\nGPU1\tSYS\tX\t{second}\n")
    assert (found.cpus, found.numa) == (cpus, numa)


def test_a_legend_that_names_two_nics_alike_tells_nothing() -> None:
    text = "\tGPU0\tNIC0\tNIC1\nGPU0\tX\tPIX\tSYS\n\nNIC0: mlx5_0\nNIC1: mlx5_0\n"
    assert [nic.name for nic in read(text)[0].nics] == ["NIC0", "NIC1"]


LEGEND = "\n  X    = Self\n  NODE = Connection\n  PIX  = Connection\n"


@pytest.mark.parametrize(
    ("text", "warned"),
    [
        (f"\tGPU0\tGPU1\nGPU0\tX\tPIX\nGPU1\tPIX\tX\n{LEGEND}", True),
        (f"\tGPU0\tGPU1\nGPU0\tX\tPIX\nGPU1\tPIX\tX\n{LEGEND}  NV#  = Connection\n", False),
        (f"\tGPU0\tGPU1\nGPU0\tX\tNV4\nGPU1\tNV4\tX\n{LEGEND}", False),
    ],
)
def test_a_matrix_of_pcie_alone_may_hide_links_and_that_is_said(text: str, warned: bool) -> None:
    (found,) = read_topologies("f", text)
    assert any("topo -mp" in remark for remark in found.remarks) == warned


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
        "1:9 the matrix is cut off: the row of GPU3 is missing"
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
    assert broken(ONE_NIC, in_line(1, "GPU7", "GPU6")) == (
        "1:9 the columns GPU0 GPU1 GPU2 GPU3 GPU4 GPU5 GPU6 GPU6 are not GPU0, GPU1, ... in order"
    )
    assert broken(ONE_NIC, in_line(1, "    GPU7", "        ")) == (
        "2:73 the row of GPU0 has more cells than there are columns, 8"
    )
    assert broken(ONE_NIC, lambda lines: lines[1:]) == (
        "1:1 no topology and no server model in this file"
    )
    assert broken(ONE_NIC, lambda lines: lines[:1]) == (
        "1:9 the matrix is cut off: the row of GPU0 is missing"
    )


def test_a_second_matrix_without_rows_is_not_passed_over() -> None:
    whole = sample(ONE_NIC)
    said = broken(ONE_NIC, lambda lines: [*lines, *lines[:1]])
    place, what = said.split(" ", 1)
    assert place == f"{whole.count(chr(10)) + 2}:9"
    assert what == "the matrix is cut off: the row of GPU0 is missing"


def test_a_table_of_rocm_smi_needs_its_heading() -> None:
    for cell in ("15", "XGMI"):
        with pytest.raises(InputError, match=r"row of GPU0 is cut off|is no path"):
            read(f"\tGPU0\tGPU1\nGPU0\t0\t{cell}\nGPU1\t{cell}\t0\n")
