"""The passes over rows that no SM holds: what each has of a consumer's operations, and what comes between them.

A first pass reduces a row part by part, behind its last part follows what is computed of its reductions, and where an
output has the row itself a second pass stores it. Parts that stay in registers have loops of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from wsopt.emit import ahead, flat, kept, reductions, retained, threads, vectors
from wsopt.emit.arithmetic import Arithmetic
from wsopt.emit.expressions import Operand
from wsopt.emit.instructions import Loop, write
from wsopt.emit.kept import Kept
from wsopt.emit.operands import after_name, sources
from wsopt.emit.operations import Operations
from wsopt.emit.plan import KernelPlan
from wsopt.emit.scope import ROW
from wsopt.emit.stores import store_by_address
from wsopt.emit.unroll import unrolled
from wsopt.graph.types import DType
from wsopt.program.ids import AGAIN, OpKind
from wsopt.program.program import TileOp
from wsopt.tensors.statements import Reduction
from wsopt.tensors.views import FULL


def loops_over_rows(operations: Operations) -> list[Loop]:
    """The loop over the parts of a row, or two where rows are read twice; behind them as many over the parts that
    stay in registers.
    """
    first, *again = passes_of(operations.plan)
    passes = [(operations, first), *((as_second(operations), which) for which in again)]
    kinds = [Kept.FILLED, Kept.READ] if operations.plan.s.in_registers else []
    loops = [unrolled(own, which=which) for own, which in passes]
    in_registers = zip(kinds, passes, strict=False)
    return loops + [unrolled(_kept(own, kind), which=which) for kind, (own, which) in in_registers]


def _kept(operations: Operations, kind: Kept) -> Operations:
    """The operations of a pass over the parts that stay in registers: the row's first, of which none ends early."""
    ends = flat.AT_BEGINNING if operations.plan.s.flat else ""
    return replace(operations, kept=kind, writer=replace(operations.writer, ends=ends))


def starts(operations: Operations) -> Iterator[str]:
    """Lines before the parts of rows that no SM holds: what all parts read, and initial values."""
    yield from operations.vectors(operations.of_rows)
    yield from reductions.starts(operations.writer)


def passes_over_rows(operations: Operations, loops: Sequence[Loop]) -> list[str]:
    """The lines of the `loops` over the parts of rows that no SM holds, with what follows the first one."""
    plan = operations.plan
    parts, passes = [_part(plan, loop) for loop in loops], 1 + plan.reads_twice
    (first, *again), kept_parts = parts[:passes], parts[passes:]
    # A buffer's turn follows from the number of all parts, also of those that nothing is stored of: of odd
    # ones the first part that is stored has the turn of the last one before.
    odd = plan.program.grid.column_tiles % 2 and plan.verified.schedule.buffers.staging > 1
    free = ["tma.store_wait(0)"] if again and odd else []
    second = [retained.second_pass(plan, part) for part in again]
    begin = kept.filled(kept_parts[0], operations.tile_names) if kept_parts else []
    end = kept.read(kept_parts[1]) if kept_parts else []
    read = _read_ahead(operations)
    between = [*after_rows(plan)[0], *free, *(read if again else [])]
    return [*begin, *read, retained.other_parts(plan, first), *between, *second, *end]


def _read_ahead(operations: Operations) -> list[str]:
    """Lines in front of a pass over rows whose threads read one part ahead."""
    plan = operations.plan
    tiles = [name for name in operations.of_tiles if plan.vectors[name].of.is_tile]
    return [*ahead.begun(plan, tiles)] if plan.s.ahead else []


def _part(plan: KernelPlan, loop: Loop) -> str:
    """What is done for a part of rows that no SM holds."""
    begin = [f"column = {flat.first_column(plan)}", flat.numbered(plan)]
    return "\n".join([*begin, write(loop.steady)])


def after_rows(plan: KernelPlan) -> tuple[list[str], frozenset[str]]:
    """The lines behind the last part of rows that no SM holds, for reductions that are complete then: what is stored
    of them; and what those lines call of the kernel's own functions.
    """
    after = plan.program.after
    known = {item.name: Operand(threads.whole_name(plan, item.name), ROW, DType.F32) for item in plan.rows}
    known |= sources(plan, after.items)
    writer = Arithmetic(
        items=after.items,
        s=plan.s,
        name=lambda name, age: after_name(plan, name),
        sources=known,
        tile=FULL,
        layout=plan.loop_layout,
        asynchronous=False,
        wanted=frozenset(item.name for item in after.items),
        carried=False,
    )
    lines = [*threads.together(plan)]
    for name in sorted(known.keys() & plan.vectors.keys()):
        lines += [*vectors.chosen_places(plan, name), f"{known[name].name} = {vectors.load(plan, name)}"]
    lines += writer.phase(tuple(item.name for item in after.items), lambda _: 0, masked=True)
    behind = (one for one in plan.outputs_by_address if not one.of.by_threads)
    lines += [store_by_address(plan, one, writer.operand(one.of.value)) for one in behind]
    return lines, frozenset(writer.called)


def as_second(operations: Operations) -> Operations:
    """The operations of the second pass over rows, for which the first one's reductions are complete."""
    plan, writer = operations.plan, operations.writer
    reduced = (item.name for item in plan.items if isinstance(item, Reduction))
    whole = {name: Operand(threads.whole_name(plan, name), ROW, DType.F32) for name in reduced}
    return replace(
        operations, writer=replace(writer, sources={**writer.sources, **whole}, threads=""), again=True
    )


def passes_of(plan: KernelPlan) -> Iterator[Callable[[TileOp], bool]]:
    """Of each pass over rows that no SM holds, whether it has an operation: a first pass, and a second where rows are
    read twice, which stores them.
    """
    stores = (OpKind.TMA_STORE,)
    yield lambda op: op.kind not in stores and op.id.subject != AGAIN
    if plan.reads_twice:
        yield lambda op: op.kind is not OpKind.ELEMENTWISE or not op.items or op.id.subject == AGAIN
