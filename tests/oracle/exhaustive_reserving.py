"""Rule 2.18 in tiny instances: a plan keeps the reservations that it states, whoever else starts.

Promises: the words of the rule about gangs that come, and about what is left when a reservation begins; own
code. Which gangs hold reservations, when, where and beside whom is given; no GPU may be of unknown index.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import combinations
from operator import or_
from typing import Any

from exhaustive_gangs import Option, Pods, now, pod_counts, run_time, running, standing, whole
from exhaustive_queues import NOTHING, Part, Promises, together

from models.instance.gang import Gang
from models.instance.instance import Instance
from models.instance.solution import PodPlacement
from models.units import epoch_seconds

# Rule 2.18 in tiny instances: a plan keeps the reservations that it states, whoever else starts.


@dataclass(frozen=True)
class Reserved:
    """What gang ``holder`` is promised: to start then with these pods. ``beside``: who need not give way."""

    holder: int
    start: int
    pods: tuple[PodPlacement, ...]
    beside: tuple[int, ...] = ()

    @property
    def nodes(self) -> tuple[int, ...]:
        return tuple(sorted({pod.node for pod in self.pods}))


Obstacles = tuple[tuple[tuple[int, tuple[int, ...]], ...], ...]
"""For each reservation and each of its nodes, what is held there when it begins: GPUs, and each resource."""

Kept = tuple[Obstacles, frozenset[int], tuple[Part, ...]]
"""With the reservations (positions) whose holders wait, and what queues hold when each begins."""


def stated(instance: Instance, document: dict[str, Any]) -> tuple[Reserved, ...]:
    """The reservations of a plan document."""
    nodes = {node.name: n for n, node in enumerate(instance.cluster.nodes)}
    gangs = {"/".join(gang.key): g for g, gang in enumerate(instance.gangs)}
    found = []
    for g, entry in enumerate(document["spec"]["gangs"]):
        if entry.get("reserved") is None:
            continue
        roles = [role.name for role in instance.gangs[g].roles]
        pods = tuple(
            PodPlacement(
                roles.index(pod["role"]),
                pod["index"],
                nodes[pod["node"]],
                sum(1 << gpu for gpu in pod["gpus"] or ()),
            )
            for pod in entry["reserved"]["pods"]
        )
        beside = tuple(gangs[name] for name in entry["reserved"].get("beside", ()))
        found.append(Reserved(g, epoch_seconds(entry["reserved"]["start"]), pods, beside))
    return tuple(found)


class Reserving:
    """The reservations of one plan."""

    def __init__(self, instance: Instance, reserved: Sequence[Reserved]) -> None:
        self.instance = instance
        self.all = tuple(reserved)
        self.now = now(instance)
        self.promises = Promises(instance) if instance.queues and reserved else None
        self.within = self.promises.within if self.promises else set[tuple[str, str]]()
        if reserved and not self._known():
            raise ValueError("the exhaustive planner reserves no GPUs of unknown index")

    def _known(self) -> bool:
        pods = [(gang, pod) for gang in self.instance.gangs for pod in standing(gang)]
        return (
            self.instance.policy.gpu_binding == "exact"
            and not any(node.unknown_unhealthy for node in self.instance.cluster.nodes)
            and not any(gang.roles[pod.role].gpus and pod.gpus is None for gang, pod in pods)
        )

    @property
    def nothing(self) -> Kept:
        """Before any gang is taken."""
        return (
            tuple(
                tuple((0, (0,) * len(self._resources(n))) for n in one.nodes) for one in self.all
            ),
            frozenset(),
            (NOTHING,) * len(self.all),
        )

    def may_come(self, g: int, pods: Pods) -> bool:
        """Part 1: whether pods that are placed or moved leave every reserved node in time."""
        gang = self.instance.gangs[g]
        return all(
            g in (one.holder, *one.beside)
            or not {n for _, _, n in pods} & set(one.nodes)
            or (
                gang.expected_duration_s is not None
                and self.now + gang.expected_duration_s <= one.start
            )
            or (self._yields(gang, one, self.now) and one.start - self.now >= 600)
            or self._goes_first(g, one)
            for one in self.all
        )

    def _goes_first(self, g: int, one: Reserved) -> bool:
        """Whether it is within a guarantee, and the holder is not; those that have to start find room."""
        gang, holder = self.instance.gangs[g], self.instance.gangs[one.holder]
        in_turn = {own.holder for own in self.all if not own.pods}
        first = gang.key in self.within and holder.key not in self.within
        return first and not running(gang) and g not in in_turn

    def _yields(self, gang: Gang, one: Reserved, begun: int | None) -> bool:
        """Whether it may be stopped for the holder, which is not before its time to run is over."""
        holder = self.instance.gangs[one.holder]
        if not gang.preemptible or gang.priority >= holder.priority:
            return False
        if gang.key in self.within and holder.key not in self.within:
            return False
        lasts = run_time(self.instance, gang)
        return begun is None or not lasts or begun + lasts <= one.start

    def with_gang(
        self,
        g: int,
        option: Option,
        new: Pods,
        taken: Sequence[int],
        before: Kept,
        part: Part = NOTHING,
    ) -> Kept:
        """With what one more gang holds when the reservations begin.

        ``taken``: GPUs by node; ``part``: what the gang adds to the queues.
        """
        obstacles, waiting, parts = before
        in_queues = list(parts)
        gang = self.instance.gangs[g]
        stays = [pod for pod in standing(gang) if (pod.role, pod.index) in option.stays]
        end = self._end(gang, option)
        found = []
        for number, (one, held) in enumerate(zip(self.all, obstacles, strict=True)):
            if one.holder == g and not option.new:
                waiting |= {number}
            gone = one.holder == g or (end is not None and end <= one.start)
            if gone or self._yields(gang, one, self._begun(gang, option, first=True)):
                found.append(held)
                continue
            in_queues[number] = together(parts[number], part)
            where = [(pod.role, pod.node) for pod in stays] + [(r, n) for r, _, n in new]
            more = []
            for n, (mask, amounts) in zip(one.nodes, held, strict=True):
                standing_there = [pod.gpus or 0 for pod in stays if pod.node == n]
                own = self._asked(n, [(gang, r) for r, at in where if at == n])
                total = tuple(a + b for a, b in zip(amounts, own, strict=True))
                more.append((reduce(or_, standing_there, mask | taken[n]), total))
            found.append(tuple(more))
        return tuple(found), waiting, tuple(in_queues)

    def _begun(self, gang: Gang, option: Option, *, first: bool = False) -> int | None:
        """When it started, for all that is known: now, if it starts, is completed or moves.

        ``first``: its first pod, not its last.
        """
        keys = [(pod.role, pod.index) for pod in standing(gang)]
        torn = running(gang) and not whole(gang, keys)
        starts = bool(option.new) and (torn or option.moved or not running(gang))
        if first and not starts and gang.runs_since is not None:
            return gang.runs_since
        return self.now if starts else gang.started_at

    def _end(self, gang: Gang, option: Option) -> int | None:
        lasts = gang.expected_duration_s
        keys = [(pod.role, pod.index) for pod in standing(gang)]
        torn = running(gang) and not whole(gang, keys)
        begun = self._begun(gang, option)
        if lasts is None or begun is None or (torn and not option.new):
            return None
        late = self.now - (begun + lasts)
        return begun + lasts if late < 0 else self.now + max(60, late)

    def hold(self, kept: Kept) -> bool:
        """Parts 2 and 3: whether every holder that waits can start when it is promised."""
        obstacles, waiting, parts = kept
        able = all(
            self._fits(self.all[i], obstacles[i]) and self._may_hold(self.all[i], parts[i])
            for i in waiting
        )
        pairs = combinations((self.all[i] for i in sorted(waiting)), 2)
        return able and not any(self._meet(*sorted(pair, key=lambda r: r.start)) for pair in pairs)

    def _fits(self, one: Reserved, held: Sequence[tuple[int, tuple[int, ...]]]) -> bool:
        if one.start <= self.now:
            return False
        gang = self.instance.gangs[one.holder]
        for n, (mask, amounts) in zip(one.nodes, held, strict=True):
            pods = [pod for pod in one.pods if pod.node == n]
            if any((pod.gpus or 0) & mask for pod in pods):
                return False
            own = self._asked(n, [(gang, pod.role) for pod in pods])
            names = self._resources(n)
            allocatable = dict(self.instance.cluster.nodes[n].allocatable)
            if any(
                b and a + b > allocatable[r] for r, a, b in zip(names, amounts, own, strict=True)
            ):
                return False
        return True

    def _may_hold(self, one: Reserved, part: Part) -> bool:
        """Whether its queues may hold its pods then, beside what they hold."""
        if self.promises is None:
            return True
        pods = []
        for pod in one.pods:
            gpus = pod_counts(self.instance.gangs[one.holder].roles[pod.role])
            pods.append((pod.role, pod.node, gpus, self.promises.odd(pod.node, gpus, pod.gpus)))
        return self.promises.room_for(one.holder, pods, part)

    def _meet(self, first: Reserved, second: Reserved) -> bool:
        """Whether two share a node although the first has not ended when the second starts."""
        lasts = self.instance.gangs[first.holder].expected_duration_s
        over = lasts is not None and first.start + lasts <= second.start
        return bool(set(first.nodes) & set(second.nodes)) and not over

    def _resources(self, n: int) -> list[str]:
        return [name for name, _ in self.instance.cluster.nodes[n].allocatable]

    def _asked(self, n: int, pods: Iterable[tuple[Gang, int]]) -> tuple[int, ...]:
        """Amounts of each resource of a node that pods of these roles take."""
        asked = [{**dict(gang.roles[r].requests), "pods": 1} for gang, r in pods]
        return tuple(sum(one.get(name, 0) for one in asked) for name in self._resources(n))
