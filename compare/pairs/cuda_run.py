"""Calls a function of a user's .cu in the emulator, in a process of its own."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

from torch import Tensor

from compare.code.architectures import DEFAULT_ARCHITECTURE, parse_architecture
from compare.errors import UnavailableError
from compare.judge.cases import lay_out
from compare.judge.sanitizer import pieces
from compare.pairs import callers, complaints, cuda_values
from compare.pairs.calls import FaultError, InputWrittenError, too_large
from compare.pairs.cuda_edits import UNNAMED
from compare.pairs.cuda_values import RefusalError, Value
from compare.pairs.references import is_same
from compare.pairs.tensor_trees import map_tensors, named_tensors, results
from compare.printable import printable

# How the emulator says that it has ended a kernel.
_ENDED = re.compile(r"\b(step limit|time limit|endless polling): ")
_INPUT_WRITTEN = "write to an input: "
# Its advice to those who set environment variables.
_ADVICE = re.compile(r"; if [^;]*, raise TWIN_EMULATOR_\w+| \(TWIN_EMULATOR_\w+\)")
# Where it knows no more of a place in the code.
_ADDRESS = re.compile(r"\b(0x[0-9a-f]+) of (/[^;]*?\.so)\b")
_DOES_NOT_FIT = 2  # of own_call's results, csrc/emulator/own/interface.h


def answer(request: Mapping[str, Any]) -> dict[str, Any]:
    """Calls the function; a task of the sandbox.

    Args:
        request: library (its path), uses_torch, functions (by number, as
            `cuda_side.described` has them), names (of the inputs), written (the inputs
            that may be written to; None for all), caller (as `callers.make` takes it;
            None for the function itself), files (the user's), values (lists of inputs),
            and calls: name, number of the values, layout, order.

    Returns:
        For each call outputs, problem and refusal; and as JSON texts the launches of
        the first call that made some.
    """
    function = _Function(request)
    launches: list[str] = []
    outcomes: list[dict[str, Any]] = []
    for call in request["calls"]:
        if outcomes and _ENDED.search(outcomes[-1].get("problem", "")):
            outcomes.append(outcomes[-1])  # it would not end either
            continue
        inputs = request["values"][call["values"]]
        outcomes.append(_outcome(function, inputs, call))
        launches = launches or function.launches()
    return {"outcomes": outcomes, "launches": launches}


def _outcome(
    function: _Function, values: Sequence[Any], call: Mapping[str, Any]
) -> dict[str, Any]:
    # Other calls have the same values, and find them as they were.
    inputs = map_tensors(values, lambda x: lay_out(x.clone(), call["layout"], "cpu"))
    with patch.dict(os.environ, TWIN_EMULATOR_ORDER=call["order"]):
        try:
            return {"outputs": function.call(inputs)}
        except FaultError as error:
            is_of_input = isinstance(error, InputWrittenError)
            return {"problem": str(error), "writes_to_input": is_of_input}
        except RefusalError as error:
            return {"refusal": str(error)}


class _Function:
    """The function of a library, as it is called from Python."""

    def __init__(self, request: Mapping[str, Any]) -> None:
        """Loads the library."""
        self._request = request
        self._library = _load(request["library"], request["uses_torch"])
        # By storage, whether it may be written to.
        self._inputs: dict[int, bool] = {}
        self._returned: set[int] = set()  # the storages of inputs that C++ returned
        self._place: str = request["functions"][0]["place"]
        self._pretending = contextlib.ExitStack()
        self._caller = self._make_caller()

    def launches(self) -> list[str]:
        """The launches of the last call, as JSON."""
        count = self._library.own_launch_count()
        return [self._library.own_launch(number).decode() for number in range(count)]

    def call(self, inputs: Sequence[Any]) -> list[Tensor]:
        """Calls the function, or the description's `launch` with it.

        Raises:
            FaultError: The emulator has found a fault, or an input was written to that
                must not be.
            RefusalError: The function, or `launch`, declines its arguments.
        """
        self._library.own_begin_call()
        self._returned.clear()
        names = _padded(self._request["names"], "input", len(inputs))
        named = [*named_tensors(names, inputs)]
        written = self._request["written"]
        may_be_written = [
            written is None or number in written
            for number, each in enumerate(inputs)
            for _ in named_tensors([""], [each])
        ]
        self._inputs = {
            _storage(tensor): is_written
            for (_, tensor), is_written in zip(named, may_be_written, strict=True)
        }
        before = [tensor.clone() for _, tensor in named]
        if self._caller is None:
            outputs = self.run(0, *inputs)
        else:
            outputs = self._call_by_python(self._caller, inputs)
        self._raise_fault()
        changed = [
            (name, tensor)
            for (name, tensor), old in zip(named, before, strict=True)
            if not is_same(tensor, old)
        ]
        if not outputs:
            outputs = [x for _, x in changed if self._inputs[_storage(x)]]
        returned = self._returned | {_storage(each) for each in outputs}
        for name, tensor in changed:
            storage = _storage(tensor)
            if not self._inputs[storage] and storage not in returned:
                raise InputWrittenError(f"{self._place}: input {name} was written to")
        if sentence := too_large(outputs):
            raise FaultError(f"{self._place}: {sentence}")
        return [each.clone() for each in outputs]

    def configure(self, grid: Sequence[int], block: Sequence[int], shared: int) -> None:
        """Sets what the next launch of a bare kernel takes."""
        triple = ctypes.c_uint * 3
        self._library.own_configure(
            triple(*grid), triple(*block), ctypes.c_ulong(shared)
        )

    def _make_caller(self) -> Callable[..., Any] | None:
        """The Python function that calls the functions of the library, if there is one.

        It finds a GPU, for all that it can tell.
        """
        caller = self._request["caller"]
        if caller is None:
            return None
        # With Triton, which takes a quarter of a second that most files can do without.
        from compare.pairs.pretended_gpu import pretend

        architecture = parse_architecture(DEFAULT_ARCHITECTURE)
        path = Path(caller["path"])
        self._pretending.enter_context(pretend(path, "cpu", architecture))
        return callers.of_library(caller, self._request["functions"], self)

    def _call_by_python(
        self, caller: Callable[..., Any], inputs: Sequence[Any]
    ) -> list[Tensor]:
        try:
            found = caller(*inputs)
        except (FaultError, RefusalError, UnavailableError):
            raise
        except Exception as error:  # of any kind: it is the user's code
            files = list(map(Path, self._request["files"]))
            raise RefusalError(complaints.describe(error, files)) from error
        if found is None:
            return []
        return [*results(found, Path(self._request["caller"]["path"]).name)]

    def run(self, function: int, *given: Any, **keywords: Any) -> list[Tensor]:
        """Calls a function of the library.

        Raises:
            FaultError: The emulator has found a fault.
            RefusalError: The function declines its arguments.
            UnavailableError: They cannot be passed on here.
        """
        known = self._request["functions"][function]
        self._place = known["place"]
        try:
            arguments = cuda_values.completed(known["bound"], given, keywords)
            names = _padded(known["names"], "argument", len(arguments))
            for name, tensor in named_tensors(names, arguments):
                self._give(name, tensor)
            values, kept = cuda_values.from_python(arguments)
            if self._request["uses_torch"]:
                self._library.own_forget_results()
            with self._watching_memory():
                status = self._library.own_call(
                    ctypes.c_size_t(function), values, ctypes.c_size_t(len(arguments))
                )
            del kept  # not before the call is over
            self._raise_fault()
            if status:
                raise RefusalError(self._refusal(status))
            found = self._found()
            outputs = [*map(cuda_values.to_python, found)]
        except (RefusalError, UnavailableError) as error:
            raise type(error)(_with_place(str(error), self._place)) from error
        self._note_returned([each.address or 0 for each in found], arguments)
        return outputs

    def _found(self) -> list[Value]:
        """What the function has returned; without torch no tensors."""
        if not self._request["uses_torch"]:
            return []
        values = self._library.own_results()
        return [values[i] for i in range(self._library.own_result_count())]

    def _note_returned(
        self, addresses: Sequence[int], arguments: Sequence[Any]
    ) -> None:
        """Notes of what input a result is a part."""
        for _, tensor in named_tensors([""] * len(arguments), arguments):
            begin = _storage(tensor)
            end = begin + tensor.untyped_storage().nbytes()
            if any(begin <= address < end for address in addresses):
                self._returned.add(begin)

    def _refusal(self, status: int) -> str:
        """What the function has raised, with the place where torch tells one."""
        text = self._library.own_refusal().decode(errors="replace")
        message = text.splitlines()[0] if text else "it raised an exception"
        message = printable(message[:300])
        if status == _DOES_NOT_FIT:
            return message
        place = re.search(r"Exception raised from .* at (/.*?):(\d+) \(most", text)
        if place and place[1] in self._request["files"]:
            return f"{Path(place[1]).name}:{place[2]}: {message}"
        return message

    @contextlib.contextmanager
    def _watching_memory(self) -> Iterator[None]:
        """Makes known to the checker what the host function allocates meanwhile."""
        if not self._request["uses_torch"]:
            yield
            return
        self._library.own_watch_memory(1)
        try:
            yield
        finally:
            self._library.own_watch_memory(0)

    def _raise_fault(self) -> None:
        if fault := self._library.own_fault().decode(errors="replace"):
            sentence = _sentence(fault, self._request["files"])
            error = InputWrittenError if _INPUT_WRITTEN in fault else FaultError
            raise error(_with_place(sentence, self._place))

    def _give(self, name: str, tensor: Tensor) -> None:
        is_written = self._inputs.get(_storage(tensor), True)
        for address, n_bytes in pieces(tensor):
            self._library.own_give(name.encode(), address, n_bytes, is_written)


def _load(path: str, uses_torch: bool) -> ctypes.CDLL:
    library = ctypes.CDLL(path)
    for name in ("own_fault", "own_refusal", "own_launch"):
        getattr(library, name).restype = ctypes.c_char_p
    library.own_launch_count.restype = ctypes.c_size_t
    if uses_torch:
        library.own_result_count.restype = ctypes.c_size_t
        library.own_results.restype = ctypes.POINTER(Value)
    library.own_launch.argtypes = [ctypes.c_size_t]
    library.own_give.argtypes = [
        ctypes.c_char_p,
        ctypes.c_void_p,
        ctypes.c_size_t,
        ctypes.c_int,
    ]
    return library


def _padded(names: Sequence[str], word: str, count: int) -> list[str]:
    """At least as many names: "input 3"."""
    return [*names, *(f"{word} {i + 1}" for i in range(len(names), count))]


def _storage(x: Tensor) -> int:
    return x.untyped_storage().data_ptr()


def _sentence(fault: str, files: Sequence[str]) -> str:
    """The emulator's message in one line, with files by their names."""
    fault = _ADDRESS.sub(_line_at, _ADVICE.sub("", fault))
    for file in files:
        fault = fault.replace(file, Path(file).name)
    fault = fault.replace(f"{UNNAMED}::", "")
    lines = [line.strip() for line in fault.splitlines() if line.strip()]
    return printable("; ".join(lines)[:600])


def _line_at(address: re.Match[str]) -> str:
    """The line of code at an address of a library, if that is known."""
    command = ["addr2line", "-e", address[2], address[1]]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    line = done.stdout.strip().partition(" (discriminator")[0]
    return line if re.search(r":\d+$", line) else address[0]


def _with_place(sentence: str, place: str) -> str:
    """A sentence that says where: in the function that was called, if it does not."""
    return sentence if re.search(r"\w:\d", sentence) else f"{place}: {sentence}"
