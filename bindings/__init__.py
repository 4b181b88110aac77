"""Every op behind one interface, whatever computes it.

    bindings.softmax(x, backend="cuda")         # the prebuilt extension
    bindings.softmax(x, backend="cuda_inline")  # the same sources by load_inline
    bindings.softmax(x, backend="triton")
    bindings.softmax(x, backend="torch")        # PyTorch's own, for reference

A CUDA tensor runs on its device and the current stream. A CPU tensor runs the CUDA
kernel in the emulator and the Triton kernel in Triton's interpreter. A backend that
cannot serve a call raises and says why; none stands in for another. Ops do not take
part in autocast: they compute in the dtype they are given.
"""

from bindings.ops.add import add
from bindings.ops.gelu import gelu
from bindings.ops.softmax import softmax

__all__ = ["add", "gelu", "softmax"]
