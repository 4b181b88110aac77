"""Triton kernels on CPU tensors, run by Triton's interpreter in its own process.

Triton decides when a kernel is imported whether it is compiled or interpreted, so one
process cannot do both; and a store out of bounds corrupts the process it happens in.
Hence one worker process, started by the first call and kept for later ones. Tensors
travel both ways in shared memory, everything else through a pipe.

TWIN_INTERPRETER_TIMEOUT sets how many seconds a call may take; the default is 600.
"""

from __future__ import annotations

import atexit
import functools
import importlib.metadata
import importlib.util
import math
import mmap
import os
import signal
import subprocess
import sys
import tempfile
import threading
from dataclasses import dataclass
from multiprocessing.connection import Connection, Pipe
from multiprocessing.reduction import send_handle
from typing import Any, NamedTuple

import torch
from torch import Tensor

from bindings import child_process
from bindings.errors import SettingError, UnsupportedError
from bindings.op import Argument
from bindings.sources import ROOT

DEFAULT_TIMEOUT_S = 600.0

# A tensor's offset from a multiple of this, a cache line, decides how a kernel may read
# it, so the worker sees each tensor at the same offset.
ALIGNMENT = 64

# Guard bytes between the tensors must not be written. All ones is NaN in every float
# format, so a read out of bounds shows in the result.
GUARD_BYTES = 4096
GUARD_VALUE = 0xFF


def run(
    op: str,
    arguments: tuple[Argument, ...],
    package: str = "triton_kernels",
    source: str = "",
) -> None:
    """Runs the bare Triton launcher <package>.<source or op>.<op> on CPU tensors.

    Tensors that the kernel changes are changed in place, as if it had run here.

    Raises:
        UnsupportedError: The interpreter cannot serve this call, or cannot run in this
            environment.
        SettingError: TWIN_INTERPRETER_TIMEOUT is not a positive number of seconds.
        TimeoutError: The call took longer than TWIN_INTERPRETER_TIMEOUT.
        RuntimeError: The kernel raised, wrote out of bounds, or ended the worker.
    """
    for argument in arguments:
        reason = isinstance(argument, Tensor) and unsupported_reason(argument.dtype)
        if reason:
            raise UnsupportedError(f"{op}: {reason}")
    timeout_s = _timeout_s()
    layout = _Layout.of(arguments)
    memory_file = _anonymous_file()
    try:
        os.ftruncate(memory_file, layout.size)
        # The tensor keeps the mapping alive.
        memory = torch.frombuffer(
            mmap.mmap(memory_file, layout.size), dtype=torch.uint8
        )
        layout.write(memory)
        request = Request(
            f"{package}.{source or op}", op, layout.size, layout.arguments
        )
        with _lock:
            error = _running_worker().call(request, memory_file, timeout_s)
    finally:
        os.close(memory_file)
    if error is not None:
        raise RuntimeError(f"{op}: {error}")
    layout.check_guards(op, memory)
    layout.read_back(memory)


def unsupported_reason(dtype: torch.dtype) -> str | None:
    """Returns why tensors of a dtype cannot be interpreted here; None if they can."""
    if dtype == torch.bfloat16:
        return (
            "Triton's interpreter computes on the bits of bfloat16 as if they were "
            "integers and gets it wrong: use float32 or float16, or a CUDA tensor"
        )
    return _unsupported_environment()


@functools.cache
def _unsupported_environment() -> str | None:
    for package in ("triton", "numpy"):
        if importlib.util.find_spec(package) is None:
            return (
                f"{package} is not installed, and Triton's interpreter needs it: "
                f"{sys.executable} -m pip install {package}"
            )
    triton_version = importlib.metadata.version("triton")
    numpy_version = importlib.metadata.version("numpy")
    if _release(triton_version) < (3, 7) and _release(numpy_version) >= (2, 4):
        return (
            f"the interpreter of triton {triton_version} fails on loops under numpy "
            f"{numpy_version}: {sys.executable} -m pip install 'numpy<2.4'"
        )
    return None


def _release(version: str) -> tuple[int, int]:
    major, minor = version.split(".")[:2]
    return int(major), int(minor)


def _timeout_s() -> float:
    text = os.environ.get("TWIN_INTERPRETER_TIMEOUT", str(DEFAULT_TIMEOUT_S))
    try:
        timeout_s = float(text)
    except ValueError:
        timeout_s = math.nan
    if not 0 < timeout_s < math.inf:
        raise SettingError(
            f"TWIN_INTERPRETER_TIMEOUT is {text!r}, expected a number of seconds"
        )
    return timeout_s


class SharedTensor(NamedTuple):
    """A tensor in the shared memory, as the worker needs it described."""

    start: int  # in bytes
    end: int
    dtype: torch.dtype
    shape: tuple[int, ...]
    strides: tuple[int, ...]


class Request(NamedTuple):
    """A call, as it is sent to the worker."""

    module: str
    op: str
    memory_size: int
    arguments: tuple[SharedTensor | int | float | None, ...]


@dataclass
class _Worker:
    """The process that interprets, and the pipe to it."""

    process: subprocess.Popen[bytes]
    connection: Connection[Any, Any]

    @classmethod
    def start(cls) -> _Worker:
        """Starts the process, which answers after a second or two."""
        ours, theirs = Pipe()
        process = subprocess.Popen(
            child_process.command(
                "bindings.backends.interpreter_worker", str(theirs.fileno())
            ),
            env=child_process.environment({"TRITON_INTERPRET": "1"}),
            cwd=ROOT,
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            # A kernel's prints must not end up between the lines of a JSON report.
            stdout=2,
            # Ctrl-C must reach only the caller, which then ends the worker.
            start_new_session=True,
        )
        theirs.close()
        return cls(process, ours)

    def is_alive(self) -> bool:
        """Whether the process can take a call."""
        return self.process.poll() is None

    def kill(self) -> None:
        """Ends the process."""
        self.process.kill()
        self.process.wait()

    def call(self, request: Request, memory_file: int, timeout_s: float) -> str | None:
        """Runs one call in the worker; returns the kernel's error message, or None."""
        try:
            self.connection.send(request)
            send_handle(self.connection, memory_file, self.process.pid)
            if not self.connection.poll(timeout_s):
                raise TimeoutError(
                    f"{request.op}: not done in Triton's interpreter after "
                    f"{timeout_s:g} s; the environment variable "
                    "TWIN_INTERPRETER_TIMEOUT sets how many seconds it may take"
                )
            error: str | None = self.connection.recv()
        except (EOFError, ConnectionError):
            raise RuntimeError(f"{request.op}: {self._cause_of_death()}") from None
        except BaseException:
            self.kill()  # still at work, or with half an answer in the pipe
            raise
        return error

    def _cause_of_death(self) -> str:
        status = self.process.wait()
        how = f"ended with status {status}"
        if status < 0:
            how = f"was killed by {signal.Signals(-status).name}"
        if -status in (signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT):
            how += ": the kernel accessed memory that is not its own"
        return (
            f"the process of Triton's interpreter {how}; its output is on stderr; "
            "the next call starts another"
        )


@dataclass
class _Layout:
    """The places of a call's arguments in the shared memory."""

    arguments: tuple[SharedTensor | int | float | None, ...]
    size: int
    originals: list[tuple[SharedTensor, Tensor]]

    @classmethod
    def of(cls, arguments: tuple[Argument, ...]) -> _Layout:
        """Places all tensors, each as far from a multiple of 64 bytes as it is now."""
        placed: list[SharedTensor | int | float | None] = []
        originals = []
        end = 0
        for argument in arguments:
            if not isinstance(argument, Tensor):
                placed.append(argument)
                continue
            span = _span(argument)
            start = _round_up(end) + GUARD_BYTES + argument.data_ptr() % ALIGNMENT
            end = start + span.numel()
            shared = SharedTensor(
                start, end, argument.dtype, tuple(argument.shape), argument.stride()
            )
            placed.append(shared)
            originals.append((shared, span))
        return cls(tuple(placed), _round_up(end) + GUARD_BYTES, originals)

    def write(self, memory: Tensor) -> None:
        """Copies the tensors into the shared memory and writes guards around them."""
        for start, end in self._gaps():
            memory[start:end].fill_(GUARD_VALUE)
        for shared, original in self.originals:
            memory[shared.start : shared.end].copy_(original)

    def read_back(self, memory: Tensor) -> None:
        """Copies the changed bytes back into the original tensors."""
        # Tensors may overlap, as the halves of one do, and one argument's old bytes
        # must not undo what was written to another. So only changed bytes are copied,
        # and all tensors are compared before any is copied.
        found = []
        for shared, original in self.originals:
            result = memory[shared.start : shared.end]
            if not torch.equal(original, result):
                found.append((original, result, original != result))
        for original, result, has_changed in found:
            torch.where(has_changed, result, original, out=original)

    def check_guards(self, op: str, memory: Tensor) -> None:
        """Raises RuntimeError if a byte between the tensors was written."""
        for i, (start, end) in enumerate(self._gaps()):
            stray = torch.nonzero(memory[start:end] != GUARD_VALUE).flatten()
            if stray.numel() == 0:
                continue
            first, last = int(stray[0]), int(stray[-1])
            is_behind = i > 0 and first < end - start - last
            if is_behind or i == len(self.originals):
                where = f"{first} bytes past the end of tensor {i - 1}"
            else:
                where = f"{end - start - first} bytes before the start of tensor {i}"
            raise RuntimeError(
                f"{op}: the Triton kernel wrote out of bounds, {where} of its arguments"
            )

    def _gaps(self) -> list[tuple[int, int]]:
        starts = [0, *(shared.end for shared, _ in self.originals)]
        ends = [*(shared.start for shared, _ in self.originals), self.size]
        return list(zip(starts, ends, strict=True))


def _span(x: Tensor) -> Tensor:
    """The bytes from a tensor's first element to its last, gaps included."""
    n_elements = 0
    if x.numel() > 0:
        pairs = zip(x.shape, x.stride(), strict=True)
        n_elements = 1 + sum((size - 1) * stride for size, stride in pairs)
    return x.detach().as_strided((n_elements,), (1,)).view(torch.uint8)


def _anonymous_file() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("twin-kernels")
    # A Python built for old systems lacks memfd_create; an unnamed file does the same.
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def _round_up(n_bytes: int) -> int:
    return -(-n_bytes // ALIGNMENT) * ALIGNMENT


_worker: _Worker | None = None
_lock = threading.Lock()


def _running_worker() -> _Worker:
    global _worker
    if _worker is not None and not _worker.is_alive():
        _worker.connection.close()
        _worker = None
    if _worker is None:
        _worker = _Worker.start()
    return _worker


@atexit.register
def _stop_worker() -> None:
    # Without the lock: a thread may still hold it, for a call that ends here.
    if _worker is not None and _worker.is_alive():
        _worker.kill()


def _forget_worker() -> None:
    """Forgets, in a forked process, the worker and the lock, which are the parent's."""
    global _worker, _lock
    if _worker is not None:
        # A pipe left open here would keep the worker alive after its parent has ended.
        _worker.connection.close()
        _worker.process.returncode = 0  # not our child, so not ours to wait for
        _worker = None
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_forget_worker)
