"""The server model by every GPU model it may have, where the matrix leaves the rate of a link open.

Promises: each is what ``--gpu`` would make of it, but for its name and NICs; none is invented where
the text or the user names the GPU. Called by ``planner.model_files``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from models.hardware import ServerModel
from planner.errors import InputError
from planner.reading.matrices.generations import linkable
from planner.reading.matrices.modelling import Choice, Matrix, Possible, Reading, by_matrix
from planner.reading.matrices.topology import link_count


def possibilities(reading: Reading) -> tuple[Possible, ...]:
    """One for every distinct model, the slowest links first; none if the rate is known, or no GPU is.

    Of a server that is recognised the GPUs of the servers it may be. So few links as tell little
    may also be those of any common GPU that is linked like this.
    """
    matrix, model = reading.topology.matrix, reading.model
    if matrix is None or reading.known.gpu is not None:
        return ()
    if model.link_MBps is not None or model.fabric == "pcie":
        return ()
    groups: dict[ServerModel, list[str]] = {}
    for gpu in dict.fromkeys(_gpus(reading, matrix)):
        possible = _by_gpu(reading, matrix, gpu)
        if possible is not None:
            groups.setdefault(possible, []).append(gpu)
    found = [Possible(tuple(gpus), possible) for possible, gpus in groups.items()]
    return tuple(sorted(found, key=lambda possible: _rates(possible.model)))


def _rates(model: ServerModel) -> tuple[int, int, int]:
    return (model.link_MBps or 0, model.pcie_MBps, model.sys_MBps)


def _gpus(reading: Reading, matrix: Matrix) -> Iterable[str]:
    yield from (like.model.gpu for like in reading.known.all)
    if not reading.known.telling and reading.topology.maker == "NVIDIA":
        counts = [[link_count(path) for path in row] for row in matrix]
        pairs = {count for row in counts for count in row if count}
        yield from linkable(pairs, max(map(sum, counts)))


def _by_gpu(reading: Reading, matrix: Matrix, gpu: str) -> ServerModel | None:
    """The model with this GPU; None if that has no such links, or the rate of one is not known."""
    known = reading.known
    found = (*known.all, *known.others)
    try:
        model = by_matrix(reading.topology, matrix, found, Choice(gpu)).model
    except InputError:
        return None  # a switch that reaches some: this GPU has fewer links than the others have
    if model.link_MBps is None:
        return None
    # Which NICs it has does not depend on the GPU; the speeds are those of the closest servers.
    return replace(
        model,
        name=reading.model.name,
        gpu=reading.model.gpu,
        links_per_gpu=model.links_per_gpu if model.switched else reading.model.links_per_gpu,
        nics=reading.model.nics,
        nvlink_domain_nodes=reading.model.nvlink_domain_nodes,
    )
