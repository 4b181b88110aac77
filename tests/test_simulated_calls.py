"""Calls on CPU tensors whose kernels are compiled and simulated."""

from __future__ import annotations

import itertools
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import launches
import numpy as np
import pytest
import torch
from common import LANGUAGES, assert_accepted, random_inputs
from test_emulator_hopper import round_to_tf32
from torch import Tensor
from triton import jit, knobs
from triton import language as tl
from triton.runtime.driver import driver as triton_driver
from triton.tools.tensor_descriptor import TensorDescriptor

import bindings
from bindings.backends import native, prebuilt, simulated, triton
from bindings.errors import SettingError, UnsupportedError
from bindings.op import Argument, Op
from bindings.ops.scaled_matmul import tensor_core_product
from bindings.registry import OPS
from bindings.sources import ROOT
from bindings.toolchain import find_cuda_home
from compare.assembly.listing import Listing, find_entry, parse_ptx
from compare.code import cuda, simulated_calls, triton_offline
from compare.code.architectures import (
    ARCHITECTURES,
    Architecture,
    parse_architecture,
)
from compare.code.kernel_code import Side
from compare.code.launch_parameters import cuda_launch
from compare.code.tensor_memory import TensorMemory
from compare.errors import SimulationFault
from compare.judge.cases import Case, launcher_arguments
from compare.judge.parity import Parity, Skipped, check_prepared, prepare
from triton_kernels.common.device import Device
from triton_kernels.scaled_matmul import scaled_matmul

HOPPER, AMPERE = ARCHITECTURES[90], ARCHITECTURES[80]

needs_nvcc = pytest.mark.skipif(find_cuda_home() is None, reason="needs nvcc")
SIDES = [pytest.param("cuda", marks=needs_nvcc), "triton"]

# Rows that are vectors as a whole, and rows that end within one.
SHAPES = [((6, 264), torch.bfloat16), ((5, 257), torch.float32)]
# CUDA keeps it in the shared memory of a cluster.
LONG = Case((3, 40000))

launches.announce(
    (op, Case(shape, dtype), HOPPER)
    for op in OPS.values()
    for shape, dtype in SHAPES
    if op.source != "matmul"
)
launches.announce([(OPS["softmax"], LONG, HOPPER)])
launches.announce([(OPS["add"], Case((1003,)), HOPPER)])
MATRICES: list[launches.Launch] = [
    (OPS["matmul"], Case((130, 72, 200), torch.bfloat16), architecture)
    for architecture in (HOPPER, AMPERE)
]
launches.announce(MATRICES)


@pytest.fixture(autouse=True)
def _nothing_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TWIN_SIMULATE", raising=False)


# ---- Results -------------------------------------------------------------------------


# Triton's in bfloat16 are tested wherever a test has this dtype.
@needs_nvcc
@pytest.mark.parametrize(("shape", "dtype"), SHAPES, ids=["bfloat16", "float32"])
def test_what_nvcc_makes_is_accepted(
    op: Op, shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator
) -> None:
    if op.source == "matmul":
        pytest.skip("another test has matrices")
    launches.compile_with_nvcc(op.source, HOPPER)
    inputs = random_inputs(op, shape, dtype, "cpu", generator)
    with bindings.simulated("sm_90a"):
        assert_accepted(op, "cuda", inputs)


@pytest.mark.parametrize("op_name", ["softmax", "layer_norm", "cross_entropy_backward"])
def test_what_triton_makes_in_float32_is_accepted(
    op_name: str, generator: torch.Generator
) -> None:
    inputs = random_inputs(OPS[op_name], (5, 257), torch.float32, "cpu", generator)
    with bindings.simulated("sm_80"):
        assert_accepted(OPS[op_name], "triton", inputs)


@pytest.mark.parametrize("side", SIDES)
def test_a_row_in_several_blocks(side: str, generator: torch.Generator) -> None:
    launches.compile_with_nvcc("softmax", HOPPER)
    x = torch.randn(LONG.shape, generator=generator)
    with bindings.simulated("sm_90a"):
        assert_accepted(OPS["softmax"], side, (x,))


def integers(shape: tuple[int, int], seed: int) -> Tensor:
    """Small ones, whose products are exact in bfloat16 up to sums of 256."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(-1, 2, shape, generator=generator).bfloat16()


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("launch", MATRICES, ids=lambda launch: launch[2].target)
def test_products_of_integers_are_exact(side: str, launch: launches.Launch) -> None:
    op, case, architecture = launch
    if side == "cuda":
        launches.compile_with_nvcc(op.source, architecture)
    n_rows, depth, n_cols = case.shape
    a, b = integers((n_rows, depth), 0), integers((depth, n_cols), 1)
    exact = (a.double() @ b.double()).bfloat16()
    # Matrices that lie by columns take other kernels, but the same instructions.
    with bindings.simulated(architecture.target):
        assert torch.equal(bindings.matmul(a, b, backend=side), exact)


# Rows that begin no lines: blocks of a cluster load b of this product for each other.
CLUSTERED = Case((264, 72, 520), torch.bfloat16)
TWIN = OPS["matmul"].on_rung("twin")
launches.announce([(TWIN, CLUSTERED, HOPPER)])


@needs_nvcc
def test_blocks_that_load_for_each_other() -> None:
    launches.compile_with_nvcc("matmul", HOPPER)
    arguments = launcher_arguments(TWIN, CLUSTERED)
    (plan,) = native.plan(prebuilt.load("_cpu"), TWIN, arguments, 90)
    assert plan["cluster"] == (4, 1, 1)
    n_rows, n_cols, depth = CLUSTERED.shape
    a, b = integers((n_rows, depth), 0), integers((depth, n_cols), 1)
    with bindings.simulated("sm_90a"):
        assert_accepted(TWIN, "cuda", (a, b, torch.zeros(n_cols).bfloat16()))


E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
FLOAT8_PAIRS = [(E4M3, E4M3), (E5M2, E4M3), (E4M3, E5M2)]
# The twin's architecture, and one that takes the first rung.
BOTH_RUNGS = pytest.mark.parametrize("target", ["sm_90a", "sm_80"])


@BOTH_RUNGS
@pytest.mark.parametrize("types", FLOAT8_PAIRS)
def test_every_8_bit_float_counts_for_what_it_is(
    target: str, types: tuple[torch.dtype, torch.dtype]
) -> None:
    bits = torch.arange(256, dtype=torch.uint8)
    one = torch.ones(())
    with bindings.simulated(target):
        for dtype, other in (types, types[::-1]):
            x, ones = bits.view(dtype)[:, None], torch.ones(1, 9).to(other)
            given = (x, ones) if dtype is types[0] else (ones.T, x.T)
            found = bindings.scaled_matmul(
                *given, one, one, torch.float32, backend="triton"
            )
            found = found if dtype is types[0] else found.T
            expected = x.float().expand(256, 9)
            torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)


# Rows, columns and depth, and multiprocessors.
SCALED_CASES = [
    ("sm_80", torch.float32, (130, 72, 200), 108),
    # Ends within tiles and steps.
    ("sm_90a", torch.bfloat16, (130, 72, 200), 132),
    # Rows that are not aligned, and several tiles for a program.
    ("sm_90a", torch.float32, (300, 137, 520), 1),
    ("sm_90a", torch.bfloat16, (512, 128, 520), 1),
    ("sm_90a", torch.float16, (250, 129, 16), 1),
]


@pytest.mark.parametrize(("target", "dtype", "sizes", "n_sms"), SCALED_CASES)
def test_scaled_products_of_integers_are_exact(
    target: str,
    dtype: torch.dtype,
    sizes: tuple[int, int, int],
    n_sms: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    n_rows, n_cols, depth = sizes
    a, b = integers((n_rows, depth), 0), integers((depth, n_cols), 1)
    scale_a = torch.exp2(torch.arange(n_rows)[:, None] % 5 - 2.0)
    scale_b = torch.exp2(torch.arange(2 * n_cols)[None, ::2] % 3 - 1.0)
    exact = (a.double() @ b.double() * scale_a * scale_b).to(dtype)
    device = Device(parse_architecture(target).number, n_sms)
    monkeypatch.setattr(scaled_matmul, "current_device", lambda: device)
    left, right = a.to(E5M2), b.T.contiguous().to(E4M3).T
    with bindings.simulated(target):
        found = bindings.scaled_matmul(
            left, right, scale_a, scale_b, dtype, backend="triton"
        )
    assert torch.equal(found, exact)


def test_sums_of_8_bits_are_those_of_tensor_cores(generator: torch.Generator) -> None:
    """Steps of 128, of which Hopper keeps 13 bits of fraction, added in float32."""
    a, b = (torch.randn(n, 700, generator=generator).to(E4M3) for n in (70, 40))
    one = torch.ones(())
    with bindings.simulated("sm_90a"):
        found = bindings.scaled_matmul(
            a, b.T, one, one, torch.float32, backend="triton"
        )
    assert torch.equal(found, tensor_core_product(a, b.T))


@pytest.mark.parametrize("order", ["forward", "reverse"])
@pytest.mark.parametrize("side", SIDES)
def test_warp_by_warp_the_result_is_the_same(side: Side, order: str) -> None:
    x = torch.linspace(-3, 3, 5 * 257).view(5, 257)
    outs = []
    for each in ("", order):
        out = torch.empty_like(x)
        arguments = OPS["softmax"].arguments(out, x)
        simulated_calls.run(
            side, OPS["softmax"], arguments, "sm_90a", unwritten=[out], order=each
        )
        outs.append(out)
    assert torch.equal(*outs)


def test_autograd_takes_the_compiled_backward(generator: torch.Generator) -> None:
    x = torch.randn(5, 100, generator=generator).bfloat16().requires_grad_()
    grad = torch.randn(5, 100, generator=generator).bfloat16()
    out = bindings.softmax(x, backend="triton")
    (found,) = torch.autograd.grad(out, x, grad)
    (expected,) = torch.autograd.grad(torch.softmax(x.double(), -1), x, grad.double())
    assert (found.double() - expected).abs().max() < 0.01


@pytest.mark.parametrize("side", SIDES)
def test_in_place(side: str) -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(1, 2, 3, 8, generator=generator)
    table = torch.randn(3, 4, generator=generator)
    expected = bindings.rotary(x, table, table, backend="torch")
    with bindings.simulated("sm_90a"):
        bindings.rotary_(x, table, table, backend=side)
    assert torch.allclose(x, expected)


def test_a_result_without_elements() -> None:
    x = torch.empty(0, 5, dtype=torch.bfloat16)
    assert bindings.softmax(x, backend="triton").shape == (0, 5)


# ---- Tensor maps that round ----------------------------------------------------------


def copy_tile(out_tile: tl.tensor_descriptor, x_tile: tl.tensor_descriptor) -> None:
    """Copies all of a tile."""
    out_tile.store([0, 0], x_tile.load([0, 0]))


copy_kernel: Any = jit(copy_tile)


def tile(x: Tensor, **options: Any) -> TensorDescriptor:
    return TensorDescriptor.from_tensor(x, [16, 32], **options)


def copy(out: Tensor, x: Tensor) -> None:
    copy_kernel[(1,)](tile(out), tile(x), enable_fp_fusion=True)


def copy_by_a_descriptor_that_rounds(out: Tensor, x: Tensor) -> None:
    rounding = tile(x, round_f32_to_tf32=True)
    copy_kernel[(1,)](tile(out), rounding, enable_fp_fusion=True)


def copy_by_a_map_that_rounds(out: Tensor, x: Tensor) -> None:
    """As before Triton 3.7, which had no such descriptors."""
    compiled = copy_kernel.warmup(tile(out), tile(x), grid=(1,), enable_fp_fusion=True)
    described = compiled.metadata.tensordesc_meta[1]
    assert described["elem_type"] == 7  # CU_TENSOR_MAP_DATA_TYPE_FLOAT32
    with patch.dict(described, elem_type=11):  # CU_TENSOR_MAP_DATA_TYPE_TFLOAT32
        copy(out, x)


needs_rounding_descriptors = pytest.mark.skipif(
    not hasattr(TensorDescriptor, "round_f32_to_tf32"), reason="needs Triton 3.7"
)


@pytest.mark.parametrize(
    ("launcher", "architecture", "rounds"),
    [
        (copy, HOPPER, False),
        (copy_by_a_map_that_rounds, HOPPER, True),
        pytest.param(
            copy_by_a_descriptor_that_rounds,
            HOPPER,
            True,
            marks=needs_rounding_descriptors,
        ),
        # The kernel itself rounds where there are no tensor maps.
        pytest.param(
            copy_by_a_descriptor_that_rounds,
            AMPERE,
            True,
            marks=needs_rounding_descriptors,
        ),
    ],
)
def test_descriptors_that_round(
    launcher: Callable[[Tensor, Tensor], None],
    architecture: Architecture,
    rounds: bool,
    generator: torch.Generator,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    x = torch.randn(16, 32, generator=generator)
    out = torch.empty_like(x)
    # In the place of an op's own launcher, which gets sizes, too.
    monkeypatch.setattr(
        triton, "launcher", lambda op: lambda *args: launcher(*args[:2])
    )
    arguments = OPS["gelu"].arguments(out, x)
    simulated_calls.run("triton", OPS["gelu"], arguments, architecture.target)
    expected = round_to_tf32(x.numpy()) if rounds else x.numpy()
    np.testing.assert_array_equal(out.numpy(), expected)


@pytest.mark.parametrize(
    ("dtype", "told", "rounds"),
    [("float32", (1,), True), ("float32", (0,), False), ("float16", (), False)],
)
def test_which_maps_of_cuda_round(
    dtype: str, told: tuple[int, ...], rounds: bool
) -> None:
    x = torch.zeros(4, 64, dtype=getattr(torch, dtype))
    memory = TensorMemory([("x", x)], [])
    width = x.element_size()
    strides = 64 * width, 256 * width
    plan = {
        "arguments": [
            (memory.address(x), width, 64, 4, 1, *strides, 128 // width, 4, 1, *told)
        ],
        "grid": (1, 1, 1),
        "block": (32, 1, 1),
        "cluster": (1, 1, 1),
        "shared_bytes": 0,
    }
    (found,) = cuda_launch(plan, memory).tensor_maps
    assert found.rounds_to_tf32 == rounds
    assert (found.strides, found.box) == (strides, (128 // width, 4, 1))


# ---- Which calls are simulated -------------------------------------------------------


def asked_for(backend: str, dtype: torch.dtype) -> str | None:
    return simulated.architecture_for(backend, [torch.ones(3, dtype=dtype), -1])


def test_only_bfloat16_in_triton_is_simulated_unasked() -> None:
    dtypes = (torch.float32, torch.float16, torch.bfloat16)
    found = {
        (backend, dtype)
        for backend, dtype in itertools.product(bindings.backends.NAMES, dtypes)
        if asked_for(backend, dtype)
    }
    assert found == {("triton", torch.bfloat16)}


def test_blocks_count_before_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TWIN_SIMULATE", "sm_100")
    for backend in LANGUAGES:
        assert asked_for(backend, torch.float32) == "sm_100a"
        with bindings.simulated("sm_80"):
            with bindings.simulated("9.0"):
                assert asked_for(backend, torch.float32) == "sm_90a"
            assert asked_for(backend, torch.bfloat16) == "sm_80"
        assert asked_for(backend, torch.float32) == "sm_100a"
    assert asked_for("torch", torch.float32) is None
    assert asked_for("cuda_inline", torch.float32) is None


def test_an_unknown_architecture(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="'sm_91': choose one of sm_80"):
        bindings.simulated("sm_91").__enter__()
    with pytest.raises(TypeError, match="architecture is 80, expected a name as 'sm_"):
        bindings.simulated(80).__enter__()  # type: ignore[arg-type]
    monkeypatch.setenv("TWIN_SIMULATE", "hopper")
    with pytest.raises(SettingError, match=r"TWIN_SIMULATE: .*'hopper'"):
        bindings.gelu(torch.ones(3), backend="cuda")


@pytest.mark.parametrize("backend", LANGUAGES)
def test_parity_says_where(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulated_calls, "run", lambda *_, **__: None)
    prepared = prepare(OPS["add"], Case((5,), torch.bfloat16))
    with bindings.simulated("sm_80"):
        parity = check_prepared(prepared, backend)
    assert isinstance(parity, Parity)
    assert parity.ran_on == "compiled for sm_80, simulated"
    assert parity.problem == "5 of 5 elements were not written"


def test_bindings_import_nothing_of_compare() -> None:
    code = (
        "import sys, bindings, bindings.backends.triton\n"
        "print([name for name in sys.modules if name.split('.')[0] == 'compare'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True
    )
    assert done.stdout == "[]\n", done.stderr


def test_launches_of_other_threads_keep_their_driver() -> None:
    driver: Any = triton_driver
    before = driver._active
    driver.set_active(SimpleNamespace(get_current_device=lambda: "a GPU"))
    try:
        with (
            triton_offline.offline_driver(HOPPER),
            ThreadPoolExecutor(max_workers=1) as threads,
        ):
            ask = threads.submit(lambda: driver.active.get_current_device())
            assert ask.result() == "a GPU"
            assert driver.active.get_current_device() != "a GPU"
    finally:
        driver.set_active(before)


# ---- What cannot be simulated --------------------------------------------------------


def assert_refused(backend: str, reason: str) -> None:
    x = torch.ones(3, dtype=torch.bfloat16)
    with bindings.simulated("sm_90a"), pytest.raises(UnsupportedError, match=reason):
        bindings.add(x, x, backend=backend)


def test_without_nvcc(monkeypatch: pytest.MonkeyPatch) -> None:
    simulated_calls._compiled_by_nvcc.cache_clear()
    monkeypatch.setattr(cuda, "find_cuda_home", lambda: None)
    assert_refused("cuda", "add: there is no nvcc here; install a CUDA toolkit")


def test_within_the_interpreter() -> None:
    triton.launcher(OPS["add"])  # imported as it is without the interpreter
    says = "add: TRITON_INTERPRET is set, .*; unset TRITON_INTERPRET"
    with knobs.runtime.scope():  # the knob sets the environment variable as well
        knobs.runtime.interpret = True
        assert_refused("triton", says)


def test_without_what_the_simulator_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulated, "_MODULE", "compare.code.there_is_none")
    simulated._target.cache_clear()
    monkeypatch.setenv("TWIN_SIMULATE", "sm_90a")
    says = "compiled kernels cannot be simulated here: No module named "
    with pytest.raises(UnsupportedError, match=says):
        bindings.gelu(torch.ones(3), backend="triton")
    result = check_prepared(prepare(OPS["add"], Case((5,))), "triton")
    assert isinstance(result, Skipped)
    assert result.reason.startswith(says)


def test_a_rung_without_a_kernel_for_the_call() -> None:
    x = torch.ones(2, 200001, dtype=torch.bfloat16)
    op = OPS["softmax"].on_rung("twin")
    with pytest.raises(
        UnsupportedError, match="softmax: the rung 'twin' has no kernel"
    ):
        bindings.backends.run("triton", op, torch.empty_like(x), x)


# ---- Faults --------------------------------------------------------------------------


def addition(n: int = 1003) -> tuple[Argument, ...]:
    """The launchers' arguments for out, x and y."""
    x = torch.linspace(0, 1, n)
    return OPS["add"].arguments(torch.empty(n), x, x.flip(0))


def fault_of(
    side: Side, arguments: tuple[Argument, ...], unwritten: tuple[Any, ...] = ()
) -> str:
    if side == "cuda":
        launches.compile_with_nvcc("add", HOPPER)
    with pytest.raises(SimulationFault) as raised:
        simulated_calls.run(side, OPS["add"], arguments, "sm_90a", unwritten=unwritten)
    return str(raised.value)


def line_named_by(message: str) -> str:
    """The text of the line of the project that a message names."""
    found = re.search(r" at ((?:csrc|triton_kernels)/add/\S+):(\d+),", message)
    assert found, message
    return (ROOT / found[1]).read_text().splitlines()[int(found[2]) - 1]


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize(
    ("argument", "verb", "instruction"),
    [(0, "writes", "st.global"), (1, "reads", "ld.global")],
)
def test_an_access_out_of_bounds(
    side: Side, argument: int, verb: str, instruction: str
) -> None:
    arguments = [*addition()]
    tensor = arguments[argument]
    assert isinstance(tensor, Tensor)
    tensor[1000:] = behind = torch.tensor([5.0, 6.0, 7.0])
    arguments[argument] = tensor[:1000]
    message = fault_of(side, tuple(arguments))
    name = ("out", "x")[argument]
    language = {"cuda": "CUDA", "triton": "Triton"}[side]
    assert message.startswith(f"add: the {language} kernel add_kernel"), message
    assert re.search(f"{verb} .*at byte 4000 of {name}.*, out of bounds", message)
    assert re.search(r"in thread \(122, 0, 0\) of block \(\d, 0, 0\): ", message)
    assert instruction in message.rpartition(": ")[2]
    assert re.search("store" if verb == "writes" else "load", line_named_by(message))
    assert torch.equal(tensor[1000:], behind), "memory behind the tensor was written"


@pytest.mark.parametrize("side", SIDES)
def test_a_read_of_what_was_never_written(side: Side) -> None:
    arguments = addition()
    message = fault_of(side, arguments, unwritten=(arguments[1],))
    assert re.search("reads .*never written", message), message
    assert "load" in line_named_by(message)


Edit = Callable[[str], str]  # of the text from a kernel's body on


@pytest.fixture
def change_code(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Edit], None]]:
    """Has the simulator read other code than compilers make."""

    def change(edit: Edit) -> None:
        def read(text: str, kernel: str) -> Listing:
            lines = text.split("\n")
            _, _, body = find_entry(lines, kernel)
            edited = edit("\n".join(lines[body:]))
            return parse_ptx("\n".join([*lines[:body], edited]), kernel)

        simulated_calls._compiled_by_nvcc.cache_clear()
        monkeypatch.setattr(simulated_calls, "parse_ptx", read)
        monkeypatch.setattr(simulated_calls, "_of_ptx", read)

    yield change
    simulated_calls._compiled_by_nvcc.cache_clear()


def ends_with(code: str) -> Edit:
    """Puts code in front of the kernel's first end."""
    return lambda text: text.replace("ret;", f"{code} ret;", 1)


@pytest.mark.parametrize("side", SIDES)
def test_an_instruction_that_is_not_known(
    side: Side, change_code: Callable[[Edit], None]
) -> None:
    change_code(ends_with("frobnicate.f32 %f1, %f1;"))
    message = fault_of(side, addition(1024))
    says = "the simulator does not know frobnicate.f32, at (csrc|triton_kernels)/add/"
    assert re.search(says, message), message


@pytest.mark.parametrize("side", SIDES)
def test_a_kernel_that_does_not_end(
    side: Side, change_code: Callable[[Edit], None]
) -> None:
    change_code(ends_with("bar.sync 1, 1024;"))
    assert "waits for ever" in fault_of(side, addition(1024))


@pytest.mark.parametrize("side", SIDES)
def test_a_missing_barrier(side: Side, change_code: Callable[[Edit], None]) -> None:
    op, x = OPS["softmax"], torch.linspace(-3, 3, 8000).view(2, 4000)
    arguments = op.arguments(torch.empty_like(x), x)

    def without_the_second(text: str) -> str:
        first, second, *others = re.split(r"bar\.sync\s+0;", text)
        return "bar.sync 0;".join([first, second + others[0], *others[1:]])

    change_code(without_the_second)
    simulated_calls.run(side, op, arguments, "sm_90a")  # in step, nothing shows
    with pytest.raises(SimulationFault) as raised:
        simulated_calls.run(side, op, arguments, "sm_90a", order="forward")
    place = r"at \w+/softmax/twin\.\w+:\d+"
    says = (
        rf"reads shared memory that another warp writes, in no order, {place}, .*: "
        rf"ld\.shared\..*; the other is {place}: (@%p\d+ )?st\.shared"
    )
    assert re.search(says, str(raised.value)), str(raised.value)


# ---- Memory --------------------------------------------------------------------------


def test_overlapping_tensors_share_memory() -> None:
    whole = torch.arange(24, dtype=torch.int16).view(2, 12)
    left, right, alone = whole[:, :6], whole[:, 6:], torch.zeros(3)
    memory = TensorMemory([("left", left), ("alone", alone), ("right", right)], [])
    assert [each.name for each in memory.buffers] == ["left", "alone"]
    assert memory.address(right) - memory.address(left) == 12
    memory.buffers[0].content.view("int16")[6] = -1
    assert right[0, 0] == -1
    # The last element of the second half is the last of the whole.
    assert memory.buffers[0].end - memory.address(right) == 36


def test_tensors_beside_each_other_are_apart() -> None:
    whole = torch.zeros(100)
    memory = TensorMemory([("x", whole[:50]), ("y", whole[50:])], [whole])
    assert [each.content.size for each in memory.buffers] == [200, 200]
    assert memory.address(whole[50:]) - memory.address(whole) > 1 << 40
    assert all(each.written is not None for each in memory.buffers)


@pytest.mark.parametrize("offset", [0, 1, 4, 7])
def test_alignment_is_that_of_the_tensor(offset: int) -> None:
    x = torch.zeros(200, dtype=torch.float16)[offset:]
    memory = TensorMemory([("x", x)], [])
    assert memory.address(x) % 64 == x.data_ptr() % 64
    assert memory.address(x[3:]) == memory.address(x) + 6
    out = torch.empty_like(x)
    _, (launch,) = simulated_calls.launches_of(
        "triton", OPS["gelu"], OPS["gelu"].arguments(out, x), HOPPER
    )
    loads = {each.opcode for each in launch.listing.in_category("global load")}
    # Triton reads whole vectors only where the address allows it.
    assert any("v4" in each for each in loads) == (offset == 0)


def test_what_a_launcher_allocates_is_zero_only_where_it_says_so() -> None:
    op = OPS["softmax_backward"]
    grad, y = torch.ones(2, 131072), torch.ones(2, 131072)
    out = torch.empty_like(y)
    arguments = op.arguments(out, grad, y)
    memory, _ = simulated_calls.launches_of("triton", op, arguments, HOPPER, [out])
    by_name = {each.name: each for each in memory.buffers}
    assert by_name.keys() == {"out", "grad", "y", "sums_ptr"}
    assert not by_name["sums_ptr"].content.any()
    for name in ("grad", "y", "sums_ptr"):
        assert by_name[name].written is None
    written = by_name["out"].written
    assert written is not None
    assert not written.any()


def test_clusters_are_planned() -> None:
    module = prebuilt.load("_cpu")

    def clusters(op: str, case: Case, arch: int) -> list[tuple[int, int, int]]:
        arguments = launcher_arguments(OPS[op], case)
        return [
            each["cluster"] for each in native.plan(module, OPS[op], arguments, arch)
        ]

    # A power of two, so that none has more than 64 KiB of a row, but at most eight.
    for n_cols, n_blocks in ((40000, 4), (100000, 8), (200000, 8)):
        assert clusters("softmax", Case((3, n_cols)), 90) == [(1, n_blocks, 1)]
    assert clusters("softmax", Case((3, 100000)), 80) == [(1, 1, 1)]
    assert clusters("layer_norm_backward", Case((64, 20000)), 90)[1] == (1, 1, 1)
