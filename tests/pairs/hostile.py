"""Inputs that are broken or mean harm, and how the command has to end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Hostile:
    """Files in an empty folder, and a command that is run there.

    Attributes:
        name: What is wrong.
        files: The text of each file by its name; bytes where it is no text. A name that
            ends in "/" is an empty folder.
        arguments: What follows `python -m compare`.
        exit_code: 0 all is well, 1 a fault or code that crashed, 2 the command line or
            the description makes no sense, 3 this environment cannot do it, 4 it does
            not compile.
        said: A regular expression that stdout or stderr matches.
    """

    name: str
    files: dict[str, str | bytes]
    arguments: tuple[str, ...]
    exit_code: int
    said: str


HOSTILE: list[Hostile] = []

# ---- Right files, which the others are edits of --------------------------------------

_CUDA = """\
#include <cuda_runtime.h>
#include <cstdio>
#include <cstdlib>

__global__ void twice_kernel(float* out, const float* x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = 2 * x[i];
}

void twice(float* out, const float* x, int n, cudaStream_t stream) {
    twice_kernel<<<(n + 127) / 128, 128, 0, stream>>>(out, x, n);
}
"""
_TRITON = """\
import torch
import triton
import triton.language as tl


@triton.jit
def twice_kernel(out_ptr, x_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n)
    tl.store(out_ptr + i, 2 * x, mask=i < n)


def twice(x):
    x = x.contiguous()
    out = torch.empty_like(x)
    twice_kernel[(triton.cdiv(x.numel(), 128),)](out, x, x.numel(), BLOCK=128)
    return out
"""
_DESCRIPTION = """\
import torch

SIDES

def inputs(generator, n=300):
    return (torch.randn(n, generator=generator),)


def launch(run, x):
    x = x.contiguous()
    out = torch.empty_like(x)
    run(out, x, x.numel())
    return out


def reference(x):
    return 2 * x
"""
_CUDA_PAIR = _DESCRIPTION.replace("SIDES", 'cuda = "mine.cu:twice"\n')
_TRITON_PAIR = _DESCRIPTION.replace("SIDES", 'triton = "mine.py:twice"\n')
_BARE_PAIR = _CUDA_PAIR.replace(":twice", ":twice_kernel").replace(
    "run(out", "run[3, 128](out"
)
_INPUTS = ("--inputs", "torch.randn(300)", "--reference", "lambda x: 2 * x")
_SOON = ("--time-limit", "3")
_ENDED_LATE = r"did not end within 3 s|time limit"


def _add(
    name: str,
    files: Mapping[str, str | bytes],
    arguments: tuple[str, ...],
    exit_code: int,
    said: str,
) -> None:
    HOSTILE.append(Hostile(name, dict(files), arguments, exit_code, said))


def _edited(text: str, old: str, new: str) -> str:
    if text.count(old) != 1:
        raise ValueError(f"{old!r} does not occur once")
    return text.replace(old, new)


def _cuda(
    name: str, old: str, new: str, exit_code: int, said: str, *options: str
) -> None:
    """The right .cu with one edit, called by its description."""
    files: dict[str, str | bytes] = {
        "mine.cu": _edited(_CUDA, old, new),
        "pair.py": _CUDA_PAIR,
    }
    _add(name, files, ("pair.py", *options), exit_code, said)


def _triton(
    name: str, old: str, new: str, exit_code: int, said: str, *options: str
) -> None:
    """The right Triton module with one edit, called by its description."""
    files: dict[str, str | bytes] = {
        "mine.py": _edited(_TRITON, old, new),
        "pair.py": _TRITON_PAIR,
    }
    _add(name, files, ("pair.py", *options), exit_code, said)


def _pair(
    name: str, old: str, new: str, exit_code: int, said: str, *options: str
) -> None:
    """The right Triton module, whose description has one edit."""
    files: dict[str, str | bytes] = {
        "mine.py": _TRITON,
        "pair.py": _edited(_TRITON_PAIR, old, new),
    }
    _add(name, files, ("pair.py", *options), exit_code, said)


# ---- Nothing is wrong ----------------------------------------------------------------

_pair("nothing, Triton", "2 * x", "x + x", 0, r"")
_cuda("nothing, CUDA", "2 * x[i]", "x[i] + x[i]", 0, r"")

# ---- The command line ----------------------------------------------------------------

_BOTH: dict[str, str | bytes] = {"mine.cu": _CUDA, "mine.py": _TRITON}
_add("missing file", {}, ("gone.cu", "gone.py"), 2, r"gone\.cu")
_add(
    "one file missing",
    {"mine.py": _TRITON},
    ("mine.py:twice", "gone.py:twice", *_INPUTS),
    2,
    r"gone\.py",
)
_add("an empty folder", {"folder/": ""}, ("folder",), 2, r"folder")
_add("text file", {"notes.txt": "hello"}, ("notes.txt", "notes.txt"), 2, r"notes\.txt")
_add("empty .cu", {**_BOTH, "mine.cu": ""}, ("mine.cu", "mine.py"), 2, r"mine\.cu")
_add("empty .py", {"mine.py": ""}, ("mine.py", *_INPUTS), 2, r"mine\.py")
_add(
    "missing function",
    _BOTH,
    ("mine.py:thrice", "mine.py:twice", *_INPUTS),
    2,
    r"mine\.py.*thrice",
)
_add(
    "two candidates",
    {"mine.py": f"{_TRITON}\n\ndef again(x):\n    return twice(x)\n"}
    | {
        "other.py": _TRITON
        + _TRITON[_TRITON.index("def twice(") :].replace("twice(x)", "second(x)")
    },
    ("other.py", "mine.py:twice", *_INPUTS),
    2,
    r"other\.py.*(twice|second)",
)
_add(
    "inputs that are nonsense",
    _BOTH,
    ("mine.py", "--inputs", "randn(3, ", "--reference", "torch.neg"),
    2,
    r"--inputs",
)
_add(
    "inputs that raise",
    _BOTH,
    ("mine.py", "--inputs", "1 / 0", "--reference", "torch.neg"),
    2,
    r"--inputs.*ZeroDivisionError",
)
_add(
    "inputs that return no tensor",
    _BOTH,
    ("mine.py", "--inputs", "[1, 2.5]", "--reference", "torch.neg"),
    2,
    r"no tensor",
)
_add(
    "a reference that cannot be imported",
    _BOTH,
    (
        "mine.py",
        "--inputs",
        "randn(9)",
        "--reference",
        "torch.sofmax:dim=-1",
    ),
    2,
    r"--reference.*torch\.sofmax",
)
_add(
    "a reference of another number of arguments",
    _BOTH,
    ("mine.py", "--inputs", "randn(9)", "--reference", "lambda x, y: x"),
    2,
    r"--reference",
)
_add(
    "a time limit that is no number",
    _BOTH,
    ("mine.py", "--time-limit", "soon"),
    2,
    r"--time-limit",
)

# ---- Descriptions --------------------------------------------------------------------

_pair("a description without inputs", "def inputs(", "def something(", 2, r"inputs")
_pair("a misspelt path", "mine.py:twice", "mime.py:twice", 2, r"mime\.py")
_pair(
    "a description without sides",
    'triton = "mine.py:twice"\n',
    "",
    2,
    r"pair\.py.*names neither side",
)
_pair("inputs that return None", "return (torch", "(torch", 2, r"input")
_pair("inputs that raise in a description", "n=300):", "n=1 // 0):", 1, r"pair\.py:6")
_pair(
    "a reference that raises",
    "return 2 * x",
    "return x[10**9]",
    1,
    r"pair\.py:\d+: IndexError",
)
_pair(
    "a reference of another shape", "return 2 * x", "return x[:7]", 1, r"shape is .*300"
)
_pair("a reference that returns None", "return 2 * x", "pass", 2, r"reference")
_pair(
    "a reference that hangs",
    "    return 2 * x",
    "    while True:\n        pass",
    1,
    r"pair\.py.*did not end within 2 s",
    *("--time-limit", "2"),
)
_pair(
    "NaN in all inputs",
    "torch.randn(n, generator=generator)",
    "torch.full((n,), float('nan'))",
    0,
    r"",
)
_pair(
    "a description that exits",
    "import torch\n",
    "import torch, sys\nsys.exit(0)\n",
    1,
    r"exit",
)
_pair(
    "a description that is no Python",
    "def launch(run, x):",
    "def launch(run, x)",
    4,
    r"pair\.py:10",
)
_add(
    "wrong types",
    {"mine.cu": _CUDA, "pair.py": _edited(_CUDA_PAIR, "x.numel())", "2.5)")},
    ("pair.py",),
    1,
    r"argument 3: an integer is expected",
)
_add(
    "wrong number of inputs",
    {
        "mine.cu": _CUDA,
        "pair.py": _edited(_CUDA_PAIR, "run(out, x, x.numel())", "run(x)"),
    },
    ("pair.py",),
    1,
    r"mine\.cu:10: it takes 3 arguments, 1 was given",
)
_add(
    "a grid that is a text",
    {"mine.cu": _CUDA, "pair.py": _edited(_BARE_PAIR, "run[3, 128]", "run['a', 128]")},
    ("pair.py",),
    1,
    r"pair\.py:\d+: ValueError",
)
_add(
    "a bare kernel without launch()",
    {"mine.cu": _CUDA, "pair.py": _edited(_BARE_PAIR, "def launch(", "def lunch(")},
    ("pair.py",),
    2,
    r"launch",
)

# ---- Python --------------------------------------------------------------------------

_triton(
    "syntax error in Python",
    "def twice(x):",
    "def twice(x:",
    4,
    r"mine\.py:13: SyntaxError",
)
_add(
    "a binary .py",
    {"mine.py": b"\x7fELF\x02\x01\x01\x00\x00\xff\xfe", "pair.py": _TRITON_PAIR},
    ("pair.py",),
    4,
    r"mine\.py",
)
_triton(
    "raise at import",
    "import torch\n",
    "import torch\nraise OSError('no licence')\n",
    1,
    r"mine\.py:2: OSError: no licence",
)
_triton(
    "a missing module",
    "import torch\n",
    "import torch\nimport flash_attn_9\n",
    1,
    r"mine\.py:2: ModuleNotFoundError",
)
_triton(
    "no kernel launched", "x = x.contiguous()", "return 2 * x", 0, r"launches no kernel"
)
_triton(
    "a wider dtype",
    "return out",
    "return (2 * x).double()",
    1,
    r"dtype is torch\.float64",
)
_triton("returns nothing", "return out", "return None", 1, r"mine\.py.*None")
_triton("returns no tensor", "return out", "return 'done'", 1, r"mine\.py.*str")
_triton(
    "a 2 GB output",
    "out = torch.empty_like(x)",
    "return torch.ones(1 << 29)",
    1,
    r"mine\.py|shape is",
)
_triton(
    "sleeps",
    "    return out",
    "    import time; time.sleep(1e9)",
    1,
    r"mine\.py.*did not end within 3 s",
    *_SOON,
)
_triton(
    "os._exit(0)",
    "    return out",
    "    import os; os._exit(0)",
    1,
    r"mine\.py.*status 0",
)
_triton(
    "sys.exit",
    "    return out",
    "    raise SystemExit('bye')",
    1,
    r"mine\.py.*(exit|bye)",
)
_triton(
    "infinite recursion",
    "    x = x.contiguous()",
    "    return twice(x)",
    1,
    r"mine\.py:\d+: RecursionError",
)
_triton(
    "segfault through ctypes",
    "    return out",
    "    import ctypes; ctypes.string_at(0)",
    1,
    r"mine\.py.*SIGSEGV|signal 11",
)
_triton(
    "endless output",
    "    return out",
    "    while True:\n        print('x' * 10000)",
    1,
    r"mine\.py.*(of output|did not end)",
    *_SOON,
)
_triton(
    "fork bomb",
    "    return out",
    "    import os\n    while True:\n        os.fork()",
    1,
    r"mine\.py.*(processes|did not end|BlockingIOError)",
    *_SOON,
)
_triton(
    "threads without end",
    "    return out",
    "    import threading, time\n    while True:\n"
    "        threading.Thread(target=time.sleep, args=(1e9,)).start()",
    1,
    r"mine\.py",
    *_SOON,
)
_triton(
    "takes all memory",
    "    return out",
    # The number is not known where it is compiled: it is run for its memory only.
    "    hoard = [x.sum().item()]\n    while True:\n"
    "        hoard.append(bytearray(1 << 28))",
    1,
    r"mine\.py.*([Mm]emory)",
)
_triton("writes to its input", "return out", "x.zero_()\n    return out", 1, r"input")
_triton(
    "deletes its own file",
    "    return out",
    "    import os; os.remove(__file__)\n    return out",
    1,
    r"mine\.py",
)
_triton(
    "writes beside itself",
    "    return out",
    "    open(__file__ + '.log', 'w').write('x')\n    return out",
    1,
    r"mine\.py",
)
_triton(
    "closes all files",
    "    return out",
    "    import os; os.closerange(0, 256)\n    return out",
    0,
    r"",
)
_triton(
    "patches torch",
    "    return out",
    "    torch.equal = torch.allclose = lambda *_, **__: True\n    return out + 1",
    1,
    r"error is|are wrong",
)
_triton(
    "an uncatchable exception",
    "    return out",
    "    class Own(BaseException):\n        def __str__(self):\n"
    "            raise self\n    raise Own()",
    1,
    r"mine\.py:\d+: Own",
)
_triton(
    "an error in the kernel",
    "tl.store(out_ptr + i, 2 * x, mask=i < n)",
    "tl.store(out_ptr + i, 2 * y, mask=i < n)",
    1,
    r"mine\.py:10.*'y'",
)
_triton(
    "an assert in the kernel",
    "    tl.store(",
    "    tl.device_assert(n < 0, 'impossible')\n    tl.store(",
    1,
    r"mine\.py.*impossible",
)
_triton(
    "a grid of zero", "(triton.cdiv(x.numel(), 128),)", "(0,)", 1, r"never written|grid"
)
_triton(
    "four dimensions of a grid",
    "(triton.cdiv(x.numel(), 128),)",
    "(1, 1, 1, 1)",
    1,
    r"grid|mine\.py",
)
_triton(
    "a kernel that never ends",
    "    tl.store(",
    "    while n > 0:\n        x += 1\n    tl.store(",
    1,
    _ENDED_LATE,
    *_SOON,
)
_triton(
    "a block that is no power of two",
    "BLOCK=128)",
    "BLOCK=100)",
    1,
    r"mine\.py.*power of 2",
)

# ---- C++ -----------------------------------------------------------------------------

_cuda(
    "syntax error in CUDA",
    "out[i] = 2 * x[i];",
    "out[i] = 2 * x[i]",
    4,
    r"mine\.cu:\d+: ",
)
_cuda(
    "unterminated comment",
    "void twice(",
    "/* void twice(",
    4,
    r"mine\.cu:10: a comment that never ends",
)
_cuda(
    "unterminated text",
    "    int i =",
    '    const char* s = "abc;\n    int i =',
    4,
    r"mine\.cu:6: ",
)
_cuda("a bracket too many", "(n + 127) / 128", "((n + 127) / 128", 4, r"mine\.cu:1\d: ")
_cuda("a missing header", "<cstdio>", '"mine_own.h"', 4, r"mine\.cu:2: .*mine_own\.h")
_cuda(
    "#error", "#include <cstdio>", "#error not for you", 4, r"mine\.cu:2: .*not for you"
)
_cuda(
    "template error",
    "out[i] = 2 * x[i];",
    "out[i] = wrong<float>(x[i]);",
    4,
    r"mine\.cu:7: ",
)
_cuda(
    "includes itself", "#include <cstdio>", '#include "mine.cu"', 4, r"mine\.cu:\d+: "
)
_add(
    "a binary .cu",
    {"mine.cu": b"\x7fELF\x02\x01\x01\x00\x00\xff\xfe" * 50, "pair.py": _CUDA_PAIR},
    ("pair.py",),
    2,
    r"mine\.cu",
)
_cuda(
    "kernel overloads",
    "void twice(",
    "__global__ void twice_kernel(double* out, const double* x, int n) {}\n\n"
    "void twice(",
    0,
    r"",
)
_cuda(
    "inline PTX",
    "    int i =",
    '    asm volatile("nanosleep.u32 1;");\n    int i =',
    3,
    r"mine\.cu:6: inline PTX \(asm\)",
)
_cuda("CUB", "#include <cstdio>", "#include <cub/cub.cuh>", 3, r"mine\.cu:2: CUB")
_cuda(
    "Thrust", "#include <cstdio>", "#include <thrust/sort.h>", 3, r"mine\.cu:2: Thrust"
)
_cuda("wmma", "#include <cstdio>", "#include <mma.h>", 3, r"mine\.cu:2: nvcuda::wmma")
_LAUNCH = "<<<(n + 127) / 128, 128, 0, stream>>>"
_cuda("a CUDA grid of zero", _LAUNCH, "<<<0, 128>>>", 1, r"mine\.cu|invalid|grid")
_cuda("a huge grid", _LAUNCH, "<<<dim3(1, 70000), 128>>>", 1, r"grid|65535")
_cuda("4096 threads a block", _LAUNCH, "<<<1, 4096>>>", 1, r"4096|1024|block")
_cuda("too much shared memory", _LAUNCH, "<<<3, 128, 1 << 20>>>", 1, r"shared memory")
_cuda(
    "a billion blocks",
    _LAUNCH,
    "<<<2000000000, 1024>>>",
    1,
    _ENDED_LATE,
    *_SOON,
)
_cuda(
    "a CUDA kernel that never ends",
    "    if (i < n) out[i]",
    "    volatile int stop = 0;\n    while (!stop) {\n    }\n    if (i < n) out[i]",
    1,
    _ENDED_LATE,
    *_SOON,
)
_cuda(
    "recursion without end in a kernel",
    "__global__ void",
    "__device__ int deeper(volatile int n) { return n + deeper(n + 1) * 2; }\n\n"
    "__global__ void",
    0,
    r"",
)
_cuda(
    "recursion that a kernel calls",
    "__global__ void twice_kernel(float* out, const float* x, int n) {\n",
    "__device__ int deeper(volatile int n) { return n + deeper(n + 1) * 2; }\n\n"
    "__global__ void twice_kernel(float* out, const float* x, int n) {\n"
    "    if (deeper(n) == 1) return;\n",
    1,
    r"mine\.cu|stack|SIGSEGV|signal 11",
)
_cuda(
    "a device-side assert",
    "    if (i < n)",
    "    assert(n < 0);\n    if (i < n)",
    1,
    r"assert.*mine\.cu:7",
)
_cuda(
    "__trap()",
    "    if (i < n)",
    "    if (i == 200) __trap();\n    if (i < n)",
    1,
    r"__trap|trap",
)
_cuda(
    "a null pointer in a kernel",
    "out[i] = 2 * x[i];",
    "*(float*)nullptr = x[i];",
    1,
    r"mine\.cu:7|out of bounds",
)
_cuda(
    "a flood of printf in a kernel",
    "    if (i < n)",
    '    for (int k = 0; k < 1000000; ++k) printf("flood %d\\n", k);\n    if (i < n)',
    1,
    r"of output|did not end|time limit",
    *_SOON,
)
_HOST = "    twice_kernel<<<"
_cuda(
    "division by zero on the host",
    _HOST,
    f"    n /= n - n;\n{_HOST}",
    1,
    r"SIGFPE|signal 8",
)
_cuda("abort()", _HOST, f"    abort();\n{_HOST}", 1, r"mine\.cu.*SIGABRT|signal 6")
_cuda(
    "std::terminate()",
    _HOST,
    f"    []() noexcept {{ throw 42; }}();\n{_HOST}",
    1,
    r"SIGABRT|signal 6|terminate",
)
_cuda(
    "an exception of the host",
    _HOST,
    f"    throw 42;\n{_HOST}",
    1,
    r"mine\.cu|exception|terminate",
)
_cuda("exit(0) on the host", _HOST, f"    exit(0);\n{_HOST}", 1, r"status 0|exit")
_cuda(
    "a host function that hangs",
    _HOST,
    f"    volatile int stop = 0;\n    while (!stop) {{\n    }}\n{_HOST}",
    1,
    r"did not end within 3 s",
    *_SOON,
)
_cuda(
    "a host function that frees its input",
    _HOST,
    f"    free((void*)x);\n{_HOST}",
    1,
    r"mine\.cu|SIGABRT|signal 6|SIGSEGV|out of bounds",
)
_cuda(
    "cudaFree of an input",
    _HOST,
    f"    cudaFree((void*)x);\n{_HOST}",
    0,
    r"",
)
_cuda(
    "cudaMalloc of 2^60",
    _HOST,
    "    float* more = nullptr;\n"
    "    if (cudaMalloc(&more, 1ull << 60) != cudaSuccess) return;\n"
    "    more[0] = 1;\n" + _HOST,
    1,
    r"(were not|were never) written",
)
_cuda(
    "a shell",
    _HOST,
    f'    system("sleep 1000000");\n{_HOST}',
    1,
    r"did not end within 3 s|processes",
    *_SOON,
)

# ---- KernelBench ---------------------------------------------------------------------

_PROBLEM = """\
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return 2 * x


def get_inputs():
    return [torch.randn(30, 10)]


def get_init_inputs():
    return []
"""
_SOLUTION = """\
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

module = load_inline(name="m", cpp_sources="", cuda_sources="", functions=[])


class ModelNew(nn.Module):
    def forward(self, x):
        return module.twice(x)
"""
_add(
    "load_inline of nothing",
    {"problem.py": _PROBLEM, "solution.py": _SOLUTION},
    ("problem.py", "solution.py"),
    3,  # a binding of another kind than those that are read looks the same
    r"solution\.py:4: load_inline binds no function by its name",
)
_add(
    "load_inline of a text made at run time",
    {
        "problem.py": _PROBLEM,
        "solution.py": _edited(
            _SOLUTION, 'cuda_sources=""', "cuda_sources=open('k.cu').read()"
        ),
    },
    ("problem.py", "solution.py"),
    3,
    r"solution\.py:4: load_inline",
)
_add(
    "a problem without inputs",
    {
        "problem.py": _edited(_PROBLEM, "def get_inputs", "def get_nothing"),
        "solution.py": _SOLUTION,
    },
    ("problem.py", "solution.py"),
    2,
    r"solution\.py.*give its problem first.*get_inputs",
)
_add(
    "a Model that raises",
    {
        "problem.py": _edited(_PROBLEM, "return 2 * x", "return self.weight * x"),
        "solution.py": "from problem import Model\n\n\n"
        "class ModelNew(Model):\n    pass\n",
    },
    ("problem.py", "solution.py"),
    1,
    r"problem\.py:7: AttributeError",
)
_add(
    "a gpu-mode folder without task.yml",
    {
        "folder/reference.py": "def ref_kernel(data):\n    return data\n",
        "folder/submission.py": "def custom_kernel(data):\n    return data\n",
    },
    ("folder",),
    2,
    r"task\.yml",
)
