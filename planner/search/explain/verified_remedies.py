"""What makes a waiting gang start, with everything else as in the plan: each one is done before it is said.

A remedy changes the world, and a place for all pods of the gang is found in it that obeys every rule.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import islice

from models.instance.cluster import Node
from models.instance.queue import Amount
from models.mig import RESOURCE
from models.queues.queue_shares import gpus_held, queue_counts
from models.rules.bandwidth import SHARE
from models.rules.nodes import HOLD, REQUEST, TAINT
from models.rules.queue_rules import QUEUE
from models.rules.topology import REQUIRED
from models.units import in_bytes, quantity_text
from planner.search.explain.blocking import Blocking, Standing
from planner.search.explain.causes import (
    GANG,
    NODE,
    Cause,
    World,
    causes_of,
    in_order,
    node_faults,
    relaxed,
    with_role,
)
from planner.search.explain.counterfactual import placement
from planner.search.explain.holders import Holders, needed
from planner.search.explain.remedy import HolderRemedies, Remedy, tried
from planner.search.free_space import FreeSpace
from planner.search.start.greedy import missing_demand, placements, value_of

MAX_NODES = 256
"""Nodes more that are tried at most."""

MAX_TEMPLATES = 12
"""Pairs of a shape of nodes and a domain of which more are tried: those with fewest GPUs, most room first."""

MAX_DOMAINS = 4
"""Domains in which more of one shape are tried, those with most free GPUs first."""

WAYS = 16
"""Places that are compared for the best bandwidth."""

GI = 2**30


class RemedyFinder:
    """``found``: what keeps the gang waiting."""

    def __init__(self, holders: Holders, found: Blocking) -> None:
        self._world = holders.world
        self._late = holders.late
        self._holders = holders
        self._found = found
        self._alone = found.causes if found.standing is Standing.EACH else ()
        self._space = FreeSpace(self._world.instance, self._world.decisions)

    def remedies(self) -> tuple[Remedy, ...]:
        """Those that are found, in the order in which a person would try them."""
        found: list[Remedy] = []
        ways: tuple[Callable[[], Iterator[Remedy]], ...] = (
            self._nodes_in_order,
            self._policy_and_wishes,
            self._others,
            self._fewer_pods,
            self._fewer_gpus,
            self._more_nodes,
        )
        for way in ways:
            if self._late():
                break
            found += way()
        return tuple(sorted(found, key=lambda one: one.rank))

    def _others(self) -> Iterator[Remedy]:
        causes = self._found.causes
        gangs = tuple(one.gang for one in causes if one.gang is not None)
        together = gangs if len(gangs) == len(causes) else ()
        return HolderRemedies(self._holders, together).remedies()

    # Wishes of the gang and rules of the policy

    def _policy_and_wishes(self) -> Iterator[Remedy]:
        some = False
        for cause in self._alone:
            if self._late():
                return
            if cause.kind in _NOT_DROPPED:
                continue
            for found in self._without(cause):
                some = True
                yield found
        if not some:
            yield from self._several()

    def _several(self) -> Iterator[Remedy]:
        """A few wishes and rules to drop together, where no single one is enough."""
        left_alone = (*_NOT_DROPPED, TAINT.name)
        every = [one for one in causes_of(self._world) if one.kind not in left_alone]
        if len(every) < 2 or placement(relaxed(self._world, every)) is None:
            return
        left = set(every)

        def put_back(chunk: Sequence[Cause]) -> bool:
            rest = [one for one in every if one in left.difference(chunk)]
            if placement(relaxed(self._world, rest)) is None:
                return False
            left.intersection_update(rest)
            return True

        few = needed(every, put_back, self._late)
        if len(few) > 1:
            change = {"drop": [self._dropped(one) for one in few]}
            yield from tried("several", relaxed(self._world, few), change=change)

    def _dropped(self, cause: Cause) -> Mapping[str, object]:
        roles = self._world.spec.roles
        role = {} if cause.role is None else {"role": roles[cause.role].name}
        return {"drop": cause.kind, "name": cause.name, **role}

    def _without(self, cause: Cause) -> Iterator[Remedy]:
        if cause.kind == REQUIRED.name:
            return self._wider(cause)
        if cause.kind == SHARE.name:
            return self._slower(cause)
        if cause.kind == REQUEST.name:
            return self._less(cause.name)
        limits = list(self._higher_limits()) if cause.kind == QUEUE.name else []
        if limits:
            return iter(limits)
        world = relaxed(self._world, [cause])
        return tried(cause.kind, world, change=self._dropped(cause))

    def _wider(self, cause: Cause) -> Iterator[Remedy]:
        """The next wider level that will do, or none."""
        world, cluster = self._world, self._world.instance.cluster
        spec = world.spec
        level = spec.required if cause.role is None else spec.roles[cause.role].required
        assert level is not None, "the gang requires it"
        for wider in [*range(level - 1, -1, -1), None]:
            changed = (
                world.with_gang(replace(spec, required=wider))
                if cause.role is None
                else with_role(world, cause.role, required=wider)
            )
            name = None if wider is None else cluster.level_name(wider)
            role = {} if cause.role is None else {"role": spec.roles[cause.role].name}
            change = {"required": name, "from": cause.name, **role}
            found = list(tried("required", changed, change=change))
            if found:
                return iter(found)
        return iter(())

    def _slower(self, cause: Cause) -> Iterator[Remedy]:
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
            return
        share = Fraction(best[0], 1000)
        world = loose.with_gang(replace(loose.spec, min_bandwidth_share=share))
        yield from tried(cause.kind, world, change={"minBandwidthShare": float(share)})

    def _less(self, resource: str) -> Iterator[Remedy]:
        """The largest request a pod with which it starts, in units that people write: 1m of cpu, Gi or Mi.

        None for instances of GPUs: a pod that asks for one cannot do without.
        """
        if resource.startswith(RESOURCE):
            return
        roles = self._world.spec.roles
        most = max(dict(role.requests).get(resource, 0) for role in roles)
        unit = 1
        if in_bytes(resource):
            unit = GI if most >= 4 * GI else GI // 1024
        low, high = 0, -(-most // unit)  # low will do, high will not
        while high - low > 1:
            middle = (low + high) // 2
            if self._late():
                return
            if placement(self._at_most(resource, middle * unit)) is None:
                high = middle
            else:
                low = middle
        asked, largest = quantity_text(resource, most), quantity_text(resource, low * unit)
        change = {"request": resource, "most": largest, "from": asked}
        yield from tried("request", self._at_most(resource, low * unit), change=change)

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

    def _higher_limits(self) -> Iterator[Remedy]:
        """The least limits of the queues of the gang under which it starts where it would without them."""
        world, queues = self._world, list(self._world.instance.queues)
        counts = queue_counts(world.instance, [one.pods for one in world.decisions])
        assert counts is not None, "there are queues"
        path = counts.shares.path(counts.shares.number(world.spec.queue))
        pods = placement(_with_limits(world, {q: Amount() for q in path}))
        if pods is None:
            return
        asked = gpus_held(world.instance, world.spec, pods)
        limits, raised = dict[int, Amount](), []
        for q in path:
            total, models = queues[q].limit.gpus, dict(queues[q].limit.models)
            for gpu in (None, *sorted(model for model in asked if model is not None)):
                if gpu not in counts.shares.most:
                    continue  # no queue names the model
                most, needs = counts.shares.most[gpu][q], counts.held[gpu][q] + asked[gpu]
                if most is None or most >= needs:
                    continue
                stated = world.instance.in_gpus(needs)
                raised.append({"queue": queues[q].name, "gpus": stated, "model": gpu})
                if gpu is None:
                    total = needs
                else:
                    models[gpu] = needs
            limits[q] = Amount(total, tuple(sorted(models.items())))
        if raised:
            yield from tried("queue", _with_limits(world, limits), change={"limits": raised})

    # Nodes

    def _nodes_in_order(self) -> Iterator[Remedy]:
        """One node that is back in order, a cordoned one if it will do, or as few as are needed."""
        nodes = self._world.instance.cluster.nodes
        alone = [one.node for one in self._alone if one.node is not None]
        if alone:
            yield from self._healed([min(alone, key=lambda n: (_repair(nodes[n]), n))])
            return
        broken = [n for n, node in enumerate(nodes) if node_faults(node)]
        broken.sort(key=lambda n: (_repair(nodes[n]), n), reverse=True)
        if len(broken) > 1 and placement(self._with_healed(broken)) is not None:
            left = set(broken)

            def put_back(chunk: Sequence[int]) -> bool:
                if placement(self._with_healed(left.difference(chunk))) is None:
                    return False
                left.difference_update(chunk)
                return True

            few = needed(broken, put_back, self._late)
            if not self._late():  # else some may be superfluous
                yield from self._healed(sorted(few))

    def _healed(self, group: Sequence[int]) -> Iterator[Remedy]:
        nodes = self._world.instance.cluster.nodes
        faults = sorted({fault for n in group for fault in node_faults(nodes[n])})
        change = {"nodes": [nodes[n].name for n in group], "faults": faults}
        return tried("node", self._with_healed(group), change=change)

    def _with_healed(self, group: Collection[int]) -> World:
        nodes = enumerate(self._world.instance.cluster.nodes)
        return self._world.with_nodes([in_order(one) if n in group else one for n, one in nodes])

    def _more_nodes(self) -> Iterator[Remedy]:
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
            (gpus, count, _, _), node, where = best
            change = {
                "count": count,
                "like": node.name,
                "model": None if node.model is None else node.model.name,
                "gpus": gpus,
                **({"partitioned": count * (node.gpus - node.whole_gpus)} if node.mig else {}),
                **where,
            }
            asked = max(node.gpus, missing_demand(self._space, self._world.gang).gpus)
            kind = "addNode" if gpus <= 2 * asked else "addMany"
            yield from tried(kind, self._with_new(node, count), change=change)

    def _with_new(self, node: Node, count: int) -> World:
        nodes = (*self._world.instance.cluster.nodes, *_new(node, count))
        return self._world.with_nodes(nodes)

    def _enough(self, node: Node, most: int) -> int | None:
        """The fewest nodes like this one that are enough; None if ``most`` are not, or the time is up.

        A pod needs one node at most, so that more nodes than pods are rarely of use.
        """
        most = min(most, 2 * len(self._world.spec.missing()))
        if most < 1 or placement(self._with_new(node, most)) is None:
            return None
        low, high = 1, most
        while low < high:
            middle = (low + high) // 2
            if self._late():
                return None
            if placement(self._with_new(node, middle)) is None:
                low = middle + 1
            else:
                high = middle
        return high

    def _templates(self) -> Iterator[tuple[Node, Mapping[str, str]]]:
        """Nodes like which more could be: of each shape, in the domains with most free GPUs."""
        instance = self._world.instance
        cluster, free = instance.cluster, self._space.arrays.free
        nodes = cluster.nodes
        suited = {
            n
            for role in self._world.spec.roles
            for n in instance.matching_nodes(role)
            if nodes[n].whole_gpus >= role.gpus
        }
        levels = [self._world.spec.required, *(r.required for r in self._world.spec.roles)]
        inner = [level for level in levels if level is not None and level < cluster.node_level]
        level = max(inner) if inner else None
        of = cluster.domain_of[level] if level is not None else [0] * len(nodes)
        room: Counter[int] = Counter()
        for n in suited:
            room[of[n]] += int(free[n])
        order = sorted(suited, key=lambda n: (nodes[n].gpus, -room[of[n]], n))
        seen, domains = set[tuple[object, int]](), Counter[object]()
        for n in order:
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

    def _largest_role(self) -> int | None:
        """The role with most GPUs, of a gang that does not run."""
        roles = self._world.spec.roles
        if self._world.spec.running or not roles:
            return None
        return max(range(len(roles)), key=lambda r: roles[r].min * roles[r].gpus)

    def _most(self, below: int, changed: Callable[[int], World]) -> int | None:
        """The largest number from 1 below a limit with which the gang starts."""
        low, high, best = 1, below - 1, None
        while low <= high and not self._late():
            middle = (low + high) // 2
            if placement(changed(middle)) is None:
                high = middle - 1
            else:
                low, best = middle + 1, middle
        return best

    def _fewer_pods(self) -> Iterator[Remedy]:
        """The most pods of its largest role that start."""
        number = self._largest_role()
        if number is None:
            return
        role = self._world.spec.roles[number]

        def changed(pods: int) -> World:
            return with_role(self._world, number, min=pods, max=pods, step=1)

        best = self._most(role.min, changed)
        if best is not None:
            change = {"role": role.name, "pods": best, "from": role.min}
            kind = "smaller" if 2 * best >= role.min else "smallest"
            yield from tried(kind, changed(best), change=change)

    def _fewer_gpus(self) -> Iterator[Remedy]:
        """The most GPUs a pod of its largest role with which it starts."""
        number = self._largest_role()
        if number is None or self._world.spec.roles[number].parallelism is not None:
            return
        role = self._world.spec.roles[number]

        def changed(gpus: int) -> World:
            return with_role(self._world, number, gpus=gpus)

        best = self._most(role.gpus, changed)
        if best is not None:
            change = {"role": role.name, "gpus": best, "from": role.gpus}
            kind = "fewerGpus" if 2 * best >= role.gpus else "fewestGpus"
            yield from tried(kind, changed(best), change=change)


def _with_limits(world: World, limits: Mapping[int, Amount]) -> World:
    """The world with other limits of some queues, by number, which may then borrow up to them."""
    queues = tuple(
        replace(queue, limit=limits[q], borrowing=True) if q in limits else queue
        for q, queue in enumerate(world.instance.queues)
    )
    return replace(world, instance=replace(world.instance, queues=queues))


def _new(node: Node, count: int) -> list[Node]:
    """Nodes like this one, empty and in order."""
    like = in_order(node)
    return [replace(like, name=f"~new-{number}") for number in range(1, count + 1)]


def _repair(node: Node) -> int:
    """What is easier to put in order first: to uncordon it, then what has a taint, then what is broken."""
    faults = node_faults(node)
    return 0 if faults == ("Cordoned",) else 1 if faults == ("Tainted",) else 2


_NOT_DROPPED = (GANG, NODE, HOLD.name)
"""Causes that have remedies of their own."""
