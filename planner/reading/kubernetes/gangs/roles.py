"""Bunches to roles: seats, sizes, and what of it has to be told.

Promises: names of roles differ; pods of one role ask for equally many GPUs; sizes are bounded.
Called by ``reading``.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from planner.reading.kubernetes.forms import KubePod
from planner.reading.kubernetes.gangs.forms import Link, MakerKey, RolePlan, Seat
from planner.reading.kubernetes.gangs.seating import Claim, Member, numbered, seated
from planner.reading.kubernetes.gangs.sorting import Bunch
from planner.reading.kubernetes.gangs.table import MAKERS
from planner.reading.kubernetes.looking import number
from planner.reading.remarks import Remarks

LARGEST = 1_000_000
"""Most pods a role can have."""

_MANY, _TIMES = 20_000, 100
"""A role of more than so many pods must have at least one in so many of them."""

SPLIT = "asks for another number of GPUs than others of its role; they count as a role of their own"
_SEATS = {dialect.name: dialect.seat for dialect in MAKERS}
_INDEXES = ("kueue.x-k8s.io/pod-group-pod-index", "apps.kubernetes.io/pod-index")
_INDEX_LABEL = "kueue.x-k8s.io/pod-group-pod-index-label"
DEFAULT_ROLE = "worker"


@dataclass(slots=True)
class Draft:
    """A role on its way: ``size`` None while nothing says it."""

    name: str
    plan: RolePlan
    members: list[Member]
    size: int | None
    problems: list[str] = field(default_factory=list)

    @property
    def first(self) -> int:
        return self.plan.first_index

    @property
    def end(self) -> int:
        """One above the highest index that is there."""
        return self.members[-1][0] + 1 if self.members else self.first

    def close_ranks(self) -> bool:
        """Number the members without gaps; whether any index changed."""
        ranks = [(self.first + place, pod) for place, (_, pod) in enumerate(self.members)]
        changed = ranks != self.members
        self.members = ranks
        return changed


def drafts(bunch: Bunch, remarks: Remarks) -> list[Draft]:
    """The roles of a bunch in the order of their controllers."""
    claims: dict[tuple[MakerKey | None, str], list[Claim]] = {}
    for pod, key, link in zip(bunch.pods, bunch.keys, bunch.links, strict=True):
        seat = _seat(bunch, pod, key, link)
        claims.setdefault((key, seat.role), []).append((seat.index, pod))
    made: list[Draft] = []
    for key, wanted in _plans(bunch, claims):
        mine = claims.get((key, wanted.name), [])
        if key is None:
            mine = numbered(mine, _stated(bunch, wanted.name, len(claims)))
        plan, problem = _bounded(wanted, len(mine))
        members = seated(mine, plan, remarks)
        draft = Draft(_name(bunch, claims, key, plan.name), plan, members, plan.size)
        if draft.size is not None:
            draft.size = max(draft.size, draft.end - draft.first)
        draft.problems += [problem] if problem else []
        made += _by_gpus(draft, remarks)
    _tell_apart(made)
    return made


def _seat(bunch: Bunch, pod: KubePod, key: MakerKey | None, link: Link | None) -> Seat:
    if key is not None:
        return _SEATS[key.kind](pod, bunch.makers[key])
    roles = (group.roles.get(pod.key) for group in bunch.groups.values())
    # Groups that start together, each of pods that nobody made, are roles of one gang.
    default = link.title if link is not None and len(bunch.groups) > 1 else DEFAULT_ROLE
    role = next((role for role in roles if role is not None), default)
    labels = (pod.annotations.get(_INDEX_LABEL), *_INDEXES)
    indexes = (number(pod.labels.get(label)) for label in labels if label)
    return Seat(role, next((index for index in indexes if index is not None), None))


def _stated(bunch: Bunch, role: str, roles: int) -> int | None:
    """How many pods the group says that a role without a controller has."""
    for group in bunch.groups.values():
        if role in group.minimums:
            return group.minimums[role]
        if role == group.link.title and len(bunch.groups) > 1:
            return group.minimum
    totals = [group.minimum for group in bunch.groups.values()]
    return totals[0] if roles == 1 and len(totals) == 1 else None


def _plans(
    bunch: Bunch, claims: dict[tuple[MakerKey | None, str], list[Claim]]
) -> list[tuple[MakerKey | None, RolePlan]]:
    """Every role with pods here, and those that a controller wants and has no pods of yet."""
    found: list[tuple[MakerKey | None, RolePlan]] = []
    for key in sorted(bunch.makers):
        maker = bunch.makers[key]
        for plan in maker.roles:
            here = (key, plan.name) in claims
            if key in bunch.complete and (here or (plan.size and not plan.later)):
                found.append((key, plan))
            elif here:
                # Split over several groups: what the controller wants is not what this one has.
                found.append((key, replace(plan, size=None)))
        known = {plan.name for plan in maker.roles}
        more = sorted(role for own, role in claims if own == key and role not in known)
        found += [(key, RolePlan(role, None)) for role in more]
    order = [role for group in bunch.groups.values() for role in group.order]
    loose = sorted(role for own, role in claims if own is None)
    loose.sort(key=lambda role: order.index(role) if role in order else len(order))
    return found + [(None, RolePlan(role, None)) for role in loose]


def _bounded(plan: RolePlan, standing: int) -> tuple[RolePlan, str | None]:
    size = plan.size
    if size is None:
        return plan, None
    if 0 <= size <= LARGEST and (size <= _MANY or size <= _TIMES * standing):
        return plan, None
    words = f"role {plan.name} of {size if abs(size) < 10**18 else 'far too many'} pods"
    return replace(plan, size=None), words


def _name(
    bunch: Bunch,
    claims: dict[tuple[MakerKey | None, str], list[Claim]],
    key: MakerKey | None,
    role: str,
) -> str:
    """The role, with its controller before it where two controllers have one of that name."""
    owners = {own for own, name in claims if name == role}
    if key is None or len(owners) < 2:
        return role
    maker = bunch.makers[key]
    return f"{maker.name}-{role}"


def _by_gpus(draft: Draft, remarks: Remarks) -> list[Draft]:
    """One draft a number of GPUs; the rest of the size belongs to the first."""
    by_gpus: dict[int, list[Member]] = {}
    for index, pod in draft.members:
        by_gpus.setdefault(pod.gpus, []).append((index, pod))
    if len(by_gpus) < 2:
        return [draft]
    # The commonest number is what the role asks for; the others are the odd ones.
    ordered = sorted(by_gpus.items(), key=lambda entry: (-len(entry[1]), entry[1][0][0]))
    found = []
    for place, (_, members) in enumerate(ordered):
        name = draft.name if place == 0 else f"{draft.name}-{place + 1}"
        plan = draft.plan if place == 0 else replace(draft.plan, first_index=0)
        part = Draft(name, plan, members, len(members), list(draft.problems) if place == 0 else [])
        part.close_ranks()
        found.append(part)
        if place > 0:
            for _, pod in members:
                remarks.add(pod.subject, SPLIT)
    if draft.size is not None:
        standing = sum(len(part.members) for part in found)
        found[0].size = len(found[0].members) + max(draft.size - standing, 0)
    return found


def _tell_apart(made: list[Draft]) -> None:
    taken: set[str] = set()
    for draft in made:
        name, again = draft.name, 1
        while name in taken:
            again += 1
            name = f"{draft.name}-{again}"
        draft.name = name
        taken.add(name)
