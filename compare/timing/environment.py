"""Versions and devices, on which the figures of a report depend."""

from __future__ import annotations

import datetime
import importlib.metadata
import platform
import re
import subprocess
from pathlib import Path
from typing import Any

import torch

from bindings import toolchain
from compare import peers, repository

_DRIVER_VERSION = Path("/proc/driver/nvidia/version")


def collect() -> dict[str, Any]:
    """The environment in plain values; None stands for what is not there."""
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "torch": torch.__version__,
        "torch_cuda": torch.version.cuda,
        "triton": _package_version("triton"),
        "numpy": _package_version("numpy"),
        "nvcc": nvcc_version(),
        "gpus": [
            torch.cuda.get_device_name(index)
            for index in range(torch.cuda.device_count())
        ],
        "driver": driver_version(),
        "packages": {
            name: version
            for name in sorted(peers.PACKAGES.values())
            if (version := _package_version(name))
        },
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(
            timespec="seconds"
        ),
        "commit": repository.commit(),
    }


def nvcc_version() -> str | None:
    """The release of the nvcc that would be used, such as "13.0", if it can be run."""
    cuda_home = toolchain.find_cuda_home()
    if cuda_home is None:
        return None
    try:
        return "{}.{}".format(*toolchain.nvcc_version(cuda_home))
    except (OSError, subprocess.CalledProcessError, RuntimeError):
        return None  # the doctor says what is wrong with it


def driver_version() -> str | None:
    """The version of NVIDIA's kernel module."""
    if not _DRIVER_VERSION.exists():
        return None
    found = re.search(r"\b(\d+\.\d+(?:\.\d+)?)\b", _DRIVER_VERSION.read_text())
    return found[1] if found else None


def _package_version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
