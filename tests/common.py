"""The backends, devices and dtypes that tests run for, and their common fixtures."""

from __future__ import annotations

import contextlib
import gc
import os
import resource
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import shared
import together
import torch
import triton
from hypothesis import Phase, settings
from torch import Tensor

import bindings
from bindings import backends, library, replay
from bindings.backends import interpreter
from bindings.errors import UnsupportedError
from bindings.op import DTYPES, Op, as_tuple
from bindings.registry import OPS
from bindings.trials import TRIALS
from compare.judge import acceptance
from compare.judge.cases import in_dtype
from compare.timing import gpu_state

if "PYTEST_XDIST_WORKER" in os.environ:
    # Every core has a worker. OpenMP's threads, which spin, would compete with the
    # workers: tests took twice as long.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))

# What imports and the collection of tests leave stays to the end: the collector would
# go through it again and again, for a quarter of their time.
gc.disable()

# The other two backends have no kernels of their own: modules whose tests are about
# what backends share say EVERY_BACKEND = True.
LANGUAGES = ("cuda", "triton")
# load_inline takes a quarter of a minute for each file. These ops of one file cover one
# output and several, a gradient and none.
INLINE_OPS = ("swiglu", "swiglu_backward")

DEVICES = ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]

# pytest --hypothesis-profile=thorough tries other inputs in every run, and many more.
_own = settings(deadline=None, phases=set(Phase) - {Phase.explain})
settings.register_profile("quick", _own, derandomize=True, max_examples=6)
settings.register_profile("thorough", _own, max_examples=1000)
settings.load_profile("quick")


def triton_version() -> tuple[int, ...]:
    """Which Triton there is, and so what compiles: 3 and 6 of 3.6.0."""
    return tuple(map(int, triton.__version__.split(".")[:2]))


needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

_beside_others = pytest.mark.skipif(
    torch.cuda.is_available() and "PYTEST_XDIST_WORKER" in os.environ,
    reason="needs a GPU to itself: python -m pytest -m gpu_to_itself",
)


def needs_gpu_to_itself(test: Callable[..., None]) -> Callable[..., None]:
    """Marks a test that needs a GPU at rest: times beside other tests mean nothing."""
    for mark in (_beside_others, needs_gpu, pytest.mark.gpu_to_itself):
        test = mark(test)
    return test


@pytest.fixture
def beside_other_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Times are taken while other tests use the GPU: the test reads none of them."""
    monkeypatch.setattr(gpu_state, "_other_work", lambda: None)


@pytest.fixture
def no_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is timed, so that two runs print the same."""
    monkeypatch.setattr(gpu_state, "obstacle", lambda: "this test times nothing")


@pytest.fixture
def few_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulates fewer blocks of large launches, where all do the same."""
    sample = "compare.ptx_simulator.simulator._SAMPLED_LANES"
    monkeypatch.setattr(sample, 1 << 12)


_INTERPRETER_REFUSES = interpreter.unsupported_reason(torch.float32)
needs_interpreter = pytest.mark.skipif(
    _INTERPRETER_REFUSES is not None, reason=_INTERPRETER_REFUSES or ""
)


# Every op as a call computes it, and on each rung of its ladder.
ON_RUNGS = [op.on_rung(rung) for op in OPS.values() for rung in ("", *op.rungs)]


def op_id(op: Op) -> str:
    """The op's name, and its rung where it is on one."""
    return "-".join(filter(None, (op.name, op.rung)))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Runs a test for every op, backend, device and dtype that its parameters name."""
    names = metafunc.fixturenames
    if "op" in names:
        every_rung = getattr(metafunc.module, "EVERY_RUNG", False)
        metafunc.parametrize("op", ON_RUNGS if every_rung else OPS.values(), ids=op_id)
    if "backend" in names and not _names(metafunc, "backend"):
        every = getattr(metafunc.module, "EVERY_BACKEND", False)
        metafunc.parametrize("backend", backends.NAMES if every else LANGUAGES)
    if "device" in names:
        metafunc.parametrize("device", DEVICES)
    if "dtype" in names and not _names(metafunc, "dtype"):
        metafunc.parametrize("dtype", DTYPES, ids=lambda dtype: str(dtype)[6:])


def _names(metafunc: pytest.Metafunc, argument: str) -> bool:
    """Whether a test parametrises this itself."""
    marks = metafunc.definition.iter_markers("parametrize")
    return any(argument in mark.args[0] for mark in marks)


def pytest_configure(config: pytest.Config) -> None:
    """Registers a marker, see together.py."""
    about = "in_one_test(*names): all values of these parameters are one test"
    config.addinivalue_line("markers", about)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    """Skips tests in the interpreter if it refuses the environment.

    Leaves out most ops of the load_inline route, which compiles them, and what tests
    leave out by themselves. Makes one test of cases that are one together.
    """
    deselected = [
        item for item in items if _is_another_inline_op(item) or _is_left_out(item)
    ]
    config.hook.pytest_deselected(items=deselected)
    left_out = set(deselected)
    items[:] = [item for item in items if item not in left_out]
    for item in items:
        params = item.callspec.params if hasattr(item, "callspec") else {}
        if params.get("backend") == "triton" and params.get("device") == "cpu":
            item.add_marker(needs_interpreter)
    items[:] = together.merge(items)


def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Goes through the cases of a test that are one together."""
    return together.call(pyfuncitem)


# By so much does a process grow between two collections.
_GROWTH = 1 << 30
_resident = 0


def pytest_collection_finish() -> None:
    """Rests the garbage collector for good.

    It goes through all that was imported, and through the programs of the simulator,
    of tens of thousands of objects each, again and again: for an eighth of the time
    that simulated kernels take. What is imported stays to the end anyway.
    """
    _collect()


def pytest_runtest_teardown() -> None:
    """Collects garbage where there may be much."""
    if _resident_bytes() > _resident + _GROWTH:
        _collect()


def _collect() -> None:
    global _resident
    gc.collect()
    gc.freeze()  # what is there now is mostly kept, and is not gone through again
    _resident = _resident_bytes()


def _resident_bytes() -> int:
    n_pages = Path("/proc/self/statm").read_text().split()[1]
    return int(n_pages) * resource.getpagesize()


def skip_if_refused(backend: str, device: str) -> None:
    """Skips a case in Triton's interpreter if it refuses the environment.

    Tests with both of these as parameters are skipped without it.
    """
    if _INTERPRETER_REFUSES and backend == "triton" and device == "cpu":
        pytest.skip(_INTERPRETER_REFUSES)


def is_simulated(backend: str, device: str, dtype: torch.dtype) -> bool:
    """Whether a call runs compiled code in the simulator.

    Each specialisation takes half a second to compile, so that of parameters that have
    nothing to do with each other not all combinations are tried.
    """
    return (backend, device, dtype) == ("triton", "cpu", torch.bfloat16)


def compiled_twin(
    rung: str, backend: str, device: str
) -> contextlib.AbstractContextManager[None]:
    """Simulates a twin of Triton's that is written in Gluon, which has no interpreter.

    It is for Hopper, whatever the other rungs are simulated for.
    """
    is_simulated = rung == "twin" and backend == "triton" and device == "cpu"
    return bindings.simulated("sm_90a") if is_simulated else contextlib.nullcontext()


def leave_out(
    is_left_out: Callable[[Mapping[str, Any]], bool],
) -> pytest.MarkDecorator:
    """Leaves out cases of a test, by its parameters."""
    mark: pytest.MarkDecorator = pytest.mark.left_out.with_args(is_left_out)
    return mark


def leave_out_simulated(
    is_left_out: Callable[[Mapping[str, Any]], bool],
) -> pytest.MarkDecorator:
    """Leaves out cases of compiled code, likewise."""

    def is_one(params: Mapping[str, Any]) -> bool:
        call = params["backend"], params["device"], params["dtype"]
        return is_simulated(*call) and is_left_out(params)

    return leave_out(is_one)


def _is_left_out(item: pytest.Item) -> bool:
    params = item.callspec.params if hasattr(item, "callspec") else {}
    return any(mark.args[0](params) for mark in item.iter_markers("left_out"))


def languages_on(device: str) -> list[str]:
    """The languages that run on a device; the interpreter may refuse to."""
    refused = _INTERPRETER_REFUSES is not None and device == "cpu"
    return [each for each in LANGUAGES if not (each == "triton" and refused)]


def _is_another_inline_op(item: pytest.Item) -> bool:
    params = item.callspec.params if hasattr(item, "callspec") else {}
    ops = (each for each in params.values() if isinstance(each, Op))
    is_another = any(op.name not in INLINE_OPS for op in ops)
    return params.get("backend") == "cuda_inline" and is_another


@pytest.fixture(scope="session", autouse=True)
def _folder_of_this_run(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Sets the folder in which the processes of this run share files."""
    own = tmp_path_factory.getbasetemp()
    shared.folder = own.parent if "PYTEST_XDIST_WORKER" in os.environ else own


@pytest.fixture
def generator() -> torch.Generator:
    """Random numbers that are the same in every run."""
    return together.new_generator()


@pytest.fixture(autouse=True)
def _unwritten_memory_is_nan() -> None:
    """Fills the memory of torch.empty, so that an unwritten element shows."""
    # Asked first: to set it takes as long as a small test.
    if not torch.are_deterministic_algorithms_enabled():
        torch.set_deterministic_debug_mode("error")


@pytest.fixture(autouse=True)
def _no_call_is_known() -> None:
    """Forgets calls that other tests have recorded, perhaps of replaced functions."""
    replay.forget()


def random_inputs(
    op: Op,
    shape: tuple[int, ...],
    dtype: torch.dtype,
    device: str,
    generator: torch.Generator,
) -> tuple[Tensor, ...]:
    """The op's own random inputs on a device."""
    trial = TRIALS[op.name]
    made = trial.inputs(shape, generator)
    return trial.complete(*(in_dtype(x, dtype).to(device) for x in made))


def laid_out_inputs(
    op: Op,
    shape: tuple[int, ...],
    lay_out: Callable[[Tensor], Tensor],
    dtype: torch.dtype,
    device: str,
    generator: torch.Generator,
) -> tuple[Tensor, ...]:
    """The op's random inputs, with those of full shape in a layout.

    A layout may change the full shape; inputs of another shape, such as a weight, then
    follow it. If the shapes of inputs are related in another way, each keeps its own,
    and a layout that changes one is skipped: the op's own tests cover it.
    """
    inputs = random_inputs(op, shape, dtype, device, generator)
    if TRIALS[op.name].shape_names:
        return _each_in_its_shape(inputs, lay_out)
    full = max(inputs, key=Tensor.dim).shape
    new_shape = tuple(lay_out(torch.empty(full, device="meta")).shape)
    others = random_inputs(op, new_shape, dtype, device, generator)
    return tuple(
        lay_out(x) if x.shape == full else other
        for x, other in zip(inputs, others, strict=True)
    )


def _each_in_its_shape(
    inputs: tuple[Tensor, ...], lay_out: Callable[[Tensor], Tensor]
) -> tuple[Tensor, ...]:
    try:
        laid_out = tuple(lay_out(x) if x.dim() else x for x in inputs)
    except (IndexError, RuntimeError):
        laid_out = ()
    if [x.shape for x in laid_out] != [x.shape for x in inputs]:
        pytest.skip("the layout changes the shapes of matrices that have to fit")
    return laid_out


def _results(op: Op, backend: str, arguments: tuple[Any, ...]) -> tuple[Tensor, ...]:
    if not op.rung:
        return as_tuple(library.call_any(op, backend, *arguments))
    outputs = op.allocate(*arguments)
    if any(out.numel() for out in as_tuple(outputs)):
        backends.run(backend, op, outputs, *arguments)
    return as_tuple(outputs)


def assert_accepted(
    op: Op,
    backend: str,
    inputs: tuple[Tensor, ...],
    params: Mapping[str, Any] | None = None,
    dtype: torch.dtype | None = None,
) -> None:
    """Calls the op and judges all that it returns by the acceptance rule.

    The dtype is for an op that has it as an argument.
    """
    arguments = TRIALS[op.name].bind(inputs, params or {}, dtype)
    expected = acceptance.expect(op, arguments)
    before = [x.clone() for x in inputs]
    try:
        results = _results(op, backend, arguments)
    except UnsupportedError:
        # The first rung serves every call; the others say which they cannot serve.
        assert op.rung not in ("", "first")
        return
    assert all(map(_same_bits, inputs, before)), "an input was written to"
    places = {x.untyped_storage().data_ptr() for x in inputs if x.numel()}
    for out in results:
        if isinstance(out, Tensor) and not out.is_meta:
            place = out.untyped_storage().data_ptr()
            assert place not in places, "the result lies in the memory of an input"
    verdict = acceptance.judge_all(results, expected)
    shapes = ", ".join(str(tuple(x.shape)) for x in inputs)
    assert verdict.passed, f"{verdict.problem} (of inputs {shapes})"


def cancels(grad: Tensor, y: Tensor, dim: int) -> bool:
    """Whether a row of softmax's gradient consists of rounding errors.

    If grad is nearly constant in a row, grad - sum(grad * y) is nearly 0, and the rest
    is rounding errors, PyTorch's as much as ours.
    """
    grad, y = grad.double(), y.double()
    row_sum = (grad * y).sum(dim, keepdim=True)
    size = (y * (grad - row_sum)).abs()
    terms = y * torch.maximum(grad.abs(), row_sum.abs())
    if y.dim() == 0 or y.numel() == 0:
        return False
    return bool((size.amax(dim) < 0.25 * terms.amax(dim)).any())


def _same_bits(x: Tensor, y: Tensor) -> bool:
    return torch.equal(acceptance.bits(x), acceptance.bits(y))
