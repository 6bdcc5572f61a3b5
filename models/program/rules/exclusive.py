"""Domains that a gang has for itself (contract 2.20).

For every level at which a gang is exclusive and every domain D of it: come, the pieces that are placed there,
and all, the same with the pods that stay. For each gang g that is exclusive there, with a boolean y, and M a
bound on the left side:
    come of g <= M y,   all - all of g <= M (1 - y)
    come - come of g <= M (1 - [a pod of g stays in D])
come and all are variables, so that a row has the pieces of one gang only.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from models.instance.gang import ExistingPod, Gang
from models.instance.solution import PodPlacement
from models.program.interruption import check
from models.program.linear_program import Linear
from models.program.variables import Model
from models.rules.shape import exclusive_levels


@dataclass
class _Place:
    """In a domain: pieces that come, pods with GPUs that stay, and 1 if some do."""

    come: Linear = field(default_factory=Linear)
    stay: Linear = field(default_factory=Linear)
    stands: Linear = field(default_factory=Linear)


Places = dict[int, dict[int, _Place]]
"""By domain and gang, the first of those that share variables."""


def add(model: Model) -> None:
    for level in exclusive_levels(model.instance):
        alone = {g for g, gang in enumerate(model.instance.gangs) if gang.exclusive == level}
        for _, gangs in sorted(places(model, level).items()):
            check(model.program.interrupted)
            if not alone.isdisjoint(gangs):
                keep_apart(model, gangs, sorted(alone & gangs.keys()))


def places(model: Model, level: int) -> Places:
    """What may come to every domain of the level, and what may stay there."""
    of = model.instance.cluster.domain_of[level]
    found: Places = defaultdict(lambda: defaultdict(_Place))
    for owner in model.variables.placing:
        for piece in owner.pieces:
            found[of[piece.n]][owner.demand.gang].come.add(piece.variable)
    for gang, pods, chosen in _staying(model):
        for d, count in Counter(of[n] for n in pods).items():
            place = found[d][gang]
            place.stay.add_linear(chosen, count)
            if not place.stands.constant:
                place.stands.add_linear(chosen)
    return found


def _staying(model: Model) -> Iterator[tuple[int, list[int], Linear]]:
    """(gang, nodes of pods with GPUs, 1 if they stay there); pods that stay in any case first."""
    decided = set[int]()
    for choice, admits in model.decided:
        gang = model.instance.gangs[choice.gang]
        decided.add(choice.gang)
        yield choice.gang, _nodes(gang, choice.always), Linear(constant=1)
        always = set(choice.always)
        for option, admit in zip(choice.options, admits, strict=True):
            stays = [pod for pod in option.demand.stays if pod not in always]
            yield choice.gang, _nodes(gang, stays), Linear().add(admit)
    for index, decision in enumerate(model.state.base):
        if index not in decided:
            yield index, _nodes(model.instance.gangs[index], decision.pods), Linear(constant=1)


def _nodes(gang: Gang, pods: Sequence[ExistingPod | PodPlacement]) -> list[int]:
    return [pod.node for pod in pods if pod.node is not None and gang.roles[pod.role].gpus]


def keep_apart(model: Model, gangs: dict[int, _Place], alone: list[int]) -> None:
    """The rows of one domain. ``alone``: the gangs that are exclusive at its level and may be there."""
    program = model.program
    come, stay = Linear(), Linear()
    for place in gangs.values():
        come.add_linear(place.come)
        stay.add_linear(place.stay)
    coming = program.integer(0, program.bound_above(come))
    staying = program.integer(0, program.bound_above(stay))
    program.equal(come.add(coming, -1))
    program.equal(stay.add(staying, -1))
    for gang in alone:
        own = gangs[gang]
        others = Linear().add(coming).add_linear(own.come, -1)
        if own.stands.terms or own.stands.constant:
            most = program.upper[coming]
            program.at_most(Linear().add_linear(others).add_linear(own.stands, most), most)
        if own.come.terms:
            here = program.boolean()
            program.at_most(Linear().add_linear(own.come).add(here, -program.bound_above(own.come)))
            most = program.upper[coming] + program.upper[staying]
            others.add(staying).add_linear(own.stay, -1)
            program.at_most(others.add(here, most), most)
