"""Prefix sums of rows, by a plain host function."""
import torch

cuda = "../cuda/row_scan.cu:launch_row_scan"


def inputs(generator, rows=6, cols=300):
    return (torch.randn(rows, cols, generator=generator),)


def launch(run, x):
    x = x.contiguous()
    out = torch.empty_like(x)
    run(out, x, x.shape[0], x.shape[1])
    return out


def reference(x):
    return x.cumsum(-1)
