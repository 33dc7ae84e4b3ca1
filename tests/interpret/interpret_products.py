"""One broken rule of tensor memory and its products at a time, and the fault that follows."""

from __future__ import annotations

from interpret_breaks import Break

from wsopt.interpret import BarrierError, DeadlockError, InterpreterError, RaceError

KERNEL = "tensor_memory"
LOADED = "        mbarrier.wait(summed.index(visit % SUMS), (visit // SUMS) & 1)\n"
FREED = "        mbarrier.arrive(read.index(visit % SUMS), count=1)\n"
PRODUCT = "w_ring.index(step % DEPTH).permute((1, 0)), sums.index(visit % SUMS), use_acc=k > 0)\n"
EMPTIED = "            tcgen05_commit(empty.index(step % DEPTH))\n"
SUMMED = "        tcgen05_commit(summed.index(visit % SUMS))\n"

PRODUCTS = (
    # Commits.
    Break("no commit for the sums", KERNEL, SUMMED, "", DeadlockError, r"waits for phase 0 of summed\[0\]"),
    Break("no commit for a slot", KERNEL, EMPTIED, "", DeadlockError, r"waits for phase 0 of empty\[0\]"),
    Break(
        "committed before the product",
        KERNEL,
        f"            tcgen05_mma(x_ring.index(step % DEPTH), {PRODUCT}{EMPTIED}",
        f"{EMPTIED}            tcgen05_mma(x_ring.index(step % DEPTH), {PRODUCT}",
        RaceError,
        r"a TMA copy overwrites x_ring\[\d\] with no barrier that orders it after the read .* product of multiplier",
    ),
    Break(
        "an arrival instead of a commit",
        KERNEL,
        "tcgen05_commit(empty.index(step % DEPTH))",
        "mbarrier.arrive(empty.index(step % DEPTH), count=1)",
        RaceError,
        r"a TMA copy overwrites x_ring\[\d\] .* a tcgen05 product",
    ),
    Break(
        "sums announced by an arrival",
        KERNEL,
        "tcgen05_commit(summed.index(visit % SUMS))",
        "mbarrier.arrive(summed.index(visit % SUMS), count=1)",
        RaceError,
        r"a load reads sums\[0\]\[0:32\] with no barrier that orders it after the tcgen05 product into sums\[0\]",
    ),
    Break(
        "committed twice",
        KERNEL,
        SUMMED,
        SUMMED + SUMMED,
        BarrierError,
        r"summed\[0\] gets an arrival for phase 1 that is not ordered after phase 0",
    ),
    Break("sums not waited for", KERNEL, LOADED, "", RaceError, r"sums\[0\]\[0:32\]"),
    Break(
        "products left at the end",
        KERNEL,
        "        visit += 1\n\n\n@gluon.jit\ndef consumer",
        "        visit += 1\n    tcgen05_mma(x_ring.index(0), w_ring.index(0).permute((1, 0)), sums.index(0))\n\n\n"
        "@gluon.jit\ndef consumer",
        RaceError,
        "(no commit of this product is waited for|no barrier that orders it after)",
    ),
    # Who has the sums.
    Break("sums not handed back", KERNEL, FREED, "", DeadlockError, r"waits for phase 0 of read\[0\]"),
    Break(
        "sums taken without asking",
        KERNEL,
        "        mbarrier.wait(read.index(visit % SUMS), ((visit // SUMS) & 1) ^ 1)\n",
        "",
        RaceError,
        r"a tcgen05 product overwrites sums\[\d\].* with no barrier that orders it after the read",
    ),
    Break(
        "sums handed back before they are read",
        KERNEL,
        "        right = sums.index(visit % SUMS).slice(SUBTILE, SUBTILE).load(ROWS)\n" + FREED,
        FREED + "        right = sums.index(visit % SUMS).slice(SUBTILE, SUBTILE).load(ROWS)\n",
        RaceError,
        r"a tcgen05 product overwrites sums\[\d\]\[32:64\] .* a load of consumer",
    ),
    Break(
        "a store under a product",
        KERNEL,
        LOADED,
        LOADED
        + "        sums.index((visit + 1) % SUMS).slice(0, SUBTILE).store(gl.zeros([128, 32], gl.float32, ROWS))\n",
        RaceError,
        r"sums\[\d\]",
    ),
    Break(
        "accumulates in nothing",
        KERNEL,
        "use_acc=k > 0",
        "use_acc=True",
        RaceError,
        "before anything was written",
    ),
    # The space and its instructions.
    Break(
        "columns",
        KERNEL,
        "    sums = allocate",
        "    more = allocate_tensor_memory(gl.float32, [7, 128, 64], SUM_LAYOUT)\n    sums = allocate",
        InterpreterError,
        "sums takes 128 columns of tensor memory: 576 in all, a block has 512",
    ),
    Break(
        "outside",
        KERNEL,
        "summed.index(visit % SUMS), (visit // SUMS) & 1)\n        left = sums.index(visit % SUMS)",
        "summed.index(visit % SUMS), (visit // SUMS) & 1)\n        left = sums.index(2)",
        RaceError,
        r"sums\[2\] lies outside the 2 tiles",
    ),
    Break(
        "columns of a tile",
        KERNEL,
        "slice(SUBTILE, SUBTILE)",
        "slice(SUBTILE + 16, SUBTILE)",
        RaceError,
        "columns 48:80 lie outside 64",
    ),
    Break(
        "lanes of other warps",
        KERNEL,
        "[1, 32], [32, 1], [4, 1], [0, 1]",
        "[1, 32], [32, 1], [1, 4], [0, 1]",
        InterpreterError,
        "one lane a thread",
    ),
    Break(
        "one warp reads",
        KERNEL,
        "        tcgen05_commit(summed.index",
        "        sums.index(0).slice(0, SUBTILE).load(ROWS)\n        tcgen05_commit(summed.index",
        InterpreterError,
        "a partition of 1 warps: four reach all lanes",
    ),
    Break(
        "operand shapes",
        KERNEL,
        "tcgen05_mma(x_ring.index(step % DEPTH)",
        "tcgen05_mma(x_ring.index(0).permute((1, 0))",
        InterpreterError,
        r"tcgen05 product of \[64, 128\] by \[64, 64\]",
    ),
    Break(
        "a tile of half the lanes",
        KERNEL,
        "TensorMemoryLayout((128, 64), 1)",
        "TensorMemoryLayout((64, 64), 1)",
        InterpreterError,
        "of the layout's block are needed",
    ),
)
