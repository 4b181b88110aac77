"""What nobody uses does not stay on disk for ever."""

import os
import time
from pathlib import Path

import pytest

from bindings import disk_cache

DAY_S = 24 * 3600


def made(path: Path, *, unused_days: float) -> Path:
    """A file that was last used so long ago."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("x")
    when = time.time() - unused_days * DAY_S
    os.utime(path, (when, when))
    return path


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "twin-kernels"


def test_what_was_not_used_for_a_month_goes(root: Path) -> None:
    old = made(root / "codegen/old.ptx", unused_days=31)
    new = made(root / "codegen/new.ptx", unused_days=29)
    lock = made(root / "inline/old.lock", unused_days=31)
    old_folder = made(root / "pairs-triton/old/kernel.ptx", unused_days=31).parent
    # A folder is used as a whole.
    other = made(root / "inline/headers/unused.h", unused_days=31)
    made(root / "inline/headers/used.h", unused_days=1)

    disk_cache.forget_unused()
    assert not old.exists()
    assert not old_folder.exists()
    assert new.exists()
    assert lock.exists()
    assert other.exists()


def test_what_cannot_be_removed_keeps_nothing_else(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = [made(root / f"codegen/{each}.ptx", unused_days=31) for each in range(4)]
    unlink = Path.unlink

    def unlink_others(path: Path) -> None:
        if path in old[:2]:
            raise PermissionError(path)
        unlink(path)

    monkeypatch.setattr(Path, "unlink", unlink_others)
    disk_cache.forget_unused()
    assert [each.exists() for each in old] == [True, True, False, False]


def test_a_read_is_a_use(root: Path) -> None:
    path = made(root / "codegen/old.ptx", unused_days=31)
    os.utime(path, (time.time(), path.stat().st_mtime))
    disk_cache.forget_unused()
    assert path.exists()


@pytest.mark.parametrize(("days", "is_kept"), [(0.5, True), (1.5, False)])
def test_all_is_looked_through_once_a_day(
    root: Path, days: float, is_kept: bool
) -> None:
    made(root / "looked-through", unused_days=days)
    path = made(root / "codegen/old.ptx", unused_days=31)
    disk_cache.forget_unused()
    assert path.exists() is is_kept


def test_a_folder_that_is_not_there_is_no_error(root: Path) -> None:
    disk_cache.forget_unused()
    assert not root.exists()
