"""What a plan states of gangs that wait, are stopped or lack pods, against what it does.

A code or a number that the plan itself contradicts is a violation. Words are only read in the forms that
this program writes; other words prove nothing.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cached_property

from models.verify.adaptor import StatedGang
from models.verify.changes import Change
from models.verify.empty_cluster import EmptyCluster
from models.verify.facts import Facts, Gang, Pod, PodKey, Role
from models.verify.outcome import Outcome
from models.verify.room import Grounds, Room, Work
from models.verify.rules.hold_room import holding
from models.verify.rules.running import evictions
from models.verify.variant import Variant
from models.verify.violation import Violation, printable

OUTRANKED = "Outranked"
SELECTOR = "Selector"
STARTS = ("place", "complete")
NEVER = "Never"
HELD_ROOM = "HeldRoom"
QUOTA = "Quota"
RESERVED = "Reserved"
POD_RULES = {"AntiAffinity": "anti-affinity", "Affinity": "affinity", "Spread": "spread"}
"""Rules about pods of sets, by the code of the reason."""

SHAPES = ("Balance", "Exclusive", "Spares")
"""Codes of rules about where the pods of whole gangs may be."""

NO_ROOM = ("NoRoom", "RequiredTopology", "Resources", "Bandwidth", SELECTOR, *POD_RULES, *SHAPES)
RULE = "reason"

WORK = 1_000_000
"""Visits of nodes for counting what is free."""

MAX_WORDS = 2000
"""Characters of a reason that are read."""


_COUNT = r"(\d[\d,]{0,25})"
_BANDS = ("of higher priority", "of its priority that waited too long", "of its priority")
_BAND = re.compile(rf"{_COUNT} (?:gangs? )?({'|'.join(_BANDS)})")
_FIRST = re.compile(rf"\bafter ((?:(?:, | and )?{_COUNT} (?:gangs? )?(?:{'|'.join(_BANDS)}))+)")
_NONE = "after the running gangs"
_NEEDS = re.compile(rf"(?:^|: )needs {_COUNT} GPUs?\b")
_ROLE_NEEDS = re.compile(
    rf"(?:^|: )(?:role (\S{{1,253}}) )?needs {_COUNT} pods? of {_COUNT} GPUs?\b"
)
_FREE = re.compile(
    rf"; (?:after [^;:]{{0,900}} )?(?<![\d,]){_COUNT} GPUs? (?:is|are) free on its nodes\b"
)
_ENOUGH = re.compile(
    rf"(?:^|: )(?:role (\S{{1,253}}) )?needs [^;:]{{0,250}}; ([^;:]{{0,900}}?)"
    rf"there is room for {_COUNT} on its nodes \({_COUNT} GPUs? free\)"
)
_DENIES = re.compile(
    r"\beven (?:if|alone|on)\b|\bthere is room for\b|\bon its nodes (?:is|are) enough for\b"
    r"|\bhas (?:room for|[\d,]{1,25} free)\b|\bthose that would do \([\d,]{1,25}\) are\b"
)
"""Words of a proof that a gang does not fit."""

IN_PLACE = "would fit in place of gangs of lower priority"

_CODES = (
    (re.compile(r"\bnever fits\b"), NEVER),
    (re.compile(r"\broom is held for\b"), HELD_ROOM),
    (re.compile(r"\bwould fit\b"), OUTRANKED),
    (re.compile(r"\bthose that would do \([\d,]{1,25}\) are\b"), SELECTOR),
    (re.compile(r"\breaches its minBandwidthShare\b"), "Bandwidth"),
    (re.compile(r"\bthe best \S{1,253} has (?:room for|[\d,]{1,25} free)\b"), "RequiredTopology"),
    (re.compile(r"\bthere is room for [\d,]{1,25} slices?\b"), "RequiredTopology"),
    (re.compile(r"\bdo not fit together\b.{0,250} under its topology rules"), "RequiredTopology"),
    (re.compile(r"\bthe free [^;]{1,253} on its nodes (?:is|are) enough for\b"), "Resources"),
    (re.compile(r"\bthere is room for\b|\bno placement was found\b"), "NoRoom"),
)
"""Words that belong to a code, or after gangs that start and come first, to Outranked."""

_NAME = r"(\S{1,253}/\S{1,253})"
_MOST = re.compile(rf" \(most to {_NAME}, {_COUNT} GPUs?\)")
_HOLDS = re.compile(rf"; {_NAME} holds {_COUNT} GPUs? there\b")
_HOLD = re.compile(
    rf"; {_COUNT} running gangs hold {_COUNT} GPUs? there, most {_NAME} \({_COUNT}\)"
)
_BUDGET = re.compile(
    rf"\b(\S{{1,253}}/\S{{1,253}}) may not stop or move: the disruption budget (\S{{1,253}}/\S{{1,253}})"
    rf" allows {_COUNT} of its {_COUNT} evictions\b"
)
_BUDGETS = re.compile(
    r"\b(\S{1,253}/\S{1,253}) may not stop or move: a pod of it is in the disruption budgets"
    r" (\S{1,253}) and (\S{1,253})"
)
_NODES = re.compile(r"(?:^|: )(?:role (\S{1,253}) )?needs nodes\b")
_CLOSED = re.compile(rf"; those that would do \({_COUNT}\) are\b")
_MISSING = re.compile(rf"^{_COUNT} pods? missing\b")
_HELD_FOR = re.compile(
    r"\broom is held for (\S{1,253}/\S{1,253}) \(priority (-?\d{1,10})\), which waits"
)
_PREEMPTOR = re.compile(r"(\S{1,253}/\S{1,253}) \(priority (-?\d{1,10})\)")


def check(outcome: Outcome) -> Iterator[Violation]:
    reasons = _Reasons(outcome)
    for change, stated in zip(outcome.changes, outcome.case.gangs, strict=True):
        reason = stated.document.reason
        if reason is None or change.held_back:
            continue
        for what in reasons.faults(change, stated):
            yield change.violation(RULE, f"{printable(reason.code)}: {what}")


class _Reasons:
    """Counts that many gangs share are made once."""

    def __init__(self, outcome: Outcome) -> None:
        self.outcome = outcome
        self.facts: Facts = outcome.facts
        self.work = Work(WORK)
        self._above: dict[int, Room] = {}

    @cached_property
    def room(self) -> Room:
        return Room(self.outcome, Grounds(self.facts, self.work))

    @cached_property
    def starting(self) -> list[Change]:
        return [change for change in self.outcome.changes if change.kind in STARTS]

    @cached_property
    def priorities(self) -> list[int]:
        """Of the gangs that start, ascending."""
        return sorted(change.gang.priority for change in self.starting)

    @cached_property
    def aged(self) -> Counter[int]:
        """Aged gangs that start, by priority."""
        aged = self.facts.aged
        return Counter(change.gang.priority for change in self.starting if aged(change.gang))

    def faults(self, change: Change, stated: StatedGang) -> Iterator[str]:
        assert stated.document.reason is not None, "see check"
        code, words = stated.document.reason.code, stated.document.reason.message[:MAX_WORDS]
        if change.kind == "preempt":
            yield from self._preempted(change, words)
        elif change.kind == "keep":
            yield from _incomplete(change, words)
        elif change.kind == "wait":
            yield from self._code(change.gang, code, words)
            yield from self._starts(change.gang, words)
            yield from _sizes(change.gang, words)
            yield from self._guarded(words)
            yield from self._held_for(change.gang, code, words)
            yield from self._reserved_for(change.gang, code, words)
            if change.gang.service is None:
                yield from self._room(change.gang, code, words)

    def _preempted(self, change: Change, words: str) -> Iterator[str]:
        arrivals = {
            other.label: other.gang.priority
            for other in self.outcome.gives_way_to(change, change.gang.running_pods)
        }
        for name, priority in _PREEMPTOR.findall(words):
            if str(arrivals.get(name)) != priority:
                yield f"{printable(name)} of priority {printable(priority)} takes none of its nodes"

    def _starts(self, gang: Gang, words: str) -> Iterator[str]:
        """How many gangs of its priority or higher start, and how many of them come first."""
        said = _FIRST.search(words)
        if said is None and _NONE not in words:
            return
        bands = _BAND.findall("" if said is None else said[1])
        stated = {which: _number(count) for count, which in bands}
        higher, aged = self._first(gang)
        peers = bisect_right(self.priorities, gang.priority) - bisect_left(
            self.priorities, gang.priority
        )
        for which, there in zip(_BANDS, (higher, aged, peers - aged), strict=True):
            if stated.get(which, 0) != there:
                yield f"{stated.get(which, 0)} gangs {which} start, but {there} do"

    def _code(self, gang: Gang, code: str, words: str) -> Iterator[str]:
        """Whether the gang and the words fit the code."""
        if code == "Bandwidth" and not gang.min_share:
            yield "it has no minBandwidthShare"
        levels = (gang.required, *(role.required for role in gang.roles))
        slices = any(role.slices for role in gang.roles)
        if code == "RequiredTopology" and not slices and all(level is None for level in levels):
            yield "it has no topology rule"
        yield from self._rule(gang, code)
        meant = next((own for pattern, own in _CODES if pattern.search(words)), None)
        if meant not in (None, NEVER) and _FIRST.search(words) and any(self._first(gang)):
            meant = OUTRANKED
        if meant not in (None, code):
            yield f"its words mean {meant}"
        if code == NEVER and (gang.running or self.empty.fits(gang)):
            yield "no count says that it could not start on the empty cluster"
        wanted, said = _NODES.search(words), _CLOSED.search(words)
        role = None if wanted is None else _role(gang, wanted[1])
        if said is not None and role is not None:
            there = len(self.empty.of(role))
            if _number(said[1]) != there:
                yield f"{_number(said[1])} nodes would do, but {there} would"

    def _rule(self, gang: Gang, code: str) -> Iterator[str]:
        """Whether there is such a rule as the code names, about this gang."""
        if code == QUOTA and not self._in_reach_of_queues(gang):
            yield "no queue limits it, and none is guaranteed anything"
        if code in POD_RULES and not self._pod_rules(POD_RULES[code], gang):
            yield f"no {POD_RULES[code]} is about its pods"
        if code in SHAPES and not self._shaped(code, gang):
            yield "neither it, nor another gang, nor the policy has such a rule"

    def _held_for(self, gang: Gang, code: str, words: str) -> Iterator[str]:
        """Whether some gang of higher priority holds room and waits, and the one that the words name."""
        if code != HELD_ROOM:
            return
        above = {
            change.label: str(change.gang.priority)
            for change in self.holding
            if change.gang.priority > gang.priority
        }
        said = _HELD_FOR.search(words)
        if not above:
            yield "no gang of higher priority waits for which room is held"
        elif said is not None and above.get(said[1]) != said[2]:
            yield f"no room is held for {printable(said[1])} of priority {printable(said[2])}"

    def _reserved_for(self, gang: Gang, code: str, words: str) -> Iterator[str]:
        """Whether nodes are reserved for another gang, one that the words name."""
        if code != RESERVED:
            return
        others = [
            stated.label
            for stated in self.outcome.case.gangs
            if stated.document.reserved is not None and stated.document.key != gang.key
        ]
        if not others:
            yield "no other gang holds a reservation"
        elif not any(label in words for label in others):
            yield f"names no gang that holds a reservation, such as {printable(others[0])}"

    @cached_property
    def holding(self) -> list[Change]:
        """Gangs that hold room and wait."""
        if self.facts.policy.hold_room_from is None:
            return []
        return [change for change in holding(self.outcome) if change.kind == "wait"]

    @cached_property
    def empty(self) -> EmptyCluster:
        return EmptyCluster(self.facts, Work(WORK))

    def _in_reach_of_queues(self, gang: Gang) -> bool:
        """Whether a queue that it is in has a limit, or one has a guarantee that the gang could take."""
        if not self.facts.queues:
            return False
        queues = self.outcome.queues
        return any(queues.limit[name] for name in queues.above(gang.queue)) or (
            gang.counts_against_promises and bool(queues.guaranteed or queues.cells.grounds)
        )

    def _pod_rules(self, rule: str, gang: Gang) -> bool:
        """Whether the gang has such a rule, or is in a set that such a rule of any gang names."""
        own = {one.rule for role in gang.roles for one in role.pod_rules}
        names = {name for role in gang.roles for name in role.pod_sets}
        return rule in own or not names.isdisjoint(self.named[rule])

    def _shaped(self, code: str, gang: Gang) -> bool:
        """Whether a rule of this code could keep the gang from starting."""
        if code == "Balance":
            return gang.balance is not None
        if code == "Spares":
            return any(spares for _, spares in self.facts.policy.spares)
        return gang.exclusive is not None or any(
            change.gang.exclusive is not None and change.gpus for change in self.outcome.changes
        )

    @cached_property
    def named(self) -> dict[str, set[str | None]]:
        """Sets that rules name, by the rule."""
        found: dict[str, set[str | None]] = {rule: set() for rule in POD_RULES.values()}
        for gang in self.facts.gangs:
            for one in (one for role in gang.roles for one in role.pod_rules):
                found[one.rule].add(one.pod_set)
        return found

    def _guarded(self, words: str) -> Iterator[str]:
        """Whether disruption budgets guard the gang that the words name."""
        one, both = _BUDGET.search(words), _BUDGETS.search(words)
        for said in (one, both):
            if said is not None and said[1] not in self.by_name:
                yield f"there is no gang {printable(said[1])}"
        if one is not None and (named := self.by_name.get(one[1])) is not None:
            gang = named.gang
            namespace, _, name = one[2].partition("/")
            wanted = sum(name in names for names in gang.budgets.values())
            allowed = self.facts.budgets.get((namespace, name), 0)
            left = max(0, allowed - self.evicted[namespace, name])
            if namespace != gang.namespace or (_number(one[3]), _number(one[4])) != (left, wanted):
                yield f"the budget allows {left} of the {wanted} evictions"
        if both is not None and (named := self.by_name.get(both[1])) is not None:
            gang = named.gang
            names = {both[2], both[3]}
            if not any(names <= set(own) for own in gang.budgets.values()):
                yield "no pod of the gang is in both budgets"

    @cached_property
    def by_name(self) -> dict[str, Change]:
        return {change.label: change for change in self.outcome.changes}

    @cached_property
    def evicted(self) -> Counter[tuple[str, str]]:
        return evictions(self.outcome)

    def _first(self, gang: Gang) -> tuple[int, int]:
        """Gangs of higher priority that start, and aged ones of its priority if it is not aged."""
        higher = len(self.priorities) - bisect_right(self.priorities, gang.priority)
        return higher, 0 if self.facts.aged(gang) else self.aged[gang.priority]

    def _room(self, gang: Gang, code: str, words: str) -> Iterator[str]:
        if self.work.left <= 0:
            return
        if code == SELECTOR and all(self._has_node(role) for role in gang.roles):
            yield "every role has a node that accepts its pods"
        short = next((role for role in gang.roles if self._fits(role) < role.min), None)
        peers = bool(self.priorities) and self.priorities[-1] >= gang.priority
        if code == OUTRANKED and IN_PLACE in words:
            if not self.priorities or self.priorities[0] >= gang.priority:
                yield "no gang of lower priority starts"
        elif code == OUTRANKED and short is not None and (not peers or "would fit" in words):
            what = (
                f"role {short.name} needs {short.min} pods, {self._fits(short)} fit after the plan"
            )
            yield what if peers else f"{what}, and no gang of its priority or a higher one starts"
        said = _FREE.search(words)
        nodes = {n for role in gang.roles for n in self.room.grounds.of(role)}
        if said is not None:
            left = self._left_above(gang.priority)
            free = sum(left.left(n)[0] for n in nodes)
            self.work.spend(len(nodes))
            if free != _number(said[1]):
                yield f"{_number(said[1])} GPUs are free on its nodes, but {free} are"
        yield from self._enough(gang, words)
        yield from self._holders(nodes, words)
        yield from self._largest(gang, nodes, words)

    def _largest(self, gang: Gang, nodes: Collection[int], words: str) -> Iterator[str]:
        """The gang that is said to take most of what it could use."""
        said = _MOST.search(words)
        change = None if said is None else self.by_name.get(said[1])
        if said is None:
            return
        first = (
            change is not None and change.kind in STARTS and change.gang.priority >= gang.priority
        )
        taken = self._held(change, nodes) if change is not None and first else 0
        if taken != _number(said[2]):
            yield f"{printable(said[1])} takes {_number(said[2])} GPUs there first, but it takes {taken}"

    def _left_above(self, priority: int) -> Room:
        """What the plan leaves without the gangs of lower priority that start."""
        if priority not in self._above:
            lower: dict[int, Mapping[PodKey, Pod]] = {
                i: {}
                for i, change in enumerate(self.outcome.changes)
                if change.kind == "place" and change.gang.priority < priority
            }
            self.work.spend(len(self.outcome.changes))
            self._above[priority] = self.room.beside(Variant(self.outcome, lower))
        return self._above[priority]

    def _enough(self, gang: Gang, words: str) -> Iterator[str]:
        said = _ENOUGH.search(words)
        role = None if said is None else _role(gang, said[1])
        if said is None or role is None or not role.gpus:
            return
        pods, gpus = _number(said[3]), _number(said[4])
        if pods >= role.min:
            yield f"there is room for {pods} pods of role {role.name}, which is enough"
        if said[2].startswith("after "):
            room, nodes = self._left_above(gang.priority), self.room.grounds.of(role)
            left = [room.left(n)[0] for n in nodes]
            self.work.spend(len(nodes))
            there = sum(free // role.gpus for free in left), sum(left)
        elif said[2].startswith("even on the empty cluster "):
            there = self.empty.room(role)
        else:  # counted without gangs that may stop or move
            return
        if (pods, gpus) != there:
            yield (
                f"there is room for {pods} and {gpus} GPUs are free, but it is {there[0]} and {there[1]}"
            )

    def _holders(self, nodes: Collection[int], words: str) -> Iterator[str]:
        """Running gangs that are said to hold what a gang could use."""
        one, many = _HOLDS.search(words), _HOLD.search(words)
        for name, gpus in [(one[1], one[2])] if one else [(many[3], many[4])] if many else []:
            change = self.by_name.get(name)
            held = 0 if change is None or not change.gang.running else self._held(change, nodes)
            if held != _number(gpus):
                yield f"{printable(name)} holds {_number(gpus)} GPUs there, but it holds {held}"
        if many is not None:
            running = [change for change in self.outcome.changes if change.gang.running]
            self.work.spend(sum(len(change.pods) for change in running))
            amounts = [held for change in running if (held := self._held(change, nodes))]
            if _number(many[1]) > len(amounts) or _number(many[2]) > sum(amounts):
                yield f"only {len(amounts)} running gangs hold GPUs there, {sum(amounts)} in all"

    def _held(self, change: Change, nodes: Collection[int]) -> int:
        return sum(change.gang.held(pod) for pod in change.pods.values() if pod.node in nodes)

    def _fits(self, role: Role) -> int:
        """Pods of the role that fit after the plan, each node by itself."""
        return self.room.sums(role, -1).get(0, 0)

    def _has_node(self, role: Role) -> bool:
        """Whether a node that accepts the role could hold one of its pods if it were empty."""
        nodes = self.facts.nodes
        self.work.spend(len(nodes))
        return any(
            nodes[n].gpus >= role.gpus
            and all(
                amount <= nodes[n].allocatable.get(resource, amount)
                for resource, amount in role.requests.items()
            )
            for n in self.room.grounds.of(role)
        )


def denies_room(stated: StatedGang) -> bool:
    """Whether the reason claims a proof that the gang does not fit."""
    reason = stated.document.reason
    if reason is None or reason.code not in NO_ROOM:
        return reason is not None and reason.code == NEVER
    return _DENIES.search(reason.message[:MAX_WORDS]) is not None


def _sizes(gang: Gang, words: str) -> Iterator[str]:
    """GPUs and pods that the gang asks for, at ``min``."""
    said = _NEEDS.search(words)
    if said is not None and _number(said[1]) != gang.gpus_at_min:
        yield f"needs {_number(said[1])} GPUs, but it asks for {gang.gpus_at_min}"
    for name, pods, gpus in _ROLE_NEEDS.findall(words):
        role = _role(gang, name)
        if role is None:
            yield f"there is no role {printable(name)}"
        elif (_number(pods), _number(gpus)) != (role.min, role.gpus):
            yield f"role {role.name} asks for {role.min} pods of {role.gpus} GPUs"


def _incomplete(change: Change, words: str) -> Iterator[str]:
    said = _MISSING.search(words)
    missing = sum(1 for _ in missing_pods(change.gang, change.gang.running_pods))
    if said is not None and _number(said[1]) != missing:
        yield f"{_number(said[1])} pods are missing, but {missing} are"


def missing_pods(gang: Gang, standing: Iterable[PodKey]) -> Iterator[PodKey]:
    """Pods that make the gang whole: of every role the least allowed count above those that stand."""
    there = set(standing)
    for number, role in enumerate(gang.roles):
        last = max((index for r, index in there if r == number), default=role.first - 1)
        steps = -(-(last + 1 - role.first - role.min) // role.step)
        for index in range(role.first, role.first + role.min + max(0, steps) * role.step):
            if (number, index) not in there:
                yield number, index


def _role(gang: Gang, name: str) -> Role | None:
    """The role of that name; without a name the only one."""
    if not name:
        return gang.roles[0] if len(gang.roles) == 1 else None
    return next((role for role in gang.roles if role.name == name), None)


def _number(text: str) -> int:
    """A count with thousands separators; of a long text the first digits."""
    return int(text.replace(",", "")[:30])
