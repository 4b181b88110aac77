"""The kernel of a program with main(): a sum for each block, the rest by torch."""
import torch

cuda = "../cuda/program_reduce.cu:reduceSum"


def inputs(generator, n=5000):
    return (torch.rand(n, generator=generator),)


def launch(run, x):
    x = x.contiguous()
    sums = torch.empty(16, dtype=x.dtype, device=x.device)
    run[16, 128](x, sums, x.numel())
    return sums.sum()


def reference(x):
    return x.sum()
