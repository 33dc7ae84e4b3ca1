"""Reductions of a tile's rows as text: values before the first tile, what a tile adds, and sums that are rescaled."""

from __future__ import annotations

from collections.abc import Iterator

from wsopt.emit.called import LARGER, reduction
from wsopt.emit.expressions import in_type
from wsopt.emit.scope import Age, Known, Scope
from wsopt.emit.sums import accumulator_names, accumulators
from wsopt.emit.tensors import GLUON
from wsopt.graph.types import DType
from wsopt.tensors.statements import BEFORE, Reduction
from wsopt.tensors.views import Role

_ZEROS = {**GLUON, DType.BOOL: "gl.int1"}
_STARTS = {"max": 'float("-inf")', "sum": "0"}


def starts(scope: Scope, older: tuple[str, ...] = ()) -> Iterator[str]:
    """Initial values of reductions before the first iteration, and of values that are kept as `older`."""

    def zeros(dtype: DType) -> str:
        return f"gl.zeros([CONSUMER_ROWS, TILE_DEPTH], {_ZEROS[dtype]}, {scope.layout})"

    def row(start: str, dtype: DType) -> str:
        if scope.threads:
            return f"gl.full([CONSUMER_ROWS, THREADS], {start}, {_ZEROS[dtype]}, {scope.threads})"
        return f"gl.full([CONSUMER_ROWS], {start}, {_ZEROS[dtype]}, gl.SliceLayout(1, {scope.layout}))"

    for item in (item for item in scope.items if isinstance(item, Reduction)):
        if item.name in scope.apart and not scope.threads:
            scope.called.add("lane_sums")
            start = f"lane_sums({zeros(DType.F32)})"
        else:
            start = row(_STARTS[item.kind], DType.F32)
        yield f"{scope.name(item.name, 0)} = {start}"
    for name in older:
        value = scope.operand(name)
        start = zeros(value.dtype) if Role.STREAM in value.spans else row("0", value.dtype)
        yield f"{scope.name(name, 1)} = {start}"


def of_columns(item: Reduction, value: str) -> str:
    """The call that reduces the rows of a tile to one value a column."""
    return reduction(item.kind, value, 0, keeps_nan=item.kind == "max")


def reduced(scope: Scope, item: Reduction, operand: Known) -> Iterator[str]:
    """Lines that reduce a tile's rows, and add that to what a carried reduction has of the tiles before."""
    name, read = scope.name(item.name, 0), operand(item.value)
    value = in_type(read.name, read, DType.F32)  # of a narrower type it would be computed in that
    if item.over_rows:
        scope.called |= {"tl", LARGER} if item.kind == "max" else set()
        if scope.columns_together:
            value = of_columns(item, value)
        yield f"{name} = {LARGER}({name}, {value})" if item.kind == "max" else f"{name} += {value}"
        return
    if read.spans == {Role.COLUMN}:  # weights of columns: each row has its own sum of them
        value = f"gl.zeros([CONSUMER_ROWS, TILE_COLUMNS], gl.float32, {scope.layout}) + gl.expand_dims({value}, 0)"
    scope.called |= {"tl", LARGER} if item.keeps_nan else set()
    if scope.threads:
        value = reduction(item.kind, f"by_threads({value})", 3, keeps_nan=item.keeps_nan)
    whole = reduction(item.kind, value, 1, keeps_nan=item.keeps_nan)
    if not scope.carried:
        yield f"{name} = {whole}"
        return
    if any(item.name + BEFORE in other.reads for other in scope.items):
        yield f"{scope.name(item.name + BEFORE, 0)} = {name}"
    factor = None if item.rescale is None else operand(item.rescale).name
    if item.kind == "max":
        kept = name if factor is None else f"gl.where({factor}, {name}, NEG_INF)"
        scope.called |= set() if factor is None else {"NEG_INF"}
        yield f"{name} = {LARGER if item.keeps_nan else 'gl.maximum'}({kept}, {whole})"
    elif item.name in scope.apart and not scope.threads:
        scope.called |= {"lane_sums"} if factor is None else {"lane_sums", "by_lanes"}
        kept = name if factor is None else f"by_lanes({name}, {factor})"
        yield f"{name} = {kept} + lane_sums({value})"
    else:
        kept = name if factor is None else f"{name} * {factor}"
        yield f"{name} = {kept} + {whole}"


def rescaled(scope: Scope, sums: str, rescale: str, age: Age) -> Iterator[str]:
    """Lines that multiply a product's sums by the factor of each row."""
    factor = scope.operand(rescale, age(rescale)).name
    names = accumulator_names(scope.s, scope.name(sums, 0))
    for name, one in zip(names, accumulators(scope.s), strict=True):
        rows = f"gl.convert_layout({factor}, gl.SliceLayout(1, {one.layout}))"
        yield f"{name} = {name} * gl.expand_dims({rows}, 1)"
