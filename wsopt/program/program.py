"""Tile programs as frozen data: what one block does to its tile, before anything is scheduled.

A *tile program* is a region cut to a structure: operations on tiles with their costs, and the dependences between
them. Extents are in elements, times in cycles of an SM.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import StrEnum

from wsopt.frontend.types import Region
from wsopt.graph.types import DType
from wsopt.machine.cost import InstructionMix
from wsopt.program.ids import OpId, ValueId
from wsopt.program.ids import OpKind as OpKind
from wsopt.program.types import Placement, Space, Structure


class Unit(StrEnum):
    """What tile operations of a block compete for, besides the issue slots of their partition (`units.py`)."""

    TENSOR = "tensor"
    TMA = "tma"
    ALU = "alu"
    FMA = "fma"
    MUFU = "mufu"
    SHARED = "shared"
    MEMORY = "memory"


@dataclass(frozen=True, slots=True)
class Value:
    """A tile: its shape, element type and space. `consumer` is the one it belongs to, None for all."""

    id: ValueId
    shape: tuple[int, ...]
    dtype: DType
    space: Space
    consumer: int | None = None

    @property
    def nbytes(self) -> int:
        """Bytes of the tile."""
        return math.prod(self.shape) * self.dtype.bits // 8


@dataclass(frozen=True, slots=True)
class TileOp:
    """One operation on tiles.

    `issue` cycles hold the partition; `busy` cycles hold `unit`; the result is there `latency` cycles after
    the operation starts. `consumer` is the consumer it belongs to, None for loads that serve all; `copy` the
    K-block of the iteration that it works on. `mix` and `elements` are what the cycles of arithmetic were
    counted from. `pipes` are further units with the cycles that they are held; `items` the names of what an
    operation of the loop's body computes, in order.
    """

    id: OpId
    placement: Placement
    inputs: tuple[ValueId, ...]
    output: ValueId | None
    consumer: int | None
    unit: Unit | None
    issue: int
    busy: int
    latency: int
    tensor: str | None = None
    copy: int = 0
    mix: InstructionMix = field(default_factory=InstructionMix)
    elements: int = 0
    pipes: tuple[tuple[str, int], ...] = ()
    items: tuple[str, ...] = ()

    @property
    def kind(self) -> OpKind:
        """What kind of operation it is."""
        return self.id.kind

    @property
    def held(self) -> tuple[tuple[str, int], ...]:
        """Every unit that the operation holds, with the cycles."""
        own: tuple[tuple[str, int], ...] = ((self.unit, self.busy),) if self.unit is not None else ()
        return tuple((unit, cycles) for unit, cycles in own + self.pipes if cycles)


@dataclass(frozen=True, slots=True)
class Edge:
    """`target` of iteration i + `distance` may not start before the result of `source` of iteration i."""

    source: OpId
    target: OpId
    distance: int


@dataclass(frozen=True, slots=True)
class RingPlan:
    """Tiles that are loaded, read and released together: a ring of slots, one pair of barriers a slot.

    `loads` and `releases` are operations, those of all K-blocks of an iteration; `slot_bytes` are of
    the tiles of one K-block.
    """

    name: str
    loads: tuple[OpId, ...]
    releases: tuple[OpId, ...]
    slot_bytes: int


@dataclass(frozen=True, slots=True)
class EpilogueCost:
    """What one consumer's epilogue takes for one tile, and what the block's consumers share.

    `alone` is cycles when no other consumer runs its epilogue; `together` when all do. `staged_bytes` is
    one staging buffer (a piece of every kind of output), `lent_bytes` those of it for which the full inputs'
    buffers would do; `input_bytes` is a piece of every full tile that the epilogue reads; `registers` the live
    values beside the accumulators, a thread. `vector_bytes` is what vectors along the columns take.
    """

    alone: int
    together: int
    staged_bytes: int
    input_bytes: int
    registers: int
    stores: int
    lent_bytes: int = 0
    vector_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Live:
    """A tile in a consumer's registers: from the start of the operation that makes it to that of its last
    reader, or with `held`, for a product's operand, to that product's end. `registers` are a thread's.
    """

    value: ValueId
    maker: OpId
    readers: tuple[OpId, ...]
    held: bool
    registers: int
    consumer: int


@dataclass(frozen=True, slots=True)
class Work:
    """How the tiles of a grid differ in K-iterations: on the busiest SM, tiles, and K-iterations in all."""

    tiles: int
    k_iterations: float


@dataclass(frozen=True, slots=True)
class TileProgram:
    """A region cut to a structure: what a block does, with its costs. Nothing is scheduled yet.

    `live` are the loop's tiles in registers beside the accumulators; `stationary_bytes` one set of the tiles in
    shared memory that a block holds through its loop; `work` is the busiest SM's where tiles differ, else None.
    """

    region: Region
    structure: Structure
    k_iterations: int
    tiles: int
    values: tuple[Value, ...]
    ops: tuple[TileOp, ...]
    edges: tuple[Edge, ...]
    rings: tuple[RingPlan, ...]
    epilogue: EpilogueCost
    accumulator_registers: int
    tile_l2_bytes: int
    dram_bytes: int
    live: tuple[Live, ...] = ()
    stationary_bytes: int = 0
    work: Work | None = None

    def op(self, one: OpId) -> TileOp:
        """The operation with this id; KeyError if there is none."""
        for op in self.ops:
            if op.id == one:
                return op
        raise KeyError(one)

    def named(self, text: str) -> TileOp:
        """The operation whose id has this text, as schedules record it; KeyError if there is none."""
        for op in self.ops:
            if str(op.id) == text:
                return op
        raise KeyError(text)

    def value(self, one: ValueId | None) -> Value:
        """The value with this id; KeyError if there is none."""
        for value in self.values:
            if value.id == one:
                return value
        raise KeyError(one)

    @property
    def passes(self) -> float:
        """Iterations of a tile in units of a whole one: a last K-block that ends early is a part of one."""
        s = self.structure
        return self.k_iterations - (1 - s.tail / s.depth if s.tail else 0.0)

    @property
    def loop(self) -> tuple[TileOp, ...]:
        """The operations of the streamed loop."""
        return tuple(op for op in self.ops if op.placement is Placement.LOOP)
