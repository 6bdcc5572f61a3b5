"""What a text said of a server and which known ones it is like, in words.

Promises: pure; names as the catalogue has them. Called by ``topology`` and the verb ``topo``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from planner.reading.matrices.recognising import ASPECTS, Likeness
from planner.showing.text import plural

if TYPE_CHECKING:
    from models.hardware import ServerModel
    from planner.reading.matrices.modelling import Reading

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
