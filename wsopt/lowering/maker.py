"""What makes the steps of a loop, whatever its kind: tiles and their copies, rings, and what is kept in registers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from wsopt.frontend.types import Region
from wsopt.lowering.cut import Held, Load, Ring, Step
from wsopt.machine.types import Machine
from wsopt.program.facts import (
    Copy,
    Member,
)
from wsopt.program.ids import OpKind, ValueKind
from wsopt.program.types import Structure, column_role, row_role
from wsopt.targets import Sums, target_of
from wsopt.tensors.parts import summed
from wsopt.tensors.statements import Statement
from wsopt.tensors.views import FULL, K_BLOCK, Packing, Role, View

Steps = tuple[tuple[Ring, ...], tuple[Step, ...], tuple[Member, ...]]
"""Rings, steps, and the tensors that a block holds through its loop."""


def inner_extent(region: Region, machine: Machine) -> int:
    """Elements of the inner axis as tiles hold it: each part is what one tensor instruction contracts, or more."""
    return summed(region.extent(Role.INNER), machine.mma_depth(region.operand_dtype.bits))


@dataclass(frozen=True, slots=True)
class Part:
    """A step before it is linked to others: the values that it `needs` and `makes`, by name, and the tiles that it
    `leaves` in registers, with their bits.
    """

    step: Step
    needs: tuple[str, ...] = ()
    makes: tuple[str, ...] = ()
    leaves: tuple[tuple[str, int], ...] = ()


def part_of(step: Step) -> Part:
    """The part that a phase of arithmetic is."""
    needs = tuple(name for item in step.items for name in item.reads)
    tiles = (item for item in step.items if isinstance(item, Statement) and item.spans in (K_BLOCK, FULL))
    leaves = tuple((item.name, item.dtype.bits) for item in tiles)
    return Part(step, needs, tuple(item.name for item in step.items), leaves)


@dataclass(frozen=True, slots=True)
class Maker:
    """Makes the steps of a region cut to a structure, whose grid has so many `tiles`."""

    region: Region
    s: Structure
    machine: Machine
    tiles: int

    @property
    def apart(self) -> bool:
        """Whether products leave their results in tensor memory."""
        return target_of(self.machine).sums is Sums.TENSOR_MEMORY

    @property
    def inner(self) -> int:
        """Elements of the inner axis as tiles hold it."""
        return inner_extent(self.region, self.machine)

    def shape(self, view: View, rows: int) -> tuple[int, ...]:
        """The shape of a block's tile of a tensor with so many of the accumulator's rows."""
        s = self.s
        extents = {row_role(s.swap): rows, column_role(s.swap): s.columns // s.blocks, Role.STREAM: s.depth}
        extents[Role.INNER] = self.inner
        return tuple(view.of(role, extents[role]) for role in view.roles if role in extents)

    def member(self, view: View) -> Member:
        """A tensor in shared memory, and how its copies lie there."""
        s, by_rows = self.s, row_role(self.s.swap) in view.roles
        name = self.region.operand_name(view) if view in self.region.streams else view.tensor
        return Member(view, name, self.shape(view, s.rows), s.at_once if by_rows else 1, by_rows)

    def box(self, member: Member) -> Copy:
        """Counts of a copy of an operand, with the rows of it that lie beyond the tensor's end, on the average: where
        it is the last tile's alone, the others have the bytes that this one does not ask for.
        """
        return replace(self._box(member, member.shape), paired=self.s.paired)

    def _box(self, member: Member, shape: tuple[int, ...]) -> Copy:
        if len(member.view.roles) == 1:
            return member.box(shape)
        role, s = member.view.roles[-2], self.s
        tile = {row_role(s.swap): s.tile_rows, column_role(s.swap): s.columns}.get(role)
        if tile is None:
            return member.box(shape)
        extent = self.region.extent(role)
        share = 1 - extent / (math.ceil(extent / tile) * tile)
        return replace(member.box(shape), outside=share * member.extent(role))

    def read(self, views: Iterable[View]) -> tuple[tuple[ValueKind, str], ...]:
        """The inputs of a step that reads the tiles of streamed tensors, each once."""
        return tuple((ValueKind.TILE, self.region.operand_name(view)) for view in dict.fromkeys(views))

    def streamed_rings(self) -> list[Ring]:
        """A ring for each tensor, but for scales of groups: they share the slots of the numbers that they scale. As
        factors of partial sums a product reads them behind its operands, and a K-block has one slot for all tensors.
        """
        members = [self.member(view) for view in self.region.streams]
        if self.region.factor_sources:
            return [Ring("ring", ("",), tuple(map(self._load, members)))]
        packed = [one for one in members if one.view.packing is Packing.FRAGMENTS][:1]
        shared = [one for one in members if packed and one.view.each > 1]
        found = list[Ring]()
        for member in (one for one in members if one not in shared):
            held = [member, *(shared if member in packed else [])]
            found.append(Ring(f"{member.name}_ring", (member.name,), tuple(map(self._load, held))))
        return found

    def _load(self, member: Member) -> Load:
        """The copies of a tensor for all consumers."""
        shape = self.shape(member.view, self.s.tile_rows)
        return Load(member, None, shape, self._box(member, shape))

    def holds(self, part: Part, parts: Sequence[Part]) -> Iterator[Held]:
        """Tiles that one step leaves to later ones, which read them side by side, or in order where rows stream."""
        s, body = self.s, self.region.body
        columns, threads = s.depth if body else s.columns, s.consumer_warps * self.machine.threads_per_warp
        for name, bits in part.leaves:
            readers = [p.step for p in parts if p is not part and name in p.needs]
            if readers:
                registers = math.ceil(s.rows * columns * max(bits, 16) / 32 / threads)
                to_the_end = any(step.kind is OpKind.MMA for step in readers)
                names = tuple((step.kind, step.subject) for step in (readers if body else readers[-1:]))
                yield Held(name, names, registers, to_the_end)
