"""What a reason must state to be one: facts that show it, and what they presuppose.

A gang that would fit but for a rule has room by counts; what is said of tiers, queues and shares is as the
Policy has it; what only a proof or a search can show is left, and listed as not checked.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

from models.documents.reason import CODES, UNSTATED, ReasonFields
from models.tiers import MAINS
from models.verify.empty_cluster import EmptyCluster
from models.verify.facts import Gang
from models.verify.judged_rules import codes
from models.verify.outcome import Outcome
from models.verify.stated.reason_rooms import Rooms, role_named
from models.verify.violation import printable

POD_RULES = {"AntiAffinity": "anti-affinity", "Affinity": "affinity", "Spread": "spread"}
"""Rules about pods of sets, by the code of the reason."""

PROVABLE = ("NoRoom", "RequiredTopology", "Resources", "Bandwidth")
"""Codes of which it may be proven that no plan starts the gang now, whatever the tiers."""


def barred(code: str) -> bool:
    """Whether those that come first leave room for gangs of this code: another rule keeps them waiting."""
    return code == "QueueOrder" or code in POD_RULES or code in codes()


def known(code: str) -> bool:
    """Whether this version knows what the code means, and it means something."""
    return code != UNSTATED and (code in CODES or code in codes())


NEEDS = (
    ("room_pods", "pods"),
    ("domain", "level"),
    ("pods", "gpus"),
    ("held", "queue"),
    ("held", "limit"),
)
"""Fields, and others without which they mean nothing; of all codes but ``Incomplete``."""

FREE_WORDS = ("NoRoom", "RequiredTopology")
"""Codes whose words may be a finding of the search: these plans list them as not checked."""


def shown(code: str, f: ReasonFields) -> bool:
    """Whether the fields show the reason, or say on what unchecked finding it rests."""
    if code in ("QueueOrder", "Reserved"):
        return bool(f.by)
    if code == "Resources":
        return f.room_pods is not None and bool(f.resources)
    if code == "Quota":
        return f.gpus is not None
    if code in ("NoRoom", "RequiredTopology", "Outranked") or barred(code):
        return f.proven or f.gpus is not None or f.text is not None
    return True


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
        if fields.proven and code not in PROVABLE and str(gang.priority) not in self._proven:
            yield f"no tier of priority {gang.priority} is stated as proven"
        unknown = {*fields.taints} - self._taints
        if unknown:
            yield f"no node has the taint {printable(min(unknown))}"
        explained = code not in ("Outranked", *PROVABLE) or fields.has_room
        counted = explained and not fields.text and code != "Never" and known(code)
        if counted and not self.empty.fits(gang):
            yield "a count says that it could never start"
        if code == "Resources" or (fields.resources and code != "Never"):
            yield from self._resources(gang, fields)
        mixed = all(role.mix_models for role in gang.roles if role.gpus)
        if code in PROVABLE and fields.model is not None and mixed:
            yield "each of its roles may mix GPU models"
        yield from self._presupposed(gang, code, fields)
        yield from _lonely(gang, code, fields)

    @cached_property
    def _taints(self) -> set[str]:
        return {t.key for node in self.facts.nodes for t in node.taints}

    @cached_property
    def _proven(self) -> set[str]:
        """Priorities of which the main tier is stated as proven best."""
        found = set()
        for one in self.outcome.case.status.objectives:
            name, _, priority = one.name.partition("/")
            if name in MAINS and one.bound == one.value and one.proof is not None:
                found.add(priority)
        return found

    # Nodes

    def selector(self, gang: Gang, stated: ReasonFields | None) -> Iterator[str]:
        """Whether a role that is short, or one of all, is accepted by no node in order."""
        f = stated or ReasonFields()
        roles = [role for role in gang.roles if f.role in (None, role.name)]
        models = self._of_service(gang)
        nodes = self.facts.nodes
        if all(
            any(
                not models or role.mix_models or ((of := nodes[n].model) and of.gpu in models)
                for n in self.rooms.nodes(gang, role)
            )
            for role in roles
        ):
            yield "nodes in order accept its pods"
        if stated is not None and len(gang.roles) > 1 and all(one.name != f.role for one in roles):
            yield "does not say which role has no nodes"

    def _of_service(self, gang: Gang) -> set[str]:
        """GPU models that other gangs of its service have; none where it may choose."""
        nodes, found = self.facts.nodes, set[str]()
        for change in self.outcome.changes if gang.service is not None else ():
            other = change.gang
            if (other.namespace, other.service) == (gang.namespace, gang.service):
                for (role, _), pod in (*change.pods.items(), *other.running_pods.items()):
                    if other.roles[role].gpus and (model := nodes[pod.node].model) is not None:
                        found.add(model.gpu)
        return found

    # Room

    def _resources(self, gang: Gang, f: ReasonFields) -> Iterator[str]:
        """By GPUs alone the role has room; of several resources none alone is too little."""
        role = role_named(gang, f.role)
        if self.rooms.reshapes or role is None:
            return
        for names in ((), *((name,) for name in f.resources if len(f.resources) > 1)):
            there = self.rooms.pods(role, names).get(None, 0)
            if there < role.min:
                what = printable(", ".join(names)) if names else "the GPUs"
                yield f"{what} alone have no room for more than {there} pods"

    def _presupposed(self, gang: Gang, code: str, f: ReasonFields) -> Iterator[str]:
        """A rule keeps it waiting only where no count denies that there is room without the rule.

        There is room beside the starts of its priority or higher, beside those of higher priority, or beside
        running gangs that may not give way.
        """
        rooms = self.rooms
        if rooms.work.left <= 0:
            return
        if barred(code) or (code == "Outranked" and f.proven and not f.has_room):
            room = rooms.above(gang.priority)
        elif code == "Reserved":
            room = rooms.above(gang.priority + 1)
        elif code == "Bandwidth":
            room = rooms.alone()
        else:
            return
        if not rooms.holds(room, gang):
            yield "there is no room for it even without that"


def _lonely(gang: Gang, code: str, f: ReasonFields) -> Iterator[str]:
    """What is stated without that which it is about, or twice."""
    for name, other in NEEDS:
        if getattr(f, name) is not None and getattr(f, other) is None:
            own, lacking = (ReasonFields.model_fields[one].alias for one in (name, other))
            yield f"states {own} without {lacking}"
    if f.text is not None and code not in FREE_WORDS:
        yield "states the words of a hold, and has none"
    if f.resources and f.room_pods is None and f.offered is None:
        yield "names resources without the room that they leave"
    if f.resources and f.offered is not None and len(f.resources) > 1:
        yield "does not say of which resource a node offers so much"
    for names in ([one.gang for one in f.by], [*f.resources]):
        if len(set(names)) < len(names):
            yield f"names {printable(max(names, key=names.count))} twice"
    about = f.room_pods is not None or f.offered is not None
    if about and role_named(gang, f.role) is None:
        yield "does not say which role it is about"
