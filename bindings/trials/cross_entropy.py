"""What cross_entropy and its backward are tried, timed and judged on."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from bindings.ops import cross_entropy
from bindings.trial import CodeContract, Traffic, Trial


def _inputs(
    shape: tuple[int, ...], generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    # No target is ignored, or less would be read than `traffic` says.
    *rows, n_classes = shape or (1,)
    target = torch.randint(max(n_classes, 1), rows, generator=generator)
    return (
        torch.randn((*rows, n_classes), generator=generator),
        target if n_classes else target.fill_(-100),
    )


def _traffic(shape: tuple[int, ...], element_size: int) -> Traffic:
    # Logits and targets, beside which the bytes written are negligible.
    return Traffic(math.prod(shape) * element_size + 8 * math.prod(shape[:-1]), 0)


def _inputs_backward(
    shape: tuple[int, ...], generator: torch.Generator
) -> tuple[Tensor, Tensor, Tensor]:
    logits, target = _inputs(shape, generator)
    return torch.randn(target.shape, generator=generator), logits, target


def _complete_backward(
    grad: Tensor, logits: Tensor, target: Tensor
) -> tuple[Tensor, ...]:
    has_numbers = logits.device.type != "meta"
    compute = cross_entropy.OP.reference if has_numbers else cross_entropy.OP.allocate
    _, logsumexp, n_counted = compute(logits, target)
    return grad, logits, target, logsumexp, n_counted


def _traffic_backward(shape: tuple[int, ...], element_size: int) -> Traffic:
    n_bytes, n_rows = math.prod(shape) * element_size, math.prod(shape[:-1])
    # Each row also reads grad, target and logsumexp; all together read n_counted.
    return Traffic(n_bytes + n_rows * (element_size + 8 + 4) + 4, n_bytes)


# Shapes where both languages' kernels change: around the ends of vectors and tiles, of
# row lengths that share a block, and of lengths that take more threads.
_EDGES: tuple[tuple[int, ...], ...] = (
    (5,),
    (0, 5),
    (5, 0),
    (1, 1),
    (2, 3, 31),
    *((n, 12) for n in (15, 16, 17, 1031)),
    *((3, n) for n in (8, 63, 64, 65, 129, 255, 256, 257, 513)),
    *((3, n) for n in (48, 96, 192, 384, 768)),
    *((5, n) for n in (1023, 1024, 1025, 1536, 2048)),
    *((2, n) for n in (3072, 4097, 6144, 8192, 8193, 12288)),
    *((1, n) for n in (16384, 16392)),
    (1, 65536),
    (1, 65537),
    (1, 131080),
)
_SWEEP = tuple((4**n, 32768) for n in range(7))
_BENCHMARKS = ((8192, 32768), (4096, 131072), (4096, 50257))
# Rows that share a block, and rows that take one each. Rows that share a warp are left
# out, because the logits of their targets lie in separate sectors.
_CONTRACT_SHAPES = ((4096, 1008), (64, 131072))

BACKWARD = Trial(
    op=cross_entropy.BACKWARD,
    inputs=_inputs_backward,
    complete=_complete_backward,
    traffic=_traffic_backward,
    small_shape=(1823, 781),
    large_shape=(8192, 32768),
    benchmark_shapes=_BENCHMARKS,
    sweep_shapes=_SWEEP,
    edge_shapes=_EDGES,
    code_contract=CodeContract(shapes=_CONTRACT_SHAPES),
)

FORWARD = Trial(
    op=cross_entropy.OP,
    inputs=_inputs,
    traffic=_traffic,
    small_shape=(1823, 781),
    large_shape=(8192, 32768),
    benchmark_shapes=_BENCHMARKS,
    sweep_shapes=_SWEEP,
    edge_shapes=_EDGES,
    variants=({}, {"label_smoothing": 0.1, "reduction": "none"}),
    largest_input=1e34,  # a row is added up
    code_contract=CodeContract(shapes=_CONTRACT_SHAPES, is_reduction=True),
)
