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

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import zip_longest

from wsopt.emit.arithmetic import Age
from wsopt.emit.instructions import Instruction, Loop, Mma, mma_wait
from wsopt.emit.operations import Operations
from wsopt.errors import CheckError
from wsopt.program.ids import OpKind, ValueId, ValueKind
from wsopt.program.program import TileOp
from wsopt.schedule.passes import in_pass
from wsopt.schedule.types import PartitionRole
from wsopt.schedule.verified import VerifiedSchedule

STEP = "step"
_UNROLLED = 4


def step_expression(offset: int) -> str:
    """The step counter, `offset` slots on."""
    return STEP if offset == 0 else f"({STEP} {'+' if offset > 0 else '-'} {abs(offset)})"


@dataclass(frozen=True, slots=True)
class _Slot:
    """One operation in program order, with its stage relative to the partition's first."""

    op: TileOp
    stage: int


def _order(verified: VerifiedSchedule, *, overlapped: bool) -> tuple[_Slot, ...]:
    """The operations of the first consumer in program order; all consumers do the same."""
    placed = in_pass(verified, f"{PartitionRole.CONSUMER}0")
    if overlapped:
        return _returns_at_once(_Slot(verified.program.named(p.op), p.stage) for p in placed)
    ii = verified.schedule.ii
    alone = sorted(placed, key=lambda p: (p.stage * ii + p.cycle, p.op))
    return _returns_at_once(_Slot(verified.program.named(p.op), 0) for p in alone)


def _returns_at_once(order: Iterable[_Slot]) -> tuple[_Slot, ...]:
    """Operations in order, with slots that only a synchronous read uses handed back right behind that read: nothing
    waits for what the schedule puts between the two.
    """
    found: list[_Slot] = []
    reads: list[int] = []
    for slot in order:
        if slot.op.kind is OpKind.RELEASE and not slot.op.inputs and reads:
            found.insert(reads[-1] + 1, slot)
        else:
            if slot.op.kind is OpKind.ELEMENTWISE and not slot.op.items:
                reads.append(len(found))
            found.append(slot)
    return tuple(found)


@dataclass(slots=True)
class _Unroller:
    """Writes the passes of a run of `k_iterations` iterations.

    `issued` are products with their iterations, of which those before `waited` have ended; `made` counts how often
    each value was made, `met` holds the slots that this pass has waited for. Products are `loose` that this pass has
    issued and that no wait of it has named since.
    """

    order: tuple[_Slot, ...]
    operations: Operations
    k_iterations: int
    masked: bool
    issued: list[tuple[ValueId, int]] = field(default_factory=list)
    waited: int = 0
    made: dict[str, int] = field(default_factory=dict)
    met: set[tuple[str, str]] = field(default_factory=set)
    begun: list[Mma] = field(default_factory=list)
    loose: bool = False

    @property
    def depth(self) -> int:
        """The last stage: passes in the prologue, and in the drain."""
        return max(slot.stage for slot in self.order)

    @property
    def copies(self) -> int:
        """Slots of the ring that an iteration takes."""
        return self.operations.plan.s.copies

    @property
    def tail(self) -> int:
        """Elements of a last K-block that products do not take whole; 0 if they do."""
        return self.operations.plan.s.tail

    @property
    def least(self) -> int:
        """Passes that the loop takes at least."""
        return self.depth + 1 if self.tail else max(1, self.depth)

    @property
    def first_peeled(self) -> int:
        """The first pass after the steady ones: the drain, or the pass with the tail if there is one."""
        return self.k_iterations - (1 if self.tail else 0)

    @property
    def _products_alone(self) -> bool:
        """Whether a consumer's loop computes nothing beside its products."""
        return all(slot.op.kind in (OpKind.MMA, OpKind.RELEASE) for slot in self.order)

    def write(self, number: int) -> tuple[Instruction, ...]:
        """The instructions of one pass."""
        found: list[Instruction] = []
        self.met.clear()
        self.loose = False
        at_work = [slot for slot in self.order if 0 <= number - slot.stage < self.k_iterations]
        for slot, after in zip_longest(at_work, at_work[1:]):
            begins = self._products_alone and _returns_earlier(after, slot)
            found.extend(self._operation(slot, number, begins=begins))
        if self.loose:  # a loop carries plain tiles, not products under way
            running = self.issued[self.waited :]
            found.append(
                mma_wait(len(running), dict.fromkeys(self._register(value, 0) for value, _ in running))
            )
        if number < self.k_iterations:
            found.append(f"step += {self.copies}")
        return tuple(found)

    def _operation(self, slot: _Slot, number: int, *, begins: bool) -> Iterator[Instruction]:
        op, iteration = slot.op, number - slot.stage
        # The counter stops at the last iteration, so in the drain operations are nearer to it.
        offset = (iteration - min(number, self.k_iterations)) * self.copies + op.copy
        step = step_expression(offset)
        match op.kind:
            case OpKind.MMA:
                yield from self._product(slot, number, step, begins=begins)
            case OpKind.ACCUMULATE:
                yield from self._awaited(op.inputs, iteration)
                partial, sums = (self._register(value, 0) for value in op.inputs)
                yield f"{sums} = {sums} + {partial}"
            case OpKind.RELEASE:
                yield from self._awaited(op.inputs, iteration)
                yield self.operations.ring_handed_back(op).release(step)
                while self.begun:
                    yield self._issue(self.begun.pop(0), *self.issued[-1])
            case OpKind.ELEMENTWISE:
                yield from self._arithmetic(op, iteration, step)
            case OpKind.RESCALE:
                if iteration > 0:
                    yield from self._wait(op.output, iteration - 1)
                yield self.operations.rescale(op, self._age(iteration))
            case OpKind.TMA_STORE:
                yield from self.operations.store()
            case OpKind.ADDED:
                yield from self._meet(op, step)
                yield self.operations.added(op, step)
            case _:
                raise AssertionError(f"{op.kind} is not a consumer's")

    # --- operations -------------------------------------------------------------------------------------

    def _meet(self, op: TileOp, step: str) -> Iterator[Instruction]:
        """Wait for the slots that an operation reads, once a pass."""
        for tile in op.inputs:
            if tile.kind is ValueKind.TILE:
                ring = self.operations.ring(tile)
                if (ring.name, step) not in self.met:
                    self.met.add((ring.name, step))
                    yield ring.wait_full(step)

    def _product(self, slot: _Slot, number: int, step: str, *, begins: bool) -> Iterator[Instruction]:
        op, iteration = slot.op, number - slot.stage
        assert op.output is not None, f"{op.id} has a result"
        yield from self._meet(op, step)
        overwrites = op.output.kind is not ValueKind.SUM
        if overwrites:
            yield from self._keep((op.output.subject,))
        use = "False" if overwrites else self._use(slot, iteration, number)
        first, *self.begun = self._parts(slot, step, use, iteration, begins=begins)
        yield self._issue(first, op.output, iteration)
        if overwrites:
            self._count((op.output.subject,))

    def _issue(self, product: Mma, value: ValueId, iteration: int) -> Mma:
        """Count a product, or a part of one, among those under way."""
        self.issued.append((value, iteration))
        self.loose = True
        return product

    def _parts(self, slot: _Slot, step: str, use: str, iteration: int, *, begins: bool) -> Iterator[Mma]:
        """A product whole, or where it only `begins` before a slot is handed back its parts."""
        operations, op = self.operations, slot.op
        assert op.output is not None, f"{op.id} has a result"
        short = bool(self.tail) and iteration == self.k_iterations - 1
        parts = operations.parts if begins and not short else ()
        for first, length in parts if len(parts) > 1 else ((0, self.tail if short else 0),):
            left, right = operations.operands(op, step, self._age(iteration), first, length)
            adds, count = "" if first else use, operations.instructions(op, length)
            yield Mma(self._register(op.output, 0), left, right, adds, count, counts=adds == self._counting)

    def _use(self, slot: _Slot, iteration: int, number: int) -> str:
        """Whether a product adds to what there is: where sums are not cleared before, the first iteration's does not.

        A pass of the prologue counts iterations from the first; one that is peeled off the end counts them
        from the last, and with the fewest K-iterations works on the first one too.
        """
        if self.operations.cleared:
            return ""
        if number < self.depth:
            return "False" if iteration == 0 else ""
        if number >= self.first_peeled:
            away = self.k_iterations - number + slot.stage
            return f"k_iterations > {away}" if away >= self.least else ""
        return self._counting if slot.stage == self.depth else ""

    @property
    def _counting(self) -> str:
        """Whether a product of the last stage is not of the first iteration."""
        return f"k_block > {self.depth}"

    def _arithmetic(self, op: TileOp, iteration: int, step: str) -> Iterator[Instruction]:
        for value in self.operations.products_read(op):
            yield from self._wait(value, iteration)
        for value in self.operations.products_fed(op):
            if iteration > 0:  # it reads its operand's registers until it ends
                yield from self._wait(value, iteration - 1)
        yield from self._keep(self.operations.left_over(op))
        yield from self._meet(op, step)
        yield from self.operations.arithmetic(op, self._age(iteration), step, masked=self.masked)
        self._count(self.operations.makes(op))

    # --- values that are made again ---------------------------------------------------------------------

    def _register(self, value: ValueId, age: int) -> str:
        return self.operations.register(value, age)

    def _keep(self, names: tuple[str, ...]) -> Iterator[Instruction]:
        """Put what will be made again under the name of its next age, where a reader is still to come."""
        for name in names:
            for age in range(self.reach(name), 0, -1):
                if self.made.get(name, 0) >= age:
                    value = self.operations.plan.value
                    yield f"{value(name, age)} = {value(name, age - 1)}"

    def reach(self, name: str) -> int:
        """Number of times that a value is made again before its last reader."""
        made = (
            (slot.stage, at) for at, slot in enumerate(self.order) if name in self.operations.makes(slot.op)
        )
        stage, place = next(made)
        ages = [0]
        for at, slot in enumerate(self.order):
            if name in self.operations.reads(slot.op):
                later = slot.stage - stage
                ages.append(later if at > place else later - 1)
        return max(ages)

    def _count(self, names: tuple[str, ...]) -> None:
        for name in names:
            self.made[name] = self.made.get(name, 0) + 1

    def _age(self, iteration: int) -> Age:
        return lambda name: max(0, self.made.get(name, 0) - 1 - iteration)

    # --- products under way -----------------------------------------------------------------------------

    def _awaited(self, values: tuple[ValueId, ...], iteration: int) -> Iterator[Instruction]:
        products = {slot.op.output for slot in self.order if slot.op.kind is OpKind.MMA}
        places = [self._place(value, iteration) for value in values if value in products]
        if places:
            yield from self._wait_for(max(places))

    def _wait(self, value: ValueId | None, iteration: int) -> Iterator[Instruction]:
        yield from self._wait_for(self._place(value, iteration))

    def _place(self, value: ValueId | None, iteration: int) -> int:
        return max(at for at, one in enumerate(self.issued) if one == (value, iteration))

    def _wait_for(self, place: int) -> Iterator[Instruction]:
        """Wait for a product and all before it, once.

        What is still being written is not named: reading it would make ptxas run products one by one. Nor are a
        product's operands in registers: as results of the wait they would be 16-bit halves that live round the loop,
        which ptxas packs anew. That they are kept until the product ends is seen in the machine code.
        """
        if place < self.waited:
            return
        names = []
        for value, iteration in self.issued[self.waited : place + 1]:
            names.append(self._register(value, self._age(iteration)(value.subject)))
        self.waited, self.loose = place + 1, False
        yield mma_wait(len(self.issued) - 1 - place, dict.fromkeys(names))


def _returns_earlier(after: _Slot | None, slot: _Slot) -> bool:
    """Whether `after` a product a slot of the iteration before is handed back.

    For one of an earlier iteration products between would be counted, which the prologue has whole and later passes
    in parts: no steady state.
    """
    if after is None or (slot.op.kind, after.op.kind) != (OpKind.MMA, OpKind.RELEASE):
        return False
    return after.stage == slot.stage + 1


def unrolled(operations: Operations, *, masked: bool = False, overlapped: bool = True) -> Loop:
    """A consumer's loop, with masks or without, as scheduled or with one iteration after the other.

    Raises CheckError if the steady passes of the unrolled run are not all the same.
    """
    verified = operations.plan.verified
    order = _order(verified, overlapped=overlapped)
    depth = max(slot.stage for slot in order)
    unroller = _Unroller(order, operations, depth + _UNROLLED, masked)
    passes = [unroller.write(number) for number in range(unroller.k_iterations + depth)]
    steady = passes[depth + 1 : unroller.first_peeled]
    if any(one != steady[0] for one in steady):
        raise CheckError(f"kernel {verified.schedule.name}: the streamed loop has no steady state")
    first = depth + (passes[depth] != steady[0])
    return Loop(
        prologue=tuple(i for one in passes[:first] for i in one),
        first=first,
        peeled=unroller.k_iterations - unroller.first_peeled,
        least=max(unroller.least, first),
        steady=steady[0],
        drain=tuple(i for one in passes[unroller.first_peeled :] for i in one),
        called=frozenset(operations.writer.called),
    )


def older_values(operations: Operations) -> tuple[str, ...]:
    """The values that the scheduled loop keeps under an older name, and that are there before it begins."""
    order = _order(operations.plan.verified, overlapped=True)
    unroller = _Unroller(order, operations, _UNROLLED, masked=False)
    made = (name for slot in order for name in operations.makes(slot.op))
    return tuple(dict.fromkeys(name for name in made if unroller.reach(name) > 0))
