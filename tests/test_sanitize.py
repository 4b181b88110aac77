"""The emulator's checker and `compare sanitize`: faults that they find, clean kernels.

The kernels are in tests/emulator/planted, each with one fault in the lines that bear
its name. All are built once, with one runtime and checker, and driven through ctypes.
"""

from __future__ import annotations

import ctypes
import itertools
import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import shared
import torch
from emulated import object_of
from together import in_one_test

from bindings import sources
from bindings.backends import cuda_inline, native, prebuilt
from bindings.errors import BuildError, UnsupportedError
from bindings.op import Op
from bindings.registry import OPS
from bindings.trials import TRIALS
from bindings.trials.matmul import sizes_of
from compare.cli import main
from compare.code import simulated_calls
from compare.code.kernel_code import Side
from compare.code.words import LANGUAGE_NAMES
from compare.errors import SimulationFault
from compare.judge import compiled_sanitizer, gpu_sanitizers, sanitizer
from compare.judge.cases import Case, make_arguments
from compare.judge.sanitizer import ORDERS, Finding, Report

PLANTED = sources.ROOT / "tests" / "emulator" / "planted"
COMPILER = os.environ.get("CXX", "g++")
# Of kernels that need each of their barriers.
LIBRARIES = ("reductions", "matmuls", "scaled_matmuls", "attentions")
N = 128  # elements of the tensors x and out

# The message for each planted fault, without the kernel and the marked lines.
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
        "of block 1 .*: no barrier orders the blocks of a launch"
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
        "is not a multiple of 16"
    ),
    "misaligned_store": (
        "misaligned access: .* float2' at byte 4 of 'tile', whose address is not "
        "a multiple of 8"
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
    "divergent_barrier": "divergent barrier: threads of the block wait at different",
    "two_barriers": "divergent barrier: threads of the block wait at different",
    "wrong_mask": "wrong mask: __shfl_xor_sync",
    "deadlock": "deadlock: no thread can go on",
    "endless_polling": "endless polling: all running blocks only poll",
}

# The messages for those of hopper.cu.
HOPPER_FAULTS = {
    "missing_wgmma_wait": (
        "multiplication not awaited: the thread returns without a wgmma_wait_group()"
    ),
    "uncommitted_wgmma": (
        "multiplication not awaited: the thread returns without a wgmma_wait_group()"
    ),
    "missing_wgmma_fence": "wgmma_m64k16 without a wgmma_fence() before it",
    "changed_without_fence": "accumulators that were changed without a wgmma_fence()",
    "changed_in_flight": (
        "accumulators written to while a multiplication was in flight, found by "
        "wgmma_wait_group"
    ),
    "three_warps": "deadlock: no thread can go on",
    "different_matrices": (
        "wgmma_m64k16 with operands that differ from those of the warpgroup's other"
    ),
    "matrix_past_the_end": (
        "wgmma_m64k16 of a matrix that ends 976 bytes past the end of dynamic shared "
        "memory (24624 bytes)"
    ),
    "unpublished_matrix": (
        "missing fence: .* starts to read .*: no fence_async_proxy() between them"
    ),
    "tf32_past_the_end": (
        "wgmma_m64k8 of a matrix that ends 976 bytes past the end of dynamic shared "
        "memory (24624 bytes)"
    ),
    "clobbered_tf32": (
        "race: a multiplication reads .*, thread 63 writes .*: no wgmma_wait_group()"
    ),
    "clobbered_stage": (
        "race: a multiplication reads byte 0 of dynamic shared memory at .*, thread "
        "128 copies 8192 bytes there at .*: no wgmma_wait_group() between them"
    ),
    "phase_off_by_one": "asynchronous copy not awaited: a tensor load starts to copy",
    "late_phase": "deadlock: no thread can go on",
    "too_many_bytes": "deadlock: no thread can go on",
    "too_few_bytes": "deadlock: no thread can go on",
    "too_many_arrivals": "too many arrivals: mbarrier_arrive at the mbarrier at byte",
    "missing_arrival": "deadlock: no thread can go on",
    "uninitialised_mbarrier": "uninitialised mbarrier: mbarrier_wait of byte 24576",
    "overwritten_mbarrier": "overwritten mbarrier: mbarrier_wait of byte 24576",
    "unpublished_mbarrier": (
        "unpublished mbarrier: tma_load on the mbarrier at byte 24576 .* with no "
        "fence_mbarrier_init()"
    ),
    "overrun_mbarrier": "overrun mbarrier: the one at byte 24576 of dynamic shared",
    "abandoned_load": "load not awaited: the block ends while the load that it started",
    "two_loads_in_one_place": "asynchronous copy not awaited: a tensor load starts",
    "bulk_past_the_end": (
        "out of bounds: reads 16 bytes, up to 16 bytes past the end of tensor 'x'"
    ),
    "vector_atomic_past_the_end": (
        "out of bounds: updates 4 bytes, up to 4 bytes past the end of tensor 'out'"
    ),
    "box_past_the_end": "tma_load of a box of 8192 bytes at byte 17408 of dynamic",
    "misaligned_box": "tma_load of address 0x.* not a multiple of 128",
    "unregistered_tensor": (
        "out of bounds: reads 128 bytes, up to 128 bytes past the end of tensor 'x'"
    ),
    "missing_fence": (
        "missing fence: thread 0 writes .* starts to read 8192 bytes there at .*: no "
        "fence_async_proxy() between them"
    ),
    "store_before_barrier": (
        "race: .* writes .*, thread 127 starts to read 8192 bytes .*: no barrier"
    ),
    "reused_buffer": (
        "race: a tensor store reads .*: no tma_store_wait_group_read() between them"
    ),
    "abandoned_store": (
        "store not awaited: the thread returns without a tma_store_wait_group_read()"
    ),
    "store_to_an_input": "write to an input: writes 128 bytes at byte 0 of tensor 'x'",
    "named_barrier_of_one_warp": "race: .*: no barrier between them",
    "named_barrier_too_large": "deadlock: no thread can go on",
    "named_barrier_of_two_sizes": "divergent barrier: named barrier 1 is for ",
    "missing_remote_arrival": "deadlock: no thread of the cluster can go on",
    "missing_cluster_sync": "race: .*: no barrier of the cluster between them",
    "block_has_returned": (
        "mbarrier_arrive_remote for block 1 of the cluster, whose threads have all"
    ),
    "rank_past_the_end": "mbarrier_arrive_remote for block 2 of a cluster of 2",
    "static_in_cluster": "static shared memory in a cluster: writes 4 bytes of",
    "clobbered_by_load": "asynchronous copy not awaited: a tensor load starts to copy",
    "abandoned_multicast": (
        "load not awaited: the block ends while the load that block 1 of the cluster"
    ),
}

CLEAN_KERNELS_OF_HOPPER = ["ring", "beside_tf32"]

# The line of a deadlock's message that says what a thread waits for.
MISSING = {
    "three_warps": "multiplications that some warps of the warpgroup have not started",
    "late_phase": "the phase with parity 1 of the mbarrier at byte 24576 of dynamic "
    "shared memory: 1 of 1 arrivals are missing",
    "too_many_bytes": "parity 0 .*: 16 bytes are missing",
    "too_few_bytes": "parity 0 .*: 16 more bytes have arrived than it expects",
    "missing_arrival": "parity 0 .*: 1 of 2 arrivals are missing",
    "named_barrier_too_large": "at barrier 1 with 64 of 96 threads",
    "missing_remote_arrival": "2 of 2 arrivals are missing",
}

# clang++ copies a structure in parts, none of which is misaligned.
UNSEEN_BY_CLANG = {"misaligned_load", "misaligned_store"}


def compile_checked(
    source: Path,
    target: Path,
    folder: Path = sources.CSRC,
    options: Sequence[str] = (),
) -> None:
    """Compiles kernels with the checker's call-outs."""
    flags = list(sources.CHECKED_FLAGS)
    if "clang" in COMPILER:
        flags.remove("-fno-gnu-unique")
        flags.remove("--param=tsan-distinguish-volatile=1")
        flags += ["-mllvm", "-tsan-distinguish-volatile"]
        flags.remove("-Wno-tsan")
    includes = [f"-I{sources.EMULATOR}", f"-I{folder}"]
    command = [COMPILER, *flags, "-fPIC", *includes, *options]
    command += ["-x", "c++", "-c", str(source)]
    subprocess.run([*command, "-o", str(target)], check=True)


def runtime() -> list[Path]:
    """The objects of the emulator and its checker, compiled without call-outs."""
    return [object_of(cuda_inline.emulator()), object_of(cuda_inline.checker())]


def link(kernels: list[Path], target: Path) -> None:
    """Makes a library of kernels, runtime and checker."""
    flags = ["-shared", "-pthread", "-Wl,-z,defs", *sources.CHECKED_LINK_FLAGS]
    files = [str(each) for each in (*runtime(), *kernels)]
    subprocess.run([COMPILER, *flags, *files, "-o", str(target)], check=True)


class Kernels:
    """A library of kernels with the checker."""

    def __init__(self, path: Path) -> None:
        """Loads the library."""
        self.kernels = ctypes.CDLL(str(path))
        self.kernels.emulator_unwritten_outputs.restype = ctypes.c_char_p
        self.error_string = self.kernels._Z18cudaGetErrorString9cudaError  # C++
        self.error_string.restype = ctypes.c_char_p
        # More than a page apart, and aligned as on a GPU.
        memory = np.zeros(8192, np.float32)
        start = -memory.ctypes.data % 256 // 4
        self.x = memory[start + 1024 :][:N]
        self.out = memory[start + 4096 :][:N]
        self.x[:] = np.arange(N)

    def register(self, name: str, values: np.ndarray, use: int = 0) -> None:
        """Allows kernels to use an array: as input 0, as output 1, as workspace 2."""
        self.kernels.emulator_register_tensor(
            name.encode(),
            ctypes.c_void_p(values.ctypes.data),
            ctypes.c_size_t(values.nbytes),
            use,
        )

    def __call__(
        self, name: str, registered: Sequence[str] = ("x", "out"), use: int = 1
    ) -> str:
        """Launches a kernel on x and out; the message of its failure, or ""."""
        for tensor in registered:
            self.register(tensor, getattr(self, tensor), use if tensor == "out" else 0)
        pointers = [ctypes.c_void_p(each.ctypes.data) for each in (self.out, self.x)]
        error = getattr(self.kernels, name)(*pointers)
        message = self.error_string(error) if error else None
        message = message or self.kernels.emulator_unwritten_outputs() or b""
        self.kernels.emulator_clear_tensors()
        return str(message.decode())


def build_kernels(
    folder: Path,
    names: Sequence[str] = ("planted", "hopper", "multicast", "clean"),
    csrc: Path = sources.CSRC,
    options: Sequence[str] = (),
) -> None:
    """Builds planted or clean kernels, with runtime and checker."""
    objects = [folder / f"{name}.o" for name in names]
    with ThreadPoolExecutor(2) as pool:
        tasks: list[Future[object]] = [pool.submit(runtime)]
        tasks += [
            pool.submit(compile_checked, PLANTED / f"{name}.cu", target, csrc, options)
            for name, target in zip(names, objects, strict=True)
        ]
    for task in tasks:
        task.result()
    link(objects, folder / "kernels.so")


@pytest.fixture(scope="module")
def folder() -> Path:
    if shutil.which(COMPILER) is None:
        pytest.skip(f"no {COMPILER}")
    return shared.once("checked-kernels", build_kernels)


@pytest.fixture(scope="module")
def kernels(folder: Path) -> Kernels:
    return Kernels(folder / "kernels.so")


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


needs_compiler = pytest.mark.skipif(
    shutil.which(COMPILER) is None, reason=f"no {COMPILER}"
)


# ---- Faults and clean kernels --------------------------------------------------------


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


def test_memory_to_work_in_may_be_left(kernels: Kernels) -> None:
    assert kernels("unwritten", use=2) == ""
    assert kernels("input", use=2) != ""


@in_one_test("name")
@pytest.mark.parametrize("name", HOPPER_FAULTS)
def test_planted_fault_of_hopper(kernels: Kernels, name: str, order: str) -> None:
    message = kernels(name)
    first_line = message.partition("\n")[0]
    assert first_line.startswith(f"{name}_kernel: ")
    assert "block (" in message
    if order != "forward":  # which of the threads, and of two faults, may differ
        return
    assert re.search(pattern(HOPPER_FAULTS[name]), first_line), message
    assert re.search(pattern(MISSING.get(name, "")), message), message
    assert places(message) == marked_lines(PLANTED / "hopper.cu", name), message


# What each fault of multicast.cuh makes the message say, and the text of a line in it.
MULTICAST_FAULTS = {
    "more_bytes": ("deadlock: no thread of the cluster", "mbarrier_wait(&full"),
    "own_bytes": (": race: |not awaited", "tma_load_multicast("),
    "no_arrival": ("deadlock: no thread of the cluster", "mbarrier_wait(&empty"),
    "own_arrivals": (": race: |not awaited", "tma_load_multicast("),
    "no_end": ("of the cluster, whose threads have all returned", "arrive_remote("),
    "no_wait": (": race: |not awaited", "tma_load_multicast("),
}


def run_multicast(kernels: Kernels, name: str, n_blocks: int) -> str:
    """Adds up 5 tiles of 16 x 64 numbers in a cluster of 2 blocks or 4."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernels, "x", np.zeros(5 * 16 * 64, np.float32))
        patch.setattr(kernels, "out", np.zeros(n_blocks * 5 * 64, np.float32))
        return kernels(f"{name}_{n_blocks}")


@in_one_test("name", "n_blocks")
@pytest.mark.usefixtures("order")
@pytest.mark.parametrize("name", MULTICAST_FAULTS)
@pytest.mark.parametrize("n_blocks", [2, 4])
@pytest.mark.parametrize("when", ["eager", "late"])
def test_planted_fault_of_multicast(
    kernels: Kernels,
    name: str,
    n_blocks: int,
    when: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TWIN_EMULATOR_ASYNC", when)
    message = run_multicast(kernels, name, n_blocks)
    what, line = MULTICAST_FAULTS[name]
    assert re.search(what, message), message
    named = {int(each.rpartition(":")[2]) for each in places(message)}
    source = (PLANTED.parent / "multicast.cuh").read_text().splitlines()
    assert any(line in source[each - 1] for each in named), message


@in_one_test("n_blocks")
@pytest.mark.usefixtures("order")
@pytest.mark.parametrize("n_blocks", [2, 4])
@pytest.mark.parametrize("when", ["eager", "late"])
def test_clean_multicast(
    kernels: Kernels, n_blocks: int, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TWIN_EMULATOR_ASYNC", when)
    assert run_multicast(kernels, "none", n_blocks) == ""


@pytest.mark.usefixtures("order")
@pytest.mark.parametrize("when", ["eager", "late"])
@pytest.mark.parametrize("name", CLEAN_KERNELS_OF_HOPPER)
def test_clean_kernel_of_hopper(
    kernels: Kernels, name: str, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TWIN_EMULATOR_ASYNC", when)
    assert kernels(name) == ""


def test_every_planted_kernel_is_tested() -> None:
    text = (PLANTED / "planted.cu").read_text()
    assert set(re.findall(r"EXPORT int (\w+)\(", text)) == set(FAULTS)
    text = (PLANTED / "hopper.cu").read_text()
    launched = re.findall(r"^(?:HOPPER_LAUNCH\(|EXPORT int )(\w+)", text, re.M)
    assert set(launched) == {*HOPPER_FAULTS, *CLEAN_KERNELS_OF_HOPPER}


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


@needs_compiler
def test_program(tmp_path: Path) -> None:
    source = tmp_path / "program.cu"
    source.write_text(PROGRAM.replace("../launch.h", str(PLANTED / "../launch.h")))
    compile_checked(source, tmp_path / "program.o")
    objects = [str(each) for each in (tmp_path / "program.o", *runtime())]
    flags = ["-rdynamic", "-pthread", *sources.CHECKED_LINK_FLAGS]
    program = str(tmp_path / "program")
    subprocess.run([COMPILER, *flags, *objects, "-o", program], check=True)
    output = subprocess.run([program], check=True, stdout=subprocess.PIPE, text=True)
    assert output.stdout.startswith("reverse: race: ")
    assert places(output.stdout) == {f"{source}:5", f"{source}:6"}


@in_one_test("name")
@pytest.mark.parametrize("name", RACES)
def test_races_in_every_order(kernels: Kernels, name: str, order: str) -> None:
    message = kernels(name)
    assert ": race: " in message, order
    assert places(message) == marked_lines(PLANTED / "planted.cu", name)


CLEAN, *NEEDING_BARRIERS = (
    re.findall(r"EXPORT int (\w+)\(", (PLANTED / f"{name}.cu").read_text())
    for name in ("clean", *LIBRARIES)
)


@in_one_test("name")
@pytest.mark.usefixtures("order")
@pytest.mark.parametrize("name", CLEAN)
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


# For every barrier, in order: a kernel that needs it, and the code on both sides that
# races without it, in the same folder unless it names a file.
BARRIERS: dict[str, list[tuple[str, list[str]]]] = {
    # Reductions by row, of one value or several; by column; by group.
    "common/reduce.cuh": [
        ("reductions", ["results[threadIdx", "results[warp]"]),
        ("vector_reductions", ["results[threadIdx", "results[warp]"]),
        ("column_reduction", ["[own][j % PART]", "[own + n_left"]),
    ],
    "norm/partials.cuh": [("group_reduction", ["handed_in[i"])],
    "common/cluster.cuh": [("shared_results", ["values_[warp] = found"])],
    "matmul/tiled.cuh": [
        ("tiled_matmul", ["a_copy.store_to(a_tiles[0])", "load_operands((k"]),
        ("tiled_matmul", ["a_copy.store_to(a_tiles[stage])", "load_operands(0)"]),
    ],
    "matmul/tensor_cores.cuh": [
        ("tensor_cores_matmul", ["ptx::cp_async<", "ptx::ldmatrix(fragment"]),
        ("tensor_cores_matmul", ["ptx::ldmatrix(fragment", "ROW_CHUNKS = BLOCK_N"]),
        (
            "tensor_cores_matmul",
            ["ROW_CHUNKS = BLOCK_N", "store_out.template operator()<CHUNK"],
        ),
    ],
    "matmul/parts.cuh": [
        ("sum_of_parts", ["shared_sums[threadIdx.x] = sums", "add(shared_sums[i"]),
    ],
    "matmul/cluster.cuh": [
        (
            "twin_matmul",
            [
                "matmul/ring.cuh: ptx::mbarrier_init(&full",
                "matmul/twin.cuh: const uint64_t a =",
            ],
        )
    ],
    "matmul/tf32_twin.cuh": [
        ("tf32_twin_matmul", ["ptx::mbarrier_init(&full", "return load_left_step<"])
    ],
    "scaled_matmul/twin.cuh": [
        (
            "twin_scaled_matmul",
            [
                "matmul/ring.cuh: ptx::mbarrier_init(&full",
                "wait(&shared.full[ring.stage]",
            ],
        )
    ],
    "matmul/align.cuh": [
        ("transposed_matrix", ["square[line][at] = elements", "square[at][line]"])
    ],
    "attention/tiled.cuh": [
        ("tiled_attention", ["shared.q, q_ptr,", "(&shared.q[row + i][d]"]),
        ("tiled_attention", ["(k_row + d", "shared.k_or_v, v_ptr"]),
        ("tiled_attention", ["shared.k_or_v, v_ptr", "add_values.template"]),
        ("tiled_attention", ["add_values.template", "shared.k_or_v, k_ptr"]),
    ],
    "attention/tensor_cores.cuh": [
        ("tensor_cores_attention", ["store(to, load<CHUNK>(", "ldmatrix(fragment, "]),
        (
            "tensor_cores_attention",
            ["store(to, load<CHUNK>(", "chunk(row, col / CHUNK + lane / 8"],
        ),
        ("attention_without_keys", ["store(to, load<CHUNK>(", "uint32_t*>(to) ="]),
    ],
    "attention/split.cuh": [
        (
            "split_attention",
            ["attention/tiles.cuh: store(chunk(row, i), load", "ldmatrix(fragment, "],
        ),
        ("split_attention", ["row_max[row] = softmax", "fmaxf(row_max, warps[w]"]),
    ],
    "attention/backward_tiled.cuh": [
        (
            "tiled_attention_backward_keys",
            ["k_or_v, v_ptr, v_stride_row, n_rows", "multiply_rows(grad_p, k_or_v"],
        ),
        (
            "tiled_attention_backward_keys",
            ["multiply_rows(grad_p, k_or_v", "k_or_v, k_ptr, k_stride_row, n_rows"],
        ),
        (
            "tiled_attention_backward_keys",
            ["k_or_v, k_ptr, k_stride_row, n_rows", "multiply_rows(scores, k_or_v"],
        ),
        # grad is copied twice, here behind the sums of grad_k.
        (
            "tiled_attention_backward_keys",
            ["multiply_rows(scores, k_or_v", "add_weighted_rows(grad_k, grad_scores"],
        ),
        (
            "tiled_attention_backward_keys",
            ["add_weighted_rows(grad_v, p, q_or_grad", "&other[k + c]"],
        ),
        (
            "tiled_attention_backward_keys",
            ["&other[k + c]", "k_or_v, v_ptr, v_stride_row, n_rows"],
        ),
        (
            "tiled_attention_backward_queries",
            ["q_or_grad, grad_ptr, ", "multiply_rows(grad_p, q_or_grad"],
        ),
        (
            "tiled_attention_backward_queries",
            ["multiply_rows(grad_p, q_or_grad", "q_or_grad, q_ptr, "],
        ),
        (
            "tiled_attention_backward_queries",
            ["q_or_grad, q_ptr, ", "multiply_rows(scores, q_or_grad"],
        ),
        (
            "tiled_attention_backward_queries",
            ["multiply_rows(scores, q_or_grad", "q_or_grad, grad_ptr, "],
        ),
    ],
    "attention/backward_tensor_cores.cuh": [
        (
            "tensor_cores_attention_backward_keys",
            ["store(to, load<CHUNK>(", "ldmatrix(fragment, "],
        ),
        (
            "tensor_cores_attention_backward_keys",
            ["store(to, load<CHUNK>(", "chunk(row, col / CHUNK + lane / 8"],
        ),
        (
            "tensor_cores_attention_backward_keys",
            ["ldmatrix_transposed(", "store(to, load<CHUNK>("],
        ),
        (
            "attention_backward_without_queries",
            ["store(to, load<CHUNK>(", "*to = pack<T>("],
        ),
        (
            "tensor_cores_attention_backward_queries",
            ["store(to, load<CHUNK>(", "ldmatrix(fragment, "],
        ),
        (
            "tensor_cores_attention_backward_queries",
            ["store(to, load<CHUNK>(", "chunk(row, col / CHUNK + lane / 8"],
        ),
        (
            "attention_backward_without_keys",
            ["store(to, load<CHUNK>(", "*to = pack<T>("],
        ),
    ],
    "attention/twin.cuh": [
        ("twin_attention", ["mbarrier_init(&tile_full", "wait(&shared.tile_full"])
    ],
    "attention/backward_keys.cuh": [
        (
            "twin_attention_backward_keys",
            ["mbarrier_init(&keys_full", "wait(&shared.keys_full"],
        )
    ],
    "attention/backward_queries.cuh": [
        (
            "twin_attention_backward_queries",
            ["mbarrier_init(&queries_full", "wait(&shared.queries_full"],
        )
    ],
    "attention/backward_twin.cuh": [
        (
            "twin_attention_backward",
            ["mbarrier_init(&own_full", "wait(&shared.own_full"],
        )
    ],
    "attention/backward_sums.cuh": [
        ("attention_end_sums", ["chunk * 16, matrices", "&grad_q_map.map, col_box"])
    ],
}


def test_every_barrier_is_tested() -> None:
    counts = {
        str(path.relative_to(sources.CSRC)): path.read_text().count("__syncthreads();")
        for path in sources.CSRC.rglob("*.cu*")
        if not path.is_relative_to(sources.EMULATOR)
    }
    tested = {file: len(barriers) for file, barriers in BARRIERS.items()}
    assert {file: n for file, n in counts.items() if n > 0} == tested


BARRIER = "__syncthreads();"
SCALES = "shared.scale_b[warpgroup])[thread] ="
OF_BOXES = ["matmul/store.cuh: ptx::stmatrix(", "ptx::tma_store("]
SCALES_BARRIER = "ptx::named_barrier_sync(barrier, WARPGROUP_SIZE);"
BIAS_BARRIER = "ptx::named_barrier_sync(1 + warpgroup, WARPGROUP_SIZE);"
# Included before all else: whether something in the kernels is as it should be, and not
# what a test asks to be left out. The checker must not see what it reads.
IS_KEPT = """\
#pragma once
#include <cstdlib>
#include <cstring>
__attribute__((no_sanitize("thread"), noinline)) inline bool is_kept(const char* what) {
    const char* left_out = std::getenv("TEST_LEAVES_OUT");
    return left_out == nullptr || std::strcmp(left_out, what) != 0;
}
"""


def name_of_barrier(file: str, number: int) -> str:
    return f"barrier {number} of {file}"


def with_removable_barriers(text: str, file: str) -> str:
    """A file each of whose barriers a test can leave out."""
    first, *others = text.split(BARRIER)
    names = (name_of_barrier(file, number) for number in range(len(others)))
    return first + "".join(
        f'if (is_kept("{name}")) {{ {BARRIER} }}{each}'
        for name, each in zip(names, others, strict=True)
    )


def with_removable_barrier(text: str, write: str, barrier: str, name: str) -> str:
    """A file in which a test can leave out the first barrier behind a write."""
    before, write, after = text.partition(write)
    assert write
    assert barrier in after
    removable = f'if (is_kept("{name}")) {{ {barrier} }}'
    return before + write + after.replace(barrier, removable, 1)


def with_removable_order(text: str) -> str:
    """The twin of matmul with two things that a test can leave out.

    They are the barrier between write and read of the bias in shared memory, and what
    gives two tiles of one box each a buffer of their own for their stores.
    """
    write = "scaled_bias[bias_col(i)] ="
    text = with_removable_barrier(text, write, BIAS_BARRIER, "bias")
    assert text.count("[n_stored++ % 2]") == 1
    place = '[is_kept("place") ? n_stored++ % 2 : (n_stored++, box % 2)]'
    return text.replace("[n_stored++ % 2]", place)


def build_removable(folder: Path) -> None:
    """Builds all kernels that need their barriers, each of which can be left out.

    They are built once: every compilation takes far longer than a kernel does.
    """
    copy = folder / "csrc"
    shutil.copytree(sources.CSRC, copy, ignore=shutil.ignore_patterns("emulator"))
    for file in BARRIERS:
        text = with_removable_barriers((copy / file).read_text(), file)
        if file == "scaled_matmul/twin.cuh":
            text = with_removable_barrier(text, SCALES, SCALES_BARRIER, "scales")
        (copy / file).write_text(text)
    twin = copy / "matmul/twin.cuh"
    twin.write_text(with_removable_order(twin.read_text()))
    parts = copy / "scaled_matmul/parts.cuh"
    text, after = parts.read_text(), "ptx::fence_async_proxy();"
    text = with_removable_barrier(text, after, SCALES_BARRIER, "results")
    before = "ptx::tma_store_wait_group_read<IS_FLOAT32 ? 0 : 1>();"
    text = with_removable_barrier(text, before, SCALES_BARRIER, "boxes")
    parts.write_text(text)
    header = copy / "is_kept.h"
    header.write_text(IS_KEPT)
    build_kernels(folder, LIBRARIES, copy, ("-include", str(header)))


@pytest.fixture(scope="module")
def removable_folder() -> Path:
    if shutil.which(COMPILER) is None:
        pytest.skip(f"no {COMPILER}")
    return shared.once("kernels-with-removable-barriers", build_removable)


@pytest.fixture(scope="module")
def removable(removable_folder: Path) -> Kernels:
    return Kernels(removable_folder / "kernels.so")


@in_one_test("name")
@pytest.mark.usefixtures("order")
@pytest.mark.parametrize("name", [*itertools.chain(*NEEDING_BARRIERS)])
def test_clean_kernel_with_its_barriers(removable: Kernels, name: str) -> None:
    assert removable(name) == ""


def assert_race(message: str, file: Path, uses: Sequence[str]) -> None:
    """Checks that the message is of a race between two uses, in these lines."""
    assert ": race: " in message
    reported = {
        (path, int(line))
        for path, line in (place.rsplit(":", 1) for place in places(message))
    }
    for each in uses:
        elsewhere, _, use = each.rpartition(": ")
        files = (
            [file.parents[1] / elsewhere]
            if elsewhere
            else sorted(file.parent.glob("*.cu*"))
        )
        starts = [
            (str(path), number)
            for path in files
            for number, line in enumerate(path.read_text().splitlines(), start=1)
            if use in line
        ]
        assert starts
        # A use may be a few lines from the name: a reference is read later, and a call
        # begins earlier.
        assert all(
            any((path, number + n) in reported for n in range(-3, 4))
            for path, number in starts
        ), message


@pytest.mark.parametrize(
    ("file", "number"),
    [(file, n) for file in BARRIERS for n in range(len(BARRIERS[file]))],
)
def test_removed_barrier(
    removable: Kernels,
    removable_folder: Path,
    file: str,
    number: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kernel, uses = BARRIERS[file][number]
    monkeypatch.setenv("TEST_LEAVES_OUT", name_of_barrier(file, number))
    assert_race(removable(kernel), removable_folder / "csrc" / file, uses)


@pytest.mark.parametrize(
    ("folder", "left_out", "uses"),
    [
        ("matmul", "place", ["origin.row, origin.batch, out)", "ptx::stmatrix("]),
        ("matmul", "bias", ["scaled_bias[bias_col(i)] =", "float2 bias ="]),
        ("scaled_matmul", "scales", [SCALES, "const float2 scales ="]),
        ("scaled_matmul", "results", OF_BOXES),
        ("scaled_matmul", "boxes", OF_BOXES),
    ],
)
def test_removed_order_of_a_twin(
    removable: Kernels,
    removable_folder: Path,
    folder: str,
    left_out: str,
    uses: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TEST_LEAVES_OUT", left_out)
    file = removable_folder / "csrc" / folder / "twin.cuh"
    assert_race(removable(f"twin_{folder}"), file, uses)


# ---- compare sanitize ----------------------------------------------------------------


@pytest.fixture
def no_compiled_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is compiled: it takes longer than the emulator's part."""

    def sanitize(name: str, side: Side, progress: Callable[[str], None]) -> Report:
        language = LANGUAGE_NAMES[side]
        return Report(name, "compiled", language=language, missing="not asked for")

    monkeypatch.setattr(compiled_sanitizer, "sanitize", sanitize)


@pytest.mark.usefixtures("no_compiled_code")
def test_clean_op(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    assert main(["sanitize", "add", "--json", str(file)]) == 0
    shown = capsys.readouterr().out
    assert "found nothing" in shown
    assert shown.count("not run: not asked for") == 2
    document = json.loads(file.read_text())
    report, *others = document["reports"]
    assert [each["language"] for each in others] == ["CUDA", "Triton"]
    assert report["findings"] == []
    covered = report["covered"]
    assert covered["passes"] == list(ORDERS)
    assert covered["launches"] == len(covered["cases"]) * len(ORDERS)
    for kernel in ("float, 4, false", "float, 1, true", "__half, 8, true"):
        assert any(f"add_kernel<{kernel}>" in each for each in covered["kernels"])


def test_compiled_code_of_a_clean_op() -> None:
    report = compiled_sanitizer.sanitize("dropout", "triton", lambda _: None)
    assert not report.missing
    assert report.findings == []
    assert report.device == "compiled for sm_90a, simulated"
    assert len(report.kernels) == len(report.runs) > 2
    for kernel in ("dropout_kernel[", "dropout_first_kernel["):
        assert any(kernel in each for each in report.kernels)


def test_a_fault_of_compiled_code(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(side: Side, op: Op, *_: Any, order: str, **__: Any) -> None:
        if order == "reverse":
            raise SimulationFault(f"{op.name}: the {side} kernel k races, at f.py:3")

    monkeypatch.setattr(simulated_calls, "run", run)
    report = compiled_sanitizer.sanitize("dropout", "triton", lambda _: None)
    (finding,) = report.findings
    assert finding.message == "the triton kernel k races, at f.py:3"
    assert finding.first.endswith("order reverse")
    assert finding.count == len(report.runs)


def test_an_unknown_instruction_is_no_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*_: Any, **__: Any) -> None:
        raise simulated_calls.UnknownInstructionError("nobody knows abc.def")

    monkeypatch.setattr(simulated_calls, "run", run)
    report = compiled_sanitizer.sanitize("dropout", "triton", lambda _: None)
    assert report.missing == "nobody knows abc.def"
    assert not report.findings


def test_what_cannot_be_compiled_is_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*_: Any, **__: Any) -> None:
        raise UnsupportedError("there is no nvcc here")

    monkeypatch.setattr(simulated_calls, "run", run)
    report = compiled_sanitizer.sanitize("dropout", "cuda", lambda _: None)
    assert report.missing == "there is no nvcc here"


def test_blocks_of_several_tiles() -> None:
    chosen = sanitizer.choose_runs(OPS["matmul"], prebuilt.load("_cpu"), 90)
    found = set()
    for case, kernel in ((run.case, name) for name in chosen for run in chosen[name]):
        n_batches, n_rows, n_cols, _ = sizes_of(case.shape)
        sizes = re.search(r"\bmatmul_kernel<\w+, (\d+), (\d+),", kernel)
        if sizes is None:
            continue
        block_m, block_n = map(int, sizes.groups())
        if n_batches * -(-n_rows // block_m) * -(-n_cols // block_n) > 132:
            found.add((case.dtype, case.layout))
    both = "contiguous", "transposed"
    assert found >= set(itertools.product((torch.float16, torch.bfloat16), both))


def test_every_parameter_and_a_misaligned_tensor() -> None:
    op = OPS["matmul"]
    chosen = sanitizer.choose_runs(op, prebuilt.load("_cpu"), 90)
    cases = [
        run.case
        for kernel, runs in chosen.items()
        if "matmul_kernel<__half, 64" in kernel
        for run in runs
    ]
    activations = {str(params.get("activation")) for params in TRIALS[op.name].variants}
    assert {str(case.params.get("activation")) for case in cases} == activations
    assert "offset 2" in {case.layout for case in cases}
    case = Case((16, 24, 40), torch.float16, "offset 2", {"bias": True})
    tensors = make_arguments(op, case)[:3]
    assert [x.data_ptr() % 16 for x in tensors] == [0, 0, 2]


def report_of(findings: list[Finding]) -> Report:
    run = sanitizer.Run(OPS["add"], Case((3,)))
    return Report("add", "emulator", findings, ["void f()"], [run])


@pytest.mark.usefixtures("no_compiled_code")
def test_findings_are_shown_once(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    finding = Finding(f"f<[bold]>: race at {sources.ROOT}/csrc/f.cu:3", "3 float32", 7)
    monkeypatch.setattr(sanitizer, "sanitize", lambda *_: report_of([finding]))
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
    assert sanitizer.identity(race.format("float", 3, 5, 7)) == sanitizer.identity(
        race.format("half, 2", 4, 5, 8)
    )
    assert sanitizer.identity(race.format("float", 3, 5, 7)) != sanitizer.identity(
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
    assert list(sanitizer.pieces(make(x))) == expected


def test_parameter_names() -> None:
    names = native.parameters(prebuilt.load("_cpu"), OPS["softmax"])
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
    (finding,) = gpu_sanitizers.parse(OUTPUT, "memcheck")
    assert finding.count == 2
    assert finding.message.startswith("memcheck: Invalid __global__ read of size 4")
    assert "f.cu:29" in finding.message
    assert "Host" not in finding.message
    clean = "========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n"
    assert gpu_sanitizers.parse(clean, "memcheck") == []
    hazards = (
        "========= RACECHECK SUMMARY: 3 hazards displayed (3 errors, 0 warnings)\n"
    )
    assert gpu_sanitizers.parse(hazards, "racecheck")[0].count == 3


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs to be without a GPU")
def test_gpu_without_a_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sanitize", "add", "--gpu"]) == 3
    assert "finds no GPU here" in capsys.readouterr().err


@pytest.mark.skipif(
    not torch.cuda.is_available() or gpu_sanitizers.find_program() is None,
    reason="needs a GPU and compute-sanitizer",
)
def test_clean_op_on_a_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sanitize", "add", "--gpu"]) == 0
    assert "memcheck, racecheck, synccheck, initcheck" in capsys.readouterr().out


@pytest.mark.usefixtures("no_compiled_code")
def test_all_ops_at_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def sanitize(name: str, progress: Callable[[str], None]) -> Report:
        findings = [Finding("a race", "forward", 1)] if name == "gelu" else []
        return Report(name, "emulator", findings)

    monkeypatch.setattr(sanitizer, "sanitize", sanitize)
    assert main(["sanitize", "all", "--json", "-"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert [each["op"] for each in document["ops"]] == list(OPS)
