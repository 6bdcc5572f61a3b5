"""Slurm topology files (``topology.conf``, ``topology.yaml``) to levels and domains.

Promises: every file becomes a SlurmTopology or InputError with the place of each fault; bounded
memory. Called by ``planner.reading``.
"""

from __future__ import annotations

from planner.errors import Fault
from planner.reading.findings import Findings
from planner.reading.recognition import topology_form
from planner.reading.remarks import Remarks
from planner.reading.slurm.blocks import from_blocks
from planner.reading.slurm.clusters import cluster_tree, rated, under
from planner.reading.slurm.conf import Conf, read_conf
from planner.reading.slurm.documents import Chosen, read_documents
from planner.reading.slurm.forms import SlurmTopology
from planner.reading.slurm.trees import from_switches
from planner.reading.sources import Source, printable

__all__ = ["SlurmTopology", "cluster_tree", "rated", "read_topology", "under"]


def read_topology(source: Source) -> SlurmTopology:
    """The levels of a topology file. Raises InputError with everything that is wrong."""
    findings, remarks = Findings(), Remarks()
    called = f"Slurm topology {printable(source.name)}"
    if topology_form(source.text) == "yaml":
        chosen = read_documents(source, findings, remarks)
    else:
        chosen = _chosen(read_conf(source, findings), source, findings)
    if chosen is None:
        findings.raise_all()
    if chosen.layout == "tree":
        found = from_switches(chosen.switches, called, findings, remarks)
    elif chosen.layout == "block":
        found = from_blocks(chosen.blocks, chosen.sizes, called, findings, remarks)
    else:
        found = SlurmTopology(called, "flat", ())
    if findings:
        findings.raise_all()
    if found.kind != "flat" and not found.domains:
        findings.fault(Fault("no node in this topology file", _NO_NODES, source.name, 1, 1))
        findings.raise_all()
    return SlurmTopology(called, found.kind, found.levels, found.domains, tuple(remarks.all))


_NO_NODES = "write SwitchName=... Nodes=..., or BlockName=... Nodes=..."


def _chosen(conf: Conf, source: Source, findings: Findings) -> Chosen | None:
    """A ``topology.conf`` holds one topology: a tree or blocks."""
    if conf.switches and (conf.blocks or conf.sizes is not None):
        spot = conf.blocks[0].spot if conf.blocks else conf.sizes.spot if conf.sizes else None
        if spot is not None:
            what = "switches and blocks in one file"
            spot.fault(findings, what, "write topology.yaml for several topologies")
        return None
    if conf.switches:
        return Chosen("tree", switches=tuple(conf.switches))
    if conf.blocks:
        return Chosen("block", blocks=tuple(conf.blocks), sizes=conf.sizes)
    if not findings:
        findings.fault(Fault("no switch or block in this file", _NO_NODES, source.name, 1, 1))
    return None
