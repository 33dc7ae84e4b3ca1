"""Collects a tile program while a region is cut: copies, and slots handed back, which every kind of loop has."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from wsopt.frontend.types import Region
from wsopt.machine.types import Machine
from wsopt.program.ids import OpId, OpKind, ValueId, ValueKind
from wsopt.program.program import Edge, Live, TileOp, Unit, Value
from wsopt.program.types import Placement, Space, Structure
from wsopt.tensors.views import View


@dataclass(slots=True)
class Cut:
    """The parts of a tile program that are there already. Costs are in cycles of `machine`."""

    region: Region
    s: Structure
    machine: Machine
    values: list[Value] = field(default_factory=list)
    ops: list[TileOp] = field(default_factory=list)
    edges: list[Edge] = field(default_factory=list)
    live: list[Live] = field(default_factory=list)

    def of(self, kind: OpKind) -> tuple[TileOp, ...]:
        """All operations of a kind."""
        return tuple(op for op in self.ops if op.kind is kind)

    def load(
        self,
        view: View,
        shape: tuple[int, ...],
        busy: int,
        first: float,
        *,
        consumer: int | None = None,
        copy: int = 0,
        pipes: tuple[tuple[Unit, int], ...] = (),
    ) -> None:
        """Add a TMA load of a tile, of one consumer or of all: its first bytes come after `first` cycles, and then
        it holds the way for `busy`.
        """
        tile = tile_of(self.region, view, consumer, copy)
        self.values.append(Value(tile, shape, view.dtype, Space.SHARED, consumer))
        self.ops.append(
            TileOp(
                id=load_of(tile),
                placement=Placement.LOOP,
                inputs=(),
                output=tile,
                consumer=None,
                unit=Unit.TMA,
                issue=math.ceil(self.machine.latency.mbarrier_wait),
                busy=busy,
                latency=math.ceil(first) + busy,
                tensor=view.tensor,
                copy=copy,
                pipes=pipes,
            )
        )

    def release(
        self, subject: str, consumer: int, issue: float, readers: Iterable[TileOp] = (), *, copy: int = 0
    ) -> OpId:
        """Add a consumer's handing back of a slot, after all that reads it."""
        before, one = tuple(readers), OpId(OpKind.RELEASE, subject, consumer, copy)
        self.ops.append(
            TileOp(
                id=one,
                placement=Placement.LOOP,
                inputs=tuple(op.output for op in before if op.output is not None),
                output=None,
                consumer=consumer,
                unit=None,
                issue=math.ceil(issue),
                busy=0,
                latency=math.ceil(self.machine.latency.mbarrier_wake),
                copy=copy,
            )
        )
        self.edges.extend(Edge(op.id, one, 0) for op in before)
        return one


def tile_of(region: Region, view: View, consumer: int | None = None, k_block: int = 0) -> ValueId:
    """The tile of a streamed tensor: of one consumer's rows, or of all."""
    return ValueId(ValueKind.TILE, region.operand_name(view), consumer, k_block)


def load_of(tile: ValueId) -> OpId:
    """The copy that fills a tile."""
    return OpId(OpKind.TMA_LOAD, tile.subject, tile.instance, tile.k_block)
