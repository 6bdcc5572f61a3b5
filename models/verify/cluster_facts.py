"""Server models and NICs of a plan document, read into ``models.hardware``.

Promises: what cannot be priced (a lopsided matrix, an unknown path) is a fault, no exception later.
Called by ``clusters``.

The Cluster of a plan document: levels, server models, nodes and the domains they stand in.

Promises: nodes sorted by name with dense domain indices; a name or index that points nowhere is a fault.
Called by ``documents``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction
from typing import cast

from models.hardware import MAX_MESH_GPUS, Fabric, Nic, ServerModel, slug
from models.verify.facts import Level, Node
from models.verify.form import Form, Object, quantity, shown
from models.verify.policy_facts import kind, labels

MAX_SERVER_GPUS = 1024
"""No server holds more GPUs than this."""

PCIE_MBPS = 20000
SYS_MBPS = 10000
"""Where a model does not say (contract of the server model)."""

MAX_RATE = 10**9
"""No link or PCIe rate is above this many MB/s."""

_FIELDS = frozenset(
    [
        "name",
        "aliases",
        "vendor",
        "gpu",
        "gpus",
        "fabric",
        "matrix",
        "linkMBps",
        "linksPerGpu",
        "pcieMBps",
        "sysMBps",
        "numa",
        "pcieSwitch",
        "nics",
        "nvlinkDomainNodes",
        "sources",
        "confidence",
    ]
)
_FABRICS = ("nvswitch", "direct", "bridges", "pcie")
_PATH = re.compile(r"NV[1-9][0-9]{0,2}|PIX|PXB|PHB|NODE|SYS")


def server_model(form: Form, value: object, where: str) -> ServerModel:
    """One entry of ``serverModels``."""
    doc = form.mapping(value, where, _FIELDS, required=("name", "gpu", "gpus", "fabric"))
    fabric = form.choice(doc.get("fabric"), f"{where}.fabric", _FABRICS)
    most = MAX_SERVER_GPUS if fabric == "nvswitch" else MAX_MESH_GPUS
    gpus = form.integer(doc.get("gpus"), f"{where}.gpus", 1, most)
    matrix = _matrix(form, doc.get("matrix"), f"{where}.matrix", gpus)
    if matrix is None and fabric != "nvswitch" and gpus > 1:
        form.fault(where, "a server without an NVLink switch needs its matrix")
    for field in ("vendor", "confidence"):
        form.string(doc.get(field), f"{where}.{field}")
    for i, source in enumerate(form.optional_items(doc.get("sources"), f"{where}.sources")):
        form.string(source, f"{where}.sources[{i}]")
    for field in ("numa", "pcieSwitch"):
        groups = form.optional_items(doc.get(field), f"{where}.{field}")
        if doc.get(field) is not None and len(groups) != gpus:
            form.fault(f"{where}.{field}", f"must have {gpus} entries, one a GPU")
    return ServerModel(
        name=form.text(doc.get("name"), f"{where}.name"),
        gpu=form.text(doc.get("gpu"), f"{where}.gpu"),
        gpus=gpus,
        fabric=cast(Fabric, fabric),
        aliases=tuple(
            form.text(alias, f"{where}.aliases[{i}]")
            for i, alias in enumerate(form.optional_items(doc.get("aliases"), f"{where}.aliases"))
        ),
        matrix=matrix,
        link_MBps=form.optional_integer(doc.get("linkMBps"), f"{where}.linkMBps", 0, MAX_RATE),
        links_per_gpu=form.optional_integer(
            doc.get("linksPerGpu"), f"{where}.linksPerGpu", 0, MAX_RATE
        ),
        nics=nics(form, doc.get("nics"), f"{where}.nics", gpus),
        nvlink_domain_nodes=_or(form, doc, "nvlinkDomainNodes", where, 1, 1, 10**6),
        pcie_MBps=_or(form, doc, "pcieMBps", where, PCIE_MBPS, 1, MAX_RATE),
        sys_MBps=_or(form, doc, "sysMBps", where, SYS_MBPS, 1, MAX_RATE),
    )


def _or(form: Form, doc: Object, key: str, where: str, default: int, low: int, high: int) -> int:
    value = doc.get(key)
    return default if value is None else form.integer(value, f"{where}.{key}", low, high)


def nics(form: Form, value: object, where: str, gpus: int) -> tuple[Nic, ...]:
    """A list of NICs near some or all of ``gpus`` GPUs; absent is none."""
    return tuple(
        _nic(form, item, f"{where}[{i}]", gpus)
        for i, item in enumerate(form.optional_items(value, where))
    )


def _nic(form: Form, value: object, where: str, gpus: int) -> Nic:
    doc = form.mapping(value, where, frozenset(("name", "gbps", "gpus")), required=("name",))
    gbps = doc.get("gbps")
    megabits = None if gbps is None else form.number(gbps, f"{where}.gbps", 0, MAX_RATE) * 1000
    if megabits is not None and megabits.denominator != 1:
        form.fault(f"{where}.gbps", "must be a whole number of Mbit/s")
    near = doc.get("gpus")
    return Nic(
        name=form.text(doc.get("name"), f"{where}.name"),
        megabits=None if megabits is None else int(megabits),
        gpus=None if near is None else gpu_indices(form, near, f"{where}.gpus", gpus),
    )


def gpu_indices(form: Form, value: object, where: str, gpus: int) -> tuple[int, ...]:
    """A list of GPU indices, each once, each below ``gpus``, ascending."""
    items = form.items(value, where)
    if len(items) > max(gpus, 0):
        form.fault(where, f"names {len(items)} GPUs of {gpus}", rule="reference")
        return ()
    indices = [form.integer(item, f"{where}[{i}]", 0) for i, item in enumerate(items)]
    if any(index >= gpus for index in indices):
        form.fault(where, f"names a GPU outside 0 to {gpus - 1}", rule="reference")
        return ()
    if any(a >= b for a, b in zip(indices, indices[1:], strict=False)):
        form.fault(where, "must be ascending, each GPU once", rule="order")
    return tuple(sorted(set(indices)))


def _matrix(form: Form, value: object, where: str, gpus: int) -> tuple[tuple[str, ...], ...] | None:
    if value is None:
        return None
    rows = [
        form.items(row, f"{where}[{i}]")
        for i, row in enumerate(form.items(value, where)[: gpus + 1])
    ]
    if len(rows) != gpus or any(len(row) != gpus for row in rows):
        form.fault(where, f"must have {gpus} rows of {gpus} names")
        return None
    for a, row in enumerate(rows):
        for b, cell in enumerate(row):
            if not isinstance(cell, str) or not (cell == "X" if a == b else _PATH.fullmatch(cell)):
                form.fault(
                    f"{where}[{a}][{b}]",
                    "must be X on the diagonal, else NVn, PIX, PXB, PHB, NODE or SYS",
                )
                return None
            if cell != rows[b][a]:
                form.fault(f"{where}[{a}][{b}]", "differs from its mirror image")
                return None
    return tuple(tuple(cast(str, cell) for cell in row) for row in rows)


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
