"""Gang documents to Gangs: level names to indices, pods to nodes and bit masks.

Every level, node and GPU of a gang exists, or is reported; no GPU is held twice. In a lenient
reading, of pods observed in a live cluster, GPU indices that cannot be true are unknown instead.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from operator import add, attrgetter

from models.documents.base import FieldError, Path, made, suggestion
from models.documents.cluster import NODE_LEVEL, GpuSharing
from models.documents.gang import (
    LEVELS,
    GangDocument,
    GangSpec,
    NextToDocument,
    PlannedDocument,
    PodDocument,
    RoleDocument,
    Terms,
    level_names,
)
from models.documents.server import out_of_range
from models.gpu_shares import Size, fits, part_of, share_in, shared_by, size_on, whole
from models.hardware import bits, mask_of
from models.instance.gang import (
    ExistingPod,
    Gang,
    Near,
    NextTo,
    NodeAffinity,
    PlannedPod,
    Role,
    Spread,
    Together,
)
from models.mig import board_named, instance_in, resource_of
from models.units import shown
from planner.read.compact_cluster import MergedCluster
from planner.read.kube.lookup import Known
from planner.read.validation import Entry

GangEntry = Entry[GangDocument]


@dataclass(slots=True)
class GangReader:
    """Turns gang documents into Gangs of one cluster and checks what gangs share.

    ``gangs``: the name of the text that each is in. ``held``: name of the pod by (node, GPU); ``parts``:
    those of which pods have parts; ``instances``: their profiles, and where they begin; ``sizes``: of parts
    on each. ``unknown``: by node, number of held GPUs without known index.
    """

    merged: MergedCluster
    levels: dict[str, int] = field(init=False)
    positions: dict[str, int] = field(init=False)
    budgets: frozenset[tuple[str, str]] = field(init=False)
    gangs: dict[tuple[str, str], str] = field(default_factory=dict)
    pod_names: set[tuple[str, str]] = field(default_factory=set)
    pod_uids: dict[str, str] = field(default_factory=dict)
    prefixes: dict[tuple[str, str], str] = field(default_factory=dict)
    held: dict[tuple[int, int], str] = field(default_factory=dict)
    parts: set[tuple[int, int]] = field(default_factory=set)
    instances: dict[tuple[int, int], list[tuple[str, int]]] = field(default_factory=dict)
    sizes: dict[tuple[int, int | str], Size] = field(default_factory=dict)
    unknown: dict[int, int] = field(default_factory=dict)
    lenient: bool = False
    # by the identity of parts that equal documents share: those without faults, and what roles are read as
    _sound: set[tuple[int, int, int]] = field(default_factory=set)
    _once: Known = field(default_factory=Known)
    _equal: dict[Terms, Terms] = field(default_factory=dict)

    def __post_init__(self) -> None:
        cluster = self.merged.cluster
        self.levels = {level.name: i for i, level in enumerate(cluster.levels)}
        self.levels[NODE_LEVEL] = cluster.node_level
        self.positions = {node.name: i for i, node in enumerate(cluster.nodes)}
        self.budgets = frozenset(budget.key for budget in cluster.budgets)

    def read(
        self,
        entries: Sequence[GangEntry],
        made: Sequence[Gang] = (),
        *,
        lenient: bool = False,
    ) -> tuple[Gang, ...]:
        """Every gang of these entries, by (namespace, name).

        ``made``: those of a cluster, as they are but for GPUs that they cannot hold. ``lenient``: the pods
        were observed in one, so contradictions are no faults. Where pods hold more GPUs than their node
        has, or two hold one GPU, the indices are unknown.
        """
        self.lenient = lenient
        for gang in made:
            self.gangs[gang.key] = "the Kubernetes objects"
            self.pod_names.update((gang.namespace, pod.name) for pod in gang.pods)
            self.pod_uids.update((pod.uid, pod.name) for pod in gang.pods if pod.uid is not None)
        gangs = [*made, *filter(None, map(self._gang, entries))]
        gangs = self._with_possible_holds(gangs) if lenient else gangs
        return tuple(sorted(gangs, key=lambda gang: gang.key))

    def _gang(self, entry: GangEntry) -> Gang | None:
        document = entry.document
        key = (document.metadata.namespace, document.metadata.name)
        if key in self.gangs:
            where = self.gangs[key]
            what = f"two gangs are named {shown('/'.join(key))}; the other is in {where}"
            entry.fault(("metadata", "name"), what, "rename one, or put it in another namespace")
            return None
        self.gangs[key] = entry.source.name
        entry.report_errors(self._spec_errors(document))
        entry.report_errors(document.pod_errors())
        if not self.lenient:  # live pods have names, and their controllers name later ones
            self._check_pod_names(entry)
        roles = {role.name: i for i, role in enumerate(document.spec.roles)}
        pods = tuple(
            self._pod(entry, ("status", "pods", i), pod, roles[pod.role])
            for i, pod in enumerate(document.status.pods)
            if pod.role in roles
        )
        planned = tuple(
            PlannedPod(
                roles[pod.role], pod.index, self._node(entry, ("status", "planned", i), pod) or 0
            )
            for i, pod in enumerate(document.status.planned)
            if pod.role in roles
        )
        return self._built(document, pods, planned)

    def _spec_errors(self, document: GangDocument) -> Iterator[FieldError]:
        """Contradictions in its spec; what gangs share is looked at once."""
        spec = document.spec
        kind = (id(spec.roles), id(spec.topology), id(spec.communication))
        if kind in self._sound and not spec.groups and spec.near is None:
            return
        found = [*document.spec_errors(), *self._level_errors(spec)]
        if not found:
            self._sound.add(kind)
        yield from found

    def _level_errors(self, spec: GangSpec) -> Iterator[FieldError]:
        for path, level in level_names(spec, ("spec",)):
            if level not in self.levels:
                hint = suggestion(level, self.levels, "levels")
                yield FieldError(path, f"unknown level {shown(level)}", hint)
        for i, role in enumerate(spec.roles):
            layers = [role.slice, *role.outer_slices] if role.slice else []
            for j, (inner, outer) in enumerate(pairwise(one.required for one in layers)):
                if self.levels.get(outer, -1) >= self.levels.get(inner, 0):
                    path = ("spec", "roles", i, "outerSlices", j, "required")
                    what = f"level {shown(outer)} is not wider than {shown(inner)}"
                    yield FieldError(
                        path, what, f"write a level around {inner}, or remove this layer"
                    )

    def _with_possible_holds(self, gangs: list[Gang]) -> list[Gang]:
        """The gangs; of pods that hold GPUs which they cannot, or another holds, the indices are unknown."""
        running = [
            (gang.roles[pod.role], pod, pod.node, self._possible(pod, gang.roles[pod.role]))
            for gang in gangs
            for pod in gang.pods
            if pod.node is not None
        ]
        whole: Counter[tuple[int, int]] = Counter()
        parts: set[tuple[int, int]] = set()
        for role, pod, node, mask in running:
            of = parts if pod.start is not None or share_in(dict(role.requests)) else whole
            of.update((node, gpu) for gpu in bits(mask or 0))
        twice = {place for place, pods in whole.items() if pods > 1 or place in parts}
        changed: dict[int, ExistingPod] = {}
        for role, pod, node, mask in running:
            places = [(node, gpu) for gpu in bits(mask or 0)]
            held = mask if twice.isdisjoint(places) else None
            if held is None:
                self.unknown[node] = self.unknown.get(node, 0) + role.gpus
            else:
                self.held.update(dict.fromkeys(places, pod.name))
            if held != pod.gpus:
                changed[id(pod)] = replace(pod, gpus=held, start=pod.start if held else None)
        for number, gang in enumerate(gangs if changed else ()):
            if not changed.keys().isdisjoint(map(id, gang.pods)):
                pods = tuple(changed.get(id(pod), pod) for pod in gang.pods)
                gangs[number] = replace(gang, pods=pods)
        return gangs

    def _check_pod_names(self, entry: GangEntry) -> None:
        """Report two gangs whose future pods would have one name, gang-role-index."""
        namespace, name = entry.document.metadata.namespace, entry.document.metadata.name
        for i, role in enumerate(entry.document.spec.roles):
            prefix = (namespace, f"{name}-{role.name}")
            other = self.prefixes.setdefault(prefix, name)
            if other != name:
                entry.fault(
                    ("spec", "roles", i, "name"),
                    f"its pods and those of gang {shown(other)} would both be named"
                    f" {shown(f'{prefix[1]}-{role.first_index}')}",
                    "rename the gang or the role",
                )

    def _pod(self, entry: GangEntry, path: Path, pod: PodDocument, role: int) -> ExistingPod:
        name = entry.document.pod_name(pod)
        namespace = entry.document.metadata.namespace
        if (namespace, name) in self.pod_names:
            what = f"two pods are named {shown(name)} in namespace {shown(namespace)}"
            entry.fault((*path, "name" if pod.name else "index"), what, "rename one")
        self.pod_names.add((namespace, name))
        if pod.uid is not None:
            if pod.uid in self.pod_uids:
                both = f"pod {shown(self.pod_uids[pod.uid])} and pod {shown(name)}"
                what = f"two pods have the uid {shown(pod.uid)}: {both}"
                entry.fault((*path, "uid"), what, "a uid is one pod's")
            self.pod_uids[pod.uid] = name
        node = self._node(entry, path, pod)
        document = entry.document.spec.roles[role]
        mask = None
        if node is not None:
            mask = self._gpus(entry, path, pod, document, node)
        if pod.budgets:
            self._check_budgets(entry, path, pod)
        return ExistingPod(
            name,
            role,
            pod.index,
            pod.uid,
            node,
            mask,
            pod.mode,
            pod.budgets,
            pod.rank,
            None if node is None or mask else pod.gpu_group,
            pod.start if mask else None,
        )

    def _check_budgets(self, entry: GangEntry, path: Path, pod: PodDocument) -> None:
        namespace = entry.document.metadata.namespace
        for i, name in enumerate(pod.budgets):
            if (namespace, name) not in self.budgets:
                what = f"unknown disruption budget {shown(name)} of namespace {shown(namespace)}"
                known = [own for place, own in self.budgets if place == namespace]
                entry.fault((*path, "budgets", i), what, suggestion(name, known, "its budgets"))

    def _node(self, entry: GangEntry, path: Path, pod: PodDocument | PlannedDocument) -> int | None:
        """Where it runs or is planned; an unknown node is reported."""
        if pod.node is None:
            return None
        position = self.positions.get(pod.node)
        if position is None:
            who = f"{pod.role} {pod.index} is planned"
            if isinstance(pod, PodDocument):
                who = f"{shown(entry.document.pod_name(pod))} runs"
            what = f"pod {who} on unknown node {shown(pod.node)}"
            hint = None if entry.findings.enough else suggestion(pod.node, self.positions, "nodes")
            entry.fault((*path, "node"), what, hint)
        return position

    def _gpus(
        self, entry: GangEntry, path: Path, pod: PodDocument, role: RoleDocument, position: int
    ) -> int | None:
        """Mask of the GPUs a running pod holds; None where the indices are unknown."""
        node = self.merged.cluster.nodes[position]
        shares = pod.start is not None or (
            not role.gpus and share_in(role.all_requests) is not None
        )
        mask = mask_of(pod.gpus or ())
        if self.lenient:
            return mask or None if role.gpus or shares else 0
        if role.gpus > node.gpus:
            if node.model is not None:
                what = f"role {shown(role.name)} asks for {role.gpus} GPUs, but node"
                hint = f"the pod cannot run there as written: {node.model.name} has {node.gpus}"
                entry.fault((*path, "node"), f"{what} {shown(node.name)} has {node.gpus}", hint)
            elif not self.merged.names_model(node.name):
                what = f"node {shown(node.name)} has no GPUs for this pod"
                entry.fault((*path, "node"), what, "give the node its `model`")
            return None
        if pod.gpus is None:
            if role.gpus:
                self._count_unknown(entry, path, role.gpus, position)
            self._check_parts(entry, path, pod, role, position)
            return None if role.gpus or shares else 0
        self._check_parts(entry, path, pod, role, position)
        self._check_indices(entry, path, pod.gpus, position, shares=shares)
        if trouble := self._misplaced(mask or 1, pod.start, role.all_requests, position, role.name):
            entry.fault((*path, "start"), *trouble)
        name = entry.document.pod_name(pod)
        for gpu in pod.gpus:
            self.held[position, gpu] = name
            if shares:
                self.parts.add((position, gpu))
        self._count_unknown(entry, path, 0, position)
        return mask

    def _possible(self, pod: ExistingPod, role: Role) -> int | None:
        """The GPUs of a pod that runs in a real cluster, if it can hold these."""
        node, mask = self.merged.cluster.nodes[pod.node or 0], pod.gpus
        if not mask:
            return mask
        own = 0 if pod.start is None else mask_of(node.empty_mig)  # in MIG mode
        if role.gpus > node.gpus or mask >> node.gpus or mask & node.partitioned & ~own:
            return None
        return 0 if self._misplaced(mask, pod.start, dict(role.requests), pod.node or 0) else mask

    def _check_parts(
        self, entry: GangEntry, path: Path, pod: PodDocument, role: RoleDocument, position: int
    ) -> None:
        """Report a GPU of which pods have more than there is, and an instance that may be anywhere."""
        node, resource = self.merged.cluster.nodes[position], share_in(role.all_requests)
        instance = not (role.gpus or pod.gpus) and instance_in(role.all_requests) is not None
        if instance and node.dynamic_mig is not None and not node.mig:
            what = f"an instance somewhere on node {shown(node.name)}, whose GPUs plans partition"
            entry.fault(
                (*path, "node"), what, "add `gpus` and `start`: its GPU, and its first slice"
            )
        part = None if resource is None else part_of(resource)
        sharing = node.sharing or GpuSharing()
        size = None if part is None else size_on(part, sharing.memory)
        name = entry.document.pod_name(pod)
        if size is None:
            return
        room = whole(sharing.memory, sharing.pods)
        for gpu in shared_by(pod.gpus or (), pod.gpu_group, name, resource or ""):
            held = self.sizes.get((position, gpu), (0, 0, 0))
            held = self.sizes[position, gpu] = tuple(map(add, held, size))
            if not fits(held, room):
                what = f"pods hold more of GPU {gpu} of node {shown(node.name)} than it has"
                entry.fault(
                    (*path, "role"), what, "check the pods of this GPU, and `sharing` of its node"
                )

    def _check_indices(
        self, entry: GangEntry, path: Path, gpus: Sequence[int], position: int, *, shares: bool
    ) -> None:
        """Report GPUs that the node does not have, or that a pod cannot hold."""
        node = self.merged.cluster.nodes[position]
        most, partitioned = node.gpus, node.partitioned
        for i, gpu in enumerate(gpus):
            if gpu >= most:
                entry.report_errors(iter((out_of_range((*path, "gpus", i), gpu, most),)))
            elif shares and ((position, gpu) in self.parts or gpu in node.empty_mig):
                continue
            elif (other := self.held.get((position, gpu))) is not None:
                what = f"GPU {gpu} of node {shown(node.name)} is also held by pod {shown(other)}"
                entry.fault((*path, "gpus", i), what, "a GPU belongs to at most one pod")
                break
            elif partitioned >> gpu & 1:
                entry.fault(
                    (*path, "gpus", i),
                    f"GPU {gpu} of node {shown(node.name)} is partitioned",
                    "a pod holds an instance of it, or the node has no `mig`",
                )

    def _misplaced(
        self,
        mask: int,
        start: int | None,
        requests: Mapping[str, int],
        position: int,
        role: str = "",
    ) -> tuple[str, str] | None:
        """Why an instance cannot begin there, or not beside those of other pods on its GPU, and a hint."""
        if start is None:
            return None
        node, resource = self.merged.cluster.nodes[position], instance_in(requests)
        board, (gpu, *_) = board_named(node.dynamic_mig or ""), bits(mask)
        if board is None:
            what = f"where an instance begins on node {shown(node.name)}, which has no `dynamicMig`"
            return what, "remove `start`: `mig` states the instances of that node"
        named = {resource_of(name): p for p in board.profiles for name in p.names}
        profile = named.get(resource or "")
        if profile is None:
            what = f"role {shown(role)} asks for {resource}, which {board.name} does not have"
            return what, f"profiles: {', '.join(map(str, board.profiles))}"
        if start not in profile.starts:
            what = f"no {profile.names[0]} of {board.name} begins in memory slice {start}"
            return what, profile.places
        on = self.instances.setdefault((position, gpu), [])
        if board.in_use([*on, (profile.names[0], start)]) is None:
            what = (
                f"no room for a {profile.names[0]} from memory slice {start} on GPU {gpu} of node"
            )
            others = ", ".join(f"{name} from {at}" for name, at in on)
            return f"{what} {shown(node.name)}", f"pods have {others}; {profile.places}"
        on.append((profile.names[0], start))
        return None

    def _count_unknown(self, entry: GangEntry, path: Path, more: int, position: int) -> None:
        """Known and unknown GPUs together are no more than the node has."""
        unknown = self.unknown[position] = self.unknown.get(position, 0) + more
        if not unknown:
            return
        node = self.merged.cluster.nodes[position]
        known = sum((position, gpu) in self.held for gpu in range(node.gpus))
        if known + unknown > node.gpus:
            entry.fault(
                (*path, "node"),
                f"pods hold {known + unknown} GPUs of node {shown(node.name)}, which has {node.gpus}",
                "check the pods of this node",
            )

    def _built(
        self,
        document: GangDocument,
        pods: tuple[ExistingPod, ...],
        planned: tuple[PlannedPod, ...],
    ) -> Gang:
        spec = document.spec
        roles = self._once.of(self._read_roles, spec.roles)
        if spec.groups:
            roles = tuple(_grouped(document, role, self.levels) for role in roles)
        topology, near = spec.topology, spec.near
        return made(
            Gang,
            document.metadata,
            spec,
            topology,
            spec.communication,
            document.status,
            roles=roles,
            **{name: self._level(getattr(topology, name)) for name in LEVELS},
            ordered=topology.order,
            stated_priority=None,
            counts_speed=spec.communication.speed == "count",
            together=tuple(_together(document, self.levels)),
            near=None
            if near is None
            else Near(tuple(sorted(near.gangs)), self.levels.get(near.level, 0)),
            planned=tuple(sorted(planned)),
            pods=tuple(sorted(pods, key=attrgetter("role", "index"))),
        )

    def _level(self, name: str | None) -> int | None:
        return None if name is None else self.levels.get(name)

    def _read_roles(self, roles: Sequence[RoleDocument]) -> tuple[Role, ...]:
        return tuple(map(self._role, roles))

    def _role(self, role: RoleDocument) -> Role:
        least, most, step = role.span
        topology = role.topology
        return made(
            Role,
            role,
            min=least,
            max=most,
            step=step,
            elastic=not isinstance(role.replicas, int),
            keeps=(),
            thousandths=None,
            requests=tuple(sorted(role.all_requests.items())),
            required=self._level(topology.required),
            preferred=self._level(topology.preferred),
            slice_size=role.slice.size if role.slice else None,
            slice_level=self._level(role.slice.required) if role.slice else None,
            outer_slices=tuple(
                (outer.size, self.levels.get(outer.required, 0)) for outer in role.outer_slices
            ),
            node_affinity=self._affinity(role.node_affinity),
            pod_sets=tuple(sorted(role.pod_sets)),
            anti_affinity=tuple(self._next_to(one) for one in role.anti_affinity),
            affinity=tuple(self._next_to(one) for one in role.affinity),
            spread=tuple(
                made(Spread, one, level=self.levels.get(one.level, 0)) for one in role.spread
            ),
        )

    def _next_to(self, rule: NextToDocument) -> NextTo:
        return NextTo(self.levels.get(rule.level, 0), rule.pod_set)

    def _affinity(self, terms: Terms) -> NodeAffinity:
        """The affinity, one object for all roles that state the same."""
        if not terms:
            return ()
        return self._equal.setdefault(terms, terms)


def _grouped(gang: GangDocument, role: Role, levels: Mapping[str, int]) -> Role:
    """The role with the affinities of the groups that it is in: who comes to one comes to its domain."""
    groups = [
        (gang.set_of(group.name), group.topology.required)
        for group in gang.spec.groups
        if role.name in group.roles and group.topology.required is not None
    ]
    sets = [own for own, _ in groups]
    near = (NextTo(levels.get(required, 0), own) for own, required in groups)
    pod_sets = tuple(sorted((*role.pod_sets, *sets)))
    return replace(role, pod_sets=pod_sets, affinity=(*role.affinity, *near)) if groups else role


def _together(gang: GangDocument, levels: Mapping[str, int]) -> Iterator[Together]:
    """The groups that should share a domain, with the numbers of their roles."""
    for group in gang.spec.groups:
        if group.topology.preferred is not None:
            roles = tuple(n for n, role in enumerate(gang.spec.roles) if role.name in group.roles)
            yield Together(group.name, roles, levels.get(group.topology.preferred, 0))
