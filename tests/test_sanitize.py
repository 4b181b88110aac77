"""The emulator's checker and `compare sanitize`: what they find and what they let pass.

The kernels are in tests/emulator/planted, each with one fault in the lines that bear
its name. All are built once, with one runtime and checker, and driven through ctypes.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bindings import sources
from bindings.backends import cuda_inline, native
from bindings.errors import BuildError
from bindings.registry import OPS
from compare import sanitize, sanitize_gpu
from compare.cases import Case
from compare.cli import main
from compare.sanitize import ORDERS, Finding, Report

PLANTED = sources.ROOT / "tests" / "emulator" / "planted"
COMPILER = os.environ.get("CXX", "g++")
N = 128  # elements of the tensors x and out

# What is said of each planted fault, beside the kernel and the marked lines.
FAULTS = {
    "missing_barrier": "race: .* of 'tile' .*: no __syncthreads() between them",
    "write_after_read": "race: .* of 'tile' .*: no __syncthreads() between them",
    "warps_of_a_tile": "race: .* of dynamic shared memory .*: no __syncthreads()",
    "lanes_without_order": (
        "race: .*: no __syncthreads() or __syncwarp() between them"
    ),
    "half_of_the_lanes": "race: .*: no __syncthreads() or __syncwarp() between them",
    "lost_update": "race: .* of 'sum' ",
    "halves": "race: .* 2 bytes there at",
    "atomic_and_plain": "race: ",
    "wrong_wait": "asynchronous copy not awaited: ",
    "early_copy": "race: .* of 'tile' .*: no __syncthreads()",
    "copy_without_barrier": "race: .* of 'tile' .*: no __syncthreads()",
    "copied_past_the_end": "out of bounds: reads 4 bytes, up to 4 bytes past the",
    "matrix_without_barrier": "race: ",
    "blocks": (
        "race: thread 0 of block 0 writes byte 0 of tensor 'out' at .*thread 0 "
        "of block 1 .*: nothing orders the blocks of a launch"
    ),
    "threads": "race: .* of tensor 'out' ",
    "read_past_the_end": (
        "out of bounds: reads 4 bytes, up to 4 bytes past the end of tensor 'x' "
        "(512 bytes)"
    ),
    "write_past_the_end": (
        "out of bounds: writes 4 bytes, up to 4 bytes past the end of tensor "
        "'out' (512 bytes)"
    ),
    "read_before_the_start": (
        "out of bounds: reads 4 bytes, 8 bytes before the start of tensor 'x' "
        "(512 bytes)"
    ),
    "vector_past_the_end": "out of bounds: reads .* past the end of tensor 'x'",
    "copy_past_the_end": (
        "out of bounds: reads 516 bytes, up to 4 bytes past the end of"
    ),
    "atomic_past_the_end": (
        "out of bounds: updates 4 bytes, up to 4 bytes past the end"
    ),
    "cached_load_past_the_end": "out of bounds: reads 4 bytes, up to 4 bytes past",
    "null_pointer": (
        "out of bounds: reads 4 bytes at address 0x0, which belongs to no"
    ),
    "shared_read": "out of bounds: index 128 of an array of type 'float",
    "shared_write": "out of bounds: index 128 of an array of type 'float",
    "shared_column": "out of bounds: index 32 of an array of type 'float",
    "dynamic_shared": (
        "out of bounds: writes 4 bytes, up to 4 bytes past the end of dynamic "
        "shared memory (508 bytes)"
    ),
    "misaligned_load": (
        "misaligned access: .* float4' at byte 4 of tensor 'x', whose address "
        "is no multiple of 16"
    ),
    "misaligned_store": (
        "misaligned access: .* float2' at byte 4 of 'tile', whose address is no "
        "multiple of 8"
    ),
    "uninitialised": (
        "uninitialised shared memory: reads 4 bytes at .*, but byte 508 of "
        "'tile' was never written"
    ),
    "unwritten": (
        "output 'out' is incomplete: 4 of its 512 bytes were never written, the "
        "first at byte 20"
    ),
    "input": "write to an input: writes 4 bytes at byte 0 of tensor 'x'",
    "divergent_barrier": "divergent barrier: threads wait in different ones",
    "two_barriers": "divergent barrier: threads wait in different ones",
    "wrong_mask": "wrong mask: __shfl_xor_sync",
    "deadlock": "deadlock: no thread can go on",
    "endless_polling": "endless polling: all blocks that run only poll",
}

# clang++ copies a structure in parts, of which none is misaligned.
UNSEEN_BY_CLANG = {"misaligned_load", "misaligned_store"}


def compile_checked(source: Path, target: Path, folder: Path = sources.CSRC) -> None:
    """Compiles kernels with the checker's call-outs."""
    flags = list(sources.CHECKED_FLAGS)
    if "clang" in COMPILER:
        flags.remove("-fno-gnu-unique")
        flags.remove("--param=tsan-distinguish-volatile=1")
        flags += ["-mllvm", "-tsan-distinguish-volatile"]
        flags.remove("-Wno-tsan")
    includes = [f"-I{sources.EMULATOR}", f"-I{folder}"]
    command = [COMPILER, *flags, "-fPIC", *includes, "-x", "c++", "-c", str(source)]
    subprocess.run([*command, "-o", str(target)], check=True)


def compile_runtime(target: Path) -> None:
    """Compiles the emulator and its checker, which check everything but themselves."""
    text = target.with_suffix(".cpp")
    files = [*sources.emulator_sources(), *sources.checker_sources()]
    text.write_text("".join(f'#include "{path}"\n' for path in files))
    flags = ["-std=c++20", "-O1", "-fPIC", "-Wall", "-Wextra", "-Werror"]
    command = [COMPILER, *flags, f"-I{sources.EMULATOR}", "-c", str(text)]
    subprocess.run([*command, "-o", str(target)], check=True)


class Kernels:
    """A library of kernels, and the checker that lies in it."""

    def __init__(self, objects: list[Path], path: Path) -> None:
        """Links and loads the library."""
        flags = ["-shared", "-pthread", "-Wl,-z,defs", *sources.CHECKED_LINK_FLAGS]
        files = [str(each) for each in objects]
        subprocess.run([COMPILER, *flags, *files, "-o", str(path)], check=True)
        self.kernels = ctypes.CDLL(str(path))
        self.kernels.emulator_unwritten_outputs.restype = ctypes.c_char_p
        self.error_string = self.kernels._Z18cudaGetErrorString9cudaError  # C++
        self.error_string.restype = ctypes.c_char_p
        # Apart by more than a page, and aligned as on a GPU.
        memory = np.zeros(8192, np.float32)
        start = -memory.ctypes.data % 256 // 4
        self.x = memory[start + 1024 :][:N]
        self.out = memory[start + 4096 :][:N]
        self.x[:] = np.arange(N)

    def register(self, name: str, values: np.ndarray) -> None:
        """Allows kernels to access an array."""
        self.kernels.emulator_register_tensor(
            name.encode(),
            ctypes.c_void_p(values.ctypes.data),
            ctypes.c_size_t(values.nbytes),
            name == "out",
        )

    def __call__(self, name: str, registered: Sequence[str] = ("x", "out")) -> str:
        """Launches a kernel on x and out; what is wrong with that."""
        for tensor in registered:
            self.register(tensor, getattr(self, tensor))
        pointers = [ctypes.c_void_p(each.ctypes.data) for each in (self.out, self.x)]
        error = getattr(self.kernels, name)(*pointers)
        message = self.error_string(error) if error else None
        message = message or self.kernels.emulator_unwritten_outputs() or b""
        self.kernels.emulator_clear_tensors()
        return str(message.decode())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which(COMPILER) is None:
        pytest.skip(f"no {COMPILER}")
    return tmp_path_factory.mktemp("checked")


@pytest.fixture(scope="module")
def kernels(folder: Path) -> Kernels:
    """All planted kernels and the clean ones, with runtime and checker."""
    files = [PLANTED / f"{name}.cu" for name in ("planted", "clean", "reductions")]
    objects = [folder / f"{file.stem}.o" for file in files]
    runtime = folder / "runtime.o"
    with ThreadPoolExecutor(2) as pool:
        tasks = [pool.submit(compile_runtime, runtime)]
        pairs = zip(files, objects, strict=True)
        tasks += [pool.submit(compile_checked, *pair) for pair in pairs]
    for task in tasks:
        task.result()
    return Kernels([runtime, *objects], folder / "kernels.so")


@pytest.fixture(params=ORDERS)
def order(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("TWIN_EMULATOR_ORDER", request.param)
    return str(request.param)


def marked_lines(file: Path, name: str) -> set[str]:
    lines = enumerate(file.read_text().splitlines(), start=1)
    return {f"{file}:{n}" for n, line in lines if line.endswith(f"// {name}")}


def places(message: str) -> set[str]:
    return set(re.findall(r"[^\s()]+:\d+", message))


def pattern(text: str) -> str:
    """A regular expression in which only .* is special."""
    return ".*".join(map(re.escape, text.split(".*")))


# ---- What the checker finds ----------------------------------------------------------


@pytest.mark.parametrize("name", FAULTS)
def test_planted_fault(
    kernels: Kernels, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "clang" in COMPILER and name in UNSEEN_BY_CLANG:
        pytest.skip("not seen where clang++ compiles")
    monkeypatch.setenv("TWIN_EMULATOR_STEP_LIMIT", "100000")
    begin = time.perf_counter()
    message = kernels(name)
    assert time.perf_counter() - begin < 10
    first_line = message.partition("\n")[0]
    assert re.search(pattern(FAULTS[name]), first_line), message
    if name != "unwritten":
        assert first_line.startswith(f"{name}_kernel: ")
        assert "block (" in message
        assert "thread" in message
    assert places(message) == marked_lines(PLANTED / "planted.cu", name), message


def test_every_planted_kernel_is_tested() -> None:
    text = (PLANTED / "planted.cu").read_text()
    assert set(re.findall(r"EXPORT int (\w+)\(", text)) == set(FAULTS)


RACES = [name for name, said in FAULTS.items() if said.startswith("race")]


def test_gap_of_a_tensor(kernels: Kernels) -> None:
    kernels.register("x", kernels.x[:60])
    kernels.register("x", kernels.x[64:])
    message = kernels("tile", ["out"])
    assert "reads 4 bytes that lie between the elements of tensor 'x' at " in message
    assert "thread 60 = (60, 0, 0)" in message


PROGRAM = """\
#include <cstdio>
#include "../launch.h"
__global__ void reverse(float* x) {
    __shared__ float copy[64];
    copy[threadIdx.x] = x[threadIdx.x];
    x[threadIdx.x] = copy[63 - threadIdx.x];
}
int main() {
    float* x;
    cudaMalloc(&x, 64 * sizeof(float));
    std::puts(cudaGetErrorString(cudaError{launch(reverse, 1, 64, 0, x)}));
}
"""


@pytest.mark.usefixtures("kernels")
def test_program(folder: Path, tmp_path: Path) -> None:
    source = tmp_path / "program.cu"
    source.write_text(PROGRAM.replace("../launch.h", str(PLANTED / "../launch.h")))
    compile_checked(source, tmp_path / "program.o")
    objects = [str(tmp_path / "program.o"), str(folder / "runtime.o")]
    flags = ["-rdynamic", "-pthread", *sources.CHECKED_LINK_FLAGS]
    program = str(tmp_path / "program")
    subprocess.run([COMPILER, *flags, *objects, "-o", program], check=True)
    output = subprocess.run([program], check=True, stdout=subprocess.PIPE, text=True)
    assert output.stdout.startswith("reverse: race: ")
    assert places(output.stdout) == {f"{source}:5", f"{source}:6"}


@pytest.mark.parametrize("name", RACES)
def test_races_in_every_order(kernels: Kernels, name: str, order: str) -> None:
    message = kernels(name)
    assert ": race: " in message, order
    assert places(message) == marked_lines(PLANTED / "planted.cu", name)


CLEAN, REDUCTIONS = (
    re.findall(r"EXPORT int (\w+)\(", (PLANTED / f"{name}.cu").read_text())
    for name in ("clean", "reductions")
)


@pytest.mark.usefixtures("order")
@pytest.mark.parametrize("name", [*CLEAN, *REDUCTIONS])
def test_clean_kernel(kernels: Kernels, name: str) -> None:
    assert kernels(name) == ""


def test_order_of_blocks(kernels: Kernels, monkeypatch: pytest.MonkeyPatch) -> None:
    begun = {}
    for order in ORDERS:
        monkeypatch.setenv("TWIN_EMULATOR_ORDER", order)
        assert kernels("block_order") == ""
        begun[order] = kernels.out.tolist()
        assert sorted(begun[order]) == list(range(N))
    assert begun["forward"] == list(range(N))
    assert begun["reverse"] == begun["forward"][::-1]
    assert len(set(map(tuple, begun.values()))) == len(ORDERS)


BARRIERS = [
    (path.relative_to(sources.CSRC), number)
    for path in sorted(sources.CSRC.rglob("*.cu*"))
    if not path.is_relative_to(sources.EMULATOR)
    for number in range(path.read_text().count("__syncthreads();"))
]


@pytest.mark.parametrize(("file", "number"), BARRIERS)
def test_removed_barrier(
    kernels: Kernels, folder: Path, tmp_path: Path, file: Path, number: int
) -> None:
    assert file == Path("common/reduce.cuh"), "which test kernel uses this barrier?"
    shutil.copytree(sources.CSRC / "common", tmp_path / "common")
    copy = tmp_path / file
    parts = copy.read_text().split("__syncthreads();")
    joints = ["__syncthreads();"] * (len(parts) - 1)
    joints[number] = ""
    copy.write_text("".join(sum(zip(parts, [*joints, ""], strict=True), ())))
    compile_checked(PLANTED / "reductions.cu", tmp_path / "reductions.o", tmp_path)
    objects = [folder / "runtime.o", tmp_path / "reductions.o"]
    # By row, for which there are two, of one value or several; by group; by column.
    kernel, shared = [
        *2 * [("reductions", "warp_results()[")],
        *2 * [("vector_reductions", "vec_results[")],
        ("group_reduction", "handed_in[i"),
        ("column_reduction", "handed_over[own"),
    ][number]
    message = Kernels(objects, tmp_path / "kernels.so")(kernel)
    assert "race" in message
    lines = copy.read_text().splitlines()
    uses = [n for n, line in enumerate(lines, start=1) if shared in line]
    found = {int(place.rpartition(":")[2]) for place in places(message)}
    # A reference is read a few lines below the one that makes it.
    assert all(any(0 <= n - use <= 3 for n in found) for use in uses)


# ---- compare sanitize ----------------------------------------------------------------


def test_clean_op(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    assert main(["sanitize", "add", "--json", str(file)]) == 0
    shown = capsys.readouterr().out
    assert "found nothing" in shown
    document = json.loads(file.read_text())
    assert document["findings"] == []
    covered = document["covered"]
    assert covered["passes"] == list(ORDERS)
    assert covered["launches"] == len(covered["cases"]) * len(ORDERS)
    for kernel in ("float, 4, false", "float, 1, true", "__half, 8, true"):
        assert any(f"add_kernel<{kernel}>" in each for each in covered["kernels"])


def report_of(findings: list[Finding]) -> Report:
    return Report("add", "emulator", findings, ["void f()"], [Case((3,))])


def test_findings_are_shown_once(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    finding = Finding(f"f<[bold]>: race at {sources.ROOT}/csrc/f.cu:3", "3 float32", 7)
    monkeypatch.setattr(sanitize, "sanitize", lambda *_: report_of([finding]))
    assert main(["sanitize", "add"]) == 1
    shown = capsys.readouterr().out
    assert (
        "f<[bold]>: race at csrc/f.cu:3\n  found 7 times, first with 3 float" in shown
    )
    assert "FOUND 1\n" in shown


def test_identity_of_a_fault() -> None:
    race = (
        "f<{0}>: race: thread {1} writes byte 4 of 's' at r.cuh:{2} (from f.cu:{3}), "
        "thread 9 reads 4 bytes there at r.cuh:9: no __syncthreads() between them\n"
        "  in thread 9 = (9, 0, 0) of block (0, 0, 0)"
    )
    assert sanitize.identity(race.format("float", 3, 5, 7)) == sanitize.identity(
        race.format("half, 2", 4, 5, 8)
    )
    assert sanitize.identity(race.format("float", 3, 5, 7)) != sanitize.identity(
        race.format("float", 3, 6, 7)
    )


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("sanitize", "the following arguments are required: op"),
        ("sanitize sofmax", "op: invalid choice: 'sofmax' (choose from"),
        ("sanitize add --json missing/x", "--json: there is no folder missing"),
        ("sanitize add --dtype float16", "unrecognized arguments: --dtype float16"),
    ],
)
def test_usage_errors(line: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(line.split()) == 2
    assert capsys.readouterr().err.startswith(f"compare: {said}")


def test_failed_build(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: Any) -> None:
        raise BuildError("add_checked cannot be built")

    monkeypatch.setattr(cuda_inline, "load", fail)
    assert main(["sanitize", "add"]) == 4
    assert capsys.readouterr().err.endswith("compare: add_checked cannot be built\n")


@pytest.mark.parametrize(
    ("make", "pieces"),
    [
        (lambda x: x, [(0, 24)]),
        (lambda x: x.t(), [(0, 24)]),
        (lambda x: x[:, :2], [(0, 2), (6, 2), (12, 2), (18, 2)]),
        (lambda x: x[::2, 1:2], [(1, 1), (13, 1)]),
        (lambda x: x[:1].expand(9, 6), [(0, 6)]),
        (lambda x: x[0, 0], [(0, 1)]),
    ],
)
def test_pieces_of_a_tensor(
    make: Callable[[torch.Tensor], torch.Tensor], pieces: list[tuple[int, int]]
) -> None:
    x = torch.zeros(4, 6)
    expected = [(x.data_ptr() + 4 * begin, 4 * size) for begin, size in pieces]
    assert list(sanitize._pieces(make(x))) == expected


def test_parameter_names() -> None:
    names = native.parameters(OPS["softmax"])
    assert names[:3] == [("out", True), ("x", False), ("n_rows", False)]


# ---- compare sanitize --gpu ----------------------------------------------------------

# As compute-sanitizer 2025.3 prints it.
OUTPUT = """\
========= COMPUTE-SANITIZER
========= Invalid __global__ read of size 4 bytes
=========     at void f<float>(float*)+0x80 in f.cu:29
=========     by thread ({0},0,0) in block (0,0,0)
=========     Address 0x7f is out of bounds
=========     Saved host backtrace up to driver entry point at kernel launch time
=========         Host Frame: main [0x1] in python
=========
========= Invalid __global__ read of size 4 bytes
=========     at void f<float>(float*)+0x80 in f.cu:29
=========     by thread (2,0,0) in block (0,0,0)
=========     Address 0x7f is out of bounds
=========
========= ERROR SUMMARY: 2 errors
"""


def test_output_of_compute_sanitizer() -> None:
    (finding,) = sanitize_gpu.parse(OUTPUT, "memcheck")
    assert finding.count == 2
    assert finding.message.startswith("memcheck: Invalid __global__ read of size 4")
    assert "f.cu:29" in finding.message
    assert "Host" not in finding.message
    clean = "========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n"
    assert sanitize_gpu.parse(clean, "memcheck") == []
    hazards = (
        "========= RACECHECK SUMMARY: 3 hazards displayed (3 errors, 0 warnings)\n"
    )
    assert sanitize_gpu.parse(hazards, "racecheck")[0].count == 3


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs to be without a GPU")
def test_gpu_without_a_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sanitize", "add", "--gpu"]) == 3
    assert "finds no GPU here" in capsys.readouterr().err


@pytest.mark.skipif(
    not torch.cuda.is_available() or sanitize_gpu.find_program() is None,
    reason="needs a GPU and compute-sanitizer",
)
def test_clean_op_on_a_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sanitize", "add", "--gpu"]) == 0
    assert "memcheck, racecheck, synccheck, initcheck" in capsys.readouterr().out
