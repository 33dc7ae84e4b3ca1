"""Demand of a K-block of a loop of products on the paths that SMs share, in the steady state and in the tail wave.

The order of tiles decides which bytes the SMs of a GPC ask for together; the rest of the demand is the same for all
orders of a structure, and is found once for them.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from wsopt.machine.cost import alu_cycles
from wsopt.machine.types import Machine
from wsopt.perf.copies import copy_lines, whole_lines
from wsopt.perf.costs import PROMOTION, cost, mma_cycles, rest_cycles, tensor_cycles
from wsopt.program.demand import Demand
from wsopt.program.facts import Member, Product, TileGrid
from wsopt.program.ids import OpKind
from wsopt.program.known import of_loop
from wsopt.program.program import TileProgram
from wsopt.program.types import Sharing
from wsopt.schedule.budget import issuers
from wsopt.schedule.memory import shared_capacity
from wsopt.tensors.parts import parts
from wsopt.tensors.views import Role


@dataclass(frozen=True, slots=True)
class Asked:
    """Copies of a tensor that a K-block of a block asks for: how many, the bytes of L2 lines that each takes of L2,
    those that it has `touched`, and those that its GPC asks for; `nbytes` are of all that is read of the tensor. The
    rows of a tile that straddle lines count with those.
    """

    by_rows: bool
    copies: int
    lines: float
    touched: float
    of_gpc: float
    nbytes: int


@of_loop
def asked_of(program: TileProgram, machine: Machine) -> tuple[Asked, ...]:
    """What a K-block's copies ask for, tensor by tensor, in whatever order tiles are taken."""
    return tuple(_asked(member, machine) for member in _members(program))


def _asked(member: Member, machine: Machine) -> Asked:
    box = member.box(member.shape)
    lines, touched = copy_lines(box, machine), whole_lines(box, machine.l2_line_bytes)
    straddled = touched if box.pitch_bytes % machine.l2_line_bytes else 0.0
    of_gpc = max(member.copy_bytes, straddled)
    return Asked(member.by_rows, member.copies, lines, touched, of_gpc, member.view.nbytes)


def _members(program: TileProgram) -> Iterator[Member]:
    return (member for ring in program.rings if ring.copied for member in ring.members)


def k_block_demand(program: TileProgram, machine: Machine) -> Demand:
    """The demand of one K-block of a block in the steady state."""
    return with_gpc(demand_apart(program, machine), program, program.grid, machine)


def with_gpc(apart: Demand, program: TileProgram, grid: TileGrid, machine: Machine) -> Demand:
    """The demand with the bytes that the SMs of a GPC ask for together, in the order of tiles that `grid` has."""
    return Demand(
        lines=apart.lines,
        data=apart.data,
        touched=apart.touched,
        gpc=gpc_bytes(program, grid, machine, waited_for=True),
        tensor=apart.tensor,
        energy=apart.energy + machine.power_cycles_per_gpc_byte * gpc_bytes(program, grid, machine),
        between=apart.between,
        alone=apart.alone,
        active=apart.active,
        thread=apart.thread,
        late=apart.late,
        blocks=apart.blocks,
    )


def demand_apart(program: TileProgram, machine: Machine) -> Demand:
    """The demand of a K-block without what depends on the order of tiles: the bytes that its GPC asks for."""
    s, whole = program.structure, program.whole
    asked = asked_of(program, machine)
    lines, touched = _lines(asked), sum(one.touched * one.copies for one in asked)
    product = Product(s.rows, s.columns, s.depth, whole.dtype, s.consumer_warps, paired=s.paired)
    arithmetic = mma_cycles(product, machine) * s.at_once * whole.products
    tensor = max(arithmetic, _instructions_cycles(program, product, machine) * s.at_once * whole.products)
    # A product's instructions read their rows and their columns of shared memory each anew, part by part.
    read = len(parts(s.columns)) * machine.mma_rows + s.columns // s.blocks
    operands = (s.rows // machine.mma_rows) * read * (s.depth * whole.dtype.bits // 8)
    added = sum((op.consumer, op.copy) == (0, 0) for op in program.of(OpKind.ACCUMULATE))
    promotion = added * alu_cycles(machine, PROMOTION, s.rows * s.columns)
    energy = (
        machine.tensor_energy(whole.dtype.value) * arithmetic * (1 - machine.paired_blocks_loss * s.paired)
        + machine.power_cycles_per_alu_cycle * promotion * s.at_once
        + machine.power_cycles_per_shared_byte * (whole.products * operands) * s.at_once
        + machine.power_cycles_per_l2_byte * touched
    )
    return Demand(
        lines=lines,
        data=sum(member.nbytes for member in _members(program)),
        touched=touched,
        gpc=0,
        tensor=tensor,
        energy=energy,
        between=_between(program, machine),
        alone=not program.tensor_columns and (s.sharing is Sharing.PING_PONG or s.consumers == 1),
        thread=_thread(program, machine),
        late=_late(program, machine),
        blocks=s.blocks_an_sm,
    )


def _instructions_cycles(program: TileProgram, product: Product, machine: Machine) -> int:
    """Cycles of a product's instructions, which take longer than their arithmetic where they have few columns. Those
    that read registers begin sooner, and contend with arithmetic instead.
    """
    in_registers = any(
        isinstance(op.counts, Product) and op.counts.registers for op in program.of(OpKind.MMA)
    )
    return 0 if in_registers else math.ceil(tensor_cycles(product, machine))


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


def last_demand(program: TileProgram, grid: TileGrid, demand: Demand, machine: Machine) -> Demand:
    """Demand of a K-block in the tail wave: fewer SMs share the paths, and tiles end with the tensor.

    Copies leave out what lies beyond a tensor's end; the last tiles are often those that reach over it, and in a
    whole wave the others make up for them.
    """
    places = program.structure.places(machine.sm_count)
    active = grid.work_tiles % places if program.shares is None else 0
    if not active:
        return demand
    down, across = _inside(grid, active)
    asked = asked_of(program, machine)
    lines = down * _lines(asked, by_rows=True)
    lines += across * _lines(asked, by_rows=False)
    share = lines / demand.lines
    return replace(
        demand,
        lines=lines,
        data=demand.data * share,
        touched=demand.touched * share,
        gpc=demand.gpc * share,
        active=active / places,
    )


@functools.lru_cache(maxsize=1024)
def _inside(grid: TileGrid, last: int) -> tuple[float, float]:
    """The shares of the rows and columns of the last so many tiles that the tensors have, on the average."""
    shares = [grid.inside(tile) for tile in range(grid.work_tiles - last, grid.work_tiles)]
    down, across = (math.fsum(part) / last for part in zip(*shares, strict=True))
    return down, across


def _lines(asked: Iterable[Asked], *, by_rows: bool | None = None) -> float:
    """Bytes of L2 lines that one K-block of a block touches: of all tensors, or of those along rows, or columns."""
    return sum(one.lines * one.copies for one in asked if by_rows in (None, one.by_rows))


def _between(program: TileProgram, machine: Machine) -> float:
    """Cycles outside the loop for each of its K-blocks: starts and ends of blocks, epilogues that others wait for."""
    s, cost = program.structure, program.epilogue
    waves = math.ceil(program.tiles / s.places(machine.sm_count))
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
    return max(1, (shared_capacity(s, machine) - buffers) // slot)


def rows_at_once(grid: TileGrid, places: int) -> int:
    """Tile rows that so many blocks, or pairs, are in together: a group, and as many more as they reach into."""
    return grid.group * max(1, places // (grid.group * grid.column_tiles))


def dram_bytes(program: TileProgram, grid: TileGrid, machine: Machine) -> int:
    """Bytes from and to device memory, by the rasterization order.

    The tiles of a group of tile rows are taken column by column. What fits in half of L2 is read once; else the
    operand along the columns is read again for each set of rows that are taken at once, and the other one again for
    each column of tiles if a whole group does not stay in L2. Tiles that are cut to equal shares are not all at one
    K-block at a time: one of two neighbours is taken to read it again.
    """
    whole, places = program.whole, program.structure.places(machine.sm_count) // grid.blocks
    total, budget = whole.compulsory_bytes, machine.l2_bytes // 2
    group = grid.group * grid.tile_rows * whole.extent(Role.STREAM) * (whole.dtype.bits // 8)
    again = 1.0 if program.shares is None else 1 + program.shares.cut
    for one in asked_of(program, machine):
        if one.nbytes <= budget:
            continue
        reads = 1
        if not one.by_rows:
            reads = math.ceil(grid.alike_row_tiles / rows_at_once(grid, places))
        elif group > budget:
            reads = math.ceil(grid.column_tiles / 4)
        total += round(one.nbytes * (reads * again - 1))
    return total


def gpc_bytes(program: TileProgram, grid: TileGrid, machine: Machine, *, waited_for: bool = False) -> int:
    """Bytes of one K-block that the SMs of a GPC ask for, each tile counted once, a block.

    Blocks with consecutive numbers go down a group of tile rows, so `group` neighbours share a column's tile.
    Rows that straddle lines count with those; half a line asks for half of one.

    Where all columns are fewer tiles than a GPC has SMs, it takes several groups at a time, whose rows are apart, and
    where those are of several matrices so are their columns. Where they are fewer than the card has, several GPCs ask
    for the same columns at about one time. Of those bytes a GPC has to wait for its share alone
    (`waited_for`); all of them take power. Where sums are split many ways a GPC has several parts of few tiles, which
    are at K-blocks of their own. Of tiles that are cut to equal shares each SM reads for itself. The blocks
    of a pair, which are of one GPC, read other halves of their columns.
    """
    several, gpcs = program.structure.blocks_an_sm / grid.blocks, machine.sm_count / machine.sms_per_gpc
    alike = min(machine.sm_count * several, grid.tiles)  # tiles that are at the same K-blocks
    places = min(machine.sms_per_gpc * several, alike)
    height = min(grid.group, grid.alike_row_tiles, math.floor(places))
    across = min(places / height, grid.column_tiles)
    groups, in_matrix = places / height / across, grid.alike_row_tiles / height
    across *= max(1.0, groups / in_matrix)
    if waited_for:
        at_once = alike / (height * grid.column_tiles)
        across /= max(1.0, min(at_once / groups, in_matrix / groups, gpcs))
    total, alone = 0.0, 0.0
    for one in asked_of(program, machine):
        total += one.of_gpc / places * (height * groups * one.copies if one.by_rows else across)
        alone += one.copies * one.of_gpc
    cut = 0.0 if program.shares is None else program.shares.cut
    return math.ceil((1 - cut) * total + cut * alone)
