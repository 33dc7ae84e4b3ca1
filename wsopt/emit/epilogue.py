"""The epilogue of one subtile of a tile: read what it needs, compute, stage, store."""

from __future__ import annotations

from collections.abc import Iterator

from wsopt.emit import records, splits, tensor_sums, tensor_values
from wsopt.emit.arithmetic import Arithmetic
from wsopt.emit.combination import parts_of
from wsopt.emit.expressions import Operand
from wsopt.emit.functions import Function
from wsopt.emit.instructions import FENCE, expect, hand_back, tma_load, wait, when
from wsopt.emit.names import Names
from wsopt.emit.operands import operand_of
from wsopt.emit.plan import KernelPlan
from wsopt.emit.scope import ROW
from wsopt.emit.segments import ragged_store, stored_row
from wsopt.emit.stores import store_by_address, stores
from wsopt.emit.sums import cut_to_subtiles, subtile_name
from wsopt.emit.tensors import Box, coordinates, tile_load
from wsopt.emit.vectors import load_text, widened
from wsopt.graph.types import DType
from wsopt.program.types import column_role, row_role
from wsopt.schedule.types import PartitionRole
from wsopt.tensors.views import FULL, Source


def _parameters(plan: KernelPlan) -> list[str]:
    """Parameters of the function that treats one epilogue subtile."""
    boxes, staged = plan.inputs.values(), plan.staged
    refilled = plan.verified.schedule.buffers.inputs < plan.s.subtiles
    return [
        *plan.sums,
        *(plan.value(item.name) for item in plan.rows),
        *(one.name for one in plan.prefetched.values()),
        *(argument for one in plan.late.values() for argument in one.arguments),
        *(box.descriptor for box in boxes if refilled),
        *(f"{box.name}_{what}" for box in boxes for what in ("input", "full")),
        *(f"{box.name}_empty" for box in plan.handed_back),
        *(["staged", "freed"] if plan.stores_apart else []),
        *plan.stored,
        *(*plan.outer, "row", "column", "row_extent", "column_extent", "visit"),
        *(["end_row"] if plan.offsets else []),
        *(["stream_extent"] if plan.counts_stream else []),
        "subtile",
        *(output.buffer for output in staged.outputs.values()),
        *staged.constants(),
    ]


def calls(plan: KernelPlan, *, whole: bool = False) -> list[str]:
    """The sums of a consumer's tile cut into subtiles, and one call a subtile. Where sums are split they come from
    the workspace, but for a tile that is a block's `whole`.
    """
    if plan.loops_over_tiles:
        return []
    split = plan.split and not whole
    parts = parts_of(plan) if split else None
    cut = () if plan.sums_apart or split else plan.sums
    lines = [line for name in cut for line in cut_to_subtiles(plan.s, name)]
    rows = {} if parts is None else parts.rows()
    for item in plan.rows if parts is None else ():
        name = plan.value(item.name)
        row = f"gl.sum({name}, axis=1)" if item.name in plan.program.lane_sums else name
        if whole:  # what else has this name keeps its layout
            rows[name] = plan.names(f"whole:{name}", f"{name}_whole")
        lines.append(f"{rows.get(name, name)} = gl.convert_layout({row}, gl.SliceLayout(1, SUBTILE_LAYOUT))")
    for number in range(plan.s.subtiles):
        sums = [subtile_name(plan.s, name, number, number + 1) for name in plan.sums]
        if plan.sums_apart and not split:
            lines += (tensor_values if plan.values_apart else tensor_sums).read(plan, sums, number)
        lines += splits.sums(plan, sums, number) if split else []
        given = {
            "column": plan.column(number),
            "subtile": str(number),
            **plan.staged.given(number),
            **rows,
        }
        rest = (given.get(one, one) for one in _parameters(plan)[len(sums) :])
        lines += records.stamp(plan, PartitionRole.CONSUMER, records.subtile_event(number))
        lines.append(f"epilogue({', '.join([*sums, *rest])})")
    return lines


def epilogue(plan: KernelPlan) -> Function:
    """The function that does all for one subtile."""
    after, constants = plan.program.after, {"subtile", *plan.staged.constants()}
    # The loop's results that the epilogue reads: sums, and reductions of rows.
    known = {name: Operand(plan.value(name), FULL, DType.F32) for name in plan.summed}
    known |= {item.name: Operand(plan.value(item.name), ROW, DType.F32) for item in plan.rows}
    scope = Names(taken={operand.name for operand in known.values()})
    named = {output.value: output.name for output in after.outputs if output.value not in known}
    lines = [
        "rows = row + gl.arange(0, CONSUMER_ROWS, layout=gl.SliceLayout(1, SUBTILE_LAYOUT))",
        "columns = column + gl.arange(0, SUBTILE_COLUMNS, layout=gl.SliceLayout(0, SUBTILE_LAYOUT))",
        *stored_row(plan),
        *_reads(plan, scope, known),
    ]
    writer = Arithmetic(
        items=after.items,
        s=plan.s,
        name=lambda name, age: scope(name, named.get(name, name.replace("$", "_"))),
        sources=known,
        tile=FULL,
        layout="SUBTILE_LAYOUT",
        asynchronous=True,
        wanted=frozenset(named),
        by_address=frozenset(one.of.value for one in plan.outputs_by_address),
        carried=False,
    )
    lines += writer.phase(tuple(item.name for item in after.items), lambda _: 0, masked=True)
    for argument in plan.outputs_by_address:
        lines.append(store_by_address(plan, argument, writer.operand(argument.of.value)))
    for output in after.tile_outputs:
        lines += stores(plan, output, writer.operand(output.value), "column")
        lines += ragged_store(plan, output)
    given = (f"{one}: gl.constexpr" if one in constants else one for one in _parameters(plan))
    return Function("epilogue", tuple(given), "\n".join(lines), frozenset(writer.called))


def _reads(plan: KernelPlan, scope: Names, known: dict[str, Operand]) -> Iterator[str]:
    """Every source of the epilogue; vectors first, so that their latency is behind other work."""
    sides = {row_role(plan.s.swap): "row", column_role(plan.s.swap): "column"}

    def held(source: Source) -> Operand:
        known[source.name] = operand_of(source, scope(source.name, f"{source.view.tensor}_tile"))
        return known[source.name]

    for vector in plan.late.values():  # masked at the tensor's end
        side = next((name for role, name in sides.items() if role in vector.of.spans), "")
        inside = f"{side}s < {side}_extent" if side else ""
        load = load_text(vector, plan.place("rows", "columns"), inside)
        yield f"{held(vector.of).name} = {load}"
    for one in plan.prefetched.values():
        source, value = one.vector.of, one.name
        if one.along_columns:  # in shared memory
            part = f"{one.name}.slice(subtile * SUBTILE_COLUMNS, SUBTILE_COLUMNS)"
            value = f"{part}.load(gl.SliceLayout(0, SUBTILE_LAYOUT))"
        value += widened(source.view)
        if value == one.name:
            known[source.name] = operand_of(source, one.name)
        else:
            yield f"{held(source).name} = {value}"
    for source in plan.program.after.full:
        yield from _full_input(plan, held(source).name, plan.inputs[source.name])


def _full_input(plan: KernelPlan, name: str, box: Box) -> Iterator[str]:
    """A full tile in shared memory: its copy was started before the loop, or by an earlier subtile."""
    uses = plan.s.subtiles // plan.verified.schedule.buffers.inputs
    place = "subtile % INPUT_BUFFERS" if uses > 1 else "subtile"
    phase = f"(visit * {uses} + subtile // INPUT_BUFFERS) & 1" if uses > 1 else "visit & 1"
    barrier, buffer = f"{box.name}_full.index({place})", f"{box.name}_input.index({place})"
    yield wait(barrier, phase)
    load = tile_load(buffer, box, row_role(plan.s.swap), "SUBTILE_LAYOUT")
    yield f"{name} = {load}{widened(box.view)}"
    staged = plan.program.after.tile_outputs  # behind which there is a fence
    if box in plan.handed_back:
        yield hand_back(f"{box.name}_empty.index({place})")
    elif uses > 1 or (plan.s.persistent and not staged):
        yield FENCE
    if uses > 1:
        later = coordinates(box, plan.place("row", "column + INPUT_BUFFERS * SUBTILE_COLUMNS"))
        refill = [expect(barrier, box.nbytes), tma_load(box.descriptor, later, barrier, buffer)]
        yield when("subtile + INPUT_BUFFERS < SUBTILES", "\n".join(refill))
