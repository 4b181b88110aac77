"""Rewrites a user's CUDA files for the emulator and for nvcc, line for line."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path

from compare.pairs.cpp_declarations import Declaration
from compare.pairs.cpp_tokens import Token
from compare.pairs.cuda_bindings import is_binding
from compare.pairs.cuda_edits import (
    Edit,
    Kernels,
    applied,
    codes,
    is_instance,
    launch_edits,
    memory_edits,
    name_edits,
    torch_edits,
    using_edits,
)
from compare.pairs.cuda_launches import launches
from compare.pairs.cuda_source import (
    TORCH_HEADERS,
    CudaSource,
    ParsedFile,
    function_kind,
    specifiers_of_macros,
)

# What device code uses of PyTorch, by the names that ask for it.
_DEVICE_HEADERS = (
    (r"C10_\w+|CUDA_KERNEL_ASSERT\w*", "c10/macros/Macros.h"),
    (r"Half|kHalf|kFloat16|AT_DISPATCH_\w*(HALF|REDUCED)\w*", "c10/util/Half.h"),
    (r"k?BFloat16|AT_DISPATCH_\w*(BFLOAT16|REDUCED)\w*", "c10/util/BFloat16.h"),
    (r"complex|AT_DISPATCH_\w*COMPLEX\w*", "c10/util/complex.h"),
    (
        r"(GenericPacked|Packed)?TensorAccessor(32|64)?|(Restrict|Default)PtrTraits",
        "ATen/core/TensorAccessor.h",
    ),
    (r"acc_type(_device)?", "ATen/AccumulateType.h"),
    (r"opmath_type|OpMathType", "ATen/OpMathType.h"),
    (r"(gpu|fast)Atomic\w+", "ATen/cuda/Atomic.cuh"),
    (r"CUDA_KERNEL_LOOP\w*|GET_BLOCKS", "ATen/cuda/detail/KernelUtils.h"),
    (r"__half2?|half2?", "cuda_fp16.h"),
    (r"__nv_bfloat162?|nv_bfloat162?", "cuda_bf16.h"),
)
_STANDARD_HEADERS = ("algorithm", "cassert", "cmath", "cstdint", "cstdio", "limits")
_NAMESPACES = (
    "namespace c10 {} namespace at { using namespace c10; } "
    "namespace torch { using namespace at; }"
)

# Torch declares this one for nvcc alone.
_RESTRICT_TRAITS = """\
#include <ATen/core/TensorAccessor.h>
#if __has_include(<torch/headeronly/core/TensorAccessor.h>)
namespace torch::headeronly {
template <typename T> struct RestrictPtrTraits { typedef T* __restrict__ PtrType; };
}
namespace at { using torch::headeronly::RestrictPtrTraits; }
#else
namespace at {
template <typename T> struct RestrictPtrTraits { typedef T* __restrict__ PtrType; };
}
#endif
"""


def file_names(source: CudaSource) -> dict[Path, str]:
    """Returns for each file the name under which its new text has to be written."""
    return {path: f"{i}_{path.name}" for i, path in enumerate(source.files)}


def emulated_host(source: CudaSource) -> dict[Path, str]:
    """Returns the text of each file for g++ and the emulator, of kernels the heads.

    Every token stays on its line, and messages name the user's file. Launches become
    calls of own::Launch, and `main` becomes own_main. The object file lacks the kernels
    and instances that the host code launches.
    """
    return _Files(source).emulated_host()


def emulated_kernels(source: CudaSource) -> dict[Path, str]:
    """Returns the text of each file for g++ and the emulator without host code.

    It includes nothing of PyTorch but the types that device code uses.
    """
    return _Files(source).emulated_kernels()


def device(source: CudaSource) -> dict[Path, str]:
    """Returns the text of each file for nvcc without host code.

    It includes nothing of PyTorch but the types that device code uses. Explicit
    instances of kernels are left out: the caller appends those that it wants.
    """
    return _Files(source).device()


class _Files:
    """All files of a source, while they are rewritten."""

    def __init__(self, source: CudaSource) -> None:
        self._source = source
        self._files = source.parsed
        self._specifiers = specifiers_of_macros(self._files)
        self._kernels = Kernels(self._kernels_in_order(self._files[0], set()))
        self._deduced = {
            launch.name
            for file in self._files
            for code in codes(file)
            for launch in launches(code)
            if self._kernels.is_deduced(launch)
        }
        self._host_functions = {
            each.name
            for file in self._files
            for each in self._of_kind(file, "host")
            if "constexpr" not in each.words
        }
        self._device_macros = {
            each.name
            for file in self._files
            for each in file.macros
            if {t.text for t in each.body}
            & {"__global__", "__device__", "constexpr", "struct"}
        }

    def emulated_host(self) -> dict[Path, str]:
        texts = {}
        for file in self._files:
            edits = [*self._emulator_edits(file)]
            blanks = [*self._bindings(file)]
            for kernel in self._of_kind(file, "kernel"):
                if is_instance(kernel) and kernel.template is None:
                    blanks.append(_range(kernel.tokens))
                elif kernel.body:
                    start, end = _range(kernel.body)
                    edits.append(Edit(start, start, ";"))
                    blanks.append((start, end))
            text = self._text(file, edits, blanks)
            texts[file.path] = self._traits(file) + text
        return texts

    def emulated_kernels(self) -> dict[Path, str]:
        texts = {}
        for file in self._files:
            text = self._text(file, self._emulator_edits(file), self._host_code(file))
            texts[file.path] = self._prelude(file) + self._traits(file) + text
        return texts

    def device(self) -> dict[Path, str]:
        texts = {}
        for file in self._files:
            edits = [
                *name_edits(file, self._of_kind(file, "kernel")),
                *self._includes(file),
            ]
            text = self._text(file, edits, self._host_code(file))
            texts[file.path] = self._prelude(file) + text
        return texts

    def _of_kind(self, file: ParsedFile, kind: str) -> list[Declaration]:
        return [
            each
            for each in file.declarations
            if each.kind == "function" and function_kind(each, self._specifiers) == kind
        ]

    def _kernels_in_order(
        self, file: ParsedFile, seen: set[Path]
    ) -> Iterator[Declaration]:
        """Yields the kernels of a file and of those it includes, as g++ sees them."""
        seen.add(file.path)
        kernels = {each.tokens[0].start: each for each in self._of_kind(file, "kernel")}
        for start in sorted((*kernels, *file.includes)):
            included = file.includes.get(start)
            if start in kernels:
                yield kernels[start]
            elif included not in seen:
                inner = next(each for each in self._files if each.path == included)
                yield from self._kernels_in_order(inner, seen)

    def _text(
        self,
        file: ParsedFile,
        edits: Iterable[Edit],
        blanks: Iterable[tuple[int, int]],
    ) -> str:
        is_main = file.path == self._source.path
        line = self._source.first_line if is_main else 1
        path = str(file.path).replace("\\", "\\\\").replace('"', '\\"')
        text = applied(self._source.files[file.path], edits, [*blanks], file)
        return f'#line {line} "{path}"\n{text}'

    def _emulator_edits(self, file: ParsedFile) -> Iterator[Edit]:
        outside = {each.tokens[0].start for each in file.declarations}
        for code in codes(file):
            yield from launch_edits(code, self._kernels)
            yield from using_edits(code, self._deduced)
            yield from memory_edits(code, outside)
            if self._source.uses_torch:
                yield from torch_edits(code)
        kernels = self._of_kind(file, "kernel")
        yield from name_edits(file, kernels)
        yield from self._includes(file)
        for each in self._of_kind(file, "host"):
            if each.qualified == "main":
                yield from _renamed_main(each)
        for kernel in kernels:
            if kernel.name in self._deduced and not is_instance(kernel):
                end = kernel.tokens[-1].end
                yield Edit(end, end, self._kernels.pick(kernel))

    def _includes(self, file: ParsedFile) -> Iterator[Edit]:
        names = file_names(self._source)
        for token in file.tokens:
            if included := file.includes.get(token.start):
                yield Edit(token.start, token.end, f'#include "{names[included]}"')

    def _bindings(self, file: ParsedFile) -> Iterator[tuple[int, int]]:
        for each in file.declarations:
            if is_binding(each):
                yield _range(each.tokens)

    def _host_code(self, file: ParsedFile) -> Iterator[tuple[int, int]]:
        """Yields what device code does without."""
        for token in file.tokens:
            name = "".join(token.include)
            if name.startswith((*TORCH_HEADERS, "Python.h")):
                yield token.start, token.end
        for each in file.declarations:
            if self._is_host(each):
                yield _range(each.tokens)

    def _is_host(self, declaration: Declaration) -> bool:
        if declaration.kind == "function":
            kind = function_kind(declaration, self._specifiers)
            if kind == "kernel":
                return is_instance(declaration) and declaration.template is None
            return kind == "host" and (
                "constexpr" not in declaration.words or _names_torch(declaration.tokens)
            )
        if declaration.kind == "invocation":
            return declaration.name not in self._device_macros
        calls = {
            token.text
            for token, following in pairwise(declaration.tokens)
            if following.text == "("
        }
        is_calling = declaration.kind == "other" and calls & self._host_functions
        return bool(is_calling) or _names_torch(declaration.tokens)

    def _prelude(self, file: ParsedFile) -> str:
        """Returns what stands for PyTorch's headers, before the first line."""
        if not self._source.uses_torch or file.path != self._source.path:
            return ""
        names = self._names()
        headers = [
            header
            for pattern, header in _DEVICE_HEADERS
            if any(re.fullmatch(pattern, name) for name in names)
        ]
        lines = [f"#include <{each}>" for each in (*_STANDARD_HEADERS, *headers)]
        return "\n".join((*lines, _NAMESPACES, ""))

    def _traits(self, file: ParsedFile) -> str:
        """Returns what torch's accessors lack under g++, before the first line."""
        is_main = file.path == self._source.path
        is_used = self._source.uses_torch and "RestrictPtrTraits" in self._names()
        return _RESTRICT_TRAITS if is_main and is_used else ""

    def _names(self) -> set[str]:
        """Returns the words of all files that are not macros of their own."""
        names = {
            token.text for each in self._files for code in codes(each) for token in code
        }
        return names - {each.name for file in self._files for each in file.macros}


def _range(tokens: Sequence[Token]) -> tuple[int, int]:
    return tokens[0].start, tokens[-1].end


def _renamed_main(declaration: Declaration) -> Iterator[Edit]:
    token = next(t for t in declaration.tokens if t.text == "main")
    yield Edit(token.start, token.end, "own_main")
    if declaration.body and declaration.returns == "int":
        end = declaration.body[-1].start
        yield Edit(end, end, " return 0; ")  # as main does by itself


def _names_torch(tokens: Sequence[Token]) -> bool:
    """Whether code names something of PyTorch but the types of device code."""
    texts = [token.text for token in tokens]
    if texts[:2] == ["using", "namespace"] and texts[2:3] in (
        ["at"],
        ["c10"],
        ["torch"],
    ):
        return len(texts) > 4
    if "pybind11" in texts:
        return True
    for i, text in enumerate(texts[:-2]):
        is_torch = text in ("torch", "at", "c10", "py") and texts[i + 1] == "::"
        if is_torch and not any(
            re.fullmatch(p, texts[i + 2]) for p, _ in _DEVICE_HEADERS
        ):
            return True
    return False
