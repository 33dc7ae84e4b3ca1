"""The variables of the CP-SAT model of one tile program.

Time is in SM cycles, or in units of a few where a loop computes values. An operation of iteration i starts at
(i + stage) * II + cycle; II is a variable. Every variable has a name, so a dump of the model can be read.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from ortools.sat.python import cp_model

from wsopt.machine.types import Machine
from wsopt.program.ids import OpId, ValueId
from wsopt.program.program import TileProgram
from wsopt.schedule.types import EpilogueBuffers


@dataclass(slots=True)
class Model:
    """The variables of one tile program's model, by operation. II is of the range `interval`, in cycles.

    `on` says whether a partition issues an operation, where several may.
    """

    program: TileProgram
    machine: Machine
    margin: int
    interval: tuple[int, int]
    stages: int
    cp: cp_model.CpModel = field(default_factory=cp_model.CpModel)
    ii: cp_model.IntVar = field(init=False)
    stage: dict[OpId, cp_model.IntVar] = field(default_factory=dict)
    cycle: dict[OpId, cp_model.IntVar] = field(default_factory=dict)
    again: dict[OpId, cp_model.IntVar] = field(default_factory=dict)
    start: dict[OpId, cp_model.IntVar] = field(default_factory=dict)
    depth: dict[str, cp_model.IntVar] = field(default_factory=dict)
    slots: dict[tuple[str, int], cp_model.IntVar] = field(default_factory=dict)
    buffers: dict[EpilogueBuffers, cp_model.IntVar] = field(default_factory=dict)
    copied: dict[ValueId, cp_model.IntVar] = field(default_factory=dict)
    on: dict[tuple[OpId, str], cp_model.IntVar] = field(default_factory=dict)
    time: cp_model.LinearExprT = 0
    horizon: int = 0

    @property
    def unit(self) -> int:
        """Cycles of one unit of the model's time."""
        return self.program.grain

    def t(self, cycles: float) -> int:
        """A duration in units, rounded up: what holds in units holds in cycles."""
        return math.ceil(cycles / self.unit)


def variables(m: Model) -> None:
    """II, and for every operation stage, cycle and start; start = stage * II + cycle.

    The product is linear in one Boolean a stage: stage = k implies start = k II + cycle.
    """
    low, high = (m.t(cycles) for cycles in m.interval)
    m.horizon = m.stages * high
    m.ii = m.cp.new_int_var(low, high, "II")
    for op in m.program.loop:
        m.stage[op.id] = m.cp.new_int_var(0, m.stages - 1, f"stage[{op.id}]")
        m.cycle[op.id] = m.cp.new_int_var(0, high - 1, f"cycle[{op.id}]")
        m.start[op.id] = m.cp.new_int_var(0, m.horizon, f"start[{op.id}]")
        m.again[op.id] = m.cp.new_int_var(0, 2 * high, f"cycle+II[{op.id}]")
        m.cp.add(m.cycle[op.id] < m.ii)
        m.cp.add(m.again[op.id] == m.cycle[op.id] + m.ii)
        for k in range(m.stages):
            is_k = m.cp.new_bool_var(f"stage[{op.id}]={k}")
            m.cp.add(m.stage[op.id] == k).only_enforce_if(is_k)
            m.cp.add(m.stage[op.id] != k).only_enforce_if(~is_k)
            m.cp.add(m.start[op.id] == k * m.ii + m.cycle[op.id]).only_enforce_if(is_k)
