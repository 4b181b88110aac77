"""A product of matrices with a fused bias and activation."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from bindings import check
from bindings.library import call, register
from bindings.op import Argument, Gradient, Op
from bindings.ops import activation as activation_op
from bindings.ops import sum as sum_op
from bindings.ops._device import count_sms, is_hopper

ACTIVATIONS = (None, *activation_op.ACTIVATIONS)
PRECISIONS = ("ieee", "tf32", "tf32x3")

# A dimension of size 1 is never stepped along, so it is given an aligned stride.
_ALIGNED = 16

# Rows of operands are aligned to vectors. Those of copies, where they are long, to
# lines of the L2.
_VECTOR_BYTES, _LINE_BYTES = 16, 128

# The sums of the largest tile. Along k, a step of a tile takes a line of the L2.
_MOST_SUMS = 128 * 256
# By which tile, on how many blocks and with how many shared tiles: the launcher's model
# chooses. Tests and benchmarks pass launchers other numbers.
_CHOSEN_CUT = (0, 0, 0)


def matmul(
    a: Tensor,
    b: Tensor,
    bias: Tensor | None = None,
    activation: str | None = None,
    precision: str = "ieee",
    *,
    backend: str = "cuda",
) -> Tensor:
    """activation(a @ b + bias), for matrices or batches of them.

    Accumulated in float32 and rounded once, after bias and activation. The result is
    contiguous. Each operand may be row- or column-major, with any stride from row to
    row (or column to column) and from batch to batch, and is read in place; any other
    operand is copied first. So are, on Hopper, where that takes less time, operands for
    tensor cores whose rows are not aligned to 16 bytes, or that tensor cores do not
    take in their order or precision (of float32). Without any products (K = 0) the
    result is activation(bias).

    Autograd differentiates with respect to a, b and bias. The derivative of an
    activation needs its input, so where a gradient is wanted the product is rounded and
    written first, and the op `activation` follows.

    Args:
        a: (M, K) or (batch, M, K); float32, float16 or bfloat16.
        b: (K, N) or (batch, K, N), of a's dtype. A single matrix is shared by the batch
            of the other operand.
        bias: (N,) of a's dtype, or None.
        activation: None, "relu", "leaky_relu", "gelu", "gelu_tanh" or "silu".
        precision: For float32: "ieee"; "tf32" for tensor cores, which take operands
            rounded to 10 bits of fraction; or "tf32x3", which adds three products of
            such operands, large and small parts of the numbers. On Hopper tensor cores
            compute it, faster than "ieee": sums of 16 products or more are about as
            exact, a single product has some 22 bits, and fewer where a factor is below
            2^-100; infinity times infinity, or times less than 2^-126, is NaN.
            Elsewhere it is "ieee".
        backend: "cuda", "cuda_inline", "triton" or "torch".

    Returns:
        (M, N) or (batch, M, N), of a's dtype.

    Raises:
        TypeError: An argument has the wrong type, its dtype is not supported, or dtypes
            differ.
        ValueError: Shapes do not fit, devices differ, or the activation, the precision
            or the backend is unknown.

    Source: the CUDA C++ Programming Guide, "Shared Memory", and its successors.
    """
    check.is_tensor("matmul", "a", a)
    check.is_tensor("matmul", "b", b)
    check.is_optional_tensor("matmul", "bias", bias)
    check.one_of("matmul", "activation", activation, ACTIVATIONS)
    check.one_of("matmul", "precision", precision, PRECISIONS)
    tensors = (a, b) if bias is None else (a, b, bias)
    needs_gradient = torch.is_grad_enabled() and any(x.requires_grad for x in tensors)
    if activation is None or not needs_gradient:
        return call(OP, backend, a, b, bias, activation, precision)
    x = call(OP, backend, a, b, bias, None, precision)
    return call(activation_op.OP, backend, x, activation)


def _allocate(
    a: Tensor,
    b: Tensor,
    bias: Tensor | None = None,
    activation: str | None = None,
    precision: str = "ieee",
) -> Tensor:
    for name, x in (("a", a), ("b", b)):
        check.is_supported("matmul", name, x)
        if x.dim() not in (2, 3):
            raise ValueError(
                f"matmul: {name} has shape {tuple(x.shape)}, expected 2 or 3 dimensions"
            )
    check.agree("matmul", "a", a, "b", b)
    if a.shape[-1] != b.shape[-2]:
        raise ValueError(
            f"matmul: a has shape {tuple(a.shape)} and b has {tuple(b.shape)}, "
            "expected as many columns in a as rows in b"
        )
    if a.dim() == b.dim() == 3 and a.shape[0] != b.shape[0]:
        raise ValueError(
            f"matmul: a has shape {tuple(a.shape)} and b has {tuple(b.shape)}, "
            "expected the same batch"
        )
    if bias is not None:
        check.agree("matmul", "a", a, "bias", bias)
        if tuple(bias.shape) != (b.shape[-1],):
            raise ValueError(
                f"matmul: bias has shape {tuple(bias.shape)}, expected "
                f"({b.shape[-1]},), the columns of b"
            )
    check.one_of("matmul", "activation", activation, ACTIVATIONS)
    check.one_of("matmul", "precision", precision, PRECISIONS)
    batch = [x.shape[0] for x in (a, b) if x.dim() == 3][:1]
    return a.new_empty([*batch, a.shape[-2], b.shape[-1]])


def _operands(
    out: Tensor,
    a: Tensor,
    b: Tensor,
    bias: Tensor | None = None,
    activation: str | None = None,
    precision: str = "ieee",
) -> tuple[Argument, ...]:
    a, out = _with_rows_joined(a, out, b)
    n_batches = out.shape[0] if out.dim() == 3 else 1
    a, *a_strides = _operand(a)
    b, *b_strides = _operand(b)
    return (
        out,
        a,
        b,
        None if bias is None else bias.contiguous(),
        n_batches,
        *out.shape[-2:],
        a.shape[-1],
        *a_strides,
        *b_strides,
        activation_op.LAUNCHED.index(activation or "none"),
        PRECISIONS.index(precision),
        *_CHOSEN_CUT,
    )


def _workspace(
    rung: str,
    out: Tensor,
    a: Tensor,
    b: Tensor,
    bias: Tensor | None = None,
    activation: str | None = None,
    precision: str = "ieee",
) -> tuple[Tensor | None, Tensor | None]:
    """What blocks leave of tiles that they share, and copies of operands.

    A block has a part of two tiles at most. Where a multiprocessor has several blocks,
    their tiles are smaller by as much. The copies are of operands whose rows are not
    aligned and, of tf32, of one that is not contiguous along k, or that is split; there
    is room for them before the launcher chooses whether to make any.
    """
    if rung == "first" or not is_hopper(a):
        return None, None
    is_plain = a.dtype == torch.float32 and precision == "ieee"
    parts = copies = None
    a, out = _with_rows_joined(a, out, b)
    n_steps = -(-a.shape[-1] * a.element_size() // _LINE_BYTES)
    n_sms = count_sms(out)
    if n_steps > 1:
        *batch, n_rows, n_cols = out.shape
        n_tiles = math.prod(batch) * -(-n_rows // 64) * -(-n_cols // 64)
        n_parts = 2 * min(n_sms, n_tiles * n_steps)
        parts = out.new_empty((n_parts, _MOST_SUMS), dtype=torch.float32)
    if not is_plain and rung not in ("tiled", "tensor_cores"):
        stored = _Stored.of(a, 1), _Stored.of(b, 0)
        if a.dtype == torch.float32:
            n_copied = _copied_elements(*stored, splits=precision == "tf32x3")
        else:
            n_copied = sum(each.copied() for each in stored)
        copies = out.new_empty(n_copied) if n_copied else None
    return parts, copies


class _Stored(NamedTuple):
    """An operand as it lies in memory, whatever its rows are in the product."""

    n_matrices: int  # one, where a batch shares it
    n_rows: int
    n_cols: int
    element_bytes: int
    along_k: bool  # rows are, rather than columns
    is_aligned: bool

    @classmethod
    def of(cls, x: Tensor, k_axis: int) -> _Stored:
        strides = _matrix_strides(x)
        if strides is None:  # a contiguous copy will be what is launched with
            address, strides, batch = 0, (x.shape[-1], 1), math.prod(x.shape[-2:])
        else:
            address, batch = x.data_ptr(), x.stride(0)
        if x.dim() == 2 or x.shape[0] == 1:
            batch = 0
        starts = address, *(n * x.element_size() for n in (batch, max(strides)))
        n_rows, n_cols = x.shape[-2:] if strides[1] == 1 else x.shape[:-3:-1]
        return cls(
            n_matrices=1 if batch == 0 else x.shape[0],
            n_rows=n_rows,
            n_cols=n_cols,
            element_bytes=x.element_size(),
            along_k=strides[k_axis] == 1,
            is_aligned=all(start % _VECTOR_BYTES == 0 for start in starts),
        )

    @property
    def n_elements(self) -> int:
        return self.n_matrices * self.n_rows * self.n_cols

    def copied(self, is_transposed: bool = False, n_planes: int = 1) -> int:
        """The elements of a copy, 0 where the tensor cores can take itself."""
        if self.is_aligned and not is_transposed and n_planes == 1:
            return 0
        n_rows, n_cols = self.n_rows, self.n_cols
        if is_transposed:
            n_rows, n_cols = n_cols, n_rows
        n_elements = _padded_elements(n_rows, n_cols, self.element_bytes)
        return n_planes * self.n_matrices * n_elements


def _copied_elements(a: _Stored, b: _Stored, splits: bool) -> int:
    """The elements of what launchers copy of operands of float32.

    The tensor cores take one of them, the right one, contiguous along k alone and,
    where each element is split, in two planes. Where only one operand could not be on
    the right without such a copy, that one is on the left, or else the larger one.
    """
    a_needs_copy, b_needs_copy = splits or not a.along_k, splits or not b.along_k
    if a_needs_copy != b_needs_copy:
        b_is_left = b_needs_copy
    else:
        b_is_left = a.n_elements < b.n_elements
    left, right = (b, a) if b_is_left else (a, b)
    return left.copied() + right.copied(not right.along_k, 1 + splits)


def _padded_elements(n_rows: int, n_cols: int, element_bytes: int) -> int:
    """The elements of a matrix and of what lies behind its rows."""
    is_long = n_cols * element_bytes >= 4 * _LINE_BYTES
    step = (_LINE_BYTES if is_long else _VECTOR_BYTES) // element_bytes
    return n_rows * -(-n_cols // step) * step


def _with_rows_joined(a: Tensor, out: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """A and out, as one matrix each where the batch shares b and memory allows it."""
    if a.dim() == 3 and b.dim() == 2 and (rows := _as_rows(a)) is not None:
        return rows, out.flatten(0, 1)
    return a, out


def _as_rows(x: Tensor) -> Tensor | None:
    """A batch of matrices, stacked as one matrix; None if that takes a copy."""
    n_batches, n_rows, n_cols = x.shape
    if n_batches == 1 or n_rows == 1 or x.stride(0) == n_rows * x.stride(1):
        stride = x.stride(0) if n_rows == 1 else x.stride(1)
        return x.as_strided((n_batches * n_rows, n_cols), (stride, x.stride(2)))
    return None


def _operand(x: Tensor) -> tuple[Tensor, int, int, int]:
    """One or several matrices, perhaps copied, and three strides: batch, row, column.

    The row or the column stride is 1.
    """
    strides = _matrix_strides(x)
    if strides is None:
        x = x.contiguous()
        strides = x.stride(-2), 1
    is_batch = x.dim() == 3 and x.shape[0] > 1
    return x, x.stride(0) if is_batch else 0, *strides


def _matrix_strides(x: Tensor) -> tuple[int, int] | None:
    """The row and column strides by which x can be read in place, or None."""
    (n_rows, n_cols), (row, col) = x.shape[-2:], x.stride()[-2:]
    if n_cols == 1 and (n_rows == 1 or row == 1):
        return 1, _aligned(n_rows)
    if n_rows == 1 and col == 1:
        return _aligned(n_cols), 1
    if (col == 1 or n_cols == 1) and row >= n_cols:
        return row, 1
    if (row == 1 or n_rows == 1) and col >= n_rows:
        return 1, col
    return None


def _aligned(size: int) -> int:
    return -(-size // _ALIGNED) * _ALIGNED


@contextlib.contextmanager
def float32_precision(precision: str) -> Iterator[None]:
    """Sets PyTorch's switch between IEEE and tf32, which the whole process shares."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def product(
    a: Tensor,
    b: Tensor,
    bias: Tensor | None = None,
    activation: str | None = None,
) -> Tensor:
    """PyTorch's matmul, bias and activation, in the precision that its switch sets."""
    if bias is None:
        x = torch.matmul(a, b)
    elif a.dim() == b.dim() == 2:
        x = torch.addmm(bias, a, b)
    else:
        x = torch.matmul(a, b) + bias
    return activation_op.REFERENCES[activation](x) if activation else x


def _reference(
    a: Tensor,
    b: Tensor,
    bias: Tensor | None = None,
    activation: str | None = None,
    precision: str = "ieee",
) -> Tensor:
    if a.dtype == torch.float32 and a.is_cuda:
        with float32_precision(precision):
            return product(a, b, bias, activation)
    return yardstick(a, b, bias, activation, precision)


def yardstick(
    a: Tensor,
    b: Tensor,
    bias: Tensor | None = None,
    activation: str | None = None,
    precision: str = "ieee",
) -> Tensor:
    """The reference in just the precision asked for.

    PyTorch computes small products on a GPU in float32, whatever its switch says.
    """
    if a.dtype == torch.float32 and precision == "tf32":
        a, b = _rounded_to_tf32(a), _rounded_to_tf32(b)
    with float32_precision("ieee"):
        return product(a, b, bias, activation)


def _rounded_to_tf32(x: Tensor) -> Tensor:
    """Rounds x to the nearest number with 10 bits of fraction, ties to even."""
    bits = x.view(torch.int32)
    rounded = (bits + 0xFFF + (bits >> 13 & 1)) & ~0x1FFF
    return torch.where(x.isfinite(), rounded.view(torch.float32), x)


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    a, b, bias, ctx.activation, ctx.precision = inputs
    ctx.has_bias = bias is not None
    ctx.save_for_backward(a, b)


def _compute(run: Any, ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    if ctx.activation is not None:
        raise NotImplementedError(
            "twin::matmul has no backward through a fused activation; call the "
            "function bindings.matmul, which runs the activation as its own op"
        )
    a, b = ctx.saved_tensors
    # The last arguments are missing there where they have their defaults.
    needs_a, needs_b, *needs_others = ctx.needs_input_grad

    def multiply(x: Tensor, y: Tensor) -> Tensor:
        product: Tensor = run(OP, x, y, None, None, ctx.precision)
        return product

    # The gradient of a matrix that a batch shares is a sum over the batch: one product,
    # whose summed dimension includes the batch.
    grad_a = grad_b = grad_bias = None
    if needs_a and a.dim() < b.dim():
        grad_a = multiply(
            grad.transpose(0, 1).flatten(1), b.transpose(0, 1).flatten(1).mT
        )
    elif needs_a:
        grad_a = multiply(grad, b.mT)
    if needs_b and b.dim() < a.dim():
        grad_b = multiply(a.flatten(0, 1).mT, grad.flatten(0, 1))
    elif needs_b:
        grad_b = multiply(a.mT, grad)
    if ctx.has_bias and needs_others[0]:
        grad_bias = run(sum_op.OP, grad, tuple(range(grad.dim() - 1)), False)
    return grad_a, grad_b, grad_bias, None, None


OP = register(
    Op(
        name="matmul",
        schema=(
            "(Tensor a, Tensor b, Tensor? bias=None, str? activation=None, "
            'str precision="ieee") -> Tensor'
        ),
        allocate=_allocate,
        operands=_operands,
        reference=_reference,
        workspace=_workspace,
        rungs=("first", "tiled", "tensor_cores", "twin"),
        gradient=Gradient(save=_save, compute=_compute),
    )
)
