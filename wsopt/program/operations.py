"""Operations on tiles and what ties them: the tiles that they make, dependences, rings, and registers that are held.

They are what a tile program is made of (`program.py`). Extents are in elements, times in cycles of an SM.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from wsopt.graph.types import DType
from wsopt.program.facts import Counts, Member
from wsopt.program.ids import OpId, OpKind, Unit, ValueId
from wsopt.program.types import Space
from wsopt.tensors.statements import Item
from wsopt.tensors.views import FULL

ARITHMETIC = (Unit.ALU, Unit.FMA, Unit.MUFU)
"""The units of arithmetic instructions."""


@dataclass(frozen=True, slots=True)
class Value:
    """A tile: its shape, element type and space. It may lie in the columns of another that it is made from."""

    id: ValueId
    shape: tuple[int, ...]
    dtype: DType
    space: Space
    within: ValueId | None = None

    @property
    def consumer(self) -> int | None:
        """The consumer that it belongs to, None for all."""
        return self.id.instance

    @property
    def nbytes(self) -> int:
        """Bytes of the tile."""
        return math.prod(self.shape) * self.dtype.bits // 8

    @property
    def sets(self) -> int:
        """Sets of sums, of rows by columns each, that it consists of: one for each part of the contracted axis."""
        return self.shape[0] if len(self.shape) > len(FULL) else 1

    @property
    def tensor_columns(self) -> int:
        """Columns of tensor memory that it takes, 32 bits each: none in those of another tile."""
        apart = self.space is Space.TENSOR and self.within is None
        return self.shape[1] * self.dtype.bits // 32 if apart else 0


@dataclass(frozen=True, slots=True)
class TileOp:
    """One operation on tiles, with `counts` of what it takes, and their price on a machine.

    `issue` cycles hold the partition; `busy` cycles hold `unit`; the result is there `latency` cycles after
    the operation starts. `pipes` are further units with the cycles that they are held; `items` what an operation
    of arithmetic computes, in order; `instructions` a product's of the tensor core, a warpgroup. What is done `apart`
    is no consumer's: a role of its own does it for them, of several warpgroups the one numbered `helper`.
    """

    id: OpId
    inputs: tuple[ValueId, ...]
    output: ValueId | None
    counts: Counts
    items: tuple[Item, ...] = ()
    unit: Unit | None = None
    issue: int = 0
    busy: int = 0
    latency: int = 0
    pipes: tuple[tuple[str, int], ...] = ()
    instructions: int = 0
    apart: bool = False
    helper: int = 0

    @property
    def kind(self) -> OpKind:
        """The operation's kind."""
        return self.id.kind

    @property
    def consumer(self) -> int | None:
        """The consumer it belongs to, None for copies and for what is done apart."""
        return None if self.kind is OpKind.TMA_LOAD or self.apart else self.id.instance

    @property
    def copy(self) -> int:
        """The K-block of the iteration that it works on."""
        return self.id.k_block

    @property
    def makes(self) -> tuple[str, ...]:
        """The names of what it computes: its items, or the product whose sums it makes, moves or rescales."""
        product = self.kind in (OpKind.MMA, OpKind.RESCALE, OpKind.READ, OpKind.WRITE)
        return (self.id.subject,) if product else tuple(item.name for item in self.items)

    @property
    def held(self) -> tuple[tuple[str, int], ...]:
        """Every unit that the operation holds, with the cycles."""
        own: tuple[tuple[str, int], ...] = ((self.unit, self.busy),) if self.unit is not None else ()
        return tuple((unit, cycles) for unit, cycles in own + self.pipes if cycles)


@dataclass(frozen=True, slots=True)
class Edge:
    """`target` of iteration i + `distance` may not start before the result of `source` of iteration i; or before its
    issue, where who issues both `keeps_order`: one unit does one after the other.
    """

    source: OpId
    target: OpId
    distance: int
    keeps_order: bool = False

    def wait(self, source: TileOp) -> int:
        """Cycles from the start of the source to that of the target, at least, but for a hand-over."""
        return source.issue if self.keeps_order else source.latency


@dataclass(frozen=True, slots=True)
class RingPlan:
    """Tiles that are loaded, read and released together: a ring of slots, one pair of barriers a slot.

    `loads` and `releases` are operations, those of all K-blocks of an iteration; `slot_bytes` are of the tiles of one
    K-block, and `members` the tensors that they are of.
    """

    name: str
    loads: tuple[OpId, ...]
    releases: tuple[OpId, ...]
    slot_bytes: int
    members: tuple[Member, ...] = ()

    @property
    def copied(self) -> bool:
        """Whether copies fill it, not a role that computes."""
        return all(load.kind is OpKind.TMA_LOAD for load in self.loads)

    @property
    def signals(self) -> bool:
        """Whether its slots hold nothing, and say when tiles may be read that threads read from device memory."""
        return any(member.by_threads for member in self.members)


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
