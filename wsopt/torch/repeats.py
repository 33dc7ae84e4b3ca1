"""Values whose repeated elements are written out, where an output or a join has to have every element."""

from __future__ import annotations

from wsopt.torch.values import Value
from wsopt.torch.writer import Writer, number


def written_out(w: Writer, value: Value) -> Value:
    """The value with every element in its tensor: a choice between it and itself, by indices of the whole shape."""
    if value.whole or not isinstance(value.tensor, str):
        return value
    everywhere = None
    for axis, dim in enumerate(value.dims):
        if any(atom.repeated for atom in dim):
            along = w.elementwise("greater_equal", w.index(value.shape, axis), number(0))
            everywhere = along if everywhere is None else w.elementwise("logical_and", everywhere, along)
    assert everywhere is not None, "a value that is not whole repeats elements along some dimension"
    return w.cast(w.elementwise("where", everywhere, value, value), w.dtype(value))
