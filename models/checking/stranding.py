"""The tier ``stranded``: permille-GPU left over that the next request cannot use.

Sum over GPU models m and sizes s of mix[s] x (F - s x placeable(s)); F = free GPUs of m, g = GPUs of its
largest node. s <= g: placeable = sum over nodes of floor(free / s). s > g: ceil(s / g) whole free nodes
(free = g) a request, all in one domain of the innermost level that has a domain with s or more installed
GPUs of m (else the whole cluster).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from models.checking.facts import Facts
from models.checking.usage import Usage


def stranded(facts: Facts, usage: Usage) -> int:
    """Value of the tier."""
    by_model: dict[str, list[int]] = {}
    for position, node in enumerate(facts.nodes):
        if node.model is not None:
            by_model.setdefault(node.model.gpu, []).append(position)
    return sum(
        permille * (total - size * placeable)
        for members in by_model.values()
        for permille, size, total, placeable in _sizes(facts, usage, members)
    )


def _sizes(facts: Facts, usage: Usage, members: list[int]) -> Iterator[tuple[int, int, int, int]]:
    """(permille, size, free GPUs, placeable) for every size of the mix on one GPU model."""
    free = {n: usage.free(n, facts.nodes[n]) for n in members}
    total = sum(free.values())
    largest = max(facts.nodes[n].gpus for n in members)
    counts = Counter(free.values())
    whole = [n for n in members if free[n] == largest]
    installed = _installed(facts, members)
    for size, permille in facts.policy.mix:
        if size <= largest:
            placeable = sum(nodes * (left // size) for left, nodes in counts.items())
        else:
            nodes_each = -(-size // largest)
            level = next((i for i, most in installed if most >= size), None)
            placeable = sum(
                nodes // nodes_each for nodes in _whole_nodes(facts, whole, level).values()
            )
        yield permille, size, total, placeable


def _installed(facts: Facts, members: list[int]) -> list[tuple[int, int]]:
    """(level, installed GPUs of its largest domain), innermost level first."""
    found = []
    for level in range(facts.node_level, -1, -1):
        domains: Counter[int] = Counter()
        for n in members:
            domains[facts.nodes[n].domain[level]] += facts.nodes[n].gpus
        found.append((level, max(domains.values())))
    return found


def _whole_nodes(facts: Facts, whole: list[int], level: int | None) -> Counter[int]:
    """Whole free nodes by domain; all in one where no level is wide enough."""
    return Counter(0 if level is None else facts.nodes[n].domain[level] for n in whole)
