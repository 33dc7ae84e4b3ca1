"""Good schedules for the tests to break: a region, a structure, and what the solver made of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from wsopt.checker import faults
from wsopt.frontend.region import find_region
from wsopt.frontend.types import Region
from wsopt.graph.builder import GraphBuilder, Symbol
from wsopt.machine import Machine
from wsopt.perf.price import lower
from wsopt.program.program import OpKind, TileProgram
from wsopt.program.types import Sharing, Structure
from wsopt.schedule import budget, memory
from wsopt.schedule.types import PlacedOp, Schedule
from wsopt.solve.optimum import solve

MARGIN = 24


@dataclass(frozen=True, slots=True)
class Example:
    """A schedule with what it is a schedule of."""

    schedule: Schedule
    program: TileProgram
    machine: Machine

    def faults(self, schedule: Schedule | None = None) -> list[str]:
        return faults(schedule or self.schedule, self.program, self.machine, MARGIN)

    def name(self, kind: OpKind, consumer: int | None = None, number: int = 0) -> str:
        """The name of an operation of the loop."""
        found = [
            str(op.id) for op in self.program.loop if op.kind is kind and consumer in (None, op.consumer)
        ]
        return found[number]

    def start(self, op: str) -> int:
        placed = self.schedule.place(op)
        return placed.stage * self.schedule.ii + placed.cycle

    def moved(self, op: str, **changes: Any) -> Schedule:
        """The schedule with one operation placed differently."""
        placed = tuple(replace(p, **changes) if p.op == op else p for p in self.schedule.placed)
        return replace(self.schedule, placed=placed)

    def each(self, change: Callable[[PlacedOp], PlacedOp]) -> Schedule:
        return replace(self.schedule, placed=tuple(change(p) for p in self.schedule.placed))


def region(m: int, n: int, k: int, dtype: str = "bf16", *, residual: bool = False) -> Region:
    """A product, with a full tile added to it or not, in bf16."""
    g = GraphBuilder("small")
    p = g.matmul(g.input("x", (m, k), dtype), g.input("w", (n, k), dtype), transpose_b=True, name="p")
    total: Symbol = p + g.input("r", (m, n), "bf16") if residual else p
    g.output(g.cast(total, dtype="bf16", name="y"))
    return find_region(g.build())


def attention() -> Region:
    """softmax(q k') v of 2048 rows and columns and 64 wide, one head."""
    g = GraphBuilder("attention")
    q, k, v = (g.input(name, (1, 1, 2048, 64), "bf16") for name in "qkv")
    p = g.cast(g.softmax(g.matmul(q, k, transpose_b=True), axis=-1), dtype="bf16")
    g.output(g.cast(g.matmul(p, v), dtype="bf16", name="o"))
    return find_region(g.build())


def structure(
    rows: int,
    columns: int,
    depth: int,
    consumers: int,
    sharing: Sharing = Sharing.COOPERATIVE,
    subtiles: int = 1,
) -> Structure:
    """A persistent structure of one-warpgroup consumers."""
    return Structure(rows, columns, depth, consumers, 4, sharing, True, False, subtiles, 4)


F8, IN_PAIRS = region(2048, 2048, 512, "f8e4m3"), replace(structure(64, 64, 64, 1), copies=2)
# A region, its structure, and how many slots the ring may have; as many as the card holds if not given.
EXAMPLES: dict[str, tuple[Region, Structure, int | None]] = {
    "cooperative": (region(2048, 2048, 512), structure(64, 128, 64, 2), None),
    "ping-pong": (region(2048, 2048, 512), structure(128, 128, 32, 2, Sharing.PING_PONG), None),
    "f8": (F8, structure(64, 128, 64, 2), None),
    "f8 in pairs": (F8, IN_PAIRS, None),
    "f8 in pairs, 1 slot": (F8, IN_PAIRS, 1),
    "f8 in pairs, 3 slots": (F8, IN_PAIRS, 3),
    "residual": (region(2048, 2048, 256, residual=True), structure(64, 128, 64, 2, subtiles=2), None),
}


def solved(region: Region, structure: Structure, slots: int | None, machine: Machine) -> Example:
    """The solver's schedule, which the checker has to accept."""
    program = lower(region, structure, machine)
    if slots is not None:
        room = memory.shared_memory(program, slots, budget.least_buffers(program))
        machine = replace(machine, shared_memory_per_block_bytes=room)
    schedule = solve(program, machine, MARGIN).schedule
    assert schedule is not None
    example = Example(schedule, program, machine)
    assert example.faults() == []
    return example
