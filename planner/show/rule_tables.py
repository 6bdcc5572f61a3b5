"""The table of docs/explain.md that has a row for all that anybody may ask for; ``main`` writes it anew."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import dropwhile
from pathlib import Path

from models.rules.registry import requirements

HEAD = "| asked for | that is | who can drop it | the reason of a gang that waits for it alone | `--relax` |"


def rows() -> Iterator[str]:
    """The table, line by line."""
    yield HEAD
    yield "|---|---|---|---|---|"
    for one in requirements():
        who = "operator" if one.operator else "owner"
        code, word = (f"`{text}`" if text else "-" for text in (one.code, one.word))
        yield f"| `{one.name}` | {one.asks.format('...')} | {who} | {code} | {word} |"


def renewed(page: str) -> str:
    """The text of the page with the table as it is now."""
    lines = page.splitlines()
    first = lines.index(HEAD)
    rest = dropwhile(lambda line: line[:1] == "|", lines[first:])
    return "\n".join([*lines[:first], *rows(), *rest]) + "\n"


def main(folder: Path) -> None:
    """Write the table into the page in the folder."""
    page = folder / "explain.md"
    page.write_text(renewed(page.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
