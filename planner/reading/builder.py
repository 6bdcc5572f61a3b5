"""The one place where typed documents become the frozen Instance.

Promises: every dialect ends here; what clashes between documents is reported at its place; with a
fault anywhere nothing is built. Called by ``planner.reading``.
"""

from __future__ import annotations

from models.cluster import Node
from models.documents import PolicyDocument
from models.gang import Gang
from models.instance import Instance
from models.policy import Objective, Policy, SolveLimits
from models.quantities import shown
from planner.errors import Fault
from planner.reading.dialects import Documents
from planner.reading.gangs import GangReader, gang_complaints
from planner.reading.hardware import Find, Hardware
from planner.reading.mixing import default_mix
from planner.reading.nodes import merge
from planner.reading.rates import check_rates
from planner.reading.validating import Entry


def build(documents: Documents, find: Find) -> Instance:
    """The Instance of all documents. Raises InputError with everything that is wrong."""
    findings = documents.findings
    policy = _only_policy(documents.policies)
    if not documents.clusters:
        if "Cluster" not in documents.unusable:
            what = "no Cluster in the input"
            findings.fault(Fault(what, "add a document of kind Cluster"))
        _gangs_alone(documents)
        findings.raise_all()
    hardware = Hardware(find)
    merged = merge(documents.clusters, hardware)
    if "Cluster" in documents.unusable:
        merged.whole = merged.levels_known = False
    gangs = GangReader(merged).read(documents.gangs)
    if findings:
        findings.raise_all()
    document = policy.document if policy is not None else None
    instance = Instance(merged.cluster, gangs, _policy(document, gangs, merged.cluster.nodes))
    check_rates(instance, merged)
    if findings:
        findings.raise_all()
    return instance


def _gangs_alone(documents: Documents) -> None:
    """What can be said of gangs without a cluster."""
    for entry in documents.gangs:
        entry.complain(gang_complaints(entry))


def _only_policy(entries: list[Entry[PolicyDocument]]) -> Entry[PolicyDocument] | None:
    for entry in entries:
        entry.complain(entry.document.complaints())
    for entry in entries[1:]:
        what = f"a second Policy; the first is in {shown(entries[0].source.name)}"
        entry.fault((), what, "keep one, or choose it with --policy")
    return entries[0] if entries else None


def _policy(
    document: PolicyDocument | None, gangs: tuple[Gang, ...], nodes: tuple[Node, ...]
) -> Policy:
    """The policy with every default written out."""
    if document is None:
        return Policy(mix=default_mix(gangs, nodes))
    spec = document.spec
    objectives = Policy().objectives
    if spec.objectives is not None:
        objectives = tuple(Objective(one.name, one.tolerance) for one in spec.objectives)
    mix = default_mix(gangs, nodes) if spec.mix is None else tuple(sorted(spec.mix.items()))
    solve = spec.solve
    return Policy(
        name=document.metadata.name,
        objectives=objectives,
        mix=mix,
        min_bandwidth_share=spec.min_bandwidth_share,
        gpu_binding=spec.gpu_binding,
        node_selector=tuple(sorted(spec.node_selector.items())),
        solve=SolveLimits(solve.budget, solve.time_limit, solve.workers, solve.seed),
        kubernetes=spec.kubernetes.to_policy(),
    )
