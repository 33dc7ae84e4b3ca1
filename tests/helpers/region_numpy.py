"""A region evaluated as a kernel would: tiles of rows, K-blocks of the stream, zeros beyond the ends."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from wsopt.frontend.types import Contraction, Region
from wsopt.graph.meaning import cast_array
from wsopt.graph.types import DType, Graph
from wsopt.primitives import PRIMITIVES, comparison_of
from wsopt.tensors.statements import Reduction, Scalar, Statement
from wsopt.tensors.views import FAR, Bound, Role, View

Array = npt.NDArray[Any]
ROW, COLUMN, STREAM = Role.ROW, Role.COLUMN, Role.STREAM


@dataclass
class Counts:
    """K-blocks that were computed with their masks, without, and not at all."""

    masked: int = 0
    unmasked: int = 0
    skipped: int = 0


@dataclass
class Evaluation:
    """One run. `rows` and `k_block` are the tile; with `split` the bounds skip and unmask K-blocks."""

    region: Region
    inputs: dict[str, Array]
    strides: dict[str, tuple[int, ...]]
    rows: int
    k_block: int
    split: bool
    outputs: dict[str, Array] = field(default_factory=dict)
    counts: Counts = field(default_factory=Counts)


def storage(array: Array, strides: tuple[int, ...]) -> Array:
    """The memory of a tensor with these strides, in elements; gaps are nan, where there is one."""
    size = 1 + sum((extent - 1) * stride for extent, stride in zip(array.shape, strides, strict=True))
    flat = np.full(size, np.nan if array.dtype.kind not in "ib" else 0).astype(array.dtype)
    in_memory(flat, array.shape, strides)[...] = array
    return flat


def in_memory(flat: Array, extents: tuple[int, ...], strides: tuple[int, ...]) -> Array:
    """A view of flat memory."""
    return np.lib.stride_tricks.as_strided(flat, extents, [s * flat.itemsize for s in strides])


def evaluate_region(
    graph: Graph,
    region: Region,
    inputs: Mapping[str, Array],
    *,
    rows: int = 32,
    k_block: int = 16,
    split: bool = False,
) -> tuple[dict[str, Array], Counts]:
    """The outputs of a region by name, in the graph's shapes."""
    memory = {item.name: storage(inputs[item.name], item.element_strides) for item in graph.inputs}
    run = Evaluation(region, memory, {}, rows, k_block, split)
    for output in region.outputs:
        kind = graph.type_of(output.name)
        run.outputs[output.name] = np.full(kind.size, 77, np.float32).astype(kind.dtype.numpy)
    with np.errstate(all="ignore"):
        for place in itertools.product(
            range(region.extent(Role.BATCH)),
            range(region.extent(Role.GROUP)),
            range(0, region.extent(ROW), rows),
        ):
            Tile(run, *place).compute()
    shaped = {name: flat.reshape(graph.type_of(name).shape) for name, flat in run.outputs.items()}
    return shaped, run.counts


def interval(bound: Bound, rows: range, stream: range, scalars: Mapping[str, int]) -> tuple[int, int]:
    """The least and the greatest value of a bound's expression over a rectangle; of one that says nothing any."""
    if bound.wraps and any(abs(scalars[name]) > FAR for name in bound.scalars):
        return -1, 0
    ends = [
        bound.row * i + bound.stream * j + bound.constant + sum(k * scalars[name] for k, name in bound.terms)
        for i in (rows[0], rows[-1])
        for j in (stream[0], stream[-1])
    ]
    return min(ends), max(ends)


class Tile:
    """The rows of one block."""

    def __init__(self, run: Evaluation, batch: int, group: int, row: int) -> None:
        self.run, self.region = run, run.region
        self.place = {Role.BATCH: batch, Role.GROUP: group}
        self.row = row
        self.env: dict[str, Array] = {}
        self.spans = {s.name: s.spans for s in (*self.region.sources,)}

    def compute(self) -> None:
        region, run = self.region, self.run
        self._clear()
        rows = range(self.row, min(self.row + run.rows, region.extent(ROW)))
        named = {name for bound in region.bounds for name in bound.scalars}
        sources = (source for source in region.sources if source.name in named)
        scalars = {s.name: int(self._source(s.view, s.spans, {}, STREAM).item()) for s in sources}
        for start in range(0, region.extent(STREAM), run.k_block):
            limits = [interval(b, rows, range(start, start + run.k_block), scalars) for b in region.bounds]
            if run.split and any(high < 0 for _, high in limits):
                run.counts.skipped += 1
                continue
            inside = run.split and bool(limits) and all(low >= 0 for low, _ in limits)
            run.counts.unmasked += inside
            run.counts.masked += not inside
            self._step(start, dict(region.unmasked) if inside else {})
        self._finish()

    def _clear(self) -> None:
        for item in self.region.body:
            if isinstance(item, Reduction):
                empty = -np.inf if item.kind == "max" else 0.0
                self.env[item.name] = np.full((self.run.rows, 1), empty, np.float32)
        for c in self.region.contractions:
            self.env[c.name] = np.zeros((self.run.rows, self.region.extent(COLUMN)), np.float32)

    def _step(self, start: int, unmasked: Mapping[str, str]) -> None:
        place = {ROW: (self.row, self.run.rows), STREAM: (start, self.run.k_block)}
        now = dict(self.env)
        for item in self.region.body:
            if isinstance(item, Reduction):
                now[f"{item.name}.before"] = self.env[item.name]
        for source in self.region.sources:
            if Role.COLUMN not in source.spans:
                now[source.name] = self._source(source.view, source.spans, place, STREAM)
        for item in self.region.body:
            if item.name in unmasked:
                now[item.name] = now[unmasked[item.name]]
            elif isinstance(item, Statement):
                now[item.name] = self._statement(item, now, start)
            elif isinstance(item, Reduction):
                now[item.name] = self.env[item.name] = self._reduce(item, now)
            else:
                now[item.name] = self._contract(item, now, place)
                if isinstance(item.left, str):
                    self.env[item.name] = now[item.name]

    def _reduce(self, item: Reduction, now: Mapping[str, Array]) -> Array:
        before = self.env[item.name]
        value = now[item.value]
        assert value.shape == (self.run.rows, self.run.k_block)
        if item.kind == "max":
            return np.maximum(before, value.max(axis=1, keepdims=True))
        if item.rescale is not None:
            before = before * now[item.rescale]
        return before + value.sum(axis=1, keepdims=True)

    def _contract(
        self, item: Contraction, now: Mapping[str, Array], place: dict[Role, tuple[int, int]]
    ) -> Array:
        place = {
            **place,
            Role.INNER: (0, self.region.extent(Role.INNER)),
            COLUMN: (0, self.region.extent(COLUMN)),
        }
        if not isinstance(item.left, str):
            assert item.spans == {ROW, STREAM}
            left = self._load(item.left, (ROW, Role.INNER), place)
            right = self._load(item.right, (Role.INNER, STREAM), place)
            return left @ right
        left, right = now[item.left], self._load(item.right, (STREAM, COLUMN), place)
        assert left.shape == (self.run.rows, self.run.k_block)
        before = self.env[item.name]
        if item.rescale is not None:
            before = before * now[item.rescale]
        return before + left @ right

    def _finish(self) -> None:
        place = {ROW: (self.row, self.run.rows), COLUMN: (0, self.region.extent(COLUMN))}
        for source in self.region.sources:
            if STREAM not in source.spans:
                self.env[source.name] = self._source(source.view, source.spans, place, COLUMN)
        for statement in self.region.statements:
            self.env[statement.name] = self._statement(statement, self.env, 0)
        for output in self.region.outputs:
            self._store(output.view, self.run.outputs[output.name], self.env[output.value])

    def _store(self, view: View, flat: Array, value: Array) -> None:
        target = in_memory(flat, view.extents, view.strides)
        rows = min(self.run.rows, self.region.extent(ROW) - self.row)
        index = tuple(
            self.place[role]
            if role in self.place
            else slice(self.row, self.row + rows)
            if role is ROW
            else slice(None)
            for role in view.roles
        )
        left = [role for role in view.roles if role not in self.place]
        value = value[:rows]
        if COLUMN not in left:
            assert value.shape[1] == 1
            value = value[:, 0]
        target[index] = value.T if left[:1] == [COLUMN] else value

    def _load(self, view: View, order: tuple[Role, ...], place: Mapping[Role, tuple[int, int]]) -> Array:
        """A box of a tensor in f32 (or whole numbers), its dimensions in this order, zeros beyond the end."""
        whole = in_memory(self.run.inputs[view.tensor], view.extents, view.strides)
        roles = [role for role in view.roles if role not in self.place]
        whole = whole[tuple(self.place[r] if r in self.place else slice(None) for r in view.roles)]
        box = whole[tuple(slice(place[r][0], place[r][0] + place[r][1]) for r in roles)]
        missing = [(0, place[r][1] - n) for r, n in zip(roles, box.shape, strict=True)]
        box = box.astype(np.int32 if box.dtype.kind == "i" else np.float32)
        box = np.pad(box, missing) if missing else box
        assert set(roles) <= set(order), (roles, order)
        box = box.transpose([roles.index(r) for r in order if r in roles])
        return box.reshape([place[r][1] if r in roles else 1 for r in order])

    def _source(
        self, view: View, spans: frozenset[Role], place: Mapping[Role, tuple[int, int]], other: Role
    ) -> Array:
        found = self._load(view, (ROW, other), place)
        assert spans == {r for r in (ROW, other) if r in view.roles}
        return found

    def _statement(self, s: Statement, now: Mapping[str, Array], start: int) -> Array:
        found = self._value(s, now, start)
        wide = (
            self.run.k_block if STREAM in s.spans else self.region.extent(COLUMN) if COLUMN in s.spans else 1
        )
        assert found.shape in ((self.run.rows if ROW in s.spans else 1, wide), ()), (s, found.shape)
        return found

    def _value(self, s: Statement, now: Mapping[str, Array], start: int) -> Array:
        match s.primitive:
            case "iota_row":
                return np.arange(self.row, self.row + self.run.rows, dtype=np.int32)[:, None]
            case "iota_stream":
                return np.arange(start, start + self.run.k_block, dtype=np.int32)[None, :]
            case "iota_column":
                return np.arange(self.region.extent(COLUMN), dtype=np.int32)[None, :]
            case "iota_batch" | "iota_group":
                return np.full((1, 1), self.place[Role(s.primitive.removeprefix("iota_"))], np.int32)
            case "extent_stream":
                return np.full((1, 1), self.region.extent(STREAM), np.int32)
            case "inside_stream":
                return (np.arange(start, start + self.run.k_block) < self.region.extent(STREAM))[None, :]
        operands = [now[a] if isinstance(a, str) else a for a in s.args]
        if s.primitive.startswith("round_"):
            return cast_array(np.asarray(operands[0]), s.dtype).astype(np.float32)
        whole = s.dtype is DType.I32 or (comparison_of(s.primitive) and all(map(_is_whole, operands)))
        wanted = np.int32 if whole else np.float32
        typed = [o if getattr(o, "dtype", None) == np.bool_ else np.asarray(o, wanted) for o in operands]
        return np.asarray(PRIMITIVES[s.primitive].function(*typed))


def _is_whole(operand: Array | Scalar) -> bool:
    return operand.dtype.kind == "i" if isinstance(operand, np.ndarray) else isinstance(operand, int)
