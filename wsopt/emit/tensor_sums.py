"""Sums in tensor memory: what the warp that issues products does for a tile, and how a consumer reads its sums.

The block keeps some sets of sums. The warp fills one with a tile's products while consumers read another: a commit
behind the last product says that a set is whole, the consumers' arrivals that it has been read. A commit behind
each K-block's products hands its slots back to the loader. Nobody waits for a product.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from wsopt.emit import instructions, pairs, records, splits, text
from wsopt.emit.functions import Function, function, seen
from wsopt.emit.instructions import Instruction, Slots, write
from wsopt.emit.operations import Operations
from wsopt.emit.plan import KernelPlan
from wsopt.emit.slots import first_slots, next_slots, windows
from wsopt.emit.stamps import Event, Point, Wait, between
from wsopt.emit.sums import subtile_name
from wsopt.program.ids import OpKind
from wsopt.program.program import TileOp
from wsopt.schedule.program_order import one_by_one
from wsopt.schedule.types import PartitionRole

_SETS = Slots("sums", "SUM_SETS")


def _sums(plan: KernelPlan, name: str, consumer: str, visit: str = "visit") -> str:
    """A consumer's tile of sums, in the set of this visit."""
    which = f"{visit} % SUM_SETS" if plan.s.persistent else "0"
    return f"{name}_sums.index({text.of_slot(which, plan.s.consumers, consumer)})"


def _full(plan: KernelPlan) -> str:
    """The barrier that says that the sums of a set are whole."""
    return _SETS.full("visit") if plan.s.persistent else f"{_SETS.name}_full.index(0)"


def _released(plan: KernelPlan) -> list[str]:
    """The line that hands a set back, which no block of one tile fills again."""
    return [_SETS.release(counter(plan))] if plan.s.persistent else []


def counter(plan: KernelPlan) -> str:
    """The consumer's count of the sets that it has read: of its tiles, or of all parts of tiles."""
    return "taken" if plan.split else "visit"


def mma_warp(plan: KernelPlan, operations: Operations) -> Function:
    """The function of the warp: for a tile it waits for a set of sums, goes from K-block to K-block, and tells of the
    whole.
    """
    counters, tail = windows(ring.counter for ring in plan.rings), plan.s.tail
    passed = [*_products(plan, operations, "k_block > 0"), *next_slots(counters)]
    last = [*_products(plan, operations, f"{plan.k_blocks} > 1", tail), *next_slots(counters)] if tail else []
    body = [
        *(["k_blocks = last - first"] if plan.split else []),
        *([_SETS.wait_empty("visit")] if plan.s.persistent else []),
        f"for k_block in range({plan.k_blocks}{' - 1' if tail else ''}):",
        text.block(write(passed)),
        *([write(last)] if last else []),
        commit(_full(plan)),
        *(["visit += 1"] if plan.s.persistent else []),
    ]
    what = "# Issues the products of all tiles; commits tell the loader and the consumer of their ends."
    parameters = [*seen(plan, PartitionRole.MMA_WARP, own=False), *plan.counts]
    begin = [*first_slots(counters), *(["visit = 0"] if plan.s.persistent else []), what]
    return function(plan, PartitionRole.MMA_WARP, parameters, begin, "\n".join(body))


def _products(plan: KernelPlan, operations: Operations, use: str, length: int = 0) -> Iterator[Instruction]:
    """The products of a K-block, or of its first `length` elements, behind the waits for its slots: where they read,
    what they add to if `use` holds, and the commits that hand slots back; with stamps in a text that is read.
    """
    waits = [Wait(ring.wait_full()) for ring in plan.rings]
    every = one_by_one(plan.verified, f"{PartitionRole.MMA_WARP}0")
    for op in (op for op in every if op.kind is OpKind.MMA):
        own = replace(operations, index=str(op.consumer))
        (left,), (right,) = own.operands(op, 0, lambda _: 0, 0, length)
        sums = _sums(plan, plan.value(op.id.subject), own.index)
        product = f"tcgen05_mma({left}, {right}, {sums}, use_acc={use})"
        yield from between([*waits, product], *_stamps(plan, op))
        waits = []
    for ring in plan.rings:
        handed_back = next(op for op in every if op.id in ring.plan.releases)
        yield from between([commit(ring.empty())], *_stamps(plan, handed_back))


def _stamps(plan: KernelPlan, op: TileOp) -> Iterator[str]:
    """The stamps of an operation's moments; empty if the kernel is not traced."""
    events = (Event(str(op.id), point) for point in Point)
    return (records.pass_stamp(plan, PartitionRole.MMA_WARP, event) for event in events)


def commit(barrier: str) -> str:
    """Have the tensor core arrive at a barrier when all products issued before have ended."""
    return f"tcgen05_commit({barrier})"


def wait(plan: KernelPlan) -> str:
    """The consumer's wait for a tile's sums."""
    return _SETS.wait_full(counter(plan)) if plan.s.persistent else instructions.wait(_full(plan), "0")


def read(plan: KernelPlan, names: Iterable[str], subtile: int) -> list[str]:
    """A subtile of a tile's sums brought into registers under these names; behind the last the set is handed back."""
    part = f"slice({subtile} * SUBTILE_COLUMNS, SUBTILE_COLUMNS).load(SUBTILE_LAYOUT)"
    every = zip(names, plan.sums, strict=True)
    visit = counter(plan)
    found = [f"{name} = {_sums(plan, sums, 'index', visit)}.{part}" for name, sums in every]
    return found if subtile < plan.s.subtiles - 1 else [*found, *_released(plan)]


def stores(plan: KernelPlan) -> list[str]:
    """The lines that bring the partial sums of a part of a tile to the workspace, subtile by subtile."""
    found = list[str]()
    for number in range(plan.s.subtiles):
        names = [subtile_name(plan.s, name, number, number + 1) for name in plan.sums]
        found += read(plan, names, number)
        of_subtile = number, "SUBTILE_COLUMNS", "SUBTILE_LAYOUT"
        found += [splits.store(plan, product, *of_subtile, name) for product, name in enumerate(names)]
    return found


def layouts(plan: KernelPlan) -> tuple[tuple[str, str, str], ...]:
    """Layouts of sums in tensor memory, and of a subtile of them in registers: one row for each thread."""
    s, machine = plan.s, plan.verified.machine
    blocked = f"[1, {s.subtile_columns}], [{machine.threads_per_warp}, 1], [{s.consumer_warps}, 1], [0, 1]"
    blocked, tiles = blocked + pairs.across(s, [1, 0]), f"({s.rows}, {s.columns}), 1" + pairs.sums(s)
    sets = "of sums in tensor memory: the consumer reads one under the products of the next"
    return (
        (_SETS.depth, str(plan.verified.schedule.buffers.sums), sets),
        ("SUM_LAYOUT", f"TensorMemoryLayout({tiles})", ""),
        ("SUBTILE_LAYOUT", f"gl.BlockedLayout({blocked})", "a row a thread, as tensor memory has its lanes"),
    )
