"""Copies of boxes of tensors, by the tensor memory accelerator."""

from collections.abc import Sequence

import numpy as np

from compare.ptx_simulator.batch import Batch
from compare.ptx_simulator.building import Execute
from compare.ptx_simulator.group import Group
from compare.ptx_simulator.meter import Access
from compare.ptx_simulator.operands import Decoded
from compare.ptx_simulator.simulation import TensorMap
from compare.ptx_simulator.spaces import Part
from compare.ptx_simulator.values import Lanes, Value, settled, signed

# Copies of other boxes than a tensor map has.
_OTHER_BOXES = ("im2col", "tile::gather4", "tile::scatter4")


def copy_of_box(decoded: Decoded, *, is_store: bool) -> Execute:
    """`cp.async.bulk.tensor`: a thread moves what of a box lies in the tensor.

    Only the side of global memory is counted.
    """
    access = Access(decoded.instruction.index, is_store, 0)
    operand = 0 if is_store else 1
    address, coordinates = decoded.address(operand), decoded.coordinates(operand)
    has_box = not any(each.startswith(_OTHER_BOXES) for each in decoded.modifiers)
    maps = decoded.decoder.tensor_maps if has_box else {}

    def execute(batch: Batch, group: Group) -> None:
        if not is_store:
            batch.lose(Part("shared", group))
        described = _map_at(address(batch, group), maps)
        place = [each(batch, group) for each in coordinates]
        is_known = all(settled(each.known) is True for each in place)
        if described is None or len(place) != len(described.box) or not is_known:
            batch.count(access, Part("global", group))
            return
        corner = [
            np.broadcast_to(signed(bits).astype(np.int64), group.size)
            for bits, _ in place
        ]
        starts, lengths = _rows(described, corner)
        batch.count(access, Part("global", group, starts, lengths))

    return execute


def _map_at(address: Value, maps: dict[int, TensorMap]) -> TensorMap | None:
    """The tensor map that all lanes name; None if that is unknown."""
    bits, known = address
    if settled(known) is not True or (bits != bits[0]).any():
        return None
    return maps.get(int(bits[0]))


def _rows(tensor_map: TensorMap, corner: Sequence[Lanes]) -> tuple[Lanes, Lanes]:
    """For each lane where the rows of its box begin, and their bytes in the tensor.

    Args:
        tensor_map: describes the tensor.
        corner: the first element of each lane's box, by dimension.
    """
    width = tensor_map.element_bytes
    first = np.clip(corner[0], 0, tensor_map.sizes[0])
    last = np.clip(corner[0] + tensor_map.box[0], 0, tensor_map.sizes[0])
    starts = (tensor_map.address + first * width)[:, np.newaxis]
    lengths = ((last - first) * width)[:, np.newaxis]
    outer = zip(
        corner[1:],
        tensor_map.sizes[1:],
        tensor_map.strides,
        tensor_map.box[1:],
        strict=True,
    )
    for begin, size, stride, count_of_box in outer:
        places = begin[:, np.newaxis] + np.arange(count_of_box)
        inside = (places >= 0) & (places < size)
        steps = np.where(inside, places, 0) * stride
        shape = len(begin), -1
        starts = (starts[:, np.newaxis] + steps[:, :, np.newaxis]).reshape(shape)
        lengths = (lengths[:, np.newaxis] * inside[:, :, np.newaxis]).reshape(shape)
    return starts, lengths
