"""Dropout: one mask in all backends, drawn anew in the backward, stored nowhere."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from common import needs_gpu, skip_if_refused
from together import in_one_test
from torch import Tensor

import bindings
from bindings.ops.dropout import philox

SEEDS = (0, 1, -1, 7, 2**31, 2**32, 2**32 + 7, 2**63 - 1, -(2**63), 20261120)

# Around the ends of blocks of words, vectors, runs, warps and tiles.
SIZES = (1, 3, 5, 7, 9, 31, 33, 127, 511, 1023, 1025, 2049, 4099)

# The known answers of the Random123 distribution: counter, key, words.
KNOWN_ANSWERS = (
    (
        (0, 0, 0, 0),
        (0, 0),
        (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8),
    ),
    (
        (0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF),
        (0xFFFFFFFF, 0xFFFFFFFF),
        (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD),
    ),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
)


def mask(
    n_elements: int, p: float, seed: int | Tensor, backend: str, device: str = "cpu"
) -> Tensor:
    """Which elements are kept."""
    x = torch.ones(n_elements, device=device)
    return bindings.dropout(x, p, seed, backend=backend) != 0


def as_int64(key: tuple[int, int]) -> int:
    """The seed whose 64 bits are a key."""
    low, high = key
    unsigned = high << 32 | low
    return unsigned - (unsigned >> 63 << 64)


# ---- The mapping ---------------------------------------------------------------------


@pytest.mark.parametrize(("counter", "key", "words"), KNOWN_ANSWERS)
def test_philox_of_the_reference_gives_known_answers(
    counter: tuple[int, ...], key: tuple[int, int], words: tuple[int, ...]
) -> None:
    c0, c1, c2, c3 = (torch.tensor([each]) for each in counter)
    seed = as_int64(key)
    for each in (seed, torch.tensor(seed)):
        assert tuple(map(int, philox(c0, c1, c2, c3, each))) == words


def test_first_words_are_the_known_ones(backend: str, device: str) -> None:
    # An element is kept as long as p * 2^32 is at most its word.
    _, _, words = KNOWN_ANSWERS[0]
    for place, word in enumerate(words):
        assert mask(4, word / 2**32, 0, backend, device)[place]
        assert not mask(4, (word + 1) / 2**32, 0, backend, device)[place]


# A mask is the same for every dtype, which has a test of its own.
@pytest.mark.parametrize(
    ("seed", "element"),
    [*((seed, torch.float32) for seed in SEEDS), (SEEDS[-1], torch.float16)],
)
def test_masks_are_equal_bit_for_bit(
    seed: int, element: torch.dtype, device: str
) -> None:
    skip_if_refused("triton", device)
    for size in SIZES:
        x = torch.ones(size, dtype=element, device=device)
        expected = bindings.dropout(x, 0.3, seed, backend="torch")
        for backend in ("cuda", "triton"):
            out = bindings.dropout(x, 0.3, seed, backend=backend)
            assert torch.equal(out, expected), (backend, size)


def test_mask_is_the_same_for_every_dtype(backend: str, device: str) -> None:
    expected = mask(4099, 0.3, 5, "torch", device)
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        x = torch.ones(4099, dtype=dtype, device=device)
        assert torch.equal(bindings.dropout(x, 0.3, 5, backend=backend) != 0, expected)


def test_mask_follows_the_memory_of_the_result(backend: str, device: str) -> None:
    flat = mask(4 * 6 * 8, 0.3, 5, backend, device)
    x = torch.ones(4, 6, 8, device=device)
    # Layouts of one order in memory: in place, with gaps, at odd addresses, expanded.
    padded = torch.ones(4, 6, 11, device=device)[..., 1:9]
    for contiguous in (
        x,
        padded,
        x[:, ::2, :].repeat_interleave(2, 1),
        x[:1].expand_as(x),
    ):
        out = bindings.dropout(contiguous, 0.3, 5, backend=backend)
        assert torch.equal(out != 0, flat.view(4, 6, 8))
    out = bindings.dropout(x.permute(2, 0, 1), 0.3, 5, backend=backend)
    assert torch.equal(out != 0, flat.view(4, 6, 8).permute(2, 0, 1))


@needs_gpu
def test_elements_beyond_what_32_bits_count() -> None:
    x = torch.ones(2**32 + 4099, dtype=torch.bfloat16, device="cuda")
    cuda, triton = (
        bindings.dropout(x, 0.3, 5, backend=backend) for backend in ("cuda", "triton")
    )
    assert torch.equal(cuda, triton)
    assert not torch.equal(cuda[:4096], cuda[2**32 : 2**32 + 4096])
    counter = torch.arange(2**30, 2**30 + 1024, device="cuda")
    zero = torch.zeros_like(counter)
    words = torch.stack(philox(counter, zero, zero, zero, 5), dim=-1).flatten()
    assert torch.equal(cuda[2**32 :][:4096] != 0, words >= round(0.3 * 2**32))


# ---- Statistics ----------------------------------------------------------------------


@pytest.mark.parametrize("p", [0.001, 0.1, 0.5, 0.9])
def test_as_many_are_kept_as_p_says(backend: str, device: str, p: float) -> None:
    n_elements = 50_000
    kept = mask(n_elements, p, 3, backend, device)
    sigma = math.sqrt(p * (1 - p) * n_elements)
    assert abs(int(kept.sum()) - (1 - p) * n_elements) < 5 * sigma
    # Neighbours, words of one block, and blocks are independent.
    for distance in (1, 2, 3, 4, 8, 1024):
        both = int((kept[distance:] & kept[:-distance]).sum())
        expected = (1 - p) ** 2 * (n_elements - distance)
        assert abs(both - expected) < 5 * math.sqrt(2 * expected * p + 1), distance


def test_seeds_draw_unlike_masks(backend: str, device: str) -> None:
    masks = [mask(4096, 0.5, seed, backend, device) for seed in SEEDS]
    for i, one in enumerate(masks):
        for other in masks[:i]:
            assert abs(int((one == other).sum()) - 2048) < 5 * 32


# ---- The seed ------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
def test_seed_may_be_a_tensor(
    backend: str, device: str, shape: tuple[int, ...]
) -> None:
    for seed in SEEDS:
        tensor = torch.full(shape, seed, device=device)
        assert torch.equal(
            mask(4099, 0.3, tensor, backend, device),
            mask(4099, 0.3, seed, "torch", device),
        )


def test_changed_seed_tensor_draws_another_mask(backend: str, device: str) -> None:
    seed = torch.tensor([3], device=device)
    first = mask(4099, 0.3, seed, backend, device)
    seed.add_(1)
    second = mask(4099, 0.3, seed, backend, device)
    assert torch.equal(second, mask(4099, 0.3, 4, backend, device))
    assert not torch.equal(first, second)


@needs_gpu
@pytest.mark.parametrize("implementation", ["cuda", "triton"])
def test_replays_of_a_graph_draw_new_masks(implementation: str) -> None:
    x = torch.ones(4099, device="cuda", requires_grad=True)
    seed = torch.tensor(3, device="cuda")

    def step() -> tuple[Tensor, Tensor]:
        out = bindings.dropout(x, 0.3, seed, backend=implementation)
        (grad,) = torch.autograd.grad(out.sum(), x)
        return out, grad

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        step()
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out, grad = step()
    for number in (3, 4, 5):
        seed.fill_(number)
        graph.replay()
        expected = mask(4099, 0.3, number, "torch", "cuda")
        assert torch.equal(out != 0, expected)
        assert torch.equal(grad != 0, expected)


# ---- Values --------------------------------------------------------------------------


def test_p_of_0_keeps_all_and_of_1_drops_all(
    backend: str, device: str, dtype: torch.dtype, generator: torch.Generator
) -> None:
    x = torch.randn(4099, generator=generator).to(device, dtype)
    x[:4] = torch.tensor([math.inf, -math.inf, math.nan, -0.0])
    kept = bindings.dropout(x, 0, 5, backend=backend)
    torch.testing.assert_close(kept, x, rtol=0, atol=0, equal_nan=True)
    for p in (1, 1.0, math.nextafter(1.0, 0.0)):
        out = bindings.dropout(x, p, 5, backend=backend)
        assert (out == 0).all()
        assert not out.signbit().any()


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_dropped_is_0_whatever_it_was(
    backend: str, device: str, value: float
) -> None:
    kept = mask(1025, 0.5, 5, backend, device)
    x = torch.full((1025,), value, device=device)
    out = bindings.dropout(x, 0.5, 5, backend=backend)
    torch.testing.assert_close(out[kept], x[kept], equal_nan=True)
    assert (out[~kept] == 0).all()


def test_scale_is_rounded_once(
    backend: str, device: str, dtype: torch.dtype, generator: torch.Generator
) -> None:
    x = torch.randn(1025, generator=generator).to(device, dtype)
    out = bindings.dropout(x, 0.3, 5, backend=backend)
    scale = torch.tensor(1 / (1 - 0.3), dtype=torch.float32, device=device)
    kept = mask(1025, 0.3, 5, "torch", device)
    assert torch.equal(out, torch.where(kept, x.float() * scale, 0).to(dtype))


# ---- The gradient --------------------------------------------------------------------

LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "contiguous": lambda x: x,
    "permuted": lambda x: x.permute(2, 0, 1).contiguous().permute(1, 2, 0),
    "sliced": lambda x: x.repeat_interleave(2, -1)[..., ::2],
    "expanded": lambda x: x[:1].expand_as(x),
}


@in_one_test("layout", "grad_layout")
@pytest.mark.parametrize("grad_layout", LAYOUTS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_gradient_has_the_mask_of_the_output(
    backend: str, device: str, layout: str, grad_layout: str
) -> None:
    ones = torch.ones(5, 6, 7, device=device)
    for seed in (9, torch.tensor(9, device=device)):
        x = LAYOUTS[layout](ones).requires_grad_()
        out = bindings.dropout(x, 0.3, seed, backend=backend)
        (grad,) = torch.autograd.grad(out, x, LAYOUTS[grad_layout](ones))
        assert torch.equal(grad, out)


def test_second_derivative_has_the_same_mask(backend: str, device: str) -> None:
    x = torch.ones(65, device=device, requires_grad=True)
    v = torch.ones(65, device=device, requires_grad=True)
    out = bindings.dropout(x, 0.3, 9, backend=backend)
    (grad,) = torch.autograd.grad(out, x, v, create_graph=True)
    (again,) = torch.autograd.grad(grad.sum(), v)
    assert torch.equal(again, out)


def test_seed_tensor_that_changes_before_the_backward_is_noticed(
    backend: str, device: str
) -> None:
    x = torch.ones(65, device=device, requires_grad=True)
    seed = torch.tensor(3, device=device)
    out = bindings.dropout(x, 0.3, seed, backend=backend)
    seed.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


def test_only_the_seed_is_kept(backend: str, device: str) -> None:
    x = torch.ones(4096, device=device, requires_grad=True)
    kept: list[Tensor] = []

    def pack(tensor: Tensor) -> Tensor:
        kept.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        bindings.dropout(x, 0.3, 9, backend=backend)
        assert kept == []
        bindings.dropout(x, 0.3, torch.tensor(9, device=device), backend=backend)
        assert [each.numel() for each in kept] == [1]


# ---- torch.compile -------------------------------------------------------------------


def test_compiled_for_any_seed(backend: str, device: str) -> None:
    torch.compiler.reset()
    x = torch.ones(65, device=device)
    compiles = 0

    def count(graph: torch.fx.GraphModule, _: list[Tensor]) -> Callable[..., object]:
        nonlocal compiles
        compiles += 1
        return graph.forward

    @torch.compile(fullgraph=True, backend=count)
    def compiled(x: Tensor, seed: int | Tensor) -> Tensor:
        return 2 * bindings.dropout(x, 0.3, seed, backend=backend)

    for seed in (3, 4, 5, 6, 2**40):
        out = bindings.dropout(x, 0.3, seed, backend=backend)
        assert torch.equal(compiled(x, seed), 2 * out)
    assert compiles <= 2  # for the first seed, then for any
    tensor = torch.tensor(7, device=device)
    out = bindings.dropout(x, 0.3, 7, backend=backend)
    assert torch.equal(compiled(x, tensor), 2 * out)


def test_opcheck_with_a_seed_tensor(backend: str, device: str) -> None:
    x = torch.ones(4, 6, 8, device=device, requires_grad=True)
    seed = torch.tensor(9, device=device)
    overload = getattr(torch.ops.twin, f"dropout_{backend}").seed_tensor
    results = torch.library.opcheck(overload, (x, 0.3, seed))
    assert set(results.values()) == {"SUCCESS"}


# ---- Bad arguments -------------------------------------------------------------------

BAD_CALLS: dict[str, tuple[tuple[object, ...], type[Exception], str]] = {
    "p below 0": ((-0.1, 0), ValueError, "p is -0.1, expected a value from 0 to 1"),
    "p above 1": ((1.5, 0), ValueError, "p is 1.5, expected a value from 0 to 1"),
    "p is NaN": ((math.nan, 0), ValueError, "p is nan, expected a value from 0 to 1"),
    "p is no number": (("0.5", 0), TypeError, "p must be a float, got str"),
    "p is a bool": ((True, 0), TypeError, "p must be a float, got bool"),
    "seed is a float": (
        (0.5, 1.0),
        TypeError,
        "seed must be an int or a torch.Tensor, got float",
    ),
    "seed is too large": (
        (0.5, 2**63),
        ValueError,
        r"seed is 9223372036854775808, expected a value from -2\^63 to 2\^63 - 1",
    ),
    "seed of another dtype": (
        (0.5, torch.tensor(1, dtype=torch.int32)),
        TypeError,
        "seed has dtype torch.int32, expected torch.int64",
    ),
    "several seeds": (
        (0.5, torch.tensor([1, 2])),
        ValueError,
        r"seed has shape \(2,\), expected one element",
    ),
    "seed on another device": (
        (0.5, torch.tensor(1, device="meta")),
        ValueError,
        "x is on cpu and seed on meta, expected the same device",
    ),
}


@in_one_test("bad", "backend")
@pytest.mark.parametrize("bad", BAD_CALLS)
def test_bad_arguments(bad: str, backend: str) -> None:
    arguments, error, message = BAD_CALLS[bad]
    with pytest.raises(error, match=f"dropout: {message}"):
        bindings.dropout(torch.ones(3), *arguments, backend=backend)


def test_bad_x(backend: str) -> None:
    with pytest.raises(TypeError, match=r"dropout: x must be a torch.Tensor, got list"):
        bindings.dropout([1.0], 0.5, 0, backend=backend)
    with pytest.raises(
        TypeError, match=r"dropout: x has dtype torch.float64, expected"
    ):
        bindings.dropout(torch.ones(3).double(), 0.5, 0, backend=backend)
