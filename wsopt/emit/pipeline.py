"""From a verified schedule to the consumers' streamed loop: what each pass does, with its waits.

The modulo schedule is unrolled at both ends: an operation of stage s works on iteration i - s in the i-th
pass, so passes before the last stage miss operations (prologue), and passes after the last iteration have only
the later ones (drain). How many products may be outstanding at a wait is counted on an unrolled run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from wsopt.emit.instructions import Accumulate, Advance, Instruction, Loop, Mma, MmaWait, Release, WaitFull
from wsopt.errors import CheckError
from wsopt.schedule.types import PartitionRole
from wsopt.schedule.verified import VerifiedSchedule
from wsopt.tile.program import OpKind, TileOp

STEP = "step"
_UNROLLED = 3


def _nothing(slot: str, copy: int) -> tuple[Instruction, ...]:
    del slot, copy
    return ()


@dataclass(frozen=True, slots=True)
class Operands:
    """Expressions of a consumer's loop: operand tiles by value name and slot, registers by value name.

    `tiles` are format strings with `{slot}` for the ring slot; `tails` are those for a last slab that products
    do not take whole, empty where they do. `beside` writes the arithmetic on a slot's slab of an iteration.
    """

    tiles: Mapping[str, str]
    tails: Mapping[str, str]
    registers: Mapping[str, str]
    ring: str
    depth: str
    beside: Callable[[str, int], tuple[Instruction, ...]] = _nothing


@dataclass(frozen=True, slots=True)
class _Slot:
    """One operation in program order, with its stage relative to the partition's first."""

    op: TileOp
    stage: int


def _order(verified: VerifiedSchedule) -> tuple[_Slot, ...]:
    """The operations of the first consumer in program order; all consumers do the same."""
    placed = verified.schedule.of(f"{PartitionRole.CONSUMER}0")
    return tuple(_Slot(verified.program.op(p.op), p.stage) for p in placed)


def step_expression(offset: int) -> str:
    """The step counter, `offset` slots on."""
    if offset == 0:
        return STEP
    return f"({STEP} {'+' if offset > 0 else '-'} {abs(offset)})"


@dataclass(slots=True)
class _Unroller:
    """Writes the passes of a run of `trips` iterations, and counts products as they are issued."""

    order: tuple[_Slot, ...]
    operands: Operands
    trips: int
    copies: int
    least: int
    issued: list[tuple[str, int]] = field(default_factory=list)
    waited: list[MmaWait] = field(default_factory=list)

    @property
    def depth(self) -> int:
        """The last stage: passes in the prologue, and in the drain."""
        return max(slot.stage for slot in self.order)

    @property
    def first_peeled(self) -> int:
        """The first pass after the steady ones: the drain, or the pass with the tail if there is one."""
        return self.trips - (1 if self.operands.tails else 0)

    def write(self, number: int) -> tuple[Instruction, ...]:
        """The instructions of one pass."""
        found: list[Instruction] = []
        met: set[int] = set()
        self.waited.clear()
        for slot in self.order:
            iteration = number - slot.stage
            if 0 <= iteration < self.trips:
                found.extend(self._operation(slot, iteration, number, met))
        if _ends_on_a_product(found):
            found.append(MmaWait(sum(isinstance(one, Mma) for one in found), self._products()))
        if number < self.trips:
            found.append(Advance(self.copies))
        return tuple(found)

    def _products(self) -> tuple[str, ...]:
        """The registers that products write, each once."""
        values = (slot.op.output for slot in self.order if slot.op.kind is OpKind.MMA)
        return tuple(dict.fromkeys(self._register(value) for value in values))

    def _operation(self, slot: _Slot, iteration: int, number: int, met: set[int]) -> Iterator[Instruction]:
        # The counter stops at the last iteration, so in the drain operations are nearer to it.
        offset = slot.op.copy - (min(number, self.trips) - iteration) * self.copies
        step = step_expression(offset)
        match slot.op.kind:
            case OpKind.MMA:
                if offset not in met:
                    met.add(offset)
                    yield WaitFull(self.operands.ring, step, self.operands.depth)
                self.issued.append((slot.op.output or "", iteration))
                self.waited.clear()
                yield self._mma(slot, step, iteration, number)
            case OpKind.ACCUMULATE:
                yield from self._wait(slot, iteration)
                yield Accumulate(self._register(slot.op.output), self._register(slot.op.inputs[0]))
            case OpKind.RELEASE:
                yield from self._wait(slot, iteration)
                yield Release(self.operands.ring, step, self.operands.depth)
            case OpKind.ELEMENTWISE:
                if offset not in met:
                    met.add(offset)
                    yield WaitFull(self.operands.ring, step, self.operands.depth)
                yield from self.operands.beside(f"{step} % {self.operands.depth}", slot.op.copy)
            case _:
                raise AssertionError(f"{slot.op.kind} is not a consumer's")

    def _register(self, value: str | None) -> str:
        return self.operands.registers[value or ""]

    def _mma(self, slot: _Slot, step: str, iteration: int, number: int) -> Mma:
        last = iteration == self.trips - 1
        tiles = self.operands.tails if last and self.operands.tails else self.operands.tiles
        left, right = (tiles[tile].format(slot=f"{step} % {self.operands.depth}") for tile in slot.op.inputs)
        partial = (slot.op.output or "").startswith("partial:")
        use = "False" if partial else self._use(slot, iteration, number)
        return Mma(self._register(slot.op.output), left, right, use)

    def _use(self, slot: _Slot, iteration: int, number: int) -> str:
        """Whether a product adds to what there is: the first iteration's does not.

        A pass of the prologue counts iterations from the first; one that is peeled off the end counts them
        from the last, and with the fewest trips works on the first one too.
        """
        if number < self.depth:
            return "False" if iteration == 0 else ""
        if number >= self.first_peeled:
            away = self.trips - number + slot.stage
            return f"trips > {away}" if away >= self.least else ""
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

    def _is_product(self, value: str) -> bool:
        return any(slot.op.output == value for slot in self.order if slot.op.kind is OpKind.MMA)


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
    passes = [unroller.write(number) for number in range(unroller.trips + depth)]
    steady = passes[depth : unroller.first_peeled]
    if any(one != steady[0] for one in steady):
        raise CheckError(f"kernel {verified.schedule.name}: the streamed loop has no steady state")
    return Loop(
        prologue=tuple(i for one in passes[:depth] for i in one),
        first=depth,
        peeled=unroller.trips - unroller.first_peeled,
        least=least,
        steady=steady[0],
        drain=tuple(i for one in passes[unroller.first_peeled :] for i in one),
    )
