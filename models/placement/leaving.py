"""Tiers of what is left free: stranded GPUs, and whole nodes and domains, as linear expressions.

Promises: exact on every region whose packing is; domains that may be left whole get a variable each.
Called by ``tiers``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from models.instance import Instance
from models.leftover import gpu_models, request_domains
from models.occupancy import Room
from models.placement.flows import RegionFlow
from models.placement.program import Linear, Program
from models.placement.regions import Pools, Region


@dataclass(frozen=True)
class Rests:
    """What the flows leave on the servers of every region; the other nodes are left as they are."""

    pools: Pools
    rooms: Sequence[Room]
    flows: Sequence[RegionFlow]

    @cached_property
    def region_of(self) -> dict[int, Region]:
        return {n: region for region in self.pools.regions for n in region.nodes}

    def whole(self, members: Sequence[int], largest: int) -> Linear:
        """How many of these nodes are left with so many free GPUs, in full regions."""
        total = Linear()
        seen: set[int] = set()
        for n in members:
            region = self.region_of.get(n)
            if region is None:
                total.constant += int(self.rooms[n].free_gpus == largest)
            elif region.number not in seen:
                seen.add(region.number)
                for state, rest in self.flows[region.number].rests.items():
                    if region.packing.size(state) == largest:
                        total.add(rest)
        return total


def unusable(program: Program, instance: Instance, left: Rests) -> Linear:
    """sum over nodes of what no size of the mix can use, less what whole nodes give larger sizes."""
    mix = instance.policy.mix
    total = Linear()
    for nodes in gpu_models(instance).values():
        own = set(nodes)
        largest = max(instance.cluster.nodes[n].gpus for n in nodes)
        small = [(size, permille) for size, permille in mix if size <= largest]
        unused = [
            sum(permille for _, permille in mix) * free
            - sum(permille * size * (free // size) for size, permille in small)
            for free in range(largest + 1)
        ]
        total.constant += sum(
            unused[left.rooms[n].free_gpus] for n in nodes if n not in left.region_of
        )
        for region in left.pools.regions:
            if region.nodes[0] in own:
                for state, rest in left.flows[region.number].rests.items():
                    total.add(rest, unused[region.packing.size(state)])
        for size, permille in mix:
            if size > largest:
                _larger(program, instance, left, total, nodes, largest, size, permille)
    return total


def _larger(
    program: Program,
    instance: Instance,
    left: Rests,
    total: Linear,
    nodes: Sequence[int],
    largest: int,
    size: int,
    permille: int,
) -> None:
    """Requests of several whole nodes: per domain, servers x placeable <= nodes left whole."""
    servers = -(-size // largest)
    for members in request_domains(instance, nodes, size):
        whole = left.whole(members, largest)
        most = program.bound_above(whole) // servers
        if most > 0:
            count = program.integer(0, most)
            program.at_least(whole.add(count, -servers))
            total.add(count, -permille * size)


def defragmented(program: Program, instance: Instance, left: Rests) -> Linear:
    """GPUs of nodes left whole, and again of innermost domains of which every GPU node is left whole."""
    total = Linear()
    largest: dict[int, int] = {}
    for nodes in gpu_models(instance).values():
        most = max(instance.cluster.nodes[n].gpus for n in nodes)
        largest.update(dict.fromkeys(nodes, most))
        total.add_linear(left.whole(nodes, most), most)
    cluster = instance.cluster
    members: dict[int, list[int]] = {}
    if cluster.levels:
        of = cluster.domain_of[len(cluster.levels) - 1]
        for n in sorted(largest):
            members.setdefault(of[n], []).append(n)
    for domain in sorted(members):
        own = members[domain]
        if len(own) < 2:  # a node by itself was counted
            continue
        whole = program.boolean()
        for most in sorted({largest[n] for n in own}):
            same = [n for n in own if largest[n] == most]
            program.at_least(left.whole(same, most).add(whole, -len(same)))
        total.add(whole, sum(largest[n] for n in own))
    return total
