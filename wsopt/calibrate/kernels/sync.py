"""Barriers, fences, and the latency of one dependent instruction of a thread."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, mbarrier

from wsopt.calibrate.kernels.common import block_barrier, clock, keep, report


@gluon.jit
def kernel(out, sink, k_iterations, OP: gl.constexpr):
    # OP: wait (on a phase that is over), arrive, barrier (of four warps), fence; eight an iteration.
    bar = gl.allocate_shared_memory(gl.int64, [1, 1], mbarrier.MBarrierLayout())
    mbarrier.init(bar.index(0), count=1)
    fence_async_shared()
    block_barrier()
    first = clock()
    for _ in range(k_iterations):
        for _ in gl.static_range(8):
            if OP == "wait":
                mbarrier.wait(bar.index(0), 1)
            elif OP == "arrive":
                mbarrier.arrive(bar.index(0), count=1)
            elif OP == "barrier":
                block_barrier()
            else:
                fence_async_shared()
    last = clock()
    report(out, 0, first, last)


@gluon.jit
def ping_role(out, k_iterations, mine, other, place: gl.constexpr):
    first = clock()
    for k_iteration in range(k_iterations):
        if place == 0:
            mbarrier.arrive(other, count=1)
        mbarrier.wait(mine, k_iteration & 1)
        if place == 1:
            mbarrier.arrive(other, count=1)
    last = clock()
    report(out, place, first, last)


@gluon.jit
def ping_kernel(out, sink, k_iterations, WARPS: gl.constexpr):
    # Two partitions wake each other in turns: a turn is two arrivals and two wake-ups.
    bars = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(2):
        mbarrier.init(bars.index(i), count=1)
    fence_async_shared()
    gl.warp_specialize(
        [
            (ping_role, (out, k_iterations, bars.index(0), bars.index(1), 0)),
            (ping_role, (out, k_iterations, bars.index(1), bars.index(0), 1)),
        ],
        [WARPS],
        [64],
    )


@gluon.jit
def step(value, third, ASM: gl.constexpr):
    return gl.inline_asm_elementwise(ASM, "=r,r,r", [value, third], dtype=gl.int32, is_pure=False, pack=1)


@gluon.jit
def chain_kernel(out, sink, k_iterations, third, ASM: gl.constexpr):
    # 64 dependent steps an iteration, one value a thread. Values are addresses of shared memory where ASM
    # reads it: every thread's own word, which holds its address.
    room = gl.allocate_shared_memory(
        gl.int32, [2048], gl.SwizzledSharedLayout(vec=1, per_phase=1, max_phase=1, order=[0])
    )
    layout: gl.constexpr = gl.BlockedLayout([1], [32], [4], [0])
    wide: gl.constexpr = gl.BlockedLayout([16], [32], [4], [0])
    room.store(gl.arange(0, 2048, layout=wide))
    value = 2048 + 4 * gl.arange(0, 128, layout=layout)
    block_barrier()
    value = step(value, third, "st.shared.b32 [$1], $1; add.s32 $0, $1, $2;")
    first = clock()
    for _ in range(k_iterations):
        for _ in gl.static_range(64):
            value = step(value, third, ASM)
    last = clock()
    block_barrier()
    report(out, 0, first, last)
    keep(sink, 0, value)
    keep(sink, 1, room.load(wide))
