"""What rms_norm and its backward are tried, timed and judged on."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from bindings.ops import rms_norm
from bindings.trial import Traffic, Trial
from bindings.trials import _norm


def _inputs(
    shape: tuple[int, ...], generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    return (
        torch.randn(shape, generator=generator),
        1 + torch.randn(shape[-1:], generator=generator) / 4,
    )


def _traffic(shape: tuple[int, ...], element_size: int) -> Traffic:
    n_elements, n_cols = math.prod(shape), shape[-1]
    n_rows = math.prod(shape[:-1])
    return Traffic(
        (n_elements + n_cols) * element_size, n_elements * element_size + 4 * n_rows
    )


def _inputs_backward(
    shape: tuple[int, ...], generator: torch.Generator
) -> tuple[Tensor, Tensor, Tensor]:
    grad = torch.randn(shape, generator=generator)
    x, weight = _inputs(shape, generator)
    # In a row of one column g - x_hat * mean(g * x_hat) is g * eps / (x^2 + eps): x has
    # to be small for eps to count, or nothing but rounding errors is left.
    return grad, x / 1000 if shape[-1:] == (1,) else x, weight


def _complete_backward(grad: Tensor, x: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
    rstd = (x.float().square().mean(-1) + 1e-6).rsqrt()
    return grad, x, rstd, weight


def _traffic_backward(shape: tuple[int, ...], element_size: int) -> Traffic:
    n_elements, n_cols = math.prod(shape), shape[-1]
    n_rows = math.prod(shape[:-1])
    return Traffic(
        (2 * n_elements + n_cols) * element_size + 4 * n_rows,
        (n_elements + n_cols) * element_size,
    )


BACKWARD = Trial(
    op=rms_norm.BACKWARD,
    other_kernels=_norm.OTHER_KERNELS_BACKWARD,
    inputs=_inputs_backward,
    traffic=_traffic_backward,
    small_shape=(123, 781),
    large_shape=(16384, 4096),
    benchmark_shapes=_norm.BENCHMARK_SHAPES,
    sweep_shapes=_norm.SWEEP_SHAPES,
    edge_shapes=_norm.EDGE_SHAPES_BACKWARD,
    largest_input=_norm.LARGEST_INPUT_BACKWARD,
    complete=_complete_backward,
    code_contract=_norm.CODE_CONTRACT_BACKWARD,
)

FORWARD = Trial(
    op=rms_norm.OP,
    other_kernels={"norm_long_kernel": _norm.LONG_KERNEL},
    inputs=_inputs,
    traffic=_traffic,
    small_shape=(1823, 781),
    large_shape=(16384, 4096),
    benchmark_shapes=_norm.BENCHMARK_SHAPES,
    sweep_shapes=_norm.SWEEP_SHAPES,
    edge_shapes=_norm.EDGE_SHAPES,
    largest_input=_norm.LARGEST_INPUT,
    code_contract=_norm.CODE_CONTRACT,
)
