"""Memory that one launch writes and reads: what orders its accesses, what it leaves, and in what order blocks run."""

from __future__ import annotations

import interpret_kernels as kernels
import numpy as np
import pytest

from wsopt.codegen import compile_kernel
from wsopt.interpret import Coverage, Execution, InterpreterError, RaceError, execute, marked
from wsopt.interpret.strategy import STRATEGIES, Chooser

SOURCE = """
import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, mbarrier

LINE = gl.constexpr(gl.BlockedLayout([1], [32], [4], [0]))


@gluon.jit
def first(box_ptr, flag_ptr, y_ptr, ready):
    i = gl.arange(0, 32, layout=LINE)
    {first}


@gluon.jit
def second(box_ptr, flag_ptr, y_ptr, ready):
    i = gl.arange(0, 32, layout=LINE)
    {second}


@gluon.jit
def kernel(box_ptr, flag_ptr, y_ptr):
    ready = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    mbarrier.init(ready, count=1)
    fence_async_shared()
    arguments = (box_ptr, flag_ptr, y_ptr, ready)
    gl.warp_specialize([(first, arguments), (second, arguments)], [4], [64])


def prepare(outputs=None):
    outputs = {{"y": torch.zeros(32, dtype=torch.float32)}}
    box, flag = torch.empty(32, dtype=torch.float32), torch.zeros(1, dtype=torch.int32)
    return (lambda: kernel[({blocks},)](box, flag, outputs["y"])), outputs


def run():
    pass
"""
FILL = "gl.store(box_ptr + i, gl.full([32], 3.0, gl.float32, LINE))"
COPY = "gl.store(y_ptr + i, gl.load(box_ptr + i))"
TELL = "mbarrier.arrive(ready, count=1)"
HEAR = "mbarrier.wait(ready, 0)"
JOIN = "gl.thread_barrier()"
ARRIVE = "got = gl.atomic_add(flag_ptr, 1)"
CLEAR = "gl.store(flag_ptr, 0)"


def lines(*statements: str) -> str:
    return "\n    ".join(statements)


def launched(
    first: str = "pass", second: str = "pass", *, blocks: int = 1, seed: int = 0, launches: int | None = None
) -> Execution:
    source = SOURCE.format(first=first, second=second, blocks=blocks)
    return execute(source, {}, seed=seed, launches=launches)


def test_a_partition_reads_its_own_after_a_thread_barrier() -> None:
    assert launched(lines(FILL, JOIN, COPY)).outputs["y"].tolist() == [3.0] * 32
    with pytest.raises(
        RaceError, match=r"box_ptr\[0\]: no thread_barrier between the store by first of block 0"
    ):
        launched(lines(FILL, COPY))
    with pytest.raises(RaceError, match="no thread_barrier between the load by first"):
        launched(lines(FILL, JOIN, COPY, FILL))
    launched(lines(FILL, JOIN, COPY, JOIN, FILL))


@pytest.mark.parametrize("seed", range(len(STRATEGIES)))
def test_an_mbarrier_orders_partitions(seed: int) -> None:
    got = launched(lines(FILL, TELL), lines(HEAR, COPY), seed=seed)
    assert got.outputs["y"].tolist() == [3.0] * 32
    with pytest.raises(RaceError, match=r"(before anything was written|box_ptr\[0\]: no mbarrier)"):
        launched(lines(FILL, TELL), lines(COPY, HEAR), seed=seed)
    with pytest.raises(RaceError, match=r"box_ptr\[0\]: no mbarrier between the \w+ by (first|second)"):
        launched(lines(FILL, TELL, JOIN, FILL), lines(HEAR, COPY), seed=seed)


LAST = f"{ARRIVE}\n    if got == 1:\n        {CLEAR}\n        {COPY}"


@pytest.mark.parametrize("seed", range(4))
def test_an_atomic_orders_blocks(seed: int) -> None:
    """The block that comes first writes, so it is the other that reads; whichever that is."""
    writes = f"if gl.program_id(0) == {seed % 2}:\n        {FILL}"
    if Chooser(seed).programs([0, 1])[0] == seed % 2:
        got = launched(lines(writes, JOIN, LAST), blocks=2, seed=seed)
        assert got.outputs["y"].tolist() == [3.0] * 32
    with pytest.raises(RaceError, match=r"(box_ptr\[0\]: no thread_barrier|before anything)"):
        launched(lines(writes, LAST), blocks=2, seed=seed)


def test_knowledge_passes_through_a_third_block_and_through_mbarriers() -> None:
    """Block 0 tells 1, and 1 tells 2, whose first partition tells the second."""
    writes = f"if gl.program_id(0) == 0:\n        {FILL}"
    first = lines(writes, JOIN, ARRIVE, TELL)
    reads = f"if gl.program_id(0) == 2:\n        {COPY}\n        gl.thread_barrier()\n        {CLEAR}"
    assert launched(first, lines(HEAR, reads), blocks=3).outputs["y"].tolist() == [3.0] * 32


def test_one_thread_releases_its_own_scalar_stores() -> None:
    tells = "if gl.program_id(0) == 0:\n        gl.store(box_ptr, 3.0)"
    got = launched(
        lines(
            tells, f"{ARRIVE}\n    if got == 1:\n        {CLEAR}\n        gl.store(y_ptr, gl.load(box_ptr))"
        ),
        blocks=2,
    )
    assert got.outputs["y"][0] == 3.0


def test_a_counter_is_read_by_atomics_alone() -> None:
    reads = "if gl.program_id(0) == 1:\n        gl.store(y_ptr, gl.load(flag_ptr).to(gl.float32))"
    with pytest.raises(RaceError, match=r"flag_ptr\[0\]: .* the atomic by first of block 0"):
        launched(lines(reads, ARRIVE), blocks=2)


def test_scratch_holds_nothing_for_the_next_launch() -> None:
    launched(lines(FILL, JOIN, COPY), launches=3)
    with pytest.raises(RaceError, match="box_ptr is read before anything was written into it"):
        launched(lines(COPY, JOIN, FILL))


def test_scratch_is_handed_from_kernel_to_kernel_of_one_call() -> None:
    begin = "    i = gl.arange(0, 32, layout=LINE)\n    "
    fill = f"@gluon.jit\ndef fill(box_ptr):\n{begin}{FILL}\n\n\n"
    take = f"@gluon.jit\ndef take(box_ptr, y_ptr):\n{begin}{COPY}\n\n\n"
    source = SOURCE.format(first="pass", second="pass", blocks=1).replace(
        "def prepare", f"{fill}{take}def prepare"
    )
    source = source.replace(
        "lambda: kernel", 'lambda: fill[(1,)](box) or take[(1,)](box, outputs["y"]) or kernel'
    )
    assert execute(source, {}, seed=0, launches=2).outputs["y"].tolist() == [3.0] * 32


def test_a_launch_leaves_zeros_as_it_found_them() -> None:
    with pytest.raises(InterpreterError, match=r"flag_ptr\[0\] is 1 at the end of the launch and was 0"):
        launched(ARRIVE)
    launched(lines(ARRIVE, CLEAR), launches=3)


def test_launches_agree() -> None:
    reading = (
        'gl.inline_asm_elementwise("mov.u32 $0, %clock;", "=r", [], dtype=gl.int32, is_pure=False, pack=1)'
    )
    with pytest.raises(InterpreterError, match="output y: launch 2 gives other bits than the one before"):
        launched(f"gl.store(y_ptr, {reading})", launches=2)


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("gl.atomic_add(y_ptr, 1.0)", "atomic_add to y, an input or an output"),
        (
            f"{FILL}; {JOIN}; gl.atomic_add(box_ptr + i, 1.0)",
            "an atomic of a tensor with semantics 'acq_rel'",
        ),
        ('gl.atomic_add(flag_ptr, 1, sem="seq_cst")', "an atomic of semantics 'seq_cst' and scope 'gpu'"),
        (
            'gl.atomic_add(flag_ptr, 1, scope="cluster")',
            "an atomic of semantics 'acq_rel' and scope 'cluster'",
        ),
        ("gl.atomic_add(flag_ptr + 1, 1)", "flag_ptr: element 1 of 1"),
    ],
)
def test_refused(statement: str, message: str) -> None:
    with pytest.raises(InterpreterError, match=message):
        launched(statement)


def test_a_masked_atomic_does_nothing() -> None:
    assert launched("gl.atomic_add(flag_ptr, 1, mask=False)").steps > 0
    with pytest.raises(InterpreterError):  # the counter is not as it was found
        launched("gl.atomic_add(flag_ptr, 1, mask=True)")


def test_blocks_run_in_an_order_of_the_seed() -> None:
    orders = [Chooser(seed).programs(range(4)) for seed in range(40)]
    assert orders[0] == [0, 1, 2, 3]
    assert {order[-1] for order in orders} == {0, 1, 2, 3}
    assert all(sorted(order) == [0, 1, 2, 3] for order in orders)
    assert orders == [Chooser(seed).programs(range(4)) for seed in range(40)]


def test_split_sums_have_the_same_bits_whoever_is_the_last() -> None:
    case = kernels.split_sums()
    runs = [
        execute(case.source, case.inputs, seed=seed, processors=processors).outputs["y"].tobytes()
        for processors in (1, 3, 5, 99)
        for seed in range(3)
    ]
    assert len(set(runs)) == 1


def test_split_sums_run_every_line() -> None:
    case = kernels.split_sums()
    ran = execute(case.source, case.inputs, seed=0, processors=4).ran
    assert Coverage(marked(case.source).lines, ran).missed == ()


@pytest.mark.compiler
def test_split_sums_compile() -> None:
    """One thread of each consumer arrives, between barriers of its partition."""
    found = compile_kernel(kernels.split_sums().source)
    assert (dict(found.sass)["ATOMG"], found.spill_loads, found.early_arrivals) == (2, 0, 0)


def test_arrays_of_inputs_are_left_alone() -> None:
    case = kernels.split_sums()
    before = {name: np.copy(array) for name, array in case.inputs.items()}
    execute(case.source, case.inputs, seed=1)
    assert all(np.array_equal(before[name], array) for name, array in case.inputs.items())
