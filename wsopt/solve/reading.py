"""The schedule that a solution of the model stands for."""

from __future__ import annotations

from ortools.sat.python import cp_model

from wsopt.perf import timing
from wsopt.schedule import budget
from wsopt.schedule.types import EpilogueBuffers, Partition, PartitionRole, PlacedOp, Schedule
from wsopt.solve.variables import Model


def _partitions(m: Model, buffers: EpilogueBuffers) -> tuple[Partition, ...]:
    """All that the launch has is dealt out: loader and store warps keep the least, the consumers share the rest."""
    s, least = m.program.structure, budget.HELPER_REGISTERS
    registers = budget.consumer_registers(s, m.machine)
    loader = Partition(PartitionRole.LOADER, 0, budget.LOADER_WARPS, least)
    found = [Partition(PartitionRole.CONSUMER, i, s.consumer_warps, registers) for i in range(s.consumers)]
    store_warps = range(s.consumers if buffers.store_warp else 0)
    found += [
        loader,
        *(Partition(PartitionRole.STORE_WARP, i, budget.STORE_WARPS, least) for i in store_warps),
    ]
    return tuple(found)


def read(m: Model, solver: cp_model.CpSolver) -> Schedule:
    """The schedule of the values that a solver has found for a model's variables."""
    placed = tuple(
        PlacedOp(
            op=str(op.id),
            partition=next(p for p in m.partitions if solver.value(m.on[op.id, p])),
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
        partitions=_partitions(m, buffers),
        rings=rings,
        buffers=buffers,
        base_registers=budget.base_registers(m.program.structure, m.machine),
        shared_memory_bytes=budget.shared_memory(m.program, [slots for _, slots in rings], buffers),
        prediction=timing.predict(m.program, m.machine, ii, buffers, [depth for _, depth in rings]),
    )
