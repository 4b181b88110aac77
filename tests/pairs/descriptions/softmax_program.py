"""The kernel of a program with main(), by cooperative groups."""
import torch

cuda = "../cuda/program_softmax.cu:softmax_forward_kernel"
triton = "../triton/softmax.py:softmax"


def inputs(generator, rows=14, cols=190):
    return (torch.randn(rows, cols, generator=generator),)


def launch(run, x):
    x = x.contiguous()
    out = torch.empty_like(x)
    rows, cols = x.shape
    run[((rows + 3) // 4, 1, 1), (128, 1, 1)](out, x, rows, cols)
    return out


def reference(x):
    return torch.softmax(x, -1)
