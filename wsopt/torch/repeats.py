"""Values whose repeated elements are written out, where an output or a join has to have every element."""

from __future__ import annotations

from wsopt.graph.types import DType
from wsopt.torch.values import Value
from wsopt.torch.writer import Writer, number


def written_out(w: Writer, value: Value) -> Value:
    """The value with every element in its tensor: a choice between it and itself, by indices of the whole shape."""
    if value.whole or not isinstance(value.tensor, str):
        return value
    return w.cast(_chosen_everywhere(w, value), w.dtype(value))


def filled(w: Writer, value: Value, dtype: DType) -> Value:
    """A number as a tensor of a type that has it at every place."""
    return w.cast(_chosen_everywhere(w, value), dtype)


def _chosen_everywhere(w: Writer, value: Value) -> Value:
    everywhere = None
    for axis, dim in enumerate(value.dims):
        if any(atom.repeated for atom in dim):
            along = w.elementwise("greater_equal", w.index(value.shape, axis), number(0))
            everywhere = along if everywhere is None else w.elementwise("logical_and", everywhere, along)
    if everywhere is None:  # one element
        everywhere = w.elementwise("greater_equal", w.index(value.shape, 0), number(0))
    return w.elementwise("where", everywhere, value, value)
