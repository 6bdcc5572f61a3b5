"""minBandwidthShare of gangs that take one piece on one node (contract 2.10).

A piece of set type t on server model m exists only if inside(t) >= minBandwidthShare x ideal(m).
"""

from __future__ import annotations

from models.bandwidth import UnknownRate
from models.instance import Instance
from models.placement.program import Program
from models.placement.regions import Pools
from models.placement.variables import Variables
from models.pricing import ideal_MBps


def add(program: Program, instance: Instance, pools: Pools, variables: Variables) -> None:
    for group in variables.groups:
        least = instance.min_share(group.gangs[0])
        gpus = group.demands[0].total_gpus
        if not least or gpus < 2:
            continue
        for piece in group.pieces:
            model = pools.regions[piece.region].model.model
            assert model is not None
            try:
                enough = (piece.kind.inside or 0) >= least * ideal_MBps((model,), gpus)
            except UnknownRate:
                enough = True  # what is not known does not bind
            if not enough:
                program.fix(piece.variable, 0)
