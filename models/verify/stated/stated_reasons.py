"""What a plan states of gangs that wait, are stopped or lack pods, against what it does.

A code, or a field of its reason, that the plan itself contradicts is a violation. The sentence beside them is
not read; of a reason without fields nothing but the code is checked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterator
from functools import cached_property

from models.documents.reason import MAX_NAMED, ReasonFields, unlisted
from models.units import quantity, requested
from models.verify.adaptor import StatedGang
from models.verify.changes import Change
from models.verify.empty_cluster import EmptyCluster
from models.verify.facts import Facts, Gang, Role
from models.verify.judged_rules import codes
from models.verify.outcome import Outcome
from models.verify.queues import ALL
from models.verify.room import Work
from models.verify.rules.queue_order import first_waiting, rank
from models.verify.shares import unshared
from models.verify.stated.reason_grounds import POD_RULES, PROVABLE, Grounds, barred, known
from models.verify.stated.reason_quotas import Quotas
from models.verify.stated.reason_rooms import MODELS, Rooms, role_named
from models.verify.violation import Violation, printable

OUTRANKED = "Outranked"
SELECTOR = "Selector"
NEVER = "Never"
QUOTA = "Quota"
COUNTED = ("NoRoom", "RequiredTopology", "Resources")
"""Codes of a shortage."""

HOLDING = (*COUNTED, OUTRANKED)
"""Codes whose gangs are those without which there would be room."""

NO_ROOM = (*PROVABLE, SELECTOR)
RULE = "reason"

WORK = 1_000_000
"""Visits of nodes for counting what is free."""

NOTHING = ReasonFields()
LOWEST = (-(1 << 62), False)
"""Below every priority."""


def check(outcome: Outcome) -> Iterator[Violation]:
    reasons = Reasons(outcome)
    for change, stated in zip(outcome.changes, outcome.case.gangs, strict=True):
        reason = stated.document.reason
        if reason is None:
            continue
        for what in reasons.faults(change, stated):
            yield change.violation(RULE, f"{printable(reason.code)}: {what}")


class Reasons:
    """Counts that many gangs share are made once."""

    def __init__(self, outcome: Outcome) -> None:
        self.outcome = outcome
        self.facts: Facts = outcome.facts
        self.work = Work(WORK)
        self.rooms = Rooms(outcome, self.work)
        self._where: dict[tuple[int, ...], tuple[int, bool]] = {}

    def faults(self, change: Change, stated: StatedGang) -> Iterator[str]:
        reason = stated.document.reason
        assert reason is not None, "see check"
        code, fields = reason.code, reason.fields or NOTHING
        for name in unlisted(code, fields, codes()):
            yield f"has no field {printable(name)}"
        if change.held_back:
            yield from self._held_back(change.gang, code, fields)
        elif change.kind == "preempt":
            yield from self._preempted(change, fields)
        elif change.kind == "keep":
            if fields.text is not None:
                yield "states the words of a hold, and has none"
            if fields.cause is not None and not known(fields.cause):
                yield f"there is no code {printable(fields.cause)}"
        elif change.kind == "wait":
            yield from self._waiting(change.gang, code, reason.fields)

    def _waiting(self, gang: Gang, code: str, stated: ReasonFields | None) -> Iterator[str]:
        fields = stated or NOTHING
        yield from self._code(gang, code)
        if code == SELECTOR:
            yield from self.grounds.selector(gang, stated)
        elif code == "QueueOrder":
            yield from self._in_line(gang, stated)
        elif code == "Reserved":
            yield from self._reserved_for(gang, stated)
        if stated is not None:
            yield from self.grounds.faults(gang, code, fields)
            yield from self._fields(gang, code, fields)
        counted = gang.service is None and not self.rooms.reshapes and self.work.left > 0
        if counted and stated is not None:
            yield from self._room(gang, code, fields)
        yield from self._gangs(gang, code, fields, counted=counted)

    def _held_back(self, gang: Gang, code: str, stated: ReasonFields) -> Iterator[str]:
        """Whether it says what the hold of the gang says, or how many gangs the policy plans."""
        if code == "QueueLimit":
            if stated.limit not in (None, self.facts.policy.queue_limit):
                yield f"says that {stated.limit} gangs are planned"
        elif code == "Backoff":
            if stated.until != gang.starts_again:
                yield "says another time from which it may start"
        elif stated.text not in (None, gang.hold_text):
            yield "its words are not those of its hold"

    @cached_property
    def quotas(self) -> Quotas:
        return Quotas(self.outcome)

    @cached_property
    def grounds(self) -> Grounds:
        return Grounds(self.outcome, self.rooms, self.empty)

    # Stopped, and lacking pods

    def _preempted(self, change: Change, fields: ReasonFields) -> Iterator[str]:
        comers = self.outcome.gives_way_to(change, change.gang.running_pods)
        arrivals = {other.label for other in comers}
        if not arrivals:
            return  # it may not be stopped at all
        yield from self._named(fields, arrivals, "takes none of its nodes")
        if fields.by and len(fields.by) != min(MAX_NAMED, len(arrivals)):
            yield f"names {len(fields.by)} gangs that come to its nodes, but {len(arrivals)} do"

    def _named(self, fields: ReasonFields, fit: Container[str], wrong: str) -> Iterator[str]:
        """Whether the gangs that are named fit, and have the priority that is stated."""
        for one in fields.by:
            if one.gang not in fit:
                yield f"{printable(one.gang)} {wrong}"
            elif one.priority != self.outcome.by_label[one.gang].gang.shown_priority:
                yield f"{printable(one.gang)} does not have priority {one.priority}"

    # The code

    def _code(self, gang: Gang, code: str) -> Iterator[str]:
        """Whether there is such a rule as the code names, about this gang."""
        if code == "Bandwidth" and not gang.min_share:
            yield "it has no minBandwidthShare"
        if code == "RequiredTopology" and not _levels(gang):
            yield "it has no topology rule"
        if code == QUOTA and not self._in_reach_of_queues(gang):
            yield "no queue limits it, and none is guaranteed anything"
        rule = POD_RULES.get(code)
        if rule and all(one.rule != rule for role in gang.roles for one in role.pod_rules):
            yield f"no {rule} is about its pods"
        concerns = codes().get(code)
        if concerns is not None and not concerns(self.outcome, gang):
            yield "neither it, nor another gang, nor the policy has such a rule"
        if code == NEVER and (gang.running or (self.empty.fits(gang) and not self._unable(gang))):
            yield "no count says that it could not start on the empty cluster"

    def _unable(self, gang: Gang) -> bool:
        """Whether the plan says that it is proven unable to start, which is checked by itself."""
        label = "/".join(gang.key)
        return any(one.gang == label and one.proven for one in self.outcome.case.status.unable)

    def _fields(self, gang: Gang, code: str, fields: ReasonFields) -> Iterator[str]:
        """Whether the fields fit the code, the gang and the plan, whatever room there is."""
        room = fields.has_room
        if code == OUTRANKED and room and not self._outranked(gang):
            yield "no gang of higher priority, and none that waited too long, starts"
        elif code in COUNTED and room and not fields.proven and self._outranked(gang):
            yield f"gangs that come first start where it could: it is {OUTRANKED}"
        if code == "RequiredTopology" and room and fields.level is None:
            yield "does not say of which level"
        level = self.rooms.levels.get(fields.level)
        if code != QUOTA and fields.level is not None and level not in _levels(gang):
            yield f"no rule of it is about the level {printable(fields.level)}"
        yield from _sizes(self.facts, gang, code, fields)
        if code == QUOTA:
            yield from self.quotas.faults(gang, fields)
        if code == NEVER:
            yield from self._never(gang, fields)

    def _outranked(self, gang: Gang) -> bool:
        """Whether a gang starts where it could that is of higher priority, or aged where it is not."""
        roles = [role for role in gang.roles if role.gpus] or list(gang.roles)
        grounds = [self.rooms.nodes(gang, role) for role in roles]
        key = tuple(map(id, grounds))
        if key not in self._where:
            self.work.spend(sum(map(len, grounds)))
            there = (self._first_on.get(node, LOWEST) for node in set[int]().union(*grounds))
            self._where[key] = max(there, default=LOWEST)
        return self._where[key] > (gang.priority, self.facts.aged(gang))

    @cached_property
    def _first_on(self) -> dict[int, tuple[int, bool]]:
        """By node, the first priority that starts there, and whether such a gang waited too long."""
        found: dict[int, tuple[int, bool]] = {}
        for change in self.outcome.changes:
            if change.kind in ("place", "complete"):
                own = change.gang.priority, self.facts.aged(change.gang)
                for pod in change.pods.values():
                    found[pod.node] = max(own, found.get(pod.node, LOWEST))
        return found

    # Rules about several gangs

    def _in_line(self, gang: Gang, stated: ReasonFields | None) -> Iterator[str]:
        """Whether an earlier gang of its strict queue waits, and the one that is named."""
        first = first_waiting(self.outcome).get(gang.queue or "")
        if first is None or rank(first.gang) >= rank(gang):
            yield "no earlier gang of a strict queue waits"
        elif stated is not None:
            named = [(one.gang, one.priority) for one in stated.by]
            if (stated.queue, named) != (gang.queue, [(first.label, first.gang.shown_priority)]):
                yield f"the first that waits in its queue is {printable(first.label)}"

    def _reserved_for(self, gang: Gang, stated: ReasonFields | None) -> Iterator[str]:
        """Whether nodes are reserved for other gangs, and for those that are named."""
        others = {
            stated.label: stated.document.reserved
            for stated in self.outcome.case.gangs
            if stated.document.reserved is not None and stated.document.key != gang.key
        }
        if not others:
            yield "no other gang holds a reservation"
        elif stated is not None:
            if not stated.by:
                yield f"names no gang that holds a reservation, such as {printable(min(others))}"
            yield from self._named(stated, others, "holds no reservation")
            for one in stated.by:
                if one.gang in others and one.start not in (None, others[one.gang].start):
                    yield f"nodes are reserved for {printable(one.gang)} from another time"

    def _in_reach_of_queues(self, gang: Gang) -> bool:
        """Whether a queue that it is in has a limit, or one has a guarantee that the gang could take."""
        if not self.facts.queues:
            return False
        queues = self.outcome.queues
        if queues.unlent and gang.managed:
            return True
        above = queues.above(gang.queue)
        if not gang.preemptible and any(queues.firm_limit[name] for name in above):
            return True
        return any(queues.limit[name] for name in above) or (
            gang.counts_against_promises
            and bool(queues.guaranteed or queues.cells.grounds or queues.closed(gang))
        )

    @cached_property
    def places(self) -> dict[str, int]:
        """By label, the place of a gang among all."""
        return {change.label: i for i, change in enumerate(self.outcome.changes)}

    # Room

    @cached_property
    def empty(self) -> EmptyCluster:
        return EmptyCluster(self.facts, Work(WORK))

    def _room(self, gang: Gang, code: str, fields: ReasonFields) -> Iterator[str]:
        """The room that the reason states, of all its roles or of one that lacks pods."""
        role = role_named(gang, fields.role) if fields.pods is not None else None
        if role is None and fields.pods is not None:
            return  # a fault of its size
        if role is not None and fields.room_pods is not None and fields.room_pods >= role.min:
            yield f"there is room for {fields.room_pods} pods of role {role.name}, which is enough"
        if code == NEVER:
            yield from self._on_empty(role, fields)
            return
        room, place = self.rooms.after, self.rooms.place(gang, role, fields)
        self.work.spend(len(place))
        free = sum(map(room.free, place))
        level = None if fields.domain is None else self.rooms.levels.get(fields.level)
        if fields.room_gpus not in (None, free):
            yield f"{fields.room_gpus} GPUs are free on its nodes, but {free} are"
        if role is not None:
            yield from self._pods(gang, role, fields)
        elif level is not None:
            sums = Counter[int]()
            for n in self.rooms.nodes(gang, None):
                sums[self.facts.nodes[n].domain[level]] += room.free(n)
            if free < max(sums.values(), default=0):
                yield f"another {printable(fields.level or '')} has more GPUs free"

    def _pods(self, gang: Gang, role: Role, fields: ReasonFields) -> Iterator[str]:
        """Pods of a role for which there is room, in whole slices where these are what lacks it."""
        rooms, level = self.rooms, self.rooms.levels.get(fields.level)
        if fields.room_pods is None:
            return
        own: set[object] = {None}
        if level is not None:
            sums = rooms.pods(role, level=level)
            own = {self.facts.nodes[n].domain[level] for n in rooms.place(gang, role, fields)}
        elif fields.model is not None:
            sums, own = rooms.pods(role, level=MODELS), {fields.model}
        else:
            sums = rooms.pods(role, fields.resources)
        found = [max(sums.values(), default=0)]
        sliced = level is not None and fields.domain is None
        if sliced:
            sizes = [size for size, at in role.slices if at == level]
            found = [sum(n // size * size for n in sums.values()) for size in sizes]
        if fields.room_pods not in found:
            there = max(found, default=0)
            yield f"there is room for {fields.room_pods} pods, but it is {there}"
        elif not sliced and all(sums.get(one, 0) != found[0] for one in own):
            yield "there is more room elsewhere"

    def _on_empty(self, role: Role | None, fields: ReasonFields) -> Iterator[str]:
        stated = fields.room_pods, fields.room_gpus
        if role is None or fields.level is not None or fields.model is not None:
            return
        there = self.empty.room(role, fields.resources)
        if stated not in (there, (None, None)):
            yield f"there is room for {there[0]} pods on {there[1]} GPUs of the empty cluster"

    def _never(self, gang: Gang, fields: ReasonFields) -> Iterator[str]:
        """What no node, or no queue, has for the gang."""
        role = role_named(gang, fields.role)
        if fields.queue is not None:
            gpus = self.facts.in_gpus
            beyond = {
                (name, key, gpus(asked), gpus(most))
                for name, key, asked, most in self.empty.beyond_limits(gang)
            }
            if (fields.queue, fields.model or ALL, fields.gpus, fields.limit) not in beyond:
                yield f"queue {printable(fields.queue)} has no such limit"
        if role is None:
            return
        nodes = self.empty.of(role)
        if nodes and (fields.nodes_with or fields.taints):
            yield f"role {role.name} has nodes that would accept its pods"
        if fields.offered is None:
            return
        if fields.resources:
            resource = fields.resources[0]
            most, wanted = self.empty.offered(role, resource), role.requests.get(resource, 0)
            if requested(resource, quantity(fields.offered)) != most or wanted <= (most or 0):
                yield f"a pod requests {wanted} of {printable(resource)}, nodes offer {most}"
        else:
            binding = self.facts.policy.gpu_binding
            alone = (unshared(self.facts.nodes[n], binding) for n in nodes)
            there = max((node.whole_gpus for node in alone), default=0)
            if quantity(fields.offered) != there or role.gpus <= there:
                yield f"the largest node that it may use has {there} GPUs"

    def _gangs(
        self, gang: Gang, code: str, fields: ReasonFields, *, counted: bool
    ) -> Iterator[str]:
        """Gangs without which it would start: they have what is stated, and by counts it could fit then."""
        if code not in HOLDING or not fields.by:
            return
        named = {self.places[one.gang] for one in fields.by if one.gang in self.places}
        changes = (self.outcome.changes[i] for i in named)
        there = {one.label: one for one in changes if one.pods and one.gang is not gang}
        yield from self._named(fields, there, "has no pods after the plan")
        for one in fields.by:
            own = there.get(one.gang)
            whole = sum(own.gang.roles[role].gpus for role, _ in own.pods) if own else one.gpus
            if one.gpus != whole:
                yield f"{printable(one.gang)} has {whole} GPUs, not {one.gpus}"
        if counted and not self.rooms.holds(self.rooms.alone(named), gang):
            yield "without those that it names it would not fit"


def denies_room(stated: StatedGang) -> bool:
    """Whether the reason claims a proof that the gang does not fit."""
    reason = stated.document.reason
    if reason is None or reason.code == NEVER:
        return reason is not None
    f = reason.fields
    if f is None or not (reason.code in NO_ROOM or barred(reason.code)):
        return False
    return f.proven or f.room_pods is not None or (f.room_gpus or 0) < (f.gpus or 0)


def _levels(gang: Gang) -> set[int]:
    """The levels that rules of a gang are about."""
    levels = {gang.required, *(role.required for role in gang.roles)}
    levels |= {level for role in gang.roles for _, level in role.slices}
    return {level for level in levels if level is not None}


def _sizes(facts: Facts, gang: Gang, code: str, fields: ReasonFields) -> Iterator[str]:
    """GPUs and pods that the gang asks for, at ``min``; with parts of GPUs where a queue counts them."""
    role = role_named(gang, fields.role)
    if fields.role is not None and role is None:
        yield f"there is no role {printable(fields.role)}"
    elif fields.pods is not None and role is None:
        yield "does not say which role lacks pods"
    elif fields.pods is not None and role is not None:
        if (fields.pods, fields.gpus) != (role.min, role.min * role.gpus):
            yield f"role {role.name} asks for {role.min} pods of {role.gpus} GPUs"
    elif fields.gpus is not None:
        counted = code == QUOTA or fields.queue is not None
        most = fields.model is not None and counted
        asked = facts.in_gpus(gang.counts_at_min) if counted else gang.gpus_at_min
        if fields.gpus > asked or (fields.gpus < asked and not most):
            yield f"needs {fields.gpus} GPUs, but it asks for {asked}"
