"""What MkDocs does not: pages from outside docs/, links for the forge and for the site, and mathematics.

README.md is the start page. Whatever a page links to outside docs/ becomes a page, too: Markdown as it is,
other files and folders as their text. TeX becomes MathML here, so that browsers need no script for it.
"""

from __future__ import annotations

import html
import os
import re
from collections.abc import Iterator
from pathlib import Path

from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"

SHOWN_BYTES = 20_000
"""Longer files are named, not shown."""

_LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#)([^)#\s]+)")
_FORMULA = re.compile(r'<(span|div) class="arithmatex">(.*?)</\1>', re.DOTALL)
_LANGUAGES = {".json": "json", ".plan": "yaml", ".py": "python", ".yaml": "yaml"}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the README and all that pages link to outside docs/, and what that links to."""
    ahead = [ROOT / "README.md", *(DOCS / one.src_uri for one in files.documentation_pages())]
    known = set(ahead)
    while ahead:
        source = ahead.pop(0)
        if _is_extra(source):
            files.append(_generated(source, config))
        for target in _targets(source):
            if _is_extra(target) and target not in known:
                known.add(target)
                ahead.append(target)
    return files


def on_page_markdown(markdown: str, *, page: Page, files: Files, **_: object) -> str:
    """Turn paths in the repository into paths of the site."""
    here = Path(page.file.src_uri).parent
    source = _sources(files)[page.file.src_uri]

    def place(link: re.Match[str]) -> str:
        target = _target(source, link[1])
        return link[1] if target is None else os.path.relpath(_page_of(target), here)

    return _LINK.sub(place, markdown) if source.suffix == ".md" else markdown


def on_page_content(content: str, *, page: Page, **_: object) -> str:
    """Turn TeX into MathML."""

    def mathml(formula: re.Match[str]) -> str:
        tex = html.unescape(formula[2]).strip()[2:-2]  # without \( \) or \[ \]
        display = "block" if formula[1] == "div" else "inline"
        try:
            typeset = str(convert(tex, display=display))
        except Exception as error:  # whatever its parser raises, the formula is to blame
            raise PluginError(f"{page.file.src_uri}: no formula: {tex}: {error!r}") from error
        if "\\" in typeset or "<mi>&</mi>" in typeset:
            raise PluginError(f"{page.file.src_uri}: latex2mathml lacks a command of: {tex}")
        return typeset

    return _FORMULA.sub(mathml, content)


def _targets(source: Path) -> Iterator[Path]:
    """Files and folders that a Markdown file links to."""
    if source.suffix == ".md":
        for path in _LINK.findall(source.read_text(encoding="utf-8")):
            target = _target(source, path)
            if target is not None:
                yield target


def _target(source: Path, path: str) -> Path | None:
    """What a link leads to: a folder's README stands for it. None where there is nothing."""
    target = (source.parent / path).resolve()
    if (target / "README.md").is_file():
        target /= "README.md"
    return target if target.exists() and ROOT in target.parents else None


def _is_extra(target: Path) -> bool:
    """Whether MkDocs by itself makes nothing of it."""
    return DOCS not in target.parents or target.is_dir()


def _page_of(target: Path) -> str:
    """Path of its page in the site's source."""
    if target == ROOT / "README.md":
        return "index.md"
    path = target.relative_to(DOCS if DOCS in target.parents else ROOT)
    if not _is_extra(target):
        return str(path)
    if target.is_dir():
        return f"{path}/index.md"
    return str(path) if path.suffix == ".md" else f"{path}.md"


def _sources(files: Files) -> dict[str, Path]:
    return {one.src_uri: getattr(one, "source", DOCS / one.src_uri) for one in files}


def _generated(source: Path, config: MkDocsConfig) -> File:
    text = source.read_text(encoding="utf-8") if source.suffix == ".md" else _shown(source)
    page = File.generated(config, _page_of(source), content=text)
    page.inclusion = InclusionLevel.NOT_IN_NAV
    page.source = source  # type: ignore[attr-defined]  # where its links start from
    return page


def _shown(source: Path) -> str:
    """A page that shows a file, or the files of a folder."""
    name = source.relative_to(ROOT)
    if source.is_file():
        return f"# {name}\n\n{_block(source)}"
    parts = [f"# {name}/\n"]
    for one in sorted(source.iterdir()):
        if one.is_dir() or one.stat().st_size > SHOWN_BYTES:
            size = "folder" if one.is_dir() else f"{one.stat().st_size:,} bytes"
            name = f"[{one.name}]({one.name})" if DOCS in one.parents else f"`{one.name}`"
            parts.append(f"- {name}: {size}")
        else:
            parts.append(f"\n## {one.name}\n\n{_block(one)}")
    return "\n".join(parts)


def _block(file: Path) -> str:
    return f"````{_LANGUAGES.get(file.suffix, 'text')}\n{file.read_text(encoding='utf-8')}\n````\n"
