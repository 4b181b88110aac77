"""relu(x + bias): accessors against tensor descriptors made by the kernel."""
import torch

cuda = "../cuda/bias_relu_accessor.cu:bias_relu"
triton = "../triton/bias_relu_device_descriptor.py:bias_relu"


def inputs(generator, rows=21, cols=76):
    x = torch.randn(rows, cols, generator=generator)
    bias = torch.randn(cols, generator=generator)
    return x, bias


def reference(x, bias):
    return torch.relu(x + bias)
