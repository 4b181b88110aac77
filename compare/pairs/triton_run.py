"""Worker: calls a Python function whose Triton kernels are interpreted, on the CPU.

The worker's environment has TRITON_INTERPRET=1.
"""

from __future__ import annotations

import contextlib
import inspect
import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor
from triton.runtime import JITFunction, interpreter
from triton.runtime.errors import InterpreterError
from triton.tools.tensor_descriptor import TensorDescriptor

from bindings.backends.interpreter import unsupported_reason
from bindings.backends.interpreter_worker import (
    make_shapes_once,
    reduce_in_pairs,
    replace_language_for_good,
)
from compare.code.architectures import DEFAULT_ARCHITECTURE, parse_architecture
from compare.errors import UnavailableError
from compare.judge import cases
from compare.pairs import callers, complaints
from compare.pairs.calls import FaultError, InputWrittenError, too_large
from compare.pairs.pretended_gpu import (
    GuardedTensor,
    PretendedGpu,
    line_of_user,
    pretend,
)
from compare.pairs.tensor_trees import map_tensors, named_tensors, results

_Interpreter: Any = interpreter


def answer(request: Mapping[str, Any]) -> Iterator[dict[str, Any] | None]:
    """Imports the user's file, and makes the calls.

    Args:
        request: The "caller" as callers.make takes it; the "calls" as dictionaries
            of the attributes of a Call; "written", the numbers of the inputs that may
            be written to; and the user's "files".

    Yields:
        None, once the file has been imported; then for each call the attributes of an
        Outcome, as a dictionary. A result that is too large is the last.

    Raises:
        UnavailableError: The interpreter cannot run these kernels, or the code needs a
            real GPU.
        UsageError: The file has no such function.
    """
    caller = request["caller"]
    path = Path(caller["path"])
    # Infinities and NaN arise silently on a GPU, and kernels rely on that.
    np.seterr(all="ignore")
    replace_language_for_good()
    make_shapes_once()
    reduce_in_pairs()
    _heed_assertions()
    architecture = parse_architecture(DEFAULT_ARCHITECTURE)
    with pretend(path, "cpu", architecture) as gpu, _checked_launches(path, gpu):
        function = callers.make(caller)
        with gpu.paused():
            yield None
        for call in request["calls"]:
            with gpu.paused():
                attempt = _Attempt(function, gpu, call, request)
            with programs_in(call["order"]):
                outcome = attempt.outcome()
            with gpu.paused():
                yield outcome
            if attempt.is_too_large:
                return


def _heed_assertions() -> None:
    """Makes tl.device_assert count, as Triton does in debug mode alone.

    An integer that overflows is no fault, though: a GPU wraps it around, and hashes
    rely on it.
    """
    builder = _Interpreter.interpreter_builder
    builder.options = replace(builder.options, debug=True, sanitize_overflow=False)


@contextlib.contextmanager
def programs_in(order: str) -> Iterator[None]:
    """Has the interpreter run the programs of a grid "forward" or in "reverse".

    Triton does not promise to keep set_grid_idx; tests/test_pair_triton.py pins it.
    """
    builder = _Interpreter.interpreter_builder
    set_index = builder.set_grid_idx

    def set_reversed(*index: int) -> None:
        sizes = zip(builder.grid_dim, index, strict=True)
        set_index(*(size - 1 - i for size, i in sizes))

    if order not in ("forward", "reverse"):
        raise ValueError(f"the interpreter has no order {order!r} of programs")
    chosen = set_index if order == "forward" else set_reversed
    with patch.object(builder, "set_grid_idx", chosen):
        yield


@contextlib.contextmanager
def _checked_launches(path: Path, gpu: PretendedGpu) -> Iterator[None]:
    """Looks at what each launch gets, and at the margins of memory after it."""
    run = _Interpreter.InterpretedFunction.run

    def run_checked(self: Any, *args: Any, **kwargs: Any) -> Any:
        place = line_of_user(path)
        for each in (*args, *kwargs.values()):
            tensor = each.base if isinstance(each, TensorDescriptor) else each
            reason = isinstance(tensor, Tensor) and unsupported_reason(tensor.dtype)
            if reason:
                raise UnavailableError(f"{place}: {self.__name__}: {reason}")
        result = run(self, *args, **kwargs)
        for guarded in gpu.allocated:
            if fault := guarded.fault():
                raise FaultError(
                    f"{place}: {self.__name__} wrote out of bounds: {fault}"
                )
        return result

    def refuse(self: Any, *args: Any, **kwargs: Any) -> None:
        raise UnavailableError(
            f"{line_of_user(path)}: {self.__name__} is a kernel in Gluon, which "
            "Triton's interpreter does not know"
        )

    with (
        patch.object(_Interpreter.InterpretedFunction, "run", run_checked),
        patch.object(JITFunction, "run", refuse),
    ):
        yield


class _Attempt:
    """One call of the user's function, and what is seen of it."""

    def __init__(
        self,
        function: Callable[..., Any],
        gpu: PretendedGpu,
        call: Mapping[str, Any],
        request: Mapping[str, Any],
    ) -> None:
        self.function, self.gpu = function, gpu
        self.files = [Path(each) for each in request["files"]]
        self.place = _place(function, Path(request["caller"]["path"]))
        named = [*named_tensors(_names(function, call["inputs"]), call["inputs"])]
        laid_out = cases.lay_out_all([each for _, each in named], call["layout"], "cpu")
        self.inputs = [
            GuardedTensor.of(name, each)
            for (name, _), each in zip(named, laid_out, strict=True)
        ]
        gpu.allocated[:] = self.inputs
        self.may_be_written = [
            number in request["written"]
            for number, each in enumerate(call["inputs"])
            for _ in named_tensors([""], [each])
        ]
        self.is_too_large = False  # what it returned
        self.before = [each.memory[each.span].copy() for each in self.inputs]
        tensors = iter(self.inputs)
        self.arguments = [
            map_tensors(each, lambda _: next(tensors).tensor) for each in call["inputs"]
        ]

    def outcome(self) -> dict[str, Any]:
        """Makes the call."""
        torch.manual_seed(0)  # what the function itself draws is the same each time
        try:
            result = self.function(*self.arguments)
            with self.gpu.paused():
                outputs = self._outputs(result)
        except UnavailableError:
            raise
        except FaultError as fault:
            is_of_input = isinstance(fault, InputWrittenError)
            return {"problem": str(fault), "writes_to_input": is_of_input}
        except InterpreterError as error:
            return {"problem": self._sentence_of_kernel(error)}
        except Exception as error:
            return {"refusal": complaints.describe(error, self.files)}
        return {"outputs": outputs}

    def _outputs(self, result: Any) -> list[Tensor]:
        """Copies of what the function returned, or else of the inputs it changed.

        Raises:
            FaultError: It wrote where it must not.
        """
        for guarded in self.gpu.allocated:
            if fault := guarded.fault():
                raise FaultError(f"{self.place}: memory was written {fault}")
        is_changed = [
            not np.array_equal(each.memory[each.span], before)
            for each, before in zip(self.inputs, self.before, strict=True)
        ]
        changed = [*itertools.compress(self.inputs, is_changed)]
        for each, before in zip(self.inputs, self.before, strict=True):
            if _is_changed_between(each, before):
                where = f"between the elements of {each.name}"
                raise FaultError(f"{self.place}: memory was written {where}")
        if result is None:
            if not changed:
                raise FaultError(f"{self.place}: returned None, and changed no input")
            return [each.tensor.clone() for each in changed]
        found = [*results(result, self.place)]
        if sentence := too_large(found):
            self.is_too_large = True
            raise FaultError(f"{self.place}: {sentence}")
        returned = {each.untyped_storage().data_ptr() for each in found}
        for each, may_be in zip(self.inputs, self.may_be_written, strict=True):
            if each not in changed or may_be:
                continue
            if each.tensor.untyped_storage().data_ptr() not in returned:
                raise InputWrittenError(
                    f"{self.place}: input {each.name} was written to"
                )
        return [each.detach().clone() for each in found]

    def _sentence_of_kernel(self, error: BaseException) -> str:
        """What was raised within a kernel, and where.

        Raises:
            UnavailableError: By the interpreter, for what it cannot do.
        """
        while isinstance(error, InterpreterError) and error.__cause__:
            error = error.__cause__
        sentence = complaints.describe(error, self.files)
        if isinstance(error, NotImplementedError):
            raise UnavailableError(f"Triton's interpreter cannot do this: {sentence}")
        return sentence


def _names(function: Callable[..., Any], inputs: list[Any]) -> list[str]:
    """The names of the parameters that the inputs are for."""
    names: list[str] = []
    rest = "input {}"
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # such as that of an autograd.Function
        parameters = {}.values()
    for each in parameters:
        if each.kind is each.VAR_POSITIONAL:
            rest = f"{each.name}[{{}}]"
        else:
            names.append(each.name)
    return [*names, *(rest.format(i) for i in range(len(inputs) - len(names)))]


def _is_changed_between(
    guarded: GuardedTensor, before: np.ndarray[Any, np.dtype[np.uint8]]
) -> bool:
    """Whether something was written between the elements of a tensor."""
    x = guarded.tensor
    if x.is_contiguous() or not x.numel():
        return False
    is_between = torch.ones(len(before) // x.element_size(), dtype=torch.bool)
    is_between.as_strided(x.shape, x.stride()).fill_(False)
    changed = guarded.memory[guarded.span] != before
    each = changed.reshape(-1, x.element_size()).any(axis=1)
    return bool((each & is_between.numpy()).any())


def _place(function: Callable[..., Any], path: Path) -> str:
    """Where the function is: "mine.py:12"."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    if code is None or code.co_filename != str(path):
        return path.name
    return f"{path.name}:{code.co_firstlineno}"
