"""What took long to make, such as a compiler's output, kept by the hash of its inputs.

Where the disk cannot be used, nothing is kept, and the tools run again next time.
"""

import contextlib
import hashlib
import os
import tempfile
from pathlib import Path

from bindings.disk_cache import folder_of, forget_unused


def key_of(*parts: str | bytes) -> str:
    """One name for these inputs; no two lists of parts share it."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()


def read(key: str, names: tuple[str, ...]) -> dict[str, bytes] | None:
    """The files stored under `key`, or None unless every one of them is there."""
    try:
        return {name: (_folder() / f"{key}.{name}").read_bytes() for name in names}
    except OSError:
        return None


def write(key: str, files: dict[str, bytes]) -> None:
    """Stores the files, each complete or not at all, whoever else writes them too."""
    folder = _folder()
    with contextlib.suppress(OSError):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        # In a folder of their own, which goes even when the disk is full.
        with tempfile.TemporaryDirectory(dir=folder) as temporary:
            for name, data in files.items():
                path = Path(temporary, name)
                path.write_bytes(data)
                os.replace(path, folder / f"{key}.{name}")
    forget_unused()


def remove(key: str, names: tuple[str, ...]) -> None:
    """Removes the files stored under `key`, where they are there."""
    for name in names:
        with contextlib.suppress(OSError):
            (_folder() / f"{key}.{name}").unlink()


def _folder() -> Path:
    return folder_of("codegen")
