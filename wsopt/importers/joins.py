"""Any number of tensors one behind the other: a graph's `concat` takes few, so joins are joined."""

from __future__ import annotations

from collections.abc import Sequence

from wsopt.graph.ops import OPS
from wsopt.torch.repeats import filled, written_out
from wsopt.torch.values import Untaken, Value
from wsopt.torch.writer import Writer


def joined(w: Writer, values: Sequence[Value], axis: int) -> Value:
    """Tensors one behind the other along an axis; zeros before and behind them all are room around what is joined."""
    if len(values) == 1:
        return values[0]
    most = len(OPS["concat"].operands)
    if len(values) > most:
        parts = [joined(w, values[n : n + most], axis) for n in range(0, len(values), most)]
        return joined(w, parts, axis)
    places = [place for place, value in enumerate(values) if not _is_zero(value)]
    if not any(isinstance(value.tensor, str) for value in values):
        raise Untaken("numbers alone that are joined")
    inner = values[places[0] : places[-1] + 1]
    dtype = next(w.dtype(value) for value in inner if isinstance(value.tensor, str))
    whole = [
        written_out(w, value) if isinstance(value.tensor, str) else filled(w, value, dtype) for value in inner
    ]
    found = w.concat(whole, axis) if len(whole) > 1 else whole[0]
    room = [
        sum(value.shape[axis] for value in zeros) for zeros in (values[: places[0]], values[places[-1] + 1 :])
    ]
    behind = [(0, 0)] * (len(found.dims) - 1 - axis)
    return w.pad(found, [*behind, (room[0], room[1])]) if any(room) else found


def _is_zero(value: Value) -> bool:
    return not isinstance(value.tensor, str) and value.tensor == 0
