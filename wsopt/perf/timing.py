"""The predicted time of a kernel from its initiation interval: one formula, for the model and the checker.

A block starts, fills its ring, runs its tiles, and drains. Its time is the norm of lines in II: with a sharp knee the
largest of them, where device memory bounds a loop both at once. Cooperative consumers run their epilogues
together, with the tensor core idle; consumers in ping-pong run theirs under another's loop. What products and bytes
take of the power lowers the clock of all of it (`Machine.power_clock`): `power` is what that adds, in cycles of
the sustained clock. No kernel is faster than its bytes through L2 and device memory.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from wsopt.machine.types import Machine
from wsopt.perf.contention import contended_interval, iteration_energy, norm
from wsopt.perf.copies import load_cycles
from wsopt.perf.effective_ii import Line, Ramps, ramps
from wsopt.perf.epilogue import Epilogues, epilogues
from wsopt.perf.paths import Paths, memory_floors_us, memory_us, paths_of, waves_of
from wsopt.perf.row_timing import fixed_parts_of_rows, time_of_rows
from wsopt.perf.splits import counting_cycles
from wsopt.perf.tile_ends import first_iteration, tile_ends
from wsopt.perf.time import Time, Waves
from wsopt.program.facts import Arithmetic, Rescale
from wsopt.program.ids import OpKind
from wsopt.program.program import Iteration, TileProgram, Work
from wsopt.program.ranges import live_loops
from wsopt.program.types import Sharing, Structure
from wsopt.schedule.types import EpilogueBuffers, Prediction


def fixed_parts(program: TileProgram, machine: Machine, paths: Paths | None = None) -> Waves:
    """The parts of the time that every schedule of a tile program has; `paths` are its own, if they are known."""
    waves, paths = waves_of(program, machine), paths or paths_of(program, machine)
    latency, loads = machine.latency, program.of(OpKind.TMA_LOAD)
    floors = memory_floors_us(program, machine, paths)
    if program.iteration is Iteration.TILE:
        return fixed_parts_of_rows(program, machine, waves, floors)
    several = program.structure.loops_an_sm
    fill, first = machine.first_bytes(latency.tma_load_dram) + sum(op.busy for op in loads) * several, 0
    if program.work is not None:  # the tiles that a block holds, and the way to the first result
        first = first_iteration(program)
        fill += load_cycles(program.stationary_bytes, machine) + first + counting_cycles(program)
    handover = latency.mbarrier_wake + latency.mbarrier_wait + latency.barrier
    handover += latency.other_block * program.structure.paired
    anew = machine.block_start_cycles + machine.block_turnover_cycles + fill
    return Waves(
        waves=waves,
        # The first of several blocks of an SM that ends leaves room for one of the next kernel.
        start=machine.block_start_cycles if several == 1 else 0.0,
        fill=fill,
        tail=latency.tma_store,
        energy=_energy(program, machine),
        handover=handover,
        between=first + handover if program.structure.persistent else anew,
        contended=contended_interval(program, machine),
        first=first,
        code=machine.code_cycles * instructions(program, machine) if program.work is not None else 0.0,
        floors=floors,
        idle=paths.idle_us if program.demand is not None else 0.0,
    )


def instructions(program: TileProgram, machine: Machine) -> float:
    """Instructions of arithmetic of all consumers' loops, a warp: those of whole K-blocks, and those with masks where
    a tile begins and where it ends. Each consumer has code of its own.
    """
    live = live_loops(program.bounds, program.structure, own=not program.values_apart)
    own = program.by_consumer[0]
    threads = program.structure.consumer_warps * machine.threads_per_warp
    phases = [op.counts for op in own if isinstance(op.counts, Arithmetic)]
    rescaled = sum(op.counts.elements for op in own if isinstance(op.counts, Rescale))
    each = math.fsum(one.mix.instructions * one.elements for one in phases) + rescaled
    return (1 + live.begins + live.ends) * len(program.by_consumer) * each / threads


def _energy(program: TileProgram, machine: Machine) -> float:
    """Energy of an SM on the average, in cycles of its tensor core."""
    memory = machine.power_cycles_per_dram_byte * program.dram_bytes / machine.sm_count
    if program.demand is not None:
        passes = program.tiles * program.passes * program.structure.copies / machine.sm_count
        return passes * program.demand.energy + memory
    k_iterations = (
        program.work.k_iterations * program.structure.loops_an_sm if program.work is not None else 0.0
    )
    return k_iterations * iteration_energy(program, machine) + memory


def time_of(
    program: TileProgram, fixed: Waves, machine: Machine, ends: Epilogues, ramp: Ramps | None = None
) -> Time:
    """The time of a tile program's kernel, with these epilogues; `ramp` is of a ring that has an effective II of its
    own.
    """
    if program.iteration is Iteration.TILE:
        return time_of_rows(program, fixed, machine)
    if program.work is not None:
        work, s = program.work, program.structure
        once = fixed.code + (fixed.start + fixed.fill - fixed.first + fixed.tail if s.persistent else 0.0)
        line = Line(
            work.k_iterations - work.tiles, once + work.tiles * tile_ends(program, work, fixed, machine, ends)
        )
        if s.sharing is Sharing.PING_PONG:
            return Time(
                _in_turns(work, s, fixed, ends, once), Line(work.k_iterations, 0.0), least=fixed.contended
            )
        return Time((line,), Line(work.k_iterations, 0.0), least=fixed.contended)
    assert ramp is not None, "such a ring has ramps"
    loops = _loops(program, fixed, ramp)
    return Time(_of_products(program, fixed, machine, ends, ramp, loops), loops, least=fixed.contended)


def _loops(program: TileProgram, fixed: Waves, ramp: Ramps) -> Line:
    """Cycles of all loops of products of the busiest SM, by the initiation interval."""
    if program.shares is not None:
        return ramp.loop(program.shares.k_iterations)
    n, further = program.passes, fixed.waves - 1
    first, last = ramp.loop(n), ramp.loop(n, last=True)
    if not further:
        return last
    if not program.structure.persistent:
        return last.plus(first, further)
    return first.plus(Line(n, 0.0), further - 1).plus(ramp.last_ramp, n)


def _of_products(
    program: TileProgram, fixed: Waves, machine: Machine, ends: Epilogues, ramp: Ramps, loops: Line
) -> tuple[Line, ...]:
    """Cycles of the busiest SM in loops of products, all told: the largest counts.

    A loader gets ahead while cooperative consumers are in an epilogue, and what of it is no longer
    than that does not show. Consumers in ping-pong take the longer of a loop and an epilogue's share of it; those
    whose sums another partition leaves in tensor memory, in two sets, the longer of a loop and an epilogue.
    """
    s, n = program.structure, program.passes
    waves = fixed.waves if program.shares is None else program.shares.tiles
    once = fixed.start + fixed.fill
    if not s.persistent:
        return (loops.plus(Line(0.0, waves * (once + ends.last + machine.block_turnover_cycles))),)
    least = loops.plus(Line(0.0, once + ends.last + fixed.tail))
    if ends.under:
        least = least.plus(Line(0.0, waves * fixed.handover))
        return least, least.plus(Line(-n, ends.each), waves - 1)
    if s.sharing is Sharing.COOPERATIVE:
        late = Line(0.0, ends.each).plus(ramp.slack(n), -1.0)
        return least, least.plus(late, waves - 1)
    least = least.plus(Line(0.0, waves * fixed.handover))
    if waves <= s.consumers:
        return (least,)
    alone = Line(n, fixed.handover)
    shared = Line(alone.slope / s.consumers, (alone.base + ends.each) / s.consumers)
    return least, least.plus(shared.plus(alone, -1.0), waves)


def _in_turns(work: Work, s: Structure, fixed: Waves, ends: Epilogues, once: float) -> tuple[Line, Line]:
    """Cycles of loops that compute values where consumers take tiles in turns, which is never emitted: those of all
    loops one after the other, and a consumer's share of loops, starts and epilogues.
    """
    each = fixed.between + ends.each
    loops = Line(work.k_iterations, once + work.tiles * fixed.handover + each)
    share = Line((work.k_iterations - work.tiles) / s.consumers, once + work.tiles * each / s.consumers)
    return loops, share


def power_cycles(fixed: Waves, machine: Machine, cycles: float) -> float:
    """Cycles of the sustained clock that the power limit adds to `cycles` of a kernel.

    The energy is spent over the whole time, which is that of the bytes where they take longer.
    """
    if not fixed.clocked:
        return 0.0
    paths = max(fixed.floors) * machine.sustained_clock_mhz
    clock = machine.power_clock(max(cycles, paths), fixed.energy)
    return cycles * (machine.sustained_clock_mhz / clock - 1)


def kernel_us(program: TileProgram, machine: Machine, fixed: Waves, running: float) -> float:
    """Microseconds of a kernel whose busiest SM takes `running` cycles at the sustained clock, its launch with it."""
    cycles = running + power_cycles(fixed, machine, running)
    sm_us = machine.seconds(cycles) * 1e6
    return together_us(program, sm_us, fixed.floors, fixed.idle) + machine.kernel_launch_us


_PATHS_KNEE = 4.0
"""Exponent of the norm by which the SMs' own time and that of the bytes add up."""


def together_us(
    program: TileProgram, sm_us: float, floors: tuple[float, float], idle_us: float = 0.0
) -> float:
    """Microseconds of a kernel of which SMs take `sm_us` and the bytes on the paths that all SMs share the `floors`.

    The norm of all, as bytes come early and late: a kernel for which two of them are alike takes longer than each. In
    loops of products that is so of what lies behind the time in which device memory is idle, which passes whatever
    is the longest. Of loops over tiles of rows II has all of it already, and the largest counts.
    """
    dram_us, l2_us = floors
    if program.iteration is Iteration.TILE:
        return max(sm_us, dram_us, l2_us)
    return idle_us + norm((max(0.0, sm_us - idle_us), dram_us - idle_us, l2_us), _PATHS_KNEE)


def roofline_us(program: TileProgram, machine: Machine) -> float:
    """Microseconds of the arithmetic at the sustained clock, or of the compulsory bytes if they take longer.

    Both are of the elements that count: what masks leave out is no work.
    """
    whole = program.whole
    rate = machine.sustained_tflops(whole.dtype.value) if whole.products else 1.0
    arithmetic = whole.needed_flops / (rate * 1e6)
    return max(arithmetic, memory_us(program, whole.needed_bytes, machine))


def predict(
    program: TileProgram, machine: Machine, ii: float, buffers: EpilogueBuffers, slots: Sequence[int]
) -> Prediction:
    """The predicted time of a schedule with this initiation interval, these epilogue buffers, and so many slots
    of each ring.
    """
    fixed = fixed_parts(program, machine)
    interval = max(ii, contended_interval(program, machine, slots))
    ramp = ramps(program, machine, max(slots, default=0))
    time = time_of(
        program, fixed, machine, epilogues(program, machine, buffers), ramp and ramp.held_to(interval)
    )
    running, main = time.at(interval), time.main(interval)
    power = power_cycles(fixed, machine, running)
    cycles = running + power
    sm_us = machine.seconds(cycles) * 1e6
    dram_us, l2_us = fixed.floors
    limits = {"the SMs": sm_us, "device memory": dram_us, "L2": l2_us}
    bound_by = max(limits, key=lambda name: limits[name])
    start = fixed.start + fixed.code
    known = start + fixed.fill + main + fixed.tail
    return Prediction(
        waves=fixed.waves,
        start=start,
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
        microseconds=kernel_us(program, machine, fixed, running),
        bound_by=bound_by,
    )
