"""The loops over a tile's K-blocks as text: where each begins and ends, and what stands under its first products.

Steady passes are one loop, or several with copies of the inputs of the epilogue between them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from wsopt.emit import inputs, text
from wsopt.emit.instructions import Instruction, Loop, Mma, arrive, wait, when, write
from wsopt.emit.plan import KernelPlan


@dataclass(frozen=True, slots=True)
class Stretch:
    """The loop over a tile's K-blocks from `first` to `last`; a `guarded` one is only for where there are any."""

    first: str
    last: str
    loop: Loop
    guarded: bool = False

    def lines(self, plan: KernelPlan, under: list[str]) -> list[str]:
        """The lines of the loop, and of those that stand `under` its first products."""
        loop, ping_pong = self.loop, plan.ping_pong
        taken = "turns" if plan.split else "visit"
        turn = [wait("turn.index(index)", f"({taken} & 1) ^ (1 if index == 0 else 0)")] if ping_pong else []
        last = write(_passing_turn(loop.drain) if ping_pong else loop.drain)
        lines = [write([*turn, *loop.prologue]), *under, *self._steady(plan), last]
        lines = [line for line in lines if line]
        return [when(f"whole_end > {self.first}", "\n".join(lines))] if self.guarded else lines

    def _steady(self, plan: KernelPlan) -> list[str]:
        """The steady passes: one loop, or some before the copies of inputs, which stand apart, and the rest."""
        loop, refill, body = self.loop, plan.refill, write(self.loop.steady)
        if not body:
            return []
        variable = "k_block" if any(isinstance(one, Mma) and one.counts for one in loop.steady) else "_"

        def passing(begin: str, until: str) -> str:
            return f"for {variable} in range({begin}, {until}):\n" + text.block(body)

        end, peeled = self.last, f" + {loop.first}" if loop.first else ""
        first = str(loop.first) if self.first == "0" else self.first + peeled
        pause = f"pause = gl.minimum({end}, {first + ' + ' if peeled else ''}REFILL_PASSES"
        if refill.apart:
            pauses = [f"{pause} + subtile * REFILL_APART)", passing("begin", "pause"), "begin = pause"]
            loads = inputs.input_loads(plan, "\n".join(pauses))
            return [f"begin = {first}", loads, passing("begin", end)]
        if refill.first:
            loads = inputs.input_loads(plan)
            return [f"{pause})", passing(first, "pause"), loads, passing("pause", end)]
        return [passing(first, end)]


def _passing_turn(drain: Sequence[Instruction]) -> list[Instruction]:
    """The drain with the hand-over of the turn, once the last K-block is there and its products are issued.

    The next consumer may go round the ring to that K-block's slot: before its copy has ended the barrier's phase
    would be taken for the one after it.
    """
    issued = max((place for place, one in enumerate(drain, 1) if isinstance(one, Mma)), default=0)
    return [*drain[:issued], arrive("turn.index((index + 1) % CONSUMERS)"), *drain[issued:]]
