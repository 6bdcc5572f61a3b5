"""What a gang and its roles ask of the topology, from pod groups, controllers and annotations.

The result is a level of the gang, of a role, or slices of a role. Anything else is a problem if it is
required, and a remark if it is preferred.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from planner.read.findings import Remarks
from planner.read.kube.dialect_registry import DIALECTS, asked_topology
from planner.read.kube.dialects.base import ASKS_NOTHING, Asked, Colocation, PodKey
from planner.read.kube.gangs.membership import Membership
from planner.read.kube.records import GroupKey, KubeGang, KubeRole, LevelAsk, Objects, SliceAsk

NOT_MODELLED = "prefers one domain for a part of its pods, which is not modelled; ignored"
DISAGREE = "its pods ask for different topologies; the commonest counts"


def add_topology(gang: KubeGang, members: Membership, api: Objects, remarks: Remarks) -> None:
    """Set the levels and slices of a gang and its roles. A role with slices is indexed from 0."""
    _Topology(gang, members, api, remarks).read()
    gang.problems = tuple(dict.fromkeys(gang.problems))


class _Topology:
    def __init__(self, gang: KubeGang, members: Membership, api: Objects, remarks: Remarks) -> None:
        self.gang = gang
        self.roles = gang.roles
        self.members = members
        self.api = api
        self.remarks = remarks

    def read(self) -> None:
        alone = len(self.members.groups) == 1
        for group in self.members.groups.values():
            self.require(group.required if alone else None, None)
            self.require(group.parent_required, group.preferred if alone else None)
            self.gang.problems += group.problems
        self.add_controllers()
        self.add_podsets()
        self.add_segments()
        groups = self.members.groups.values()
        self.add_colocations([one for group in groups for one in group.colocations])
        every = frozenset(pod.key for pod in self.members.pods)
        # The pods of loose groups may start one by one, but share a domain.
        self.add_colocations(
            [
                Colocation(every, group.required, hard=True, source=group.subject)
                for group in self.members.loose.values()
                if group.required is not None
            ]
        )
        self.lift_common_levels()
        self.add_colocations(self.groups_of_composite())
        for role in self.roles:
            role.slices = self.fitting_slices(role)
            _reduce_slices(role)
        if len(self.roles) == 1 and self.gang.required is None:
            self.gang.required, self.roles[0].required = self.roles[0].required, None

    def require(self, required: LevelAsk | None, preferred: LevelAsk | None) -> None:
        """Levels of the whole gang; the first ones count."""
        self.gang.required = self.gang.required or required
        self.gang.preferred = self.gang.preferred or preferred

    def add_controllers(self) -> None:
        for controller in self.members.sorted_controllers():
            self.require(controller.required, None)
            if self.gang.required is None:
                self.require(None, controller.preferred)
            self.gang.problems += controller.problems
            annotations = controller.object.annotations if controller.object is not None else {}
            for one in DIALECTS:
                if one.controller_topology is not None:
                    asked = one.controller_topology(annotations, self.api)
                    self.require(asked.required, asked.preferred)
                    self.gang.problems += asked.problems

    def add_podsets(self) -> None:
        """Kueue's annotations on the pods of each role."""
        by_group: dict[str, list[int]] = {}
        required = []
        for place, role in enumerate(self.roles):
            ask = self.podset_topology(role)
            required.append(ask.required)
            role.required = ask.required or role.required
            role.preferred = ask.preferred
            role.slices = ask.slices or role.slices
            self.gang.problems += ask.problems
            if ask.group is not None:
                by_group.setdefault(ask.group, []).append(place)
        for name, places in by_group.items():
            part = 1 < len(places) < len(self.roles)
            if part and any(required[place] for place in places):
                names = ", ".join(self.roles[place].name for place in places)
                self.gang.problems += (f"pod set group {name}: roles {names} in one domain",)

    def podset_topology(self, role: KubeRole) -> Asked:
        size = role.stride if role.stride > 1 else 0
        asks = [asked_topology(pod.annotations, size) for _, pod in role.members]
        counted = Counter(ask for ask in asks if ask != ASKS_NOTHING)
        if not counted:
            return ASKS_NOTHING
        # A pod that lost its annotations does not free the others; ties go to the first by index.
        chosen = max(counted, key=lambda ask: counted[ask])
        disagree = (DISAGREE,) if len(counted) > 1 else ()
        for what in (*disagree, *chosen.remarks, *chosen.problems):
            self.remarks.add(role.members[0][1].subject, what)
        return chosen

    def add_segments(self) -> None:
        """Segments of the pods of a role, or of the controller for every role that large."""
        common = next((one.annotations for one in self.members.controller_objects()), {})
        for read in filter(None, (one.segments for one in DIALECTS)):
            for role in self.roles:
                own = next((pod.annotations for _, pod in role.members), {})
                segment, problem = read(own, common, self.api)
                if segment is not None and role.most >= segment.size:
                    role.slices = (*role.slices, segment)
                self.gang.problems += () if problem is None else (problem,)

    def groups_of_composite(self) -> list[Colocation]:
        """What each of several groups that start together asks of its own pods."""
        if len(self.members.groups) < 2:
            return []
        own: dict[GroupKey | None, list[PodKey]] = {}
        for pod in self.members.pods:
            own.setdefault(pod.group, []).append(pod.key)
        found = []
        for key, group in self.members.groups.items():
            pods = frozenset(own.get(key, ()))
            for level, hard in ((group.required, True), (group.preferred, False)):
                if level is not None:
                    found.append(Colocation(pods, level, hard, group.subject))
        return found

    def lift_common_levels(self) -> None:
        """What every role asks becomes the gang's own, and is not asked twice."""
        for field in ("required", "preferred"):
            asked = {getattr(role, field) for role in self.roles}
            own = getattr(self.gang, field)
            if len(asked) == 1 and own in (None, *asked):
                own = asked.pop() or own
                setattr(self.gang, field, own)
            for role in self.roles:
                if getattr(role, field) == own:
                    setattr(role, field, None)

    def add_colocations(self, colocations: Sequence[Colocation]) -> None:
        """Express sets of pods as levels of the gang, levels of a role, or slices."""
        place = {
            pod.key: (number, index)
            for number, role in enumerate(self.roles)
            for index, pod in role.members
        }
        parts: dict[tuple[int, LevelAsk, bool], list[tuple[Colocation, set[int]]]] = {}
        for one in colocations:
            inside = {key for key in one.members if key in place}
            numbers = sorted({place[key][0] for key in inside})
            roles = [self.roles[number] for number in numbers]
            by_index = not one.partial and one.size is not None
            if not inside:
                continue
            if by_index and not (len(roles) == 1 and (one.size or 0) >= roles[0].most):
                # Every so many pods by index; over several roles only if it divides the size of each.
                size = one.size or 1
                if not one.hard or (len(roles) > 1 and any(role.most % size for role in roles)):
                    self.give_up(one)
                    continue
                for role in roles:
                    role.slices = (*role.slices, SliceAsk(size, one.level))
            elif not by_index and len(inside) == len(place) and _covers(one, self.roles):
                self.apply(one, self.gang)
            elif len(roles) == 1:
                indexes = {place[key][1] for key in inside}
                parts.setdefault((numbers[0], one.level, one.hard), []).append((one, indexes))
            else:
                self.give_up(one)
        for (number, _, _), sets in parts.items():
            self.add_parts_of_role(self.roles[number], sets)

    def apply(self, one: Colocation, target: KubeGang | KubeRole) -> None:
        if one.hard:
            target.required = target.required or one.level
        else:
            target.preferred = target.preferred or one.level

    def add_parts_of_role(
        self, role: KubeRole, sets: Sequence[tuple[Colocation, set[int]]]
    ) -> None:
        """Sets inside one role: all of it, or slices if they are aligned like slices."""
        one, first = sets[0]
        if len(sets) == 1 and len(first) == len(role.members) and _covers(one, [role]):
            self.apply(one, role)
            return
        size = max((part.size or 0) if part.partial else 0 for part, _ in sets)
        size = max(size, *(len(indexes) for _, indexes in sets))
        ranks = [{(index - role.first_index) // size for index in indexes} for _, indexes in sets]
        aligned = all(len(rank) == 1 for rank in ranks)
        disjoint = len(set().union(*ranks)) == len(sets)
        complete = sum(len(indexes) for _, indexes in sets) == len(role.members)
        if one.hard and aligned and disjoint and complete:
            role.slices = (*role.slices, SliceAsk(size, one.level))
            return
        for part, _ in sets:
            self.give_up(part)

    def give_up(self, one: Colocation) -> None:
        if one.hard:
            what = f"{one.source}: one domain of {one.level} for pods that are no slice"
            self.gang.problems += (what,)
        else:
            self.remarks.add(self.gang.subject, NOT_MODELLED)

    def fitting_slices(self, role: KubeRole) -> tuple[SliceAsk, ...]:
        """Slices that divide the role, each once; its indexes then start at 0."""
        kept = []
        for one in dict.fromkeys(role.slices):
            if _is_in_slices(role, one.size):
                kept.append(one)
            else:
                what = f"slices of {one.size} do not divide role {role.name} of {role.most} pods"
                self.remarks.add(self.gang.subject, what)
                self.gang.problems += (what,)
        if kept and role.first_index:
            role.members = [(index - role.first_index, pod) for index, pod in role.members]
            role.first_index = 0
        return tuple(kept)


def _covers(one: Colocation, roles: Iterable[KubeRole]) -> bool:
    """Whether all pods that the roles will have are in this part, not only those that exist."""
    return not one.partial or (one.size or 0) >= sum(role.most for role in roles)


def _is_in_slices(role: KubeRole, size: int) -> bool:
    """Whether slices divide the role; one that may lack pods by its group then lacks whole slices."""
    if role.range is None or role.stated:
        return (role.size or 0) % size == 0
    if size in (1, role.most):
        return True
    whole = role.range.in_slices(size)
    if whole is not None:
        role.range, role.size = whole, whole.least
        end = role.first_index + whole.most
        role.members = [(index, pod) for index, pod in role.members if index < end]
    return whole is not None


def _reduce_slices(role: KubeRole) -> None:
    """Of several layers of slices those that contain the whole role are a level it requires.

    Slices of one pod ask for nothing, and of one size the nearest layer implies the others.
    """
    if len(role.slices) > 1:
        nearest = {one.size: one for one in role.slices if one.size > 1}
        role.slices = tuple(nearest.values()) or role.slices[:1]
    covering = [one for one in role.slices if one.size >= role.most]
    if len(role.slices) > 1 and covering:
        rest = tuple(one for one in role.slices if one not in covering)
        role.slices = rest or tuple(covering[-1:])
        # Layers lie inside what else the role requires: the narrowest of them implies it.
        role.required = covering[-1].level if rest else role.required
