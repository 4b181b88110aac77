"""What the GPU is that tensors are on; the emulator stands for an H200."""

from __future__ import annotations

import torch
from torch import Tensor


def count_sms(x: Tensor) -> int:
    """The multiprocessors of the GPU that x is on."""
    if not x.is_cuda:
        return 132
    return int(torch.cuda.get_device_properties(x.device).multi_processor_count)


def is_hopper(x: Tensor) -> bool:
    """Whether x is on a GPU of the Hopper architecture."""
    return not x.is_cuda or torch.cuda.get_device_capability(x.device)[0] == 9
