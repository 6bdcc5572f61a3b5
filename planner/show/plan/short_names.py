"""Names of domains and levels in their shortest unique form, for a whole output."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from planner.show.text import short_names

if TYPE_CHECKING:
    from models.documents.plan import PlanInstance
    from models.instance.instance import Instance

MAX_NAME = 16
"""Characters of the name of a domain or level in a table; longer ones, such as hashes, are shortened."""

Shorten = Callable[[str], str]
"""Shortens the names in a text."""


def shortener_of_plans(*plans: PlanInstance) -> Shorten:
    """What shortens the names of domains and levels of these plans, in texts about them."""
    domains: dict[str, set[str]] = {}
    copied: set[str] = set()
    for plan in plans:
        for level in plan.cluster.spec.levels:
            domains.setdefault(level.name, set())
        for node in plan.cluster.spec.nodes:
            copied.add(node.name)
            for level_name, domain in node.domains.items():
                domains.setdefault(level_name, set()).add(domain)
        copied.update(part for gang in plan.gangs for part in gang.key)
        copied.update(queue.metadata.name for queue in plan.queues)
    return domain_shortener(domains, copied)


def shortener(instance: Instance) -> Shorten:
    """The same of an instance."""
    levels = zip(instance.cluster.levels, instance.cluster.domains, strict=False)
    domains = {level.name: {domain.path[-1] for domain in own} for level, own in levels}
    copied = {node.name for node in instance.cluster.nodes}
    copied.update(part for gang in instance.gangs for part in gang.key)
    return domain_shortener(domains, copied)


def domain_shortener(domains: Mapping[str, Iterable[str]], copied: Iterable[str]) -> Shorten:
    """``domains``: the names of each level. ``copied``: names that people copy into commands.

    Only whole words are replaced, also inside a path such as ``BLOCK/RACK``; not what is copied, nor the
    value of a label, ``KEY=VALUE``.
    """
    short: dict[str, str] = {}
    for names in domains.values():
        short |= _shorter(names)
    levels = {long: one for long, one in _shorter(domains).items() if not one.isdigit()}
    short |= levels | {long.upper(): one.upper() for long, one in levels.items()}
    for name in copied:
        short.pop(name, None)
    if not short:
        return lambda text: text

    def shortened(found: re.Match[str]) -> str:
        name = found[0].rstrip(".-")
        return short.get(name, name) + found[0][len(name) :]

    # Whole words, with the signs that names may have inside, and the "=" that they follow.
    return lambda text: re.sub(r"=?[\w.-]+", shortened, text)


def _shorter(names: Iterable[str]) -> dict[str, str]:
    """The names that are too long for a table, with the shortest that no other one has or gets."""
    every = set(names)
    short = short_names(every, MAX_NAME).items()
    return {long: one for long, one in short if len(long) > MAX_NAME and one not in every}
