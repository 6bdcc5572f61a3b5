"""Nodes kept free (contract 2.21), domain by domain: servers whose GPUs are all left >= those asked for."""

from __future__ import annotations

from models.program.free_servers import FreeServers
from models.program.variables import Model
from models.rules.shape import spare_nodes


def add(model: Model) -> None:
    free = FreeServers(model)
    for rule in spare_nodes(model.instance):
        model.program.at_least(free.whole(rule.nodes), rule.least)
