"""A consumer: what it does for a tile. Its loop, what goes on around and under that, and its epilogue.

An epilogue's vectors are asked for while the first products are under way. Full inputs whose buffers the tile before
has lent to its stores are copied some passes into the loop, when those stores have read them. Where tiles differ in
their K-blocks there is a loop for those in which masks are at work and one for those in which none is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from wsopt.emit import inputs, tensor_sums, text
from wsopt.emit.arithmetic import Arithmetic
from wsopt.emit.instructions import (
    Advance,
    Instruction,
    Loop,
    Mma,
    Release,
    TurnPass,
    TurnWait,
    WaitFull,
    Zero,
)
from wsopt.emit.operations import Operations, sources
from wsopt.emit.plan import KernelPlan
from wsopt.emit.prefetched import load_lines, store_lines
from wsopt.emit.ranges import k_block_range, tile_range
from wsopt.emit.unroll import older_values, unrolled
from wsopt.program.ids import OpKind, ValueKind
from wsopt.program.program import TileOp
from wsopt.program.ranges import LiveLoops, live_loops
from wsopt.schedule.passes import in_pass
from wsopt.schedule.types import PartitionRole
from wsopt.tensors.views import FULL, K_BLOCK


@dataclass(frozen=True, slots=True)
class Stretch:
    """The loop over a tile's K-blocks from `first` to `last`; a `guarded` one is only for where there are any."""

    first: str
    last: str
    loop: Loop
    guarded: bool = False

    @property
    def start(self) -> str:
        """The first K-block of the steady passes."""
        parts = [self.first] if self.first != "0" or not self.loop.first else []
        return " + ".join([*parts, *([str(self.loop.first)] if self.loop.first else [])])


@dataclass(slots=True)
class Consumer:
    """Writes what a consumer does for a tile; notes in `called` what that calls of the kernel's own functions."""

    plan: KernelPlan
    called: set[str] = field(default_factory=set)

    @property
    def operations(self) -> Operations:
        """The operations of the loop."""
        plan, program = self.plan, self.plan.program
        products = [op for op in program.of(OpKind.MMA) if op.consumer == 0]
        fed = {op.inputs[0].subject for op in products if op.inputs[0].kind is ValueKind.VALUE}
        factors = {op.inputs[0].subject for op in program.of(OpKind.RESCALE)}
        writer = Arithmetic(
            items=plan.loop_items(),
            s=plan.s,
            name=plan.value,
            sources=sources(plan),
            tile=FULL if plan.loops_over_tiles else K_BLOCK,
            layout=plan.loop_layout,
            asynchronous=plan.ranged,
            wanted=frozenset({output.value for output in program.after.outputs} | fed | factors),
            results=frozenset(op.id.subject for op in products if _is_value(op)),
            fed=frozenset(fed),
            carried=not plan.loops_over_tiles,
            apart=plan.program.lane_sums,
            unmasked=dict(program.unmasked),
        )
        return Operations(plan, writer)

    # --- loops ------------------------------------------------------------------------------------------

    @property
    def live(self) -> LiveLoops:
        """The loops over K-blocks that can run at some extents."""
        return live_loops(self.plan.program.bounds, self.plan.s)

    @property
    def own_k_blocks(self) -> bool:
        """Whether consumers look at K-blocks of their own among those of their tile."""
        return self.plan.has_masks and self.plan.s.consumers > 1

    def overlapped(self) -> bool:
        """Whether iterations overlap within a consumer."""
        return any(p.stage for p in in_pass(self.plan.verified, f"{PartitionRole.CONSUMER}0"))

    def stretches(self) -> tuple[Stretch, ...]:
        """The loops over a tile's K-blocks, one after the other. What cannot run at any extents is left out.

        With masks: K-blocks at its beginning that masks touch, those that none does, and the last ones.
        """
        plain = unrolled(self.operations)
        if not self.plan.has_masks:
            return (
                Stretch("begin", "end", plain)
                if self.plan.ranged
                else Stretch("0", self._last(plain), plain),
            )
        masked, live, overlapped = (
            unrolled(self.operations, masked=True, overlapped=False),
            self.live,
            self.overlapped(),
        )
        if live.most_whole < (plain.least if overlapped else 1):
            return (Stretch("begin", "end", masked),)
        has_lower = any(bound.stream > 0 for bound in self.plan.program.bounds.every)
        start, behind = (
            ("whole_begin", "whole_end") if has_lower else ("begin", "gl.maximum(whole_end, begin)")
        )
        if live.most_whole <= plain.first:
            plain = replace(plain, steady=())
        found = [Stretch("begin", "whole_begin", masked)] if live.begins else []
        found.append(Stretch(start, "whole_end", plain, guarded=overlapped))
        if live.ends or (overlapped and plain.least > 1):  # too few whole K-blocks for the overlapped loop
            found.append(Stretch("whole_end" if overlapped else behind, "end", masked))
        return tuple(found)

    def _last(self, loop: Loop) -> str:
        """End of the steady passes that begin with a tile's first K-block."""
        copies = self.plan.s.copies
        end = "k_iterations" if copies == 1 else f"k_iterations // {copies}"
        return f"{end} - {loop.peeled}" if loop.peeled else end

    @property
    def may_fall_short(self) -> bool:
        """Whether a tile may have fewer whole K-blocks than the overlapped loop takes at least."""
        guarded = [stretch.loop for stretch in self.stretches() if stretch.guarded]
        return any(loop.least > 1 or self.live.none_whole for loop in guarded)

    @property
    def least(self) -> int:
        """Passes that the loop takes at least, as scheduled."""
        return 1 if self.plan.sums_apart else unrolled(self.operations).least

    @property
    def pauses(self) -> int:
        """Number of times that the steady passes stop for the copies of inputs."""
        when = self.plan.refill
        return self.plan.verified.schedule.buffers.inputs if when.apart else int(when.first > 0)

    def tensor_instructions(self) -> int:
        """Tensor instructions that the compiled consumer has to contain: its loops' text may stand more than once."""
        loops = [stretch.loop for stretch in self.stretches()]
        written = (
            one for loop in loops for one in (*loop.prologue, *loop.steady * (1 + self.pauses), *loop.drain)
        )
        return sum(one.instructions for one in written if isinstance(one, Mma))

    def covering_k_blocks(self) -> int:
        """The least K-blocks of a tile with which every pass runs; 1 where tiles differ in them."""
        plan, when = self.plan, self.plan.refill
        if plan.ranged or plan.loops_over_tiles or plan.sums_apart:
            return 1
        (stretch,) = self.stretches()
        pauses = when.first + max(0, self.pauses - 1) * when.apart
        return (stretch.loop.first + pauses + 1 + stretch.loop.peeled) * plan.s.copies

    # --- a tile -----------------------------------------------------------------------------------------

    def body(self) -> str:
        """All that a consumer does for a tile."""
        lines = [*self._places(), *self._starts(), *self._loops(), *self._epilogue()]
        lines += [] if self.plan.loops_over_tiles else ["visit += 1"]
        if self.plan.ping_pong:
            lines.append("step += (CONSUMERS - 1) * k_iterations")
        return "\n".join(lines)

    def _places(self) -> list[str]:
        """Lines with the consumer's first row and column, and the K-blocks that count for them."""
        if not self.plan.ranged:
            return place_lines(self.plan)
        narrow = "begin, whole_begin, whole_end, end"
        lines = [tile_range("tile_begin, whole_begin, whole_end, tile_end" if self.own_k_blocks else narrow)]
        lines += place_lines(self.plan)
        if self.own_k_blocks:
            lines.append(f"{narrow} = {k_block_range('row', 'CONSUMER_ROWS', 'tile_begin', 'tile_end')}")
        return [*lines, f"origin = {'tile_begin' if self.own_k_blocks else 'begin'} - step"]

    def _starts(self) -> list[str]:
        """Lines before the loop: initial values that it carries, and the vectors that its values read."""
        plan, operations = self.plan, self.operations
        if plan.loops_over_tiles or plan.ranged:
            lines = [
                f"rows = row + gl.arange(0, CONSUMER_ROWS, layout=gl.SliceLayout(1, {plan.loop_layout}))"
            ]
        else:
            lines = []
        if not plan.loops_over_tiles:
            older = older_values(operations) if plan.ranged else ()
            results, sums = self._zeros()
            lines.append(text.write([*results, *operations.writer.starts(older), *sums]))
            self.called |= operations.writer.called
            lines.append(text.write(operations.vectors()))
        return [line for line in lines if line]

    def _zeros(self) -> tuple[list[Instruction], list[Instruction]]:
        """What is added to before a product has overwritten it: values where K-blocks are few, and sums there and of
        partial sums.
        """
        plan, results, sums = self.plan, list[Instruction](), list[Instruction]()
        for value in (v.id for v in plan.program.values if v.consumer == 0):
            if value.kind is ValueKind.SUM and (plan.ranged or plan.program.adds_partials):
                sums.append(Zero(plan.value(value.subject), "TILE_COLUMNS", "SUM_LAYOUT"))
            if value.kind is ValueKind.VALUE and value.subject in self.operations.writer.results:
                results.append(Zero(plan.value(value.subject), "TILE_DEPTH", plan.loop_layout))
        return results, sums

    def _loops(self) -> list[str]:
        """The loops, with what goes on before, under and after them."""
        plan = self.plan
        if plan.sums_apart:
            return self._sums()
        stretches = self.stretches()
        self.called.update(*(stretch.loop.called for stretch in stretches))
        if plan.loops_over_tiles:
            return [text.write(stretches[0].loop.steady)]
        vectors, under = plan.prefetched().values(), self._under()
        begun = not plan.ranged and not plan.ping_pong and _begins_products(stretches[0].loop)
        lines = [*([] if begun else under), *self._before()]
        for stretch in stretches:
            lines += self._stretch(stretch, under if begun else [])
        return [line for line in [*lines, *self._after(), *store_lines(vectors)] if line]

    def _under(self) -> list[str]:
        """Lines under the first products: loads of the epilogue's vectors, and copies of its full inputs."""
        plan, when = self.plan, self.plan.refill
        lines = load_lines(plan.prefetched().values(), plan.place("rows", "columns"))
        return lines if when.first or when.apart else [*lines, inputs.input_loads(plan)]

    def _sums(self) -> list[str]:
        """The wait for sums that another role's products leave, under which the epilogue's inputs come."""
        lines = [*self._under(), tensor_sums.wait(), *store_lines(self.plan.prefetched().values())]
        return [line for line in lines if line]

    def _stretch(self, stretch: Stretch, under: list[str]) -> list[str]:
        """One loop; `under` its first products other things are done."""
        loop, ping_pong = stretch.loop, self.plan.ping_pong
        first = text.write([*([TurnWait()] if ping_pong else []), *loop.prologue])
        last = text.write(_passing_turn(loop.drain) if ping_pong else loop.drain)
        lines = [line for line in (first, *under, *self._steady(stretch), last) if line]
        if not stretch.guarded:
            return lines
        return [f"if whole_end > {stretch.first}:", *map(text.block, lines)]

    def _steady(self, stretch: Stretch) -> list[str]:
        """The steady passes: one loop, or some before the copies of inputs, which stand apart, and the rest."""
        loop, when, body = stretch.loop, self.plan.refill, text.write(stretch.loop.steady)
        if not body:
            return []
        variable = "k_block" if any(isinstance(one, Mma) and one.counts for one in loop.steady) else "_"

        def passing(begin: str, until: str) -> str:
            return f"for {variable} in range({begin}, {until}):\n" + text.block(body)

        first, end = stretch.start, stretch.last
        before = f"{first} + REFILL_PASSES" if loop.first else "REFILL_PASSES"
        if when.apart:
            pause = f"pause = gl.minimum({end}, {before} + subtile * REFILL_APART)"
            lines = [pause, passing("begin", "pause"), "begin = pause"]
            return [
                f"begin = {first}",
                inputs.input_loads(self.plan, "\n".join(lines)),
                passing("begin", end),
            ]
        if when.first:
            pause = f"pause = gl.minimum({end}, {before})"
            return [pause, passing(first, "pause"), inputs.input_loads(self.plan), passing("pause", end)]
        return [passing(first, end)]

    def _before(self) -> list[str]:
        """Lines before the loops: the stationary tile, K-blocks of others' rows, K-blocks too few to overlap."""
        lines = []
        if self.plan.stationary_operands():
            lines.append(text.write([WaitFull("stationary", "visit", "STATIONARY_SETS")]))
        if self.own_k_blocks and self.live.waits:
            lines.append(self._passed("tile_begin", "begin"))
        if self.may_fall_short:
            lines.append("if whole_end - whole_begin < LEAST:\n    whole_end = whole_begin")
        return lines

    def _after(self) -> list[str]:
        """Lines after the loops: K-blocks of others' rows, the return of the stationary tile."""
        lines = [self._passed("end", "tile_end")] if self.own_k_blocks else []
        if self.plan.stationary_operands() and self.plan.s.persistent:
            lines.append(text.write([Release("stationary", "visit", "STATIONARY_SETS")]))
        return lines

    def _passed(self, first: str, last: str) -> str:
        """K-blocks that count for rows of other consumers alone: handed back as they come.

        Not before: where a K-block counts for nobody's rows, its slot would be filled again under the copy.
        """
        found: list[Instruction] = []
        for ring in self.plan.rings():
            found += [WaitFull(ring.name, "step", ring.depth), Release(ring.name, "step", ring.depth)]
        return f"for _ in range({first}, {last}):\n" + text.block(text.write([*found, Advance(1)]))

    # --- the epilogue -----------------------------------------------------------------------------------

    def _epilogue(self) -> list[str]:
        """The sums cut into subtiles, and one call a subtile."""
        plan = self.plan
        if plan.loops_over_tiles:
            return []
        whole = () if plan.sums_apart else plan.sums()
        lines = [line for name in whole for line in text.split_subtiles(plan, name, 0, plan.s.subtiles)]
        apart = self.operations.writer.apart
        for item in plan.rows():
            name = plan.value(item.name)
            row = f"gl.sum({name}, axis=1)" if item.name in apart else name
            lines.append(f"{name} = gl.convert_layout({row}, gl.SliceLayout(1, SUBTILE_LAYOUT))")
        rest = epilogue_parameters(plan)[len(plan.sums()) :]
        for subtile in range(plan.s.subtiles):
            sums = [text.subtile_name(plan, name, subtile, subtile + 1) for name in plan.sums()]
            lines += tensor_sums.read(plan, sums, subtile) if plan.sums_apart else []
            given = {
                "column": plan.column(subtile),
                "subtile": str(subtile),
                **plan.staged().given(subtile),
            }
            lines.append(f"epilogue({', '.join([*sums, *(given.get(one, one) for one in rest)])})")
        return lines


def place_lines(plan: KernelPlan) -> list[str]:
    """The first row and column of a consumer's tile."""
    row = "row_tile * TILE_ROWS" + ("" if plan.s.at_once == 1 else " + index * CONSUMER_ROWS")
    column = [] if plan.column() == "0" else ["column = column_tile * TILE_COLUMNS"]
    return [f"row = {row}", *column]


def epilogue_parameters(plan: KernelPlan) -> list[str]:
    """Parameters of the function that treats one epilogue subtile."""
    boxes, items = plan.inputs().values(), plan.program.after.items
    counted = ["stream_extent"] if plan.counts_stream else []
    place = [*plan.outer, "row", "column", "row_extent", "column_extent", "visit", *counted]
    prefetched, vectors = plan.prefetched(), plan.vectors()
    read = (n for n in vectors if n not in prefetched and n in plan.read_by(items))
    loaded = [one.name for one in prefetched.values()] + [a for n in read for a in vectors[n].arguments]
    refilled = plan.verified.schedule.buffers.inputs < plan.s.subtiles
    loaded += [box.descriptor for box in boxes if refilled]
    loaded += [f"{box.name}_{what}" for box in boxes for what in ("input", "full")]
    barriers = ["staged", "freed"] if plan.stores_apart else []
    rows = [plan.value(item.name) for item in plan.rows()]
    tensors = [*loaded, *barriers, *plan.stored()]
    return [*plan.sums(), *rows, *tensors, *place, "subtile", *plan.staged().parameters()]


def _is_value(op: TileOp) -> bool:
    """Whether a product's result is a value of the loop."""
    return op.output is not None and op.output.kind is ValueKind.VALUE


def _begins_products(loop: Loop) -> bool:
    """Whether products are under way when the prologue ends."""
    return any(isinstance(one, Mma) for one in loop.prologue)


def _passing_turn(drain: Sequence[Instruction]) -> list[Instruction]:
    """The drain with the hand-over of the turn, once the last K-block is there and its products are issued.

    The next consumer may go round the ring to that K-block's slot: before its copy has ended the barrier's phase
    would be taken for the one after it.
    """
    issued = max((place for place, one in enumerate(drain, 1) if isinstance(one, Mma)), default=0)
    return [*drain[:issued], TurnPass(), *drain[issued:]]
