"""The two ways in which generated code cannot be had."""


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
