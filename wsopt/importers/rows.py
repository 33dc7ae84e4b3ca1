"""Elements of a tensor at indices along an axis: a part of it where the indices are known, else a `gather`."""

from __future__ import annotations

from wsopt.torch.values import Untaken, Value, plain_dims
from wsopt.torch.writer import Writer


def rows_at(w: Writer, x: Value, indices: Value, axis: int) -> Value:
    """The elements of x at indices, whose dimensions take the place of the axis."""
    found = _part(w, x, indices, axis)
    if found is not None:
        return found
    laid, tensor = w.laid_out(x, range(len(x.shape)))
    whole, chosen = w.laid_out(indices, range(len(indices.shape)))
    name = w.node("gather", [tensor, chosen], axis=axis)
    shape = (*laid.shape[:axis], *whole.shape, *laid.shape[axis + 1 :])
    return w.view(Value(name, plain_dims(w.types[name].shape)), shape)


def _part(w: Writer, x: Value, indices: Value, axis: int) -> Value | None:
    """What indices choose that are the same everywhere, or follow one another along one dimension; else None."""
    before, behind = x.shape[:axis], x.shape[axis + 1 :]
    moving = [dim for dim, own in enumerate(indices.dims) if any(atom.held > 1 for atom in own)]
    start = _start(w, indices)
    if start is None or len(moving) > 1:
        return None
    count = indices.shape[moving[0]] if moving else 1
    if start < 0:  # counted from the end
        start += x.shape[axis]
    if start < 0 or start + count > x.shape[axis]:
        raise Untaken("indices outside of the tensor")
    own = tuple(extent if dim in moving else 1 for dim, extent in enumerate(indices.shape))
    part = w.view(w.slice(x, axis, start, start + count), (*before, *own, *behind))
    return w.expand(part, (*before, *indices.shape, *behind))


def _start(w: Writer, indices: Value) -> int | None:
    """The first of indices that are a number, or that count on from one; None for others."""
    if not isinstance(indices.tensor, str):
        return int(indices.tensor)
    node = w.nodes.get(indices.tensor)
    if node is not None and node.op == "add" and isinstance(node.inputs[1], int):
        known = w.nodes.get(str(node.inputs[0]))
        return node.inputs[1] if known is not None and known.op == "iota" else None
    return 0 if node is not None and node.op == "iota" else None
