"""NaN, infinities, zeros, denormals and the largest numbers, by each op's own rule."""

from __future__ import annotations

import math

import pytest
import torch
from together import in_one_test

import bindings

INF, NAN = math.inf, math.nan
TINY = 1e-45  # the smallest denormal of float32


def _same(out: torch.Tensor, expected: list[float], name: str = "") -> None:
    torch.testing.assert_close(
        out.float().cpu(),
        torch.tensor(expected, dtype=out.dtype).float(),
        rtol=2 * torch.finfo(out.dtype).eps,
        atol=2 * torch.finfo(out.dtype).eps,
        equal_nan=True,
        msg=lambda message: f"{name}: {message}",
    )


def test_add_is_bit_exact(backend: str, device: str, dtype: torch.dtype) -> None:
    values = [0.0, -0.0, 1.0, -1.0, TINY, -TINY, 1e-40, 65504.0, 3.38e38, -3.38e38, 0.1]
    special = torch.tensor([*values, INF, -INF, NAN], dtype=dtype, device=device)
    x, y = (t.reshape(-1) for t in torch.meshgrid(special, special, indexing="ij"))
    out, expected = bindings.add(x, y, backend=backend), x + y
    assert torch.equal(out.isnan(), expected.isnan())
    finite = ~expected.isnan()
    bits = {2: torch.int16, 4: torch.int32}[x.element_size()]
    assert torch.equal(out[finite].view(bits), expected[finite].view(bits))


@in_one_test("dtype", "approximate")
@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_gelu_of_special_values(
    backend: str, device: str, dtype: torch.dtype, approximate: str
) -> None:
    if backend == "torch" and device == "cpu":
        pytest.skip("torch's answers for special values depend on the length on a CPU")
    largest = torch.finfo(dtype).max
    # 10.07 and on: where (exp(2 u) - 1) / (exp(2 u) + 1) becomes inf / inf in float32.
    large = [9.0, 10.07, 11.0, 50.0, 1e4, largest]
    x = [0.0, *large, *(-v for v in large), INF, -INF, NAN]
    expected = [0.0, *large, *(0.0 for _ in large), INF, NAN, NAN]
    out = bindings.gelu(
        torch.tensor(x, dtype=dtype, device=device), approximate, backend=backend
    )
    _same(out, expected)


def test_gelu_approximations_differ(backend: str, device: str) -> None:
    x = torch.linspace(-4, 4, 257, device=device)
    exact = bindings.gelu(x, "none", backend=backend)
    by_tanh = bindings.gelu(x, "tanh", backend=backend)
    assert 1e-4 < (exact - by_tanh).abs().max() < 1e-3


ROWS = {
    "all -inf": ([-INF] * 5, [NAN] * 5),
    "-inf beside finite": ([-INF, 0.0, -INF, 0.0], [0.0, 0.5, 0.0, 0.5]),
    "+inf": ([INF, 0.0, 1.0], [NAN] * 3),
    "both infinities": ([INF, -INF, 1.0], [NAN] * 3),
    "NaN": ([0.0, NAN, 1.0], [NAN] * 3),
    "NaN among -inf": ([-INF, NAN, -INF], [NAN] * 3),
    "large logits": ([1e4, -1e4, 1e4], [0.5, 0.0, 0.5]),
    "above exp's range": ([89.0, 88.0], [0.7310585786, 0.2689414214]),
    "one large": ([6e4, 0.0, -6e4], [1.0, 0.0, 0.0]),
    "equal": ([7.0] * 4, [0.25] * 4),
    "one": ([-3.0], [1.0]),
}


# The same rows in each kernel: in a warp, a block, shared memory, and read twice.
@pytest.mark.parametrize("n_cols", [8, 1500, 40000, 131072])
def test_softmax_of_special_rows(
    backend: str, device: str, dtype: torch.dtype, n_cols: int
) -> None:
    # Columns of -inf change nothing, wherever they stand.
    x = torch.full((len(ROWS), n_cols), -INF, dtype=dtype, device=device)
    places = [
        torch.linspace(0, n_cols - 1, len(row)).long() for row, _ in ROWS.values()
    ]
    for row_number, (row, _) in enumerate(ROWS.values()):
        x[row_number, places[row_number]] = torch.tensor(
            row, dtype=dtype, device=device
        )
    out = bindings.softmax(x, backend=backend).cpu()
    for row_number, (name, (_, expected)) in enumerate(ROWS.items()):
        _same(out[row_number, places[row_number]], expected, name)
        others = torch.ones(n_cols, dtype=torch.bool)
        others[places[row_number]] = False
        rest = out[row_number, others]
        row_is_nan = any(map(math.isnan, expected))
        assert (rest.isnan() if row_is_nan else rest == 0).all(), name


def test_softmax_of_the_largest_numbers(backend: str, device: str) -> None:
    x = torch.tensor([[3e38, -3e38], [-3e38, -3e38], [3e38, 3e38]], device=device)
    out = bindings.softmax(x, backend=backend)
    assert out.tolist() == [[1.0, 0.0], [0.5, 0.5], [0.5, 0.5]]


@pytest.mark.parametrize("n_cols", [1, 31, 1025, 40000])
def test_softmax_properties(
    backend: str, device: str, n_cols: int, generator: torch.Generator
) -> None:
    x = torch.randn(3, n_cols, generator=generator).to(device)
    out = bindings.softmax(x, backend=backend)
    eps = torch.finfo(torch.float32).eps
    assert (out.double().sum(-1) - 1).abs().max() <= eps * (4 + math.log2(n_cols))
    assert torch.equal(out.argmax(-1), x.argmax(-1))
    # A power of two is subtracted without rounding from numbers of its size.
    shifted = bindings.softmax((x * 64).round() / 64 + 8, backend=backend)
    assert torch.equal(
        shifted, bindings.softmax((x * 64).round() / 64, backend=backend)
    )
