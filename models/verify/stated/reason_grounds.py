"""What a reason must state to be one: facts that show it, and what they presuppose.

A gang that would fit but for a rule has room by counts; what is said of tiers, queues and shares is as the
Policy has it; what only a proof or a search can show is left, and listed as not checked.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

from models.documents.plan import PlanObjective
from models.documents.reason import CODES, UNSTATED, ReasonFields
from models.tiers import MAINS, family
from models.verify.empty_cluster import EmptyCluster
from models.verify.facts import Gang
from models.verify.judged_rules import codes
from models.verify.outcome import Outcome
from models.verify.stated.reason_rooms import Rooms, role_named
from models.verify.violation import printable

POD_RULES = {"AntiAffinity": "anti-affinity", "Affinity": "affinity", "Spread": "spread"}
"""Rules about pods of sets, by the code of the reason."""

IN_TURN = ("QueueOrder",)


def barred(code: str) -> bool:
    """Whether those that come first leave room for gangs of this code: another rule keeps them waiting."""
    return code in IN_TURN or code in POD_RULES or code in codes()


def known(code: str) -> bool:
    """Whether this version knows what the code means, and it means something."""
    return code != UNSTATED and (code in CODES or code in codes())


ALONE = 1 << 60
"""Above every priority: not even running gangs that may give way are there."""


def shown(code: str, f: ReasonFields) -> bool:
    """Whether the fields show the reason, or say on what unchecked finding it rests."""
    room = f.room_pods is not None or f.room_slices is not None
    gpus = f.room_gpus is not None and f.gpus is not None
    if code in ("NoRoom", "RequiredTopology"):
        counted = f.counted is not None and (room or gpus)
        counted = counted and (code == "NoRoom" or f.level is not None)
        return counted or f.apart or f.broken or f.ended or f.text is not None
    if code == "Resources":
        return f.counted is not None and room and bool(f.resources)
    if code == "Outranked":
        counted = f.counted is not None and (room or gpus)
        fits = f.fits is not None and (f.earlier or f.guaranteed or f.unrewarded or f.no_speed)
        return (counted and f.first is not None) or bool(fits) or f.ended
    if barred(code) and code not in IN_TURN:
        return f.first is not None and f.gpus is not None
    facts = {
        "QueueOrder": f.by or None,
        "Selector": f.matching,
        "Bandwidth": f.share,
        "Quota": f.limit if f.queue is not None and f.guarantee is None else f.guarantee,
        "Reserved": f.by or None,
    }
    promised = f.cells is not None or f.kept is not None or f.pinned is not None
    return code not in facts or facts[code] is not None or (code == "Quota" and promised)


class Grounds:
    """What reasons of gangs that wait and are not held presuppose."""

    def __init__(self, outcome: Outcome, rooms: Rooms, empty: EmptyCluster) -> None:
        self.outcome = outcome
        self.facts = outcome.facts
        self.rooms = rooms
        self.empty = empty

    def faults(self, gang: Gang, code: str, fields: ReasonFields) -> Iterator[str]:
        if known(code) and not shown(code, fields):
            yield "states nothing that shows it"
        yield from self._tiers(gang, fields)
        yield from self._others(fields)
        if code == "Selector":
            yield from self._selector(gang, fields)
        if code == "Never":
            yield from self._never(fields)
        elif known(code) and not (fields.ended or fields.text or self.empty.fits(gang)):
            yield "a count says that it could never start"
        if code == "Resources" or fields.resources:
            yield from self._resources(gang, fields)
        if fields.one_model and all(role.mix_models for role in gang.roles if role.gpus):
            yield "each of its roles may mix GPU models"
        yield from self._presupposed(gang, code, fields)

    # The Policy

    def _tiers(self, gang: Gang, f: ReasonFields) -> Iterator[str]:
        """What the fields say of the order of the tiers, and of proofs that the plan states."""
        listed = [one.name for one in self.facts.policy.objectives or ()]
        rewarding = [at for at, name in enumerate(listed) if family(name).fused]
        if f.unrewarded and rewarding:
            yield f"the tier {listed[rewarding[0]]} rewards a start"
        if f.earlier and list(f.earlier) != listed[: min(rewarding, default=0)]:
            yield f"the tiers {printable(', '.join(f.earlier))} are not those before a start counts"
        if f.fits is not None and not (rewarding or f.unrewarded):
            yield "no tier rewards a start"
        if (f.guaranteed or f.within) and not self._guarantees:
            yield "nothing is guaranteed to queues"
        if f.proven is None:
            return
        if str(gang.priority) not in self._proven:
            yield f"no tier of priority {gang.priority} is stated as proven"
        by_speed, peers = self.facts.counts_goodput, self._peers(gang)
        known = {
            (True, True): "slowsPeers",
            (True, False): "noPlanGains",
            (False, True): "displacesPeers",
            (False, False): "noPlanAdmits",
        }
        if f.proven != known[by_speed, peers]:
            yield f"says {f.proven}, but only {known[by_speed, peers]} could be proven"

    def _peers(self, gang: Gang) -> bool:
        return len(self.outcome.by_priority[gang.priority]) > 1

    @cached_property
    def _guarantees(self) -> bool:
        return any(one.name.startswith("guarantee/") for one in self._stated)

    @property
    def _stated(self) -> tuple[PlanObjective, ...]:
        return self.outcome.case.status.objectives

    @cached_property
    def _proven(self) -> set[str]:
        """Priorities of which the main tier is stated as proven best."""
        found = set()
        for one in self._stated:
            name, _, priority = one.name.partition("/")
            if name in MAINS and one.bound == one.value and one.proof is not None:
                found.add(priority)
        return found

    # Others

    def _others(self, f: ReasonFields) -> Iterator[str]:
        """How many gangs may give way at most, and that those which do not move run."""
        if max(f.without, f.tried) > self._giving_way:
            yield f"only {self._giving_way} running gangs may be stopped or moved"
        for name in f.unmoved:
            if name not in self._running:
                yield f"{printable(name)} does not run"

    @cached_property
    def _giving_way(self) -> int:
        gangs = (gang for gang in self.facts.gangs if gang.running)
        return sum(gang.preemptible or gang.movable for gang in gangs)

    @cached_property
    def _running(self) -> set[str]:
        return {change.label for change in self.outcome.changes if change.gang.running}

    # Nodes

    def _selector(self, gang: Gang, f: ReasonFields) -> Iterator[str]:
        roles = [role for role in gang.roles if f.role in (None, role.name)]
        if not f.by_rules and all(self.rooms.nodes(gang, role) for role in roles):
            yield "nodes in order accept its pods"
        if any(role.name == f.role or len(gang.roles) == 1 for role in roles):
            return
        yield "does not say which role has no nodes"

    def _never(self, f: ReasonFields) -> Iterator[str]:
        """The GPU models and taints that the cluster has, and on what is counted."""
        if f.counted != "empty" and (f.room_pods is not None or f.room_gpus is not None):
            yield "its room is not counted on the empty cluster"
        if f.models:
            names = sorted({node.model.gpu for node in self.facts.nodes if node.model is not None})
            if list(f.models) != names[: len(f.models)] or len(f.models) + f.more != len(names):
                yield f"the GPU models are {printable(', '.join(names))}"
        unknown = {*f.taints} - {taint.key for node in self.facts.nodes for taint in node.taints}
        if unknown:
            yield f"no node has the taint {printable(min(unknown))}"

    # Room

    def _resources(self, gang: Gang, f: ReasonFields) -> Iterator[str]:
        """By GPUs alone the role has room; of several resources none alone is too little."""
        room, role = self.rooms.counted(gang, f), role_named(gang, f.role)
        if room is None or role is None:
            return
        for names in ((), *((name,) for name in f.resources if len(f.resources) > 1)):
            there = self.rooms.pods(room, role, names).get(None, 0)
            if there < role.min:
                what = printable(", ".join(names)) if names else "the GPUs"
                yield f"{what} alone have no room for more than {there} pods"

    def _presupposed(self, gang: Gang, code: str, f: ReasonFields) -> Iterator[str]:
        """A rule keeps it waiting only where there is room without the rule."""
        above = None
        if barred(code) or (code == "Outranked" and f.fits is not None):
            above = gang.priority
        elif code == "Reserved":
            above = gang.priority + 1
        elif code == "Bandwidth":
            above = ALONE
        if above is not None and not self._room(gang, above):
            yield "there is no room for it even without that"

    def _room(self, gang: Gang, above: int) -> bool:
        """Whether no count denies that it fits beside the starts of this priority or higher.

        Above every priority: nor beside running gangs that may give way.
        """
        rooms = self.rooms
        if rooms.work.left <= 0:
            return True
        return rooms.holds(rooms.alone if above >= ALONE else rooms.above(above), gang)
