"""The Triton side of a pair: Python functions of anybody's that launch kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from common import needs_interpreter
from torch import Tensor

from compare.code.architectures import ARCHITECTURES
from compare.code.kernel_code import KernelCode
from compare.errors import BuildFailedError, CodegenUnavailable, UsageError
from compare.judge.parity import Skipped
from compare.pairs import python_file, sandbox, triton_side
from compare.pairs.calls import Call, Outcome
from compare.pairs.sandbox import ForeignCodeError
from compare.pairs.triton_side import TritonCode

pytestmark = needs_interpreter

HOPPER = ARCHITECTURES[90]
HEADER = """import torch
import triton
import triton.language as tl
"""
DOUBLE = """
@triton.jit
def double_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n)
    tl.store(out_ptr + i, x * 2, mask=i < n)
"""
LAUNCH = """
def double(x):
    out = torch.empty_like(x)
    double_kernel[(triton.cdiv(x.numel(), 64),)](x, out, x.numel(), BLOCK=64)
    return out
"""
X = torch.arange(100.0)


@pytest.fixture
def file(tmp_path: Path) -> Callable[..., Path]:
    """Writes a user's file."""

    def write(*parts: str) -> Path:
        path = tmp_path / "mine.py"
        path.write_text("".join((HEADER, *parts)))
        return path

    return write


def line_of(path: Path, text: str) -> str:
    """Where a text is in a user's file, as messages say it."""
    lines = path.read_text().splitlines()
    (number,) = [i for i, line in enumerate(lines, 1) if text in line]
    return f"{path.name}:{number}"


def ask(
    path: Path, function: str, calls: Sequence[Call], *written: int
) -> list[Outcome] | Skipped:
    return triton_side.run(caller(path, function), calls, [path], written=written)


def inspect(path: Path, function: str, *inputs: Any, number: int = 0) -> TritonCode:
    return triton_side.code(
        caller(path, function), inputs, HOPPER, number=number, files=[path]
    )


def caller(path: Path, function: str) -> dict[str, str]:
    return {"style": "file", "path": str(path.resolve()), "function": function}


def run(path: Path, function: str, *inputs: Any, **options: Any) -> Outcome:
    outcomes = ask(path, function, [Call("as given", inputs, **options)])
    assert isinstance(outcomes, list), outcomes
    return outcomes[0]


def output(path: Path, function: str, *inputs: Any, **options: Any) -> Tensor:
    outcome = run(path, function, *inputs, **options)
    assert not outcome.problem + outcome.refusal
    (result,) = outcome.outputs
    return result


def code(path: Path, function: str, *inputs: Any, number: int = 0) -> KernelCode:
    found = inspect(path, function, *inputs, number=number)
    assert isinstance(found.code, KernelCode), found.code
    return found.code


# ---- The interpreter -----------------------------------------------------------------


@pytest.mark.parametrize(("kind", "n_workers"), [("exited", 2), ("memory", 1)])
def test_calls_that_end_their_worker(
    kind: str, n_workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    workers = []

    def run(*_: Any, **__: Any) -> None:
        workers.append(kind)
        error = ForeignCodeError("mine.py: it ended", kind)
        error.parts = [None]  # the file has been imported
        raise error

    monkeypatch.setattr(sandbox, "run", run)
    outcomes = ask(Path("mine.py"), "double", [Call("as given", (X,))] * 5)
    assert isinstance(outcomes, list)
    assert all("mine.py: it ended" in each.problem for each in outcomes)
    assert (len(outcomes), len(workers)) == (5, n_workers)


def test_layouts_and_orders(file: Callable[..., Path]) -> None:
    x = torch.randn(6, 40)
    path = file(DOUBLE, LAUNCH.replace("    out", "    x = x.contiguous()\n    out", 1))
    layouts = ("contiguous", "transposed", "sliced", "offset")
    calls = [
        Call(f"{layout}, {order}", (x,), layout, order)
        for layout in layouts
        for order in ("forward", "reverse")
    ]
    outcomes = ask(path, "double", calls)
    assert isinstance(outcomes, list)
    for outcome in outcomes:
        torch.testing.assert_close(outcome.outputs[0], 2 * x)


def test_programs_in_reverse(file: Callable[..., Path]) -> None:
    path = file(
        """
@triton.jit
def last_kernel(out_ptr):
    tl.store(out_ptr, tl.program_id(0) * 10 + tl.program_id(1))

def last():
    out = torch.empty(1, dtype=torch.int32)
    last_kernel[(3, 4)](out)
    return out
"""
    )
    forward, reverse = (Call("", (), order=order) for order in ("forward", "reverse"))
    outcomes = ask(path, "last", [forward, reverse])
    assert isinstance(outcomes, list)
    assert [each.outputs[0].item() for each in outcomes] == [23, 0]


AUTOTUNED = """
@triton.autotune(
    configs=[triton.Config({"BLOCK": b}, num_warps=w) for b, w in CONFIGS],
    key=["n"],
    reset_to_zero=["out_ptr"],
)
@triton.heuristics({"TWICE": lambda args: args["n"] > 10})
@triton.jit
def scale_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr, TWICE: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n)
    tl.store(out_ptr + i, x * 2 if TWICE else x, mask=i < n)

def double(x):
    out = torch.zeros(x.shape, device=x.device)
    grid = lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)
    scale_kernel[grid](x, out, x.numel())
    return out
"""


def test_an_autotuned_kernel(file: Callable[..., Path]) -> None:
    path = file("CONFIGS = [(2**23, 4), (64, 2), (128, 4)]\n", AUTOTUNED)
    found = inspect(path, "double", X)
    assert isinstance(found.code, Skipped)  # of the first a block has too many elements
    path = file("CONFIGS = [(64, 2), (128, 4), (256, 8)]\n", AUTOTUNED)
    torch.testing.assert_close(output(path, "double", X), 2 * X)
    found = inspect(path, "double", X)
    assert isinstance(found.code, KernelCode)
    assert found.code.launch.grid == (2, 1, 1)
    assert "BLOCK=64, TWICE=True" in found.code.title
    assert found.configurations
    assert [row[0].partition(",")[0] for row in found.configurations.rows] == [
        "BLOCK: 64",
        "BLOCK: 128",
        "BLOCK: 256",
    ]
    assert all(int(row[1]) > 0 for row in found.configurations.rows)
    assert found.configurations.rows[0][4].endswith("%")


def test_two_kernels_in_a_call(file: Callable[..., Path]) -> None:
    twice = """
def quadruple(x):
    assert x.is_cuda and x.device.type == "cuda" and torch.cuda.is_available()
    y = torch.empty(x.shape, device="cuda", dtype=x.dtype)
    out = x.new_empty(x.shape)
    double_kernel[(2,)](x, y, x.numel(), BLOCK=64)
    double_kernel[(1,)](y, out, x.numel(), BLOCK=128)
    torch.cuda.synchronize()
    return out.to("cuda").cuda()
"""
    path = file(DOUBLE, twice)
    torch.testing.assert_close(output(path, "quadruple", X), 4 * X)
    second = code(path, "quadruple", X, number=1)
    assert [each.partition("[")[0] for each in second.kernels] == ["double_kernel"] * 2
    assert (second.language, second.elements) == ("triton", 100)
    assert second.launch.grid == (1, 1, 1)
    assert "BLOCK=128" in second.title
    assert [each.name for each in second.launch.tensors] == ["x_ptr", "out_ptr"]
    stores = [each for each in second.simulation.accesses if each.is_store]
    assert {each.argument for each in stores} == {"out_ptr"}
    assert sum(each.bytes for each in stores) == 400
    missing = inspect(path, "quadruple", X, number=2).code
    assert missing == Skipped("mine.py launches 2 kernels")


def test_the_device_of_a_module(file: Callable[..., Path]) -> None:
    path = file(
        """
DEVICE = triton.runtime.driver.active.get_active_torch_device()
SMS = torch.cuda.get_device_properties(DEVICE).multi_processor_count
PROPERTIES = triton.runtime.driver.active.utils.get_device_properties(DEVICE.index)
""",
        DOUBLE,
        """
def double(x):
    assert x.device == DEVICE
    out = torch.empty(x.shape, device=DEVICE)
    with torch.cuda.device(x.device):
        grid = (min(SMS, PROPERTIES["multiprocessor_count"]),)
        double_kernel[grid](x, out, x.numel(), BLOCK=64)
    return out
""",
    )
    torch.testing.assert_close(output(path, "double", X), 2 * X)
    assert code(path, "double", X).launch.grid == (132, 1, 1)


BANK = """
@triton.jit
def sum_kernel(x_ptr, out_ptr, BLOCK: tl.constexpr):
    tl.store(out_ptr, tl.sum(tl.load(x_ptr + tl.arange(0, BLOCK)), axis=0))

def without_mask(x):
    out = torch.empty(1)
    sum_kernel[(1,)](x, out, BLOCK=128)
    return out

def half(x):
    out = torch.empty_like(x)
    double_kernel[(1,)](x, out, x.numel(), BLOCK=64)
    return out

@triton.jit
def shifted_kernel(x_ptr, out_ptr, n, SHIFT: tl.constexpr):
    i = tl.arange(0, 128)
    tl.store(out_ptr + i + SHIFT, tl.load(x_ptr + i, mask=i < n), mask=i < n)

def too_far(x):
    out = torch.zeros(100)
    shifted_kernel[(1,)](x, out, 100, SHIFT=3)  # the launch too far
    return out

def too_near(x):
    shifted_kernel[(1,)](x, x, 100, SHIFT=-3)  # the launch too near

def asserts(x):
    assert x.dim() == 2, "wants a matrix"

@triton.jit
def asserting_kernel(x_ptr, n):
    tl.device_assert(n < 64, "too many")

def asserts_in_kernel(x):
    asserting_kernel[(1,)](x, x.numel())

@triton.jit
def naming_kernel(x_ptr):
    tl.store(x_ptr, no_such_name)

def names_in_kernel(x):
    naming_kernel[(1,)](x)

def returns_none(x):  # which
    pass

def returns_text(x):  # too
    return "text"
"""
DISPATCH = "\ndef call(name, *inputs): return globals()[name](*inputs)\n"
NAN = float("nan")


def test_what_functions_get_wrong(file: Callable[..., Path]) -> None:
    path = file(DOUBLE, BANK, DISPATCH)
    far, near = line_of(path, "# the launch too far"), line_of(path, "launch too near")
    allocated, dispatch = line_of(path, "torch.zeros(100)"), line_of(path, "def call(")
    wrote = "shifted_kernel wrote out of bounds: up to 12 bytes"
    expected: dict[str, str | Outcome] = {
        "without_mask": Outcome((torch.tensor([NAN]),)),
        "half": Outcome((torch.cat([2 * X[:64], torch.full((36,), NAN)]),)),
        "too_far": f"{far}: {wrote} past the end of the tensor that {allocated} "
        "allocates",
        "too_near": f"{near}: {wrote} before the start of inputs[0]",
        "asserts": Outcome(
            refusal=f"{line_of(path, 'x.dim() == 2')}: AssertionError: wants a matrix"
        ),
        "asserts_in_kernel": f"{line_of(path, 'n < 64')}: AssertionError: too many",
        "names_in_kernel": f"{line_of(path, 'tl.store(x_ptr, no')}: NameError: name "
        "'no_such_name' is not defined",
        "returns_none": f"{dispatch}: returned None, and changed no input",
        "returns_text": f"{dispatch}: returned a str, which is no tensor",
    }
    calls = [Call(name, (name, X)) for name in expected]
    outcomes = ask(path, "call", calls)
    assert isinstance(outcomes, list)
    for outcome, wanted in zip(outcomes, expected.values(), strict=True):
        if isinstance(wanted, str):
            assert outcome == Outcome(problem=wanted)
        else:
            assert outcome.refusal == wanted.refusal
            for result, right in zip(outcome.outputs, wanted.outputs, strict=True):
                torch.testing.assert_close(result, right, equal_nan=True)


OUT = """
def double(out, x, returns):
    double_kernel[(2,)](x, out, x.numel(), BLOCK=64)
    return {"None": None, "out": out, "other": x + 1}[returns]
"""


def test_a_parameter_for_the_output(file: Callable[..., Path]) -> None:
    path = file(DOUBLE, OUT)
    calls = [
        Call(each, (torch.zeros(100), X, each)) for each in ("None", "out", "other")
    ]
    outcomes = ask(path, "double", calls)
    assert isinstance(outcomes, list)
    for each in outcomes[:2]:
        torch.testing.assert_close(each.outputs[0], 2 * X)
    assert outcomes[2].problem == "mine.py:11: input out was written to"
    assert outcomes[2].writes_to_input


def test_a_crash_costs_one_call(file: Callable[..., Path]) -> None:
    path = file(
        "import os\n",
        DOUBLE,
        LAUNCH.replace("    out", "    if x[0] == 1: os.abort()\n    out", 1),
    )
    calls = [Call(f"{i}", (X + i,)) for i in range(3)]
    outcomes = ask(path, "double", calls)
    assert isinstance(outcomes, list)
    for i in (0, 2):
        torch.testing.assert_close(outcomes[i].outputs[0], 2 * (X + i))
    assert outcomes[1].problem.startswith(line_of(path, "os.abort()"))
    assert "SIGABRT" in outcomes[1].problem


@pytest.mark.parametrize("host", [False, True])
def test_descriptors(host: bool, file: Callable[..., Path]) -> None:
    made = "tl.make_tensor_descriptor({0}, [M, N], [N, 1], [16, 32])"
    kernel = f"""
@triton.jit
def copy_kernel(out, x, M, N):
    i, j = tl.program_id(0) * 16, tl.program_id(1) * 32
    out_tiles = {"out" if host else made.format("out")}
    x_tiles = {"x" if host else made.format("x")}
    out_tiles.store([i, j], x_tiles.load([i, j]))
"""
    describe = "TensorDescriptor.from_tensor({0}, [16, 32])" if host else "{0}"
    path = file(
        "from triton.tools.tensor_descriptor import TensorDescriptor\n",
        kernel,
        f"""
def copy(x):
    out = torch.empty_like(x)
    triton.set_allocator(lambda size, align, stream: torch.empty(size, device="cuda"))
    M, N = x.shape
    grid = (triton.cdiv(M, 16), triton.cdiv(N, 32))
    copy_kernel[grid]({describe.format("out")}, {describe.format("x")}, M, N)
    return out
""",
    )
    x = torch.randn(40, 68)
    torch.testing.assert_close(output(path, "copy", x), x)
    for architecture in (ARCHITECTURES[80], HOPPER):  # without and with tensor maps
        found = triton_side.code(caller(path, "copy"), (x,), architecture, files=[path])
        assert isinstance(found.code, KernelCode), found.code
        assert len(found.code.simulation.accesses) > 0
        assert found.code.elements == x.numel()


def test_what_the_interpreter_cannot_do(file: Callable[..., Path]) -> None:
    path = file(DOUBLE, LAUNCH)
    refused = ask(path, "double", [Call("", (X.bfloat16(),))])
    assert isinstance(refused, Skipped)
    assert "bfloat16" in refused.reason
    path = file(DOUBLE, LAUNCH.replace("empty_like(x)", "empty(100).bfloat16()"))
    refused = ask(path, "double", [Call("", (X,))])
    assert isinstance(refused, Skipped)
    assert refused.reason.startswith(line_of(path, "double_kernel["))
    path = file(
        "from triton.experimental import gluon\n",
        DOUBLE.replace("triton.jit", "gluon.jit"),
        LAUNCH,
    )
    refused = ask(path, "double", [Call("", (X,))])
    assert isinstance(refused, Skipped)
    assert "Gluon" in refused.reason


def test_what_needs_a_gpu(file: Callable[..., Path]) -> None:
    path = file("def timed(x):\n    return torch.cuda.Event(enable_timing=True)\n")
    expected = Skipped("mine.py:5: needs a GPU: torch.cuda.Event")
    assert ask(path, "timed", [Call("", (X,))]) == expected
    assert inspect(path, "timed", X).code == expected


def test_a_file_that_cannot_be_imported(file: Callable[..., Path]) -> None:
    path = file("1 / 0\n")
    with pytest.raises(ForeignCodeError, match=r"^mine\.py:4: ZeroDivisionError"):
        ask(path, "double", [Call("", (X,))])
    with pytest.raises(UsageError, match=r"mine\.py has no function 'double'"):
        ask(file(), "double", [Call("", (X,))])


# ---- The code ------------------------------------------------------------------------


def test_code_that_depends_on_data(file: Callable[..., Path]) -> None:
    path = file(DOUBLE, LAUNCH.replace("    out", "    n = x.max().item()\n    out", 1))
    skipped = inspect(path, "double", X).code
    assert isinstance(skipped, Skipped)
    assert skipped.reason.startswith(
        f"without the data of its inputs: {line_of(path, '.item()')}: RuntimeError"
    )


def test_code_that_triton_refuses(file: Callable[..., Path]) -> None:
    path = file(DOUBLE.replace("x * 2", "x * tl.zeros([3], tl.float32)"), LAUNCH)
    skipped = inspect(path, "double", X).code
    assert isinstance(skipped, Skipped)
    place = line_of(path, "tl.zeros([3]")
    assert skipped.reason.startswith(f"{place}: Triton cannot compile it: ")


def test_code_that_works_in_place(file: Callable[..., Path]) -> None:
    path = file(
        DOUBLE, "def double(x):\n    double_kernel[(2,)](x, x.view(-1), 100, 64)\n"
    )
    (tensor,) = code(path, "double", X).launch.tensors
    assert (tensor.name, tensor.bytes) == ("x_ptr", 400)


# ---- The text of a file --------------------------------------------------------------


def test_the_entry_points_of_a_file(file: Callable[..., Path]) -> None:
    path = file(
        DOUBLE,
        """
@triton.autotune(configs=[], key=[])
@triton.jit
def tuned_kernel(x_ptr): pass

def _launch(x, out):
    kernel = double_kernel if x.is_cuda else tuned_kernel
    kernel[(1,)](x, out, 1, 64)

class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        _launch(x, x)

def double(x, scale=1.0): return Double.apply(x)
def helper(x): return x
def test_double(x): double(x)
@triton.testing.perf_report([])
def measure(n): double(n)
def main(): double(1)
apply = Double.apply
""",
    )
    found = {each.name: each for each in python_file.entry_points(path)}
    assert {name: each.parameters for name, each in found.items()} == {
        "double": ("x", "scale"),
        "apply": ("x",),
    }
    functions = {each.name: each for each in python_file.functions(path)}
    assert [n for n, each in functions.items() if each.is_kernel] == [
        "double_kernel",
        "tuned_kernel",
    ]
    assert functions["_launch"].launches == ("double_kernel", "tuned_kernel")
    assert found["double"].calls == ("Double",)
    assert python_file.has_kernels(path)
    assert not python_file.has_kernels(file("def f(x): return x\n"))


def test_a_file_that_is_no_python(file: Callable[..., Path]) -> None:
    with pytest.raises(BuildFailedError, match=r"^mine\.py:4: SyntaxError: "):
        python_file.functions(file("def (\n"))


def test_code_needs_a_cache_folder(
    file: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null")
    with pytest.raises(CodegenUnavailable, match=r"cache folder .* cannot be made"):
        inspect(file(DOUBLE, LAUNCH), "double", X)
