"""Equal shares over the domains that a gang uses (contract 2.19).

For every option that places pods with GPUs, with p[D] all its pods with GPUs in domain D, those that stay
included, n their number, an integer s and booleans u:
    p[D] <= n u[D],   p[D] <= s + 1,   p[D] >= s - n (1 - u[D])
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from models.program.linear_program import Linear, Program
from models.program.rules.topology import Topology
from models.program.variables import GangVariables, Model
from models.rules.shape import may_be_uneven


def add(model: Model, gang: GangVariables, _topology: Topology) -> None:
    level, demand = gang.gang.balance, gang.demand
    if level is None or not may_be_uneven(gang.gang) or not demand.gpu_roles:
        return
    of = model.instance.cluster.domain_of[level]
    stays = (pod for pod in demand.stays if gang.gang.roles[pod.role].gpus)
    standing = Counter(of[pod.node] for pod in stays if pod.node is not None)
    pods = {d: Linear().add(gang.admit, count) for d, count in standing.items()}
    for n in gang.by_node:
        here = pods.setdefault(of[n], Linear())
        for role in demand.gpu_roles:
            here.add_linear(gang.pods(role, (n,)))
    count = sum(role.count for role in demand.gpu_roles) + standing.total()
    used = dict.fromkeys(standing, gang.admit)
    share_evenly(model.program, pods, count, used)


def share_evenly(
    program: Program, pods: Mapping[int, Linear], count: int, used: Mapping[int, int]
) -> None:
    """The rows. ``pods``: by domain; ``count``: all of them, at most; ``used``: u where it is known."""
    share = program.integer(0, count)
    for d, here in sorted(pods.items()):
        here_used = used[d] if d in used else program.boolean()
        most = min(count, program.bound_above(here))
        program.at_most(Linear().add_linear(here).add(here_used, -most))
        program.at_most(Linear().add_linear(here).add(share, -1), 1)
        program.at_least(Linear().add_linear(here).add(share, -1).add(here_used, -count), -count)
