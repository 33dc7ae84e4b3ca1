"""A block as in emitted kernels, with one load and one store, to time its start and its end."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, mbarrier, tma

from wsopt.calibrate.kernels.common import clock, processor, tma_load, tma_store


@gluon.jit
def consumer(desc, out, entry, buffers, bars, STORE: gl.constexpr):
    mbarrier.wait(bars.index(0), 0)
    gl.store(out + gl.program_id(0) * 6 + 1, clock() - entry)
    if STORE:
        tma_store(desc, [0, 0], buffers.index(0))
        tma.store_wait(0)
    gl.store(out + gl.program_id(0) * 6 + 2, clock() - entry)


@gluon.jit
def loader(desc, out, entry, buffers, bars):
    gl.store(out + gl.program_id(0) * 6 + 0, clock() - entry)
    mbarrier.expect(bars.index(0), desc.block_type.nbytes)
    tma_load(desc, [0, 0], bars.index(0), buffers.index(0))


@gluon.jit
def kernel(desc, out, SLOTS: gl.constexpr, STORE: gl.constexpr):
    # Reports, from the first instruction of the block on: first load, its arrival, end; in a second row that
    # first instruction's time, and the SM.
    entry = clock()
    gl.store(out + gl.program_id(0) * 6 + 3, entry)
    gl.store(out + gl.program_id(0) * 6 + 4, processor().to(gl.int64))
    buffers = gl.allocate_shared_memory(desc.dtype, [SLOTS] + desc.block_shape, desc.layout)
    bars = gl.allocate_shared_memory(gl.int64, [SLOTS, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(SLOTS):
        mbarrier.init(bars.index(i), count=1)
    fence_async_shared()
    gl.warp_specialize(
        [
            (consumer, (desc, out, entry, buffers, bars, STORE)),
            (loader, (desc, out, entry, buffers, bars)),
        ],
        [1],
        [24],
    )


@gluon.jit
def empty_kernel(out):
    pass
