"""The steady state as it runs: of made-up programs whose bottleneck is known, and of kernels of every shape."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from emit_builds import h200
from golden_kernels import KERNELS, emitted

from wsopt.perf.contention import held_cycles
from wsopt.perf.costs import BARRIER_CHAIN
from wsopt.perf.events import Events, Fifo, Thread
from wsopt.perf.steady_state import SteadyState, steady, steady_state
from wsopt.program.ids import OpKind
from wsopt.program.program import TileOp
from wsopt.schedule.verified import SEAL, VerifiedSchedule

MACHINE = h200()
LATENCY = MACHINE.latency
WAIT = LATENCY.mbarrier_wait + BARRIER_CHAIN * LATENCY.arithmetic
PARTS = 3 * (LATENCY.fence + 3 * LATENCY.arithmetic) + 4 * LATENCY.mma_issue
"""Of the small product: a wait for a slot, and the issue of its four instructions in three parts."""

Change = Callable[[TileOp], TileOp]


def made_up(*changes: Change, slots: int | None = None) -> VerifiedSchedule:
    """The schedule of a small product, of operations with other costs, with rings of other depths."""
    verified = emitted("plain").verified
    ops = verified.program.ops
    for change in changes:
        ops = tuple(map(change, ops))
    rings = tuple((ring, slots or depth) for ring, depth in verified.schedule.rings)
    schedule, program = replace(verified.schedule, rings=rings), replace(verified.program, ops=ops)
    return VerifiedSchedule(schedule, program, verified.machine, SEAL)


def costing(kind: OpKind, **costs: int) -> Change:
    return lambda op: replace(op, **costs) if op.kind is kind else op


def starts(found: SteadyState, kind: OpKind) -> list[int]:
    """The starts of the operations of a kind, consumer by consumer."""
    return [found.starts[str(op.id)] for op in emitted("plain").verified.program.of(kind)]


# --- bottlenecks ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("busy", [512, 1024, 2048])
def test_the_tensor_core_is_the_bottleneck(busy: int) -> None:
    found = steady_state(made_up(costing(OpKind.MMA, busy=busy), costing(OpKind.RELEASE, issue=40)))
    assert (found.interval, found.period) == (pytest.approx(2 * busy), 1)
    first_part = PARTS - 2 * (LATENCY.fence + 3 * LATENCY.arithmetic) - 3 * LATENCY.mma_issue
    issue = 40 + PARTS - first_part + WAIT
    for issued, back in zip(starts(found, OpKind.MMA), starts(found, OpKind.RELEASE), strict=True):
        # Right behind the return of the slot before last; its end comes after that of the product before it.
        assert back - issued == pytest.approx(2 * found.interval - issue, abs=1)


def test_products_end_in_the_order_in_which_they_were_issued() -> None:
    found = steady_state(made_up(costing(OpKind.MMA, busy=1024)))
    one, other = starts(found, OpKind.RELEASE)
    assert abs(one - other) % 2048 == pytest.approx(1024, abs=1)


@pytest.mark.parametrize("issue", [3000, 5000])
def test_the_thread_is_the_bottleneck(issue: int) -> None:
    found = steady_state(made_up(costing(OpKind.RELEASE, issue=issue), costing(OpKind.MMA, busy=8)))
    assert (found.interval, found.period) == (pytest.approx(issue + WAIT + PARTS), 1)
    for issued, back in zip(starts(found, OpKind.MMA), starts(found, OpKind.RELEASE), strict=True):
        # The product has ended long before its thread comes to the return: behind the next product's first part.
        assert back - issued < found.interval + PARTS


@pytest.mark.parametrize("slots", [2, 3, 4, 6])
def test_the_ring_is_the_bottleneck(slots: int) -> None:
    late = 20_000
    found = steady_state(made_up(costing(OpKind.TMA_LOAD, latency=late, busy=8), slots=slots))
    later = steady_state(
        made_up(costing(OpKind.TMA_LOAD, latency=late + 1000 * (slots - 1), busy=8), slots=slots)
    )
    # A slot comes back once the K-block after it is there: the copies of all but one slot run at a time.
    assert later.interval - found.interval == pytest.approx(1000)
    assert late < found.interval * (slots - 1) < late + 1500


def test_a_thread_waits_while_the_queue_is_full() -> None:
    """Of eight instructions about six fit: a product as the price has it, whose issue lasts until then."""
    verified = emitted("plain").verified
    short = steady_state(made_up(costing(OpKind.MMA, instructions=4, busy=4000)))
    long = steady_state(made_up(costing(OpKind.MMA, instructions=16, busy=4000)))
    assert short.interval == long.interval == pytest.approx(8000)
    assert verified.machine.mma_queue < 16

    def between(found: SteadyState) -> int:
        return starts(found, OpKind.RELEASE)[0] - starts(found, OpKind.MMA)[0]

    # The rest of a product is issued late, so that the next one begins late: its end is nearer to its start.
    assert between(long) < between(short) - 1000


def test_the_way_of_the_copies_is_the_bottleneck() -> None:
    verified = made_up(costing(OpKind.TMA_LOAD, busy=700))
    found = steady_state(verified)
    assert found.interval == held_cycles(verified.program)["tma"] == 2100


# --- kernels of every shape -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", KERNELS)
def test_kernels_of_every_shape_come_to_repeat_themselves(name: str) -> None:
    verified = emitted(name).verified
    found = steady_state(verified)
    assert found.period == 1
    assert found.starts.keys() == {one.op for one in verified.schedule.placed}
    assert min(found.starts.values()) == 0
    assert found.interval >= max(held_cycles(verified.program).values()) - 1e-6
    assert found == steady_state(verified)


@pytest.mark.parametrize("period", [1, 2, 5])
def test_a_period_is_found(period: int) -> None:
    """Iterations of 100 cycles, of which each so many-th has an operation 7 cycles later."""
    started = {
        "a": [100.0 * n for n in range(64)],
        "b": [100.0 * n + 10 + 7 * (n % period == 0) for n in range(64)],
    }
    found = steady(started, 64)
    assert (found.period, found.interval) == (period, 100)
    assert found.starts == {"a": 0, "b": 17 if period == 1 else 14 if period == 2 else 10}


def test_what_never_repeats_has_no_period() -> None:
    found = steady({"a": [float(n * n) for n in range(64)]}, 64)
    assert found.period == 0
    assert found.interval == pytest.approx((63**2 - 31**2) / 32)


# --- events ---------------------------------------------------------------------------------------------


def test_units_serve_in_the_order_of_time_whatever_the_order_of_threads() -> None:
    events, unit, served = Events(), Fifo(), list[tuple[str, float]]()

    def thread(name: str, at: float, cycles: float) -> Thread:
        time = yield at
        served.append((name, unit.take(time, cycles)))

    events.run([thread("late", 5.0, 10.0), thread("early", 1.0, 10.0), thread("last", 40.0, 1.0)])
    assert served == [("early", 11.0), ("late", 21.0), ("last", 41.0)]


@pytest.mark.parametrize("before", [True, False])
def test_a_thread_goes_on_when_its_event_happens(before: bool) -> None:
    events, went_on = Events(), list[float]()

    def maker() -> Thread:
        time = yield 0.0 if before else 9.0
        events.happens("full", time + 20)

    def reader() -> Thread:
        yield 4.0
        went_on.append((yield "full"))

    events.run([reader(), maker()])
    assert went_on == [20.0 if before else 29.0]


def test_threads_that_wait_for_ever_are_an_error() -> None:
    def reader() -> Iterator[str]:
        yield "never"

    with pytest.raises(RuntimeError, match=r"threads wait for \['never'\], which never happen"):
        Events().run([reader()])  # type: ignore[list-item]
