"""What every gang holds while a plan is built, and what that leaves on every node.

Promises: gangs can be put down, taken out and put back as they were, and every change can be undone;
the room of a node is that of contract 2.1, 2.2, 2.6 and 2.9, counted anew from the pods on it; no solver.
Called by the greedy start, reclaiming, growing and the reasons.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from models.hardware import bits
from models.instance import Instance
from models.occupancy import PODS, Room
from models.program.base_state import outcome, placed
from models.program.packing import CountPacking, Packing
from models.program.regions import packing_of
from models.solution import GangDecision, PodPlacement

Pods = tuple[PodPlacement, ...]
Key = tuple[int, int, int]
"""(gang, role, index)."""


@dataclass(slots=True)
class Plot:
    """One node. ``tenants``: (pod, whether it stands so now) by gang, role and index.

    ``stays``, ``known``: masks of GPUs held by pods that stay, by any pod. ``unknown``: GPUs held or
    sick and nobody knows which. ``raw``: healthy GPUs in no pod, negative where pods that stay hold
    more; ``free``: how many may be given. ``left``: of limiting resources. ``blind``: no indices here.
    """

    tenants: dict[Key, tuple[PodPlacement, bool]] = field(default_factory=dict)
    stays: int = 0
    known: int = 0
    mask: int = 0
    unknown: int = 0
    raw: int = 0
    free: int = 0
    left: dict[str, int] = field(default_factory=dict)
    blind: bool = False


class Ground:
    """The plan so far. ``pods[g]``: what gang g holds; change it through ``set`` alone."""

    def __init__(self, instance: Instance, decisions: Sequence[GangDecision]) -> None:
        self.instance = instance
        self.pods: list[Pods] = [decision.pods for decision in decisions]
        self.stood: tuple[Pods, ...] = tuple(
            placed(instance, index, gang.standing) for index, gang in enumerate(instance.gangs)
        )
        self._places = [{(p.role, p.index): p for p in pods} for pods in self.stood]
        self._usable = [instance.schedulable(node) for node in instance.cluster.nodes]
        self._packings: dict[tuple[object, ...], Packing] = {}
        self._journal: list[tuple[int, Pods]] = []
        self.plots = [Plot() for _ in instance.cluster.nodes]
        for gang, pods in enumerate(self.pods):
            for pod in pods:
                self._add(gang, pod)
        for n in range(len(self.plots)):
            self._count(n)

    def set(self, gang: int, pods: Iterable[PodPlacement]) -> None:
        """The gang holds these pods from here on, whatever it held before."""
        old, new = self.pods[gang], tuple(sorted(pods, key=lambda p: (p.role, p.index)))
        if old == new:
            return
        self._journal.append((gang, old))
        self._replace(gang, old, new)

    def mark(self) -> int:
        """Where ``undo`` may come back to."""
        return len(self._journal)

    def undo(self, mark: int) -> None:
        """Everything that was set since the mark is as it was."""
        while len(self._journal) > mark:
            gang, old = self._journal.pop()
            self._replace(gang, self.pods[gang], old)

    def since(self, mark: int) -> dict[int, Pods]:
        """What the gangs that were set since the mark hold now, by gang."""
        return {gang: self.pods[gang] for gang in sorted({g for g, _ in self._journal[mark:]})}

    def known(self) -> list[int]:
        """Mask of the GPUs known to be held, a node."""
        return [plot.known for plot in self.plots]

    def fits(
        self, n: int, gpus: int, requests: tuple[tuple[str, int], ...], used: dict[str, int]
    ) -> bool:
        """Whether one more pod fits where so many GPUs and resources are spoken for already."""
        plot = self.plots[n]
        if gpus > plot.free:
            return False
        for resource, amount in ((PODS, 1), *requests):
            need = used.get(resource, 0) + amount
            if amount and resource in plot.left and need > plot.left[resource]:
                return False
        return True

    def packing(self, n: int) -> Packing:
        """How the GPUs of a node may be cut; not for blind ones."""
        node, plot = self.instance.cluster.nodes[n], self.plots[n]
        key = (node.model, node.effective_nics)
        if key not in self._packings:
            room = Room(node.healthy, 0, node.gpus, (), blind=False)
            self._packings[key] = packing_of(node, [room])
        assert not plot.blind
        return self._packings[key]

    def pick(self, n: int, gpus: int) -> list[int] | None:
        """Indices of so many free GPUs, on a mesh the fastest set; None where the node decides."""
        plot = self.plots[n]
        if plot.blind:
            return None
        packing = self.packing(n)
        options = packing.carve(packing.state(plot.mask, plot.free), gpus)
        if isinstance(packing, CountPacking):
            chosen = packing.choose(plot.mask, options[0])
        else:
            best = max(options, key=lambda arc: (arc.kind.inside or 0, arc.kind.network or 0))
            chosen = packing.choose(plot.mask, best)
        assert chosen is not None
        return list(bits(chosen))

    def lawful(self, n: int) -> bool:
        """Whether what the plan gives on the node holds beside what stays; what stays alone always does."""
        plot, node = self.plots[n], self.instance.cluster.nodes[n]
        given = [(key, pod) for key, (pod, stays) in plot.tenants.items() if not stays]
        if not given:
            return True
        seen = plot.stays
        for _, pod in given:
            if (pod.gpus or 0) & (seen | ~node.healthy):
                return False
            seen |= pod.gpus or 0
        roles = [self.instance.gangs[key[0]].roles[key[1]] for key, _ in given]
        if plot.raw < 0 and any(role.gpus for role in roles):
            return False
        asked = {name for role in roles for name, amount in role.requests if amount} | {PODS}
        return all(plot.left.get(resource, 0) >= 0 for resource in sorted(asked))

    def misnamed(self, n: int) -> tuple[int, ...]:
        """Gangs with pods placed there that name GPUs nobody can know, or lack names they should have."""
        plot = self.plots[n]
        found = set()
        for (gang, role, _), (pod, stays) in plot.tenants.items():
            if stays or not self.instance.gangs[gang].roles[role].gpus:
                continue
            if (pod.gpus is None) != plot.blind and not (plot.blind and not plot.unknown):
                found.add(gang)
        return tuple(sorted(found))

    def arrives(self, gang: int, pod: PodPlacement) -> bool:
        """Whether a pod of the plan does not stand on its node now."""
        before = self._places[gang].get((pod.role, pod.index))
        return before is None or before.node != pod.node

    def moved(self) -> dict[int, int]:
        """GPUs that stand of every gang of which a pod moves."""
        return {
            gang: sum(self.instance.gangs[gang].roles[p.role].gpus for p in stand)
            for gang, stand in enumerate(self.stood)
            if stand and self.pods[gang] != stand and self.decision(gang).decision == "move"
        }

    def decision(self, gang: int) -> GangDecision:
        """What the plan decides of the gang; no reason yet but for one that stays as it is."""
        return outcome(self.instance, gang, self.pods[gang])

    def _replace(self, gang: int, old: Pods, new: Pods) -> None:
        kept = set(old) & set(new)
        touched = set()
        for pod in old:
            if pod not in kept:
                del self.plots[pod.node].tenants[gang, pod.role, pod.index]
                touched.add(pod.node)
        for pod in new:
            if pod not in kept:
                self._add(gang, pod)
                touched.add(pod.node)
        self.pods[gang] = new
        for n in touched:
            self._count(n)

    def _add(self, gang: int, pod: PodPlacement) -> None:
        stays = self._places[gang].get((pod.role, pod.index)) == pod
        self.plots[pod.node].tenants[gang, pod.role, pod.index] = (pod, stays)

    def _count(self, n: int) -> None:
        node, plot = self.instance.cluster.nodes[n], self.plots[n]
        stays = known = given = 0
        unknown = node.unknown_unhealthy
        left = dict(node.allocatable)
        for (gang, number, _), (pod, standing) in plot.tenants.items():
            role = self.instance.gangs[gang].roles[number]
            if pod.gpus is None:
                unknown += role.gpus if standing else 0
                given += 0 if standing else role.gpus
            else:
                known |= pod.gpus
                stays |= pod.gpus if standing else 0
            for resource, amount in ((PODS, 1), *role.requests):
                if resource in left:
                    left[resource] -= amount
        plot.stays, plot.known, plot.unknown, plot.left = stays, known, unknown, left
        plot.mask = node.healthy & ~known
        plot.raw = plot.mask.bit_count() - unknown - given
        plot.free = max(0, plot.raw) if self._usable[n] else 0
        unswitched = node.model is not None and not node.model.switched
        plot.blind = unknown > 0 or (self.instance.policy.gpu_binding == "none" and unswitched)
