"""The version of a build, of its tag or the release in preparation."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from types import ModuleType

import pytest
from conftest import RunCli
from effort import HANG_S
from pages import ROOT, text

import planner


def script(root: Path = ROOT) -> ModuleType:
    spec = importlib.util.spec_from_file_location("version_of_builds", root / "deploy/version.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def git(root: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.com", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", "-C", str(root), *identity, *arguments], check=True, capture_output=True)


def commit(root: Path) -> None:
    git(root, "commit", "--allow-empty", "-m", "change")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """The files that a build needs, without git."""
    root = tmp_path / "tree"
    for name in ("pyproject.toml", "README.md", "CHANGELOG.md", "LICENSE", "deploy/version.py"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, root / name)
    for name in ("models", "planner"):
        (root / name).mkdir()
        shutil.copy(ROOT / name / "__init__.py", root / name)
    return root


PREPARED = re.findall(
    r'^ +__version__ = "(.*)"', text(ROOT / "planner" / "__init__.py"), re.MULTILINE
)


def test_without_a_tag_it_is_the_release_in_preparation(tree: Path, tmp_path: Path) -> None:
    assert [script().version(tree)] == PREPARED
    git(tree, "init", "-q")
    commit(tree)
    assert [script().version(tree)] == PREPARED
    git(tree, "tag", "nightly")
    assert [script().version(tree)] == PREPARED
    # an unpacked tarball inside the repository of something else
    git(tmp_path, "init", "-q")
    commit(tmp_path)
    git(tmp_path, "tag", "v9.0.0")
    shutil.rmtree(tree / ".git")
    assert [script().version(tree)] == PREPARED


def test_at_a_tag_it_is_the_tag_and_afterwards_it_counts_commits(tree: Path) -> None:
    git(tree, "init", "-q")
    commit(tree)
    git(tree, "tag", "v1.2.3")
    assert script().version(tree) == "1.2.3"
    commit(tree)
    commit(tree)
    assert re.fullmatch(r"1\.2\.3\+2\.g[0-9a-f]{7,}", script().version(tree))
    git(tree, "tag", "v1.3.0rc1")
    assert script().version(tree) == "1.3.0rc1"


def build(tree: Path, kind: str) -> Path:
    pytest.importorskip("hatchling", reason="hatchling of the extra dev is not installed")
    command = [sys.executable, "-m", "hatchling", "build", "-t", kind]
    subprocess.run(command, cwd=tree, check=True, capture_output=True, timeout=HANG_S)
    (made,) = (tree / "dist").iterdir()
    return made


def test_a_wheel_states_its_tag_and_so_does_one_that_is_made_of_an_sdist(tree: Path) -> None:
    git(tree, "init", "-q")
    commit(tree)
    git(tree, "tag", "v1.2.3")
    sdist = build(tree, "sdist")
    assert not (tree / "planner" / "_version.py").exists(), "a checkout stays as it is"
    subprocess.run(["tar", "-xzf", sdist], cwd=tree.parent, check=True)
    wheel = build(tree.parent / "gangplan-1.2.3", "wheel")
    assert wheel.name == "gangplan-1.2.3-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as archive:
        assert len(archive.namelist()) == len(set(archive.namelist()))
        archive.extractall(tree.parent / "installed")
    said = subprocess.run(
        [sys.executable, "-c", "import planner; print(planner.__version__)"],
        cwd=tree.parent / "installed",
        env={"PYTHONPATH": ""},
        check=True,
        capture_output=True,
        text=True,
    )
    assert said.stdout == "1.2.3\n"


def test_the_command_says_it_and_the_changelog_is_not_ahead_of_it(cli: RunCli) -> None:
    assert cli("--version").out == f"gangplan {planner.__version__}\n"
    released = re.findall(r"^## \[(\d+)\.(\d+)\.(\d+)\]", text(ROOT / "CHANGELOG.md"), re.MULTILINE)
    newest = max(tuple(map(int, one)) for one in released)
    assert newest <= tuple(map(int, PREPARED[0].split(".")))
