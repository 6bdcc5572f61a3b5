"""Nodes that make a gang start: some that are back in order, or more of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from fractions import Fraction

from models.instance.cluster import Node
from planner.search.explain.trial import Remedy, Trial
from planner.search.explain.world import World, in_order, node_faults
from planner.search.free_space import FreeSpace

MAX_NODES = 256
"""Nodes more that are tried at most."""

MAX_TEMPLATES = 12
"""Pairs of a shape of nodes and a domain of which more are tried: those with fewest GPUs, most room first."""

MAX_DOMAINS = 4
"""Domains in which more of one shape are tried, those with most free GPUs first."""


class NodeRemedies:
    """``space``: of the plan of the trial."""

    def __init__(self, trial: Trial, space: FreeSpace) -> None:
        self._trial, self._space, self._world, self._late = trial, space, trial.world, trial.late
        self._nodes = trial.world.instance.cluster.nodes

    def back_in_order(self) -> Iterator[Remedy]:
        """One node that is back in order, a cordoned one if it will do, or as few as are needed."""
        nodes = self._nodes
        broken = [n for n, node in enumerate(nodes) if node_faults(node)]
        broken.sort(key=lambda n: (_repair(nodes[n]), n), reverse=True)
        way = self._trial.way(self._with_healed(broken)) if broken else None
        few = [] if way is None else self._trial.fewest(broken, self._with_healed, way)
        if few and not self._late():  # else some may be superfluous
            group = sorted(few)
            faults = sorted({fault for n in group for fault in node_faults(nodes[n])})
            change = {"nodes": [nodes[n].name for n in group], "faults": faults}
            yield from self._trial.tried("node", self._with_healed(group), change=change)

    def _with_healed(self, group: Collection[int]) -> World:
        nodes = enumerate(self._nodes)
        return self._world.with_nodes([in_order(one) if n in group else one for n, one in nodes])

    def more(self) -> Iterator[Remedy]:
        """The cheapest nodes more, empty and in order: the fewest GPUs, then nodes, then speed."""
        best: tuple[tuple[int, int, bool, Fraction], Node, Mapping[str, str]] | None = None
        for node, where in self._templates():
            if self._late():
                break
            most = MAX_NODES if best is None or not node.gpus else best[0][0] // node.gpus
            count = self._enough(node, most)
            if count is None:
                continue
            speed = None if node.model is None else node.model.relative_speed
            cost = (count * node.gpus, count, speed is None, speed or Fraction(0))
            if best is None or cost < best[0]:
                best = cost, node, where
        if best is not None:
            (_, count, _, _), node, where = best
            model = None if node.model is None else node.model.name
            change = {"like": node.name, "model": model, **size_of(node, count), **where}
            yield from self._trial.tried("addNode", self.with_new(node, count), change=change)

    def with_new(self, node: Node, count: int) -> World:
        """The world with so many nodes more like this one, empty and in order."""
        like = in_order(node)
        new = (replace(like, name=f"~new-{number}") for number in range(1, count + 1))
        return self._world.with_nodes((*self._nodes, *new))

    def _enough(self, node: Node, most: int) -> int | None:
        """The fewest nodes like this one that are enough; None if ``most`` are not, or the time is up.

        A pod needs one node at most, so that more nodes than pods are rarely of use.
        """
        most = min(most, 2 * len(self._world.spec.missing))
        way = self._trial.way(self.with_new(node, most)) if most >= 1 else None
        if way is None:
            return None
        return self._trial.least(1, most, lambda count: way(self.with_new(node, count)))

    def _templates(self) -> Iterator[tuple[Node, Mapping[str, str]]]:
        """Nodes like which more could be: of each shape, in the domains with most free GPUs."""
        instance, spec, nodes = self._world.instance, self._world.spec, self._nodes
        cluster, free = instance.cluster, self._space.arrays.free
        suited = {
            n
            for role in spec.roles
            for n in instance.matching_nodes(role)
            if nodes[n].whole_gpus >= role.gpus
        }
        levels = [spec.required, *(role.required for role in spec.roles)]
        if instance.min_share(spec):
            levels.append(cluster.node_level - 1)  # bandwidth depends on where they are
        inner = [level for level in levels if level is not None and 0 <= level < cluster.node_level]
        level = max(inner, default=None)
        of = cluster.domain_of[level] if level is not None else [0] * len(nodes)
        room: Counter[int] = Counter()
        for n in suited:
            room[of[n]] += int(free[n])
        seen, domains = set[tuple[object, int]](), Counter[object]()
        for n in sorted(suited, key=lambda n: (nodes[n].gpus, -room[of[n]], n)):
            shape = (nodes[n].model, nodes[n].allocatable)
            if (shape, of[n]) in seen or domains[shape] == MAX_DOMAINS:
                continue
            seen.add((shape, of[n]))
            domains[shape] += 1
            if len(seen) > MAX_TEMPLATES:
                return
            where = {}
            if level is not None:
                path = "/".join(cluster.domains[level][of[n]].path)
                where = {"level": cluster.level_name(level), "domain": path}
            yield nodes[n], where


def size_of(node: Node, count: int) -> dict[str, object]:
    """So many nodes like this one, as fields of a change."""
    parts = {"partitioned": count * (node.gpus - node.whole_gpus)} if node.mig else {}
    return {"count": count, "gpus": count * node.gpus, **parts}


def _repair(node: Node) -> int:
    """What is easier to put in order first: to uncordon it, then what has a taint, then what is broken."""
    faults = node_faults(node)
    return 0 if faults == ("Cordoned",) else 1 if faults == ("Tainted",) else 2
