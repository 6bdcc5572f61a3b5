"""Saving: whole or not at all, with an error that names the reason."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from planner import atomic_files as saving
from planner.atomic_files import check_target, save
from planner.errors import CannotWriteError


def left_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_new_file_has_ordinary_permissions(tmp_path: Path) -> None:
    target = tmp_path / "plan.json"
    before = os.umask(0o027)
    try:
        save(target, "content\n")
    finally:
        os.umask(before)
    assert target.read_text(encoding="utf-8") == "content\n"
    # 0666 less the mask 0027
    assert stat.S_IMODE(target.stat().st_mode) == 0o640
    assert left_in(tmp_path) == ["plan.json"]


def test_an_existing_file_keeps_its_permissions_and_a_link_stays_a_link(tmp_path: Path) -> None:
    target, link = tmp_path / "plan.json", tmp_path / "latest.json"
    target.write_text("old", encoding="utf-8")
    target.chmod(0o604)
    link.symlink_to("plan.json")
    save(link, "new")
    assert link.is_symlink()
    assert target.read_text(encoding="utf-8") == "new"
    assert stat.S_IMODE(target.stat().st_mode) == 0o604


def test_what_cannot_be_written_is_73_with_a_reason(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x", encoding="utf-8")
    for target, why in (
        (tmp_path / "missing" / "plan.json", "No such file or directory"),
        (tmp_path / "file" / "plan.json", "Not a directory"),
        (tmp_path, "it is a folder"),
        (tmp_path / ("n" * 300), "File name too long"),
        (Path("/proc/plan.json"), "No such file or directory"),
    ):
        for act in (check_target, lambda path: save(path, "x")):
            with pytest.raises(CannotWriteError, match=why) as raised:
                act(target)
            assert raised.value.exit_code == 73
            assert raised.value.faults[0].hint
    assert left_in(tmp_path) == ["file"]


def test_a_full_disk_leaves_the_old_plan_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "plan.json"
    target.write_text("old", encoding="utf-8")

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(saving.os, "fsync", full)
    with pytest.raises(CannotWriteError, match="No space left") as raised:
        save(target, "new")
    assert "full" in (raised.value.faults[0].hint or "")
    assert target.read_text(encoding="utf-8") == "old"
    assert left_in(tmp_path) == ["plan.json"]


def test_an_interruption_leaves_nothing_half_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(_: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(saving.os, "fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        save(tmp_path / "plan.json", "new")
    assert left_in(tmp_path) == []


def _owned(user: int, mode: int) -> os.stat_result:
    return os.stat_result((mode, 0, 0, 1, user, 0, 0, 0, 0, 0))


@pytest.mark.parametrize(
    ("link", "folder", "mode", "expected"),
    [
        (1, 0, 0o1777, True),  # planted by user 1 in /tmp
        (7, 0, 0o1777, False),  # our own
        (0, 0, 0o1777, False),  # of the folder's owner
        (1, 0, 0o0777, False),  # no sticky bit: the folder is anybody's anyway
        (1, 0, 0o1775, False),  # not everybody's
    ],
)
def test_a_link_that_another_user_planted_is_known(
    link: int, folder: int, mode: int, expected: bool
) -> None:
    found = saving.planted(_owned(link, 0o120777), _owned(folder, 0o040000 | mode), 7)
    assert found is expected


def test_a_planted_link_is_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target, link = tmp_path / "target", tmp_path / "gangplan.prom"
    target.write_text("theirs", encoding="utf-8")
    link.symlink_to(target)
    tmp_path.chmod(0o1777)
    stranger = _owned(os.geteuid() + 1, 0o120777)
    monkeypatch.setattr(Path, "lstat", lambda _: stranger)
    monkeypatch.setattr(Path, "is_symlink", lambda path: path == link)
    for refuse in (check_target, lambda path: save(path, "ours")):
        with pytest.raises(CannotWriteError, match="symbolic link there belongs to another user"):
            refuse(link)
    assert target.read_text(encoding="utf-8") == "theirs"
