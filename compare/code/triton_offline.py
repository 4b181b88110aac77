"""Compiles what a Triton launcher would launch, for a GPU that need not be there.

The launcher runs as it is, on tensors that are on no GPU, under a driver that records
every launch and makes none. So it compiles exactly the specialisation that these
shapes, strides and alignments get at run time. All use of what Triton does not promise
to keep is in this file and in triton_assembler; tests/test_code_triton.py pins it.
"""

import contextlib
import functools
import io
import itertools
import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
import triton
from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.backends.driver import DriverBase
from triton.backends.nvidia.compiler import CUDABackend
from triton.errors import TritonError
from triton.runtime import JITFunction
from triton.runtime.driver import driver

from compare.code import cache, tools
from compare.code.architectures import (
    ARCHITECTURES,
    MAX_THREADS_PER_BLOCK,
    REGISTERS_PER_SM,
    WARP_SIZE,
    Architecture,
)
from compare.code.planned import PlannedLaunch
from compare.code.tensor_descriptors import Box
from compare.code.triton_assembler import (
    assembled_by,
    assembler_of,
    stopped_at_ptx,
)
from compare.errors import CodegenUnavailable, CompilationFailed

_Device = tuple[int, Path, bool]  # architecture, assembler, whether it is run

# Triton has one driver for the whole process. It is Any, because what is asked of it
# below is more than Triton declares.
_driver: Any = driver
_one_at_a_time = threading.RLock()


@dataclass(frozen=True)
class TritonLaunch:
    """A launch that was recorded, and what Triton compiled for it."""

    compiled: Any  # triton.compiler.CompiledKernel, whose metadata is untyped
    kernel: str  # the entry in the PTX
    title: str  # the kernel with the constants that it was compiled for
    grid: tuple[int, int, int]
    block: tuple[int, int, int]  # the threads that run one program
    arguments: dict[str, Any]  # those of run time: no constants, and no 1
    # What each descriptor's tensor map copies at a time, where it has a map.
    boxes: tuple[Box | None, ...]
    cluster: int  # the blocks that run one program together
    scratch_bytes: int  # of global memory, which Triton allocates for a block
    dynamic_shared_bytes: int  # Triton has no static shared memory
    ptx: str
    assembler: Path  # the ptxas that makes machine code of it

    @classmethod
    def of(
        cls,
        compiled: Any,
        grid: tuple[int, int, int],
        arguments: tuple[Any, ...],
        assembler: Path,
    ) -> "TritonLaunch":
        """Reads what Triton compiled, for one argument for each parameter."""
        function, constants = compiled.src.fn, compiled.src.constants
        metadata = compiled.metadata
        named = {
            function.arg_names[path[0]]: value
            for path, value in constants.items()
            if function.params[path[0]].is_constexpr
        }
        described = getattr(metadata, "tensordesc_meta", None) or ()
        return cls(
            compiled=compiled,
            kernel=metadata.name,
            title=_title(function, named | {"num_warps": _warps_asked_for(compiled)}),
            grid=grid,
            block=(metadata.num_warps * WARP_SIZE, 1, 1),
            arguments={
                name: each
                for i, (name, each) in enumerate(
                    zip(function.arg_names, arguments, strict=True)
                )
                if (i,) not in constants
            },
            boxes=tuple(each and Box.of(each) for each in described),
            cluster=metadata.num_ctas,
            scratch_bytes=metadata.global_scratch_size
            + getattr(metadata, "profile_scratch_size", 0),
            dynamic_shared_bytes=metadata.shared,
            ptx=compiled.asm["ptx"],
            assembler=assembler,
        )

    @property
    def cubin(self) -> bytes:
        """The machine code, assembled when it is asked for.

        Raises:
            CodegenUnavailable: The assembler cannot be run.
            CompilationFailed: It refused the PTX.
        """
        return self.compiled.asm["cubin"] or self._assembled["cubin"]

    @property
    def assembler_log(self) -> str:
        """What `ptxas -v` says of the kernel; raises what `cubin` does."""
        return self._assembled["log"].decode()

    @functools.cached_property
    def _assembled(self) -> dict[str, bytes]:
        metadata = self.compiled.metadata
        options = {name: _frozen(each) for name, each in metadata._asdict().items()}
        options["num_warps"] = _warps_asked_for(self.compiled)
        key = cache.key_of(self.compiler, repr(sorted(options.items())), self.ptx)
        stored = cache.read(key, ("cubin", "log"))
        if stored is None:
            stored = _assemble(self.ptx, metadata.target, options, self.assembler)
            cache.write(key, stored)
        return stored

    @property
    def compiler(self) -> str:
        """Triton's version, and that of the assembler."""
        version = tools.version_of(self.assembler)
        return f"triton {triton.__version__}, ptxas {version}"


def record_launches(
    launcher: Callable[..., Any],
    arguments: tuple[Any, ...],
    architecture: Architecture,
    assembler: Path | None = None,
) -> tuple[TritonLaunch, ...]:
    """Records the launches of `launcher(*arguments)`, whose tensors are on no GPU.

    An assembler, a ptxas that can be run and knows the architecture, takes the place of
    the one that Triton brings along. It is run when machine code is asked for.

    Raises:
        CodegenUnavailable: Triton's interpreter has taken its compiler's place here,
            its assembler cannot be run, or Triton cannot write to its cache.
        CompilationFailed: Triton refused the kernel, or the device is too small for it.
    """
    _require_compiler()
    with (
        offline_driver(architecture, assembler) as launches,
        _failures_of(launcher.__name__, architecture),
    ):
        launcher(*arguments)
    return tuple(launches)


def plan_launches(
    launcher: Callable[..., Any],
    arguments: tuple[Any, ...],
    architecture: Architecture,
) -> tuple[PlannedLaunch, ...]:
    """What `launcher(*arguments)` would launch; nothing is compiled.

    The tensors among the arguments are meta tensors.

    Raises:
        CodegenUnavailable: Triton's interpreter has taken its compiler's place here.
    """
    _require_compiler()
    planned: list[PlannedLaunch] = []

    def plan(
        kernel: Any, *args: Any, grid: Any, warmup: bool, **constants: Any
    ) -> None:
        title = _title(kernel, constants)
        planned.append(PlannedLaunch.of_triton(kernel, title, grid, args, constants))

    with offline_driver(architecture), patch.object(JITFunction, "run", plan):
        launcher(*arguments)
    return tuple(planned)


def _require_compiler() -> None:
    if knobs.runtime.interpret:
        raise CodegenUnavailable(
            "TRITON_INTERPRET is set, so Triton kernels cannot be compiled here",
            "unset TRITON_INTERPRET",
        )


def _title(function: Any, constants: dict[str, Any]) -> str:
    text = ", ".join(
        f"{name}={getattr(value, '__name__', value)}"
        for name, value in constants.items()
    )
    return f"{function.__name__}[{text}]"


def _assemble(
    ptx: str, target: GPUTarget, options: dict[str, Any], assembler: Path
) -> dict[str, bytes]:
    """Makes machine code as Triton does, and keeps what `ptxas -v` says."""
    architecture = ARCHITECTURES[target.arch]
    with (
        _one_at_a_time,
        assembled_by(assembler, architecture),
        knobs.nvidia.scope(),
        _failures_of(options["name"], architecture) as printed,
    ):
        knobs.nvidia.dump_ptxas_log = True
        backend: Any = CUDABackend(target)
        parsed = backend.parse_options(options)
        cubin = backend.make_cubin(ptx, {}, parsed, target.arch)
    return {"cubin": cubin, "log": printed.getvalue().encode()}


def _warps_asked_for(compiled: Any) -> int:
    """The warps of a launch, without those that a kernel in Gluon adds as workers."""
    found = re.search(r'"ttg.num-warps" = (\d+)', compiled.asm["ttgir"])
    return int(found[1]) if found else int(compiled.metadata.num_warps)


def _frozen(value: Any) -> Any:
    """The option as it was before Triton kept it as JSON, which knows no tuples."""
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


@contextlib.contextmanager
def _failures_of(name: str, architecture: Architecture) -> Iterator[io.StringIO]:
    """Turns Triton's exceptions, and what it prints with them, into one of ours."""
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            yield printed
    except (TritonError, RuntimeError) as error:
        raise CompilationFailed(
            f"Triton cannot compile {name} for {architecture.target}",
            f"{error}\n{printed.getvalue()}".strip(),
        ) from error
    except OSError as error:
        raise CodegenUnavailable(
            f"Triton cannot compile {name} here ({error})",
            f"set TRITON_CACHE_DIR, now {knobs.cache.dir}, to a folder that can be "
            "written",
        ) from error


@contextlib.contextmanager
def offline_driver(
    architecture: Architecture,
    assembler: Path | None = None,
    *,
    assembles: bool = False,
) -> Iterator[list[TritonLaunch]]:
    """Has Triton take a device of an architecture for the active one.

    Launches are added to the list, and not made. Autotuners take the first of their
    configurations, as if all of them took no time. What the assembler refuses is told
    at the launch if it assembles, as on a GPU.

    Raises:
        CodegenUnavailable: The assembler cannot be run.
    """
    with (
        _one_at_a_time,
        assembled_by(assembler, architecture)
        if assembler
        else contextlib.nullcontext(),
        contextlib.nullcontext() if assembles else stopped_at_ptx(),
    ):
        previous = _driver._active  # the property would look for a GPU
        recorder = _OfflineDriver(architecture, assembles=assembles)
        _driver.set_active(_InOneThread(recorder, previous))
        try:
            yield recorder.launches
        finally:
            _driver.set_active(previous)


class _InOneThread:
    """A recorder in the thread that makes it; for others, the driver of before.

    Triton has one for the process, and others may launch something on a GPU meanwhile.
    """

    def __init__(self, recorder: "_OfflineDriver", before: Any) -> None:
        self._recorder, self._before = recorder, before
        self._thread = threading.get_ident()

    def __getattr__(self, name: str) -> Any:
        if threading.get_ident() == self._thread:
            return getattr(self._recorder, name)
        return getattr(self._before or _driver.default, name)


class _OfflineDriver(DriverBase):
    """Stands for a device of an architecture, and records the launches on it.

    Triton keeps compiled kernels by device. So the device's index names all that the
    code depends on; that of a real device is a number.
    """

    _handles = itertools.count(start=1)

    def __init__(self, architecture: Architecture, *, assembles: bool) -> None:
        self.architecture = architecture
        self.device = (architecture.number, assembler_of(architecture), assembles)
        self.utils = self  # what Triton asks about a device, and loads kernels with
        self.launches: list[TritonLaunch] = []

    @classmethod
    def is_active(cls) -> bool:
        return False

    def map_python_to_cpp_type(self, ty: str) -> str:
        return ty

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", self.architecture.number, WARP_SIZE)

    def get_active_torch_device(self) -> torch.device:
        return torch.device("cuda", 0)

    def get_device_interface(self) -> Any:
        return torch.cuda

    def get_benchmarker(self) -> Callable[..., Any]:
        def take_no_time(
            launch: Callable[[], Any], quantiles: tuple[float, ...] | None = None
        ) -> float | list[float]:
            return 0.0 if quantiles is None else [0.0 for _ in quantiles]

        return take_no_time

    def get_current_device(self) -> _Device:
        return self.device

    def set_current_device(self, device: _Device) -> None:
        pass

    def get_current_stream(self, device: _Device | None = None) -> int:
        return 0

    def get_device_properties(self, device: _Device) -> dict[str, int]:
        return {
            "max_shared_mem": self.architecture.max_shared_bytes,
            "max_num_regs": REGISTERS_PER_SM,
            "multiprocessor_count": self.architecture.multiprocessors,
            "warpSize": WARP_SIZE,
        }

    def load_binary(
        self, name: str, cubin: bytes, shared_bytes: int, device: _Device
    ) -> tuple[int, int, int, int, int]:
        handle = next(self._handles)
        # Registers and spills are read from the cubin elsewhere.
        return handle, handle, 0, 0, MAX_THREADS_PER_BLOCK

    @staticmethod
    def launcher_cls(src: Any, metadata: Any) -> Callable[..., None]:
        """Takes the place of the launcher that Triton compiles for a kernel."""

        def record(
            x: int, y: int, z: int, stream: int, function: int, *arguments: Any
        ) -> None:
            # The driver that is active now: Triton keeps this function with the kernel.
            recorder = _driver.active
            kernels = src.fn.device_caches[recorder.device][0].values()
            compiled = next(each for each in kernels if each.function == function)
            # Metadata and hooks come before them.
            own = arguments[-len(src.fn.arg_names) :]
            _, assembler, _ = recorder.device
            launch = TritonLaunch.of(compiled, (x, y, z), own, assembler)
            recorder.launches.append(launch)

        return record
