"""Which files of the project a site has: those that something in it links to."""

from __future__ import annotations

import posixpath
from pathlib import Path

from compare.repository import ROOT

# A browser shows these as they are.
_COPIED = (".json", ".png", ".svg", ".txt")
# All that lies in these is shown, once a folder of it is; of other folders the names.
_SHOWN = ("csrc", "triton_kernels")
_UNSEEN = ("__pycache__",)


class Files:
    """The files and folders that have been linked to."""

    def __init__(self) -> None:
        """Starts without any."""
        # By path from the project's root, in the order in which they were met.
        self.linked: dict[str, None] = {}

    def address(self, path: str) -> str:
        """Where the site, from its root, has a path of the project, from that root.

        Raises:
            FileNotFoundError: The project has no such thing.
        """
        path = posixpath.normpath(path)
        file = ROOT / path
        if path.startswith("..") or not file.exists():
            raise FileNotFoundError(f"a link leads to {path}, which is not there")
        self.linked.setdefault(path)
        if file.is_dir():
            return f"source/{path}/index.html"
        if file.suffix == ".md":
            return path.removesuffix(".md") + ".html"
        return path if is_copied(path) else f"source/{path}.html"

    def entries(self, path: str) -> list[tuple[str, str]]:
        """The names in a folder, with the addresses of those that the site has."""
        names = sorted(
            f"{each.name}{'/' * each.is_dir()}"
            for each in (ROOT / path).iterdir()
            if not each.name.startswith((".", *_UNSEEN)) and each.suffix != ".so"
        )
        return [(name, self._address_of_entry(f"{path}/{name}")) for name in names]

    def _address_of_entry(self, path: str) -> str:
        path = path.removesuffix("/")
        is_shown = path.partition("/")[0] in _SHOWN or path in self.linked
        return self.address(path) if is_shown else ""


def is_copied(path: str) -> bool:
    """Whether it goes into the site as it is."""
    return Path(path).suffix in _COPIED


def relative(address: str, page: str) -> str:
    """An address as a link on a page, both from the site's root."""
    where, hash_, fragment = address.partition("#")
    return posixpath.relpath(where, posixpath.dirname(page) or ".") + hash_ + fragment
