"""A better plan one step away from the stated one, if a bounded greedy search finds one.

Steps: a running gang stays as it was; a waiting gang starts, an incomplete one is completed, or an elastic
one grows beside the others; a gang that starts goes elsewhere; a waiting gang takes the room of one that
starts, grew, may stop, shrink or move, or of a few, with others beside it, and so does one that lacks pods;
one that stops stays, or all do, and those that came there go elsewhere; two gangs change places. A step
counts only if the plan with it breaks no rule and is better in the order of the tiers, so what is found is
certain; what is not found proves nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import islice

from models.documents.plan import PlanObjective
from models.verify.changes import Change
from models.verify.facts import Gang, Pod, PodKey
from models.verify.outcome import Outcome
from models.verify.room import Grounds, Room, Work, placements
from models.verify.rules.bandwidth import BOUND
from models.verify.stated.stated_reasons import Reasons, denies_room, missing_pods
from models.verify.tier_values import VALUES, is_near, tiers
from models.verify.variant import Part, Variant
from models.verify.violation import Violation

WORK = 200_000
"""Visits of nodes, gangs and pods, about a microsecond each, for each kind of step."""

ALL_WORK = 500_000
"""The same for all steps of one search."""

CERTIFIED_WORK = 100_000
"""Nodes, gangs, and pods in sets, of the plans that are checked by every rule."""

CLUSTER_VISITS = 8
"""Visits of each node for a tier that is no sum over gangs."""

ROOM_VISITS = 50
"""Visits for what is left without a gang, beside one for each ROOM_VISITS gangs and nodes."""

OF_CLUSTER = ("stranded", "defragment", "suspect")
"""Families of tiers that are no sums over gangs."""

POD_VISITS = 20
"""Visits for each pod that is placed, and for each that is valued."""

MAX_FOUND = 20
"""Better plans after which only those count that refute a proof."""

PLACEMENTS = 6
"""Placements of one gang that are compared."""

TOGETHER = 6
"""Gangs of which the room is taken together for one."""

GROUPS = 4
"""Domains of each level of which such gangs are taken."""

ALL_BACK = 32
"""Gangs of a plan of which all that stop, shrink or move are put back together."""

FILLED = 6
"""Waiting gangs that are tried beside an exchange."""

SWAPPED = 12
"""Gangs of the same demand of which pairs change places."""

Check = Callable[[Outcome], Iterable[Violation]]
Pods = Mapping[PodKey, Pod]


@dataclass(frozen=True, slots=True)
class Step:
    """``pods``: of the gangs that change otherwise, by position. ``gang``: the one it is about."""

    gang: int
    what: str
    pods: Mapping[int, Pods]


@dataclass(frozen=True, slots=True)
class Witness:
    """A step that betters tier ``tier`` (its position) to ``value`` and keeps those before it."""

    tier: int
    value: int
    step: Step
    label: str


def required(stated: PlanObjective, tolerance: Fraction) -> int:
    """What later tiers must keep of a tier: ceil(v - t|v|), of a minimised one floor(v + t|v|)."""
    slack = tolerance * abs(stated.best)
    if stated.sense == "max":
        return math.ceil(stated.best - slack)
    return math.floor(stated.best + slack)


class Search:
    """``outcome``: a plan that breaks none of the ``rules``, and states its tiers as they are."""

    def __init__(self, outcome: Outcome, rules: Sequence[Check]) -> None:
        self.outcome = outcome
        self.facts = outcome.facts
        self.stated = outcome.case.status.objectives
        self.rules = rules
        self.tiers = outcome.once(tiers)
        self.required = [
            required(one, tier.tolerance) for one, tier in zip(self.stated, self.tiers, strict=True)
        ]
        self.work = Work(ALL_WORK)
        self.certified = Work(CERTIFIED_WORK)
        self.size = len(self.facts.nodes) + len(self.facts.gangs)
        # what one check by every rule looks at: rules about sets count each pod in each of its sets
        self.checked = self.size + sum(
            len(change.gang.roles[pod.role].pod_sets)
            for change in outcome.changes
            for pod in change.pods.values()
        )
        if self.facts.queues:
            self.checked += sum(one.visits for one in outcome.queues.cells.grounds.values())
        # rules about whole domains look at all pods, for each level
        pods, policy = sum(len(change.pods) for change in outcome.changes), self.facts.policy
        alone = {gang.exclusive for gang in self.facts.gangs} - {None}
        self.checked += (len(alone) + len(self.facts.spares)) * (len(self.facts.nodes) + pods)
        reserved = (one.document.reserved for one in outcome.case.gangs)
        self.checked += ROOM_VISITS * sum(len(one.nodes) for one in reserved if one is not None)
        # what valuing the cluster looks at: with shares of nodes, each pod's requests
        counted = pods if policy.per_gpu else 0
        self.cluster_visits = CLUSTER_VISITS * len(self.facts.nodes) + counted
        self.joint = any(gang.near is not None for gang in self.facts.gangs)
        self.room = Room(outcome, Grounds(self.facts, self.work))
        self.found: dict[int, Witness] = {}

    def fitting(self) -> Iterator[Step]:
        """Gangs, one of a kind, that start beside the others although the plan says that they do not fit."""
        self._begin()
        self.work.part(WORK)
        for i in self._waiting(lambda i: denies_room(self.outcome.case.gangs[i])):
            for pods in self._placed(self.room, i, {}):
                if self.certified.left <= 0:
                    return
                if self._feasible(Variant(self.outcome, {i: pods})):
                    yield Step(i, "starting beside the others", {i: pods})
                    break

    def needless(self) -> Iterator[tuple[int, int]]:
        """(gang that waits, holder that its reason names): it could start without the other holders alone."""
        self._begin()
        reasons = Reasons(self.outcome)
        self.work.part(WORK)
        for i, stated in enumerate(self.outcome.case.gangs):
            reason = stated.document.reason
            fields = None if reason is None else reason.fields
            if fields is None or not fields.holders or self.outcome.changes[i].kind != "wait":
                continue
            gone = reasons.gone(self.facts.gangs[i], fields)
            holders = reasons.named_holders(fields)
            for holder in sorted(holders):
                if self._starts_without(i, gone | (holders - {holder})):
                    yield i, holder

    def _starts_without(self, i: int, gone: set[int]) -> bool:
        """Whether a gang finds a place if others are gone, which breaks no rule that held without it."""
        without: dict[int, Pods] = {g: {} for g in gone}
        if not gone:
            return False  # then ``fitting`` finds it
        alone = Variant(self.outcome, without)
        self.work.spend(ROOM_VISITS + self.size // ROOM_VISITS)
        for pods in self._placed(self.room.beside(alone), i, {}):
            if not self.certified.spend(2 * self.checked):
                return False
            both = Variant(self.outcome, {**without, i: pods})
            before = {fault for rule in self.rules for fault in rule(alone)}
            if self._reaches(both, i) and all(
                fault in before for rule in self.rules for fault in rule(both)
            ):
                return True
        return False

    def witnesses(self) -> list[Witness]:
        """For each tier at most one step that betters it first, in the order of the tiers."""
        self._begin()
        for steps in (
            self._kept_as_they_were,
            self._started,
            self._completed,
            self._grown,
            self._elsewhere,
            self._exchanged,
            self._for_several,
            self._returned,
            self._swapped,
        ):
            self.work.part(WORK)
            for step in steps():
                self._consider(step)
                if self.work.total <= 0:
                    break
        return [self.found[tier] for tier in sorted(self.found)]

    def _begin(self) -> None:
        self.work.begin(ALL_WORK)
        self.certified.begin(CERTIFIED_WORK)

    # What is better

    def _consider(self, step: Step) -> bool:
        """Whether the step betters a tier; the first one found for a tier is kept."""
        variant = Variant(self.outcome, step.pods)
        visits = ROOM_VISITS + len(self.tiers)
        self.work.spend(visits + POD_VISITS * sum(map(len, step.pods.values())))
        first = self._first_better(self._values(variant))
        if first is None or first[0] in self.found:
            return first is not None
        if len(self.found) >= MAX_FOUND and self.stated[first[0]].proof is None:
            return False
        if not self._feasible(variant):
            return False
        certain = self._first_better(tier.value for tier in tiers(variant))
        if certain is None or certain[0] in self.found:
            return certain is not None
        label = self.outcome.changes[step.gang].label
        self.found[certain[0]] = Witness(certain[0], certain[1], step, label)
        return True

    def _values(self, variant: Variant) -> Iterator[int]:
        """Value of every tier, from what the gangs that change add, one after another."""
        before, after = Part(self.outcome, variant.affected), Part(variant, variant.affected)
        priorities = {"", *(str(change.gang.priority) for change in after.changes)}
        for position, tier in enumerate(self.tiers):
            family, _, priority = tier.name.partition("/")
            value = VALUES[family]
            if family == "fair" or (family == "preference" and self.joint):
                self.work.spend(len(self.facts.gangs))  # no such sum either, but quickly computed
                yield value(variant, int(priority or 0))
            elif family in OF_CLUSTER:
                if position in self.found:
                    return
                self.work.spend(self.cluster_visits)
                yield value(variant, 0)
            elif priority not in priorities:
                yield tier.value
            else:
                number = int(priority or 0)
                yield tier.value + value(after, number) - value(before, number)

    def _first_better(self, values: Iterable[int]) -> tuple[int, int] | None:
        """(position, value) of the first tier that is better; None if one before it is not kept."""
        for position, value in enumerate(values):
            sign = 1 if self.stated[position].sense == "max" else -1
            if sign * value > sign * self.stated[position].best:
                return position, value
            if sign * value < sign * self.required[position]:
                return None
        return None

    def _reaches(self, variant: Variant, i: int) -> bool:
        """Whether a gang certainly has its least share."""
        change, found = variant.changes[i], variant.bandwidths[i]
        least = change.gang.min_share
        if not least or change.kind not in BOUND or found.reached is None:
            return True
        return found.ideal is not None and found.reached.low >= least * found.ideal.high

    def _feasible(self, variant: Variant) -> bool:
        """Whether it breaks no rule, as far as the work for that goes: most break one of the first."""
        if not all(self._reaches(variant, i) for i in variant.altered):
            return False
        if variant.idle_shared != self.outcome.idle_shared:
            return False  # the facts are about other GPUs
        each = self.checked // len(self.rules) + 1
        return all(
            self.certified.spend(each) and not any(True for _ in rule(variant))
            for rule in self.rules
        )

    # Steps

    def _kept_as_they_were(self) -> Iterator[Step]:
        for i, change in enumerate(self.outcome.changes):
            if self.work.left > 0 and change.gang.running and (change.moved or change.dropped):
                yield Step(i, "staying as it was", {i: change.gang.running_pods})

    def _started(self) -> Iterator[Step]:
        for i in self._waiting():
            if self.work.left <= 0:
                return
            for pods in self._placed(self.room, i, {}):
                yield Step(i, "starting beside the others", {i: pods})
            gang = self.facts.gangs[i]
            if gang.elastic and self.work.spend(POD_VISITS * sum(role.max for role in gang.roles)):
                for pods in islice(placements(self.room, gang, _all_pods(gang), {}), PLACEMENTS):
                    yield Step(i, "starting beside the others", {i: pods})

    def _completed(self) -> Iterator[Step]:
        for i in self._lacking():
            for pods in self._placed(self.room, i, self._standing(i)):
                yield Step(i, "being completed", {i: pods})

    def _returned(self) -> Iterator[Step]:
        """A stopped, shrunk or moved gang as it was, then all of them; who came there goes elsewhere."""
        changes = self.outcome.changes
        gone = [
            i for i, one in enumerate(changes) if one.gang.running and (one.moved or one.dropped)
        ]
        for back in ([i] for i in gone):
            nodes = {pod.node for i in back for pod in changes[i].gang.running_pods.values()}
            comers = {k for n in nodes for k in self._arriving.get(n, ())} - {*back}
            if 0 < len(comers) <= TOGETHER and self.work.left > 0:
                found = self._with_back(back, comers)
                yield Step(back[0], "staying as it was, with others elsewhere", found)
        comers = {k for own in self._arriving.values() for k in own} - {*gone}
        if len(gone) > 1 and len(gone) + len(comers) <= ALL_BACK:
            found = self._with_back(gone, comers)
            yield Step(gone[0], "staying as it was, as all others do", found)

    def _with_back(self, back: Sequence[int], comers: Iterable[int]) -> dict[int, Pods]:
        """Gangs as they were, and those that come placed anew, one after another."""
        changes = self.outcome.changes
        found: dict[int, Pods] = {k: changes[k].gang.running_pods for k in (*comers, *back)}
        for k in sorted(comers, key=lambda k: (-changes[k].gang.priority, k)):
            rest = {g: pods for g, pods in found.items() if g != k}
            found.update(self._somewhere(k, rest))
        return found

    def _somewhere(self, k: int, changed: Mapping[int, Pods]) -> dict[int, Pods]:
        """A place of a gang beside such changes, or in the room of one of lower priority, too; {}: none."""
        own = self._beside(k, changed)
        if own is not None:
            return {k: own}
        gang = self.facts.gangs[k]
        for other, change in enumerate(self.outcome.changes):
            lower = change.gang.priority < gang.priority
            if other == k or other in changed or not lower or not self._gives_way(change):
                continue
            for pods in self._reduced(change):
                own = self._beside(k, {**changed, other: pods})
                if own is not None:
                    return {other: pods, k: own}
        return {}

    @cached_property
    def _arriving(self) -> dict[int, set[int]]:
        """Gangs with pods that are placed or moved, by the nodes of these."""
        found: dict[int, set[int]] = {}
        for i, change in enumerate(self.outcome.changes):
            for pod in change.binding:
                found.setdefault(pod.node, set()).add(i)
        return found

    def _grown(self) -> Iterator[Step]:
        for i, change in enumerate(self.outcome.changes):
            if not (change.admitted and change.gang.elastic) or change.held_back:
                continue
            if self.facts.size_held(change.gang):
                continue
            for number, role in enumerate(change.gang.roles):
                count = len(change.by_role[number])
                if count + role.step > role.max:
                    continue
                first = role.first + count
                keys = [(number, index) for index in range(first, first + role.step)]
                if not self.work.spend(len(keys)):
                    return
                found = placements(self.room, change.gang, keys, change.pods)
                for pods in islice(found, PLACEMENTS):
                    yield Step(i, "growing", {i: pods})

    def _elsewhere(self) -> Iterator[Step]:
        """Starting gangs that are slowed down, spread or away from what they prefer."""
        changes = self.outcome.changes
        for i in sorted(range(len(changes)), key=lambda i: (-changes[i].gang.priority, i)):
            if changes[i].kind != "place" or not self._improvable(i):
                continue
            for keys in _parts(changes[i]) if self.work.left > 0 else ():
                rest = {key: pod for key, pod in changes[i].pods.items() if key not in keys}
                room = self._without(i, rest)
                for pods in islice(placements(room, changes[i].gang, keys, rest), PLACEMENTS):
                    yield Step(i, "being placed elsewhere", {i: pods})

    def _improvable(self, i: int) -> bool:
        """Whether it is not on one node at the full share and speed, or not near whom it names."""
        change, figures = self.outcome.changes[i], self.outcome.figures[i]
        several = any(count > 1 for count in self.outcome.domains[i])
        apart = change.gang.near is not None and not is_near(self.outcome, change)
        return several or apart or figures.share not in (None, 1000) or figures.speed != 1000

    def _exchanged(self) -> Iterator[Step]:
        """A gang that waits or lacks pods in the room of another, which waits, stops, shrinks or moves."""
        waiting = [*self._waiting(), *self._lacking()]
        others = [i for i, change in enumerate(self.outcome.changes) if self._gives_way(change)]
        each = WORK // max(1, len(waiting))
        for i in waiting:
            self.work.part(each)
            for other in others:
                if not self.work.spend(10):
                    break
                yield from self._in_the_room_of(i, other)

    def _for_several(self) -> Iterator[Step]:
        """One that waits or lacks pods in the room of a few of one domain, and what fits beside it."""
        waiting = [*self._waiting(), *self._lacking()]
        others = [i for i, change in enumerate(self.outcome.changes) if self._gives_way(change)]
        each = WORK // max(1, len(waiting))
        for i in waiting:
            self.work.part(each)
            for gone in self._groups(self.facts.gangs[i], others):
                found = self._instead_of(i, gone)
                if found is not None:
                    yield from found

    def _groups(self, gang: Gang, others: Sequence[int]) -> Iterator[list[int]]:
        """Gangs of lower rank that hold GPUs together in a domain, those of least value first."""
        changes, nodes = self.outcome.changes, self.facts.nodes
        first = 0 if gang.required is None else gang.required
        for level in (*range(self.facts.node_level, first - 1, -1), None):
            by_domain: dict[int, dict[int, None]] = {}
            for other in others:
                if not self.work.spend(1):
                    return
                change = changes[other]
                stops = change.gang.running
                if change.gang.priority > gang.priority or (
                    stops and (change.gang.priority == gang.priority or not change.gang.preemptible)
                ):
                    continue
                if not self.work.spend(len(change.pods)):
                    return
                for pod in change.pods.values():
                    domain = 0 if level is None else nodes[pod.node].domain[level]
                    by_domain.setdefault(domain, {})[other] = None
            ranked = sorted(by_domain.items(), key=lambda one: (-len(one[1]), one[0]))
            for _, own in ranked[:GROUPS]:
                yield sorted(own, key=lambda k: (changes[k].gang.priority, changes[k].gang.w, k))

    def _instead_of(self, i: int, group: Sequence[int]) -> list[Step] | None:
        """Steps in which as few of the group wait or stop as the gang needs; None if no number is enough."""
        gone: dict[int, Pods] = {}
        for other in group[:TOGETHER]:
            gone[other] = {}
            own = self._beside(i, gone)
            if own is None:
                continue
            for back in list(gone)[:-1]:  # those that it did not need
                fewer = {k: pods for k, pods in gone.items() if k != back}
                if (again := self._beside(i, fewer)) is not None:
                    gone, own = fewer, again
            names = ", ".join(self.outcome.changes[k].label for k in gone)
            what = f"starting in the room of {names}"
            changed: dict[int, Pods] = {**gone, i: own}
            steps = [Step(i, what, changed)]
            filled = self._filled(changed)
            if len(filled) > len(changed):
                steps.append(Step(i, f"{what}, with others beside it", filled))
            return steps
        return None

    def _filled(self, changed: Mapping[int, Pods]) -> dict[int, Pods]:
        """The same with gangs that find a place beside it: waiting ones, and those that lost theirs."""
        found = dict(changed)
        for other in [*self._waiting(lambda k: k not in changed)[:FILLED], *changed]:
            if found.get(other):
                continue
            own = self._beside(other, {k: pods for k, pods in found.items() if k != other})
            stays = other not in changed or not self.facts.gangs[other].running
            if own is not None and stays:
                found[other] = own
        return found

    def _beside(self, i: int, changed: Mapping[int, Pods]) -> dict[PodKey, Pod] | None:
        """A place of a gang at its least counts in a plan with these changes; None: not found."""
        if self.work.left <= 0:
            return None
        self.work.spend(ROOM_VISITS + self.size // ROOM_VISITS)
        standing = self._standing(i)
        room = self.room.beside(Variant(self.outcome, {**changed, i: standing}))
        return next(self._placed(room, i, standing), None)

    def _swapped(self) -> Iterator[Step]:
        """Two starting gangs of the same demand in each other's place."""
        alike: dict[object, list[int]] = {}
        for i, change in enumerate(self.outcome.changes):
            if change.kind == "place":
                shape = tuple(
                    (role.gpus, len(pods))
                    for role, pods in zip(change.gang.roles, change.by_role, strict=True)
                )
                alike.setdefault(shape, []).append(i)
        for own in alike.values():
            better = [i for i in own if self._improvable(i)]
            for i, other in ((a, b) for a in better[:SWAPPED] for b in own[:SWAPPED] if a != b):
                if not self.work.spend(POD_VISITS):
                    return
                mine, theirs = self.outcome.changes[i], self.outcome.changes[other]
                where = {i: _in_place_of(mine, theirs), other: _in_place_of(theirs, mine)}
                yield Step(i, f"changing places with {theirs.label}", where)

    def _in_the_room_of(self, i: int, other: int) -> Iterator[Step]:
        change, gang = self.outcome.changes[other], self.facts.gangs[i]
        lower = change.gang.priority < gang.priority
        label = change.label
        for pods in self._reduced(change):
            stops = change.gang.running and (change.incomplete or not change.gang.movable)
            if (stops and not lower) or not self._opens(gang, change, pods):
                continue
            room = self._without(other, pods)
            for own in self._placed(room, i, self._standing(i)):
                if pods or not change.gang.running or stops:
                    what = "shrinks" if pods else "stops" if stops else "waits"
                    yield Step(i, f"starting while {label} {what}", {i: own, other: pods})
                if pods or stops:
                    continue
                after = room.beside(Variant(room.outcome, {i: own}))
                for moved in placements(after, change.gang, sorted(change.pods), {}):
                    where = {i: own, other: moved}
                    yield Step(i, f"starting while {label} is placed elsewhere", where)
                    break
                break

    def _gives_way(self, change: Change) -> bool:
        gang = change.gang
        if not change.pods or change.kind == "complete":
            return False
        if change.incomplete:
            return gang.preemptible
        moves = gang.movable and (bool(change.moved) or not self.facts.policy.moves.min_gain)
        return change.kind == "place" or gang.preemptible or moves

    def _reduced(self, change: Change) -> Iterator[Pods]:
        """Fewer pods of a gang that gives way: none, or those at ``min`` where it starts with more."""
        if change.kind == "place" and change.gang.elastic:
            roles = change.gang.roles
            least = {
                key: pod
                for key, pod in change.pods.items()
                if key[1] < roles[key[0]].first + roles[key[0]].min
            }
            if len(least) < len(change.pods):
                yield least
        elif change.gang.running and change.added and not change.moved:
            yield change.gang.running_pods
        elif change.gang.elastic and change.admitted and not self.facts.size_held(change.gang):
            yield from self._shrunk(change)
        yield {}

    def _shrunk(self, change: Change) -> Iterator[Pods]:
        """A gang that runs on with a step fewer pods of each elastic role, and with the least."""
        for number, role in enumerate(change.gang.roles):
            count = len(change.by_role[number])
            for left in {count - role.step, role.min}:
                if role.min <= left < count:
                    end = role.first + left
                    kept = ((k, p) for k, p in change.pods.items() if k[0] != number or k[1] < end)
                    yield dict(kept)

    def _opens(self, gang: Gang, change: Change, pods: Pods) -> bool:
        """Whether the largest pods of a gang might fit, by GPUs alone, once another gives way."""
        number = max(range(len(gang.roles)), key=lambda r: gang.roles[r].gpus)
        role = gang.roles[number]
        if not role.gpus:
            return True
        caps, level = self.room.caps(role), -1 if gang.required is None else gang.required
        freed: dict[int, int] = {}
        for key, pod in change.pods.items():
            if key not in pods:
                freed[pod.node] = freed.get(pod.node, 0) + change.gang.held(pod)
        more: dict[int, int] = {}
        for n, gpus in freed.items():
            own = (self.room.left(n)[0] + gpus) // role.gpus - caps.get(n, 0)
            domain = 0 if level < 0 else self.facts.nodes[n].domain[level]
            more[domain] = more.get(domain, 0) + max(0, own)
        sums = self.room.sums(role, level)
        return any(own and sums.get(domain, 0) + own >= role.min for domain, own in more.items())

    # Helpers

    def _without(self, i: int, pods: Pods) -> Room:
        self.work.spend(ROOM_VISITS + self.size // ROOM_VISITS)
        return self.room.beside(Variant(self.outcome, {i: pods}))

    def _waiting(self, which: Callable[[int], bool] = lambda _: True) -> list[int]:
        """One waiting gang of each kind, the highest priority and the largest first."""
        kinds: dict[object, int] = {}
        for i, change in enumerate(self.outcome.changes):
            gang = change.gang
            if change.pods or gang.running or gang.hold is not None or not which(i):
                continue
            key = _kind(gang)
            known = kinds.get(key)
            if known is None or _age(gang) < _age(self.facts.gangs[known]):
                kinds[key] = i
        gangs = self.facts.gangs
        return sorted(kinds.values(), key=lambda i: (-gangs[i].priority, -gangs[i].w, i))

    def _lacking(self) -> list[int]:
        """Running gangs that lack pods and are not completed, those of high priority first."""
        changes = self.outcome.changes
        found = [
            i
            for i, change in enumerate(changes)
            if change.kind == "keep" and change.incomplete and not change.held_back
        ]
        return sorted(found, key=lambda i: (-changes[i].gang.priority, i))

    def _standing(self, i: int) -> Pods:
        """The pods that stand of a gang that lacks some; none of others."""
        change = self.outcome.changes[i]
        return change.pods if change.kind == "keep" and change.incomplete else {}

    def _placed(self, room: Room, i: int, standing: Pods) -> Iterator[dict[PodKey, Pod]]:
        """The gang at its least counts, with the pods that stand."""
        gang = self.facts.gangs[i]
        visits = POD_VISITS * sum(role.min for role in gang.roles)
        if visits > self.work.left:
            return iter(())
        self.work.spend(visits)
        missing = list(missing_pods(gang, standing))
        return islice(placements(room, gang, missing, standing), PLACEMENTS)


def _all_pods(gang: Gang) -> list[PodKey]:
    """The pods of every role at its largest count."""
    return [
        (number, role.first + index)
        for number, role in enumerate(gang.roles)
        for index in range(role.min + (role.max - role.min) // role.step * role.step)
    ]


def _in_place_of(change: Change, other: Change) -> dict[PodKey, Pod]:
    """The pods of a gang where those of another of the same demand are."""
    return {
        (mine.role, mine.index): Pod(mine.role, mine.index, theirs.node, theirs.gpus)
        for own, found in zip(change.by_role, other.by_role, strict=True)
        for mine, theirs in zip(own, found, strict=True)
    }


def _parts(change: Change) -> Iterator[list[PodKey]]:
    """All pods of a gang, then those of each role where there are several."""
    yield sorted(change.pods)
    for number in range(len(change.by_role)) if len(change.by_role) > 1 else ():
        yield sorted(key for key in change.pods if key[0] == number)


def _kind(gang: Gang) -> object:
    """Equal for waiting gangs that may be placed alike and count alike, but for their age."""
    return (
        gang.priority,
        gang.required,
        gang.preferred,
        gang.min_share,
        gang.pattern,
        gang.weight,
        gang.joined,
        gang.fraction,
        gang.counts_speed,
        gang.service and (gang.namespace, gang.service),
        gang.queue,
        gang.balance,
        gang.exclusive,
        gang.together,
        gang.near,
        tuple(gang.planned.items()),
        tuple(
            (
                role.min,
                role.max,
                role.step,
                role.first,
                role.gpus,
                tuple(role.requests.items()),
                role.required,
                role.preferred,
                role.slices,
                tuple(role.selector.items()),
                role.affinity,
                role.tolerations,
                role.model,
                role.mix_models,
                role.pod_sets,
                role.pod_rules,
                role.parallelism,
            )
            for role in gang.roles
        ),
    )


def _age(gang: Gang) -> tuple[int, tuple[str, str]]:
    """The oldest first; an absent time is the youngest."""
    return (1 << 62 if gang.submitted is None else gang.submitted), gang.key
