"""From a verified schedule to a consumer's loop: what each pass does, with every wait, return and old value derived.

The modulo schedule is unrolled at both ends: an operation of stage s works on iteration i - s in the i-th pass, so
passes before the last stage miss operations (prologue), and passes after the last iteration have only the later ones
(drain). How many products may be under way at a wait is counted on the unrolled run, and so is which values are made
again before all their readers have come: those are kept under a name of their own age.

A product before the return of an earlier slot is issued in parts: once the first keeps the tensor core busy, the
slot is handed back, which else would have to wait until all instructions of the product are taken. Not where a
consumer computes beside its products: what is left of one would come late, behind that arithmetic.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import chain, zip_longest

from wsopt.emit import factors, halves, reductions, retained
from wsopt.emit.instructions import Instruction, Loop, Mma, mma_wait
from wsopt.emit.kept import Kept
from wsopt.emit.operations import Operations
from wsopt.emit.scope import Age
from wsopt.emit.slots import Window, next_slots, next_step, step_at
from wsopt.emit.stamps import Point, Wait, between, loop_stamp
from wsopt.emit.stores import store_by_address, stores
from wsopt.emit.windows import windows_of
from wsopt.errors import CheckError
from wsopt.program.ids import OpId, OpKind, ValueId, ValueKind
from wsopt.program.program import TileOp
from wsopt.schedule.program_order import Step, begins_before_return, consumer_order, goes_on
from wsopt.schedule.types import PartitionRole
from wsopt.schedule.verified import VerifiedSchedule
from wsopt.tensors.halves import other_half
from wsopt.tensors.parts import Part, stretches

_UNROLLED = 4


def pass_points(verified: VerifiedSchedule, *, overlapped: bool) -> tuple[tuple[OpId, Point], ...]:
    """The moments of a consumer's pass that a traced kernel stamps, in program order.

    Beside products, arithmetic that goes on with arithmetic has none: a stamp would keep apart what ptxas mixes, and
    costs more than all other stamps. Loops without products wait for memory, and have all.
    """
    order, products = consumer_order(verified, overlapped=overlapped), verified.program.of(OpKind.MMA)
    mixed = [step for step in order if products and goes_on(order, step, verified.program.edges)]
    return tuple((step.op.id, point) for step in order if step not in mixed for point in Point)


def _reach(operations: Operations, order: tuple[Step, ...], name: str) -> int:
    """Number of times that a value is made again before its last reader."""
    place = next(at for at, slot in enumerate(order) if name in operations.makes(slot.op))
    readers = ((at, slot) for at, slot in enumerate(order) if name in operations.reads(slot.op))
    return max([0, *(slot.stage - order[place].stage - (at <= place) for at, slot in readers)])


@dataclass(slots=True)
class _Unroller:
    """Writes the passes of a run of `k_iterations` iterations, of which the last stage is `depth` behind the first.
    The steady passes end with the `first_peeled`, and the loop takes `least` passes.

    `windows` are the places of rings that a pass looks at. `issued` are products with their iterations, of which
    those before `waited` have ended; `made` counts how often each value was made, `met` holds the slots that this
    pass has waited for, `begun` the parts of a product that are still to be issued. Sums are `loose` whose product
    this pass has issued, and that no wait of it has named since.
    """

    order: tuple[Step, ...]
    operations: Operations
    masked: bool
    depth: int
    k_iterations: int
    first_peeled: int
    least: int
    windows: tuple[Window, ...]
    issued: list[tuple[ValueId, int]] = field(default_factory=list)
    waited: int = 0
    made: Counter[str] = field(default_factory=Counter)
    met: set[tuple[str, int]] = field(default_factory=set)
    begun: list[Mma] = field(default_factory=list)
    loose: set[str] = field(default_factory=set)

    def write(self, number: int) -> tuple[Instruction, ...]:
        """The instructions of one pass."""
        found: list[Instruction] = []
        self.met.clear()
        self.loose.clear()
        at_work = [slot for slot in self.order if 0 <= number - slot.stage < self.k_iterations]
        for slot, after in zip_longest(at_work, at_work[1:]):
            found.extend(self._stamped(slot, number, self._operation(slot, after, number)))
        if self.loose:  # a loop carries plain tiles, not products under way
            running = self.issued[self.waited :]
            names = (name for value, _ in running for name in self.operations.registers(value))
            found.append(mma_wait(len(running), dict.fromkeys(names)))
        if number < self.k_iterations:
            copies, counted = self.operations.plan.s.copies, self.operations.plan.counts_steps
            found += [*next_step(counted, copies), *next_slots(self.windows, copies)]
        return tuple(found)

    def _stamped(self, slot: Step, number: int, instructions: Iterable[Instruction]) -> Iterable[Instruction]:
        """The instructions of an operation, with its stamps if the kernel is traced. Passes of the drain count on."""
        plan = self.operations.plan
        if plan.trace is None:
            return instructions
        own = pass_points(plan.verified, overlapped=not self.masked)
        if (slot.op.id, Point.START) not in own:
            return instructions
        first = own.index((slot.op.id, Point.REACHED))
        first += len(pass_points(plan.verified, overlapped=True)) if self.masked else 0
        step = step_at(max(0, number - self.k_iterations) * plan.s.copies)
        reached, start = (loop_stamp(PartitionRole.CONSUMER, step, first + n) for n in range(len(Point)))
        return between(instructions, reached, start)

    def _operation(self, slot: Step, after: Step | None, number: int) -> Iterator[Instruction]:
        op = slot.op
        iteration = number - slot.stage
        plan = self.operations.plan
        writer = self.operations.writer
        # The counter stops at the last iteration, so in the drain operations are nearer to it.
        place = (iteration - min(number, self.k_iterations)) * plan.s.copies + op.copy
        match op.kind:
            case OpKind.MMA:
                yield from self._product(slot, after, number, place)
            case OpKind.ACCUMULATE:
                yield from self._wait(op.inputs, iteration)
                yield from factors.added(self.operations, op)
            case OpKind.RELEASE:
                yield from self._wait(op.inputs, iteration)
                yield from self._handed_back(op, place)
                while self.begun:
                    yield self._issue(*self.issued[-1])
            case OpKind.ELEMENTWISE:
                yield from self._arithmetic(op, iteration, place)
            case OpKind.RESCALE:
                yield from self._wait((op.output,), iteration - 1)
                yield from reductions.rescaled(
                    writer, op.id.subject, op.inputs[0].subject, self._age(iteration)
                )
            case OpKind.TMA_STORE:
                yield from self._stores()
            case OpKind.ADDED:
                yield from self._meet(op, place)
                yield self.operations.added(op, place)
            case _:
                raise AssertionError(f"{op.kind} is not a consumer's")

    def _handed_back(self, op: TileOp, place: int) -> Iterator[Instruction]:
        """The return of a slot; the first of two passes over rows keeps some."""
        plan = self.operations.plan
        release = next(ring for ring in plan.rings if op.id in ring.plan.releases).release(place)
        match self.operations.kept:
            case Kept.FILLED:
                yield release
            case Kept.NOTHING:
                yield from (release,) if self.operations.again else retained.handed_back(plan, release)
            case Kept.READ:
                pass  # it was handed back when it was read

    # --- operations -------------------------------------------------------------------------------------

    def _stores(self) -> Iterator[Instruction]:
        """The stores of a tile; those of values of rows that no SM holds come behind their last part."""
        plan, writer = self.operations.plan, self.operations.writer
        long_rows = plan.program.long_rows
        own = (one for one in plan.outputs_by_address if one.of.by_threads or not long_rows)
        for argument in own:
            value, half = (
                writer.operand(argument.of.value),
                other_half(argument.of, plan.program.after.outputs),
            )
            if half is None:
                yield store_by_address(plan, argument, value)
            elif not argument.of.view.offset:
                yield halves.store(plan, argument, value, writer.operand(half.value))
        column = "column" if long_rows else plan.column(0)
        for output in plan.program.after.tile_outputs:
            yield from stores(plan, output, writer.operand(output.value), column)

    def _meet(self, op: TileOp, place: int) -> Iterator[Instruction]:
        """Wait for the slots that an operation reads, once a pass; tiles that are in registers have none."""
        if self.operations.kept is Kept.READ:
            return
        for tile in (tile for tile in op.inputs if tile.kind is ValueKind.TILE):
            ring, _, _ = self.operations.place(tile)
            if (ring.name, place) not in self.met:
                self.met.add((ring.name, place))
                yield Wait(ring.wait_full(place))

    def _product(self, slot: Step, after: Step | None, number: int, place: int) -> Iterator[Instruction]:
        """The instructions of a product: all, or its first stretch where a slot is handed back before the rest."""
        op, iteration, s = slot.op, number - slot.stage, self.operations.plan.s
        assert op.output is not None, f"{op.id} has a result"
        yield from self._meet(op, place)
        overwrites = self.operations.makes(op)
        yield from self._keep(overwrites)
        use = "False" if overwrites else self._use(slot, number)
        short = bool(s.tail) and iteration == self.k_iterations - 1
        whole = Part(0, s.tail if short else 0)
        begins = begins_before_return(self.order, slot, after, s) and not short
        issued = self._stretches() if begins else (whole,)
        issued = issued if len(issued) > 1 else (whole,)
        for first, length in ((one.first, one.length) for one in issued):
            for one in self.operations.product(op, place, self._age(iteration), use, first, length):
                self.begun.append(replace(one, counts=one.use == self._counting))
        for _ in range(len(self.begun) // len(issued)):
            yield self._issue(op.output, iteration)
        yield from factors.read(self.operations, op, place)
        self.made.update(overwrites)

    def _stretches(self) -> tuple[Part, ...]:
        """The stretches of the streamed axis in which a product may be begun and ended."""
        plan = self.operations.plan
        return stretches(plan.s.depth, plan.verified.machine.mma_depth(plan.program.whole.dtype.bits))

    def _issue(self, value: ValueId, iteration: int) -> Mma:
        """The next part of a product, counted among those under way."""
        self.issued.append((value, iteration))
        self.loose.update(self.operations.registers(value))
        return self.begun.pop(0)

    def _use(self, slot: Step, number: int) -> str:
        """Whether a product adds to its sums, as text: empty for always, "False", or a condition on the K-block.

        The product of a tile's first iteration overwrites them, unless they were cleared before the loop: so they are
        where a tile may have no K-block, or where sums are rescaled before the product.

        A pass of the prologue counts iterations from the first; one that is peeled off the end counts them
        from the last, and with the fewest K-iterations works on the first one too.
        """
        if self.operations.plan.ranged:
            return ""
        if number < self.depth:
            return "False" if number == slot.stage else ""
        if number >= self.first_peeled:
            away = self.k_iterations - number + slot.stage
            return f"{self.operations.plan.k_blocks} > {away}" if away >= self.least else ""
        return self._counting if slot.stage == self.depth else ""

    @property
    def _counting(self) -> str:
        """Whether a product of the last stage is not of the first iteration."""
        return f"k_block > {self.depth}"

    def _arithmetic(self, op: TileOp, iteration: int, place: int) -> Iterator[Instruction]:
        read = {name for item in op.items for name in item.reads} & self.operations.writer.results
        for product in self.operations.products:
            if read & {product.id.subject}:
                yield from self._wait((product.output,), iteration)
        for product in self.operations.products:  # one reads its operand's registers until it ends
            if self.operations.reads(product) & set(op.makes):
                yield from self._wait((product.output,), iteration - 1)
        yield from self._keep(self.operations.writer.left_over(op.makes))
        yield from self._meet(op, place)
        yield from self.operations.arithmetic(op, self._age(iteration), place, masked=self.masked)
        self.made.update(self.operations.makes(op))

    # --- values that are made again ---------------------------------------------------------------------

    def _keep(self, names: Iterable[str]) -> Iterator[Instruction]:
        """Put what will be made again under the name of its next age, where a reader is still to come."""
        value = self.operations.plan.value
        for name in names:
            for age in range(_reach(self.operations, self.order, name), 0, -1):
                if self.made[name] >= age:
                    yield f"{value(name, age)} = {value(name, age - 1)}"

    def _age(self, iteration: int) -> Age:
        return lambda name: max(0, self.made[name] - 1 - iteration)

    # --- products under way -----------------------------------------------------------------------------

    def _wait(self, values: Iterable[ValueId | None], iteration: int) -> Iterator[Instruction]:
        """Wait for the products among the values and all before them, once.

        What is still being written is not named: reading it would make ptxas run products one by one. Nor are a
        product's operands in registers: as results of the wait they would be 16-bit halves that live round the loop,
        which ptxas packs anew. That they are kept until the product ends is seen in the machine code.
        """
        asked = {(value, iteration) for value in values}
        ended = max((at for at, one in enumerate(self.issued, 1) if one in asked), default=0)
        if ended > self.waited:
            under_way, self.waited = self.issued[self.waited : ended], ended
            names = [
                name
                for one, at in under_way
                for name in self.operations.registers(one, self._age(at)(one.subject))
            ]
            self.loose.difference_update(names)
            yield Wait(mma_wait(len(self.issued) - ended, dict.fromkeys(names)))


def _every(op: TileOp) -> bool:
    return True


def unrolled(
    operations: Operations,
    *,
    masked: bool = False,
    overlapped: bool = True,
    which: Callable[[TileOp], bool] = _every,
) -> Loop:
    """A consumer's loop, with masks or without, as scheduled or with one iteration after the other; of the operations
    `which` it has.

    Raises CheckError if the steady passes of the unrolled run are not all the same.
    """
    verified, tail = operations.plan.verified, bool(operations.plan.s.tail)
    order = tuple(step for step in consumer_order(verified, overlapped=overlapped) if which(step.op))
    depth = max(slot.stage for slot in order)
    least, k_iterations = depth + 1 if tail else max(1, depth), depth + _UNROLLED
    last = k_iterations - tail  # the first pass after the steady ones: the drain, or the pass with the tail
    operations = replace(operations, writer=replace(operations.writer, called=set()))
    windows = () if operations.kept is Kept.READ else windows_of(operations, order)
    unroller = _Unroller(order, operations, masked, depth, k_iterations, last, least, windows)
    passes = [unroller.write(number) for number in range(k_iterations + depth)]
    steady = passes[depth + 1 : last]
    if any(one != steady[0] for one in steady):
        raise CheckError(f"kernel {verified.schedule.name}: the streamed loop has no steady state")
    first = depth + (passes[depth] != steady[0])
    return Loop(
        prologue=tuple(chain.from_iterable(passes[:first])),
        first=first,
        peeled=int(tail),
        least=max(least, first),
        steady=steady[0],
        drain=tuple(chain.from_iterable(passes[last:])),
        called=frozenset(operations.writer.called),
    )


def older_values(operations: Operations) -> tuple[str, ...]:
    """The values that the scheduled loop keeps under an older name, and that are there before it begins."""
    order = consumer_order(operations.plan.verified, overlapped=True)
    made = dict.fromkeys(name for slot in order for name in operations.makes(slot.op))
    return tuple(name for name in made if _reach(operations, order, name) > 0)
