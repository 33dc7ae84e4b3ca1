"""Split sums: the K-blocks of a tile are shared by several blocks, and the last of them to arrive adds up the sums.

Here is what loops of products need, and what all have in common; what a loop leaves that computes values, and how
that comes together, is in `combination.py`.

A work item is a part of a tile: some of its K-blocks. A consumer leaves its partial sums of a part in a workspace and
arrives at a counter of its rows of the tile. Whoever arrives last reads the partial sums of all parts, always in the
order of the parts, so that the result does not depend on timing, and computes the epilogue. Nobody waits. By atomics
all parts of a tile are added up in one place, in whatever order they come, which the last one leaves as zeros.

The workspace has a place for each consumer of each part: for every product the consumer's rows in f32, in the order
in which the threads have them (`places_of` in the template).
"""

from __future__ import annotations

from collections.abc import Iterable

from wsopt.emit import shares
from wsopt.emit.combination import parts_of
from wsopt.emit.grid import tiles
from wsopt.emit.instructions import when
from wsopt.emit.integers import PYTHON, Integer, named
from wsopt.emit.plan import KernelPlan
from wsopt.emit.recipe import Workspace
from wsopt.emit.sums import accumulator_names, accumulators
from wsopt.graph.types import DType

_WORKSPACE, _ARRIVALS = PARAMETERS = ("workspace_ptr", "arrivals_ptr")
"""The kernel's arguments: the places of partial sums (f32), and a counter for each consumer of a tile (i32)."""

_KEPT = 64
"""Registers of a consumer that hold other things than sums while it adds them up: addresses, and what the epilogue
reads. With so many ptxas spilled nothing in tiles of 64 to 256 columns and 2 to 16 parts (Triton 3.9, sm_90).
"""

MOST_PARTS = 31
"""Parts of a block, one for each bit."""

PART_RANGE = "first, last = part_range(part, k_iterations)"
"""The line with the K-blocks of a part."""


def constants(plan: KernelPlan, least: int) -> list[tuple[str, int | str, str]]:
    """Constants of a kernel whose sums are split, with comments; its loop takes `least` passes."""
    if not plan.split:
        return []
    parts = parts_of(plan)
    ways = ("SPLITS", plan.s.splits, "parts of a tile's K-blocks, each for a block of its own")
    return [
        *(shares.constants(plan, least) or [ways]),
        ("PARTIAL_SUMS", place_elements(plan), "elements of a consumer's partial sums"),
        *(parts.constants() if parts else []),
    ]


def place_elements(plan: KernelPlan) -> int:
    """Elements of the workspace for one consumer's partial sums of a part."""
    together = plan.combination
    rows = 0 if together is None else len(together.rows)
    return plan.s.rows * (len(plan.summed) * plan.s.columns + rows)


def device(plan: KernelPlan) -> dict[str, object] | None:
    """Values for the template of the functions that parts of tiles need; none if no sums are split."""
    if not plan.split:
        return None
    s, machine, together = plan.s, plan.verified.machine, plan.combination
    if together is not None:
        return {"ranged": True, "rows": bool(together.rows)}
    subtile = s.rows * s.subtile_columns // (s.consumer_warps * machine.threads_per_warp)
    registers = plan.consumer_registers - _KEPT
    return {
        "ranged": False,
        "atomics": s.atomics,
        "copies": s.copies,
        "at_once": s.at_once,
        "loop": s.shares
        or s.splits * subtile > registers,  # ptxas begins all loads that are not in a loop, and spills
        "one_by_one": 3 * subtile > registers,
    }


def workspaces(plan: KernelPlan) -> tuple[Workspace, ...]:
    """The memory that a launch needs besides its tensors."""
    if not plan.split:
        return ()
    parts: Integer = named("parts")
    counted: Integer = named("tiles")
    if plan.s.shares:
        parts = counted + named("blocks") if plan.ranged else 2 * named("blocks")
        counted = counted if plan.ranged else named("blocks")  # fewer than that are shared
    places = (counted if plan.s.atomics else parts) * (plan.s.at_once * place_elements(plan))
    counters = counted * plan.s.at_once
    return (
        Workspace(_WORKSPACE, DType.F32, places, zeroed=plan.s.atomics),
        Workspace(_ARRIVALS, DType.I32, counters, zeroed=True),
    )


def least_k_blocks(plan: KernelPlan, least: int) -> int:
    """The least K-blocks of a tile whose loop takes `least` passes: each of its parts has so many."""
    return least * plan.s.copies * plan.s.splits if plan.split else least


def part_at(plan: KernelPlan, place: str) -> str:
    """The line with the number of the part at a place of the order in which blocks take them; those of a tile have
    numbers that follow each other.
    """
    return f"part = part_at({place}, {_tiles(plan)})"


def _tiles(plan: KernelPlan) -> str:
    return "parts // SPLITS" if plan.ranged else PYTHON(tiles(plan))


def steps(plan: KernelPlan, others: str, place: str) -> str:
    """The lines by which a consumer in ping-pong passes over the K-blocks of others: those of the parts behind that
    at `place`, one for each of the `others`. Of a part the number within its tile says how many they are.
    """
    number = f"({place} + other * gl.num_programs(0)) // ({_tiles(plan)})"
    return (
        f"for other in gl.static_range({others}):\n"
        f"    first, last = part_range({number}, k_iterations)\n"
        "    step += last - first"
    )


def nothing_owed(plan: KernelPlan) -> list[str]:
    """The lines by which a consumer begins that ends tiles when it has left all of its parts: a bit for each of them,
    or of equal shares a number for its first tile and one for its last.
    """
    return shares.NOTHING_LEFT if plan.s.shares else ["owed = 0", "taken = 0"]


def combined(
    plan: KernelPlan, stored: Iterable[str], epilogue: Iterable[str], whole: Iterable[str]
) -> list[str]:
    """The lines of a consumer behind its loop of products: partial sums are `stored` in the workspace, and where all
    parts have arrived comes the `epilogue`. Of equal shares some tiles are `whole`.
    """
    left, ended = [_own_part(plan), *stored], brought(plan, epilogue)
    if plan.s.shares:
        return shares.products_ended(whole, left, arrives(plan), ended)
    return [*left, when(arrives(plan), "\n".join(ended))]


def left(plan: KernelPlan, whole: Iterable[str]) -> list[str]:
    """The lines of a consumer behind a loop that computes values: what it leaves of the part, and whether it owes the
    tile's end, which comes when it has left all of its parts. Of equal shares some tiles are `whole`.
    """
    parts = parts_of(plan)
    assert parts is not None, "its parts come together"
    if plan.s.shares:
        return shares.ended(whole, [_own_part(plan), *parts.stores()], arrives(plan))
    owed = f"owed = owed | ({arrives(plan)}.to(gl.int32) << taken)"
    return [_own_part(plan), *parts.stores(), owed, "taken += 1"]


def brought(plan: KernelPlan, epilogue: Iterable[str]) -> list[str]:
    """The lines of who has to end a tile: the parts are brought together, and then comes the `epilogue`."""
    parts = parts_of(plan)
    if plan.s.atomics:
        return [line for line in epilogue if line]
    first = shares.first_part(plan) if plan.s.shares else "part // SPLITS * SPLITS"
    begin = f"first_part = {_WORKSPACE} + {_of_consumer(plan, first)} * PARTIAL_SUMS"
    together = [f"combine({', '.join(parts.parameters)})"] if parts else []
    return [begin, *together, *(line for line in epilogue if line)]


def _own_part(plan: KernelPlan) -> str:
    part = shares.part(plan) if plan.s.shares else "part // SPLITS" if plan.s.atomics else "part"
    return f"own_part = {_WORKSPACE} + {_of_consumer(plan, part)} * PARTIAL_SUMS"


def arrives(plan: KernelPlan) -> str:
    """The call that arrives at the counter of a consumer's rows of the tile."""
    if plan.s.shares:
        return f"last_to_arrive({_ARRIVALS} + {_of_consumer(plan, shares.number_of(plan))}, parts)"
    return f"last_to_arrive({_ARRIVALS} + {_of_consumer(plan, 'part // SPLITS')})"


def sums(plan: KernelPlan, names: Iterable[str], subtile: int) -> list[str]:
    """The lines that add up the sums of an epilogue subtile, one for each product."""
    column, parts, more = _columns(subtile), parts_of(plan), ", parts" if plan.s.shares else ""
    begin = "own_part" if plan.s.atomics else "first_part"
    if parts:
        return [*parts.sums(names, subtile)]
    return [
        f"{name} = combined({' + '.join([begin, *_product(number), *column])}{more})"
        for number, name in enumerate(names)
    ]


def _of_consumer(plan: KernelPlan, number: str) -> str:
    """The number of a consumer's own of what all consumers of a tile, or of its part, have one each of."""
    return number if plan.s.at_once == 1 else f"({number} * CONSUMERS + index)"


def store(plan: KernelPlan, product: int, subtile: int, columns: str, layout: str, name: str) -> str:
    """The line that leaves so many columns of a product's partial sums from a subtile on in the workspace, or adds
    them to those that are there.
    """
    place = " + ".join(["own_part", *_product(product), *_columns(subtile)])
    places = f"places_of({place}, {columns}, {layout})"
    if plan.s.atomics:
        return f'gl.atomic_add({places}, {name}, sem="relaxed", scope="gpu")'
    return f"gl.store({places}, {name})"


def stores(plan: KernelPlan) -> list[str]:
    """The stores of partial sums, accumulator by accumulator."""
    found, cut = list[str](), accumulators(plan.s)
    for number, name in enumerate(plan.sums):
        for accumulator, one in zip(accumulator_names(plan.s, name), cut, strict=True):
            found.append(store(plan, number, one.low, one.columns, one.layout, accumulator))
    return found


def _columns(subtile: int) -> list[str]:
    """Elements before those of a subtile."""
    return [f"{subtile} * CONSUMER_ROWS * SUBTILE_COLUMNS"] if subtile else []


def _product(number: int) -> list[str]:
    """Elements before a product's partial sums in a consumer's place."""
    return [f"{number} * CONSUMER_ROWS * TILE_COLUMNS"] if number else []
