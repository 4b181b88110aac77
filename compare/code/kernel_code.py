"""The generated code of one side of an op, ready to be counted, compared and shown."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Literal, Protocol

from bindings.backends import native, prebuilt, triton
from bindings.errors import UnsupportedError
from bindings.op import Argument, Op
from compare.assembly.listing import Listing, parse_ptx, parse_sass
from compare.assembly.mix import Mix, mix_of
from compare.code import cuda, tools, triton_offline
from compare.code.architectures import WARP_SIZE, Architecture, parse_architecture
from compare.code.launch_parameters import (
    ArgumentTensors,
    cuda_launch,
    elements_of,
    require_elements,
    triton_launch,
)
from compare.code.occupancy import Occupancy, occupancy
from compare.code.planned import PlannedLaunch
from compare.code.words import LANGUAGE_NAMES
from compare.errors import CodegenUnavailable
from compare.ptx_simulator import Launch, Simulation, simulate

Side = Literal["cuda", "triton"]


class Build(Protocol):
    """What a compiler has made of a kernel."""

    @property
    def ptx(self) -> str:
        """The PTX, as text."""

    @property
    def cubin(self) -> bytes:
        """The machine code that the assembler made of it."""

    @property
    def kernel(self) -> str:
        """The kernel's name in both."""

    @property
    def compiler(self) -> str:
        """What compiled it, with versions."""


@dataclass(frozen=True)
class KernelCode:
    """One kernel as a compiler made it, and as it is launched."""

    side: Side  # the place that it has in a comparison: the first or the second
    language: Side  # that it was written in; of an op that of its side
    name: str  # what sentences call it: "CUDA", or "old.cu" beside "new.cu"
    arch: str  # what it was compiled for, such as `sm_90a`
    kernel: str  # its name in the PTX
    title: str  # its name for a reader, with the constants that it was compiled for
    kernels: tuple[str, ...]  # the titles of all that the launcher launches, in order
    number: int  # which of them this is, counted from 0
    compiler: str  # what compiled it, with versions
    elements: int  # of the output: of what the kernel's first parameter points at
    registers: int  # of one thread
    spill_store_bytes: int  # what a thread puts from registers into local memory
    spill_load_bytes: int  # what it gets back
    stack_bytes: int  # local memory of a thread, for spills and for arrays
    static_shared_bytes: int  # shared memory of a block that the kernel itself declares
    ptx: Listing
    read_sass: Callable[[], Listing]  # takes half a second, so `sass` puts it off
    launch: Launch  # what the kernel is called with, its tensors at addresses made up

    def __getstate__(self) -> dict[str, Any]:
        """What is kept on disk: all that was computed, and no function."""
        return {**vars(self.disassembled()), "read_sass": None}

    @functools.cached_property
    def sass(self) -> Listing:
        """The machine code that the assembler made of the PTX.

        Raises:
            CodegenUnavailable: there is no disassembler.
            CompilationFailed: it cannot read the code.
        """
        return self.read_sass()

    def disassembled(self) -> KernelCode:
        """Reads the machine code now, and raises what `sass` raises."""
        _ = self.sass
        return self

    @functools.cached_property
    def ptx_mix(self) -> Mix:
        """How many instructions of which kind there are in the PTX."""
        return mix_of(self.ptx)

    @functools.cached_property
    def sass_mix(self) -> Mix:
        """How many instructions of which kind there are in the machine code."""
        return mix_of(self.sass)

    @functools.cached_property
    def simulation(self) -> Simulation:
        """A run of the PTX, in all blocks or, where these are many, in some."""
        return simulate(self.ptx, self.launch)

    @property
    def spill_bytes(self) -> int:
        """Bytes that a thread moves because it ran out of registers."""
        return self.spill_store_bytes + self.spill_load_bytes

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a block, without what the driver keeps for itself."""
        return self.static_shared_bytes + self.launch.dynamic_shared_bytes

    @functools.cached_property
    def occupancy(self) -> Occupancy:
        """How many blocks a multiprocessor holds at a time, and why not more."""
        return occupancy(
            parse_architecture(self.arch),
            self.registers,
            self.launch.threads_per_block,
            self.shared_bytes,
        )

    @property
    def warps_per_block(self) -> int:
        """Warps of a block; the last one may be incomplete."""
        return -(-self.launch.threads_per_block // WARP_SIZE)

    @property
    def elements_per_thread(self) -> float:
        """How many elements of the output there are for each thread, on average."""
        return self.elements / (self.launch.blocks * self.launch.threads_per_block)


def planned_kernels(
    side: Side, op: Op, arguments: tuple[Argument, ...], architecture: Architecture
) -> tuple[str, ...]:
    """The titles of what `planned_launches` returns, and with what it raises."""
    launches = planned_launches(side, op, arguments, architecture)
    return tuple(each.title for each in launches)


def planned_launches(
    side: Side, op: Op, arguments: tuple[Argument, ...], architecture: Architecture
) -> tuple[PlannedLaunch, ...]:
    """All that a side launches, without compiling anything.

    Raises:
        CodegenUnavailable: something is missing here; the message says what.
        UnsupportedError: the op's rung has no kernel for this call.
    """
    require_elements(op, arguments)
    if side == "cuda":
        plans = _plans(op, arguments, architecture)
        return tuple(map(PlannedLaunch.of_cuda, plans))
    try:
        return triton_offline.plan_launches(
            triton.launcher(op), arguments, architecture
        )
    except ValueError as error:
        if op.rung:
            raise UnsupportedError(native.unsupported_rung(op)) from error
        raise


def inspect_cuda(
    op: Op,
    arguments: tuple[Argument, ...],
    architecture: Architecture,
    *,
    number: int = 0,
) -> KernelCode:
    """Compiles the kernel instance that the CUDA launcher would take for `arguments`.

    These are what `op.arguments` returned, on the meta device. The number says which of
    the launches, the main one being the first.

    Raises:
        CodegenUnavailable: something is missing here; the message says what.
        CompilationFailed: nvcc refused the kernel.
    """
    require_elements(op, arguments)
    plans = _plans(op, arguments, architecture)
    titles = _titles(plans)
    _require_launch("CUDA", op, titles, number)
    plan = plans[number]
    names = [name for name, _ in native.parameters(prebuilt.load("_cpu"), op)]
    signatures = {each["kernel"]: each["signature"] for each in plans}
    build = cuda.compile_kernels(op.source, signatures, architecture)[plan["kernel"]]
    launch = cuda_launch(plan, ArgumentTensors(names, arguments))
    return assemble(
        "cuda",
        architecture,
        titles,
        number,
        build,
        lambda: build.log,
        launch,
        elements_of(arguments, launch),
    )


def inspect_triton(
    op: Op,
    arguments: tuple[Argument, ...],
    architecture: Architecture,
    *,
    number: int = 0,
    same_ptxas: bool = False,
) -> KernelCode:
    """Compiles what the Triton launcher would launch for `arguments`.

    They and the number are those of `inspect_cuda`. `same_ptxas` takes nvcc's assembler
    in place of Triton's own.

    Raises:
        CodegenUnavailable: something is missing here; the message says what.
        CompilationFailed: Triton refused the kernel.
    """
    require_elements(op, arguments)
    launches = triton_offline.record_launches(
        triton.launcher(op),
        arguments,
        architecture,
        cuda.find_ptxas(architecture) if same_ptxas else None,
    )
    titles = tuple(each.title for each in launches)
    _require_launch("Triton", op, titles, number)
    build = launches[number]
    names = triton.parameters(op, len(arguments))
    tensors = ArgumentTensors(names, arguments, build.arguments)
    launch = triton_launch(build, tensors)
    return assemble(
        "triton",
        architecture,
        titles,
        number,
        build,
        lambda: build.assembler_log,
        launch,
        elements_of(arguments, launch),
    )


def assemble(
    side: Side,
    architecture: Architecture,
    titles: tuple[str, ...],
    number: int,
    build: Build,
    read_log: Callable[[], str],
    launch: Launch,
    elements: int,
    *,
    name: str = "",
    language: Side | None = None,
) -> KernelCode:
    """Puts together what is known of a kernel that was compiled.

    Args:
        side: The place that it has in a comparison.
        architecture: What it was compiled for.
        titles: All that the launcher launches, in order, for a reader.
        number: Which of them this is, counted from 0.
        build: What the compiler made.
        read_log: Returns what `ptxas -v` says; called only for a kernel with a stack.
        launch: What the kernel is called with.
        elements: Of the output.
        name: What sentences call it; by default its language.
        language: That it was written in; by default that of the side.

    Raises:
        CodegenUnavailable: A tool is missing that reads the machine code.
        CompilationFailed: The machine code cannot be read.
    """
    language = language or side
    cubin, kernel = build.cubin, build.kernel
    resources = tools.resources_of(cubin, kernel, architecture)
    report = tools.AssemblerReport()
    if resources.stack_bytes:  # where spills are
        report = tools.parse_assembler_report(read_log(), kernel)
    listing = parse_ptx(build.ptx, kernel)
    return KernelCode(
        side=side,
        language=language,
        name=name or LANGUAGE_NAMES[language],
        arch=architecture.target,
        kernel=kernel,
        title=titles[number],
        kernels=titles,
        number=number,
        compiler=build.compiler,
        elements=elements,
        **vars(resources),
        **vars(report),
        ptx=listing,
        read_sass=lambda: parse_sass(tools.disassemble(cubin, kernel), listing),
        launch=launch,
    )


def native_module() -> ModuleType:
    """The module that plans launches.

    Raises:
        CodegenUnavailable: It is not built, or from other sources.
    """
    try:
        return prebuilt.load("_cpu")
    except UnsupportedError as error:
        raise CodegenUnavailable(
            "the plan of a launch comes from the native module", str(error)
        ) from error


def _plans(
    op: Op, arguments: tuple[Argument, ...], architecture: Architecture
) -> list[dict[str, Any]]:
    return native.plan(native_module(), op, arguments, architecture.number)


def _titles(plans: list[dict[str, Any]]) -> tuple[str, ...]:
    return tuple(cuda.title_of(each["signature"]) for each in plans)


def _require_launch(side: str, op: Op, titles: tuple[str, ...], number: int) -> None:
    if number >= len(titles):
        kernels = "one kernel" if len(titles) == 1 else f"{len(titles)} kernels"
        raise CodegenUnavailable(
            f"the {side} side of {op.name} launches {kernels} here",
            f"there is no --kernel {number + 1}: choose a smaller number",
        )
