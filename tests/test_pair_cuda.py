"""The CUDA side of a pair: functions of anybody's .cu, called in the emulator."""

from __future__ import annotations

import ctypes
import re
import subprocess
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from bindings import build_cache
from compare.errors import UnavailableError
from compare.pairs import (
    cuda_includes,
    cuda_module,
    cuda_run,
    cuda_side,
    cuda_source,
    cuda_values,
    sandbox,
)
from compare.pairs.calls import Call, FaultError, Outcome, distinct
from compare.pairs.cuda_source import CudaSource
from compare.pairs.cuda_values import RefusalError
from compare.pairs.entry import Entry
from compare.pairs.side import CudaRoom, Place
from compare.pairs.tensor_trees import results

X = torch.arange(40.0).view(5, 8)
KERNEL = """\
#include <stdexcept>
namespace {
__global__ void twice_kernel(float* out, const float* x, int n, float factor) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = factor * x[i];
}
}
"""
POINTERS = f"""{KERNEL}
void with_default(float* out, const float* x, int n, float factor = 2);

void with_default(float* out, const float* x, int n, float factor) {{
    twice_kernel<<<1, 64>>>(out, x, n, factor);
}}
int with_status(float* out, const float* x, int n) {{
    twice_kernel<<<1, 64>>>(out, x, n, 2);
    return 0;
}}
void raising(float* out, const float* x, int n) {{
    twice_kernel<<<1, 64>>>(out, x, n, 2);
    throw std::runtime_error("no such luck");
}}
"""
LAUNCH = """\
import torch


def launch(run, x):
    out = torch.empty_like(x)
    {}
"""


def read(folder: Path, text: str) -> CudaSource:
    """Reads a text as the file mine.cu."""
    path = folder / "mine.cu"
    path.write_text(text)
    return cuda_source.read(path)


def call(
    source: CudaSource,
    name: str,
    calls: Sequence[Call],
    launch: str = "",
    written: Sequence[int] = (),
) -> list[Outcome]:
    """Calls a function of the file's, or with it a description's launch."""
    target = cuda_side.find_target(source, name)
    files = [source.path]
    caller = None
    if launch:
        path = source.path.with_name("pair.py")
        path.write_text(LAUNCH.format(launch))
        caller = {"style": "launch", "path": str(path)}
        files.append(path)
    outcomes, _ = cuda_side.run(
        cuda_module.build(source, [target]),
        [target],
        calls,
        files,
        caller=caller,
        names=["x"] if caller else (),
        written=written,
    )
    return outcomes


def once(*inputs: Any) -> list[Call]:
    return [Call("as given", inputs)]


# ---- Calls ---------------------------------------------------------------------------


def test_defaults_may_be_left_out(tmp_path: Path) -> None:
    source = read(tmp_path, POINTERS)
    three = (torch.zeros_like(X), X, 40)
    (two, five, few) = call(
        source,
        "with_default",
        [*once(*three), *once(*three, 5.0), *once(torch.zeros(1))],
    )
    assert torch.equal(two.outputs[0], 2 * X), two
    assert torch.equal(five.outputs[0], 5 * X)
    assert few.refusal == "mine.cu:11: it takes 3 arguments, 1 was given"


def test_names_of_torchs_that_few_files_use(tmp_path: Path) -> None:
    text = f"""#include <torch/extension.h>
{KERNEL}
torch::Tensor twice(torch::Tensor x) {{
    std::vector<at::Tensor> list{{x, x}};
    TORCH_CHECK(at::device_of(list) == device_of(x));
    if (at::globalContext().deterministicAlgorithms()) return x;
    auto y = torch::cat({{x, x}});
    auto out = torch::empty_like(y);
    twice_kernel<<<1, 128>>>(
        out.data_ptr<float>(), y.data_ptr<float>(), y.numel(), 2
    );
    return out;
}}
"""
    [outcome] = call(read(tmp_path, text), "twice", once(X))
    assert torch.equal(outcome.outputs[0], 2 * torch.cat([X, X]))


def test_a_status_leaves_the_result_in_an_argument(tmp_path: Path) -> None:
    source = read(tmp_path, POINTERS)
    (outcome,) = call(source, "with_status", once(torch.zeros_like(X), X, 40))
    assert torch.equal(outcome.outputs[0], 2 * X), outcome


def test_an_exception_without_a_place_gets_the_functions(tmp_path: Path) -> None:
    source = read(tmp_path, POINTERS)
    (outcome,) = call(source, "raising", once(torch.zeros_like(X), X, 40))
    assert outcome.refusal == "mine.cu:18: no such luck"


# By the first element of x.
RETURNS = """\
which = x[0, 0].item()
    if which == 3:
        run(x.view(-1), out, 40, 2)
        return out
    run(out, x, 40, 2)
    if which == 0:
        return {'out': out, 'none': None, 'n': 3}
    if which == 1:
        return 'done'
    x.zero_()
    return out
"""


def test_what_launch_does(tmp_path: Path) -> None:
    source = read(tmp_path, POINTERS)
    calls = [call for which in range(4) for call in once(X + which)]
    right, *wrong = call(source, "with_default", calls, RETURNS)
    out, number = right.outputs
    assert torch.equal(out, 2 * X)
    assert number.item() == 3
    problems = (
        r"pair\.py: returned a str, .*",
        r"mine\.cu:11: input x was .*",
        r"twice_kernel: .*mine\.cu:5.*",
    )
    for outcome, problem in zip(wrong, problems, strict=True):
        assert re.fullmatch(problem, outcome.problem), outcome


def test_a_kernel_that_never_ends_is_told_by_its_line_for_all(tmp_path: Path) -> None:
    spinning = POINTERS.replace(
        "    if (i < n)", "    while (n > 0) {}\n    if (i < n)"
    )
    source = read(tmp_path, spinning.replace("int n, float", "volatile int n, float"))
    inputs = (torch.zeros_like(X), X, 40)
    first, second = call(source, "with_status", [Call("other", inputs), *once(*inputs)])
    assert "time limit: " in first.problem
    assert "mine.cu:5" in first.problem
    assert "TWIN_EMULATOR" not in first.problem
    assert "own_unnamed" not in first.problem
    assert second.problem == first.problem


def test_a_host_function_that_writes_to_its_input(tmp_path: Path) -> None:
    host = """\
torch::Tensor twice(torch::Tensor x) {
    auto out = torch::empty_like(x);
    twice_kernel<<<1, 64>>>(out.data_ptr<float>(), x.data_ptr<float>(), 40, 2);
    x.zero_();
    return out;
}
"""
    text = f"#include <torch/extension.h>\n{KERNEL}{host}"
    source = read(tmp_path, text)
    (outcome,) = call(source, "twice", once(X))
    assert outcome.problem == "mine.cu:9: input x was written to"
    assert outcome.writes_to_input
    (allowed,) = call(source, "twice", once(X), written=[0])
    assert torch.equal(allowed.outputs[0], 2 * X), allowed


# ---- What is sent --------------------------------------------------------------------


def test_the_same_inputs_are_sent_once() -> None:
    calls = [Call("a", (X, 1)), Call("b", (X + 1, 1)), Call("c", (X, 1), "offset")]
    values, numbers = distinct(calls)
    assert numbers == [0, 1, 0]
    assert values[0][0] is X
    assert len(values) == 2


@pytest.mark.parametrize(
    ("head", "leaves"),
    [
        ("void f(torch::Tensor out)", True),
        ("int f(float* out)", True),
        ("cudaError_t f(float* out)", True),
        ("Status f(float* out)", True),
        ("cudaError_t f(torch::Tensor out)", True),
        ("torch::Tensor f(torch::Tensor x)", False),
        ("auto f(const at::Tensor& x)", False),
        ("std::vector<at::Tensor> f(int n)", False),
    ],
)
def test_where_results_are(tmp_path: Path, head: str, leaves: bool) -> None:
    (function,) = read(tmp_path, f"{head} {{ }}\n").functions
    assert cuda_side._leaves_results(function) is leaves


def test_defaults_are_read(tmp_path: Path) -> None:
    text = "void f(int a, float eps = 1e-5);\nvoid f(int a, float eps) {}\n"
    for function in read(tmp_path, text).functions:
        assert [each.has_default for each in function.parameters] == [False, True]


def test_results_are_tensors_and_numbers() -> None:
    found: list[Tensor] = [*results([X, None, {"n": 2.5}], "pair.py")]
    assert [each.dim() for each in found] == [2, 0]
    with pytest.raises(FaultError, match=r"^pair\.py: returned a str"):
        [*results((X, "x"), "pair.py")]


@pytest.mark.parametrize(
    ("text", "headers"),
    [
        ("#include <vector>\n#include <string.h>\nint x;", []),
        ("using namespace std;\nstatic vector<int> sizes;", ["vector"]),
        ("std::string s = std::to_string(1);", ["string"]),
    ],
)
def test_what_is_included_of_cpp_itself(text: str, headers: list[str]) -> None:
    lines = cuda_includes.standard_lines({Path("mine.cu"): text})
    assert lines == [f"#include <{each}>" for each in headers]


# ---- Sentences -----------------------------------------------------------------------


@pytest.mark.parametrize("sizes", [(1, 2, 3, 4), -1, (1 << 32,)])
def test_sizes_that_no_launch_has(sizes: Any) -> None:
    with pytest.raises(ValueError, match="grid or block"):
        cuda_values.launch_shape((1, sizes))
    assert cuda_values.launch_shape(((2, 3), 4)) == ((2, 3, 1), (4, 1, 1), 0)


def test_sentences_name_files_and_give_no_advice_of_the_emulators() -> None:
    fault = (
        "own_unnamed::k: time limit: at /a b/mine.cu:7 loops; if the kernel needs "
        "more time, raise TWIN_EMULATOR_TIME_LIMIT\n  in block (0, 0, 0)"
    )
    sentence = cuda_run._sentence(fault, ["/a b/mine.cu"])
    assert sentence == "k: time limit: at mine.cu:7 loops; in block (0, 0, 0)"


def test_the_first_error_is_told_by_the_users_line(tmp_path: Path) -> None:
    source = read(tmp_path, "int x;\n")
    path = source.path
    gcc = f"/lib/x.h:1:2: error: bad type\n{path}:3:4: fatal error: no y.h\n"
    assert cuda_module.first_error(source, gcc, "no") == "mine.cu:3: no: no y.h"
    inside = f"In file included from {path}:2:\n/lib/x.h:1:2: error: bad type\n"
    assert cuda_module.first_error(source, inside, "no") == "mine.cu:2: no: bad type"
    nvcc = f"{path}(5): error: identifier is undefined\n"
    assert cuda_module.first_error(source, nvcc, "no").startswith("mine.cu:5: no: ide")
    linker = "x.o: in function `f':\nx.cpp:(.text+0x1): undefined reference to `g()'\n"
    told = cuda_module.first_error(source, linker, "no")
    assert told == "mine.cu: no: undefined reference to `g()'"


def test_torch_is_part_of_every_fingerprint(monkeypatch: pytest.MonkeyPatch) -> None:
    part = build_cache.Part("part", "int x;", (), (), ())
    before = build_cache._fingerprint(part)
    assert build_cache._fingerprint(replace(part)) == before
    monkeypatch.setattr(torch, "__version__", "9.9.9")
    assert build_cache._fingerprint(part) != before


def test_a_compiler_that_links_its_standard_library_statically(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name = "libstdc++.a"
    command = [*build_cache.cxx(), f"-print-file-name={name}"]
    found = subprocess.run(command, check=True, capture_output=True, text=True)
    if found.stdout.strip() == name:
        pytest.skip("there is no static libstdc++")
    text = """
    #include <sstream>
    extern "C" int length_of(int number) {
        std::ostringstream out;
        out << number;  // by a table that must not be mixed with that of torch's copy
        return out.str().size();
    }
    """
    monkeypatch.setenv("CXX", "c++ -static-libstdc++")
    part = build_cache.Part("static_part", text, ("-O0",), (), ())
    path = build_cache.shared_library(build_cache.Library("static", (part,), ()))
    symbols = subprocess.check_output(["nm", "--defined-only", str(path)], text=True)
    assert "codecvt" in symbols, "it has no copy of the standard library"
    assert ctypes.CDLL(str(path)).length_of(1234) == 4
    build_cache.precompile(part)  # which links nothing


def test_kernels_wanted_before_are_compiled_beside_the_host_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled: list[tuple[str, bool]] = []
    original = build_cache.object_file

    def object_file(part: build_cache.Part, *, quietly: bool = False) -> Path:
        is_beside = threading.current_thread() is not threading.main_thread()
        if part.name == "mine_kernels":
            compiled.append(("double" if "double" in part.source else "", is_beside))
        return original(part, quietly=quietly)

    def run(text: str) -> float:
        (outcome,) = call(read(tmp_path, text), "scale", once(torch.zeros(1), 21))
        return float(outcome.outputs[0])

    monkeypatch.setattr(build_cache, "object_file", object_file)
    text = """
template <typename T> __global__ void scale_kernel(float* out, int n) {
    out[0] = T(2) * n;
}
void scale(float* out, int n) { scale_kernel<float><<<1, 1>>>(out, n); }
"""
    assert run(text) == 42
    assert run(text.replace("T(2)", "T(3)")) == 63
    # The instance has changed: the one from before is compiled for nothing.
    assert run(text.replace("kernel<float>", "kernel<double>")) == 42
    beside = [instance for instance, is_beside in compiled if is_beside]
    assert beside == ["", ""], compiled
    assert ("double", False) in compiled


@pytest.mark.parametrize("layout", ["transposed", "sliced", "offset"])
def test_a_pointer_carries_no_strides(layout: str) -> None:
    kept = Call("a", (X,), layout).without_strides().layout
    assert kept == ("offset" if layout == "offset" else "contiguous")


BOUND = [{"name": "x", "default": ""}, {"name": "eps", "default": "1e-5"}]


def test_arguments_by_keyword_and_by_default() -> None:
    assert cuda_values.completed(BOUND, [X], {}) == [X, 1e-5]
    assert cuda_values.completed(BOUND, [], {"eps": 2, "x": X}) == [X, 2]
    assert cuda_values.completed(BOUND, [X, 3, 4], {}) == [X, 3, 4]
    assert cuda_values.completed(BOUND, [], {}) == []  # C++ says how many it takes


@pytest.mark.parametrize(
    ("bound", "keywords", "said"),
    [
        (BOUND, {"bias": 1}, "its binding names no such argument: bias"),
        (BOUND, {"x": 1}, "its binding names no such argument: x"),
    ],
)
def test_arguments_that_do_not_fit(
    bound: Any, keywords: dict[str, Any], said: str
) -> None:
    with pytest.raises(RefusalError, match=said):
        cuda_values.completed(bound, [X], keywords)


def test_a_default_that_is_no_literal() -> None:
    bound = [{"name": "x", "default": ""}, {"name": "eps", "default": "kEps"}]
    assert cuda_values.completed(bound, [X, 2], {}) == [X, 2]
    with pytest.raises(UnavailableError, match="the default of eps: kEps is no number"):
        cuda_values.completed(bound, [X], {})


def test_without_a_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    path = tmp_path / "mine.cu"
    for text in (POINTERS, f"#include <torch/extension.h>\n{POINTERS}"):
        path.write_text(text)
        entry, limits = Entry(path, "with_status"), sandbox.DEFAULT_LIMITS
        place = Place(entry, "cuda", "mine.cu", None, False, None, (), limits)
        with pytest.raises(UnavailableError, match=r"^no C\+\+ compiler: 'no-such"):
            CudaRoom(place).prepare()
