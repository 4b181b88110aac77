"""A launch that begins while the one before it in the stream ends, from Hopper on.

Programmatic dependent launch: nobody waits for its programs to be started. Before
Hopper there is none, and nothing to wait for.
"""

import triton
import triton.language as tl
from triton.language.target_info import cuda_capability_geq

from triton_kernels.common.math import INTERPRETED


@triton.jit
def griddepcontrol_launch_dependents():
    """Lets the next launch begin, once all programs have come here or ended.

    If it is a dependent one. It gets what room they leave.
    """
    if not INTERPRETED and cuda_capability_geq(9, 0):
        tl.extra.cuda.gdc_launch_dependents()


@triton.jit
def griddepcontrol_wait():
    """Waits until the launch before has ended, and what it wrote is there.

    Any other launch than a dependent one has waited already.
    """
    if not INTERPRETED and cuda_capability_geq(9, 0):
        tl.extra.cuda.gdc_wait()
