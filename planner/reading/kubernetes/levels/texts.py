"""What is said of levels that were found: a sentence, and a Policy that fixes them.

Promises: the Policy, read again, gives the same levels and domains, or says why it cannot.
Called by ``levels``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import yaml

from models.cluster import Level
from models.documents.base import API_VERSION, MAX_FIELDS
from models.quantities import host_ranges, number
from planner.reading.kubernetes.levels.columns import Chain, is_name
from planner.reading.sources import printable


def found_text(source: str, chain: Chain) -> str:
    """One sentence: ``levels from Kueue Topology gke: block (3 domains), subblock (9)``."""
    if not chain.columns:
        if source == "the Policy":
            return "no levels: the Policy says so"
        if source == "node labels":
            return "no levels: no topology label that is known divides the nodes"
        return f"no levels above the nodes in {printable(source)}"
    parts = []
    for i, column in enumerate(chain.columns):
        inside = {
            number
            for node, number in zip(chain.nodes, chain.divisions[i], strict=True)
            if all(node.name in one.values for one in chain.columns[: i + 1])
        }
        count = f"{len(inside)}"
        if i == 0:
            count += " domain" if len(inside) == 1 else " domains"
        facts = [count, *(["NVLink"] if column.nvlink else []), *filter(None, [column.origin])]
        parts.append(f"{column.name} ({', '.join(facts)})")
    return printable(f"levels from {source}: {', '.join(parts)}")


def policy_text(
    levels: Sequence[Level], domains: Mapping[str, Sequence[str | None]], found: str
) -> str:
    """A Policy document in YAML that states the levels: by their label, else by their nodes.

    ``domains``: by node, its domain at every level. A level of more domains than a Policy can hold
    is said to be one, and then all are left to be found again.
    """
    spread = [_nodes(domains, i) if level.label is None else None for i, level in enumerate(levels)]
    lines = [f"# {found}", f"apiVersion: {API_VERSION}", "kind: Policy"]
    lines += ["metadata: {name: levels-as-found}", "spec:"]
    if any(one is not None and len(one) > MAX_FIELDS for one in spread):
        lines += [
            f"  # A level without a label has more than {MAX_FIELDS:,} domains, too many to be written.",
            "  # Without `levels` here, all of them are found again from the same objects.",
            "  kubernetes: {}",
        ]
    elif levels:
        lines += ["  kubernetes:", "    levels:"]
        for level, nodes in zip(levels, spread, strict=True):
            first, *rest = _entry(level, nodes)
            lines += [f"    - {first}", *(f"      {line}" for line in rest)]
    else:
        lines.append("  kubernetes: {levels: []}")
    return "\n".join(lines) + "\n"


def _nodes(domains: Mapping[str, Sequence[str | None]], level: int) -> dict[str, list[str]]:
    """The nodes of every domain of a level, as host ranges."""
    members: dict[str, list[str]] = {}
    for node, own in domains.items():
        domain = own[level]
        if domain is not None and is_name(node):
            members.setdefault(domain, []).append(node)
    return {domain: list(host_ranges(members[domain])) for domain in sorted(members)}


def _entry(level: Level, nodes: dict[str, list[str]] | None) -> list[str]:
    """Lines of one level: a single one, unless its nodes are written out."""
    fields: dict[str, object] = {"name": level.name}
    if level.label is not None:
        fields["label"] = level.label
    if level.oversubscription != 1:
        fields["oversubscription"] = number(level.oversubscription)
    if level.nvlink:
        fields["nvlink"] = True
    if nodes is None:
        flow = yaml.safe_dump(fields, default_flow_style=True, sort_keys=False, width=1000)
        return [flow.strip()]
    fields["domains"] = nodes
    # None: brackets for the innermost lists only
    return yaml.safe_dump(fields, default_flow_style=None, sort_keys=False, width=110).splitlines()
