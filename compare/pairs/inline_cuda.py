"""The CUDA that a Python file hands to load_inline: two texts, compiled apart."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from compare.errors import UnavailableError
from compare.pairs import cuda_side, cuda_source, kernelbench
from compare.pairs.cuda_module import Target
from compare.pairs.cuda_refusals import Refusal
from compare.pairs.cuda_source import CudaSource


@dataclass(frozen=True)
class InlineCuda:
    """What a call of load_inline compiles, and what Python sees of it.

    Attributes:
        kernels: Its cuda_sources.
        wrappers: Its cpp_sources, which call functions of the kernels' text; None if
            they define and bind nothing.
        targets: What Python can call.
    """

    kernels: CudaSource
    wrappers: CudaSource | None
    targets: tuple[Target, ...]

    @property
    def refusals(self) -> tuple[Refusal, ...]:
        """What forbids the emulator."""
        texts = (self.kernels, self.wrappers)
        return tuple(each for text in texts if text for each in text.refusals)


def read(path: Path) -> InlineCuda:
    """Reads the only call of load_inline in a Python file.

    Raises:
        UsageError: It binds what it does not have.
        UnavailableError: There are several, it binds nothing by its name, or a text is
            put together while the program runs.
        CudaSourceError: A text is no C++.
    """
    found = kernelbench.inline_sources(path)
    if len(found) > 1:
        raise UnavailableError(
            f"{path.name}:{found[1].line}: only one call of load_inline is taken"
        )
    (inline,) = found
    kernels = cuda_source.read_text(inline.cuda_source, path, inline.line)
    beside = cuda_source.read_text(inline.cpp_source, path, inline.cpp_line)
    defines = beside.bound or any(each.has_body for each in beside.functions)
    wrappers = beside if defines else None
    bound = {**kernels.bound, **beside.bound}
    names = inline.functions or tuple(bound)
    if not names:
        raise UnavailableError(
            f"{path.name}:{inline.line}: load_inline binds no function by its name, "
            "and other bindings, such as of a lambda, are not taken"
        )
    targets = tuple(
        _target(kernels, beside, bound.get(name, name), name) for name in names
    )
    return InlineCuda(kernels, wrappers, targets)


def _target(
    kernels: CudaSource, beside: CudaSource, name: str, python_name: str
) -> Target:
    """The function of this name, by the text that defines it."""
    declared = [e for e in beside.functions if name in (e.name, e.qualified)]
    is_wrapper = any(each.has_body for each in declared)
    target = cuda_side.find_target(beside if is_wrapper else kernels, name)
    # Its binding may stand in the other text.
    bound = next((e.bound for e in declared if e.bound), target.function.bound)
    function = replace(target.function, bound=bound, python_name=python_name)
    return replace(target, function=function)
