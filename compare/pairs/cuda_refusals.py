"""Says what of CUDA the emulator does not run."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from compare.pairs.cpp_tokens import Token, macro

_DOES_NOT = "does not run in the emulator"
_HEADERS = (
    (r"mma\.h$", "nvcuda::wmma"),
    (r"cub/", "CUB"),
    (r"thrust/", "Thrust"),
    (r"cuda/", "libcu++"),
    (r"cutlass/", "CUTLASS"),
    (r"cute/", "CuTe"),
    (r"cublas", "cuBLAS"),
    (r"cudnn", "cuDNN"),
    (r"cufft", "cuFFT"),
    (r"cusparse", "cuSPARSE"),
    (r"cusolver", "cuSOLVER"),
    (r"curand\.h$", "cuRAND's host interface"),
    (r"nccl", "NCCL"),
)
_CALLS = (
    (r"cudaLaunchCooperativeKernel(MultiDevice)?$|this_grid$", "a cooperative launch"),
    (r"cudaLaunchKernel$|cuLaunchKernel(Ex)?$", "a launch by an array of pointers"),
)
_NAMES = (
    (r"(asm|__asm|__asm__)$", "inline PTX (asm)"),
    (r"(nv)?wmma$|nvcuda$", "nvcuda::wmma"),
    (r"cuda(Texture|Surface)Object_t$|tex[123]D\w*$", "a texture or surface"),
    (r"cudaGraph\w*$|cudaStreamBeginCapture\w*$", "a CUDA graph"),
)
# The emulator does not define __CUDA_ARCH__, so it skips code that asks for it.
_FALSE = re.compile(
    r"#\s*ifdef\s+__CUDA_ARCH__"
    r"|#\s*(el)?if\b(?!.*(\|\||!\s*\()).*"
    r"((?<!!)\bdefined\s*\(?\s*__CUDA_ARCH__|\b__CUDA_ARCH__\s*>=?\s*\d+)"
)
_TRUE = re.compile(
    r"#\s*ifndef\s+__CUDA_ARCH__"
    r"|#\s*if\s+!\s*defined\s*\(?\s*__CUDA_ARCH__\s*\)?\s*$"
    r"|#\s*if\s+__CUDA_ARCH__\s*<\s*\d+\s*$"
)


@dataclass(frozen=True)
class Refusal:
    """Something that forbids the emulator; `what` says it, without a final stop."""

    line: int
    file: Path
    what: str


def refusals(tokens: Sequence[Token], file: Path) -> Iterator[Refusal]:
    """Yields what of a file the emulator does not run, once for each line and thing."""
    tokens = [*_for_the_emulator(tokens)]
    found: set[tuple[int, str]] = set()
    for token in tokens:
        if header := "".join(token.include):
            found.update(
                (token.line, f"{name} (<{header}>) {_DOES_NOT}")
                for text, name in _HEADERS
                if re.match(text, header)
            )
        if defined := macro(token):
            found.update(_in_code(defined.body))
            texts = {each.text for each in defined.body}
            if {"__global__", "{"} <= texts:
                # Its name and its parameters are known to the preprocessor alone.
                kernel = f"a kernel that a macro defines ({defined.name})"
                found.add((token.line, f"{kernel} {_DOES_NOT}"))
    found.update(_in_code(tokens))
    for line, what in sorted(found):
        yield Refusal(line, file, what)


def device_launch(line: int, file: Path) -> Refusal:
    """Returns the refusal of a kernel that launches a kernel."""
    return Refusal(line, file, f"a launch from device code {_DOES_NOT}")


def _for_the_emulator(tokens: Sequence[Token]) -> Iterator[Token]:
    """Leaves out what is compiled for some architectures alone."""
    branches = [""]  # of each open #if: "false", "true" or "" if that is not known
    for token in tokens:
        condition = token.condition
        if condition.startswith("if"):
            branches.append("")
        if condition == "endif" and len(branches) > 1:
            branches.pop()
        elif condition == "else":
            branches[-1] = "false" if branches[-1] == "true" else ""
        elif condition:
            is_true, is_false = _TRUE.match(token.text), _FALSE.match(token.text)
            branches[-1] = "true" if is_true else "false" if is_false else ""
        if "false" not in branches:
            yield token


def _in_code(tokens: Sequence[Token]) -> Iterator[tuple[int, str]]:
    code = [token for token in tokens if token.is_code]
    for i, token in enumerate(code):
        if token.kind != "identifier":
            following = code[i + 1] if i + 1 < len(code) else token
            is_launch = (token.text, following.text) == ("<<", "<")
            is_template = i > 0 and code[i - 1].text == "operator"
            if is_launch and following.start == token.end and not is_template:
                yield token.line, f"a launch that a macro completes {_DOES_NOT}"
            continue
        is_call = i + 1 < len(code) and code[i + 1].text == "("
        for text, name in (*_NAMES, *(_CALLS if is_call else ())):
            if re.match(text, token.text):
                yield token.line, f"{name} {_DOES_NOT}"
