"""The passes over rows that no SM holds: what each has of a consumer's operations, and what comes between them.

A first pass reduces a row part by part, behind its last part follows what is computed of its reductions, and where an
output has the row itself a second pass stores it. Parts that stay in registers have loops of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from wsopt.emit import flat, threads, vectors
from wsopt.emit.arithmetic import Arithmetic
from wsopt.emit.expressions import Operand
from wsopt.emit.instructions import Loop
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
    kept = zip(kinds, passes, strict=False)
    return loops + [unrolled(_kept(own, kind), which=which) for kind, (own, which) in kept]


def _kept(operations: Operations, kind: Kept) -> Operations:
    """The operations of a pass over the parts that stay in registers: the row's first, of which none ends early."""
    ends = flat.AT_BEGINNING if operations.plan.s.flat else ""
    return replace(operations, kept=kind, writer=replace(operations.writer, ends=ends))


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
