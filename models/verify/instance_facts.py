"""From the instance of a plan document to the judge's facts.

A broken instance gives violations of form, reference and order, never an exception.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise, takewhile

from models.documents.base import FieldError
from models.documents.cluster import ClusterSpec, Level, NodeDocument, level_errors
from models.documents.gang import (
    GangDocument,
    PodDocument,
    RoleDocument,
)
from models.documents.plan import PlanInstance, PlanPod
from models.documents.policy import PolicySpec
from models.documents.queue import QueueDocument, QueueSpec
from models.hardware import ServerModel, mask_of, slug
from models.tiers import MAINS, objective_names
from models.units import InvalidValueError
from models.verify.counts import Counts, unit_of
from models.verify.facts import Facts, Gang, Node, Pod, PodKey, PodRule, Role
from models.verify.partitions import INSTANCES, slices_of, with_could
from models.verify.shares import (
    Owner,
    is_part,
    releasable,
    shared_names,
    with_parts,
    with_sharers,
)
from models.verify.violation import Violation, printable, quoted

MAX_FAULTS = 50
"""More faults of one document are not listed."""

Place = str
"""A path in the document such as ``spec.gangs[3].pods``."""


class Faults:
    """Faults of the document found so far."""

    def __init__(self) -> None:
        self.found: list[Violation] = []

    def add(self, rule: str, where: Place, what: str, gang: str | None = None) -> None:
        if len(self.found) < MAX_FAULTS:
            self.found.append(Violation(rule, gang, f"{where}: {what}"))

    def add_errors(self, where: Place, errors: Iterator[FieldError]) -> None:
        for error in errors:
            path = "".join(path_step(step) for step in error.path)
            self.add("form", printable(where + path), printable(error.what))


def path_step(one: int | str) -> str:
    """One step of a path in a document."""
    return f"[{one}]" if isinstance(one, int) else f".{one}"


def read_instance(faults: Faults, instance: PlanInstance) -> tuple[Facts, GangReader]:
    """The facts, and a reader of pods on their nodes."""
    spec = instance.cluster.spec
    where = "instance.cluster.spec"
    faults.add_errors(where, level_errors(spec.levels, ("levels",)))
    models = _server_models(faults, spec, f"{where}.serverModels")
    ours = instance.policy.spec.node_selector
    now = _now(instance)
    failed_after = now - instance.policy.spec.suspect_for_s
    node_reader = _NodeReader(faults, spec.levels, models, ours, failed_after)
    nodes = node_reader.read_all(spec.nodes, f"{where}.nodes")
    used = {id(node.model) for node in nodes}
    for model in {id(model): model for model in models.values()}.values():
        if id(model) not in used:
            faults.add("reference", f"{where}.serverModels", f"no node is a {quoted(model.name)}")
    policy = instance.policy.spec
    _check_policy(faults, policy, spec.levels, "instance.policy.spec")
    budgets = {budget.key: budget.allowed for budget in spec.disruption_budgets}
    keys = [budget.key for budget in spec.disruption_budgets]
    _check_sorted(faults, f"{where}.disruptionBudgets", "budget", keys)
    reader = GangReader(faults, spec.levels, nodes, budgets, _min_run_times(instance))
    gangs = tuple(
        reader.read(gang, f"instance.gangs[{i}]", policy, now)
        for i, gang in enumerate(instance.gangs)
    )
    _check_sorted(faults, "instance.gangs", "gang", [gang.key for gang in gangs])
    requested = {name for gang in gangs for role in gang.roles for name in role.requests}
    instances = {name for name in requested if name.startswith(INSTANCES)}
    for node in nodes if instances else ():
        if not instances <= node.allocatable.keys():
            what = "states no number of instances that a role requests"
            faults.add("form", f"{where}.nodes.{printable(node.name)}.allocatable", what)
    for n, document in enumerate(spec.nodes):
        for one in document.mig if document.dynamic_mig is not None and n < len(nodes) else ():
            for gpu in () if one.profiles else one.gpus:  # in MIG mode, and nobody has an instance
                reader.sharers.setdefault(n, {}).setdefault(gpu, [])
    bare = nodes
    nodes = with_sharers(nodes, reader.sharers) if reader.sharers else nodes
    if any(map(is_part, requested)):
        nodes = with_parts(nodes, requested)
    if instances and any(node.dynamic_mig for node in nodes):
        nodes = tuple(_with_places(faults, node) for node in nodes)
        nodes = with_could(nodes, instances, gangs, policy.gpu_binding)
    could = {n for n, node in enumerate(nodes) if node.could and node.dynamic_mig}
    sharers, owners = reader.sharers, reader.owners
    releases = releasable(bare, gangs, sharers, owners, policy.gpu_binding, could)
    queues = _queues(faults, instance.queues, reader.levels)
    _check_pins(faults, instance.queues, nodes, spec.levels)
    unit = unit_of(gangs, queues)
    gangs = gangs if unit == 1 else _counted(gangs, Counts(nodes), policy, now)
    return Facts(spec.levels, nodes, gangs, policy, now, budgets, queues, releases, unit), reader


def _counted(
    gangs: Iterable[Gang], counts: Counts, policy: PolicySpec, now: int
) -> tuple[Gang, ...]:
    """The gangs with what their pods count in thousandths, and the bands that follow."""
    found = []
    for gang in gangs:
        roles = counts.counted(gang)
        priority = _banded_priority(gang.document, policy, now, roles, 1000)
        found.append(replace(gang, roles=roles, priority=priority))
    return tuple(found)


def _with_places(faults: Faults, node: Node) -> Node:
    """The node; instances of pods that run stand beside each other on their GPU."""
    wrong = [
        own for own in node.sharers if own.instances and slices_of(node, own.instances) is None
    ]
    for one in wrong:
        what = f"the instances of pods on GPU {one.gpu} cannot stand there at once"
        faults.add("form", f"instance.cluster.nodes.{printable(node.name)}", what)
    return node if not wrong else replace(node, sharers=())


def _now(instance: PlanInstance) -> int:
    """The time to which ages are counted."""
    if instance.policy.spec.now is not None:
        return instance.policy.spec.now
    stated = (
        (_in_queue_since(gang), gang.status.started_at, gang.status.last_checkpoint)
        for gang in instance.gangs
    )
    return max((time for times in stated for time in times if time is not None), default=0)


def _queues(
    faults: Faults, documents: Sequence[QueueDocument], levels: Collection[str]
) -> dict[str, QueueSpec]:
    """The queues by name; parents are known and no queue is below itself."""
    found = {document.metadata.name: document.spec for document in documents}
    where = "instance.queues"
    _check_sorted(faults, where, "queue", [(one.metadata.name,) for one in documents])
    for i, document in enumerate(documents):
        faults.add_errors(f"{where}[{i}]", document.field_errors())
        for _, level in document.level_names():
            if level not in levels:
                faults.add("reference", f"{where}[{i}].spec.cells", f"no level {quoted(level)}")
    rooted: set[str] = set()
    for name in found:
        path: list[str] = []
        at: str | None = name
        while at is not None and at in found and at not in rooted and at not in path:
            path.append(at)
            at = found[at].parent
        if at is not None and at not in rooted:
            what = "is below itself" if at in found else "is no queue"
            faults.add("reference", where, f"{quoted(at)}, a parent, {what}")
        rooted.update(path)
    return found


def _check_pins(
    faults: Faults,
    documents: Sequence[QueueDocument],
    nodes: Sequence[Node],
    levels: Sequence[Level],
) -> None:
    """Pinned cells are nodes and domains that exist, each node once in a queue, written out."""
    cells = [(one, cell) for one in documents for cell in one.spec.cells if cell.pinned]
    if not cells:
        return
    numbers = {level.name: i for i, level in enumerate(levels)}
    names = {node.name for node in nodes}
    for document, cell in cells:
        where = f"instance.queues.{document.metadata.name}.spec.cells"
        level = numbers.get(cell.level or "")
        if cell.domain is not None:
            known = level is not None and any(
                node.named > level and "/".join(node.names[: level + 1]) == cell.domain
                for node in nodes
            )
            if not known:
                faults.add("reference", printable(where), f"no domain {quoted(cell.domain)}")
        elif not names.issuperset(cell.nodes):
            other = min(set(cell.nodes) - names)
            faults.add("reference", printable(where), f"no node {quoted(other)}")
        _check_sorted(faults, printable(where), "node", [(name,) for name in cell.nodes])


def _check_policy(faults: Faults, spec: PolicySpec, levels: Sequence[Level], where: Place) -> None:
    objectives = {one.name: one.tolerance for one in spec.objectives or ()}
    if spec.objectives is None or spec.mix is None or spec.preset is not None:
        faults.add("form", where, "objectives, without a preset, and mix must be written out")
    elif len(objectives) < len(spec.objectives):
        faults.add("form", f"{where}.objectives", "an objective is listed twice")
    if all(name in objectives for name in MAINS):
        faults.add("form", f"{where}.objectives", f"lists both {' and '.join(MAINS)}")
    for name in sorted(objectives.keys() - set(objective_names())):
        faults.add("form", f"{where}.objectives", f"no objective {quoted(name)}")
    for name in spec.spares.keys() - {level.name for level in levels}:
        faults.add("reference", f"{where}.spares", f"no level {quoted(name)}")


def _server_models(faults: Faults, spec: ClusterSpec, where: Place) -> dict[str, ServerModel]:
    """Server models by the slugs of their names and aliases."""
    models: dict[str, ServerModel] = {}
    for i, document in enumerate(spec.server_models):
        try:
            model = document.to_server_model()
        except InvalidValueError as error:
            faults.add("form", f"{where}[{i}]", printable(error.what))
            continue
        for name in model.slugs:
            if name in models:
                faults.add("reference", f"{where}[{i}]", f"two models are found as {quoted(name)}")
            models[name] = model
    return models


class _NodeReader:
    """Reads nodes one after another and numbers their domains."""

    def __init__(
        self,
        faults: Faults,
        levels: Sequence[Level],
        models: Mapping[str, ServerModel],
        ours: Mapping[str, str],
        failed_after: int,
    ) -> None:
        self.faults = faults
        self.levels = levels
        self.names = {level.name for level in levels}
        self.models = models
        self.by_name: dict[str, ServerModel | None] = {}
        self.ours = ours
        self.failed_after = failed_after
        # For every level, numbers by the path of the domain, or by the node that is alone.
        self.numbers: list[dict[tuple[str, ...] | int, int]] = [{} for _ in levels]

    def read_all(self, documents: Sequence[NodeDocument], where: Place) -> tuple[Node, ...]:
        nodes = tuple(
            self._read(document, f"{where}[{i}]", i) for i, document in enumerate(documents)
        )
        _check_sorted(self.faults, where, "node", [(node.name,) for node in nodes])
        return nodes

    def _read(self, document: NodeDocument, where: Place, index: int) -> Node:
        if "[" in document.name:
            self.faults.add("form", f"{where}.name", "a range of nodes must be written out")
        model = self._model(document.model, where)
        if not self.names >= document.domains.keys():
            self.faults.add("reference", f"{where}.domains", "names a level that does not exist")
        implied = {"kubernetes.io/hostname": document.name}
        for level in self.levels:
            if level.label is not None and level.name in document.domains:
                implied[level.label] = document.domains[level.name]
        labels = {**implied, **document.labels}
        gpus = model.gpus if model else 0
        unknown = document.unknown_unhealthy + document.unknown_partitioned
        if unknown > gpus:
            self.faults.add("form", f"{where}.unknownUnhealthy", f"there are {gpus} GPUs")
        for i, nic in enumerate(document.nics or ()):
            read_mask(self.faults, nic.gpus or (), f"{where}.nics[{i}].gpus", gpus)
        partitioned = self._partitioned(document, where, gpus) if document.mig else 0
        selected = not self.ours or all(labels.get(k) == value for k, value in self.ours.items())
        domains = document.domains
        named = takewhile(lambda level: level.name in domains, self.levels)
        names = tuple(domains[level.name] for level in named)
        return Node(
            name=document.name,
            model=model,
            domain=(*self._domains(document.domains, index), index),
            named=len(names),
            names=names,
            allocatable=document.allocatable,
            labels=labels,
            taints=tuple(t for t in document.taints if t.effect != "PreferNoSchedule")
            if document.taints
            else (),
            nics=(model.nics if model else ())
            if document.nics is None
            else tuple(nic.to_nic() for nic in document.nics),
            selected=selected,
            usable=document.ready and not document.unschedulable and selected,
            unhealthy=partitioned
            | read_mask(self.faults, document.unhealthy_gpus, f"{where}.unhealthyGpus", gpus),
            partitioned=partitioned,
            unknown_unhealthy=unknown,
            unknown_partitioned=document.unknown_partitioned,
            dynamic_mig=document.dynamic_mig,
            mig_mode=tuple(gpu for one in document.mig if not one.profiles for gpu in one.gpus),
            comes=0,
            released=0,
            could={},
            sharing=document.sharing,
            sharers=(),
            unknown_comes=0,
            stated=document.allocatable,
            held=document.held,
            suspect=document.last_failure is not None and document.last_failure > self.failed_after,
        )

    def _partitioned(self, document: NodeDocument, where: Place, gpus: int) -> int:
        """The mask of the partitioned GPUs; no more is offered of their instances than they have."""
        found, instances = 0, Counter[str]()
        for i, one in enumerate(document.mig):
            own = read_mask(self.faults, tuple(sorted(one.gpus)), f"{where}.mig[{i}].gpus", gpus)
            if own & found:
                self.faults.add(
                    "form", f"{where}.mig[{i}].gpus", "has a GPU that is partitioned twice"
                )
            found |= own
            for profile in one.profiles:
                instances[profile.replace("+", ".")] += own.bit_count()
        for resource, most in document.allocatable.items():
            there = instances[resource.removeprefix(INSTANCES)]
            known = resource.startswith(INSTANCES) and not document.unknown_partitioned
            sick = document.unhealthy_gpus or document.unknown_unhealthy
            if known and most + (0 if sick else document.held.get(resource, 0)) > there:
                what = f"there are {there}"
                self.faults.add("form", f"{where}.allocatable.{quoted(resource)}", what)
        return found

    def _model(self, name: str | None, where: Place) -> ServerModel | None:
        if name is None:
            return None
        if name not in self.by_name:
            self.by_name[name] = self.models.get(slug(name))
        found = self.by_name[name]
        if found is None:
            self.faults.add("reference", f"{where}.model", f"no server model {quoted(name)}")
        return found

    def _domains(self, names: Mapping[str, str], index: int) -> Iterator[int]:
        """A node without a domain at a level is alone there and at every narrower level."""
        path: tuple[str, ...] | None = ()
        for level, numbers in zip(self.levels, self.numbers, strict=True):
            name = names.get(level.name)
            path = None if path is None or name is None else (*path, name)
            yield numbers.setdefault(index if path is None else path, len(numbers))


def read_mask(faults: Faults, gpus: tuple[int, ...], where: Place, installed: int) -> int:
    """The mask of ascending GPU indices, each below ``installed``."""
    mask = _mask_of(gpus)
    if mask >> installed:
        faults.add("reference", where, f"names a GPU outside the {installed} of the node")
        return 0
    if any(a >= b for a, b in pairwise(gpus)):
        faults.add("order", where, "must be ascending, each GPU once")
    return mask


_mask_of = lru_cache(maxsize=1 << 14)(mask_of)


def _check_sorted(faults: Faults, where: Place, what: str, keys: Sequence[tuple[str, ...]]) -> None:
    for before, after in zip(keys, keys[1:], strict=False):
        if before == after:
            faults.add("reference", where, f"{what} {'/'.join(after)} is listed twice")
        elif before > after:
            faults.add("order", where, f"{what} {'/'.join(after)} is out of order")


def _in_queue_since(document: GangDocument) -> int | None:
    """When it was submitted, or stopped by a plan if that was later."""
    submitted, evicted = document.spec.submitted_at, document.status.evicted_at
    if submitted is not None and evicted is not None and evicted > submitted:
        return evicted
    return submitted


def _starts_again(document: GangDocument, policy: PolicySpec) -> int | None:
    """The end of the pause after its evictions, which doubles with each up to the longest."""
    backoff, status = policy.eviction_backoff, document.status
    if backoff is None or status.evicted_at is None:
        return None
    pause = backoff.base_s
    for _ in range(1, status.evictions):
        if pause >= backoff.max_s or not pause:
            break
        pause *= 2
    return status.evicted_at + min(pause, backoff.max_s)


def _banded_priority(
    document: GangDocument, policy: PolicySpec, now: int, roles: Sequence[Role], unit: int = 1
) -> int:
    """Its priority; under ``order: shortest`` ten times that, and the more the less GPU time it needs."""
    spec, status = document.spec, document.status
    if policy.order == "submitted":
        return spec.priority
    runs, started = bool(document.running_pods), status.runs_since or status.started_at
    left = status.expected_left_s
    if left is None:
        ran = now - started if runs and started and now > started else 0
        left = max(ran, 600)
        if policy.trust_durations and (stated := spec.expected_duration_s or 0) > ran:
            left = stated - ran
    gpus = sum(role.max * role.counts for role in roles) or 1
    band, most = 0, 600 * unit
    while band < 9 and left * gpus > most:
        band, most = band + 1, most * 4
    if runs and band:
        band -= 1
    since, until = spec.submitted_at, started if runs else now
    if policy.starvation is not None and since is not None and until is not None:
        band = 0 if until - since > policy.starvation.after else band
    return 10 * spec.priority + 9 - band


def _min_run_times(instance: PlanInstance) -> dict[str | None, int]:
    """By queue, None for none: the minimum run time of gangs there that state none."""
    specs = {one.metadata.name: one.spec for one in instance.queues}
    found: dict[str | None, int] = {None: instance.policy.spec.min_run_time_s}
    for name in specs:
        at, seen = specs.get(name), set[str | None]()
        while at is not None and at.min_run_time_s is None and at.parent not in seen:
            seen.add(at.parent)
            at = specs.get(at.parent or "")
        stated = None if at is None else at.min_run_time_s
        found[name] = found[None] if stated is None else stated
    return found


class GangReader:
    """Reads gangs and the pods of plans against the levels and nodes of the cluster."""

    def __init__(
        self,
        faults: Faults,
        levels: Sequence[Level],
        nodes: Sequence[Node],
        budgets: Collection[tuple[str, str]],
        min_run_times: Mapping[str | None, int],
    ) -> None:
        self.faults = faults
        self.levels = {name: i for i, name in enumerate((*(one.name for one in levels), "node"))}
        self.nodes = nodes
        self.node_index = {node.name: i for i, node in enumerate(nodes)}
        self.budgets = budgets
        self.min_run_times = min_run_times
        self.sharers: dict[int, dict[int | str, list[tuple[str, int | None]]]] = {}
        self.owners: dict[tuple[int, int], set[Owner]] = {}
        # Roles without a fault by their documents, which gangs may share.
        self._roles: dict[int, tuple[Role, ...]] = {}
        # Roles whose affinity has no fault, by the affinity.
        self._sound: dict[int, RoleDocument] = {}

    def reporting_to(self, faults: Faults) -> GangReader:
        """The same reader for another plan of the instance."""
        other = copy(self)
        other.faults = faults
        return other

    def read(self, document: GangDocument, where: Place, policy: PolicySpec, now: int) -> Gang:
        spec, status = document.spec, document.status
        topology, communication = spec.topology, spec.communication
        at = f"{where}.spec.topology"
        near = None if spec.near is None else self._level(spec.near.level, f"{where}.spec.near")
        roles = self._roles_of(spec.roles, f"{where}.spec.roles")
        existing, running_pods = self._existing(document, f"{where}.status.pods", roles)
        least = topology.min_bandwidth_share
        begun = status.started_at if status.runs_since is None else status.runs_since
        return Gang(
            namespace=document.metadata.namespace,
            name=document.metadata.name,
            priority=_banded_priority(document, policy, now, roles),
            stated_priority=spec.priority,
            shown_priority=spec.priority
            if status.scheduler_priority is None
            else status.scheduler_priority,
            submitted=_in_queue_since(document),
            preemptible=spec.preemptible,
            movable=spec.movable,
            required=self._level(topology.required, at),
            preferred=self._level(topology.preferred, at),
            min_share=policy.min_bandwidth_share if least is None else least,
            pattern=communication.pattern,
            weight=communication.weight,
            joined=communication.nvlink_across_nodes,
            fraction=communication.fraction,
            counts_speed=communication.speed == "count",
            service=spec.service,
            roles=roles,
            existing=existing,
            running_pods=running_pods,
            hold=None if status.hold is None else status.hold.code,
            hold_text=None if status.hold is None else status.hold.message,
            started=status.started_at,
            since=max(
                (time for time in (begun, status.evicted_at) if time is not None), default=None
            ),
            min_run_time=self._min_run_time(document, policy),
            starts_again=_starts_again(document, policy),
            checkpoint=status.last_checkpoint,
            resize_after=spec.resize_after,
            planned=self._planned(document, f"{where}.status.planned", roles),
            budgets=self._budgets(document, f"{where}.status.pods", roles),
            queue=spec.queue,
            scheduler=status.scheduler,
            duration=spec.expected_duration_s,
            balance=self._level(topology.balance, at),
            exclusive=self._level(topology.exclusive, at),
            ordered=topology.order,
            together=tuple(self._groups(document, f"{where}.spec.groups")),
            near=None if spec.near is None or near is None else (spec.near.gangs, near),
            ranks={
                (number, pod.index): pod.rank
                for pod in status.pods
                for number, role in enumerate(roles)
                if pod.rank is not None and role.name == pod.role
            },
            document=document,
        )

    def _groups(self, document: GangDocument, where: Place) -> Iterator[tuple[frozenset[int], int]]:
        """Roles that should share a domain. A plan states as rules about pods what groups require."""
        names = [role.name for role in document.spec.roles]
        for i, group in enumerate(document.spec.groups):
            if group.topology.required is not None:
                self.faults.add(
                    "form", f"{where}[{i}].topology", "a plan states no required groups"
                )
            level = self._level(group.topology.preferred, f"{where}[{i}].topology")
            roles = {names.index(name) for name in group.roles if name in names}
            if len(roles) < len(set(group.roles)):
                self.faults.add("reference", f"{where}[{i}].roles", "no such role")
            if level is not None:
                yield frozenset(roles), level

    def _min_run_time(self, document: GangDocument, policy: PolicySpec) -> int:
        """What is stated; after evictions twice as long for each, up to the starvation limit."""
        spec, backoff = document.spec, policy.eviction_backoff
        stated = spec.min_run_time_s
        if stated is None:
            stated = self.min_run_times.get(spec.queue, self.min_run_times[None])
        if backoff is None or document.status.evicted_at is None:
            return stated
        limit = 24 * 60 * 60 if policy.starvation is None else policy.starvation.after
        left_alone = max(stated, backoff.base_s)
        for _ in range(max(1, document.status.evictions)):
            if not 0 < left_alone < limit:
                break
            left_alone *= 2
        return max(stated, min(left_alone, limit))

    def _budgets(
        self, document: GangDocument, where: Place, roles: Sequence[Role]
    ) -> dict[PodKey, tuple[str, ...]]:
        """Disruption budgets of the running pods that have any."""
        found: dict[PodKey, tuple[str, ...]] = {}
        numbers = {role.name: number for number, role in enumerate(roles)}
        for i, pod in enumerate(document.status.pods):
            if not pod.budgets:
                continue
            place = f"{where}[{i}].budgets"
            for name in pod.budgets:
                if (document.metadata.namespace, name) not in self.budgets:
                    self.faults.add("reference", place, f"no disruption budget {quoted(name)}")
            if len(set(pod.budgets)) < len(pod.budgets):
                self.faults.add("reference", place, "a budget is listed twice")
            if pod.node is not None and pod.role in numbers:
                found[numbers[pod.role], pod.index] = pod.budgets
        return found

    def _roles_of(self, documents: tuple[RoleDocument, ...], where: Place) -> tuple[Role, ...]:
        known = self._roles.get(id(documents))
        if known is not None:
            return known
        faults = len(self.faults.found)
        roles = tuple(self._role(role, f"{where}[{i}]") for i, role in enumerate(documents))
        if not roles:
            self.faults.add("form", where, "a gang needs a role")
        if len({role.name for role in roles}) < len(roles):
            self.faults.add("reference", where, "two roles have one name")
        if len(self.faults.found) == faults:
            self._roles[id(documents)] = roles
        return roles

    def _role(self, document: RoleDocument, where: Place) -> Role:
        least, most, step = document.span
        if document.gpu is not None:
            self.faults.add("form", f"{where}.gpu", "must be written out as a request")
        if most < least:
            self.faults.add("form", f"{where}.replicas", "max is below min")
        self._check_affinity(document, f"{where}.nodeAffinity")
        slices = (*([document.slice] if document.slice else []), *document.outer_slices)
        found = [(one.size, self._level(one.required, f"{where}.slice")) for one in slices]
        return Role(
            name=document.name,
            min=least,
            max=most,
            step=step,
            elastic=not isinstance(document.replicas, int),
            first=document.first_index,
            gpus=document.gpus,
            counts=document.gpus,
            requests=document.requests,
            required=self._level(document.topology.required, f"{where}.topology"),
            preferred=self._level(document.topology.preferred, f"{where}.topology"),
            slices=tuple((size, level) for size, level in found if level is not None),
            selector=document.node_selector,
            affinity=document.node_affinity,
            tolerations=document.tolerations,
            model=None if document.model is None else slug(document.model),
            mix_models=document.mix_models,
            pod_sets=document.pod_sets,
            pod_rules=tuple(self._pod_rules(document, where)),
            parallelism=document.parallelism,
        )

    def _pod_rules(self, document: RoleDocument, where: Place) -> Iterator[PodRule]:
        if len(set(document.pod_sets)) < len(document.pod_sets):
            self.faults.add("reference", f"{where}.podSets", "a set is listed twice")
        next_to = (("anti-affinity", document.anti_affinity), ("affinity", document.affinity))
        for name, stated in next_to:
            for one in stated:
                if (level := self._level(one.level, f"{where}.{name}")) is not None:
                    yield PodRule(name, level, one.pod_set)
        for spread in document.spread:
            if (level := self._level(spread.level, f"{where}.spread")) is not None:
                skew, least = spread.max_skew, spread.min_domains
                yield PodRule("spread", level, spread.pod_set, skew, least)

    def _check_affinity(self, document: RoleDocument, where: Place) -> None:
        """Checks an affinity that roles share once."""
        terms = document.node_affinity
        if terms and id(terms) not in self._sound:
            faults = len(self.faults.found)
            for term in terms:
                for expression in term:
                    self.faults.add_errors(where, expression.field_errors())
            if len(self.faults.found) == faults < MAX_FAULTS:
                self._sound[id(terms)] = document

    def _level(self, name: str | None, where: Place) -> int | None:
        if name is not None and name not in self.levels:
            self.faults.add("reference", where, f"no level {quoted(name)}")
        return None if name is None else self.levels.get(name)

    def _existing(
        self, document: GangDocument, where: Place, roles: Sequence[Role]
    ) -> tuple[dict[PodKey, tuple[str, str | None]], dict[PodKey, Pod]]:
        """(name, uid) of existing pods, and where those run that do."""
        existing: dict[PodKey, tuple[str, str | None]] = {}
        running: dict[PodKey, Pod] = {}
        for i, pod in enumerate(document.status.pods):
            place = f"{where}[{i}]"
            number = self.role_number(pod.role, roles, place)
            if number is None:
                continue
            key = (number, pod.index)
            if key in existing:
                self.faults.add("reference", place, "the pod is listed twice")
            existing[key] = (document.pod_name(pod), pod.uid)
            found = None if pod.node is None else self.place(pod, place, key, roles)
            if found is not None:
                running[key] = self._without_part(document, pod, found, roles)
        return existing, running

    def _without_part(
        self, document: GangDocument, pod: PodDocument, found: Pod, roles: Sequence[Role]
    ) -> Pod:
        """The pod; the GPUs of which it has parts are no GPUs of its own."""
        if pod.start is not None:
            return self._with_instance(document, pod, found, roles)
        for part in filter(is_part, roles[found.role].requests):
            name = f"{document.metadata.namespace}/{document.pod_name(pod)}"
            for gpu in pod.gpus or shared_names(part, pod.gpu_group, name):
                if isinstance(gpu, int):
                    owner = (document.metadata.namespace, document.metadata.name, found.role)
                    self.owners.setdefault((found.node, gpu), set()).add(owner)
                self.sharers.setdefault(found.node, {}).setdefault(gpu, []).append((part, None))
            return Pod(found.role, found.index, found.node, 0)
        return found

    def _with_instance(
        self, document: GangDocument, pod: PodDocument, found: Pod, roles: Sequence[Role]
    ) -> Pod:
        """The pod; on the GPU of its instance others may have more, and nobody has all of it."""
        mine = [name for name in roles[found.role].requests if name.startswith(INSTANCES)]
        if len(mine) == 1 and pod.gpus is not None and len(pod.gpus) == 1:
            on = self.sharers.setdefault(found.node, {}).setdefault(pod.gpus[0], [])
            on.append((mine[0], pod.start))
            owner = (document.metadata.namespace, document.metadata.name, found.role)
            self.owners.setdefault((found.node, pod.gpus[0]), set()).add(owner)
        else:
            what = f"{document.pod_name(pod)} has not one instance of one GPU"
            self.faults.add("reference", "instance.gangs", what)
        return Pod(found.role, found.index, found.node, 0)

    def _planned(
        self, document: GangDocument, where: Place, roles: Sequence[Role]
    ) -> dict[PodKey, int]:
        found: dict[PodKey, int] = {}
        for i, pod in enumerate(document.status.planned):
            place = f"{where}[{i}]"
            number = self.role_number(pod.role, roles, place)
            node = self._node(pod.node, place)
            if number is None or node is None:
                continue
            if (number, pod.index) in found:
                self.faults.add("reference", place, "the pod is listed twice")
            found[number, pod.index] = node
        return found

    def role_number(self, name: str, roles: Sequence[Role], where: Place) -> int | None:
        """The index of a role of the gang."""
        for number, role in enumerate(roles):
            if role.name == name:
                return number
        self.faults.add("reference", f"{where}.role", f"the gang has no role {quoted(name)}")
        return None

    def place(
        self, pod: PodDocument | PlanPod, where: Place, key: PodKey, roles: Sequence[Role]
    ) -> Pod | None:
        """The pod on its node. Of unknown GPUs it holds as many as its role requests."""
        node = self._node(pod.node or "", where)
        if node is None:
            return None
        if pod.gpus is None:
            return Pod(*key, node, None if roles[key[0]].gpus else 0)
        mask = read_mask(self.faults, pod.gpus, f"{where}.gpus", self.nodes[node].gpus)
        return Pod(*key, node, mask)

    def _node(self, name: str, where: Place) -> int | None:
        node = self.node_index.get(name)
        if node is None:
            self.faults.add("reference", f"{where}.node", f"no node {quoted(name)}")
        return node
