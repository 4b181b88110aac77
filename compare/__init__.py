"""The microscope: puts two implementations side by side, the project's or one's own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

    from compare.pairs.own_report import OwnReport


def pair(
    *files: str,
    cuda: str = "",
    triton: str = "",
    inputs: str | Tensor | Sequence[Any] | Callable[..., Any] = "",
    reference: str | Callable[..., Any] = "",
    arch: str = "",
    time_limit: float = 120,
    times: bool = False,
) -> OwnReport:
    """Compares one's own kernels, as `python -m compare FILE FILE` does.

    The files run in processes of their own, under limits; `inputs` and `reference` run
    here, unless they are texts.

    Args:
        files: One or two, such as "old.cu" and "new.cu:softmax", or a description.
        cuda: A .cu file, in place of the first of them.
        triton: A .py file, in place of the second.
        inputs: Arguments to call the functions with: tensors on the CPU and numbers; a
            function of a torch.Generator that returns them; or an expression in torch's
            names, such as "randn(1823, 781)".
        reference: What the functions should compute, as a function or as --reference
            takes it. Without one, the two are held to each other.
        arch: The architecture to generate code for, such as "sm_80".
        time_limit: Seconds that a process may take.
        times: Whether they also run on the GPU, if there is one, and are timed there in
            turns with the reference.

    Returns:
        The report. A notebook shows its page; `assert_parity()` is for tests.

    Raises:
        CompareError: It cannot be done; the message says why.
    """
    # Imported here, because `python -m compare --help` imports this module, too.
    from compare.pairs import python_interface

    words = [*files, *filter(None, (cuda, triton))]
    return python_interface.compare_files(
        words, inputs, reference, arch, time_limit, times
    )
