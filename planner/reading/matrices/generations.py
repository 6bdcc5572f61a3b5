"""What the generation of a GPU tells where no known server does: link rate, links, PCIe.

Promises: planning rates of the contract, section 1; None for a GPU that is not listed.
Called by ``modelling``.
"""

from __future__ import annotations

from dataclasses import dataclass

from models.hardware import slug


@dataclass(frozen=True, slots=True)
class Generation:
    """MB/s of one NVLink and links of one GPU, None without NVLink; MB/s below one PCIe switch."""

    link_MBps: int | None
    links: int | None
    pcie_MBps: int


def _each(
    names: str, link_MBps: int | None, links: int | None, pcie_MBps: int
) -> dict[str, Generation]:
    return {name: Generation(link_MBps, links, pcie_MBps) for name in names.split()}


_BY_NAME = {
    **_each("p100", 18000, 4, 10000),
    **_each("v100 v100s", 20000, 6, 10000),
    **_each("2080 8000", 20000, 2, 10000),
    **_each("a100 a100x", 20000, 12, 20000),
    **_each("a800", 20000, 8, 20000),
    **_each("a30", 20000, 4, 20000),
    **_each("a40 a6000 a5500 a5000 a4500 3090", 12000, 4, 20000),
    **_each("h100 h200 h20 gh200", 20600, 18, 40000),
    **_each("h800", 20600, 8, 40000),
    **_each("b100 b200 b300 gb200 gb300", 40100, 18, 40000),
    **_each("k80 p4 p40 t4", None, None, 10000),
    **_each("a2 a10 a10g a16 l4 l20 l40 l40s 4090", None, None, 20000),
    **_each("5090", None, None, 40000),
}


def generation(gpu: str) -> Generation | None:
    """By a word of the name: ``NVIDIA H100 80GB HBM3``, ``RTX A6000``; None if no word is known."""
    return next((_BY_NAME[word] for word in slug(gpu).split("-") if word in _BY_NAME), None)


MOST_LINKS = 18
"""Most NVLinks that any GPU has: pairs that together name more go through a switch."""


_PAIRS: tuple[tuple[int, int, tuple[str, ...]], ...] = (
    (1, 2, ("P100",)),
    (1, 6, ("V100", "RTX 2080 Ti", "Quadro RTX 8000")),
    (4, 12, ("A100", "A800", "A30")),
    (4, 4, ("RTX A6000", "A40", "RTX 3090")),
    (6, 18, ("H100", "H200", "H20")),
    (13, 18, ("B200", "B300")),
)
"""Fewest and most links that join two GPUs on boards, by bridges and through switches: a bridge
has four, a board of four H100 six a pair, Blackwell GPUs meet at a switch alone."""


def linkable(pairs: set[int], links: int) -> tuple[str, ...]:
    """Common GPUs that may be joined like this, by name; the oldest first.

    ``pairs``: every count of links that two of the GPUs share; ``links``: the most of one GPU.
    """
    found = []
    for fewest, most, names in _PAIRS:
        if all(fewest <= count <= most for count in pairs):
            found += [name for name in names if links <= _links(name)]
    return tuple(found)


def _links(gpu: str) -> int:
    told = generation(gpu)
    return (told.links if told is not None else None) or 0
