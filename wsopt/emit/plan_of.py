"""The plan of a verified schedule's kernel: each tensor gets its box or address, and each value its name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from wsopt.emit.addresses import ByAddress, places_name
from wsopt.emit.names import (
    DYNAMIC_WORDS,
    FLAT_WORDS,
    OVER_ROWS_WORDS,
    SEGMENT_WORDS,
    SPLIT_WORDS,
    TURNING_WORDS,
    Names,
)
from wsopt.emit.operands import loop_name
from wsopt.emit.plan import KernelPlan
from wsopt.emit.prefetched import Prefetched
from wsopt.emit.rings import NamedBoxes, Ring, loaders
from wsopt.emit.staging import staging
from wsopt.emit.stamps import WORDS, Trace
from wsopt.emit.tensors import Box
from wsopt.perf.epilogue import Refill, k_blocks_ahead, refill
from wsopt.program.epilogue import Epilogue
from wsopt.program.launch_grid import launch_axes
from wsopt.program.over_rows import carried
from wsopt.program.program import Iteration, TileProgram
from wsopt.program.ranges import k_iteration_counts, longest_last
from wsopt.program.types import Structure, column_role, row_role
from wsopt.schedule.verified import VerifiedSchedule
from wsopt.tensors.statements import Reduction, Statement
from wsopt.tensors.views import BATCHES, Output, Role, Source


def plan_of(verified: VerifiedSchedule, trace: Trace | None = None) -> KernelPlan:
    """The plan of a verified schedule's kernel; with a `trace`, of one with stamps."""
    program, buffers = verified.program, verified.schedule.buffers
    s, after, axes = program.structure, program.after, tuple(role for role, _ in program.whole.extents)
    names = Names(subtiles=True, taken=_words(program, trace))
    tensors = _tensors(verified, names)
    ranged, columns = program.work is not None, _has_column_tiles(program)
    counts = _counts(program, axes, columns=columns)
    along = launch_axes(dict(program.whole.extents), s, columns=columns)
    counts_stream = any(isinstance(i, Statement) and i.primitive == "extent_stream" for i in after.items)
    extents = _extents(program, columns=columns, counts_stream=counts_stream)
    return KernelPlan(
        verified=verified,
        names=names,
        longest_last=ranged and longest_last(k_iteration_counts(program.bounds, s)),
        columns=columns,
        axes=axes,
        outer=tuple(str(role) for role in BATCHES if role in axes or (ranged and role is Role.BATCH)),
        launch_axes=along,
        stationary=tensors.stationary,
        rings=tensors.rings,
        loaders=tuple(loaders(verified, tensors.rings)),
        inputs=tensors.inputs,
        vectors=tensors.vectors,
        prefetched=_prefetched(tensors.vectors, s) if after.prefetched else {},
        late={} if after.prefetched else _read_by(after, tensors.vectors),
        outputs=tensors.outputs,
        outputs_by_address=tensors.outputs_by_address,
        staged=staging(program, buffers, tensors.inputs, tensors.outputs),
        refill=Refill(0, 0) if s.parted else refill(program, verified.machine, buffers),
        inputs_ahead=_inputs_ahead(verified),
        rows=_rows(program),
        counts=counts,
        sizes=(*([] if along else counts), *extents, *tensors.places),
        order_table=("order_ptr",) if ranged and s.persistent and not s.parted else (),
        scalars=tensors.scalars,
        counts_stream=counts_stream,
        trace=trace,
        offsets=tensors.offsets,
        ragged=_ragged(after, tensors) if tensors.offsets else {},
    )


# --- tensors and their names ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Tensors:
    """Tensors as `KernelPlan` has them, and the arguments that count the `places` which indices choose from."""

    stationary: tuple[Box, ...]
    rings: tuple[Ring, ...]
    vectors: Mapping[str, ByAddress[Source]]
    inputs: Mapping[str, Box]
    outputs: Mapping[str, Box]
    outputs_by_address: tuple[ByAddress[Output], ...]
    offsets: ByAddress[Source] | None
    scalars: Mapping[str, str]
    places: tuple[str, ...]


def _tensors(verified: VerifiedSchedule, names: Names) -> _Tensors:
    """The tensors of a kernel, each with a name of its own.

    Where two wish for one name the first that asks has it, so that kernels show the order of these lines.
    """
    program, boxes = verified.program, NamedBoxes(verified, names)
    s, after = program.structure, program.after
    subtile = {row_role(s.swap): s.rows, column_role(s.swap): s.subtile_columns}
    stationary = tuple(box for member in program.stationary for box in boxes.held("stationary", member))
    rings = boxes.rings()
    vectors = {x.name: ByAddress(x, names(f"read:{x.name}", x.view.tensor)) for x in after.vectors}
    inputs = {x.name: boxes.box(f"read:{x.name}", x.view.tensor, x.view, subtile) for x in after.full}
    outputs = {
        o.name: boxes.box("written", o.name.replace(".", "_"), o.view, subtile) for o in after.tile_outputs
    }
    outputs_by_address = _outputs_by_address(after, names)
    cut = program.offsets
    offsets = None if cut is None else ByAddress(cut, names("read:offsets", cut.view.tensor))
    scalars = _scalars(program, names)
    chosen = (one.of.view for one in vectors.values() if one.of.view.chosen)
    places = tuple(dict.fromkeys(places_name(names, view) for view in chosen))
    return _Tensors(stationary, rings, vectors, inputs, outputs, outputs_by_address, offsets, scalars, places)


def _words(program: TileProgram, trace: Trace | None) -> set[str]:
    """The words of its own that a kernel's text has, and that no tensor or value may be called."""
    kinds = (
        (trace is not None, WORDS),
        (program.structure.parted, SPLIT_WORDS),
        (bool(carried(program)), OVER_ROWS_WORDS),
        (program.structure.dynamic, DYNAMIC_WORDS),
        (program.turning_bytes > 0, TURNING_WORDS),
        (program.structure.flat, FLAT_WORDS),
        (program.offsets is not None, SEGMENT_WORDS),
    )
    return {word for has, words in kinds if has for word in words}


# --- what an epilogue reads and writes ------------------------------------------------------------------


def _outputs_by_address(after: Epilogue, names: Names) -> tuple[ByAddress[Output], ...]:
    """The outputs that threads store: of one value a row, but for those that are combined over all rows."""
    return tuple(
        ByAddress(o, names(f"written:{o.name}", o.name.replace(".", "_")))
        for o in after.outputs
        if not (o.is_tile or o.over_rows)
    )


def _ragged(after: Epilogue, tensors: _Tensors) -> dict[str, ByAddress[Output]]:
    """The output tiles as threads store them by address, where a tile ends within a segment of rows."""
    return {o.name: ByAddress(o, tensors.outputs[o.name].name) for o in after.tile_outputs}


def _prefetched(vectors: Mapping[str, ByAddress[Source]], s: Structure) -> dict[str, Prefetched]:
    """The vectors as they are loaded at the beginning of the loop, each along rows, columns or neither."""
    rows, columns = row_role(s.swap), column_role(s.swap)
    return {
        name: Prefetched(vector, rows in vector.of.spans, columns in vector.of.spans)
        for name, vector in vectors.items()
    }


def _read_by(after: Epilogue, vectors: Mapping[str, ByAddress[Source]]) -> dict[str, ByAddress[Source]]:
    """The vectors that statements of the epilogue read."""
    read = _values_read(after)
    return {name: vector for name, vector in vectors.items() if name in read}


def _rows(program: TileProgram) -> tuple[Reduction, ...]:
    """The reductions of the loop that the epilogue reads or stores."""
    wanted = _values_read(program.after) | {output.value for output in program.after.outputs}
    return tuple(item for item in program.items if isinstance(item, Reduction) and item.name in wanted)


def _values_read(after: Epilogue) -> frozenset[str]:
    """The names of what statements of the epilogue read."""
    return frozenset(name for item in after.items for name in item.reads)


# --- the loop and its tiles -----------------------------------------------------------------------------


def _scalars(program: TileProgram, names: Names) -> dict[str, str]:
    """The names in registers of the run-time scalars that bound a tile's K-blocks, by source."""
    views = {source.name: source for source in program.after.vectors}
    every = (name for bound in program.bounds.every for name in bound.scalars)
    return {name: loop_name(names, views[name]) for name in every}


def _inputs_ahead(verified: VerifiedSchedule) -> int:
    """K-blocks of a tile that the loading warp copies behind the epilogue's inputs; 0 where it copies no inputs."""
    schedule, program = verified.schedule, verified.program
    if not schedule.buffers.inputs_by_loader:
        return 0
    slots = min(schedule.depth(plan.name) for plan in program.rings if plan.copied)
    return k_blocks_ahead(program, verified.machine, schedule.ii, slots)


# --- arguments that count -------------------------------------------------------------------------------


def _has_column_tiles(program: TileProgram) -> bool:
    """Whether tiles are counted along columns too: not where one has them all, nor where a table deals tiles out."""
    return not (program.work is not None or program.whole_rows or program.long_rows or program.all_columns)


def _counts(program: TileProgram, axes: tuple[Role, ...], *, columns: bool) -> tuple[str, ...]:
    """Arguments that are counts: batches, tiles along rows and `columns`, K-blocks where all tiles have as many, and
    tiles or parts of tiles where several blocks share a tile whose loop computes values.
    """
    s, ranged = program.structure, program.work is not None
    asked = {
        "groups": Role.GROUP in axes,
        "heads": Role.HEAD in axes,
        "batches": not ranged and Role.BATCH in axes,
        "row_tiles": Role.SEGMENT not in axes,
        "segments": Role.SEGMENT in axes,
        "column_tiles": columns,
        "k_iterations": columns and program.iteration is not Iteration.TILE,
        "tiles": ranged and s.shares,
        "parts": ranged and not s.shares and s.splits > 1,
    }
    return tuple(name for name, wanted in asked.items() if wanted)


def _extents(program: TileProgram, *, columns: bool, counts_stream: bool) -> tuple[str, ...]:
    """Arguments that are extents, in elements: the streamed axis's where bounds or a statement look at it."""
    asked = {
        "row_extent": True,
        "column_extent": columns or program.iteration is not Iteration.TILE,
        "stream_extent": program.work is not None or counts_stream,
    }
    return tuple(name for name, wanted in asked.items() if wanted)
