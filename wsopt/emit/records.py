"""The records of a traced kernel: which word holds which stamp, and the lines that find a tile's words.

Each role of a block has 32-bit words for each of its first tiles: the events that a tile has once, then for each
K-block the events of a pass. A word that nobody writes stays 0, as it was given: its instruction did not run.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from wsopt.emit.plan import KernelPlan
from wsopt.emit.recipe import PointerArgument, TensorSpec
from wsopt.emit.stamps import Event, Point, Trace, loop_stamp, tile_stamp
from wsopt.emit.unroll import pass_points
from wsopt.graph.types import DType
from wsopt.schedule.program_order import one_by_one
from wsopt.schedule.types import PartitionRole

BEGIN, LOOP, END = "tile", "loop", "end"
"""Events of a tile: it begins, its loop begins, it ends."""


@dataclass(frozen=True, slots=True)
class RoleRecords:
    """The stamps of a role: events that a tile has once, events of a pass. `first` is the word of a block's records
    at which those of its partitions begin, `k_blocks` and `tiles` how many are kept. `name` is the function's, whose
    partitions have `indices`: two loading warps have a function each.
    """

    role: PartitionRole
    name: str
    indices: tuple[int, ...]
    tile: tuple[str, ...]
    passes: tuple[Event, ...]
    first: int
    tiles: int
    k_blocks: int

    @property
    def tile_words(self) -> int:
        """Words of one tile of a partition."""
        return len(self.tile) + self.k_blocks * len(self.passes)

    @property
    def end(self) -> int:
        """The word behind the role's last."""
        return self.first + len(self.indices) * self.tiles * self.tile_words


def layout(plan: KernelPlan) -> tuple[RoleRecords, ...]:
    """The records of one block of a plan that is traced."""
    trace, found = plan.trace, list[RoleRecords]()
    assert trace is not None, "the plan is traced"
    shared: dict[tuple[PartitionRole, str], list[int]] = {}
    for one in plan.verified.schedule.partitions:
        shared.setdefault((one.role, plan.function_name(one.role, one.index)), []).append(one.index)
    for (role, name), indices in shared.items():
        first, kept = found[-1].end if found else 0, _k_blocks(plan, trace)
        tile, passes = tile_events(plan, role), tuple(pass_events(plan, role, indices[0]))
        tiles = 1 if plan.loops_over_tiles else trace.tiles
        found.append(RoleRecords(role, name, tuple(indices), tile, passes, first, tiles, kept))
    return tuple(found)


def _k_blocks(plan: KernelPlan, trace: Trace) -> int:
    """K-blocks of a tile that are traced."""
    return trace.iterations * plan.s.copies


# --- events ---------------------------------------------------------------------------------------------


def tile_events(plan: KernelPlan, role: PartitionRole) -> tuple[str, ...]:
    """The events that a tile of a role has once, by name, in the order of their words."""
    if plan.loops_over_tiles:
        return ()
    if role is PartitionRole.CONSUMER:
        return (BEGIN, LOOP, *map(subtile_event, range(plan.s.subtiles)), END)
    if role is PartitionRole.STORE_WARP:
        stores = range(len(plan.staged.plan.stores))
        return (BEGIN, *(store_event(number, point) for number in stores for point in Point), END)
    return (BEGIN, END)


def subtile_event(number: int) -> str:
    """The start of a subtile of the epilogue."""
    return f"subtile {number}"


def store_event(number: int, point: Point) -> str:
    """A moment of a store that a store warp starts."""
    return f"store {number} {point}"


def pass_events(plan: KernelPlan, role: PartitionRole, index: int = 0) -> Iterator[Event]:
    """The events of a role's pass, in the order of their words: that of its text. `index` is of a loading warp, or of
    a transform warpgroup.
    """
    if role is PartitionRole.LOADER:
        for ring in plan.loaders[index]:
            yield Event(ring.name, Point.REACHED)
            for member, _ in ring.members:
                yield from (Event(str(load), Point.START) for load in ring.loads_of(member))
    elif role in (PartitionRole.MMA_WARP, PartitionRole.TRANSFORM):
        for op in one_by_one(plan.verified, f"{role}{index}"):
            yield from (Event(str(op.id), point) for point in Point)
    elif role is PartitionRole.CONSUMER:
        for masked in (False, True) if plan.program.bounds.every else (False,):
            for one, point in pass_points(plan.verified, overlapped=not masked):
                yield Event(str(one), point, masked)


# --- text -----------------------------------------------------------------------------------------------


def begin(plan: KernelPlan, role: PartitionRole, number: int = 0) -> list[str]:
    """Lines at the start of a role: where its records begin, and the tiles that it has taken.

    It writes them once the kernel before has ended.
    """
    if plan.trace is None:
        return []
    name = plan.function_name(role, number).upper()
    index = f" + index * {name}_RECORDS" if role.of_one_consumer else ""
    pointer = _pointer(plan)
    lines = ["gdc_wait()", f"records = {pointer} + (gl.program_id(0) * BLOCK_RECORDS + {name}_FIRST{index})"]
    if not plan.loops_over_tiles:
        return [*lines, "taken = 0"]
    until = "until = gl.where(gl.program_id(0) < TRACED_BLOCKS, TRACED_K_BLOCKS, 0)"
    return [*lines, f"passes = records + {name}_TILE_STAMPS", until]


def around_tile(plan: KernelPlan, role: PartitionRole, body: str, index: int = 0) -> str:
    """The lines of a role for a tile, with the stamps at its begin and end."""
    if plan.trace is None or plan.loops_over_tiles:
        return body
    name, last = plan.function_name(role, index).upper(), len(tile_events(plan, role)) - 1
    lines = [
        "traced = (gl.program_id(0) < TRACED_BLOCKS) & (taken < TRACED_TILES)",
        f"record = records + taken * {name}_TILE_RECORDS",
    ]
    if any(True for _ in pass_events(plan, role, index)):
        lines += [
            f"passes = record + ({name}_TILE_STAMPS - step * {name}_PASS_STAMPS)",
            "until = step + gl.where(traced, TRACED_K_BLOCKS, 0)",
        ]
    return "\n".join([*lines, *stamp(plan, role, BEGIN), body, tile_stamp(last), "taken += 1"])


def stamp(plan: KernelPlan, role: PartitionRole, event: str) -> list[str]:
    """The line of a stamp that a tile has once; none if the kernel is not traced."""
    if plan.trace is None:
        return []
    return [tile_stamp(tile_events(plan, role).index(event))]


def behind_loop(plan: KernelPlan) -> list[str]:
    """In a text that is read the stamp of what follows a tile's loop: it is the epilogue's."""
    read = plan.trace is not None and not plan.trace.run
    return stamp(plan, PartitionRole.CONSUMER, subtile_event(0)) if read else []


def store_stamp(plan: KernelPlan, number: int, point: Point) -> list[str]:
    """The stamp of a store that a store warp starts; none if the kernel is not traced."""
    if plan.trace is None:
        return []
    return [tile_stamp(tile_events(plan, PartitionRole.STORE_WARP).index(store_event(number, point)))]


def loader_stamp(plan: KernelPlan, event: Event, index: int) -> list[str]:
    """The stamp of a loading warp's copy into a slot; none if the kernel is not traced."""
    return [one] if (one := pass_stamp(plan, PartitionRole.LOADER, event, index)) else []


def pass_stamp(plan: KernelPlan, role: PartitionRole, event: Event, index: int = 0) -> str:
    """The stamp of an event of a role that does one K-block after the other; empty if the kernel is not traced."""
    if plan.trace is None:
        return ""
    number = list(pass_events(plan, role, index)).index(event)
    return loop_stamp(plan.function_name(role, index), "step", number)


def parameters(plan: KernelPlan) -> list[str]:
    """The parameter of every role of a traced kernel."""
    return [_pointer(plan)] if plan.trace is not None else []


def constants(plan: KernelPlan) -> Iterator[tuple[str, str, str]]:
    """Constants of a traced kernel, with comments."""
    if plan.trace is None:
        return
    roles = layout(plan)
    yield "TRACED_BLOCKS", str(plan.trace.blocks), "blocks that keep records"
    yield "TRACED_TILES", str(plan.trace.tiles), "tiles of each of them"
    yield "TRACED_K_BLOCKS", str(_k_blocks(plan, plan.trace)), "K-blocks of each tile"
    yield "BLOCK_RECORDS", str(roles[-1].end), "words of a block's records"
    for one in roles:
        name = one.name.upper()
        yield f"{name}_FIRST", str(one.first), f"where those of {one.name} begin"
        yield f"{name}_RECORDS", str(one.tiles * one.tile_words), "words of a partition"
        yield f"{name}_TILE_RECORDS", str(one.tile_words), "words of a tile"
        yield f"{name}_TILE_STAMPS", str(len(one.tile)), "of them, stamps that a tile has once"
        yield f"{name}_PASS_STAMPS", str(len(one.passes)), "stamps of a K-block"


# --- the kernel's argument ------------------------------------------------------------------------------


def _name(plan: KernelPlan) -> str:
    return plan.names("written:$records", "stamps")


def _pointer(plan: KernelPlan) -> str:
    return f"{_name(plan)}_ptr"


def outputs(plan: KernelPlan) -> tuple[TensorSpec, ...]:
    """The records as an output of the kernel, of zeros until it runs."""
    if plan.trace is None:
        return ()
    words = plan.trace.blocks * layout(plan)[-1].end
    return (TensorSpec(_name(plan), DType.I32, 1, (words,), zeroed=True),)


def arguments(plan: KernelPlan) -> tuple[PointerArgument, ...]:
    """The address of the records."""
    return tuple(PointerArgument(_pointer(plan), one.name, one.dtype) for one in outputs(plan))
