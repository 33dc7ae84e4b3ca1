"""The CP-SAT model of one tile program: the schedule of its loop, its rings, its buffers, its time.

Time is in SM cycles, or in units of a few where a loop computes values. An operation of iteration i starts at
(i + stage) * II + cycle; II is a variable. Every variable has a name, so a dump of the model can be read. One
function a constraint family, called in one list.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from ortools.sat.python import cp_model

from wsopt.machine.types import Machine
from wsopt.schedule import budget, timing
from wsopt.schedule.epilogue import epilogue_cycles
from wsopt.schedule.laps import laps
from wsopt.schedule.types import EpilogueBuffers, PartitionRole
from wsopt.solve.bound import ii_bounds, max_depth, max_depths, time_unit
from wsopt.tile.crowd import crowded_interval
from wsopt.tile.pace import iteration_pace
from wsopt.tile.program import Live, OpKind, RingPlan, TileOp, TileProgram, Unit
from wsopt.tile.ring import slot_lifetime

_LONGEST = 2**56
"""Shares of a cycle that a kernel takes at most: days."""


@dataclass(slots=True)
class Model:
    """The variables of one tile program's model, by operation name. II is of the range `interval`, in cycles."""

    program: TileProgram
    machine: Machine
    margin: int
    interval: tuple[int, int]
    stages: int
    cp: cp_model.CpModel = field(default_factory=cp_model.CpModel)
    ii: cp_model.IntVar = field(init=False)
    stage: dict[str, cp_model.IntVar] = field(default_factory=dict)
    cycle: dict[str, cp_model.IntVar] = field(default_factory=dict)
    again: dict[str, cp_model.IntVar] = field(default_factory=dict)
    start: dict[str, cp_model.IntVar] = field(default_factory=dict)
    on: dict[tuple[str, str], cp_model.IntVar] = field(default_factory=dict)
    depth: dict[str, cp_model.IntVar] = field(default_factory=dict)
    slots: dict[tuple[str, int], cp_model.IntVar] = field(default_factory=dict)
    buffers: dict[EpilogueBuffers, cp_model.IntVar] = field(default_factory=dict)
    copied: dict[str, cp_model.IntVar] = field(default_factory=dict)
    time: cp_model.LinearExprT = 0
    horizon: int = 0

    @property
    def unit(self) -> int:
        """Cycles of one unit of the model's time."""
        return time_unit(self.program)

    def t(self, cycles: float) -> int:
        """A duration in units, rounded up: what holds in units holds in cycles."""
        return math.ceil(cycles / self.unit)

    @property
    def partitions(self) -> tuple[str, ...]:
        """Names of the block's partitions that take part in the loop's model."""
        consumers = len({op.consumer for op in self.program.loop if op.consumer is not None})
        return (*(f"{PartitionRole.CONSUMER}{c}" for c in range(consumers)), f"{PartitionRole.LOADER}0")


def _variables(m: Model) -> None:
    """II, and for every operation stage, cycle and start; start = stage * II + cycle.

    The product is linear in one Boolean a stage: stage = k implies start = k II + cycle.
    """
    low, high = (m.t(cycles) for cycles in m.interval)
    stages = m.stages
    m.horizon = stages * high
    m.ii = m.cp.new_int_var(low, high, "II")
    for op in m.program.loop:
        m.stage[op.name] = m.cp.new_int_var(0, stages - 1, f"stage[{op.name}]")
        m.cycle[op.name] = m.cp.new_int_var(0, high - 1, f"cycle[{op.name}]")
        m.start[op.name] = m.cp.new_int_var(0, m.horizon, f"start[{op.name}]")
        m.again[op.name] = m.cp.new_int_var(0, 2 * high, f"cycle+II[{op.name}]")
        m.cp.add(m.cycle[op.name] < m.ii)
        m.cp.add(m.again[op.name] == m.cycle[op.name] + m.ii)
        for k in range(stages):
            is_k = m.cp.new_bool_var(f"stage[{op.name}]={k}")
            m.cp.add(m.stage[op.name] == k).only_enforce_if(is_k)
            m.cp.add(m.stage[op.name] != k).only_enforce_if(~is_k)
            m.cp.add(m.start[op.name] == k * m.ii + m.cycle[op.name]).only_enforce_if(is_k)


def _placement(m: Model) -> None:
    """Every operation is on exactly one partition; a consumer's own operations are on that consumer."""
    for op in m.program.loop:
        for name in m.partitions:
            m.on[op.name, name] = m.cp.new_bool_var(f"on[{op.name},{name}]")
        m.cp.add_exactly_one(m.on[op.name, name] for name in m.partitions)
        if op.consumer is not None:
            m.cp.add(m.on[op.name, f"{PartitionRole.CONSUMER}{op.consumer}"] == 1)


def _emitter_loads_apart(m: Model) -> None:
    """emitter.v1: streamed loads are issued by a partition without tensor-core work."""
    for op in m.program.loop:
        if op.kind is OpKind.TMA_LOAD:
            m.cp.add(m.on[op.name, f"{PartitionRole.LOADER}0"] == 1)


def _emitter_slot_in_step(m: Model) -> None:
    """emitter.v1: the loads of one ring slot stand together, in one stage of the loader; slots in order.

    All of a slot's loads come before the next slot's, and an iteration's before the next iteration's.
    """
    for plan in m.program.rings:
        slots = [
            [n for n in plan.loads if m.program.op(n).copy == c] for c in range(m.program.structure.copies)
        ]
        for first, *others in slots:
            for other in others:
                m.cp.add(m.stage[other] == m.stage[first])
        for slot, later in itertools.pairwise(slots):
            for load, after in itertools.product(slot, later):
                m.cp.add(m.start[after] >= m.start[load])
        for load, after in itertools.product(slots[-1], slots[0]):
            if len(slots) > 1:
                m.cp.add(m.start[after] + m.ii >= m.start[load])


def _emitter_enough_trips(m: Model) -> None:
    """emitter.v1: a tile has a pass for every stage of its consumers, and one to itself for a short last slab.

    The loop's ends are peeled off by stages; they may not take more passes than there are.
    """
    spare = m.program.trips - bool(m.program.structure.tail)
    for consumer in {op.consumer for op in m.program.loop if op.consumer is not None}:
        own = [op for op in m.program.loop if op.consumer == consumer]
        for one, other in itertools.permutations(own, 2):
            m.cp.add(m.start[other.name] < m.start[one.name] + (spare + 1) * m.ii)


def _emitter_one_overlap(m: Model) -> None:
    """emitter.v1: a loop that computes values overlaps one iteration with the next, and no more.

    Then a value is made again at most once before its last reader, and one older name of it is enough.
    """
    if not m.program.region.body:
        return
    for consumer in {op.consumer for op in m.program.loop if op.consumer is not None}:
        own = [op.name for op in m.program.loop if op.consumer == consumer]
        for one, other in itertools.permutations(own, 2):
            m.cp.add(m.start[other] < m.start[one] + 2 * m.ii)


def stretches(program: TileProgram) -> bool:
    """Whether a schedule stands at every larger II too, with its operations at the same stages and cycles.

    No constraint wants two operations closer to each other than some multiple of II, less nothing; so all
    differences that it asks for are still there with more time at the end of every stage. What breaks this
    is a time from one consumer to another that has to be the same for all of their operations.
    """
    return not program.region.computes_values or all(op.consumer in (0, None) for op in program.loop)


def _emitter_one_program(m: Model) -> None:
    """emitter.v1: consumers of a loop that computes values run one program, each some time after the first."""
    if stretches(m.program):
        return
    own: dict[int, list[TileOp]] = {}
    for op in m.program.loop:
        if op.consumer is not None:
            own.setdefault(op.consumer, []).append(op)
    for consumer, ops in own.items():
        if consumer == 0:
            continue
        shift = m.cp.new_int_var(0, m.horizon, f"shift[{consumer}]")
        for first, op in zip(own[0], ops, strict=True):
            m.cp.add(m.start[op.name] == m.start[first.name] + shift)


def _emitter_partials_stay(m: Model) -> None:
    """emitter.v1: a consumer's operations on partial sums begin and end in one pass.

    Carried round the loop they would be read while a later product is under way, and ptxas then runs the
    products one by one (its warning C7514).
    """
    if not m.program.region.promote:
        return
    for consumer in {op.consumer for op in m.program.loop if op.consumer is not None}:
        own = [op for op in m.program.loop if op.consumer == consumer]
        first = next(op for op in own if op.kind is OpKind.MMA)
        for op in own:
            m.cp.add(m.start[op.name] >= m.start[first.name])
            m.cp.add(m.start[op.name] + m.t(op.issue) <= m.start[first.name] + m.ii)


def _emitter_tile_at_once(m: Model) -> None:
    """emitter.v1: where rows stream, a consumer ends a tile before it begins the next."""
    if not m.program.region.streams_rows:
        return
    for consumer in {op.consumer for op in m.program.loop if op.consumer is not None}:
        own = [op for op in m.program.loop if op.consumer == consumer]
        for op in own:
            m.cp.add(m.start[op.name] >= m.start[own[0].name])
            m.cp.add(m.start[op.name] + m.t(op.issue) <= m.start[own[0].name] + m.ii)


def _staging(m: Model) -> None:
    """A staging buffer's copy has ended before it is written again: buffers * II >= latency of the store."""
    for op in m.program.loop:
        if op.kind is OpKind.TMA_STORE:
            for option, chosen in m.buffers.items():
                m.cp.add(option.staging * m.ii >= m.t(op.latency)).only_enforce_if(chosen)


def _dependences(m: Model) -> None:
    """start(v) + distance * II >= start(u) + latency(u), and the hand-over where a barrier stands between."""
    handover = math.ceil(m.machine.latency.mbarrier_wake)
    for edge in m.program.edges:
        source = m.program.op(edge.source)
        wait = handover if source.kind is OpKind.TMA_LOAD else 0
        ready = m.start[edge.source] + m.t(source.latency + wait)
        m.cp.add(m.start[edge.target] + edge.distance * m.ii >= ready)


def _circular(m: Model, op: TileOp, size: int, present: cp_model.IntVar | None, what: str) -> list[object]:
    """The interval of an operation and its copy one II later: no-overlap of both is no-overlap modulo II."""
    intervals: list[object] = []
    for copy, start in enumerate((m.cycle[op.name], m.again[op.name])):
        name = f"{what}[{op.name}]+{copy}"
        if present is None:
            intervals.append(m.cp.new_fixed_size_interval_var(start, size, name))
        else:
            intervals.append(m.cp.new_optional_fixed_size_interval_var(start, size, present, name))
    return intervals


def _symmetry(m: Model) -> None:
    """The schedule is the same moved in time, and with consumers renamed: the first load starts at 0, and
    the consumers' first products follow each other.
    """
    m.cp.add(m.start[m.program.rings[0].loads[0]] == 0)
    consumers_in_turn(m)


def consumers_in_turn(m: Model) -> None:
    """The first products of consumers follow each other.

    Where all run one program, and so meet nowhere but on units, each comes less than an II after the first:
    an II earlier units are held as before, tiles have been there for the first, and slots are free sooner. And
    of the gaps between them round the II none is longer than the one from the last to the first: named from
    the consumer after the longest gap on, they hand their slots back sooner.
    """
    products: dict[int, str] = {}
    first = OpKind.ELEMENTWISE if m.program.region.streams_rows else OpKind.MMA
    for op in m.program.loop:
        if op.kind is first and op.consumer is not None:
            products.setdefault(op.consumer, op.name)
    names = [products[consumer] for consumer in sorted(products)]
    for one, other in itertools.pairwise(names):
        m.cp.add(m.start[one] <= m.start[other])
    if not m.program.region.body or _meet_copies(m.program) or len(names) < 2:
        return
    last = m.ii - m.start[names[-1]] + m.start[names[0]]
    m.cp.add(last >= 1)
    for one, other in itertools.pairwise(names):
        m.cp.add(m.start[other] - m.start[one] <= last)


def _meet_copies(program: TileProgram) -> bool:
    """Whether consumers hold a unit that copies hold: then they cannot be moved against each other."""
    held = {unit for op in program.loop if op.consumer is None for unit, _ in op.held}
    return any(unit in held for op in program.loop if op.consumer is not None for unit, _ in op.held)


def _units(m: Model) -> None:
    """No two operations hold a unit at once, modulo II."""
    for unit in Unit:
        held = [(op, cycles) for op in m.program.loop for name, cycles in op.held if name is unit]
        m.cp.add_no_overlap([i for op, cycles in held for i in _circular(m, op, m.t(cycles), None, unit)])


def _issue(m: Model) -> None:
    """A partition is one in-order thread of control: issues, and synchronous work, follow each other."""
    for name in m.partitions:
        intervals = [
            interval
            for op in m.program.loop
            for interval in _circular(m, op, m.t(op.issue), m.on[op.name, name], f"issue@{name}")
        ]
        m.cp.add_no_overlap(intervals)


def _rings(m: Model) -> None:
    """A slot is handed back before it is filled again: slab c's by slab k = (c + depth) mod copies, of
    i = (c + depth) div copies iterations later.

    start[load of k] + i * II >= start[release of c] + handing it back. With one slab an iteration that is a
    life of at most depth * II. Copies come early and late: a ring just deep enough is slower than that.
    """
    for number, plan in enumerate(m.program.rings):
        most = max_depth(m.program, m.machine, number)
        depth = m.depth[plan.name] = m.cp.new_int_var(1, most, f"depth[{plan.name}]")
        for d in range(1, most + 1):
            is_d = m.slots[plan.name, d] = m.cp.new_bool_var(f"depth[{plan.name}]={d}")
            m.cp.add(depth == d).only_enforce_if(is_d)
            m.cp.add(depth != d).only_enforce_if(~is_d)
            m.cp.add(m.ii >= m.t(iteration_pace(m.program, m.machine, d))).only_enforce_if(is_d)
            for freed, load, later in _refills(m, plan, d):
                m.cp.add(m.start[load] + later * m.ii >= freed).only_enforce_if(is_d)


def _refills(m: Model, plan: RingPlan, depth: int) -> Iterator[tuple[cp_model.LinearExprT, str, int]]:
    """When each reader of a slot has handed it back, with each load that fills it next and how many
    iterations later that is.
    """
    for release in plan.releases:
        done = m.program.op(release)
        later, slab = budget.next_in_slot(done.copy, depth, m.program.structure.copies)
        for load in plan.loads:
            if m.program.op(load).copy == slab:
                yield m.start[release] + m.t(done.issue + done.latency), load, later


def _shared_memory(m: Model) -> None:
    """Rings, staging, epilogue inputs and barriers fit what a block can have."""
    options = budget.buffer_options(m.program)
    for option in options:
        name = f"staging={option.staging},inputs={option.inputs}"
        m.buffers[option] = m.cp.new_bool_var(name)
    m.cp.add_exactly_one(m.buffers.values())
    slots = sum((plan.slot_bytes + 2 * budget.BARRIER_BYTES) * m.depth[plan.name] for plan in m.program.rings)
    used = sum(budget.shared_memory(m.program, 0, option) * m.buffers[option] for option in options)
    m.cp.add(slots + used <= m.machine.shared_memory_per_block_bytes)


def _live_tiles(m: Model) -> None:
    """At every moment modulo II a consumer's live tiles fit the registers that its sums leave.

    A tile's life and its copies one and two intervals later are all that can meet, for no tile outlives two.
    """
    have = budget.consumer_registers(m.program.structure, m.machine)
    room = have - m.program.accumulator_registers - m.margin
    for consumer in sorted({tile.consumer for tile in m.program.live})[:1]:  # the others do the same, later
        lives, demands = [], []
        for tile in (t for t in m.program.live if t.consumer == consumer):
            name, begin = f"{tile.value}@{consumer}", m.start[tile.maker]
            end = m.cp.new_int_var(0, m.horizon, f"end[{name}]")
            for reader in tile.readers:
                op = m.program.op(reader)
                m.cp.add(end >= m.start[reader] + (m.t(op.latency) if op.kind is OpKind.MMA else 0))
            length = m.cp.new_int_var(0, m.horizon, f"life[{name}]")
            m.cp.add(length == end - begin)
            m.cp.add(length <= 2 * m.ii)
            _copied(m, tile, length)
            for copy in range(3):
                lives.append(_later(m, begin, length, end, copy, f"life[{name}]+{copy}"))
                demands.append(tile.registers)
        if lives:
            m.cp.add_cumulative(lives, demands, room)


def _copied(m: Model, tile: Live, length: cp_model.IntVar) -> None:
    """Whether a product's tile is still to be read when the product is issued again.

    It needs other registers then, and ptxas does not rotate them: the loop copies the tile.
    """
    if m.program.op(tile.maker).kind is OpKind.MMA:
        copied = m.copied[tile.value] = m.cp.new_bool_var(f"copied[{tile.value}]")
        m.cp.add(length <= m.ii).only_enforce_if(~copied)


def _later(
    m: Model, begin: cp_model.IntVar, length: cp_model.IntVar, end: cp_model.IntVar, copy: int, name: str
) -> cp_model.IntervalVar:
    """An interval moved `copy` times II on."""
    first = m.cp.new_int_var(0, 3 * m.horizon, f"begin {name}")
    last = m.cp.new_int_var(0, 3 * m.horizon, f"end {name}")
    m.cp.add(first == begin + copy * m.ii)
    m.cp.add(last == end + copy * m.ii)
    return m.cp.new_interval_var(first, length, last, name)


def _time(m: Model) -> None:
    """The predicted time, as a multiple of cycles; what no schedule changes may be left out of it."""
    p, fixed = m.program, timing.fixed_parts(m.program, m.machine)
    if p.region.streams_rows:
        m.time = p.tiles * m.unit * m.ii
        return
    cycles = {b: epilogue_cycles(p, m.machine, b) for b in m.buffers}
    if p.work is not None:
        epilogue = sum(cycles[b] * chosen for b, chosen in m.buffers.items())
        m.time = round(p.work.trips - p.work.tiles) * m.unit * _interval(m, fixed) + p.work.tiles * epilogue
        return
    _time_of_products(m, fixed, cycles)


def _time_of_products(m: Model, fixed: timing.Rounds, cycles: dict[EpilogueBuffers, int]) -> None:
    """The largest of the lines of the ring's depth and of the epilogue's buffers.

    Times count in shares of a cycle, in which a pass that ends early in its slab, a slab of an iteration and a
    consumer's part of a turn are whole numbers.
    """
    s = m.program.structure
    shares = (s.depth // s.tail if s.tail else 1) * s.copies * s.consumers
    interval = _interval(m, fixed)
    time = m.time = m.cp.new_int_var(0, _LONGEST, "time")
    for (_, slots), is_slots in m.slots.items():
        lap = laps(m.program, m.machine, slots)
        for buffers, chosen in m.buffers.items():
            for line in timing.total_lines(m.program, fixed, m.machine, cycles[buffers], lap):
                least = round(shares * line.slope) * interval + math.ceil(shares * line.base)
                m.cp.add(time >= least).only_enforce_if(is_slots, chosen)


def _interval(m: Model, fixed: timing.Rounds) -> cp_model.IntVar:
    """What an iteration takes: II, or longer where units, threads and rings wait for one another."""
    depths = [[int(ring == name) * slots for name in m.depth] for ring, slots in m.slots]
    crowded = [m.t(crowded_interval(m.program, m.machine, depth)) for depth in depths]
    least = m.t(math.ceil(fixed.crowded))
    interval = m.cp.new_int_var(least, max(least, m.t(m.interval[1]), *crowded), "interval")
    m.cp.add(interval >= m.ii)
    for longer, is_slots in zip(crowded, m.slots.values(), strict=True):
        m.cp.add(interval >= longer).only_enforce_if(is_slots)
    return interval


def ties(m: Model) -> cp_model.LinearExprT:
    """Among equally fast schedules: the fewest tiles copied, the deepest of rings that are alike, the fewest
    epilogue buffers, the earliest starts, those of operations that come first in the program before others'.

    The block has its shared memory to itself, so slots that nothing else needs buy tolerance of latency.
    """
    every = len(m.start)
    first = sum((every - number) * start for number, start in enumerate(m.start.values()))
    most_first = every * (every + 1) // 2 * m.horizon + 1
    starts = most_first * sum(m.start.values()) + first
    most_starts = most_first * (every * m.horizon + 1)
    counts = {b: b.staging + b.inputs for b in m.buffers}
    buffers = sum(counts[b] * chosen for b, chosen in m.buffers.items())
    slots = max(counts.values()) + 1
    copied = slots * (_most_slots(m) + 1) ** 2
    return starts + most_starts * (buffers - slots * _slots(m) + copied * sum(m.copied.values()))


def _most_slots(m: Model) -> int:
    return sum(max_depths(m.program, m.machine))


def _slots(m: Model) -> cp_model.LinearExprT:
    """More is better: slots of the shallowest ring first, then of all."""
    most = _most_slots(m)
    shallowest = m.cp.new_int_var(0, most, "shallowest ring")
    m.cp.add_min_equality(shallowest, list(m.depth.values()))
    return (most + 1) * shallowest + sum(m.depth.values())


FAMILIES: tuple[Callable[[Model], None], ...] = (
    _variables,
    _placement,
    _emitter_loads_apart,
    _emitter_slot_in_step,
    _emitter_enough_trips,
    _emitter_one_overlap,
    _emitter_one_program,
    _emitter_partials_stay,
    _emitter_tile_at_once,
    _dependences,
    _symmetry,
    _units,
    _issue,
    _rings,
    _shared_memory,
    _staging,
    _live_tiles,
    _time,
)
"""The constraint families, in the order in which they are added."""

CONSUMER_FAMILIES: tuple[Callable[[Model], None], ...] = (
    _variables,
    _placement,
    _emitter_enough_trips,
    _emitter_one_overlap,
    _emitter_one_program,
    _dependences,
    consumers_in_turn,
    _units,
    _issue,
    _live_tiles,
)
"""Those that say something of consumers even where nothing brings their tiles and nothing takes their slots."""


def enough_stages(program: TileProgram, machine: Machine) -> int:
    """Stages that hold a slot's whole life, copy to release; one more gives room to delay a release."""
    unit, low = time_unit(program), ii_bounds(program, machine)[0]
    life = max(slot_lifetime(program, machine, plan) for plan in program.rings)
    longest = math.ceil(max(life, timing.longest_path(program)) / unit)
    return math.ceil(longest / math.ceil(low / unit)) + 2


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
    for family in FAMILIES:
        family(model)
    return model
