"""The version of a build, of its tag or the release in preparation; and the Krew package."""

from __future__ import annotations

import hashlib
import importlib.util
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from types import ModuleType

import pytest
import yaml
from conftest import RunCli
from effort import HANG_S
from test_docs import ROOT, text

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


def test_without_git_it_is_the_release_in_preparation(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    git(tree, "init", "-q")
    commit(tree)
    git(tree, "tag", "v1.2.3")
    monkeypatch.setenv("PATH", "")
    assert [script().version(tree)] == PREPARED


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


def test_the_krew_package_has_a_launcher_a_wheel_and_a_manifest_with_its_checksum(
    tmp_path: Path,
) -> None:
    pytest.importorskip("hatchling", reason="hatchling of the extra dev is not installed")
    spec = importlib.util.spec_from_file_location("krew_package", ROOT / "deploy/krew/package.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    manifest = yaml.safe_load(text(module.package("https://files.example.com/gangplan/", tmp_path)))
    (archive,) = tmp_path.glob("*.tar.gz")
    version = archive.name.removeprefix("gangplan-krew-").removesuffix(".tar.gz")
    assert manifest["spec"]["version"] == f"v{version}"
    for platform in manifest["spec"]["platforms"]:
        assert platform["uri"] == f"https://files.example.com/gangplan/{archive.name}"
        assert platform["sha256"] == hashlib.sha256(archive.read_bytes()).hexdigest()
    plugin = tmp_path / "plugin"
    plugin.mkdir()
    subprocess.run(["tar", "-xzf", archive], cwd=plugin, check=True)
    wheel = f"gangplan-{version}-py3-none-any.whl"
    assert {one.name for one in (tmp_path / "plugin").iterdir()} == {
        "kubectl-gangplan",
        "LICENSE",
        wheel,
    }
    # uv as far as the launcher sees it: it fails once, and then installs a program that says what it is given
    (tmp_path / "uv").write_text(
        """#!/bin/sh
[ -e "$MARK" ] || { touch "$MARK"; exit 1; }
[ "$1" = venv ] && { for home; do :; done; mkdir -p "$home/bin"; exit; }
bin=$(dirname "$5")
printf '#!/bin/sh\necho "$@"\n' > "$bin/kubectl-gangplan"; chmod +x "$bin/kubectl-gangplan"
"""
    )
    (tmp_path / "uv").chmod(0o755)
    environ = {
        "PATH": f"{tmp_path}:/usr/bin:/bin",
        "HOME": str(tmp_path),
        "MARK": str(tmp_path / "mark"),
    }

    def call() -> tuple[int, str, str]:
        launcher = str(tmp_path / "plugin" / "kubectl-gangplan")
        run = subprocess.run(
            [launcher, "plan", "a b"], env=environ, capture_output=True, text=True, check=False
        )
        return run.returncode, run.stdout, run.stderr

    home = tmp_path / ".local/share/gangplan" / wheel.removesuffix(".whl")
    failed, first, second = call(), call(), call()
    assert failed[0] == 69
    assert "error: cannot install gangplan: uv failed\nhint: " in failed[2]
    assert first == (0, "plan a b\n", f"installing gangplan into {home} (once)\n")
    assert second == (0, "plan a b\n", "")
