"""Whole nodes and whole domains: what is left free in one piece, the tier ``defragment``.

A node with GPUs is whole if free = g, g the GPUs of the largest node of its GPU model; a domain of the
innermost level is whole if it has two or more nodes with GPUs and all of them are whole.
Promises: counted over the plan's usage alone. Called by ``tiers`` and by the check of ``status.moves``.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from models.checking.facts import Facts
from models.checking.usage import Usage


@dataclass(frozen=True, slots=True)
class Wholeness:
    """Whole nodes by g, how many there could be by g; whole domains, how many there could be.

    ``domain_gpus``: GPUs of the nodes of whole domains.
    """

    nodes: Counter[int]
    nodes_possible: Counter[int]
    domains: int
    domains_possible: int
    domain_gpus: int

    @property
    def value(self) -> int:
        """Of the tier: GPUs of whole nodes, and again those of whole domains."""
        return sum(gpus * count for gpus, count in self.nodes.items()) + self.domain_gpus


def wholeness(facts: Facts, usage: Usage) -> Wholeness:
    """What is whole after the plan."""
    largest: dict[str, int] = {}
    for node in facts.nodes:
        if node.model is not None:
            largest[node.model.gpu] = max(largest.get(node.model.gpu, 0), node.gpus)
    nodes: Counter[int] = Counter()
    possible: Counter[int] = Counter()
    members: dict[int, list[tuple[int, bool]]] = {}
    for position, node in enumerate(facts.nodes):
        if node.model is None:
            continue
        gpus = largest[node.model.gpu]
        whole = usage.free(position, node) == gpus
        nodes[gpus] += whole
        possible[gpus] += node.gpus == gpus
        if facts.levels:
            members.setdefault(node.domain[-2], []).append((gpus, whole))
    several = [domain for domain in members.values() if len(domain) > 1]
    whole_domains = [domain for domain in several if all(whole for _, whole in domain)]
    return Wholeness(
        nodes=nodes,
        nodes_possible=possible,
        domains=len(whole_domains),
        domains_possible=len(several),
        domain_gpus=sum(gpus for domain in whole_domains for gpus, _ in domain),
    )
