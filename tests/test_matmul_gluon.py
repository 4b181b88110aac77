"""The variant in Gluon: when it is taken, what it is compiled to, and its results."""

from __future__ import annotations

import pytest
import torch
from conftest import needs_gpu

import bindings
from bindings.registry import OPS
from compare import acceptance
from compare.cases import Case, launcher_arguments
from compare.codegen.architectures import ARCHITECTURES
from compare.codegen.model import KernelCode, inspect_triton
from triton_kernels.common.epilogue import ACTIVATIONS
from triton_kernels.matmul.gluon import launch_gluon
from triton_kernels.matmul.matmul import LONG_EPILOGUES

OP = OPS["matmul"]
LARGE = (8192, 8192, 8192)
LAYOUTS = ("contiguous", "transposed")


def code_of(
    shape: tuple[int, ...] = LARGE,
    dtype: torch.dtype = torch.bfloat16,
    architecture: int = 90,
    activation: str | None = "gelu",
    bias: bool = True,
) -> KernelCode:
    params = {"bias": bias, "activation": activation}
    arguments = launcher_arguments(OP, Case(shape, dtype, params=params))
    return inspect_triton(OP, arguments, ARCHITECTURES[architecture])


def has_roles(code: KernelCode) -> bool:
    """Whether some warps give registers to others, which have work of another kind."""
    return any(each.opcode.startswith("setmaxnreg") for each in code.ptx.instructions)


@pytest.mark.parametrize(
    ("activation", "bias"),
    [*((activation, True) for activation in LONG_EPILOGUES), ("gelu", False)],
)
def test_contract(activation: str, bias: bool) -> None:
    code = code_of(activation=activation, bias=bias)
    assert has_roles(code)
    assert (code.spill_bytes, code.stack_bytes) == (0, 0)
    opcodes = {each.opcode.split(".")[0] for each in code.sass.instructions}
    assert {"HGMMA", "UTMALDG", "UTMASTG"} <= opcodes


@pytest.mark.parametrize(
    "otherwise",
    [
        {"activation": "relu"},
        {"activation": None},
        {"dtype": torch.float16},
        {"architecture": 100},
        {"shape": (2, 8192, 8192, 1024)},
        {"shape": (8192, 8192, 512)},
        {"shape": (256, 8192, 8192)},
    ],
    ids=str,
)
def test_everything_else_is_left_to_triton(otherwise: dict[str, object]) -> None:
    assert not has_roles(code_of(**otherwise))  # type: ignore[arg-type]


@needs_gpu
@pytest.mark.parametrize("b_layout", LAYOUTS)
@pytest.mark.parametrize("a_layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_integers_are_exact(dtype: torch.dtype, a_layout: str, b_layout: str) -> None:
    generator = torch.Generator("cuda").manual_seed(0)

    def integers(*shape: int) -> torch.Tensor:
        values = torch.randint(-3, 4, shape, device="cuda", generator=generator)
        return values.to(dtype)

    # Fewer steps than there are stages, as many, more; fewer tiles than programs, more.
    for n_rows, n_cols, depth in [
        *((8, 8, 8), (128, 256, 64), (136, 264, 256), (1000, 1000, 328)),
        *((4096, 2056, 1032), (8200, 8184, 264)),
    ]:
        a, b = integers(n_rows, depth), integers(depth, n_cols)
        if a_layout == "transposed":
            a = a.mT.contiguous().mT
        if b_layout == "transposed":
            b = b.mT.contiguous().mT
        bias = integers(n_cols)
        product = a.float() @ b.float()  # exact: sums stay below 2^24
        for added, exact in ((None, product), (bias, product + bias.float())):
            out = torch.full_like(product, float("nan"), dtype=dtype)
            launch_gluon(
                out,
                a,
                b,
                added,
                n_rows,
                n_cols,
                depth,
                (a.stride(0), a.stride(1)),
                (b.stride(0), b.stride(1)),
                "none",
                most_programs=132,
            )
            assert torch.equal(out, exact.to(dtype)), (n_rows, n_cols, depth)


@needs_gpu
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("activation", LONG_EPILOGUES)
def test_activations(activation: str, bias: bool) -> None:
    generator = torch.Generator("cuda").manual_seed(1)
    a, b, c = (
        torch.randn(shape, device="cuda", dtype=torch.bfloat16, generator=generator)
        for shape in ((1664, 2056), (2056, 3080), (3080,))
    )
    arguments = (a, b, c if bias else None, activation)
    assert activation in ACTIVATIONS
    (expected,) = acceptance.expect(OP, (*arguments, "ieee"))
    out = bindings.matmul(*arguments, backend="triton")
    assert acceptance.judge(out, expected).problem == ""
