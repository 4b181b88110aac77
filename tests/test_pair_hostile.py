"""Broken and malicious files: one clear sentence, an exit code, and nothing left.

By default every third is tried. TWIN_WHOLE_BANK=1 tries all.
"""

from __future__ import annotations

import os
import re
import tempfile
import threading
from pathlib import Path

import pytest
from conftest import needs_interpreter
from pairs.hostile import HOSTILE, Hostile

from compare import cli

pytestmark = needs_interpreter

_STEP = 1 if os.environ.get("TWIN_WHOLE_BANK") else 3
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


@pytest.mark.parametrize(
    "hostile", HOSTILE[::_STEP], ids=lambda e: e.name.replace(" ", "-")
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
