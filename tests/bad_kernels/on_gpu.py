"""What only goes wrong where the host does not wait for the kernel."""

from __future__ import annotations

import threading

import torch
from torch import Tensor
from torch.nn.functional import gelu

from bad_kernels.catalogue import bad_kernel


@bad_kernel("on a stream whose inputs come late: 335 of", devices=("cuda",))
def new_stream(out: Tensor, x: Tensor, approximate: str) -> None:
    """Launches on a stream of its own, which waits for nobody."""
    with torch.cuda.stream(torch.cuda.Stream()):
        out.copy_(gelu(x))


@bad_kernel("on a stream whose inputs come late: 335 of", devices=("cuda",))
def default_stream(out: Tensor, x: Tensor, approximate: str) -> None:
    """Launches on stream 0, as `<<<grid, block>>>` does."""
    with torch.cuda.stream(torch.cuda.default_stream()):
        out.copy_(gelu(x))


@bad_kernel("on a stream whose inputs come late: 335 of", devices=("cuda",))
def other_thread(out: Tensor, x: Tensor, approximate: str) -> None:
    """Launches from a thread, which has a current stream of its own."""
    thread = threading.Thread(target=lambda: out.copy_(gelu(x)))
    thread.start()
    thread.join()


@bad_kernel("the call waits for the GPU", devices=("cuda",))
def synchronizes_the_device(out: Tensor, x: Tensor, approximate: str) -> None:
    """Waits, so that an error shows where it was made; and so does everything else."""
    out.copy_(gelu(x))
    torch.cuda.synchronize()


@bad_kernel("the call waits for the GPU", devices=("cuda",))
def reads_a_value_on_the_host(out: Tensor, x: Tensor, approximate: str) -> None:
    """Asks for the maximum before it decides how to launch."""
    scale = 2.0 if x.amax().item() > 1e4 else 1.0
    out.copy_(gelu(x * scale) / scale)
