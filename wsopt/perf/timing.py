"""The predicted time of a kernel from its initiation interval: one formula, for the model and the checker.

A block starts, fills its ring, runs its tiles, and drains. Consumers that share rows run their epilogues
together, with the tensor core idle; consumers in turns run theirs under another's loop. What products and bytes
take of the power lowers the clock of all of it (`Machine.power_clock`): `power` is what that adds, in cycles of
the sustained clock. No kernel is faster than its bytes through L2 and device memory.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from wsopt.frontend.needed import needed_bytes, needed_flops
from wsopt.machine.types import Machine
from wsopt.perf.contention import contended_interval, iteration_energy
from wsopt.perf.costs import load_cycles
from wsopt.perf.epilogue import Epilogues, epilogues
from wsopt.perf.held import held_cycles, issue_cycles, norm
from wsopt.perf.pace import k_block_demand
from wsopt.perf.ramps import Line, Ramps, ramps
from wsopt.program.ids import OpId
from wsopt.program.program import OpKind, TileProgram, Unit
from wsopt.program.types import Sharing
from wsopt.schedule.types import EpilogueBuffers, Prediction


@dataclass(frozen=True, slots=True)
class Rounds:
    """The parts of the time that no schedule of this tile program changes, in cycles.

    `energy` is what an SM takes on the average, in cycles of its tensor core; `contended` is what an iteration
    takes at least where units and threads wait for one another. `between` is what a tile of such a loop takes
    beside its epilogue and all iterations but one. Where device memory sets the pace, the clock of
    the SMs, and with it the energy, does not count: they are not `paced`.
    """

    rounds: int
    start: float
    fill: float
    tail: float
    energy: float
    handover: float
    between: float = 0.0
    contended: float = 0.0
    paced: bool = True


def longest_path(program: TileProgram) -> int:
    """Cycles from the first load of an iteration to the end of its last operation, at least."""
    ready: dict[OpId, int] = {}
    pending = list(program.loop)
    edges = [edge for edge in program.edges if edge.distance == 0]
    while pending:
        op = next(o for o in pending if all(e.source in ready for e in edges if e.target == o.id))
        before = (ready[edge.source] for edge in edges if edge.target == op.id)
        ready[op.id] = max(before, default=0) + op.latency
        pending.remove(op)
    return max(ready.values(), default=0)


def fixed_parts(program: TileProgram, machine: Machine) -> Rounds:
    """What every schedule of a tile program pays."""
    if program.region.streams_rows:
        return _row_parts(program, machine)
    rounds = math.ceil(program.tiles / machine.sm_count)
    loads = [op for op in program.ops if op.kind is OpKind.TMA_LOAD]
    latency = machine.latency
    first = machine.first_bytes(latency.tma_load_dram)
    fill = first + sum(op.busy for op in loads) + _further_fill(program, machine)
    handover = latency.mbarrier_wake + latency.mbarrier_wait + latency.barrier
    anew = machine.block_start_cycles + machine.block_turnover_cycles + fill
    return Rounds(
        rounds=rounds,
        start=machine.block_start_cycles,
        fill=fill,
        tail=latency.tma_store,
        energy=_energy(program, machine),
        handover=handover,
        between=_chain(program) + handover if program.structure.persistent else anew,
        contended=contended_interval(program, machine),
    )


def _chain(program: TileProgram) -> int:
    """Cycles from the first K-block's arrival to the end of its last operation, at least."""
    return longest_path(program) - max(op.latency for op in program.loop if op.kind is OpKind.TMA_LOAD)


def _row_parts(program: TileProgram, machine: Machine) -> Rounds:
    """What every schedule of streamed rows pays: device memory is idle until the first bytes are there, and
    while the last tile is being computed. Bytes alone do not reach the power limit.
    """
    last = sum(op.issue for op in program.loop if op.consumer == 0)
    return Rounds(
        rounds=math.ceil(program.tiles / machine.sm_count),
        start=machine.block_start_cycles,
        fill=machine.latency.tma_load_dram + last,
        tail=machine.latency.tma_store,
        energy=0.0,
        handover=0.0,
        paced=False,
    )


def streams_products(program: TileProgram) -> bool:
    """Whether the loop has products alone, of which every tile has as many."""
    return program.work is None and not program.region.streams_rows


def row_interval(program: TileProgram) -> float:
    """Cycles a tile for which the SM itself is busy: its own units and its consumers, device memory left out."""
    units = [cycles for unit, cycles in held_cycles(program).items() if unit != Unit.MEMORY]
    return max(*units, *issue_cycles(program).values())


def _row_main(program: TileProgram, fixed: Rounds, machine: Machine, ii: float) -> float:
    """Cycles in which tiles stream: device memory is shared by those still at work, an SM's own units are not.

    As in a loop of products (`tile.pace`) copies come early and late, so that two bounds that are alike add up
    as a norm.
    """
    memory, own = program.tiles / machine.sm_count * ii, fixed.rounds * row_interval(program)
    return norm((memory, own), machine.copy_knee)


def _energy(program: TileProgram, machine: Machine) -> float:
    """Energy of an SM on the average, in cycles of its tensor core."""
    memory = machine.power_cycles_per_dram_byte * program.dram_bytes / machine.sm_count
    s = program.structure
    if program.work is None:
        passes = program.tiles * program.passes * s.copies / machine.sm_count
        return passes * k_block_demand(program.region, s, machine).energy + memory
    return program.work.k_iterations * iteration_energy(program, machine) + memory


def _further_fill(program: TileProgram, machine: Machine) -> float:
    """Cycles before the first result of a loop that computes values: the tiles that it holds, and one pass."""
    if program.work is None:
        return 0.0
    return load_cycles(program.stationary_bytes, machine) + _chain(program)


def loop_line(program: TileProgram, fixed: Rounds, ramp: Ramps) -> Line:
    """Cycles of all loops of products of the busiest SM, by the initiation interval."""
    n, further = program.passes, fixed.rounds - 1
    first, last = ramp.loop(n), ramp.last_loop(n)
    if not further:
        return last
    if not program.structure.persistent:
        return last.plus(first, further)
    return first.plus(Line(n, 0.0), further - 1).plus(ramp.last_ramp, n)


def total_lines(
    program: TileProgram, fixed: Rounds, machine: Machine, ends: Epilogues, ramp: Ramps
) -> tuple[Line, ...]:
    """Cycles of the busiest SM in loops of products, all told, by the initiation interval: the largest counts.

    A loader gets ahead while consumers that share a tile's rows are in its epilogue, and what of it is no longer
    than that does not show. Consumers in turns take the longer of a loop and an epilogue's share of it.
    """
    s, n, rounds = program.structure, program.passes, fixed.rounds
    once = fixed.start + fixed.fill
    loops = loop_line(program, fixed, ramp)
    if not s.persistent:
        return (loops.plus(Line(0.0, rounds * (once + ends.last + machine.block_turnover_cycles))),)
    least = loops.plus(Line(0.0, once + ends.last + fixed.tail))
    if s.sharing is Sharing.ROWS:
        late = Line(0.0, ends.each).plus(ramp.slack(n), -1.0)
        return least, least.plus(late, rounds - 1)
    least = least.plus(Line(0.0, rounds * fixed.handover))
    if rounds <= s.consumers:
        return (least,)
    alone = Line(n, fixed.handover)
    shared = Line(alone.slope / s.consumers, (alone.base + ends.each) / s.consumers)
    return least, least.plus(shared.plus(alone, -1.0), rounds)


def total_cycles(
    program: TileProgram,
    fixed: Rounds,
    machine: Machine,
    ii: float,
    ends: Epilogues,
    ramp: Ramps | None = None,
) -> float:
    """Cycles of the busiest SM, from the first block's start to the last store, whatever its clock.

    `ramp` is of the ring of a loop of products; others have none.
    """
    if program.region.streams_rows:
        main = _row_main(program, fixed, machine, ii)
        return fixed.start + fixed.fill + main + fixed.tail
    ii = max(ii, fixed.contended)
    if program.work is not None:
        once = (
            fixed.start + fixed.fill - _chain(program) + fixed.tail if program.structure.persistent else 0.0
        )
        tiles = program.work.tiles * (fixed.between + ends.each)
        return once + tiles + (program.work.k_iterations - program.work.tiles) * ii
    assert ramp is not None, "a loop of products has a ring"
    return max(line.at(ii) for line in total_lines(program, fixed, machine, ends, ramp))


def power_cycles(fixed: Rounds, machine: Machine, cycles: float) -> float:
    """Cycles of the sustained clock that the power limit adds to `cycles` of a kernel."""
    if not fixed.paced:
        return 0.0
    return cycles * (machine.sustained_clock_mhz / machine.power_clock(cycles, fixed.energy) - 1)


def memory_floors_us(program: TileProgram, machine: Machine) -> tuple[float, float]:
    """Microseconds that the bytes of device memory, and those from L2 to the SMs, take at least."""
    outputs = sum(output.view.nbytes for output in program.region.outputs)
    streamed = program.region.streamed_sources
    inputs = sum(source.view.nbytes for source in program.region.sources if source not in streamed)
    through_l2 = program.tiles * program.tile_l2_bytes + outputs + inputs
    return (
        program.dram_bytes / machine.dram_sustained_bandwidth * 1e6,
        through_l2 / machine.l2_bandwidth * 1e6,
    )


def roofline_us(program: TileProgram, machine: Machine) -> float:
    """Microseconds of the arithmetic at the sustained clock, or of the compulsory bytes if they take longer.

    Both are of the elements that count: what masks leave out is no work.
    """
    region = program.region
    rate = machine.sustained_tflops(region.operand_dtype.value) if region.contractions else 1.0
    arithmetic = needed_flops(region) / (rate * 1e6)
    return max(arithmetic, needed_bytes(region) / machine.dram_sustained_bandwidth * 1e6)


def predict(
    program: TileProgram, machine: Machine, ii: float, buffers: EpilogueBuffers, slots: Sequence[int]
) -> Prediction:
    """The predicted time of a schedule with this initiation interval, these epilogue buffers, and so many slots
    of each ring.
    """
    fixed = fixed_parts(program, machine)
    ends = epilogues(program, machine, buffers)
    interval = max(ii, contended_interval(program, machine, slots))
    ramp = (
        ramps(program, machine, max(slots, default=0)).held_to(interval)
        if streams_products(program)
        else None
    )
    running = total_cycles(program, fixed, machine, interval, ends, ramp)
    power = power_cycles(fixed, machine, running)
    cycles = running + power
    sm_us = machine.seconds(cycles) * 1e6
    dram_us, l2_us = memory_floors_us(program, machine)
    limits = {"the SMs": sm_us, "device memory": dram_us, "L2": l2_us}
    bound_by = max(limits, key=lambda name: limits[name])
    main = _row_main(program, fixed, machine, ii) if program.region.streams_rows else 0.0
    if program.work is not None:
        main = interval * program.work.k_iterations
    if ramp is not None:
        main = loop_line(program, fixed, ramp).at(interval)
    known = fixed.start + fixed.fill + main + fixed.tail
    return Prediction(
        rounds=fixed.rounds,
        start=fixed.start,
        fill=fixed.fill,
        main=main,
        epilogue=running - known,
        tail=fixed.tail,
        power=power,
        cycles=cycles,
        sm_us=sm_us,
        dram_us=dram_us,
        l2_us=l2_us,
        roofline_us=roofline_us(program, machine),
        microseconds=limits[bound_by] + machine.kernel_launch_us,
        bound_by=bound_by,
    )
