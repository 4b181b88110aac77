"""The parameters of a planned launch: numbers, tensors and tensor maps."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Protocol

import torch
from triton.tools.tensor_descriptor import TensorDescriptor

from bindings.backends import native
from bindings.op import Argument, Op
from compare.code import triton_offline
from compare.code.tensor_descriptors import Box, is_descriptor
from compare.errors import CodegenUnavailable
from compare.ptx_simulator import Launch, TensorArgument, TensorMap

# That of every map of csrc/common/tensor_map.cuh.
_SWIZZLE_BYTES_OF_CUDA = 128


class Tensors(Protocol):
    """Where the tensors of a launch lie."""

    def address(self, tensor: Any) -> int:
        """The address that a kernel gets for a tensor, or what has its data_ptr."""

    def passed(self, parameters: Sequence[int]) -> tuple[TensorArgument, ...]:
        """Those that a kernel with these parameters gets."""


class ArgumentTensors:
    """A launcher's tensors, on the meta device, each at the address that it has there.

    They have the launcher's names, and those that the launcher itself allocates the
    kernel's.
    """

    def __init__(
        self,
        names: Sequence[str],
        arguments: tuple[Argument, ...],
        of_kernel: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        """Takes all arguments of the launcher, and what a kernel of it gets."""
        given = {_memory(each) for each in arguments if isinstance(each, torch.Tensor)}
        own = {
            name: each
            for name, each in of_kernel.items()
            if isinstance(each, torch.Tensor) and _memory(each) not in given
        }
        self._names = (*names, *own)
        self._tensors = _tensors((*arguments, *own.values()))
        places = [*self._tensors.values()]
        self._positions = {id(each): position for position, each in places}
        self._owners = {_memory(each): position for position, each in reversed(places)}

    def address(self, tensor: Any) -> int:
        """The address of an argument, or of what lies in the memory of one."""
        owner = self._positions.get(id(tensor))
        if owner is None:
            owner = self._owners[_memory(tensor)]
        return native.address(owner, tensor)

    def passed(self, parameters: Sequence[int]) -> tuple[TensorArgument, ...]:
        """Those that the parameters have addresses in."""
        return tuple(
            TensorArgument(
                name=self._names[position],
                position=position,
                address=address,
                bytes=extent(each),
                holds_indices=not each.is_floating_point(),
            )
            for address, (position, each) in self._tensors.items()
            if any(0 <= p - address < max(extent(each), 1) for p in parameters)
        )


class _ObservedTensors:
    """The tensors of one launch of Triton, by the names of the kernel's parameters.

    Those that begin at the same place of the same memory have the same address and the
    name of the first.
    """

    def __init__(self, recorded: triton_offline.TritonLaunch) -> None:
        self._named: dict[tuple[int, int], TensorArgument] = {}
        for position, (name, each) in enumerate(recorded.arguments.items()):
            tensor = each.base if is_descriptor(each) else each
            if not isinstance(tensor, torch.Tensor):
                if not isinstance(tensor, int | float):
                    raise CodegenUnavailable(
                        f"{recorded.kernel} has a {type(tensor).__name__} as a "
                        "parameter",
                        f"pass numbers and tensors as {name}",
                    )
                continue
            first = self._named.get(_place(tensor))
            self._named[_place(tensor)] = TensorArgument(
                name=first.name if first else name,
                position=first.position if first else position,
                address=first.address if first else native.address(position, tensor),
                bytes=max(first.bytes if first else 0, extent(tensor)),
                holds_indices=not tensor.is_floating_point(),
            )

    def address(self, tensor: torch.Tensor) -> int:
        return self._named[_place(tensor)].address

    def passed(self, parameters: Sequence[int]) -> tuple[TensorArgument, ...]:
        return tuple(self._named.values())


def cuda_launch(plan: dict[str, Any], tensors: Tensors) -> Launch:
    """A planned launch of CUDA, whose arguments describe_argument has described."""
    parameters: list[int] = []
    maps: list[TensorMap] = []
    for position, argument in enumerate(plan["arguments"]):
        if isinstance(argument, int):
            parameters.append(argument)
            continue
        address, element_bytes, *rest = argument
        parameters.append(address)
        # Sizes, strides and a box; there is no stride of the first dimension. Then, of
        # a map that may, whether it rounds.
        rank = (len(rest) + 1) // 3
        shape = (
            tuple(rest[:rank]),
            tuple(rest[rank : 2 * rank - 1]),
            tuple(rest[2 * rank - 1 : 3 * rank - 1]),
        )
        maps.append(
            TensorMap(
                position,
                address,
                element_bytes,
                *shape,
                _SWIZZLE_BYTES_OF_CUDA,
                rounds_to_tf32=rest[3 * rank - 1 :] == [1],
            )
        )
    return Launch(
        grid=plan["grid"],
        block=plan["block"],
        parameters=tuple(parameters),
        tensors=tensors.passed(parameters),
        dynamic_shared_bytes=plan["shared_bytes"],
        tensor_maps=tuple(maps),
        cluster=plan["cluster"],
    )


def triton_launch(recorded: triton_offline.TritonLaunch, tensors: Tensors) -> Launch:
    """A recorded launch of Triton, which ends with two pointers to scratch memory."""
    parameters: list[int] = []
    maps: list[TensorMap] = []
    boxes = iter(recorded.boxes)
    for argument in recorded.arguments.values():
        if isinstance(argument, torch.Tensor):
            parameters.append(tensors.address(argument))
        elif is_descriptor(argument):
            address = tensors.address(argument.base)
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
    x, y, z = recorded.grid
    return Launch(
        grid=(x * recorded.cluster, y, z),
        block=recorded.block,
        parameters=(*parameters, 0, 0),
        tensors=tensors.passed(parameters),
        dynamic_shared_bytes=recorded.dynamic_shared_bytes,
        tensor_maps=tuple(maps),
        cluster=(recorded.cluster, 1, 1),
    )


def observed_launch(recorded: triton_offline.TritonLaunch) -> Launch:
    """A recorded launch of Triton, whose tensors have the names of its parameters.

    Raises:
        CodegenUnavailable: The kernel has a parameter of a kind that is not known here.
    """
    return triton_launch(recorded, _ObservedTensors(recorded))


def _place(tensor: torch.Tensor) -> tuple[int, int]:
    """Where a tensor begins: the same for two that begin at the same place."""
    return _memory(tensor), int(tensor.storage_offset())


def _memory(tensor: torch.Tensor) -> int:
    """The same for two tensors that share memory."""
    return id(tensor.untyped_storage())


def _flags(descriptor: TensorDescriptor) -> list[int]:
    """What Triton passes of a descriptor where there are no tensor maps."""
    flags = [descriptor.padding == "nan"]
    if hasattr(descriptor, "round_f32_to_tf32"):  # since Triton 3.7
        flags.append(descriptor.round_f32_to_tf32)
    return [*map(int, flags)]


def _tensor_map(
    position: int, address: int, tensor: TensorDescriptor, box: Box
) -> TensorMap:
    """A descriptor as Triton's launcher encodes it: its last dimension comes first.

    The box is that of one copy; the descriptor's own block may take several.
    """
    width = tensor.base.dtype.itemsize
    rounds = getattr(tensor, "round_f32_to_tf32", False)  # since Triton 3.7
    return TensorMap(
        position=position,
        address=address,
        element_bytes=width,
        sizes=tuple(reversed(tensor.shape)),
        strides=tuple(each * width for each in reversed(tensor.strides[:-1])),
        box=tuple(reversed(box.sizes)),
        swizzle_bytes=box.swizzle_bytes,
        rounds_to_tf32=rounds or box.is_of_tf32,
    )


def elements_of(arguments: tuple[Argument, ...], launch: Launch) -> int:
    """The elements of the tensor that the first parameter of a kernel points into."""
    address = launch.parameters[0]
    starts = _tensors(arguments)
    _, tensor = starts[max(start for start in starts if start <= address)]
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


def extent(tensor: torch.Tensor) -> int:
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
