"""The audit of an instance: figures of the plans that were searched for it, as the Audit document.

``free``: the instance in which every gang that could move at all moves at no price; the present placement and
the re-plan are both plans of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

from models.documents.audit import (
    AuditCause,
    AuditCluster,
    AuditEffectiveGpus,
    AuditGang,
    AuditGpus,
    AuditLevel,
    AuditLoss,
    AuditMetadata,
    AuditMove,
    AuditMovedGang,
    AuditObjective,
    AuditStart,
    AuditStatus,
    AuditWaiting,
    AuditWhole,
    AuditWholeRegain,
    MoveSearch,
    StartsIf,
)
from models.documents.base import API_VERSION
from models.documents.plan import PlanSearch
from models.instance.instance import Instance
from models.instance.solution import NEVER, GangDecision, PodPlacement, Solution
from models.program.base_state import base_decisions
from models.program.options import standing_gpus
from models.rates.gang_rates import gang_rates
from models.results.audit_figures import best_speeds, effective_bound, fixed_gangs, wholly_free
from models.results.plan import Words, code_alone
from models.units import epoch_seconds, first_of, number
from models.values.effective_gpus import gpus_at_speed
from models.values.relocation import MOVES_UNPROVEN, PlanWorth, plan_worth
from models.values.stranded_gpus import CAUSES, free_gpus, stranded_by_cause
from models.values.tier_values import Evaluation, known_masks

MAX_NAMED = 5
"""Nodes named for one cause."""

DAY_H = 24

MAX_EMBEDDED = 20_000
"""The re-plan is part of the audit of a cluster of at most so many nodes and gangs."""

Changes = Mapping[int, GangDecision]
"""Decisions about the gangs that one move concerns."""


@dataclass(frozen=True, slots=True)
class Found:
    """The plans that an audit compares, with the indices of the instance.

    ``unmoved``: nobody moves; ``allowed``: those that say that they may; ``possible``: the re-plan.
    ``packed``: of the running gangs alone, packed: level to (wholly free, all); ``most_whole``: level to the
    most that may be wholly free. ``moves``: each what it changes in ``unmoved``, the one that regains most
    first. ``few``: regains as much as the re-plan with fewer restarts.
    """

    unmoved: Solution
    allowed: Solution
    possible: Solution
    packed: Mapping[str, tuple[int, int]]
    most_whole: Mapping[str, int]
    moves: Sequence[Changes]
    few: Sequence[GangDecision]


def thousandths(permille: int | Fraction) -> float:
    """GPUs of permille-GPU: at most three digits."""
    return number(Fraction(round(Fraction(permille)), 1000))


class AuditWriter:
    """Writes the audit of one instance. ``stated``: the instance as it was read; ``free``: see above."""

    def __init__(
        self, stated: Instance, free: Instance, found: Found, words: Words = code_alone
    ) -> None:
        self._words = words
        self._stated = stated
        self._free = free
        self._found = found
        self._base = base_decisions(free)
        self._nodes = [node.name for node in free.cluster.nodes]
        self._present = Evaluation(free, self._base)
        self._replanned = Evaluation(free, found.possible.decisions)
        self._best = best_speeds(free)
        self._fixed = fixed_gangs(stated)

    def compose(
        self,
        *,
        name: str,
        created_at: str,
        generator: str,
        plan: dict[str, Any],
        remarks: Sequence[str] = (),
    ) -> dict[str, Any]:
        """The document. ``plan``: of the re-plan; it becomes part of the audit unless it is large."""
        metadata = AuditMetadata.model_construct(
            name=name, created_at=epoch_seconds(created_at), generator=generator
        )
        found, search = self._found, self._found.possible
        status = AuditStatus.model_construct(
            gpus=self._gpus(),
            stranded_why=self._causes(),
            effective_gpus=self._effective,
            lost=self._lost(),
            gangs=self._gangs(),
            whole=self._whole(),
            waiting=self._waiting(),
            moves=tuple(self._move(changes) for changes in found.moves),
            move_search=self._move_search(),
            whole_regain=self._whole_regain(),
            objectives=self._objectives(),
            search=PlanSearch.of(
                search, seed=self._free.policy.solve.seed, effort=round(search.effort, 3)
            ),
            notes=self._notes(),
            remarks=tuple(remarks),
        ).to_json()
        if len(self._nodes) + len(self._free.gangs) <= MAX_EMBEDDED:
            status["plan"] = plan
        return {
            "apiVersion": API_VERSION,
            "kind": "Audit",
            "metadata": metadata.to_json(),
            "cluster": self._cluster().to_json(),
            "status": status,
        }

    def _cluster(self) -> AuditCluster:
        cluster = self._free.cluster
        levels = (
            AuditLevel.model_construct(
                level=cluster.level_name(level), domains=len(cluster.domains[level])
            )
            for level in range(cluster.node_level + 1)
        )
        return AuditCluster.model_construct(
            name=cluster.name,
            nodes=len(cluster.nodes),
            gpus=sum(node.gpus for node in cluster.nodes),
            levels=tuple(levels),
        )

    @cached_property
    def _stranded(self) -> dict[str, dict[int, Fraction]]:
        return stranded_by_cause(self._stated, base_decisions(self._stated))

    def _stranded_permille(self) -> list[tuple[str, int]]:
        """Permille-GPU of every cause, which add up to the total of all as it is stated."""
        return [
            (cause, round(1000 * sum(nodes.values(), Fraction(0))))
            for cause, nodes in self._stranded.items()
        ]

    def _gpus(self) -> AuditGpus:
        nodes = self._free.cluster.nodes
        installed = sum(node.whole_gpus for node in nodes)
        free = sum(free_gpus(self._stated, base_decisions(self._stated)).unheld)
        return AuditGpus.model_construct(
            installed=installed,
            healthy=sum(node.healthy_gpus + len(node.shared) for node in nodes),
            held=installed - free,
            free=free,
            stranded=thousandths(sum(permille for _, permille in self._stranded_permille())),
        )

    def _causes(self) -> tuple[AuditCause, ...]:
        found = []
        for cause, permille in self._stranded_permille():
            nodes = sorted(
                self._stranded[cause].items(), key=lambda pair: (-pair[1], self._nodes[pair[0]])
            )
            names = first_of([self._nodes[n] for n, _ in nodes], MAX_NAMED)
            found.append(
                AuditCause.model_construct(
                    cause=cause,
                    gpus=thousandths(permille),
                    nodes=len(nodes),
                    detail=f"{CAUSES[cause]}: {names}",
                )
            )
        return tuple(sorted(found, key=lambda one: -one.gpus))

    @cached_property
    def _before(self) -> list[int]:
        return gpus_at_speed(self._present)

    @cached_property
    def _after(self) -> list[int]:
        return gpus_at_speed(self._replanned)

    def _sum_of(self, solution: Solution) -> int:
        return sum(gpus_at_speed(Evaluation(self._free, solution.decisions)))

    @cached_property
    def _unmoved(self) -> int:
        return self._sum_of(self._found.unmoved)

    @cached_property
    def _most_unmoved(self) -> int:
        """What no plan exceeds in which nothing moves: running gangs keep their speeds."""
        lines = enumerate(self._present.lines)
        best = {**self._best, **{i: one.speed or 0 for i, one in lines if one.admitted}}
        return effective_bound(self._free, self._found.unmoved, best)

    @cached_property
    def _effective(self) -> AuditEffectiveGpus:
        before, after = sum(self._before), sum(self._after)
        return AuditEffectiveGpus.model_construct(
            before=self._effective_gpus(before),
            unmoved=self._effective_gpus(self._unmoved),
            allowed=self._effective_gpus(self._sum_of(self._found.allowed)),
            possible=self._effective_gpus(after),
            bound=self._effective_gpus(
                max(after, effective_bound(self._free, self._found.possible, self._best))
            ),
        )

    def _effective_gpus(self, permille: int) -> float:
        """Effective GPUs of what they count in permille."""
        return number(Fraction(permille, 1000 * self._free.gpu_unit))

    def _lost(self) -> AuditLoss:
        before, after = self._before, self._after
        regained = sum(after) - sum(before)
        at_most = max(
            regained, effective_bound(self._free, self._found.possible, self._best) - sum(before)
        )
        running = [i for i, one in enumerate(self._present.lines) if one.admitted]
        slow = sum(after[i] - before[i] for i in running)
        waiting = sum(after) - sum(after[i] for i in running)
        startable = self._unmoved - sum(before)
        allowed = self._sum_of(self._found.allowed) - sum(before)
        stranded, unit = sum(n for _, n in self._stranded_permille()), self._free.gpu_unit
        return AuditLoss.model_construct(
            gpus=self._effective_gpus(max(0, regained)),
            at_most=self._effective_gpus(max(0, at_most)),
            slow=self._effective_gpus(slow),
            waiting=self._effective_gpus(waiting),
            startable=self._effective_gpus(max(0, startable)),
            startable_at_most=self._effective_gpus(
                max(0, startable, self._most_unmoved - sum(before))
            ),
            placement=self._effective_gpus(max(0, regained - max(0, startable))),
            allowed=self._effective_gpus(max(0, allowed)),
            by_moves=self._effective_gpus(
                sum(self._regained(changes) for changes in self._found.moves)
            ),
            money_per_day=self._money(Fraction(max(0, regained), unit)),
            startable_money_per_day=self._money(Fraction(max(0, startable), unit)),
            placement_money_per_day=self._money(
                Fraction(max(0, regained - max(0, startable)), unit)
            ),
            money_per_day_at_most=self._money(Fraction(max(0, at_most), unit)),
            stranded_money_per_day=self._money(stranded),
        )

    def _money(self, permille: int | Fraction) -> float | None:
        """What so much of a GPU costs for a day, to a hundredth."""
        price = self._stated.policy.gpu_hour_price
        if price is None:
            return None
        return number(Fraction(round(price * permille * DAY_H / 10), 100))

    def _gangs(self) -> tuple[AuditGang, ...]:
        running = [i for i, gang in enumerate(self._free.gangs) if gang.running]
        found = [self._gang(index) for index in running]
        return tuple(sorted(found, key=lambda one: (-one.lost_gpus, one.gang)))

    def _gang(self, index: int) -> AuditGang:
        gang, line = self._free.gangs[index], self._present.lines[index]
        after = self._replanned.lines[index]
        cluster, value = self._free.cluster, line.value
        pods = line.decision.pods
        _, best = gang_rates(self._free, gang, pods, self._known)
        bandwidth = None if value is None else value.bandwidth
        speed = line.speed if line.admitted else None
        lost = gang.least_units * (self._best[index] - speed) if speed is not None else 0
        domains = () if value is None else value.domains
        return AuditGang.model_construct(
            gang="/".join(gang.key),
            priority=gang.own_priority,
            gpus=self._free.in_gpus(standing_gpus(self._free, index)),
            bandwidth=None if bandwidth is None else int(bandwidth),
            best=None if bandwidth is None or best is None else int(best),
            share=None if value is None else value.share,
            speed=speed,
            best_speed=self._best[index] if line.admitted else None,
            lost_gpus=self._effective_gpus(lost),
            replan_speed=after.speed if after.admitted else None,
            regains_gpus=self._effective_gpus(self._after[index] - self._before[index]),
            nodes=self._names(pods),
            domains={cluster.level_name(level): used for level, used in enumerate(domains)},
            movable=self._stated.gangs[index].movable,
            complete=line.admitted,
            unknown_gpus=any(pod.gpus is None for pod in pods),
            fixed=self._fixed.get(index),
        )

    @cached_property
    def _known(self) -> list[int]:
        return known_masks(self._free, self._base)

    def _names(self, pods: Iterable[PodPlacement]) -> tuple[str, ...]:
        """Names of the nodes of these pods, sorted."""
        return tuple(self._nodes[n] for n in sorted({pod.node for pod in pods}))

    def _whole(self) -> tuple[AuditWhole, ...]:
        present = wholly_free(self._free, self._base)
        found = []
        for level, (now, domains) in present.items():
            possible = max(now, self._found.packed.get(level, (0, 0))[0])
            found.append(
                AuditWhole.model_construct(
                    level=level,
                    now=now,
                    possible=possible,
                    at_most=max(possible, self._found.most_whole.get(level, domains)),
                    domains=domains,
                )
            )
        return tuple(found)

    def _waiting(self) -> tuple[AuditWaiting, ...]:
        lines = self._present.lines
        waiting = [i for i, one in enumerate(lines) if not one.admitted]
        found = []
        for index in sorted(waiting, key=lambda i: (-self._free.gangs[i].priority, i)):
            gang = self._free.gangs[index]
            starts_if = self._starts_if(index)
            reason = self._found.unmoved.decisions[index].reason
            moves = [
                n
                for n, changes in enumerate(self._found.moves, 1)
                if index in changes and changes[index].pods and starts_if != "now"
            ]
            found.append(
                AuditWaiting.model_construct(
                    gang="/".join(gang.key),
                    priority=gang.own_priority,
                    gpus=self._free.in_gpus(gang.least_units),
                    starts_if=starts_if,
                    moves=tuple(moves),
                    reason=None if starts_if == "now" or reason is None else self._words(reason),
                )
            )
        return tuple(found)

    def _starts_if(self, index: int) -> StartsIf:
        """Under which condition a gang that does not run whole starts, or is completed."""
        found = self._found
        if self._free.gangs[index].hold is not None:
            return "held"
        if found.unmoved.decisions[index].decision in ("place", "complete"):
            return "now"
        if self._replanned.lines[index].admitted:
            return "others stood better"
        reasons = (plan.decisions[index].reason for plan in (found.unmoved, found.possible))
        if any(reason is not None and reason.code == NEVER for reason in reasons):
            return "never"
        return "others ended"

    @cached_property
    def _worth(self) -> PlanWorth:
        return plan_worth(self._free, self._found.unmoved.decisions)

    def _with(self, changes: Changes) -> tuple[GangDecision, ...]:
        """The plan in which nothing moves, with these changes."""
        unmoved = self._found.unmoved.decisions
        return tuple(changes.get(index, one) for index, one in enumerate(unmoved))

    def _regained(self, changes: Changes) -> int:
        """Permille-GPU that the plan with these changes has beyond the one in which nothing moves."""
        after = Evaluation(self._free, self._with(changes))
        return sum(gpus_at_speed(after)) - self._unmoved

    def _move_search(self) -> MoveSearch:
        """None exists where every gang has its best speed, or no plan is better by the policy's tiers."""
        if any(self._regained(changes) > 0 for changes in self._found.moves):
            return "found"
        most = sum(gang.least_units * self._best[i] for i, gang in enumerate(self._free.gangs))
        if self._unmoved >= most:
            return "none exists"
        tiers = self._found.possible.tiers
        unmoved = Evaluation(self._free, self._found.unmoved.decisions).vector()
        best = all(
            tier.value == tier.bound == value for tier, value in zip(tiers, unmoved, strict=True)
        )
        return "none exists" if best else "none found"

    def _whole_regain(self) -> AuditWholeRegain:
        moved = [
            i
            for i, one in enumerate(self._found.few)
            if self._free.gangs[i].running and one.decision == "move"
        ]
        gpus = sum(standing_gpus(self._free, i) for i in moved)
        return AuditWholeRegain.model_construct(restarts=len(moved), gpus=self._free.in_gpus(gpus))

    def _move(self, changes: Changes) -> AuditMove:
        free, lines = self._free, self._present.lines
        unmoved = self._found.unmoved.decisions
        plan = self._with(changes)
        after = Evaluation(free, plan)
        worth = plan_worth(free, plan)
        moved = [i for i in sorted(changes) if free.gangs[i].running]
        return AuditMove.model_construct(
            gangs=tuple(
                AuditMovedGang.model_construct(
                    gang="/".join(free.gangs[i].key),
                    gpus=self._free.in_gpus(standing_gpus(free, i)),
                    movable=self._stated.gangs[i].movable,
                    leaves=self._names(self._base[i].pods),
                    comes=self._names(changes[i].pods),
                    speed=lines[i].speed,
                    speed_after=after.lines[i].speed,
                )
                for i in moved
            ),
            starts=tuple(
                AuditStart.model_construct(
                    gang="/".join(free.gangs[i].key),
                    gpus=self._free.in_gpus(free.gangs[i].least_units),
                    nodes=self._names(changes[i].pods),
                    instead_of=self._names(unmoved[i].pods),
                    speed=after.lines[i].speed or 0,
                )
                for i in sorted(changes)
                if not free.gangs[i].running
                and changes[i].pods
                and _nodes(changes[i].pods) != _nodes(unmoved[i].pods)
            ),
            waits=tuple(
                "/".join(free.gangs[i].key) for i in sorted(changes) if not changes[i].pods
            ),
            restarts=len(moved),
            gpus=self._free.in_gpus(sum(standing_gpus(free, i) for i in moved)),
            lost_runtime=self._lost_runtime(moved),
            regains_gpus=self._effective_gpus(self._regained(changes)),
            bandwidth=free.in_gpus(worth.bandwidth - self._worth.bandwidth),
            whole_nodes=worth.whole_nodes - self._worth.whole_nodes,
            whole_domains=worth.whole_domains - self._worth.whole_domains,
            allowed=all(self._stated.gangs[i].movable for i in moved),
        )

    def _lost_runtime(self, moved: Iterable[int]) -> int | None:
        """GPU-seconds since the last checkpoint or start, up to the cap; None where one is not known."""
        total = 0
        for index in moved:
            gang = self._stated.gangs[index]
            times = [t for t in (gang.started_at, gang.last_checkpoint) if t is not None]
            if not times:
                return None
            lost = max(0, self._stated.now - max(times))
            total += standing_gpus(self._free, index) * min(
                self._stated.policy.disruption.cap_s, lost
            )
        return total // self._free.gpu_unit

    def _objectives(self) -> tuple[AuditObjective, ...]:
        return tuple(
            AuditObjective.of(tier, now=now, possible=tier.value)
            for tier, now in zip(self._found.possible.tiers, self._present.vector(), strict=True)
        )

    def _notes(self) -> tuple[str, ...]:
        notes = [one for one in self._found.possible.notes if one != MOVES_UNPROVEN]
        if sum(self._after) < sum(self._before):
            notes.append(
                "the re-plan is better in the order of the policy's tiers, but has fewer effective GPUs"
            )
        if self._free.policy.gpu_binding != self._stated.policy.gpu_binding:
            notes.append(
                "which GPUs some running pods hold is not known: the slowest that their node may have "
                "chosen count for them, now and in the re-plan"
            )
        return tuple(notes)


def _nodes(pods: Iterable[PodPlacement]) -> list[tuple[int, int, int]]:
    """Where the pods stand, whatever their GPUs."""
    return [(pod.role, pod.index, pod.node) for pod in pods]
