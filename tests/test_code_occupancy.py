"""The occupancy of a kernel: by hand, and against NVIDIA's own cuda_occupancy.h."""

from __future__ import annotations

import random
import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import pytest

from compare.code.architectures import ARCHITECTURES
from compare.code.occupancy import Occupancy, occupancy

# Threads of an SM and its shared memory in KiB, copied independently from the CUDA C++
# Programming Guide. The header knows the number of blocks by itself.
PUBLISHED = {
    80: (2048, 164),
    86: (1536, 100),
    89: (1536, 100),
    90: (2048, 228),
    100: (2048, 228),
    120: (1536, 100),
}

# Answers one case a line. The kernel opts in to the shared memory that it uses, as a
# launcher does, and uses one barrier, as the header assumes by default.
ORACLE = r"""
#include <climits>
#include <cstdio>

#include "cuda_occupancy.h"

int main() {
    int number, threads_per_sm, shared_kib, registers, threads, shared, dynamic;
    while (std::scanf(
               "%d %d %d %d %d %d %d", &number, &threads_per_sm, &shared_kib,
               &registers, &threads, &shared, &dynamic
           ) == 7) {
        cudaOccDeviceProp device;
        device.computeMajor = number / 10;
        device.computeMinor = number % 10;
        device.maxThreadsPerBlock = 1024;
        device.maxThreadsPerMultiprocessor = threads_per_sm;
        device.regsPerBlock = 65536;
        device.regsPerMultiprocessor = 65536;
        device.warpSize = 32;
        device.sharedMemPerBlock = 48 * 1024;
        device.sharedMemPerMultiprocessor = shared_kib * 1024;
        device.numSms = 1;
        device.sharedMemPerBlockOptin = (shared_kib - 1) * 1024;
        device.reservedSharedMemPerBlock = 1024;
        cudaOccFuncAttributes kernel;
        kernel.maxThreadsPerBlock = INT_MAX;
        kernel.numRegs = registers;
        kernel.sharedSizeBytes = shared;
        kernel.shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN;
        kernel.maxDynamicSharedSizeBytes = dynamic;
        kernel.numBlockBarriers = 1;
        cudaOccDeviceState state;
        cudaOccResult result;
        cudaOccError error = cudaOccMaxActiveBlocksPerMultiprocessor(
            &result, &device, &kernel, &state, threads, dynamic
        );
        std::printf(
            "%d %d %u\n", error, result.activeBlocksPerMultiprocessor,
            result.limitingFactors
        );
    }
}
"""
FACTORS = {"threads": 1, "registers": 2, "shared memory": 4, "blocks": 8}
BARRIERS = 16  # one for a block never binds where their number does not


class Case(NamedTuple):
    """A kernel on an architecture."""

    number: int
    registers: int
    threads: int
    static_bytes: int
    dynamic_bytes: int


def occupancy_of(case: Case) -> Occupancy:
    return occupancy(
        ARCHITECTURES[case.number],
        case.registers,
        case.threads,
        case.static_bytes + case.dynamic_bytes,
    )


def random_cases(count: int) -> list[Case]:
    source = random.Random(20261120)
    return [random_case(source, number) for number in PUBLISHED for _ in range(count)]


def random_case(source: random.Random, number: int) -> Case:
    # Small kernels are the more common, and those of which most is on an SM at a time.
    threads = 1 + int(1024 * source.random() ** 2)
    registers = 1 + int(255 * source.random() ** 2)
    most = ARCHITECTURES[number].max_shared_bytes
    shared = source.choice([0, most, int((most + 1) * source.random() ** 3)])
    static = source.randint(0, min(shared, 48 * 1024))
    return Case(number, registers, threads, static, shared - static)


@pytest.fixture(scope="session")
def oracle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program that asks cuda_occupancy.h."""
    triton = pytest.importorskip("triton")
    include = Path(triton.__file__).parent / "backends/nvidia/include"
    if not (include / "cuda_occupancy.h").is_file():
        pytest.skip("this Triton comes without cuda_occupancy.h")
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("there is no g++ here")
    folder = tmp_path_factory.mktemp("occupancy")
    (folder / "oracle.cpp").write_text(ORACLE)
    subprocess.run(
        [compiler, f"-I{include}", "oracle.cpp", "-o", "oracle"], cwd=folder, check=True
    )
    return folder / "oracle"


def test_agreement_with_the_header_of_nvidia(oracle: Path) -> None:
    cases = random_cases(200)
    questions = [(case.number, *PUBLISHED[case.number], *case[1:]) for case in cases]
    done = subprocess.run(
        [oracle],
        input="".join(f"{' '.join(map(str, each))}\n" for each in questions),
        capture_output=True,
        text=True,
        check=True,
    )
    answers = [tuple(map(int, line.split())) for line in done.stdout.splitlines()]
    seen: Counter[str] = Counter()
    for case, (error, blocks, factors) in zip(cases, answers, strict=True):
        assert error == 0, case
        if blocks == 0:
            with pytest.raises(ValueError, match="an SM has registers for"):
                occupancy_of(case)
            seen["cannot be launched"] += 1
            continue
        found = occupancy_of(case)
        assert found.blocks_per_sm == blocks, case
        limiters = {name for name, bit in FACTORS.items() if factors & bit}
        assert set(found.limited_by) == limiters, case
        assert not factors & BARRIERS or "blocks" in limiters, case
        seen.update(limiters)
    # Otherwise the cases would prove little.
    assert min(seen[name] for name in (*FACTORS, "cannot be launched")) > 30


@pytest.mark.parametrize("number", PUBLISHED)
def test_the_table_is_the_published_one(number: int) -> None:
    threads, shared_kib = PUBLISHED[number]
    architecture = ARCHITECTURES[number]
    assert architecture.max_warps_per_sm == threads // 32
    assert architecture.max_shared_bytes == (shared_kib - 1) * 1024


# The first two are the example of the CUDA C++ Best Practices Guide, chapter
# "Calculating Occupancy"; it is of sm_70, whose SM has as many warps and registers.
BY_HAND = [
    # 37 x 32 = 1184 registers for a warp become 1280: 12 warps to each sub-partition.
    (Case(80, 37, 128, 0, 0), Occupancy(12, 48, 64, 0.75, ("registers",))),
    (Case(80, 37, 320, 0, 0), Occupancy(4, 40, 64, 0.625, ("registers",))),
    # 65536 registers are 32 for each of 2048 threads; of 33 a warp takes 1280 again.
    (Case(90, 32, 256, 0, 0), Occupancy(8, 64, 64, 1.0, ("registers", "threads"))),
    (Case(90, 33, 256, 0, 0), Occupancy(6, 48, 64, 0.75, ("registers",))),
    # Room for 16, 24 or 32 blocks, even of a single thread, which takes a whole warp.
    (Case(86, 16, 1, 0, 0), Occupancy(16, 16, 48, 1 / 3, ("blocks",))),
    (Case(89, 16, 1, 0, 0), Occupancy(24, 24, 48, 0.5, ("blocks",))),
    (Case(100, 16, 1, 0, 0), Occupancy(32, 32, 64, 0.5, ("blocks",))),
    # 48 warps do not hold two blocks of 32.
    (Case(120, 16, 1024, 0, 0), Occupancy(1, 32, 48, 2 / 3, ("threads",))),
    # All shared memory for one block; half of it for each of two, less 1 KiB for each.
    (Case(90, 16, 32, 0, 227 * 1024), Occupancy(1, 1, 64, 1 / 64, ("shared memory",))),
    (Case(90, 16, 32, 0, 113 * 1024), Occupancy(2, 2, 64, 2 / 64, ("shared memory",))),
    (Case(90, 16, 32, 1, 113 * 1024), Occupancy(1, 1, 64, 1 / 64, ("shared memory",))),
]


@pytest.mark.parametrize(("case", "expected"), BY_HAND)
def test_by_hand(case: Case, expected: Occupancy) -> None:
    assert occupancy_of(case) == expected


@pytest.mark.parametrize(
    ("case", "message"),
    [
        (Case(90, 32, 0, 0, 0), "0 threads in a block: there can be 1 to 1024"),
        (Case(90, 32, 1025, 0, 0), "1025 threads in a block: there can be 1 to 1024"),
        (Case(90, 0, 32, 0, 0), "0 registers in a thread: there can be 1 to 255"),
        (Case(90, 256, 32, 0, 0), "256 registers in a thread: there can be 1 to 255"),
        (
            Case(86, 32, 32, 1, 99 * 1024),
            "101377 bytes of shared memory in a block on sm_86: there can be 0 to"
            " 101376",
        ),
        (
            Case(90, 65, 1024, 0, 0),
            "32 warps in a block are too many with 65 registers in a thread: an SM has"
            " registers for 28 warps",
        ),
    ],
)
def test_what_cannot_be_launched(case: Case, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        occupancy_of(case)
