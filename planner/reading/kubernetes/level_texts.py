"""What is said of levels that were found: a sentence, and a Policy that fixes them.

Promises: the Policy, read again, gives the same levels, or says why it cannot.
Called by ``levels``.
"""

from __future__ import annotations

from collections.abc import Sequence

import yaml

from models.cluster import Level
from models.documents.base import API_VERSION
from models.quantities import number
from planner.reading.kubernetes.columns import Chain
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


def policy_text(levels: Sequence[Level], found: str) -> str:
    """A Policy document in YAML that states the levels.

    A level without a label comes from objects or files that a Policy does not hold. To state the
    others alone would lose it, so they stand in comments.
    """
    unlabelled = [level.name for level in levels if level.label is None]
    entries = [_entry(level) for level in levels if level.label is not None]
    lines = [f"# {found}", f"apiVersion: {API_VERSION}", "kind: Policy"]
    lines += ["metadata: {name: levels-as-found}", "spec:"]
    if not unlabelled:
        lines.append("  kubernetes:" if entries else "  kubernetes: {levels: []}")
        lines += ["    levels:"] * bool(entries)
        lines += [f"    - {entry}" for entry in entries]
    else:
        lines += [
            "  # A level in a Policy is a node label, and these levels are more than one label:",
            f"  # {', '.join(unlabelled)}.",
            "  # Without `levels` here, all of them are found again from the same objects.",
            "  kubernetes: {}",
        ]
        if entries:
            lines.append("  # The others alone would be:")
            lines += ["  # kubernetes:", "  #   levels:"]
            lines += [f"  #   - {entry}" for entry in entries]
    return "\n".join(lines) + "\n"


def _entry(level: Level) -> str:
    """One level on one line."""
    fields: dict[str, object] = {"name": level.name, "label": level.label}
    if level.oversubscription != 1:
        fields["oversubscription"] = number(level.oversubscription)
    if level.nvlink:
        fields["nvlink"] = True
    flow = yaml.safe_dump(fields, default_flow_style=True, sort_keys=False, width=1000)
    return flow.strip()
