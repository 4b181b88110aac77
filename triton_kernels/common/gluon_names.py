"""Names that differ between the versions of Gluon, from Triton 3.6 to 3.9.

Gluon is the part of Triton in which a program tells where everything lies, and its
warps can differ in what they do.
"""

from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import tma

_is_new = hasattr(tma, "async_load")  # from 3.8 on

# Copies a block from global to shared memory, and tells a barrier; and the way back.
tma_load = tma.async_load if _is_new else tma.async_copy_global_to_shared
tma_store = tma.async_store if _is_new else tma.async_copy_shared_to_global

# Waits for all threads of the warps that do the same.
barrier = gl.barrier if hasattr(gl, "barrier") else gl.thread_barrier
