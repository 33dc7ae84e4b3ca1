"""A tile program with its prices on a machine: of its operations, its epilogue, and what its K-blocks ask for.

The demand of a K-block of a loop of products on the shared paths is in the steady state, and in the tail wave.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import replace

from wsopt.entries import extended
from wsopt.lowering.lower import Cuttable, grid_of, unpriced
from wsopt.machine.cost import alu_cycles
from wsopt.machine.types import Machine
from wsopt.perf.costs import PROMOTION, TILE_GRAIN, copy_cost, copy_lines, cost, mma_cycles, rest_cycles
from wsopt.perf.effective_ii import steady_loop
from wsopt.perf.epilogue import epilogue_cost
from wsopt.perf.timing import instructions
from wsopt.program.facts import Copy, Cost, Member, Product, Read, TileGrid
from wsopt.program.ids import OpKind
from wsopt.program.program import Demand, EpilogueCost, Iteration, TileOp, TileProgram
from wsopt.program.types import Sharing, Structure
from wsopt.program.units import with_units
from wsopt.schedule.budget import issuers
from wsopt.tensors.parts import parts
from wsopt.tensors.views import Role

_VALUE_GRAIN = 16
"""Cycles of one unit of the model's time where arithmetic waits for products: there are many operations of many."""

_CACHED_INSTRUCTIONS, _FETCH_CYCLES, _ROLE_INSTRUCTIONS = 2048, 2.4, 250
"""Instructions of 16 bytes that an SM's cache holds; the cycles that one takes to come from L2; and those of a role
beside its arithmetic (`docs/calibration/h200_rows.json`).
"""


def lower(region: Cuttable, s: Structure, machine: Machine) -> TileProgram:
    """The tile program of a region cut to a structure. Costs are in cycles of `machine`."""
    once = _without_order.__wrapped__ if extended() else _without_order
    program = once(region, replace(s, group=1), machine)
    if s.group > 1:
        program = replace(program, structure=s, grid=grid_of(region, s))
    return _finished(program, machine)


def priced(program: TileProgram, machine: Machine) -> TileProgram:
    """The program with the cycles of its operations and of its epilogue. Where its ring has an effective II of its
    own, with what a K-block asks for, and copies at the clock that the power limit leaves the loop.
    """
    return _finished(_priced_apart(program, machine), machine)


def _finished(program: TileProgram, machine: Machine) -> TileProgram:
    """A program whose prices apart are there, with all others."""
    return with_units(program if program.demand is None else _in_order(program, machine), machine)


@functools.lru_cache(maxsize=2048)
def _without_order(region: Cuttable, s: Structure, machine: Machine) -> TileProgram:
    """The prices that all rasterization orders of a structure share."""
    return _priced_apart(unpriced(region, s, machine), machine)


def _priced_apart(program: TileProgram, machine: Machine) -> TileProgram:
    """The program with all prices that no rasterization order changes; `demand` is that of a GPC which asks for
    nothing, or none where the ring has no effective II of its own.
    """
    s, after = program.structure, program.after
    if program.iteration is Iteration.TILE:
        # The loop stores whole tiles itself: there are their buffers alone, one of each output.
        sizes = [s.rows * s.columns * output.view.dtype.bits // 8 for output in after.tile_outputs]
        in_loop = EpilogueCost(0, 0, sum(sizes), 0, 0, len(sizes))
        program = replace(program, epilogue=in_loop, grain=TILE_GRAIN)
    elif program.work is not None:
        program = replace(program, epilogue=epilogue_cost(after, s, machine), grain=_VALUE_GRAIN)
    else:
        program = replace(program, epilogue=epilogue_cost(after, s, machine))
        program = replace(program, demand=_demand_apart(program, machine))
    prices = {counts: cost(counts, machine) for counts in {op.counts for op in program.ops}}
    ops = tuple(_priced(op, prices[op.counts]) for op in program.ops)
    if program.iteration is Iteration.TILE:
        ops = _fetched(ops, fetch_cycles(program, machine))
    return replace(program, ops=ops)


def _in_order(program: TileProgram, machine: Machine) -> TileProgram:
    """A program of products with what depends on the order of its tiles, copies at the clock of its loop."""
    assert program.demand is not None, "a loop of products asks for something"
    demand = _with_gpc(program.demand, program, machine)
    clock = steady_loop(demand, machine, ring_slots(program, machine)).clock_mhz
    copies = {op.counts for op in program.ops if isinstance(op.counts, Copy)}
    prices = {counts: copy_cost(counts, machine, clock) for counts in copies}
    return replace(
        program,
        dram_bytes=dram_bytes(program, machine),
        demand=demand,
        last_demand=last_demand(program, demand, machine),
        ops=tuple(_priced(op, prices[op.counts]) if op.counts in prices else op for op in program.ops),
    )


def _fetched(ops: tuple[TileOp, ...], cycles: int) -> tuple[TileOp, ...]:
    """The operations where each consumer waits so many cycles of an iteration for instructions: with its reading."""
    return tuple(
        replace(op, issue=op.issue + cycles, latency=op.latency + cycles)
        if isinstance(op.counts, Read)
        else op
        for op in ops
    )


def fetch_cycles(program: TileProgram, machine: Machine) -> int:
    """Cycles of an iteration in which the consumers of rows wait for instructions: all of a tile's elements are one
    stretch of code, each consumer has its own, and what the cache does not hold comes anew every time.
    """
    code = instructions(program, machine) + _ROLE_INSTRUCTIONS * (len(program.by_consumer) + 1)
    return math.ceil(_FETCH_CYCLES * max(0.0, code - _CACHED_INSTRUCTIONS))


def _priced(op: TileOp, price: Cost) -> TileOp:
    """An operation with its price: made anew field by field, for `replace` takes a tenth of a search's bounds."""
    return TileOp(
        op.id, op.inputs, op.output, op.counts, op.items,
        price.unit, price.issue, price.busy, price.latency, price.pipes, price.instructions, op.apart,
    )  # fmt: skip


# --- demand of a K-block --------------------------------------------------------------------------------


def k_block_demand(program: TileProgram, machine: Machine) -> Demand:
    """The demand of one K-block of a block in the steady state."""
    return _with_gpc(_demand_apart(program, machine), program, machine)


def _with_gpc(apart: Demand, program: TileProgram, machine: Machine) -> Demand:
    """A demand with what the GPC asks for."""
    return replace(
        apart,
        gpc=gpc_bytes(program, machine, waited_for=True),
        energy=apart.energy + machine.power_cycles_per_gpc_byte * gpc_bytes(program, machine),
    )


def _demand_apart(program: TileProgram, machine: Machine) -> Demand:
    """The demand of a K-block but for what its GPC asks for, which the order of tiles says."""
    s, whole = program.structure, program.whole
    lines = _lines(program, machine)
    product = Product(s.rows, s.columns, s.depth, whole.dtype, s.consumer_warps, paired=s.paired)
    tensor = mma_cycles(product, machine) * s.at_once * whole.products
    # A product's instructions read their rows and their columns of shared memory each anew, part by part.
    read = len(parts(s.columns)) * machine.mma_rows + s.columns // s.blocks
    operands = (s.rows // machine.mma_rows) * read * (s.depth * whole.dtype.bits // 8)
    added = sum((op.consumer, op.copy) == (0, 0) for op in program.of(OpKind.ACCUMULATE))
    promotion = added * alu_cycles(machine, PROMOTION, s.rows * s.columns)
    energy = (
        machine.tensor_energy(whole.dtype.value) * tensor * (1 - machine.paired_blocks_loss * s.paired)
        + machine.power_cycles_per_alu_cycle * promotion * s.at_once
        + machine.power_cycles_per_shared_byte * (whole.products * operands) * s.at_once
        + machine.power_cycles_per_l2_byte * lines
    )
    return Demand(
        lines=lines,
        data=sum(member.nbytes for member in _members(program)),
        gpc=0,
        tensor=tensor,
        energy=energy,
        between=_between(program, machine),
        alone=not program.tensor_columns and (s.sharing is Sharing.PING_PONG or s.consumers == 1),
        thread=_thread(program, machine),
        late=_late(program, machine),
    )


def _thread(program: TileProgram, machine: Machine) -> float:
    """Cycles of one K-block for which a consumer's own thread is held, or that of the warp that issues products: the
    longer.
    """
    held = dict[str, float]()
    for op in (op for op in program.ops if op.consumer is not None and not op.copy):
        (partition,) = issuers(program, op)
        rest = rest_cycles(op.counts, machine) if isinstance(op.counts, Product) else 0.0
        held[partition] = held.get(partition, 0.0) + cost(op.counts, machine).issue + rest
    return max(held.values())


def _late(program: TileProgram, machine: Machine) -> float:
    """Cycles for which a slot's return waits while the next K-block's products are issued whole: their instructions,
    and what the queue of the tensor core does not take of them; in a pair of blocks those for which the other one's
    bytes, and the return of its slot, are on their way.
    """
    if program.structure.paired:
        return 2 * machine.latency.other_block
    if program.structure.early_release:
        return 0.0
    own = [cost(op.counts, machine) for op in program.of(OpKind.MMA) if (op.consumer, op.copy) == (0, 0)]
    count, busy = sum(one.instructions for one in own), sum(one.busy for one in own)
    return (count - 1) * machine.latency.mma_issue + max(0.0, count - machine.mma_queue) * busy / count


def last_demand(program: TileProgram, demand: Demand, machine: Machine) -> Demand:
    """Demand of a K-block in the tail wave: fewer SMs share the paths, and tiles end with the tensor.

    Copies leave out what lies beyond a tensor's end; the last tiles are often those that reach over it, and in a
    whole wave the others make up for them.
    """
    grid = program.grid
    active = grid.work_tiles % machine.sm_count if program.shares is None else 0
    if not active:
        return demand
    down, across = _inside(grid, active)
    lines = down * _lines(program, machine, by_rows=True)
    lines += across * _lines(program, machine, by_rows=False)
    share = lines / demand.lines
    return replace(
        demand,
        lines=lines,
        data=demand.data * share,
        gpc=demand.gpc * share,
        active=active / machine.sm_count,
    )


@functools.lru_cache(maxsize=1024)
def _inside(grid: TileGrid, last: int) -> tuple[float, float]:
    """The shares of the rows and columns of the last so many tiles that the tensors have, on the average."""
    shares = [grid.inside(tile) for tile in range(grid.work_tiles - last, grid.work_tiles)]
    down, across = (sum(part) / last for part in zip(*shares, strict=True))
    return down, across


def _members(program: TileProgram) -> Iterator[Member]:
    return (member for ring in program.rings if ring.copied for member in ring.members)


def _lines(program: TileProgram, machine: Machine, *, by_rows: bool | None = None) -> float:
    """Bytes of L2 lines that one K-block of a block touches: of all tensors, or of those along rows, or columns."""
    asked = (m for m in _members(program) if by_rows in (None, m.by_rows))
    return sum(copy_lines(member.box(member.shape), machine) * member.copies for member in asked)


def _between(program: TileProgram, machine: Machine) -> float:
    """Cycles outside the loop for each of its K-blocks: starts and ends of blocks, epilogues that others wait for."""
    s, cost = program.structure, program.epilogue
    waves = math.ceil(program.tiles / machine.sm_count)
    k_blocks = waves * math.ceil(program.whole.extent(Role.STREAM) / (s.depth * s.splits))
    if program.shares is not None:
        waves, k_blocks = program.shares.tiles, program.shares.k_iterations * s.copies
    first = machine.first_bytes(machine.latency.tma_load_dram)
    once = machine.block_start_cycles + first + machine.latency.tma_store
    waits = s.sharing is Sharing.COOPERATIVE and not program.tensor_columns
    each = cost.together if waits else 0
    outside = once + waves * each if s.persistent else waves * (once + machine.block_turnover_cycles + each)
    return outside / k_blocks


def ring_slots(program: TileProgram, machine: Machine) -> int:
    """Slots of a ring that fit a block beside the fewest bytes of epilogue buffers a consumer; at least one."""
    s, cost = program.structure, program.epilogue
    apart = cost.staged_bytes + cost.input_bytes
    lent = cost.staged_bytes - cost.lent_bytes + s.subtiles * cost.input_bytes
    buffers = s.consumers * (cost.vector_bytes + min(apart, lent)) + machine.shared_memory_reserved_bytes
    slot = sum(ring.slot_bytes for ring in program.rings)
    return max(1, (machine.shared_memory_per_block_bytes - buffers) // slot)


def rows_at_once(program: TileProgram, machine: Machine) -> int:
    """Tile rows that the blocks of all SMs are in together: a group, and as many more as they reach into."""
    grid = program.grid
    return grid.group * max(1, machine.sm_count // grid.blocks // (grid.group * grid.column_tiles))


def dram_bytes(program: TileProgram, machine: Machine) -> int:
    """Bytes from and to device memory, by the rasterization order.

    The tiles of a group of tile rows are taken column by column. What fits in half of L2 is read once; else the
    operand along the columns is read again for each set of rows that are taken at once, and the other one again for
    each column of tiles if a whole group does not stay in L2. Tiles that are cut to equal shares are not all at one
    K-block at a time: one of two neighbours is taken to read it again.
    """
    grid, whole = program.grid, program.whole
    total, budget = whole.compulsory_bytes, machine.l2_bytes // 2
    group = grid.group * grid.tile_rows * whole.extent(Role.STREAM) * (whole.dtype.bits // 8)
    again = 1.0 if program.shares is None else 1 + program.shares.cut
    for member in _members(program):
        if member.view.nbytes <= budget:
            continue
        reads = 1
        if not member.by_rows:
            reads = math.ceil(grid.alike_row_tiles / rows_at_once(program, machine))
        elif group > budget:
            reads = math.ceil(grid.column_tiles / 4)
        total += round(member.view.nbytes * (reads * again - 1))
    return total


def gpc_bytes(program: TileProgram, machine: Machine, *, waited_for: bool = False) -> int:
    """Bytes of one K-block that the SMs of a GPC ask for, each tile counted once, an SM.

    Blocks with consecutive numbers go down a group of tile rows, so `group` neighbours share a column's tile.
    Rows that straddle lines count with those; half a line asks for half of one.

    Where all columns are fewer tiles than the card has SMs, several groups are taken at once, by one GPC each, and
    their GPCs ask for the same columns at about one time. Of those bytes a GPC has to wait for its share alone
    (`waited_for`); all of them take power. Of tiles that are cut to equal shares each SM reads for itself. The blocks
    of a pair, which are of one GPC, read other halves of their columns.
    """
    grid, each = program.grid, program.grid.blocks
    height = min(grid.group, grid.alike_row_tiles, machine.sms_per_gpc // each)
    across = machine.sms_per_gpc / each / height
    if waited_for:
        at_once = machine.sm_count / each / (height * grid.column_tiles)
        across /= max(1.0, min(at_once, grid.row_tiles / height, machine.sm_count / machine.sms_per_gpc))
    total, alone = 0.0, 0.0
    for member in _members(program):
        pitch = member.box(member.shape).pitch_bytes
        straddled = copy_lines(member.box(member.shape), machine) if pitch % machine.l2_line_bytes else 0.0
        tile = max(member.copy_bytes, straddled)
        total += each * (height * member.copies * tile if member.by_rows else across * tile)
        alone += member.copies * tile
    cut = 0.0 if program.shares is None else program.shares.cut
    return math.ceil((1 - cut) * total / machine.sms_per_gpc + cut * alone)
