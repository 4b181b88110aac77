"""Where inputs and references come from, in each style of writing them. For workers."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import math
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from compare.errors import UsageError
from compare.pairs import gpu_mode, kernelbench, python_file

# What VARIATIONS in a description chooses from.
VARIATIONS = ("other", "orders", "offset", "strided", "specials", "large")


@dataclass(frozen=True)
class Source:
    """Makes inputs, and computes what the function should return.

    Attributes:
        make_inputs: The inputs for a seed and sizes.
        reference: The function itself, which may write to its inputs; None if there is
            none.
        in_float64: The same function where all its own weights are in float64.
        names: Of the inputs, as far as they are known.
        sizes: Of the calls as given.
        cases: Sizes of further calls.
        variations: Those of VARIATIONS that are wanted.
        is_deterministic: Whether the same bits are expected every time.
        is_packed: Whether the inputs are those of one tuple.
    """

    make_inputs: Callable[[int, Mapping[str, Any]], Sequence[Any]]
    reference: Callable[..., Any] | None = None
    in_float64: Callable[..., Any] | None = None
    names: tuple[str, ...] = ()
    sizes: Mapping[str, Any] = field(default_factory=dict)
    cases: Sequence[Mapping[str, Any]] = ()
    variations: tuple[str, ...] = VARIATIONS
    is_deterministic: bool = True
    is_packed: bool = False


def read(request: Mapping[str, Any]) -> Source:
    """The source that a request of `question.ask` names.

    Raises:
        UsageError: The user's words make no sense.
        Exception: What the user's files raise when they are imported.
    """
    match request["style"]:
        case "options":
            return _from_options(request["inputs"], request["reference"])
        case "description":
            return _from_description(python_file.load(Path(request["path"])), request)
        case "kernelbench":
            module = python_file.load(Path(request["path"]), request["constants"])
            return _from_kernelbench(module, request)
        case "gpu-mode":
            return _from_gpu_mode(Path(request["path"]), request)
    raise ValueError(f"unknown style {request['style']!r}")


def _from_options(inputs: str, reference: str) -> Source:
    def make_inputs(seed: int, sizes: Mapping[str, Any]) -> Sequence[Any]:
        torch.manual_seed(seed)
        return as_inputs(_evaluate(inputs, "--inputs"))

    function = _function(reference) if reference.strip() else None
    return Source(make_inputs, function, function, names=_names(function))


def _from_description(module: ModuleType, request: Mapping[str, Any]) -> Source:
    name = Path(request["path"]).name
    if not callable(getattr(module, "inputs", None)):
        raise UsageError(f"{name} has no function inputs")
    parameters = inspect.signature(module.inputs).parameters

    def make_inputs(seed: int, sizes: Mapping[str, Any]) -> Sequence[Any]:
        generator = torch.Generator().manual_seed(seed)
        torch.manual_seed(seed)
        own = {"generator": generator} if "generator" in parameters else {}
        _check_arguments(module.inputs, f"{name}: inputs", **own, **sizes)
        return as_inputs(module.inputs(**own, **sizes))

    own_reference: Any = getattr(module, "reference", None)

    def reference(*inputs: Any) -> Any:
        _check_arguments(own_reference, f"{name}: reference", *inputs)
        return own_reference(*inputs)

    cases = getattr(module, "CASES", ())
    if not all(isinstance(each, dict) for each in cases):
        raise UsageError(f"{name}: CASES is no list of sizes by name")
    variations = tuple(getattr(module, "VARIATIONS", VARIATIONS))
    for each in variations:
        if each not in VARIATIONS:
            raise UsageError(
                f"{name}: unknown variation {each!r}: choose from "
                + ", ".join(VARIATIONS)
            )
    return Source(
        make_inputs,
        reference if own_reference else None,
        reference if own_reference else None,
        names=_names(own_reference),
        cases=cases,
        variations=variations,
        is_deterministic=bool(getattr(module, "deterministic", True)),
    )


def _from_kernelbench(module: ModuleType, request: Mapping[str, Any]) -> Source:
    model = kernelbench.make_model(module, request["seed"])

    def make_inputs(seed: int, sizes: Mapping[str, Any]) -> Sequence[Any]:
        torch.manual_seed(seed)
        return as_inputs(tuple(module.get_inputs()))

    return Source(
        make_inputs,
        model,
        kernelbench.make_model(module, request["seed"]).double(),
        names=_names(model.forward),
    )


def _from_gpu_mode(folder: Path, request: Mapping[str, Any]) -> Source:
    for file in reversed(gpu_mode.files(folder)):
        sys.path.insert(0, str(file.parent))
    module = python_file.load(folder / "reference.py")
    first, *others = request["cases"]
    parameters = inspect.signature(module.generate_input).parameters

    def make_data(seed: int, sizes: Mapping[str, Any]) -> Any:
        torch.manual_seed(seed)
        sizes = dict(sizes)
        if "seed" in parameters:
            # The first case's own seed, and another one for other values.
            sizes["seed"] = int(sizes.get("seed", 0)) + seed - request["seed"]
        _check_arguments(module.generate_input, "reference.py: generate_input", **sizes)
        return module.generate_input(**sizes)

    is_packed = isinstance(make_data(request["seed"], first), (tuple, list))

    def reference(*inputs: Any) -> Any:
        return module.ref_kernel(inputs if is_packed else inputs[0])

    return Source(
        lambda seed, sizes: as_inputs(make_data(seed, sizes)),
        reference,
        reference,
        sizes=first,
        cases=others,
        is_packed=is_packed,
    )


@contextlib.contextmanager
def on_cpu() -> Iterator[None]:
    """Has the CPU take the place of the GPU that user's code asks for by name."""
    with _OnCpu(), patch.object(torch, "Generator", _Generator):
        yield


_GENERATOR = torch.Generator  # by which it is not replaced


class _Generator(torch.Generator):
    """Makes a generator of the CPU, whatever device is named."""

    def __new__(cls, device: Any = "cpu") -> torch.Generator:  # type: ignore[misc]
        return _GENERATOR.__new__(_GENERATOR)


class _OnCpu(TorchFunctionMode):
    """Gives torch's functions the CPU for a GPU."""

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if func is Tensor.cuda:
            return args[0]
        args = tuple(map(_never_cuda, args))
        kwargs = {name: _never_cuda(each) for name, each in (kwargs or {}).items()}
        return func(*args, **kwargs)


def _never_cuda(value: Any) -> Any:
    if isinstance(value, (str, torch.device)) and str(value).startswith("cuda"):
        return torch.device("cpu")
    return value


def as_inputs(made: Any) -> tuple[Any, ...]:
    """What a user's function or expression made, as separate inputs.

    Raises:
        UsageError: There is no tensor, or something that cannot be passed.
    """
    inputs = tuple(made) if isinstance(made, (tuple, list)) else (made,)
    for number, each in enumerate(inputs, 1):
        if not isinstance(each, (Tensor, bool, int, float, str, type(None))):
            raise UsageError(
                f"input {number} is of class {type(each).__name__}; tensors, numbers, "
                "texts and None can be passed"
            )
    if not any(isinstance(each, Tensor) for each in inputs):
        raise UsageError("there is no tensor among the inputs")
    return tuple(
        each.detach().as_subclass(Tensor).contiguous()
        if isinstance(each, Tensor)
        else each
        for each in inputs
    )


def _namespace() -> dict[str, Any]:
    return {
        **vars(torch),
        "torch": torch,
        "math": math,
        "F": torch.nn.functional,
    }


def _evaluate(expression: str, option: str) -> Any:
    try:
        return eval(expression.strip(), _namespace())
    except Exception as error:
        raise _complaint(option, error) from error


def _complaint(option: str, error: Exception) -> UsageError:
    message = str(error).strip().partition("\n")[0]
    return UsageError(f"{option}: {type(error).__name__}: {message}")


_FUNCTION = re.compile(
    r"""\s*
    (?: (?P<file>[^():]+\.py) : \s*(?P<in_file>\w+) | (?P<dotted>[A-Za-z_][\w.]*) )
    \s* (?: : (?P<arguments>\s*\w+\s*=[^=].*) )? \s*""",
    re.VERBOSE | re.DOTALL,
)


def _function(reference: str) -> Callable[..., Any]:
    """The function that --reference names or is."""
    match = _FUNCTION.fullmatch(reference)
    if not match:
        function = _evaluate(reference, "--reference")
        arguments: dict[str, Any] = {}
    else:
        if match["file"]:
            module = python_file.load(Path(match["file"]))
            function = getattr(module, match["in_file"], None)
        else:
            function = _imported(match["dotted"])
        given = match["arguments"]
        arguments = _evaluate(f"dict({given})", "--reference") if given else {}
    if not callable(function):
        raise UsageError(f"--reference: {reference.strip()} is no function")

    def call(*inputs: Any) -> Any:
        _check_arguments(function, "--reference", *inputs, **arguments)
        try:
            return function(*inputs, **arguments)
        except Exception as error:
            if match and match["file"]:
                raise  # the user's line is known
            raise _complaint("--reference", error) from error

    call.__signature__ = _signature(function)  # type: ignore[attr-defined]
    return call


def _imported(dotted: str) -> Any:
    """What a name such as torch.softmax or softmax stands for; None if nothing."""
    first, *rest = dotted.split(".")
    found = _namespace().get(first)
    if found is None:
        try:
            found = importlib.import_module(first)
        except ModuleNotFoundError:
            return None
    for name in rest:
        found = getattr(found, name, None)
    return found


def _signature(function: Callable[..., Any]) -> inspect.Signature | None:
    try:
        return inspect.signature(function)
    except ValueError:  # a function of C++, which has none
        return None


def _check_arguments(
    function: Callable[..., Any], name: str, *args: Any, **kwargs: Any
) -> None:
    """Says in the user's words that a function does not take such arguments."""
    if signature := _signature(function):
        try:
            signature.bind(*args, **kwargs)
        except TypeError as error:
            raise UsageError(f"{name}: {error}") from error


def _names(function: Callable[..., Any] | None) -> tuple[str, ...]:
    """The names of a function's parameters that can be passed by position."""
    signature = _signature(function) if function else None
    by_position = (
        inspect.Parameter.POSITIONAL_ONLY,
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
    )
    parameters = signature.parameters.values() if signature else ()
    return tuple(each.name for each in parameters if each.kind in by_position)
