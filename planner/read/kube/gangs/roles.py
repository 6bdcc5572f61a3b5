"""Pods to seats: each index of a role once, whatever the labels say.

Promises: a pod that holds room is never left out; of two pods for one index the one that holds room
has it. Called by ``roles``.

Bunches to roles: seats, sizes, and what of it has to be told.

Promises: names of roles differ; pods of one role ask for equally many GPUs; sizes are bounded.
Called by ``reading``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from planner.read.findings import Remarks
from planner.read.kube.dialects.base import Link, MakerKey, RolePlan, Seat
from planner.read.kube.dialects.table import MAKERS
from planner.read.kube.gangs.membership import Bunch
from planner.read.kube.lookup import number
from planner.read.kube.records import KubePod

Claim = tuple[int | None, KubePod]
Member = tuple[int, KubePod]

NEXT_FREE = "its index is missing, odd or taken; it counts under the next free one"
BEHIND = "waits for the terminating pod of its index to go, and is left out until then"


def holds(pod: KubePod) -> bool:
    """Whether the pod stands somewhere or has room kept for it."""
    return pod.node is not None and pod.finished is None


def waits(pod: KubePod) -> bool:
    return pod.node is None and pod.finished is None


def seated(claims: Sequence[Claim], plan: RolePlan, remarks: Remarks) -> list[Member]:
    """(index, pod) of a role, ascending, each index once."""
    if plan.queue_like:
        return _in_a_row(claims, plan)
    taken: dict[int, KubePod] = {}
    left: list[Claim] = []
    reach = plan.size if plan.size is not None else 2 * len(claims) + 16
    for index, pod in sorted(claims, key=_precedence):
        if index is None or not plan.first_index <= index < plan.first_index + reach:
            left.append((index, pod))
        elif index not in taken:
            taken[index] = pod
        elif pod.finished is not None or (waits(pod) and pod.terminating):
            continue  # its successor has the index
        elif waits(pod) and taken[index].terminating:
            remarks.add(pod.subject, BEHIND)
        else:
            left.append((index, pod))
    _seat_rest(taken, left, plan, remarks)
    return sorted(taken.items())


def numbered(claims: list[Claim], size: int | None) -> list[Claim]:
    """Pods that nobody made, under the numbers that end their names, if these count to ``size``.

    The numbers start at 0, or at 1 where the last is the size; others say nothing.
    """
    if size is None or any(index is not None or pod.object.owner for index, pod in claims):
        return claims
    tails = [number(pod.name.rpartition("-")[2]) for _, pod in claims]
    known = [tail for tail in tails if tail is not None]
    if len(set(known)) < len(claims):
        return claims
    first = 1 if min(known) == 1 and max(known) == size else 0
    if max(known) - first >= size:
        return claims
    return [(tail - first, pod) for tail, (_, pod) in zip(known, claims, strict=True)]


def by_name(pod: KubePod) -> tuple[str, int, str]:
    """The order of names; of pods that nobody made, 10 after 9: people number them."""
    front, _, last = pod.name.rpartition("-")
    rank = number(last) if pod.object.owner is None else None
    return (pod.name, 0, "") if rank is None else (front, rank, pod.name)


def _precedence(claim: Claim) -> tuple[bool, bool, bool, str]:
    pod = claim[1]
    return (not holds(pod), pod.finished is not None, pod.terminating, pod.name)


def _in_a_row(claims: Sequence[Claim], plan: RolePlan) -> list[Member]:
    """Pods whose index is no rank: those that stand or wait, in the order of index and name."""
    live = [claim for claim in claims if claim[1].finished is None] or claims
    ordered = sorted(live, key=lambda claim: (claim[0] is None, claim[0] or 0, claim[1].name))
    return [(plan.first_index + place, pod) for place, (_, pod) in enumerate(ordered)]


def _seat_rest(
    taken: dict[int, KubePod], left: Sequence[Claim], plan: RolePlan, remarks: Remarks
) -> None:
    """Give the rest the free indexes, by name; finished pods only what no other pod needs."""
    room = None if plan.size is None else plan.size - len(taken)
    crowded = room is not None and len(left) > room
    free = _free(taken, plan.first_index)
    expected = bool(taken) or any(index is not None for index, _ in left)
    for _, pod in sorted(left, key=lambda claim: (crowded and _done(claim), *by_name(claim[1]))):
        if crowded and pod.finished is not None and len(taken) >= (plan.size or 0):
            continue
        taken[next(free)] = pod
        if expected:
            remarks.add(pod.subject, NEXT_FREE)


def _done(claim: Claim) -> bool:
    return claim[1].finished is not None


def _free(taken: dict[int, KubePod], first: int) -> Iterator[int]:
    index = first
    while True:
        if index not in taken:
            yield index
        index += 1


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
