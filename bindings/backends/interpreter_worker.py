"""The process that interprets Triton kernels, started by `interpreter`."""

from __future__ import annotations

import ast
import functools
import inspect
import mmap
import os
import select
import sys
import textwrap
import threading
import traceback
from collections.abc import Callable
from dataclasses import replace
from multiprocessing.connection import Connection
from multiprocessing.reduction import recv_handle
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
import triton.language as tl
from torch import Tensor
from triton.language.semantic import TritonSemantic
from triton.runtime import interpreter

from bindings.backends import launchers
from bindings.backends.interpreter import Request, SharedTensor


def main(connection_file: int) -> None:
    """Serves calls until the parent closes the connection."""
    threading.Thread(target=_die_with, args=(connection_file,), daemon=True).start()
    # Infinities and NaN arise silently on a GPU, and kernels rely on that: exp(-inf) of
    # a masked column, x * inf after an overflow.
    np.seterr(all="ignore")
    replace_language_for_good()
    make_shapes_once()
    reduce_in_pairs()
    raise_on_overflow()
    connection: Connection[Any, Any] = Connection(connection_file)
    while True:
        try:
            request = connection.recv()
            memory_file = recv_handle(connection)
        except EOFError:
            return
        error = _error_of(request, memory_file)
        os.close(memory_file)
        connection.send(error)


def replace_language_for_good() -> None:
    """Makes Triton replace the language's functions by the interpreter's only once.

    It does so for every launch, and again whenever one kernel function calls another,
    which takes half of its time. Nothing in this process needs the originals. Triton
    does not promise to keep _patch_lang; tests/test_interpreter.py pins it.
    """
    module: Any = interpreter
    replace: Callable[[Any], Any] = module._patch_lang

    @functools.cache
    def replace_once(function: Any) -> SimpleNamespace:
        replace(function)
        return SimpleNamespace(restore=lambda: None)

    module._patch_lang = replace_once


def make_shapes_once() -> None:
    """Makes Triton reuse the shapes of the types and tensors that it made before.

    For every operation Triton makes types and tensors, with a new object for each
    number of their shapes: more than half of the interpreter's time. Triton does not
    promise to keep these functions either; tests/test_interpreter.py compares what they
    make with what the originals make.
    """
    module: Any = interpreter
    new_type, new_tensor = tl.block_type.__init__, tl.tensor.__init__
    numpy_type_of = module._get_np_dtype
    broadcast = TritonSemantic.broadcast_impl_value
    of_types: dict[tuple[int, ...], tuple[Any, ...]] = {}
    of_tensors: dict[tuple[int, ...], tuple[Any, ...]] = {}
    numpy_types: dict[str, Any] = {}

    def init_type(self: Any, element_ty: Any, shape: Any) -> None:
        key = tuple(x.value if isinstance(x, tl.constexpr) else x for x in shape)
        if (known := of_types.get(key)) is None:
            new_type(self, element_ty, shape)
            of_types[key] = self.shape, self.numel, str(self.shape)
            return
        self.element_ty = element_ty
        self.shape, self.numel, text = known
        self.name = f"<{text}, {element_ty}>"

    def init_tensor(self: Any, handle: Any, type: Any) -> None:
        key = tuple(type.shape.values) if type.is_block() else ()
        if (known := of_tensors.get(key)) is None:
            new_tensor(self, handle, type)
            of_tensors[key] = self.shape, self.numel
            return
        self.handle, self.type, self.dtype = handle, type, type.scalar
        self.shape, self.numel = known

    def numpy_type(triton_type: Any) -> Any:
        scalar = triton_type.scalar
        if isinstance(scalar, tl.pointer_type):
            return numpy_type_of(scalar)
        if (known := numpy_types.get(scalar.name)) is None:
            known = numpy_types[scalar.name] = numpy_type_of(scalar)
        return known

    def broadcast_unless_alike(self: Any, lhs: Any, rhs: Any) -> Any:
        left, right = lhs.type, rhs.type
        are_blocks = left.is_block() and right.is_block()
        if are_blocks and left.shape.values == right.shape.values:
            return lhs, rhs
        return broadcast(self, lhs, rhs)

    replaced: Any = tl
    replaced.block_type.__init__ = init_type
    replaced.tensor.__init__ = init_tensor
    module._get_np_dtype = numpy_type
    semantic: Any = TritonSemantic
    semantic.broadcast_impl_value = broadcast_unless_alike


def reduce_in_pairs() -> None:
    """Makes Triton combine all neighbours of a tensor in one call, not two numbers.

    A reduction by a function of the kernel's own calls it once for each element: a row
    of 65,536 columns takes seconds. Neighbours are combined in their order, so that the
    function has to be associative, as on a GPU. One that branches takes single numbers,
    and is called as before. Triton does not promise to keep generic_reduce;
    tests/test_interpreter.py compares what both make.
    """
    reductions: Any = interpreter.ReduceOps
    reduce_one_by_one = reductions.generic_reduce

    def reduce(self: Any, input: tuple[Any, ...]) -> Any:
        function = self.combine_fn.fn
        if _branches(function):
            return reduce_one_by_one(self, input)
        values, axis = self.unravel(input, self.axis)
        dtypes = [each.dtype for each in values]
        arrays = [np.moveaxis(each.handle.data, axis, 0) for each in values]
        while len(arrays[0]) > 1:
            pairs = [
                self.to_tensor(array[start::2], dtype)
                for start in (0, 1)
                for array, dtype in zip(arrays, dtypes, strict=True)
            ]
            combined = function(*pairs)
            if not isinstance(combined, tuple):
                combined = (combined,)
            arrays = [each.handle.data for each in combined]
        reduced = (
            self.to_tensor(np.moveaxis(array, 0, axis), dtype)
            for array, dtype in zip(arrays, dtypes, strict=True)
        )
        return reduce_one_by_one(self, tuple(reduced))  # which now combines nothing

    reductions.generic_reduce = reduce


@functools.cache
def _branches(function: Callable[..., Any]) -> bool:
    """Whether a function asks for the truth of a value, which a block does not have."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    asking = (ast.If, ast.IfExp, ast.While, ast.BoolOp, ast.Not, ast.Assert)
    return any(isinstance(node, asking) for node in ast.walk(tree))


def raise_on_overflow() -> None:
    """Makes Triton raise where a sum or a product of integers overflows its type.

    Triton checks for overflow anyway, by the same operation in 64 bits and two
    comparisons, but reports it only in debug mode. In Triton's own operations the check
    takes a fifth of the interpreter's time, so NumPy makes it, and Triton repeats it
    only for what overflows.
    """
    module: Any = interpreter
    builder = module.interpreter_builder
    builder.options = replace(builder.options, debug=True)
    semantic: Any = TritonSemantic
    raise_for = semantic.binary_op_sanitize_overflow_impl
    ufuncs = {"add": np.add, "sub": np.subtract, "mul": np.multiply}

    def look(self: Any, lhs: Any, rhs: Any, binary_op: Any) -> None:
        scalar = lhs.type.scalar
        if scalar.int_bitwidth >= 64:
            return
        operands = (x.handle.data.astype(np.int64) for x in (lhs, rhs))
        result = ufuncs[binary_op.__name__](*operands)
        lowest, highest = scalar.get_int_min_value(), scalar.get_int_max_value()
        if result.min() < lowest or result.max() > highest:
            raise_for(self, lhs, rhs, binary_op)

    semantic.binary_op_sanitize_overflow_impl = look


def _die_with(connection_file: int) -> None:
    # Even in the middle of a kernel that never ends: nobody waits for it any more.
    poller = select.poll()
    poller.register(connection_file, 0)  # a hang-up is always reported
    poller.poll()
    os._exit(1)


def _error_of(request: Request, memory_file: int) -> str | None:
    try:
        _run(request, memory_file)
    except Exception as error:
        # The interpreter wraps a kernel's exception and adds nothing to it.
        cause = error.__cause__ or error
        trace = "".join(traceback.format_exception(cause))
        return f"{type(cause).__name__}: {cause}\n\nIn Triton's interpreter:\n{trace}"
    return None


def _run(request: Request, memory_file: int) -> None:
    mapping = mmap.mmap(memory_file, request.memory_size)
    memory = torch.frombuffer(mapping, dtype=torch.uint8)
    arguments = [
        _tensor(memory, argument) if isinstance(argument, SharedTensor) else argument
        for argument in request.arguments
    ]
    launchers.find(request.module, request.op)(*arguments)


def _tensor(memory: Tensor, shared: SharedTensor) -> Tensor:
    span = memory[shared.start : shared.end].view(shared.dtype)
    return span.as_strided(shared.shape, shared.strides)


if __name__ == "__main__":
    main(int(sys.argv[1]))
