"""Cutting a region without products to a structure: tiles of rows are loaded, read, computed and stored.

An iteration of the loop is one tile of rows. Each consumer has rows of its own and does everything for them;
all tiles of a turn stand in one slot of the ring.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field

from wsopt.frontend.types import Region
from wsopt.lowering.cut import Cut, load_of, tile_of
from wsopt.machine.types import Machine
from wsopt.perf import costs, row_costs
from wsopt.program.ids import OpId, OpKind, ValueId, ValueKind
from wsopt.program.program import Edge, EpilogueCost, Live, RingPlan, TileOp, TileProgram, Unit
from wsopt.program.row_layout import thread_registers
from wsopt.program.types import Placement, Structure
from wsopt.tensors.statements import Reduction
from wsopt.tensors.views import Role, View


@dataclass(slots=True)
class _RowCut(Cut):
    """The same where rows stream; `phases` are those of a tile's arithmetic."""

    phases: tuple[tuple[row_costs.RowItem, ...], ...] = field(kw_only=True)

    @property
    def tiles(self) -> int:
        """Tiles of the whole grid."""
        rows = math.ceil(self.region.extent(Role.ROW) / self.s.tile_rows)
        return self.region.extent(Role.BATCH) * rows

    def nbytes(self, view: View) -> int:
        """Bytes of one consumer's tile of a tensor."""
        return self.s.rows * self.s.columns * view.dtype.bits // 8

    def moved_bytes(self, view: View) -> int:
        """Those of them that are copied: nothing is, beyond the end of a row."""
        return round(self.nbytes(view) * row_costs.filled(self.region, self.s))

    def chain(self, consumer: int) -> list[OpId]:
        """A consumer's operations on one tile, in order, the handing back left out."""
        phases = (f"phase{number + 1}" for number in range(len(self.phases)))
        arithmetic = [OpId(OpKind.ELEMENTWISE, name, consumer) for name in ("read", *phases)]
        return [*arithmetic, OpId(OpKind.TMA_STORE, "", consumer)]

    def consumer_op(
        self, one: OpId, issue: float, latency: float | None = None,
        pipes: tuple[tuple[Unit, int], ...] = (), items: tuple[str, ...] = (),
    ) -> None:  # fmt: skip
        """Add an operation of a consumer; its result is there when it ends, if no latency is given."""
        cycles = math.ceil(issue)
        late = cycles if latency is None else math.ceil(latency)
        self.ops.append(
            TileOp(
                one, Placement.LOOP, (), None, one.instance, None, cycles, 0, late, pipes=pipes, items=items
            )
        )  # fmt: skip


def _load(cut: _RowCut, view: View, consumer: int) -> None:
    """One consumer's rows of a tensor; how they fare among all that are on the way is the ring's (`tile.stream`)."""
    machine = cut.machine
    nbytes = cut.moved_bytes(view)
    pipes = ((Unit.MEMORY, row_costs.memory_cycles(nbytes, cut.tiles, machine)),)
    cut.load(
        view,
        (cut.s.rows, cut.s.columns),
        costs.load_cycles(nbytes, machine),
        machine.latency.tma_load_dram,
        consumer=consumer,
        pipes=pipes,
    )


def _read(cut: _RowCut, consumer: int) -> None:
    """A consumer's tiles from the slot into registers, after which the slot is handed back."""
    latency = cut.machine.latency
    cycles = row_costs.shared_cycles(sum(cut.nbytes(v) for v in cut.region.operands), cut.machine)
    widening = row_costs.widening_cycles(cut.region, cut.s, cut.machine)
    one = cut.chain(consumer)[0]
    issue = latency.mbarrier_wait + latency.smem_load + max(cycles, widening)
    pipes = ((Unit.ALU, widening), (Unit.SHARED, cycles))
    cut.consumer_op(one, issue, pipes=pipes)
    release = cut.release("", consumer, latency.mbarrier_arrive)
    loads = [load_of(tile_of(cut.region, view, consumer)) for view in cut.region.operands]
    cut.edges += [Edge(load, one, 0) for load in loads] + [Edge(one, release, 0)]


def _store(cut: _RowCut, consumer: int) -> None:
    """The outputs' tiles into staging buffers and on their way; the buffers are held until they were read."""
    machine, latency, outputs = cut.machine, cut.machine.latency, cut.region.outputs
    nbytes = sum(cut.moved_bytes(output.view) for output in outputs)
    shared = row_costs.shared_cycles(sum(cut.nbytes(output.view) for output in outputs), machine)
    issue = len(outputs) * (2 * latency.barrier + latency.smem_store + latency.fence) + shared
    drain = latency.tma_store / 2 + costs.load_cycles(nbytes, machine)
    pipes = (
        (Unit.SHARED, shared),
        (Unit.MEMORY, row_costs.memory_cycles(nbytes, cut.tiles, machine)),
    )
    cut.consumer_op(cut.chain(consumer)[-1], issue, issue + drain, pipes)


def _consumer(cut: _RowCut, consumer: int) -> None:
    _read(cut, consumer)
    chain = cut.chain(consumer)
    for one, items in zip(chain[1:], cut.phases, strict=False):
        cycles, pipes = row_costs.phase_cycles(cut.region, items, cut.s, cut.machine)
        names = tuple(item.name for item in items)
        cut.consumer_op(one, cycles, pipes=pipes, items=names)
    _store(cut, consumer)
    cut.edges += [Edge(one, other, 0) for one, other in itertools.pairwise(chain)]
    _live(cut, consumer, chain)


def _live(cut: _RowCut, consumer: int, chain: list[OpId]) -> None:
    """Tiles in registers from one step of a consumer to a later one."""
    for name, made, last, dtype in row_costs.held_between(cut.region, cut.phases):
        cut.live.append(
            Live(
                value=ValueId(ValueKind.VALUE, name, consumer),
                maker=chain[made + 1],
                readers=(chain[last + 1],),
                held=False,
                registers=thread_registers(cut.s, dtype, cut.machine),
                consumer=consumer,
            )
        )


def lower_rows(region: Region, s: Structure, machine: Machine) -> TileProgram:
    """Cut a region without products to a structure. Costs are in cycles of `machine`."""
    cut = _RowCut(region, s, machine, phases=row_costs.row_phases(region))
    for consumer in range(s.consumers):
        for view in region.operands:
            _load(cut, view, consumer)
    for consumer in range(s.consumers):
        _consumer(cut, consumer)
    loads = tuple(op.id for op in cut.of(OpKind.TMA_LOAD))
    ring = RingPlan(
        name="ring",
        loads=loads,
        releases=tuple(op.id for op in cut.of(OpKind.RELEASE)),
        slot_bytes=sum(value.nbytes for value in cut.values),
    )
    rows = sum(isinstance(item, Reduction) for item in region.statements)
    return TileProgram(
        region=region,
        structure=s,
        k_iterations=1,
        tiles=cut.tiles,
        values=tuple(cut.values),
        ops=tuple(cut.ops),
        edges=tuple(cut.edges),
        rings=(ring,),
        epilogue=EpilogueCost(
            alone=0,
            together=0,
            staged_bytes=sum(cut.nbytes(output.view) for output in region.outputs),
            input_bytes=0,
            registers=0,
            stores=len(region.outputs),
        ),
        accumulator_registers=rows * max(1, s.rows // s.consumer_warps),
        tile_l2_bytes=0,
        dram_bytes=region.compulsory_bytes,
        live=tuple(cut.live),
    )
