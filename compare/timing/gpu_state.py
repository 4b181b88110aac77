"""The state of the GPU, and whether it can be measured on, here and now.

nvidia-smi, which comes with the driver, reads the state; nothing is set.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import statistics
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

from bindings.errors import BuildError
from compare.errors import BuildFailedError, UnavailableError
from compare.timing.times import GpuState
from compare.timing.turns import TimingError

# More than what is left of our own work a second after it is done.
_BUSY_PERCENT = 5
_POLL_S = 0.25
_PATIENCE_S = 3.0
_SAMPLE_MS = 100

# nvml.h: nvmlClocksEventReasons. What slows a GPU down, rather than what it idles for.
_THROTTLES = {
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
}
_STATE = "clocks.sm,clocks.mem,power.draw,temperature.gpu,clocks_event_reasons.active"
# Libraries that compute-sanitizer and g++'s sanitizers load.
_SANITIZERS = re.compile(
    r"/lib[^/]*(?:sanitizer|asan|tsan|msan)[^/]*\.so[.\d]*", re.IGNORECASE
)


def obstacle() -> str | None:
    """Why nothing can be timed here and now, or None."""
    if not torch.cuda.is_available():
        return f"times need a GPU, and torch {torch.__version__} finds none here"
    if os.environ.get("CUDA_LAUNCH_BLOCKING", "0") != "0":
        return "CUDA_LAUNCH_BLOCKING is set, which times the host: unset it"
    if sanitizer := _sanitizer():
        return f"this process runs under {sanitizer}, which slows kernels down"
    return _other_work()


def _sanitizer() -> str | None:
    maps = Path("/proc/self/maps")
    found = _SANITIZERS.search(maps.read_text()) if maps.exists() else None
    return found[0].lstrip("/") if found else None


def _other_work() -> str | None:
    """Waits until the GPU has nothing to do; what to say if that never comes."""
    if (command := _query("utilization.gpu")) is None:
        return None
    torch.cuda.synchronize()
    deadline = time.monotonic() + _PATIENCE_S
    while (percent := _utilization(command)) > _BUSY_PERCENT:
        if time.monotonic() > deadline:
            return (
                f"the GPU is busy with other work ({percent} % of the time, says "
                "nvidia-smi): wait until it is done"
            )
        time.sleep(_POLL_S)
    return None


def _utilization(command: list[str]) -> int:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    text = done.stdout.strip()
    return int(text) if text.isdigit() else 0  # "[N/A]" where it is not told


def _query(what: str, *options: str) -> list[str] | None:
    """The command that asks about torch's GPU; None without that or nvidia-smi."""
    program = shutil.which("nvidia-smi")
    if program is None or not torch.cuda.is_available():
        return None
    # Its number may differ from torch's, which CUDA_VISIBLE_DEVICES changes.
    gpu = f"GPU-{torch.cuda.get_device_properties().uuid}"
    form = "--format=csv,noheader,nounits"
    return [program, "-i", gpu, f"--query-gpu={what}", form, *options]


@contextlib.contextmanager
def measuring() -> Iterator[None]:
    """Where kernels run on a GPU, each of which may fail.

    Raises:
        UnavailableError: The GPU, or the timing lab, cannot do it.
        BuildFailedError: A compiler refused the sources.
    """
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise UnavailableError(
            f"the GPU has not enough memory for this shape: {error}"
        ) from error
    except torch.AcceleratorError as error:
        raise UnavailableError(
            f"the GPU cannot be used any more, for a kernel has failed there: {error}"
        ) from error
    except TimingError as error:
        raise UnavailableError(str(error)) from error
    except BuildError as error:
        raise BuildFailedError(str(error)) from error


@dataclass
class Sampler:
    """The state of the GPU, when its sampling has ended; None if it cannot be asked."""

    state: GpuState | None = None


@contextlib.contextmanager
def sampled() -> Iterator[Sampler]:
    """Samples ten times a second as long as the context lasts."""
    sampler = Sampler()
    if (command := _query(_STATE, f"-lms={_SAMPLE_MS}")) is None:
        yield sampler
        return
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        yield sampler
    finally:
        process.terminate()
        output, _ = process.communicate()
        sampler.state = parse(output)


def parse(output: str) -> GpuState | None:
    """The medians of nvidia-smi's lines; None if there is none with all figures."""
    readings, mask = [], 0
    for line in output.splitlines():
        *numbers, reasons = [each.strip() for each in line.split(",")]
        try:
            reading = tuple(map(float, numbers))
            reason = int(reasons, 16)
        except ValueError:
            continue  # "[N/A]", or a line that was cut off
        if len(reading) == 4:
            readings.append(reading)
            mask |= reason
    if not readings:
        return None
    sm_mhz, memory_mhz, power_w, temperature_c = (
        statistics.median(each) for each in zip(*readings, strict=True)
    )
    throttled_by = tuple(name for bit, name in _THROTTLES.items() if mask & bit)
    return GpuState(
        sm_mhz, memory_mhz, power_w, temperature_c, throttled_by, len(readings)
    )
