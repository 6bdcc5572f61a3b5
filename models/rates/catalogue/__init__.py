"""The shipped server models, one YAML file each; a file is parsed once, when it is first needed."""

from __future__ import annotations

import re
from dataclasses import replace
from fractions import Fraction
from functools import cache, lru_cache
from importlib.resources import files
from importlib.resources.abc import Traversable

import yaml

from models.hardware import ServerModel, slug

_HEAD = re.compile(r"^name: .*\naliases: .*$", re.MULTILINE)
"""Name and aliases stand first in every file, so that looking one up parses two lines a file."""

try:
    from yaml import CSafeLoader as _Loader
except ImportError:  # PyYAML without libyaml: the same documents, read more slowly
    from yaml import SafeLoader as _Loader  # type: ignore[assignment]


@cache
def server_models() -> tuple[ServerModel, ...]:
    """Every model of the catalogue, by file name."""
    return tuple(_load(stem) for stem in sorted(_texts()))


@lru_cache(maxsize=4096)
def find(name: str) -> ServerModel | None:
    """The model of this name or alias, compared as slugs; None if there is none."""
    wanted = slug(name).strip("-")
    # A model's file is its slug: most lookups open one file.
    stem = wanted if _file(wanted).is_file() else _stems().get(wanted)
    return None if stem is None else _load(stem)


def relative_speed(gpu: str) -> Fraction | None:
    """Of this GPU model, as all its servers state it; None if the catalogue has none."""
    return next((model.relative_speed for model in server_models() if model.gpu == gpu), None)


@cache
def _load(stem: str) -> ServerModel:
    from models.documents.server import ServerModelDocument  # pydantic is slow to load

    text = _file(stem).read_text(encoding="utf-8")
    document = ServerModelDocument.model_validate(yaml.load(text, _Loader))
    if document.matrix is not None or document.fabric == "nvswitch":
        return document.to_server_model()
    # The matrix of this mesh is not published: a node of the model is refused unless the input
    # has the matrix, and bandwidth raises UnknownRate.
    as_switched = document.model_copy(update={"fabric": "nvswitch"})
    return replace(as_switched.to_server_model(), fabric=document.fabric)


def _file(stem: str) -> Traversable:
    return files(__name__).joinpath(f"{stem}.yaml")


def slugs() -> list[str]:
    """The slug of every model's name, sorted; opens no file."""
    names = (file.name for file in files(__name__).iterdir())
    return sorted(name.removesuffix(".yaml") for name in names if name.endswith(".yaml"))


@cache
def _texts() -> dict[str, str]:
    """Text of every file by its stem."""
    return {
        file.name.removesuffix(".yaml"): file.read_text(encoding="utf-8")
        for file in files(__name__).iterdir()
        if file.name.endswith(".yaml")
    }


@cache
def _stems() -> dict[str, str]:
    """File stem by slug of name and alias."""
    stems: dict[str, str] = {}
    for stem, text in sorted(_texts().items()):
        head = _HEAD.search(text)
        if head is None:
            raise ValueError(f"{stem}.yaml does not begin with name and aliases")
        named = yaml.load(head.group(), _Loader)
        for name in (named["name"], *named["aliases"]):
            stems[slug(name).strip("-")] = stem
    return stems
