"""Text as nvidia-smi and rocm-smi print it, from a matrix: what the tests of ``topo`` read back."""

from __future__ import annotations

from collections.abc import Sequence

from models.hardware import ServerModel
from planner.read.topo.server_model import known_paths

Matrix = Sequence[Sequence[str]]


def nvidia_text(
    matrix: Matrix, numa: Sequence[int | None] | None = None, *, grace: bool = False
) -> str:
    """``nvidia-smi topo -m`` of these paths. ``grace``: GPU memory has NUMA nodes of its own."""
    gpus = range(len(matrix))
    title = ("" if numa is None else "\tNUMA Affinity") + ("\tGPU NUMA ID" if grace else "")
    lines = ["\t" + "\t".join(f"GPU{g}" for g in gpus) + title]
    for g in gpus:
        cells = "\t".join(" X " if cell == "X" else cell for cell in matrix[g])
        lines.append(f"GPU{g}\t{cells}" + ("" if numa is None else f"\t{numa[g]}"))
        lines[-1] += f"\t{8 * g + 2}" if grace else ""
    return "\n".join(lines) + "\n"


def rocm_table(title: str, cells: Matrix) -> str:
    """One table of ``rocm-smi --showtopo``."""
    gpus = range(len(cells))
    lines = [
        f" {title} ".center(90, "="),
        "       " + "".join(f"GPU{g}".ljust(13) for g in gpus),
        *(f"GPU{g}".ljust(7) + "".join(cell.ljust(13) for cell in cells[g]) for g in gpus),
    ]
    return "\n".join(lines) + "\n\n"


def rocm_nodes(numa: Sequence[int | None]) -> str:
    """The NUMA block of rocm-smi."""
    lines = [" Numa Nodes ".center(90, "=")]
    for g, node in enumerate(numa):
        shown = -1 if node is None else node
        lines += [f"GPU[{g}]\t\t: (Topology) Numa Node: {shown}",
                  f"GPU[{g}]\t\t: (Topology) Numa Affinity: {shown}"]  # fmt: skip
    return "\n".join(lines) + "\n"


def relabelled(matrix: Matrix, order: Sequence[int]) -> tuple[tuple[str, ...], ...]:
    """The matrix whose GPU g is GPU ``order[g]`` of the given one."""
    return tuple(tuple(matrix[a][b] for b in order) for a in order)


def paths(model: ServerModel) -> tuple[tuple[str, ...], ...]:
    """The matrix that a known server prints."""
    return known_paths(model)
