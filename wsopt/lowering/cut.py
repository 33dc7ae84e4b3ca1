"""From the steps of a consumer's iteration to operations, dependences, tiles and rings: one way for every loop.

A step is what a consumer does once for each K-block of an iteration; what loops differ in, steps say as data.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from wsopt.graph.types import DType
from wsopt.program.counts import Copy, Counts
from wsopt.program.facts import Member
from wsopt.program.ids import OpId, OpKind, ValueId, ValueKind
from wsopt.program.program import Edge, Item, Live, RingPlan, TileOp, Value
from wsopt.program.types import Space, Structure


class When(Enum):
    """The K-block whose step is waited for: the same, the one before, or the same number one iteration before or two."""

    SAME = "same"
    BEFORE = "before"
    AGAIN = "again"
    TWICE = "twice"


@dataclass(frozen=True, slots=True)
class Held:
    """A value that a step leaves in `registers` a thread to later steps, by kind and subject; with `to_the_end` the
    last of them reads it until it ends.
    """

    name: str
    readers: tuple[tuple[OpKind, str], ...]
    registers: int
    to_the_end: bool = False


@dataclass(frozen=True, slots=True)
class Step:
    """A consumer's step: `inputs` and `output` by kind and subject, `shape` of what a product makes, the `space`
    that it is in, and the steps `after` which it comes, by kind, subject and K-block.
    """

    kind: OpKind
    subject: str
    counts: Counts
    inputs: tuple[tuple[ValueKind, str], ...] = ()
    output: tuple[ValueKind, str] | None = None
    shape: tuple[int, ...] | None = None
    after: tuple[tuple[OpKind, str, When], ...] = ()
    items: tuple[Item, ...] = ()
    holds: tuple[Held, ...] = ()
    space: Space = Space.REGISTERS


@dataclass(frozen=True, slots=True)
class Load:
    """Copies of a tensor into a K-block's slot that are one operation: for a consumer's rows, or for all (None)."""

    member: Member
    consumer: int | None
    shape: tuple[int, ...]
    counts: Copy


@dataclass(frozen=True, slots=True)
class Ring:
    """Tensors whose tiles share slots: those with the same readers. `loads` are a K-block's, in order; `subject` is
    that of the steps that hand slots back.
    """

    name: str
    subject: str
    loads: tuple[Load, ...]

    @property
    def members(self) -> tuple[Member, ...]:
        """The tensors, each once."""
        return tuple(dict.fromkeys(load.member for load in self.loads))


@dataclass(frozen=True, slots=True)
class Cut:
    """The loop of a tile program."""

    values: tuple[Value, ...]
    ops: tuple[TileOp, ...]
    edges: tuple[Edge, ...]
    rings: tuple[RingPlan, ...]
    live: tuple[Live, ...]


def tile_id(member: Member, consumer: int | None, k_block: int = 0) -> ValueId:
    """A tile of a ring: of one consumer's rows where each has copies of its own, else of all."""
    return ValueId(ValueKind.TILE, member.name, consumer, k_block)


def load_of(tile: ValueId) -> OpId:
    """The copy that fills a tile."""
    return OpId(OpKind.TMA_LOAD, tile.subject, tile.instance, tile.k_block)


def cut(rings: Sequence[Ring], steps: Sequence[Step], s: Structure) -> Cut:
    """The operations of all consumers in the loop, for each K-block of an iteration.

    With consumers in ping-pong they are those of one consumer: another's stand in the same places, later.
    """
    loads = [load for ring in rings for load in ring.loads]
    own = {load.member.name for load in loads if load.consumer is not None}
    values, ops = list[Value](), list[TileOp]()
    for copy in range(s.copies):
        for load in loads:
            tile = tile_id(load.member, load.consumer, copy)
            values.append(Value(tile, load.shape, load.member.view.dtype, Space.SHARED))
            ops.append(TileOp(load_of(tile), (), tile, load.counts))
    edges = list[Edge]()
    for consumer in range(s.at_once):
        for copy in range(s.copies):
            for step in steps:
                op = _of_step(step, consumer, copy, own)
                if step.shape is not None and all(value.id != op.output for value in values):
                    assert op.output is not None, "what has a shape is a value"
                    values.append(Value(op.output, step.shape, DType.F32, step.space))
                ops.append(op)
                edges += _edges(op, step, s.copies)
    released, back = _releases(rings, ops)
    live = (tile for consumer in range(s.at_once) for tile in _live(steps, consumer))
    return Cut(tuple(values), tuple(released), tuple(edges + back), tuple(_plans(rings, ops)), tuple(live))


def _of_step(step: Step, consumer: int, copy: int, own: set[str]) -> TileOp:
    def value(kind: ValueKind, subject: str) -> ValueId:
        if kind is ValueKind.TILE:
            return ValueId(kind, subject, consumer if subject in own else None, copy)
        return ValueId(kind, subject, consumer, copy if kind is ValueKind.PARTIAL else 0)

    inputs = tuple(value(*one) for one in step.inputs)
    output = None if step.output is None else value(*step.output)
    return TileOp(OpId(step.kind, step.subject, consumer, copy), inputs, output, step.counts, step.items)


def _edges(op: TileOp, step: Step, copies: int) -> Iterator[Edge]:
    """Dependences of a step: on the copies of its tiles, and on other steps."""
    for value in op.inputs:
        if value.kind is ValueKind.TILE:
            yield Edge(load_of(value), op.id, 0)
    for kind, subject, when in step.after:
        before = replace(op.id, kind=kind, subject=subject)
        if when is When.BEFORE:
            before = replace(before, k_block=(op.copy - 1) % copies)
        again = when is When.AGAIN or (when is When.BEFORE and op.copy == 0)
        yield Edge(before, op.id, 2 if when is When.TWICE else int(again))


def _releases(rings: Sequence[Ring], ops: Sequence[TileOp]) -> tuple[list[TileOp], list[Edge]]:
    """Slots are handed back after everything of the same consumer and K-block that reads their tiles."""
    names = {ring.subject: {member.name for member in ring.members} for ring in rings}
    made, edges = list[TileOp](), list[Edge]()
    for op in ops:
        if op.kind is not OpKind.RELEASE:
            made.append(op)
            continue
        readers = [
            other
            for other in ops
            if (other.consumer, other.copy) == (op.consumer, op.copy)
            and any(v.kind is ValueKind.TILE and v.subject in names[op.id.subject] for v in other.inputs)
        ]
        results = tuple(reader.output for reader in readers if reader.output is not None)
        made.append(replace(op, inputs=results))
        edges += [Edge(reader.id, op.id, 0) for reader in readers]
    return made, edges


def _plans(rings: Iterable[Ring], ops: Sequence[TileOp]) -> Iterator[RingPlan]:
    for ring in rings:
        names = {member.name for member in ring.members}
        loads = tuple(op.id for op in ops if op.kind is OpKind.TMA_LOAD and op.id.subject in names)
        back = (op.id for op in ops if op.kind is OpKind.RELEASE and op.id.subject == ring.subject)
        nbytes = sum(member.nbytes for member in ring.members)
        yield RingPlan(ring.name, loads, tuple(back), nbytes, ring.members)


def _live(steps: Sequence[Step], consumer: int) -> Iterator[Live]:
    """The values that steps of a consumer leave to later ones, in registers."""
    for step in steps:
        maker = OpId(step.kind, step.subject, consumer)
        for held in step.holds:
            readers = tuple(OpId(kind, subject, consumer) for kind, subject in held.readers)
            value = ValueId(ValueKind.VALUE, held.name, consumer)
            yield Live(value, maker, readers, held.to_the_end, held.registers, consumer)
