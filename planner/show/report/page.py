"""One HTML page from sections, tables and a map: the only module that knows jinja2.

The page needs nothing else: no network, one style and one script, which its Content-Security-Policy names
by their hashes, so that nothing that an input smuggles in could run. Everything else is escaped.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from planner.show.report.map_view import MapView
from planner.show.table import Column, Table

HERE = Path(__file__).parent

MAX_ROWS = 300
"""Rows of a table; what is left out is counted below it."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One headline figure: what, how many, and in what light to see it."""

    label: str
    value: str
    note: str = ""
    style: str = ""


@dataclass(frozen=True, slots=True)
class Part:
    """A table of a section. ``title``: its caption, if the section has several."""

    table: Table | None = None
    title: str = ""


@dataclass(frozen=True, slots=True)
class Section:
    """One landmark of the page. ``lines``: sentences above its parts."""

    name: str
    title: str
    lines: Sequence[str] = ()
    parts: Sequence[Part] = ()


@dataclass(frozen=True, slots=True)
class Page:
    """``warnings``: what a reader must know first."""

    title: str
    subject: str
    made: str
    headline: Sequence[str]
    figures: Sequence[Figure]
    sections: Sequence[Section]
    map: MapView | None = None
    warnings: Sequence[str] = ()


def html(page: Page) -> str:
    """The document. A pure function of the page."""
    style, script = _asset("page.css"), _asset("page.js")
    template = _environment().get_template("page.html.j2")
    return template.render(
        page=page,
        MAX_ROWS=MAX_ROWS,
        style=Markup(style),  # noqa: S704  # ours, from this folder
        script=Markup(script),  # noqa: S704  # the same
        policy=(
            f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}';"
            " base-uri 'none'; form-action 'none'"
        ),
        data=Markup(embedded(page.map.gangs if page.map else [])),  # noqa: S704  # escaped for a script element
    )


def embedded(data: object) -> str:
    """JSON that can stand inside a script element: no markup in it, ASCII alone."""
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=True)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"


@cache
def _asset(name: str) -> str:
    return (HERE / name).read_text(encoding="utf-8")


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(HERE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["heading"] = heading
    return environment


_WORDS = {
    "PRIO": "priority",
    "GPU": "GPU",
    "GPUS": "GPUs",
    "GPU-HOURS": "GPU-hours",
    "GB/S": "GB/s",
}


def heading(column: Column) -> str:
    """The title of a column as a page writes it: ``OF BEST`` as ``Of best``; names stay as they are."""
    if not column.title.isupper():
        return column.title
    text = " ".join(_WORDS.get(word, word.lower()) for word in column.title.split())
    return text[:1].upper() + text[1:]
