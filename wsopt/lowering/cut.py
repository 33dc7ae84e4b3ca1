"""From the steps of a consumer's iteration to operations, dependences, tiles and rings: one way for every loop.

A step is what a consumer does once for each K-block of an iteration; what loops differ in, steps say as data. Kinds
of operations that are added to the loop say where their steps stand, what they cost, and their text.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from wsopt.entries import Table
from wsopt.frontend.types import Region
from wsopt.graph.types import DType
from wsopt.machine.types import Machine
from wsopt.program.facts import Copy, Counts, Member, Release, Signal
from wsopt.program.ids import OpId, OpKind, ValueId, ValueKind
from wsopt.program.program import Edge, Item, Live, RingPlan, TileOp, Value
from wsopt.program.types import Space, Structure


class When(Enum):
    """The K-block whose step is waited for: the same, the one before, or the same number an iteration before."""

    SAME = "same"
    BEFORE = "before"
    AGAIN = "again"


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
    that it is in, and the steps `after` which it comes, by kind, subject and K-block. A step `apart` is done for the
    consumer by the warpgroup `helper` of a role of its own, once for all if it is `common`. An output of this `dtype`
    may lie `within` another tile. Of the K-block before a step comes `behind` the issue of others that the same unit
    does in order.
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
    apart: bool = False
    helper: int = 0
    common: bool = False
    dtype: DType = DType.F32
    within: tuple[ValueKind, str] | None = None
    behind: tuple[tuple[OpKind, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Load:
    """Copies of a tensor into a K-block's slot that are one operation, or what stands for them where threads read it:
    for a consumer's rows, or for all (None).
    """

    member: Member
    consumer: int | None
    shape: tuple[int, ...]
    counts: Copy | Signal


@dataclass(frozen=True, slots=True)
class Ring:
    """Tensors whose tiles share slots: those with the same readers. `loads` are a K-block's, in order; tiles that are
    `made` are what steps leave there. `subjects` are those of the steps that hand slots back: one for all readers, or
    one by a commit for the products among them and another for the rest.
    """

    name: str
    subjects: tuple[str, ...]
    loads: tuple[Load, ...] = ()
    made: tuple[Member, ...] = ()

    @property
    def members(self) -> tuple[Member, ...]:
        """The tensors, each once."""
        return (*dict.fromkeys(load.member for load in self.loads), *self.made)


@dataclass(frozen=True, slots=True)
class Cut:
    """The loop of a tile program."""

    values: tuple[Value, ...]
    ops: tuple[TileOp, ...]
    edges: tuple[Edge, ...]
    rings: tuple[RingPlan, ...]
    live: tuple[Live, ...]


def _load_of(tile: ValueId) -> OpId:
    """The copy that fills a tile of a slot."""
    return OpId(OpKind.TMA_LOAD, tile.subject, tile.instance, tile.k_block)


def cut(rings: Sequence[Ring], steps: Sequence[Step], s: Structure) -> Cut:
    """The operations of all consumers in the loop, for each K-block of an iteration.

    With consumers in ping-pong they are those of one consumer: another's stand in the same places, later.
    """
    found = _Cutting(rings, s)
    found.add_loads()
    shared = [step for step in steps if step.common]
    alone = [step for step in steps if not step.common]
    consumers = (*((None,) if shared else ()), *range(s.at_once))
    for consumer, copy in itertools.product(consumers, range(s.copies)):
        found.add_steps(shared if consumer is None else alone, consumer, copy)
    plans = (_plan(ring, found.ops) for ring in rings)
    live = (one for consumer in range(s.at_once) for step in alone for one in _live(step, consumer))
    return Cut(
        tuple(found.values), tuple(found.ops), tuple(found.edges + found.returns), tuple(plans), tuple(live)
    )


class _Cutting:
    """Values, operations and dependences of a loop while its steps are cut; `returns` are those of slots."""

    def __init__(self, rings: Sequence[Ring], s: Structure) -> None:
        self.s = s
        self.loads = [load for ring in rings for load in ring.loads]
        self.made = {member.name: member for ring in rings for member in ring.made}
        self.own = {load.member.name for load in self.loads if load.consumer is not None}
        self.own |= {name for name, member in self.made.items() if member.by_rows}
        self.ring_of = {subject: ring for ring in rings for subject in ring.subjects}
        self.values, self.ops = list[Value](), list[TileOp]()
        self.edges, self.returns = list[Edge](), list[Edge]()

    def add_loads(self) -> None:
        """Add the copies of all K-blocks, and the tiles that they fill."""
        for copy, load in itertools.product(range(self.s.copies), self.loads):
            tile = ValueId(ValueKind.TILE, load.member.name, load.consumer, copy)
            self.values.append(Value(tile, load.shape, load.member.view.dtype, Space.SHARED))
            self.ops.append(TileOp(_load_of(tile), (), tile, load.counts))

    def add_steps(self, steps: Sequence[Step], consumer: int | None, copy: int) -> None:
        """Add a consumer's steps in a K-block, or those for all consumers."""
        own = [_of_step(step, consumer, copy, self.own) for step in steps]
        for step, op in zip(steps, own, strict=True):
            self.ops.append(self._release(op, own) if op.kind is OpKind.RELEASE else op)
            if step.shape is not None and all(value.id != op.output for value in self.values):
                self.values.append(self._value(step, step.shape, op, consumer))
            self.edges += _edges(op, step, self.s, self.made)

    def _release(self, op: TileOp, beside: Sequence[TileOp]) -> TileOp:
        """The release with the results of all operations `beside` it that read its slots, which it waits for."""
        readers = [other for other in beside if _handed_back(other, op, self.ring_of[op.id.subject])]
        self.returns += [Edge(reader.id, op.id, 0) for reader in readers]
        return replace(op, inputs=tuple(one.output for one in readers if one.output is not None))

    def _value(self, step: Step, shape: tuple[int, ...], op: TileOp, consumer: int | None) -> Value:
        """What an operation makes: a tile of a ring that steps fill, or a value of the consumer's."""
        assert op.output is not None, "what has a shape is a value"
        dtype = self.made[step.subject].view.dtype if step.subject in self.made else step.dtype
        within = None if step.within is None else ValueId(*step.within, consumer)
        return Value(op.output, shape, dtype, step.space, within)


def _of_step(step: Step, consumer: int | None, copy: int, own: set[str]) -> TileOp:
    """The operation of a consumer, or for all, and K-block; of tensors in `own` each consumer has tiles."""

    def value(kind: ValueKind, subject: str) -> ValueId:
        shared = kind is ValueKind.TILE and subject not in own
        each = kind in (ValueKind.TILE, ValueKind.PARTIAL)
        return ValueId(kind, subject, None if shared else consumer, copy if each else 0)

    inputs = tuple(value(*one) for one in step.inputs)
    output = None if step.output is None else value(*step.output)
    identity = OpId(step.kind, step.subject, consumer, copy)
    return TileOp(identity, inputs, output, step.counts, step.items, apart=step.apart, helper=step.helper)


def _handed_back(op: TileOp, release: TileOp, ring: Ring) -> bool:
    """Whether a release hands back what an operation reads of a ring's slots: a commit what products read, where
    there is another release for the rest.
    """
    names = {member.name for member in ring.members}
    reads = any(value.kind is ValueKind.TILE and value.subject in names for value in op.inputs)
    if len(ring.subjects) == 1 or not isinstance(release.counts, Release):
        return reads
    return reads and (op.kind is OpKind.MMA) == release.counts.by_commit


def _edges(op: TileOp, step: Step, s: Structure, made: Mapping[str, Member]) -> Iterator[Edge]:
    """Dependences of a step: on what fills its tiles' slots, and on other steps.

    A slot of tiles that are `made` is full when those of all consumers are.
    """
    for value in (value for value in op.inputs if value.kind is ValueKind.TILE):
        if value.subject not in made:
            yield Edge(_load_of(value), op.id, 0)
            continue
        for consumer in range(s.at_once) if made[value.subject].by_rows else (None,):
            yield Edge(OpId(OpKind.ELEMENTWISE, value.subject, consumer, value.k_block), op.id, 0)
    for kind, subject, when in step.after:
        k_block = (op.copy - 1) % s.copies if when is When.BEFORE else op.copy
        earlier = when is When.AGAIN or (when is When.BEFORE and op.copy == 0)
        yield Edge(replace(op.id, kind=kind, subject=subject, k_block=k_block), op.id, int(earlier))
    for kind, subject in step.behind:
        yield Edge(replace(op.id, kind=kind, subject=subject), op.id, 1, keeps_order=True)


def _plan(ring: Ring, ops: Sequence[TileOp]) -> RingPlan:
    """A ring with the operations that fill its slots and hand them back."""
    names = {member.name for member in ring.members}
    fills = (op for op in ops if op.output is not None and op.output.kind is ValueKind.TILE)
    loads = tuple(op.id for op in fills if op.id.subject in names)
    back = tuple(op.id for op in ops if op.kind is OpKind.RELEASE and op.id.subject in ring.subjects)
    return RingPlan(ring.name, loads, back, sum(member.nbytes for member in ring.members), ring.members)


def _live(step: Step, consumer: int) -> Iterator[Live]:
    """The values that a consumer's step leaves to later ones, in registers."""
    for held in step.holds:
        maker = OpId(step.kind, step.subject, consumer)
        readers = tuple(OpId(kind, subject, consumer) for kind, subject in held.readers)
        value = ValueId(ValueKind.VALUE, held.name, consumer)
        yield Live(value, maker, readers, held.to_the_end, held.registers, consumer)


# --- kinds that are added -------------------------------------------------------------------------------

Insert = Callable[[Sequence[Step], Region, Structure, Machine], Iterable[Step]]


@dataclass(frozen=True, slots=True)
class KindEntry:
    """A kind of operation that consumers do once a K-block.

    `insert(steps, region, structure, machine)` gives the steps of a consumer's loop with one of this kind among them:
    of kind `OpKind.ADDED`, with the entry's name for its subject, its cost, and tiles of rings for inputs. What comes
    after it says so, but for the return of the slots that it reads. `text` is a Jinja template of its lines, in which
    `tiles` are its inputs as matrices in shared memory, and `words` is what reports call it.
    """

    name: str
    words: str
    insert: Insert
    text: str


KINDS: Table[KindEntry] = Table("kind of operation")
"""The kinds that were added, by name."""
