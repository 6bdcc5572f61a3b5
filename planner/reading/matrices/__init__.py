"""What ``nvidia-smi topo -m`` and ``rocm-smi --showtopo`` print, as neutral topologies and models.

Promises: text in, ``Topology`` or ``InputError`` with file, line and column out; no subprocess, no
solver, time bounded whatever the text holds. Called by the verb ``topo``.
"""

from planner.reading.matrices.finding import holds_topologies, read_topologies
from planner.reading.matrices.modelling import Choice, Possible, Reading, read_model
from planner.reading.matrices.possible import possibilities
from planner.reading.matrices.topology import NicPaths, Topology

__all__ = [
    "Choice",
    "NicPaths",
    "Possible",
    "Reading",
    "Topology",
    "holds_topologies",
    "possibilities",
    "read_model",
    "read_topologies",
]
