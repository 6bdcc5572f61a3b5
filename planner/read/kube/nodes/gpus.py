"""The GPUs of a node: their resource, how many are installed, and whether they are given whole.

Implausible figures are skipped with a remark. What cannot be understood counts as shared, so that nothing
of it is given.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence

from msgspec import Struct

from models.documents.cluster import MAX_SHARING, GpuSharing
from models.instance.policy import KubernetesPolicy
from models.mig import RESOURCE, Board, Profile
from models.mig import resource_of as instance_resource
from planner.read.findings import Remarks
from planner.read.kube.devices.slices import NodeDevices, resource_of
from planner.read.kube.dialects.gpus import NVIDIA, PART, Cards, GpuSystem
from planner.read.kube.lookup import number
from planner.read.kube.nodes.products import PRODUCT, mig_boards
from planner.read.kube.pods.asks import PARTITIONS
from planner.read.kube.records import MAX_GPUS, KubeNode

AMD = "amd.com/gpu"

ALL_CORES = 100
"""Percent."""

_COUNT = "nvidia.com/gpu.count"
_COUNTS = {
    _COUNT: NVIDIA,
    "gpu.nvidia.com/count": NVIDIA,
    "cloud.google.com/gke-accelerator-count": NVIDIA,
    "aliyun.accelerator/nvidia_count": NVIDIA,
    "karpenter.k8s.aws/instance-gpu-count": None,
}
"""Labels that count the installed GPUs, and their resource (None: of any maker)."""

_GKE_PART = "cloud.google.com/gke-gpu-partition-size"
_GKE_SHARING = "cloud.google.com/gke-gpu-sharing-strategy"
_GKE_CLIENTS = "cloud.google.com/gke-max-shared-clients-per-gpu"
_AMD_PART = "amd.com/gpu.compute-memory-partition"
_REPLICAS = "nvidia.com/gpu.replicas"
_SHARING = "nvidia.com/gpu.sharing-strategy"
_MIG_CONFIG = "nvidia.com/mig.config"
_MEMORY = "nvidia.com/gpu.memory"
_MEMORY_DIGITS = 15
_TIB = 1 << 20
"""MiB; the label has had bytes: https://github.com/NVIDIA/gpu-feature-discovery/issues/26."""

_SLICE = re.compile(r"(?:^|[^0-9])([1-7])g\.[0-9]+gb")

_NO_DEVICES = NodeDevices("", ())

SHARED = {
    "MIG": "its GPUs are partitioned (MIG)",
    "time-sliced": "its GPUs are time-sliced",
    "fractional": "its GPUs are given in fractions",
}


class NodeInput(Struct, frozen=True):
    """Everything of one input that the GPUs of a node are read against.

    ``slices``: devices by node name. ``extended``: resource names by which a driver's GPUs can be requested
    without a claim. ``doubled``: drivers whose GPUs some node also offers by a resource, which then counts.
    ``instances``: whether a device plugin offers MIG instances, so that those of ResourceSlices do not count.
    ``sharers``: by whom pods of the input share GPUs, of the ``systems``.
    """

    policy: KubernetesPolicy
    slices: Mapping[str, Sequence[NodeDevices]]
    extended: Mapping[str, tuple[str, ...]]
    doubled: Collection[str]
    instances: bool
    sharers: Collection[str]
    systems: Sequence[GpuSystem]
    remarks: Remarks

    def cards(self, annotations: Mapping[str, str]) -> tuple[Cards | None, str]:
        """The whole cards that a node registered, if somebody asks for them or for parts, and whose."""
        for one in self.systems:
            if one.cards is not None and self._asks_for(one):
                found = one.cards.whole(annotations)
                if found is not None:
                    return found, one.name
        return None, ""

    def _asks_for(self, one: GpuSystem) -> bool:
        backend = "" if one.cards is None else one.cards.backend
        return self.policy.gpu_backend == backend or one.name in self.sharers


class GpuReader:
    """Reads the GPUs of one node. ``capacity``, ``offered``: amounts of the resources of whole GPUs."""

    def __init__(
        self,
        node: KubeNode,
        input_: NodeInput,
        capacity: Mapping[str, int],
        offered: Mapping[str, int],
    ) -> None:
        self.node, self.input, self.labels = node, input_, node.labels
        self.capacity, self.offered = capacity, offered
        annotations = node.object.annotations
        self.cards, self._cards_by = input_.cards(annotations)
        own = [one.cards for one in input_.systems if one.cards is not None]
        self.registers = [one for one in own if one.key in annotations]
        # Names of the same GPUs of one node, if their numbers agree.
        self.same = tuple(dict.fromkeys((NVIDIA, *(one.alias for one in input_.systems))))
        self._by_name = self.cards is not None and self.cards.resource != NVIDIA

    def read(self) -> None:
        """Set the node's GPU fields, and withhold instances that change."""
        for register in self.registers:
            self.node.cards |= register.indices(self.node.object.annotations)
            if self.input.policy.gpu_backend == register.backend:
                cards = register.in_mig_mode(self.node.object.annotations)
                if cards is not None and self._in_mig_mode(cards):
                    return
        offered = self.node.allocatable.items()
        parts = [name for name, amount in offered if amount and PARTITIONS.fullmatch(name)]
        resource = self._resource()
        devices = self._devices(resource)
        parts += self._instances(devices)
        counts = list(self._label_counts(resource))
        resource = resource or self._resource_without_amounts(devices, counts)
        if resource is not None:
            self._read(resource, devices, counts, parts)
        self._withhold_changing(parts)

    def _read(
        self, resource: str, devices: NodeDevices, counts: Sequence[int], parts: list[str]
    ) -> None:
        node, bare = self.node, devices.mig_mode
        capacity = self._plausible(self.capacity.get(resource))
        gpus = self._allocatable(resource, devices)
        if self.cards is not None and resource_of(resource) == NVIDIA:
            # What the node advertises are shares of these cards.
            capacity, gpus = self.cards.count, self.cards.count - len(self.cards.sick)
            offered = node.allocatable if self._by_name else self.offered
            gpus = min(gpus, offered.get(self.cards.resource, 0))
        seen = (len(devices.devices) + len(devices.partitioned) + len(bare), *counts)
        node.gpu_resource, node.gpus = resource, gpus
        node.shared = self._why_shared(resource, devices)
        if node.shared is not None and resource == NVIDIA and names_parts(self.labels):
            node.allocatable[PART] = gpus
            parts.append(PART)
        node.sharing = self._sharing(resource, parts)
        node.partitioned = node.shared == "MIG" or (node.shared is None and bool(parts or bare))
        if node.shared is None:
            node.installed = max(capacity, gpus, *seen)
            if gpus < node.installed:
                parted = "are partitioned and not given whole"
                why = parted if parts or bare else "count as unhealthy"
                self._add(f"offers fewer GPUs than it has; the others {why}")
        else:
            given = "given whole" if parts else "given"
            self._add(f"{SHARED[node.shared]}; none of them is {given}")
            node.installed = max(*seen, self._behind_shares(capacity or gpus))
        node.devices = devices.devices
        node.gpu_names = tuple(dict.fromkeys(self._request_names(resource, devices)))
        node.sick = tuple(sorted(self._sick(devices)))
        node.mig_mode = tuple(gpu for gpu in bare if node.possible and gpu not in node.sick)

    def _in_mig_mode(self, cards: Cards) -> bool:
        """Whether instances of its cards are given that plans know, and no card whole."""
        node, written = self.node, self.labels.get(PRODUCT)
        board = cards.board(mig_boards(written)) if written else None
        if board is None:
            hint = f"add the label {PRODUCT}" if not written else None
            self._add("the MIG instances of its cards are not those of a known board", hint)
            return False
        node.installed, node.gpu_resource, node.gpu_names = cards.count, NVIDIA, (NVIDIA,)
        node.board, node.mig_kinds, node.sick = board.name, cards.kinds, cards.sick
        node.mig_mode = tuple(gpu for gpu in range(cards.count) if gpu not in cards.sick)
        return True

    def _sick(self, devices: NodeDevices) -> set[int]:
        closed = () if self.node.board is None else devices.closed
        found = {one.index for one in self.node.possible if one.name in closed}
        return found.union(devices.sick, self.cards.sick if self.cards is not None else ())

    def _instances(self, devices: NodeDevices) -> set[str]:
        """Offer the MIG instances that only claims give, and return their resources."""
        if self.input.instances or devices.driver in self.input.doubled:
            return set()
        self._possible(devices)
        sick = self._sick(devices)
        self.node.instances = devices.instances
        for one in devices.instances:
            name = instance_resource(one.profile or "")
            healthy = one.index not in sick and one.name not in devices.closed
            self.node.allocatable[name] = self.node.allocatable.get(name, 0) + healthy
            self.node.withheld[name] += not healthy
        return {instance_resource(one.profile or "") for one in devices.instances}

    def _possible(self, devices: NodeDevices) -> None:
        """Note the board of GPUs of which claims make instances, if these are all that the board can have."""
        if self.input.policy.gpu_backend != "dra" or not devices.possible or devices.instances:
            return
        gpus = {mig_boards(one.product or "") for one in devices.devices or devices.possible}
        boards = gpus.pop() if len(gpus) == 1 else ()
        found = [board for board in boards if _has_all_places(board, devices)]
        if len(found) == 1:
            self.node.board, self.node.possible = found[0].name, devices.possible
        else:
            what = "the MIG instances that claims can make of its GPUs"
            self._add(f"{what} are not those of a known board; none is planned")

    def _add(self, what: str, hint: str | None = None) -> None:
        self.input.remarks.add(self.node.object.where, what, hint)

    def _plausible(self, count: int | None) -> int:
        if count is not None and count > MAX_GPUS:
            self._add(f"claims more than {MAX_GPUS:,} GPUs, which is implausible; ignored")
            return 0
        return count or 0

    def _resource(self) -> str | None:
        """The resource of its GPUs: of several, the one with the most; ties in the order given."""
        most = {
            name: max(self.capacity.get(name, 0), self.offered.get(name, 0))
            for name in self.input.policy.gpu_resources
            if name in self.capacity or name in self.offered
        }
        counted = {name: amount for name, amount in most.items() if amount}
        twice = len(set(counted.values())) == 1 and counted.keys() <= {*self.same}
        if len(counted) > 1 and not twice:
            self._add(
                "offers GPUs under several resource names; only the one with the most counts",
                "list the one that counts under kubernetes.gpuResources in the Policy",
            )
        return max(most, key=lambda name: most[name], default=None)

    def _resource_without_amounts(self, devices: NodeDevices, counts: Sequence[int]) -> str | None:
        if self._by_name:
            return NVIDIA
        if devices.driver:
            # If only claims give out its GPUs, pods that request them by a resource cannot go there.
            driver, common = devices.driver, resource_of(devices.driver)
            named = common in self.input.extended.get(driver, ()) or driver in self.input.doubled
            return common if named else driver
        if counts:
            return (
                NVIDIA
                if NVIDIA in self.input.policy.gpu_resources
                else self.input.policy.gpu_resources[0]
            )
        return None

    def _devices(self, resource: str | None) -> NodeDevices:
        """The devices that are this resource's GPUs, else the driver with the most of them."""
        slices = self.input.slices.get(self.node.name, ())
        found = [one for one in slices if resource_of(one.driver) == resource]
        if resource is None and len(slices) > 1:
            self._add("has GPUs of several drivers; only the driver with the most counts")
        if not found and resource not in (NVIDIA, AMD):
            found = list(slices)
        return max(found, key=lambda one: len(one.devices), default=_NO_DEVICES)

    def _label_counts(self, resource: str | None) -> Iterator[int]:
        """Plausible counts of the installed GPUs, from labels that are about this resource."""
        partitioned = "-MIG-" in self.labels.get(PRODUCT, "")
        for key, about in _COUNTS.items():
            if key not in self.labels or (partitioned and key == _COUNT):
                continue  # with the strategy `single` the label counts partitions
            if about is not None and resource in {AMD, "habana.ai/gaudi"}:
                continue
            if (
                resource is None
                and about is not None
                and about not in self.input.policy.gpu_resources
            ):
                continue
            count = number(self.labels[key])
            if count is None or count > MAX_GPUS:
                self._add(f"its label {key} is not a plausible count; ignored")
            elif count:
                yield count

    def _allocatable(self, resource: str, devices: NodeDevices) -> int:
        """GPUs that pods may request: by the resource if the node has it, else by its devices."""
        if resource not in self.capacity and resource not in self.offered:
            doubled = devices.driver in self.input.doubled
            return 0 if doubled else len(devices.devices) - len(devices.sick)
        gpus = self._plausible(self.offered.get(resource))
        capacity = self.capacity.get(resource)
        if capacity is not None and gpus > capacity:
            self._add("offers more GPUs than its capacity; only the capacity counts")
            return capacity
        return gpus

    def _withhold_changing(self, parts: Sequence[str]) -> None:
        """Offer no MIG instances while NVIDIA's MIG manager changes them, or after it failed to."""
        if (self.labels.get(f"{_MIG_CONFIG}.state") or "success") == "success":
            return
        instances = [name for name in parts if name.startswith(RESOURCE) or name == PART]
        if instances:
            self._add(f"its MIG instances are not given: its {_MIG_CONFIG}.state is not success")
            for name in set(instances):
                self.node.withheld[name] += self.node.allocatable.get(name, 0)
                self.node.allocatable[name] = 0
        coming = self.labels.get(_MIG_CONFIG, "").removeprefix("all-")
        for board in () if self.node.instances else mig_boards(self.labels.get(PRODUCT, "")):
            if (profile := board.profile(coming)) is not None:
                name, most = instance_resource(coming), profile.most * self.node.installed
                self.node.withheld[name] = max(self.node.withheld[name], most)

    def _request_names(self, resource: str, devices: NodeDevices) -> Iterator[str]:
        by = self._shared_by(resource)
        if by is not None and self.node.sharing is not None:
            yield by
        if by is not None and self._by_name:
            return
        offered = self.offered.get(resource)
        if offered is not None:
            yield resource
            if resource in self.same:
                yield from (one for one in self.same if self.offered.get(one) == offered)
        if devices.driver:
            yield devices.driver
            yield from self.input.extended.get(devices.driver, ())

    def _why_shared(self, resource: str, devices: NodeDevices) -> str | None:
        if resource_of(resource) == AMD:
            partitioned = not self.labels.get(_AMD_PART, "spx").lower().startswith("spx")
        else:
            # Devices say exactly which GPUs are partitioned.
            known = self.node.instances or self.node.possible
            partitioned = not known and _is_migged(self.labels)
        if partitioned:
            return "MIG"
        if devices.shared:
            return "fractional"
        sharing = (self.labels.get(key, "").lower() for key in (_SHARING, _GKE_SHARING))
        replicas = number(self.labels.get(_REPLICAS)) or 1
        marked = self.labels.get(PRODUCT, "").endswith("-SHARED")
        if marked or replicas > 1 or any(one not in ("", "none") for one in sharing):
            return "time-sliced"
        if self.cards is None and self.registers:
            return "fractional"
        said = (one.shared(self.node, self.input.remarks) for one in self.input.systems)
        return next(filter(None, said), None)

    def _shared_by(self, resource: str) -> str | None:
        names = [self._cards_by]
        if self.cards is None:
            every = resource == NVIDIA and NVIDIA in self.offered
            names = [one.name for one in self.input.systems if every and one.any_node]
        return next((name for name in names if name in self.input.sharers), None)

    def _sharing(self, resource: str, parts: Sequence[str]) -> GpuSharing | None:
        """How pods share those of its GPUs that none holds whole. None are shared beside partitions."""
        by = self._shared_by(resource)
        if by is None or self.node.shared is not None or parts:
            return None
        if self.cards is None:
            return GpuSharing(memory=self._labelled_memory())
        if self.cards.cores < ALL_CORES or not self.cards.pods:
            self._add("registered cards without all of their cores, or for no pods; none is shared")
            return None
        if not self.cards.alike:
            self._add("has cards that differ in memory; the least counts where pods share them")
        return GpuSharing(self.cards.memory_MiB or None, min(self.cards.pods, MAX_SHARING))

    def _labelled_memory(self) -> int | None:
        """MiB of each GPU in whole hundreds, as KAI counts them; bytes where they can only be that."""
        written = self.labels.get(_MEMORY)
        if written is None:
            return None
        if not written.isascii() or not written.isdecimal() or len(written) > _MEMORY_DIGITS:
            self._add(f"its label {_MEMORY} is not a plausible amount; ignored")
            return None
        amount = int(written)
        amount = amount if amount < _TIB else amount // 2**20
        return amount - amount % 100 or None

    def _behind_shares(self, advertised: int) -> int:
        """Physical GPUs behind the advertised shares, at least."""
        annotations = self.node.object.annotations
        registered = max((one.count(annotations) for one in self.registers), default=0)
        stated = (self.node.allocatable.get(one.installed, 0) for one in self.input.systems)
        counted = min(MAX_GPUS, max((registered, *stated)))
        if counted or not advertised:
            return counted
        labels = (self.labels.get(key, "") for key in (PRODUCT, _GKE_PART, _MIG_CONFIG))
        part = _SLICE.search(" ".join(labels))
        parts = 1 if part is None else 7 // int(part.group(1))
        for key in (_REPLICAS, _GKE_CLIENTS):
            parts *= max(1, number(self.labels.get(key)) or 1)
        return -(-advertised // parts)


def names_parts(labels: Mapping[str, str]) -> bool:
    """Whether labels of a node, or a selector of them, say that its GPUs are parts, all alike."""
    product = labels.get(PRODUCT, "")
    sharing = labels.get(_GKE_SHARING) or "none"
    return (
        ("-MIG-" in product and "INVALID" not in product)
        or product.endswith("-SHARED")
        or bool(labels.get(_GKE_PART))
        or sharing.lower() != "none"
    )


def _has_all_places(board: Board, devices: NodeDevices) -> bool:
    """Whether each GPU can have instances just where the board can, as far as it knows their profiles.

    Those with media engines may be missing.
    """
    for gpu in (*(one.index for one in devices.devices), *devices.mig_mode):
        found: dict[Profile, set[int]] = {}
        for one in (one for one in devices.possible if one.index == gpu):
            profile = board.profile(one.profile or "")
            if profile is not None:
                found.setdefault(profile, set()).add(one.slices)
        for profile in board.profiles:
            places = {(1 << profile.size) - 1 << start for start in profile.starts}
            optional = profile not in found and "+" in profile.names[0]
            if not places or (not optional and found.get(profile) != places):
                return False
    return True


def _is_migged(labels: Mapping[str, str]) -> bool:
    """Whether its GPU resource means partitions. ``mixed`` gives them names of their own."""
    if "-MIG-" in labels.get(PRODUCT, "") or labels.get(_GKE_PART):
        return True
    strategy = labels.get("nvidia.com/mig.strategy")
    # The product label shows it once the change is done, but with the strategy `none` never.
    done = PRODUCT in labels and labels.get(f"{_MIG_CONFIG}.state") == "success"
    unseen = strategy != "mixed" and not (done and strategy != "none")
    return unseen and _SLICE.search(labels.get(_MIG_CONFIG, "")) is not None
