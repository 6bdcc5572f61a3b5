"""What a text said of a server and which known ones it is like, in words.

Promises: pure; names as the catalogue has them. Called by ``topology`` and the verb ``topo``.

The bandwidth table of a server model, or one for every GPU model that it may have.

Promises: pure tables, no terminal; rates are MB/s, rounded down, or in links where the rate of one
is not known. Called by ``topology``.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import combinations
from math import comb
from typing import TYPE_CHECKING

from models.rates.gpu_sets import UnknownRate, signatures
from models.rates.server_bandwidth import TableRow, link_count, switched_MBps, table
from planner.read.topo.matrix_match import ASPECTS, Likeness
from planner.show.table import Cell, Column, Table
from planner.show.text import number, plural

if TYPE_CHECKING:
    from models.hardware import ServerModel
    from planner.read.topo.server_model import Reading

MOST_NAMES = 6
"""Most servers listed by name before the rest is counted."""

_ASPECTS = {"pcie": "PCIe paths", "numa": "NUMA nodes", "nics": "NICs"}
assert tuple(_ASPECTS) == ASPECTS


def reading_facts(reading: Reading) -> list[tuple[str, str]]:
    """Name and value: where it was read, what it is recognised as, what else has such links."""
    topology, known = reading.topology, reading.known
    rest = [like for like in known.whole if like not in known.best] if known.telling else []
    parts = known.parts if known.whole or not known.telling else ()
    rows = [
        ("read from", f"{topology.file}:{topology.line}, {topology.tool}"),
        ("recognised as", _recognised(reading)),
        ("numbering", _numbering((*known.best, *rest))),
        ("same links", _names(rest)),
        ("may be part of", _names(parts)),
    ]
    return [(name, value) for name, value in rows if value]


def _recognised(reading: Reading) -> str:
    known, best = reading.known, reading.known.best
    if reading.topology.matrix is None:
        if not known.whole:
            return "nothing: no known server has these NUMA nodes"
        return f"perhaps {_names(known.whole)}, by NUMA nodes alone"
    if not best:
        if known.parts:
            return "no server: so few links tell little"
        has = "this matrix" if reading.model.fabric == "pcie" else "these links"
        # Known servers of other GPUs than the one that was said may well have them.
        server = f"server of {known.gpu}" if known.others and known.gpu else "server"
        return f"nothing: no known {server} has {has}"
    if not best[0].whole:
        return f"{reading.model.gpus} of the {_sizes(best)} GPUs of {_names(best)}"
    return f"{_names(best)}: {_agreement(best[0], linked=reading.model.fabric != 'pcie')}"


def _sizes(best: Sequence[Likeness]) -> str:
    return listed([str(size) for size in sorted({like.model.gpus for like in best})])


def _agreement(like: Likeness, *, linked: bool) -> str:
    same = [*(["links"] if linked else []), *(_ASPECTS[aspect] for aspect in like.same)]
    text = f"the same {listed(same, 'and')}"
    differs = [_ASPECTS[aspect] for aspect in like.differs]
    return f"{text}, other {listed(differs, 'and')}" if differs else text


def _numbering(found: Sequence[Likeness]) -> str:
    """How its GPUs are those of the best known of these servers, where that numbers them otherwise."""
    like = next(iter(_makers_first(found)), None)
    if like is None or not (like.whole and like.renumbered):
        return ""
    theirs = ",".join(map(str, like.gpus))
    return f"GPU 0 to {len(like.gpus) - 1} here are GPU {theirs} of {like.model.name}"


def _names(found: Iterable[Likeness]) -> str:
    names = [like.model.name for like in _makers_first(found)]
    if len(names) > MOST_NAMES + 1:
        names = [*names[:MOST_NAMES], plural(len(names) - MOST_NAMES, "other")]
    return listed(names)


def _makers_first(found: Iterable[Likeness]) -> list[Likeness]:
    """The maker's own servers, then others, then the names that clouds give them."""
    return sorted(found, key=lambda like: _rank(like.model))


def _rank(model: ServerModel) -> int:
    if model.name.startswith(("DGX", "HGX")):
        return 0
    cloud = model.name.startswith(("AWS ", "Azure ", "GCP ", "OCI ")) or "cloud VM" in model.name
    return 2 if cloud else 1


def listed(words: Sequence[str], last: str = "or") -> str:
    """``a, b or c``; names that have commas themselves stand between semicolons."""
    comma = "; " if any("," in word for word in words) else ", "
    return f" {last} ".join([part for part in (comma.join(words[:-1]), *words[-1:]) if part])


def gpu_choices(reading: Reading) -> list[str]:
    """GPU models of the servers it may be, by link rate: what ``--gpu`` may say."""
    choices = dict.fromkeys(like.model.gpu for like in reading.known.all)
    rated = [gpu for one in reading.possible for gpu in one.gpus if gpu in choices]
    return list(dict.fromkeys([*rated, *choices]))


def advice(reading: Reading) -> list[str]:
    """What the user can do: say the GPU model, or use the known server as it is."""
    model, known = reading.model, reading.known
    lines = []
    choices = gpu_choices(reading)
    unknown = known.gpu is None and (
        known.telling or reading_needs_gpu(reading) or model.matrix is None
    )
    if unknown and not known.telling:
        likely = [*choices, *(gpu for one in reading.possible for gpu in one.gpus)]
        likely.append("MI210" if model.vendor == "AMD" else "A100")
        lines.append(f"hint: say which GPU it has, such as --gpu {_quoted(likely[0])}")
    elif unknown:
        lines.append(
            f"hint: say which GPU it has with --gpu: {listed(list(map(_quoted, choices)))}"
        )
    elif model.link_MBps is None and model.fabric != "pcie":
        lines.append("hint: -o yaml writes the model; add linkMBps, the MB/s of one link, to it")
    best = known.best
    if len(best) == 1 and best[0].whole and not (best[0].renumbered or best[0].differs):
        theirs = best[0].model
        if model.matrix is not None and bool(model.nics) == bool(theirs.nics):
            lines.append(f"next: nodes of this kind may say `model: {theirs.name}`")
    return lines


def reading_needs_gpu(reading: Reading) -> bool:
    """Whether the GPU model decides rates that nothing else tells."""
    linked = reading.model.fabric != "pcie"
    return (linked and reading.model.link_MBps is None) or bool(reading.assumed)


def unrated(reading: Reading) -> list[str]:
    """GPU models that it may have whose link rate is not known, where that of others is."""
    rated = {gpu for one in reading.possible for gpu in one.gpus}
    return [gpu for gpu in gpu_choices(reading) if rated and gpu not in rated]


def _quoted(gpu: str) -> str:
    return f'"{gpu}"' if " " in gpu else gpu


if TYPE_CHECKING:
    from models.hardware import ServerModel
    from planner.read.topo.server_model import Possible

MOST_SETS = 256
"""Most sets of one size that are listed: of a mesh of 16 GPUs only the pairs and the large sets."""

MOST_SHAPES = 2
"""Most sets of one size above 8 GPUs that may be linked differently: of a made-up mesh of 16 GPUs
one set can take ten seconds to price."""

_UNKNOWN_LINK = 10**15
"""MB/s that stand for one link of unknown rate: so much more than any PCIe path carries that what
holds back a set of GPUs is never mistaken."""

_IN_LINKS = _UNKNOWN_LINK // 2
"""From here on a rate is one in links: a chain over single links reaches 0.92 of one or more."""


def possible_bandwidths(
    model: ServerModel, possible: Sequence[Possible], unrated: Sequence[str] = ()
) -> list[tuple[Table, ...]]:
    """For each rate a heading that names the GPUs, and the table; the notes below the last.

    ``model``: as it is without knowing the GPU. ``unrated``: GPUs that it may have too, of
    whose links no rate is known.
    """
    parts: dict[tuple[int | None, Table], list[Possible]] = {}
    for one in possible:
        parts.setdefault((one.model.link_MBps, bandwidths(one.model)), []).append(one)
    pcie = {model.pcie_MBps, *(one.model.pcie_MBps for one in possible)}
    shown = [
        (_heading(same, tell_pcie=len(pcie) > 1), replace(part, notes=()))
        for (_, part), same in parts.items()
    ]
    notes = list(parts)[-1][1].notes
    if unrated:
        notes = (*notes, f"Its GPUs may be {listed(unrated)} too: their link rate is not known.")
    heading, last = shown.pop()
    return [*shown, (heading, replace(last, notes=notes))]


def _heading(same: Sequence[Possible], *, tell_pcie: bool) -> Table:
    """What GPUs a table is for, and its rates; that of PCIe if it is told and some set needs it."""
    gpus = [gpu for one in same for gpu in one.gpus]
    rates = [f"{number(same[0].model.link_MBps)} MB/s a link"]
    pcie = {one.model.pcie_MBps for one in same}
    if tell_pcie and len(pcie) == 1 and not all(_all_linked(one.model) for one in same):
        rates.append(f"{number(*pcie)} MB/s under one PCIe switch")
    heading = Cell(f"if its GPUs are {listed(gpus)} ({', '.join(rates)})", "head")
    return Table((Column("heading", fold=True),), ((heading,),), headless=True)


def _all_linked(model: ServerModel) -> bool:
    """Whether every two of its GPUs are linked, so that no set needs PCIe."""
    gpus = range(model.gpus)
    return model.switched or all(
        link_count(model.matrix[a][b]) for a in gpus for b in range(a) if model.matrix is not None
    )


def bandwidths(model: ServerModel) -> Table:
    """One row for the sets of one size that reach the same: inside, and over several servers."""
    sizes = [k for k in range(1, model.gpus + 1) if model.switched or _few(model, k)]
    notes: list[str] = []
    try:
        try:
            rows = table(model, sizes)
        except UnknownRate as unknown:
            rows = table(replace(model, link_MBps=_UNKNOWN_LINK), sizes)
            notes = [f"`links`: so many times what one link carries; {unknown}."]
    except UnknownRate as unknown:
        return Table((), (), (f"no bandwidth table: {unknown}",), headless=True)
    names = ("GPUs", "inside", "rings", "chains", "sets", "such as", "NICs", "several servers")
    columns = tuple(
        Column(name, right=name != "such as", optional=name == "chains") for name in names
    )
    cells = tuple(_row(row, mesh=model.fabric != "pcie", priced=bool(model.nics)) for row in rows)
    shown = Table(columns, cells).without_empty_columns()
    titles = {column.title for column in shown.columns}
    return replace(shown, notes=(*_notes(model, sizes, titles), *notes))


def _few(model: ServerModel, size: int) -> bool:
    if comb(model.gpus, size) > MOST_SETS:
        return False
    return size <= 8 or len(_shapes(model, size)) <= MOST_SHAPES


def _shapes(model: ServerModel, size: int) -> set[Hashable]:
    """What tells apart how the sets of one size are linked; empty without a matrix."""
    if model.matrix is None:
        return set()
    links = [[link_count(cell) for cell in row] for row in model.matrix]
    return {
        tuple(sorted(signatures([[links[a][b] for b in chosen] for a in chosen])))
        for chosen in combinations(range(model.gpus), size)
    }


def _notes(model: ServerModel, sizes: list[int], titles: Collection[str]) -> Iterator[str]:
    out = ", `NICs` out of it" if "NICs" in titles else ""
    yield f"MB/s, one direction, rounded down; `inside` among these GPUs of one server{out}."
    if "several servers" in titles:
        yield (
            "`several servers`: so many GPUs on each of two or more, nothing between them"
            " oversubscribed."
        )
    left = [k for k in range(1, model.gpus + 1) if k not in sizes]
    if left:
        sizes_left = f"{left[0]} to {left[-1]}" if len(left) > 1 else str(left[0])
        yield f"Not listed: sets of {sizes_left} GPUs, too many of each size."
    if model.nvlink_domain_nodes > 1 and model.link_MBps is not None:
        yield f"Within one NVLink domain: {_floored(switched_MBps(model))} on any of its servers."
    if not model.nics:
        yield "No NIC is known: give nodes of this model their own `nics`."
    elif any(nic.megabits is None for nic in model.nics):
        yield "The speed of a NIC is not known: give nodes of this model their own `nics`."


def _row(row: TableRow, *, mesh: bool, priced: bool) -> tuple[Cell, ...]:
    """``priced``: the model has NICs, so that what leaves it is known."""
    out = row.out if priced else None
    several = out if row.inside is None or row.inside < _IN_LINKS else None
    return tuple(
        Cell(text)
        for text in (
            str(row.gpus),
            "unlimited" if row.inside is None else _inside(row.inside),
            str(row.rings) if mesh and row.rings is not None else "-",
            str(row.chains) if mesh and row.chains is not None else "-",
            number(row.subsets),
            _indices(row.example),
            "-" if out is None else _range(*out),
            "-" if several is None else _range(*(_least(row.inside, rate) for rate in several)),
        )
    )


def _inside(rate: Fraction) -> str:
    """MB/s, or ``2.45 links`` where the rate of one is not known."""
    if rate < _IN_LINKS:
        return _floored(rate)
    whole, hundredths = divmod(math.floor(100 * rate / _UNKNOWN_LINK), 100)
    text = f"{whole}.{hundredths:02d}".rstrip("0").rstrip(".")
    return f"{text} {'link' if text == '1' else 'links'}"


def _least(inside: Fraction | None, out: Fraction) -> Fraction:
    return out if inside is None else min(inside, out)


def _floored(rate: Fraction) -> str:
    return number(math.floor(rate))


def _range(least: Fraction, most: Fraction) -> str:
    """``12,500`` or ``12,500-25,000``."""
    low, high = _floored(least), _floored(most)
    return low if low == high else f"{low}-{high}"


def _indices(gpus: tuple[int, ...]) -> str:
    """``0,3``; a long run from 0 as ``0-15``."""
    if len(gpus) > 8 and gpus == tuple(range(len(gpus))):
        return f"0-{gpus[-1]}"
    return ",".join(map(str, gpus))
