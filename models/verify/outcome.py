"""Everything that follows from a case, computed once: changes, usage, figures, free nodes and domains."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar, cast

from models.verify.adaptor import Case
from models.verify.changes import (
    Arrivals,
    Change,
    NodeUse,
    Overlay,
    Usage,
    arrivals_of,
    usage_of,
    usage_with,
)
from models.verify.facts import Facts, Node, Pod, PodKey, uses_gpus
from models.verify.queues import Queues
from models.verify.rates.bandwidth import Bandwidth
from models.verify.rates.group_rates import GroupBandwidths, Ranks, ranked, sound
from models.verify.shares import left_by_all
from models.verify.standing import Figures, GangSpeeds, domains_of

Found = TypeVar("Found")


class Outcome:
    """One plan, worked out. ``changes[i]``, ``bandwidths[i]``, ... belong to ``facts.gangs[i]``."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.facts: Facts = case.facts
        self.changes: Sequence[Change] = tuple(
            stands
            if stated.pods == stands.pods
            else Change.of(stands.gang, stated.label, stated.pods)
            for stands, stated in zip(case.standing.changes, case.gangs, strict=True)
        )

    @cached_property
    def arrivals(self) -> Arrivals:
        return arrivals_of(self.changes)

    @cached_property
    def unable(self) -> frozenset[str]:
        """Labels of the gangs that are said not to be able to start, or to have no claim: no room is held."""
        status = self.case.status
        return frozenset(one.gang for one in status.unable if not one.now).union(status.unclaiming)

    @cached_property
    def no_turn(self) -> frozenset[str]:
        """Labels of those that use up no guarantee: as nodes are these are some more."""
        status = self.case.status
        return frozenset(one.gang for one in status.unable).union(status.unclaiming)

    @cached_property
    def queues(self) -> Queues:
        return Queues(self.facts, self.no_turn)

    @cached_property
    def queue_gpus(self) -> Sequence[Counter[str]]:
        """By gang, GPUs after the plan in all and by model; only where there are queues."""
        return tuple(self.queues.held(c.gang, c.pods.values()) for c in self.changes)

    @cached_property
    def fair_counts(self) -> dict[str, int]:
        """x(q) of the queues that gangs name."""
        found = dict.fromkeys(self.queues.named, 0)
        for change in self.changes:
            if change.gang.queue in found:
                found[change.gang.queue] += self.fair_count(change)
        return found

    def fair_count(self, change: Change) -> int:
        """What the pods of a gang count in x of the queue that it names."""
        name, pairs = change.gang.queue, zip(change.gang.roles, change.by_role, strict=True)
        assert name is not None, "it counts in no queue"
        return sum(len(pods) * self.queues.fair_count(name, role) for role, pods in pairs if pods)

    def gives_way_to(self, change: Change, leaving: Iterable[PodKey]) -> list[Change]:
        """Gangs that come to a node which these pods leave, for which a gang may stop or shrink.

        They are of strictly higher priority, or reclaim what their queue is guaranteed.
        """
        nodes = sorted({change.gang.running_pods[key].node for key in leaving})
        return [
            comer
            for node in nodes
            for comer in self.arrivals.get(node, ())
            if comer.gang.priority > change.gang.priority or self._reclaims(comer, change, node)
        ]

    def _reclaims(self, comer: Change, change: Change, node: int) -> bool:
        if not self.facts.queues:
            return False
        before = comer.gang.running_pods
        gpus = any(
            uses_gpus(comer.gang.roles[pod.role])
            for key, pod in comer.pods.items()
            if pod.node == node and (key not in before or before[key].node != node)
        )
        return self.queues.gives_way(change.gang, comer.gang, node, gpus=gpus)

    @cached_property
    def by_priority(self) -> dict[int, list[Change]]:
        found: defaultdict[int, list[Change]] = defaultdict(list)
        for change in self.changes:
            found[change.gang.priority].append(change)
        return found

    @cached_property
    def by_label(self) -> dict[str, Change]:
        return {change.label: change for change in self.changes}

    @cached_property
    def latest_submission(self) -> int:
        return self.facts.latest_submission()

    def once(self, find: Callable[[Outcome], Found]) -> Found:
        """What a function finds in the outcome, computed when first asked for and kept."""
        if find not in self._kept:
            self._kept[find] = find(self)
        return cast("Found", self._kept[find])

    @cached_property
    def _kept(self) -> dict[object, object]:
        return {}

    @cached_property
    def free(self) -> FreeNodes:
        return free_nodes(self.facts, self.free_gpus)

    @cached_property
    def counting(self) -> dict[object, set[int]]:
        """What no plan changes, filled by its rule: what counts for spreads, gangs that hold room."""
        return {}

    @cached_property
    def usage(self) -> Usage:
        return usage_of(self.facts, self.changes)

    @property
    def checked_uses(self) -> Iterable[tuple[Node, NodeUse]]:
        """Nodes of which the use may break a rule."""
        return zip(self.facts.nodes, self.usage.nodes, strict=True)

    @cached_property
    def free_gpus(self) -> Sequence[int]:
        """By node, what ``usage`` leaves."""
        return [self.usage.free(n, node) for n, node in enumerate(self.facts.nodes)]

    @cached_property
    def idle_shared(self) -> Sequence[tuple[int, int]]:
        """Shared GPUs of which no pod is left, by node and index."""
        return left_by_all(self.facts, ((one.gang, one.pods.values()) for one in self.changes))

    @cached_property
    def models(self) -> Mapping[str, Sequence[int]]:
        """Nodes of every GPU model."""
        found: dict[str, list[int]] = {}
        for n, node in enumerate(self.facts.nodes):
            if node.model is not None:
                found.setdefault(node.model.gpu, []).append(n)
        return found

    @cached_property
    def rates(self) -> GroupBandwidths:
        return GroupBandwidths(self.facts, self.usage)

    def ranks(self, i: int) -> Ranks | None:
        """The stated ranks of a gang; None where there are none that a bandwidth may be taken from."""
        return _usable(self.changes[i], self.case.gangs[i].ranks)

    def _bandwidth(self, i: int) -> Bandwidth:
        return self.rates.of(self.changes[i].gang, self.changes[i].pods, self.ranks(i))

    @cached_property
    def _known(self) -> Sequence[tuple[Bandwidth, Figures] | None]:
        """What is known of gangs that keep their pods."""
        standing = self.case.standing
        each = zip(self.changes, standing.changes, standing.kept, strict=True)
        return tuple(known if change is stands else None for change, stands, known in each)

    @cached_property
    def bandwidths(self) -> Sequence[Bandwidth]:
        return tuple(
            self._bandwidth(i) if one is None else one[0] for i, one in enumerate(self._known)
        )

    @property
    def speeds(self) -> GangSpeeds:
        return self.case.standing.speeds

    @cached_property
    def domains(self) -> Sequence[tuple[int, ...]]:
        """Domains used by all pods of a gang at every level, the node level last; () without pods."""
        return tuple(domains_of(self.facts, change) for change in self.changes)

    @cached_property
    def figures(self) -> Sequence[Figures]:
        return tuple(
            self._figures(i) if one is None else one[1] for i, one in enumerate(self._known)
        )

    def _figures(self, i: int) -> Figures:
        says, bandwidth = self.case.gangs[i].document, self.bandwidths[i]
        share = _settled(bandwidth.share, says.share)
        return Figures(
            _settled(bandwidth.MBps, says.bandwidth),
            share,
            _settled(self.speeds.of(self.changes[i], share), says.speed),
            self.case.standing.by_level(self.domains[i]),
        )

    @cached_property
    def effective_by_gang(self) -> tuple[int, ...]:
        """By gang, what it counts at ``min`` times its speed; 0 for one that does not run whole."""
        return tuple(
            change.gang.counts_at_min * (figures.speed or 0) if change.admitted else 0
            for change, figures in zip(self.changes, self.figures, strict=True)
        )

    @cached_property
    def effective(self) -> int:
        """The same of all gangs that run whole."""
        return sum(self.effective_by_gang)

    @cached_property
    def goodput(self) -> dict[tuple[str, str], int]:
        """w x speed of every gang with pods, by its key."""
        return {
            change.gang.key: change.gang.w * figures.speed
            for change, figures in zip(self.changes, self.figures, strict=True)
            if figures.speed is not None
        }


def _usable(change: Change, stated: Mapping[PodKey, int | None]) -> Ranks | None:
    gang, found = change.gang, dict[PodKey, int]()
    for number, pods in enumerate(change.by_role):
        if pods and ranked(gang, number):
            own = {(pod.role, pod.index): stated[pod.role, pod.index] for pod in pods}
            if not sound(own.values(), gang.roles[number].gpus, len(pods)):
                return None
            found.update((key, rank) for key, rank in own.items() if rank is not None)
    return found or None


def _settled(possible: tuple[int, int] | None, stated: int | None) -> int | None:
    """The one possible value; of several the stated one, or the one nearest to it."""
    if possible is None:
        return None
    low, high = possible
    return min(max(low if stated is None else stated, low), high)


@dataclass(frozen=True, slots=True)
class FreeNodes:
    """Wholly free nodes by g, and how many there could be; wholly free domains likewise.

    A node is wholly free if all g GPUs are, g = the GPUs of the largest node of its GPU model; a
    domain of the innermost level if it has two or more nodes with GPUs and all are wholly free.
    ``domain_gpus``: GPUs of the nodes of wholly free domains.
    """

    nodes: Counter[int]
    nodes_possible: Counter[int]
    domains: int
    domains_possible: int
    domain_gpus: int

    @property
    def value(self) -> int:
        """The tier ``defragment``: GPUs of wholly free nodes, and again those of whole domains."""
        return sum(gpus * count for gpus, count in self.nodes.items()) + self.domain_gpus


def free_nodes(facts: Facts, free: Sequence[int]) -> FreeNodes:
    """What is wholly free after the plan. ``free``: GPUs of every node."""
    largest: dict[str, int] = {}
    for node in facts.nodes:
        if node.model is not None:
            largest[node.model.gpu] = max(largest.get(node.model.gpu, 0), node.gpus)
    nodes: Counter[int] = Counter()
    possible: Counter[int] = Counter()
    innermost = facts.counted[-2] if len(facts.counted) > 1 else None
    members: dict[int, list[tuple[int, bool]]] = {}
    for position, node in enumerate(facts.nodes):
        if node.model is None:
            continue
        gpus = largest[node.model.gpu]
        whole = free[position] == gpus
        nodes[gpus] += whole
        possible[gpus] += node.gpus == gpus
        if innermost is not None:
            members.setdefault(node.domain[innermost], []).append((gpus, whole))
    several = [domain for domain in members.values() if len(domain) > 1]
    whole_domains = [domain for domain in several if all(whole for _, whole in domain)]
    return FreeNodes(
        nodes=nodes,
        nodes_possible=possible,
        domains=len(whole_domains),
        domains_possible=len(several),
        domain_gpus=sum(gpus for domain in whole_domains for gpus, _ in domain),
    )


class Variant(Outcome):
    """``pods``: of the gangs that differ from ``base``, by position.

    A rate that is only known within limits counts as its least.
    """

    def __init__(self, base: Outcome, pods: Mapping[int, Mapping[PodKey, Pod]]) -> None:
        self.base = base
        self.case, self.facts = base.case, base.facts
        self.altered: dict[int, Change] = {}
        for position, own in pods.items():
            old = base.changes[position]
            self.altered[position] = Change.of(old.gang, old.label, dict(sorted(own.items())))
        self.changes = Overlay(base.changes, self.altered)

    @cached_property
    def _usage(self) -> tuple[Usage, set[int]]:
        return usage_with(self.base.usage, self.base.changes, self.altered)

    @cached_property
    def usage(self) -> Usage:
        return self._usage[0]

    @property
    def checked_uses(self) -> Iterable[tuple[Node, NodeUse]]:
        """Those whose use differs. Of a base that breaks no rule, the others break none."""
        return ((self.facts.nodes[n], self.usage.nodes[n]) for n in sorted(self.touched))

    @cached_property
    def free_gpus(self) -> Sequence[int]:
        found = list(self.base.free_gpus)
        for n in self.touched:
            found[n] = self.usage.free(n, self.facts.nodes[n])
        return found

    @cached_property
    def models(self) -> Mapping[str, Sequence[int]]:
        return self.base.models

    @cached_property
    def touched(self) -> set[int]:
        """Nodes whose use differs."""
        return self._usage[1]

    @cached_property
    def affected(self) -> tuple[int, ...]:
        """Gangs whose figures may differ: those that change otherwise, and where GPUs are not known."""
        found = set(self.altered)
        for n in self.touched:
            for nodes in (self.usage.nodes, self.base.usage.nodes):
                found.update(p for p, pod, _ in nodes[n].tenants if pod.gpus is None)
        return tuple(sorted(found))

    @property
    def queues(self) -> Queues:
        return self.base.queues

    @cached_property
    def queue_gpus(self) -> Sequence[Counter[str]]:
        found = {
            i: self.queues.held(change.gang, change.pods.values())
            for i, change in self.altered.items()
        }
        return Overlay(self.base.queue_gpus, found)

    @cached_property
    def latest_submission(self) -> int:
        return self.base.latest_submission

    @cached_property
    def counting(self) -> dict[object, set[int]]:
        return self.base.counting

    @cached_property
    def rates(self) -> GroupBandwidths:
        return self.base.rates.beside(self.usage)

    def ranks(self, i: int) -> Ranks | None:
        """Gangs that differ have ranks that are certainly allowed; better ones may be."""
        return None if i in self.altered else self.base.ranks(i)

    @cached_property
    def fair_counts(self) -> dict[str, int]:
        found = dict(self.base.fair_counts)
        for i, change in self.altered.items():
            name = change.gang.queue
            if name in found:
                found[name] += self.fair_count(change) - self.fair_count(self.base.changes[i])
        return found

    @cached_property
    def bandwidths(self) -> Sequence[Bandwidth]:
        return Overlay(self.base.bandwidths, {i: self._bandwidth(i) for i in self.affected})

    @cached_property
    def domains(self) -> Sequence[tuple[int, ...]]:
        found = {i: domains_of(self.facts, change) for i, change in self.altered.items()}
        return Overlay(self.base.domains, found)

    @cached_property
    def figures(self) -> Sequence[Figures]:
        found = {}
        for i in self.affected:
            bandwidth = self.bandwidths[i]
            share = None if bandwidth.share is None else bandwidth.share[0]
            speed = self.speeds.of(self.changes[i], share)
            found[i] = Figures(
                None if bandwidth.MBps is None else bandwidth.MBps[0],
                share,
                None if speed is None else speed[0],
                None,
            )
        return Overlay(self.base.figures, found)


class Part(Outcome):
    """Some gangs of an outcome, for values that are sums over gangs."""

    def __init__(self, whole: Outcome, positions: Collection[int]) -> None:
        self.case, self.facts = whole.case, whole.facts
        self.changes = tuple(whole.changes[i] for i in positions)
        self.figures = tuple(whole.figures[i] for i in positions)
        self.domains = tuple(whole.domains[i] for i in positions)
        self.latest_submission = whole.latest_submission
        if self.facts.queues:
            self.queues = whole.queues
