"""Who holds which GPU of a node, after everybody has told.

Promises: nothing that is held is forgotten; a GPU told by two is known of neither, unless one of
them has it from DRA; pods that share a GPU hold it once together. Called by ``pods``.

What a pod holds of its node's GPUs, as it alone tells: whole ones, shares, and which.

Promises: DRA is asked before annotations; in doubt a pod holds. Called by ``pods``; settled
against all other pods by ``holdings.settling``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from planner.read.findings import Remarks
from planner.read.kube.devices.requests import KAI_SCHEDULERS, Asking
from planner.read.kube.dialects import hived, kai
from planner.read.kube.dialects.table import DIALECTS
from planner.read.kube.pods.claims import Claimed
from planner.read.kube.records import KubeNode, KubeObject

Share = int | str
"""A GPU that pods may hold together: its index, or any name where nobody knows the index."""


@dataclass(slots=True)
class Holder:
    """A pod on a node. ``gpus``: whole GPUs of its own; ``told``: which, None if unknown.

    ``sure``: told by DRA. ``shares``: GPUs it holds together with others. After ``settle``:
    ``count`` GPUs are counted with it, ``indices`` of them (None: nobody knows).
    """

    object: KubeObject
    gpus: int
    told: tuple[int, ...] | None = None
    sure: bool = False
    shares: tuple[Share, ...] = ()
    reserves: tuple[Share, ...] = ()
    count: int = 0
    indices: tuple[int, ...] | None = None


def believe(holder: Holder, node: KubeNode, remarks: Remarks, *, shared: bool) -> None:
    """Ask the dialects for the GPUs of a pod and keep the first answer that fits its node.

    ``shared``: the answer names GPUs it holds with others, one for each of its shares.
    """
    wanted = len(holder.shares) if shared else holder.gpus
    annotations = holder.object.annotations
    for dialect in DIALECTS:
        if not any(key in annotations for key in dialect.keys):
            continue
        answer = dialect.read(annotations, node)
        if answer is None:
            continue
        trouble = _trouble(answer.indices, wanted, node)
        if trouble is not None or answer.indices is None:
            remarks.add(holder.object.subject, f"its {dialect.name} {trouble}; it is ignored")
            continue
        if shared:
            holder.shares = tuple(sorted(answer.indices))
        else:
            holder.told = tuple(sorted(answer.indices))
        return


def misfit(indices: Sequence[int], wanted: int, installed: int) -> str | None:
    """What speaks against these indices for so many GPUs of a node, in words; None if nothing."""
    if len(set(indices)) != len(indices):
        return "names a GPU twice"
    if len(indices) != wanted:
        return "names another number of GPUs than the pod asks for"
    if any(not 0 <= index < installed for index in indices):
        return "names a GPU that its node does not have"
    return None


def _trouble(indices: tuple[int, ...] | None, wanted: int, node: KubeNode) -> str | None:
    if indices is None:
        return "cannot be read"
    return misfit(indices, wanted, max(node.installed, node.gpus))


def settle(node: KubeNode, holders: Sequence[Holder], remarks: Remarks) -> None:
    """Give every holder of one node its ``count`` and ``indices``; holders in a fixed order."""
    _contradictions(holders, remarks)
    _deal(node, holders)
    held, has = sum(holder.count for holder in holders), max(node.installed, node.gpus)
    if held > has:
        what = "its pods, planned ones included, hold more GPUs than it has; none is free there"
        remarks.add(node.object.subject, what)


def _contradictions(holders: Iterable[Holder], remarks: Remarks) -> None:
    """Forget what is told twice; DRA stands against an annotation."""
    claims: dict[int, list[Holder]] = {}
    for holder in holders:
        for index in holder.told or ():
            claims.setdefault(index, []).append(holder)
    sharers: dict[int, list[Holder]] = {}
    for holder in holders:
        for share in holder.shares:
            if isinstance(share, int):
                sharers.setdefault(share, []).append(holder)
    wrong: dict[int, Holder] = {}
    for index, owners in claims.items():
        rivals = owners + sharers.get(index, [])
        sure = sum(rival.sure for rival in rivals)
        if len(rivals) > 1:
            wrong |= {id(rival): rival for rival in rivals if not rival.sure or sure > 1}
    for holder in wrong.values():
        holder.told = None
        holder.shares = tuple(
            f"{holder.object.subject}#{place}" for place in range(len(holder.shares))
        )
        what = "holds a GPU that another pod on its node holds too; which ones it has is unknown"
        remarks.add(holder.object.subject, what)


def _deal(node: KubeNode, holders: Sequence[Holder]) -> None:
    """Count every shared GPU with the first pod that has it; bound the ones nobody knows."""
    taken: set[Share] = {share for holder in holders for share in holder.reserves}
    for holder in holders:
        own = [share for share in holder.shares if isinstance(share, int) and share not in taken]
        taken.update(own)
        holder.count = holder.gpus + len(own)
        known = holder.told if holder.gpus else ()
        holder.indices = None if known is None else tuple(sorted({*known, *own}))
    room = max(node.installed, node.gpus) - sum(holder.count for holder in holders)
    for holder in holders:
        for share in holder.shares:
            if isinstance(share, str) and share not in taken and room > 0:
                taken.add(share)
                room -= 1
                holder.count += 1
                holder.indices = None


def read_holder(
    pod: KubeObject,
    node: KubeNode,
    asking: Asking,
    claimed: Claimed,
    scheduler: str,
    remarks: Remarks,
    *,
    unreadable: bool,
) -> Holder | None:
    """What the pod holds; None if it has to do with no GPU.

    ``unreadable``: it asks a number of GPUs that nobody can read.
    """
    if not (unreadable or asking.gpus or asking.part or asking.hived or _claims(claimed)):
        return None
    if node.shared is not None:
        what = "holds shares of GPUs on a node that shares them; none of that node's is given"
        remarks.add(pod.subject, what)
        return Holder(pod, 0)
    if unreadable:
        what = "asks a number of GPUs that cannot be read; it counts as all of its node's"
        remarks.add(pod.subject, what)
        return Holder(pod, max(1, node.gpus))
    holder = _whole(pod, node, asking, claimed, remarks)
    if holder.told is None and holder.gpus:
        believe(holder, node, remarks, shared=False)
    if asking.part and asking.shares:
        _share(holder, node, asking, scheduler, remarks)
    elif asking.gpus:
        holder.reserves = tuple(f"group {group}" for group in kai.groups(pod.labels))
    return holder


def _claims(claimed: Claimed) -> bool:
    return bool(claimed.held or claimed.gpus or claimed.every or claimed.missing)


def _whole(
    pod: KubeObject, node: KubeNode, asking: Asking, claimed: Claimed, remarks: Remarks
) -> Holder:
    """Whole GPUs: by resource name, by HiveD, or by claims; which ones, as far as DRA says."""
    held = claimed.held
    if asking.gpus:
        holder = Holder(pod, asking.gpus)
        # claims may stand behind the resource name; then there are as many of them
        if len(held) == asking.gpus:
            _name(holder, node, claimed, remarks)
        return holder
    if asking.hived:
        return Holder(pod, hived.cells_asked(pod.annotations) or _told_cells(pod, node) or 1)
    shares: list[Share] = [
        one.key if one.index is None or one.node != node.name else one.index
        for one in held
        if one.shared
    ]
    holder = Holder(pod, sum(not one.shared for one in held), shares=tuple(shares), sure=bool(held))
    _name(holder, node, claimed, remarks)
    if claimed.every and not held:
        holder.gpus += max(1, node.gpus)
        holder.told = None
    elif claimed.gpus:
        holder.gpus += claimed.gpus
        holder.told = None
    elif claimed.missing and node.devices and not held:
        what = "uses a resource claim that is not in the input; it counts as one GPU"
        remarks.add(pod.subject, what, "add the ResourceClaims to the input")
        holder.gpus += 1
        holder.told = None
    return holder


def _name(holder: Holder, node: KubeNode, claimed: Claimed, remarks: Remarks) -> None:
    """Set the indices of an allocation, if it names them all and they fit the node."""
    own = [one for one in claimed.held if not one.shared or holder.gpus == len(claimed.held)]
    if not holder.gpus or len(own) != holder.gpus:
        return
    if any(one.node is not None and one.node != node.name for one in own):
        remarks.add(holder.object.subject, "its DRA allocation is of another node; it is ignored")
        return
    indices = [one.index for one in own if one.index is not None]
    if len(indices) != len(own):
        return
    trouble = misfit(indices, holder.gpus, max(node.installed, node.gpus))
    if trouble is not None:
        remarks.add(holder.object.subject, f"its DRA allocation {trouble}; it is ignored")
        return
    holder.told, holder.sure = tuple(sorted(indices)), True


def _told_cells(pod: KubeObject, node: KubeNode) -> int:
    answer = hived.isolation(pod.annotations, node)
    return len(answer.indices or ()) if answer is not None else 0


def _share(
    holder: Holder, node: KubeNode, asking: Asking, scheduler: str, remarks: Remarks
) -> None:
    """Shares of GPUs: of KAI's groups, of the GPUs a dialect names, or of any."""
    pod = holder.object
    if asking.kai:
        if scheduler not in KAI_SCHEDULERS:
            return  # an annotation that no scheduler of this pod reads gives it nothing
        groups = kai.groups(pod.labels)
        if groups:
            holder.shares += tuple(f"group {group}" for group in groups)
            return
    unknown = tuple(f"{pod.subject}#{place}" for place in range(asking.shares))
    before = holder.shares
    holder.shares = unknown
    believe(holder, node, remarks, shared=True)
    holder.shares += before
