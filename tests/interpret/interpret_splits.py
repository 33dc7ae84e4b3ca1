"""One broken rule of sums split over blocks at a time, and the fault that follows."""

from __future__ import annotations

from interpret_breaks import Break

from wsopt.interpret import InterpreterError, RaceError

KERNEL = "split_sums"
STORE = "        gl.store(workspace_ptr + place(work, index), sums)\n"
BARRIER = "        thread_barrier()\n"
ARRIVAL = 'gl.atomic_add(arrivals_ptr + (tile * CONSUMERS + index), 1, sem="acq_rel", scope="gpu")'
RESET = "            gl.store(arrivals_ptr + (tile * CONSUMERS + index), 0)\n"
UNORDERED = (
    r"workspace_ptr\[\d+\]: no thread_barrier, release and acquire between the store by consumer \d of"
)
LEFT = r"arrivals_ptr\[\d\] is {} at the end of the launch and was 0: the next launch would start from that"

SPLITS = (
    # The order between blocks.
    Break("no thread barrier", KERNEL, BARRIER, "", RaceError, UNORDERED),
    Break("barrier before the store", KERNEL, STORE + BARRIER, BARRIER + STORE, RaceError, UNORDERED),
    Break(
        "relaxed arrival",
        KERNEL,
        '"acq_rel"',
        '"relaxed"',
        RaceError,
        "no thread_barrier, release and acquire",
    ),
    Break("arrival that only acquires", KERNEL, '"acq_rel"', '"acquire"', RaceError, "release and acquire"),
    Break("arrival that only releases", KERNEL, '"acq_rel"', '"release"', RaceError, "release and acquire"),
    Break("arrival within a block", KERNEL, '"gpu"', '"cta"', RaceError, "are atomic within a block only"),
    Break(
        "no atomic",
        KERNEL,
        f"arrived = {ARRIVAL}",
        "arrived = gl.load(arrivals_ptr + tile * CONSUMERS + index); thread_barrier()\n"
        "        gl.store(arrivals_ptr + tile * CONSUMERS + index, arrived + 1)",
        RaceError,
        r"arrivals_ptr\[\d+\]: no thread_barrier, release and acquire between",
    ),
    Break(
        "arrived before it is stored",
        KERNEL,
        STORE + BARRIER + f"        arrived = {ARRIVAL}\n",
        f"        thread_barrier()\n        arrived = {ARRIVAL}\n{STORE}",
        RaceError,
        "(before anything was written|no thread_barrier, release and acquire)",
    ),
    # Who is the last, and what is left for the next launch.
    Break(
        "one too early", KERNEL, "== SPLITS - 1", "== SPLITS - 2", RaceError, "before anything was written"
    ),
    Break("nobody is the last", KERNEL, "== SPLITS - 1", "== SPLITS", InterpreterError, LEFT.format(3)),
    Break("arrivals left", KERNEL, RESET, "", InterpreterError, LEFT.format(3)),
    Break("one arrival left", KERNEL, "index), 0)", "index), 1)", InterpreterError, LEFT.format(1)),
    Break(
        "counters of the wrong tile set back",
        KERNEL,
        RESET,
        RESET.replace("(tile *", "((tile ^ 1) *"),
        RaceError,
        r"arrivals_ptr\[\d+\]: no thread_barrier, release and acquire between the atomic by consumer",
    ),
    Break(
        "adds up another tile",
        KERNEL,
        "place(tile * SPLITS + other, index)",
        "place((tile ^ 1) * SPLITS + other, index)",
        RaceError,
        "(before anything was written|no thread_barrier, release and acquire)",
    ),
    Break(
        "adds up the other consumer's",
        KERNEL,
        "place(tile * SPLITS + other, index)",
        "place(tile * SPLITS + other, 1 - index)",
        RaceError,
        "(before anything was written|no thread_barrier, release and acquire)",
    ),
    Break(
        "one place for all parts",
        KERNEL,
        "place(work, index)",
        "place(tile, index)",
        RaceError,
        r"workspace_ptr\[\d+\]: no thread_barrier, release and acquire between the (load|store) by consumer",
    ),
    # What the interpreter does not know.
    Break(
        "a workspace that is kept zero",
        KERNEL,
        "torch.empty(work",
        "torch.zeros(work",
        InterpreterError,
        r"workspace_ptr\[0\] is .* at the end of the launch and was 0.0",
    ),
    Break(
        "atomics on many",
        KERNEL,
        ARRIVAL,
        "gl.atomic_add(workspace_ptr + place(work, index), sums)",
        InterpreterError,
        "an atomic of a tensor with semantics 'acq_rel'",
    ),
    Break(
        "no such order",
        KERNEL,
        '"acq_rel"',
        '"seq_cst"',
        InterpreterError,
        "an atomic of semantics 'seq_cst'",
    ),
)
