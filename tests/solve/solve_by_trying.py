"""The least II of a tile program by trying: every II in turn, and for it every start of every operation.

Nothing is shared with the model: what holds a unit or a thread is a set of cycles, kept as bits.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from wsopt.program.ids import OpId
from wsopt.program.program import OpKind, TileOp, TileProgram

ORDER = (OpKind.TMA_LOAD, OpKind.MMA, OpKind.ACCUMULATE, OpKind.RELEASE)


def least_interval(program: TileProgram, wake: int, depth: int, effective: int = 1) -> int:
    """The least II, from `effective` on, for which a placement is found, with a ring of `depth` slots."""
    ii = effective
    while not Trial(program, wake, depth, ii).succeeds():
        ii += 1
    return ii


@dataclass(slots=True)
class Trial:
    """One II. An operation that may start at t may start at t + II too, but gains nothing by it."""

    program: TileProgram
    wake: int
    depth: int
    ii: int
    starts: dict[OpId, int] = field(default_factory=dict)
    held: dict[str, int] = field(default_factory=dict)

    def succeeds(self) -> bool:
        ops = [op for kind in ORDER for op in self.program.loop if op.kind is kind]
        return all(max(op.busy, op.issue) <= self.ii for op in ops) and self._place(ops)

    def _place(self, left: list[TileOp]) -> bool:
        if not left:
            return True
        op, *others = left
        first = self._earliest(op)
        # The loads of a slot stand in one stage, which begins with the first of them.
        anchored = op.kind is OpKind.TMA_LOAD and not self.starts
        for at in range(first, first + 1 if anchored else first + self.ii):
            before = dict(self.held)
            if self._hold(op, at):
                self.starts[op.id] = at
                if self._holds() and self._place(others):
                    return True
                del self.starts[op.id]
            self.held = before
        return False

    def _earliest(self, op: TileOp) -> int:
        before = [e.source for e in self.program.edges if e.target == op.id and not e.distance]
        return max((self._ready(name) for name in before if name in self.starts), default=0)

    def _ready(self, name: OpId) -> int:
        source = self.program.op(name)
        return self.starts[name] + source.latency + self.wake * (source.kind is OpKind.TMA_LOAD)

    def _hold(self, op: TileOp, at: int) -> bool:
        """Take the cycles of the unit and of the thread, if they are free."""
        thread = f"consumer {op.consumer}"
        for what, size in ((op.unit, op.busy), (thread, op.issue)):
            bits = sum(1 << (at + t) % self.ii for t in range(size))
            if what is not None and self.held.get(what, 0) & bits:
                return False
            if what is not None:
                self.held[what] = self.held.get(what, 0) | bits
        return True

    def _holds(self) -> bool:
        """Dependences round the loop, slots' lives, and partial sums within a pass, so far as placed."""
        for edge in self.program.edges:
            both = edge.source in self.starts and edge.target in self.starts
            if both and self.starts[edge.target] + edge.distance * self.ii < self._ready(edge.source):
                return False
        done = [op for op in self.program.loop if op.id in self.starts]
        # A product ends before its slot is released, so a late one need not be looked at further.
        ends = {OpKind.RELEASE: lambda op: op.issue + op.latency, OpKind.MMA: lambda op: op.latency}
        lives = [self.starts[op.id] + ends[op.kind](op) for op in done if op.kind in ends]
        if max(lives, default=0) > self.depth * self.ii:
            return False
        return not self.program.region.promote or all(self._in_a_pass(op) for op in done)

    def _in_a_pass(self, op: TileOp) -> bool:
        if op.consumer is None:
            return True
        own = [o for o in self.program.loop if o.kind is OpKind.MMA and o.consumer == op.consumer]
        return 0 <= self.starts[op.id] - self.starts[own[0].id] <= self.ii - op.issue
