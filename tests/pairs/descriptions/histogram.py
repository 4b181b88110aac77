"""A histogram of small integers, some of them beyond the bins."""
import torch

cuda = "../cuda/histogram.cu:histogram"


def inputs(generator, n=3001):
    return (torch.randint(-3, 70, (n,), generator=generator, dtype=torch.int32),)


def reference(data):
    inside = data[(data >= 0) & (data < 64)]
    return torch.bincount(inside, minlength=64).to(torch.int32)
