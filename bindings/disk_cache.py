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
    with contextlib.suppress(OSError):  # then all is kept
        if mark.exists() and now - mark.stat().st_mtime < _DAY_S:
            return
        mark.touch()
        for kind in root.iterdir():
            for entry in kind.iterdir() if kind.is_dir() else ():
                # Somebody may hold a lock, which takes no space.
                if entry.suffix != ".lock" and now - _last_use(entry) > _KEPT_S:
                    _remove(entry)


def _last_use(entry: Path) -> float:
    """When a file, or any file of a folder, was last read or written."""
    files = [each for each in entry.rglob("*") if each.is_file()] or [entry]
    statuses = [each.stat() for each in files]
    return max(max(each.st_atime, each.st_mtime) for each in statuses)


def _remove(entry: Path) -> None:
    if entry.is_dir():
        shutil.rmtree(entry, ignore_errors=True)
    else:
        entry.unlink(missing_ok=True)
