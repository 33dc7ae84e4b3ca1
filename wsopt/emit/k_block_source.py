"""The text of a kernel whose loop computes values: what its template asks for, from the plan."""

from __future__ import annotations

from typing import Any

from wsopt.emit import inputs, text
from wsopt.emit.addresses import VectorArgument
from wsopt.emit.instructions import Advance, Expect, Instruction, Release, WaitEmpty, WaitFull
from wsopt.emit.k_block_plan import KBlockPlan, Stretch
from wsopt.emit.tensors import GLUON, zero
from wsopt.frontend.types import Role
from wsopt.graph.types import DType


def k_block_context(plan: KBlockPlan) -> dict[str, Any]:
    """What the device part of such a kernel's template needs."""
    return {
        "device": "k_blocks.jinja",
        "has_group": plan.has_group,
        "longest_last": plan.longest_last,
        "range_lines": plan.range_lines(),
        "own_k_blocks": plan.own_k_blocks,
        "loader_parameters": _loader_parameters(plan),
        "body_indent": 8 if plan.s.persistent else 4,
        "loader_body": _loader_body(plan),
        "coordinates_target": ("batch, group" if plan.has_group else "batch") + ", row_tile",
        "consumer_parameters": _consumer_parameters(plan),
        "loops": "\n".join(_loops(plan)),
        "consumer_body": _consumer_body(plan),
        "epilogue_parameters": _epilogue_parameters(plan),
        "early_reads": bool(plan.s.persistent or plan.vectors() or plan.inputs()),
        "allocations": _allocations(plan),
        "barriers": _barriers(plan),
        "partitions": text.partitions(
            plan, _loader_parameters(plan), _consumer_parameters(plan), set(_buffers(plan))
        ),
    }


def k_block_constants(plan: KBlockPlan) -> list[tuple[str, str, str]]:
    """The constants of the kernel: name, value, comment."""
    s = plan.s
    (stationary,) = plan.stationary_operands()
    found = [
        ("TILE_ROWS", str(s.tile_rows), ""),
        ("TILE_COLUMNS", str(s.columns), ""),
        ("TILE_DEPTH", str(s.depth), "elements of the streamed axis in a K-block"),
        ("CONSUMERS", str(s.consumers), ""),
        ("CONSUMER_ROWS", str(s.rows), ""),
        ("PIECE_COLUMNS", str(s.piece_columns), "columns that the epilogue treats at a time"),
        ("STATIONARY_BYTES", str(stationary.nbytes * s.consumers), "bytes of the tiles that the loop holds"),
        ("STATIONARY_SETS", str(s.stationary_sets), "sets of them: the next tile's come while the loop runs"),
    ]
    found += [
        (plan.depth_name(ring), str(plan.slots(ring)), f"slots of {ring.name}") for ring in plan.rings()
    ]
    found += inputs.input_constants(plan)
    if plan.may_fall_short:
        found.append(
            (
                "LEAST",
                str(plan.k_block_loop(masked=False).least),
                "k_blocks that the overlapped loop takes at least",
            )
        )
    return found


def k_block_layouts(plan: KBlockPlan) -> list[tuple[str, int]]:
    """Layouts of tiles in registers besides those of the epilogue, with their columns."""
    return [("K_BLOCK_LAYOUT", plan.s.depth)]


def _loader_body(plan: KBlockPlan) -> str:
    """What the loader does for a tile: the tiles that the loop holds, then the K-blocks that any consumer needs."""
    lines = [
        "row = row_tile * TILE_ROWS",
        f"begin, whole_begin, whole_end, end = {_tile_range()}",
        text.write(plan.stationary_loads()),
        "for k_block in range(begin, end):",
        text.block(text.write([*_fills(plan), Advance(1)])),
        "visit += 1",
    ]
    return "\n".join(lines)


def _range(row: str, height: str, first: str, last: str) -> str:
    return f"k_block_range({row}, {height}, {first}, {last}, row_extent, stream_extent)"


def _tile_range() -> str:
    k_blocks = "(stream_extent + TILE_DEPTH - 1) // TILE_DEPTH"
    return _range("row_tile * TILE_ROWS", "TILE_ROWS", "0", k_blocks)


def _consumer_body(plan: KBlockPlan) -> str:
    """What a consumer does for a tile: its own K-blocks among those of the tile, then its epilogue."""
    own = plan.own_k_blocks
    target = "tile_begin, whole_begin, whole_end, tile_end" if own else "begin, whole_begin, whole_end, end"
    lines = [f"{target} = {_tile_range()}", "row = row_tile * TILE_ROWS + index * CONSUMER_ROWS"]
    if own:
        narrowed = _range("row", "CONSUMER_ROWS", "tile_begin", "tile_end")
        lines.append(f"begin, whole_begin, whole_end, end = {narrowed}")
    lines += [
        f"origin = {'tile_begin' if own else 'begin'} - step",
        "rows = row + gl.arange(0, CONSUMER_ROWS, layout=gl.SliceLayout(1, K_BLOCK_LAYOUT))",
        *_before_loop(plan),
    ]
    if plan.inputs():
        lines.append(inputs.input_loads(plan))
    lines.append(text.write([WaitFull("stationary", "visit", "STATIONARY_SETS")]))
    lines += _passed(plan, "tile_begin", "begin") if own and plan.live.waits else []
    lines += _loops(plan)
    lines += _passed(plan, "end", "tile_end") if own else []
    if plan.s.persistent:
        lines.append(text.write([Release("stationary", "visit", "STATIONARY_SETS")]))
    return "\n".join([*lines, *_epilogue_calls(plan), "visit += 1"])


def _passed(plan: KBlockPlan, first: str, last: str) -> list[str]:
    """K-blocks that count for rows of other consumers alone: handed back as they come.

    Not before: where a K-block counts for nobody's rows, its slot would be filled again under the copy.
    """
    found: list[Instruction] = []
    for ring in plan.rings():
        depth = plan.depth_name(ring)
        found += [WaitFull(ring.name, "step", depth), Release(ring.name, "step", depth)]
    return [f"for _ in range({first}, {last}):\n" + text.block(text.write([*found, Advance(1)]))]


def _fills(plan: KBlockPlan) -> list[Instruction]:
    found: list[Instruction] = []
    for ring, loads in plan.k_block_copies():
        nbytes = str(ring.box.nbytes * ring.per_slot)
        found += [
            WaitEmpty(ring.name, "step", plan.depth_name(ring)),
            Expect(loads[0].barrier, nbytes),
            *loads,
        ]
    return found


def _ring_names(plan: KBlockPlan) -> list[str]:
    return [name for ring in plan.rings() for name in (ring.name, f"{ring.name}_full", f"{ring.name}_empty")]


def _held(plan: KBlockPlan) -> list[str]:
    returned = ["stationary_empty"] if plan.s.persistent else []
    return [f"{box.name}_held" for box in plan.stationary_operands()] + ["stationary_full", *returned]


def _loader_parameters(plan: KBlockPlan) -> list[str]:
    descriptors = [box.descriptor for box in plan.moved()]
    return [*descriptors, *_held(plan), *_ring_names(plan), *plan.walk(), *plan.sizes()]


def _vectors(plan: KBlockPlan, wanted: set[str]) -> list[str]:
    return [
        name
        for source, vector in plan.vectors().items()
        if source in wanted
        for name in (vector.pointer, *(stride for _, stride in vector.strides))
    ]


def _buffers(plan: KBlockPlan) -> list[str]:
    """Names of a consumer's own buffers and barriers."""
    return inputs.input_names(plan) + [pool.name for pool in plan.pools()]


def _stores(plan: KBlockPlan) -> list[str]:
    rows = [
        name for row in plan.row_outputs() for name in (row.pointer, *(stride for _, stride in row.strides))
    ]
    return [*rows, *(box.descriptor for box in plan.outputs().values())]


def _consumer_parameters(plan: KBlockPlan) -> list[str]:
    vectors = _vectors(plan, plan.loop_reads() | plan.epilogue_reads())
    loads = inputs.input_descriptors(plan)
    names = [
        *_held(plan),
        *_ring_names(plan),
        *loads,
        *vectors,
        *_buffers(plan),
        *_stores(plan),
        *plan.walk(),
        *plan.sizes(),
    ]
    return [*names, "index: gl.constexpr"]


def _epilogue_parameters(plan: KBlockPlan) -> list[str]:
    rows = [plan.writer().name(item.name) for item in plan.epilogue_rows()]
    place = [
        "batch",
        *(["group"] if plan.has_group else []),
        "row",
        "column",
        "row_extent",
        "column_extent",
        "visit",
        *(["stream_extent"] if plan.program.region.counts_stream else []),
    ]
    vectors = _vectors(plan, plan.epilogue_reads())
    tensors = [*vectors, *inputs.refilled_descriptors(plan), *inputs.input_names(plan), *_stores(plan)]
    return [*plan.sums(), *rows, *tensors, *place, "piece: gl.constexpr", *plan.staged().parameters()]


def _epilogue_calls(plan: KBlockPlan) -> list[str]:
    lines = [line for name in plan.sums() for line in text.split_pieces(plan, name, 0, plan.s.pieces)]
    writer = plan.writer()
    for item in plan.epilogue_rows():
        name = writer.name(item.name)
        whole = f"gl.sum({name}, axis=1)" if item.name in writer.apart else name
        lines.append(f"{name} = gl.convert_layout({whole}, gl.SliceLayout(1, PIECE_LAYOUT))")
    for piece in range(plan.s.pieces):
        sums = [text.piece_name(plan, name, piece, piece + 1) for name in plan.sums()]
        given = {"column": f"{piece} * PIECE_COLUMNS" if piece else "0", "piece": str(piece)}
        given |= plan.staged().given(piece)
        rest = [given.get(p.partition(":")[0], p) for p in _epilogue_parameters(plan)[len(sums) :]]
        lines.append(f"epilogue({', '.join([*sums, *rest])})")
    return lines


def _before_loop(plan: KBlockPlan) -> list[str]:
    """What the loop carries, and the vectors that its values read."""
    writer = plan.writer()
    lines = [f"{name} = {start}" for name, start in writer.starts(plan.older_values())]
    once = sorted(plan.loop_reads() & plan.vectors().keys())
    return lines + [f"{writer.sources[name].name} = {load_text(plan.vectors()[name])}" for name in once]


def load_text(vector: VectorArgument) -> str:
    """The load of a vector or scalar that a loop's values read, in the type that they compute with."""
    index = {Role.ROW: "rows", Role.BATCH: "batch", Role.GROUP: "group"}
    spans = vector.source.spans
    dtype = vector.source.view.dtype
    mask = f", mask=rows < row_extent, other={zero(dtype)}" if Role.ROW in spans else ""
    cast = f".to({GLUON[DType.F32]})" if dtype.is_float and dtype is not DType.F32 else ""
    return f"gl.load({vector.at(index)}{mask}){cast}"


def _loops(plan: KBlockPlan) -> list[str]:
    """The loops over a tile's K-blocks, one after the other."""
    lines: list[str] = []
    for stretch in plan.stretches():
        loop = _loop(stretch)
        if stretch.guarded:
            lines.append(f"if whole_end > {stretch.first}:")
            loop = [text.block(line) for line in loop]
        lines += loop
    if plan.may_fall_short:
        lines = ["if whole_end - whole_begin < LEAST:", "    whole_end = whole_begin", *lines]
    return lines


def _loop(stretch: Stretch) -> list[str]:
    loop = stretch.loop
    start = f"{stretch.first} + {loop.first}" if loop.first else stretch.first
    steady = f"for _ in range({start}, {stretch.last}):\n" + text.block(text.write(loop.steady))
    parts = [text.write(loop.prologue), steady if loop.steady else "", text.write(loop.drain)]
    return [part for part in parts if part]


def _allocations(plan: KBlockPlan) -> list[str]:
    sets = "STATIONARY_SETS * CONSUMERS" if plan.s.persistent else "CONSUMERS"
    lines = [text.allocate(f"{box.name}_held", box.gluon, sets, box) for box in plan.stationary_operands()]
    lines += [text.barrier(name, "STATIONARY_SETS") for name in _held(plan) if name.startswith("stationary_")]
    for ring in plan.rings():
        depth = plan.depth_name(ring)
        count = depth if ring.per_slot == 1 else f"{depth} * CONSUMERS"
        lines.append(text.allocate(ring.name, ring.box.gluon, count, ring.box))
        lines += [text.barrier(f"{ring.name}_{what}", depth) for what in ("full", "empty")]
    for consumer in range(plan.s.consumers):
        lines += inputs.input_allocations(plan, consumer)
        for pool in plan.pools():
            lines.append(text.allocate(f"{pool.name}_{consumer}", pool.box.gluon, str(pool.count), pool.box))
    return lines


def _barriers(plan: KBlockPlan) -> list[tuple[str, list[tuple[str, int]]]]:
    stationary = [("stationary_full", 1)] + (
        [("stationary_empty", plan.s.consumers)] if plan.s.persistent else []
    )
    found: list[tuple[str, list[tuple[str, int]]]] = [("STATIONARY_SETS", stationary)]
    for ring in plan.rings():
        pair = [(f"{ring.name}_full", 1), (f"{ring.name}_empty", plan.s.consumers)]
        found.append((plan.depth_name(ring), pair))
    return found + inputs.input_barriers(plan)
