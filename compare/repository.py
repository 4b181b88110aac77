"""The checkout that this code lies in, and what git knows of it.

Nothing here imports torch, which takes seconds.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# Only a checkout has it: an installed package keeps no records.
RECORDS = ROOT / "records"

# The sources that a record's hash covers, and the file with the compilers' flags.
_KERNELS = ("csrc", ":!csrc/emulator", "triton_kernels", "bindings/sources.py")


def commit() -> str | None:
    """The checkout's commit, such as "518d24be8e9d", with a "+" if files differ."""
    if (head := _git("rev-parse", "HEAD")) is None:
        return None
    # Files that a record writes change nothing that was measured.
    written = (":!records", ":!README.md", ":!docs")
    changes = _git("status", "--porcelain", "--", ".", *written)
    return head[:12] + ("+" if changes else "")


def has_commit(name: str) -> bool | None:
    """Whether the repository has a commit; None where there is no git to ask."""
    if _git("rev-parse", "HEAD") is None:
        return None
    name = name.removesuffix("+")
    is_hash = re.fullmatch("[0-9a-f]+", name) is not None
    return is_hash and _git("cat-file", "-e", f"{name}^{{commit}}") is not None


def changed_kernels() -> list[str]:
    """The kernel sources that differ from the commit; none where there is no git."""
    changed = _git("diff", "--name-only", "HEAD", "--", *_KERNELS) or ""
    added = _git("ls-files", "--others", "--exclude-standard", "--", *_KERNELS) or ""
    return sorted({*changed.splitlines(), *added.splitlines()})


def _git(*arguments: str) -> str | None:
    """The output of git; None where it fails, or there is none."""
    git = shutil.which("git")
    # Without a .git of its own this is an installed package, in whose folder git would
    # answer for whatever repository lies above.
    if git is None or not (ROOT / ".git").exists():
        return None
    done = subprocess.run(
        [git, "-C", str(ROOT), *arguments], capture_output=True, text=True, check=False
    )
    return done.stdout.strip() if done.returncode == 0 else None
