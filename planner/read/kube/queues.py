"""Queues of other systems to Queue documents, and which of them a gang is in.

What is left out is a remark. Queues are trees: a circle is cut, and so is a chain that is too long. A queue
keeps its name, unless an earlier system has one of that name; a Queue document replaces the queue it names.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from fractions import Fraction
from functools import cached_property
from math import lcm
from types import MappingProxyType

from msgspec import Struct

from models.documents.base import document_tree, suggestion
from models.documents.gang import NODE_NAME, NodeExpression
from models.documents.policy import QUOTAS
from models.documents.queue import MAX_WEIGHT, QueueDocument
from models.hardware import FindModel, slug
from models.instance.policy import KubernetesPolicy
from models.instance.queue import Amount
from models.units import shown
from planner.read.findings import Remarks
from planner.read.kube.dialect_registry import cell_readers, quota_readers
from planner.read.kube.dialects.quotas import CellReader, Quota, QuotaSources
from planner.read.kube.gangs.terms import HOLDS
from planner.read.kube.lookup import Tree, distinct, is_name
from planner.read.kube.nodes.servers import server_model
from planner.read.kube.pods.constraints import Narrower, Term
from planner.read.kube.records import KubeGang, KubeNode, Objects

MAX_QUOTAS = 5_000
"""Most queues that are read from objects."""

MAX_DEPTH = 16
"""Most queues above one another."""

FINEST = 1000
"""Weights are distinguished to a thousandth."""

TOO_MANY = (
    f"is one of more than {MAX_QUOTAS:,} queues; it is left out, and limits and promises nothing"
)
RENAMED = "another queue has its name; it is named {} in the plan"
CIRCLE = "is below itself; its parent is ignored"
TOO_DEEP = f"is below more than {MAX_DEPTH} queues; its parent is ignored"
NO_PARENT = "names a parent that is not in the input; it counts as one without a parent"
NO_NAME = "has a name that no queue of a plan can have; it is left out"
UNKNOWN = (
    "in which it is not, or which is not in the input: no quota is known for it, and it gets no GPU that a "
    "queue is promised"
)
SEVERAL = "is in queues of several systems; that of {} counts"

Key = tuple[str, str]
"""(dialect, key of a queue)"""


class Quotas(Struct):
    """The queues of other systems, with their names in the plan. ``own``: names of Queue documents.

    ``replaced``: by these. ``aliases``: in the plan, of queues that are not in it and whose names are taken.
    """

    sources: QuotaSources
    own: frozenset[str]
    quotas: dict[Key, Quota] = {}
    replaced: set[Key] = set()
    aliases: dict[str, str] = {}

    def documents(self) -> list[QueueDocument]:
        """A Queue each, but for those that Queue documents replace."""
        found = []
        for system in quota_readers():
            kept = {key: one for key, one in self.quotas.items() if key[0] == system}
            weights = _in_integers({key: one.weight for key, one in kept.items()})
            for key, quota in kept.items():
                if key not in self.replaced:
                    above = None if quota.parent is None else kept[system, quota.parent].name
                    found.append(_document(quota, above, weights[key]))
        return found

    def assign(
        self, gangs: Iterable[KubeGang], pinned: Mapping[str, frozenset[str]] = MappingProxyType({})
    ) -> None:
        """Set the queue of each gang to the name of the one that it is in; None if it is in none.

        ``pinned``: the nodes of pinned cells by id; a gang that names one is kept to them.
        """
        if not self.own and not self.quotas:
            return
        taken = {quota.name for quota in self.quotas.values()}
        for gang in gangs:
            gang.stopped = self._stopped(gang)
            found = self._of(gang)
            if len(set(found.values())) > 1:
                self.sources.remarks.add(gang.subject, SEVERAL.format(next(iter(found))))
            queue = next(iter(found.values()), gang.queue)
            if not found and gang.queue is not None:
                self._remark_unknown(gang, gang.queue)
                queue = None if gang.queue in taken else gang.queue
            gang.queue = queue or self._elsewhere(gang, taken)
            for name in gang.started_in:
                if name != gang.queue and (name is None or name in taken or name in self.own):
                    gang.queue = name
                    where = "in no queue" if name is None else f"in queue {name}"
                    self.sources.remarks.add(gang.subject, HOLDS.format(where))
            for system, reader in cell_readers().items():
                if system in found:
                    lent = all(reader.lent(pod.annotations) for pod in gang.pods())
                    gang.preemptible = gang.preemptible or lent
                    _keep_to_cells(gang, system, reader, pinned)

    def _remark_unknown(self, gang: KubeGang, name: str) -> None:
        local = self.sources.api.of("LocalQueue", "kueue.x-k8s.io")
        known = {one.name for one in local if one.namespace == gang.namespace}
        lost = suggestion(name, known, "LocalQueues of its namespace")
        hint = lost if known and name not in known else None
        self.sources.remarks.add(gang.subject, f"names queue {shown(name)}, {UNKNOWN}", hint)

    def _stopped(self, gang: KubeGang) -> str | None:
        """Why a queue that it names starts nothing of it now, in words."""
        readers = quota_readers() if self.quotas else {}
        named = ((readers[of], name) for of, name in gang.queues if of in readers)
        said = (reader.stopped(self.sources, gang, name) for reader, name in named)
        return next(filter(None, said), None)

    def _elsewhere(self, gang: KubeGang, taken: Collection[str]) -> str | None:
        """The name of the queue, not in the plan, of a gang that another system manages; None for others."""
        managed = (reader.default.get(gang.scheduler or "") for reader in quota_readers().values())
        name = gang.queue or next((name for name in managed if name is not None), None)
        if name is None or gang.scheduler is None:
            return None
        if name in self.own or name in taken:  # such as a LocalQueue and another's ClusterQueue
            self.aliases.setdefault(name, distinct(name, {*taken, *self.own}))
        return self.aliases.get(name, name)

    def _of(self, gang: KubeGang) -> dict[str, str]:
        """The queues that it is in, by dialect, first things first."""
        readers, schedulers = quota_readers(), {pod.scheduler for pod in gang.pods()}
        defaults = [
            (system, next((name for by, name in one.default.items() if by in schedulers), None))
            for system, one in readers.items()
            if system not in dict(gang.queues)
        ]
        found: dict[str, str] = {}
        for system, name in (*gang.queues, *defaults):
            reader = readers.get(system)
            key = None if reader is None else reader.find(self.sources, gang.namespace, name)
            quota = None if key is None else self.quotas.get((system, key))
            own = name if key is None and (system, name) not in self.replaced else key
            if quota is not None:
                found.setdefault(system, quota.name)
            elif own in self.own and (system, name) not in defaults:
                found.setdefault(system, str(own))
        return found


def read_quotas(
    api: Objects,
    nodes: Sequence[KubeNode],
    policy: KubernetesPolicy,
    find: FindModel,
    own: Mapping[str, str | None],
    remarks: Remarks,
) -> Quotas:
    """The queues of other systems among the objects. ``own``: Queue documents, by name their parents."""
    sources = QuotaSources(
        api,
        policy.gpu_resources,
        _Models(nodes, policy, find).of,
        sum(node.installed for node in nodes),
        policy.trust_elastic_quotas,
        remarks,
    )
    found = Quotas(sources, frozenset(own))
    taken = set(own)
    readers = {} if QUOTAS in policy.ignore else quota_readers()
    for system, reader in readers.items():
        for quota in reader.read(sources):
            if len(found.quotas) >= MAX_QUOTAS:
                remarks.add(quota.subject, TOO_MANY)
            elif not is_name(quota.name):
                remarks.add(quota.subject, NO_NAME)
            else:
                key = (system, quota.key)
                found.quotas[key] = quota
                _set_name(quota, key, found, taken)
    _make_trees(found, own)
    return found


def _set_name(quota: Quota, key: Key, found: Quotas, taken: set[str]) -> None:
    """Another name if its own is taken, unless the Queue document of that name counts instead."""
    if quota.name in found.own and quota.replaceable:
        found.replaced.add(key)
        found.sources.remarks.add(quota.subject, "a Queue document has its name and counts instead")
    elif quota.name in taken:
        quota.name = distinct(quota.other_name[:200], taken)
        found.sources.remarks.add(quota.subject, RENAMED.format(quota.name))
    taken.add(quota.name)


def _make_trees(found: Quotas, own: Mapping[str, str | None]) -> None:
    """Cut parents that are not there, circles, also through Queue documents, and what is too deep."""
    remarks = found.sources.remarks
    kept = {key: one for key, one in found.quotas.items() if key not in found.replaced}
    above = dict(own)
    for key, quota in kept.items():
        if quota.parent is not None and (key[0], quota.parent) not in found.quotas:
            remarks.add(quota.subject, NO_PARENT)
            quota.parent = None
        parent = None if quota.parent is None else found.quotas[key[0], quota.parent]
        above[quota.name] = None if parent is None else parent.name
    for quota in kept.values():
        at, steps = above[quota.name], 0
        while at is not None and at != quota.name and steps < MAX_DEPTH:
            at, steps = above.get(at), steps + 1
        if at is not None:
            remarks.add(quota.subject, CIRCLE if at == quota.name else TOO_DEEP)
            quota.parent = above[quota.name] = None


class _Models:
    """The GPU models of nodes. A node counts by the server model that it is found to be."""

    def __init__(
        self, nodes: Sequence[KubeNode], policy: KubernetesPolicy, find: FindModel
    ) -> None:
        self._nodes = nodes
        self._policy = policy
        self._find = find
        self._found: dict[frozenset[tuple[str, str]], tuple[str, ...]] = {}

    def of(self, labels: Mapping[str, str]) -> tuple[str, ...]:
        """Of the nodes with these labels, each once, sorted."""
        wanted = frozenset(labels.items())
        if wanted not in self._found:
            found = {gpu for own, gpu in self._known if wanted <= own.items()}
            self._found[wanted] = tuple(sorted(found))
        return self._found[wanted]

    @cached_property
    def _known(self) -> list[tuple[dict[str, str], str]]:
        quiet = Remarks()  # what is odd about a node is said where it is read for the plan
        models = ((one, server_model(one, self._policy, self._find, quiet)) for one in self._nodes)
        return [(one.labels, slug(model.gpu)) for one, model in models if model is not None]


def _document(quota: Quota, parent: str | None, weight: int) -> QueueDocument:
    spec: Tree = {
        "guarantee": _amount(quota.guarantee),
        "limit": _amount(quota.limit),
        "lendingLimit": _amount(quota.lending_limit),
        "reclaim": quota.reclaim,
        "weight": weight,
        "order": "strict" if quota.strict else "bestEffort",
    }
    spec |= {} if parent is None else {"parent": parent}
    return QueueDocument.model_validate(document_tree("Queue", quota.name, spec))


def _amount(amount: Amount) -> Tree:
    found: Tree = {} if amount.gpus is None else {"gpus": amount.gpus}
    return found | ({"models": dict(sorted(amount.models))} if amount.models else {})


def _in_integers(weights: Mapping[Key, Fraction]) -> dict[Key, int]:
    """Weights in the same proportions, to a thousandth, from 1 to the most that a Queue may have."""
    rounded = {key: round(weight * FINEST) for key, weight in weights.items()}
    scale = lcm(*(Fraction(weight, FINEST).denominator for weight in rounded.values()))
    return {
        key: max(1, min(MAX_WEIGHT, weight * scale // FINEST)) for key, weight in rounded.items()
    }


def _keep_to_cells(
    gang: KubeGang, system: str, reader: CellReader, pinned: Mapping[str, frozenset[str]]
) -> None:
    """Pods that name a pinned cell go to its nodes alone; without such a cell the gang waits."""
    narrower, cells = Narrower(), dict[str, Term]()
    for pod in gang.pods():
        name = reader.pinned(pod.annotations)
        if name is None:
            continue
        if not pinned.get(name):
            problem = f"{system}'s pinned cell {shown(name)}, which is not one of nodes in its file"
            gang.problems = tuple(dict.fromkeys((*gang.problems, problem)))
            continue
        nodes = tuple(sorted(pinned[name]))
        cells.setdefault(name, (NodeExpression(NODE_NAME, "In", nodes, field=True),))
        narrower.narrow(pod, cells[name])
