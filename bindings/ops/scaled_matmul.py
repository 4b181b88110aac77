"""A product of matrices of 8-bit floats, with scales."""

from __future__ import annotations

import torch
from torch import Tensor

from bindings import check, library
from bindings.op import DTYPES, Argument, Op

E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2

# Rows of operands begin at multiples of so many bytes, those that copies have as well.
_ALIGNED = 16

# The tensor cores add products of 8 bits with so many bits of fraction, 32 of them at a
# time. So many steps along k are added up by them alone.
_FRACTION_BITS, _PRODUCTS, _STEP = 13, 32, 128
# Exponents of the smallest normal numbers.
_LEAST_EXPONENTS = {E4M3: -6, E5M2: -14}
_EXPONENT_OF_ZERO = -10000  # below that of any product
# The yardstick takes rows of a by the piece, of so many products.
_MOST_PRODUCTS = 1 << 22


def scaled_matmul(
    a: Tensor,
    b: Tensor,
    scale_a: Tensor,
    scale_b: Tensor,
    out_dtype: torch.dtype = torch.bfloat16,
    *,
    backend: str = "cuda",
) -> Tensor:
    """scale_a * scale_b * (a @ b), for matrices of 8-bit floats.

    On Hopper tensor cores add the products, with 13 bits of fraction. So they sum up
    steps of 128 along k, and steps are added in float32: results are off by some 1.3e-4
    of a typical one, however long K is. Elsewhere products are added in float32. The
    scales follow, then one rounding. The result is contiguous. Without any products
    (K = 0) it is zeros.

    The tensor cores take 8-bit floats contiguous along k alone: a row-major, b
    column-major. Such operands are read in place where their rows, of b its columns,
    begin at multiples of 16 bytes; any other operand is copied first.

    There is no gradient.

    Args:
        a: (M, K); float8_e4m3fn or float8_e5m2.
        b: (K, N); float8_e4m3fn or, unless a is as well, float8_e5m2.
        scale_a: A number for all of a, () or (1,), or one for each row, (M, 1); float32
            of any stride.
        scale_b: A number for all of b, () or (1,), or one for each column, (1, N).
        out_dtype: float32, float16 or bfloat16.
        backend: "cuda", "cuda_inline", "triton" or "torch".

    Returns:
        (M, N) of out_dtype.

    Raises:
        TypeError: An argument has the wrong type, or its dtype is not supported.
        ValueError: Shapes do not fit, devices differ, or the backend is unknown.

    Source: Micikevicius et al. 2022, arXiv:2209.05433 (8-bit floats); DeepSeek-AI 2024,
    arXiv:2412.19437, section 3.3.2 (sums of steps in float32).
    """
    for name, x in (("a", a), ("b", b), ("scale_a", scale_a), ("scale_b", scale_b)):
        check.is_tensor("scaled_matmul", name, x)
    _check_out_dtype(out_dtype)
    return library.call(OP, backend, a, b, scale_a, scale_b, out_dtype)


def _check_out_dtype(out_dtype: object) -> None:
    if out_dtype not in DTYPES:
        supported = ", ".join(str(dtype) for dtype in DTYPES)
        raise TypeError(
            f"scaled_matmul: out_dtype is {out_dtype!r}, expected one of {supported}"
        )


def _check_operand(name: str, x: Tensor) -> None:
    if x.dtype not in (E4M3, E5M2):
        raise TypeError(
            f"scaled_matmul: {name} has dtype {x.dtype}, expected one of {E4M3}, {E5M2}"
        )
    _check_layout(name, x)
    if x.dim() != 2:
        raise ValueError(
            f"scaled_matmul: {name} has shape {tuple(x.shape)}, expected 2 dimensions"
        )


def _check_scale(name: str, scale: Tensor, shape: tuple[int, int]) -> None:
    if scale.dtype != torch.float32:
        raise TypeError(
            f"scaled_matmul: {name} has dtype {scale.dtype}, expected torch.float32"
        )
    _check_layout(name, scale)
    if tuple(scale.shape) not in ((), (1,), shape):
        raise ValueError(
            f"scaled_matmul: {name} has shape {tuple(scale.shape)}, expected (), (1,) "
            f"or {shape}"
        )


def _check_layout(name: str, x: Tensor) -> None:
    if x.layout != torch.strided:
        raise TypeError(
            f"scaled_matmul: {name} has layout {x.layout}, expected torch.strided"
        )


def _allocate(
    a: Tensor,
    b: Tensor,
    scale_a: Tensor,
    scale_b: Tensor,
    out_dtype: torch.dtype = torch.bfloat16,
) -> Tensor:
    _check_out_dtype(out_dtype)
    _check_operand("a", a)
    _check_operand("b", b)
    if a.dtype == b.dtype == E5M2:
        raise TypeError(
            f"scaled_matmul: a and b have dtype {E5M2}, expected {E4M3} of one at least"
        )
    if a.shape[1] != b.shape[0]:
        raise ValueError(
            f"scaled_matmul: a has shape {tuple(a.shape)} and b has {tuple(b.shape)}, "
            "expected as many columns in a as rows in b"
        )
    _check_scale("scale_a", scale_a, (a.shape[0], 1))
    _check_scale("scale_b", scale_b, (1, b.shape[1]))
    for name, x in (("b", b), ("scale_a", scale_a), ("scale_b", scale_b)):
        if x.device != a.device:
            raise ValueError(
                f"scaled_matmul: a is on {a.device} and {name} on {x.device}, "
                "expected the same device"
            )
    return a.new_empty((a.shape[0], b.shape[1]), dtype=out_dtype)


def _operands(
    out: Tensor,
    a: Tensor,
    b: Tensor,
    scale_a: Tensor,
    scale_b: Tensor,
    out_dtype: torch.dtype = torch.bfloat16,
) -> tuple[Argument, ...]:
    rows, a_stride_row = _operand(a)
    columns, b_stride_col = _operand(b.T)
    return (
        out,
        rows,
        columns,
        scale_a,
        scale_b,
        *out.shape,
        a.shape[1],
        a_stride_row,
        b_stride_col,
        scale_a.stride(0) if scale_a.dim() == 2 and scale_a.shape[0] > 1 else 0,
        scale_b.stride(1) if scale_b.dim() == 2 and scale_b.shape[1] > 1 else 0,
        a.dtype == E5M2,
        b.dtype == E5M2,
    )


def _operand(x: Tensor) -> tuple[Tensor, int]:
    """Rows that are contiguous and begin at aligned addresses, and their stride."""
    n_rows, n_cols = x.shape
    padded = -(-n_cols // _ALIGNED) * _ALIGNED
    # Tensors on the meta device have no address, but those of plans are aligned.
    start = x.storage_offset() if x.is_meta else x.data_ptr()
    if start % _ALIGNED == 0 and (x.stride(1) == 1 or n_cols == 1):
        if n_rows == 1:  # which is never stepped along
            return x, padded
        if x.stride(0) % _ALIGNED == 0 and x.stride(0) >= n_cols:
            return x, x.stride(0)
    copy = x.new_empty((n_rows, padded)).narrow(1, 0, n_cols)
    return copy.copy_(x), padded


def _reference(
    a: Tensor,
    b: Tensor,
    scale_a: Tensor,
    scale_b: Tensor,
    out_dtype: torch.dtype = torch.bfloat16,
) -> Tensor:
    if a.is_cuda and _is_served_by_torch(a, b, scale_a, scale_b, out_dtype):
        if a.stride() != (a.shape[1], 1):
            a = a.contiguous()
        if b.stride() != (1, b.shape[0]):
            b = b.T.contiguous().T
        scales = scale_a.contiguous(), scale_b.contiguous()
        return product_of_torch(a, b, *scales, out_dtype)
    # On a GPU, tf32 has all bits of such numbers as well, but not of float64 ones.
    wide = torch.promote_types(scale_a.dtype, torch.float32)
    product = torch.matmul(a.to(wide), b.to(wide))
    return _scaled(product, scale_a, scale_b, out_dtype)


def product_of_torch(
    a: Tensor, b: Tensor, scale_a: Tensor, scale_b: Tensor, out_dtype: torch.dtype
) -> Tensor:
    """PyTorch's own, which is private to it: a test pins it."""
    return torch._scaled_mm(a, b, scale_a, scale_b, out_dtype=out_dtype)


def _scaled(
    product: Tensor, scale_a: Tensor, scale_b: Tensor, out_dtype: torch.dtype
) -> Tensor:
    """Scales a product and rounds it, unless it is in float64, to be the exact one."""
    scaled = product * (scale_a * scale_b)
    return scaled if product.dtype == torch.float64 else scaled.to(out_dtype)


def _is_served_by_torch(
    a: Tensor, b: Tensor, scale_a: Tensor, scale_b: Tensor, out_dtype: torch.dtype
) -> bool:
    """Whether torch._scaled_mm takes a call, in the precision of calls of any size."""
    are_numbers = scale_a.dim() < 2 and scale_b.dim() < 2
    are_vectors = scale_a.dim() == scale_b.dim() == 2 and out_dtype == torch.bfloat16
    return (
        a.element_size() == 1
        and (are_numbers or are_vectors)
        and a.numel() > 0
        and b.numel() > 0
        and all(size % 16 == 0 for size in b.shape)
        and torch.cuda.get_device_capability(a.device) >= (8, 9)
    )


def yardstick(
    a: Tensor,
    b: Tensor,
    scale_a: Tensor,
    scale_b: Tensor,
    out_dtype: torch.dtype = torch.bfloat16,
) -> Tensor:
    """The reference, with products of 8-bit floats added as tensor cores add them.

    PyTorch's own sums on a CPU, and those of shapes that torch._scaled_mm refuses on a
    GPU, are in float32. Hopper's tensor cores are what the op is for, and have fewer
    bits: no result is right to more, and one that keeps as few over all of K is wrong.
    """
    is_wide = a.element_size() > 1
    if is_wide or (
        a.is_cuda and _is_served_by_torch(a, b, scale_a, scale_b, out_dtype)
    ):
        return _reference(a, b, scale_a, scale_b, out_dtype)
    product = tensor_core_product(a, b)
    return _scaled(product, scale_a, scale_b, out_dtype)


def tensor_core_product(a: Tensor, b: Tensor, step: int = _STEP) -> Tensor:
    """The product in float32, of steps along k that tensor cores add up.

    It has their very bits where they take the numbers of a step in this order.
    """
    n_rows, n_cols = a.shape[0], b.shape[1]
    out = torch.zeros((n_rows, n_cols), device=a.device)
    n_taken = max(_MOST_PRODUCTS // (_PRODUCTS * max(n_cols, 1)), 1)
    left, right = _Terms(a), _Terms(b)
    for first in range(0, n_rows, n_taken):
        rows = slice(first, first + n_taken)
        for start in range(0, a.shape[1], step):
            sums = torch.zeros_like(out[rows])
            for k in range(start, min(start + step, a.shape[1]), _PRODUCTS):
                taken = slice(k, min(k + _PRODUCTS, start + step))
                sums = _add_products(left, right, rows, taken, sums)
            out[rows] += sums
    return out


class _Terms:
    """8-bit floats as the tensor cores see them: subnormals have a normal exponent."""

    def __init__(self, x: Tensor) -> None:
        self.values = x.float()
        exponents = torch.frexp(self.values).exponent - 1
        exponents = exponents.clamp(min=_LEAST_EXPONENTS[x.dtype])
        self.exponents = exponents.masked_fill(self.values == 0, _EXPONENT_OF_ZERO)


def _add_products(
    left: _Terms, right: _Terms, rows: slice, taken: slice, sums: Tensor
) -> Tensor:
    """One instruction: products and sums are aligned, cut off and added exactly."""
    products = left.values[rows, taken, None] * right.values[None, taken]
    exponents = left.exponents[rows, taken, None] + right.exponents[None, taken]
    own = (torch.frexp(sums).exponent - 1).masked_fill(sums == 0, _EXPONENT_OF_ZERO)
    largest = torch.maximum(exponents.amax(1), own)
    # Any unit will do if all terms are zero.
    largest = largest.clamp(min=-100)
    unit = torch.ldexp(torch.ones_like(sums), largest - _FRACTION_BITS)
    added = (products / unit[:, None]).trunc().sum(1) + (sums / unit).trunc()
    mantissa, exponent = torch.frexp(added)
    kept = 2.0 ** (_FRACTION_BITS + 1)
    cut_off = torch.ldexp((mantissa * kept).trunc() / kept, exponent)
    # Infinities and NaN have no exponent.
    return torch.where(added.isfinite(), cut_off * unit, added)


OP = library.register(
    Op(
        name="scaled_matmul",
        # PyTorch's number of bfloat16, for which schemas have no name.
        schema=(
            "(Tensor a, Tensor b, Tensor scale_a, Tensor scale_b, "
            "ScalarType out_dtype=15) -> Tensor"
        ),
        allocate=_allocate,
        operands=_operands,
        reference=_reference,
    )
)
