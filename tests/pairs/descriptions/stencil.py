"""Sums of neighbours, by a bare kernel with dynamic shared memory."""
import torch

cuda = "../cuda/stencil_bare.cu:stencil_1d"

BLOCK = 128
RADIUS = 3


def inputs(generator, n=1000):
    return (torch.randn(n, generator=generator),)


def launch(run, x):
    x = x.contiguous()
    out = torch.empty_like(x)
    n = x.numel()
    run[-(-n // BLOCK), BLOCK, (BLOCK + 2 * RADIUS) * 4](x, out, n)
    return out


def reference(x):
    padded = torch.nn.functional.pad(x, (RADIUS, RADIUS))
    return padded.unfold(0, 2 * RADIUS + 1, 1).sum(-1)
