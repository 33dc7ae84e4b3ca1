"""The operations of a plan's consumer: its products, and the writer of the arithmetic on their sums and on tiles."""

from __future__ import annotations

from collections.abc import Iterable

from wsopt.emit import flat, over_rows, threads
from wsopt.emit.arithmetic import Arithmetic
from wsopt.emit.called import ROUNDINGS
from wsopt.emit.expressions import Operand
from wsopt.emit.operands import after_name, has_neighbours, sources
from wsopt.emit.operations import Operations
from wsopt.emit.plan import KernelPlan
from wsopt.graph.types import DType
from wsopt.program.facts import Product
from wsopt.program.ids import OpKind, ValueKind
from wsopt.program.program import TileOp
from wsopt.tensors.statements import Statement
from wsopt.tensors.views import FULL, K_BLOCK, Role

_RESULTS = (ValueKind.VALUE, ValueKind.RESULT)
"""Products' outputs that a loop computes with."""


def operations_of(plan: KernelPlan) -> Operations:
    """The operations of a consumer's loop."""
    program = plan.program
    products = tuple(op for op in program.of(OpKind.MMA) if op.consumer == 0)
    fed = _fed(products)
    factors = {op.inputs[0].subject for kind in (OpKind.RESCALE, OpKind.WRITE) for op in program.of(kind)}
    writer = Arithmetic(
        items=plan.items,
        s=plan.s,
        name=plan.value,
        sources=_known(plan),
        tile=FULL if plan.loops_over_tiles else K_BLOCK,
        layout=plan.loop_layout,
        asynchronous=plan.computes or plan.values_apart,
        wanted=frozenset({output.value for output in program.after.outputs} | fed.keys() | factors),
        results=frozenset(op.id.subject for op in products if op.output and op.output.kind in _RESULTS),
        fed=fed,
        carried=plan.program.long_rows or not plan.loops_over_tiles,
        apart=program.lane_sums,
        threads=threads.OWN if threads.by_threads(plan) else "",
        by_parts=program.long_rows,
        # Where threads read element by element, each asks of its column anyway.
        numbered=plan.program.region.by_threads and not plan.s.flat,
        asked=_asked(plan),
        in_pairs=_in_pairs(plan),
        columns_together=over_rows.columns_together(plan),
        ends=flat.at_ends(plan) if program.whole.extent(Role.COLUMN) % program.structure.columns else "",
        unmasked=dict(program.unmasked),
    )
    return Operations(plan, writer, products)


def _fed(products: Iterable[TileOp]) -> dict[str, int]:
    """The values that products take from registers, each with the number of sets of sums that it is cut for."""
    return {
        op.inputs[0].subject: op.counts.sets if isinstance(op.counts, Product) else 1
        for op in products
        if op.inputs[0].kind is ValueKind.VALUE
    }


def _known(plan: KernelPlan) -> dict[str, Operand]:
    """The operands that the loop's items find: tensors, and values of whole rows for a second pass over them."""
    program = plan.program
    known = sources(plan, plan.items, {output.value for output in program.after.outputs})
    if program.long_rows:
        after = (item for item in program.after.items if isinstance(item, Statement))
        known |= {item.name: Operand(after_name(plan, item.name), item.spans, item.dtype) for item in after}
    return known


def _in_pairs(plan: KernelPlan) -> frozenset[str]:
    """The roundings of rows' elements that others are computed of: the compiler would round those one by one, by an
    instruction of the MUFU pipe. What is one sum or product of numbers of that type it computes in it.
    """
    if not has_neighbours(plan):
        return frozenset()
    made = {item.name: item for item in plan.items if isinstance(item, Statement)}
    types = {name: one.of.view.dtype for name, one in plan.vectors.items()}
    types |= {source.name: source.view.dtype for source in plan.program.streamed}
    types |= {name: item.dtype for name, item in made.items()}
    read = {name for item in plan.items for name in item.reads}

    def narrowed(item: Statement) -> bool:
        (name,) = item.reads
        before = made.get(name)
        same = before is not None and all(types.get(one) is item.dtype for one in map(str, before.args))
        return same and before is not None and before.primitive in _NARROWED

    rounds = (item for name, item in made.items() if item.primitive in ROUNDINGS and name in read)
    return frozenset(item.name for item in rounds if item.spans == FULL and not narrowed(item))


_NARROWED = ("add", "sub", "mul")
"""What LLVM computes in 16 bits where both operands were widened and the result is rounded again."""


def _asked(plan: KernelPlan) -> dict[str, DType]:
    """The tensors of which threads load parts of rows as they lie in memory, with their types there. Slices and
    gathered rows are left out: the zeros around a slice, or of a place that is none, have to stay zeros.
    """
    read = plan.vectors.items() if plan.program.long_rows and not plan.s.ahead else ()
    views = {name: one.of.view for name, one in read if one.of.is_tile}
    plain = (item for item in views.items() if not (item[1].flat or item[1].cutouts or item[1].chosen))
    return {name: view.dtype for name, view in plain}
