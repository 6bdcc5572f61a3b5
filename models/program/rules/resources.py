"""cpu, memory, pods and any other resource of a node (contract 2.2, 2.6).

For every server and limited resource: requests of pods placed <= what is left next to pods
that stay. Where pods that may stay can overfill the node: placed + staying <= left + M (1 - y), placed <= M
y, where y is 1 if anything is placed. Instances that GPUs of the
node could have are not left: what partitions supply is taken off, also for pods whose place is given. What
pods have of GPUs in parts is gone where these do not stay so. Of shared GPUs: parts on each, memory, cores
and pods <= what it has, 0 unless it is opened; opened == pieces; they are opened in order; of parts that
take more than half of one thing at most one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import cast

from models.gpu_shares import Size, times_in
from models.instance.occupancy import PODS
from models.instance.reshaping import GpuRoom, Partitioning, Reshaping, reshaping
from models.program.linear_program import CHECK_EVERY, Linear, Program, check
from models.program.servers import Server
from models.program.variables import Model, SharedGpus, Variables


def add(model: Model) -> None:
    program, variables, rooms = model.program, model.variables, model.state.rooms
    rows: dict[tuple[int, str], Linear] = {
        (n, resource): Linear() for n in model.servers for resource, _ in rooms[n].left
    }
    resources = sorted({resource for _, resource in rows})

    for count, (_, n, variable, roles) in enumerate(variables.placed):
        if not count % CHECK_EVERY:
            check(program.interrupted)
        for resource in resources:
            if (n, resource) in rows:
                for role, pods in roles:
                    amount = dict(role.requests).get(resource, int(resource == PODS))
                    rows[n, resource].add(variable, amount * pods)
    keep_shared(model)
    supplies = _supplies(model, rows)
    for (n, resource), placed in rows.items():
        left = rooms[n].left_of(resource)
        assert left is not None
        stays, most = _staying(variables, model.servers[n], resource)
        used = Linear().add_linear(placed).add_linear(stays)
        model.loads[n, resource] = Linear().add_linear(used)
        could = dict(model.instance.cluster.nodes[n].reshapable).get(resource)
        if could is not None:
            used.add_linear(supplies.get((n, resource), Linear()), -1)
            program.at_most(used, left - could)
        elif most <= left:
            program.at_most(used, left)
        elif not stays.terms:
            program.at_most(placed, max(0, left))
        else:
            anything = program.boolean()
            program.at_most(used.add(anything, most - left), most)
            program.at_most(Linear().add_linear(placed).add(anything, -max(0, left)))


def _supplies(
    model: Model, rows: Mapping[tuple[int, str], Linear]
) -> dict[tuple[int, str], Linear]:
    """By node and resource, what the GPUs that are partitioned or shared have. ``rows``: what is placed."""
    found: dict[tuple[int, str], Linear] = {}
    _beside(model, found)
    for owner in model.variables.partitions:
        if isinstance(owner, SharedGpus):
            found.update(_shared(model, owner, rows))
            continue
        for piece in owner.pieces:
            for resource, count in owner.supply:
                found.setdefault((piece.n, resource), Linear()).add(piece.variable, count)
    return found


def _beside(model: Model, found: dict[tuple[int, str], Linear]) -> None:
    """New instances beside those in use: each such GPU has at most one of the sets that fit."""
    for n, one in reshaping(model.instance).items():
        if n not in model.servers or not isinstance(one, Partitioning):
            continue
        for (room, stays), gpus in Counter(_in_parts(model, n, one, found)).items():
            total = Linear()
            for counts in one.fillings(room):
                variable = model.program.integer(0, gpus)
                total.add(variable)
                for resource, count in zip(one.resources, counts, strict=True):
                    found.setdefault((n, resource), Linear()).add(variable, count)
            if stays is None:
                model.program.at_most(total, gpus)
            else:
                model.program.at_most(total.add(stays, -gpus), 0)


def _in_parts(
    model: Model, n: int, one: Reshaping, found: dict[tuple[int, str], Linear]
) -> Iterator[tuple[GpuRoom, int | None]]:
    """What is left of each GPU of which pods have parts, and whether it stays so; None: in any case.

    Where it does not, what they have is gone.
    """
    node, keeping = model.instance.cluster.nodes[n], model.state.keeping
    pairs = zip(keeping, model.variables.keeping, strict=True)
    stay = {one.gpu: variable for one, variable in pairs if one.node == n}
    released = node.releasable & ~model.state.rooms[n].kept
    for gpu, room, held in zip(node.shared, one.rooms, one.held, strict=True):
        stays = None
        if gpu.gpu is not None and released >> gpu.gpu & 1:
            stays = stay.get(1 << gpu.gpu)
            for resource, count in zip(one.resources, held, strict=True):
                own = found.setdefault((n, resource), Linear())
                own.constant -= count
                if stays is not None:
                    own.add(stays, count)
            if stays is None:
                continue
        yield room, stays


def _shared(
    model: Model, owner: SharedGpus, rows: Mapping[tuple[int, str], Linear]
) -> dict[tuple[int, str], Linear]:
    """Of each part that is asked for how many there are on all GPUs of the node."""
    program, sharing, n = model.program, owner.sharing, owner.n
    left, could = dict(model.state.rooms[n].left), dict(model.instance.cluster.nodes[n].reshapable)
    sizes = {
        resource: size
        for resource, size in zip(sharing.resources, sharing.sizes, strict=True)
        if rows[n, resource].terms or left[resource] < could[resource]
    }
    found = {(n, resource): Linear() for resource in sizes}
    opened = [program.boolean() for _ in range(owner.most if sizes else 0)]
    gpus: list[tuple[Size, int | None]] = [(sharing.empty, one) for one in opened]
    gpus += [(cast(Size, room), stays) for room, stays in _in_parts(model, n, sharing, found)]
    parts: dict[str, list[int]] = {}
    for room, opens in gpus:
        is_open = Linear(constant=1) if opens is None else Linear({opens: 1})
        for resource, count in _fill(program, sizes, room, is_open):
            found[n, resource].add(count)
            parts.setdefault(resource, []).append(count)
    _apart(model, owner, rows, parts)
    for one, after in pairwise(opened):
        program.at_least(Linear().add(one).add(after, -1))
    pieces = (piece.variable for piece in owner.pieces)
    program.equal(Linear().add_all(opened).add_all(pieces, -1))
    return found


def _apart(
    model: Model,
    owner: SharedGpus,
    rows: Mapping[tuple[int, str], Linear],
    parts: Mapping[str, Sequence[int]],
) -> None:
    """A GPU has at most one new part for each pod that has several.

    Pods in the place of such that leave do not count. ``parts``: by resource, how many new ones each GPU has.
    """
    program, n = model.program, owner.n
    for resource, each in zip(owner.sharing.resources, owner.sharing.each, strict=True):
        counts = parts.get(resource, ()) if each > 1 else ()
        if not counts:
            continue
        could = dict(model.instance.cluster.nodes[n].reshapable)[resource]
        there = (model.state.rooms[n].left_of(resource) or 0) - could
        stays, _ = _staying(model.variables, model.servers[n], resource)
        most = max(program.upper[count] for count in counts)
        pods = program.integer(0, most)
        for count in counts:
            program.at_most(Linear().add(count).add(pods, -1))
        needed = Linear().add(pods, each)
        needed.add_linear(rows[n, resource], -1).add_linear(stays, -1)
        if there > 0:
            none = program.boolean()
            needed.add(none, -there)
            program.at_most(Linear().add(pods).add(none, most), most)
        program.at_most(needed, -there)


def keep_shared(model: Model) -> None:
    """A GPU stays shared exactly if some pod of the roles that share it is on its node."""
    for one, variable in zip(model.state.keeping, model.variables.keeping, strict=True):
        anyone = Linear()
        for choice, admits in model.decided:
            stays = Linear()
            for option, admit in zip(choice.options, admits, strict=True):
                roles = {(choice.gang, p.role) for p in option.demand.stays if p.node == one.node}
                if not one.roles.isdisjoint(roles):
                    stays.add(admit)
            if stays.terms:
                anyone.add_linear(stays)
                model.program.at_most(stays.add(variable, -1))
        for gang in model.variables.gangs:
            for role in gang.demand.cpu_only_roles:
                pods = gang.cpu_only_counts.get((role.role, one.node))
                if pods is not None and (gang.demand.gang, role.role) in one.roles:
                    anyone.add(pods)
                    model.program.at_most(Linear().add(pods).add(variable, -role.count))
        model.program.at_most(Linear().add(variable).add_linear(anyone, -1))


def _fill(
    program: Program, sizes: Mapping[str, Size], room: Size, is_open: Linear
) -> Iterator[tuple[str, int]]:
    """How many parts of each size one GPU has. ``is_open``: whether it is shared."""
    held, large = [Linear() for _ in room], [Linear() for _ in room]
    for resource, size in sizes.items():
        most = times_in(size, room)
        if not most:
            continue
        count = program.integer(0, most)
        yield resource, count
        for row, halves, amount, whole in zip(held, large, size, room, strict=True):
            row.add(count, amount)
            halves.add(count, int(2 * amount > whole))
        if is_open.terms and most > 1:
            program.at_most(Linear().add(count).add_linear(is_open, -most))
    for row, whole in zip([*held, *large], [*room, 1, 1, 1], strict=True):
        program.at_most(row.add_linear(is_open, -whole))


def _staying(variables: Variables, server: Server, resource: str) -> tuple[Linear, int]:
    """What pods that may stay use of a resource, and the most that is."""
    total, most = Linear(), 0
    for number, options in server.usages.items():
        if number >= len(variables.admits):
            continue  # a GPU that stays shared
        uses = [dict(left.use).get(resource, 0) for left in options]
        most += max(uses)
        for position, use in enumerate(uses):
            total.add(variables.admits[number][position], use)
    return total, most
