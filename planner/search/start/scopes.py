"""Where a gang is tried: the narrowest domains first, of these the tightest, then all nodes.

Counts of pods leave out the domains that cannot hold it; what is left out holds in no placement.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice

import numpy as np

from models.instance.gang import Gang
from models.instance.instance import Instance
from models.rules.demands import Demand, RoleDemand
from models.rules.registry import node_sets
from models.rules.services import open_service
from models.values.leftover import gpu_shares
from planner.search.free_arrays import (
    BoolArray,
    Capacity,
    IntArray,
    Key,
    Kind,
    as_array,
    by,
    sums,
    tightest,
)
from planner.search.free_space import FreeSpace
from planner.search.start.node_choice import idle_around
from planner.search.start.pod_limits import Limits, whole_within
from planner.search.start.trial import batches, pods_of

DOMAINS_BY_SPEED = 16
"""Domains of a level that are tried for a gang with a minBandwidthShare."""


@dataclass(frozen=True, slots=True)
class Scope:
    """Nodes and a GPU model to try the demand on; None lets roles mix models or leaves no choice."""

    demand: Demand
    nodes: IntArray
    model: str | None


def scopes(space: FreeSpace, demand: Demand, limits: Limits) -> Iterator[Scope]:
    """Scopes that may hold the gang, the best first."""
    gang = space.instance.gangs[demand.gang]
    tries = [_Try(space, one, model) for one, model in _variants(space, demand)]
    tries = [one for one in tries if one.fits_everywhere()]
    if not tries:
        return
    speeds = space.instance.once(_speeds) if gang.counts_speed else {}
    alike: dict[int, list[_Try]] = {}
    for one in tries:
        alike.setdefault(speeds.get(one.model, 0), []).append(one)
    for speed in sorted(alike, reverse=True):
        yield from _scopes(space, demand, alike[speed], limits)


def _speeds(instance: Instance) -> dict[str | None, int]:
    """Relative speed of every GPU model, if the objectives count it: the fastest are tried first."""
    found: dict[str | None, int] = {}
    for model in instance.relative_speeds.models if instance.by_speed else ():
        speed = instance.relative_speeds.of((model,))
        found[model.gpu] = max(speed, found.get(model.gpu, 0))
    return found


def _scopes(space: FreeSpace, demand: Demand, tries: list[_Try], limits: Limits) -> Iterator[Scope]:
    gang, tree = space.instance.gangs[demand.gang], space.arrays.tree
    widest = 0 if gang.required is None else gang.required
    # a gang that is too slow in one domain most likely is in others of the level
    most = DOMAINS_BY_SPEED if space.instance.min_share(gang) else None
    for level in range(tree.levels, widest - 1, -1):
        if limits and not whole_within(demand, limits, level):
            continue
        found = _around(tries, level) if demand.standing_nodes else _domains(tries, level)
        yield from islice(found, most)
    if gang.required is None or demand.standing_nodes:
        for one in tries:
            yield Scope(one.demand, tree.every, one.model)


def gpu_models(space: FreeSpace, demand: Demand) -> list[str | None]:
    """GPU models to try one at a time; None lets roles mix them."""
    chosen = space.service_models(demand.gang)
    found = {model for role in demand.roles for model in space.gpu_models(demand.gang, role)}
    return [*sorted(chosen or found)] or [None]


def _variants(space: FreeSpace, demand: Demand) -> Iterator[tuple[Demand, str | None]]:
    """The demand on each node set that the rules tell apart, with each GPU model."""
    everywhere, gang = space.arrays.tree.everywhere, space.instance.gangs[demand.gang]
    for nodes in node_sets(space.instance, gang, everywhere):
        one = demand if nodes is everywhere else demand.within(nodes)
        for model in gpu_models(space, one):
            own = one
            if model is not None and open_service(space.instance, gang) is not None:
                # all roles are on the model that its service has, or then has
                own = one.on_gpus(space.instance.nodes_of_model(one.nodes, model))
            yield own, model


class _Try:
    """A demand with one GPU model, and where its roles fit, the role with the largest pods first."""

    def __init__(self, space: FreeSpace, demand: Demand, model: str | None) -> None:
        self.space = space
        self.demand = demand
        self.model = model
        self.gang: Gang = space.instance.gangs[demand.gang]
        found = batches(self.gang.roles, demand)
        self._rooms = [(batch, space.capacity(demand.gang, batch[0], model)) for batch in found]

    def fits_everywhere(self) -> bool:
        return all(
            table.total >= pods_of(batch) and bool(self._inner(batch[0], table, -1).all())
            for batch, table in self._rooms
        )

    def fitting(self, level: int) -> IntArray:
        """The domains of a level that may hold the gang; at the node level the nodes."""
        found = [
            (table.at(level) >= pods_of(batch)) & self._inner(batch[0], table, level)
            for batch, table in self._rooms
        ]
        return np.flatnonzero(np.logical_and.reduce([*found, *self._together(level)]))

    def fits_among(self, level: int, nodes: Sequence[int]) -> bool:
        """Whether the domains of some nodes may hold the gang together."""
        domains = np.unique(self.space.arrays.tree.domain_of[level][list(nodes)])
        return all(int(t.at(level)[domains].sum()) >= pods_of(b) for b, t in self._rooms)

    def keys(self, level: int) -> list[Key]:
        """What domains are compared by: what they hold, then what is around them."""
        arrays = self.space.arrays
        of = arrays.tree.domain_of
        planned = of[level][[pod.node for pod in self.gang.planned]]
        unplanned: list[Key] = [lambda d: (~np.isin(d, planned)).astype(np.int64)]
        if level == arrays.tree.levels:
            around = [partial(idle_around, arrays, wider) for wider in reversed(range(level))]
            spoiled = [by(self._spoiled())] if gpu_shares(self.space.instance) else []
            return [*spoiled, by(arrays.tightness), *unplanned[: len(planned)], *around]
        room = self._rooms[0][1].at(level)
        return [by(arrays.idle(level)), by(room), *unplanned[: len(planned)]]

    def _spoiled(self) -> IntArray:
        """Usable GPUs that each node loses to the whole gang, beyond those that it holds."""
        arrays, requests = self.space.arrays, Counter[str]()
        for role in self.demand.roles:
            requests.update({name: amount * role.count for name, amount in role.requests})
        before, after = arrays.free.copy(), np.maximum(arrays.free - self.demand.gpus, 0)
        for name, share in gpu_shares(self.space.instance).items():
            if name in arrays.left:
                left = np.maximum(arrays.left[name], 0)
                before = np.minimum(before, left // share)
                after = np.minimum(after, np.maximum(left - requests[name], 0) // share)
        lost: IntArray = before - after
        return lost

    def _inner(self, role: RoleDemand, table: Capacity, level: int) -> BoolArray:
        """Domains of a level in which the role's own domain and its slices may fit."""
        tree, spec = self.space.arrays.tree, self.gang.roles[role.role]
        found = np.full(len(table.at(level)), fill_value=True)
        if spec.required is not None and spec.required > level:
            holds = (table.at(spec.required) >= role.count).astype(np.int64)
            found &= sums(tree.parents(spec.required, level), holds, len(found)) > 0
        for size, narrower in () if role.layers else spec.slice_layers:
            if narrower > level:
                whole = table.at(narrower) // size
                within = sums(tree.parents(narrower, level), whole, len(found))
                found &= within >= role.cut(size).whole
        return found

    def _together(self, level: int) -> Iterator[BoolArray]:
        """Domains in which the GPUs suffice for all pods of each size or larger."""
        roles = self.demand.gpu_roles
        for gpus in {role.gpus for role in roles} if len(roles) > 1 else ():
            kind: Kind = (gpus, (), None, None)
            pods = sum(role.count for role in roles if role.gpus >= gpus)
            yield self.space.arrays.capacity(kind).at(level) >= pods


def _domains(tries: Sequence[_Try], level: int) -> Iterator[Scope]:
    """The domains of a level that may hold the gang, the tightest first."""
    left = [one.fitting(level) for one in tries]
    keys = [one.keys(level) for one in tries]
    while any(len(domains) for domains in left):
        found = [(at, tightest(own, keys[at])) for at, own in enumerate(left) if len(own)]
        at, domain = (
            min(found, key=lambda f: [int(key(as_array((f[1],)))[0]) for key in keys[f[0]]])
            if len(found) > 1
            else found[0]
        )
        one = tries[at]
        yield Scope(one.demand, one.space.arrays.tree.nodes(level, domain), one.model)
        left[at] = left[at][left[at] != domain]


def _around(tries: Sequence[_Try], level: int) -> Iterator[Scope]:
    """The domains of a level in which pods of the gang run."""
    for one in tries:
        tree, standing = one.space.arrays.tree, one.demand.standing_nodes
        if one.fits_among(level, standing):
            domains = np.unique(tree.domain_of[level][list(standing)]).tolist()
            nodes = np.concatenate([tree.nodes(level, domain) for domain in domains])
            yield Scope(one.demand, np.sort(nodes), one.model)
