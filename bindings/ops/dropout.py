"""Dropout with a mask that is recomputed wherever it is needed."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from bindings import check, layout
from bindings.library import call, register
from bindings.op import Argument, Gradient, Op


def dropout(
    x: Tensor, p: float = 0.5, seed: int | Tensor = 0, *, backend: str = "cuda"
) -> Tensor:
    """Zeros each element with probability p and scales the others by 1 / (1 - p).

    Computed in float32 and rounded once. The result has the memory format of x. An x
    with more than two groups of dimensions that cannot be merged is copied first.
    Dropped elements are 0, even where x is NaN or infinite; p = 0 keeps all elements
    and p = 1 drops all.

    The mask depends only on p, the seed and an element's place in memory: calls with
    the same seed draw the same mask. With i counting the elements of the result in
    memory order, which for a contiguous x is their own order, element i is kept if

        word[i] >= round(p * 2^32)

    as unsigned integers of 32 bits. word[i] is word i % 4 of the four that
    Philox4x32-10 makes of the counter i / 4 and the seed as its key. Both have 64 bits,
    the lower 32 first; two zero words fill up the counter. Where x is permuted in
    memory, so are the result and its mask. The mask is the same for every dtype and
    backend.

    The gradient is dropout of the output's gradient with the same p and seed. It
    computes the mask again, so only the seed is stored.

    Args:
        x: Any shape; float32, float16 or bfloat16.
        p: The probability that an element is dropped, from 0 to 1; rounded to a
            multiple of 2^-32.
        seed: A number from -2^63 to 2^63 - 1; or an int64 tensor with one element on
            x's device, which the kernel reads: a CUDA graph whose seed tensor is
            changed draws another mask at its next replay.
        backend: "cuda", "cuda_inline", "triton" or "torch".

    Returns:
        A tensor of the shape and dtype of x.

    Raises:
        TypeError: x is not a tensor, its dtype is not supported, p is not a float, or
            seed is neither an int nor an int64 tensor.
        ValueError: p or seed is out of range, the seed has several elements or lies on
            another device, or the backend is unknown.

    Source: Srivastava et al. 2014, "Dropout: a simple way to prevent neural networks
    from overfitting"; Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2,
    3".
    """
    check.is_tensor("dropout", "x", x)
    _check_parameters(x, p, seed)
    return call(OP, backend, x, p, seed, overload=_overload(seed))


def _check_parameters(x: Tensor, p: float, seed: int | Tensor) -> None:
    if isinstance(p, bool) or not isinstance(p, (float, int, torch.SymFloat)):
        raise TypeError(f"dropout: p must be a float, got {type(p).__name__}")
    if not 0 <= p <= 1:
        raise ValueError(f"dropout: p is {p}, expected a value from 0 to 1")
    if isinstance(seed, Tensor):
        if seed.dtype != torch.int64:
            raise TypeError(
                f"dropout: seed has dtype {seed.dtype}, expected torch.int64"
            )
        if seed.numel() != 1:
            raise ValueError(
                f"dropout: seed has shape {tuple(seed.shape)}, expected one element"
            )
        if seed.device != x.device:
            raise ValueError(
                f"dropout: x is on {x.device} and seed on {seed.device}, "
                "expected the same device"
            )
    elif isinstance(seed, bool) or not isinstance(seed, (int, torch.SymInt)):
        raise TypeError(
            f"dropout: seed must be an int or a torch.Tensor, got {type(seed).__name__}"
        )
    elif not -(2**63) <= seed < 2**63:
        raise ValueError(
            f"dropout: seed is {seed}, expected a value from -2^63 to 2^63 - 1"
        )


def _overload(seed: int | Tensor) -> str:
    # PyTorch's own choice would turn a tensor into a number, and so wait for the GPU.
    return "seed_tensor" if isinstance(seed, Tensor) else "default"


def _allocate(x: Tensor, p: float = 0.5, seed: int | Tensor = 0) -> Tensor:
    check.is_supported("dropout", "x", x)
    _check_parameters(x, p, seed)
    return torch.empty_like(x)


def _threshold_and_scale(p: float) -> tuple[int, float]:
    return round(p * 2**32), 1 / (1 - p) if p < 1 else 0.0


def _operands(
    out: Tensor, x: Tensor, p: float = 0.5, seed: int | Tensor = 0
) -> tuple[Argument, ...]:
    walk = layout.elementwise(out, x)
    seed_ptr, number = (seed, 0) if isinstance(seed, Tensor) else (None, seed)
    return (
        out,
        *walk.inputs,
        walk.n_elements,
        walk.n_cols,
        *walk.strides,
        seed_ptr,
        number,
        *_threshold_and_scale(p),
    )


def _reference(x: Tensor, p: float = 0.5, seed: int | Tensor = 0) -> Tensor:
    # PyTorch's own dropout draws from another generator, so this is the mapping that
    # the docstring describes, in int64, which holds the unsigned words unchanged.
    threshold, scale = _threshold_and_scale(p)
    counter = torch.arange(-(-x.numel() // 4), device=x.device)
    zero = torch.zeros_like(counter)
    words = philox(counter & _WORD, counter >> 32, zero, zero, seed)
    keep = torch.stack(words, dim=-1).flatten()[: x.numel()] >= threshold
    keep = keep.as_strided(x.shape, torch.empty_like(x).stride())
    wide = x if x.dtype == torch.float64 else x.float()
    return torch.where(keep, wide * scale, 0).to(x.dtype)


_WORD = 2**32 - 1


def philox(
    c0: Tensor, c1: Tensor, c2: Tensor, c3: Tensor, key: int | Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The four words that Philox4x32-10 makes of each counter, in int64."""
    k0, k1 = key & _WORD, key >> 32 & _WORD
    for _ in range(10):
        # A product of 64 bits may come out negative, but its bits are right.
        product_0, product_1 = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1 = (product_1 >> 32 & _WORD) ^ c1 ^ k0, product_1 & _WORD
        c2, c3 = (product_0 >> 32 & _WORD) ^ c3 ^ k1, product_0 & _WORD
        k0, k1 = k0 + 0x9E3779B9 & _WORD, k1 + 0xBB67AE85 & _WORD
    return c0, c1, c2, c3


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    _, ctx.p, ctx.seed = inputs
    ctx.stride = output.stride()
    if isinstance(ctx.seed, Tensor):
        # PyTorch raises if a saved tensor is changed before the backward needs it.
        ctx.save_for_backward(ctx.seed)
        ctx.seed = None


def _compute(run: Any, ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    (seed,) = ctx.saved_tensors or (ctx.seed,)
    if torch.empty_like(grad, device="meta").stride() != ctx.stride:
        # An element gets the same word only where it lies as it did in the output.
        grad = grad.new_empty_strided(grad.shape, ctx.stride).copy_(grad)
    return run(OP, grad, ctx.p, seed, overload=_overload(seed)), None, None


OP = register(
    Op(
        name="dropout",
        schema="(Tensor x, float p=0.5, SymInt seed=0) -> Tensor",
        overloads={"seed_tensor": "(Tensor x, float p, Tensor seed) -> Tensor"},
        allocate=_allocate,
        operands=_operands,
        reference=_reference,
        gradient=Gradient(save=_save, compute=_compute),
    )
)
