"""The free space on every node while a plan is built.

The pods of a gang can be set and every change undone. The free space of a node follows rules 2.1,
2.2, 2.6 and 2.9 of the contract and is recounted from the pods on it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from fractions import Fraction

from models.documents.gang import Hold
from models.hardware import bits
from models.instance.cluster import Cluster, once_with
from models.instance.disruption_budgets import guards
from models.instance.gang import Gang, Role
from models.instance.instance import Instance
from models.instance.occupancy import PODS, Room
from models.instance.reshaping import Reshaping, beside, is_blind, reshaping
from models.instance.run_times import protected
from models.instance.solution import GangDecision, PodPlacement
from models.program.base_state import base_decisions, outcome
from models.program.servers import GpuSets, Packings, sets_of
from models.queues.cells import Reach, cells_by_model
from models.queues.queue_shares import queue_counts
from models.rules.demands import Demand, RoleDemand
from models.rules.giving_way import claim, takes
from models.rules.pod_rules import PodCounts, pod_rules
from models.rules.services import bound, members, open_service
from planner.search.closed_nodes import ClosedNodes, without
from planner.search.free_arrays import Capacity, FreeArrays

Decisions = tuple[GangDecision, ...]
"""A plan: what happens to each gang, in instance order."""

Pods = tuple[PodPlacement, ...]
Key = tuple[int, int, int]
"""(gang, role, index)."""

Counts = tuple[int, ...]
"""Number of pods of each role."""


def counts_of(gang: Gang, pods: Pods) -> Counts:
    """Number of these pods in each role of the gang."""
    found = [0] * len(gang.roles)
    for pod in pods:
        found[pod.role] += 1
    return tuple(found)


Tenants = dict[Key, tuple[PodPlacement, bool]]
"""(pod, whether it already runs there) by gang, role and index."""


@dataclass(slots=True)
class NodeSpace:
    """One node, replaced when its ``tenants`` change: spaces of one cluster share those of most nodes.

    ``stays``, ``known``: masks of GPUs held by pods that stay, and by any pod. ``unknown``: GPUs
    held or unhealthy, of unknown index. ``raw``: healthy GPUs in no pod, negative if pods that stay
    hold more. ``free``: GPUs that may be given. ``left``: free amount of each limiting resource.
    ``blind``: no GPU indices are given here. ``kept``: mask of releasable GPUs that stay shared.
    """

    tenants: Tenants
    stays: int
    known: int
    mask: int
    unknown: int
    raw: int
    free: int
    left: dict[str, int]
    blind: bool
    kept: int


@once_with
def _latest(_cluster: Cluster) -> list[FreeSpace]:
    """The space that was made last on a cluster: the next one mostly differs little."""
    return []


class FreeSpace:
    """The plan so far.

    ``pods[g]``: pods of gang g, changed only through ``set``. ``original[g]``: where they run
    now. ``arrays``: the free space of all nodes at once. ``pod_counts``: what rules about pods count.
    ``queues``: what gangs in queues hold, None where there are no queues. ``reach``: places of the cells of
    queues, where there are any. ``closed``: nodes that rules about whole domains close. ``key``: what, beside
    gangs and pods, the nodes follow from.
    """

    def __init__(self, instance: Instance, decisions: Sequence[GangDecision]) -> None:
        self.instance = instance
        self.pods: list[Pods] = [decision.pods for decision in decisions]
        self.original = instance.standing
        self.by_node: list[NodeSpace]
        self.usable: list[bool]
        self.arrays: FreeArrays
        self._places: dict[int, dict[tuple[int, int], PodPlacement]] = {}
        self._reshaping = reshaping(instance)
        self._wanted: dict[int, tuple[int, dict[str, int]]] = {}
        self._beside: dict[int, Reshaping] = {}
        self._sets: Packings = {}
        self._sets_of: dict[int, GpuSets] = {}
        self._journal: list[tuple[int, Pods]] = []
        self._seat_all()
        self.queues = queue_counts(instance, self.pods)
        self.rules = pod_rules(instance)
        self.pod_counts = PodCounts(self.rules)
        self.closed = ClosedNodes(instance)
        for gang in range(len(self.pods)) if self.closed.active else self.rules.of:
            self._recount(gang, (), self.pods[gang])
        celled = bool(cells_by_model(instance))
        self.reach = Reach(instance, enumerate(self.pods)) if celled else None

    def _seat_all(self) -> None:
        """The nodes with all pods: those of the last space with what differs."""
        instance, latest = self.instance, _latest(self.instance.cluster)
        self.key = (len(self.pods), instance.policy.gpu_binding, instance.policy.node_selector)
        known = latest[0] if latest else None  # once: other threads make spaces, too
        gangs: Sequence[Gang | None] = [None] * len(self.pods)
        seated: Sequence[Pods] = [()] * len(self.pods)
        if known is not None and known.key == self.key:
            self._take_over(known)
            gangs, seated = known.instance.gangs, known.pods
        else:
            self._empty()
        touched: dict[int, Tenants] = {}
        pairs = zip(instance.gangs, gangs, self.pods, seated, strict=True)
        for index, (gang, other, now, before) in enumerate(pairs):
            if gang is not other or (now is not before and now != before):
                self._seat(touched, index, before, now)
        self._recount_nodes(touched)
        kept = copy(self)
        self.pods = list(self.pods)
        self._take_over(kept)
        latest[:] = [kept]

    def _take_over(self, other: FreeSpace) -> None:
        """Have the nodes of another space, as they are now."""
        self.by_node, self.arrays = list(other.by_node), other.arrays.copy()
        self.usable = other.usable
        self._wanted, self._beside = dict(other._wanted), dict(other._beside)

    def _empty(self) -> None:
        """Have the nodes without pods."""
        cluster = self.instance.cluster
        self.usable = [self.instance.schedulable(node) for node in cluster.nodes]
        alike: dict[object, NodeSpace] = {}
        self.by_node = []
        for n, (node, usable) in enumerate(zip(cluster.nodes, self.usable, strict=True)):
            own = n if n in self._reshaping else None
            sick = node.unknown_unhealthy
            kind = (id(node.model), node.givable, sick, node.allocatable, usable, own)
            if kind not in alike:
                alike[kind] = self._count(n, {})
            self.by_node.append(alike[kind])
        free, left = [one.free for one in self.by_node], [one.left for one in self.by_node]
        self.arrays = FreeArrays(cluster, free, left, self._reshaping)

    def _seat(
        self,
        touched: dict[int, Tenants],
        gang: int,
        gone: Sequence[PodPlacement],
        come: Sequence[PodPlacement],
    ) -> None:
        """Change tenants of nodes, each of which gets its own at first."""
        for pod in (*gone, *come):
            if pod.node not in touched:
                touched[pod.node] = dict(self.by_node[pod.node].tenants)
        for pod in gone:
            del touched[pod.node][gang, pod.role, pod.index]
        for pod in come:
            touched[pod.node][gang, pod.role, pod.index] = (pod, self._stays(gang, pod))

    def set(self, gang: int, pods: Iterable[PodPlacement]) -> None:
        old, new = self.pods[gang], tuple(sorted(pods, key=lambda p: (p.role, p.index)))
        if old == new:
            return
        self._journal.append((gang, old))
        self._replace(gang, old, new)

    def mark(self) -> int:
        return len(self._journal)

    def undo(self, mark: int) -> None:
        while len(self._journal) > mark:
            gang, old = self._journal.pop()
            self._replace(gang, self.pods[gang], old)

    def put_back(self, gang: int, pods: Pods) -> bool:
        """Give a gang these pods if there is room for all of them; returns whether there is."""
        mark = self.mark()
        self.set(gang, pods)
        if all(self.is_valid(n) for n in {pod.node for pod in pods}):
            return True
        self.undo(mark)
        return False

    def gpu_models(self, gang: int, role: RoleDemand) -> tuple[str, ...]:
        """The GPU models of which the pods of a role must choose one; none if there is no choice."""
        if not role.gpus or self.instance.gangs[gang].roles[role.role].mix_models:
            return ()
        found = self.instance.gpu_names(role.nodes)
        return tuple(sorted(found)) if len(found) > 1 else ()

    def service_models(self, gang: int) -> frozenset[str]:
        """The GPU model of what its service has, its own pods too, if none of its gangs runs now."""
        key = open_service(self.instance, self.instance.gangs[gang])
        gangs = () if key is None else members(self.instance)[key]
        decided = ((i, self.pods[i]) for i in gangs if self.pods[i])
        for index, pods in decided:
            roles = self.instance.gangs[index].roles
            nodes = frozenset(pod.node for pod in pods if bound(roles[pod.role]))
            if nodes:
                return self.instance.gpu_names(nodes)
        return frozenset()

    def capacity(self, gang: int, role: RoleDemand, model: str | None) -> Capacity:
        """Where pods of a role fit; those that must choose a GPU model, on ``model`` or else the first."""
        models = self.gpu_models(gang, role)
        own = (model if model in models else models[0]) if models and model is not None else None
        return self.arrays.of_role(role, own)

    def _gpu_sets(self, n: int) -> GpuSets:
        """The sets of GPUs of a node. Not for blind nodes."""
        if n not in self._sets_of:
            node = self.instance.cluster.nodes[n]
            room = Room(node.givable, 0, node.gpus, (), blind=False)
            self._sets_of[n] = sets_of(node, room, packings=self._sets)
        return self._sets_of[n]

    def pick(self, n: int, gpus: int) -> list[int] | None:
        """Indices of free GPUs, the fastest set on a mesh; None if the node decides."""
        node_space = self.by_node[n]
        if node_space.blind:
            return None
        chosen = self._gpu_sets(n).fastest(
            node_space.mask,
            gpus,
            lambda kind: (kind.inside or Fraction(0), kind.network or Fraction(0)),
        )
        assert chosen is not None
        return list(bits(chosen))

    def is_valid(self, n: int) -> bool:
        """Whether the pods that the plan adds fit next to the pods that stay.

        Staying pods alone are always valid.
        """
        node_space, node = self.by_node[n], self.instance.cluster.nodes[n]
        added = [(key, pod) for key, (pod, stays) in node_space.tenants.items() if not stays]
        if not added:
            return True
        held = node_space.stays | node_space.kept
        for _, pod in added:
            if (pod.gpus or 0) & (held | ~node.givable):
                return False
            held |= pod.gpus or 0
        roles = [self.instance.gangs[key[0]].roles[key[1]] for key, _ in added]
        if node_space.raw < 0 and any(role.gpus for role in roles):
            return False
        requested = {name for role in roles for name, amount in role.requests if amount} | {PODS}
        return all(node_space.left.get(resource, 0) >= 0 for resource in requested)

    def stale_indices(self, n: int) -> tuple[int, ...]:
        """Gangs whose placed pods name GPUs on a blind node, or lack indices on another."""
        node_space = self.by_node[n]
        found = set()
        for (gang, role, _), (pod, stays) in node_space.tenants.items():
            if stays or not self.instance.gangs[gang].roles[role].gpus:
                continue
            if (pod.gpus is None) != node_space.blind and not (
                node_space.blind and not node_space.unknown
            ):
                found.add(gang)
        return tuple(sorted(found))

    def arrivals(self, n: int, victim: int) -> Iterator[int]:
        """Gangs to which this one gives way that put a new pod on the node."""
        for (gang, role, _), (pod, _) in self.by_node[n].tenants.items():
            gpus = self.instance.gangs[gang].roles[role].uses_gpus
            own = claim(self.instance, gang)
            before = self._before(gang, pod)
            new = before is None or before.node != n
            if new and takes(self.instance, own, victim, n, gpus=gpus):
                yield gang

    def decision(self, gang: int) -> GangDecision:
        """The decision for the gang, without a reason."""
        return outcome(self.instance, gang, self.pods[gang])

    def _replace(self, gang: int, old: Pods, new: Pods) -> None:
        kept, touched = set(old) & set(new), dict[int, Tenants]()
        gone, come = ([pod for pod in pods if pod not in kept] for pods in (old, new))
        self._seat(touched, gang, gone, come)
        self.pods[gang] = new
        self._recount(gang, old, new)
        if self.queues is not None:
            self.queues.add(gang, old, -1)
            self.queues.add(gang, new)
        if self.reach is not None:
            self.reach.add(gang, old, -1)
            self.reach.add(gang, new)
        self._recount_nodes(touched)

    def _recount(self, gang: int, old: Pods, new: Pods) -> None:
        """Count the pods of a gang for the rules about pods and about whole domains."""
        ruled = gang in self.rules.of
        for pods, sign in ((old, -1), (new, 1)) if ruled or self.closed.active else ():
            for pod in pods:
                if ruled:
                    self.pod_counts.add(gang, pod, new=not self._stays(gang, pod), pods=sign)
                if self.closed.active:
                    self.closed.add(gang, pod, sign)

    def new_pods(self, gang: int) -> Pods:
        """Its pods that do not stay as they are."""
        return tuple(pod for pod in self.pods[gang] if not self._stays(gang, pod))

    def keeps_queue_rules(self, gang: int, pods: Pods) -> bool:
        """Whether limits and guarantees of queues allow these pods, too."""
        return self.queues is None or self.queues.allow(gang, pods)

    def keeps_pod_rules(self, gang: int, pods: Pods) -> bool:
        """Whether the rules about pods of the gang hold with these pods added."""
        if gang not in self.rules.of:
            return True
        self._recount(gang, (), pods)
        kept = not any(self.pod_counts.broken(rule) for rule in self.rules.of[gang])
        self._recount(gang, pods, ())
        return kept

    def keeps_cells(self, gang: int, pods: Pods) -> bool:
        """Whether the cells of queues stay reachable with these pods added."""
        if self.reach is None or not self.instance.gangs[gang].firm_on_gpus:
            return True
        return self.reach.allows(gang, pods)

    def beside_cells(self, demand: Demand) -> Demand | None:
        """The demand on nodes where its pods are in the way of no cells; None if these are all."""
        if self.reach is None or not self.instance.gangs[demand.gang].firm_on_gpus:
            return None
        closed = self.reach.closed(demand.gang)
        roles = (
            replace(role, nodes=without(role.nodes, closed)) if role.gpus else role
            for role in demand.roles
        )
        return replace(demand, roles=tuple(roles)) if closed else None

    def _before(self, gang: int, pod: PodPlacement) -> PodPlacement | None:
        """Where the pod stands now."""
        if gang not in self._places:
            self._places[gang] = {(p.role, p.index): p for p in self.original[gang]}
        return self._places[gang].get((pod.role, pod.index))

    def _stays(self, gang: int, pod: PodPlacement) -> bool:
        return self._before(gang, pod) == pod

    def _count(self, n: int, tenants: Tenants) -> NodeSpace:
        node, stays, known, added, kept = self.instance.cluster.nodes[n], 0, 0, 0, 0
        unknown = node.unknown_unhealthy
        left = dict(node.allocatable)
        for (gang, number, _), (pod, standing) in tenants.items():
            role = self.instance.gangs[gang].roles[number]
            if pod.gpus is None:
                unknown += role.gpus if standing else 0
                added += 0 if standing else role.gpus
            else:
                known |= pod.gpus
                stays |= pod.gpus if standing else 0
            kept |= role.keeps_on(n)
            for resource, amount in ((PODS, 1), *role.requests):
                if resource in left:
                    left[resource] -= amount
        mask = node.givable & ~(known | kept)
        raw = mask.bit_count() - unknown - added
        if n in self._reshaping:
            raw = self._reshape(n, raw, left, kept)
        free = max(0, raw) if self.usable[n] else 0
        blind = is_blind(self.instance, node, unknown)
        return NodeSpace(tenants, stays, known, mask, unknown, raw, free, left, blind, kept)

    def _reshape(self, n: int, raw: int, left: dict[str, int], kept: int) -> int:
        """Take off what pods with instances take, and say how many more instances there can be."""
        node = self.instance.cluster.nodes[n]
        one = self._beside[n] = beside(self._reshaping[n], node, kept)
        offered = dict(node.allocatable)
        used = {r: offered[r] - left[r] for r in one.resources}
        self._wanted[n] = (raw, used)
        raw, more = one.left(raw, used)
        left.update(more)
        return raw

    def _recount_nodes(self, touched: Mapping[int, Tenants]) -> None:
        for n, tenants in touched.items():
            one = self.by_node[n] = self._count(n, tenants)
            self.arrays.change(n, one.free, one.left)

    def left_beside(
        self, n: int, gpus: int, used: Mapping[str, int]
    ) -> tuple[int, Mapping[str, int]] | None:
        """GPUs and instances left on a node beside so much more; None where no GPU may be partitioned."""
        one = self._beside.get(n)
        if one is None:
            return None
        idle, _ = self._wanted[n]
        return one.left(idle - gpus, self._used_beside(n, used))

    def holds(self, pods: Iterable[PodPlacement], roles: Sequence[Role]) -> bool:
        """Whether GPUs that may be partitioned have room for these pods, too, whole and in parts."""
        gpus, used, kept = Counter[int](), dict[int, Counter[str]](), Counter[int]()
        for pod in pods if self._reshaping else ():
            gpus[pod.node] += roles[pod.role].gpus
            used.setdefault(pod.node, Counter()).update(dict(roles[pod.role].requests))
            kept[pod.node] |= roles[pod.role].keeps_on(pod.node)
        return all(self._holds(n, gpus[n], own, kept[n]) for n, own in used.items())

    def _holds(self, n: int, gpus: int, used: Mapping[str, int], kept: int) -> bool:
        """``kept``: mask of GPUs that stay shared with these pods."""
        one, here = self._beside.get(n), self.by_node[n]
        if one is None:
            return True
        if kept & here.known:
            return False  # a GPU that was shared is given whole
        again = kept & ~here.kept
        if again:
            one = beside(self._reshaping[n], self.instance.cluster.nodes[n], here.kept | again)
        idle = self._wanted[n][0] - gpus - again.bit_count()
        return idle >= one.taken(self._used_beside(n, used), max(0, idle))

    def _used_beside(self, n: int, used: Mapping[str, int]) -> dict[str, int]:
        """What pods there use of instances and parts, and so much more."""
        wanted = self._wanted[n][1]
        return {resource: wanted[resource] + used.get(resource, 0) for resource in wanted}


SET_ASIDE = Hold("Unsupported", "set aside")


class MaximalSpace:
    """The most space a gang could ever find: every gang that any plan may stop or move is removed.

    A gang that may be stopped for some higher gang is removed for all, since what that gang leaves
    over may go to a third. So a gang that does not fit here fits in no plan. ``removed``: the
    running gangs that are removed.
    """

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        comes = {
            claim(instance, index)
            for index, gang in enumerate(instance.gangs)
            if (  # some plan puts a new pod of it on a node
                gang.movable or gang.elastic or index in instance.incomplete
                if gang.running
                else gang.hold is None
            )
        }
        highest = max(comes, key=lambda own: own.priority, default=None)
        owners = [own for own in comes if own.rights]
        guarded = guards(instance).fixed
        self._removable = frozenset(
            index
            for index, gang in enumerate(instance.gangs)
            if gang.running
            and (
                (
                    gang.preemptible
                    and highest is not None
                    and any(takes(instance, own, index) for own in (highest, *owners))
                )
                or (gang.movable and index not in instance.incomplete)
            )
            and (index not in guarded or gang.elastic)  # a guarded one may still shrink
            and index not in protected(instance)
        )
        self.removed = self._removable
        decisions = list(base_decisions(instance))
        for index in self.removed:
            decisions[index] = GangDecision("preempt")
        self.space = FreeSpace(instance, decisions)

    def exempt(self, gang: int) -> None:
        """Let this gang, and only this one, keep its pods."""
        if gang not in self._removable and self.removed == self._removable:
            return
        for index in self._removable:
            self.space.set(index, self.space.original[index] if index == gang else ())
        self.removed = self._removable - {gang}

    def alone(self) -> Instance:
        """The instance without the pods of the removed gangs, indices unchanged."""
        gangs = tuple(
            replace(gang, pods=(), hold=SET_ASIDE) if index in self.removed else gang
            for index, gang in enumerate(self.instance.gangs)
        )
        return replace(self.instance, gangs=gangs)
