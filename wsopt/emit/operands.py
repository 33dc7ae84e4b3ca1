"""Tensors that values of a loop read, as a role holds them in registers: identifier, element type, conversion."""

from __future__ import annotations

from collections.abc import Container, Iterable

from wsopt.emit import quantized, vectors
from wsopt.emit.called import WIDEN
from wsopt.emit.expressions import Operand
from wsopt.emit.names import Names
from wsopt.emit.plan import KernelPlan
from wsopt.emit.scope import ROW
from wsopt.graph.types import DType
from wsopt.program.row_layout import RowLayout, tile_layout
from wsopt.tensors.statements import Item, Statement
from wsopt.tensors.views import FULL, K_BLOCK, Packing, Role, Source


def sources(plan: KernelPlan, items: Iterable[Item], stored: Container[str] = ()) -> dict[str, Operand]:
    """The tensors that values of the loop read, or that are `stored` as they are, as a role knows them."""
    items = tuple(items)
    read, found = {name for item in items for name in item.reads}, dict[str, Operand]()
    for source in (*plan.program.after.vectors, *plan.program.streamed):
        if source.name in read or source.name in stored:
            found[source.name] = operand_of(source, loop_name(plan.names, source))
        if source.spans == K_BLOCK and source.name in read:
            found[source.name] = streamed_operand(plan, source, loop_name(plan.names, source), items)
    return found


def loop_name(names: Names, source: Source) -> str:
    """The identifier of what a loop reads of a tensor, in registers."""
    view = source.view
    return names(
        f"loop:{view.tensor}:{view.roles}:{view.cutouts}:{view.chosen}:{view.offset}", f"{view.tensor}_value"
    )


def after_name(plan: KernelPlan, name: str) -> str:
    """The identifier of a value that follows the last part of a row."""
    return plan.names(f"after:{name}", name.replace("$", "_"))


def operand_of(source: Source, name: str) -> Operand:
    """A source under its name in registers. Its elements are computed with as f32, whole numbers as they are."""
    dtype = source.view.dtype
    return Operand(name, source.spans, DType.F32 if dtype.is_float else dtype)


def streamed_operand(plan: KernelPlan, source: Source, name: str, items: Iterable[Item]) -> Operand:
    """A streamed source under its name in registers, in a type that all `items` that read it compute in. Where all
    elements of a K-block's row share one, such as a scale, it is one element a row.
    """
    users = [item.dtype for item in items if isinstance(item, Statement) and source.name in item.reads]
    held = quantized.held_type(source, users, plan.program.whole.dtype)
    row = source.view.each > 1 and source.view.of(Role.STREAM, plan.s.depth) == 1
    return Operand(name, ROW if row else source.spans, held)


def converted(plan: KernelPlan, source: Source, held: DType, loaded: str) -> str:
    """The expression of a tensor's elements in the type in which they are `held`, `loaded` the one of them as they
    were loaded. Packed ones are taken apart in that type already.
    """
    view = source.view
    if view.packing is Packing.FRAGMENTS or view.zero or held is view.dtype is not DType.BOOL:
        return loaded
    return f"{WIDEN}({loaded})" if widens_pairs(plan, source) else loaded + vectors.widened(view)


def widens_pairs(plan: KernelPlan, source: Source) -> bool:
    """Whether a slot's elements are of bf16, with neighbours in one thread: then two at a time become f32. Elements
    that threads load from device memory gained nothing by it.
    """
    return source.spans == FULL and source.view.dtype is DType.BF16 and has_neighbours(plan)


def has_neighbours(plan: KernelPlan) -> bool:
    """Whether elements that follow one another in a row lie in one thread, in a loop over tiles of rows."""
    return plan.loops_over_tiles and rows_layout(plan).vector > 1


def rows_layout(plan: KernelPlan) -> RowLayout:
    """How a tile of rows lies in a consumer's registers."""
    s = plan.s
    cut = s.rows, s.columns, s.consumer_warps, plan.verified.machine
    return tile_layout(plan.program.row_tiles, *cut, together=bool(plan.carried))
