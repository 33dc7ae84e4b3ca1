"""Reads the schedule out of a solution of the model."""

from __future__ import annotations

from ortools.sat.python import cp_model

from wsopt.perf import timing
from wsopt.schedule import budget
from wsopt.schedule.types import PlacedOp, Schedule
from wsopt.solve.variables import Model


def read(m: Model, solver: cp_model.CpSolver) -> Schedule:
    """The schedule of the values that a solver has found for a model's variables."""
    placed = tuple(
        PlacedOp(
            op=str(op.id),
            partition=budget.issuer(m.program, op.consumer),
            stage=solver.value(m.stage[op.id]),
            cycle=solver.value(m.cycle[op.id]) * m.unit,
        )
        for op in m.program.loop
    )
    rings = tuple((plan.name, solver.value(m.depth[plan.name])) for plan in m.program.rings)
    buffers = next(b for b, chosen in m.buffers.items() if solver.value(chosen))
    ii = solver.value(m.ii) * m.unit
    return Schedule(
        name=m.program.whole.name,
        machine=m.machine.name,
        structure=m.program.structure,
        ii=ii,
        placed=placed,
        partitions=budget.partitions(m.program, buffers, m.machine),
        rings=rings,
        buffers=buffers,
        base_registers=budget.base_registers(m.program.structure, m.machine),
        shared_memory_bytes=budget.shared_memory(m.program, [slots for _, slots in rings], buffers),
        prediction=timing.predict(m.program, m.machine, ii, buffers, [depth for _, depth in rings]),
    )
