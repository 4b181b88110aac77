"""What a user's rewritten CUDA files include besides, for the names that occur in them.

All headers that some file needs would take longer to compile than the file.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from torch.utils.cpp_extension import include_paths

from compare.pairs.cuda_source import CudaSource

# Names of torch's that the headers declare which all files that use torch include.
_CORE = frozenset(
    (
        *("Tensor", "TensorOptions", "ScalarType", "Scalar", "Device", "DeviceType"),
        *("DeviceIndex", "Layout", "Half", "BFloat16", "MemoryFormat", "IntArrayRef"),
        *("ArrayRef", "Dtype", "nullopt", "optional", "kCPU", "kCUDA", "cuda"),
        *("kStrided", "kFloat", "kDouble", "kHalf", "kBFloat16", "kInt", "kLong"),
        *("kShort", "kChar", "kByte", "kBool", "kFloat16", "kFloat32", "kFloat64"),
        *("kUInt8", "kInt8", "kInt16", "kInt32", "kInt64", "dtype", "device", "layout"),
        *("requires_grad", "TensorAccessor", "PackedTensorAccessor"),
        *("PackedTensorAccessor32", "PackedTensorAccessor64", "RestrictPtrTraits"),
        *("DefaultPtrTraits", "detail", "native", "acc_type", "complex", "from_blob"),
        *("irange", "opmath_type", "empty", "empty_like", "full", "ones", "ones_like"),
        *("zeros", "zeros_like"),
    )
)
_TORCH_NAME = re.compile(r"\b(?:torch|at|c10)::(\w+)")
# Headers that files may do without, as those that include torch's, by what needs them.
_STANDARD = {
    "string": re.compile(r"\b(?:to_)?string\b(?!\.h|>)"),
    "vector": re.compile(r"\bvector\b(?!>)"),
}
# Calls of functions that take lists of torch's own types.
_TAKES_LISTS = re.compile(r"\b(?:cat|index|index_put_?)\s*\(")


def torch_lines(source: CudaSource) -> list[str]:
    """What is included for the names of torch's that not all files use."""
    texts = source.files.values()
    named = {name for text in texts for name in _TORCH_NAME.findall(text)} - _CORE
    folders = [Path(each) / "ATen/ops" for each in include_paths()]
    functions = {
        name for name in named if any((each / f"{name}.h").exists() for each in folders)
    }
    lines = [f"#include <ATen/ops/{each}.h>" for each in sorted(functions)]
    lines.append("#undef OWN_WITHOUT_CONTEXT")
    if named - functions or any(map(_TAKES_LISTS.search, texts)):
        lines += ["#include <ATen/core/IListRef.h>", "#include <ATen/Context.h>"]
    return lines


def standard_lines(texts: Mapping[Path, str]) -> list[str]:
    """What is included of C++ itself, for the names that occur."""
    return [
        f"#include <{header}>"
        for header, needs_it in _STANDARD.items()
        if any(map(needs_it.search, texts.values()))
    ]
