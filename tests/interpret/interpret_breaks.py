"""One broken synchronization rule at a time: what to change in a good kernel, and the fault that follows."""

from __future__ import annotations

from dataclasses import dataclass

from wsopt.errors import CheckError
from wsopt.interpret import BarrierError, DeadlockError, InterpreterError, RaceError

WORKER = "def worker(ring, full, empty, y_desc, staging, tiles):\n"


@dataclass(frozen=True)
class Break:
    """Replace `old` by `new` in a kernel; every seed faults, and one of them with this class and message."""

    rule: str
    kernel: str
    old: str
    new: str
    fault: type[CheckError]
    message: str


SYNCHRONIZATION = (
    # Barriers.
    Break(
        "no wait",
        "scale",
        "mbarrier.wait(full.index(slot), (tile // DEPTH) & 1)",
        "pass",
        RaceError,
        "in flight",
    ),
    Break(
        "luck is no order",
        "scale",
        "mbarrier.wait(full.index(slot), (tile // DEPTH) & 1)",
        "pass",
        RaceError,
        r"kernel.py:\d+: worker, pass 1 .*reads ring\[0\] with no barrier that orders it after the TMA copy",
    ),
    Break("too many bytes", "scale", "8192)", "8208)", DeadlockError, "expects 16 more bytes"),
    Break(
        "too few bytes",
        "scale",
        "8192)",
        "8176)",
        BarrierError,
        "8192 bytes of a copy while phase 0 expects 8176",
    ),
    Break("no expect", "scale", "mbarrier.expect(full.index(slot), 8192)", "pass", BarrierError, "expects 0"),
    Break(
        "over-arrival",
        "scale",
        "empty.index(slot), count=1",
        "empty.index(slot), count=2",
        BarrierError,
        r"empty\[0\] gets 2 arrivals while phase 0 waits for 1 of 1",
    ),
    Break(
        "double arrival",
        "scale",
        "mbarrier.arrive(empty.index(slot), count=1)",
        "mbarrier.arrive(empty.index(slot), count=1); mbarrier.arrive(empty.index(slot), count=1)",
        BarrierError,
        "could count for that one",
    ),
    Break(
        "count of zero",
        "scale",
        "mbarrier.init(full.index(i), count=1)",
        "mbarrier.init(full.index(i), count=0)",
        BarrierError,
        "count 0",
    ),
    Break(
        "no init",
        "scale",
        "mbarrier.init(full.index(i), count=1)",
        "pass",
        BarrierError,
        "used before mbarrier.init",
    ),
    Break(
        "init twice",
        "scale",
        "mbarrier.init(full.index(i), count=1)",
        "mbarrier.init(full.index(0), count=1)",
        BarrierError,
        r"full\[0\] is initialised twice",
    ),
    Break(
        "after invalidate",
        "scale",
        "        mbarrier.invalidate(full.index(i))",
        "        mbarrier.invalidate(full.index(i)); mbarrier.wait(full.index(i), 1)",
        BarrierError,
        "after it was invalidated",
    ),
    Break(
        "phase 2", "scale", "(tile // DEPTH) & 1)\n", "2 + 0 * tile)\n", InterpreterError, "neither 0 nor 1"
    ),
    Break(
        "no release",
        "scale",
        "mbarrier.arrive(empty.index(slot), count=1)",
        "pass",
        DeadlockError,
        r"(?s)loader.*waits for phase 0 of empty\[0\] \(0 phases done, waits for 1 of 1 arrivals\)",
    ),
    Break(
        "turn not taken",
        "attention",
        "mbarrier.wait(turn.index(index), k_iteration & 1)",
        "pass",
        BarrierError,
        "could count for that one",
    ),
    # Shared memory and the async proxy.
    Break(
        "init not fenced",
        "scale",
        "    fence_async_shared()\n    gl.warp",
        "    gl.warp",
        RaceError,
        r"init of full\[0\] is not fenced before a copy signals it",
    ),
    Break(
        "store not fenced",
        "scale",
        "        fence_async_shared()\n        tma_store",
        "        tma_store",
        RaceError,
        "generic store not fenced before the async proxy reads it",
    ),
    Break(
        "load not fenced",
        "scale",
        "        fence_async_shared()\n        mbarrier.arrive(empty",
        "        mbarrier.arrive(empty",
        RaceError,
        r"a load not fenced before a copy overwrites what it reads .* a load of worker",
    ),
    Break(
        "load fenced too late",
        "scale",
        "        fence_async_shared()\n        mbarrier.arrive(empty.index(slot), count=1)",
        "        mbarrier.arrive(empty.index(slot), count=1)\n        fence_async_shared()",
        RaceError,
        "a load not fenced",
    ),
    Break(
        "operand not fenced",
        "handoff",
        "    fence_async_shared()",
        "    pass",
        RaceError,
        r"generic store not fenced .* \(a wgmma\)",
    ),
    Break(
        "fenced too late",
        "handoff",
        "    fence_async_shared()\n    mbarrier.arrive(ready, count=1)",
        "    mbarrier.arrive(ready, count=1)\n    fence_async_shared()",
        RaceError,
        "generic store not fenced",
    ),
    Break(
        "staging overwritten",
        "scale",
        "        tma.store_wait(0)\n",
        "",
        RaceError,
        "a store overwrites staging while an asynchronous reader is outstanding: .* by a TMA store",
    ),
    Break(
        "staging waited for in part",
        "scale",
        "        tma.store_wait(0)\n",
        "        tma.store_wait(1)\n",
        RaceError,
        "while an asynchronous reader is outstanding",
    ),
    Break(
        "store left at the end",
        "scale",
        "\n    tma.store_wait(0)",
        "\n    pass",
        RaceError,
        "the TMA store to y is not waited for at the end",
    ),
    Break(
        "copy left at the end",
        "scale",
        "range(tiles):\n        slot = tile % DEPTH\n        mbarrier.wait(empty",
        "range(tiles + 1):\n        slot = tile % DEPTH\n        mbarrier.wait(empty",
        RaceError,
        "copy in flight at kernel end",
    ),
    Break(
        "released before it was read",
        "scale",
        "        x = ring.index(slot).load(ROWS)\n        fence_async_shared()\n"
        "        mbarrier.arrive(empty.index(slot), count=1)\n",
        "        mbarrier.arrive(empty.index(slot), count=1)\n        x = ring.index(slot).load(ROWS)\n",
        RaceError,
        r"a TMA copy overwrites ring\[0\] with no barrier that orders it after the read",
    ),
    Break(
        "nothing there",
        "scale",
        WORKER,
        f"{WORKER}    staging.load(ROWS)\n",
        RaceError,
        "staging is read before anything was written into it",
    ),
    Break(
        "outside the ring",
        "scale",
        "ring.index(slot).load",
        "ring.index(slot + 2).load",
        RaceError,
        r"ring\[2\] lies outside the 2 slots",
    ),
)
