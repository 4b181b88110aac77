"""Loads an op's launcher by one route, in a process where nothing is loaded yet.

build_routes starts it, writes the request to its standard input, and reads the answer
from a file, because compilers may print.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import math
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from bindings.backends import cuda_inline, native, prebuilt
from bindings.errors import BuildError, UnsupportedError
from bindings.op import Argument, Op, as_tuple
from bindings.registry import OPS
from bindings.trials import TRIALS
from compare.judge import acceptance
from compare.judge.cases import Case, make_arguments
from compare.timing import nvrtc
from compare.timing.measure import host_us

# Takes a launcher's arguments, and returns what launches the kernel on them.
_Bind = Callable[[tuple[Argument, ...]], Callable[[], object]]
# Where the binary is, the kernel's name in it, and what binds it on a GPU.
_Loaded = tuple[Path, str, _Bind | None]


def main() -> None:
    """Answers the request on standard input."""
    request = json.load(sys.stdin)
    answer = json.dumps(_answer(request))
    Path(request["folder"], "answer.json").write_text(answer, "utf-8")


def _answer(request: Mapping[str, Any]) -> dict[str, Any]:
    op = OPS[request["op"]]
    importlib.import_module("torch.utils.cpp_extension")  # NVRTC's route imports it
    if torch.cuda.is_available():
        torch.zeros(1, device="cuda")  # makes the context
    began = time.perf_counter()
    try:
        load = _load_nvrtc if request["route"] == "nvrtc" else _load_module
        binary, symbol, bind = load(op, request)
    except (BuildError, UnsupportedError) as error:
        return {"problem": str(error)}
    load_s = time.perf_counter() - began
    answer = {"load_s": load_s, "binary": str(binary), "symbol": symbol}
    if request["times_calls"]:
        assert bind
        answer |= _time_calls(op, bind)
    return answer


def _load_module(op: Op, request: Mapping[str, Any]) -> _Loaded:
    if request["route"] == "load_inline":
        module = cuda_inline.load(op, "_cuda")
    else:
        path = Path(request["folder"], "_cuda.so")
        spec = importlib.util.spec_from_file_location("_cuda", path)
        assert spec
        assert spec.loader
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    assert module.__file__

    def bind(bare: tuple[Argument, ...]) -> Callable[[], object]:
        return lambda: native.launch(
            module, op, bare, torch.cuda.current_stream().cuda_stream
        )

    return Path(module.__file__), request["symbol"], bind


def _load_nvrtc(op: Op, request: Mapping[str, Any]) -> _Loaded:
    compiled = [
        nvrtc.compile_kernel(op.source, kernel, request["arch"])
        for kernel in request["kernels"]
    ]
    path = Path(request["folder"], "nvrtc.cubin")
    path.write_bytes(compiled[0].cubin)
    bind = None
    if torch.cuda.is_available():
        loaded = list(map(nvrtc.load, compiled))

        def bind(bare: tuple[Argument, ...]) -> Callable[[], object]:
            plans = native.plan(prebuilt.load("_cpu"), op, bare, request["number"])
            launches = list(map(nvrtc.bind, loaded, plans))
            return lambda: [launch() for launch in launches]

    return path, compiled[0].symbol, bind


def _time_calls(op: Op, bind: _Bind) -> dict[str, Any]:
    """Microseconds of a call on the host, if what it computes is right."""
    arguments = make_arguments(op, Case(TRIALS[op.name].large_shape), "cuda")
    expected = acceptance.expect(op, arguments)
    outputs = as_tuple(op.allocate(*arguments))
    for out in outputs:
        out.fill_(math.nan)
    try:
        launch = bind(op.arguments(*outputs, *arguments))
    except UnsupportedError as error:
        return {"not_called": str(error)}
    call_us = host_us(launch)
    if problem := acceptance.judge_all(outputs, expected).problem:
        return {"not_called": f"what it computes is wrong: {problem}"}
    return {"call_us": call_us}


if __name__ == "__main__":
    main()
