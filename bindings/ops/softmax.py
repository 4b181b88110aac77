"""Softmax along one dimension, and its backward."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from bindings import check, layout
from bindings.library import call, register
from bindings.op import Argument, CodeContract, Gradient, Op, Traffic


def softmax(x: Tensor, dim: int = -1, *, backend: str = "cuda") -> Tensor:
    """Exponentials along a dimension, scaled to a sum of one.

    exp(x - max(x)) / sum(exp(x - max(x))), computed in float32 and rounded once. A row
    that holds NaN or +inf, or nothing but -inf, is NaN; -inf beside a finite value
    is 0. Autograd differentiates it once, by softmax_backward of the same backend.

    A contiguous `dim` is read in place, whatever the strides of the others (three
    groups of them that cannot be merged are copied first), and the result has the
    memory format of x. For any other `dim`, x is copied with that dimension innermost,
    and the result keeps the strides of that copy.

    Args:
        x: Any shape, even 0-d; float32, float16 or bfloat16.
        dim: The dimension that sums to one; negative values count from the last.
        backend: "cuda", "cuda_inline", "triton" or "torch".

    Returns:
        A tensor of the shape and dtype of x.

    Raises:
        TypeError: x is not a tensor, its dtype is not supported, or dim is not an int.
        IndexError: x has no such dim.
        ValueError: The backend is unknown.

    Source: Milakov & Gimelshein 2018, arXiv:1805.02867.
    """
    check.is_tensor("softmax", "x", x)
    check.dimension("softmax", "dim", dim, x)
    return call(OP, backend, x, dim)


def softmax_backward(
    grad: Tensor, y: Tensor, dim: int = -1, *, backend: str = "cuda"
) -> Tensor:
    """The gradient of softmax's input from that of its output.

    y * (grad - sum(grad * y)) with the sum along a dimension, computed in float32 and
    rounded once.

    A tensor whose `dim` is contiguous is read in place, whatever the strides of the
    other dimensions (three groups of them that cannot be merged are copied first); any
    other is copied. The result has the memory format of y if `dim` is contiguous there,
    else `dim` is innermost.

    Args:
        grad: The gradient of softmax's output, with the shape, dtype and device of y.
        y: The result of softmax: any shape, even 0-d; float32, float16 or bfloat16.
        dim: The dimension along which y sums to one; negative values count from the
            last.
        backend: "cuda", "cuda_inline", "triton" or "torch".

    Returns:
        A tensor of the shape and dtype of y.

    Raises:
        TypeError: An argument is not a tensor, dtypes are not supported or differ, or
            dim is not an int.
        IndexError: y has no such dim.
        ValueError: Shapes or devices differ, or the backend is unknown.

    Source: the chain rule, with d y[i] / d x[j] = y[i] * ((i == j) - y[j]).
    """
    check.is_tensor("softmax_backward", "grad", grad)
    check.is_tensor("softmax_backward", "y", y)
    check.dimension("softmax_backward", "dim", dim, y)
    return call(BACKWARD, backend, grad, y, dim)


def _allocate(x: Tensor, dim: int = -1) -> Tensor:
    check.is_supported("softmax", "x", x)
    return layout.empty_rows_like(x, check.dimension("softmax", "dim", dim, x))


def _operands(out: Tensor, x: Tensor, dim: int = -1) -> tuple[Argument, ...]:
    walk = layout.rows(out, x, dim=check.dimension("softmax", "dim", dim, x))
    return (
        out,
        *walk.inputs,
        walk.n_rows,
        walk.n_cols,
        walk.rows_per_batch,
        *walk.strides,
    )


def _reference(x: Tensor, dim: int = -1) -> Tensor:
    return torch.softmax(x, dim)


def _inputs(shape: tuple[int, ...], generator: torch.Generator) -> tuple[Tensor]:
    return (torch.randn(shape, generator=generator),)


def _traffic(shape: tuple[int, ...], element_size: int) -> Traffic:
    n_bytes = math.prod(shape) * element_size
    return Traffic(n_bytes, n_bytes)


def _allocate_backward(grad: Tensor, y: Tensor, dim: int = -1) -> Tensor:
    check.is_supported("softmax_backward", "grad", grad)
    check.is_supported("softmax_backward", "y", y)
    check.agree("softmax_backward", "grad", grad, "y", y)
    check.same_shape("softmax_backward", "grad", grad, "y", y)
    dim = check.dimension("softmax_backward", "dim", dim, y)
    return layout.empty_rows_like(y, dim)


def _operands_backward(
    out: Tensor, grad: Tensor, y: Tensor, dim: int = -1
) -> tuple[Argument, ...]:
    dim = check.dimension("softmax_backward", "dim", dim, y)
    walk = layout.rows(out, grad, y, dim=dim)
    return (
        out,
        *walk.inputs,
        walk.n_rows,
        walk.n_cols,
        walk.rows_per_batch,
        *walk.strides,
    )


def _reference_backward(grad: Tensor, y: Tensor, dim: int = -1) -> Tensor:
    # torch.softmax's own backward calls this op. PyTorch does not promise to keep it;
    # tests/test_gradients.py pins it to the formula.
    out: Tensor = torch.ops.aten._softmax_backward_data(grad, y, dim, y.dtype)
    return out


def _inputs_backward(
    shape: tuple[int, ...], generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    grad, x = (torch.randn(shape, generator=generator) for _ in range(2))
    return grad, torch.softmax(x, -1)


def _traffic_backward(shape: tuple[int, ...], element_size: int) -> Traffic:
    n_bytes = math.prod(shape) * element_size
    return Traffic(2 * n_bytes, n_bytes)


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    _, ctx.dim = inputs
    ctx.save_for_backward(output)


def _compute(run: Any, ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    (y,) = ctx.saved_tensors
    return run(BACKWARD, grad, y, ctx.dim), None


# Shapes around the ends of both languages' tiles, and a row count that fills no tile.
_EDGES: tuple[tuple[int, ...], ...] = (
    (),
    (0, 5),
    (5, 0),
    (1, 1),
    (4, 1),
    (2, 3, 31),
    *((3, n) for n in (33, 63, 64, 65, 255, 256, 257, 511, 512, 513)),
    *((3, n) for n in (1023, 1024, 1025, 2047, 2048, 2049)),
    *((2, n) for n in (4095, 4096, 4097, 8191, 8193, 16383, 16384, 16385)),
    *((1, n) for n in (6144, 6152, 12288, 12296)),
    *((2, n) for n in (32767, 32768, 32769, 40000)),
    (1, 131072),
    (1, 1048577),
    (37, 8),
    (1031, 12),
)
_SWEEP = tuple((4**n, 4096) for n in range(9))

BACKWARD = register(
    Op(
        name="softmax_backward",
        forward="softmax",
        schema="(Tensor grad, Tensor y, int dim=-1) -> Tensor",
        allocate=_allocate_backward,
        other_kernels={
            "softmax_backward_long_kernel": "Rows too long for registers: CUDA keeps "
            "them in the shared memory of a cluster; Triton has neither, keeps a part "
            "in registers, and reads the rest again."
        },
        operands=_operands_backward,
        reference=_reference_backward,
        inputs=_inputs_backward,
        traffic=_traffic_backward,
        small_shape=(1823, 781),
        large_shape=(16384, 4096),
        benchmark_shapes=((16384, 4096), (4096, 131072), *layout.UNEVEN_ROWS),
        sweep_shapes=_SWEEP,
        edge_shapes=_EDGES,
        code_contract=CodeContract(
            # Rows in a warp, in a block, and in a cluster's blocks or read twice.
            shapes=((4096, 1008), (16384, 4096), (64, 131072))
        ),
    )
)

OP = register(
    Op(
        name="softmax",
        schema="(Tensor x, int dim=-1) -> Tensor",
        allocate=_allocate,
        other_kernels={
            "softmax_long_kernel": "A row too long for registers: CUDA keeps it in the "
            "shared memory of a cluster; Triton has neither, keeps a part in "
            "registers, and reads the rest again.",
            "softmax_cached_kernel": "Triton alone: a row of 16385 to 65536 two-byte "
            "elements, which the L1 holds, is read from there three times, in 0.5 to "
            "0.9 of what softmax_long_kernel takes.",
        },
        operands=_operands,
        reference=_reference,
        inputs=_inputs,
        traffic=_traffic,
        small_shape=(1823, 781),
        large_shape=(16384, 4096),
        benchmark_shapes=(
            (32768, 1024),
            (16384, 4096),
            (8192, 32768),
            (4096, 131072),
            *layout.UNEVEN_ROWS,
        ),
        sweep_shapes=_SWEEP,
        edge_shapes=_EDGES,
        code_contract=CodeContract(
            # Rows in a warp, in a block, and in a cluster's blocks or read twice.
            shapes=((4096, 1008), (16384, 4096), (512, 40960), (64, 131072))
        ),
        gradient=Gradient(save=_save, compute=_compute),
    )
)
