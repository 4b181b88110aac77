"""What compilers and disassemblers wrote, kept on disk by the hash of their inputs."""

import hashlib
import os
import tempfile
from pathlib import Path

import platformdirs

from compare.codegen.errors import CodegenUnavailable


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
    except FileNotFoundError:
        return None


def write(key: str, files: dict[str, bytes]) -> None:
    """Stores the files, each complete or not at all, whoever else writes them too."""
    folder = _folder()
    for name, data in files.items():
        with tempfile.NamedTemporaryFile(dir=folder, delete=False) as file:
            file.write(data)
        os.replace(file.name, folder / f"{key}.{name}")


def _folder() -> Path:
    folder = Path(platformdirs.user_cache_dir("twin-kernels")) / "codegen"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise CodegenUnavailable(
            f"the cache folder cannot be made ({error})",
            "set XDG_CACHE_HOME to a folder that can be written",
        ) from error
    return folder
