"""From a verified schedule to the consumers' streamed loop: what each pass does, with its waits.

The modulo schedule is unrolled at both ends: an operation of stage s works on iteration i - s in the i-th
pass, so passes before the last stage miss operations (prologue), and passes after the last iteration have only
the later ones (drain). How many products may be outstanding at a wait is counted on an unrolled run.

A product before the return of an earlier slot is issued in parts: once the first keeps the tensor core busy, the
slot is handed back, which else would have to wait until all instructions of the product are taken. Not where a
consumer computes beside its products: what is left of one would come late, behind that arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import zip_longest

from wsopt.emit.instructions import Accumulate, Advance, Instruction, Loop, Mma, MmaWait, Release, WaitFull
from wsopt.errors import CheckError
from wsopt.program.ids import ValueId, ValueKind
from wsopt.program.program import OpKind, TileOp
from wsopt.schedule.types import PartitionRole
from wsopt.schedule.verified import VerifiedSchedule

STEP = "step"
_UNROLLED = 3


def _nothing(slot: str, copy: int) -> tuple[Instruction, ...]:
    del slot, copy
    return ()


@dataclass(frozen=True, slots=True)
class Operands:
    """Expressions of a consumer's loop: operand tiles by value and slot, registers by value.

    `tiles` are format strings with `{slot}` for the ring slot; `tails` are those for a last K-block that products
    do not take whole, empty where they do. `cuts` are those for a part of a K-block, with its `{first}` element of
    the streamed axis and its `{length}`, and `parts` are these. `beside` writes the arithmetic on a slot's K-block of
    an iteration.
    """

    tiles: Mapping[ValueId, str]
    tails: Mapping[ValueId, str]
    cuts: Mapping[ValueId, str]
    parts: tuple[tuple[int, int], ...]
    registers: Mapping[ValueId, str]
    ring: str
    depth: str
    beside: Callable[[str, int], tuple[Instruction, ...]] = _nothing


def k_block_parts(depth: int, least: int) -> tuple[tuple[int, int], ...]:
    """The parts of a K-block of `depth` elements, by first element and length: one instruction's `least`, and the
    rest in powers of two.
    """
    found, first = [(0, least)], least
    while first < depth:
        found.append((first, first))
        first *= 2
    return tuple(found)


@dataclass(frozen=True, slots=True)
class _Slot:
    """One operation in program order, with its stage relative to the partition's first."""

    op: TileOp
    stage: int


def _order(verified: VerifiedSchedule) -> tuple[_Slot, ...]:
    """The operations of the first consumer in program order; all consumers do the same."""
    placed = verified.schedule.of(f"{PartitionRole.CONSUMER}0")
    return tuple(_Slot(verified.program.named(p.op), p.stage) for p in placed)


def step_expression(offset: int) -> str:
    """The step counter, `offset` slots on."""
    if offset == 0:
        return STEP
    return f"({STEP} {'+' if offset > 0 else '-'} {abs(offset)})"


@dataclass(slots=True)
class _Unroller:
    """Writes the passes of a run of `k_iterations` iterations, and counts products as they are issued."""

    order: tuple[_Slot, ...]
    operands: Operands
    k_iterations: int
    copies: int
    least: int
    issued: list[tuple[ValueId | None, int]] = field(default_factory=list)
    waited: list[MmaWait] = field(default_factory=list)
    begun: list[Mma] = field(default_factory=list)

    @property
    def depth(self) -> int:
        """The last stage: passes in the prologue, and in the drain."""
        return max(slot.stage for slot in self.order)

    @property
    def products_alone(self) -> bool:
        """Whether a consumer's loop computes nothing beside its products."""
        return all(slot.op.kind in (OpKind.MMA, OpKind.RELEASE) for slot in self.order)

    @property
    def first_peeled(self) -> int:
        """The first pass after the steady ones: the drain, or the pass with the tail if there is one."""
        return self.k_iterations - (1 if self.operands.tails else 0)

    def write(self, number: int) -> tuple[Instruction, ...]:
        """The instructions of one pass."""
        found: list[Instruction] = []
        met: set[int] = set()
        self.waited.clear()
        at_work = [slot for slot in self.order if 0 <= number - slot.stage < self.k_iterations]
        for slot, after in zip_longest(at_work, at_work[1:]):
            begins = self.products_alone and _returns_earlier(after, slot)
            found.extend(self._operation(slot, number, met, begins=begins))
        if _ends_on_a_product(found):
            found.append(MmaWait(sum(isinstance(one, Mma) for one in found), self._products()))
        if number < self.k_iterations:
            found.append(Advance(self.copies))
        return tuple(found)

    def _products(self) -> tuple[str, ...]:
        """The registers that products write, each once."""
        values = (slot.op.output for slot in self.order if slot.op.kind is OpKind.MMA)
        return tuple(dict.fromkeys(self._register(value) for value in values))

    def _operation(self, slot: _Slot, number: int, met: set[int], *, begins: bool) -> Iterator[Instruction]:
        iteration = number - slot.stage
        # The counter stops at the last iteration, so in the drain operations are nearer to it.
        offset = slot.op.copy - (min(number, self.k_iterations) - iteration) * self.copies
        step = step_expression(offset)
        match slot.op.kind:
            case OpKind.MMA:
                if offset not in met:
                    met.add(offset)
                    yield WaitFull(self.operands.ring, step, self.operands.depth)
                first, *self.begun = self._parts(slot, step, number, begins=begins)
                yield self._issue(first, slot.op.output, iteration)
            case OpKind.ACCUMULATE:
                yield from self._wait(slot, iteration)
                yield Accumulate(self._register(slot.op.output), self._register(slot.op.inputs[0]))
            case OpKind.RELEASE:
                yield from self._wait(slot, iteration)
                yield Release(self.operands.ring, step, self.operands.depth)
                while self.begun:
                    yield self._issue(self.begun.pop(0), *self.issued[-1])
            case OpKind.ELEMENTWISE:
                if offset not in met:
                    met.add(offset)
                    yield WaitFull(self.operands.ring, step, self.operands.depth)
                yield from self.operands.beside(f"{step} % {self.operands.depth}", slot.op.copy)
            case _:
                raise AssertionError(f"{slot.op.kind} is not a consumer's")

    def _register(self, value: ValueId | None) -> str:
        assert value is not None, "what has no result has no register"
        return self.operands.registers[value]

    def _issue(self, product: Mma, value: ValueId | None, iteration: int) -> Mma:
        """Count a product, or a part of one, among those under way."""
        self.issued.append((value, iteration))
        self.waited.clear()
        return product

    def _parts(self, slot: _Slot, step: str, number: int, *, begins: bool) -> Iterator[Mma]:
        """A product whole, or where it only `begins` before a slot is handed back its parts."""
        operands, iteration = self.operands, number - slot.stage
        short = bool(operands.tails) and iteration == self.k_iterations - 1
        cut = begins and not short and len(operands.parts) > 1
        tiles = operands.tails if short else operands.cuts if cut else operands.tiles
        partial = slot.op.output is not None and slot.op.output.kind is ValueKind.PARTIAL
        use = "False" if partial else self._use(slot, iteration, number)
        for first, length in operands.parts if cut else ((0, 0),):
            given = {"slot": f"{step} % {operands.depth}", "first": first, "length": length}
            left, right = (tiles[tile].format_map(given) for tile in slot.op.inputs)
            yield Mma(self._register(slot.op.output), left, right, "" if first else use, length)

    def _use(self, slot: _Slot, iteration: int, number: int) -> str:
        """Whether a product adds to what there is: the first iteration's does not.

        A pass of the prologue counts iterations from the first; one that is peeled off the end counts them
        from the last, and with the fewest K-iterations works on the first one too.
        """
        if number < self.depth:
            return "False" if iteration == 0 else ""
        if number >= self.first_peeled:
            away = self.k_iterations - number + slot.stage
            return f"k_iterations > {away}" if away >= self.least else ""
        return f"k > {self.depth}" if slot.stage == self.depth else ""

    def _wait(self, slot: _Slot, iteration: int) -> Iterator[MmaWait]:
        """Wait for the products of `iteration` that an operation needs: all but those issued after them.

        Nothing if this pass has waited for them since it issued its last product.
        """
        needed = max(
            place
            for place, (value, when) in enumerate(self.issued)
            if when == iteration and value in slot.op.inputs
        )
        # What is still being written is not named: reading it would make ptxas run products one by one.
        values = (self._register(value) for value in slot.op.inputs if self._is_product(value))
        wait = MmaWait(len(self.issued) - 1 - needed, tuple(dict.fromkeys(values)))
        if not any(_covers(done, wait) for done in self.waited):
            self.waited.append(wait)
            yield wait

    def _is_product(self, value: ValueId) -> bool:
        return any(slot.op.output == value for slot in self.order if slot.op.kind is OpKind.MMA)


def _returns_earlier(after: _Slot | None, slot: _Slot) -> bool:
    """Whether `after` a product a slot of the iteration before is handed back.

    For one of an earlier iteration products between would be counted, which the prologue has whole and later passes
    in parts: no steady state.
    """
    if after is None or (slot.op.kind, after.op.kind) != (OpKind.MMA, OpKind.RELEASE):
        return False
    return after.stage == slot.stage + 1


def _covers(done: MmaWait, wait: MmaWait) -> bool:
    """Whether one wait has left nothing for another to wait for, no product having been issued between."""
    return done.outstanding <= wait.outstanding and set(wait.values) <= set(done.values)


def _ends_on_a_product(found: list[Instruction]) -> bool:
    """Whether a product is still a token after the last wait: a loop can only carry plain tiles."""
    kinds = [type(one) for one in found if isinstance(one, Mma | MmaWait)]
    return bool(kinds) and kinds[-1] is Mma


def consumer_loop(verified: VerifiedSchedule, operands: Operands) -> Loop:
    """The streamed loop of a consumer.

    Raises CheckError if the steady passes of the unrolled run are not all the same.
    """
    order = _order(verified)
    depth = max(slot.stage for slot in order)
    least = depth + 1 if operands.tails else max(1, depth)
    unroller = _Unroller(order, operands, depth + _UNROLLED, verified.program.structure.copies, least)
    passes = [unroller.write(number) for number in range(unroller.k_iterations + depth)]
    steady = passes[depth : unroller.first_peeled]
    if any(one != steady[0] for one in steady):
        raise CheckError(f"kernel {verified.schedule.name}: the streamed loop has no steady state")
    return Loop(
        prologue=tuple(i for one in passes[:depth] for i in one),
        first=depth,
        peeled=unroller.k_iterations - unroller.first_peeled,
        least=least,
        steady=steady[0],
        drain=tuple(i for one in passes[unroller.first_peeled :] for i in one),
    )
