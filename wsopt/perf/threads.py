"""The threads of a block as they run a schedule: what each waits for, what it holds, and when its results are there.

Every partition meets its operations in the order of the emitted text, pass by pass, and starts each as soon as its
thread is free, what it depends on is there, and the slot that it fills has come back. Units serve in the order in
which they are asked: the tensor core instruction by instruction, whoever issues them, the way of the copies copy by
copy, the pipes of arithmetic phase by phase.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import zip_longest

from wsopt.perf.costs import BARRIER_CHAIN, DIVIDED_CHAIN, OPERAND_CHAIN
from wsopt.perf.events import Events, Fifo, Thread, Until
from wsopt.program.facts import Product
from wsopt.program.ids import OpId, OpKind, Unit
from wsopt.program.program import Edge, RingPlan, TileOp
from wsopt.schedule.program_order import Step, begins_before_return, consumer_order, one_by_one
from wsopt.schedule.types import PartitionRole
from wsopt.schedule.verified import VerifiedSchedule
from wsopt.tensors.parts import stretches

_BEHIND = frozenset((Unit.TMA, Unit.MEMORY))
"""Units that work behind the back of the thread that asks them."""

Timed = Generator[Until, float, float]
"""A part of a thread: it returns the time at which it ends."""


class Block:
    """A schedule as looked up by the threads of a block: who fills and hands back which slot, who waits for whom."""

    def __init__(self, verified: VerifiedSchedule) -> None:
        self.verified, self.program, self.machine = verified, verified.program, verified.machine
        self.ops: Mapping[OpId, TileOp] = {op.id: op for op in self.program.loop}
        self.partition = {one.op: one.partition for one in verified.schedule.placed}
        self.rings = {load: plan for plan in self.program.rings for load in plan.loads}
        self.depths = dict(verified.schedule.rings)
        self.chain = DIVIDED_CHAIN if self.program.computes_with_products else BARRIER_CHAIN

    @cached_property
    def into(self) -> Mapping[OpId, tuple[Edge, ...]]:
        """The dependences of each operation."""
        return {one: tuple(edge for edge in self.program.edges if edge.target == one) for one in self.ops}

    def crosses(self, source: OpId, target: OpId) -> bool:
        """Whether a barrier stands between two operations."""
        return self.partition[str(source)] != self.partition[str(target)]

    def parts(self, product: TileOp) -> list[int]:
        """The instructions of each part of a product that only begins before a slot is handed back."""
        depth = self.program.structure.depth
        least = self.machine.mma_depth(self.program.whole.dtype.bits)
        return [product.instructions * one.length // depth for one in stretches(depth, least)]

    def consumer_steps(self, index: int) -> list[Step]:
        """A consumer's operations in program order."""
        order = consumer_order(self.verified)
        return [replace(step, op=self.ops[replace(step.op.id, instance=index)]) for step in order]

    def helper_ops(self, name: str) -> list[TileOp]:
        """The operations of another partition in program order: the copies of a slot tensor by tensor."""
        own = list(one_by_one(self.verified, name))
        if any(op.kind is not OpKind.TMA_LOAD for op in own):
            return own
        plans = {self.rings[op.id].name: self.rings[op.id] for op in own}
        return [op for plan in plans.values() for op in self._by_tensor(plan)]

    def _by_tensor(self, plan: RingPlan) -> list[TileOp]:
        names = [member.name for member in plan.members]
        return [self.ops[one] for one in sorted(plan.loads, key=lambda one: names.index(one.subject))]

    def returns(self, plan: RingPlan, k_block: int) -> Iterator[tuple[OpId, int]]:
        """The releases, with their iterations, that let a slot be filled with a K-block."""
        copies = self.program.structure.copies
        iteration, copy = divmod(k_block - self.depths[plan.name], copies)
        return ((one, iteration) for one in plan.releases if one.k_block == copy and iteration >= 0)


@dataclass(frozen=True, slots=True)
class Span:
    """Cycles from `begin` to `end` in which a unit or a partition, its `row`, is held for an iteration of an
    operation (by its text); with `waits` the partition's thread waits for what the operation depends on.
    """

    row: str
    op: str
    iteration: int
    begin: float
    end: float
    waits: bool = False


@dataclass(slots=True)
class _Thread:
    """One partition: its clock, the K-blocks of rings that its pass has `met`, when its tensor instructions began and
    how long each takes, and what is `left` of a product that has only begun.
    """

    name: str = ""
    time: float = 0.0
    met: set[tuple[str, int]] = field(default_factory=set)
    begun: list[tuple[float, float]] = field(default_factory=list)
    left: list[int] = field(default_factory=list)
    product: tuple[TileOp, int] | None = None


@dataclass(slots=True)
class Run:
    """A schedule as it runs: `started` has the times at which an operation, by its text, started, by iteration.

    `spans` are the times at which units and partitions are held, in the order in which they were simulated.
    """

    block: Block
    iterations: int
    events: Events = field(default_factory=Events)
    units: dict[str, Fifo] = field(default_factory=dict)
    started: dict[str, list[float]] = field(default_factory=dict)
    spans: list[Span] = field(default_factory=list)

    def go(self) -> None:
        """Run all iterations from an empty block on."""
        self.events.run([*self._threads()])

    def _threads(self) -> Iterator[Thread]:
        """One thread for each partition that has operations of the loop."""
        placed = set(self.block.partition.values())
        for one in self.block.verified.schedule.partitions:
            if one.name in placed:
                consumes = one.role is PartitionRole.CONSUMER
                yield self._consumer(one.name, one.index) if consumes else self._helper(one.name)

    def _consumer(self, name: str, index: int) -> Thread:
        """A consumer's passes: in pass n an operation of stage s works on iteration n - s."""
        own, thread, s = self.block.consumer_steps(index), _Thread(name), self.block.program.structure
        for number in range(self.iterations + max(step.stage for step in own)):
            thread.met.clear()
            at_work = [step for step in own if 0 <= number - step.stage < self.iterations]
            for step, after in zip_longest(at_work, at_work[1:]):
                in_parts = begins_before_return(own, step, after, s)
                thread.left = self.block.parts(step.op) if in_parts else thread.left
                yield from self._operation(step.op, number - step.stage, thread)

    def _helper(self, name: str) -> Thread:
        """A partition that works on one K-block after the other."""
        own, thread = self.block.helper_ops(name), _Thread(name)
        for number in range(self.iterations):
            for copy in range(self.block.program.structure.copies):
                thread.met.clear()
                for op in (op for op in own if op.copy == copy):
                    yield from self._operation(op, number, thread)

    # --- operations -------------------------------------------------------------------------------------

    def _operation(self, op: TileOp, iteration: int, thread: _Thread) -> Thread:
        """An operation: its waits, its start, and what it holds."""
        reached = thread.time
        waited = yield from self._waits(op, iteration, thread)
        self._held(thread.name, op, iteration, reached, thread.time, waits=True)
        self.started.setdefault(str(op.id), []).append(thread.time)
        if op.kind is OpKind.MMA:
            thread.product, thread.left = (op, iteration), thread.left or [op.instructions]
            yield from self._issue(thread)
            return
        yield from self._hold(op, iteration, thread, waited)
        while op.kind is OpKind.RELEASE and thread.left:
            yield from self._issue(thread)

    def _hold(self, op: TileOp, iteration: int, thread: _Thread, waited: float) -> Thread:
        """An operation's instructions, with the units that they hold, and when its result is there."""
        begin, end = thread.time, thread.time + max(0.0, op.issue - waited)
        result = end if op.kind is OpKind.RELEASE else begin
        for name, cycles in op.held:
            ended = self.units.setdefault(name, Fifo()).take(begin, cycles)
            self._held(name, op, iteration, ended - cycles, ended)
            if name in _BEHIND:
                result = max(result, ended - cycles)
            else:
                end = max(end, ended)
        self.events.happens((op.id, iteration), max(end, result + op.latency))
        self._held(thread.name, op, iteration, begin, end)
        thread.time = yield end

    def _held(
        self, row: str, op: TileOp, iteration: int, begin: float, end: float, *, waits: bool = False
    ) -> None:
        """Note that a unit or a partition is held, if for any time at all."""
        if end > begin:
            self.spans.append(Span(row, str(op.id), iteration, begin, end, waits))

    def _waits(self, op: TileOp, iteration: int, thread: _Thread) -> Timed:
        """Wait for what an operation depends on. Returns the cycles of it that its price has too."""
        latency, waited = self.block.machine.latency, 0.0
        for edge in self.block.into[op.id]:
            before, crosses = iteration - edge.distance, self.block.crosses(edge.source, op.id)
            plan = self.block.rings.get(edge.source) if crosses else None
            if before < 0:
                continue
            if plan is None:
                handover = latency.mbarrier_wake if crosses else 0.0
                yield from self._until(edge.source, before, thread, handover)
            elif (plan.name, edge.source.k_block) not in thread.met:
                thread.met.add((plan.name, edge.source.k_block))
                waited = latency.mbarrier_wait
                thread.time = yield thread.time + waited + self.block.chain * latency.arithmetic
                for load in (one for one in plan.loads if one.k_block == edge.source.k_block):
                    yield from self._until(load, before, thread, latency.mbarrier_wake)
        yield from self._slot(op, iteration, thread)
        return waited

    def _slot(self, op: TileOp, iteration: int, thread: _Thread) -> Thread:
        """Wait for the slot that an operation fills, if it does."""
        plan = self.block.rings.get(op.id)
        k_block = iteration * self.block.program.structure.copies + op.copy
        for back, before in self.block.returns(plan, k_block) if plan is not None else ():
            yield from self._until(back, before, thread, 0.0)

    def _until(self, source: OpId, iteration: int, thread: _Thread, handover: float) -> Thread:
        """Wait for an operation's result, which the thread hears of `handover` cycles later."""
        yield (source, iteration)
        thread.time = yield max(thread.time, self.events.happened[source, iteration] + handover)

    def _issue(self, thread: _Thread) -> Thread:
        """The next part of a product: its instructions, as the queue takes them, and behind the last its result."""
        assert thread.product is not None, "what is left is of a product"
        op, iteration = thread.product
        latency, core = self.block.machine.latency, self.units.setdefault(Unit.TENSOR, Fifo())
        cycles, ended, begin = op.busy / op.instructions, thread.time, thread.time
        thread.time = yield thread.time + latency.fence + OPERAND_CHAIN * latency.arithmetic
        for _ in range(thread.left.pop(0)):
            thread.time = yield max(thread.time + latency.mma_issue, self._room(thread))
            ended = core.take(thread.time, cycles)
            self._held(Unit.TENSOR, op, iteration, ended - cycles, ended)
            thread.begun.append((ended - cycles, cycles))
        self._held(thread.name, op, iteration, begin, thread.time)
        if not thread.left:
            registers = isinstance(op.counts, Product) and op.counts.registers
            behind = latency.mma_latency_registers if registers else latency.mma_latency
            self.events.happens((op.id, iteration), ended + behind)

    def _room(self, thread: _Thread) -> float:
        """When the queue takes a thread's next tensor instruction: so many of its instructions are under way at most,
        of which the one at work counts by what is left of it.
        """
        over = len(thread.begun) + 1 - self.block.machine.mma_queue
        if over <= 0:
            return 0.0
        begin, cycles = thread.begun[math.floor(over)]
        return begin + (over - math.floor(over)) * cycles
