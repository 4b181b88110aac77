"""Errors that a caller may want to tell apart from PyTorch's."""

from __future__ import annotations


class BuildError(RuntimeError):
    """A native module could not be built; the message shows what the compiler said."""


class SettingError(ValueError):
    """One of the project's environment variables has a value that makes no sense."""


class UnsupportedError(RuntimeError):
    """A backend cannot serve this call; the message says why, and what would work."""
