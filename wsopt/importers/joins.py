"""Any number of tensors one behind the other: a graph's `concat` takes few, so joins are joined."""

from __future__ import annotations

from collections.abc import Sequence

from wsopt.graph.ops import OPS
from wsopt.torch.repeats import filled, written_out
from wsopt.torch.values import Untaken, Value
from wsopt.torch.writer import Writer


def joined(w: Writer, values: Sequence[Value], axis: int) -> Value:
    """Tensors one behind the other along an axis."""
    if len(values) == 1:
        return values[0]
    most = len(OPS["concat"].operands)
    if len(values) > most:
        parts = [joined(w, values[n : n + most], axis) for n in range(0, len(values), most)]
        return joined(w, parts, axis)
    dtype = next((w.dtype(value) for value in values if isinstance(value.tensor, str)), None)
    if dtype is None:
        raise Untaken("numbers alone that are joined")
    whole = [
        written_out(w, value) if isinstance(value.tensor, str) else filled(w, value, dtype)
        for value in values
    ]
    return w.concat(whole, axis)
