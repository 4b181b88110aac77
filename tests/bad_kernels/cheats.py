"""What makes a harness see a right result that was not computed in time, or at all."""

from __future__ import annotations

import threading
from typing import Any

import torch
from torch import Tensor

from bad_kernels.catalogue import bad_kernel

harness_is_done = threading.Event()  # set by the test


@bad_kernel("PyTorch computes something else than before: the largest error is")
def replaces_the_reference(out: Tensor, x: Tensor, approximate: str) -> None:
    """Is right now; from the next case on zeros would be the expected result."""
    out.copy_(torch.nn.functional.gelu(x, approximate=approximate))

    def zeros(x: Tensor, **params: Any) -> Tensor:
        return torch.zeros_like(x)

    # The test puts it back.
    torch.nn.functional.gelu = zeros  # type: ignore[assignment]


@bad_kernel("335 of 335 elements were not written")
def thread_that_works_later(out: Tensor, x: Tensor, approximate: str) -> None:
    """Returns before the work has begun; whoever waits long enough finds it done."""

    def work() -> None:
        harness_is_done.wait()
        out.copy_(torch.nn.functional.gelu(x))

    threading.Thread(target=work, daemon=True).start()


@bad_kernel("335 of 335 elements are NaN and should not be")
def finds_the_result_in_freed_memory(out: Tensor, x: Tensor, approximate: str) -> None:
    """Takes what a reference computed just before might have left behind."""
    out.copy_(torch.empty_like(out))
