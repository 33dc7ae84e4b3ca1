"""Who issues what, and the warps, registers and buffers that a schedule takes: the arithmetic that the model and the
checker share. Bytes of shared memory are beside it (`memory.py`).

The emitter allocates exactly these buffers, so a kernel that needs more than this is a fault.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from wsopt.machine.types import Machine
from wsopt.program.facts import Copy, Release
from wsopt.program.ids import OpId
from wsopt.program.known import of_loop, of_program
from wsopt.program.limits import MOST_SLOTS, Limit
from wsopt.program.program import Edge, Iteration, OpKind, RingPlan, TileOp, TileProgram
from wsopt.program.types import Structure
from wsopt.program.units import UNITS
from wsopt.schedule.memory import buffer_bytes
from wsopt.schedule.types import EpilogueBuffers, Partition, PartitionRole

LIFTED_SLOTS = 128
"""Slots of a ring where that limit is lifted."""

_MOST_STAGING = 4
_TRANSFORM_REGISTERS, _EACH_TRANSFORM_REGISTERS = 96, 64
"""Of a transform warpgroup's threads: a tile of a K-block before and after, addresses and counters; with a warpgroup
for each operand half as many elements at a time.
"""

_CORRECTION_COLUMNS, _CORRECTION_REGISTERS = 16, 32
"""Columns of sums that a thread of a correction warpgroup has at a time, and its registers beside those: a factor,
addresses and counters. With slices of 32 columns and 64 registers ptxas of Triton 3.9 spilled the counters of causal
loops.
"""

HELPER_WARPS = 1
HELPER_REGISTERS = 24
"""Of a warp that counts tiles and slots and starts copies, products or stores: ptxas fits it in the least it may."""

PAIRED_REGISTERS = 72
COUNTING_REGISTERS = 40
"""Of a warp that counts the K-blocks of all tiles besides, many tiles at a time, or that takes tiles of flat rows at
run time: with 24 it spills 5 to 11 loads (Triton 3.6 and 3.9); or that has many copies a K-block to start.
"""

_FEW_COPIES = 12
"""Copies a K-block that a warp of `HELPER_REGISTERS` starts: each has addresses of its own. With 18, of nine products
of which each has coordinates of its own, ptxas spills 9 loads and not with 16 (Triton 3.9).
"""

PAGES_REGISTERS = 56
"""Of a warp that copies several pages a K-block: with 40 registers and eight pages ptxas spills, with 56 it does not
(Triton 3.9).
"""

MOST_HELPERS = 4
"""emitter.v1: warps of a block that start copies, products or stores. They share one warpgroup, so that a launch has
no more warps for a second loading warp, or for store warps.
"""

_MOST_LOADERS = 2
"""emitter.v1: loading warps of a block."""


def warpgroup_warps(warps: int, machine: Machine) -> int:
    """Warps that a partition takes up: registers are dealt out by warpgroups."""
    size = machine.warps_per_warpgroup
    return -(-warps // size) * size


def launched_warps(structure: Structure, machine: Machine) -> int:
    """Warps of the launch, each partition's rounded up to whole warpgroups; of one that is alone as they are."""
    if structure.resident:
        return structure.consumer_warps
    consumers = structure.consumers * warpgroup_warps(structure.consumer_warps, machine)
    others = (structure.transforms + structure.corrections) * machine.warps_per_warpgroup
    return consumers + others + warpgroup_warps(HELPER_WARPS, machine)


def helper_registers(structure: Structure) -> int:
    """Registers a thread of warps that start copies, products or stores."""
    if structure.paired:
        return PAIRED_REGISTERS
    counts = structure.shares or (structure.dynamic and structure.flat)
    return COUNTING_REGISTERS if counts else HELPER_REGISTERS


def _least_helpers(program: TileProgram) -> int:
    """The same of a program, which may have more copies than such a warp holds addresses of."""
    least = helper_registers(program.structure)
    return least if len(program.of(OpKind.TMA_LOAD)) <= _FEW_COPIES else max(least, COUNTING_REGISTERS)


def helpers_registers(program: TileProgram, machine: Machine) -> int:
    """Registers a thread of the helper warps of a program. Those that copy several pages at a time have more,
    as far as other roles leave them.
    """
    s, least = program.structure, _least_helpers(program)
    copies = (op.counts for op in program.of(OpKind.TMA_LOAD) if isinstance(op.counts, Copy))
    if not any(copy.ahead and copy.apart > 1 for copy in copies):
        return least
    loader, granularity = warpgroup_warps(HELPER_WARPS, machine), machine.register_granularity
    consumers = s.consumers * warpgroup_warps(s.consumer_warps, machine)
    left = base_registers(s, machine) * launched_warps(s, machine)
    left -= consumers * consumers_registers(program, machine)
    left -= transform_registers(s) * s.transforms * machine.warps_per_warpgroup
    left -= correction_registers(s) * s.corrections * machine.warps_per_warpgroup
    return max(least, min(PAGES_REGISTERS, left // loader // granularity * granularity))


def transform_registers(structure: Structure) -> int:
    """Registers a thread of a transform warpgroup."""
    return _EACH_TRANSFORM_REGISTERS if structure.transforms > 1 else _TRANSFORM_REGISTERS


def correction_columns(structure: Structure) -> int:
    """Columns of the slice of sums that a correction warpgroup rescales at a time."""
    return min(structure.columns, _CORRECTION_COLUMNS)


def correction_registers(structure: Structure) -> int:
    """Registers a thread of a correction warpgroup: it has a slice of sums at a time."""
    return correction_columns(structure) + _CORRECTION_REGISTERS


def base_registers(structure: Structure, machine: Machine) -> int:
    """Registers a thread that the kernel is launched with, before roles trade them.

    All partitions start with the same number, a multiple of the granularity; they must fit the file, with those of
    all blocks that an SM has at a time.
    """
    warps = launched_warps(structure, machine) * structure.blocks_an_sm
    fair = machine.registers_per_sm // (warps * machine.threads_per_warp)
    granularity = machine.register_granularity
    return min(fair, machine.max_registers_per_thread) // granularity * granularity


def consumers_registers(program: TileProgram, machine: Machine) -> int:
    """Registers a thread that every consumer of a program can have."""
    return consumer_registers(program.structure, machine, _least_helpers(program))


def consumer_registers(structure: Structure, machine: Machine, helpers: int = 0) -> int:
    """Registers a thread that every consumer can have when the others keep what they need, which of warps that start
    copies, products or stores are `helpers`, or what their structure says.

    The partitions share what the kernel was launched with: setmaxnreg moves registers between warpgroups of a
    block and adds none, however many the SM has left over. The default partition gets what the others leave.
    """
    if structure.resident:
        return base_registers(structure, machine)
    loader = warpgroup_warps(HELPER_WARPS, machine)
    warps = launched_warps(structure, machine)
    transforms = structure.transforms * machine.warps_per_warpgroup
    left = base_registers(structure, machine) * warps - (helpers or helper_registers(structure)) * loader
    corrections = structure.corrections * machine.warps_per_warpgroup
    left -= transform_registers(structure) * transforms + correction_registers(structure) * corrections
    granularity = machine.register_granularity
    fair = left // (warps - loader - transforms - corrections) // granularity * granularity
    return min(fair, machine.setmaxnreg_max_registers)


def copies_in_order(plan: RingPlan, k_block: int = 0) -> list[OpId]:
    """The loads of a slot as a kernel has them: tensor by tensor, each for one consumer after the other."""
    tensors = list(dict.fromkeys(load.subject for load in plan.loads))
    loads = (load for load in plan.loads if load.k_block == k_block)
    return sorted(loads, key=lambda load: (tensors.index(load.subject), load.instance or 0))


@of_loop
def copied_rings(program: TileProgram) -> tuple[RingPlan, ...]:
    """The rings that loading warps fill."""
    return tuple(plan for plan in program.rings if plan.copied)


@of_loop
def most_loaders(program: TileProgram) -> int:
    """The most loading warps that a block of this program may have: one for each ring that copies fill, and no more
    than are asked for.
    """
    most = min(_MOST_LOADERS, len(copied_rings(program)), MOST_HELPERS - helper_warps(program))
    return max(1, min(most, program.conditions.loaders or most))


def helper_warps(program: TileProgram, buffers: EpilogueBuffers | None = None) -> int:
    """Warps beside the loading ones that issue products or, with these buffers, start stores."""
    stores = buffers is not None and buffers.store_warp
    return int(program.tensor_columns > 0) + program.structure.consumers * stores


def issuers(program: TileProgram, op: TileOp) -> tuple[str, ...]:
    """emitter.v1: the partitions that may issue an operation of the loop: a consumer's own itself, products into
    tensor memory and their commits the warp for them, what is done apart a transform warpgroup; copies a partition
    without tensor-core work.

    Loading warps have rings of their own, for all copies of a slot arrive at one barrier. The first ring is the first
    warp's: so of divisions that differ in the warps' names alone there is one.
    """
    if op.kind is OpKind.TMA_LOAD:
        first = op.id in copied_rings(program)[0].loads
        return tuple(f"{PartitionRole.LOADER}{i}" for i in range(1 if first else most_loaders(program)))
    if op.apart:
        rescales = op.kind is OpKind.RESCALE
        return (f"{PartitionRole.CORRECTION if rescales else PartitionRole.TRANSFORM}{op.helper}",)
    by_warp = _by_mma_warp(op) and program.tensor_columns
    role, number = (PartitionRole.MMA_WARP, 0) if by_warp else (PartitionRole.CONSUMER, op.consumer)
    return (f"{role}{number}",)


def _by_mma_warp(op: TileOp) -> bool:
    """Whether the warp that issues products into tensor memory does an operation: products, and commits for slots."""
    return op.kind is OpKind.MMA or (isinstance(op.counts, Release) and op.counts.by_commit)


def own_operations(program: TileProgram) -> dict[int, tuple[TileOp, ...]]:
    """The operations of the loop that each consumer issues itself; none where a warp issues all of its products."""
    return {
        consumer: tuple(op for op in own if issuers(program, op) == (f"{PartitionRole.CONSUMER}{consumer}",))
        for consumer, own in program.by_consumer.items()
    }


def crosses(program: TileProgram, edge: Edge) -> bool:
    """Whether a barrier stands between the ends of a dependence: other partitions issue them."""
    source, target = (issuers(program, program.op(one)) for one in (edge.source, edge.target))
    return set(source).isdisjoint(target)


@of_loop
def holders(program: TileProgram) -> Mapping[str, tuple[tuple[TileOp, int], ...]]:
    """The operations that hold each unit, and that hold or may hold each partition's thread, one at a time, with the
    cycles that each does.

    A partition is one in-order thread of control: issues, and synchronous work, follow each other.
    """
    found: dict[str, list[tuple[TileOp, int]]] = {unit: [] for unit in UNITS}
    for op in program.loop:
        threads = ((partition, op.issue) for partition in issuers(program, op) if takes_time(program, op))
        for name, cycles in (*op.held, *threads):
            found.setdefault(name, []).append((op, cycles))
    return MappingProxyType({name: tuple(held) for name, held in found.items()})


def takes_time(program: TileProgram, op: TileOp) -> bool:
    """Whether issuing an operation takes its partition's time: unless a limit on who issues it is lifted."""
    kinds = {OpKind.TMA_LOAD: Limit.LOADERS, OpKind.TMA_STORE: Limit.STORES_OF_ROWS}
    others = Limit.OWN_OPERATIONS in program.lifted and op.kind is not OpKind.TMA_LOAD
    return not others and kinds.get(op.kind) not in program.lifted


SIGNALS = 2
"""Slots at most of a ring that holds nothing, and tells consumers to begin a tile: this one and the next. Were there
more, the loading warp would be done long before the tiles, and let the next kernel in.
"""


def most_slots(program: TileProgram) -> int:
    """Slots that a ring may have, whatever shared memory allows."""
    return LIFTED_SLOTS if Limit.MOST_SLOTS in program.lifted else MOST_SLOTS


def partitions(
    program: TileProgram, buffers: EpilogueBuffers, machine: Machine, loaders: int = 1
) -> tuple[Partition, ...]:
    """The block's partitions: all that the launch has is dealt out, to warps that start copies, products or stores
    the least, to consumers the rest.
    """
    s, registers = program.structure, consumers_registers(program, machine)
    helpers = [(PartitionRole.LOADER, loaders), (PartitionRole.MMA_WARP, int(program.tensor_columns > 0))]
    helpers += [(PartitionRole.STORE_WARP, s.consumers * buffers.store_warp)]
    return (
        *(Partition(PartitionRole.CONSUMER, i, s.consumer_warps, registers) for i in range(s.consumers)),
        *(
            Partition(PartitionRole.TRANSFORM, i, machine.warps_per_warpgroup, transform_registers(s))
            for i in range(s.transforms)
        ),
        *(
            Partition(PartitionRole.CORRECTION, i, machine.warps_per_warpgroup, correction_registers(s))
            for i in range(s.corrections)
        ),
        *(
            Partition(role, i, HELPER_WARPS, helpers_registers(program, machine))
            for role, count in helpers
            for i in range(count)
        ),
    )


def taken_registers(partitions: Sequence[Partition], machine: Machine) -> int:
    """Registers that a block's partitions take: large ones have warpgroups of their own, the others share theirs. One
    that is alone takes those of its warps.
    """
    if len(partitions) == 1:
        return partitions[0].registers * partitions[0].warps * machine.threads_per_warp
    consumers = [p for p in partitions if p.warps >= machine.warps_per_warpgroup]
    helpers = [p for p in partitions if p not in consumers]
    shared = max((p.registers for p in helpers), default=0), sum(p.warps for p in helpers)
    each = [(p.registers, p.warps) for p in consumers]
    taken = sum(registers * warpgroup_warps(warps, machine) for registers, warps in (*each, shared))
    return taken * machine.threads_per_warp


def next_in_slot(k_block: int, depth: int, copies: int) -> tuple[int, int]:
    """The K-block that takes a K-block's slot next: how many iterations later, and which of that iteration.

    K-blocks are counted over all iterations, `copies` in each, and take the ring's slots in turn.
    """
    return divmod(k_block + depth, copies)


def needed_registers(program: TileProgram, margin: int) -> int:
    """Registers a thread that a consumer's live tiles take, with `margin` for addresses and temporaries."""
    return (
        program.accumulator_registers + max(program.epilogue.registers, k_block_registers(program)) + margin
    )


def k_block_registers(program: TileProgram) -> int:
    """Registers a thread of the largest tile that one computes from a K-block; the model sees how many meet."""
    if Limit.OWN_OPERATIONS in program.lifted:
        return 0
    return max((tile.registers for tile in program.live), default=0)


@of_program
def buffer_options(program: TileProgram) -> tuple[EpilogueBuffers, ...]:
    """Every choice of epilogue buffers: up to four for staging, a power of two up to a subtile each for inputs.

    With inputs of a subtile each, outputs are staged where an input was read, and need no buffers besides. Where
    rows stream, staging is by output: one buffer, or two in turns. Each choice is there with and without a store
    warp, which takes no warps that a block has not, and with as many sets of sums as tensor memory may hold. Those
    alone count that the program's conditions allow.

    emitter.v1: loops of products have store warps, for outputs of whole tiles. Not where partial sums are added up:
    what keeps such consumers out of step, so that one computes while another's products run, is that each waits for
    the others' stores. With store warps an f8 product takes 3 % more cycles (`docs/calibration/h200_stores.json`).

    emitter.v1: a loading warp that is the only one brings the inputs of products in registers, a subtile each. Where
    outputs are staged in their buffers it is a store warp that tells it of those that were read.

    emitter.v1: neither where sums are split, for only the block whose part comes last knows that it has an epilogue.
    """
    cost, s = program.epilogue, program.structure
    store_warps = (False, True) if cost.stores and not without_store_warps(program) else (False,)
    by_loader = (False, True) if _may_bring(program) else (False,)
    chosen = itertools.product(_buffer_counts(program), store_warps, program.sum_sets, by_loader)
    every = (
        EpilogueBuffers(*count, store_warp, sums, brought)
        for count, store_warp, sums, brought in chosen
        if not brought or (count[1] == s.subtiles and (store_warp or not cost.lent_bytes))
    )
    lifted, helpers = Limit.HELPERS in program.lifted, MOST_HELPERS - max(1, program.conditions.loaders)
    fitting = (option for option in every if lifted or helper_warps(program, option) <= helpers)
    return tuple(option for option in fitting if program.conditions.allow(option))


def _buffer_counts(program: TileProgram) -> list[tuple[int, int]]:
    """Numbers of buffers for staging and for inputs that there may be."""
    cost, subtiles = program.epilogue, program.structure.subtiles
    inputs = [n for n in range(1, subtiles + 1) if subtiles % n == 0] if program.after.full else [0]
    counts = [(0, subtiles)] if cost.lent_bytes else []
    by_output = program.iteration is Iteration.TILE and cost.stores
    most = (
        2 if by_output else max(1, min(cost.stores, _MOST_STAGING))
    )  # of values of rows alone one of no bytes
    return [*counts, *itertools.product(range(1, most + 1), inputs)]


def _may_bring(program: TileProgram) -> bool:
    """Whether the loading warp may copy the full tiles that an epilogue reads."""
    plain = program.iteration is Iteration.K_BLOCKS and program.work is None and not program.tensor_columns
    whole = not program.structure.parted or Limit.STORES_OF_SPLITS in program.lifted
    return plain and whole and bool(program.after.full) and program.conditions.loaders <= 1


def without_store_warps(program: TileProgram) -> Limit | None:
    """The limit that keeps store warps out of a program's loop; None if none does."""
    if program.iteration is Iteration.TILE:
        return Limit.STORES_OF_ROWS
    holds = (
        (Limit.STORES_OF_VALUES, program.computes_with_products),
        (Limit.STORES_OF_PARTIALS, program.adds_partials),
        (Limit.STORES_OF_SPLITS, program.structure.parted),
    )
    return next((limit for limit, there in holds if there and limit not in program.lifted), None)


@of_program
def least_buffers(program: TileProgram) -> EpilogueBuffers:
    """The choice that takes the fewest bytes."""
    return min(buffer_options(program), key=lambda option: (buffer_bytes(program, option), option))
