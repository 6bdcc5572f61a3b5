"""A small program of one gang beside a plan, in which every cause is a variable that may be dropped.

It counts GPUs, resources, required levels, slices, GPU models, nodes kept free and whole domains, and leaves
other rules out: what it proves impossible is impossible, and what it finds may still break a rule.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from models.instance.gang import is_part
from models.instance.occupancy import PODS
from models.instance.reshaping import unshared
from models.program.interruption import Question
from models.program.linear_program import Linear, Program
from models.queues.reservations import closes
from models.rules.declaration import Requirement
from models.rules.demands import cut_of
from models.rules.nodes import REQUEST, SELECTED, excluding, offers_gpus
from models.rules.pod_rules import APART
from models.rules.queue_rules import RESERVATION
from models.rules.shape import EXCLUSIVE, SPARES, held_nodes, spare_nodes, tenants
from models.rules.topology import MODELS, REQUIRED, SLICE
from planner.search.explain.causes import GANG, NODE, Cause, World, sharers

Missing = tuple[int, int]
"""(role, pods of it to place)."""


@dataclass
class StartProgram:
    """``literals``: the variable of each cause, 1 while it holds. ``pods[r][n]``: of a role on a node."""

    program: Program
    literals: dict[Cause, int] = field(default_factory=dict)
    pods: dict[int, list[int]] = field(default_factory=dict)


def start_program(world: World, causes: Collection[Cause], interrupted: Question) -> StartProgram:
    """The program of the missing pods of the gang at their least number. Raises Interrupted."""
    return _Builder(world, causes, interrupted).build()


class _Builder:
    def __init__(self, world: World, causes: Collection[Cause], interrupted: Question) -> None:
        self._world = world
        self._instance = world.instance
        self._nodes = world.instance.cluster.nodes
        self._found = StartProgram(Program(interrupted))
        self._program = self._found.program
        counts: dict[int, int] = defaultdict(int)
        for role, _ in world.spec.missing():
            counts[role] += 1
        self._missing: tuple[Missing, ...] = tuple(sorted(counts.items()))
        self._by_kind: dict[tuple[str, int | None], Cause] = {}
        self._by_gang: dict[int, Cause] = {}
        self._by_node: dict[int, Cause] = {}
        self._requests: dict[str, Cause] = {}
        self._reservations: dict[str, Cause] = {}
        self._free: dict[int, int] = {}
        self._users: defaultdict[int, set[int]] = defaultdict(set)
        for one in causes:
            self._found.literals[one] = self._program.boolean()
            if one.kind == GANG and one.gang is not None:
                self._by_gang[one.gang] = one
            elif one.kind == NODE and one.node is not None:
                self._by_node[one.node] = one
            elif one.kind == REQUEST.name:
                self._requests[one.name] = one
            elif one.kind == RESERVATION.name:
                self._reservations[one.name] = one
            else:
                self._by_kind[one.kind, one.role] = one

    def build(self) -> StartProgram:
        for role, count in self._missing:
            spec = self._world.spec.roles[role]
            most = (
                (node.whole_gpus // spec.gpus if spec.gpus else count)
                if offers_gpus(self._instance, spec, node)
                else 0
                for node in self._nodes
            )
            self._found.pods[role] = [self._program.integer(0, min(count, m)) for m in most]
            self._program.equal(Linear().add_all(self._found.pods[role]), count)
            self._on_eligible_nodes(role, count)
        self._within_gpus()
        self._within_resources()
        if not self._world.spec.running:
            self._in_one_domain(None, [role for role, _ in self._missing])
            for role, count in self._missing:
                self._in_one_domain(role, [role])
                self._in_slices(role, count)
                self._on_one_model(role, count)
                self._apart(role, count)
        self._off_reserved()
        self._beside_spares()
        self._alone()
        return self._found

    def _literal(self, asked: Requirement, role: int | None = None) -> int | None:
        cause = self._by_kind.get((asked.name, role))
        return None if cause is None else self._found.literals[cause]

    def _unless(self, literal: int, expression: Linear, bound: int, most: int) -> None:
        """expression <= bound while the cause holds; it is at most ``most`` in any case."""
        if most > bound:
            self._program.at_most(expression.add(literal, most - bound), most)

    def _none_on(self, literal: int, role: int, nodes: Iterable[int], count: int) -> None:
        """No pod of the role on these nodes while the cause holds."""
        pods = self._found.pods[role]
        there = Linear().add_all(pods[n] for n in nodes)
        if there.terms:
            self._unless(literal, there, 0, count)

    def _on_eligible_nodes(self, role: int, count: int) -> None:
        spec, program = self._world.spec.roles[role], self._program
        closed: dict[Requirement | None, list[int]] = defaultdict(list)
        for n, node in enumerate(self._nodes):
            if not program.upper[self._found.pods[role][n]]:
                continue
            for one in excluding(self._instance, spec, node):
                closed[one].append(n)
        for one, nodes in closed.items():
            if one is None:
                for n in nodes:
                    self._none_on(self._found.literals[self._by_node[n]], role, [n], count)
                continue
            own = self._literal(one, None if one is SELECTED else role)
            assert own is not None, "a gang that asks for nodes has that as a cause"
            self._none_on(own, role, nodes, count)

    def _holding(self) -> tuple[list[dict[int, int]], list[dict[str, dict[int, int]]]]:
        """GPUs, and each resource, that other gangs hold on every node, by gang."""
        gpus: list[dict[int, int]] = [defaultdict(int) for _ in self._nodes]
        used: list[dict[str, dict[int, int]]] = [
            defaultdict(lambda: defaultdict(int)) for _ in self._nodes
        ]
        for index, one in enumerate(self._world.decisions):
            for pod in one.pods:
                role = self._instance.gangs[index].roles[pod.role]
                gpus[pod.node][index] += role.gpus if pod.gpus is None else pod.gpus.bit_count()
                for name, amount in ((PODS, 1), *role.requests):
                    used[pod.node][name][index] += amount
        return gpus, used

    def _staying_shared(self) -> list[int]:
        """By node, mask of the releasable GPUs of which some pod is left in the plan."""
        kept = [0] * len(self._nodes)
        for index, one in enumerate(self._world.decisions):
            for pod in one.pods:
                kept[pod.node] |= self._instance.gangs[index].roles[pod.role].keeps_on(pod.node)
        return kept

    def _within_gpus(self) -> None:
        roles = [(role, self._world.spec.roles[role].gpus) for role, _ in self._missing]
        self._gpus, self._used = self._holding()
        self._kept = self._staying_shared()
        for n, node in enumerate(self._nodes):
            held = Linear()
            for role, asked in roles:
                held.add(self._found.pods[role][n], asked)
            if not held.terms or not node.gpus:
                continue
            whole = node.whole_gpus - len(node.still_shared(self._kept[n]))
            left = whole - self._gpus[n].get(self._world.gang, 0)
            idle = (node.releasable & ~self._kept[n]).bit_count()
            sick = min(whole - idle - node.healthy_gpus, max(0, left))
            if sick:
                held.add(self._found.literals[self._by_node[n]], sick)
            self._add_held(held, self._gpus[n], left - sick)
            more = self._released(held, n, 1)
            self._program.at_most(held, max(0, left) + more)

    def _released(self, used: Linear, n: int, each: int) -> int:
        """What may be used more where all gangs with parts of GPUs have left: ``each`` for a pod of theirs.

        As if no others had parts of these GPUs.
        """
        total = 0
        for index, nodes in sharers(self._instance).items():
            if n in nodes and index in self._by_gang:
                used.add(self._found.literals[self._by_gang[index]], each * nodes[n])
                total += each * nodes[n]
        return total

    def _add_held(self, held: Linear, by_gang: dict[int, int], left: int) -> None:
        """What others hold, at most what there is: more would forbid even what stands there now."""
        for index, amount in sorted(by_gang.items(), key=lambda one: -one[1]):
            if index != self._world.gang and index in self._by_gang:
                counted = min(amount, max(0, left))
                left -= counted
                held.add(self._found.literals[self._by_gang[index]], counted)

    def _within_resources(self) -> None:
        roles = [(role, dict(self._world.spec.roles[role].requests)) for role, _ in self._missing]
        for n, node in enumerate(self._nodes):
            for name, capacity in node.allocatable:
                used, most = Linear(), 0
                for role, requests in roles:
                    amount = 1 if name == PODS else requests.get(name, 0)
                    used.add(self._found.pods[role][n], amount)
                    most += amount * self._program.upper[self._found.pods[role][n]]
                if not used.terms or not most:
                    continue
                left = max(0, capacity - self._used[n][name].get(self._world.gang, 0))
                if is_part(name) and node.shared:
                    gain = dict(unshared(self._instance, node).allocatable).get(name, 0) - capacity
                    left += self._released(used, n, max(0, gain))
                if most + sum(self._used[n][name].values()) <= left:
                    continue
                self._add_held(used, self._used[n][name], left)
                cause = self._requests.get(name)
                if name == PODS:
                    self._program.at_most(used, left)
                elif cause is not None:
                    self._unless(self._found.literals[cause], used, left, most + left)

    def _in_one_domain(self, role: int | None, roles: Sequence[int]) -> None:
        """The pods of these roles in one domain of the level that the gang, or the role, requires."""
        literal = self._literal(REQUIRED, role)
        spec = self._world.spec
        level = spec.required if role is None else spec.roles[role].required
        if literal is None or level is None or not roles:
            return
        program, counts = self._program, dict(self._missing)
        most = sum(counts[r] for r in roles)
        chosen = []
        for domain in self._instance.cluster.domains[level]:
            inside = Linear().add_all(self._found.pods[r][n] for r in roles for n in domain.nodes)
            here = program.boolean()
            chosen.append(here)
            program.at_most(inside.add(here, -most).add(literal, most), most)
        program.equal(Linear().add_all(chosen), 1)

    def _in_slices(self, role: int, count: int) -> None:
        """Room for as many whole slices as there are."""
        literal = self._literal(SLICE, role)
        if literal is None:
            return
        spec, program = self._world.spec.roles[role], self._program
        for size, level in spec.slice_layers:
            whole = cut_of(spec.first_index, count, size).whole
            slices = []
            for domain in self._instance.cluster.domains[level]:
                here = program.integer(0, whole)
                inside = Linear().add_all(self._found.pods[role][n] for n in domain.nodes)
                program.at_least(inside.add(here, -size))
                slices.append(here)
            program.at_least(Linear().add_all(slices).add(literal, -whole))

    def _on_one_model(self, role: int, count: int) -> None:
        literal = self._literal(MODELS, role)
        of: dict[str, list[int]] = defaultdict(list)
        for n, node in enumerate(self._nodes):
            if node.model is not None:
                of[node.model.gpu].append(n)
        if literal is None or len(of) < 2:
            return
        chosen = []
        for _, nodes in sorted(of.items()):
            here = self._program.boolean()
            chosen.append(here)
            there = Linear().add_all(self._found.pods[role][n] for n in nodes)
            self._program.at_most(there.add(here, -count).add(literal, count), count)
        self._program.equal(Linear().add_all(chosen), 1)

    def _apart(self, role: int, count: int) -> None:
        """At most one pod in each domain, where its own pods keep apart."""
        literal, spec = self._literal(APART, role), self._world.spec.roles[role]
        for one in spec.anti_affinity if literal is not None else ():
            if one.pod_set is not None and one.pod_set not in spec.pod_sets:
                continue
            for domain in self._instance.cluster.domains[one.level]:
                inside = Linear().add_all(self._found.pods[role][n] for n in domain.nodes)
                assert literal is not None
                self._unless(literal, inside, 1, count)

    def _off_reserved(self) -> None:
        for one in self._instance.reserved:
            if not closes(self._instance, one, self._world.spec):
                continue
            cause = self._reservations["/".join(one.gang)]
            for role, count in self._missing:
                self._none_on(self._found.literals[cause], role, one.nodes, count)

    def _with_gpus(self, nodes: Iterable[int]) -> Linear:
        """Pods with GPUs of the gang on these nodes."""
        own = [role for role, _ in self._missing if self._world.spec.roles[role].gpus]
        there = tuple(nodes)
        return Linear().add_all(self._found.pods[role][n] for role in own for n in there)

    @property
    def _most(self) -> int:
        return sum(count for _, count in self._missing)

    def _beside_spares(self) -> None:
        """Enough nodes of each domain stay without GPUs in use, those that are back in order beside."""
        literal = self._literal(SPARES)
        for index, one in enumerate(self._world.decisions) if literal is not None else ():
            roles = self._instance.gangs[index].roles
            for pod in one.pods:
                if roles[pod.role].uses_gpus:
                    self._users[pod.node].add(index)
        held = held_nodes(self._instance, [one.pods for one in self._world.decisions])
        for rule in spare_nodes(self._instance) if literal is not None else ():
            if sum(n not in held for n in rule.nodes) < rule.least:
                continue  # nobody can come there, or the plan would not have it so
            assert literal is not None
            left = Linear().add(literal, -rule.least)
            for n in rule.nodes:
                left.add(self._stays_free(n))
            broken = self._broken_beside(rule.nodes)
            left.add_all((self._found.literals[self._by_node[n]] for n in broken), -1)
            self._program.at_least(left, -len(broken))

    def _stays_free(self, n: int) -> int:
        """A variable that is 0 once the node has pods with GPUs, or with parts of some."""
        if n not in self._free:
            free = self._free[n] = self._program.boolean()
            roles = self._world.spec.roles
            own = [self._found.pods[r][n] for r, _ in self._missing if roles[r].uses_gpus]
            self._program.at_most(Linear().add_all(own).add(free, self._most), self._most)
            for index in sorted(self._users[n]):
                if index in self._by_gang:
                    held = Linear().add(free).add(self._found.literals[self._by_gang[index]])
                    self._program.at_most(held, 1)
        return self._free[n]

    def _broken_beside(self, nodes: Sequence[int]) -> list[int]:
        """Nodes out of order that would be in a domain with these; all, where that is not known."""
        return [n for n in self._by_node if n not in nodes]

    def _alone(self) -> None:
        """No pods with GPUs in a domain that another gang, or this one, has for itself."""
        own = self._literal(EXCLUSIVE)
        pods = [one.pods for one in self._world.decisions]
        for level, domains in tenants(self._instance, pods).items():
            for d, gangs in domains.items():
                inside = self._with_gpus(self._instance.cluster.domains[level][d].nodes)
                for index in sorted(gangs.intersection(self._by_gang)):
                    there = self._found.literals[self._by_gang[index]]
                    if self._instance.gangs[index].exclusive == level:
                        self._unless(there, Linear().add_linear(inside), 0, self._most)
                    elif own is not None and self._world.spec.exclusive == level:
                        both = Linear().add_linear(inside).add(own, self._most)
                        self._program.at_most(both.add(there, self._most), 2 * self._most)
