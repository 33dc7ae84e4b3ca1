"""From a verified schedule to a consumer's loop over values: passes of the modulo schedule, unrolled at its ends.

An operation of stage s works on iteration i - s in pass i. A value that is made again before all its readers of
an earlier iteration have come is kept under a name of its own age; how many products may be outstanding at a
wait is counted on the unrolled run. The same writer gives the loop without overlap, in which every operation
has stage 0: K-blocks in which a mask is at work run there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from wsopt.emit.instructions import Advance, Assign, Instruction, Loop, Mma, MmaWait, Release, WaitFull
from wsopt.emit.k_block_values import KBlockWriter
from wsopt.emit.pipeline import step_expression
from wsopt.errors import CheckError
from wsopt.program.ids import ValueId
from wsopt.program.program import OpKind, TileOp
from wsopt.schedule.passes import in_pass
from wsopt.schedule.types import PartitionRole
from wsopt.schedule.verified import VerifiedSchedule

_UNROLLED = 4


@dataclass(frozen=True, slots=True)
class KBlockOperands:
    """How products see their operands: shared tiles by name, with `{slot}` for the ring's slot; rings of tiles."""

    stationary: str
    tiles: Mapping[str, str]
    rings: Mapping[str, str]
    depths: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class _Slot:
    op: TileOp
    stage: int


@dataclass(slots=True)
class _Unroller:
    """Writes the passes of a run of `k_iterations` iterations."""

    order: tuple[_Slot, ...]
    operands: KBlockOperands
    writer: KBlockWriter
    k_iterations: int
    masked: bool
    issued: list[tuple[str, int]] = field(default_factory=list)
    made: dict[str, int] = field(default_factory=dict)

    @property
    def depth(self) -> int:
        """The last stage."""
        return max(slot.stage for slot in self.order)

    def write(self, number: int) -> tuple[Instruction, ...]:
        """The instructions of one pass."""
        found: list[Instruction] = []
        for slot in self.order:
            iteration = number - slot.stage
            if 0 <= iteration < self.k_iterations:
                found.extend(self._operation(slot, iteration, number))
        kinds = [type(one) for one in found if isinstance(one, Mma | MmaWait)]
        if kinds and kinds[-1] is Mma:  # a loop carries plain tiles, not products under way
            running = self.issued[self.waited :]
            names = dict.fromkeys(self.writer.name(name) for name, _ in running)
            found.append(MmaWait(len(running), tuple(names)))
        if number < self.k_iterations:
            found.append(Advance(1))
        return tuple(found)

    def _operation(self, slot: _Slot, iteration: int, number: int) -> Iterator[Instruction]:
        offset = iteration - min(number, self.k_iterations)
        match slot.op.kind:
            case OpKind.MMA:
                yield from self._product(slot.op, iteration, offset)
            case OpKind.RELEASE:
                yield from self._awaited(slot.op.inputs, iteration)
                tile = slot.op.id.subject
                ring = self.operands.rings[tile]
                yield Release(ring, step_expression(offset), self.operands.depths[ring])
            case OpKind.ELEMENTWISE:
                yield from self._phase(slot.op, iteration, offset)
            case OpKind.RESCALE:
                sums = slot.op.makes[0]
                if iteration > 0:
                    yield from self._wait(sums, iteration - 1)
                yield from self.writer.rescale(sums, self._age_of(iteration))
            case _:
                raise AssertionError(f"{slot.op.kind} is not a consumer's")

    def _product(self, op: TileOp, iteration: int, offset: int) -> Iterator[Instruction]:
        name = op.makes[0]
        product = self.writer.product(name)
        tile = op.inputs[1].subject
        ring = self.operands.rings[tile]
        step, depth = step_expression(offset), self.operands.depths[ring]
        yield WaitFull(ring, step, depth)
        right = self.operands.tiles[tile].format(slot=f"{step} % {depth}")
        if isinstance(product.left, str):
            left = self.writer.operand(product, self._age_of(iteration))
            use = ""
        else:
            left, use = self.operands.stationary, "False"
            yield from self._keep((name,), iteration)
        self.issued.append((name, iteration))
        yield Mma(self.writer.name(name), left, right, use)
        self._count((name,))

    def _phase(self, op: TileOp, iteration: int, offset: int) -> Iterator[Instruction]:
        for name in self.writer.products_read(op.makes):
            yield from self._wait(name, iteration)
        for name in self.writer.products_fed(op.makes):
            if iteration > 0:  # it reads its operand's registers until it ends
                yield from self._wait(name, iteration - 1)
        yield from self._keep(self.writer.left_over(op.makes), iteration)
        step = step_expression(offset)
        tiles = {}
        for tile in (value.subject for value in op.inputs):
            ring = self.operands.rings[tile]
            depth = self.operands.depths[ring]
            yield WaitFull(ring, step, depth)
            tiles[tile] = self.operands.tiles[tile].format(slot=f"{step} % {depth}")
        yield from self.writer.phase(op.makes, self._age_of(iteration), step, tiles, masked=self.masked)
        self._count(op.makes)

    def _keep(self, names: tuple[str, ...], iteration: int) -> Iterator[Instruction]:
        """Put what will be made again under the name of its next age, where a reader is still to come."""
        for name in names:
            reach = self._reach(name)
            for age in range(reach, 0, -1):
                if self.made.get(name, 0) >= age:
                    yield Assign(self.writer.name(name, age), self.writer.name(name, age - 1))

    def keeps(self, name: str) -> bool:
        """Whether a value has an older name."""
        return self._reach(name) > 0

    def _reach(self, name: str) -> int:
        """How many times a value is made again before its last reader has come."""
        places = {item: (slot.stage, place) for place, slot in enumerate(self.order) for item in slot.op.makes
                  if slot.op.kind is not OpKind.RESCALE}  # fmt: skip
        stage, place = places[name]
        ages = [0]
        for at, slot in enumerate(self.order):
            if name in self.writer.reads(slot.op):
                later = slot.stage - stage
                ages.append(later if at > place else later - 1)
        return max(ages)

    def _count(self, names: tuple[str, ...]) -> None:
        for name in names:
            self.made[name] = self.made.get(name, 0) + 1

    def _age_of(self, iteration: int) -> Callable[[str], int]:
        return lambda name: max(0, self.made.get(name, 0) - 1 - iteration)

    def _awaited(self, values: tuple[ValueId, ...], iteration: int) -> Iterator[Instruction]:
        names = {slot.op.output: slot.op.makes[0] for slot in self.order if slot.op.kind is OpKind.MMA}
        places = [self._place(names[value], iteration) for value in values if value in names]
        if places:
            yield from self._wait_for(max(places))

    def _wait(self, name: str, iteration: int) -> Iterator[Instruction]:
        yield from self._wait_for(self._place(name, iteration))

    def _place(self, name: str, iteration: int) -> int:
        return max(at for at, one in enumerate(self.issued) if one == (name, iteration))

    def _wait_for(self, place: int) -> Iterator[Instruction]:
        """Wait for a product and all before it, once.

        Its operand's registers are not named: as results of the wait they would be 16-bit halves that live round
        the loop, which ptxas packs anew. That they are kept until the product ends is seen in the machine code.
        """
        if place < self.waited:
            return
        names: list[str] = []
        for name, iteration in self.issued[self.waited : place + 1]:
            age = self._age_of(iteration)
            names.append(self.writer.name(name, age(name)))
        self.waited = place + 1
        yield MmaWait(len(self.issued) - 1 - place, tuple(dict.fromkeys(names)))

    waited: int = 0


def _order(verified: VerifiedSchedule, *, overlapped: bool) -> tuple[_Slot, ...]:
    """The operations of the first consumer in program order; all consumers do the same."""
    placed = in_pass(verified, f"{PartitionRole.CONSUMER}0")
    if overlapped:
        return tuple(_Slot(verified.program.named(p.op), p.stage) for p in placed)
    ii = verified.schedule.ii
    alone = sorted(placed, key=lambda p: (p.stage * ii + p.cycle, p.op))
    return tuple(_Slot(verified.program.named(p.op), 0) for p in alone)


def k_block_loop(
    verified: VerifiedSchedule,
    operands: KBlockOperands,
    writer: KBlockWriter,
    *,
    masked: bool,
    overlapped: bool,
) -> Loop:
    """A consumer's loop over K-blocks, with masks or without, as scheduled or with one K-block after the other.

    Raises CheckError if the steady passes of the unrolled run are not all the same.
    """
    order = _order(verified, overlapped=overlapped)
    depth = max(slot.stage for slot in order)
    unroller = _Unroller(order, operands, writer, depth + _UNROLLED, masked)
    passes = [unroller.write(number) for number in range(unroller.k_iterations + depth)]
    steady = passes[depth + 1 : unroller.k_iterations] if depth else passes[1 : unroller.k_iterations]
    if any(one != steady[0] for one in steady):
        raise CheckError(f"kernel {verified.schedule.name}: the loop over K-blocks has no steady state")
    first = depth + (passes[depth] != steady[0])
    return Loop(
        prologue=tuple(i for one in passes[:first] for i in one),
        first=first,
        peeled=0,
        least=max(1, first),
        steady=steady[0],
        drain=tuple(i for one in passes[unroller.k_iterations :] for i in one),
    )


def older_values(
    verified: VerifiedSchedule, operands: KBlockOperands, writer: KBlockWriter
) -> tuple[str, ...]:
    """The values that the scheduled loop keeps under an older name, and that are there before it begins."""
    unroller = _Unroller(_order(verified, overlapped=True), operands, writer, _UNROLLED, masked=False)
    items = [item for slot in unroller.order if slot.op.kind is not OpKind.RESCALE for item in slot.op.makes]
    return tuple(dict.fromkeys(item for item in items if unroller.keeps(item)))
