"""The device that a table or grid is chosen for: the mirror of launch.cuh's Device."""

import functools
from typing import NamedTuple

import triton

from triton_kernels.common.math import INTERPRETED


class Device(NamedTuple):
    """What a launcher has to know of a GPU."""

    arch: int  # its compute capability, such as 90
    n_sms: int  # its multiprocessors

    @property
    def has_dependent_launches(self) -> bool:
        """Whether one may begin while the launch before it ends: see griddepcontrol."""
        return self.arch >= 90


def current_device() -> Device:
    """The GPU that the next launch goes to; in the interpreter, one like an H200."""
    if INTERPRETED:
        return Device(arch=90, n_sms=132)
    return _device(triton.runtime.driver.active.get_current_device())


@functools.cache
def _device(index: object) -> Device:
    driver = triton.runtime.driver.active
    properties = driver.utils.get_device_properties(index)
    arch = driver.get_current_target().arch
    return Device(arch, properties["multiprocessor_count"])
