"""Equal shares over the domains that a gang uses (contract 2.19).

For every option that places pods with GPUs, with p[D] all its pods with GPUs in domain D, those that stay
included, n their number, an integer s and booleans u:
    p[D] <= n u[D],   p[D] <= s + 1,   p[D] >= s - n (1 - u[D])
At the node level, where a region has several nodes: booleans w[s], sum of w = admit, and
    nodes with c of the pods <= nodes (w[c - 1] + w[c])
"""

from __future__ import annotations

from collections import Counter

from models.program.linear_program import Linear
from models.program.rules.topology import Topology
from models.program.variables import GangVariables, Model
from models.rules.shape import may_be_uneven


def add(model: Model, gang: GangVariables, topology: Topology) -> None:
    del topology
    level, demand = gang.gang.balance, gang.demand
    if level is None or not may_be_uneven(gang.gang) or not demand.gpu_roles:
        return
    of = model.instance.cluster.domain_of[level]
    standing = Counter(
        of[pod.node]
        for pod in demand.stays
        if pod.node is not None and gang.gang.roles[pod.role].gpus
    )
    if level < model.instance.cluster.node_level:
        _by_domain(model, gang, standing)
    else:
        _by_node(model, gang, standing)


def _by_domain(model: Model, gang: GangVariables, standing: Counter[int]) -> None:
    program, level = model.program, gang.gang.balance
    assert level is not None
    of = model.instance.cluster.domain_of[level]
    pods = {d: Linear().add(gang.admit, count) for d, count in standing.items()}
    for number in gang.gpu_regions:
        here = pods.setdefault(of[model.region_set.regions[number].nodes[0]], Linear())
        for position in range(len(gang.demand.gpu_roles)):
            here.add_linear(gang.gpu_pods(position, (number,)))
    count = sum(role.count for role in gang.demand.gpu_roles) + standing.total()
    share = program.integer(0, count)
    for d, here in sorted(pods.items()):
        used = gang.admit if d in standing else program.boolean()
        most = min(count, program.bound_above(here))
        program.at_most(Linear().add_linear(here).add(used, -most))
        program.at_most(Linear().add_linear(here).add(share, -1), 1)
        program.at_least(here.add(share, -1).add(used, -count), -count)


def _by_node(model: Model, gang: GangVariables, standing: Counter[int]) -> None:
    program, regions = model.program, model.region_set.regions
    of = model.instance.cluster.domain_of[-1]
    by_count: dict[int, dict[int, Linear]] = {}
    grown: dict[int, Linear] = {d: Linear() for d in standing}
    for piece in gang.pieces:
        d = of[regions[piece.region].nodes[0]]
        pods = sum(piece.pods) + standing[d]
        by_count.setdefault(pods, {}).setdefault(piece.region, Linear()).add(piece.variable)
        if d in standing:
            grown[d].add(piece.variable)
    counts = {*by_count, *standing.values()}
    window = {s: program.boolean() for c in sorted(counts) for s in (c - 1, c)}
    program.equal(Linear().add_all(window.values()).add(gang.admit, -1))
    for count, here in sorted(by_count.items()):
        allowed = Linear().add_all((window[count - 1], window[count]))
        for number, pieces in here.items():
            program.at_most(pieces.add_linear(allowed, -len(regions[number].nodes)))
    for d, pods in standing.items():
        # unless more pods come, those that stand there are a share
        allowed = Linear().add_all((window[pods - 1], window[pods]))
        program.at_least(allowed.add_linear(grown[d]).add(gang.admit, -1))
