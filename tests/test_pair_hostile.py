"""Broken and malicious files: one clear sentence, an exit code, and nothing left.

By default one of each kind of answer is tried. TWIN_WHOLE_BANK=1 tries all.
"""

from __future__ import annotations

import os
import re
import tempfile
import threading
from pathlib import Path

import pytest
from common import needs_interpreter
from pairs.hostile import HOSTILE, Hostile

from compare import cli

pytestmark = needs_interpreter

_IS_WHOLE = bool(os.environ.get("TWIN_WHOLE_BANK"))
# One of each kind of answer, by what says it.
_STANDING = (
    # the command line, and the description
    *("missing file", "a time limit that is no number"),
    "a description without sides",
    # what does not compile, or is refused unread
    *("a description that is no Python", "unterminated comment", "wmma"),
    "load_inline of a text made at run time",
    # the file while it is imported, and its result
    *("raise at import", "patches torch"),
    # a process that ends early, or not at all, or takes too much
    *("os._exit(0)", "segfault through ctypes", "threads without end"),
    "a flood of printf in a kernel",
    *("a reference that hangs", "a CUDA kernel that never ends"),
    # what the emulator finds, and no fault at all
    *("a device-side assert", "nothing, CUDA"),
)
_LONGEST = 1500  # characters of what is said, the compiler's words included


def _write(folder: Path, files: dict[str, str | bytes]) -> None:
    for name, content in files.items():
        path = folder / name
        if name.endswith("/"):
            path.mkdir(parents=True)
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        data = content if isinstance(content, bytes) else content.encode()
        path.write_bytes(data)


def _contents(folder: Path) -> dict[Path, bytes]:
    return {e: e.read_bytes() for e in sorted(folder.rglob("*")) if e.is_file()}


def _private_folders() -> set[str]:
    return {each for each in os.listdir(tempfile.gettempdir()) if "compare-" in each}


def test_every_exit_code_is_tried() -> None:
    codes = {each.name: each.exit_code for each in HOSTILE}
    assert {codes[name] for name in _STANDING} == {*codes.values()}


@pytest.mark.parametrize(
    "hostile",
    [each for each in HOSTILE if _IS_WHOLE or each.name in _STANDING],
    ids=lambda e: e.name.replace(" ", "-"),
)
def test_one_sentence_and_nothing_left(
    hostile: Hostile,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    _write(folder, hostile.files)
    monkeypatch.chdir(folder)
    # Folders of its own, which no other test of this machine uses meanwhile.
    private = tmp_path / "private"
    private.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(private))
    before = _contents(folder)
    threads = set(threading.enumerate())
    exit_code = cli.main(hostile.arguments)
    # What is wrong is said at once; other workers end with the program, or themselves.
    for thread in set(threading.enumerate()) - threads:
        thread.join()
    out, err = capfd.readouterr()
    assert exit_code == hostile.exit_code, out + err
    assert re.search(hostile.said, out + err), out + err
    assert "Traceback" not in out + err
    assert _contents(folder) == before
    assert _private_folders() == set()
    if hostile.exit_code > 1 and not out:  # a report says it in its place
        assert err.startswith("compare: "), err
        assert len(err) < _LONGEST, err
