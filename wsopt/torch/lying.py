"""How tensors of an FX graph lie in memory, and as what inputs kernels read them: as they lie where TMA can."""

from __future__ import annotations

from torch import fx

from wsopt.graph.types import Input, TensorType, row_major_strides
from wsopt.torch.lower import Lowered
from wsopt.torch.sizes import changes
from wsopt.torch.symbols import Symbols
from wsopt.torch.traffic import is_view
from wsopt.torch.values import Dim, Shape, view_strides
from wsopt.torch.wiring import Wiring


def memory_order(symbols: Symbols, node: fx.Node) -> tuple[int, ...] | None:
    """The dimensions of an FX node's tensor from the outermost in memory; None if it does not lie densely."""
    shape, strides = symbols.shape(node.meta["val"]), symbols.strides(node.meta["val"])
    if strides is None:
        return None
    order = sorted(range(len(shape)), key=lambda dim: (-int(strides[dim]), dim))
    behind = 1
    for dim in reversed(order):
        if shape[dim] > 1 and strides[dim] != behind:
            return None
        behind *= shape[dim]
    moving = [dim for dim in order if shape[dim] > 1]
    return tuple(range(len(shape))) if moving == sorted(moving) else tuple(order)


def is_made_here(node: fx.Node) -> bool:
    """Whether a kernel of the FX graph makes a tensor: neither an input of the graph nor a view of one."""
    while node.op == "call_function":
        if not is_view(node):
            return True
        node = node.all_input_nodes[0]
    return False


def repeating(lowered: Lowered, tensor: str) -> tuple[Dim, ...] | None:
    """The dimensions that FX sees of a tensor of which it repeats elements; None of any other, as of one that is read
    with all elements that FX has.
    """
    value = lowered.values.get(lowered.owners[tensor].name)
    if value is None or isinstance(value, tuple) or value.whole or value.tensor != tensor:
        return None
    return value.dims


def input_of(
    wiring: Wiring, name: str, tensor: str, shape: Shape, *, turns: bool
) -> tuple[Input, tuple[int, ...] | None]:
    """An input by a name, as it lies, and the order of its dimensions if that is another than in its shape, as it may
    be if the piece `turns`. How it lies is found once.
    """
    if (tensor, shape, turns) not in wiring.inputs:
        wiring.inputs[tensor, shape, turns] = _lying(wiring.lowered, tensor, shape, turns=turns)
    found, order = wiring.inputs[tensor, shape, turns]
    return Input(name, found.type, found.constant, found.strides), order


def lies_in_parts(wiring: Wiring, tensor: str, shape: Shape) -> bool:
    """Whether a tensor from outside is none in this shape without a copy, but lies turned in its own as kernels read
    it: as every second row and column of an image does, whose channels lie together.
    """
    owner = wiring.lowered.owners.get(tensor)
    if owner is None or strides_as(wiring.lowered.symbols, owner, shape) is not None:
        return False
    own, order = input_of(wiring, "", tensor, wiring.lowered.symbols.shape(owner.meta["val"]), turns=True)
    return order is not None and own.strides is not None


def _lying(
    lowered: Lowered, tensor: str, shape: Shape, *, turns: bool
) -> tuple[Input, tuple[int, ...] | None]:
    """An input as it lies in memory according to FX, and the order in which its dimensions do if that is another;
    dense where it cannot be seen in its shape as it lies.
    """
    owner = lowered.owners[tensor]
    strides = None if repeating(lowered, tensor) else strides_as(lowered.symbols, owner, shape)
    found, order = TensorType(shape, lowered.writer.types[tensor].dtype), None
    if turns and strides is not None:
        order = _order_of(found, strides)
    if order is not None and strides is not None:
        shape, strides = tuple(shape[dim] for dim in order), tuple(strides[dim] for dim in order)
        found = TensorType(shape, found.dtype)
    dense = (
        strides is None
        or changes(*strides)
        or strides == row_major_strides(shape)
        or not _can_be_copied(found, strides)
    )
    # What TMA cannot copy as it lies would be padded, and a CUDA graph would not see a change of the copy.
    fixed = owner.name in lowered.constants and _can_be_copied(found, row_major_strides(shape))
    return Input(owner.name, found, fixed, None if dense else strides), order


def _order_of(tensor: TensorType, strides: Shape) -> tuple[int, ...] | None:
    """The dimensions of a tensor from the outermost in memory, if each lies within the next outer one, TMA moves it
    so, and its last one is not the innermost; else None.
    """
    shape = tensor.shape
    order = tuple(sorted(range(len(shape)), key=lambda dim: (shape[dim] == 1, -int(strides[dim]), dim)))
    moving = [dim for dim in order if shape[dim] > 1]
    if not moving or moving[-1] == max(moving):
        return None
    laid = TensorType(tuple(shape[dim] for dim in moving), tensor.dtype)
    lies = tuple(strides[dim] for dim in moving)
    within = zip(lies, lies[1:], laid.shape[1:], strict=False)
    nested = not changes(*strides) and all(outer >= inner * extent for outer, inner, extent in within)
    whole = nested or lies == row_major_strides(laid.shape)
    return order if whole and _can_be_copied(laid, lies) else None


def _can_be_copied(tensor: TensorType, strides: Shape) -> bool:
    """Whether TMA moves a tensor that lies so: its last axis densely, the others at multiples of 16 bytes."""
    moving = [stride for extent, stride in zip(tensor.shape, strides, strict=True) if extent > 1]
    return moving[-1:] == [1] and all(stride * tensor.dtype.bits % 128 == 0 for stride in moving[:-1])


def strides_as(symbols: Symbols, node: fx.Node, shape: Shape) -> Shape | None:
    """Strides of an FX node's tensor seen in a shape; None if that would be a copy, or if elements overlap."""
    val = node.meta["val"]
    own = symbols.strides(val)
    strides = None if own is None else view_strides(symbols.shape(val), own, shape)
    if strides is None:
        return None
    moving = [stride for extent, stride in zip(shape, strides, strict=True) if extent > 1]
    return None if 0 in moving or (moving and min(moving) != 1) else strides
