"""A decoder block of this project's ops learns to spell: `python examples/decoder.py`.

One block of a language model, with an embedding below it and a projection to the 128
characters of ASCII above: rms_norm, rotary, attention whose heads share keys, swiglu,
matmul and cross_entropy, forward and backward. It is trained on text that ships with
Python, the manual that `help()` prints, once for each of the backends asked for, and
beside them by PyTorch's own functions in float32 and in float64. All start with the
same weights and see the same text, so that the losses differ by rounding alone: each
curve has to be as near to float64 as PyTorch's float32 is, by the rule that judges all
ops (compare/judge/acceptance.py).

On a GPU, `--device cuda` runs the same on it. `--plot decoder.png` draws the curves,
with matplotlib: `pip install -e '.[plots]'`.
"""

from __future__ import annotations

import argparse
import importlib.util
import math
import sys
import time
from collections.abc import Callable
from pathlib import Path
from pydoc_data.topics import topics
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

import bindings
from compare.judge import acceptance
from compare.judge.acceptance import Expected
from compare.timing.names import NAMES

BACKENDS = ("cuda", "triton")
N_CHARACTERS = 128
BATCH, N_TOKENS = 4, 32
HEADS, KV_HEADS, HEAD_DIM = 4, 2, 16
WIDTH, HIDDEN = 64, 128
LEARNING_RATE, MOMENTUM = 0.1, 0.9


class Ops(NamedTuple):
    """The functions that the block is made of; all take and return tensors."""

    matmul: Callable[[Tensor, Tensor], Tensor]
    rms_norm: Callable[[Tensor, Tensor], Tensor]
    rotary: Callable[[Tensor, Tensor, Tensor], Tensor]
    attention: Callable[[Tensor, Tensor, Tensor], Tensor]
    swiglu: Callable[[Tensor, Tensor], Tensor]
    cross_entropy: Callable[[Tensor, Tensor], Tensor]


def own_ops(backend: str) -> Ops:
    """The project's ops, in one of its languages."""
    return Ops(
        matmul=lambda a, b: bindings.matmul(a, b, backend=backend),
        rms_norm=lambda x, weight: bindings.rms_norm(x, weight, backend=backend),
        rotary=lambda x, cos, sin: bindings.rotary(x, cos, sin, backend=backend),
        attention=lambda q, k, v: bindings.attention(
            q, k, v, causal=True, backend=backend
        ),
        swiglu=lambda gate, up: bindings.swiglu(gate, up, backend=backend),
        cross_entropy=lambda logits, target: bindings.cross_entropy(
            logits, target, backend=backend
        ),
    )


def _torch_rotary(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    a, b = x.chunk(2, -1)
    cos, sin = cos[:, None], sin[:, None]
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


def _torch_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    heads_first = (x.transpose(1, 2) for x in (q, k, v))
    query, key, value = heads_first
    out = functional.scaled_dot_product_attention(
        query, key, value, is_causal=True, enable_gqa=True
    )
    return out.transpose(1, 2)


TORCH = Ops(
    matmul=torch.matmul,
    rms_norm=lambda x, weight: functional.rms_norm(x, weight.shape, weight, eps=1e-6),
    rotary=_torch_rotary,
    attention=_torch_attention,
    swiglu=lambda gate, up: functional.silu(gate) * up,
    cross_entropy=functional.cross_entropy,
)


def initial_weights(generator: torch.Generator) -> dict[str, Tensor]:
    """All weights of the block, in float64."""
    shapes = {
        "embedding": (N_CHARACTERS, WIDTH),
        "q": (WIDTH, HEADS * HEAD_DIM),
        "k": (WIDTH, KV_HEADS * HEAD_DIM),
        "v": (WIDTH, KV_HEADS * HEAD_DIM),
        "out": (HEADS * HEAD_DIM, WIDTH),
        "gate": (WIDTH, HIDDEN),
        "up": (WIDTH, HIDDEN),
        "down": (HIDDEN, WIDTH),
        "logits": (WIDTH, N_CHARACTERS),
    }
    weights = {
        name: torch.randn(shape, generator=generator, dtype=torch.float64)
        / math.sqrt(shape[0])
        for name, shape in shapes.items()
    }
    norms = ("attention_norm", "mlp_norm", "last_norm")
    return weights | {name: torch.ones(WIDTH, dtype=torch.float64) for name in norms}


def loss_of(ops: Ops, weights: dict[str, Tensor], tokens: Tensor) -> Tensor:
    """How well each next character is foretold, the mean of -log(p).

    Args:
        ops: What computes it.
        weights: Those of `initial_weights`, in any dtype.
        tokens: (batch, n_tokens + 1) of int64.
    """
    batch, n_tokens = tokens.shape[0], tokens.shape[1] - 1
    x = weights["embedding"][tokens[:, :-1].flatten()]

    # -- attention: every character looks back at those before it
    normed = ops.rms_norm(x, weights["attention_norm"])
    q, k, v = (
        ops.matmul(normed, weights[name]).view(batch, n_tokens, -1, HEAD_DIM)
        for name in ("q", "k", "v")
    )
    cos, sin = (each.to(x) for each in rotations(n_tokens))
    q, k = ops.rotary(q, cos, sin), ops.rotary(k, cos, sin)
    seen = ops.attention(q, k, v).reshape(batch * n_tokens, -1)
    x = x + ops.matmul(seen, weights["out"])

    # -- feed forward: each character by itself
    normed = ops.rms_norm(x, weights["mlp_norm"])
    gate, up = (ops.matmul(normed, weights[name]) for name in ("gate", "up"))
    x = x + ops.matmul(ops.swiglu(gate, up), weights["down"])

    # -- loss
    logits = ops.matmul(ops.rms_norm(x, weights["last_norm"]), weights["logits"])
    return ops.cross_entropy(logits, tokens[:, 1:].flatten())


def rotations(n_tokens: int) -> tuple[Tensor, Tensor]:
    """The cosine and sine of the angle by which each position turns each pair."""
    frequencies = 10000.0 ** -torch.linspace(0, 1, HEAD_DIM // 2, dtype=torch.float64)
    angles = torch.arange(n_tokens)[:, None] * frequencies
    return angles.cos(), angles.sin()


def train(ops: Ops, dtype: torch.dtype, device: str, n_steps: int) -> Tensor:
    """Trains from the same start on the same text; returns the loss of each step."""
    generator = torch.Generator().manual_seed(0)
    weights = {
        name: weight.to(device, dtype).requires_grad_()
        for name, weight in initial_weights(generator).items()
    }
    text = "".join(topics[name] for name in sorted(topics))
    characters = torch.tensor([min(ord(c), N_CHARACTERS - 1) for c in text])
    optimizer = torch.optim.SGD(weights.values(), LEARNING_RATE, MOMENTUM)
    losses = []
    for _ in range(n_steps):
        starts = torch.randint(len(text) - N_TOKENS, (BATCH, 1), generator=generator)
        tokens = characters[starts + torch.arange(N_TOKENS + 1)].to(device)
        loss = loss_of(ops, weights, tokens)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return torch.stack(losses).cpu()


def draw(curves: dict[str, Tensor], path: Path) -> None:
    """Draws the losses, and how far each is from those in float64."""
    from matplotlib.figure import Figure  # which all but the picture does without

    figure = Figure(figsize=(6.4, 5.6))
    upper, lower = figure.subplots(2, 1, sharex=True)
    exact = curves["PyTorch, float64"]
    for (name, losses), marker in zip(curves.items(), "o^sxv", strict=False):
        steps = range(1, len(losses) + 1)
        upper.plot(steps, losses, label=name, marker=marker, markersize=4)
        if losses is not exact:
            distance = (losses.double() - exact).abs()
            lower.plot(steps, distance, label=name, marker=marker, markersize=4)
    upper.set_ylabel("loss")
    upper.legend()
    lower.set_yscale("log")
    lower.set_ylabel("distance from float64")
    lower.set_xlabel("step")
    lower.legend()
    figure.savefig(path, bbox_inches="tight", dpi=150)


def main() -> int:
    """Trains as asked on the command line; returns 1 if a curve is off."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--backend", choices=BACKENDS, help="by default both")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument(
        "--plot", type=Path, help="a file for the picture, .png or .svg"
    )
    asked = parser.parse_args()
    if asked.plot and importlib.util.find_spec("matplotlib") is None:
        parser.error("--plot needs matplotlib: pip install -e '.[plots]'")
    curves = {
        "PyTorch, float64": train(TORCH, torch.float64, asked.device, asked.steps),
        "PyTorch, float32": train(TORCH, torch.float32, asked.device, asked.steps),
    }
    expected = Expected(curves["PyTorch, float64"], curves["PyTorch, float32"])
    is_right = True
    for backend in (asked.backend,) if asked.backend else BACKENDS:
        start = time.perf_counter()
        losses = train(own_ops(backend), torch.float32, asked.device, asked.steps)
        verdict = acceptance.judge(losses, expected)
        is_right &= verdict.passed
        sys.stdout.write(
            f"{NAMES[backend]}: loss {losses[0]:.4f} at first, {losses[-1]:.4f} after "
            f"{asked.steps} steps, in {time.perf_counter() - start:.1f} s; "
            f"{verdict.problem or 'as near to float64 as PyTorch in float32'}\n"
        )
        curves[NAMES[backend]] = losses
    if asked.plot:
        draw(curves, asked.plot)
    return 0 if is_right else 1


if __name__ == "__main__":
    sys.exit(main())
