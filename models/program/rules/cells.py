"""The cells of queues stay reachable (contract 2.17): claims are variables.

For each GPU model, with x[k, D] cells of kind k in domain D (a boolean; for ``gpus`` a number a node), and on
each node claimed(q) the GPUs that cells of queue q claim, firm(q) those of its pods,
placed or staying: needed(q) >= claimed(q), needed(q) >= firm(q) + sum of needed over the queues right below
q. Sum of needed over the queues without a parent + firm pods of no queue <= healthy GPUs; where more may be
held, only with a claim x. What is pinned is in claimed(q) in any case, and is no x. Sum of x[k] <= count of
k; sum of weight x >= all weights - what was lost before the plan.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from models.program.linear_program import Linear
from models.program.variables import Model
from models.queues.cells import ModelCells, allowed_losses, cells_by_model


@dataclass
class _Place:
    """A node, by its column. ``firm``: by row, -1 for none. ``most``: GPUs held there."""

    column: int
    firm: dict[int, Linear]
    most: int
    claimed: dict[int, Linear] = field(default_factory=dict)
    claims: list[tuple[int, int]] = field(default_factory=list)

    def claim(self, row: int, variable: int, gpus: int, count: int = 1) -> None:
        """Cells of a row claim GPUs here, at most ``count`` of them."""
        self.claimed.setdefault(row, Linear()).add(variable, gpus)
        self.claims.append((variable, count))


def add(model: Model) -> None:
    instance = model.instance
    for cells, lost in zip(cells_by_model(instance), allowed_losses(instance), strict=True):
        places = _places(model, cells)
        kept, full = Linear(), 0
        for number, kind in enumerate(cells.kinds):
            found = _claims(model, cells, number, places)
            model.program.at_most(Linear().add_all(found), kind.count)
            kept.add_all(found, kind.weight)
            full += kind.count * kind.weight
        model.program.at_least(kept, full - lost)
        for place in places:
            if place.claims:
                _enough(model, cells, place)


def _places(model: Model, cells: ModelCells) -> list[_Place]:
    """Every selected node of the GPU model, with what firm pods hold there, and what is pinned."""
    fixed, found = _fixed(model, cells), []
    for n, column in cells.column_of.items():
        held, installed = fixed.get(column, {}), int(cells.installed[column])
        firm = {row: Linear(constant=gpus) for row, gpus in held.items()}
        place, stays = _Place(column, firm, installed), sum(held.values())
        if n in model.servers:
            stays += _may_stay(model, cells, place, n)
        if stays > installed:
            place.most += stays
        pinned = cells.pinned[:, column]
        for row in pinned.nonzero()[0].tolist():
            place.claimed[row] = Linear(constant=int(pinned[row]))
        place.most += int(pinned.sum())
        found.append(place)
    by_column = {place.column: place for place in found}
    for owner, n, variable, roles in model.variables.placed:
        gpus = sum(role.gpus * pods for role, pods in roles)
        if gpus and owner.gang.firm_on_gpus and n in cells.column_of:
            firm = by_column[cells.column_of[n]].firm
            firm.setdefault(cells.row(owner.gang), Linear()).add(variable, gpus)
    return found


def _may_stay(model: Model, cells: ModelCells, place: _Place, n: int) -> int:
    """The most GPUs of pods that may stay on the node; those of firm pods are added to ``firm``."""
    most = 0
    for number, options in model.servers[n].usages.items():
        if number >= len(model.state.choices):
            continue  # a shared GPU is in no queue
        gang = model.instance.gangs[model.state.choices[number].gang]
        gpus = [left.known.bit_count() + left.blind for left in options]
        most += max(gpus)
        for admit, count in zip(model.variables.admits[number], gpus, strict=True):
            if gang.firm_on_gpus:
                place.firm.setdefault(cells.row(gang), Linear()).add(admit, count)
    return most


def _fixed(model: Model, cells: ModelCells) -> dict[int, dict[int, int]]:
    """GPUs of firm pods that stay in any case, by column and row."""
    instance = model.instance
    pods = [(i, pod.role, pod.node) for i, one in enumerate(model.state.base) for pod in one.pods]
    choices = model.state.choices
    always = ((choice.gang, pod) for choice in choices for pod in choice.always)
    pods += [(gang, pod.role, pod.node) for gang, pod in always if pod.node is not None]
    found: dict[int, dict[int, int]] = {}
    for index, role, n in pods:
        gang, column = instance.gangs[index], cells.column_of.get(n)
        if column is not None and gang.firm_on_gpus and gang.roles[role].gpus:
            own, row = found.setdefault(column, {}), cells.row(gang)
            own[row] = own.get(row, 0) + gang.roles[role].gpus
    return found


def _claims(model: Model, cells: ModelCells, number: int, places: Sequence[_Place]) -> list[int]:
    """The variables of one kind of cells: how many claim what."""
    kind, program, found = cells.kinds[number], model.program, list[int]()
    if kind.level is not None and kind.level < model.instance.cluster.node_level:
        domains: dict[int, list[_Place]] = {}
        for place in places:
            domains.setdefault(int(cells.domain_of[kind.level][place.column]), []).append(place)
        for domain, own in sorted(domains.items()):
            if domain >= 0 and all(_whole(cells, place) for place in own):
                found.append(program.boolean())
                for place in own:
                    place.claim(kind.row, found[-1], int(cells.installed[place.column]))
        return found
    for place in places:
        if kind.level is not None:
            gpus, room = int(cells.installed[place.column]), int(_whole(cells, place))
        else:
            gpus, room = kind.gpus, int(cells.usable[place.column]) // kind.gpus
        if most := min(room, kind.count):
            found.append(program.integer(0, most))
            place.claim(kind.row, found[-1], gpus, most)
    return found


def _whole(cells: ModelCells, place: _Place) -> bool:
    """Whether all GPUs of its node may be used."""
    return bool(cells.usable[place.column] == cells.installed[place.column])


def _enough(model: Model, cells: ModelCells, place: _Place) -> None:
    """What queues need on the nodes of a place is there."""
    program, healthy = model.program, int(cells.usable[place.column])
    rows = range(-1, len(cells.names))
    total, *inner = (Linear().add_linear(place.firm.get(row, Linear())) for row in rows)
    for row in reversed(range(len(cells.names))):
        needed, claimed = inner[row], place.claimed.get(row)
        if claimed is not None and (needed.terms or needed.constant):
            larger = Linear().add(program.integer(0, 2 * place.most))
            program.at_least(Linear().add_linear(larger).add_linear(claimed, -1))
            program.at_least(Linear().add_linear(larger).add_linear(needed, -1))
            needed = larger
        elif claimed is not None:
            needed = claimed
        above = cells.parents[row]
        (total if above < 0 else inner[above]).add_linear(needed)
    if place.most <= healthy:
        program.at_most(total, healthy)
        return
    anything = program.boolean()
    program.at_most(total.add(anything, place.most - healthy), place.most)
    for variable, count in place.claims:
        program.at_most(Linear().add(variable).add(anything, -count))
