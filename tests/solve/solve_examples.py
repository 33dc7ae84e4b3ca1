"""Small regions and hand-made tile programs for the solver's tests."""

from __future__ import annotations

from dataclasses import dataclass, replace

from wsopt.frontend.region import find_region
from wsopt.frontend.types import Region
from wsopt.graph.builder import GraphBuilder, Symbol
from wsopt.machine import Machine
from wsopt.perf.price import lower
from wsopt.program.epilogue import EpilogueCost
from wsopt.program.program import OpKind, TileOp, TileProgram
from wsopt.program.types import Sharing, Structure
from wsopt.schedule import budget, memory

MARGIN = 24


def region(m: int, n: int, k: int, dtype: str = "bf16", *, residual: bool = False) -> Region:
    """A product, with a full tile added to it or not, in bf16."""
    g = GraphBuilder("small")
    p = g.matmul(g.input("x", (m, k), dtype), g.input("w", (n, k), dtype), transpose_b=True, name="p")
    total: Symbol = p + g.input("r", (m, n), "bf16") if residual else p
    g.output(g.cast(total, dtype="bf16", name="y"))
    return find_region(g.build())


def gated(m: int, n: int, k: int) -> Region:
    """silu(x a) * (x b): two products that share the loop."""
    g = GraphBuilder("gated")
    x, a, b = g.input("x", (m, k), "bf16"), g.input("a", (n, k), "bf16"), g.input("b", (n, k), "bf16")
    gate, up = g.matmul(x, a, transpose_b=True), g.matmul(x, b, transpose_b=True)
    g.output(g.cast(g.silu(gate) * up, dtype="bf16", name="y"))
    return find_region(g.build())


def attention(wide: int = 64) -> Region:
    """softmax(q k') v with heads of `wide` elements."""
    g = GraphBuilder("attention")
    q, k, v = (g.input(name, (4, 16, 2048, wide), "bf16") for name in "qkv")
    weights = g.softmax(g.mul(g.matmul(q, k, transpose_b=True), 0.125), axis=-1)
    g.output(g.cast(g.matmul(g.cast(weights, dtype="bf16"), v), dtype="bf16", name="o"))
    return find_region(g.build())


def structure(
    rows: int, columns: int, depth: int, consumers: int, sharing: Sharing = Sharing.COOPERATIVE
) -> Structure:
    return Structure(rows, columns, depth, consumers, 4, sharing, True, False, 1, 4)


@dataclass(frozen=True, slots=True)
class Times:
    """What the operations of a hand-made program take: (issue, busy, latency) by kind."""

    load: tuple[int, int, int]
    mma: tuple[int, int, int]
    release: tuple[int, int, int]
    add: tuple[int, int, int] = (0, 0, 0)

    def of(self, op: TileOp) -> TileOp:
        found = {
            OpKind.TMA_LOAD: self.load,
            OpKind.MMA: self.mma,
            OpKind.RELEASE: self.release,
            OpKind.ACCUMULATE: self.add,
        }[op.kind]
        issue, busy, latency = found
        return replace(op, issue=issue, busy=busy, latency=latency)


def hand_made(times: Times, machine: Machine, *, consumers: int = 1, f8: bool = False) -> TileProgram:
    """A program of small numbers, of which one epilogue buffer is all that there is to choose, if no store warp."""
    shape = region(1024, 1024, 1024, "f8e4m3" if f8 else "bf16")
    program = lower(shape, structure(64, 64, 64, consumers), machine)
    cost = EpilogueCost(alone=100, together=100, staged_bytes=8192, input_bytes=0, registers=16, stores=1)
    return replace(program, ops=tuple(times.of(op) for op in program.ops), epilogue=cost)


def with_depth(program: TileProgram, machine: Machine, depth: int) -> Machine:
    """The card with just the shared memory for a ring of this depth, and without a use for store warps."""
    kept = min(budget.buffer_options(program))
    assert not kept.store_warp
    room = memory.shared_memory(program, depth, kept)
    # To start a store costs no more than to tell a store warp of it, and next to nobody waits for another's.
    start = machine.latency.mbarrier_arrive
    free = replace(machine, tma_store_box_cycles=start, tma_store_bytes_per_cycle=1e4)
    return replace(free, shared_memory_per_block_bytes=room)
