"""What a pod holds of its node's GPUs, as it alone tells: whole ones, shares, and which.

Promises: DRA is asked before annotations; in doubt a pod holds. Called by ``pods``; settled
against all other pods by ``holdings.settling``.
"""

from __future__ import annotations

from planner.reading.kubernetes.devices.asking import KAI_SCHEDULERS, Asking
from planner.reading.kubernetes.forms import KubeNode, KubeObject
from planner.reading.kubernetes.pods.claims import Claimed
from planner.reading.kubernetes.pods.holdings import hived, kai
from planner.reading.kubernetes.pods.holdings.settling import Holder, Share, believe, misfit
from planner.reading.remarks import Remarks


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
