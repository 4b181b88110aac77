"""Compiles one kernel of a .cu file with NVRTC, through torch's interface to it.

That interface, torch.cuda._utils, is private to torch, and the same from torch 2.11 to
2.13 at least. Nothing else in the project uses it, and a test pins what is used here.

NVRTC compiles for the GPU alone, in memory. It knows neither the host's C++ library nor
the host's half of the CUDA runtime, and the .cu files include both for their launchers.
The CUDA toolkit's libcu++ and a few declarations stand in for them, because the
launchers have to be parsed, though nothing of them is kept.
"""

from __future__ import annotations

import inspect
import struct
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.cuda import _utils

from bindings import toolchain
from bindings.errors import BuildError, UnsupportedError
from bindings.sources import CSRC

_USED = {
    "_nvrtc_compile": {
        *("kernel_source", "kernel_name", "compute_capability"),
        *("cuda_include_dirs", "nvcc_options"),
    },
    "_cuda_load_module": {"ptx"},
}
_OPTIONS = (
    "--std=c++20",
    "--generate-line-info",
    "--disable-warnings",  # about launchers, which are parsed but not kept
    "--device-as-default-execution-space",  # launchers are not marked as host code
    "-DTWIN_SINGLE_KERNEL",
)
_ALL_OF_CUDA_STD = "using namespace cuda::std;"
# Headers on the search path of <...>. Extend it when a .cu includes more.
_HEADERS = {
    **{
        name: f"#include <cuda/std/{name}>\nnamespace std {{ {_ALL_OF_CUDA_STD} }}"
        for name in ("bit", "cstdint", "type_traits", "utility")
    },
    # <cuda.h> includes both but uses only uint32_t; the rest is in <cstdint>.
    "stdint.h": "#include <cuda/std/cstdint>",
    "stdlib.h": "",
    # Tables of launches, which NVRTC compiles none of, use std::size and lists; how a
    # launch is cut up, std::max and std::clamp.
    "algorithm": (
        "namespace std {\n"
        "template <typename T> constexpr T max(T a, T b) { return a < b ? b : a; }\n"
        "template <typename T> constexpr T clamp(T x, T least, T most) {\n"
        "return x < least ? least : most < x ? most : x;\n}\n}"
    ),
    "cstddef": (
        "#include <cuda/std/cstddef>\nnamespace std { using cuda::std::size_t; }"
    ),
    "initializer_list": "#include <cuda/std/initializer_list>",
    "iterator": (
        "#include <cuda/std/cstddef>\nnamespace std { template <typename T, "
        "cuda::std::size_t N>\nconstexpr cuda::std::size_t size(const T (&)[N]) "
        "{ return N; } }"
    ),
    "vector": (
        "namespace std { template <typename T> struct vector {\n"
        "template <typename... Values> vector(Values...);\nvoid push_back(const T&);\n"
        "}; }"
    ),
}
# Definitions that the host's <cmath> and CUDA's runtime would provide.
_PRELUDE = """\
#include <cuda_runtime.h>
#define INFINITY __builtin_bit_cast(float, 0x7f800000)
#define NAN __builtin_bit_cast(float, 0x7fffffff)
#define cudaGetDevice(...) cudaErrorNotSupported
#define cudaDeviceGetAttribute(...) cudaErrorNotSupported
#define cudaGetDriverEntryPointByVersion(...) cudaErrorNotSupported
"""
# A parameter as a plan has it, and as torch passes it on, in the codes of struct.
_PASSED_AS = {"pointer": ("Q", "d"), "long": ("q", "d"), "float": ("I", "i")}


@dataclass(frozen=True)
class Compiled:
    """A kernel that NVRTC has compiled for one architecture."""

    symbol: str  # its name in the cubin
    cubin: bytes


def obstacle() -> str | None:
    """Returns why torch's NVRTC cannot be used here, or None where it can."""
    if torch.version.cuda is None:
        return f"torch {torch.__version__} is a CPU build, which comes without NVRTC"
    for function, parameters in _USED.items():
        known = getattr(_utils, function, None)
        if not known or not parameters <= inspect.signature(known).parameters.keys():
            return (
                f"torch {torch.__version__} has no torch.cuda._utils.{function} as "
                "torch 2.11 to 2.13 have it"
            )
    if toolchain.find_cuda_home() is None:
        return (
            "NVRTC needs the headers of a CUDA toolkit, and none is found; the extra "
            "brings one: pip install -e '.[nvcc]'"
        )
    return None


def compile_kernel(op: str, kernel: str, arch: str) -> Compiled:
    """Compiles one kernel of csrc/<op>/<op>.cu; no GPU is needed for that.

    torch needs CUDA_HOME, and reads it from the environment when it is imported.

    Args:
        op: The stem of the file.
        kernel: With template arguments: "softmax_kernel<float, 4, 8, 128>".
        arch: Such as "sm_90a".

    Raises:
        UnsupportedError: torch has no NVRTC that works here; the message says why.
        BuildError: NVRTC refuses the source.
    """
    if problem := obstacle():
        raise UnsupportedError(problem)
    cuda_home = toolchain.find_cuda_home()
    assert cuda_home
    with tempfile.TemporaryDirectory() as folder:
        for name, text in _HEADERS.items():
            Path(folder, name).write_text(f"#pragma once\n{text}\n")
        include = cuda_home / "include"
        try:
            cubin, symbol = _utils._nvrtc_compile(
                kernel_source=_source(op),
                kernel_name=kernel,
                compute_capability=arch.removeprefix("sm_"),
                # From CUDA 13 on libcu++ has a folder of its own.
                cuda_include_dirs=[str(CSRC), folder, f"{include}/cccl", str(include)],
                nvcc_options=list(_OPTIONS),
            )
        except OSError as error:  # no libnvrtc, or no CUDA_HOME
            raise UnsupportedError(f"torch cannot use NVRTC: {error}") from error
        except RuntimeError as error:
            log = str(error).removeprefix("Kernel compilation failed:\n").strip()
            raise BuildError(
                f"NVRTC cannot compile csrc/{op}/{op}.cu:\n{log}"
            ) from error
    return Compiled(symbol, cubin)


def load(compiled: Compiled) -> Any:
    """Loads a kernel onto the current device, for `bind`."""
    return getattr(_utils._cuda_load_module(compiled.cubin), compiled.symbol)


def bind(kernel: Any, plan: Mapping[str, Any]) -> Callable[[], None]:
    """A launch of a kernel that is loaded, on the current stream.

    Args:
        kernel: From `load`.
        plan: From bindings.backends.native.plan, for tensors on the GPU.

    Raises:
        UnsupportedError: The kernel takes something that torch cannot pass on.
    """
    kernel.set_shared_memory_config(plan["shared_bytes"])
    values = kernel_arguments(plan["signature"], plan["arguments"])
    return lambda: kernel(plan["grid"], plan["block"], values, plan["shared_bytes"])


def kernel_arguments(signature: str, arguments: Iterable[int]) -> list[float]:
    """Converts a kernel's arguments to values that torch passes on bit for bit.

    torch passes an int as 32 bits, but the kernels' ints have 64, as pointers have. A
    double is the only 64-bit number that it passes unchanged, so these go as the double
    with the same bits. A float, of which the plan has the bits, goes as the int with
    those bits.

    Args:
        signature: Such as "void f<float, 4>(float*, float const*, long)".
        arguments: The kernel's, as a plan has them.

    Raises:
        UnsupportedError: The kernel takes something that torch cannot pass on.
    """
    types = signature.rpartition("(")[2].removesuffix(")").split(", ")
    kinds = ["pointer" if each.endswith("*") else each for each in types]
    if not set(kinds) <= _PASSED_AS.keys():
        raise UnsupportedError(
            f"torch cannot pass what the kernel takes as ({', '.join(types)})"
        )
    values: list[float] = []
    for kind, argument in zip(kinds, arguments, strict=True):
        planned, passed = _PASSED_AS[kind]
        values += struct.unpack(passed, struct.pack(planned, argument))
    return values


def _source(op: str) -> str:
    from torch.utils import cpp_extension  # takes a second, and is not always needed

    # torch disables the operators of half, which kernels use.
    allowed = [
        f"#undef {flag.removeprefix('-D')}"
        for flag in cpp_extension.COMMON_NVCC_FLAGS
        if flag.startswith("-D__CUDA_NO_")
    ]
    return "\n".join([*allowed, _PRELUDE, f'#include "{op}/{op}.cu"\n'])
