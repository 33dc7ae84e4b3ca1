"""Cutting a region to a structure: the tile program with its operations, dependences, rings and costs."""

from __future__ import annotations

import math
from dataclasses import replace

from wsopt.frontend.types import Contraction, Region, Role, View
from wsopt.graph.types import DType
from wsopt.lowering.cut import Cut, load_of, tile_of
from wsopt.lowering.k_block import lower_k_blocks
from wsopt.lowering.row_cut import lower_rows
from wsopt.machine.cost import alu_cycles
from wsopt.machine.types import Machine
from wsopt.perf import costs
from wsopt.perf.beside import beside_cycles
from wsopt.perf.pace import Pace, k_block_demand, loop_pace, ring_slots
from wsopt.program.beside import views_read
from wsopt.program.ids import OpId, OpKind, ValueId, ValueKind
from wsopt.program.program import Edge, RingPlan, TileOp, TileProgram, Unit, Value
from wsopt.program.structures import column_role, row_role
from wsopt.program.types import Placement, Sharing, Space, Structure
from wsopt.program.units import with_units


def _load(cut: Cut, view: View, consumer: int | None, copy: int, pace: Pace) -> None:
    """One TMA load of a K-block of a streamed tensor."""
    machine = cut.machine
    busy = costs.load_cycles(costs.view_lines(cut.s, view, machine), machine, pace.clock_mhz)
    first = machine.first_bytes(machine.latency.tma_load_l2)
    cut.load(view, costs.tile_shape(cut.s, view), busy, first, consumer=consumer, copy=copy)


def _loads(cut: Cut, copy: int, pace: Pace) -> None:
    """The streamed tensors: along the accumulator's rows one tile a consumer, along its columns one for all."""
    row = row_role(cut.s.swap)
    for view in cut.region.operands:
        if row in view.roles:
            for consumer in range(cut.s.at_once):
                _load(cut, view, consumer, copy, pace)
        else:
            _load(cut, view, None, copy, pace)


def operand_tiles(
    region: Region, s: Structure, contraction: Contraction, consumer: int, copy: int
) -> tuple[ValueId, ValueId]:
    """The tiles that feed the rows and the columns of a consumer's product."""
    rows, columns = contraction.left, contraction.right
    assert isinstance(rows, View), "a value of the loop is no tile of the ring"
    if s.swap:
        rows, columns = columns, rows
    slot = consumer if s.sharing is Sharing.ROWS else 0
    return tile_of(region, rows, slot, copy), tile_of(region, columns, None, copy)


def _mma(cut: Cut, contraction: Contraction, consumer: int, copy: int) -> None:
    """One product of a K-block; with promotion into partial sums, which a second operation adds up."""
    busy = costs.mma_cycles(cut.region, cut.s, cut.machine)
    latency = cut.machine.latency
    shape = (cut.s.rows, cut.s.columns)
    total = ValueId(ValueKind.SUM, contraction.name, consumer)
    out = ValueId(ValueKind.PARTIAL, contraction.name, consumer, copy) if contraction.promote else total
    cut.values.append(Value(out, shape, DType.F32, Space.REGISTERS, consumer))
    # The tensor core is shared fairly: a product takes as long as all products of its K-block together.
    contention = cut.s.at_once * len(cut.region.contractions)
    cut.ops.append(
        TileOp(
            id=OpId(OpKind.MMA, contraction.name, consumer, copy),
            placement=Placement.LOOP,
            inputs=operand_tiles(cut.region, cut.s, contraction, consumer, copy),
            output=out,
            consumer=consumer,
            unit=Unit.TENSOR,
            issue=math.ceil(
                costs.mma_instructions(cut.region, cut.s, cut.machine) * latency.wgmma_issue
                + latency.mbarrier_wait
            ),
            busy=busy,
            latency=math.ceil(
                latency.mbarrier_wait + latency.fence + busy * contention + latency.wgmma_latency
            ),
            copy=copy,
        )
    )
    if contraction.promote:
        _accumulate(cut, contraction, consumer, copy)


def _accumulate(cut: Cut, contraction: Contraction, consumer: int, copy: int) -> None:
    """Adding a K-block's partial sums to the sums, which all K-blocks of all iterations do one after another."""
    product, total = contraction.name, ValueId(ValueKind.SUM, contraction.name, consumer)
    mma, add = (OpId(kind, product, consumer, copy) for kind in (OpKind.MMA, OpKind.ACCUMULATE))
    elements = cut.s.rows * cut.s.columns
    groups = cut.s.consumer_warps // cut.machine.warps_per_warpgroup
    cycles = math.ceil(
        alu_cycles(cut.machine, costs.PROMOTION, elements) / groups + cut.machine.latency.arithmetic
    )
    if copy == 0:
        shape = (cut.s.rows, cut.s.columns)
        cut.values.append(Value(total, shape, DType.F32, Space.REGISTERS, consumer))
    cut.ops.append(
        TileOp(
            id=add,
            placement=Placement.LOOP,
            inputs=(ValueId(ValueKind.PARTIAL, product, consumer, copy), total),
            output=total,
            consumer=consumer,
            unit=Unit.ALU,
            issue=cycles,
            busy=cycles,
            latency=cycles,
            copy=copy,
            mix=costs.PROMOTION,
            elements=elements,
        )
    )
    cut.edges.append(Edge(mma, add, 0))
    # Partial sums are one set of registers a K-block: the next product may not start before they are added up.
    cut.edges.append(Edge(add, mma, 1))
    if copy > 0:
        cut.edges.append(Edge(replace(add, k_block=copy - 1), add, 0))
    if copy == cut.s.copies - 1:
        cut.edges.append(Edge(add, replace(add, k_block=0), 1))


def _beside(cut: Cut, consumer: int, copy: int) -> None:
    """What a consumer computes from its operand's tiles beside the products; K-block after K-block adds to it."""
    one = _beside_id(consumer, copy)
    cycles, pipes = beside_cycles(cut.region, cut.s, cut.machine)
    slot = consumer if cut.s.sharing is Sharing.ROWS else 0
    tiles = [tile_of(cut.region, view, slot, copy) for view in views_read(cut.region)]
    cut.ops.append(
        TileOp(
            id=one,
            placement=Placement.LOOP,
            inputs=tuple(tiles),
            output=None,
            consumer=consumer,
            unit=None,
            issue=cycles,
            busy=0,
            latency=cycles,
            copy=copy,
            pipes=pipes,
            items=tuple(item.name for item in cut.region.beside),
        )
    )
    cut.edges.extend(Edge(load_of(tile), one, 0) for tile in tiles)
    cut.edges.append(Edge(_beside_id(consumer, (copy - 1) % cut.s.copies), one, int(copy == 0)))


def _beside_id(consumer: int, copy: int) -> OpId:
    return OpId(OpKind.ELEMENTWISE, "beside", consumer, copy)


def _release(cut: Cut, consumer: int, copy: int) -> None:
    """Handing a slot back: after every product of this consumer that reads it."""
    latency = cut.machine.latency
    readers = (op for op in cut.ops if _is_mma_of(op, consumer, copy))
    release = cut.release("", consumer, latency.barrier + latency.mbarrier_arrive, readers, copy=copy)
    if cut.region.beside:
        cut.edges.append(Edge(_beside_id(consumer, copy), release, 0))


def _is_mma_of(op: TileOp, consumer: int, copy: int) -> bool:
    return op.kind is OpKind.MMA and op.consumer == consumer and op.copy == copy


def _dependences(cut: Cut) -> None:
    """Every product waits for its tiles."""
    for op in cut.of(OpKind.MMA):
        cut.edges.extend(Edge(load_of(tile), op.id, 0) for tile in op.inputs)


def _ring(cut: Cut) -> RingPlan:
    """All streamed tiles have the same readers, so they share one ring."""
    loads = cut.of(OpKind.TMA_LOAD)
    slot = [op.output for op in loads if op.copy == 0]
    return RingPlan(
        name="ring",
        loads=tuple(op.id for op in loads),
        releases=tuple(op.id for op in cut.of(OpKind.RELEASE)),
        slot_bytes=sum(v.nbytes for v in cut.values if v.id in slot),
    )


def tile_l2_bytes(region: Region, s: Structure, slot_bytes: int) -> int:
    """Bytes of operands that one tile reads through L2: TMA reads nothing beyond the streamed axis's end."""
    k_blocks = math.ceil(region.extent(Role.STREAM) / (s.depth * s.copies)) * s.copies
    k_blocks_read = k_blocks if not s.tail else k_blocks - 1 + s.tail / s.depth
    return math.ceil(k_blocks_read * slot_bytes)


def lower(region: Region, s: Structure, machine: Machine) -> TileProgram:
    """Cut a region to a structure.

    With consumers in turns the loop's operations are those of one consumer: another's stand in the same
    places, later. Costs are in cycles of `machine`.
    """
    return with_units(_lowered(region, s, machine), machine)


def _lowered(region: Region, s: Structure, machine: Machine) -> TileProgram:
    """The tile program with the costs that the lowering counts."""
    if region.body:
        return lower_k_blocks(region, s, machine)
    if region.streams_rows:
        return lower_rows(region, s, machine)
    cut = Cut(region, s, machine)
    pace = loop_pace(k_block_demand(region, s, machine), machine, ring_slots(region, s, machine))
    for copy in range(s.copies):
        _loads(cut, copy, pace)
    for consumer in range(cut.s.at_once):
        for copy in range(s.copies):
            for contraction in region.contractions:
                _mma(cut, contraction, consumer, copy)
            if region.beside:
                _beside(cut, consumer, copy)
            _release(cut, consumer, copy)
    _dependences(cut)
    ring = _ring(cut)
    row, column = row_role(s.swap), column_role(s.swap)
    k_iterations = math.ceil(region.extent(Role.STREAM) / (s.depth * s.copies))
    tiles = (
        region.extent(Role.BATCH)
        * math.ceil(region.extent(row) / s.tile_rows)
        * math.ceil(region.extent(column) / s.columns)
    )
    return TileProgram(
        region=region,
        structure=s,
        k_iterations=k_iterations,
        tiles=tiles,
        values=tuple(cut.values),
        ops=tuple(cut.ops),
        edges=tuple(cut.edges),
        rings=(ring,),
        epilogue=costs.epilogue_cost(region, s, machine),
        accumulator_registers=costs.accumulator_registers(region, s, machine),
        tile_l2_bytes=tile_l2_bytes(region, s, ring.slot_bytes),
        dram_bytes=costs.dram_bytes(region, s, machine),
    )
