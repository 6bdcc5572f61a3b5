"""Server models from a file: documents as in the catalogue or a Cluster, or a tool's output.

Promises: what a file holds is told by its content, not its name; the same strictness and the same
places as for any input. Called by the verb ``topo``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from planner.errors import Fault, InputError

if TYPE_CHECKING:
    from typing import BinaryIO

    from models.documents.base import Path
    from models.hardware import ServerModel
    from planner.read.sources import Source
    from planner.read.topo.server_model import Choice, Reading

_BEFORE = r"(?:[ \t]*(?:#[^\n]*|---[ \t]*|%YAML[^\n]*)?\r?\n)*[ \t]*(?:---[ \t]+)?"
_FIELD = (
    r"\"?(?:name|aliases|vendor|gpu|gpus|fabric|matrix|apiVersion|kind|metadata|spec)\"?[ \t]*:"
)
_DOCUMENT = re.compile(rf"{_BEFORE}(?:{_FIELD}|(?:\[\s*)?\{{)")
"""How a server model or a Cluster begins; a tool's output may stand in its comments."""

_YAML = re.compile(rf"{_BEFORE}(?:[{{\[]|- |[A-Za-z]\w*:(?:\s|$)|$)")
"""How YAML and JSON begin."""


def read_models(
    path: str, stdin: BinaryIO | None, choice: Choice
) -> tuple[tuple[ServerModel, Reading | None], ...]:
    """Every server model of the file, in order; the reading beside one that a tool printed.

    ``choice``: what the user says of servers in a tool's output. Raises MissingPathError, and
    InputError with every fault (at most 20) and its place.
    """
    from planner.read.sources import read_sources

    texts, faults = read_sources([path], stdin)
    if faults:
        raise InputError(*faults)
    if any(_is_output(text) for text in texts):
        return tuple((reading.model, reading) for reading in _from_output(texts, choice))
    return tuple((model, None) for model in _from_documents(texts, path))


def _is_output(text: Source) -> bool:
    """Whether to read it as a tool's output: if it has a table, or is no YAML or JSON."""
    from planner.read.topo.reader import holds_topologies

    if _DOCUMENT.match(text.text) is not None and "(Topology)" not in text.text:
        return False
    if holds_topologies(text.text):
        return True
    return text.format == "either" and _YAML.match(text.text) is None


def _from_output(texts: Sequence[Source], choice: Choice) -> list[Reading]:
    """Readings whose models have a name each."""
    from models.rates import catalogue
    from planner.read.topo.reader import read_topologies
    from planner.read.topo.server_model import possibilities, read_model

    models = catalogue.server_models()
    found: list[Reading] = []
    names: dict[str, int] = {}
    for text in texts:
        for topology in read_topologies(text.name, text.text):
            reading = read_model(topology, choice, models)
            name = reading.model.name
            count = names[name] = names.get(name, 0) + 1
            if count > 1:
                reading = replace(reading, model=replace(reading.model, name=f"{name} #{count}"))
            found.append(replace(reading, possible=possibilities(reading)))
    return found


def _from_documents(texts: Sequence[Source], path: str) -> tuple[ServerModel, ...]:
    from models.documents.server import ServerModelDocument
    from planner.read.findings import Findings
    from planner.read.parser import parse
    from planner.read.validation import validate

    findings = Findings()
    found = []
    for source in texts:
        parsed = parse(source)
        for malformed in parsed.faults:
            findings.malformed(source, malformed)
        for place, tree in _models(parsed.documents):
            entry = validate(ServerModelDocument, tree, source, place, findings)
            if entry is not None:
                complaints = list(entry.document.complaints())
                entry.complain(iter(complaints))
                found += [] if complaints or entry.lost else [entry.document.to_server_model()]
    if findings:
        findings.raise_all()
    if not found:
        hint = (
            "write name, gpu, gpus, fabric and matrix, as in spec.serverModels of a Cluster;"
            " or save what `nvidia-smi topo -m` prints"
        )
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
