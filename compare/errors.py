"""Why a command ends early, and with what exit code."""

from __future__ import annotations

EXIT_OK = 0
EXIT_FOUND = 1  # parity failed, a fault was found, a record is of older code
EXIT_INTERNAL_ERROR = 70
EXIT_INTERRUPTED = 130


class CompareError(Exception):
    """The command cannot go on; the message is one clear sentence for the user."""

    exit_code = 1


class UsageError(CompareError):
    """The request makes no sense."""

    exit_code = 2


class UnavailableError(CompareError):
    """This environment cannot do it; the message says what mends that."""

    exit_code = 3


class BuildFailedError(CompareError):
    """A compiler refused the sources."""

    exit_code = 4


class CodegenUnavailable(Exception):  # noqa: N818 (a state of the machine, not a fault)
    """This environment cannot generate or read the code of one side."""

    def __init__(self, reason: str, remedy: str) -> None:
        """Says what is missing and what mends it, each without a final full stop."""
        super().__init__(f"{reason}; {remedy}")
        self.reason = reason
        self.remedy = remedy


class CompilationFailed(Exception):  # noqa: N818 (reads as what happened)
    """A compiler refused a kernel."""

    def __init__(self, message: str, log: str) -> None:
        """Keeps the sentence for the user and, apart from it, the compiler's words."""
        super().__init__(message)
        self.log = log


class SimulationFault(RuntimeError):  # noqa: N818 (as the emulator's, of a kernel)
    """A kernel that was simulated did what it must not, or what is not known."""
