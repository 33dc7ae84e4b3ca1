"""Collects a tile program while a region is cut: copies, and slots handed back, which every kind of loop has."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from wsopt.frontend.types import Region, View
from wsopt.machine.types import Machine
from wsopt.program.program import Edge, Live, OpKind, TileOp, Unit, Value
from wsopt.program.types import Placement, Space, Structure


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

    def op(self, name: str) -> TileOp:
        """An operation that is there already."""
        return next(op for op in self.ops if op.name == name)

    def of(self, kind: OpKind) -> tuple[TileOp, ...]:
        """All operations of a kind."""
        return tuple(op for op in self.ops if op.kind is kind)

    def load(
        self,
        name: str,
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
        self.values.append(Value(f"tile:{name}", shape, view.dtype, Space.SHARED, consumer))
        self.ops.append(
            TileOp(
                name=f"load:{name}",
                kind=OpKind.TMA_LOAD,
                placement=Placement.LOOP,
                inputs=(),
                output=f"tile:{name}",
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
        self, name: str, consumer: int, issue: float, readers: Iterable[TileOp] = (), *, copy: int = 0
    ) -> None:
        """Add a consumer's handing back of a slot, after all that reads it."""
        before = tuple(readers)
        self.ops.append(
            TileOp(
                name=name,
                kind=OpKind.RELEASE,
                placement=Placement.LOOP,
                inputs=tuple(op.output or "" for op in before),
                output=None,
                consumer=consumer,
                unit=None,
                issue=math.ceil(issue),
                busy=0,
                latency=math.ceil(self.machine.latency.mbarrier_wake),
                copy=copy,
            )
        )
        self.edges.extend(Edge(op.name, name, 0) for op in before)
