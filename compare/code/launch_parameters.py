"""The parameters of a planned launch: numbers, tensors and tensor maps."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any

import torch
from triton.tools.tensor_descriptor import TensorDescriptor

from bindings.backends import native
from bindings.op import Argument, Op
from compare.code import triton_offline
from compare.errors import CodegenUnavailable
from compare.ptx_simulator import Launch, TensorArgument, TensorMap


def cuda_launch(
    plan: dict[str, Any], names: Sequence[str], arguments: tuple[Argument, ...]
) -> Launch:
    """A planned launch of CUDA, whose arguments describe_argument has described."""
    parameters: list[int] = []
    maps: list[TensorMap] = []
    for position, argument in enumerate(plan["arguments"]):
        if isinstance(argument, int):
            parameters.append(argument)
        else:
            address, element_bytes, *rest = argument
            parameters.append(address)
            shape = tuple(rest[:3]), tuple(rest[3:5]), tuple(rest[5:])
            maps.append(TensorMap(position, address, element_bytes, *shape))
    return Launch(
        grid=plan["grid"],
        block=plan["block"],
        parameters=tuple(parameters),
        tensors=_passed(names, arguments, parameters),
        dynamic_shared_bytes=plan["shared_bytes"],
        tensor_maps=tuple(maps),
    )


def triton_launch(
    recorded: triton_offline.TritonLaunch,
    names: Sequence[str],
    arguments: tuple[Argument, ...],
) -> Launch:
    """A recorded launch of Triton, which ends with two pointers to scratch memory.

    Tensors that the launcher itself allocates have the kernel's names.
    """
    given = {id(each) for each in arguments}
    own = {
        name: each
        for name, each in recorded.arguments.items()
        if isinstance(each, torch.Tensor) and id(each) not in given
    }
    names, arguments = (*names, *own), (*arguments, *own.values())
    addresses = {
        id(each): address for address, (_, each) in _tensors(arguments).items()
    }
    return _triton_launch(
        recorded,
        lambda tensor: addresses[id(tensor)],
        lambda parameters: _passed(names, arguments, parameters),
    )


def observed_launch(recorded: triton_offline.TritonLaunch) -> Launch:
    """A recorded launch of Triton, whose tensors have the names of its parameters.

    Tensors that begin at the same place of the same memory have the same address and
    the name of the first.

    Raises:
        CodegenUnavailable: The kernel has a parameter of a kind that is not known here.
    """
    named: dict[tuple[int, int], TensorArgument] = {}
    for position, (name, each) in enumerate(recorded.arguments.items()):
        tensor = each.base if isinstance(each, TensorDescriptor) else each
        if not isinstance(tensor, torch.Tensor):
            if not isinstance(tensor, int | float):
                raise CodegenUnavailable(
                    f"{recorded.kernel} has a {type(tensor).__name__} as a parameter",
                    f"pass numbers and tensors as {name}",
                )
            continue
        first = named.get(_place(tensor))
        named[_place(tensor)] = TensorArgument(
            name=first.name if first else name,
            position=first.position if first else position,
            address=first.address if first else native.address(position, tensor),
            bytes=max(first.bytes if first else 0, _extent(tensor)),
            holds_indices=not tensor.is_floating_point(),
        )
    return _triton_launch(
        recorded,
        lambda tensor: named[_place(tensor)].address,
        lambda parameters: tuple(named.values()),
    )


def _place(tensor: torch.Tensor) -> tuple[int, int]:
    """Where a tensor begins: the same for two that begin at the same place."""
    return id(tensor.untyped_storage()), int(tensor.storage_offset())


def _triton_launch(
    recorded: triton_offline.TritonLaunch,
    address_of: Callable[[torch.Tensor], int],
    passed: Callable[[Sequence[int]], tuple[TensorArgument, ...]],
) -> Launch:
    parameters: list[int] = []
    maps: list[TensorMap] = []
    boxes = iter(recorded.boxes)
    for argument in recorded.arguments.values():
        if isinstance(argument, torch.Tensor):
            parameters.append(address_of(argument))
        elif isinstance(argument, TensorDescriptor):
            address = address_of(argument.base)
            sizes = [*argument.shape, *argument.strides]
            if box := next(boxes, None):
                # A tensor map, and then what it tells once more.
                maps.append(_tensor_map(len(parameters), address, argument, box))
                parameters += [address, *sizes]
            else:
                parameters += [address, *sizes, *_flags(argument), *sizes]
        elif isinstance(argument, float):  # the bits of a float32
            parameters += struct.unpack("<I", struct.pack("<f", argument))
        else:
            assert isinstance(argument, int)
            parameters.append(int(argument))
    return Launch(
        grid=recorded.grid,
        block=recorded.block,
        parameters=(*parameters, 0, 0),
        tensors=passed(parameters),
        dynamic_shared_bytes=recorded.dynamic_shared_bytes,
        tensor_maps=tuple(maps),
    )


def _flags(descriptor: TensorDescriptor) -> list[int]:
    """What Triton passes of a descriptor where there are no tensor maps."""
    flags = [descriptor.padding == "nan"]
    if hasattr(descriptor, "round_f32_to_tf32"):  # since Triton 3.7
        flags.append(descriptor.round_f32_to_tf32)
    return [*map(int, flags)]


def _tensor_map(
    position: int, address: int, tensor: TensorDescriptor, box: tuple[int, ...]
) -> TensorMap:
    """A descriptor as Triton's launcher encodes it: its last dimension comes first.

    The box is that of one copy; the descriptor's own block may take several.
    """
    width = tensor.base.element_size()
    return TensorMap(
        position=position,
        address=address,
        element_bytes=width,
        sizes=tuple(reversed(tensor.shape)),
        strides=tuple(each * width for each in reversed(tensor.strides[:-1])),
        box=tuple(reversed(box)),
    )


def _passed(
    names: Sequence[str], arguments: tuple[Argument, ...], parameters: Sequence[int]
) -> tuple[TensorArgument, ...]:
    """Those of the launcher's tensors that a kernel gets, by the launcher's names."""
    return tuple(
        TensorArgument(
            name=names[position],
            position=position,
            address=address,
            bytes=_extent(each),
            holds_indices=not each.is_floating_point(),
        )
        for address, (position, each) in _tensors(arguments).items()
        if address in parameters
    )


def elements_of(arguments: tuple[Argument, ...], launch: Launch) -> int:
    """How many elements the tensor has that the kernel's first parameter points to."""
    _, tensor = _tensors(arguments)[launch.parameters[0]]
    return tensor.numel()


def _tensors(
    arguments: tuple[Argument, ...],
) -> dict[int, tuple[int, torch.Tensor]]:
    """The tensors among a launcher's arguments by address, with their positions."""
    return {
        native.address(position, each): (position, each)
        for position, each in enumerate(arguments)
        if isinstance(each, torch.Tensor)
    }


def _extent(tensor: torch.Tensor) -> int:
    """Bytes from the first element of a tensor to the end of its last."""
    if tensor.numel() == 0:
        return 0
    steps = zip(tensor.shape, tensor.stride(), strict=True)
    last = sum((int(n) - 1) * int(step) for n, step in steps)
    return (1 + last) * tensor.element_size()


def require_elements(op: Op, arguments: tuple[Argument, ...]) -> None:
    """Sees to it that there is something to compute.

    Raises:
        CodegenUnavailable: The output is empty.
    """
    out = arguments[0]
    assert isinstance(out, torch.Tensor)
    if out.numel() == 0:
        raise CodegenUnavailable(
            f"{op.name} launches nothing for an output without elements",
            "choose a --shape that has some",
        )
