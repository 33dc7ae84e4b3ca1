"""What a loop that computes values settles at: its interval where units and threads wait for another; its energy."""

from __future__ import annotations

import math

from wsopt.machine.types import Machine
from wsopt.tile.types import OpKind, TileOp, TileProgram, Unit

_ARITHMETIC = (Unit.ALU, Unit.FMA, Unit.MUFU)


def held_cycles(program: TileProgram) -> dict[Unit, int]:
    """Cycles an iteration for which each unit is held."""
    return {unit: sum(c for op in program.loop for held, c in op.held if held is unit) for unit in Unit}


def crowded_interval(program: TileProgram, machine: Machine) -> int:
    """Cycles that an iteration takes at least, in the long run; 0 for loops that compute no values.

    A schedule has everyone on time, and the tightest of them is the order to keep. On the machine consumers
    drift, and who comes while a unit is held waits: what each unit takes by itself, and each consumer's own
    thread, add up as a norm.
    """
    if not program.region.body:
        return 0
    issue: dict[int, int] = {}
    for op in program.loop:
        if op.consumer is not None:
            issue[op.consumer] = issue.get(op.consumer, 0) + op.issue
    parts = [float(c) for c in (*held_cycles(program).values(), max(issue.values(), default=0)) if c]
    largest, knee = max(parts), machine.consumer_knee
    excess = math.fsum((part / largest) ** knee for part in parts)
    return math.ceil(largest * math.pow(excess, 1 / knee))


def iteration_energy(program: TileProgram, machine: Machine) -> float:
    """Energy of one iteration of a loop that computes values, in cycles of the tensor core."""
    held = held_cycles(program)
    products = [op for op in program.loop if op.kind is OpKind.MMA]
    return (
        sum(op.busy for op in products)
        + machine.power_cycles_per_shared_byte * sum(_operand_bytes(program, op, machine) for op in products)
        + machine.power_cycles_per_l2_byte * sum(plan.slot_bytes for plan in program.rings)
        + machine.power_cycles_per_alu_cycle * sum(held[unit] for unit in _ARITHMETIC)
    )


def _operand_bytes(program: TileProgram, product: TileOp, machine: Machine) -> int:
    """Bytes that a product reads from shared memory: its columns' tile anew for each instruction's rows.

    The left operand is in registers, where the loop made it, or a tile that the block holds.
    """
    s, (left, right) = program.structure, product.inputs
    own = program.resident_bytes // s.consumers if left.startswith("resident:") else 0
    return own + s.rows // machine.mma_rows * program.value(right).nbytes
