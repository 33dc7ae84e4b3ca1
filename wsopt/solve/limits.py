"""Limits of the emitter that leave something out for a graph: which touch a program, which leave structures out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from wsopt.lowering.lower import Cuttable
from wsopt.lowering.phases import lazy_rows
from wsopt.lowering.structures import structures
from wsopt.machine.types import Machine
from wsopt.program.limits import MOST_SLOTS, Lifted, Limit
from wsopt.program.program import Iteration, OpKind, TileProgram
from wsopt.program.types import Structure
from wsopt.schedule import budget
from wsopt.solve.bound import infeasible, max_depth
from wsopt.solve.model import most_stages, stretches

STRUCTURAL = (
    Limit.COOPERATIVE_VALUES,
    Limit.ONE_TILE_A_BLOCK,
    Limit.STREAMED_TRANSFORM,
    Limit.ALL_PROMOTED,
    Limit.ONE_FACTOR,
    Limit.SEGMENTS,
)
"""Limits that leave structures out, and no schedule of those that there are."""

Touches = Callable[[TileProgram, Machine], bool]


def _slots_in_order(program: TileProgram, machine: Machine) -> bool:
    return any(plan.copied and len(plan.loads) > 1 for plan in program.rings)


def _stages(program: TileProgram, machine: Machine) -> bool:
    """A consumer's operations one after the other are longer than the products of the passes that a tile has."""
    if program.tensor_columns or program.iteration is Iteration.TILE:
        return False
    own = program.by_consumer[0]
    chain, products = sum(op.latency for op in own), sum(op.busy for op in own if op.kind is OpKind.MMA)
    return chain > (most_stages(program) - 1) * products


def _two_iterations(program: TileProgram, machine: Machine) -> bool:
    return (program.computes_with_products or program.feeds_products) and most_stages(program) > 2


def _most_slots(program: TileProgram, machine: Machine) -> bool:
    rings = range(len(program.rings))
    return any(max_depth(program, machine, n, budget.LIFTED_SLOTS) > MOST_SLOTS for n in rings)


def _helpers(program: TileProgram, machine: Machine) -> bool:
    """Whether a second loading warp and store warps for all consumers are too many together."""
    stores = program.structure.consumers if budget.without_store_warps(program) is None else 0
    return min(2, len(budget.copied_rings(program))) + stores > budget.MOST_HELPERS


def _consumers_issue(program: TileProgram, machine: Machine) -> bool:
    return any(op.consumer is not None and op.issue for op in program.loop)


TOUCHES: Mapping[Limit, Touches] = {
    Limit.SLOTS_IN_ORDER: _slots_in_order,
    Limit.STAGES: _stages,
    Limit.TWO_ITERATIONS: _two_iterations,
    Limit.ONE_PROGRAM: lambda program, machine: not stretches(program),
    Limit.ROWS_IN_A_PASS: lambda program, machine: program.iteration is Iteration.TILE,
    Limit.SUMS_IN_A_PASS: lambda program, machine: program.adds_partials,
    Limit.VALUES_IN_A_PASS: lambda program, machine: program.values_apart,
    Limit.OPERANDS_IN_SHARED: lambda program, machine: program.values_apart,
    Limit.ONE_WARPGROUP: lambda program, machine: program.values_apart,
    Limit.EVERY_RESCALE: lambda program, machine: (
        program.values_apart and bool(program.of(OpKind.RESCALE)) and lazy_rows(program.region) is None
    ),
    Limit.TRANSFORM_IN_A_PASS: lambda program, machine: any(op.apart for op in program.loop),
    Limit.MOST_SLOTS: _most_slots,
    Limit.HELPERS: _helpers,
    **{
        limit: lambda program, machine, limit=limit: (  # type: ignore[misc]
            program.epilogue.stores > 0 and budget.without_store_warps(program) is limit
        )
        for limit in (
            Limit.STORES_OF_PARTIALS,
            Limit.STORES_OF_VALUES,
            Limit.STORES_OF_SPLITS,
            Limit.STORES_OF_ROWS,
        )
    },
    Limit.LOADERS: lambda program, machine: len(program.of(OpKind.TMA_LOAD)) > 1,
    Limit.OWN_OPERATIONS: _consumers_issue,
    Limit.ROWS_OF_TILES: lambda program, machine: program.iteration is Iteration.TILE,
    Limit.SCALED_TRANSFORM: lambda program, machine: (
        program.structure.transforms > 0 and program.region.scaled_sums is not None
    ),
    Limit.WHOLE_TRANSFORM: lambda program, machine: bool(program.region.widened),
}
"""Whether a limit leaves schedules of a program out that fits its budgets."""


def touching(program: TileProgram, machine: Machine, margin: int, reason: str) -> Lifted:
    """Limits that leave out schedules of this program. `reason` says what rules the program out, empty if nothing
    does; where something does, the limit without which nothing would.
    """
    if not reason:
        return frozenset(limit for limit, touches in TOUCHES.items() if touches(program, machine))
    if not reason.startswith("emitter.v1"):
        return frozenset()
    own = frozenset({Limit.BASE_REGISTERS})
    return own if not infeasible(replace(program, lifted=own), machine, margin) else frozenset()


def left_out(region: Cuttable, machine: Machine, known: Collection[Structure]) -> Counter[Limit]:
    """Structures that each limit leaves out, where it does; `known` are those that there are."""
    # Lifting a limit takes no structure away: where all of them add none, which counting shows, no one does.
    if len([*structures(region, machine, frozenset(STRUCTURAL))]) == len(known):
        return Counter()
    found = Counter[Limit]()
    for limit in STRUCTURAL:
        more = set(structures(region, machine, frozenset({limit}))) - set(known)
        found[limit] = len(more)
    return +found
