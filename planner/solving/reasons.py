"""The first reason why a gang waits: alone on what is free, or beside the gangs that were placed.

Promises: a code and one sentence with numbers; "cannot, even alone" is said only where a count or an
exact search proves it; names in messages are the input's. Called by ``solve`` at the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from models.affinity import shown
from models.instance import Instance
from models.occupancy import PODS
from models.placement.demands import Demand, RoleDemand, demands_of, identity
from models.placement.formulation import base_decisions, formulate
from models.placement.program import Linear
from models.policy import SolveLimits
from models.solution import GangDecision, Reason
from planner.solving.budget import Budget
from planner.solving.engines.common import Goal, Status
from planner.solving.engines.cpsat import solve_exactly
from planner.solving.greedy import place
from planner.solving.ground import Ground
from planner.solving.wording import counted

ALONE_EFFORT = 1.0
"""Effort spent on proving that a kind of gang cannot start even alone."""

ALONE_PROOFS = 20
"""Kinds of gang for which that proof is tried; the others get what the counts say."""


def with_reasons(
    instance: Instance, decisions: Sequence[GangDecision], budget: Budget
) -> tuple[GangDecision, ...]:
    """The same decisions, each waiting or incomplete gang with its reason."""
    result = list(decisions)
    base = base_decisions(instance)
    finder = _Finder(instance, decisions, budget)
    for demand in demands_of(instance, Ground(instance, base).known()):
        decision = result[demand.gang]
        if decision.decision == "wait":
            result[demand.gang] = replace(decision, reason=finder.reason(demand))
        elif decision.decision == "keep":
            missing = sum(role.count for role in demand.roles)
            why = finder.reason(demand)
            message = f"{counted(missing, 'pod')} missing, and so it stays: {why.message}"
            result[demand.gang] = replace(decision, reason=Reason("Incomplete", message))
    return tuple(result)


LONGEST_WISH = 300
"""Most characters of a node affinity in a reason."""


class _Finder:
    def __init__(
        self, instance: Instance, decisions: Sequence[GangDecision], budget: Budget
    ) -> None:
        self._instance = instance
        self._decisions = decisions
        self._budget = budget
        self._before = Ground(instance, base_decisions(instance))
        self._known: dict[object, Reason | None] = {}
        self._proofs = 0
        self._after = Ground(instance, decisions)

    def reason(self, demand: Demand) -> Reason:
        """The first reason that holds."""
        if not demand.possible:
            return Reason(
                "RequiredTopology",
                "its standing pods already break a rule of its topology or GPU model",
            )
        key = identity(self._instance, demand)
        if key not in self._known:
            self._known[key] = self._alone(demand)
        return self._known[key] or self._beside(demand)

    def _alone(self, demand: Demand) -> Reason | None:
        """Why it cannot start even if no other waiting gang did; None if it can, or nobody knows."""
        for role in demand.roles:
            if not role.nodes:
                return Reason("Selector", self._selector(demand, role))
        ground = self._before
        for role in demand.roles:
            short = self._capacity(ground, demand, role)
            if short is not None:
                return short
        if place(ground, demand) is not None or self._budget.stop.is_set():
            return None
        self._proofs += 1
        if self._proofs > ALONE_PROOFS:
            return None
        return self._proof(demand)

    def _selector(self, demand: Demand, role: RoleDemand) -> str:
        instance = self._instance
        spec = instance.gangs[demand.gang].roles[role.role]
        nodes = instance.cluster.nodes
        off = sum(1 for node in nodes if not instance.schedulable(node))
        wants = [f"{key}={value}" for key, value in spec.node_selector]
        wants += [_shortened(shown(spec.node_affinity))] if spec.node_affinity else []
        wants += [f"model {spec.model}"] if spec.model else []
        wanted = f" with {', '.join(wants)}" if wants else ""
        return (
            f"no node{wanted} takes pods of role {spec.name}: of {len(nodes)} nodes {off} are "
            f"cordoned, not ready or not ours, the others do not match or have taints it does not tolerate"
        )

    def _capacity(self, ground: Ground, demand: Demand, role: RoleDemand) -> Reason | None:
        """Counts that already say no, per role: GPUs, then every resource, then one domain's room."""
        spec = self._instance.gangs[demand.gang].roles[role.role]
        by_gpus = {
            n: ground.plots[n].free // role.gpus if role.gpus else role.count for n in role.nodes
        }
        fits = sum(by_gpus.values())
        if fits < role.count:
            free = sum(ground.plots[n].free for n in role.nodes)
            return Reason(
                "NoRoom",
                f"role {spec.name} needs {counted(role.count, 'pod')} of {counted(role.gpus, 'GPU')}; the "
                f"nodes it may use have {counted(free, 'free GPU')}, which hold {fits}",
            )
        if role.gpus and not spec.mix_models:
            short = self._one_model(spec.name, role, by_gpus)
            if short is not None:
                return short
        for resource, amount in ((PODS, 1), *role.requests):
            if not amount:
                continue
            able = sum(
                min(
                    by_gpus[n],
                    max(0, ground.plots[n].left.get(resource, amount * role.count)) // amount,
                )
                for n in role.nodes
            )
            if able < role.count:
                return Reason(
                    "Resources",
                    f"role {spec.name} needs {counted(role.count, 'pod')}; what is left of {resource} on the "
                    f"nodes it may use is enough for {able}",
                )
        return self._one_domain(demand, role, by_gpus)

    def _one_model(self, name: str, role: RoleDemand, by_gpus: dict[int, int]) -> Reason | None:
        nodes = self._instance.cluster.nodes
        room: dict[str, int] = {}
        for n, pods in sorted(by_gpus.items()):
            if (model := nodes[n].model) is not None:
                room[model.gpu] = room.get(model.gpu, 0) + pods
        best = max(room, key=lambda gpu: room[gpu], default=None)
        if best is None or room[best] >= role.count:
            return None
        return Reason(
            "NoRoom",
            f"role {name} needs {counted(role.count, 'pod')} of {counted(role.gpus, 'GPU')} on one GPU "
            f"model; the best, {best}, has room for {room[best]}",
        )

    def _one_domain(
        self, demand: Demand, role: RoleDemand, by_gpus: dict[int, int]
    ) -> Reason | None:
        gang = self._instance.gangs[demand.gang]
        spec = gang.roles[role.role]
        levels = [level for level in (gang.required, spec.required) if level is not None]
        if not levels:
            return None
        level = max(levels)
        of = self._instance.cluster.domain_of[level]
        room: dict[int, int] = {}
        for n, pods in by_gpus.items():
            room[of[n]] = room.get(of[n], 0) + pods
        best = max(room.values())
        if best >= role.count:
            return None
        name = self._instance.cluster.level_name(level)
        return Reason(
            "RequiredTopology",
            f"role {spec.name} needs {counted(role.count, 'pod')} of {counted(role.gpus, 'GPU')} in one "
            f"{name}; "
            f"the best {name} has room for {best}",
        )

    def _proof(self, demand: Demand) -> Reason | None:
        """Exact: the same instance with this gang alone waiting, then without minBandwidthShare."""
        instance = self._instance
        gang = instance.gangs[demand.gang]
        if not self._impossible(demand, instance):
            return None
        if instance.min_share(gang):
            free = replace(gang, min_bandwidth_share=None)
            gangs = tuple(free if g is gang else g for g in instance.gangs)
            policy = replace(instance.policy, min_bandwidth_share=type(instance.min_share(gang))(0))
            if not self._impossible(demand, replace(instance, gangs=gangs, policy=policy)):
                return Reason(
                    "Bandwidth",
                    "no placement on what is free reaches its minBandwidthShare of "
                    f"{float(instance.min_share(gang)):g}",
                )
        level = gang.required
        if level is not None or any(r.required is not None or r.slice_size for r in gang.roles):
            name = "" if level is None else f" in one {instance.cluster.level_name(level)}"
            return Reason(
                "RequiredTopology",
                f"even alone its {sum(r.count for r in demand.roles)} pods do not fit together{name} "
                "under its topology rules",
            )
        return Reason(
            "NoRoom",
            "even alone its pods do not fit together on what is free (GPUs, cpu, memory, pods)",
        )

    def _impossible(self, demand: Demand, instance: Instance) -> bool:
        """Whether CP-SAT refutes that the gang is admitted when it alone is placed."""
        alone = formulate(instance, only=frozenset({demand.gang}))
        admits = Linear().add_all(g.admit for g in alone.variables.gangs)
        admits.add_all(a for group in alone.variables.groups for a in group.admits)
        goal = Goal(Linear(), maximize=True, keep=((admits, 1, 1),))
        budget = Budget(SolveLimits(time_limit_s=5), self._budget.stop)
        answer = solve_exactly(alone.program, goal, budget, ALONE_EFFORT)
        return answer.status is Status.INFEASIBLE

    def _beside(self, demand: Demand) -> Reason:
        """It may fit alone: say what the placed gangs leave."""
        instance, ground = self._instance, self._after
        gang = instance.gangs[demand.gang]
        allowed = frozenset().union(*(role.nodes for role in demand.roles))
        free = sum(ground.plots[n].free for n in allowed)
        placed = [
            g
            for g, d in zip(instance.gangs, self._decisions, strict=True)
            if d.decision in ("place", "complete")
        ]
        higher = sum(1 for g in placed if g.priority > gang.priority)
        for role in demand.roles:
            short = self._capacity(ground, demand, role)
            if short is not None:
                text = f"beside what starts ({counted(len(placed), 'gang')}, {higher} of higher priority): "
                code = "Outranked" if higher else short.code
                return Reason(code, text + short.message)
        text = (
            f"needs {counted(demand.gpus, 'GPU')}; beside what starts ({counted(len(placed), 'gang')}, "
            f"{higher} of higher priority) {free} are left on the nodes it may use, and no placement "
            "was found on them"
        )
        return Reason("Outranked" if higher else "NoRoom", text)


def _shortened(text: str) -> str:
    return text if len(text) <= LONGEST_WISH else f"{text[: LONGEST_WISH - 3]}..."
