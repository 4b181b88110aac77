"""Worker: calls a function of a user's on the GPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from compare.judge import acceptance
from compare.judge.cases import lay_out
from compare.pairs import gpu_functions
from compare.pairs.calls import FaultError, too_large
from compare.pairs.references import is_same
from compare.pairs.tensor_trees import map_tensors, named_tensors

# The call as given is made so often, to see whether its result is always the same.
_REPEATS = 10


def answer(request: Mapping[str, Any]) -> dict[str, Any]:
    """Makes the calls on the GPU.

    Args:
        request: side (as `gpu_functions.make` takes it), values (lists of inputs), and
            calls: number of the values, layout, and whether to repeat.

    Returns:
        For each call outputs, or problem or refusal, and whether repeating it gave
        other bits.

    Raises:
        UsageError: The file has no such function.
        Exception: What the user's file raises.
    """
    torch.backends.cuda.matmul.allow_tf32 = False
    function = gpu_functions.make(request["side"])
    return {
        "outcomes": [_outcome(function, request, each) for each in request["calls"]]
    }


def _outcome(
    function: Callable[..., list[Tensor]],
    request: Mapping[str, Any],
    call: Mapping[str, Any],
) -> dict[str, Any]:
    values = request["values"][call["values"]]
    try:
        first = _called(function, values, call["layout"])
        if sentence := too_large(first):
            return {"problem": sentence}
        others = range(_REPEATS * call["is_repeated"])
        differs = any(
            not all(map(_same_bits, first, _called(function, values, call["layout"])))
            for _ in others
        )
    except Exception as error:  # of any kind: it is the user's code
        sentence = gpu_functions.describe(error, request["side"])
        is_fault = isinstance(error, FaultError) or _is_of_cuda(error)
        return {"problem" if is_fault else "refusal": sentence}
    return {"outputs": [each.cpu() for each in first], "differs": differs}


def _called(
    function: Callable[..., list[Tensor]], values: Sequence[Any], layout: str
) -> list[Tensor]:
    """Copies of what it returned, or else of the inputs that it changed."""
    inputs = map_tensors(values, lambda x: lay_out(x.cuda(), layout, "cuda"))
    named = [tensor for _, tensor in named_tensors([""] * len(inputs), inputs)]
    before = [each.clone() for each in named]
    torch.manual_seed(0)  # what the function itself draws is the same each time
    outputs = function(*inputs)
    torch.cuda.synchronize()  # a fault of a kernel shows here
    if not outputs:
        pairs = zip(named, before, strict=True)
        outputs = [each for each, old in pairs if not is_same(each, old)]
    return [each.detach().clone() for each in outputs]


def _same_bits(left: Tensor, right: Tensor) -> bool:
    return torch.equal(acceptance.bits(left), acceptance.bits(right))


def _is_of_cuda(error: Exception) -> bool:
    """Whether the GPU itself has failed, after which no call of this process works."""
    return isinstance(error, torch.AcceleratorError) and "CUDA error" in str(error)
