"""The Cluster of a plan document: levels, server models, nodes and the domains they stand in.

Promises: nodes sorted by name with dense domain indices; a name or index that points nowhere is a fault.
Called by ``documents``.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from models.checking.facts import Level, Node
from models.checking.form import Form, Object, shown
from models.checking.hardware import gpu_indices, nics, server_model
from models.checking.policies import kind, labels
from models.checking.quantities import quantity
from models.hardware import ServerModel, slug

MAX_LEVELS = 32
"""No network has more levels than this; it bounds the work a node costs."""

_CLUSTER = frozenset(("levels", "serverModels", "nodes"))
_LEVEL = frozenset(("name", "label", "oversubscription", "nvlink"))
_NODE = frozenset(
    [
        "name",
        "model",
        "domains",
        "allocatable",
        "unschedulable",
        "ready",
        "unknownUnhealthy",
        "unhealthyGpus",
        "labels",
        "taints",
        "nics",
    ]
)
_TAINT = frozenset(("key", "value", "effect", "timeAdded"))
_EFFECTS = ("NoSchedule", "NoExecute", "PreferNoSchedule")
_KEEPS_OUT = ("NoSchedule", "NoExecute")


def cluster(
    form: Form, value: object, where: str, ours: tuple[tuple[str, str], ...]
) -> tuple[tuple[Level, ...], tuple[Node, ...]]:
    """Levels and nodes; ``ours``: the labels a node must carry to be ours to use."""
    doc = kind(form, value, where, "Cluster")
    where = f"{where}.spec"
    spec = form.mapping(doc.get("spec", {}), where, _CLUSTER, required=("nodes",))
    levels = _levels(form, spec.get("levels"), f"{where}.levels")
    models = _models(form, spec.get("serverModels"), f"{where}.serverModels")
    reader = _NodeReader(form, levels, models, ours)
    nodes = tuple(
        reader.read(item, f"{where}.nodes[{i}]", i)
        for i, item in enumerate(form.items(spec.get("nodes"), f"{where}.nodes"))
    )
    for before, after in zip(nodes, nodes[1:], strict=False):
        if before.name == after.name:
            form.fault(
                f"{where}.nodes", f"node {shown(after.name)} is listed twice", rule="reference"
            )
        elif before.name > after.name:
            form.fault(f"{where}.nodes", f"{shown(after.name)} is out of order", rule="order")
    used = {id(node.model) for node in nodes}
    for model in {id(model): model for model in models.values()}.values():
        if id(model) not in used:
            form.fault(
                f"{where}.serverModels", f"no node is a {shown(model.name)}", rule="reference"
            )
    return levels, nodes


def _levels(form: Form, value: object, where: str) -> tuple[Level, ...]:
    items = form.optional_items(value, where)
    if len(items) > MAX_LEVELS:
        form.fault(where, f"{len(items)} levels are more than {MAX_LEVELS}")
        return ()
    levels = []
    for i, item in enumerate(items):
        place = f"{where}[{i}]"
        doc = form.mapping(item, place, _LEVEL, required=("name",))
        over = doc.get("oversubscription")
        levels.append(
            Level(
                name=form.text(doc.get("name"), f"{place}.name"),
                label=form.optional_text(doc.get("label"), f"{place}.label"),
                oversubscription=Fraction(1)
                if over is None
                else form.number(over, f"{place}.oversubscription", 1),
                nvlink=form.flag(doc.get("nvlink"), f"{place}.nvlink"),
            )
        )
    names = [level.name for level in levels]
    if len(set(names)) < len(names) or "node" in names:
        form.fault(where, "level names must differ from each other and from node")
    return tuple(levels)


def _models(form: Form, value: object, where: str) -> dict[str, ServerModel]:
    """Server models by slug of every name and alias."""
    models: dict[str, ServerModel] = {}
    for i, item in enumerate(form.optional_items(value, where)):
        model = server_model(form, item, f"{where}[{i}]")
        for name in model.slugs:
            if name in models:
                form.fault(
                    f"{where}[{i}]", f"two models are called {shown(name)}", rule="reference"
                )
            models[name] = model
    return models


class _NodeReader:
    """Reads nodes one after another, numbering domains as they appear."""

    def __init__(
        self,
        form: Form,
        levels: tuple[Level, ...],
        models: Mapping[str, ServerModel],
        ours: tuple[tuple[str, str], ...],
    ) -> None:
        self.form = form
        self.levels = levels
        self.level_names = frozenset(level.name for level in levels)
        self.models = models
        self.by_name: dict[str, ServerModel | None] = {}
        self.ours = ours
        # One numbering a level; a domain's key is its whole path, or its node where it stands alone.
        self.numbers: list[dict[tuple[str, ...] | int, int]] = [{} for _ in levels]

    def read(self, value: object, where: str, index: int) -> Node:
        form = self.form
        doc = form.mapping(value, where, _NODE, required=("name",))
        name = form.text(doc.get("name"), f"{where}.name")
        model = self._model(doc.get("model"), where)
        gpus = model.gpus if model else 0
        short = self._short_names(doc.get("domains"), f"{where}.domains")
        implied = {"kubernetes.io/hostname": name}
        for level, value_ in zip(self.levels, short, strict=True):
            if level.label is not None and value_ is not None:
                implied[level.label] = value_
        all_labels = {**implied, **dict(labels(form, doc.get("labels"), f"{where}.labels"))}
        sick = 0
        if doc.get("unhealthyGpus"):
            for gpu in gpu_indices(form, doc["unhealthyGpus"], f"{where}.unhealthyGpus", gpus):
                sick |= 1 << gpu
        unknown = doc.get("unknownUnhealthy")
        own_nics = doc.get("nics")
        return Node(
            name=name,
            model=model,
            domain=(*self._domains(short, index), index),
            allocatable=amounts(form, doc.get("allocatable"), f"{where}.allocatable"),
            labels=all_labels,
            taints=self._taints(doc, where) if doc.get("taints") else (),
            nics=(model.nics if model else ())
            if own_nics is None
            else nics(form, own_nics, f"{where}.nics", gpus),
            usable=form.flag(doc.get("ready"), f"{where}.ready", default=True)
            and not form.flag(doc.get("unschedulable"), f"{where}.unschedulable")
            and all(all_labels.get(key) == wanted for key, wanted in self.ours),
            unhealthy=sick,
            unknown_unhealthy=0
            if unknown is None
            else form.integer(unknown, f"{where}.unknownUnhealthy", 0, max(gpus, 0)),
        )

    def _model(self, value: object, where: str) -> ServerModel | None:
        if value is None:
            return None
        name = self.form.text(value, f"{where}.model")
        if name not in self.by_name:
            self.by_name[name] = self.models.get(slug(name))
        found = self.by_name[name]
        if found is None:
            self.form.fault(f"{where}.model", f"no server model {shown(name)}", rule="reference")
        return found

    def _short_names(self, value: object, where: str) -> list[str | None]:
        doc = self.form.table(value, where)
        if not self.level_names.issuperset(doc):
            self.form.fault(where, "names a level that does not exist", rule="reference")
        return [
            self.form.optional_text(doc.get(level.name), f"{where}.{level.name}")
            for level in self.levels
        ]

    def _domains(self, short: list[str | None], index: int) -> list[int]:
        """Domain index a level; a node without a value is alone there and at every narrower level."""
        domains = []
        alone = False
        for level, numbers in enumerate(self.numbers):
            alone = alone or short[level] is None
            key = index if alone else tuple(name or "" for name in short[: level + 1])
            domains.append(numbers.setdefault(key, len(numbers)))
        return domains

    def _taints(self, doc: Object, where: str) -> tuple[tuple[str, str, str], ...]:
        form = self.form
        found = []
        for i, item in enumerate(form.items(doc["taints"], f"{where}.taints")):
            place = f"{where}.taints[{i}]"
            taint = form.mapping(item, place, _TAINT, required=("key", "effect"))
            key = form.text(taint.get("key"), f"{place}.key")
            effect = form.choice(taint.get("effect"), f"{place}.effect", _EFFECTS)
            text = form.string(taint.get("value"), f"{place}.value")
            if effect in _KEEPS_OUT:
                found.append((key, text, effect))
        return tuple(found)


def amounts(form: Form, value: object, where: str) -> dict[str, Fraction]:
    """Resource quantities, exact: strings such as ``1500m`` and ``2Ti``, or JSON numbers."""
    found = {}
    for name, item in form.table(value, where).items():
        amount = quantity(item) if isinstance(item, str) else None
        if amount is None:
            if isinstance(item, str):
                form.fault(where, f"{shown(name)} has no quantity: {shown(item)}")
                continue
            amount = form.number(item, f"{where}[{name!r:.80}]")
        found[name] = amount
    return found
