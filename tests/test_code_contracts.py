"""What the compilers must make of every op: no float64, no spills, wide accesses.

Compiled, not run: it holds on every machine, for the GPUs that are not there.
"""

from __future__ import annotations

import pytest
import torch

from bindings import toolchain
from bindings.op import Argument, Op
from bindings.registry import OPS
from compare.codegen.architectures import parse_architecture
from compare.codegen.model import inspect_cuda, inspect_triton

ARCHITECTURE = parse_architecture("sm_90")
SIDES = {"cuda": inspect_cuda, "triton": inspect_triton}

# Every kernel of softmax: rows in a warp, a block, shared memory, and read twice.
SHAPES: dict[str, tuple[tuple[int, ...], ...]] = {
    "softmax": ((4096, 1000), (4096, 4096), (512, 40960), (64, 131072)),
    # Along rows and across them: whole, and split, when a second kernel adds.
    "sum": ((16384, 8192), (1048576, 128), (64, 2097152)),
}
CASES = [
    pytest.param(op, shape, params, id=f"{op.name}-{shape}-{params}")
    for op in OPS.values()
    for params in op.variants
    for shape in SHAPES.get(op.name, (op.large_shape,))
]


def _arguments(
    op: Op, shape: tuple[int, ...], dtype: torch.dtype, params: dict[str, object]
) -> tuple[Argument, ...]:
    n_inputs = len(op.inputs((1,), torch.Generator()))
    inputs = [torch.empty(shape, dtype=dtype, device="meta") for _ in range(n_inputs)]
    return op.arguments(op.allocate(*inputs, **params), *inputs, **params)


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize(("description", "shape", "params"), CASES)
def test_contract(
    description: Op,
    shape: tuple[int, ...],
    params: dict[str, object],
    side: str,
    dtype: torch.dtype,
) -> None:
    if side == "cuda" and toolchain.find_cuda_home() is None:
        pytest.skip("needs nvcc")
    arguments = _arguments(description, shape, dtype, params)
    out = arguments[0]
    assert isinstance(out, torch.Tensor)
    # Aligned data of a size that fills vectors moves 16 bytes at a time; the narrow
    # accesses beside them are for the end of a tensor that does not. What is left of a
    # reduction is little, and may be stored as it comes.
    wide = ["global load", "global store"] if out.shape == shape else ["global load"]
    number, n_kernels = 0, 1
    while number < n_kernels:
        code = SIDES[side](description, arguments, ARCHITECTURE, number=number)
        assert ".f64" not in code.ptx.text
        assert code.spill_bytes == 0
        for category in wide:
            assert max(code.sass_mix.widths[category]) == 16
        number, n_kernels = number + 1, len(code.kernels)
