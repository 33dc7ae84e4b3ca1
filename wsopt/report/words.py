"""Words for the parts of a schedule: units, operations with their short keys, and the passes of a loop."""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never

from wsopt.lowering.cut import KINDS
from wsopt.program.facts import Store
from wsopt.program.program import OpKind, TileOp, TileProgram
from wsopt.program.types import Sharing, Space
from wsopt.report.layout import clean
from wsopt.schedule.passes import in_pass
from wsopt.schedule.types import PlacedOp
from wsopt.schedule.verified import VerifiedSchedule
from wsopt.tensors.statements import Reduction

_LETTERS = {
    OpKind.TMA_LOAD: "L",
    OpKind.MMA: "P",
    OpKind.RELEASE: "R",
    OpKind.ACCUMULATE: "A",
    OpKind.ELEMENTWISE: "C",
    OpKind.RESCALE: "S",
    OpKind.READ: "F",
    OpKind.WRITE: "T",
    OpKind.TMA_STORE: "W",
    OpKind.ADDED: "X",
}


@dataclass(frozen=True, slots=True)
class NamedOp:
    """An operation of the loop with its place, its key in the chart, and its words in the legend.

    `placed` is on the block's clock; `stage` on the partition's own, which begins with its first operation.
    """

    key: str
    words: str
    op: TileOp
    placed: PlacedOp
    stage: int

    @property
    def label(self) -> str:
        """Key and stage, as on a bar of the chart."""
        return f"{self.key}·{self.stage}"


def operand(op: TileOp) -> str:
    """The tensor, by the name of its stream, or the product that an operation is about; else empty."""
    return "" if op.kind is OpKind.ELEMENTWISE else clean(op.id.subject)


def named_ops(verified: VerifiedSchedule) -> tuple[NamedOp, ...]:
    """The operations of the loop in the tile program's order, keyed L1, L2, P1, ... by kind."""
    count: dict[str, int] = {}
    found = []
    stages = _own_stages(verified)
    for op in verified.program.loop:
        letter = _LETTERS[op.kind]
        count[letter] = count.get(letter, 0) + 1
        placed = verified.schedule.place(op.id)
        words = _legend(op, verified.program)
        found.append(NamedOp(f"{letter}{count[letter]}", words, op, placed, stages[str(op.id)]))
    return tuple(found)


def _own_stages(verified: VerifiedSchedule) -> dict[str, int]:
    """The stage of every operation on its partition's own clock."""
    partitions = verified.schedule.partitions
    return {one.op: one.stage for p in partitions for one in in_pass(verified, p.name)}


def _k_block(op: TileOp, program: TileProgram) -> str:
    """Which K-block of the iteration, where it takes more than one."""
    return f", K-block {op.copy}" if program.structure.copies > 1 else ""


def _owner(consumer: int, program: TileProgram) -> str:
    """Which consumer; with consumers in ping-pong the one whose turn it is."""
    ping_pong = program.structure.sharing is Sharing.PING_PONG
    return "the consumer in turn" if ping_pong else f"consumer {consumer}"


def _which(op: TileOp, program: TileProgram) -> str:
    """The name of a product where there is more than one."""
    return f" {operand(op)}" if program.whole.products > 1 else ""


def _legend(op: TileOp, program: TileProgram) -> str:
    whose = "" if op.consumer is None else f", {_owner(op.consumer, program)}"
    whose += _k_block(op, program)
    match op.kind:
        case OpKind.TMA_LOAD:
            return _load_words(op, program)
        case OpKind.MMA:
            return f"product{_which(op, program)}{whose}"
        case OpKind.RELEASE:
            return f"hand back the slot{whose}"
        case OpKind.ACCUMULATE:
            return f"add partial sums{_which(op, program)}{whose}"
        case OpKind.ELEMENTWISE:
            return f"{_arithmetic(op)}{whose}"
        case OpKind.RESCALE:
            return f"rescale the sums of {operand(op)}{whose}"
        case OpKind.READ:
            return f"read {operand(op)} from tensor memory{whose}"
        case OpKind.WRITE:
            return f"write {_value(op)} to {_memory(op, program)}{whose}"
        case OpKind.TMA_STORE:
            return f"{_stores(op)} the rows{whose}"
        case OpKind.ADDED:
            return f"{KINDS[op.id.subject].words}{whose}"
        case _:
            assert_never(op.kind)


def _memory(op: TileOp, program: TileProgram) -> str:
    """Words for the memory that an operation writes to."""
    return "tensor memory" if program.value(op.output).space is Space.TENSOR else "shared memory"


def _value(op: TileOp) -> str:
    """The graph's node that a value of the loop was made for."""
    return clean(op.id.subject.partition("$")[0])


def _arithmetic(op: TileOp) -> str:
    """Words for a phase of a loop's arithmetic: its reductions, or its number of operations."""
    if not op.items:
        return "read the rows"
    reductions = (item for item in op.items if isinstance(item, Reduction))
    found = [f"{reduction_words(item)} {item.name}" for item in reductions]
    return f"arithmetic ({', '.join(found) or f'{len(op.items)} operations'})"


def reduction_words(item: Reduction) -> str:
    """Words for a reduction: of a row, or of a column over all rows."""
    kind = "maximum" if item.kind == "max" else "sum"
    return f"column {kind}" if item.over_rows else f"row {kind}"


def _load_words(op: TileOp, program: TileProgram) -> str:
    value = program.value(op.output)
    shape = "x".join(map(str, value.shape))
    rows = "for all" if value.consumer is None else f"for {_owner(value.consumer, program)}"
    return f"load {operand(op)} {rows}, {shape} {value.dtype.value}{_k_block(op, program)}"


def iteration(lag: int) -> str:
    """The iteration that an operation of this stage works on while the first stage is at iteration i."""
    return "iteration i" if lag == 0 else f"iteration i-{lag}"


def does(named: NamedOp, program: TileProgram) -> str:
    """Words for an operation in a pass of the loop, with its iteration."""
    when = iteration(named.stage) + _k_block(named.op, program)
    match named.op.kind:
        case OpKind.TMA_LOAD:
            owner = program.value(named.op.output).consumer
            rows = f" (rows of {_owner(owner, program)})" if owner is not None else ""
            return f"load {operand(named.op)}{rows} for {when}"
        case OpKind.MMA:
            return f"product{_which(named.op, program)} of {when}"
        case OpKind.RELEASE:
            return f"hand back the slot of {when}"
        case OpKind.ACCUMULATE:
            return f"add the partial sums{_which(named.op, program)} of {when}"
        case OpKind.ELEMENTWISE:
            return f"{_arithmetic(named.op)} of {when}"
        case OpKind.RESCALE:
            return f"rescale the sums of {operand(named.op)} for {when}"
        case OpKind.READ:
            return f"read {operand(named.op)} of {when} from tensor memory"
        case OpKind.WRITE:
            return f"write {_value(named.op)} of {when} to {_memory(named.op, program)}"
        case OpKind.TMA_STORE:
            return f"{_stores(named.op)} the rows of {when}"
        case OpKind.ADDED:
            return f"{KINDS[named.op.id.subject].words} of {when}"
        case _:
            assert_never(named.op.kind)


def _stores(op: TileOp) -> str:
    """How rows are stored: out of staging buffers, or by the threads that have them."""
    staged = isinstance(op.counts, Store) and op.counts.outputs
    return "stage and store" if staged else "store"
