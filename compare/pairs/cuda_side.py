"""A function of a user's .cu: what it returns in the emulator, and its code."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch.utils.cpp_extension import include_paths

from compare.code import cuda, kernel_code
from compare.code.architectures import Architecture
from compare.code.cuda import CudaBuild
from compare.code.kernel_code import KernelCode, Side
from compare.errors import (
    BuildFailedError,
    CodegenUnavailable,
    CompilationFailed,
    UsageError,
)
from compare.judge.parity import Skipped
from compare.pairs import cuda_module, cuda_rewriting, sandbox
from compare.pairs.calls import Call, Outcome, distinct
from compare.pairs.cuda_edits import UNNAMED
from compare.pairs.cuda_module import Module, Target
from compare.pairs.cuda_source import CudaSource, Function
from compare.pairs.sandbox import DEFAULT_LIMITS, Limits
from compare.ptx_simulator import Launch, TensorArgument

_BYTES_OF = {
    **dict.fromkeys(("double", "long", "unsigned long", "long long"), 8),
    **dict.fromkeys(("__half", "c10::Half", "__nv_bfloat16", "c10::BFloat16"), 2),
    **dict.fromkeys(("short", "unsigned short"), 2),
    **dict.fromkeys(("char", "signed char", "unsigned char", "bool"), 1),
}
_NO_RESULTS = ("void", "int", "bool", "cudaError_t", "cudaError")
_INTEGER = re.compile(r"^(?:unsigned |signed )?(?:char|short|int|long)\b")


@dataclass(frozen=True)
class Launched:
    """A launch as it was made.

    Attributes:
        kernel: The kernel's symbol.
        arguments: By parameter its name, its bytes in hexadecimal, and the pointers in
            it: place, and the address and size of the memory that they lead into.
    """

    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int
    arguments: tuple[dict[str, Any], ...]


def find_target(source: CudaSource, name: str) -> Target:
    """The function of this name; without one, the only one that launches a kernel.

    Args:
        source: The file.
        name: In C++, with template arguments where it is a template, or as it is bound
            for Python; or empty.

    Raises:
        UsageError: There is none, or it is not clear which one is meant.
    """
    file = source.path.name
    if name:
        plain = name.partition("<")[0].strip()
        wanted = source.bound.get(plain, plain)
        found = [
            each
            for each in source.functions
            if each.has_body and wanted in (each.name, each.qualified)
        ]
        if not found:
            known = ", ".join(dict.fromkeys(e.name for e in source.functions)) or "none"
            raise UsageError(f"{file} has no function {plain!r}; it has {known}")
        arguments = name[len(plain) :].strip() if "<" in name else ""
        return Target(found[0].qualified + arguments, found[0])
    entries = source.entry_points()
    if len(entries) > 1:
        names = ", ".join(each.name for each in entries)
        raise UsageError(f"{file} has {names}: say which, as {file}:{entries[0].name}")
    if entries:
        return Target(entries[0].qualified, entries[0])
    if mains := [each for each in source.functions if each.name == "main"]:
        return Target("main", mains[0])
    if kernels := [each for each in source.functions if each.kind == "kernel"]:
        raise UsageError(
            f"{file} has no function that launches a kernel: name a kernel, as "
            f"{file}:{kernels[0].name}, in a description with a function launch()"
        )
    raise UsageError(f"{file} has no kernel")


def run(
    module: Module,
    targets: Sequence[Target],
    calls: Sequence[Call],
    files: Sequence[Path],
    *,
    caller: Mapping[str, Any] | None = None,
    names: Sequence[str] = (),
    written: Collection[int] = (),
    limits: Limits = DEFAULT_LIMITS,
) -> tuple[list[Outcome], tuple[Launched, ...]]:
    """Makes these calls in the emulator, and tells the launches of the first.

    Args:
        module: The compiled file.
        targets: What it was compiled for.
        calls: To be made, in one process.
        files: All files of the user's, for messages.
        caller: The Python function that calls the targets, as `callers.make` takes
            it; None where the only target answers the calls itself.
        names: Of the inputs, as the caller gets them.
        written: The numbers of the inputs that may be written to.
        limits: On the process.

    Raises:
        ForeignCodeError: The process was ended.
        UsageError: The function cannot be called from here at all.
    """
    first = targets[0].function
    parameters = [each.name for each in first.parameters]
    may_write_all = not caller and _leaves_results(first)
    request = {
        "library": str(module.path),
        "uses_torch": module.uses_torch,
        "functions": [described(each.function) for each in targets],
        "names": [*names] if caller else parameters,
        "written": None if may_write_all else sorted(written),
        "caller": caller,
        "files": [str(each) for each in files],
        **_described_calls(calls),
    }
    # Of a thread that does not call the emulator, as one in an endless loop.
    variables = {"TWIN_EMULATOR_TIME_LIMIT": "2"}
    answer = sandbox.run(
        "cuda_run", request, files=files, limits=limits, variables=variables
    )
    outcomes = [
        Outcome(
            tuple(each.get("outputs", ())),
            each.get("problem", ""),
            each.get("refusal", ""),
            each.get("writes_to_input", False),
        )
        for each in answer["outcomes"]
    ]
    return outcomes, tuple(map(_launched, answer["launches"]))


def described(function: Function) -> dict[str, Any]:
    """What a worker is told of a function."""
    return {
        "name": function.python_name or function.name,
        "is_kernel": function.kind == "kernel",
        "place": f"{function.file.name}:{function.line}",
        "names": [each.name for each in function.parameters],
        "bound": [vars(each) for each in function.bound],
    }


def _described_calls(calls: Sequence[Call]) -> dict[str, Any]:
    """What the worker is told of calls: each has the number of its inputs."""
    values, numbers = distinct(calls)
    described = [
        {
            "name": each.name,
            "values": number,
            "layout": each.layout,
            "order": each.order,
        }
        for each, number in zip(calls, numbers, strict=True)
    ]
    return {"values": values, "calls": described}


def takes_tensors(function: Function) -> bool:
    """Whether a parameter is of torch's tensors."""
    return any("Tensor" in each.type for each in function.parameters)


def _leaves_results(function: Function) -> bool:
    """Whether a function has to leave its results in its arguments.

    It returns nothing, or, like a function of pointers, no more than a status.
    """
    if "Tensor" in function.returns:
        return False
    return function.returns in _NO_RESULTS or not takes_tensors(function)


def _launched(text: str) -> Launched:
    fields = json.loads(text)
    return Launched(
        kernel=fields["kernel"],
        grid=tuple(fields["grid"]),
        block=tuple(fields["block"]),
        shared_bytes=fields["shared_bytes"],
        arguments=tuple(fields["arguments"]),
    )


def code(
    source: CudaSource,
    module: Module,
    launches: Sequence[Launched],
    architecture: Architecture,
    *,
    side: Side,
    name: str,
    number: int = 0,
) -> KernelCode | Skipped:
    """The code of a kernel that was launched, compiled for an architecture.

    Args:
        source: The file.
        module: What was run.
        launches: What it launched.
        architecture: What to compile for.
        side: Its place in the comparison.
        name: What sentences call it.
        number: Which launch, counted from 0.

    Raises:
        BuildFailedError: nvcc refuses the file.
    """
    if number >= len(launches):
        count = len(launches)
        return Skipped(f"{name} launches {count or 'no'} kernel{'s' * (count > 1)}")
    signatures = {each.kernel: _signature(module, each.kernel) for each in launches}
    launched = launches[number]
    try:
        build = compile_kernels(source, signatures, architecture)[launched.kernel]
    except CodegenUnavailable as error:
        return Skipped(str(error))
    launch, elements = _launch(launched, signatures[launched.kernel])
    titles = tuple(
        cuda.title_of(signatures[each.kernel].replace(f"{UNNAMED}::", ""))
        for each in launches
    )
    return kernel_code.assemble(
        side,
        architecture,
        titles,
        number,
        build,
        lambda: build.log,
        launch,
        elements,
        name=name,
        language="cuda",
    )


def compile_kernels(
    source: CudaSource, signatures: Mapping[str, str], architecture: Architecture
) -> dict[str, CudaBuild]:
    """Compiles kernels of a file, by symbol, unless that was done before.

    Args:
        source: The file.
        signatures: By symbol, the kernels demangled.
        architecture: What to compile for.

    Raises:
        CodegenUnavailable: There is no nvcc, or it does not know the architecture.
        BuildFailedError: nvcc refuses the file.
    """
    names = cuda_rewriting.file_names(source)
    texts = cuda_rewriting.device(source)
    folders = include_paths() if source.uses_torch else []
    try:
        return cuda.compile_files(
            {names[path]: text for path, text in texts.items()},
            names[source.path],
            [Path(each) for each in folders],
            signatures,
            architecture,
        )
    except CompilationFailed as error:
        log = f"{error}\n{error.log}"
        sentence = cuda_module.first_error(source, log, "nvcc cannot compile this")
        raise BuildFailedError(sentence) from error


def _signature(module: Module, symbol: str) -> str:
    return module.signatures.get(symbol, symbol)


# ---- The simulator's launch ----------------------------------------------------------


def _launch(launched: Launched, signature: str) -> tuple[Launch, int]:
    """The launch for the simulator, and how many elements the kernel's output has."""
    types = _parameter_types(signature)
    parameters: list[int] = []
    tensors: list[TensorArgument] = []
    elements = 0
    for position, argument in enumerate(launched.arguments):
        memory = bytes.fromhex(argument["bytes"])
        parameters.append(int.from_bytes(memory, "little"))
        kind = types[position] if position < len(types) else ""
        element = re.sub(r"\s*const\b|\*.*", "", kind).strip()
        for place, begin, n_bytes in argument["pointers"]:
            address = int.from_bytes(memory[place : place + 8], "little")
            if any(each.address == address for each in tensors):
                continue
            tensor = TensorArgument(
                name=argument["name"] or f"argument {position + 1}",
                position=position,
                address=address,
                bytes=begin + n_bytes - address,
                holds_indices=bool(_INTEGER.match(element)),
            )
            tensors.append(tensor)
            # What the first pointer that is not to constants leads to is the output.
            if elements <= 0 and (not elements or "const" not in kind):
                elements = tensor.bytes // _BYTES_OF.get(element, 4)
                elements = -elements if "const" in kind else elements
    launch = Launch(
        grid=launched.grid,
        block=launched.block,
        parameters=tuple(parameters),
        tensors=tuple(tensors),
        dynamic_shared_bytes=launched.shared_bytes,
    )
    return launch, abs(elements)


def _parameter_types(signature: str) -> list[str]:
    """The types of a demangled function's parameters."""
    depth, types, start = 0, [], 0
    opening = _opening(signature)
    for place in range(opening, len(signature)):
        character = signature[place]
        depth += {"(": 1, "<": 1, ")": -1, ">": -1}.get(character, 0)
        if depth == 1 and character == "(" and place == opening:
            start = place + 1
        elif (depth == 1 and character == ",") or (depth == 0 and character == ")"):
            types.append(signature[start:place].strip())
            start = place + 1
    return [each for each in types if each]


def _opening(signature: str) -> int:
    """Where the parameters begin: the first bracket outside of template arguments."""
    depth = 0
    for place, character in enumerate(signature):
        depth += {"<": 1, ">": -1}.get(character, 0)
        if character == "(" and depth == 0:
            return place
    return len(signature)
