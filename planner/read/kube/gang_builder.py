"""Gangs as an instance has them: roles, levels, running pods, and why a gang is held.

Every pod that holds room stays in its gang.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final, Literal

import msgspec
from msgspec import Struct

from models.documents.gang import (
    MAX_GPUS_A_POD,
    MAX_PODS,
    MAX_RANK,
    Hold,
    Parallelism,
    SharedAffinity,
    Toleration,
)
from models.gpu_shares import amount_of
from models.hardware import mask_of
from models.instance.disruption_budgets import DisruptionBudgets
from models.instance.gang import ExistingPod, Gang, Near, Role
from models.instance.policy import EVERY_SCHEDULER, KubernetesPolicy
from models.mig import instance_in
from models.units import first_of, shortened, shown_of
from planner.read.findings import Remarks
from planner.read.kube.dialects.gpus import Mark
from planner.read.kube.gangs.communication import PARALLELISM
from planner.read.kube.levels.levels import Levels
from planner.read.kube.lookup import (
    LONGEST,
    SHORT,
    Known,
    clean,
    distinct,
    is_name,
    is_object_name,
    mapping,
)
from planner.read.kube.node_builder import gpu_label
from planner.read.kube.pods.constraints import FEW_PARTS, MAX_PARTS, node_parts
from planner.read.kube.pods.pod_rules import Ignorable
from planner.read.kube.records import KubeGang, KubeNode, KubePod, KubeRole, LevelAsk
from planner.read.kube.shares import beyond_share, by_age, hold
from planner.read.sources import printable

UNSUPPORTED: Final = "Unsupported"
INCOMPLETE: Final = "Incomplete"
GATED: Final = "Gated"
_MAX_MESSAGE = 1000
_SHOWN = 3

DIFFERENT = "pods of one role request different amounts; the largest counts for all"
UNEVEN = (
    "running pods of one role request different amounts; the smallest counts for all, the rest of each "
    "as taken on its node, and the gang is not moved"
)
MAX_BUDGETS = 100_000
"""Disruption budgets that a plan names."""

UNGUARDED = (
    f"a disruption budget beyond the {MAX_BUDGETS:,} that a plan names is not planned with; the plan may stop"
    " what it guards, apply asks it"
)

BEYOND_SHARE = (
    "the node affinities of its namespace have more expressions and values than its share of the"
    f" {MAX_PARTS:,} that a plan may state"
)


class GangBuilder(Struct):
    """Makes gangs of the instance.

    ``nodes``: of the instance, by name their numbers. ``partial``: see ``partial_gpu_names``; roles that
    use such a name are kept to nodes that offer it. ``marks``: of pods that nodes refuse without them.
    ``budgets``: of the cluster; ``named``: those that a gang names.
    """

    levels: Levels
    nodes: Mapping[str, int]
    remarks: Remarks
    policy: KubernetesPolicy
    partial: Collection[str]
    marks: Sequence[Mark]
    budgets: DisruptionBudgets = msgspec.field(default_factory=DisruptionBudgets)
    named: dict[tuple[str, str], int] = {}
    _names: dict[str, set[str]] = msgspec.field(default_factory=lambda: defaultdict(set))
    _named: dict[KubeGang, str] = {}
    _pod_names: dict[str, set[str]] = msgspec.field(default_factory=lambda: defaultdict(set))
    _uids: set[str] = set()
    _once: Known = msgspec.field(default_factory=Known)
    _equal: dict[SharedAffinity, SharedAffinity] = {}

    def gang(self, gang: KubeGang) -> Gang:
        """What the instance has of a gang."""
        namespace, name = clean(gang.namespace or "default"), self._name(gang)
        roles: list[Role] = []
        pods: list[ExistingPod] = []
        names: set[str] = set()
        for number, role in enumerate(gang.roles):
            made = self._role(gang, role, distinct(clean(role.name, SHORT), names, SHORT))
            roles.append(made)
            pods += [self._pod(gang, namespace, number, made, *one) for one in role.members]
        stays = any(map(_is_uneven, gang.roles)) or any(
            p.rooted and p.holds_room for p in gang.pods()
        )
        near = None
        if gang.near is not None:
            near = Near(tuple(sorted(map(self._name, gang.near[1]))), gang.near[0])
        required, preferred = self._topology(gang, gang)
        return Gang(
            namespace,
            name,
            tuple(roles),
            gang.priority,
            gang.queue if gang.queue is not None and is_name(gang.queue) else None,
            gang.submitted_at,
            gang.deadline_s,
            gang.preemptible,
            gang.movable and not stays,
            required,
            preferred,
            service=gang.service,
            pods=tuple(pods),
            hold=self._hold(gang),
            scheduler=None if gang.scheduler is None else clean(gang.scheduler),
            started_at=gang.started_at,
            runs_since=None if gang.runs_since == gang.started_at else gang.runs_since,
            last_checkpoint=gang.last_checkpoint,
            min_run_time_s=gang.min_run_time_s,
            resize_after=gang.resize_after,
            near=near,
            nvlink_across_nodes=not is_network_only(gang, self.policy),
            **gang.communication,
        )

    def _name(self, gang: KubeGang) -> str:
        if gang not in self._named:
            own = distinct(clean(gang.name), self._names[clean(gang.namespace or "default")])
            if own != gang.name:
                self.remarks.add(gang.subject, f"is named {own} in the plan")
            self._named[gang] = own
        return self._named[gang]

    def _topology(
        self, gang: KubeGang, asking: KubeGang | KubeRole
    ) -> tuple[int | None, int | None]:
        required, preferred = map(self.levels.resolve, (asking.required, asking.preferred))
        if preferred is None and (ask := asking.preferred) is not None:
            what = f"prefers level {ask}, {self.levels.why_not(ask)}; the preference is ignored"
            self.remarks.add(gang.subject, what)
        return required, preferred

    def _role(self, gang: KubeGang, role: KubeRole, name: str) -> Role:
        least = most = max(1, role.size or 0)
        step = 1
        if elastic := role.range is not None and role.range.least < role.range.most:
            least, most, step = role.range.least, role.range.most, role.range.step
        if (model := role.model) is None:  # the gang is held until something of it exists
            return Role(name, least, most, step, 0, elastic)
        if any(one != role.requests for one in _unfinished(role)):
            self.remarks.add(gang.subject, UNEVEN if _is_uneven(role) else DIFFERENT)
        selector = dict(model.selector)
        requested, on_gpus = model.gpu_resource, bool(model.gpus or model.part)
        if requested is not None and requested in self.partial and on_gpus:
            selector[gpu_label(requested)] = "true"
        tolerations = (
            *model.tolerations,
            *(
                Toleration(one.taint.key, "Exists")
                for one in self.marks
                if not on_gpus or one.marked(model)
            ),
        )
        affinity: SharedAffinity | tuple[()] = ()
        if model.affinity:
            affinity = self._once.of(SharedAffinity, model.affinity)
            affinity = self._equal.setdefault(affinity, affinity)
        layers = self._layers(role)
        layers = layers if nest(layers) else []
        size, level = layers[0] if layers else (None, None)
        required, preferred = self._topology(gang, role)
        return Role(
            name,
            least,
            most,
            step,
            model.gpus,
            elastic,
            tuple(sorted(role.requests.items())),
            required,
            preferred,
            size,
            level,
            tuple(sorted(selector.items())),
            tolerations,
            mix_models=role.mix_models,
            first_index=role.first_index,
            node_affinity=affinity,
            outer_slices=tuple(layers[1:]),
            pod_sets=role.pod_sets,
            anti_affinity=tuple(role.anti_affinity),
            spread=tuple(role.spread),
            parallelism=self._parallelism(gang, role, least * model.gpus, elastic=elastic),
        )

    def _parallelism(
        self, gang: KubeGang, role: KubeRole, gpus: int, *, elastic: bool
    ) -> Parallelism | None:
        """The degrees, if they are those of the role's GPUs."""
        degrees = role.parallelism
        wrong = degrees and next(degrees.field_errors(gpus, elastic=elastic), None)
        if not wrong:
            return degrees
        what = f"role {role.name}: {wrong.what}; its annotation {PARALLELISM} is ignored"
        self.remarks.add(gang.subject, what)
        return None

    def _layers(self, role: KubeRole) -> list[Layer]:
        """The slice layers that ask for something, finest first."""
        found = ((ask.size, self.levels.resolve(ask.level)) for ask in role.slices if ask.size > 0)
        return minimal_layers([(size, level) for size, level in found if level is not None])

    def _pod(
        self, gang: KubeGang, namespace: str, number: int, role: Role, index: int, pod: KubePod
    ) -> ExistingPod:
        name, uid = distinct(clean(pod.name), self._pod_names[namespace]), self._uid(pod)
        if pod.node not in self.nodes or pod.finished is not None:
            mode = pod.mode if pod.to_place and gang.scheduler is None else None
            return ExistingPod(name, number, index, uid, mode=mode)
        mask, start, made, start_of = None, None, pod.instance, pod.start
        if made is not None and made.slices and instance_in(dict(role.requests)) is not None:
            mask, start = 1 << made.index, made.start
        elif not (role.gpus or pod.part):
            mask = 0
        elif pod.indices and len(pod.indices) == (role.gpus or amount_of(pod.part or "")):
            mask = mask_of(pod.indices)
        rank = None if start_of is None else start_of.pod.rank
        return ExistingPod(
            name,
            number,
            index,
            uid,
            self.nodes[str(pod.node)],
            mask,
            budgets=self._budgets_of(namespace, pod) if self.budgets.guards else (),
            rank=rank if rank is not None and 0 <= rank <= MAX_RANK else None,
            gpu_group=pod.gpu_group if pod.part and not mask else None,
            start=start,
        )

    def _uid(self, pod: KubePod) -> str | None:
        """Its uid, if it is one, and no other pod's."""
        uid = pod.object.uid
        if uid is None or not is_name(uid, LONGEST):
            return None
        if uid in self._uids:
            self.remarks.add(pod.subject, "has the uid of another pod; the uid is ignored")
            return None
        self._uids.add(uid)
        return uid

    def _budgets_of(self, namespace: str, pod: KubePod) -> tuple[str, ...]:
        """Names of the disruption budgets that guard a pod, as the plan has them."""
        found: dict[str, None] = {}
        for name in self.budgets.guards.get(pod.key, ()):
            key = (namespace, clean(name))
            allowed = self.budgets.allowed[pod.object.namespace, name]
            if key not in self.named and len(self.named) >= MAX_BUDGETS:
                self.remarks.add(pod.subject, UNGUARDED)
                continue
            self.named[key] = min(allowed, self.named.get(key, allowed))
            found[key[1]] = None
        return tuple(found)

    def _hold(self, gang: KubeGang) -> Hold | None:
        """Why gangplan cannot start the gang, if it cannot."""
        waiting = [pod for pod in gang.pods() if pod.to_place]
        # In a what-if the plan stands for those who remove gates.
        planned = gang.scheduler is not None or self.policy.plans(EVERY_SCHEDULER)
        own = self.policy.scheduling_gate
        gates = [*dict.fromkeys(gate for pod in waiting for gate in pod.gates if gate != own)]
        code: Literal["Unsupported", "Incomplete", "Gated"] = GATED
        if problems := [*dict.fromkeys((*gang.problems, *self._problems(gang)))]:
            code, why = UNSUPPORTED, "; ".join(problems)
            settings = [one.setting for one in problems if isinstance(one, Ignorable)]
            if len(settings) == len(problems):
                listed = ", ".join(dict.fromkeys(settings))
                why += f"; to plan it anyway, set kubernetes.ignore: [{listed}] in the Policy"
        elif missing := [*filter(None, [gang.missing]), *_volumes(waiting)]:
            code, why = INCOMPLETE, "; ".join(missing)
        elif gates and not planned:
            why = f"its pods have the scheduling gate{'s' * (len(gates) > 1)} {first_of(gates, 1)}"
        elif gang.stopped is not None:
            why = gang.stopped
        else:
            return None
        # text of tenants escaped
        return Hold(code, shortened(printable(why), _MAX_MESSAGE))

    def _problems(self, gang: KubeGang) -> Iterator[str]:
        pieces = (piece.level for role in gang.roles for piece in role.slices)
        for ask in (gang.required, *(role.required for role in gang.roles), *pieces):
            if ask is not None and self.levels.resolve(ask) is None:
                yield f"it requires level {ask}, {self.levels.why_not(ask)}"
        for role in gang.roles:
            waiting = [pod for _, pod in role.members if pod.to_place]
            for pod in waiting:
                yield from pod.unsupported
                if not is_object_name(pod.name):
                    yield "a pod with a name that the API server does not accept"
            if any(
                pod.selector != first.selector
                or pod.affinity != first.affinity
                or (
                    pod.tolerations != first.tolerations
                    and {*pod.tolerations} != {*first.tolerations}
                )
                for first in waiting[:1]
                for pod in waiting
            ):
                yield f"pods of role {role.name} differ in the nodes they may use"
            counted = role.requests
            if any(n > counted.get(name, 0) for pod in waiting for name, n in pod.requests.items()):
                yield f"pods of role {role.name} that wait request more than those that run"
            if not nest(self._layers(role)):
                yield f"the slice layers of role {role.name} do not nest"


MAX_EXISTING = 200_000
"""Most pods of a gang that exist: those of a document."""


def unplannable(gang: KubeGang) -> str | None:
    """Why no plan can have such a gang, in words; None if one can."""
    ends = [one.first_index + max(one.most, 1, one.span) for one in gang.roles]
    pods = gang.pods()
    if sum(max(one.most, 1) for one in gang.roles) > MAX_PODS or max(ends) > MAX_PODS:
        return f"more than {MAX_PODS:,} pods"
    if len(pods) > MAX_EXISTING:
        return f"more than {MAX_EXISTING:,} pods that exist"
    if any(pod.gpus > MAX_GPUS_A_POD for pod in pods):
        return f"more than {MAX_GPUS_A_POD:,} GPUs of a pod"
    groups = {pod.gpu_group for pod in pods if pod.part and pod.gpu_group is not None}
    if any(len(one) > LONGEST or not one.isprintable() or one != one.strip() for one in groups):
        return "the name of a GPU that cannot be written"
    return None


def level_asks(gangs: Collection[KubeGang]) -> tuple[LevelAsk, ...]:
    """Every level that some gang names, once: the first of each namespace, then the second, and so on.

    The first of a namespace is that of its oldest gang, and older ones go before others: no namespace
    takes the levels of all by naming many. What gangs only prefer comes after all that some gang requires.
    """
    turns: dict[str, dict[LevelAsk, int]] = defaultdict(dict)
    found: dict[LevelAsk, tuple[bool, int, int]] = {}
    for age, gang in enumerate(sorted(gangs, key=by_age)):
        preferred, required = [gang.preferred], [gang.required]
        for role in gang.roles:
            preferred.append(role.preferred)
            required += [role.required, *(piece.level for piece in role.slices)]
            if (model := role.model) is not None:
                required += [LevelAsk(label=rule.key) for rule in model.rules]
        own = turns[gang.namespace]
        named = [*((ask, False) for ask in required), *((ask, True) for ask in preferred)]
        for ask, wish in named:
            if ask is not None:
                place = (wish, own.setdefault(ask, len(own)), age)
                found[ask] = min(found.get(ask, place), place)
    return tuple(sorted(found, key=lambda ask: found[ask]))


def hold_beyond_share(gangs: Collection[KubeGang], most: int = MAX_PARTS) -> None:
    """Hold the gangs whose node affinities are more than the share of their namespace.

    Namespaces that need less leave the rest to the others; the oldest gangs of a namespace go first. Small
    affinities are not counted. ``most``: expressions and values of all gangs.
    """
    own: dict[str, list[tuple[KubeGang, int]]] = defaultdict(list)
    for gang in sorted(gangs, key=by_age):
        models = (role.model for role in gang.roles)
        affinities = (mapping(p.object.tree, "spec", "affinity") for p in models if p is not None)
        parts = sum(map(node_parts, affinities))
        if parts > FEW_PARTS:
            own[gang.namespace].append((gang, parts))
    for gang in beyond_share(own, most):
        hold(gang, BEYOND_SHARE)


Layer = tuple[int, int]
"""(size of a slice, depth of its level): levels count from the widest, ``node`` last."""


def minimal_layers(layers: Sequence[Layer]) -> list[Layer]:
    """The layers without those that others imply, finest first.

    Pods that share a domain share every wider one; so a layer of larger slices at the same or a
    narrower level implies one of smaller slices.
    """
    kept: list[Layer] = []
    for size, depth in sorted(set(layers), key=lambda layer: (layer[0], -layer[1])):
        if kept and kept[-1][0] == size:
            continue  # the same slices at a wider level
        while kept and depth >= kept[-1][1]:
            kept.pop()
        kept.append((size, depth))
    return kept


def nest(layers: Sequence[Layer]) -> bool:
    """Whether every slice of a layer is a part of one slice of the next; finest first."""
    return all(outer[0] % inner[0] == 0 for inner, outer in pairwise(layers))


def _lacks_claims(gang: KubeGang) -> bool:
    """Whether several pods of the gang have GPUs and not all of them hold a ComputeDomain claim.

    NVLink between servers needs an IMEX channel, which such a claim provides.
    """
    pods = [pod for pod in gang.pods() if pod.gpus and pod.finished is None]
    return len(pods) > 1 and not all(pod.fabric for pod in pods)


def is_network_only(gang: KubeGang, policy: KubernetesPolicy) -> bool:
    """Whether NVLink between servers does not count in the gang's bandwidth."""
    return policy.nvlink_across_nodes == "claimed" and _lacks_claims(gang)


def warn_of_missing_claims(
    gangs: Sequence[KubeGang],
    nodes: Sequence[KubeNode],
    levels: Levels,
    policy: KubernetesPolicy,
    remarks: Remarks,
) -> None:
    """Report the gangs without claims that run, or may run, on these nodes, which NVLink joins."""
    if not any(level.nvlink for level in levels.levels):
        return
    names = {node.name for node in nodes}
    known: dict[object, bool] = {}

    def may_use(pod: KubePod) -> bool:
        if pod.node is not None:
            return pod.node in names
        asked = (pod.gpu_resource, frozenset(pod.selector.items()))
        if asked not in known:
            known[asked] = any(
                pod.selector.items() <= node.labels.items()
                and pod.gpu_resource in (None, *node.gpu_names)
                for node in nodes
            )
        return known[asked]

    for gang in gangs:
        if not any(pod.gpus and not pod.finished and may_use(pod) for pod in gang.pods()):
            continue
        if is_network_only(gang, policy):
            remarks.add(
                gang.subject,
                "has no ComputeDomain claim; the plan counts the network between its servers, "
                "not NVLink",
                "nvlinkAcrossNodes: assumed in the Policy counts NVLink",
            )
        elif _lacks_claims(gang):
            remarks.add(
                gang.subject,
                "has no ComputeDomain claim; the plan counts NVLink between servers",
                "without the claim its pods reach each other over the network only; "
                "nvlinkAcrossNodes: claimed in the Policy counts that",
            )


def role_requests(role: KubeRole) -> dict[str, int]:
    """What every pod of the role counts for: the least that those with room hold, else the most requested.

    So one pod never makes the others hold more than they do. What a pod holds beyond this is taken off
    its node (``node_uses``).
    """
    there = [pod.requests for _, pod in role.members if pod.holds_room]
    if there:
        common = set(there[0]).intersection(*there)
        return {name: min(one[name] for one in there) for name in common}
    largest: dict[str, int] = {}
    for requests in _unfinished(role):
        for name, amount in requests.items():
            largest[name] = max(amount, largest.get(name, 0))
    return largest


def _unfinished(role: KubeRole) -> list[dict[str, int]]:
    pods = [pod for _, pod in role.members]
    return [pod.requests for pod in pods if pod.finished is None] or [
        pod.requests for pod in pods[:1]
    ]


def _is_uneven(role: KubeRole) -> bool:
    there = [pod.requests for _, pod in role.members if pod.holds_room]
    return any(one != there[0] for one in there)


def _volumes(waiting: Sequence[KubePod]) -> list[str]:
    found = dict.fromkeys(words for pod in waiting for words in pod.waits_for)
    shown = shown_of(len(found), _SHOWN)
    more = len(found) - shown
    return [*list(found)[:shown], *([f"and {more:,} more like that"] if more else [])]
