"""``gangplan topo [NAME|FILE]``: a server model's link matrix and its bandwidth table.

A name is looked up in the catalogue, which is listed without one; a file holds server models, or what
``nvidia-smi topo -m`` or ``rocm-smi --showtopo`` printed. No solver is loaded.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from planner.cli.options import verb
from planner.errors import Fault, MissingPathError, UsageError
from planner.show.console import Console
from planner.show.text import Format, listed
from planner.untrusted_text import safe

if TYPE_CHECKING:
    from models.hardware import ServerModel
    from planner.read.topo.server_model import Recognition

    Found = tuple[tuple[ServerModel, Recognition | None], ...]

_FILES = (".yaml", ".yml", ".json", ".txt", ".log", ".out")
MAX_NAME = 100
"""Longest name of a GPU or server model on the command line."""


def _model_slugs() -> list[str]:
    """Names for shells to complete: without blanks."""
    from models.rates import catalogue

    return catalogue.slugs()


@verb
def topo(
    console: Console,
    model: Annotated[str | None, _model_slugs] = None,
    *,
    gpu: str | None = None,
    name: str | None = None,
    output: Format = Format.table,
) -> None:
    """Show a server model: links, NICs, what sets of GPUs reach."""
    gpu, name = _checked_name("--gpu", gpu), _checked_name("--name", name)
    misused = f"{'--gpu' if gpu else '--name'} is for the output of nvidia-smi and rocm-smi"
    if model is None:
        if gpu or name:
            raise UsageError(Fault(misused, "name a file with it, or - for stdin"))
        _list(console, output)
        return
    found = _find(console, model, gpu, name)
    recognitions = [recognition for _, recognition in found if recognition is not None]
    if (gpu or name) and not recognitions:
        raise UsageError(Fault(misused, f"{model} is a server model already"))
    _print(console, found, output)
    _advise(console, recognitions)


def _checked_name(option: str, value: str | None) -> str | None:
    """The value of an option that becomes a name. Raises UsageError if it cannot be one."""
    if value is None:
        return None
    word = " ".join(value.split())
    if not word.isprintable() or not re.search(r"[A-Za-z0-9]", word) or len(word) > MAX_NAME:
        hint = f"letters, digits and blanks, at most {MAX_NAME}"
        raise UsageError(Fault(f"{option} is no name for a model", hint))
    return word


def _list(console: Console, output: Format) -> None:
    """The catalogue: a table, or a document a model."""
    from models.rates import catalogue
    from planner.show.cluster_map import natural
    from planner.show.server_model import catalogue_table, commonness

    models = sorted(catalogue.server_models(), key=lambda model: natural(model.name))
    if output not in (Format.table, Format.wide):
        _print(console, tuple((model, None) for model in models), output)
        return
    console.table(catalogue_table(models))
    common = min(models, key=commonness)
    console.next(f"{console.program} topo {shlex.quote(common.name)}")


def _of_gpu(name: str) -> list[ServerModel]:
    """The servers of the catalogue with the GPU of this name or product name, the commonest first.

    Of equally common ones those of eight GPUs, and the sizes of an instance type in order.
    """
    from models.hardware import slug
    from models.rates import catalogue
    from planner.read.kube.nodes.products import product
    from planner.show.cluster_map import natural
    from planner.show.server_model import commonness

    models = catalogue.server_models()
    found = [model for model in models if slug(model.gpu) == slug(name)]
    if not found and (named := product(name)).known and named.form != "card":
        found = [model for model in models if model.gpu == named.gpu]
    return sorted(found, key=lambda m: (commonness(m), abs(m.gpus - 8), natural(m.name)))


def _find(console: Console, name: str, gpu: str | None, made_name: str | None) -> Found:
    """The model of that name, alias or GPU, or those in that file. Raises MissingPathError, InputError.

    ``gpu``, ``made_name``: the options for a model made from a tool's output.
    """
    from models.rates import catalogue

    looks_like_a_file = name.lower().endswith(_FILES) or "/" in name or name == "-"
    if not looks_like_a_file:
        found = catalogue.find(name)
        if found is not None:
            return ((found, None),)
    if looks_like_a_file or Path(name).is_file():
        from planner.read.model_files import read_models

        return read_models(name, console.stdin, gpu=gpu, name=made_name)
    if of_gpu := _of_gpu(name):
        first, *others = of_gpu
        which = f"the commonest server of {first.gpu}" if others else f"the server of {first.gpu}"
        rest = listed([model.name for model in others], "and") or "none in the catalogue"
        console.say(f"note: {first.name} is {which}; others: {rest}")
        return ((first, None),)
    from models.documents.base import similar

    models = catalogue.server_models()
    names = sorted(model.name for model in models)
    near = similar(name, names) or similar(name, (a for model in models for a in model.aliases))
    listing = f"{console.program} topo lists the catalogue"
    hint = f"did you mean {' or '.join(near)}?" if near else listing
    raise MissingPathError(Fault(f"no server model and no file is named {name}", hint))


def _print(console: Console, found: Found, output: Format) -> None:
    """The models as tables, or as documents one after the other."""
    from planner.show.server_model import model_document, model_yaml, topology_tables

    documents = [model_document(model) for model, _ in found]
    if output is Format.name:
        console.data("".join(f"{safe(model.name)}\n" for model, _ in found))
    elif output is Format.yaml:
        console.data("---\n".join(map(model_yaml, documents)))
    elif output is Format.json:
        console.document(documents[0] if len(documents) == 1 else documents)
    else:
        tables = (table for one in found for table in topology_tables(*one))
        console.data(console.sections(tables))


def _advise(console: Console, recognitions: list[Recognition]) -> None:
    """What was concluded and what to do next, on stderr."""
    from planner.show.server_model import advice

    for recognition in recognitions:
        about = "" if len(recognitions) == 1 else f"{recognition.model.name}: "
        for line in recognition.remarks:
            console.say(f"note: {about}{line}")
    for line in dict.fromkeys(line for one in recognitions for line in advice(one)):
        console.say(line)
