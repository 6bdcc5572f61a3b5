"""The version of a build, from the tag it is made of; hatchling runs this file (pyproject.toml).

At the tag v1.2.3: 1.2.3; five commits later: 1.2.3+5.g0a1b2c3. Without a tag or without git: what the sdist
states, else planner/__init__.py. Wheels and sdists state theirs in planner/_version.py.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
_DESCRIBED = re.compile(r"v(\d+(?:\.\d+)*(?:(?:a|b|rc)\d+)?)-(\d+)-(g[0-9a-f]+)")
_STATED = re.compile(r'^ *__version__ = "([^"]+)"', re.MULTILINE)


def version(root: Path = ROOT) -> str:
    """The first that is known of: tag, sdist, release in preparation."""
    return (
        _of_tag(root)
        or _stated(root / "planner/_version.py")
        or _stated(root / "planner/__init__.py")
    )


def _of_tag(root: Path) -> str:
    """Of the nearest tag like v1.2.3; empty without one, without git, or in a repository that is not ours."""
    if not (root / ".git").exists():
        return ""
    command = ["git", "-C", str(root), "describe", "--tags", "--long", "--match", "v[0-9]*"]
    try:
        run = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    found = _DESCRIBED.fullmatch(run.stdout.strip())
    if found is None:
        return ""
    release, commits, commit = found.groups()
    return release if commits == "0" else f"{release}+{commits}.{commit}"


def _stated(file: Path) -> str:
    found = _STATED.search(file.read_text(encoding="utf-8")) if file.is_file() else None
    return "" if found is None else found[1]


def get_build_hook() -> type[Any]:
    """For hatchling: adds planner/_version.py to wheels and sdists, and leaves checkouts as they are."""
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface

    class VersionFile(BuildHookInterface):  # type: ignore[type-arg]
        def initialize(self, version: str, build_data: dict[str, Any]) -> None:
            if version == "editable" or (ROOT / "planner/_version.py").is_file():
                return
            self.folder = TemporaryDirectory()  # as long as the build
            stated = Path(self.folder.name) / "_version.py"
            stated.write_text(f'__version__ = "{self.metadata.version}"\n', encoding="utf-8")
            build_data["force_include"][str(stated)] = "planner/_version.py"

    return VersionFile


if __name__ == "__main__":
    print(version())
