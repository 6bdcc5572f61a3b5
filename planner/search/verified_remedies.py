"""What makes a waiting gang start, with everything else as in the plan: each one is done before it is said.

A remedy changes the world, and a place for all pods of the gang is found in it that obeys every rule.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import islice

from models.cluster import Domain, Node
from models.queue_shares import queue_counts
from models.units import first_of, plural, quantity_text
from planner.search.candidate_causes import causes_of
from planner.search.causes import (
    Cause,
    CauseKind,
    World,
    in_order,
    node_state,
    relaxed,
    with_role,
)
from planner.search.counterfactual import placement
from planner.search.free_space import FreeSpace
from planner.search.greedy import missing_demand, placements, value_of
from planner.search.holder_remedies import HolderRemedies
from planner.search.remedy import Remedy, tried

MAX_NODES = 256
"""Nodes more that are tried at most."""

MAX_DOMAINS = 4
"""Domains in which they are tried, those with most free GPUs first."""

HALVINGS = 6
"""Steps of the search for the largest request."""

WAYS = 16
"""Places that are compared for the best bandwidth."""


class RemedyFinder:
    """``late``: whether no further remedy is to be tried."""

    def __init__(self, world: World, late: Callable[[], bool]) -> None:
        self._world = world
        self._late = late
        self._space = FreeSpace(world.instance, world.decisions)

    def remedies(self) -> tuple[Remedy, ...]:
        """Those that are found, what costs others least first."""
        found: list[Remedy] = []
        ways = (
            self._policy_and_wishes,
            self._nodes_in_order,
            self._others,
            self._smaller,
            self._more_nodes,
        )
        for way in ways:
            if self._late():
                break
            found += way()
        return tuple(sorted(found, key=lambda one: one.rank))

    def _others(self) -> Iterator[Remedy]:
        return HolderRemedies(self._world, self._late).remedies()

    def _tried(self, kind: str, what: str, world: World, **more: object) -> Remedy | None:
        return next(tried(kind, what, world, **more), None)

    # Wishes of the gang and rules of the policy

    def _policy_and_wishes(self) -> Iterator[Remedy]:
        some = False
        for cause in causes_of(self._world):
            if self._late():
                return
            if cause.kind in _NOT_DROPPED:
                continue
            found = self._without(cause)
            if found is not None:
                some = True
                yield found
        if not some:
            yield from self._several()

    def _several(self) -> Iterator[Remedy]:
        """The fewest wishes and rules to drop together, where no single one is enough."""
        left = [one for one in causes_of(self._world) if one.kind not in _NOT_DROPPED]
        if len(left) < 2 or placement(relaxed(self._world, left)) is None:
            return
        for cause in tuple(left):
            rest = [one for one in left if one is not cause]
            if self._late():
                return
            if placement(relaxed(self._world, rest)) is not None:
                left = rest
        if len(left) > 1:
            what = " and ".join(_DROPPED[one.kind].format(one.name) for one in left)
            change = {"drop": [one.kind.value for one in left]}
            yield from tried("several", what, relaxed(self._world, left), change=change)

    def _without(self, cause: Cause) -> Remedy | None:
        if cause.kind is CauseKind.REQUIRED:
            return self._wider(cause)
        if cause.kind in (CauseKind.SHARE, CauseKind.PATIENCE):
            return self._slower(cause)
        if cause.kind is CauseKind.REQUEST:
            return self._less(cause.name)
        if cause.kind is CauseKind.QUEUE and (found := self._higher_limits()) is not None:
            return found
        what = _DROPPED[cause.kind].format(cause.name)
        roles = self._world.spec.roles
        role = {} if cause.role is None else {"role": roles[cause.role].name}
        change = {"drop": cause.kind.value, "name": cause.name, **role}
        return self._tried(cause.kind.value, what, relaxed(self._world, [cause]), change=change)

    def _wider(self, cause: Cause) -> Remedy | None:
        """The next wider level that will do, or none."""
        world, cluster = self._world, self._world.instance.cluster
        spec = world.spec
        level = spec.required if cause.role is None else spec.roles[cause.role].required
        assert level is not None, "the gang requires it"
        whose = "" if cause.role is None else f" of role {spec.roles[cause.role].name}"
        for wider in [*range(level - 1, -1, -1), None]:
            changed = (
                world.with_gang(replace(spec, required=wider))
                if cause.role is None
                else with_role(world, cause.role, required=wider)
            )
            name = None if wider is None else cluster.level_name(wider)
            instead = f"require {name}" if name else "require no level"
            role = {} if cause.role is None else {"role": spec.roles[cause.role].name}
            found = self._tried(
                "required",
                f"{instead} in the place of {cause.name}{whose}",
                changed,
                change={"required": name, **role},
            )
            if found is not None:
                return found
        return None

    def _slower(self, cause: Cause) -> Remedy | None:
        """The largest share of its bandwidth that is found."""
        loose = relaxed(self._world, [cause])
        space = FreeSpace(loose.instance, loose.decisions)
        demand = missing_demand(space, loose.gang)
        values = (
            (value_of(space, loose.gang, pods).share or 0, pods)
            for pods in islice(placements(space, demand, bound=False), WAYS)
        )
        best = max(values, key=lambda one: one[0], default=None)
        if best is None:
            return None
        share = Fraction(best[0], 1000)
        world = loose.with_gang(replace(loose.spec, min_bandwidth_share=share))
        what = (
            f"accept {float(share):.1%} of its best bandwidth (minBandwidthShare: {float(share):g})"
        )
        change = {"minBandwidthShare": float(share)}
        return self._tried(cause.kind.value, what.replace("%", " %"), world, change=change)

    def _less(self, resource: str) -> Remedy | None:
        """The largest request a pod with which it starts, as far as some halvings find it."""
        roles = self._world.spec.roles
        most = max(dict(role.requests).get(resource, 0) for role in roles)
        if placement(self._at_most(resource, 0)) is None:
            return None
        low, high = 0, most
        for _ in range(HALVINGS):
            middle = (low + high) // 2
            if self._late() or middle == low:
                break
            if placement(self._at_most(resource, middle)) is None:
                high = middle
            else:
                low = middle
        asked = quantity_text(resource, low) if low else "no"
        what = f"request at most {asked} {resource} a pod" if low else f"request no {resource}"
        change = {"request": resource, "most": quantity_text(resource, low)}
        return self._tried("request", what, self._at_most(resource, low), change=change)

    def _at_most(self, resource: str, most: int) -> World:
        """The world in which no pod of the gang requests more of a resource."""
        roles = (
            replace(
                role,
                requests=tuple(
                    (name, min(amount, most) if name == resource else amount)
                    for name, amount in role.requests
                ),
            )
            for role in self._world.spec.roles
        )
        return self._world.with_gang(replace(self._world.spec, roles=tuple(roles)))

    def _higher_limits(self) -> Remedy | None:
        """The least limits of the queues of the gang under which it starts."""
        world = self._world
        counts = queue_counts(world.instance, [one.pods for one in world.decisions])
        assert counts is not None, "there are queues"
        asked, queues = missing_demand(self._space, world.gang).gpus, list(world.instance.queues)
        raised = {}
        for q in counts.shares.path(counts.shares.number(world.spec.queue)):
            most, needed = counts.shares.most[None][q], counts.held[None][q] + asked
            if most is not None and most < needed:
                limit = replace(queues[q].limit, gpus=needed)
                queues[q] = replace(queues[q], limit=limit, borrowing=True)
                raised[queues[q].name] = needed
        if not raised:
            return None
        each = [f"queue {name} to {plural(gpus, 'GPU')}" for name, gpus in raised.items()]
        changed = replace(world, instance=replace(world.instance, queues=tuple(queues)))
        what = f"raise the limit of {' and '.join(each)}"
        return self._tried("queue", what, changed, change={"limits": raised})

    # Nodes

    def _nodes_in_order(self) -> Iterator[Remedy]:
        """The fewest nodes that are back in order: one, or all of them."""
        nodes = self._world.instance.cluster.nodes
        broken = [n for n, node in enumerate(nodes) if node_state(node)]
        groups: Iterable[Sequence[int]] = [[n] for n in broken]
        groups = [*groups, broken] if len(broken) > 1 else groups
        for group in groups:
            if self._late():
                return
            names = first_of([nodes[n].name for n in group], 3, "other node")
            states = first_of(sorted({node_state(nodes[n]) for n in group}), 2, "other state")
            healed = [in_order(node) if n in group else node for n, node in enumerate(nodes)]
            what = f"put {names} back in order ({states})"
            change = {"nodes": [nodes[n].name for n in group]}
            found = self._tried("node", what, self._world.with_nodes(healed), change=change)
            if found is not None:
                yield found
                return

    def _more_nodes(self) -> Iterator[Remedy]:
        """The fewest nodes more, empty and in order, of a model that the gang may use."""
        for node, domain in self._templates():
            count = self._enough(node)
            if count is None:
                continue
            name = node.model.name if node.model is not None else "server without GPUs"
            more = f"add {plural(count, 'node')}" if count > 1 else "add one node"
            where = "" if domain is None else f" in {domain}"
            yield from tried(
                "addNode",
                f"{more} ({name}){where}",
                self._with_new(node, count),
                change={"count": count, "like": node.name},
            )
            return

    def _with_new(self, node: Node, count: int) -> World:
        nodes = (*self._world.instance.cluster.nodes, *_new(node, count))
        return self._world.with_nodes(nodes)

    def _enough(self, node: Node) -> int | None:
        """The fewest nodes like this one that are enough; None if MAX_NODES are not, or the time is up."""
        low, high = 1, 1
        while placement(self._with_new(node, high)) is None:
            low, high = high + 1, 2 * high
            if high > MAX_NODES or self._late():
                return None
        while low < high:
            middle = (low + high) // 2
            if self._late():
                return None
            if placement(self._with_new(node, middle)) is None:
                low = middle + 1
            else:
                high = middle
        return high

    def _templates(self) -> Iterator[tuple[Node, str | None]]:
        """Nodes like which more could be: of each model, in the domains with most free GPUs."""
        instance = self._world.instance
        cluster, free = instance.cluster, self._space.arrays.free
        suited = Counter[int]()
        for role in self._world.spec.roles:
            for n in instance.matching_nodes(role):
                if cluster.nodes[n].gpus >= role.gpus:
                    suited[n] += role.gpus or 1
        if not suited:
            return
        most = max(suited.values())
        levels = [self._world.spec.required, *(r.required for r in self._world.spec.roles)]
        inner = [level for level in levels if level is not None and level < cluster.node_level]
        level = max(inner) if inner else None
        of = cluster.domain_of[level] if level is not None else [0] * len(cluster.nodes)
        room: Counter[int] = Counter()
        for n in suited:
            room[of[n]] += int(free[n])
        seen = set[tuple[object, int]]()
        order = sorted((n for n in suited if suited[n] == most), key=lambda n: (-room[of[n]], n))
        for n in order:
            node = cluster.nodes[n]
            if (node.model, of[n]) not in seen and len(seen) < MAX_DOMAINS:
                seen.add((node.model, of[n]))
                name = (
                    None
                    if level is None
                    else _name(cluster.domains[level][of[n]], cluster.level_name(level))
                )
                yield node, name

    def _smaller(self) -> Iterator[Remedy]:
        """The most pods of its largest role that start."""
        world = self._world
        roles = world.spec.roles
        if world.spec.running or not roles:
            return
        number = max(range(len(roles)), key=lambda r: roles[r].min * roles[r].gpus)
        low, high, best = 1, roles[number].min - 1, None
        while low <= high and not self._late():
            middle = (low + high) // 2
            changed = with_role(world, number, min=middle, max=middle, step=1)
            pods = placement(changed)
            if pods is None:
                high = middle - 1
            else:
                low, best = middle + 1, middle
        if best is not None:
            role = roles[number]
            changed = with_role(world, number, min=best, max=best, step=1)
            whose = f" of role {role.name}" if len(roles) > 1 else ""
            what = f"ask for {plural(best, 'pod')}{whose} in the place of {role.min:,}"
            change = {"role": role.name, "pods": best}
            kind = "smaller" if 2 * best >= role.min else "smallest"
            found = self._tried(kind, what, changed, change=change)
            if found is not None:
                yield found


def _new(node: Node, count: int) -> list[Node]:
    """Nodes like this one, empty and in order."""
    like = replace(in_order(node), pod_sets=())
    return [replace(like, name=f"~new-{number}") for number in range(1, count + 1)]


def _name(domain: Domain, level: str) -> str:
    return f"{level} {'/'.join(domain.path)}"


_NOT_DROPPED = (CauseKind.GANG, CauseKind.NODE, CauseKind.HOLD)
"""Causes that have remedies of their own."""

_DROPPED = {
    CauseKind.REQUIRED: "require no {}",
    CauseKind.SHARE: "drop minBandwidthShare {}",
    CauseKind.PATIENCE: "end its patience for {} of its bandwidth",
    CauseKind.RESERVATION: "drop the reservation for {}",
    CauseKind.SPARES: "drop the Policy's spares",
    CauseKind.CELLS: "drop the cells of queues",
    CauseKind.QUEUE: "drop the limits and guarantees of queues (its own: {})",
    CauseKind.HELD_ROOM: "drop the Policy's holdRoom, which holds room for {}",
    CauseKind.SELECTED: "drop the Policy's nodeSelector {}",
    CauseKind.MODELS: "allow mixModels",
    CauseKind.SERVICE: "take it out of service {}",
    CauseKind.BALANCE: "drop balance over {}",
    CauseKind.EXCLUSIVE: "drop exclusive {}",
    CauseKind.SPREAD: "drop the topology spread over {}",
    CauseKind.TOGETHER: "drop the pod affinity to {}",
    CauseKind.APART: "drop the pod anti-affinity over {}",
    CauseKind.REQUEST: "request no {}",
    CauseKind.TAINT: "tolerate the taints {}",
    CauseKind.MODEL: "drop model {}",
    CauseKind.AFFINITY: "drop the node affinity ({})",
    CauseKind.SELECTOR: "drop the nodeSelector {}",
    CauseKind.SLICE: "drop the slices in one {}",
}
