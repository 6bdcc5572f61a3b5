"""Server models from a file: as in the catalogue, or those written inline in a Cluster.

Promises: the same strictness and the same places as for any input. Called by the verb ``topo``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from planner.errors import Fault, InputError

if TYPE_CHECKING:
    from typing import BinaryIO

    from models.hardware import ServerModel
    from planner.reading.composing import Path


def read_models(path: str, stdin: BinaryIO | None) -> tuple[ServerModel, ...]:
    """Every server model of the file, in order.

    Raises MissingPathError, and InputError with every fault (at most 20) and its place.
    """
    from models.documents.server import ServerModelDocument
    from planner.reading.findings import Findings
    from planner.reading.parsing import parse
    from planner.reading.sources import read_sources
    from planner.reading.validating import validate

    texts, faults = read_sources([path], stdin)
    findings = Findings()
    for fault in faults:
        findings.fault(fault)
    found = []
    for source in texts:
        composed = parse(source)
        for malformed in composed.faults:
            findings.malformed(source, malformed)
        for place, tree in _models(composed.documents):
            entry = validate(ServerModelDocument, tree, source, place, findings)
            if entry is not None:
                complaints = list(entry.document.complaints())
                entry.complain(iter(complaints))
                found += [] if complaints or entry.lost else [entry.document.to_server_model()]
    if findings:
        findings.raise_all()
    if not found:
        hint = "write name, gpu, gpus, fabric and matrix, as in spec.serverModels of a Cluster"
        raise InputError(Fault("no server model in this file", hint, path))
    return tuple(found)


def _models(documents: list[Any]) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Where a server model stands, and the model: a whole document, or an entry of a Cluster."""
    for number, tree in enumerate(documents):
        if not isinstance(tree, dict):
            continue
        if "kind" not in tree:
            yield (number,), tree
            continue
        spec = tree.get("spec")
        inline = spec.get("serverModels") if isinstance(spec, dict) else None
        for i, model in enumerate(inline if isinstance(inline, list) else ()):
            if isinstance(model, dict):
                yield (number, "spec", "serverModels", i), model
