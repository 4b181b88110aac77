"""Two versions of one file: what an edit changed is said in words, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from bindings.toolchain import find_cuda_home
from compare.pairs import pair, plan, question
from compare.pairs.own_report import OwnReport
from compare.pairs.question import Problem, Question

pytestmark = pytest.mark.skipif(find_cuda_home() is None, reason="needs nvcc")

_OLD = """\
// Sums of rows.
#include <cuda_runtime.h>

__global__ void row_sum_kernel(float* out, const float* x, int cols) {
    __shared__ float sums[128];
    float sum = 0;
    for (int i = threadIdx.x; i < cols; i += 128) sum += x[blockIdx.x * cols + i];
    sums[threadIdx.x] = sum;
    __syncthreads();
    for (int half = 64; half > 0; half /= 2) {
        if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0) out[blockIdx.x] = sums[0];
}

void row_sum(float* out, const float* x, int rows, int cols) {
    row_sum_kernel<<<rows, 128>>>(out, x, cols);
}
"""
_NEW = """\
// Sums of rows.
#include <cuda_runtime.h>

__global__ void row_sum_kernel(float* out, const float* x, int cols) {
    __shared__ float sums[4];
    float sum = 0;
    const float4* row = reinterpret_cast<const float4*>(x + blockIdx.x * cols);
    for (int i = threadIdx.x; i < cols / 4; i += 128) {
        const float4 four = row[i];
        sum += four.x + four.y + four.z + four.w;
    }
    for (int lane = 16; lane > 0; lane /= 2) {
        sum += __shfl_xor_sync(0xffffffff, sum, lane);
    }
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x == 0) out[blockIdx.x] = sums[0] + sums[1] + sums[2] + sums[3];
}

void row_sum(float* out, const float* x, int rows, int cols) {
    row_sum_kernel<<<rows, 128>>>(out, x, cols);
}
"""


# The function writes to its first argument, and so does the reference.
_INPUTS = "torch.empty(8), torch.randn(8, 1024), 8, 1024"
_REFERENCE = "lambda out, x, rows, cols: torch.sum(x, 1, out=out)"


@pytest.fixture(scope="module")
def asked() -> Question:
    """What both versions are called with."""
    return question.ask(Problem("options", inputs=_INPUTS, reference=_REFERENCE))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where both tests have their files: the older version is compiled once."""
    return tmp_path_factory.mktemp("versions")


def _compared(folder: Path, old: str, new: str, asked: Question) -> OwnReport:
    for name, text in (("old.cu", old), ("new.cu", new)):
        (folder / name).write_text(text)
    words = [str(folder / "old.cu"), str(folder / "new.cu")]
    (request,) = plan.plan(words, _INPUTS, _REFERENCE).requests
    return pair.compare(request, lambda _: None, asked)


def test_the_changes_of_a_reduction_are_said(folder: Path, asked: Question) -> None:
    report = _compared(folder, _OLD, _NEW, asked)
    said = "\n".join(each.text for each in report.findings if each.side)
    assert "old.cu" in said
    assert "new.cu" in said
    assert "16 bytes" in said  # the loads are wider
    assert "barrier" in said  # and there are fewer barriers
    assert "Shared memory" in said


def test_a_comment_changes_nothing(folder: Path, asked: Question) -> None:
    new = _OLD.replace(
        "// Sums of rows.", "// The sum of each row.\n// One block a row."
    )
    report = _compared(folder, _OLD, new, asked)
    assert [each.text for each in report.findings if each.side] == []
