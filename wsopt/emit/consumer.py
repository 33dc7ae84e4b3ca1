"""A consumer: what it does for a tile. Its loop, what goes on around and under that, and its epilogue.

An epilogue's vectors are asked for while the first products are under way. Full inputs whose buffers the tile before
has lent to its stores are copied some passes into the loop, when those stores have read them. Where tiles differ in
their K-blocks there is a loop for those in which masks are at work and one for those in which none is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from wsopt.emit import (
    dynamic,
    flat,
    held,
    inputs,
    next_rows,
    over_rows,
    records,
    reductions,
    resident,
    row_passes,
    splits,
    tensor_sums,
    tensor_values,
    text,
    turning,
)
from wsopt.emit.epilogue import calls
from wsopt.emit.functions import Function, each_owed, function, seen
from wsopt.emit.instructions import Mma, when, write, zero
from wsopt.emit.operations import Operations
from wsopt.emit.plan import STATIONARY, KernelPlan
from wsopt.emit.prefetched import load_lines, store_lines
from wsopt.emit.ranges import k_block_range, scalar_loads, tile_range
from wsopt.emit.row_passes import after_rows
from wsopt.emit.slots import first_slots, first_step, next_slots, windows
from wsopt.emit.stretches import Stretch
from wsopt.emit.sums import accumulator_names, accumulators
from wsopt.emit.unroll import older_values
from wsopt.emit.windows import windows_of
from wsopt.program.ids import ValueKind
from wsopt.program.ranges import LiveLoops
from wsopt.program.types import Space, row_role
from wsopt.schedule.program_order import consumer_order
from wsopt.schedule.types import PartitionRole
from wsopt.tensors.statements import Statement


@dataclass(frozen=True, slots=True)
class Consumer:
    """Writes what a consumer does for a tile, around `operations` of its loop.

    `live` says which loops can run, `stretches` are those that are written. The loop takes `least` passes, as
    scheduled; a tile may have fewer whole K-blocks where it `may_fall_short`.
    """

    plan: KernelPlan
    operations: Operations
    live: LiveLoops
    stretches: tuple[Stretch, ...] = ()
    least: int = 1
    may_fall_short: bool = False

    @property
    def _apart(self) -> int:
        """Number of inputs' subtiles, after the first, before whose copy the steady passes stop."""
        plan = self.plan
        return plan.verified.schedule.buffers.inputs - 1 if plan.refill.apart else 0

    def tensor_instructions(self) -> int:
        """Tensor instructions that the compiled consumer has to contain: its loops' text may stand more than once.

        Steady passes stand once before each copy of an input's subtile that waits for some, and once behind the last.
        """
        loops = [stretch.loop for stretch in self.stretches]
        copies = int(self.plan.refill.first > 0) + self._apart
        written = (
            one for loop in loops for one in (*loop.prologue, *loop.steady * (1 + copies), *loop.drain)
        )
        return sum(one.instructions for one in written if isinstance(one, Mma))

    def covering_k_blocks(self) -> int:
        """The least K-blocks of a tile with which every pass runs, of each part; 1 where tiles differ in them."""
        plan, refill = self.plan, self.plan.refill
        if not plan.columns or not plan.in_loop or plan.loops_over_tiles:
            return 1
        (stretch,) = self.stretches
        pauses = refill.first + self._apart * refill.apart
        return (stretch.loop.first + pauses + 1 + stretch.loop.peeled) * plan.s.copies * plan.s.splits

    def function(self) -> Function:
        """The function of a consumer."""
        parameters, begin, end = self._parameters(), self._begin(), "\n".join(self._end())
        body = self._body()  # which notes the functions that are called
        begin += self._carried()
        return function(self.plan, PartitionRole.CONSUMER, parameters, begin, body, end, self._called())

    @property
    def _loads(self) -> list[str]:
        """The descriptors of the full tiles that the consumer copies for its epilogue."""
        return [] if self.plan.inputs_by_loader else [box.descriptor for box in self.plan.inputs.values()]

    def _parameters(self) -> list[str]:
        """The parameters of the function, in the order of `seen`: tensors, channels, sizes."""
        plan, role = self.plan, PartitionRole.CONSUMER
        vectors = [name for one in plan.read_vectors for name in one.arguments]
        return [
            *seen(plan, role, own=False), *self._loads, *vectors, *seen(plan, role, own=True),
            *plan.stored, *over_rows.stored(plan), *plan.order_table,
            *(splits.PARAMETERS if plan.split or plan.carried else ()),
            *(plan.offsets.arguments if plan.offsets else ()), *plan.sizes, "index: gl.constexpr",
        ]  # fmt: skip

    def _begin(self) -> list[str]:
        """Lines before the first tile: counters, and the end of the kernel before."""
        plan = self.plan
        begin = [*self._first_step(), *self._first_slots()] if plan.in_loop else []
        if not plan.loops_over_tiles:
            begin += ["visit = 0", *(splits.nothing_owed(plan) if plan.owes_ends else [])]
            begin += [f"{tensor_sums.counter(plan)} = 0"] if plan.sums_apart and plan.split else []
            # Where tiles are iterations, addresses are read behind a copy of the loader's, which has waited. The
            # kernel before may still use the workspace of this one.
            early = (plan.s.persistent and plan.ranged) or plan.vectors or self._loads or plan.split
            begin += ["gdc_wait()"] if early or plan.offsets else []
        begin += resident.begin(plan)
        return [*begin, *(["gdc_wait()"] if self.operations.of_rows and not plan.s.resident else [])]

    def _end(self) -> list[str]:
        """Lines behind the last tile: ends that are owed, sums over all rows, the last stores."""
        plan = self.plan
        ends = each_owed(plan, calls(plan)) if plan.owes_ends else over_rows.ended(plan)
        waits = ["tma.store_wait(0)"] if plan.outputs and not plan.stores_apart else []
        return [*ends, *waits, *resident.end(plan)]

    def _called(self) -> set[str]:
        """The kernel's own functions that the text calls."""
        called = self.operations.writer.called.union(*(stretch.loop.called for stretch in self.stretches))
        return called.union(after_rows(self.plan)[1]) if self.plan.program.long_rows else called

    def _first_step(self) -> list[str]:
        """Lines that begin at the consumer's first K-block, behind those of others where tiles go in turns."""
        if not self.plan.ping_pong:
            return first_step(self.plan.counts_steps)
        if not self.plan.split:
            return ["step = index * k_iterations"]
        return ["turns = 0", "step = 0", splits.steps(self.plan, "index", "gl.program_id(0)")]

    def _others_steps(self) -> list[str]:
        """Lines that pass over the K-blocks of consumers whose turns come before this one's next."""
        if not self.plan.ping_pong:
            return []
        passed = ["step += (CONSUMERS - 1) * k_iterations"]
        if self.plan.split:
            passed = [splits.steps(self.plan, "1, CONSUMERS", "place"), "turns += 1"]
        return [*passed, *self._first_slots()]

    def _first_slots(self) -> Iterator[str]:
        """Lines that begin at the slots of the consumer's first K-block: one of its own where tiles go in turns."""
        order = consumer_order(self.plan.verified)
        return first_slots(windows_of(self.operations, order), self.plan.s.copies, step=self.plan.ping_pong)

    def _carried(self) -> list[str]:
        """Sums and partial sums that are made before the first tile, where a tile does not clear them."""
        plan = self.plan
        if plan.ranged:
            return []
        if plan.loops_over_tiles:
            by_part = plan.columns or plan.program.long_rows
            each_tile = by_part or plan.s.flat
            columns = [] if each_tile else [f"columns = {flat.tile_columns(plan)}"]
            there, of_tiles = [*held.loaded(plan)], self.operations.of_tiles
            ahead = next_rows.loaded(plan, of_tiles, waited=bool(there))
            return [*columns, *there, *ahead, *over_rows.starts(plan)]
        values = (v.id for v in plan.program.values if v.space is Space.REGISTERS and v.consumer == 0)
        return [line for value in values for line in self._cleared(self.operations.registers(value))]

    def _cleared(self, names: Sequence[str]) -> Iterator[str]:
        """Lines that clear sums, each set of them accumulator by accumulator."""
        own = accumulators(self.plan.s)
        for name, one in zip(names, own * (len(names) // len(own)), strict=True):
            yield zero(name, one.columns, one.layout)

    # --- a tile -----------------------------------------------------------------------------------------

    def _body(self) -> str:
        """All that a consumer does for a tile."""
        plan = self.plan
        end = [*calls(plan), *([] if plan.loops_over_tiles else ["visit += 1"])]
        if plan.owes_ends:
            end = [*splits.left(plan, calls(plan, whole=True) if plan.s.shares else ()), "visit += 1"]
        elif plan.split:
            before = [inputs.input_loads(plan), *store_lines(plan.prefetched.values())]
            whole = [*before, *calls(plan, whole=True), "visit += 1"] if plan.s.shares else []
            stored = tensor_sums.stores(plan) if plan.sums_apart else splits.stores(plan)
            end = splits.combined(plan, stored, [*before, *end], whole)
            end += [f"{tensor_sums.counter(plan)} += 1"] if plan.sums_apart else []
        lines = [*self._places(), *self._starts(), *self._loops(), *end, *self._others_steps()]
        return "\n".join(line for line in lines if line)

    def _places(self) -> list[str]:
        """Lines with the consumer's first row and column, and the K-blocks that count for them."""
        if not self.plan.ranged:
            counted = ["k_blocks = last - first"] if self.plan.split and self.plan.in_loop else []
            return [*counted, *self.plan.first_places()]
        narrow, loads = "begin, whole_begin, whole_end, end", scalar_loads(self.plan)
        if not self.plan.own_k_blocks:
            return [*loads, tile_range(self.plan, narrow), *self.plan.first_places(), "origin = begin - step"]
        return [
            *loads,
            tile_range(self.plan, "tile_begin, whole_begin, whole_end, tile_end"),
            *self.plan.first_places(),
            f"{narrow} = {k_block_range(self.plan, 'row', 'CONSUMER_ROWS', 'tile_begin', 'tile_end')}",
            "origin = tile_begin - step",
        ]

    def _starts(self) -> list[str]:
        """Lines before the loop: initial values that it carries, and the vectors that its values read.

        What is added to before a product has overwritten it is cleared: values where K-blocks are few, and sums there
        and of partial sums.
        """
        plan, operations, layout, rows = self.plan, self.operations, self.plan.loop_layout, self._rows
        if plan.loops_over_tiles:
            started = row_passes.starts(operations) if plan.program.long_rows else ()
            by_tile = plan.columns or (plan.s.flat and not plan.program.long_rows)
            columns = [flat.numbered(plan)] if by_tile else []
            return [rows, *flat.begin(plan), *started, *columns, *turning.numbers(plan)]
        placed = self._counts_rows or not plan.columns or operations.reads_along_rows
        lines = [rows] if placed else []
        if plan.values_apart:
            return [
                *lines,
                *reductions.starts(operations.writer),
                *tensor_values.cleared(operations),
                *operations.vectors(),
            ]
        made = [v.id.subject for v in plan.program.values if v.consumer == 0 and v.id.kind is ValueKind.VALUE]
        results = [name for name in made if name in operations.writer.results]
        lines += [zero(plan.value(name), "TILE_DEPTH", layout) for name in results]
        lines += reductions.starts(operations.writer, older_values(operations) if plan.ranged else ())
        if plan.ranged or plan.program.adds_partials:
            for name in plan.sums:
                lines += self._cleared(accumulator_names(plan.s, name))
        return [*lines, *operations.vectors()]

    @property
    def _rows(self) -> str:
        """The line with the places of the rows in the layout of the loop's tiles."""
        return f"rows = row + gl.arange(0, CONSUMER_ROWS, layout=gl.SliceLayout(1, {self.plan.loop_layout}))"

    @property
    def _counts_rows(self) -> bool:
        """Whether the loop computes with the places of its rows."""
        places = (f"iota_{row_role(self.plan.s.swap)}",)
        return any(isinstance(i, Statement) and i.primitive in places for i in self.plan.program.items)

    def _loops(self) -> list[str]:
        """The loops, with what goes on before, under and after them."""
        plan, under = self.plan, self._under()
        if not plan.in_loop:
            stored = [] if plan.split else store_lines(plan.prefetched.values())
            return [*under, tensor_sums.wait(plan), *records.behind_loop(plan), *stored]
        if plan.program.long_rows:
            return row_passes.passes_over_rows(self.operations, [one.loop for one in self.stretches])
        if plan.loops_over_tiles:
            steady = self.stretches[0].loop.steady
            return [write(dynamic.waited(plan, steady) if plan.s.dynamic else steady)]
        products = any(isinstance(one, Mma) for one in self.stretches[0].loop.prologue)
        begun = products and not plan.ranged and not plan.ping_pong
        lines = [*([] if begun else under), *self._before()]
        lines += records.stamp(plan, PartitionRole.CONSUMER, records.LOOP)
        for stretch in self.stretches:
            lines += stretch.lines(plan, under if begun else [])
        return [*lines, *self._behind()]

    def _under(self) -> list[str]:
        """Lines that run under a tile's first products: loads of what the epilogue reads, and places of rows."""
        plan = self.plan
        under = load_lines(plan.prefetched.values(), plan.place("rows", "columns"), plan.s)
        under += [self._rows] if self._counts_rows and plan.columns and under else []
        later = plan.split or plan.refill.first or plan.refill.apart
        return [*under, *([] if later else [inputs.input_loads(plan)])]

    def _behind(self) -> list[str]:
        """Lines behind the loops over K-blocks: others' K-blocks, the tile that is held, the ends of products."""
        plan, vectors = self.plan, self.plan.prefetched.values()
        lines = [self._passed("end", "tile_end")] if plan.own_k_blocks and self.live.rests else []
        if plan.values_apart:
            return [*lines, *tensor_values.whole(self.operations), *store_lines(vectors)]
        lines += [STATIONARY.release("visit")] if plan.stationary and plan.s.persistent else []
        lines += [tensor_sums.wait(plan)] if plan.sums_apart else []
        return [*lines, *records.behind_loop(plan), *([] if plan.split else store_lines(vectors))]

    def _before(self) -> list[str]:
        """Lines before the loops: the stationary tile, K-blocks of others' rows, K-blocks too few to overlap."""
        lines = [STATIONARY.wait_full("visit")] if self.plan.stationary and not self.plan.values_apart else []
        if self.plan.own_k_blocks and self.live.waits:
            lines.append(self._passed("tile_begin", "begin"))
        if self.may_fall_short:
            short = "whole_end - whole_begin < LEAST"
            if self.plan.s.shares:  # few shares are cut so: a choice, not a line that has to have run
                lines.append(f"whole_end = gl.where({short}, whole_begin, whole_end)")
            else:
                lines.append(when(short, "whole_end = whole_begin"))
        return lines

    def _passed(self, first: str, last: str) -> str:
        """K-blocks that count for rows of other consumers alone: handed back as they come.

        Not before: where a K-block counts for nobody's rows, its slot would be filled again under the copy.
        """
        own = [
            ring for ring in self.plan.rings if any(one.instance is not None for one in ring.plan.releases)
        ]
        passed = [do() for ring in own for do in (ring.wait_full, ring.release)]
        behind = ["step += 1", *next_slots(windows(ring.counter for ring in own))]
        return f"for _ in range({first}, {last}):\n" + text.block(write([*passed, *behind]))
