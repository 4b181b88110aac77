"""Where compilers' output and built modules are kept on disk, and how long.

Each edit of a kernel makes other files. What nobody has used for a month goes, so that
the folder does not grow for ever.
"""

import contextlib
import functools
import shutil
import time
from pathlib import Path

import platformdirs

_DAY_S = 24 * 3600.0
_KEPT_S = 30 * _DAY_S
_MARK = "looked-through"  # touched when all was last looked through


def folder_of(kind: str) -> Path:
    """The folder of a kind of files, which need not be there."""
    return _root() / kind


def forget_unused() -> None:
    """Removes what nobody has read or written for 30 days; looks once a day at most.

    File systems note the time of a read, most of them once a day. Where one does not,
    what is used all the time is made anew after a month.
    """
    _forget_unused_in(_root())


def _root() -> Path:
    return platformdirs.user_cache_path("twin-kernels")


@functools.cache  # a process looks once
def _forget_unused_in(root: Path) -> None:
    mark, now = root / _MARK, time.time()
    with contextlib.suppress(OSError):  # there is no folder, or it cannot be used
        if mark.exists() and now - mark.stat().st_mtime < _DAY_S:
            return
        mark.touch()
        for entry in root.glob("*/*"):
            # Somebody may hold a lock, which takes no space.
            if entry.suffix != ".lock":
                _remove_if_unused(entry, now)


def _remove_if_unused(entry: Path, now: float) -> None:
    """Removes a file, or a folder of which no file is used."""
    with contextlib.suppress(OSError):  # another process may remove it meanwhile
        files = [each for each in entry.rglob("*") if each.is_file()] or [entry]
        statuses = [each.lstat() for each in files]
        last_use = max(max(each.st_atime, each.st_mtime) for each in statuses)
        if now - last_use <= _KEPT_S:
            return
        if entry.is_dir():
            shutil.rmtree(entry)
        else:
            entry.unlink()
