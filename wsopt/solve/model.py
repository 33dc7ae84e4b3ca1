"""The CP-SAT model of one tile program: the schedule of its loop, its rings, its buffers, its time.

One function a constraint family, called in one list; what the emitter cannot write yet is named `emitter.v1`. The
variables, and what is minimized, have files of their own beside this one.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

from wsopt.machine.types import Machine
from wsopt.perf.contention import slot_lifetime
from wsopt.perf.effective_ii import effective_iis
from wsopt.perf.paths import longest_path
from wsopt.program.ids import OpKind
from wsopt.program.limits import Limit
from wsopt.program.program import Iteration, Live, TileOp, TileProgram
from wsopt.schedule import budget, memory
from wsopt.schedule.types import PartitionRole
from wsopt.solve import alike, families
from wsopt.solve.bound import buffers_with_ends, depths, ii_bounds
from wsopt.solve.conditions import overlap
from wsopt.solve.objective import time
from wsopt.solve.variables import Model, variables


def _staging(m: Model) -> None:
    """A staging buffer's copy has ended before it is written again: buffers * II >= latency of the store."""
    for op in m.program.of(OpKind.TMA_STORE):
        for option, chosen in m.buffers.items():
            m.cp.add(option.staging * m.ii >= m.t(op.latency)).only_enforce_if(chosen)


def _dependences(m: Model) -> None:
    """start(v) + distance * II >= start(u) + latency(u), and the hand-over where a barrier stands between."""
    handover = math.ceil(m.machine.latency.mbarrier_wake)
    for edge in m.program.edges:
        source = m.program.op(edge.source)
        wait = handover if budget.crosses(m.program, edge) else 0
        ready = m.start[edge.source] + m.t(edge.wait(source) + wait)
        m.cp.add(m.start[edge.target] + edge.distance * m.ii >= ready)


def _symmetry(m: Model) -> None:
    """The schedule is the same moved in time, and with consumers or products that are alike renamed: the first load
    starts at 0, and the consumers' first products follow each other, and so do those that are alike.
    """
    first = m.program.rings[0].loads[0] if m.program.rings else m.program.loop[0].id
    # Without slots in order another load may come before the first.
    m.cp.add((m.cycle if Limit.SLOTS_IN_ORDER in m.program.lifted else m.start)[first] == 0)
    consumers_in_turn(m)
    for one, other in alike.in_order(m.program):
        m.cp.add(m.start[one] <= m.start[other])


def consumers_in_turn(m: Model) -> None:
    """The first products of consumers follow each other.

    Where all run one program, and so meet nowhere but on units, each comes less than an II after the first:
    an II earlier units are held as before, tiles have been there for the first, and slots are free sooner. And
    of the gaps between them round the II none is longer than the one from the last to the first: named from
    the consumer after the longest gap on, they hand their slots back sooner.
    """
    p = m.program
    first = OpKind.MMA if p.whole.products else OpKind.ELEMENTWISE
    names = [next(op.id for op in own if op.kind is first) for own in p.by_consumer.values()]
    for one, other in itertools.pairwise(names):
        m.cp.add(m.start[one] <= m.start[other])
    # Consumers that hold a unit that copies hold cannot be moved against each other.
    copies = {unit for op in p.loop if op.consumer is None for unit, _ in op.held}
    meet = any(unit in copies for own in p.by_consumer.values() for op in own for unit, _ in op.held)
    if len(names) > 1 and p.computes_with_products and not meet and not stretches(p):
        last = m.ii - m.start[names[-1]] + m.start[names[0]]
        m.cp.add(last >= 1)
        for one, other in itertools.pairwise(names):
            m.cp.add(m.start[other] - m.start[one] <= last)


def _loaders(m: Model) -> None:
    """Every ring that copies fill is on one loading warp: sum over warps of on[ring, warp] = 1; the first ring is on
    the first warp, and every warp has one.
    """
    names = [f"{PartitionRole.LOADER}{number}" for number in range(budget.most_loaders(m.program))]
    if len(names) < 2:
        return
    _, *others = budget.copied_rings(m.program)
    for plan in others:
        on = [m.cp.new_bool_var(f"on[{plan.name},{name}]") for name in names]
        m.cp.add_exactly_one(on)
        for name, one in zip(names, on, strict=True):
            m.on |= {(load, name): one for load in plan.loads}
    for name in names[1:]:
        m.cp.add_bool_or(m.on[plan.loads[0], name] for plan in others)


def _exclusive(m: Model) -> None:
    """No two operations hold a unit, or their partition's thread, at once, modulo II: no overlap of the interval of
    each and its copy one II later. On a thread that may be another's an interval is there if its operation is.
    """
    for name, held in budget.holders(m.program).items():
        intervals = []
        for op, cycles in held:
            for copy, start in enumerate((m.cycle[op.id], m.again[op.id])):
                told, length, on = f"{name}[{op.id}]+{copy}", m.t(cycles), m.on.get((op.id, name))
                intervals.append(
                    m.cp.new_fixed_size_interval_var(start, length, told)
                    if on is None
                    else m.cp.new_optional_fixed_size_interval_var(start, length, on, told)
                )
        m.cp.add_no_overlap(intervals)


def _rings(m: Model) -> None:
    """A slot is handed back before it is filled again: K-block c's by K-block k = (c + depth) mod copies, of
    i = (c + depth) div copies iterations later.

    start[load of k] + i * II >= start[release of c] + handing it back. With one K-block an iteration that is a
    life of at most depth * II. Copies come early and late: a ring just deep enough is slower than that.
    """
    for number, plan in enumerate(m.program.rings):
        allowed = depths(m.program, m.machine, number)
        depth = m.depth[plan.name] = m.cp.new_int_var(allowed[0], allowed[-1], f"depth[{plan.name}]")
        for d, effective in zip(allowed, effective_iis(m.program, m.machine, allowed), strict=True):
            is_d = m.slots[plan.name, d] = m.cp.new_bool_var(f"depth[{plan.name}]={d}")
            m.cp.add(depth == d).only_enforce_if(is_d)
            m.cp.add(depth != d).only_enforce_if(~is_d)
            m.cp.add(m.ii >= m.t(effective)).only_enforce_if(is_d)
            for release in map(m.program.op, plan.releases):
                freed = m.start[release.id] + m.t(release.issue + release.latency)
                later, k_block = budget.next_in_slot(release.copy, d, m.program.structure.copies)
                for load in plan.loads:
                    if load.k_block == k_block:
                        m.cp.add(m.start[load] + later * m.ii >= freed).only_enforce_if(is_d)


def _shared_memory(m: Model) -> None:
    """Rings, staging, epilogue inputs and barriers fit what a block can have."""
    options = tuple(buffers_with_ends(m.program, m.machine))
    for option in options:
        name = f"staging={option.staging},inputs={option.inputs},store_warp={option.store_warp}"
        name += ",inputs_by_loader" if option.inputs_by_loader else ""
        m.buffers[option] = m.cp.new_bool_var(name)
    m.cp.add_exactly_one(m.buffers.values())
    slots = sum((plan.slot_bytes + 2 * memory.BARRIER_BYTES) * m.depth[plan.name] for plan in m.program.rings)
    used = sum(memory.shared_memory(m.program, 0, option) * m.buffers[option] for option in options)
    m.cp.add(slots + used <= memory.shared_capacity(m.program.structure, m.machine))


def _live_tiles(m: Model) -> None:
    """At every moment modulo II a consumer's live tiles fit the registers that its sums leave.

    A tile's life and its copies one and two intervals later are all that can meet, for no tile outlives two (as many
    as iterations may overlap). A
    product's tile that is still to be read when the product is issued again needs other registers then, and ptxas
    does not rotate them: the loop copies the tile.
    """
    if Limit.OWN_OPERATIONS in m.program.lifted:
        return
    # Consumers that run one program do the same as the first, later.
    apart = Limit.ONE_PROGRAM in m.program.lifted
    for consumer in m.program.by_consumer if apart else (0,):
        _live_tiles_of(m, [tile for tile in m.program.live if tile.consumer == consumer])


def _live_tiles_of(m: Model, tiles: Sequence[Live]) -> None:
    """The live tiles of one consumer."""
    have = budget.consumers_registers(m.program, m.machine)
    lives, most = [], overlapped(m.program)
    for tile in tiles:
        begin, end = m.start[tile.maker], m.cp.new_int_var(0, m.horizon, f"end[{tile.value}]")
        for op in map(m.program.op, tile.readers):
            m.cp.add(end >= m.start[op.id] + (m.t(op.latency) if op.kind is OpKind.MMA else 0))
        length = m.cp.new_int_var(0, m.horizon, f"life[{tile.value}]")
        m.cp.add(length == end - begin)
        m.cp.add(length <= most * m.ii)
        if m.program.op(tile.maker).kind is OpKind.MMA:
            copied = m.copied[tile.value] = m.cp.new_bool_var(f"copied[{tile.value}]")
            m.cp.add(length <= m.ii).only_enforce_if(~copied)
        for copy in range(most + 1):
            name = f"life[{tile.value}]+{copy}"
            first, last = (
                m.cp.new_int_var(0, (most + 1) * m.horizon, f"{at} {name}") for at in ("begin", "end")
            )
            m.cp.add(first == begin + copy * m.ii)
            m.cp.add(last == end + copy * m.ii)
            lives.append(m.cp.new_interval_var(first, length, last, name))
    if lives:
        demands = [tile.registers for tile in tiles for _ in range(most + 1)]
        m.cp.add_cumulative(lives, demands, have - m.program.accumulator_registers - m.margin)


# --- what the emitter cannot write yet: emitter.v1


def overlapped(program: TileProgram) -> int:
    """Iterations of a loop with values that a consumer may be in at once."""
    return 4 if Limit.TWO_ITERATIONS in program.lifted else 2


def slot_in_step(m: Model) -> None:
    """emitter.v1: the loads of one ring slot stand together, in one stage of the loader; slots in order.

    All of a slot's loads come before the next slot's, and an iteration's before the next iteration's. Where an
    iteration is a tile of rows, or partial sums have factors, a slot's loads come as in the kernel's text.
    """
    if Limit.SLOTS_IN_ORDER in m.program.lifted:
        return
    copies = range(m.program.structure.copies)
    for plan in m.program.rings:
        slots = [[load for load in plan.loads if load.k_block == c] for c in copies]
        for first, *others in slots:
            for other in others:
                m.cp.add(m.stage[other] == m.stage[first])
        for copy in copies if m.program.copies_in_order else ():
            for load, after in itertools.pairwise(budget.copies_in_order(plan, copy)):
                m.cp.add(m.start[after] >= m.start[load])
        for slot, later in itertools.pairwise(slots):
            for load, after in itertools.product(slot, later):
                m.cp.add(m.start[after] >= m.start[load])
        for load, after in itertools.product(slots[-1], slots[0]):
            if len(slots) > 1:
                m.cp.add(m.start[after] + m.ii >= m.start[load])


def rings_in_step(m: Model) -> None:
    """emitter.v1: a loading warp goes from K-block to K-block: of two rings that it fills,

    start[load of the one for K-block k + 1] >= start[load of the other for K-block k].
    """
    for one, other in itertools.permutations(budget.copied_rings(m.program), 2):
        first, second = (budget.issuers(m.program, m.program.op(plan.loads[0])) for plan in (one, other))
        for name in (name for name in first if name in second):
            both = [m.on[plan.loads[0], name] for plan in (one, other) if (plan.loads[0], name) in m.on]
            for load, after in itertools.product(one.loads, other.loads):
                later, k_block = budget.next_in_slot(load.k_block, 1, m.program.structure.copies)
                if after.k_block == k_block:
                    m.cp.add(m.start[after] + later * m.ii >= m.start[load]).only_enforce_if(both)


def most_stages(program: TileProgram) -> int:
    """Stages that the passes of a tile leave room for."""
    return program.least_iterations - bool(program.structure.tail) + 1


def few_overlaps(m: Model) -> None:
    """emitter.v1: a tile has a pass for every stage of its consumers, and one to itself for a short last K-block: the
    loop's ends are peeled off by stages, which may not take more passes than there are.

    A loop whose arithmetic waits for products, or feeds them, overlaps one iteration with the next, and no more.
    Then a value is made again at most once before its last reader, and one older name of it is enough. Where a
    commit hands a slot back, nobody waits for its product, and there is nothing to peel off.
    """
    most = most_stages(m.program) if Limit.STAGES not in m.program.lifted else m.stages
    values = m.program.computes_with_products or m.program.feeds_products
    most = min(most, overlapped(m.program)) if values else most
    for own in budget.own_operations(m.program).values():
        for one, other in itertools.permutations(own, 2):
            m.cp.add(m.start[other.id] < m.start[one.id] + most * m.ii)


def stretches(program: TileProgram) -> bool:
    """Whether a schedule stands at every larger II too, with its operations at the same stages and cycles.

    No constraint wants two operations closer to each other than some multiple of II, less nothing; so all
    differences that it asks for are still there with more time at the end of every stage. What breaks this
    is a time from one consumer to another that has to be the same for all of their operations.
    """
    one = len(program.by_consumer) == 1 or Limit.ONE_PROGRAM in program.lifted
    return one or not program.computes


def one_program(m: Model) -> None:
    """emitter.v1: consumers with arithmetic in the loop run one program, each some time after the first."""
    if stretches(m.program):
        return
    first, *others = budget.own_operations(m.program).values()
    for number, ops in enumerate(others, 1):
        shift = m.cp.new_int_var(0, m.horizon, f"shift[{number}]")
        for one, op in zip(first, ops, strict=True):
            m.cp.add(m.start[op.id] == m.start[one.id] + shift)


def within_a_pass(m: Model) -> None:
    """emitter.v1: a consumer's operations on a tile, or on partial sums, begin and end in one pass; so do those of a
    role that computes for consumers.

    Partial sums that are carried round the loop would be read while a later product is under way, and ptxas then runs
    the products one by one (its warning C7514).
    """
    p = m.program
    within = p.iteration is Iteration.TILE and Limit.ROWS_IN_A_PASS not in p.lifted
    within |= p.adds_partials and Limit.SUMS_IN_A_PASS not in p.lifted
    within |= p.values_apart and Limit.VALUES_IN_A_PASS not in p.lifted
    free = Limit.TRANSFORM_IN_A_PASS in p.lifted
    apart: dict[tuple[str, ...], list[TileOp]] = {}
    for op in (op for op in p.loop if op.apart and not free):
        apart.setdefault(budget.issuers(p, op), []).append(op)
    consumers = (
        tuple(op for op in ops if budget.issuers(p, op) == (f"{PartitionRole.CONSUMER}{number}",))
        for number, ops in (p.by_consumer.items() if within else ())
    )
    for own in (*consumers, *apart.values()):
        for op in own:
            m.cp.add(m.start[op.id] >= m.start[own[0].id])
            m.cp.add(m.start[op.id] + max(1, m.t(op.issue)) <= m.start[own[0].id] + m.ii)


# --- all of them


FAMILIES: tuple[Callable[[Model], None], ...] = (
    variables,
    _loaders,
    slot_in_step,
    rings_in_step,
    few_overlaps,
    one_program,
    within_a_pass,
    overlap,
    _dependences,
    _symmetry,
    _exclusive,
    _rings,
    _shared_memory,
    _staging,
    _live_tiles,
    time,
)
"""The constraint families, in the order in which they are added."""

LOOP_FAMILIES = tuple(one for one in FAMILIES if one not in (_shared_memory, _staging, time))
"""Those that say something of a loop whatever follows it, but for the room of its rings."""

STORING_FAMILIES = tuple(one for one in FAMILIES if one is not time)
"""The same of a loop that stores: its buffers are those of what follows."""

CONSUMER_FAMILIES: tuple[Callable[[Model], None], ...] = (
    variables,
    few_overlaps,
    one_program,
    overlap,
    _dependences,
    consumers_in_turn,
    _exclusive,
    _live_tiles,
)
"""Those that say something of consumers even where nothing brings their tiles and nothing takes their slots."""


def enough_stages(program: TileProgram, machine: Machine) -> int:
    """Stages that hold a slot's whole life, copy to release; one more gives room to delay a release."""
    unit, low = program.grain, ii_bounds(program, machine)[0]
    life = max((slot_lifetime(program, machine, plan) for plan in program.rings), default=0)
    longest = math.ceil(max(life, longest_path(program)) / unit)
    before = Limit.SLOTS_IN_ORDER in program.lifted  # one more for loads that come before the first
    return math.ceil(longest / math.ceil(low / unit)) + overlapped(program) + before


def build(
    program: TileProgram, machine: Machine, margin: int, interval: tuple[int, int] | None = None
) -> Model:
    """The model of a tile program whose budgets `bound.infeasible` has let through.

    With one II for both ends of `interval`, in cycles, everything is linear with constants; without an
    interval it is all that the model looks at.
    """
    model = Model(
        program, machine, margin, interval or ii_bounds(program, machine), enough_stages(program, machine)
    )
    for family in (*FAMILIES, *(added.constrain for added in families.FAMILIES.values())):
        family(model)
    return model
