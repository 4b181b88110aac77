"""GELU, tanh approximation: float4 against a module with a hard-coded device."""
import torch

cuda = "../cuda/gelu_vectorized.cu:gelu_forward"
triton = "../triton/gelu_cuda_device.py:gelu_forward"


def inputs(generator, rows=9, cols=223):
    return (2 * torch.randn(rows, cols, generator=generator),)


def reference(x):
    return torch.nn.functional.gelu(x, approximate="tanh")


CASES = [{"rows": 8, "cols": 64}]
