"""The profile: the owner of each kernel, its time, and the flame graph."""

from __future__ import annotations

import io
import itertools
import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from common import needs_gpu_to_itself
from rich.console import Console
from torch import Tensor

from compare import cli, options
from compare.cli import main
from compare.errors import UnavailableError, UsageError
from compare.judge.cases import Case
from compare.judge.parity import Skipped
from compare.report import profiles as report
from compare.timing import gpu_state, gpu_trace, profiler
from compare.timing.gpu_trace import Launched, Span
from compare.timing.implementations import Implementation
from compare.timing.profiler import (
    CALLS,
    ImplementationProfile,
    KernelUse,
    ProfileRequest,
)

HOST, GPU, STREAM = 4711, 0, 7
AMAX = (
    "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, "
    "at::native::func_wrapper_t<float, at::native::MaxNanFunctor<float> >, unsigned "
    "int, float, 4, 4> >(at::native::ReduceOp<float, at::native::func_wrapper_t<float, "
    "at::native::MaxNanFunctor<float> >, unsigned int, float, 4, 4>)"
)
EXP = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::exp_kernel_cuda("
    "at::TensorIteratorBase&)::{lambda()#2}::operator()() const::{lambda()#2}::"
    "operator()() const::{lambda(float)#1}, std::array<char*, 2ul> >(int, ...)"
)
OURS = "void softmax_kernel<float, 4, 8, 128>(float*, float const*, long, long, long)"

# Text that is markup to rich, an element to XML, and a command to a terminal.
HOSTILE = "[bold]x[/] <script>&amp;\x1b[31m\x00"


class Recorder:
    """Writes events as Kineto does for a host that runs ahead of its GPU."""

    def __init__(self) -> None:
        """Begins with events other than work."""
        self.events: list[dict[str, Any]] = [
            {"ph": "M", "name": "process_name", "pid": HOST, "tid": 0, "ts": 0.0},
            {"ph": "i", "s": "g", "name": "Record Window End", "ts": 9e6, "tid": ""},
        ]
        self.now = 1000.0
        self._gpu_free = 0.0
        self._numbers = itertools.count(1)

    @property
    def trace(self) -> dict[str, Any]:
        """The file."""
        # Kineto writes the GPU's events before or after those that caused them.
        return {"schemaVersion": 1, "traceEvents": self.events[::-1]}

    def begin(self, category: str, name: str) -> dict[str, Any]:
        """Begins an event of the host."""
        self.now += 1.0
        event = self._event(category, name, HOST, HOST, self.now, 0.0)
        event["args"] = {"External id": next(self._numbers)}
        return event

    def end(self, event: dict[str, Any]) -> None:
        """Ends it."""
        self.now += 1.0
        event["dur"] = self.now - event["ts"]

    def launch(
        self,
        kernel: str,
        us: float,
        call: str | None = "cudaLaunchKernel",
        latency: float = 5.0,
    ) -> None:
        """Launches a kernel that begins later, by a call that may be traced."""
        correlation = next(self._numbers)
        if call is not None:
            category = "cuda_runtime" if call.startswith("cuda") else "cuda_driver"
            event = self.begin(category, call)
            event["args"] = {"cbid": 211, "correlation": correlation}
            self.end(event)
        begin = max(self._gpu_free, self.now + latency)
        self._gpu_free = begin + us
        event = self._event("kernel", kernel, GPU, STREAM, begin, us)
        event["args"] = {
            "queued": 0,
            "device": 0,
            "context": 1,
            "stream": STREAM,
            "correlation": correlation,
            "registers per thread": 52,
            "shared memory": 16,
            "blocks per SM": 124.1,
            "warps per SM": 496.5,
            "grid": [16384, 1, 1],
            "block": [128, 1, 1],
            "est. achieved occupancy %": 100,
        }
        if kernel.startswith("Memset"):
            event["cat"] = "gpu_memset"
            event["args"] = {"device": 0, "correlation": correlation, "bytes": 4}

    def gpu_annotation(self, name: str, begin: float, us: float) -> None:
        """The span on the GPU that Kineto makes of an annotation."""
        self._event("gpu_user_annotation", name, GPU, STREAM, begin, us)

    def _event(
        self, category: str, name: str, pid: int, tid: int, ts: float, us: float
    ) -> dict[str, Any]:
        event = {"ph": "X", "cat": category, "name": name, "pid": pid, "tid": tid}
        event |= {"ts": ts, "dur": us}
        self.events.append(event)
        return event


def _calls_of_two() -> Recorder:
    """The CUDA side, then unfused PyTorch, CALLS calls each."""
    recorder = Recorder()
    recorder.launch("void at::native::fill(int)", us=3.0)  # outside of both
    span = recorder.begin("user_annotation", "cuda")
    for _ in range(CALLS):
        op = recorder.begin("cpu_op", "twin::softmax_cuda")
        # So late that the host is already in the other span.
        recorder.launch(OURS, us=130.0, call="cudaLaunchKernelExC", latency=500.0)
        recorder.end(op)
    recorder.end(span)
    span = recorder.begin("user_annotation", "unfused")
    for _ in range(CALLS):
        op = recorder.begin("cpu_op", "aten::amax")
        inner = recorder.begin("cpu_op", "aten::fill_")
        recorder.launch("Memset (Device)", us=1.0, call="cudaMemsetAsync")
        recorder.end(inner)
        recorder.launch(AMAX, us=70.0)
        recorder.end(op)
        for _ in range(2):
            op = recorder.begin("cpu_op", "aten::exp")
            recorder.launch(EXP, us=120.0)
            recorder.end(op)
    recorder.end(span)
    return recorder


def _spans() -> dict[str, Span]:
    return gpu_trace.read(_calls_of_two().trace, ["cuda", "unfused"])


def test_kernels_belong_to_those_who_launched_them() -> None:
    spans = _spans()
    assert [work.launched.name for work in spans["cuda"].work] == CALLS * [OURS]
    names = [work.launched.name for work in spans["unfused"].work]
    assert names == CALLS * ["Memset (Device)", AMAX, EXP, EXP]


def test_facts_of_a_launch() -> None:
    spans = _spans()
    assert spans["cuda"].work[0].us == 130.0
    kernel = spans["cuda"].work[0].launched
    assert (kernel.grid, kernel.block) == ((16384, 1, 1), (128, 1, 1))
    assert (kernel.registers, kernel.shared_bytes) == (52, 16)
    memset = spans["unfused"].work[0]
    assert memset.us == 1.0
    assert (memset.launched.grid, memset.launched.registers) == (None, None)


def test_stacks_go_from_the_implementation_to_the_launch() -> None:
    spans = _spans()
    assert [
        list(spans[name].work[index].stack)
        for name, index in (("cuda", 0), ("unfused", 0), ("unfused", 1))
    ] == [
        [
            "cuda",
            "twin::softmax_cuda",
            "cudaLaunchKernelExC",
        ],
        [
            "unfused",
            "aten::amax",
            "aten::fill_",
            "cudaMemsetAsync",
        ],
        [
            "unfused",
            "aten::amax",
            "cudaLaunchKernel",
        ],
    ]


def test_the_driver_launches_too_and_other_threads_do_not_count() -> None:
    recorder = Recorder()
    span = recorder.begin("user_annotation", "triton")
    region = recorder.begin("user_annotation", "Torch-Compiled Region: 0/0")
    other = recorder.begin("cpu_op", "autograd::engine")
    other["tid"] = HOST + 1
    recorder.launch("softmax_kernel", us=10.0, call="cuLaunchKernelEx")
    for event in (other, region, span):
        recorder.end(event)
    (work,) = gpu_trace.read(recorder.trace, ["triton"])["triton"].work
    assert list(work.stack) == [
        "triton",
        "Torch-Compiled Region: 0/0",
        "cuLaunchKernelEx",
    ]


def test_a_launch_that_was_not_traced_is_told_by_the_span_on_the_gpu() -> None:
    recorder = Recorder()
    for name in ("quack", "liger"):
        recorder.end(recorder.begin("user_annotation", name))
    for name, begin in (("quack", 2000.0), ("liger", 3000.0)):
        recorder.now = begin
        recorder.launch(f"{name}_kernel", us=50.0, call=None)
        recorder.gpu_annotation(name, begin, 100.0)
    recorder.now = 9000.0
    recorder.launch("of nobody", us=50.0, call=None)
    spans = gpu_trace.read(recorder.trace, ["quack", "liger"])
    found = {
        name: [each.launched.name for each in span.work] for name, span in spans.items()
    }
    assert found == {"quack": ["quack_kernel"], "liger": ["liger_kernel"]}
    assert spans["quack"].work[0].stack == ("quack",)


def test_an_annotation_that_is_missing_is_named() -> None:
    with pytest.raises(ValueError, match="no annotation 'triton'"):
        gpu_trace.read(_calls_of_two().trace, ["cuda", "triton"])


def test_what_torch_exports_here_is_read(tmp_path: Path) -> None:
    activities = [torch.profiler.ProfilerActivity.CPU]
    x = torch.randn(100, 100)
    with torch.profiler.profile(activities=activities, acc_events=True) as profiler:
        for name in ("first", "second"):
            with torch.profiler.record_function(name):
                torch.softmax(x, -1)
    file = tmp_path / "trace.json"
    profiler.export_chrome_trace(str(file))
    document = json.loads(file.read_text())
    spans = gpu_trace.read(document, ["first", "second"])
    for span in spans.values():
        assert 0 < span.host_us < 1e6
        assert span.work == ()
    # A launch put where an operation is lies within it.
    host = next(
        each for each in document["traceEvents"] if each["name"] == "aten::_softmax"
    )
    launch = {**host, "cat": "cuda_runtime", "name": "cudaLaunchKernel"}
    kernel = {**host, "cat": "kernel", "name": "k", "tid": STREAM}
    for event in (launch, kernel):
        event["args"] = {"correlation": 1}
    document["traceEvents"] += [kernel, launch]
    (work,) = gpu_trace.read(document, ["first"])["first"].work
    assert list(work.stack) == [
        "first",
        "aten::softmax",
        "aten::_softmax",
        "cudaLaunchKernel",
    ]


@pytest.mark.parametrize(
    ("name", "short"),
    [
        (OURS, "softmax_kernel<float, 4, 8, 128>"),
        (
            AMAX,
            "reduce_kernel<512, 1, ReduceOp<float, func_wrapper_t<float, "
            "MaxNanFunctor<float>>, unsigned int, float, 4, 4>>",
        ),
        (
            EXP,
            "vectorized_elementwise_kernel<4, exp_kernel_cuda, array<char*, 2ul>>",
        ),
        (
            "void (anonymous namespace)::softmax_warp_forward<float, (int)4, (bool)0>"
            "(float*, float const*, int)",
            "softmax_warp_forward<float, 4, 0>",
        ),
        ("triton_per_fused__softmax_0", "triton_per_fused__softmax_0"),
        ("Memcpy HtoD (Pageable -> Device)", "Memcpy HtoD"),
    ],
)
def test_short_names(name: str, short: str) -> None:
    assert gpu_trace.short_name(name) == short


def test_figures_are_of_one_call() -> None:
    spans = _spans()
    fused = profiler.summarize(spans["cuda"])
    assert fused.gpu_us == 130.0
    assert fused.host_us == pytest.approx(spans["cuda"].host_us / CALLS)
    (kernel,) = fused.kernels
    assert kernel.launched.name == OURS
    assert (kernel.launches, kernel.us) == (1.0, 130.0)
    unfused = profiler.summarize(spans["unfused"])
    assert unfused.gpu_us == 1.0 + 70.0 + 2 * 120.0
    assert [(each.launches, each.us) for each in unfused.kernels] == [
        (1.0, 1.0),
        (1.0, 70.0),
        (2.0, 240.0),
    ]


def test_launches_of_another_grid_stand_apart() -> None:
    span = _spans()["cuda"]
    launched = replace(span.work[0].launched, grid=(1, 1, 1))
    other = replace(span.work[0], launched=launched)
    kernels = profiler.summarize(replace(span, work=(*span.work, other))).kernels
    assert [each.launched.grid for each in kernels] == [(16384, 1, 1), (1, 1, 1)]
    assert kernels[1].launches == 1 / CALLS


# ---- The flame graph -----------------------------------------------------------------


def _nanoseconds(text: str) -> dict[str, int]:
    """The time of each line of collapsed stacks, by stack."""
    lines = (line.rpartition(" ") for line in text.splitlines())
    return {stack: int(number) for stack, _, number in lines}


def test_flame_graph_of_a_profile() -> None:
    spans = _spans()
    made = _nanoseconds(gpu_trace.collapsed(profiler.stacks(spans)))
    by_implementation = {
        name: sum(ns for stack, ns in made.items() if stack.startswith(f"{name};"))
        for name in ("CUDA", "PyTorch unfused")
    }
    assert by_implementation == {"CUDA": 130_000, "PyTorch unfused": 311_000}
    # Equal stacks of all calls are one line.
    (exp,) = (stack for stack in made if stack.endswith(EXP))
    assert made[exp] == 240_000
    assert exp.split(";")[1:-1] == list(_stack_of(spans, EXP))


def _stack_of(spans: Mapping[str, Span], kernel: str) -> Sequence[str]:
    works = (work for span in spans.values() for work in span.work)
    return next(work.stack[1:] for work in works if work.launched.name == kernel)


def test_flame_graph_of_odd_names() -> None:
    frames = [HOSTILE, "a;b\n c"]
    assert gpu_trace.collapsed([(frames, 1000.0), (frames[:1], 0.001)]) == (
        "[bold]x[/] <script>&amp,[31m;a,b c 1000000\n[bold]x[/] <script>&amp,[31m 1\n"
    )


# ---- The command ---------------------------------------------------------------------

REQUEST = ProfileRequest(
    op="gelu",
    shape=(64, 128),
    dtype="bfloat16",
    params={"approximate": "tanh"},
    backends=("cuda", "triton"),
    peers=("torch", "unfused"),
    nvtx_only=True,
)


def test_the_command_lines_for_nsight_ask_for_the_same() -> None:
    systems, compute = profiler.nsight_commands(REQUEST, ["triton", "torch"])
    assert systems.startswith("nsys profile --trace=cuda,nvtx --output=gelu python -m ")
    assert compute.startswith("ncu --nvtx --nvtx-include triton/ ")
    for line in (systems, compute):
        _, _, arguments = line.partition("python -m compare ")
        parsed = cli.parse(shlex.split(arguments))
        assert parsed.command == "profile"
        params = options.params_of("gelu", parsed.param)
        asked = ProfileRequest(
            op=parsed.op,
            shape=parsed.shape,
            dtype=parsed.dtype,
            params=params,
            backends=tuple(parsed.backend),
            peers=tuple(parsed.peers),
            nvtx_only=parsed.nvtx_only,
        )
        assert asked == REQUEST


def test_no_command_line_for_a_kernel_of_nobody() -> None:
    (line,) = profiler.nsight_commands(replace(REQUEST, shape=None, peers=()), [])
    assert "--shape" not in line


def test_an_implementation_that_raises_is_skipped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def call(x: Tensor) -> Tensor:
        raise NotImplementedError("no such dtype")

    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    raising = Implementation("quack", call)
    assert profiler._warm_up(raising, (torch.ones(1),)) == Skipped(
        "raises NotImplementedError: no such dtype"
    )
    assert (
        profiler._warm_up(Implementation("torch", torch.exp), (torch.ones(1),)) is None
    )
    missing = Skipped("needs quack: pip install quack-kernels")
    assert profiler._warm_up(missing, ()) is missing


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["profile", "softmax", "--output", str(tmp_path / "folder")]) == 3
    assert re.fullmatch(r"compare: .* need a GPU.*\n", capsys.readouterr().err)
    assert not (tmp_path / "folder").exists()


def test_a_folder_that_cannot_be_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_state, "obstacle", lambda: None)
    (tmp_path / "file").touch()
    with pytest.raises(UnavailableError, match=r"--output: .* cannot be written to"):
        profiler.profile(
            replace(REQUEST, nvtx_only=False), tmp_path / "file" / "folder", print
        )


def _report(**profiles: ImplementationProfile | Skipped | None) -> str:
    versions = ("python", "torch", "triton", "nvcc", "driver")
    made = profiler.ProfileReport(
        op="softmax",
        case=Case((16384, 4096)),
        environment={**dict.fromkeys(versions, HOSTILE), "gpus": ["NVIDIA H200"]},
        profiles=profiles,
        files=(Path("profile/softmax.trace.json"), Path("profile/softmax.stacks.txt")),
        commands=("nsys profile", "ncu --nvtx"),
    )
    output = io.StringIO()
    report.show(made, Console(file=output, width=120, highlight=False))
    return output.getvalue()


def test_report_shows_the_many_kernels_beside_the_one() -> None:
    spans = _spans()
    text = _report(
        cuda=profiler.summarize(spans["cuda"]),
        unfused=profiler.summarize(spans["unfused"]),
        quack=Skipped(HOSTILE),
    )
    lines = [" ".join(line.split()) for line in text.splitlines()]
    fused = lines.index("CUDA 1 130.00 4.1")
    assert lines[fused + 1] == (
        "softmax_kernel<float, 4, 8, 128> 1 130.00 16384 x 128 52 16"
    )
    assert lines[fused + 2].startswith("PyTorch unfused 4 311.00 ")
    assert lines[fused + 3] == "Memset 1 1.00 - - -"
    assert "no profile of quack: [bold]x[/] <script>" in text
    assert "profile/softmax.trace.json: open it at https://ui.perfetto.dev" in text
    assert "\x1b" not in text


def test_report_of_the_ranges_alone() -> None:
    text = _report(cuda=None, torch=None)
    assert "ran in the NVTX ranges cuda, torch" in text
    assert "GPU us" not in text


def test_a_use_without_facts_is_shown() -> None:
    launched = Launched(HOSTILE, None, None, None, None)
    memset = KernelUse(launched, launches=0.5, us=1.0)
    text = _report(cuda=ImplementationProfile((memset,), 1.0, 2.0))
    assert "0.5" in text
    assert "\x1b" not in text


@needs_gpu_to_itself
def test_profile_on_a_gpu(tmp_path: Path) -> None:
    torch.use_deterministic_algorithms(False)  # which fills every new tensor
    request = ProfileRequest(
        op="softmax",
        shape=(512, 1024),
        dtype="float32",
        params={"dim": -1},
        backends=("cuda", "triton"),
        peers=("torch", "unfused"),
        nvtx_only=False,
    )
    made = profiler.profile(request, tmp_path / "new" / "folder", lambda what: None)
    kernels = {
        name: each.kernels
        for name, each in made.profiles.items()
        if isinstance(each, ImplementationProfile)
    }
    assert list(kernels) == ["cuda", "triton", "torch", "unfused"]
    for name in ("cuda", "triton"):
        (kernel,) = kernels[name]
        assert "softmax_kernel" in kernel.launched.name
        assert kernel.launches == 1
        assert kernel.us > 0
        assert kernel.launched.registers
        assert kernel.launched.grid
    assert len(kernels["unfused"]) >= 4
    trace_file, table_file, stacks_file = made.files
    assert json.loads(trace_file.read_text())["traceEvents"]
    assert "softmax_kernel" in table_file.read_text()
    made_of = _nanoseconds(stacks_file.read_text())
    assert {stack.split(";")[0] for stack in made_of} >= {"CUDA", "Triton"}
    assert min(made_of.values()) > 0
    report.show(made, Console(file=io.StringIO()))


@needs_gpu_to_itself
def test_ranges_alone_on_a_gpu(tmp_path: Path) -> None:
    request = replace(REQUEST, backends=("triton",), peers=("torch",))
    made = profiler.profile(request, tmp_path / "folder", lambda what: None)
    assert made.profiles == {"triton": None, "torch": None}
    assert made.files == ()
    assert not (tmp_path / "folder").exists()


@needs_gpu_to_itself
def test_a_shape_that_makes_no_sense_on_a_gpu(tmp_path: Path) -> None:
    request = replace(REQUEST, op="softmax", params={"dim": 5})
    with pytest.raises(UsageError):
        profiler.profile(request, tmp_path, lambda what: None)
