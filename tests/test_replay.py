"""Replay: which calls are replayed, their equal results, and PyTorch's internals."""

from __future__ import annotations

import contextlib
import gc
import inspect
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from common import random_inputs
from test_correctness import compiled_edges
from test_errors import BAD_CALLS
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import forward_ad
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import Parameter
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from triton.compiler import CompiledKernel
from triton.runtime import JITFunction

import bindings
from bindings import backends, library, replay, torch_internals
from bindings.backends import triton
from bindings.backends.template import Place, template_of
from bindings.op import Op, as_tuple
from bindings.registry import OPS
from bindings.trials import TRIALS
from compare.code import triton_offline
from compare.code.architectures import ARCHITECTURES

Ways = Counter[str]


@pytest.fixture
def ways(device: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ways]:
    """Counts the paths of calls that are not replayed.

    PyTorch dispatches a call that is "dispatched", but not one that is "recorded" or
    "computed". Without a GPU, calls on the CPU are replayed, by launches in the
    emulator.
    """
    counts: Ways = Counter()

    def counted(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **keywords: Any) -> Any:
            counts[name] += 1
            return function(*args, **keywords)

        return call

    if device == "cpu":
        monkeypatch.setattr(replay, "DEVICE_TYPE", "cpu")
        monkeypatch.setattr(torch_internals, "current_device", lambda: None)
        monkeypatch.setattr(torch_internals, "current_stream", lambda device: 0)
    monkeypatch.setattr(backends, "record", counted("recorded", backends.record))
    monkeypatch.setattr(backends, "run", counted("computed", backends.run))
    for name, overload in library._overloads.items():
        monkeypatch.setitem(library._overloads, name, counted("dispatched", overload))
    replay.forget()
    yield counts
    replay.forget()


def made_known(function: Callable[..., Any], *args: Any, **keywords: Any) -> None:
    """Calls twice, so that the second call is recorded."""
    for _ in range(2):
        function(*args, **keywords)


# ---- Calls that are replayed ---------------------------------------------------------


def test_a_replay_gives_the_same_bits(
    op: Op, backend: str, device: str, generator: torch.Generator, ways: Ways
) -> None:
    if backend == "triton" and device == "cpu":
        pytest.skip("the interpreter launches nothing")
    for params in TRIALS[op.name].variants:
        inputs = random_inputs(op, (24, 32), torch.float32, device, generator)
        made_known(library.call_any, op, backend, *TRIALS[op.name].bind(inputs, params))
        others = random_inputs(op, (24, 32), torch.float32, device, generator)
        arguments = TRIALS[op.name].bind(others, params)
        expected = replay.compute(op, backend, arguments)
        ways.clear()
        first = library.call_any(op, backend, *arguments)
        again = library.call_any(op, backend, *arguments)
        assert not ways, params
        assert type(first) is type(expected)
        outputs = (*as_tuple(first), *as_tuple(again))
        for out, wanted in zip(outputs, 2 * as_tuple(expected), strict=True):
            assert torch.equal(out, wanted)
            assert out.stride() == wanted.stride()
        places = [x.untyped_storage().data_ptr() for x in outputs if x.numel() > 0]
        assert len(set(places)) == len(places)


def test_the_first_call_of_a_kind_is_not_recorded(device: str, ways: Ways) -> None:
    x = torch.randn(5, 7, device=device)
    for expected in ({"computed": 1}, {"recorded": 1}, {}, {}):
        ways.clear()
        bindings.softmax(x)
        assert ways == expected


def test_kinds_of_one_shape_are_told_apart(device: str, ways: Ways) -> None:
    x = torch.randn(4, 6, device=device)
    tensors = {
        "dtype": x.half(),
        "strides": torch.randn(6, 4, device=device).t(),
        "gaps": torch.randn(4, 12, device=device)[:, :6],
        "expanded": torch.randn(1, 6, device=device).expand(4, 6),
        "parameter": Parameter(x.clone(), requires_grad=False),
    }
    made_known(bindings.gelu, x)
    for name, each in tensors.items():
        expected = torch.ops.twin.gelu_cuda(each)
        for _ in range(3):
            out = bindings.gelu(each)
            assert torch.equal(out, expected), name
            assert out.stride() == expected.stride(), name
    ways.clear()
    for each in (x, *tensors.values()):
        bindings.gelu(each)
    assert not ways


def test_arguments_that_are_equal_but_of_another_type(device: str, ways: Ways) -> None:
    x = torch.randn(4, 6, device=device)
    op = OPS["softmax"]
    made_known(library.call_any, op, "cuda", x, 1)
    with pytest.raises(TypeError, match="softmax: dim must be an int, got bool"):
        library.call_any(op, "cuda", x, True)


def test_numbers_that_never_recur(device: str, ways: Ways) -> None:
    x = torch.randn(40, device=device)
    for seed in range(3):
        expected: Any = OPS["dropout"].reference(x, 0.5, seed)
        assert torch.equal(bindings.dropout(x, 0.5, seed), expected)
    assert ways == {"computed": 3}


def test_a_gradient_that_is_needed(device: str, ways: Ways) -> None:
    x = torch.randn(4, 6, device=device, requires_grad=True)
    grad = torch.randn(4, 6, device=device)

    def forward_and_backward() -> Tensor:
        x.grad = None
        bindings.softmax(x).backward(grad)
        assert x.grad is not None
        return x.grad

    first = forward_and_backward()
    forward_and_backward()
    ways.clear()
    assert torch.equal(forward_and_backward(), first)
    # Autograd sees the forward, and neither that nor the backward is computed anew.
    assert ways == {"dispatched": 1}


def test_tensors_that_begin_anywhere(device: str, ways: Ways) -> None:
    memory = torch.randn(65, device=device)
    made_known(bindings.gelu, memory[:64])
    ways.clear()
    out = bindings.gelu(memory[1:])
    assert ways == {"computed": 1}
    assert torch.equal(out, torch.ops.twin.gelu_cuda(memory[1:]))


def test_a_tensor_that_is_given_twice(device: str, ways: Ways) -> None:
    x, y = torch.randn(2, 40, device=device)
    made_known(bindings.add, x, x)
    assert not ways["recorded"]
    made_known(bindings.add, x, y)
    assert torch.equal(bindings.add(x, x), x + x)
    assert torch.equal(bindings.add(y, x), x + y)


def test_a_copy_that_an_op_makes_is_made_anew(device: str, ways: Ways) -> None:
    # Three groups of dimensions, more than a kernel walks over.
    x = torch.randn(4, 6, 8, 10, device=device)[:, ::2, ::2, ::2]
    made_known(bindings.gelu, x)
    ways.clear()
    out = bindings.gelu(x.neg_())
    assert ways == {"computed": 1}
    assert torch.equal(out, torch.ops.twin.gelu_cuda(x))


def test_no_elements(device: str, ways: Ways) -> None:
    x = torch.empty(0, 5, device=device)
    for _ in range(3):
        assert bindings.softmax(x).shape == (0, 5)
    assert not ways


def test_what_is_remembered_is_bounded(
    device: str, ways: Ways, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay, "MOST_SHAPES", 3)
    monkeypatch.setattr(replay, "MOST_OF_A_SHAPE", 2)
    for n in range(1, 9):
        made_known(bindings.gelu, torch.randn(n, device=device))
        assert len(replay._recordings) <= 3
    for gap in range(1, 5):
        made_known(bindings.gelu, torch.randn(4, gap, device=device)[:, 0])
    assert max(map(len, replay._recordings.values())) == 2


def test_nothing_is_kept_alive(op: Op, device: str, generator: Any, ways: Ways) -> None:
    inputs = random_inputs(op, (24, 32), torch.float32, device, generator)
    gone = [torch.utils.weak.WeakIdRef(x) for x in inputs]
    made_known(library.call_any, op, "cuda", *inputs)
    library.call_any(op, "cuda", *inputs)
    del inputs
    if any(each() is not None for each in gone):
        gc.collect()  # a cycle of somebody else's may have them
    assert all(each() is None for each in gone)


def test_threads(device: str, ways: Ways) -> None:
    xs = [torch.randn(1 + i % 5, 16, device=device) for i in range(8)]
    outs: list[list[Tensor]] = [[] for _ in xs]

    def call(i: int) -> None:
        outs[i] = [bindings.softmax(xs[i]) for _ in range(20)]

    threads = [threading.Thread(target=call, args=(i,)) for i in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    for x, mine in zip(xs, outs, strict=True):
        expected = torch.ops.twin.softmax_cuda(x)
        assert len(mine) == 20
        assert all(torch.equal(out, expected) for out in mine)


@pytest.mark.parametrize("bad", BAD_CALLS)
def test_errors_are_the_same(bad: str, device: str, ways: Ways) -> None:
    if device != "cpu":
        pytest.skip("they are calls on the CPU")
    call, error, message = BAD_CALLS[bad]
    for _ in range(3):
        with pytest.raises(error, match=message):
            call("cuda")
    assert not ways["recorded"]


# ---- Calls that are not --------------------------------------------------------------


class Subclass(Tensor):
    """A tensor class that may override any function."""


class DispatchMode(TorchDispatchMode):
    """Sees every operation."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Lets it pass."""
        return func(*args, **(kwargs or {}))


class FunctionMode(TorchFunctionMode):
    """Sees every function."""

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Lets it pass."""
        return func(*args, **(kwargs or {}))


def dispatch_mode() -> DispatchMode:
    return DispatchMode()  # type: ignore[no-untyped-call]


def under(context: Callable[[], Any]) -> Callable[[Tensor, Any], None]:
    def run(x: Tensor, call: Callable[[Tensor], Any]) -> None:
        with context():
            call(x)

    return run


def traced(x: Tensor, call: Callable[[Tensor], Any]) -> None:
    torch.jit.trace(call, (x,), check_trace=False)


def transformed(transform: Callable[..., Any]) -> Callable[[Tensor, Any], None]:
    def run(x: Tensor, call: Callable[[Tensor], Any]) -> None:
        with contextlib.suppress(RuntimeError):  # most have no rule for ops of ours
            transform(lambda x: call(x))(x)

    return run


def forward_mode(x: Tensor, call: Callable[[Tensor], Any]) -> None:
    with forward_ad.dual_level():
        call(x)  # which has no tangent
        with pytest.raises(NotImplementedError, match="no forward-mode formula"):
            call(forward_ad.make_dual(x, x))


def differentiated(x: Tensor, call: Callable[[Tensor], Any]) -> None:
    assert call(x.clone().requires_grad_()).grad_fn is not None


# Each makes at least one call that has to go through PyTorch.
WATCHED: dict[str, Callable[[Tensor, Callable[[Tensor], Any]], Any]] = {
    "autograd": differentiated,
    "a dispatch mode": under(dispatch_mode),
    "a function mode": under(FunctionMode),
    "fake tensors": under(lambda: FakeTensorMode(allow_non_fake_inputs=True)),
    "a profiler": under(torch.profiler.profile),
    "forward-mode autograd": forward_mode,
    "autocast": lambda x, call: under(lambda: torch.autocast(x.device.type))(x, call),
    "a subclass": lambda x, call: call(x.as_subclass(Subclass)),
    "a view to be negated": lambda x, call: call(torch._neg_view(x)),
    "make_fx": lambda x, call: make_fx(lambda x: call(x))(x),
    "torch.jit.trace": traced,
    "functionalize": transformed(torch.func.functionalize),
    "vmap": transformed(torch.vmap),
    "grad": transformed(lambda call: torch.func.grad(lambda x: call(x).sum())),
}


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
@pytest.mark.parametrize("watcher", WATCHED)
def test_what_pytorch_takes_part_in_is_dispatched(
    watcher: str, device: str, ways: Ways
) -> None:
    x = torch.randn(4, 6, device=device)
    for known in (x, x[0]):  # the other one is of a batch
        made_known(bindings.softmax, known)
    for _ in range(2):
        ways.clear()
        WATCHED[watcher](x, bindings.softmax)
        assert ways["dispatched"]
    ways.clear()
    bindings.softmax(x)
    assert not ways


def test_torch_compile_sees_the_op(device: str, ways: Ways) -> None:
    x = torch.randn(4, 6, device=device)
    made_known(bindings.softmax, x)
    targets: list[Any] = []

    def keep(graph: torch.fx.GraphModule, inputs: Any) -> Any:
        targets.extend(node.target for node in graph.graph.nodes)
        return graph.forward

    torch.compiler.reset()
    compiled: Any = torch.compile(bindings.softmax, fullgraph=True, backend=keep)
    assert torch.equal(compiled(x), bindings.softmax(x))
    assert torch.ops.twin.softmax_cuda.default in targets


def test_a_kind_that_is_known_without_gradients(device: str, ways: Ways) -> None:
    x = torch.randn(4, 6, device=device, requires_grad=True)
    expected = torch.ops.twin.softmax_cuda(x.detach())
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            made_known(bindings.softmax, x)
            ways.clear()
            out = bindings.softmax(x)
            assert not ways
            assert torch.equal(out, expected)
            assert out.is_inference() == (mode is torch.inference_mode)
        out = bindings.softmax(x)
        assert ways["dispatched"] == 1
        (grad,) = torch.autograd.grad(out.square().sum(), x)
        assert grad.abs().max() > 0


def test_in_place_is_dispatched(device: str, ways: Ways) -> None:
    x = torch.randn(1, 4, 2, 8, device=device)
    cos, sin = torch.randn(2, 4, 4, device=device)
    for _ in range(3):
        bindings.rotary_(x, cos, sin)
    assert ways["dispatched"] == 3


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs a second GPU")
def test_another_device(backend: str, ways: Ways, device: str) -> None:
    if device == "cpu":
        pytest.skip("there is only one")
    x = torch.randn(4, 6, device="cuda:0")
    y = x.to("cuda:1")
    expected = bindings.softmax(x, backend=backend)
    for _ in range(3):
        for each in (x, y):
            out = bindings.softmax(each, backend=backend)
            assert out.device == each.device
            assert torch.equal(out.to("cuda:0"), expected)
    with torch.cuda.device(1):
        made_known(bindings.softmax, y, backend=backend)
        ways.clear()
        assert torch.equal(bindings.softmax(y, backend=backend).to("cuda:0"), expected)
        assert not ways


# ---- PyTorch's internals -------------------------------------------------------------


def test_guards_of_torch() -> None:
    x, y, z = torch.randn(3, 4, 6)
    is_alike = torch_internals.guard_of((x, y))
    assert is_alike(x, y)
    assert is_alike(z, y)
    assert is_alike(x[:], y.detach())
    for other in (
        y,  # twice
        x[:3],
        x.t().contiguous().t(),
        x.half(),
        x.to("meta"),
        Parameter(x),
        Parameter(x, requires_grad=False),
        x.clone().requires_grad_(),
        x.as_subclass(Subclass),
        torch._neg_view(x),
        torch._efficientzerotensor((4, 6)),
        x.to_sparse(),
    ):
        assert not is_alike(other, y)
    for context in (
        dispatch_mode(),
        torch.inference_mode(),
        torch.autocast("cpu", torch.bfloat16),
    ):
        with context:
            assert not is_alike(x, y)
    seen: list[bool] = []

    def look(each: Tensor) -> Tensor:
        seen.extend((is_alike(x, y), is_alike(each, y)))
        return each + 1

    for transform in (torch.vmap, torch.func.functionalize):
        transform(look)(x)
    assert seen == [False] * 4


def test_what_is_plain_to_torch() -> None:
    x = torch.randn(4, 6)

    def is_plain(*tensors: Tensor) -> bool:
        return torch_internals.are_plain(tensors, "cpu")

    with torch.inference_mode():
        inference = torch.randn(4, 6)
        assert is_plain(x, inference)
    assert is_plain(x, inference, x.half(), x.t(), Parameter(x, requires_grad=False))
    with torch.no_grad():
        assert is_plain(Parameter(x))
    assert not torch_internals.are_plain((x,), "cuda")
    for other in (
        Parameter(x),
        x.as_subclass(Subclass),
        x.to("meta"),
        x.to_sparse(),
        torch._neg_view(x),
        torch._efficientzerotensor((4, 6)),
    ):
        assert not is_plain(other)
        assert not is_plain(x, other)
    with torch.autocast("cpu", torch.bfloat16):
        assert not is_plain(x)
    seen: list[bool] = []

    def look(each: Tensor) -> Tensor:
        seen.extend((is_plain(x), is_plain(each)))
        return each + 1

    for transform in (torch.vmap, torch.func.functionalize):
        transform(look)(x)
    assert seen == [False] * 4


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_what_watches_all_calls() -> None:
    assert not torch_internals.is_watched()
    for context in (
        dispatch_mode(),
        FakeTensorMode(),
        FunctionMode(),
        torch.profiler.profile(),
        forward_ad.dual_level(),
    ):
        with context:
            assert torch_internals.is_watched()
    assert not torch_internals.is_watched()


@pytest.mark.parametrize("mode", [torch.enable_grad, torch.inference_mode])
def test_allocators_of_torch(device: str, mode: Callable[[], Any]) -> None:
    for x in (
        torch.randn(4, 6, device=device),
        torch.randn(4, 6, device=device).half().t(),
        torch.empty((), dtype=torch.bfloat16, device=device),
        torch.empty(0, 5, dtype=torch.int64, device=device),
    ):
        with mode():
            made = torch_internals.allocator_of(x)()
            expected = torch.empty_like(x)
        assert type(made) is Tensor
        assert made.device == x.device
        assert made.dtype == x.dtype
        assert (made.shape, made.stride()) == (x.shape, x.stride())
        assert made.is_inference() == expected.is_inference()
        assert torch._C._dispatch_keys(made) == torch._C._dispatch_keys(expected)
        assert made.data_ptr() % replay.ALIGNMENT == 0


def test_unwritten_memory() -> None:
    torch.use_deterministic_algorithms(False)  # which fill what is allocated
    x = torch.randn(4, 6)
    with torch_internals.Allocations() as allocations:
        made = [x.new_empty(3), torch.empty_like(x), torch.empty(2), x.new_empty(0)]
        x.contiguous()
        x.t().contiguous()
        torch.empty_like(x).copy_(x)
        x[1:]
    assert len(allocations.untouched) == len(made)
    assert all(a is b for a, b in zip(allocations.untouched, made, strict=True))


def test_templates() -> None:
    x, y = torch.randn(2, 4, 6).unbind()
    z = torch.randn(5)
    arguments = (1, z, z[2:], x, y, None, x.new_empty(0), 0.5, "tanh")
    template = template_of(arguments, (x, y, z))
    assert template
    assert template.places == (
        Place(1, 2, 0),
        Place(2, 2, 8),
        Place(3, 0, 0),
        Place(4, 1, 0),
    )
    filled = template.fill([1000, 2000, 3000])
    assert filled == [1, 3000, 3008, 1000, 2000, None, 0, 0.5, "tanh"]
    # Memory that two tensors share, a tensor of its own, and memory of unknown use.
    for unknown in (x[1:], z.clone(), object()):
        assert template_of((unknown,), (x, y, z)) is None


def test_launches_of_triton(op: Op, generator: torch.Generator) -> None:
    shape: tuple[int, ...] = (24, 64)
    dtype = torch.float32
    # Where test_correctness compiles rows of one tile, it is the same code.
    for each in compiled_edges(op, is_first_variant=True):
        is_one_tile = each[-1:] and each[-1] in range(8, 1024)
        if is_one_tile and not TRIALS[op.name].flops:
            shape, dtype = each, torch.bfloat16
    device, architecture = "meta", ARCHITECTURES[90]
    if op.name == "scaled_matmul":
        # Hopper's twin has descriptors, which hold addresses. The first rung has views,
        # which are found by their memory.
        device, architecture = "cpu", ARCHITECTURES[80]
    inputs = random_inputs(op, shape, dtype, device, generator)
    arguments = op.arguments(*as_tuple(op.allocate(*inputs)), *inputs)
    tensors = [x for x in arguments if isinstance(x, Tensor) and x.numel() > 0]
    addresses = [0x1000 * (1 + i) for i in range(len(tensors))]
    with triton_offline.offline_driver(architecture) as recorder:
        launch = triton.record_launches(op, arguments, tensors)
        assert launch
        first = list(recorder)
        launch(addresses, 7)
    again = recorder[len(first) :]
    assert first
    assert [each.compiled for each in again] == [each.compiled for each in first]
    assert [each.grid for each in again] == [each.grid for each in first]
    for before, after in zip(first, again, strict=True):
        for old, new in zip(before.arguments, after.arguments, strict=True):
            if isinstance(old, Tensor):
                position = [
                    i
                    for i, x in enumerate(tensors)
                    if x is old or 0 != x.data_ptr() == old.data_ptr()
                ]
                assert new == (addresses[position[0]] if position else 0)
            else:
                assert new == old


def test_triton_as_it_was() -> None:
    run = inspect.signature(JITFunction.run)
    assert [(each.name, each.kind.name) for each in run.parameters.values()] == [
        ("self", "POSITIONAL_OR_KEYWORD"),
        ("args", "VAR_POSITIONAL"),
        ("grid", "KEYWORD_ONLY"),
        ("warmup", "KEYWORD_ONLY"),
        ("kwargs", "VAR_KEYWORD"),
    ]
    assert hasattr(CompiledKernel, "__getitem__")
    original = JITFunction.run
    with triton._launches():
        assert JITFunction.run is not original
    assert JITFunction.run is original
