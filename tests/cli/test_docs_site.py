"""The site that ``make docs`` builds: strict, whole without a network, its formulas typeset."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from effort import HANG_S
from pages import ROOT, text

pytestmark = pytest.mark.slow
CONFIG = ROOT / "deploy" / "docs" / "mkdocs.yml"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    for needed in ("material", "latex2mathml"):
        pytest.importorskip(needed, reason=f"{needed} of the extra dev is not installed")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "-f", str(CONFIG)]
    run = subprocess.run(
        [*command, "-d", str(folder)],
        env={"NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )
    assert (run.returncode, run.stderr) == (0, "")
    return folder


def test_no_page_asks_another_host_for_anything(site: Path) -> None:
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 70
    for page in pages:
        fetched = re.findall(r"<(?:script|link|img|iframe)\b[^>]*", text(page))
        assert not [tag for tag in fetched if re.search(r"(?:src|href)=[\"']?(?:https?:)?//", tag)]
    for style in site.rglob("*.css"):
        assert not re.search(r"url\(\s*[\"']?(?:https?:)?//", text(style)), style


def test_every_link_between_pages_leads_somewhere(site: Path) -> None:
    """MkDocs checks its own pages; those made of the files around docs/ are checked here."""
    for page in site.rglob("*.html"):
        for link in re.findall(r'<a href="([^"#]+\.html)', text(page)):
            if not link.startswith(("https:", "http:", "/")):
                assert (page.parent / link).exists(), f"{page}: {link}"


def test_what_lies_outside_the_folder_of_the_pages_is_shown(site: Path) -> None:
    assert "two-v100-servers" in text(site / "inputs" / "quickstart" / "index.html")
    assert 'href="inputs/any-order-places-one/index.html"' in text(site / "index.html")
    assert 'href="../../../inputs.html' in text(
        site / "inputs" / "snapshots" / "h100-gke" / "index.html"
    )


def test_formulas_are_typeset_when_the_site_is_built(site: Path) -> None:
    page = text(site / "formulation.html")
    assert page.count("<math") == page.count("</math>") > 20
    for one in site.glob("*.html"):
        assert "arithmatex" not in text(one), one


def test_the_words_of_the_pages_can_be_searched_from_files(site: Path) -> None:
    index = text(site / "search" / "search_index.js")
    assert index.startswith("var __index = {")
    assert '"location":"queues.html"' in index
    assert "assets/iframe-worker.js" in text(site / "index.html")
