"""Cutting a region whose loop computes values to a structure: products, phases, rescalings, releases.

Each consumer has rows of its own and every step of the body; the streamed tensors are loaded once for all, each
through a ring of its own, because each is handed back as soon as its product has read it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from wsopt.frontend.types import Region
from wsopt.graph.types import DType
from wsopt.lowering.cut import Cut, load_of, tile_of
from wsopt.machine.types import Machine
from wsopt.perf import costs, k_block_costs
from wsopt.program.ids import OpId, OpKind, ValueId, ValueKind
from wsopt.program.program import Edge, Live, RingPlan, TileOp, TileProgram, Unit, Value, Work
from wsopt.program.ranges import k_iteration_counts, longest_last, own_k_iterations
from wsopt.program.steps import BEFORE, Step, StepKind, arguments, spans_of, steps, streamed
from wsopt.program.tile_order import OVERHEAD_K_BLOCKS, deal, numbered, tiles_together, walk
from wsopt.program.types import Placement, Space, Structure
from wsopt.tensors.statements import Reduction
from wsopt.tensors.views import K_BLOCK, Role, View


@dataclass(slots=True)
class _KBlockCut(Cut):
    """The same where K-blocks are computed with, in `steps`."""

    steps: tuple[Step, ...] = field(kw_only=True)

    def extent(self, role: Role) -> int:
        """Elements of a tile along an axis."""
        inner = k_block_costs.inner_extent(self.region, self.machine)
        return {
            Role.ROW: self.s.rows,
            Role.COLUMN: self.s.columns,
            Role.STREAM: self.s.depth,
            Role.INNER: inner,
        }[role]


def tile_shape(view: View, s: Structure, inner: int) -> tuple[int, ...]:
    """Extents of a tensor's tile, batch axes left out."""
    extents = {Role.ROW: s.rows, Role.COLUMN: s.columns, Role.STREAM: s.depth, Role.INNER: inner}
    return tuple(extents[role] for role in view.roles if role in extents)


def _copy_cycles(cut: _KBlockCut, view: View) -> int:
    *rows, columns = _slot_shape(cut, view)
    width = view.dtype.bits // 8
    pitch = view.strides[-2] if rows else columns
    lines = costs.line_bytes(math.prod(rows), columns * width, pitch * width, cut.machine)
    return costs.load_cycles(lines, cut.machine)


def _slot_shape(cut: _KBlockCut, view: View) -> tuple[int, ...]:
    """Extents of what one K-block's slot holds of a tensor: the rows of all consumers."""
    return tile_shape(view, replace(cut.s, rows=cut.s.tile_rows), cut.extent(Role.INNER))


def _load(cut: _KBlockCut, view: View) -> None:
    first = cut.machine.first_bytes(cut.machine.latency.tma_load_l2)
    cut.load(view, _slot_shape(cut, view), _copy_cycles(cut, view), first)


_KINDS = {
    StepKind.SCORES: OpKind.MMA,
    StepKind.SUMS: OpKind.MMA,
    StepKind.RESCALE: OpKind.RESCALE,
    StepKind.PHASE: OpKind.ELEMENTWISE,
}


def _step_id(step: Step, consumer: int) -> OpId:
    return OpId(_KINDS[step.kind], step.name, consumer)


def _product(cut: _KBlockCut, step: Step, consumer: int) -> None:
    """A product, its tiles' loads, and what the rows' side of it comes from."""
    product, s, machine = step.product, cut.s, cut.machine
    held = isinstance(product.left, str)
    scores = step.kind is StepKind.SCORES
    columns, deep = (s.depth, cut.extent(Role.INNER)) if scores else (s.columns, s.depth)
    busy = k_block_costs.product_cycles(s.rows, columns, deep, cut.region, machine, held=held)
    count = k_block_costs.product_instructions(s.rows, deep, cut.region, machine)
    latency = machine.latency.wgmma_latency_registers if held else machine.latency.wgmma_latency
    one, right = _step_id(step, consumer), tile_of(cut.region, product.right)
    if isinstance(product.left, str):
        left = ValueId(ValueKind.VALUE, product.left, consumer)
    else:
        left = ValueId(ValueKind.STATIONARY, product.left.tensor, consumer)
    out = ValueId(ValueKind.VALUE if scores else ValueKind.SUM, step.name, consumer)
    cut.values.append(Value(out, (s.rows, columns), DType.F32, Space.REGISTERS, consumer))
    cut.ops.append(
        TileOp(
            id=one,
            placement=Placement.LOOP,
            inputs=(left, right),
            output=out,
            consumer=consumer,
            unit=Unit.TENSOR,
            issue=math.ceil(
                k_block_costs.product_issue(count, busy, machine) + machine.latency.mbarrier_wait
            ),
            busy=busy,
            latency=math.ceil(busy + latency),
            items=(step.name,),
        )
    )
    cut.edges.append(Edge(load_of(right), one, 0))


def _arithmetic(cut: _KBlockCut, step: Step, consumer: int) -> None:
    """A phase, or a rescaling of sums."""
    if step.kind is StepKind.RESCALE:
        cycles = k_block_costs.rescale_cycles(cut.s, cut.machine)
        pipes: tuple[tuple[Unit, int], ...] = ((Unit.FMA, cycles),)
        output = ValueId(ValueKind.SUM, step.name, consumer)
    else:
        cycles, pipes = k_block_costs.phase_cycles(cut.region, step.items, cut.s, cut.machine)
        output = ValueId(ValueKind.VALUE, step.name, consumer)
    one, tiles = _step_id(step, consumer), [tile_of(cut.region, v) for v in streamed(cut.region, step)]
    cut.edges.extend(Edge(load_of(tile), one, 0) for tile in tiles)
    cut.ops.append(
        TileOp(
            id=one,
            placement=Placement.LOOP,
            inputs=tuple(tiles),
            output=output,
            consumer=consumer,
            unit=None,
            issue=cycles,
            busy=0,
            latency=cycles,
            pipes=pipes,
            items=tuple(item.name for item in step.items),
        )
    )


def _makers(cut: _KBlockCut) -> dict[str, Step]:
    """Which step computes each value of the loop."""
    return {item.name: step for step in cut.steps if step.kind is not StepKind.RESCALE for item in step.items}


def _needs(step: Step) -> list[str]:
    """The loop values that a step reads, those before the K-block left out."""
    if step.kind is StepKind.RESCALE:
        return [step.product.rescale or ""]
    if step.kind is StepKind.SUMS:
        return [step.product.left] if isinstance(step.product.left, str) else []
    return [n for item in step.items for n in arguments(item) if not n.endswith(BEFORE)]


def _dependences(cut: _KBlockCut, consumer: int) -> None:
    """Steps wait for those whose values they read; sums are rescaled after the last product and before the next."""
    makers = _makers(cut)
    for step in cut.steps:
        one = _step_id(step, consumer)
        needed = {makers[n].name: makers[n] for n in _needs(step) if n in makers}
        cut.edges.extend(
            Edge(_step_id(other, consumer), one, 0) for other in needed.values() if other is not step
        )
        if step.kind is StepKind.PHASE and any(isinstance(i, Reduction) for i in step.items):
            cut.edges.append(Edge(one, one, 1))
        if step.kind is StepKind.SUMS and isinstance(step.product.left, str):
            # The product reads its left operand's registers until it ends: they are not made again before.
            cut.edges.append(Edge(one, _step_id(makers[step.product.left], consumer), 1))
        if step.kind is StepKind.RESCALE:
            sums = OpId(OpKind.MMA, step.name, consumer)
            cut.edges += [Edge(one, sums, 0), Edge(sums, one, 1)]


def _released(cut: _KBlockCut, view: View, consumer: int) -> None:
    """Handing back a streamed tensor's slot after the last product or phase of this consumer that reads it."""
    tile = tile_of(cut.region, view)
    readers = [op for op in cut.ops if op.consumer == consumer and tile in op.inputs]
    cut.release(tile.subject, consumer, cut.machine.latency.mbarrier_arrive, readers)


def _live(cut: _KBlockCut, consumer: int) -> None:
    """Values of a K-block that one step leaves to a later one, in this consumer's registers."""
    threads = cut.s.consumer_warps * cut.machine.threads_per_warp
    for value, maker in _makers(cut).items():
        if spans_of(cut.region, value) != K_BLOCK:
            continue
        readers = [step for step in cut.steps if step is not maker and value in _needs(step)]
        if not readers:
            continue
        item = next(i for i in maker.items if i.name == value)
        bits = getattr(item, "dtype", DType.F32).bits
        cut.live.append(
            Live(
                value=ValueId(ValueKind.VALUE, value, consumer),
                maker=_step_id(maker, consumer),
                readers=tuple(_step_id(step, consumer) for step in readers),
                held=any(step.kind is StepKind.SUMS for step in readers),
                registers=math.ceil(cut.s.rows * cut.s.depth * max(bits, 16) / 32 / threads),
                consumer=consumer,
            )
        )


def _row_registers(cut: _KBlockCut) -> int:
    """Registers a thread of the row values that the loop carries or one step leaves to another.

    A thread has two rows of every tensor instruction's; a row's value is there in four threads.
    """
    makers = _makers(cut)
    carried = {
        value
        for value in makers
        if any(value in _needs(step) for step in cut.steps if step is not makers[value])
    }
    rows = sum(
        spans_of(cut.region, name) == frozenset({Role.ROW})
        for name in {i.name for i in cut.region.body if isinstance(i, Reduction)} | carried
    )
    return (
        rows
        * 2
        * math.ceil(
            cut.s.rows / cut.machine.mma_rows / (cut.s.consumer_warps // cut.machine.warps_per_warpgroup)
        )
    )


def _rings(cut: _KBlockCut) -> tuple[RingPlan, ...]:
    found = []
    for view in cut.region.streams:
        tile = tile_of(cut.region, view)
        (value,) = (v for v in cut.values if v.id == tile)
        releases = tuple(op.id for op in cut.of(OpKind.RELEASE) if op.id.subject == tile.subject)
        found.append(RingPlan(f"{tile.subject}_ring", (load_of(tile),), releases, value.nbytes))
    return tuple(found)


def _work(cut: _KBlockCut, tiles: int) -> Work:
    """Tiles and K-iterations of the SM that gets the most: the launcher's order for persistent blocks, else the order
    of tile numbers.

    A tile's K-iterations are its consumers' on the average: who is done goes on, and leaves the units to others.
    """
    s, by_row = cut.s, list(k_iteration_counts(cut.region, cut.s))
    from_last = longest_last(by_row)
    counts = numbered(by_row, from_last)
    own = numbered(list(own_k_iterations(cut.region, s)), from_last)
    blocks = min(cut.machine.sm_count, tiles)
    together = tiles_together(counts, tiles, blocks) if s.persistent else 0
    dealt = deal(counts, walk(counts, tiles, together), blocks)
    works = (Work(len(taken), math.fsum(own[tile % len(own)] for tile in taken)) for taken in dealt)
    return max(works, key=lambda work: work.k_iterations + OVERHEAD_K_BLOCKS * work.tiles)


def lower_k_blocks(region: Region, s: Structure, machine: Machine) -> TileProgram:
    """Cut a region whose loop computes values to a structure. Costs are in cycles of `machine`."""
    cut = _KBlockCut(region, s, machine, steps=steps(region))
    for view in region.streams:
        _load(cut, view)
    for consumer in range(s.consumers):
        for step in cut.steps:
            product = step.kind in (StepKind.SCORES, StepKind.SUMS)
            (_product if product else _arithmetic)(cut, step, consumer)
        _dependences(cut, consumer)
        for view in region.streams:
            _released(cut, view, consumer)
        _live(cut, consumer)
    rings = _rings(cut)
    tiles = (
        region.extent(Role.BATCH)
        * region.extent(Role.GROUP)
        * math.ceil(region.extent(Role.ROW) / s.tile_rows)
    )
    k_iterations = max(k_iteration_counts(region, s))
    sums = sum(step.kind is StepKind.SUMS for step in cut.steps)
    threads = s.consumer_warps * machine.threads_per_warp
    inner = cut.extent(Role.INNER)
    stationary = sum(
        math.prod(tile_shape(v, s, inner)) * v.dtype.bits // 8 for v in region.stationary_operands
    )
    return TileProgram(
        region=region,
        structure=s,
        k_iterations=k_iterations,
        tiles=tiles,
        values=tuple(cut.values),
        ops=tuple(cut.ops),
        edges=tuple(cut.edges),
        rings=rings,
        epilogue=costs.epilogue_cost(region, replace(s, depth=s.columns), machine),
        accumulator_registers=sums * s.rows * s.columns // threads + _row_registers(cut),
        tile_l2_bytes=sum(plan.slot_bytes for plan in rings) * round(_mean(k_iteration_counts(region, s))),
        dram_bytes=region.compulsory_bytes,
        live=tuple(cut.live),
        stationary_bytes=stationary * s.consumers,
        work=_work(cut, tiles),
    )


def _mean(counts: tuple[int, ...]) -> float:
    return sum(counts) / len(counts)
