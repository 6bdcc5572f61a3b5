"""Who holds which GPU of a node, after everybody has told.

Promises: nothing that is held is forgotten; a GPU told by two is known of neither, unless one of
them has it from DRA; pods that share a GPU hold it once together. Called by ``pods``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from planner.reading.kubernetes.forms import KubeNode, KubeObject
from planner.reading.kubernetes.pods.holdings import DIALECTS
from planner.reading.remarks import Remarks

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
