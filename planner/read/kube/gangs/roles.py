"""The roles of a gang: the index and the role of every pod, sizes, and which pods are missing.

Each index of a role is used once. A pod that holds room is never left out, and wins over others that claim
its index. Pods of one role request equally many GPUs. Sizes are bounded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import count, islice

from msgspec.structs import replace

from models.units import first_of, shown_of
from planner.read.findings import Remarks
from planner.read.kube.dialect_registry import DIALECTS, controller_reader
from planner.read.kube.dialects.base import Controller, PodGroup, RoleIndex, RoleSpec
from planner.read.kube.gangs.membership import Membership
from planner.read.kube.gangs.ranges import (
    TOO_MANY,
    Need,
    fit_ranges,
    share_slack,
    wished_range,
)
from planner.read.kube.lookup import distinct, number
from planner.read.kube.records import ControllerKey, KubePod, KubeRole

MAX_SIZE = 1_000_000
"""Most pods of a role."""

MAX_TIES = 64
"""Most different ties to volumes within one role."""

_LARGE, _MAX_RATIO = 20_000, 100
"""A role of more than so many pods needs one existing pod for so many of them."""

DEFAULT_ROLE = "worker"
SUCCEEDED = "Succeeded"
"""Phase of a pod that has done its work."""

NATIVE = "scheduling.k8s.io"
"""API group of the groups whose minimum kube-scheduler itself keeps."""

NEXT_FREE = "its index is missing, malformed or taken; it gets the next free one"
BEHIND = "waits for the terminating pod of its index, and is left out until that is gone"
SPLIT = "requests another number of GPUs than others of its role; it counts as a role of its own"
APART = "has other volumes than others of its role; it counts as a role of its own"
RENUMBERED = "runs with fewer pods than it could have; the existing ones are renumbered"

_SHOWN = 3

Claim = tuple[int | None, KubePod]
"""A pod and the index it claims."""

Claims = dict[tuple[ControllerKey | None, str], list[Claim]]
"""The pods of each role, by controller and name of the role."""


def read_roles(gang: Membership, problems: list[str], remarks: Remarks) -> list[KubeRole]:
    """The roles in the order of their controllers; sizes that cannot be used go to ``problems``."""
    claims: Claims = {}
    readers = {key: controller_reader(key.kind) for key in gang.controllers}
    for pod in gang.pods:
        if (key := pod.controller) is None:
            place = _grouped_index(gang, pod)
        else:
            place = readers[key].role_index(pod, gang.controllers[key])
        claims.setdefault((pod.controller, place.role), []).append((place.index, pod))
    roles: list[KubeRole] = []
    owners = Counter(role for _, role in claims)
    for key, spec in _specs(gang, claims):
        own = claims.get((key, spec.name), [])
        if key is None:
            own = _by_name_suffix(own, _stated_size(gang, spec.name, len(claims)))
        pods = [pod for _, pod in own]
        wished = wished_range(gang.controllers.get(key) if key else None, spec, pods, remarks)
        if wished is not None and not _is_plausible(wished.least, len(own)):
            remarks.add(pods[0].subject if pods else gang.namespace, TOO_MANY)
            wished = None
        # A range needs no number of its controller, which gangplan may change.
        size = spec.size if wished is None else None
        if size is not None and not _is_plausible(size, len(own)):
            shown = size if abs(size) < 10**18 else "far too many"
            problems.append(f"role {spec.name} of {shown} pods")
            size = None
        # Prefixed with its controller if two controllers have one of that name.
        prefix = "" if key is None or owners[spec.name] < 2 else f"{gang.controllers[key].name}-"
        role = KubeRole(
            f"{prefix}{spec.name}",
            size,
            _assign_indexes(own, spec if spec.size == size else replace(spec, size=size), remarks),
            spec.first_index,
            required=spec.required,
            slices=spec.slices,
            stride=spec.stride,
            wished=wished,
            stated=wished is not None and wished is not spec.range,
            scalable=spec.scalable and key in gang.complete,
            replaces=key is not None and readers[key].replaces,
            ends_gang=spec.ends_gang,
        )
        role.size = size if size is None else max(size, role.span)
        _take_off_gone(role, spec.succeeded)
        kinds = {pod.key: (pod.gpus, pod.part) for _, pod in role.members}
        roles += _split(role, kinds, SPLIT, remarks)
    return _distinct(roles)


def _distinct(roles: list[KubeRole]) -> list[KubeRole]:
    taken: set[str] = set()
    for role in roles:
        role.name = distinct(role.name, taken)
    return roles


def _take_off_gone(role: KubeRole, succeeded: int) -> None:
    """Take off the size the pods that succeeded, as the controller says, and that do not exist any more."""
    there = sum(pod.finished == SUCCEEDED for _, pod in role.members)
    gone = min(succeeded - there, role.missing)
    if gone > 0 and role.size is not None and not role.replaces:
        role.gone, role.size = gone, role.size - gone
        if role.span > role.size:
            role.renumber()


def _grouped_index(gang: Membership, pod: KubePod) -> RoleIndex:
    # Groups that start together, each of pods without a controller, are roles of one gang.
    several = pod.group is not None and len(gang.groups) > 1
    default = pod.group.title if several and pod.group is not None else DEFAULT_ROLE
    roles = (group.roles.get(pod.key) for group in gang.groups.values())
    role = next((role for role in roles if role is not None), default)
    indexes = (one.index(pod) for one in DIALECTS)
    return RoleIndex(role, next((index for index in indexes if index is not None), None))


def _stated_size(gang: Membership, role: str, roles: int) -> int | None:
    for group in gang.groups.values():
        if role in group.minimums:
            return group.minimums[role]
        if role == group.key.title and len(gang.groups) > 1:
            return group.minimum
    totals = [group.minimum for group in gang.groups.values()]
    return totals[0] if roles == 1 and len(totals) == 1 else None


def _specs(gang: Membership, claims: Claims) -> list[tuple[ControllerKey | None, RoleSpec]]:
    """Every role with pods here, and those that a controller specifies and that have no pods yet."""
    found: list[tuple[ControllerKey | None, RoleSpec]] = []
    by_controller: dict[ControllerKey | None, list[str]] = {}
    for own, role in claims:
        by_controller.setdefault(own, []).append(role)
    for controller in gang.sorted_controllers():
        key = controller.key
        for spec in controller.roles.values():
            here = (key, spec.name) in claims
            if key in gang.complete and (here or (spec.size and not spec.later)):
                found.append((key, spec))
            elif here:
                # Split over several groups: the size that the controller wants is not this gang's.
                found.append((key, replace(spec, size=None)))
        more = sorted(set(by_controller.get(key, ())) - controller.roles.keys())
        found += [(key, RoleSpec(role, None)) for role in more]
    stated = dict.fromkeys(role for group in gang.groups.values() for role in group.order)
    order = {role: place for place, role in enumerate(stated)}
    others = by_controller.get(None, ())
    ordered = sorted(others, key=lambda role: (order.get(role, len(order)), role))
    return found + [(None, RoleSpec(role, None)) for role in ordered]


def _is_plausible(size: int, existing: int) -> bool:
    return 0 <= size <= MAX_SIZE and (size <= _LARGE or size <= _MAX_RATIO * existing)


def split_by_volumes(roles: Sequence[KubeRole], remarks: Remarks) -> list[KubeRole]:
    """One role for each tie of waiting pods to volumes, where pods of the role need not stay together.

    Pods that run keep what they have.
    """
    found: list[KubeRole] = []
    for role in roles:
        ties = {pod.key: pod.volumes for _, pod in role.members if pod.to_place}
        alone = role.required is None and not role.slices
        apart = alone and 1 < len(set(ties.values())) <= MAX_TIES
        found += _split(role, ties, APART, remarks) if apart else [role]
    return _distinct(found)


def _split(
    role: KubeRole, kinds: Mapping[tuple[str, str], object], what: str, remarks: Remarks
) -> list[KubeRole]:
    """One role for each kind of pod; missing pods belong to the first."""
    by_kind: dict[object, list[tuple[int, KubePod]]] = {}
    for index, pod in role.members:
        by_kind.setdefault(kinds.get(pod.key), []).append((index, pod))
    if len(by_kind) < 2:
        return [role]
    # The commonest kind is what the role requests; the others are the odd ones.
    first, *others = sorted(by_kind.values(), key=lambda members: (-len(members), members[0][0]))
    missing = max(role.missing, 0) if role.size is not None else 0
    role = replace(role, wished=None, range=None)  # which of them its range means is unknown
    parts = [replace(role, members=first, size=len(first) + missing)]
    role = replace(role, first_index=0, gone=0)
    for place, members in enumerate(others, 2):
        name = f"{role.name}-{place}"
        parts.append(replace(role, name=name, members=members, size=len(members)))
        for _, pod in members:
            remarks.add(pod.subject, what)
    for part in parts:
        part.renumber()
    return parts


def _assign_indexes(
    claims: Sequence[Claim], spec: RoleSpec, remarks: Remarks
) -> list[tuple[int, KubePod]]:
    """(index, pod) of a role, ascending, each index once."""
    if spec.queue_like:  # an index is no rank: unfinished pods, in the order of index and name
        live = [claim for claim in claims if claim[1].finished is None] or claims
        ordered = sorted(live, key=lambda one: (one[0] is None, one[0] or 0, one[1].name))
        return [(spec.first_index + place, pod) for place, (_, pod) in enumerate(ordered)]

    def precedence(claim: Claim) -> tuple[bool, bool, bool, str]:
        pod = claim[1]
        return (not pod.holds_room, pod.finished is not None, pod.terminating, pod.name)

    taken: dict[int, KubePod] = {}
    rest: list[Claim] = []
    reach = spec.size if spec.size is not None else 2 * len(claims) + 16
    for index, pod in sorted(claims, key=precedence):
        if index is None or not spec.first_index <= index < spec.first_index + reach:
            rest.append((index, pod))
        elif index not in taken:
            taken[index] = pod
        elif pod.finished is not None or (pod.waits and pod.terminating):
            continue  # its successor has the index
        elif pod.waits and taken[index].terminating:
            remarks.add(pod.subject, BEHIND)
        else:
            rest.append((index, pod))
    _assign_free(taken, rest, spec, remarks)
    return sorted(taken.items(), key=lambda entry: entry[0])


def _assign_free(
    taken: dict[int, KubePod], rest: Sequence[Claim], spec: RoleSpec, remarks: Remarks
) -> None:
    """Give the rest the free indexes, by name; finished pods only what no other pod needs."""
    crowded = spec.size is not None and len(rest) > spec.size - len(taken)
    free = (index for index in count(spec.first_index) if index not in taken)
    expected = bool(taken) or any(index is not None for index, _ in rest)
    pods = [pod for _, pod in rest]
    for pod in sorted(pods, key=lambda pod: (crowded and pod.finished is not None, *_by_name(pod))):
        if crowded and pod.finished is not None and len(taken) >= (spec.size or 0):
            continue
        taken[next(free)] = pod
        if expected:
            remarks.add(pod.subject, NEXT_FREE)


def _by_name(pod: KubePod) -> tuple[str, int, str]:
    """The order of names; 10 comes after 9 for pods without an owner, which people number."""
    front, _, last = pod.name.rpartition("-")
    rank = number(last) if pod.object.owner is None else None
    return (pod.name, 0, "") if rank is None else (front, rank, pod.name)


def _by_name_suffix(claims: list[Claim], size: int | None) -> list[Claim]:
    """Pods without an owner, indexed by the numbers that end their names, if these count to ``size``.

    The numbers start at 0, or at 1 if the last is the size; others mean nothing.
    """
    if size is None or any(index is not None or pod.object.owner for index, pod in claims):
        return claims
    suffixes = [number(pod.name.rpartition("-")[2]) for _, pod in claims]
    known = [suffix for suffix in suffixes if suffix is not None]
    if len(set(known)) < len(claims):
        return claims
    first = 1 if min(known) == 1 and max(known) == size else 0
    if max(known) - first >= size:
        return claims
    return [(suffix - first, pod) for suffix, (_, pod) in zip(known, claims, strict=True)]


def complete_roles(
    roles: list[KubeRole], gang: Membership, subject: str, remarks: Remarks
) -> str | None:
    """Fix the sizes of all roles; what is missing, in words.

    A gang whose groups have the pods they need is complete with those.
    """
    stated = any(role.stated for role in roles)
    needing = _needing(gang, native=stated)
    minimums: dict[str, int] = {}
    for one in needing:
        if isinstance(one, PodGroup) and len(needing) > 1 and one.minimum is not None:
            minimums[one.key.title] = one.minimum
        minimums.update(one.minimums)
    totals = [one.minimum for one in needing if (one.minimum or 0) > 0]
    needed = sum(one or 0 for one in totals) if totals else None
    running = any(pod.holds_room for pod in _pods(roles))
    done = _drop_succeeded(roles, running=running)
    fit_ranges(roles, (needed or 0) - done.total(), subject, remarks)
    existing = done.total() + len(_pods(roles))
    by_role = all(len(role.members) >= minimums.get(role.name, 0) for role in roles)
    enough = needed is not None and existing >= needed and by_role
    _set_sizes(roles, minimums, needed, enough=enough)
    lacking = any(role.missing > 0 for role in roles)
    missing = []
    if lacking and enough:
        changed = [role.renumber() for role in roles]
        if any(changed):
            remarks.add(subject, RENUMBERED)
        for role in roles:
            role.size = len(role.members) if role.wished is None else role.size
        fit_ranges(roles, 0, subject, Remarks())
    elif lacking:
        missing.append(_not_created(roles, existing))
    elif needed is not None and existing < needed:
        missing.append(f"{existing} of the {needed} pods that {needing[0].subject} needs exist")
    if not stated and not (missing and running):
        share_slack(roles, _needs(roles, gang, needing, done), complete=not missing)
    here = {key.name for key in gang.groups}
    siblings = {id(group.siblings): group.siblings for group in gang.groups.values()}  # shared
    absent = sorted(set[str]().union(*siblings.values()) - here)
    missing += [f"group {name} has no pods yet" for name in absent[:_SHOWN]]
    if any(role.members for role in roles):
        roles[:] = [role for role in roles if role.size]
    return "; ".join(missing + _finished(roles) + _not_to_place(roles)) or None


def _needing(gang: Membership, *, native: bool) -> Sequence[PodGroup | Controller]:
    """Who states how many pods start together: the groups, else the controller of all pods.

    ``native``: only groups that kube-scheduler starts as a whole.
    """
    groups = list(gang.groups.values())
    if native:
        return [one for one in groups if one.object is not None and one.object.group == NATIVE]
    if any(group.minimum is not None for group in groups):
        return groups
    alone = {pod.controller for pod in gang.pods} == gang.complete
    return gang.sorted_controllers() if alone and len(gang.complete) == 1 else ()


def _needs(
    roles: Sequence[KubeRole],
    gang: Membership,
    needing: Sequence[PodGroup | Controller],
    done: Mapping[str, int],
) -> list[Need]:
    """What groups or controllers need of the roles. ``done``: pods that succeeded, by role."""
    own = {pod.key: (pod.group, pod.controller) for pod in gang.pods}
    found = []
    for one in needing:
        parts: dict[str | None, list[KubeRole]] = {None: []}
        for role in roles:
            keys = [pod.key for _, pod in role.members]
            if (keys or len(needing) > 1) and not any(one.key in own[key] for key in keys):
                continue
            parts[None].append(role)
            # The part with a minimum of its own that a role is: by its name, else by its pods.
            names = {one.roles.get(key) for key in keys} if isinstance(one, PodGroup) else set()
            by_pods = names.pop() if len(names) == 1 and role.name not in one.minimums else None
            parts.setdefault(by_pods or role.name, []).append(role)
        for part, members in parts.items():
            pods = one.minimum if part is None else one.minimums.get(part)
            if members and pods is not None and pods > 0:
                less = sum(done.get(role.name, 0) for role in members)
                found.append(Need(pods - less, tuple(members)))
    if len(needing) > 1 and all(one.minimum is not None for one in needing):
        total = sum(one.minimum or 0 for one in needing) - sum(done.values())
        found.append(Need(total, tuple(roles)))
    return found


def _pods(roles: Sequence[KubeRole]) -> list[KubePod]:
    return [pod for role in roles for _, pod in role.members]


def _drop_succeeded(roles: Sequence[KubeRole], *, running: bool) -> Counter[str]:
    """Take the pods that succeeded out of a gang: nobody makes them again. Their number, by role.

    Of a running gang they stay where their controller replaces them, and where the work is over with them.
    A running role that is done in part has the pods that are left, and no range any more.
    """
    dropped: Counter[str] = Counter()
    for role in roles:
        dropped[role.name] += role.gone
        if running and (role.replaces or role.ends_gang):
            continue
        fewer, kept = 0, []
        for index, pod in role.members:
            fewer += pod.finished == SUCCEEDED
            if pod.finished != SUCCEEDED:
                kept.append((index - fewer, pod))
        if fewer:
            role.members = kept
            if running and role.wished is not None:
                role.wished, role.size = None, len(kept)
            elif role.size is not None:
                role.size -= fewer
            if role.size is not None and role.span > role.size:
                role.renumber()
            dropped[role.name] += fewer
    return dropped


def _set_sizes(
    roles: Sequence[KubeRole], minimums: dict[str, int], needed: int | None, *, enough: bool
) -> None:
    """Sizes that no controller states: from the groups, else from the pods, gaps included."""
    for role in roles:
        if role.size is None:
            stated = minimums.get(role.name, needed if len(roles) == 1 else None)
            existing = len(role.members) if enough else role.span
            limit = 100 * len(role.members) + 1000
            role.size = max(existing, min(stated or 0, limit))
            if enough:
                role.renumber()


def _not_created(roles: Sequence[KubeRole], existing: int) -> str:
    absent = (
        f"{role.name} {index}"
        for role in roles
        if role.missing > 0
        for here in [{index for index, _ in role.members}]
        for index in range(role.first_index, role.first_index + (role.size or 0))
        if index not in here
    )
    missing = sum(max(role.missing, 0) for role in roles)
    total = existing + sum(role.missing for role in roles)
    names = [*islice(absent, shown_of(missing, _SHOWN))]
    if missing > len(names):
        names.append(f"{missing - len(names)} more")
    *others, last = names
    who = f"{', '.join(others)} and {last} have" if others else f"{last} has"
    return f"{who} not been created ({existing} of {total} pods exist)"


def _finished(roles: Sequence[KubeRole]) -> list[str]:
    phases = Counter(pod.finished for pod in _pods(roles) if pod.finished is not None)
    if not phases:
        return []
    total = phases.total()
    listed = ", ".join(f"{phases[phase]} {phase}" for phase in sorted(phases, reverse=True))
    return [f"{total} {'pod has' if total == 1 else 'pods have'} finished ({listed})"]


def _not_to_place(roles: Sequence[KubeRole]) -> list[str]:
    by_reason: dict[str, list[str]] = {}
    for role in roles:
        for index, pod in role.members:
            if pod.waits and (pod.terminating or not pod.to_place):
                why = f"left to scheduler {pod.scheduler}"
                if pod.terminating:
                    why = "being deleted, not yet replaced"
                elif pod.bound:
                    why = "bound to a node that is not in the input"
                elif pod.gates:
                    why = f"held by the scheduling gate {pod.gates[0]}"
                by_reason.setdefault(why, []).append(f"{role.name} {index}")
    return [f"{first_of(names, _SHOWN)} {why}" for why, names in sorted(by_reason.items())]
