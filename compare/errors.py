"""Why a command ends early, and with what exit code."""

from __future__ import annotations


class CompareError(Exception):
    """The command cannot go on; the message is one clear sentence for the user."""

    exit_code = 1


class UsageError(CompareError):
    """What was asked for makes no sense."""

    exit_code = 2


class UnavailableError(CompareError):
    """This environment cannot do it; the message says what mends that."""

    exit_code = 3


class BuildFailedError(CompareError):
    """A compiler refused the sources."""

    exit_code = 4
