"""Server models from a file: documents as in the catalogue or a Cluster, or a tool's output.

The content decides which it is, not the name of the file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from planner.errors import Fault, InputError
from planner.read.sources import Source, open_sources, too_long

if TYPE_CHECKING:
    from typing import BinaryIO

    from models.documents.base import Path
    from models.hardware import ServerModel
    from planner.read.topo.server_model import Recognition
    from planner.read.topo.tools import Topology

# Possessive: millions of lines would otherwise cost hundreds of bytes each to step back over.
_BEFORE = r"(?:[ \t]*(?:(?:#|%YAML)[^\n]*|(?:---[ \t]*)?\r?)\n)*+[ \t]*(?:---[ \t]+)?"
_FIELD = (
    r"\"?(?:name|aliases|vendor|gpu|gpus|fabric|matrix|apiVersion|kind|metadata|spec)\"?[ \t]*:"
)
_DOCUMENT = re.compile(rf"{_BEFORE}(?:{_FIELD}|(?:\[\s*)?\{{)")
"""How a server model or a Cluster begins; its comments may hold a tool's output."""

_YAML = re.compile(rf"{_BEFORE}(?:[{{\[]|- |[A-Za-z]\w*:(?:\s|$)|$)")
"""How YAML and JSON begin."""

_OUTPUT = re.compile(
    r"nvidia-smi|rocm-smi|amd-smi|ROCm System Management|between two GPUs|\bGPU[0-9]+\s+X\b"
    r"|^[ \t]*GPU0[ \t]+GPU1\b|\(Topology\)|\bTABLE:",
    re.IGNORECASE | re.MULTILINE,
)
MAX_TOPOLOGIES = 256
"""Most servers of one text: each is priced and shown in full."""
MAX_TEXT = 16_000_000
"""Most characters of a tool's output: what 256 large servers print is a hundredth of that."""

_HINT = "save what `nvidia-smi topo -m` or `rocm-smi --showtopo` prints, as it is"


def read_models(
    path: str, stdin: BinaryIO | None, *, gpu: str | None = None, name: str | None = None
) -> tuple[tuple[ServerModel, Recognition | None], ...]:
    """Every server model of the file, in order, with the recognition of one that a tool printed.

    ``gpu``, ``name``: of servers in a tool's output. Raises MissingPathError, and InputError with
    every fault (at most 20) and its place.
    """
    found = [
        too_long(one.name) if isinstance(one, Source) and one.rest is not None else one
        for one in open_sources([path], stdin)
    ]
    if faults := [one for one in found if isinstance(one, Fault)]:
        raise InputError(*faults)
    texts = [one for one in found if isinstance(one, Source)]
    if any(_is_output(text) for text in texts):
        return tuple((one.model, one) for one in _from_output(texts, gpu, name))
    return tuple((model, None) for model in _from_documents(texts, path))


def _is_output(source: Source) -> bool:
    """Whether a text is a tool's output, whole or broken; what is neither YAML nor JSON is, too."""
    if _DOCUMENT.match(source.text) is not None and "(Topology)" not in source.text:
        return False
    if _OUTPUT.search(source.text) is not None:
        return True
    return source.format == "either" and _YAML.match(source.text) is None


def read_topologies(file: str, text: str) -> tuple[Topology, ...]:
    """Every topology of a tool's output, in order. Raises InputError if there is none or one is broken."""
    from planner.read.topo import tools

    if len(text) > MAX_TEXT:
        what = f"a text of more than {MAX_TEXT:,} characters"
        raise InputError(Fault(what, "save only what the tool prints", file))
    found = []
    for topology in tools.read(file, text):
        found.append(topology)
        if len(found) > MAX_TOPOLOGIES:
            what = f"more than {MAX_TOPOLOGIES} servers in one text"
            raise InputError(Fault(what, "one file a server is enough", file))
    if not found:
        raise InputError(Fault("no topology and no server model in this file", _HINT, file, 1, 1))
    return tuple(found)


def _from_output(texts: Sequence[Source], gpu: str | None, name: str | None) -> list[Recognition]:
    from models.rates import catalogue
    from planner.read.topo.server_model import recognise

    models = catalogue.server_models()
    found: list[Recognition] = []
    names: dict[str, int] = {}
    for text in texts:
        for topology in read_topologies(text.name, text.text):
            one = recognise(topology, models, gpu=gpu, name=name)
            count = names[one.model.name] = names.get(one.model.name, 0) + 1
            if count > 1:
                model = replace(one.model, name=f"{one.model.name} #{count}")
                one = replace(one, model=model)  # the same server, renamed
            found.append(one)
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
        findings.placed += parsed.faults
        for place, tree in _models(parsed.documents):
            entry = validate(ServerModelDocument, tree, source, place, findings)
            if entry is not None:
                entry.report_errors(iter(entry.document.field_errors()))
                found.append(entry.document)
    if findings:
        findings.raise_all()
    if not found:
        hint = (
            "write name, gpu, gpus, fabric and matrix, as in spec.serverModels of a Cluster;"
            " or save what `nvidia-smi topo -m` prints"
        )
        raise InputError(Fault("no server model in this file", hint, path))
    return tuple(document.to_server_model() for document in found)


def _models(documents: list[Any]) -> Iterator[tuple[Path, dict[str, Any]]]:
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
