"""A tile of a consumer whose loop is products alone: its loop with what goes on under it, and its epilogue.

The epilogue's vectors are asked for while the first products are under way. Full inputs whose buffers the tile
before has lent to its stores are copied some passes into the loop, when those stores have read them.
"""

from __future__ import annotations

from collections.abc import Sequence

from wsopt.emit import inputs, text
from wsopt.emit.held import load_lines, store_lines
from wsopt.emit.instructions import Instruction, Loop, Mma, TurnPass, TurnWait
from wsopt.emit.plan import KernelPlan
from wsopt.schedule.verified import VerifiedSchedule


def coordinates(plan: KernelPlan) -> str:
    """The line that works out where the tile lies."""
    target = ("batch, " if plan.has_batch else "") + "row_tile, column_tile"
    tile = "tile" if plan.s.persistent else "gl.program_id(0)"
    return f"{target} = tile_coordinates({tile}, row_tiles, column_tiles)"


def place_lines(plan: KernelPlan) -> list[str]:
    """The first row and column of a consumer's tile."""
    alone = plan.in_turns or plan.s.consumers == 1
    row = "row_tile * TILE_ROWS" + ("" if alone else " + index * CONSUMER_ROWS")
    return [f"row = {row}", "column = column_tile * TILE_COLUMNS"]


def starts_stores(plan: KernelPlan) -> list[str]:
    """What a consumer stores its tiles with: the descriptors, or the barriers that it shares with its store warp."""
    return [*plan.staged().barriers] or [box.descriptor for box in plan.outputs().values()]


def consumer_body(plan: KernelPlan) -> str:
    """All that a consumer does for a tile."""
    lines = [*place_lines(plan), *_loop_text(plan), *_epilogue_calls(plan), "visit += 1"]
    if plan.in_turns:
        lines.append("step += (CONSUMERS - 1) * k_iterations")
    return "\n".join(lines)


def covering_k_blocks(verified: VerifiedSchedule) -> int:
    """The least K-blocks of a tile with which every pass of a consumer's loop runs; 1 where it computes values."""
    region = verified.program.region
    if region.body or region.streams_rows:
        return 1
    plan = KernelPlan(verified)
    loop, when, buffers = plan.loop(), plan.refill, verified.schedule.buffers.inputs
    pauses = when.first + (buffers - 1) * when.apart if when.apart else when.first
    return (loop.first + pauses + 1 + loop.peeled) * plan.s.copies


def epilogue_parameters(plan: KernelPlan) -> list[str]:
    """What the function that treats one piece is given."""
    place = (["batch"] if plan.has_batch else []) + ["row", "column", "row_extent", "column_extent", "visit"]
    place += ["stream_extent"] if plan.program.region.counts_stream else []
    refilled = inputs.refilled_descriptors(plan)
    vectors = [one.name for one in plan.held().values()]
    tensors = [*vectors, *refilled, *inputs.input_names(plan), *starts_stores(plan)]
    staged = plan.staged().parameters()
    return [*plan.sums(), *plan.rows().values(), *tensors, *place, "piece: gl.constexpr", *staged]


def _loop_text(plan: KernelPlan) -> list[str]:
    """The streamed loop of a consumer, with its turn around it."""
    loop = plan.loop()
    vectors = load_lines(plan.held().values(), plan.vector_places())
    when = plan.refill
    copies = inputs.input_loads(plan) if not (when.first or when.apart) else ""
    begins = [*plan.cleared(), *([TurnWait()] if plan.in_turns else [])]
    parts = [text.write([*begins, *loop.prologue]), "\n".join(vectors), copies]
    if plan.in_turns or not any(isinstance(one, Mma) for one in loop.prologue):
        parts = [*parts[1:], parts[0]]  # else products are under way while inputs are asked for
    parts += _steady_text(plan, loop)
    parts.append(text.write(_passing_turn(loop.drain) if plan.in_turns else loop.drain))
    parts += store_lines(plan.held().values())
    return [part for part in parts if part]


def _steady_text(plan: KernelPlan, loop: Loop) -> list[str]:
    """The steady passes: one loop, or some of them before the copies of inputs, which stand apart, and the rest."""
    body = text.write(loop.steady)
    variable = "k" if any("k > " in line for line in body.split("\n")) else "_"
    end = "k_iterations" if plan.s.copies == 1 else f"k_iterations // {plan.s.copies}"
    end += f" - {loop.peeled}" if loop.peeled else ""

    def passing(begin: str, until: str) -> str:
        return f"for {variable} in range({begin}, {until}):\n" + text.block(body)

    first, when = str(loop.first), plan.refill
    before = f"{first} + REFILL_PASSES" if loop.first else "REFILL_PASSES"
    if when.apart:
        pause = f"pause = gl.minimum({end}, {before} + piece * REFILL_APART)"
        lines = [pause, passing("begin", "pause"), "begin = pause"]
        return [f"begin = {first}", inputs.input_loads(plan, "\n".join(lines)), passing("begin", end)]
    if when.first:
        pause = f"pause = gl.minimum({end}, {before})"
        return [pause, passing(first, "pause"), inputs.input_loads(plan), passing("pause", end)]
    return [passing(first, end)]


def _passing_turn(drain: Sequence[Instruction]) -> list[Instruction]:
    """The drain with the hand-over of the turn, once the last K-block is there and its products are issued.

    The next consumer may go round the ring to that K-block's slot: before its copy has ended the barrier's phase
    would be taken for the one after it.
    """
    issued = max((place for place, one in enumerate(drain, 1) if isinstance(one, Mma)), default=0)
    return [*drain[:issued], TurnPass(), *drain[issued:]]


def _epilogue_calls(plan: KernelPlan) -> list[str]:
    lines = [line for name in plan.sums() for line in text.split_pieces(plan, name, 0, plan.s.pieces)]
    rows = plan.rows().values()
    lines += [f"{name} = gl.convert_layout({name}, gl.SliceLayout(1, PIECE_LAYOUT))" for name in rows]
    for piece in range(plan.s.pieces):
        sums = [text.piece_name(plan, name, piece, piece + 1) for name in plan.sums()]
        column = f"column + {piece} * PIECE_COLUMNS" if piece else "column"
        given = {"row": "row", "column": column, "piece": str(piece)}
        given |= plan.staged().given(piece)
        rest = [given.get(p.partition(":")[0], p) for p in epilogue_parameters(plan)[len(sums) :]]
        lines.append(f"epilogue({', '.join([*sums, *rest])})")
    return lines
