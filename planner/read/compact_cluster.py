"""Cluster documents to one Cluster: levels agreed, host ranges expanded, nodes sorted.

Server models are found by name, inline ones before those of the catalogue, which is opened only
for a name that is not inline. Clashes are reported at their second place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING

from msgspec import Struct

from models.documents.base import FieldError, Path, made, similar, suggestion, within
from models.documents.cluster import ClusterDocument, Level, NodeDocument
from models.documents.gang import GangDocument
from models.documents.queue import QueueDocument
from models.documents.server import nic_errors, out_of_range
from models.gpu_shares import SHARE
from models.hardware import FindModel, ServerModel, slug
from models.host_ranges import MAX_NAMES, host_count, hosts
from models.instance.cluster import Cluster, Node
from models.instance.gang import Gang
from models.mig import RESOURCE, Board, board_named, boards, boards_of
from models.units import shown
from planner.read.validation import Entry

if TYPE_CHECKING:
    from planner.read.slurm.levels import SlurmTopology


ClusterEntry = Entry[ClusterDocument]


class ClusterInput(Struct):
    """Every Cluster, found ones first; gangs and queues of other systems; the catalogue and inferred models.

    ``base``, ``made``: the cluster and the gangs of Kubernetes, as an instance has them.

    ``topology``: whose levels replace those of the merged Cluster. ``left_out``: waiting pods of other
    schedulers that are not planned, by scheduler. ``schedulers``: of all pods. ``now``: when the input was
    recorded, None if unknown.
    """

    clusters: list[ClusterEntry]
    find: FindModel
    gangs: list[Entry[GangDocument]] = []
    found: str | None = None
    levels_policy: Callable[[], str] | None = None
    topology: SlurmTopology | None = None
    left_out: dict[str, int] = {}
    schedulers: frozenset[str] = frozenset()
    queues: list[Entry[QueueDocument]] = []
    now: int | None = None
    base: Cluster | None = None
    made: Sequence[Gang] = ()


def models_first(models: Mapping[str, ServerModel], find: FindModel) -> FindModel:
    """Finds these models, by slug, before others."""
    return lambda name: models.get(slug(name)) or find(name)


def catalogue_model(name: str) -> ServerModel | None:
    from models.rates import catalogue  # opened only when something asks for it

    return catalogue.find(name)


def no_model(_: str) -> ServerModel | None:
    """The catalogue of an instance that is complete in itself."""
    return None


class ServerModels(Struct):
    """Inline server models, then those of ``find``, the catalogue."""

    find: FindModel
    inline: dict[str, ServerModel] = {}
    incomplete: bool = False
    found: dict[str, ServerModel | None] = {}

    def add(self, entry: Entry[ClusterDocument]) -> None:
        """Register the inline models of a Cluster; report those that clash."""
        own: set[str] = set()
        for i, document in enumerate(entry.document.spec.server_models):
            if document.field_errors():
                self.incomplete = True
                continue
            model = document.to_server_model()
            for text in model.slugs:
                if (clash := self._clash(text, model, own)) is not None:
                    name = f"server model {shown(model.name)}"
                    what = f"{name} differs from {clash}, which is also found as {shown(text)}"
                    path = ("spec", "serverModels", i, "name")
                    entry.fault(path, what, "give it another name, and another alias")
                    break
                own.add(text)
                self.inline.setdefault(text, model)

    def _clash(self, text: str, model: ServerModel, own: set[str]) -> str | None:
        """The other model of a slug, unless its document reports that itself."""
        if text in own:
            return None
        if (other := self.inline.get(text)) is not None and other != model:
            return f"{shown(other.name)} of another Cluster"
        if (other := self.find(text)) is not None and other != model:
            return f"{shown(other.name)} of the catalogue"
        return None

    def find_model(self, name: str) -> ServerModel | None:
        if name not in self.found:
            self.found[name] = self.inline.get(slug(name)) or self.find(name)
        return self.found[name]

    def hint(self, name: str) -> str:
        names = {model.name for model in self.inline.values()}
        aliases: set[str] = set()
        if self.find is not no_model:
            from models.rates import catalogue  # as in catalogue_model

            for model in catalogue.server_models():
                names.add(model.name)
                aliases.update(model.aliases)
        near = similar(name, names) or similar(name, aliases)
        if near:
            return f"did you mean {' or '.join(shown(model) for model in near)}?"
        return suggestion(name, names, "server models")


Place = tuple[Entry[ClusterDocument], int]


class MergedCluster(Struct):
    """The merged cluster, and the place of each node that a document states: entry and position."""

    cluster: Cluster
    places: dict[str, Place] = {}

    def names_model(self, node: str) -> bool:
        """Whether the document of a node names a server model, known or not."""
        entry, i = self.places.get(node, (None, 0))
        return entry is not None and entry.document.spec.nodes[i].model is not None


def merge_clusters(
    entries: Sequence[ClusterEntry], models: ServerModels, base: Cluster | None = None
) -> MergedCluster:
    """One Cluster of all documents and of ``base``; needs at least one."""
    for entry in entries:
        entry.report_errors(entry.document.field_errors())
        models.add(entry)
    if base is None:
        first = entries[0].document
        base = Cluster(first.metadata.name, first.spec.levels, (), first.metadata.uid)
    _check_number(entries, len(base.nodes))
    nodes = {node.name: node for node in base.nodes}
    places: dict[str, Place] = {}
    for entry in entries:
        for i, document in enumerate(entry.document.spec.nodes):
            model = _model(document, entry, ("spec", "nodes", i), models)
            _expand(_node(document, model, base.levels), document, (entry, i), nodes, places)
    return MergedCluster(_cluster(entries, base, nodes), places)


def _check_number(entries: Sequence[ClusterEntry], total: int) -> None:
    """Raises InputError at the node entry that goes beyond MAX_NAMES, before any is expanded."""
    for entry in entries:
        for i, document in enumerate(entry.document.spec.nodes):
            total += host_count(document.name)
            if total > MAX_NAMES:
                what, hint = f"more than {MAX_NAMES:,} nodes", "narrow the ranges"
                entry.fault(("spec", "nodes", i, "name"), what, hint)
                entry.findings.raise_all()


def _cluster(entries: Sequence[ClusterEntry], base: Cluster, nodes: dict[str, Node]) -> Cluster:
    """The first name in sort order; one uid at most. Levels, and budgets of one name, must agree."""
    uid, budgets = base.uid, {one.key: one for one in base.budgets}
    names = ", ".join(level.name for level in base.levels) or "none"
    for entry in entries:
        if entry.document.spec.levels != base.levels:
            entry.fault(
                ("spec", "levels"),
                "these levels differ from those of another Cluster",
                f"Clusters are merged: repeat its levels ({names}), labels and rates exactly",
            )
        own = entry.document.metadata.uid
        if own is not None and uid is not None and own != uid:
            what = f"this cluster is {shown(own)}, another document's is {shown(uid)}"
            entry.fault(("metadata", "uid"), what, "plan one cluster at a time")
        uid = uid or own
        for i, budget in enumerate(entry.document.spec.disruption_budgets):
            if budgets.setdefault(budget.key, budget) != budget:
                what = f"two disruption budgets are named {shown('/'.join(budget.key))}"
                entry.fault(("spec", "disruptionBudgets", i, "name"), what, "keep one of the two")
    name = min((base.name, *(entry.document.metadata.name for entry in entries)))
    ordered = tuple(nodes[key] for key in sorted(nodes))
    return Cluster(name, base.levels, ordered, uid, tuple(budgets[key] for key in sorted(budgets)))


def _expand(
    node: Node,
    document: NodeDocument,
    place: Place,
    nodes: dict[str, Node],
    places: dict[str, Place],
) -> None:
    """Add every node of one entry, which may be a host range."""
    entry, i = place
    for name in hosts(document.name):
        if name in nodes:
            other, j = places.get(name, (None, 0))
            where = name if other is None else other.document.spec.nodes[j].name
            also = f", also in {shown(where)}" if where != name else ""
            what = f"node {shown(name)} is in the input twice{also}"
            entry.fault(("spec", "nodes", i, "name"), what, "rename it, or narrow the range")
            return
        places[name] = place
        nodes[name] = node if name == node.name else replace(node, name=name)


def _model(
    document: NodeDocument, entry: Entry[ClusterDocument], at: Path, models: ServerModels
) -> ServerModel | None:
    """The node's server model; reports an unknown name and contradictions with the model."""
    if document.model is None:
        entry.report_errors(within(at, _without_gpus(document)))
        return None
    model = models.find_model(document.model)
    if model is None:
        if not models.incomplete:
            what = f"unknown server model {shown(document.model)}"
            entry.fault((*at, "model"), what, models.hint(document.model))
        return None
    entry.report_errors(within(at, _gpu_errors(document, model)))
    return model


def _gpu_errors(document: NodeDocument, model: ServerModel) -> Iterator[FieldError]:
    """GPUs that the node does not have, and what they cannot have; paths start at the node."""
    if model.matrix is None and model.fabric != "nvswitch":
        what = f"the link matrix of {shown(model.name)} is not known"
        yield FieldError(("model",), what, "write a model of your own, with its `matrix`")
    lists: list[tuple[Path, tuple[int, ...]]] = [(("unhealthyGpus",), document.unhealthy_gpus)]
    lists += [(("mig", i, "gpus"), one.gpus) for i, one in enumerate(document.mig)]
    for path, gpus in lists:
        for j, gpu in enumerate(gpus):
            if gpu >= model.gpus:
                yield out_of_range((*path, j), gpu, model.gpus)
    if document.mig or document.dynamic_mig is not None:
        yield from islice(_mig_errors(document, model), 1)
    if document.sharing is not None and document.dynamic_mig is not None:
        what = "GPUs that are shared, and that may be partitioned"
        yield FieldError(("sharing",), what, "remove one of both", at_key=True)
    healthy = model.gpus - len({*document.unhealthy_gpus, *document.partitioned})
    unknown = document.unknown_unhealthy + document.unknown_partitioned
    if unknown > healthy:
        partitioned = " or partitioned" * bool(document.unknown_partitioned)
        yield FieldError(
            ("unknownPartitioned" if document.unknown_partitioned else "unknownUnhealthy",),
            f"{unknown} unknown unhealthy{partitioned} GPUs among {healthy}",
            f"{model.name} has {model.gpus}, less those in unhealthyGpus"
            + " and mig" * bool(document.mig),
        )
    yield from within(("nics",), nic_errors(document.nics or (), model.gpus))


def _mig_errors(document: NodeDocument, model: ServerModel) -> Iterator[FieldError]:
    """First the instance that its GPUs cannot have, or not beside the others; more may follow from it.

    Where the server model does not tell which board it has, as an A100 of 40 or 80 GB, the profiles do.
    """
    fitting: Sequence[Board] = boards_of(model.gpu)
    if not fitting:
        what = f"no MIG profiles of {shown(model.gpu)} are known"
        hint = f"known boards: {', '.join(board.name for board in boards())}"
        yield FieldError(("mig" if document.mig else "dynamicMig",), what, hint, at_key=True)
        return
    if document.dynamic_mig is not None:
        fitting = [board for board in fitting if board is board_named(document.dynamic_mig or "")]
        what = f"{shown(model.name)} has no board {shown(document.dynamic_mig)}"
        hint = f"write {_either(boards_of(model.gpu))}"
        if fitting:
            what = (
                f"where instances of {fitting[0].name} may begin was not published: plans make none"
            )
            hint = "state those that there are in `mig`, or remove it"
        if not fitting or not fitting[0].placed:
            yield FieldError(("dynamicMig",), what, hint)
    for i, one in enumerate(document.mig):
        for j, name in enumerate(one.profiles):
            having = [board for board in fitting if board.profile(name)]
            if not having:
                what = f"{_either(fitting)} has no profile {shown(name)}"
                hint = "; ".join(f"{b.name}: {', '.join(map(str, b.profiles))}" for b in fitting)
                yield FieldError(("mig", i, "profiles", j), what, hint)
            fitting = having
    for i, one in enumerate(document.mig):
        having = [board for board in fitting if board.can_have(one.profiles)]
        if not having:
            used = dict.fromkeys(map(fitting[0].profile, one.profiles))
            cannot = "cannot" if fitting[0].placed else "are not known to"
            what = f"these instances {cannot} stand on one {_either(fitting)} at once"
            hint = "; ".join(profile.places for profile in used if profile)
            yield FieldError(("mig", i, "profiles"), what, hint)
        fitting = having


def _either(found: Iterable[Board]) -> str:
    return " or ".join(board.name for board in found)


def with_all_instances(cluster: Cluster, gangs: Iterable[Gang]) -> Cluster:
    """The cluster; a node that states no instances or parts of GPUs that a role requests has none."""
    requested = {name for gang in gangs for role in gang.roles for name, _ in role.requests}
    none = dict.fromkeys((name for name in requested if name.startswith((RESOURCE, SHARE))), 0)
    if not none:
        return cluster
    nodes = (
        replace(node, allocatable=tuple(sorted({**none, **dict(node.allocatable)}.items())))
        for node in cluster.nodes
    )
    return replace(cluster, nodes=tuple(nodes))


def _without_gpus(document: NodeDocument) -> Iterator[FieldError]:
    """What a node without a server model cannot have; paths start at the node."""
    unhealthy = {
        "unhealthyGpus": document.unhealthy_gpus, "unknownUnhealthy": document.unknown_unhealthy
    }  # fmt: skip
    parts = {
        "mig": document.mig,
        "unknownPartitioned": document.unknown_partitioned,
        "dynamicMig": document.dynamic_mig,
        "sharing": document.sharing,
    }
    for fields in (unhealthy, parts):
        for field_ in [name for name, value in fields.items() if value][:1]:
            kind = {**dict.fromkeys(unhealthy, "unhealthy"), "sharing": "shared"}
            what = f"{kind.get(field_, 'partitioned')} GPUs on a node without a server model"
            yield FieldError((field_,), what, "add `model`, or remove this", at_key=True)
    yield from within(("nics",), nic_errors(document.nics or (), 0))


def _node(document: NodeDocument, model: ServerModel | None, levels: tuple[Level, ...]) -> Node:
    """The node of an entry, under the entry's own name. What `mig` states and none holds is allocatable."""
    own: dict[str, object] = {"reshapable": (), "shared": (), "releasable": 0}
    if document.dynamic_mig is not None and (board := board_named(document.dynamic_mig)):
        own["dynamic_mig"] = board.name
    if document.mig:
        free = document.instances() - Counter(document.held)
        own["allocatable"] = tuple(sorted({**free, **document.allocatable}.items()))
    return made(
        Node,
        document,
        model=model,
        domains=tuple(document.domains.get(level.name) for level in levels),
        nics=None if document.nics is None else tuple(nic.to_nic() for nic in document.nics),
        unhealthy=sum(1 << gpu for gpu in {*document.unhealthy_gpus, *document.partitioned}),
        unknown_unhealthy=document.unknown_unhealthy + document.unknown_partitioned,
        **own,
    )
