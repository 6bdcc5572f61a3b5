"""Which GPUs of its node a pod holds: whole ones and shares.

DRA counts before what a run of gangplan wrote, that before other annotations, and in doubt a pod holds. A
GPU that two pods claim is assigned to the surer one, else to neither; pods that share a GPU hold it together.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from models.gpu_shares import Part, part_of
from planner.read.findings import Remarks
from planner.read.kube.devices.claims import ClaimedGpus
from planner.read.kube.dialect_registry import holding_readers
from planner.read.kube.dialects.base import planned_gpus
from planner.read.kube.dialects.gpus import Ask, GpuSystem, is_taken
from planner.read.kube.records import Group, Holding, KubeNode, KubeObject, KubePod, Share

STATED, PLANNED, ALLOCATED = range(3)
"""Who names the GPUs of a pod: an annotation, a run of gangplan, DRA. Of two, the higher is believed."""


def read_holding(
    pod: KubePod,
    node: KubeNode,
    ask: Ask,
    claimed: ClaimedGpus,
    systems: Mapping[str, GpuSystem],
    remarks: Remarks,
    *,
    unreadable: bool,
) -> Holding | None:
    """What the pod claims; None if it has no GPU. ``unreadable``: its GPU request is malformed."""
    if not (unreadable or ask.gpus or ask.shares or ask.by or claimed):
        return None
    if node.shared is not None:
        what = "holds shares of GPUs on a node with shared GPUs, none of which is planned"
        remarks.add(pod.subject, what)
        return Holding(pod, 0)
    if unreadable:
        what = "requests GPUs in a form that cannot be read; it counts as holding all of its node"
        remarks.add(pod.subject, what)
        return Holding(pod, max(1, node.gpus))
    by = systems.get(ask.by or "")
    holding = _whole_gpus(pod, node, ask, claimed, by, remarks)
    if holding.indices is None and holding.gpus:
        holding.indices = _from_annotations(pod, node, holding.gpus, remarks)
        if holding.indices is not None and pod.start is not None:
            planned = planned_gpus(pod.annotations, node)
            if planned is not None and tuple(sorted(planned)) == holding.indices:
                holding.rank = PLANNED
    if ask.shares:
        own = None if by is None else by.shares(pod)
        own = _shares(pod, node, ask, systems, remarks) if own is None else own
        holding.shares = own + holding.shares
        part, sharing = ask.part, node.sharing
        alone = part is not None and len(holding.shares) == part.gpus and not holding.gpus
        if part is not None and alone and sharing is not None:
            held = systems[ask.resource or ""].held
            holding.part = held(part, pod.annotations, sharing.memory)
    elif ask.gpus:
        holding.reserves = group_shares(pod.object, systems)
    return holding


def _whole_gpus(
    pod: KubePod,
    node: KubeNode,
    ask: Ask,
    claimed: ClaimedGpus,
    by: GpuSystem | None,
    remarks: Remarks,
) -> Holding:
    """Whole GPUs by resource name, by annotations or by claims; which ones, as far as DRA knows."""
    if by is not None and by.number is not None:
        return Holding(pod, by.number(pod, node))
    held = list(claimed.held.values())
    if ask.gpus:
        # Claims may stand behind the resource name; then there are as many of them.
        behind = len(held) == ask.gpus
        indices = _allocated(pod, node, claimed, remarks, shared=True) if behind else None
        return Holding(pod, ask.gpus, indices, rank=STATED if indices is None else ALLOCATED)
    shares: list[Share] = [
        one.key if one.index is None or one.node != node.name else one.index
        for one in held
        if one.shared
    ]
    rank = ALLOCATED if held else STATED
    holding = Holding(pod, claimed.own, rank=rank, shares=tuple(shares))
    holding.indices = _allocated(pod, node, claimed, remarks, shared=False)
    more = 0
    if claimed.every and not held:
        more = max(1, node.gpus)
    elif claimed.gpus:
        more = claimed.gpus
    elif claimed.missing and node.devices and not held:
        what = "uses a resource claim that is not in the input; it counts as one GPU"
        remarks.add(pod.subject, what, "add the ResourceClaims to the input")
        more = 1
    if more:
        holding.gpus += more
        holding.indices = None
    return holding


def _allocated(
    pod: KubePod, node: KubeNode, claimed: ClaimedGpus, remarks: Remarks, *, shared: bool
) -> tuple[int, ...] | None:
    """The indices of its allocation, shared ones or not; None if they are unknown or do not fit."""
    own = [one for one in claimed.held.values() if shared or not one.shared]
    if not own:
        return None
    if any(one.node is not None and one.node != node.name for one in own):
        remarks.add(pod.subject, "its DRA allocation is on another node; ignored")
        return None
    indices = [one.index for one in own if one.index is not None]
    if len(indices) != len(own):
        return None
    trouble = _misfit(indices, len(own), node)
    if trouble is not None:
        remarks.add(pod.subject, f"its DRA allocation {trouble}; ignored")
        return None
    return tuple(sorted(indices))


def _from_annotations(
    pod: KubePod, node: KubeNode, wanted: int, remarks: Remarks
) -> tuple[int, ...] | None:
    for reader in holding_readers():
        if not any(key in pod.annotations for key in reader.keys):
            continue
        indices = reader.read(pod.annotations, node)
        if indices is None:
            continue
        trouble = _misfit(indices, wanted, node) if indices else "cannot be read"
        if trouble is None:
            return tuple(sorted(indices))
        remarks.add(pod.subject, f"its {reader.name} {trouble}; ignored")
    return None


def _misfit(indices: Sequence[int], wanted: int, node: KubeNode) -> str | None:
    """Why these cannot be so many GPUs of the node; None if they can."""
    if len(set(indices)) != len(indices):
        return "names a GPU twice"
    if len(indices) != wanted:
        return "names another number of GPUs than the pod requests"
    if any(not 0 <= index < node.largest_gpus for index in indices):
        return "names a GPU that its node does not have"
    return None


def _shares(
    pod: KubePod, node: KubeNode, ask: Ask, systems: Mapping[str, GpuSystem], remarks: Remarks
) -> tuple[Share, ...]:
    unknown = tuple(f"{pod.subject}#{place}" for place in range(ask.shares))
    found = _from_annotations(pod, node, ask.shares, remarks)
    if found is None and ask.part is not None and pod.start is not None:
        chosen = (one.chosen(pod.annotations, node, ask.part.gpus) for one in systems.values())
        found = next(filter(None, chosen), None)
    return found or unknown


def group_shares(pod: KubeObject, systems: Mapping[str, GpuSystem]) -> tuple[Group, ...]:
    found = (one.groups for one in systems.values() if one.groups is not None)
    return tuple(group for groups in found for group in groups(pod))


def settle(node: KubeNode, holdings: Sequence[Holding], remarks: Remarks) -> None:
    """Set ``gpus`` and ``indices`` of every pod of one node; holdings in a fixed order."""
    _drop_contradictions(holdings, remarks)
    shared = _shared_gpus(node, holdings)
    _assign(node, holdings, len(shared))
    for place, pods in shared.items():
        for pod in pods:
            if isinstance(place, int):
                pod.indices = tuple(sorted((*(pod.indices or ()), place)))
                continue
            name = (
                "/".join(pods[0].key) if isinstance(place, str) else "/".join(filter(None, place))
            )
            if isinstance(place, tuple) or len(pods) > 1:
                pod.gpu_group = name if pod.gpu_group is None else f"{pod.gpu_group},{name}"
    if sum(holding.pod.gpus for holding in holdings) + len(shared) > node.largest_gpus:
        what = "its pods, planned ones included, hold more GPUs than it has; none is free there"
        remarks.add(node.object.subject, what)


def _shared_gpus(node: KubeNode, holdings: Sequence[Holding]) -> dict[Share, list[KubePod]]:
    """The pods with parts of each GPU. Pods that reserve these GPUs for them hold none besides.

    Pods without a known GPU have one each, and those beyond what the node has are beside the last of them.
    """
    reserving = {own[1]: one for one in holdings for own in one.reserves if not own[0]}
    parts = _parts(holdings, reserving)
    for group, one in reserving.items():
        if ("", group) in parts:
            if one.indices:
                parts.setdefault(one.indices[0], []).extend(parts.pop(("", group)))
            one.gpus, one.indices, one.reserves = 0, (), ()
    named = [place for place in parts if not isinstance(place, int)]
    room = node.largest_gpus - sum(one.gpus for one in holdings) - (len(parts) - len(named))
    for place in named[max(0, room) :]:
        beyond = parts.pop(place)
        if room > 0:
            parts[named[room - 1]] += beyond
        else:
            _hold_no_part(beyond)
    _drop_torn(parts)
    for holding in (one for sharing in parts.values() for one in sharing):
        holding.shares = ()
    return {place: [one.pod for one in sharing] for place, sharing in parts.items()}


def _parts(
    holdings: Sequence[Holding], reserving: Mapping[str, Holding]
) -> dict[Share, list[Holding]]:
    """Pods with parts, by the GPU that they share. ``reserving``: pods that reserve one, by group.

    A GPU of which a pod holds what is no part in a plan counts as held whole: the parts of it are dropped.
    """
    found: dict[Share, list[Holding]] = {}
    closed: set[Share] = {own for one in holdings for own in one.reserves if own[0]}
    closed |= {("", g) for g, one in reserving.items() if one.gpus != 1 or len(one.reserves) != 1}
    for holding in holdings:
        for share in holding.shares:
            reserved = isinstance(share, tuple) and share[1] in reserving
            place = ("", share[1]) if reserved and isinstance(share, tuple) else share
            if holding.part is None or share in closed:
                closed.add(place)
            if holding.part is not None:
                found.setdefault(place, []).append(holding)
    for place in closed & found.keys():
        _hold_no_part(found.pop(place))
    _drop_torn(found, {("", group) for group, one in reserving.items() if one.indices})
    return found


def _drop_torn(parts: dict[Share, list[Holding]], known: Collection[Share] = ()) -> None:
    """GPUs of pods with parts of several count as held whole unless all are there, and known alike.

    ``known``: GPUs that have names here, and whose indices are known.
    """
    while True:
        places: dict[int, list[Share]] = {}
        for place, sharing in parts.items():
            for one in sharing:
                places.setdefault(id(one), []).append(place)

        def is_torn(one: Holding) -> bool:
            own = places[id(one)]  # noqa: B023  # of this round
            indexed = sum(isinstance(place, int) or place in known for place in own)
            gpus = 0 if one.part is None else one.part.gpus
            return len(set(own)) != gpus or indexed not in (0, gpus)

        gone = [place for place, sharing in parts.items() if any(map(is_torn, sharing))]
        if not gone:
            return
        for place in gone:
            _hold_no_part(parts.pop(place))


def drop_part(pod: KubePod, instead: Part | None = None) -> None:
    """Take its part of a GPU off the requests of a pod, or put another in its place."""
    pod.requests = {name: n for name, n in pod.requests.items() if part_of(name) is None}
    if instead is not None:
        pod.requests[instead.resource] = instead.gpus


def _hold_no_part(holdings: Iterable[Holding]) -> None:
    for holding in holdings:
        holding.part = None
        drop_part(holding.pod)


def _drop_contradictions(holdings: Sequence[Holding], remarks: Remarks) -> None:
    """Forget indices that several pods claim, unless one of them ranks above all others."""
    wrong: dict[int, Holding] = {}
    for index in dict.fromkeys(index for one in holdings for index in one.indices or ()):
        claiming = [one for one in holdings if index in (*(one.indices or ()), *one.shares)]
        best = max(one.rank for one in claiming)
        alone = sum(one.rank == best for one in claiming) == 1
        wrong |= {id(one): one for one in claiming if not (alone and one.rank == best)}
    for holding in wrong.values():
        subject = holding.pod.subject
        holding.indices = None
        holding.shares = tuple(f"{subject}#{place}" for place in range(len(holding.shares)))
        what = "holds a GPU that another pod on its node holds too; which ones it has is unknown"
        remarks.add(subject, what)


def _assign(node: KubeNode, holdings: Sequence[Holding], parted: int) -> None:
    """Count every shared GPU with the first pod that has it; bound those with unknown indices.

    ``parted``: GPUs of which pods hold parts.
    """
    taken: set[Share] = {share for holding in holdings for share in holding.reserves}
    for one in holdings:
        own = {share for share in one.shares if isinstance(share, int)} - taken
        taken |= own
        known = one.indices if one.gpus else ()
        one.pod.gpus = one.gpus + len(own)
        one.pod.indices = None if known is None else tuple(sorted({*known, *own}))
    room = node.largest_gpus - parted - sum(holding.pod.gpus for holding in holdings)
    for one in holdings:
        for share in one.shares:
            if not isinstance(share, int) and not is_taken(share, taken) and room > 0:
                taken.add(share)
                room -= 1
                one.pod.gpus += 1
                one.pod.indices = None
