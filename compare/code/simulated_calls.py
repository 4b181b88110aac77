"""Runs what a compiler made of an op's kernels, on CPU tensors and no GPU.

The PTX simulator computes them; outputs are written in place. The backends of
`bindings` call `run` and `target_of`, by the name of this module.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from bindings.backends import native, triton
from bindings.errors import BuildError, UnsupportedError
from bindings.op import Argument, Op
from bindings.torch_internals import Allocations
from compare.assembly import places
from compare.assembly.listing import Instruction, Listing, parse_ptx
from compare.code import cuda, triton_offline
from compare.code.architectures import Architecture, parse_architecture
from compare.code.kernel_code import Side, native_module
from compare.code.launch_parameters import cuda_launch, triton_launch
from compare.code.tensor_descriptors import is_descriptor
from compare.code.tensor_memory import TensorMemory
from compare.code.words import LANGUAGE_NAMES
from compare.errors import CodegenUnavailable, CompilationFailed, SimulationFault
from compare.ptx_simulator import Contents, Launch, Order, Simulation, simulate
from compare.ptx_simulator.batch import NOT_SIMULATED

# Kernels that stay read; there are a few hundred in all.
_KEPT_LISTINGS = 256


class UnknownInstructionError(SimulationFault, UnsupportedError):
    """A kernel has an instruction that the simulator does not know."""


@dataclass(frozen=True)
class KernelLaunch:
    """A launch of a compiled kernel."""

    title: str  # the kernel's name for a reader
    listing: Listing  # its PTX
    launch: Launch


def run(
    side: Side,
    op: Op,
    arguments: tuple[Argument, ...],
    architecture: str,
    *,
    unwritten: Iterable[Tensor] = (),
    order: Order = "",
) -> None:
    """Runs all kernels that a launcher launches.

    Args:
        side: The launcher's language.
        op: The op.
        arguments: The launcher's, from `op.arguments`, with tensors on the CPU.
        architecture: What the kernels are compiled for, such as "sm_90a".
        unwritten: Those tensors, among the arguments, that were allocated alone: who
            reads them before they are written is told.
        order: See `simulate`.

    Raises:
        UnsupportedError: Something is missing here, the simulator does not know an
            instruction, or the op's rung has no kernel for this call.
        BuildError: The compiler refused a kernel.
        SimulationFault: A kernel did what it must not, or does not end.
    """
    target = parse_architecture(architecture)
    try:
        memory, launches = launches_of(side, op, arguments, target, unwritten)
    except CodegenUnavailable as error:
        raise UnsupportedError(f"{op.name}: {error}") from error
    except CompilationFailed as error:
        raise BuildError(f"{error}\n{error.log}") from error
    for each in launches:
        contents = Contents(memory.buffers)
        result = simulate(each.listing, each.launch, contents=contents, order=order)
        _raise_for(f"{op.name}: the {LANGUAGE_NAMES[side]} kernel", each, result)


def target_of(architecture: str) -> str:
    """The name that compilers have for an architecture: "sm_90a" for "sm_90".

    Raises:
        ValueError: It is unknown.
    """
    return parse_architecture(architecture).target


# ---- Launches ------------------------------------------------------------------------


def launches_of(
    side: Side,
    op: Op,
    arguments: tuple[Argument, ...],
    architecture: Architecture,
    unwritten: Iterable[Tensor] = (),
) -> tuple[TensorMemory, tuple[KernelLaunch, ...]]:
    """All that a launcher launches for tensors on the CPU, in order, and their memory.

    Args:
        side: See `run`.
        op: See `run`.
        arguments: See `run`.
        architecture: What to compile for.
        unwritten: See `run`.

    Raises:
        CodegenUnavailable: Something is missing here; the message says what.
        CompilationFailed: The compiler refused a kernel.
        UnsupportedError: The op's rung has no kernel for this call.
    """
    of_side = _of_cuda if side == "cuda" else _of_triton
    return of_side(op, arguments, architecture, [*unwritten])


def _of_cuda(
    op: Op,
    arguments: tuple[Argument, ...],
    architecture: Architecture,
    unwritten: list[Tensor],
) -> tuple[TensorMemory, tuple[KernelLaunch, ...]]:
    module = native_module()
    names = [name for name, _ in native.parameters(module, op)]
    memory = TensorMemory(_tensors(zip(names, arguments, strict=False)), unwritten)
    plans = native.plan(
        module,
        op,
        arguments,
        architecture.number,
        lambda _, tensor: memory.address(tensor),
    )
    signatures = tuple((each["kernel"], each["signature"]) for each in plans)
    listings = _compiled_by_nvcc(op.source, signatures, architecture)
    return memory, tuple(
        KernelLaunch(
            cuda.title_of(plan["signature"]), listing, cuda_launch(plan, memory)
        )
        for plan, listing in zip(plans, listings, strict=True)
    )


@functools.lru_cache(maxsize=_KEPT_LISTINGS)
def _compiled_by_nvcc(
    source: str, signatures: tuple[tuple[str, str], ...], architecture: Architecture
) -> tuple[Listing, ...]:
    """The kernels that a launcher launches, by their symbols and signatures."""
    builds = cuda.compile_kernels(source, dict(signatures), architecture)
    return tuple(parse_ptx(builds[symbol].ptx, symbol) for symbol, _ in signatures)


def _of_triton(
    op: Op,
    arguments: tuple[Argument, ...],
    architecture: Architecture,
    unwritten: list[Tensor],
) -> tuple[TensorMemory, tuple[KernelLaunch, ...]]:
    launcher = triton.launcher(op)
    try:
        with Allocations() as allocations:
            launches = triton_offline.record_launches(launcher, arguments, architecture)
    except ValueError as error:
        if op.rung:
            raise UnsupportedError(native.unsupported_rung(op)) from error
        raise
    names = triton.parameters(op, len(arguments))
    given = _tensors(zip(names, arguments, strict=True))
    places_of_given = {each.data_ptr() for _, each in given}
    # By their own names where the kernel has others, and once if several kernels do.
    own = {
        each.data_ptr(): (name, each)
        for launch in reversed(launches)
        for name, each in _tensors(launch.arguments.items())
        if each.data_ptr() not in places_of_given
    }
    memory = TensorMemory([*given, *own.values()], [*unwritten, *allocations.untouched])
    for launch in launches:
        _require_plain(launch)
    return memory, tuple(
        KernelLaunch(
            each.title, _of_ptx(each.ptx, each.kernel), triton_launch(each, memory)
        )
        for each in launches
    )


_of_ptx = functools.lru_cache(maxsize=_KEPT_LISTINGS)(parse_ptx)


def _require_plain(launch: triton_offline.TritonLaunch) -> None:
    """Refuses what a launch cannot be told of.

    Raises:
        CodegenUnavailable: The launch has something of this kind.
    """
    descriptors = [each for each in launch.arguments.values() if is_descriptor(each)]
    what = ""
    if launch.scratch_bytes:
        what = "asks Triton for global memory of its own"
    elif any(each.padding == "nan" for each in descriptors):
        what = "has a tensor descriptor that pads with NaN"
    if what:
        raise CodegenUnavailable(
            f"{launch.kernel} {what}, which is not simulated", "use a GPU"
        )


def _tensors(named: Iterable[tuple[str, Any]]) -> list[tuple[str, Tensor]]:
    return [(name, each) for name, each in named if isinstance(each, Tensor)]


# ---- Faults --------------------------------------------------------------------------


def _raise_for(who: str, kernel: KernelLaunch, result: Simulation) -> None:
    """Raises for what a kernel must not do, or the simulator cannot.

    Raises:
        SimulationFault: There is something of the kind.
    """
    instructions = kernel.listing.instructions
    who = f"{who} {kernel.title}"
    for fault in result.faults:
        if fault.what == NOT_SIMULATED:  # other faults may come of it
            instruction = instructions[fault.index]
            raise UnknownInstructionError(
                f"{who}: the simulator does not know {instruction.opcode}, "
                f"{_place(instruction)}"
            )
    for fault in result.faults:
        instruction = instructions[fault.index]
        message = (
            f"{who} {fault.what}, {_place(instruction)}, in thread {fault.thread} of "
            f"block {fault.block}: {instruction.text}"
        )
        if fault.other is not None:
            other = instructions[fault.other]
            message += f"; the other is {_place(other)}: {other.text}"
        raise SimulationFault(message)
    if not result.is_complete:
        raise SimulationFault(
            f"{who} does not come to its end: threads wait for what never comes, or "
            "are in an endless loop"
        )
    for index in result.unknown_branches:
        raise SimulationFault(
            f"{who} goes a way that depends on what nobody has written, "
            f"{_place(instructions[index])}: {instructions[index].text}"
        )


def _place(instruction: Instruction) -> str:
    """Where an instruction comes from, in the op's own file if any of it does."""
    found = places.in_op([instruction]) or places.in_sources([instruction])
    if found:
        return f"at {found[0]}"
    for frame in instruction.frames:
        return f"at {frame.file}:{frame.line}"
    return f"in line {instruction.text_line} of its PTX"
