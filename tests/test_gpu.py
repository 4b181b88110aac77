"""Streams, graphs, several devices, and large memory, which only a GPU has."""

from __future__ import annotations

import gc
import importlib
import math
import os
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch
from common import assert_accepted, needs_gpu, random_inputs
from torch import Tensor

import bindings
from bindings.library import call_any
from bindings.op import Op, as_tuple
from bindings.trials import TRIALS
from compare.judge import acceptance
from compare.judge.cases import is_number

pytestmark = needs_gpu

ROOT = Path(__file__).resolve().parents[1]


def test_a_side_stream_waits_for_its_own_work_only(
    op: Op, backend: str, generator: torch.Generator
) -> None:
    inputs = random_inputs(op, (33, 257), torch.float32, "cuda", generator)
    function = getattr(bindings, op.name)
    expected = as_tuple(function(*inputs, backend=backend))
    late = tuple(torch.zeros_like(x) for x in inputs)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        # The inputs appear on this stream after some milliseconds: a kernel on any
        # other stream would find zeros.
        torch.cuda._sleep(20_000_000)
        for x, value in zip(late, inputs, strict=True):
            x.copy_(value)
        out = as_tuple(function(*late, backend=backend))
    stream.synchronize()
    assert all(map(torch.equal, out, expected))


def test_graph_capture_and_replay(
    op: Op, backend: str, generator: torch.Generator
) -> None:
    inputs = random_inputs(op, (33, 257), torch.float32, "cuda", generator)
    function = getattr(bindings, op.name)
    function(
        *inputs, backend=backend
    )  # the first call compiles, which no graph records
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = as_tuple(function(*inputs, backend=backend))
    for x in filter(is_number, inputs):
        x.mul_(-0.5)
    expected = as_tuple(function(*inputs, backend=backend))
    graph.replay()
    assert all(map(torch.equal, out, expected))


@pytest.mark.parametrize("shape", [(33, 257), (256, 512)])
def test_a_launch_that_begins_early_waits_for_what_is_before_it(
    op: Op,
    backend: str,
    dtype: torch.dtype,
    shape: tuple[int, ...],
    generator: torch.Generator,
) -> None:
    """It waits for copies, fills and other streams, in a graph as well."""
    inputs = random_inputs(op, shape, dtype, "cuda", generator)
    function = getattr(bindings, op.name)
    expected = as_tuple(function(*inputs, backend=backend))
    late = tuple(torch.zeros_like(x) for x in inputs)
    other = torch.cuda.Stream()

    def fill() -> None:
        for x, value in zip(late, inputs, strict=True):
            x.zero_()
            x.copy_(value)

    def work() -> tuple[Tensor, ...]:
        stream = torch.cuda.current_stream()
        other.wait_stream(stream)
        with torch.cuda.stream(other):
            fill()
        stream.wait_stream(other)
        out = as_tuple(function(*late, backend=backend))
        kept = tuple(each.clone() for each in out)
        fill()  # over what it reads
        return kept + as_tuple(function(*late, backend=backend))

    for _ in range(20):
        assert all(map(torch.equal, work(), expected + expected))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = work()
    for _ in range(20):
        graph.replay()
        assert all(map(torch.equal, results, expected + expected))


def test_nothing_waits_for_the_gpu(
    op: Op, backend: str, generator: torch.Generator
) -> None:
    inputs = random_inputs(op, (33, 257), torch.float32, "cuda", generator)
    function = getattr(bindings, op.name)
    function(*inputs, backend=backend)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # "a prototype feature"
            torch.cuda.set_sync_debug_mode("error")
        function(*inputs, backend=backend)
    finally:
        torch.cuda.set_sync_debug_mode("default")


# torch.compile captures an empty graph of its own before the first call.
@pytest.mark.filterwarnings(
    "ignore:TensorFloat32 tensor cores", "ignore:The CUDA Graph is empty"
)
def test_compile_with_graphs(op: Op, backend: str, generator: torch.Generator) -> None:
    torch.compiler.reset()
    inputs = random_inputs(op, (33, 257), torch.float32, "cuda", generator)
    function = getattr(bindings, op.name)

    def plus_one(*args: Tensor) -> tuple[Tensor, ...]:
        return tuple(out + 1 for out in as_tuple(function(*args, backend=backend)))

    compiled = torch.compile(plus_one, fullgraph=True, mode="reduce-overhead")
    # A kernel on another stream would not be in the graph, nor see the new contents.
    for factor in (1.0, -0.5, 3.0, 0.25):
        for x in filter(is_number, inputs):
            x.mul_(factor)
        assert all(map(torch.equal, compiled(*inputs), plus_one(*inputs)))


def test_the_emulator_agrees_with_the_gpu(
    op: Op, dtype: torch.dtype, generator: torch.Generator
) -> None:
    trial = TRIALS[op.name]
    for shape in trial.edge_shapes:
        inputs = random_inputs(op, shape, dtype, "cpu", generator)
        on_gpu = tuple(x.cuda() for x in inputs)
        for params in trial.variants:
            known = trial.bind(inputs, params, dtype)
            emulated = as_tuple(call_any(op, "cuda", *known))
            results = as_tuple(call_any(op, "cuda", *trial.bind(on_gpu, params, dtype)))
            for out, expected in zip(results, emulated, strict=True):
                _assert_near(op, out.cpu(), expected, dtype)


def _assert_near(op: Op, out: Tensor, emulated: Tensor, dtype: torch.dtype) -> None:
    if TRIALS[op.name].is_rounded_once:
        assert torch.equal(out, emulated)
        return
    # Fast exponentials and reciprocals, the order of a sum, and a last rounding that
    # these may tip over to the neighbour.
    eps = torch.finfo(torch.float32).eps
    allowed = acceptance.FLOAT32_UNITS * eps + torch.finfo(dtype).eps
    by_row = TRIALS[op.name].is_judged_by_row
    error = acceptance.errors_of(out, emulated.double(), dtype, by_row)
    assert max(error.max, error.rms) <= allowed, tuple(out.shape)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs a second GPU")
def test_second_device(op: Op, backend: str, generator: torch.Generator) -> None:
    inputs = random_inputs(op, (33, 257), torch.float32, "cuda:1", generator)
    assert torch.cuda.current_device() == 0
    assert_accepted(op, backend, inputs)
    assert torch.cuda.current_device() == 0


def test_inputs_on_two_devices_are_refused(backend: str) -> None:
    with pytest.raises(ValueError, match="x is on cpu and y on cuda:0"):
        bindings.add(torch.ones(2), torch.ones(2, device="cuda"), backend=backend)


def test_memory_does_not_grow(op: Op, backend: str, generator: torch.Generator) -> None:
    inputs = random_inputs(op, (33, 257), torch.float32, "cuda", generator)
    function = getattr(bindings, op.name)
    function(*inputs, backend=backend)
    gc.collect()  # of what earlier tests have left
    before = torch.cuda.memory_allocated()
    for _ in range(1000):
        function(*inputs, backend=backend)
    assert torch.cuda.memory_allocated() == before


MANY = 2**31 + 2**16 + 3


@pytest.mark.parametrize("step", [1, 2])
def test_more_elements_than_an_int_counts(backend: str, step: int) -> None:
    if torch.cuda.mem_get_info()[0] < 40 * 2**30:
        pytest.skip("needs 40 GiB of free GPU memory")
    x = torch.zeros(step * MANY, dtype=torch.float16, device="cuda")[::step]
    places = torch.tensor([0, 1, 2**31 - 1, 2**31, 2**31 + 1, MANY - 1], device="cuda")
    x[places] = torch.arange(1.0, 7.0, dtype=torch.float16, device="cuda")
    out = bindings.add(x, x, backend=backend)
    assert torch.equal(out[places], 2 * x[places])
    assert out.count_nonzero() == 6
    out = bindings.gelu(x, backend=backend)
    assert out.count_nonzero() == 6


@pytest.mark.parametrize(
    "shape", [(MANY // 4096 + 1, 4096), (2, MANY // 2), (MANY // 3, 3), (1, 2**31 - 1)]
)
@pytest.mark.parametrize("implementation", ["cuda", "triton"])
def test_softmax_of_more_elements_than_an_int_counts(
    implementation: str, shape: tuple[int, int]
) -> None:
    if torch.cuda.mem_get_info()[0] < 60 * 2**30:
        pytest.skip("needs 60 GiB of free GPU memory")
    x = torch.zeros(shape, dtype=torch.float16, device="cuda")
    x[:, 0] = 12.0
    out = bindings.softmax(x, backend=implementation)
    others = shape[1] - 1
    total = math.exp(12) + others
    exact = torch.tensor([math.exp(12) / total, 1 / total, 1 / total], device="cuda")
    float16 = torch.finfo(torch.float16)
    for row in (0, shape[0] // 2, shape[0] - 1):
        # One rounding to float16, also where that is denormal.
        torch.testing.assert_close(
            out[row, [0, 1, -1]].float(),
            exact,
            rtol=float16.eps,
            atol=float16.smallest_normal * float16.eps,
        )


FAST_MATH = """
import torch, triton, triton.language as tl
from triton_kernels.common import math
@triton.jit
def kernel(out_ptr, x_ptr, n, RECIPROCAL: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n)
    out = math.fast_reciprocal(x) if RECIPROCAL else math.fast_exp(x)
    tl.store(out_ptr + offsets, out, mask=offsets < n)
"""


def test_errors_of_the_fast_functions(tmp_path: Path) -> None:
    source = tmp_path / "fast_math_kernel.py"
    source.write_text(FAST_MATH)
    sys.path.insert(0, str(tmp_path))
    try:
        kernel = importlib.import_module("fast_math_kernel").kernel
    finally:
        sys.path.pop(0)
    for reciprocal, x in (
        (False, torch.linspace(-87, 88, 1_000_003, device="cuda")),
        (True, torch.logspace(-37, 37, 1_000_003, device="cuda")),
    ):
        out = torch.empty_like(x)
        kernel[(x.numel() // 1024 + 1,)](out, x, x.numel(), reciprocal, 1024)
        exact = 1 / x.double() if reciprocal else x.double().exp()
        error = (out.double() - exact).abs() / exact
        # As their docstrings say.
        allowed = 2.0**-23 if reciprocal else 2.0**-22 + x.abs() * 2.0**-23
        assert (error <= allowed).all()


SMALLEST = """
import torch, bindings
from bindings.registry import OPS
from compare.judge.cases import Case, make_arguments
for op in OPS.values():
    for shape in ((7,), (4099,), (3, 5), (2, 1100)):
        for dtype in (torch.float32, torch.bfloat16):
            arguments = make_arguments(op, Case(shape, dtype), "cuda")
            getattr(bindings, op.name)(*arguments, backend="cuda")
torch.cuda.synchronize()
"""


@pytest.mark.parametrize("tool", ["memcheck", "racecheck"])
def test_compute_sanitizer(tool: str) -> None:
    sanitizer = (
        shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    )
    if not Path(sanitizer).exists():
        pytest.skip("compute-sanitizer is not installed")
    # Out of torch's own pool an access past the end of a tensor would be legal.
    environment = {**os.environ, "PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
    result = subprocess.run(
        [
            sanitizer,
            "--tool",
            tool,
            "--error-exitcode",
            "7",
            sys.executable,
            "-c",
            SMALLEST,
        ],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert "0 errors" in result.stdout or "0 hazards" in result.stdout
