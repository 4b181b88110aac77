"""Lets code that was written for a GPU run on tensors of the CPU or the meta device.

For workers only: what is replaced is replaced for the whole process.
"""

from __future__ import annotations

import contextlib
import math
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any, NoReturn
from unittest.mock import patch

import numpy as np
import torch
import triton.testing
from torch import Tensor
from torch.overrides import TorchFunctionMode
from triton.runtime.driver import driver

from bindings.backends.interpreter import ALIGNMENT, GUARD_VALUE
from compare.code import triton_offline
from compare.code.architectures import REGISTERS_PER_SM, WARP_SIZE, Architecture
from compare.code.triton_offline import TritonLaunch
from compare.errors import CodegenUnavailable, UnavailableError

# Wide, because strides are: one wrong row of a matrix still ends in the margin.
MARGIN_BYTES = 64 * 1024

_CUDA = torch.device("cuda", 0)
_CUDA_NAME = re.compile(r"cuda(:\d+)?")
# Any: the types of its attributes are not declared.
_TENSOR: Any = Tensor
_FACTORIES = {
    *("empty", "empty_like", "empty_strided", "empty_permuted", "zeros", "zeros_like"),
    *("ones", "ones_like", "full", "full_like", "new_empty", "new_empty_strided"),
    *("new_zeros", "new_ones", "new_full", "clone"),
}
_NEEDS_A_GPU = (
    *("Event", "CUDAGraph", "graph", "make_graphed_callables", "ExternalStream"),
    *("mem_get_info", "memory_allocated", "max_memory_allocated", "memory_reserved"),
    *("memory_stats", "memory_snapshot", "utilization", "temperature", "clock_rate"),
    *("cudart", "caching_allocator_alloc", "MemPool"),
)


@dataclass
class GuardedTensor:
    """A tensor between margins that nobody may write to.

    Attributes:
        name: What a reader calls it.
        tensor: It, in memory of its own.
        memory: One dimension of bytes: a margin, the tensor, and a margin.
        span: The part of that from the tensor's first element to its last.
    """

    name: str
    tensor: Tensor
    memory: np.ndarray[Any, np.dtype[np.uint8]]
    span: slice

    @classmethod
    def of(cls, name: str, tensor: Tensor) -> GuardedTensor:
        """Copies a tensor, with what lies between its elements.

        It lies as far from a multiple of 64 bytes as the original does.
        """
        span = _span(tensor)
        size = 2 * (MARGIN_BYTES + ALIGNMENT) + len(span)
        memory = np.empty(size, np.uint8)
        shift = tensor.data_ptr() - memory.ctypes.data - MARGIN_BYTES
        start = MARGIN_BYTES + shift % ALIGNMENT
        place = slice(start, start + len(span))
        memory[: place.start] = memory[place.stop :] = GUARD_VALUE
        if not len(span):
            return cls(name, tensor.detach().clone(), memory, place)
        memory[place] = span.numpy()
        # The storage is the span alone, as that of a tensor usually is.
        copy = torch.frombuffer(memory.data[place], dtype=torch.uint8)
        copy = copy.view(tensor.dtype).as_strided(tensor.shape, tensor.stride())
        return cls(name, copy, memory, place)

    def fault(self) -> str:
        """Where the margins were written, for a sentence; empty if nowhere."""
        behind = np.flatnonzero(self.memory[self.span.stop :] != GUARD_VALUE)
        if behind.size:
            return f"up to {_bytes(int(behind[-1]) + 1)} past the end of {self.name}"
        before = np.flatnonzero(self.memory[: self.span.start] != GUARD_VALUE)
        if before.size:
            distance = self.span.start - int(before[0])
            return f"up to {_bytes(distance)} before the start of {self.name}"
        return ""


class PretendedGpu(TorchFunctionMode):
    """While it is active tensors are on "cuda:0", for all that the code can tell.

    Whoever asks for that device gets the real one. Memory that is allocated on the CPU
    lies between margins; as long as nothing has been written there it is NaN or the
    largest integer.

    Attributes:
        launches: Of kernels that Triton compiles. They are recorded, and not made.
        allocated: The memory.
    """

    def __init__(self, path: Path, device: str, launches: list[TritonLaunch]) -> None:
        """Takes the user's file and the real device of the tensors."""
        super().__init__()
        self.launches = launches
        self.allocated: list[GuardedTensor] = []
        self._path = path
        self._device = torch.device(device)
        self._is_paused = False

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Torch is itself here, for code that is not the user's."""
        self._is_paused = True
        try:
            yield
        finally:
            self._is_paused = False

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Calls a function of torch, or reads an attribute of a tensor."""
        kwargs = kwargs or {}
        if self._is_paused:
            return func(*args, **kwargs)
        if func in _ATTRIBUTES:
            is_on_gpu = args[0].device.type == self._device.type
            return _ATTRIBUTES[func] if is_on_gpu else func(*args, **kwargs)
        if func is _TENSOR.cuda:
            return args[0].to(self._device)
        if func is _TENSOR.to and len(args) > 1:
            args = (args[0], self._real(args[1]), *args[2:])
        if "device" in kwargs and func is not torch.device:
            kwargs = kwargs | {"device": self._real(kwargs["device"])}
        kwargs = {name: each for name, each in kwargs.items() if name != "pin_memory"}
        result = func(*args, **kwargs)
        name = getattr(func, "__name__", "")
        if name in _FACTORIES and "out" not in kwargs:
            return self._guarded(name, result)
        return result

    def _real(self, device: Any) -> Any:
        """The device that takes the GPU's place; anything else as it is."""
        return self._device if _is_gpu(device) else device

    def _guarded(self, factory: str, result: Tensor) -> Tensor:
        """What a factory has made, between margins."""
        if result.requires_grad or result.layout != torch.strided:
            return result
        if result.device.type != "cpu" or not result.numel():
            return result
        if "empty" in factory:
            _fill_unwritten(result)
        place = line_of_user(self._path)
        guarded = GuardedTensor.of(f"the tensor that {place} allocates", result)
        self.allocated.append(guarded)
        return guarded.tensor


@contextlib.contextmanager
def pretend(
    path: Path, device: str, architecture: Architecture
) -> Iterator[PretendedGpu]:
    """Has torch and Triton pretend that there is a GPU of an architecture.

    Args:
        path: The user's file, whose lines messages name.
        device: Where tensors really are, "cpu" or "meta".
        architecture: Of the GPU that is pretended.

    Raises:
        UnavailableError: Triton cannot be asked about the GPU here; or, while the
            user's code runs, it needs a real one.
    """
    with contextlib.ExitStack() as stack:
        try:
            driver = triton_offline.offline_driver(architecture, assembles=True)
            launches = stack.enter_context(driver)
        except CodegenUnavailable as error:
            raise UnavailableError(str(error)) from error
        for owner, name, stand_in in _stand_ins(path, device, architecture):
            if hasattr(owner, name):  # torch has gained some of them lately
                stack.enter_context(patch.object(owner, name, stand_in))
        yield stack.enter_context(PretendedGpu(path, device, launches))


def line_of_user(path: Path) -> str:
    """Where in the user's file the code is that calls this: "mine.py:12"."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_filename == str(path):
            return f"{path.name}:{frame.f_lineno}"
        frame = frame.f_back
    return path.name


# What tensors on the pretended GPU say, by what asks them.
_ATTRIBUTES: dict[Any, Any] = {
    _TENSOR.device.__get__: _CUDA,
    _TENSOR.is_cuda.__get__: True,
    _TENSOR.is_cpu.__get__: False,
    _TENSOR.is_meta.__get__: False,
    _TENSOR.get_device: _CUDA.index,
}


def _is_gpu(device: Any) -> bool:
    if isinstance(device, torch.device):
        return device.type == "cuda"
    if isinstance(device, str):
        return _CUDA_NAME.fullmatch(device) is not None
    return type(device) is int  # the number of a GPU


def _fill_unwritten(x: Tensor) -> None:
    if x.dtype.is_floating_point or x.dtype.is_complex:
        x.fill_(math.nan)
    elif x.dtype != torch.bool:
        x.fill_(torch.iinfo(x.dtype).max)


def _span(x: Tensor) -> Tensor:
    """The bytes from a tensor's first element to its last, gaps included."""
    n_elements = 0
    if x.numel() > 0:
        pairs = zip(x.shape, x.stride(), strict=True)
        n_elements = 1 + sum((size - 1) * stride for size, stride in pairs)
    return x.detach().as_strided((n_elements,), (1,)).view(torch.uint8)


def _stand_ins(
    path: Path, device: str, architecture: Architecture
) -> Iterator[tuple[Any, str, Any]]:
    """What is replaced: whose, which name, and by what."""
    for name, answer in _answers(architecture).items():
        yield torch.cuda, name, _always(answer)
    for name in ("device", "device_of", "stream"):
        yield torch.cuda, name, contextlib.nullcontext
    yield torch.cuda, "Stream", _Stream
    for name in _NEEDS_A_GPU:
        yield torch.cuda, name, _missing(path, f"torch.cuda.{name}")
    for name in ("do_bench", "do_bench_cudagraph"):
        yield triton.testing, name, _benchmark
    set_default_device = torch.set_default_device
    yield (
        torch,
        "set_default_device",
        lambda wanted: set_default_device(device if _is_gpu(wanted) else wanted),
    )


def _answers(architecture: Architecture) -> dict[str, Any]:
    """What functions of torch.cuda answer."""
    capability = divmod(architecture.number, 10)
    properties = SimpleNamespace(
        name=f"NVIDIA {architecture.device.partition(',')[0]}",
        major=capability[0],
        minor=capability[1],
        multi_processor_count=architecture.multiprocessors,
        warp_size=WARP_SIZE,
        max_threads_per_multi_processor=architecture.max_warps_per_sm * WARP_SIZE,
        regs_per_multiprocessor=REGISTERS_PER_SM,
        shared_memory_per_block=48 * 1024,
        shared_memory_per_block_optin=architecture.max_shared_bytes,
        shared_memory_per_multiprocessor=architecture.shared_bytes_per_sm,
    )
    nothing = (
        *("synchronize", "set_device", "init", "empty_cache", "manual_seed"),
        *("manual_seed_all", "reset_peak_memory_stats"),
    )
    return dict.fromkeys(nothing) | {
        "is_available": True,
        "is_bf16_supported": True,
        "device_count": 1,
        "current_device": _CUDA.index,
        "get_device_properties": properties,
        "get_device_capability": capability,
        "get_device_name": properties.name,
        "is_current_stream_capturing": False,
        "current_stream": _Stream(),
        "default_stream": _Stream(),
    }


def _always(answer: Any) -> Callable[..., Any]:
    return lambda *args, **kwargs: answer


def _missing(path: Path, name: str) -> Callable[..., NoReturn]:
    def missing(*args: Any, **kwargs: Any) -> NoReturn:
        raise UnavailableError(f"{line_of_user(path)}: needs a GPU: {name}")

    return missing


def _benchmark(function: Callable[[], Any], *args: Any, **kwargs: Any) -> Any:
    """Takes no times: an autotuner then keeps its first configuration."""
    active: Any = driver.active
    return active.get_benchmarker()(function, kwargs.get("quantiles"))


class _Stream:
    """A stream of the GPU, in which everything has been done already."""

    cuda_stream = 0
    device = _CUDA

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def synchronize(self) -> None:
        pass

    def wait_stream(self, stream: Any) -> None:
        pass

    def query(self) -> bool:
        return True


def _bytes(count: int) -> str:
    return "1 byte" if count == 1 else f"{count} bytes"
