"""One side of a pair: a function that can be called, and whose code can be read."""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping, Sequence
from concurrent import futures
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from bindings.errors import BuildError
from compare.background import start
from compare.code.architectures import MAX_THREADS_PER_BLOCK, Architecture
from compare.code.kernel_code import KernelCode, Side
from compare.errors import (
    CodegenUnavailable,
    CompilationFailed,
    UnavailableError,
    UsageError,
)
from compare.judge.parity import Skipped
from compare.pairs import (
    cuda_module,
    cuda_side,
    cuda_source,
    inline_cuda,
    python_file,
    triton_side,
)
from compare.pairs.calls import Call, Outcome
from compare.pairs.cuda_module import Module, Target
from compare.pairs.cuda_side import Launched
from compare.pairs.cuda_source import CudaSource
from compare.pairs.entry import Entry
from compare.pairs.inline_cuda import InlineCuda
from compare.pairs.question import ORDERS, Problem, Question
from compare.pairs.sandbox import ForeignCodeError, Limits
from compare.report.tables import Grid


@dataclass(frozen=True)
class Place:
    """Where a side stands in a comparison.

    Attributes:
        entry: The user's function.
        slot: Left is "cuda", right "triton", whatever the languages.
        name: What sentences call it: "mine.cu".
        problem: What it is called with, if a file or an option says so.
        is_program: Whether nobody says so: it has to call itself.
        description: The file with `launch`, if there is one.
        files: All files of the user's, for messages.
        limits: On each process that runs them.
    """

    entry: Entry
    slot: Side
    name: str
    problem: Problem | None
    is_program: bool
    description: Path | None
    files: tuple[Path, ...]
    limits: Limits


class Room(Protocol):
    """What both kinds of sides do."""

    place: Place
    ran_on: str
    orders: tuple[str, ...]  # of Call, those that make a difference

    def prepare(self) -> None:
        """Does what needs no inputs, such as compiling."""

    def caller(self, asked: Question) -> Mapping[str, Any] | None:
        """The Python function that answers the calls, as `callers.make` takes it."""

    def answer(self, asked: Question) -> list[Outcome] | Skipped:
        """Makes the calls in those orders that make a difference."""

    def code(
        self, asked: Question | None, architecture: Architecture, number: int
    ) -> KernelCode | Skipped:
        """The code of a kernel that was launched."""

    def examine(
        self, asked: Question, architecture: Architecture, number: int
    ) -> tuple[list[Outcome] | Skipped, KernelCode | Skipped]:
        """Makes the calls and compiles, at the same time as far as that goes."""

    @property
    def sources(self) -> tuple[Path, ...]:
        """The files whose code it is, the main one first."""

    @property
    def grids(self) -> tuple[Grid, ...]:
        """Tables that only this side has."""


def room_of(place: Place) -> Room:
    """The side of a place."""
    return CudaRoom(place) if place.entry.language == "cuda" else TritonRoom(place)


def code_or_reason(
    room: Room, asked: Question | None, architecture: Architecture, number: int
) -> KernelCode | Skipped:
    """The code of a side with its machine code, or why there is none."""
    try:
        code = room.code(asked, architecture, number)
        if isinstance(code, Skipped):
            return code
        if reason := _impossible_launch(code, architecture):
            return Skipped(f"{room.place.name}: {reason}")
        return code.disassembled()
    except (CodegenUnavailable, CompilationFailed, ForeignCodeError) as error:
        return Skipped(str(error))


def _impossible_launch(code: KernelCode, architecture: Architecture) -> str:
    """Why a GPU would refuse a launch; empty if it would not."""
    launch, most = code.launch, architecture.max_shared_bytes
    if launch.blocks == 0:
        return f"the grid {launch.grid} has no blocks"
    if not 0 < launch.threads_per_block <= MAX_THREADS_PER_BLOCK:
        return f"a block has {launch.threads_per_block:,} threads"
    if code.shared_bytes > most:
        return f"a block takes {code.shared_bytes:,} of {most:,} bytes of shared memory"
    return ""


def _caller(place: Place, function: str, is_packed: bool) -> dict[str, Any]:
    """The Python function that answers the calls, for `callers.make`."""
    caller: dict[str, Any] = {
        "style": place.entry.style,
        "path": str(place.entry.path.resolve()),
        "function": function,
        "is_packed": is_packed,
    }
    if place.problem:
        caller |= {
            "problem": str(place.problem.path and place.problem.path.resolve()),
            "seed": place.problem.seed,
            "constants": dict(place.problem.constants),
        }
    return caller


@dataclass
class CudaRoom:
    """A function of a .cu file, in the emulator."""

    place: Place
    ran_on: str = "emulator"
    orders: tuple[str, ...] = ORDERS
    grids: tuple[Grid, ...] = ()
    _module: Module | None = None
    _launches: tuple[Launched, ...] = ()

    @functools.cached_property
    def inline(self) -> InlineCuda | None:
        """What a solution hands to load_inline."""
        entry = self.place.entry
        return None if entry.style == "file" else inline_cuda.read(entry.path)

    @functools.cached_property
    def source(self) -> CudaSource:
        """The file and what it includes."""
        if self.inline is not None:
            return self.inline.kernels
        return cuda_source.read(self.place.entry.path)

    @functools.cached_property
    def targets(self) -> tuple[Target, ...]:
        """What is called."""
        if self.inline is not None:
            return self.inline.targets
        name = self.place.entry.name
        if self.place.is_program and self.source.has_main and not name:
            name = "main"
        target = cuda_side.find_target(self.source, name)
        if target.function.kind == "kernel" and not self.place.description:
            raise UsageError(
                f"{self.place.name}: {target.expression} is a kernel; a description "
                "with a function launch() has to launch it"
            )
        return (target,)

    def examine(
        self, asked: Question, architecture: Architecture, number: int
    ) -> tuple[list[Outcome] | Skipped, KernelCode | Skipped]:
        """Compiles what may be launched during the calls, which tell what is."""
        if self._module is None:
            return Skipped(self.obstacle), Skipped(self.obstacle)
        signatures = self._module.signatures
        # The compiled code is cached, and `code` finds it there. An error is raised
        # again by `code`, so it is not looked at here.
        arguments = (self.source, signatures, architecture)
        ahead: Future[Any] = start(cuda_side.compile_kernels, *arguments)
        answered: Future[Any] = start(self.answer, asked)
        futures.wait([ahead, answered])
        return answered.result(), code_or_reason(self, asked, architecture, number)

    @property
    def is_program(self) -> bool:
        """Whether it calls itself: a file with a main function."""
        return self.targets[0].function.name == "main"

    @property
    def sources(self) -> tuple[Path, ...]:
        """The file and what it includes."""
        return tuple(self.source.files)

    @property
    def obstacle(self) -> str:
        """Why it cannot be run here; empty if it can."""
        refusals = self.inline.refusals if self.inline else self.source.refusals
        if not refusals:
            return ""
        first = refusals[0]
        return f"{first.file.name}:{first.line}: {first.what}"

    def prepare(self) -> None:
        """Compiles it."""
        if not self.obstacle:
            wrappers = self.inline.wrappers if self.inline else None
            try:
                self._module = cuda_module.build(self.source, self.targets, wrappers)
            except BuildError as error:
                raise UnavailableError(str(error)) from error

    def answer(self, asked: Question) -> list[Outcome] | Skipped:
        """Makes the calls; what ends the process is a fault of all of them."""
        calls = [each.call for each in asked.in_orders(self.orders).calls]
        if not self.takes_strides:
            calls = [each.without_strides() for each in calls]
        return self._call(calls, self.caller(asked), asked.names, asked.modified)

    def caller(self, asked: Question) -> Mapping[str, Any] | None:
        """The Python function that calls the targets; None where one answers itself."""
        if self.inline is not None:
            return _caller(self.place, "", asked.is_packed)
        if self.place.description:
            path = str(self.place.description.resolve())
            return {"style": "launch", "path": path}
        return None

    @property
    def takes_strides(self) -> bool:
        """Whether it is told how tensors lie in memory; a pointer does not say it."""
        has_python = self.inline is not None or self.place.description is not None
        return has_python or cuda_side.takes_tensors(self.targets[0].function)

    def run_program(self) -> Outcome | Skipped:
        """Runs its main function."""
        outcomes = self._call([Call("main()", ())], None, (), ())
        return outcomes if isinstance(outcomes, Skipped) else outcomes[0]

    def _call(
        self,
        calls: Sequence[Call],
        caller: Mapping[str, Any] | None,
        names: Sequence[str],
        written: Collection[int],
    ) -> list[Outcome] | Skipped:
        if self._module is None:
            return Skipped(self.obstacle)
        try:
            outcomes, self._launches = cuda_side.run(
                self._module,
                self.targets,
                calls,
                [*dict.fromkeys((*self.place.files, *self.sources))],
                caller=caller,
                names=names,
                written=written,
                limits=self.place.limits,
            )
        except ForeignCodeError as error:
            return [Outcome(problem=str(error)) for _ in calls]
        except UnavailableError as error:
            return Skipped(str(error))
        return outcomes

    def code(
        self, asked: Question | None, architecture: Architecture, number: int
    ) -> KernelCode | Skipped:
        """The code of what the first call has launched."""
        if self._module is None:
            return Skipped(self.obstacle)
        return cuda_side.code(
            self.source,
            self._module,
            self._launches,
            architecture,
            side=self.place.slot,
            name=self.place.name,
            number=number,
        )


@dataclass
class TritonRoom:
    """A Python function that launches Triton kernels, in the interpreter."""

    place: Place
    ran_on: str = "interpreter"
    orders: tuple[str, ...] = ("forward", "reverse")
    grids: tuple[Grid, ...] = ()
    _function: str = field(default="", init=False)

    @property
    def sources(self) -> tuple[Path, ...]:
        """The file."""
        return (self.place.entry.path,)

    def examine(
        self, asked: Question, architecture: Architecture, number: int
    ) -> tuple[list[Outcome] | Skipped, KernelCode | Skipped]:
        """Compiles during the calls: Triton compiles without running anything."""
        compiled: Future[Any] = start(code_or_reason, self, asked, architecture, number)
        answered: Future[Any] = start(self.answer, asked)
        futures.wait([compiled, answered])
        return answered.result(), compiled.result()

    def caller(self, asked: Question) -> Mapping[str, Any]:
        """The function itself, a solution or a submission."""
        return _caller(self.place, self._function, asked.is_packed)

    def prepare(self) -> None:
        """Finds the function."""
        if self.place.entry.style == "file":
            self._function = _function_of(self.place.entry)

    def answer(self, asked: Question) -> list[Outcome] | Skipped:
        """Makes the calls."""
        calls = [each.call for each in asked.in_orders(self.orders).calls]
        return triton_side.run(
            self.caller(asked),
            calls,
            self.place.files,
            written=asked.modified,
            limits=self.place.limits,
        )

    def code(
        self, asked: Question | None, architecture: Architecture, number: int
    ) -> KernelCode | Skipped:
        """The code of what it launches for inputs like these."""
        assert asked
        found = triton_side.code(
            self.caller(asked),
            asked.as_given.call.inputs,
            architecture,
            number=number,
            side=self.place.slot,
            name=self.place.name,
            files=self.place.files,
            limits=self.place.limits,
        )
        if found.configurations:
            self.grids = (found.configurations,)
        return found.code


def _function_of(entry: Entry) -> str:
    """The function that is meant.

    Raises:
        UsageError: There is none, or it is not clear which one is meant.
        BuildFailedError: The file is no Python.
    """
    file = entry.path.name
    functions = [
        each for each in python_file.functions(entry.path) if not each.is_kernel
    ]
    if entry.name:
        if all(each.name != entry.name for each in functions):
            known = ", ".join(each.name for each in functions) or "none"
            raise UsageError(f"{file} has no function {entry.name!r}; it has {known}")
        return entry.name
    found = python_file.entry_points(entry.path)
    if not found:
        raise UsageError(f"{file} has no function that launches a Triton kernel")
    if len(found) > 1:
        names = ", ".join(each.name for each in found)
        raise UsageError(f"{file} has {names}: say which, as {file}:{found[0].name}")
    return found[0].name
