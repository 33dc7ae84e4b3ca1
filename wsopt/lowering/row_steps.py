"""The steps of a loop whose iterations are tiles of rows: reading, phases of arithmetic, storing."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from wsopt.frontend.types import Region
from wsopt.lowering.cut import Load, Ring, Step, When
from wsopt.lowering.held_vectors import held_vectors
from wsopt.lowering.maker import Maker, Part, Steps, part_of
from wsopt.lowering.phases import (
    row_phase,
    row_phases,
)
from wsopt.lowering.rows_layout import rows_layout
from wsopt.machine.types import Machine
from wsopt.program.combination import kept_by_threads
from wsopt.program.facts import (
    Arithmetic,
    Read,
    Release,
    Signal,
    Store,
)
from wsopt.program.ids import AGAIN, OpKind
from wsopt.program.launch_grid import counts_columns, launch_axes
from wsopt.program.next_rows import knows_next_rows
from wsopt.program.program import Item
from wsopt.program.row_layout import (
    ACCESS_BITS,
    RowLayout,
    reduces_outer,
    tile_layout,
    turning_layout,
    widest_bits,
)
from wsopt.program.types import Structure
from wsopt.tensors.halves import other_half
from wsopt.tensors.orders import is_turned, lie_both_ways
from wsopt.tensors.statements import Reduction, Statement
from wsopt.tensors.views import OUTER, Role, Source, View, bytes_once


@dataclass(frozen=True, slots=True)
class Rows(Maker):
    """Makes the steps of a loop over tiles of rows."""

    def rows(self) -> Steps:
        """A loop whose iterations are tiles of rows, from and to device memory, each step after the one before.
        Nothing is copied beyond the end of a row. What repeats along batches comes from L2 again.
        """
        region, s = self.region, self.s
        extent = region.extent(Role.COLUMN)
        share = extent / (math.ceil(extent / s.columns) * s.columns)
        parts, steps = list(self._row_parts(share)), list[Step]()
        for part in parts:
            after = tuple((step.kind, step.subject, When.SAME) for step in steps[-1:])
            steps.append(replace(part.step, after=after, holds=tuple(self.holds(part, parts))))
        back = Step(OpKind.RELEASE, "", Release(meets=False))
        if s.resident:  # the hardware begins a block, and with it its tile, when another one has ended
            return (), tuple(steps), ()
        loads = (self._signal(),) if region.by_threads else tuple(self._loads(share))
        return (Ring("ring", ("",), loads),), (steps[0], back, *steps[1:]), ()

    def _signal(self) -> Load:
        """What stands for the copies of a tile where threads read it: all consumers are told to begin."""
        member = replace(self.member(self.region.operands[0]), by_threads=True)
        return Load(member, None, member.shape, Signal())

    def _loads(self, share: float) -> Iterator[Load]:
        """The copies of a tile, of each tensor one for every consumer. Tensors have a `share` of the tile's elements:
        those before the end of the rows.
        """
        region, s = self.region, self.s
        members = map(self.member, region.operands)
        # Rows that are read twice come from L2 the second time, as far as they are kept there.
        apart = self._apart
        lines = apart < 1 or any(map(is_turned, region.row_tiles))
        reads = share * self._fetches * apart
        own = [(m, round(self._fetched(m.view, m.copy_bytes * reads))) for m in members]
        for consumer in range(s.consumers):
            for m, nbytes in own:
                box = replace(m.box(m.shape), from_memory=nbytes, tiles=self.tiles, lines=lines)
                yield Load(m, consumer, m.shape, box)

    @property
    def _fetches(self) -> float:
        """How often a row comes from device memory, for each time that it is read."""
        region, s = self.region, self.s
        again = fetched_again(region, s) * (1 - kept_in_l2(region, s, self.machine))
        return (1 + again) / region.passes

    @property
    def _apart(self) -> float:
        """The share of what tiles read that comes from device memory where slices of a tensor overlap, as the taps of
        a convolution do: what several of them read comes from L2 for all but one.
        """
        read = [(view, view.nbytes) for view in self.region.operands]
        return bytes_once(read) / max(1, sum(nbytes for _, nbytes in read))

    def _fetched(self, view: View, nbytes: float) -> float:
        """Bytes that a tile's copy of a tensor brings from device memory, not from L2. A tensor that several batches
        share comes from L2 for all but the first of them; beside one that varies along all batches it counts as none.
        """
        if self._once(view):
            return nbytes
        if any(map(self._once, self.region.operands)):
            return 0
        apart = (self.region.extent(role) for role in OUTER if role not in view.roles)
        return max(1.0, nbytes / math.prod(apart))

    def _once(self, view: View) -> bool:
        """Whether each tile of a tensor is copied once: the tensor varies along all batches."""
        return all(role in view.roles for role in OUTER if self.region.extent(role) > 1)

    def _row_parts(self, share: float) -> Iterator[Part]:
        """Reading, which converts to f32 once, the phases, and storing the `share` of a tile that tensors have."""
        region, s = self.region, self.s
        leaves = tuple((source.name, 32) for source in region.tile_sources)
        read = region.operands
        told = () if s.resident else read[:1] if region.by_threads else read
        yield Part(Step(OpKind.ELEMENTWISE, "read", self._reading(share), self.read(told)), leaves=leaves)
        layout = rows_layout(region, s, self.machine)
        every = tuple(region.running or region.statements)
        # Of sums over rows nothing is exchanged before the end.
        phases = (every,) if row_sums(region, s) else row_phases(every)
        computed = self._computed(layout)
        for number, items in enumerate(phases, 1):
            work = row_phase(items, every, self._beside, s, layout, self.machine, self._held)
            work = self._of_a_pass(work)
            trips = self._trips() if number == 1 else 0
            work = replace(work, elements=round(work.elements * computed), trips=trips)
            yield part_of(Step(OpKind.ELEMENTWISE, f"phase{number}", work, items=items))
        if region.passes > 1:
            items = tuple(item for item in region.statements if item not in behind_rows(region))
            yield part_of(self._again(items, layout))
        stores = region.passes > 1 or not region.running
        if stores and any(not output.over_rows for output in region.outputs):
            yield self._row_store(share)

    def _reading(self, share: float) -> Read:
        """What it takes to read a tile, and to convert it, of which tensors have a `share`."""
        region, s = self.region, self.s
        read, elements = region.operands, s.rows * s.columns
        narrow = sum(view.step * (view.dtype.bits == 16) for view in read)
        moved = [] if region.by_threads else [view for view in read if not self._lies_across(view)]
        nbytes, across = sum(self.member(view).copy_bytes for view in moved), self._across(read)
        placed = math.ceil(len(read) * elements * self._with_ends) if s.flat else 0
        widened = round(narrow * elements * self._computed(rows_layout(region, s, self.machine)))
        counts = Read(nbytes, widened, self._divisions(), s.consumer_warps, across=across, placed=placed)
        if not region.by_threads:
            return counts
        fetched = sum(self._fetched(view, view.step * view.dtype.bits // 8 * elements) for view in read)
        return replace(
            counts,
            by_address=round(len(read) * elements * share),
            from_memory=round(fetched * share * self._fetches * self._apart),
            tiles=self.tiles,
            at_once=self._at_once(read or [one.view for one in region.outputs if one.has_columns]),
            piece=self._piece(read) if lie_both_ways(region.row_tiles) else 0,
        )

    def _trips(self) -> int:
        """Trips to L2 that a tile waits for beside its copies and vectors: one for values of its rows, unless those
        come ahead. Blocks side by side load them with the tile.
        """
        s, region = self.s, self.region
        values = any(source.spans == {Role.ROW} for source in region.sources)
        ahead = knows_next_rows(s, divided=self._divisions() > 0)
        return int(values and not (s.resident or region.running or ahead))

    def _computed(self, layout: RowLayout) -> float:
        """Share of a tile's elements that are computed with. Blocks side by side load no columns beyond a row's end,
        and where every call has as many, the compiler knows it: of what is zero in all threads it computes nothing.
        """
        region, s = self.region, self.s
        extent = region.extent(Role.COLUMN)
        known = region.whole_rows or not counts_columns(region.row_tiles, extent, s)
        if not (s.resident and known and extent <= s.columns):
            return 1.0
        return min(1.0, math.ceil(extent / layout.columns) * layout.columns / s.columns)

    def _lies_across(self, view: View) -> bool:
        """Whether a tensor lies turned in a tile in which others do not."""
        return is_turned(view) and lie_both_ways(self.region.row_tiles)

    def _across(self, views: Sequence[View]) -> int:
        """Accesses of shared memory for elements of transposed tensors. One that a copy brings counts as often as its
        bank conflicts repeat the read; one that threads load and then exchange counts twice, to write and to read it.
        """
        s, tiles = self.s, self.region.row_tiles
        cut = s.rows, s.columns, s.consumer_warps, self.machine
        exchanged = 0 if turning_layout(tiles, *cut) is None else 2
        own = tile_layout(tiles, *cut).collisions if views else 0
        each = (own if view.is_copied else exchanged for view in views if self._lies_across(view))
        return sum(each) * s.rows * s.columns

    @property
    def _beside(self) -> tuple[Source, ...]:
        """The vectors and scalars that are loaded for every tile: neither its tensors nor vectors that are held."""
        apart = (*self.region.tile_sources, *self._held)
        return tuple(one for one in self.region.sources if one not in apart)

    @property
    def _held(self) -> tuple[Source, ...]:
        """The vectors that stay in registers from tile to tile."""
        names = held_vectors(self.region, self.s, self.machine)
        return tuple(one for one in self.region.sources if one.name in names)

    def _at_once(self, views: Sequence[View]) -> int:
        """Neighbours that a thread reads or writes by one access, of tensors that no copy takes."""
        aligned = all(view.is_aligned or view.flat for view in views)
        if not views or not aligned or any(map(self._lies_across, views)):
            return 1
        s, tiles = self.s, self.region.operands or self.region.row_tiles
        tiles = self.region.row_tiles if lie_both_ways(self.region.row_tiles) else tiles
        own = tile_layout(tiles, s.rows, s.columns, s.consumer_warps, self.machine).vector
        whole = 0 if s.flat else self.region.extent(Role.COLUMN)
        return math.gcd(own, ACCESS_BITS // widest_bits(views), whole)

    @property
    def _parts(self) -> int:
        """Tiles of columns in a row."""
        return math.ceil(self.region.extent(Role.COLUMN) / self.s.columns)

    @property
    def _with_ends(self) -> float:
        """The share of a flat row's parts that may have elements of other rows: the first and the last."""
        return min(1.0, 2 / self._parts)

    def _divisions(self) -> int:
        """Divisions by which a tile's place follows from its number: by all axes of tiles but one, if the launch
        has not an axis for each. Rows that are not reduced may have more columns in another call.
        """
        region, s = self.region, self.s
        fixed = not counts_columns(region.row_tiles, region.extent(Role.COLUMN), s)
        apart = not (region.running or region.whole_rows or fixed)
        if launch_axes(dict(region.extents), s, columns=apart):
            return 0
        return sum(region.extent(role) > 1 for role in OUTER) + apart

    def _row_store(self, share: float) -> Part:
        """The store of a tile of rows. Values of rows that no SM holds are stored behind their last part."""
        region, s = self.region, self.s
        bits = [output.view.dtype.bits for output in region.tile_outputs]
        sizes = [s.rows * s.columns * width // 8 // region.passes for width in bits]
        own = [output for output in region.outputs if not output.over_rows]
        by_threads = [output.view for output in own if output.by_threads]
        joined = sum(1 for output in own if other_half(output, own))
        apart = [view.dtype.bits // 8 for view in by_threads]
        elements = round(s.rows * s.columns * share) // region.passes
        behind = () if region.running else (output for output in own if not output.has_columns)
        values = [output.view.dtype.bits // 8 for output in behind]
        copied = sum(round(size * share) for size in sizes) + s.rows * sum(values) + elements * sum(apart)
        views = [output.view for output in region.tile_outputs]
        across = self._across([*views, *by_threads]) // region.passes
        staged = sum(size for size, view in zip(sizes, views, strict=True) if not self._lies_across(view))
        store = Store(
            len(sizes), staged, copied, self.tiles, len(values), region.passes, (len(apart) - joined // 2) * elements,
            self._at_once(by_threads), self._piece([*views, *by_threads]), across,
            elements * sum(self._scatters(one.view) for one in own if one.by_threads and not other_half(one, own)),
        )  # fmt: skip
        return Part(Step(OpKind.TMA_STORE, "", store), tuple(output.value for output in own))

    def _scatters(self, view: View) -> bool:
        """Whether elements of a row lie apart in memory, and so far that no two threads' share a sector."""
        tiles = self.region.operands or self.region.row_tiles
        own = tile_layout(tiles, self.s.rows, self.s.columns, self.s.consumer_warps, self.machine).vector
        apart = view.stride(Role.COLUMN)
        far = own * apart * view.dtype.bits // 8 >= self.machine.l2_sector_bytes
        return apart > 1 and (far or view.step > 1) and not is_turned(view)

    def _piece(self, views: Sequence[View]) -> int:
        """The fewest bytes of these tensors' tiles that are neighbours in device memory; 0 where tiles have whole
        rows, or stretches of them that are long.
        """
        both = lie_both_ways(self.region.row_tiles)
        sides = ((view, self.s.rows if is_turned(view) else self.s.columns) for view in views)
        return min((n * view.dtype.bits // 8 for view, n in sides if both or is_turned(view)), default=0)

    def _of_a_pass(self, work: Arithmetic) -> Arithmetic:
        """Arithmetic of one of the passes over a row, averaged over the iterations of all passes. Where each thread
        keeps reductions of its own, they are exchanged once a row, behind its last part.
        """
        passes = self.region.passes
        once = self._parts if row_sums(self.region, self.s) else 1
        return replace(
            work,
            elements=work.elements // passes,
            statements=math.ceil(work.statements / passes),
            special=math.ceil(work.special / passes),
            reductions=tuple(replace(one, share=1 / (passes * once)) for one in work.reductions),
        )

    def _again(self, items: tuple[Item, ...], layout: RowLayout) -> Step:
        """The step of a second pass over a row's parts, which computes the output's elements."""
        every = self.region.statements
        work = row_phase(items, every, self._beside, self.s, layout, self.machine, self._held)
        return Step(OpKind.ELEMENTWISE, AGAIN, self._of_a_pass(work), items=items)


def row_sums(region: Region, s: Structure) -> frozenset[str]:
    """The reductions of rows that no SM holds which each thread keeps for its own elements until the last part: all,
    or none. None if the reduced axis is not contiguous: few threads share a row then.
    """
    if not region.running or reduces_outer(region.operands) or kept_by_threads(region.running) is None:
        return frozenset()
    return frozenset(item.name for item in region.running if isinstance(item, Reduction))


def behind_rows(region: Region) -> list[Item]:
    """What is computed behind the last part of rows that no SM holds, where reductions are complete: values a row."""
    return [i for i in region.statements if not isinstance(i, Statement) or Role.COLUMN not in i.spans]


def part_registers(region: Region, s: Structure, machine: Machine) -> int:
    """Registers of a thread for its elements of a part of rows, as they were read, not converted."""
    bits = sum(view.dtype.bits for view in {source.view for source in region.tile_sources})
    return math.ceil(s.rows * s.columns * bits / 32 / (s.consumer_warps * machine.threads_per_warp))


def fetched_again(region: Region, s: Structure) -> float:
    """The share of rows that is copied once more for a second pass: what neither slots nor registers have kept; 0 of
    one pass.
    """
    parts = math.ceil(region.extent(Role.COLUMN) / s.columns)
    return (region.passes - 1) * (1 - (s.retained + s.in_registers) / parts)


def kept_in_l2(region: Region, s: Structure, machine: Machine) -> float:
    """The share of rows that is still in L2 when they are read again: all where L2 holds the rows that all blocks are
    at, with what they store meanwhile. Beyond that it falls steeply.
    """
    row = sum(view.dtype.bits // 8 for view in region.operands) * region.extent(Role.COLUMN)
    if not row:  # there are none
        return 1.0
    rows = s.tile_rows * s.places(machine.sm_count)
    return min(1.0, (machine.l2_bytes / (2 * rows * row)) ** _FALL)


_FALL = 6
"""Exponent by which the share of rows in L2 falls with their bytes over those that it holds: to 0.19 where rows and
their outputs have 1.3 times as many, which explains what 2,048 rows of 128,256 elements took
(`docs/calibration/h200_long_rows.json`).
"""
