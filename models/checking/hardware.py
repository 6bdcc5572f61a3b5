"""Server models and NICs of a plan document, read into ``models.hardware``.

Promises: what cannot be priced (a lopsided matrix, an unknown path) is a fault, no exception later.
Called by ``clusters``.
"""

from __future__ import annotations

import re
from typing import cast

from models.checking.form import Form, Object
from models.hardware import MAX_MESH_GPUS, Fabric, Nic, ServerModel

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
