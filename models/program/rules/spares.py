"""Nodes kept free (contract 2.21), domain by domain: servers whose GPUs are all left >= those asked for."""

from __future__ import annotations

from models.program.free_servers import FreeServers
from models.program.linear_program import Linear
from models.program.variables import Model
from models.rules.shape import spare_nodes


def add(model: Model) -> None:
    nodes = model.instance.cluster.nodes
    free = FreeServers(model)
    for rule in spare_nodes(model.instance):
        idle = Linear()
        for gpus in sorted({nodes[n].gpus for n in rule.nodes}):
            idle.add_linear(free.whole([n for n in rule.nodes if nodes[n].gpus == gpus], gpus))
        model.program.at_least(idle, rule.least)
