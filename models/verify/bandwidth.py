"""B(gang), ideal(gang) and share(gang) of a plan, exactly; rates of GPU sets come from ``models.rates``.

Servers that share one NVLink domain count as one, unless the gang may not use NVLink between servers. One
of them: B = inside. Several, with O the largest oversubscription its GPU pods cross: min over them of
min(inside, N / O).
Promises: ``Fraction`` MB/s, None where there is none or a rate is not known. Called by ``judging``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations

from models.hardware import ServerModel
from models.rates.gpu_sets import UnknownRate
from models.rates.server_bandwidth import (
    best_inside_MBps,
    inside_MBps,
    nics_MBps,
    worst_inside_MBps,
)
from models.verify.changes import Change, Usage
from models.verify.facts import Facts, Node


@dataclass(frozen=True, slots=True)
class Speed:
    """Of one gang, MB/s, exact; None: fewer than two GPUs, or a rate is not known."""

    reached: Fraction | None
    ideal: Fraction | None

    @property
    def MBps(self) -> int | None:
        return None if self.reached is None else int(self.reached)

    @property
    def share(self) -> int | None:
        """Permille of the ideal, floored once, at most 1000; 1000 where the ideal is 0."""
        if self.reached is None or self.ideal is None:
            return None
        return 1000 if self.ideal == 0 else min(1000, int(1000 * self.reached / self.ideal))

    def below(self, least: Fraction) -> bool:
        """Whether B < least x ideal, before any rounding."""
        if self.reached is None or self.ideal is None:
            return False
        return self.reached < least * self.ideal


@dataclass(frozen=True, slots=True)
class _Part:
    """The gang's GPUs in one server: ``known`` indices, and ``unknown`` more, nobody knows which."""

    node: Node
    known: int
    unknown: int
    candidates: int

    @property
    def count(self) -> int:
        return self.known.bit_count() + self.unknown


class Pricing:
    """Prices every gang of one plan; what sets of GPUs reach is remembered by server model."""

    def __init__(self, facts: Facts, usage: Usage) -> None:
        self.facts = facts
        self.usage = usage
        # The widest nvlink level: nested ones are inside it.
        self.nvlink_level = next((i for i, level in enumerate(facts.levels) if level.nvlink), None)
        self.worst: dict[tuple[int, int, int, int], Fraction | None] = {}

    def speed(self, change: Change) -> Speed:
        """What the gang reaches after the plan."""
        parts = self._parts(change)
        count = sum(part.count for part in parts)
        if count < 2:
            return Speed(None, None)
        return Speed(
            _unless_unknown(lambda: self._reached(parts, joined=change.gang.joined)),
            _unless_unknown(lambda: self._ideal(parts, count, joined=change.gang.joined)),
        )

    def _parts(self, change: Change) -> list[_Part]:
        known: dict[int, int] = {}
        unknown: dict[int, int] = {}
        for pod in change.pods.values():
            if pod.gpus is None:
                unknown[pod.node] = unknown.get(pod.node, 0) + change.gang.held(pod)
            elif pod.gpus:
                known[pod.node] = known.get(pod.node, 0) | pod.gpus
        parts = []
        for position in sorted({*known, *unknown}):
            node = self.facts.nodes[position]
            own = known.get(position, 0)
            hidden = min(unknown.get(position, 0), node.gpus - own.bit_count())
            if own or hidden:
                able = self._candidates(position, node, own, hidden)
                parts.append(_Part(node, own, hidden, able))
        return parts

    def _candidates(self, position: int, node: Node, own: int, hidden: int) -> int:
        """GPUs that ``hidden`` unknown ones may be: healthy and not known to be held.

        Pods that stay may hold sick GPUs, and more than the node has: then more may be.
        """
        taken = self.usage.nodes[position].known
        for wider in (node.healthy & ~taken, node.all_gpus & ~taken):
            if wider.bit_count() >= hidden:
                return wider
        return node.all_gpus & ~own

    def _reached(self, parts: Sequence[_Part], *, joined: bool) -> Fraction | None:
        fabrics = list(self._fabrics(parts)) if joined else [[part] for part in parts]
        if len(fabrics) == 1:
            return self._inside(fabrics[0])
        over = self._oversubscription(parts)
        rates = []
        for members in fabrics:
            inside = self._inside(members)
            if inside is not None:
                rates.append(inside)
            rates.append(sum((self._out(part) for part in members), Fraction(0)) / over)
        return min(rates)

    def _fabrics(self, parts: Sequence[_Part]) -> Iterator[list[_Part]]:
        """Servers, those of one NVLink domain together."""
        level = self.nvlink_level
        together: dict[int, list[_Part]] = {}
        for part in parts:
            model = part.node.model
            if level is not None and model is not None and model.nvlink_domain_nodes > 1:
                together.setdefault(part.node.domain[level], []).append(part)
            else:
                yield [part]
        yield from together.values()

    def _oversubscription(self, parts: Sequence[_Part]) -> Fraction:
        return max(
            (
                level.oversubscription
                for i, level in enumerate(self.facts.levels)
                if len({part.node.domain[i] for part in parts}) > 1
            ),
            default=Fraction(1),
        )

    def _inside(self, members: Sequence[_Part]) -> Fraction | None:
        """What the GPUs of one server, or of one NVLink domain, reach among themselves; None: one GPU."""
        if len(members) > 1:
            return min(Fraction(_fabric_rate(_model(part))) for part in members)
        part = members[0]
        model = _model(part)
        if not part.unknown:
            return inside_MBps(model, part.known)
        if not part.known:
            return worst_inside_MBps(model, part.candidates, part.unknown)
        if model.switched:
            return inside_MBps(model, (1 << part.count) - 1)
        key = (id(model), part.known, part.candidates, part.unknown)
        if key not in self.worst:
            # At most 16 GPUs without a switch: at most 12,870 sets.
            self.worst[key] = min(
                value
                for mask in _choices(part.candidates & ~part.known, part.unknown)
                if (value := inside_MBps(model, part.known | mask)) is not None
            )
        return self.worst[key]

    def _out(self, part: _Part) -> Fraction:
        """N of one server: the worst where its GPUs are not known."""
        model = _model(part)
        if not part.unknown:
            return nics_MBps(model, part.node.nics, part.known)
        return min(nics_MBps(model, part.node.nics, mask) for mask in _typical_sets(part))

    def _ideal(self, parts: Sequence[_Part], count: int, *, joined: bool) -> Fraction:
        models = {id(part.node.model): _model(part) for part in parts}
        return min(_ideal_on(model, count, joined=joined) for model in models.values())


def _ideal_on(model: ServerModel, count: int, *, joined: bool) -> Fraction:
    """The best that ``count`` >= 2 GPUs on servers of this model, as made, can reach."""
    if count <= model.gpus:
        best = best_inside_MBps(model, count)
        assert best is not None, "two or more GPUs have a bandwidth"
        return best
    if joined and count <= model.gpus * model.nvlink_domain_nodes:
        return Fraction(_fabric_rate(model))
    inside = inside_MBps(model, model.all_gpus)
    out = nics_MBps(model, model.nics, model.all_gpus)
    return out if inside is None else min(inside, out)


def _fabric_rate(model: ServerModel) -> int:
    if model.links_per_gpu is None or model.link_MBps is None:
        raise UnknownRate(f"the NVLink rate of server model {model.name} is not known")
    return model.links_per_gpu * model.link_MBps


def _model(part: _Part) -> ServerModel:
    assert part.node.model is not None, "a node without a model has no GPUs to hold"
    return part.node.model


def _choices(candidates: int, count: int) -> Iterator[int]:
    """Every set of ``count`` GPUs within a mask."""
    bits = [1 << gpu for gpu in range(candidates.bit_length()) if candidates >> gpu & 1]
    for chosen in combinations(bits, count):
        yield sum(chosen)


def _typical_sets(part: _Part) -> Iterator[int]:
    """One set for every way the unknown GPUs can be near NICs: N depends on nothing else.

    GPUs near the same NICs are alike, so only which kinds are present matters.
    """
    kinds: dict[tuple[bool, ...], list[int]] = {}
    for gpu in range(part.candidates.bit_length()):
        if part.candidates >> gpu & 1 and not part.known >> gpu & 1:
            near = tuple(nic.gpus is not None and gpu in nic.gpus for nic in part.node.nics)
            kinds.setdefault(near, []).append(1 << gpu)
    groups = list(kinds.values())
    for present in range(1, min(len(groups), part.unknown) + 1):
        for chosen in combinations(groups, present):
            rest = [bit for group in chosen for bit in group[1:]]
            if present + len(rest) >= part.unknown:
                yield (
                    part.known
                    | sum(group[0] for group in chosen)
                    | sum(rest[: part.unknown - present])
                )


def _unless_unknown(price: Callable[[], Fraction | None]) -> Fraction | None:
    """A rate that is not known is no fault of a gang that stays: it has no bandwidth then."""
    try:
        return price()
    except UnknownRate:
        return None
