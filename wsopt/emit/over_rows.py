"""Reductions over all rows: what a consumer carries from tile to tile and leaves, and who brings it together.

A consumer carries one value a column where a thread has all rows of its columns, else one an element of its tile:
nothing goes from thread to thread in the loop. Behind it comes one value a column, which it leaves in a workspace as
its part. Parts are added up in bundles, and then bundles, each by whoever arrives last and always in their order, so
that the result does not depend on timing. Nobody waits.

The workspace has a place for each part, those of a block's consumers side by side, and behind them one for each
bundle.
"""

from __future__ import annotations

from collections.abc import Iterator

from wsopt.emit.addresses import ByAddress
from wsopt.emit.arithmetic import Arithmetic
from wsopt.emit.called import LARGER
from wsopt.emit.expressions import Operand
from wsopt.emit.functions import Function
from wsopt.emit.instructions import when
from wsopt.emit.integers import ceil_divide, named
from wsopt.emit.operands import loop_name, operand_of, rows_layout
from wsopt.emit.plan import KernelPlan
from wsopt.emit.recipe import Workspace
from wsopt.emit.reductions import of_columns
from wsopt.emit.splits import PARAMETERS
from wsopt.emit.tensors import GLUON
from wsopt.emit.vectors import load
from wsopt.graph.types import DType
from wsopt.program.over_rows import bundle_parts, columns_of_thread, parts_together
from wsopt.tensors.statements import Reduction
from wsopt.tensors.views import FULL, Output, Role

_WORKSPACE, _ARRIVALS = PARAMETERS
COLUMN_BLOCKS = "column_blocks"
"""The launcher's name of the blocks that take tiles of the same columns."""

_END = "end_of_rows"
_LAYOUT = "PARTS_LAYOUT"
_VECTOR = 4
"""Elements of f32 that a thread loads at a time, 16 bytes."""
_COLUMN = frozenset({Role.COLUMN})
_STARTS = {"sum": "0.0", "max": 'float("-inf")'}
_TOGETHER = {"sum": "result + value", "max": f"{LARGER}(result, value)"}
_OF_PARTS = {"sum": "added_up", "max": "largest_of"}
"""The device functions that bring parts together, by the kind of reduction."""


def constants(plan: KernelPlan) -> list[tuple[str, int | str, str]]:
    """Constants of a kernel whose blocks carry reductions over rows, with comments."""
    if not plan.carried:
        return []
    program, machine, s = plan.program, plan.verified.machine, plan.s
    each = columns_of_thread(s, machine)
    layout = f"[{min(_VECTOR, each)}], [{machine.threads_per_warp}], [{s.consumer_warps}], [0]"
    return [
        ("PARTIAL_SUMS", len(plan.carried) * s.columns, "elements of a consumer's part of what is carried"),
        ("BUNDLE_PARTS", bundle_parts(program, machine), "parts that are added up at a time"),
        ("PARTS_TOGETHER", parts_together(each, plan.consumer_registers), "parts whose loads go together"),
        (
            _LAYOUT,
            f"gl.BlockedLayout({layout})",
            "columns over a consumer's threads, while parts are added up",
        ),
    ]


def device(plan: KernelPlan) -> list[dict[str, str]]:
    """Values for the template of the functions that bring parts together; none if nothing is carried."""
    kinds = sorted({one.kind for one in plan.carried})
    return [
        {"name": _OF_PARTS[kind], "neutral": _STARTS[kind], "together": _TOGETHER[kind]} for kind in kinds
    ]


def workspaces(plan: KernelPlan) -> tuple[Workspace, ...]:
    """The memory that a launch needs besides its tensors: for each tile of columns the same."""
    if not plan.carried:
        return ()
    parts, times = named("blocks") * plan.s.consumers, named("column_tiles") if plan.columns else 1
    if plan.columns:
        parts = named(COLUMN_BLOCKS) * plan.s.consumers
    bundles = ceil_divide(parts, bundle_parts(plan.program, plan.verified.machine))
    places = (parts + bundles) * (len(plan.carried) * plan.s.columns)
    return (
        Workspace(_WORKSPACE, DType.F32, places * times, zeroed=False),
        Workspace(_ARRIVALS, DType.I32, (bundles + 1) * times, zeroed=True),
    )


def outputs(plan: KernelPlan) -> tuple[ByAddress[Output], ...]:
    """The outputs that are stored when all rows have been seen."""
    found = (one for one in plan.program.after.outputs if one.over_rows)
    return tuple(ByAddress(one, plan.names(f"written:{one.name}", one.name)) for one in found)


def stored(plan: KernelPlan) -> list[str]:
    """The kernel's arguments for the stores of these outputs."""
    return [argument for one in outputs(plan) for argument in one.arguments]


def starts(plan: KernelPlan) -> Iterator[str]:
    """The lines before a block's first tile: what it carries, with nothing in it."""
    rows, layout = "CONSUMER_ROWS, ", plan.loop_layout
    if columns_together(plan):
        rows, layout = "", f"gl.SliceLayout(0, {layout})"
    for one in plan.carried:
        shape = f"[{rows}TILE_COLUMNS], {_STARTS[one.kind]}, gl.float32, {layout}"
        yield f"{plan.value(one.name)} = gl.full({shape})"


def ended(plan: KernelPlan) -> list[str]:
    """The lines of a consumer behind its last tile: it leaves its part, and ends its bundle, and all, if it is the
    last to arrive.
    """
    if not plan.carried:
        return []
    layout = f"gl.SliceLayout(0, {plan.loop_layout})"
    return [
        *_number(plan),
        f"own_part = {'first_place' if plan.columns else _WORKSPACE} + part * PARTIAL_SUMS",
        f"within = gl.arange(0, TILE_COLUMNS, layout={layout})",
        *(
            f"gl.store({_place('own_part', number)}, {_left(plan, one)})"
            for number, one in enumerate(plan.carried)
        ),
        f"{_END}({', '.join(_arguments(plan))})",
    ]


def _number(plan: KernelPlan) -> Iterator[str]:
    """The lines with the number of a consumer's part, and how many there are; where tiles have some of the columns,
    with the first place and counter of those that are of the block's.
    """
    blocks = " // column_tiles" if plan.columns else ""
    each, own = (" * CONSUMERS", " + index") if plan.s.consumers > 1 else ("", "")
    yield f"part = gl.program_id(0){blocks}{each}{own}"
    yield f"parts = gl.num_programs(0){blocks}{each}"
    if plan.columns:
        yield "column_tile = gl.program_id(0) % column_tiles"
        yield "column = column_tile * TILE_COLUMNS"
        yield "bundles = gl.cdiv(parts, BUNDLE_PARTS)"
        yield f"first_place = {_WORKSPACE} + column_tile * (parts + bundles) * PARTIAL_SUMS"
        yield f"first_counter = {_ARRIVALS} + column_tile * (bundles + 1)"


def end_function(plan: KernelPlan) -> Function:
    """The function that brings parts together where they have all arrived."""
    writer, own = _writer(plan), frozenset(_OF_PARTS[one.kind] for one in plan.carried)
    every = when(f"last_to_arrive({_ARRIVALS} + bundles, bundles)", "\n".join(_all(plan, writer)))
    lines = [
        f"within = gl.arange(0, TILE_COLUMNS, layout={_LAYOUT})",
        "bundle = part // BUNDLE_PARTS",
        "bundles = gl.cdiv(parts, BUNDLE_PARTS)",
        "count = gl.minimum(parts - bundle * BUNDLE_PARTS, BUNDLE_PARTS)",
        when(f"last_to_arrive({_ARRIVALS} + bundle, count)", "\n".join([*_bundle(plan), every])),
    ]
    return Function(_END, _parameters(plan), "\n".join(lines), frozenset(writer.called) | own)


def _parameters(plan: KernelPlan) -> tuple[str, ...]:
    """The parameters of the function that brings parts together: numbers of parts, the workspace, and tensors that it
    loads and stores by address.
    """
    read = {name for item in plan.program.after.items for name in item.reads}
    vectors = [a for name, one in plan.vectors.items() if name in read for a in one.arguments]
    columns = ("column", "column_extent") if plan.columns else ()
    return ("part", "parts", *PARAMETERS, *vectors, *stored(plan), *columns)


def _arguments(plan: KernelPlan) -> Iterator[str]:
    """The arguments of its call; a block whose tiles have some of the columns has a part of the workspace."""
    own = dict(zip(PARAMETERS, ("first_place", "first_counter"), strict=True)) if plan.columns else {}
    return (own.get(name, name) for name in _parameters(plan))


def columns_together(plan: KernelPlan) -> bool:
    """Whether a thread has all rows of its columns, and carries one value of each."""
    return bool(plan.carried) and rows_layout(plan).rows == 1


def _left(plan: KernelPlan, one: Reduction) -> str:
    """What a consumer leaves of a reduction: one value a column."""
    value = plan.value(one.name)
    return value if columns_together(plan) else of_columns(one, value)


def _place(begin: str, number: int) -> str:
    """The places of one of the reductions' columns, of the part or bundle that begins there."""
    return f"{_begin(begin, number)} + within"


def _begin(begin: str, number: int) -> str:
    return begin + (f" + {number} * TILE_COLUMNS" if number else "")


def _together(one: Reduction, begin: str, number: int, count: str) -> str:
    """The call that brings so many parts of one of the reductions together."""
    return f"{_OF_PARTS[one.kind]}({_begin(begin, number)}, within, {count})"


def _bundle(plan: KernelPlan) -> Iterator[str]:
    """The lines that leave what a bundle of parts comes to."""
    yield f"first_part = {_WORKSPACE} + bundle * BUNDLE_PARTS * PARTIAL_SUMS"
    yield f"own_bundle = {_WORKSPACE} + (parts + bundle) * PARTIAL_SUMS"
    for number, one in enumerate(plan.carried):
        yield f"gl.store({_place('own_bundle', number)}, {_together(one, 'first_part', number, 'count')})"


def _all(plan: KernelPlan, writer: Arithmetic) -> Iterator[str]:
    """The lines that bring all bundles together, compute what follows, and store it."""
    yield f"first_bundle = {_WORKSPACE} + parts * PARTIAL_SUMS"
    for number, one in enumerate(plan.carried):
        yield f"{_result(plan, one)} = {_together(one, 'first_bundle', number, 'bundles')}"
    yield "columns = column + within" if plan.columns else "columns = within"
    for name in sorted(writer.sources.keys() & plan.vectors.keys()):
        yield f"{writer.sources[name].name} = {load(plan, name)}"
    yield from writer.phase(tuple(item.name for item in plan.program.after.items), lambda _: 0, masked=True)
    ragged = plan.columns or plan.program.whole.extent(Role.COLUMN) != plan.s.columns
    mask = f", mask=columns < {'column_extent' if plan.columns else 'ROW_LENGTH'}" if ragged else ""
    for output in outputs(plan):
        value, dtype = writer.operand(output.of.value), output.of.view.dtype
        text = value.name if value.dtype is dtype else f"{value.name}.to({GLUON[dtype]})"
        yield f"gl.store({output.at(plan.place('rows', 'columns'))}, {text}{mask})"


def _result(plan: KernelPlan, one: Reduction) -> str:
    """The identifier of a reduction over all rows."""
    return plan.names(f"all:{one.name}", f"{plan.value(one.name)}_all")


def _writer(plan: KernelPlan) -> Arithmetic:
    """Writes what follows the reductions over all rows: values of columns."""
    after = plan.program.after
    known = {one.name: Operand(_result(plan, one), _COLUMN, DType.F32) for one in plan.carried}
    read = {name for item in after.items for name in item.reads}
    for source in after.vectors:
        if source.name in read:
            known[source.name] = operand_of(source, loop_name(plan.names, source))
    return Arithmetic(
        items=after.items,
        s=plan.s,
        name=lambda name, _: plan.names(f"end:{name}", f"{plan.value(name)}_end"),
        sources=known,
        tile=FULL,
        layout=_LAYOUT,
        asynchronous=False,
        wanted=frozenset(output.of.value for output in outputs(plan)),
        carried=False,
    )
