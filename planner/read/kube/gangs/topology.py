"""Sets of pods that share a domain, as levels of a gang, of a role, or as slices.

Promises: each set is said in one of these ways, or it is a problem (required) or a remark
(preferred). Called by ``asking``.

What a gang and its roles ask of the topology, from group objects, controllers and annotations.

Promises: what cannot be said in levels of the gang, of a role or in slices is a problem in words if
it is required, a remark if it is preferred. Called by ``reading``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from planner.read.findings import Remarks
from planner.read.kube.dialects import kai
from planner.read.kube.dialects import kueue as kueue_asks
from planner.read.kube.dialects.base import Link, Maker, PodKey, Together
from planner.read.kube.dialects.kueue import PodSetAsk
from planner.read.kube.gangs.membership import Bunch
from planner.read.kube.gangs.roles import Draft
from planner.read.kube.records import LevelAsk, Objects, SliceAsk

NOT_MODELLED = "prefers one domain for a part of its pods, which is not modelled; it is ignored"


@dataclass(frozen=True, slots=True)
class Sharing:
    """A level for the gang (``role`` None), for a role by its place, or for slices of it."""

    level: LevelAsk
    hard: bool
    role: int | None = None
    size: int | None = None


def shared(
    together: Sequence[Together],
    drafts: Sequence[Draft],
    problems: list[str],
    subject: str,
    remarks: Remarks,
) -> list[Sharing]:
    """What the sets amount to; what they cannot amount to is added to the problems."""
    place = {
        pod.key: (role, index) for role, draft in enumerate(drafts) for index, pod in draft.members
    }
    found: list[Sharing] = []
    parts: dict[tuple[int, LevelAsk, bool], list[tuple[Together, set[int]]]] = {}
    for one in together:
        inside = {key for key in one.members if key in place}
        roles = sorted({place[key][0] for key in inside})
        if not inside:
            continue
        in_a_row = None if one.apart else one.size
        if in_a_row is not None and not _one_each(in_a_row, roles, drafts):
            found += _by_size(one, roles, drafts, problems, subject, remarks)
        elif in_a_row is None and len(inside) == len(place) and _whole(one, drafts):
            found.append(Sharing(one.level, one.hard))
        elif len(roles) == 1:
            indexes = {place[key][1] for key in inside}
            parts.setdefault((roles[0], one.level, one.hard), []).append((one, indexes))
        else:
            _give_up(one, problems, subject, remarks)
    for (role, level, hard), sets in parts.items():
        found += _of_role(
            Sharing(level, hard, role), sets, drafts[role], problems, subject, remarks
        )
    return found


def _whole(one: Together, drafts: Sequence[Draft]) -> bool:
    """Whether all pods that the roles will have are in this part, not only those that exist."""
    return not one.apart or (one.size or 0) >= sum(draft.size or 0 for draft in drafts)


def _one_each(size: int, roles: Sequence[int], drafts: Sequence[Draft]) -> bool:
    """Sub-groups of one role that are told apart already: no larger than the size."""
    return len(roles) == 1 and size >= (drafts[roles[0]].size or 0)


def _by_size(
    one: Together,
    roles: Sequence[int],
    drafts: Sequence[Draft],
    problems: list[str],
    subject: str,
    remarks: Remarks,
) -> list[Sharing]:
    """Every so many pods by index; over several roles only where each is a whole number of them."""
    size = one.size or 1
    even = all((drafts[role].size or 0) % size == 0 for role in roles)
    if not one.hard or not (even or len(roles) == 1):
        _give_up(one, problems, subject, remarks)
        return []
    return [Sharing(one.level, hard=True, role=role, size=size) for role in roles]


def _of_role(
    wanted: Sharing,
    sets: Sequence[tuple[Together, set[int]]],
    draft: Draft,
    problems: list[str],
    subject: str,
    remarks: Remarks,
) -> list[Sharing]:
    """Sets inside one role: all of it, or slices if they lie as slices do."""
    size = max((one.size or 0) if one.apart else 0 for one, _ in sets)
    size = max(size, *(len(indexes) for _, indexes in sets))
    if len(sets) == 1 and len(sets[0][1]) == len(draft.members) and _whole(sets[0][0], [draft]):
        return [wanted]
    ranks = [{(index - draft.first) // size for index in indexes} for _, indexes in sets]
    aligned = all(len(rank) == 1 for rank in ranks)
    apart = len(set().union(*ranks)) == len(sets)
    covered = sum(len(indexes) for _, indexes in sets) == len(draft.members)
    if not (wanted.hard and aligned and apart and covered):
        for one, _ in sets:
            _give_up(one, problems, subject, remarks)
        return []
    return [replace(wanted, size=size)]


def _give_up(one: Together, problems: list[str], subject: str, remarks: Remarks) -> None:
    if one.hard:
        problems.append(f"{one.what}: one domain of {one.level} for pods that are no slice")
    else:
        remarks.add(subject, NOT_MODELLED)


DISAGREE = "its pods ask for different topologies; the commonest counts"
KAI_LEVEL = kai.UNKNOWN_LEVEL


@dataclass(slots=True)
class RoleAsks:
    required: LevelAsk | None = None
    preferred: LevelAsk | None = None
    slices: tuple[SliceAsk, ...] = ()


@dataclass(slots=True)
class Asks:
    """Of the gang, and of each role in the order of the drafts."""

    required: LevelAsk | None = None
    preferred: LevelAsk | None = None
    roles: list[RoleAsks] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def asks(
    bunch: Bunch, drafts: Sequence[Draft], subject: str, objects: Objects, remarks: Remarks
) -> Asks:
    """Everything that is asked. Draws the ranks of a role with slices to 0 where they start higher."""
    found = Asks(roles=[RoleAsks(draft.plan.required) for draft in drafts])
    _of_groups(found, bunch)
    _of_makers(found, bunch, objects)
    podsets = [_podset(draft, remarks) for draft in drafts]
    _of_podsets(found, podsets, drafts)
    _of_segments(found, bunch, drafts, objects)
    together = [one for group in bunch.groups.values() for one in group.together]
    together += _loose(bunch)
    for sharing in shared(together, drafts, found.problems, subject, remarks):
        _add(found, sharing)
    _promote(found)
    for sharing in shared(_each(bunch), drafts, found.problems, subject, remarks):
        _add(found, sharing)
    for draft, role in zip(drafts, found.roles, strict=True):
        role.slices = _fitting(draft, role.slices, found.problems, subject, remarks)
        _cover(draft, role)
    if len(found.roles) == 1 and found.required is None:
        found.required, found.roles[0].required = found.roles[0].required, None
    found.problems = list(dict.fromkeys(found.problems))
    return found


def _of_groups(found: Asks, bunch: Bunch) -> None:
    alone = len(bunch.groups) == 1
    for group in bunch.groups.values():
        required = (group.required if alone else None) or group.around
        found.required = found.required or required
        found.preferred = found.preferred or (group.preferred if alone else None)
        found.problems += group.problems


def _each(bunch: Bunch) -> list[Together]:
    """What groups that only start together ask, each of its own pods."""
    if len(bunch.groups) < 2:
        return []
    members: dict[Link, list[PodKey]] = {}
    for pod, link in zip(bunch.pods, bunch.links, strict=True):
        if link is not None:
            members.setdefault(link, []).append(pod.key)
    return [
        Together(frozenset(members.get(link, ())), level, hard, group.subject)
        for link, group in bunch.groups.items()
        for level, hard in ((group.required, True), (group.preferred, False))
        if level is not None
    ]


def _of_makers(found: Asks, bunch: Bunch, objects: Objects) -> None:
    for key in sorted(bunch.makers):
        maker: Maker = bunch.makers[key]
        found.required = found.required or maker.required
        if found.required is None:
            found.preferred = found.preferred or maker.preferred
        found.problems += maker.problems
        notes = maker.object.annotations if maker.object is not None else {}
        if kai.TOPOLOGY in notes:
            required, preferred, lost = kai.owner_asks(notes, objects)
            found.required = found.required or required
            found.preferred = found.preferred or preferred
            found.problems += [KAI_LEVEL] if lost else []


def _podset(draft: Draft, remarks: Remarks) -> PodSetAsk:
    """What the pods of a role ask through Kueue's annotations."""
    stride = draft.plan.stride if draft.plan.stride > 1 else 0
    counted: Counter[PodSetAsk] = Counter()
    for _, pod in draft.members:
        counted[kueue_asks.asked(pod.annotations, stride)] += 1
    stated = [ask for ask in counted if ask != kueue_asks.NOTHING]
    if not stated:
        return kueue_asks.NOTHING
    # A pod that lost its annotations does not free the others; ties go to the first by index.
    chosen = max(stated, key=lambda ask: counted[ask])
    subject = draft.members[0][1].subject
    if len(stated) > 1:
        remarks.add(subject, DISAGREE)
    for odd in chosen.odd:
        remarks.add(subject, odd)
    for problem in chosen.problems:
        remarks.add(subject, problem)
    return chosen


def _of_podsets(found: Asks, podsets: Sequence[PodSetAsk], drafts: Sequence[Draft]) -> None:
    for draft, role, ask in zip(drafts, found.roles, podsets, strict=True):
        role.required = ask.required or role.required
        role.preferred = ask.preferred
        role.slices = ask.slices or draft.plan.slices
        found.problems += ask.problems
    by_group: dict[str, list[int]] = {}
    for place, ask in enumerate(podsets):
        if ask.group is not None:
            by_group.setdefault(ask.group, []).append(place)
    for name, places in by_group.items():
        if len(places) < 2 or not any(podsets[place].required for place in places):
            continue
        if len(places) < len(drafts):
            names = ", ".join(drafts[place].name for place in places)
            found.problems.append(f"pod set group {name}: roles {names} in one domain")


def _of_segments(found: Asks, bunch: Bunch, drafts: Sequence[Draft], objects: Objects) -> None:
    """KAI's segments: of the pods of a role, else of the controller for every role that large."""
    made = [bunch.makers[key].object for key in sorted(bunch.makers)]
    common = next((one.annotations for one in made if one is not None), {})
    for draft, role in zip(drafts, found.roles, strict=True):
        own = next((pod.annotations for _, pod in draft.members), {})
        segment, lost = kai.segments(own if kai.SEGMENT_SIZE in own else common, objects)
        if segment is not None and (draft.size or 0) >= segment.size:
            role.slices = (*role.slices, segment)
        found.problems += [KAI_LEVEL] if lost else []


def _loose(bunch: Bunch) -> list[Together]:
    """Levels of group objects whose pods start one by one but share a domain all the same."""
    every = frozenset(pod.key for pod in bunch.pods)
    return [
        Together(every, group.required, hard=True, what=group.subject)
        for group in bunch.loose.values()
        if group.required is not None
    ]


def _add(found: Asks, sharing: Sharing) -> None:
    target = found if sharing.role is None else found.roles[sharing.role]
    if sharing.size is not None and sharing.role is not None:
        role = found.roles[sharing.role]
        role.slices = (*role.slices, SliceAsk(sharing.size, sharing.level))
    elif sharing.hard:
        target.required = target.required or sharing.level
    else:
        target.preferred = target.preferred or sharing.level


def _fitting(
    draft: Draft, slices: Iterable[SliceAsk], problems: list[str], subject: str, remarks: Remarks
) -> tuple[SliceAsk, ...]:
    """Slices that divide the role, each once; ranks start at 0 so that they are what is meant."""
    distinct = tuple(dict.fromkeys(slices))
    kept = tuple(one for one in distinct if (draft.size or 0) % one.size == 0)
    for one in distinct:
        if one not in kept:
            what = f"slices of {one.size} do not divide role {draft.name} of {draft.size} pods"
            remarks.add(subject, what)
            problems.append(what)
    if kept and draft.first:
        draft.members = [(index - draft.first, pod) for index, pod in draft.members]
        draft.plan = replace(draft.plan, first_index=0)
    return kept


def _cover(draft: Draft, role: RoleAsks) -> None:
    """Of several layers of slices those that take in the whole role are a level it requires.

    Slices of one pod ask for nothing, and of one size the nearest layer asks for all.
    """
    if len(role.slices) > 1:
        nearest = {one.size: one for one in role.slices if one.size > 1}
        role.slices = tuple(nearest.values()) or role.slices[:1]
    covering = [one for one in role.slices if one.size >= (draft.size or 0)]
    if len(role.slices) > 1 and covering:
        rest = tuple(one for one in role.slices if one not in covering)
        role.slices = rest or tuple(covering[-1:])
        # Layers lie inside what else the role requires: the narrowest of them says it all.
        role.required = covering[-1].level if rest else role.required


def _promote(found: Asks) -> None:
    """What every role asks is the gang's own, and is not asked twice."""
    wanted = {role.required for role in found.roles}
    if len(wanted) == 1 and found.required in (None, *wanted):
        found.required = wanted.pop() or found.required
    liked = {role.preferred for role in found.roles}
    if len(liked) == 1 and found.preferred in (None, *liked):
        found.preferred = liked.pop() or found.preferred
    for role in found.roles:
        role.required = None if role.required == found.required else role.required
        role.preferred = None if role.preferred == found.preferred else role.preferred
