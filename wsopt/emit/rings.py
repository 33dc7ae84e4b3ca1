"""The boxes that a kernel's tensors lie in, and the rings that tiles come through, under the names of its text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from wsopt.emit.instructions import arrive, hand_back, wait
from wsopt.emit.names import Names
from wsopt.emit.slots import SlotCounter
from wsopt.emit.tensors import Box, make_box, part_boxes, row_box
from wsopt.program.facts import Member
from wsopt.program.ids import OpId, OpKind, ValueKind
from wsopt.program.program import Iteration, RingPlan, TileProgram
from wsopt.program.types import column_role, row_role
from wsopt.schedule.types import PartitionRole
from wsopt.schedule.verified import VerifiedSchedule
from wsopt.tensors.orders import lie_both_ways
from wsopt.tensors.views import Role, View


@dataclass(frozen=True, slots=True)
class Ring:
    """A ring of slots, with the boxes of each tensor of which a slot holds tiles, one for each part of a tile;
    `nbytes` is what the text calls the bytes of a slot. Its slots are told by the place of their K-block
    (`slots.py`). Some of its tiles are `loaded`, which is what threads do; others products alone read.
    """

    name: str
    counter: SlotCounter
    nbytes: str
    plan: RingPlan
    members: tuple[tuple[Member, tuple[Box, ...]], ...]
    loaded: bool

    @property
    def depth(self) -> str:
        """The constant of the number of slots."""
        return self.counter.depth

    def full(self, place: int = 0) -> str:
        """The barrier that says that the slot of a K-block is full."""
        return f"{self.name}_full.index({self.counter.slot(place)})"

    def empty(self, place: int = 0) -> str:
        """The barrier that says that every reader has handed it back."""
        return f"{self.name}_empty.index({self.counter.slot(place)})"

    def wait_full(self, place: int = 0) -> str:
        """Wait until what fills a slot has landed."""
        return wait(self.full(place), self.counter.phase(place))

    def wait_empty(self, place: int = 0) -> str:
        """Wait until every reader has handed a slot back."""
        phase = self.counter.phase(place)
        return wait(self.empty(place), f"{phase if phase.isidentifier() else f'({phase})'} ^ 1")

    def release(self, place: int = 0) -> str:
        """Hand a slot back."""
        return (hand_back if self.loaded else arrive)(self.empty(place))

    @property
    def boxes(self) -> tuple[Box, ...]:
        """All boxes, tensor by tensor."""
        return tuple(box for _, boxes in self.members for box in boxes)

    def loads_of(self, member: Member) -> list[OpId]:
        """The loads of one of its tensors, for the first K-block of an iteration."""
        return [one for one in self.plan.loads if one.subject == member.name and not one.k_block]


@dataclass(frozen=True, slots=True)
class NamedBoxes:
    """Makes the boxes and rings of a kernel; a tensor has one of its `names` for each way in which it is used."""

    verified: VerifiedSchedule
    names: Names

    def box(self, kind: str, wish: str, view: View, extents: Mapping[Role, int]) -> Box:
        """The box of a tensor that takes so many elements along its axes."""
        name = self.names(f"{kind}:{wish}", wish)
        box = self._row_box(name, view, extents) if self._by_tile else make_box(name, view, extents)
        return self._divided(box, row_role)

    def held(self, kind: str, member: Member) -> tuple[Box, ...]:
        """The boxes of a tensor that a ring or the block holds, one for each of its parts; none of one that threads
        read.
        """
        if member.by_threads:
            return ()
        name, view = self._called(kind, member), member.view
        extents = {role: member.extent(role) for role in view.roles}
        if self._by_tile:
            return (self._row_box(name, view, extents),)
        side = row_role if member.by_rows else column_role
        return tuple(self._divided(box, side) for box in part_boxes(name, view, extents))

    def rings(self) -> tuple[Ring, ...]:
        """The rings. Where slots are counted on, those of equal depths have one counter."""
        program, depths = self.verified.program, dict(self.verified.schedule.rings)
        counters, kept = dict[int, SlotCounter](), not program.computes_with_products
        multiplied = multiplied_tiles(program)

        def ring(plan: RingPlan) -> Ring:
            members = tuple((one, self.held("streamed", one)) for one in plan.members)
            loaded = not plan.signals and any(one.name not in multiplied for one in plan.members)
            if len(program.rings) == 1:
                return Ring("ring", SlotCounter("", "RING_DEPTH", kept), "RING_BYTES", plan, members, loaded)
            name, *_ = (self._called("streamed", one) for one in plan.members)
            prefix = "" if len({*depths.values()}) == 1 else f"{name}_"
            counter = SlotCounter(prefix, f"{name}_DEPTH", kept)
            counter = counters.setdefault(depths[plan.name], counter) if kept else counter
            return Ring(f"{name}_ring", counter, str(plan.slot_bytes), plan, members, loaded)

        return tuple(map(ring, program.rings))

    def _divided(self, box: Box, side: Callable[[bool], Role]) -> Box:
        """The box with the dimension along which the blocks of a pair divide it, if there are pairs."""
        s = self.verified.program.structure
        return replace(box, split=box.view.roles.index(side(s.swap))) if s.paired else box

    @property
    def _by_tile(self) -> bool:
        return self.verified.program.iteration is Iteration.TILE

    def _row_box(self, name: str, view: View, extents: Mapping[Role, int]) -> Box:
        across = lie_both_ways(self.verified.program.row_tiles)
        return row_box(name, view, extents, self.verified.machine.tma_box_extent_max, across=across)

    def _called(self, kind: str, member: Member) -> str:
        """What the text calls a tensor that a ring or the block holds."""
        wish = member.name if member.name.isidentifier() else member.view.tensor  # one that a role computes
        return self.names(f"{kind}:{wish}", wish)


def multiplied_tiles(program: TileProgram) -> frozenset[str]:
    """Tensors of whose streamed tiles products read nothing but operands, and nobody else anything; of others threads
    load some.
    """
    by_products, by_threads = set[str](), set[str]()
    for op in program.ops:
        operands = 2 if op.kind is OpKind.MMA else 0  # behind them are factors of the sums
        tiles = [value.subject if value.kind is ValueKind.TILE else "" for value in op.inputs]
        by_products.update(tiles[:operands])
        by_threads.update(tiles[operands:])
    return frozenset(by_products - by_threads)


def loaders(verified: VerifiedSchedule, rings: Sequence[Ring]) -> Iterator[tuple[Ring, ...]]:
    """The rings that each loading warp fills, in the order of the schedule."""
    for partition in (one for one in verified.schedule.partitions if one.role is PartitionRole.LOADER):
        placed = verified.schedule.of(partition.name)
        loads = [verified.program.named(one.op).id for one in placed]
        own = [ring for ring in rings if ring.plan.loads[0] in loads]
        yield tuple(sorted(own, key=lambda ring: min(map(loads.index, ring.plan.loads))))
