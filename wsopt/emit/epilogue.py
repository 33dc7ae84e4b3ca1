"""The epilogue of one subtile of a tile: read what it needs, compute, stage, store."""

from __future__ import annotations

from collections.abc import Iterator

from wsopt.emit.addresses import ByAddress
from wsopt.emit.arithmetic import ROW, Arithmetic
from wsopt.emit.expressions import Operand
from wsopt.emit.instructions import expect, tma_load, wait, when
from wsopt.emit.names import Names
from wsopt.emit.operations import computed_in, load_text, widened
from wsopt.emit.plan import KernelPlan
from wsopt.emit.prefetched import Prefetched
from wsopt.emit.stores import row_store, stores
from wsopt.emit.tensors import Box, coordinates, tile_view
from wsopt.graph.types import DType
from wsopt.program.types import column_role, row_role
from wsopt.tensors.views import FULL, Source


def subtile(plan: KernelPlan, called: set[str]) -> Iterator[str]:
    """All that a consumer does for one subtile; notes in `called` what the text calls of the kernel's own
    functions.
    """
    after, known = plan.program.after, results(plan)
    scope = Names(taken={operand.name for operand in known.values()})
    yield from _reads(plan, scope, known)
    named = {output.value: output.name for output in after.outputs if output.value not in known}
    writer = Arithmetic(
        items=after.items,
        s=plan.s,
        name=lambda name, age: scope(name, named.get(name, name.replace("$", "_"))),
        sources=known,
        tile=FULL,
        layout="SUBTILE_LAYOUT",
        asynchronous=True,
        wanted=frozenset(named),
        carried=False,
        called=called,
    )
    yield from writer.phase(tuple(item.name for item in after.items), lambda _: 0, masked=True)
    for argument in plan.row_outputs:
        yield row_store(plan, argument, writer.operand(argument.of.value))
    for output in after.tile_outputs:
        yield from stores(plan, output, writer.operand(output.value), "column")


def results(plan: KernelPlan) -> dict[str, Operand]:
    """The loop's results that the epilogue reads, by name: sums, and reductions of rows."""
    found = {name: Operand(plan.value(name), FULL, DType.F32) for name in plan.summed}
    return found | {item.name: Operand(plan.value(item.name), ROW, DType.F32) for item in plan.rows}


def _reads(plan: KernelPlan, scope: Names, known: dict[str, Operand]) -> Iterator[str]:
    """Every source of the epilogue; vectors first, so that their latency is behind other work."""
    after, prefetched, inputs = plan.program.after, plan.prefetched, plan.inputs
    for name, vector in plan.late.items():
        known[name] = _operand(vector.of, scope)
        yield f"{known[name].name} = {_load(plan, vector)}"
    for name, one in prefetched.items():
        yield from _prefetched(one, name, scope, known)
    for source in after.full:
        known[source.name] = _operand(source, scope)
        yield from _full_input(plan, known[source.name].name, inputs[source.name])


def _operand(source: Source, scope: Names) -> Operand:
    name = scope(source.name, f"{source.view.tensor}_tile")
    return Operand(name, source.spans, computed_in(source.view))


def _load(plan: KernelPlan, vector: ByAddress[Source]) -> str:
    """A row, column or scalar, loaded by address and masked at the tensor's end."""
    swap, spans = plan.s.swap, vector.of.spans
    inside = "columns < column_extent" if column_role(swap) in spans else ""
    inside = "rows < row_extent" if row_role(swap) in spans else inside
    return load_text(vector, plan.place("rows", "columns"), inside)


def _prefetched(one: Prefetched, source: str, scope: Names, known: dict[str, Operand]) -> Iterator[str]:
    """A prefetched source: in registers, or in shared memory by columns."""
    view, value = one.vector.of.view, one.name
    if one.along_columns:
        part = f"{one.name}.slice(subtile * SUBTILE_COLUMNS, SUBTILE_COLUMNS)"
        value = f"{part}.load(gl.SliceLayout(0, SUBTILE_LAYOUT))"
    value += widened(view)
    known[source] = Operand(one.name, one.vector.of.spans, computed_in(view))
    if value != one.name:
        known[source] = _operand(one.vector.of, scope)
        yield f"{known[source].name} = {value}"


def _full_input(plan: KernelPlan, name: str, box: Box) -> Iterator[str]:
    """A full tile in shared memory: its copy was started before the loop, or by an earlier subtile."""
    uses = plan.s.subtiles // plan.verified.schedule.buffers.inputs
    place = "subtile % INPUT_BUFFERS" if uses > 1 else "subtile"
    phase = f"(visit * {uses} + subtile // INPUT_BUFFERS) & 1" if uses > 1 else "visit & 1"
    barrier, buffer = f"{box.name}_full.index({place})", f"{box.name}_input.index({place})"
    yield wait(barrier, phase)
    text = f"{tile_view(buffer, box, row_role(plan.s.swap))}.load(SUBTILE_LAYOUT){widened(box.view)}"
    yield f"{name} = {text}"
    if uses > 1:
        later = coordinates(box, plan.place("row", "column + INPUT_BUFFERS * SUBTILE_COLUMNS"))
        refill = [expect(barrier, box.nbytes), tma_load(box.descriptor, later, barrier, buffer)]
        yield when("subtile + INPUT_BUFFERS < SUBTILES", "\n".join(refill))
