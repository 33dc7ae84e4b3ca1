"""Copies by TMA between device memory or L2 and shared memory, a number of boxes in flight."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, mbarrier, tma

from wsopt.calibrate.kernels.common import clock, report, tma_load, tma_store


@gluon.jit
def load_kernel(desc, out, k_iterations, depth, begin, apart, height, columns, SLOTS: gl.constexpr):
    # `depth` boxes in flight, of at most SLOTS. A block starts at row `begin` plus its number times `apart`
    # and walks along `columns` columns, then to the rows behind; it does not leave its `height` rows.
    rows: gl.constexpr = desc.block_shape[0]
    wide: gl.constexpr = desc.block_shape[1]
    buffers = gl.allocate_shared_memory(desc.dtype, [SLOTS, rows, wide], desc.layout)
    bars = gl.allocate_shared_memory(gl.int64, [SLOTS, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(SLOTS):
        mbarrier.init(bars.index(i), count=1)
    fence_async_shared()
    top = begin + gl.program_id(0) * apart
    row = top
    column = 0
    slot = 0
    phase = 1
    first = clock()
    for k_iteration in range(k_iterations + depth):
        if k_iteration >= depth:
            mbarrier.wait(bars.index(slot), phase)
        if k_iteration < k_iterations:
            mbarrier.expect(bars.index(slot), desc.block_type.nbytes)
            tma_load(desc, [row, column], bars.index(slot), buffers.index(slot))
        column += wide
        if column >= columns:
            column = 0
            row += rows
            if row >= top + height:
                row = top
        slot += 1
        if slot == depth:
            slot = 0
            phase = phase ^ 1
    last = clock()
    report(out, 0, first, last)


@gluon.jit
def store_kernel(desc, out, k_iterations, begin, apart, height, columns, PENDING: gl.constexpr):
    # A store waits until at most PENDING of the stores before it still read shared memory.
    rows: gl.constexpr = desc.block_shape[0]
    wide: gl.constexpr = desc.block_shape[1]
    buffer = gl.allocate_shared_memory(desc.dtype, [rows, wide], desc.layout)
    layout: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [gl.num_warps(), 1], [1, 0])
    buffer.store(gl.zeros([rows, wide], desc.dtype, layout))
    fence_async_shared()
    top = begin + gl.program_id(0) * apart
    row = top
    column = 0
    first = clock()
    for _ in range(k_iterations):
        tma_store(desc, [row, column], buffer)
        tma.store_wait(PENDING)
        column += wide
        if column >= columns:
            column = 0
            row += rows
            if row >= top + height:
                row = top
    last = clock()
    tma.store_wait(0)
    report(out, 0, first, last)
