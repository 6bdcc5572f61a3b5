"""The pages of the documentation, and the code in them."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
KUBERNETES = ROOT / "docs" / "kubernetes.md"


def text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def code_blocks(content: str, language: str = "") -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", content, re.MULTILINE | re.DOTALL)
