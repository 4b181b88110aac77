"""The process of the interpreter: the arguments that cross over, and failures."""

import importlib.metadata
import importlib.util
import inspect
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from common import needs_interpreter

import bindings
from bindings import backends
from bindings.backends import interpreter
from bindings.errors import UnsupportedError
from bindings.registry import OPS
from bindings.sources import ROOT

pytest.importorskip("triton")
pytestmark = needs_interpreter

PACKAGE = "faulty_kernels"

HEADER = """
import os, time
import torch
import triton
import triton.language as tl

@triton.jit
def store_kernel(ptr, offset, value):
    tl.store(ptr + offset, value)
"""

LAUNCHERS = {
    "store_at": "def store_at(out, x, offset): store_kernel[(1,)](out, offset, 7.0)",
    "store_in_input": "def store_in_input(out, x): store_kernel[(1,)](x, 0, 7.0)",
    "read_past_end": """
@triton.jit
def read_kernel(out_ptr, x_ptr, n):
    tl.store(out_ptr, tl.load(x_ptr + n))

def read_past_end(out, x): read_kernel[(1,)](out, x, x.numel())
""",
    "alignment": """
def alignment(out, x):
    out[0], out[1] = out.data_ptr() % 64, x.data_ptr() % 64
""",
    "raises": """
@triton.jit
def raising_kernel(ptr):
    tl.store(ptr, no_such_name)

def raises(out): raising_kernel[(1,)](out)
""",
    "never_ends": """
def never_ends(out):
    while True: time.sleep(0.01)
""",
    "prints": "def prints(out): print('from the worker', flush=True)",
    "square": """
@triton.jit
def square_kernel(out_ptr, x):
    tl.store(out_ptr, x * x)

def square(out, x): square_kernel[(1,)](out, x)
""",
    "process_id": "def process_id(out): out[0] = os.getpid()",
}


@pytest.fixture(scope="module", autouse=True)
def kernels(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A package of launchers, and a worker that can import it."""
    root = tmp_path_factory.mktemp("with space")
    folder = root / PACKAGE
    folder.mkdir()
    (folder / "__init__.py").touch()
    for name, text in LAUNCHERS.items():
        (folder / f"{name}.py").write_text(f"{HEADER}\n{text}\n")
    sys.path.append(str(root))
    interpreter._stop_worker()
    yield root
    sys.path.remove(str(root))
    interpreter._stop_worker()


def run(launcher: str, *arguments: torch.Tensor | int) -> None:
    interpreter.run(launcher, arguments, package=PACKAGE)


def worker_process_id() -> int:
    out = torch.zeros(1, dtype=torch.int64)
    run("process_id", out)
    return int(out)


# The first, when there is no worker to be stopped.
def test_wild_store_ends_the_worker_and_the_next_call_starts_another(
    capfd: pytest.CaptureFixture[str],
) -> None:
    interpreter._stop_worker()  # so that the next one writes to what is captured
    run("prints", torch.zeros(1))
    captured = capfd.readouterr()
    assert captured.out == ""
    assert "from the worker" in captured.err
    with pytest.raises(
        RuntimeError, match=r"store_at: .* SIGSEGV: the kernel accessed"
    ):
        run("store_at", torch.zeros(4), torch.zeros(4), 1 << 40)
    assert "in store_kernel" in capfd.readouterr().err
    assert worker_process_id() > 0


@pytest.mark.parametrize("element", [torch.float32, torch.float16])
def test_views_of_any_strides_cross_over(element: torch.dtype) -> None:
    x = torch.randn(6, 1, 40).to(element)[::2, :, 3:34].expand(3, 5, 31)
    y = torch.randn(31, 5).to(element).T
    torch.testing.assert_close(bindings.add(x, y, backend="triton"), x + y)


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_every_8_bit_float_crosses_over(dtype: torch.dtype) -> None:
    x = torch.arange(256, dtype=torch.uint8).view(dtype)[:, None]
    ones, one = torch.ones(1, 9).to(torch.float8_e4m3fn), torch.ones(())
    out = torch.empty(256, 9)
    op = OPS["scaled_matmul"].on_rung("first")
    backends.run("triton", op, out, x, ones, one, one, torch.float32)
    expected = x.float().expand(256, 9)
    torch.testing.assert_close(out, expected, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("offset", [0, 1, 4, 15, 17])
def test_alignment_is_kept(offset: int) -> None:
    out, x = torch.zeros(2), torch.zeros(64)[offset:]
    expected = [out.data_ptr() % 64, x.data_ptr() % 64]
    run("alignment", out, x)
    assert out.tolist() == expected


def test_what_the_kernel_changed_is_changed_here_and_nothing_else() -> None:
    memory = torch.zeros(12)
    # Both arguments see the same memory, and the old contents of one must not undo
    # what was written through the other.
    run("store_in_input", memory[2:10], memory[4:8])
    assert memory.nonzero().flatten().tolist() == [4]


def test_empty_tensors_cross_over() -> None:
    out = torch.zeros(4)
    run("store_at", out, torch.empty(0, 3), 2)
    assert out.tolist() == [0, 0, 7, 0]


@pytest.mark.parametrize(
    ("offset", "place"),
    [
        (5, "4 bytes past the end of tensor 0"),
        (-1, "4 bytes before the start of tensor 0"),
    ],
)
def test_store_just_out_of_bounds_is_reported(offset: int, place: str) -> None:
    worker = worker_process_id()
    memory = torch.zeros(16)
    with pytest.raises(RuntimeError, match=f"store_at: .* out of bounds, {place}"):
        run("store_at", memory[4:8], torch.zeros(3), offset)
    assert not memory.any()
    assert worker_process_id() == worker


def test_read_out_of_bounds_is_nan() -> None:
    out = torch.zeros(1)
    run("read_past_end", out, torch.zeros(5))
    assert out.isnan()


def test_worker_killed_between_calls_is_replaced() -> None:
    worker = worker_process_id()
    os.kill(worker, signal.SIGKILL)
    os.waitid(os.P_PID, worker, os.WEXITED | os.WNOWAIT)
    assert worker_process_id() != worker


def test_exception_in_a_kernel_comes_back_with_its_traceback() -> None:
    with pytest.raises(RuntimeError) as error:
        run("raises", torch.zeros(1))
    text = str(error.value)
    assert text.startswith("raises: NameError: ")
    assert "raises.py" in text
    assert "tl.store(ptr, no_such_name)" in text
    assert worker_process_id() > 0


def test_integer_that_does_not_fit_its_type_is_an_error() -> None:
    out = torch.zeros(1, dtype=torch.int64)
    run("square", out, 46340)
    assert out.item() == 46340**2
    with pytest.raises(RuntimeError, match="int32 overflow detected for operation mul"):
        run("square", out, 46341)


def test_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    worker = worker_process_id()
    monkeypatch.setenv("TWIN_INTERPRETER_TIMEOUT", "0.3")
    with pytest.raises(TimeoutError, match=r"never_ends: .* after 0\.3 s"):
        run("never_ends", torch.zeros(1))
    monkeypatch.delenv("TWIN_INTERPRETER_TIMEOUT")
    assert worker_process_id() != worker


@pytest.mark.parametrize("text", ["soon", "-1", "inf"])
def test_timeout_must_be_a_number(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("TWIN_INTERPRETER_TIMEOUT", text)
    with pytest.raises(ValueError, match="expected a number of seconds"):
        run("process_id", torch.zeros(1))


def test_threads_take_turns() -> None:
    x = torch.randn(8, 33)
    sums = torch.zeros(8, 33)

    def call(i: int) -> None:
        for _ in range(5):
            sums[i] = bindings.add(x[i], x[0], backend="triton")

    threads = [threading.Thread(target=call, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert torch.equal(sums, x + x[0])


def test_this_process_still_compiles() -> None:
    from triton.runtime.jit import JITFunction

    from triton_kernels.add.twin import add_kernel

    bindings.add(torch.zeros(1), torch.zeros(1), backend="triton")
    assert "TRITON_INTERPRET" not in os.environ
    assert isinstance(add_kernel, JITFunction)


def test_triton_replaces_its_language_for_a_function_by_one_of_its_own() -> None:
    # The worker has Triton replace it once for each function, and takes the place of
    # this function of Triton's for that.
    from triton.runtime import interpreter as triton_interpreter

    parameters = inspect.signature(triton_interpreter._patch_lang).parameters
    assert list(parameters) == ["fn"]
    x = torch.randn(3, 70000)
    for _ in range(2):
        for op in (bindings.layer_norm, bindings.rms_norm, bindings.layer_norm):
            out, expected = op(x, backend="triton"), op(x, backend="torch")
            assert torch.allclose(out, expected, atol=1e-5)


def test_what_is_looked_up_is_what_triton_makes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import triton.language as tl
    from triton.language.semantic import TritonSemantic
    from triton.runtime import interpreter as triton_interpreter

    from bindings.backends.interpreter_worker import make_shapes_once

    shapes = [[1], [64], [1, 64], [64, 1], [8, 64], [2, 4, 64]]
    numbers = [tl.int1, tl.int32, tl.uint8, tl.float16, tl.bfloat16, tl.float64]
    scalars = [*numbers, tl.pointer_type(tl.float32), tl.pointer_type(tl.int64)]

    def facts(made: object) -> dict[str, str]:
        return {name: f"{type(each)} {each}" for name, each in vars(made).items()}

    def found() -> list[object]:
        blocks = [
            tl.block_type(scalar, shape)
            for scalar in scalars
            for numbers in shapes
            for shape in (numbers, tl.tuple([tl.constexpr(each) for each in numbers]))
        ]
        tensors = [tl.tensor("its data", each) for each in (*blocks, *scalars)]
        numpy_types = [
            triton_interpreter._get_np_dtype(each) for each in (*blocks, *scalars)
        ]
        return [list(map(facts, blocks)), list(map(facts, tensors)), numpy_types]

    def broadcast() -> list[object]:
        data = triton_interpreter.TensorHandle(np.zeros(1, np.int32), tl.int32)
        blocks = [tl.block_type(tl.int32, each) for each in ([1], [64], [8, 1], [8, 4])]
        alike = [tl.tensor(data, each) for each in (tl.int32, *blocks)]
        pairs = [(each, tl.tensor(data, each.type)) for each in alike]
        semantic = triton_interpreter.interpreter_semantic
        assert all(semantic.broadcast_impl_value(*pair) == pair for pair in pairs)
        unlike = [tl.tensor(data, tl.int32), tl.tensor(data, blocks[1])]
        orders = (unlike, unlike[::-1])
        results = [semantic.broadcast_impl_value(*pair) for pair in orders]
        return [facts(each.type) for pair in results for each in pair]

    expected = found(), broadcast()
    for owner, name in (
        (tl.block_type, "__init__"),
        (tl.tensor, "__init__"),
        (TritonSemantic, "broadcast_impl_value"),
        (triton_interpreter, "_get_np_dtype"),
    ):
        monkeypatch.setattr(owner, name, getattr(owner, name))
    make_shapes_once()
    for _ in range(2):  # made the first time, then looked up
        assert (found(), broadcast()) == expected


REDUCTIONS = """
import torch
import triton
import triton.language as tl
from bindings.backends.interpreter_worker import reduce_in_pairs

@triton.jit
def add_both(a, b, c, d): return a + c, b + d

@triton.jit
def larger(value, index, other, other_index):
    is_other = other > value
    return tl.where(is_other, other, value), tl.where(is_other, other_index, index)

@triton.jit
def last(a, b): return b

@triton.jit
def branching(a, b):
    if a > b:
        return a
    return b

@triton.jit
def kernel(out_ptr, x_ptr, N: tl.constexpr):
    rows, cols = tl.arange(0, 8)[:, None], tl.arange(0, N)[None, :]
    x = tl.load(x_ptr + rows * N + cols)
    index = (rows * N + cols).to(tl.int32)
    for axis in tl.static_range(2):
        size: tl.constexpr = N if axis == 0 else 8
        places = out_ptr + axis * 6 * 64 + tl.arange(0, size)
        one, two = tl.reduce((x, x * x), axis, add_both)
        tl.store(places, one)
        tl.store(places + 64, two)
        value, where = tl.reduce((x, index), axis, larger)
        tl.store(places + 128, value)
        tl.store(places + 192, where.to(tl.float32))
        tl.store(places + 256, tl.reduce(x, axis, last))
        tl.store(places + 320, tl.reduce(x, axis, branching))
    whole = tl.reduce(x, None, last, keep_dims=True)
    tl.store(out_ptr + 768 + tl.arange(0, 1)[None, :], whole)

generator = torch.Generator().manual_seed(0)
x = torch.randint(-9, 9, (8, 64), generator=generator).float()
for prepare in (lambda: None, reduce_in_pairs):
    prepare()
    out = torch.zeros(769)
    kernel[(1,)](out, x, N=64)
    print(out.tolist())
"""


def test_reductions_in_pairs_are_those_of_triton(tmp_path: Path) -> None:
    script = tmp_path / "reductions.py"
    script.write_text(REDUCTIONS)
    printed = subprocess.run(
        [sys.executable, str(script)],
        cwd=ROOT,
        env=os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    one_by_one, in_pairs = printed.splitlines()
    assert one_by_one == in_pairs
    assert len(set(eval(one_by_one))) > 20


@pytest.mark.parametrize(
    ("dtype", "name", "values", "overflows"),
    [
        ("int32", "add", (2**31 - 2, 1), False),
        ("int32", "add", (2**31 - 1, 1), True),
        ("int32", "sub", (-(2**31) + 1, 1), False),
        ("int32", "sub", (-(2**31), 1), True),
        ("int32", "mul", (65535, 32768), False),
        ("int32", "mul", (65536, 32768), True),
        ("int32", "mul", (-65536, 32768), False),
        ("uint32", "sub", (1, 2), True),
        ("uint32", "mul", (65536, 65535), False),
        ("int8", "add", (127, 1), True),
        ("int16", "add", (127, 1), False),
        ("int64", "add", (2**63 - 1, 1), False),  # Triton does not look at these
    ],
)
def test_overflows_are_those_of_triton(
    monkeypatch: pytest.MonkeyPatch,
    dtype: str,
    name: str,
    values: tuple[int, int],
    overflows: bool,
) -> None:
    import triton.language as tl
    from triton.language.semantic import TritonSemantic
    from triton.runtime import interpreter as triton_interpreter

    from bindings.backends.interpreter_worker import raise_on_overflow

    scalar = getattr(tl, dtype)
    semantic = triton_interpreter.interpreter_semantic
    builder = triton_interpreter.interpreter_builder
    debugging = replace(builder.options, debug=True)
    monkeypatch.setattr(builder, "options", debugging)
    check = "binary_op_sanitize_overflow_impl"

    def said() -> str:
        tensors = []
        for value in values:
            data = np.array([0, value], scalar.name)
            handle = triton_interpreter.TensorHandle(data, scalar)
            tensors.append(tl.tensor(handle, tl.block_type(scalar, [2])))
        try:
            getattr(semantic, check)(*tensors, getattr(semantic, name))
        except AssertionError as error:
            return str(error)
        return ""

    expected = said()
    assert bool(expected) == overflows
    monkeypatch.setattr(TritonSemantic, check, getattr(TritonSemantic, check))
    raise_on_overflow()
    assert said() == expected
    assert builder.options == debugging


def test_forked_process_has_a_worker_of_its_own_that_ends_with_it(
    kernels: Path,
) -> None:
    """The parent ends in the middle of a kernel."""
    script = f"""
import os, sys, torch
sys.path.append({str(kernels)!r})
from bindings.backends import interpreter
out = torch.zeros(1, dtype=torch.int64)
def worker():
    interpreter.run("process_id", (out,), package={PACKAGE!r})
    return int(out)
before = worker()
if (child := os.fork()) == 0:
    os._exit(0 if worker() != before else 1)
assert os.waitpid(child, 0)[1] == 0
assert worker() == before
print(before, flush=True)
interpreter.run("never_ends", (out,), package={PACKAGE!r})
"""
    parent = subprocess.Popen(
        [sys.executable, "-c", script], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    with parent:
        assert parent.stdout
        worker = int(parent.stdout.readline())
        parent.kill()
    deadline = time.monotonic() + 10
    while _is_running(worker):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def _is_running(process_id: int) -> bool:
    try:
        status = Path(f"/proc/{process_id}/stat").read_text()
    except FileNotFoundError:
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


def test_bfloat16_is_refused() -> None:
    x = torch.zeros(3, dtype=torch.bfloat16)
    with pytest.raises(UnsupportedError, match=r"add: .*bfloat16.* use float32"):
        interpreter.run("add", (torch.empty_like(x), x, x))


def test_triton_3_6_under_numpy_2_4_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    versions = {"triton": "3.6.0", "numpy": "2.4.1"}
    monkeypatch.setattr(importlib.metadata, "version", versions.__getitem__)
    interpreter._unsupported_environment.cache_clear()
    try:
        with pytest.raises(UnsupportedError, match=r"3\.6\.0 .* numpy 2\.4\.1: .*pip"):
            bindings.add(torch.zeros(1), torch.zeros(1), backend="triton")
    finally:
        interpreter._unsupported_environment.cache_clear()


def test_missing_triton_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    interpreter._unsupported_environment.cache_clear()
    try:
        with pytest.raises(UnsupportedError, match="triton is not installed"):
            run("process_id", torch.zeros(1))
    finally:
        interpreter._unsupported_environment.cache_clear()
