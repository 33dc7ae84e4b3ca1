"""attention: a warp-specialized kernel written by wsopt 0.1.0.

Tile 256x128x64, 2 cooperative consumer(s) of 4 warps, 2 epilogue subtile(s), groups of 1, one tile a block, operands in columns of their own.
Partitions: consumer0 (4 warps, 240 registers), consumer1 (4 warps, 240 registers), loader0 (1 warps, 24 registers), mma_warp0 (1 warps, 24 registers).
k_ring of 4 slots, v_ring of 4 slots; initiation interval 1744 cycles; predicted 584.0 us on b200.
Call `run(**tensors)` with the graph's inputs by name. Extents along tiled axes are run-time values.
Needs torch and triton>=3.6,<4.

SPDX-License-Identifier: Apache-2.0
"""

# o = softmax(q k.T / sqrt(d)) v, for 4 x 16 heads of 4096 x 128.

import ctypes
import functools
import itertools
import keyword
import threading
from typing import Any

import torch
import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.blackwell import (
    TensorMemoryLayout,
    allocate_tensor_memory,
    fence_async_shared,
    mbarrier,
    tcgen05_commit,
    tcgen05_mma,
    tma,
)
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

if hasattr(tma, "async_load"):  # Triton 3.7 renamed the copies
    tma_load, tma_store = tma.async_load, tma.async_store
else:
    tma_load, tma_store = tma.async_copy_global_to_shared, tma.async_copy_shared_to_global

# The tile of one block, the K-block of the streamed axis in one ring slot, and how they are cut.
TILE_ROWS = gl.constexpr(256)
TILE_COLUMNS = gl.constexpr(128)
CONSUMERS = gl.constexpr(2)
CONSUMER_ROWS = gl.constexpr(128)
TILE_DEPTH = gl.constexpr(64)  # elements of the streamed axis in a K-block
SUBTILE_COLUMNS = gl.constexpr(64)  # columns that the epilogue treats at a time
STATIONARY_BYTES = gl.constexpr(65536)  # bytes of the tiles that the loop holds
STATIONARY_SETS = gl.constexpr(1)  # sets of them: the next tile's come while the loop runs
k__DEPTH = gl.constexpr(4)  # slots of k__ring
v_DEPTH = gl.constexpr(4)  # slots of v_ring
SUM_LAYOUT = gl.constexpr(TensorMemoryLayout((128, 128), 1))
RESULT_LAYOUT = gl.constexpr(TensorMemoryLayout((128, 64), 1))  # of a K-block's scores
OPERAND_LAYOUT = gl.constexpr(TensorMemoryLayout((128, 64), 1))  # of what the next product takes
K_BLOCK_LAYOUT = gl.constexpr(
    gl.BlockedLayout([1, 64], [32, 1], [4, 1], [0, 1])
)  # a row a thread, as tensor memory has its lanes
SUBTILE_LAYOUT = gl.constexpr(gl.BlockedLayout([1, 64], [32, 1], [4, 1], [0, 1]))
NEG_INF = gl.constexpr(float("-inf"))

# How tiles lie in shared memory, and sums in the consumers' registers.
q_LAYOUT = gl.constexpr(gl.NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=16, rank=3))
k__LAYOUT = gl.constexpr(gl.NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=16, rank=3))
v_LAYOUT = gl.constexpr(gl.NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=16, rank=3))
o_LAYOUT = gl.constexpr(gl.NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=16, rank=3))


@gluon.jit
def tile_coordinates(tile, row_tiles):
    # The tiles of one batch element follow each other, so that they share operands in L2.
    batch = tile // row_tiles
    row_tile = tile % row_tiles
    return batch, row_tile


@gluon.jit
def k_block_range(row, height, first, last, row_extent, stream_extent):
    # The K-blocks from `first` to `last` in which any element counts for the rows, and among them those in which all do.
    begin = first
    end = last
    whole_begin = first
    whole_end = last
    last_row = gl.minimum(row + height, row_extent) - 1
    end = gl.minimum(end, gl.maximum(stream_extent - 1 + TILE_DEPTH, 0) // TILE_DEPTH)
    whole_end = gl.minimum(whole_end, gl.maximum(stream_extent - 1 + 1, 0) // TILE_DEPTH)
    begin = gl.minimum(begin, last)
    end = gl.maximum(gl.minimum(end, last), begin)
    whole_begin = gl.minimum(gl.maximum(whole_begin, begin), end)
    whole_end = gl.maximum(gl.minimum(whole_end, end), whole_begin)
    return begin, whole_begin, whole_end, end


@gluon.jit
def loader(
    q_desc,
    k__desc,
    v_desc,
    q_held,
    stationary_full,
    k__ring,
    k__ring_full,
    k__ring_empty,
    v_ring,
    v_ring_full,
    v_ring_empty,
    row_tiles,
    row_extent,
    column_extent,
    stream_extent,
):
    step = 0
    visit = 0
    gdc_wait()
    batch, row_tile = tile_coordinates(gl.program_id(0), row_tiles)
    begin, whole_begin, whole_end, end = k_block_range(
        row_tile * TILE_ROWS,
        TILE_ROWS,
        0,
        (stream_extent + TILE_DEPTH - 1) // TILE_DEPTH,
        row_extent,
        stream_extent,
    )
    mbarrier.expect(stationary_full.index(visit % STATIONARY_SETS), STATIONARY_BYTES)
    tma_load(
        q_desc,
        [batch, row_tile * TILE_ROWS, 0],
        stationary_full.index(visit % STATIONARY_SETS),
        q_held.index(0),
    )
    tma_load(
        q_desc,
        [batch, row_tile * TILE_ROWS + 1 * CONSUMER_ROWS, 0],
        stationary_full.index(visit % STATIONARY_SETS),
        q_held.index(1),
    )
    for k_block in range(begin, end):
        mbarrier.wait(k__ring_empty.index(step % k__DEPTH), ((step // k__DEPTH) & 1) ^ 1)
        mbarrier.expect(k__ring_full.index(step % k__DEPTH), 16384)
        tma_load(
            k__desc,
            [batch, k_block * TILE_DEPTH, 0],
            k__ring_full.index(step % k__DEPTH),
            k__ring.index(step % k__DEPTH),
        )
        mbarrier.wait(v_ring_empty.index(step % v_DEPTH), ((step // v_DEPTH) & 1) ^ 1)
        mbarrier.expect(v_ring_full.index(step % v_DEPTH), 16384)
        tma_load(
            v_desc,
            [batch, k_block * TILE_DEPTH, 0],
            v_ring_full.index(step % v_DEPTH),
            v_ring.index(step % v_DEPTH),
        )
        step += 1
    visit += 1
    # The next kernel may set up: its `gdc_wait` ends with this one. Were it let in at the start, its blocks would take
    # SMs in the order in which they fall free, and neighbours would no longer share what they copy.
    gdc_launch_dependents()


@gluon.jit
def epilogue(
    mixed,
    p_10_,
    o_desc,
    batch,
    row,
    column,
    row_extent,
    column_extent,
    visit,
    subtile: gl.constexpr,
    o_buffer,
    o_pending: gl.constexpr,
):
    rows = row + gl.arange(0, CONSUMER_ROWS, layout=gl.SliceLayout(1, SUBTILE_LAYOUT))
    columns = column + gl.arange(0, SUBTILE_COLUMNS, layout=gl.SliceLayout(0, SUBTILE_LAYOUT))
    p_11 = p_10_ == 0.0
    p_12 = gl.where(p_11, 1.0, p_10_)
    mixed_0 = 1.0 / p_12
    mixed_1 = mixed * gl.expand_dims(mixed_0, 1)
    o = mixed_1.to(gl.bfloat16)
    if o_pending is not None:
        tma.store_wait(o_pending)
    o_buffer.reshape((128, 64)).store(o)
    fence_async_shared()
    tma_store(o_desc, [batch, row, column], o_buffer)


@gluon.jit
def mma_warp(
    q_held,
    stationary_full,
    k__ring,
    k__ring_full,
    k__ring_empty,
    v_ring,
    v_ring_full,
    v_ring_empty,
    scores_memory,
    weights_0__memory,
    mixed_sums,
    scores_full,
    scores_empty,
    mixed_full,
    mixed_ready,
    row_tiles,
    row_extent,
    column_extent,
    stream_extent,
):
    step = 0
    visit = 0
    # Issues the products of all tiles; commits tell consumers and the loader of their ends.
    batch, row_tile = tile_coordinates(gl.program_id(0), row_tiles)
    begin, whole_begin, whole_end, end = k_block_range(
        row_tile * TILE_ROWS,
        TILE_ROWS,
        0,
        (stream_extent + TILE_DEPTH - 1) // TILE_DEPTH,
        row_extent,
        stream_extent,
    )
    mbarrier.wait(stationary_full.index(visit % STATIONARY_SETS), (visit // STATIONARY_SETS) & 1)
    for number in range(end - begin + 1):
        if number < end - begin:
            mbarrier.wait(k__ring_full.index(step % k__DEPTH), (step // k__DEPTH) & 1)
            mbarrier.wait(scores_empty.index(0), (step & 1) ^ 1)
            pass
            tcgen05_commit(scores_full.index(0))
            mbarrier.wait(scores_empty.index(1), (step & 1) ^ 1)
            pass
            tcgen05_commit(scores_full.index(1))
            tcgen05_commit(k__ring_empty.index(step % k__DEPTH))
        if number >= 1:
            mbarrier.wait(v_ring_full.index((step - 1) % v_DEPTH), ((step - 1) // v_DEPTH) & 1)
            mbarrier.wait(mixed_ready.index(0), (step - 1) & 1)
            pass
            tcgen05_commit(mixed_full.index(0))
            mbarrier.wait(mixed_ready.index(1), (step - 1) & 1)
            pass
            tcgen05_commit(mixed_full.index(1))
            tcgen05_commit(v_ring_empty.index((step - 1) % v_DEPTH))
        step += 1
    step -= 1
    visit += 1


@gluon.jit
def consumer(
    scores_memory,
    weights_0__memory,
    mixed_sums,
    scores_full,
    scores_empty,
    mixed_full,
    mixed_ready,
    bf16_staging,
    o_desc,
    row_tiles,
    row_extent,
    column_extent,
    stream_extent,
    index: gl.constexpr,
):
    step = 0
    visit = 0
    batch, row_tile = tile_coordinates(gl.program_id(0), row_tiles)
    begin, whole_begin, whole_end, end = k_block_range(
        row_tile * TILE_ROWS,
        TILE_ROWS,
        0,
        (stream_extent + TILE_DEPTH - 1) // TILE_DEPTH,
        row_extent,
        stream_extent,
    )
    row = row_tile * TILE_ROWS + index * CONSUMER_ROWS
    origin = begin - step
    rows = row + gl.arange(0, CONSUMER_ROWS, layout=gl.SliceLayout(1, K_BLOCK_LAYOUT))
    p_0_ = gl.full([CONSUMER_ROWS], float("-inf"), gl.float32, gl.SliceLayout(1, K_BLOCK_LAYOUT))
    p_10_ = gl.full([CONSUMER_ROWS], 0, gl.float32, gl.SliceLayout(1, K_BLOCK_LAYOUT))
    mixed_sums.index(index).slice(0 * SUBTILE_COLUMNS, SUBTILE_COLUMNS).store(
        gl.zeros([CONSUMER_ROWS, SUBTILE_COLUMNS], gl.float32, SUBTILE_LAYOUT)
    )
    mixed_sums.index(index).slice(1 * SUBTILE_COLUMNS, SUBTILE_COLUMNS).store(
        gl.zeros([CONSUMER_ROWS, SUBTILE_COLUMNS], gl.float32, SUBTILE_LAYOUT)
    )
    for _ in range(begin, whole_end):
        mbarrier.wait(scores_full.index(index), step & 1)
        scores = scores_memory.index(index).load(K_BLOCK_LAYOUT)
        mbarrier.arrive(scores_empty.index(index), count=1)
        p_0_past = p_0_
        p_0_ = gl.maximum(p_0_, gl.max(scores, axis=1))
        scores_1_ = scores
        p_1_ = p_0_ == NEG_INF
        p_2_ = gl.where(p_1_, 0.0, p_0_)
        p_3_ = p_2_ * 0.12751743082459868
        p_4_ = scores_1_ * 0.12751743082459868
        p_5_ = p_4_ - gl.expand_dims(p_3_, 1)
        p_6_ = gl.exp2(p_5_)
        p_7_ = p_0_past * 0.12751743082459868
        p_8_ = p_7_ - p_3_
        p_9_ = gl.exp2(p_8_)
        p_10_ = p_10_ * p_9_ + gl.sum(p_6_, axis=1)
        weights_0_ = p_6_.to(gl.bfloat16)
        mbarrier.wait(mixed_full.index(index), (step & 1) ^ 1)
        weights_0__memory.index(index).store(weights_0_)
        p_9__of_rows = gl.expand_dims(gl.convert_layout(p_9_, gl.SliceLayout(1, SUBTILE_LAYOUT)), 1)
        mixed_part = mixed_sums.index(index).slice(0 * SUBTILE_COLUMNS, SUBTILE_COLUMNS)
        mixed_part.store(mixed_part.load(SUBTILE_LAYOUT) * p_9__of_rows)
        mixed_part = mixed_sums.index(index).slice(1 * SUBTILE_COLUMNS, SUBTILE_COLUMNS)
        mixed_part.store(mixed_part.load(SUBTILE_LAYOUT) * p_9__of_rows)
        mbarrier.arrive(mixed_ready.index(index), count=1)
        step += 1
    for _ in range(gl.maximum(whole_end, begin), end):
        mbarrier.wait(scores_full.index(index), step & 1)
        scores = scores_memory.index(index).load(K_BLOCK_LAYOUT)
        mbarrier.arrive(scores_empty.index(index), count=1)
        places = (origin + step) * TILE_DEPTH + gl.arange(
            0, TILE_DEPTH, layout=gl.SliceLayout(0, K_BLOCK_LAYOUT)
        )
        scores_0_ = places < stream_extent
        scores_1_ = gl.where(gl.expand_dims(scores_0_, 0), scores, NEG_INF)
        p_0_past = p_0_
        p_0_ = gl.maximum(p_0_, gl.max(scores_1_, axis=1))
        p_1_ = p_0_ == NEG_INF
        p_2_ = gl.where(p_1_, 0.0, p_0_)
        p_3_ = p_2_ * 0.12751743082459868
        p_4_ = scores_1_ * 0.12751743082459868
        p_5_ = p_4_ - gl.expand_dims(p_3_, 1)
        p_6_ = gl.exp2(p_5_)
        p_7_ = p_0_past * 0.12751743082459868
        p_8_ = p_7_ - p_3_
        p_9_ = gl.exp2(p_8_)
        p_10_ = p_10_ * p_9_ + gl.sum(p_6_, axis=1)
        weights_0_ = p_6_.to(gl.bfloat16)
        mbarrier.wait(mixed_full.index(index), (step & 1) ^ 1)
        weights_0__memory.index(index).store(weights_0_)
        p_9__of_rows = gl.expand_dims(gl.convert_layout(p_9_, gl.SliceLayout(1, SUBTILE_LAYOUT)), 1)
        mixed_part = mixed_sums.index(index).slice(0 * SUBTILE_COLUMNS, SUBTILE_COLUMNS)
        mixed_part.store(mixed_part.load(SUBTILE_LAYOUT) * p_9__of_rows)
        mixed_part = mixed_sums.index(index).slice(1 * SUBTILE_COLUMNS, SUBTILE_COLUMNS)
        mixed_part.store(mixed_part.load(SUBTILE_LAYOUT) * p_9__of_rows)
        mbarrier.arrive(mixed_ready.index(index), count=1)
        step += 1
    mbarrier.wait(mixed_full.index(index), (step & 1) ^ 1)
    p_10_ = gl.convert_layout(p_10_, gl.SliceLayout(1, SUBTILE_LAYOUT))
    mixed_0 = mixed_sums.index(index).slice(0 * SUBTILE_COLUMNS, SUBTILE_COLUMNS).load(SUBTILE_LAYOUT)
    epilogue(
        mixed_0,
        p_10_,
        o_desc,
        batch,
        row,
        0,
        row_extent,
        column_extent,
        visit,
        0,
        bf16_staging.index(0),
        None,
    )
    mixed_1 = mixed_sums.index(index).slice(1 * SUBTILE_COLUMNS, SUBTILE_COLUMNS).load(SUBTILE_LAYOUT)
    epilogue(
        mixed_1,
        p_10_,
        o_desc,
        batch,
        row,
        1 * SUBTILE_COLUMNS,
        row_extent,
        column_extent,
        visit,
        1,
        bf16_staging.index(0),
        0,
    )
    visit += 1
    tma.store_wait(0)


@gluon.jit(do_not_specialize=["row_tiles", "row_extent", "column_extent", "stream_extent"])
def kernel(q_desc, k__desc, v_desc, o_desc, row_tiles, row_extent, column_extent, stream_extent):
    q_held = gl.allocate_shared_memory(gl.bfloat16, [CONSUMERS, 1, 128, 128], q_LAYOUT)
    stationary_full = gl.allocate_shared_memory(gl.int64, [STATIONARY_SETS, 1], mbarrier.MBarrierLayout())
    k__ring = gl.allocate_shared_memory(gl.bfloat16, [k__DEPTH, 1, 64, 128], k__LAYOUT)
    k__ring_full = gl.allocate_shared_memory(gl.int64, [k__DEPTH, 1], mbarrier.MBarrierLayout())
    k__ring_empty = gl.allocate_shared_memory(gl.int64, [k__DEPTH, 1], mbarrier.MBarrierLayout())
    v_ring = gl.allocate_shared_memory(gl.bfloat16, [v_DEPTH, 1, 64, 128], v_LAYOUT)
    v_ring_full = gl.allocate_shared_memory(gl.int64, [v_DEPTH, 1], mbarrier.MBarrierLayout())
    v_ring_empty = gl.allocate_shared_memory(gl.int64, [v_DEPTH, 1], mbarrier.MBarrierLayout())
    scores_memory = allocate_tensor_memory(gl.float32, [CONSUMERS, 128, 64], RESULT_LAYOUT)
    weights_0__memory = allocate_tensor_memory(gl.bfloat16, [CONSUMERS, 128, 64], OPERAND_LAYOUT)
    mixed_sums = allocate_tensor_memory(gl.float32, [CONSUMERS, 128, 128], SUM_LAYOUT)
    scores_full = gl.allocate_shared_memory(gl.int64, [CONSUMERS, 1], mbarrier.MBarrierLayout())
    scores_empty = gl.allocate_shared_memory(gl.int64, [CONSUMERS, 1], mbarrier.MBarrierLayout())
    mixed_full = gl.allocate_shared_memory(gl.int64, [CONSUMERS, 1], mbarrier.MBarrierLayout())
    mixed_ready = gl.allocate_shared_memory(gl.int64, [CONSUMERS, 1], mbarrier.MBarrierLayout())
    bf16_staging_0 = gl.allocate_shared_memory(gl.bfloat16, [1, 1, 128, 64], o_LAYOUT)
    bf16_staging_1 = gl.allocate_shared_memory(gl.bfloat16, [1, 1, 128, 64], o_LAYOUT)
    for i in gl.static_range(STATIONARY_SETS):
        mbarrier.init(stationary_full.index(i), count=1)
    for i in gl.static_range(k__DEPTH):
        mbarrier.init(k__ring_full.index(i), count=1)
        mbarrier.init(k__ring_empty.index(i), count=1)
    for i in gl.static_range(v_DEPTH):
        mbarrier.init(v_ring_full.index(i), count=1)
        mbarrier.init(v_ring_empty.index(i), count=1)
    for i in gl.static_range(CONSUMERS):
        mbarrier.init(scores_full.index(i), count=1)
        mbarrier.init(scores_empty.index(i), count=1)
        mbarrier.init(mixed_full.index(i), count=1)
        mbarrier.init(mixed_ready.index(i), count=1)
    fence_async_shared()
    gl.warp_specialize(
        [
            (
                consumer,
                (
                    scores_memory,
                    weights_0__memory,
                    mixed_sums,
                    scores_full,
                    scores_empty,
                    mixed_full,
                    mixed_ready,
                    bf16_staging_0,
                    o_desc,
                    row_tiles,
                    row_extent,
                    column_extent,
                    stream_extent,
                    0,
                ),
            ),
            (
                consumer,
                (
                    scores_memory,
                    weights_0__memory,
                    mixed_sums,
                    scores_full,
                    scores_empty,
                    mixed_full,
                    mixed_ready,
                    bf16_staging_1,
                    o_desc,
                    row_tiles,
                    row_extent,
                    column_extent,
                    stream_extent,
                    1,
                ),
            ),
            (
                loader,
                (
                    q_desc,
                    k__desc,
                    v_desc,
                    q_held,
                    stationary_full,
                    k__ring,
                    k__ring_full,
                    k__ring_empty,
                    v_ring,
                    v_ring_full,
                    v_ring_empty,
                    row_tiles,
                    row_extent,
                    column_extent,
                    stream_extent,
                ),
            ),
            (
                mma_warp,
                (
                    q_held,
                    stationary_full,
                    k__ring,
                    k__ring_full,
                    k__ring_empty,
                    v_ring,
                    v_ring_full,
                    v_ring_empty,
                    scores_memory,
                    weights_0__memory,
                    mixed_sums,
                    scores_full,
                    scores_empty,
                    mixed_full,
                    mixed_ready,
                    row_tiles,
                    row_extent,
                    column_extent,
                    stream_extent,
                ),
            ),
        ],
        [4, 1, 1],
        [240, 24, 24],
    )


OPTIONS = {"num_warps": 4, "maxnreg": 168, "enable_fp_fusion": True}
SIGNATURE = {
    "q_desc": f"tensordesc<bf16[1, 128, 128],{q_LAYOUT.value!r}>",
    "k__desc": f"tensordesc<bf16[1, 64, 128],{k__LAYOUT.value!r}>",
    "v_desc": f"tensordesc<bf16[1, 64, 128],{v_LAYOUT.value!r}>",
    "o_desc": f"tensordesc<bf16[1, 128, 64],{o_LAYOUT.value!r}>",
    "row_tiles": "i32",
    "row_extent": "i32",
    "column_extent": "i32",
    "stream_extent": "i32",
}
# The tensors' types and numbers of dimensions.
INPUTS = {
    "q": (torch.bfloat16, 4),
    "k": (torch.bfloat16, 4),
    "v": (torch.bfloat16, 4),
}
OUTPUTS = {
    "o": (torch.bfloat16, 4),
}


def _new_outputs(tensors):
    # The outputs by name, with nothing in them.
    q, k_, v = _typed(tensors, INPUTS)
    return {
        "o": torch.empty(
            [q.shape[0], q.shape[1], q.shape[2], v.shape[3]], dtype=torch.bfloat16, device=q.device
        ),
    }


def bind(tensors, outputs=None):
    """Check tensors by name; return the grid, the kernel's arguments, and the outputs, made here if not given."""
    q, k_, v = _typed(tensors, INPUTS)
    if outputs is None:
        outputs = _new_outputs(tensors)
    (o,) = _typed(outputs, OUTPUTS)
    q_extents = [q.shape[0] * q.shape[1], q.shape[2], q.shape[3]]
    q_strides = [
        (16 if q.shape[0] * q.shape[1] == 1 else q.stride(1)),
        (16 if q.shape[2] == 1 else q.stride(2)),
        1,
    ]
    k__extents = [k_.shape[0] * k_.shape[1], k_.shape[2], k_.shape[3]]
    k__strides = [
        (16 if k_.shape[0] * k_.shape[1] == 1 else k_.stride(1)),
        (16 if k_.shape[2] == 1 else k_.stride(2)),
        1,
    ]
    v_extents = [v.shape[0] * v.shape[1], v.shape[2], v.shape[3]]
    v_strides = [
        (16 if v.shape[0] * v.shape[1] == 1 else v.stride(1)),
        (16 if v.shape[2] == 1 else v.stride(2)),
        1,
    ]
    o_extents = [o.shape[0] * o.shape[1], o.shape[2], o.shape[3]]
    o_strides = [
        (16 if o.shape[0] * o.shape[1] == 1 else o.stride(1)),
        (16 if o.shape[2] == 1 else o.stride(2)),
        1,
    ]
    _expect(q.numel() >= 1, f"tensor q has no elements: its shape is {[*q.shape]}")
    _expect(
        q.shape[0] == 1 or q.stride(0) == q.shape[1] * q.stride(1),
        "tensor q: dimensions 0 and 1 do not lie contiguously",
    )
    _expect(q.shape[3] == 1 or q.stride(3) == 1, "tensor q: dimension 3 has to be contiguous")
    _expect(
        (q_strides[0] * 2) % 16 == 0 and (q_strides[1] * 2) % 16 == 0,
        "tensor q: strides have to be multiples of 16 bytes",
    )
    _expect(q.data_ptr() % 16 == 0, "tensor q has to start at a multiple of 16 bytes")
    _expect(k_.numel() >= 1, f"tensor k has no elements: its shape is {[*k_.shape]}")
    _expect(
        k_.shape[0] == 1 or k_.stride(0) == k_.shape[1] * k_.stride(1),
        "tensor k: dimensions 0 and 1 do not lie contiguously",
    )
    _expect(k_.shape[3] == 1 or k_.stride(3) == 1, "tensor k: dimension 3 has to be contiguous")
    _expect(
        (k__strides[0] * 2) % 16 == 0 and (k__strides[1] * 2) % 16 == 0,
        "tensor k: strides have to be multiples of 16 bytes",
    )
    _expect(k_.data_ptr() % 16 == 0, "tensor k has to start at a multiple of 16 bytes")
    _expect(v.numel() >= 1, f"tensor v has no elements: its shape is {[*v.shape]}")
    _expect(
        v.shape[0] == 1 or v.stride(0) == v.shape[1] * v.stride(1),
        "tensor v: dimensions 0 and 1 do not lie contiguously",
    )
    _expect(v.shape[3] == 1 or v.stride(3) == 1, "tensor v: dimension 3 has to be contiguous")
    _expect(
        (v_strides[0] * 2) % 16 == 0 and (v_strides[1] * 2) % 16 == 0,
        "tensor v: strides have to be multiples of 16 bytes",
    )
    _expect(v.data_ptr() % 16 == 0, "tensor v has to start at a multiple of 16 bytes")
    _expect(o.numel() >= 1, f"tensor o has no elements: its shape is {[*o.shape]}")
    _expect(
        o.shape[0] == 1 or o.stride(0) == o.shape[1] * o.stride(1),
        "tensor o: dimensions 0 and 1 do not lie contiguously",
    )
    _expect(o.shape[3] == 1 or o.stride(3) == 1, "tensor o: dimension 3 has to be contiguous")
    _expect(
        (o_strides[0] * 2) % 16 == 0 and (o_strides[1] * 2) % 16 == 0,
        "tensor o: strides have to be multiples of 16 bytes",
    )
    _expect(o.data_ptr() % 16 == 0, "tensor o has to start at a multiple of 16 bytes")
    batches = q_extents[0]
    row_extent = q.shape[2]
    inner_extent = q.shape[3]
    stream_extent = k_.shape[2]
    column_extent = v.shape[3]
    row_tiles = triton.cdiv(row_extent, 256)
    tiles = batches * row_tiles
    blocks = tiles
    _expect(
        k__extents[0] == batches and k_.shape[3] == inner_extent,
        f"tensor k has extents {k__extents}, expected {[batches, stream_extent, inner_extent]}",
    )
    _expect(
        v_extents[0] == batches and v.shape[2] == stream_extent,
        f"tensor v has extents {v_extents}, expected {[batches, stream_extent, column_extent]}",
    )
    _expect(column_extent <= 128, f"the products have {column_extent} columns: this schedule holds up to 128")
    _expect(inner_extent <= 128, f"the inner axis has {inner_extent} elements: this schedule holds up to 128")
    _expect(
        o.shape[0] == q.shape[0]
        and o.shape[1] == q.shape[1]
        and o.shape[2] == q.shape[2]
        and o.shape[3] == v.shape[3],
        f"tensor o has extents {[*o.shape]}, expected {[q.shape[0], q.shape[1], q.shape[2], v.shape[3]]}",
    )
    q_desc = TensorDescriptor(q, q_extents, q_strides, [1, 128, 128], q_LAYOUT.value)
    k__desc = TensorDescriptor(k_, k__extents, k__strides, [1, 64, 128], k__LAYOUT.value)
    v_desc = TensorDescriptor(v, v_extents, v_strides, [1, 64, 128], v_LAYOUT.value)
    o_desc = TensorDescriptor(o, o_extents, o_strides, [1, 128, 64], o_LAYOUT.value)
    return (
        (blocks,),
        (
            q_desc,
            k__desc,
            v_desc,
            o_desc,
            row_tiles,
            row_extent,
            column_extent,
            stream_extent,
        ),
        outputs,
    )


def _key(q, k, v):
    # The inputs, their device and layouts, and their addresses.
    return (
        (
            q,
            k,
            v,
        ),
        (
            q.get_device(),
            q.shape,
            q.stride(),
            q.dtype,
            q.requires_grad,
            k.shape,
            k.stride(),
            k.dtype,
            k.requires_grad,
            v.shape,
            v.stride(),
            v.dtype,
            v.requires_grad,
        ),
        (
            q.data_ptr(),
            k.data_ptr(),
            v.data_ptr(),
        ),
    )


def prepare(outputs=None, /, **tensors):
    """Check the inputs once; return a function that launches the kernel on them, and the outputs by name."""
    return _LAUNCHER.prepare(tensors, outputs)


def run(*, q, k, v, out=None, **unused):
    """Compute o from the graph's inputs, given by name; into `out`, a tensor or a tuple of them, if given."""
    if out is None:
        result = _LAUNCHER.again(
            (
                q,
                k,
                v,
            ),
            (
                q.data_ptr(),
                k.data_ptr(),
                v.data_ptr(),
            ),
        )
        if result is not None:
            return result
    return _LAUNCHER.run({"q": q, "k": k, "v": v}, out)


def register(name="attention"):
    """Make `torch.ops.wsopt.NAME` of this kernel, and return it. Its arguments are the graph's inputs, in order."""

    def fake(tensors):
        outputs = tuple(_new_outputs(tensors).values())
        return outputs[0] if len(outputs) == 1 else outputs

    return _LAUNCHER.register(name, fake)


# --- From here on the same in every kernel: how it is launched, by driver calls that are prepared once. ---


class _Config(ctypes.Structure):
    """CUlaunchConfig of cuda.h."""

    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared_bytes", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.c_void_p),
        ("count", ctypes.c_uint),
    )


class _Attribute(ctypes.Structure):
    """CUlaunchAttribute of cuda.h, whose value is a union of 64 bytes."""

    _fields_ = (("name", ctypes.c_uint), ("padding", ctypes.c_uint), ("value", ctypes.c_int * 16))


# Numbers of cuda.h: CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, CUDA_ERROR_INVALID_CONTEXT,
# CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION.
_MAX_SHARED_BYTES, _INVALID_CONTEXT, _L2_PROMOTION, _PROGRAMMATIC = 8, 201, 2, 6
_BUFFER_END, _BUFFER_POINTER, _BUFFER_SIZE = 0, 1, 2  # CU_LAUNCH_PARAM_*
_SWIZZLES = {0: 0, 32: 1, 64: 2, 128: 3}  # CU_TENSOR_MAP_SWIZZLE by bytes
_PROGRAMMATIC_LAUNCH = _Attribute(_PROGRAMMATIC, 0, (ctypes.c_int * 16)(1))
_MAP_BYTES, _LONGEST_BOX = 128, 256
# Drivers up to 13.1 mark maps of small tensors wrongly; Triton and CUTLASS clear that bit, too.
_SMALL_BYTES, _MENDED_AFTER = 128 * 1024, 13010


@functools.cache
def _driver() -> Any:
    """The CUDA driver. Calls let other threads run meanwhile, for a launch waits where too many are under way."""
    library = ctypes.CDLL("libcuda.so.1")
    library.cuTensorMapReplaceAddress.argtypes = [ctypes.c_void_p] * 2
    return library


def _check(error: int, what: str) -> None:
    """Raise RuntimeError with the driver's own words where a call of it failed."""
    if error:
        words = ctypes.c_char_p()
        _driver().cuGetErrorString(error, ctypes.byref(words))
        raise RuntimeError(f"{what}: {(words.value or b'unknown').decode()} (CUDA error {error})")


class _Compiled:
    """A kernel's machine code, loaded on a device: its handle, threads of a block, bytes of shared memory."""

    def __init__(self, kernel: Any, device: int, sizes: list[int]) -> None:
        metadata = kernel.metadata
        if metadata.global_scratch_size or metadata.profile_scratch_size:
            raise RuntimeError("the compiler wants scratch memory, which this launcher does not pass")
        driver, library, handle = _driver(), ctypes.c_void_p(), ctypes.c_void_p()
        binary = kernel.asm["cubin"]
        error = driver.cuLibraryLoadData(ctypes.byref(library), binary, None, None, 0, None, None, 0)
        _check(error, "the kernel cannot be loaded")
        error = driver.cuLibraryGetKernel(ctypes.byref(handle), library, metadata.name.encode())
        _check(error, f"the loaded code has no kernel {metadata.name}")
        error = driver.cuKernelSetAttribute(_MAX_SHARED_BYTES, metadata.shared, handle, device)
        _check(error, f"a block cannot have {metadata.shared} bytes of shared memory")
        self.handle, self.binary = handle, binary
        self.threads, self.shared_bytes = metadata.num_warps * 32, metadata.shared
        self.layout = _parameter_layout(handle)
        found = sizes if self.layout is None else [size for _, size in self.layout]
        if found != sizes:
            raise RuntimeError(f"the kernel takes parameters of {found} bytes, this launcher passes {sizes}")


def _parameter_layout(handle: Any) -> list[tuple[int, int]] | None:
    """Offset and bytes of each parameter of a loaded kernel; None where the driver is too old to tell."""
    tell = getattr(_driver(), "cuKernelGetParamInfo", None)
    if tell is None:
        return None
    found: list[tuple[int, int]] = []
    offset, size = ctypes.c_size_t(), ctypes.c_size_t()
    while not tell(handle, ctypes.c_size_t(len(found)), ctypes.byref(offset), ctypes.byref(size)):
        found.append((offset.value, size.value))
    return found


class _Memory:
    """Bytes at a fixed, aligned address."""

    def __init__(self, size: int) -> None:
        self._kept = ctypes.create_string_buffer(size + _MAP_BYTES)
        self.start = -(-ctypes.addressof(self._kept) // _MAP_BYTES) * _MAP_BYTES


class _Frame:
    """All of a launch but addresses and stream, for tensors of one layout.

    Triton passes a descriptor as its tensor map, its extents (i32) and its strides (i64), and after the kernel's own
    arguments two pointers to scratch memory. `places` and `sizes` are the parameters' offsets and bytes. `addresses`
    says where tensors' addresses go: the parameter's offset, the tensor's number among inputs and outputs, whether a
    tensor map holds it.
    """

    def __init__(
        self, number: int, grid: Any, arguments: Any, tensors: list[Any], results: list[Any]
    ) -> None:
        self.number, self.grid, self.device = number, grid, tensors[0].get_device()
        self.outputs = [(tuple(one.shape), one.stride(), one.dtype) for one in results]
        self.places: list[int] = []
        self.sizes: list[int] = []
        self.addresses: list[tuple[int, int, bool]] = []
        self.table: Any = None
        self.fresh: Any = (
            None  # size, strides and type of the only output, where no input requires a gradient
        )
        self.guarded = False  # some input requires a gradient: not to be run where gradients are recorded
        self.end = 0
        fields: list[tuple[int, Any]] = []
        for argument in arguments:
            fields += self._fields(argument, tensors)
        fields += [(self._take(8), 0) for _scratch in range(2)]
        self.template = _Memory(self.end)
        for (place, value), size in zip(fields, self.sizes, strict=True):
            if size == _MAP_BYTES:
                _encode(self.template.start + place, value)
            else:
                ctypes.memmove(self.template.start + place, int(value).to_bytes(size, "little"), size)

    def _fields(self, argument: Any, tensors: list[Any]) -> list[tuple[int, Any]]:
        """The parameters that an argument of the kernel becomes, each with its offset and value."""
        if isinstance(argument, int):
            return [(self._take(4), argument)]
        if hasattr(argument, "block_shape"):
            fields = [(self._take(_MAP_BYTES), argument)]
            self._address(fields[0][0], argument.base, tensors, True)
            fields += [(self._take(4), extent) for extent in argument.shape]
            return fields + [(self._take(8), stride) for stride in argument.strides]
        place = self._take(8)
        self._address(place, argument, tensors, False)
        return [(place, argument.data_ptr())]

    def _take(self, size: int) -> int:
        place = -(-self.end // size) * size
        self.end = place + size
        self.places.append(place)
        self.sizes.append(size)
        return place

    def _address(self, place: int, tensor: Any, tensors: list[Any], is_map: bool) -> None:
        own = getattr(tensor, "base", tensor)  # of one that is seen as another type
        for number, known in enumerate(tensors):
            if known is own:
                self.addresses.append((place, number, is_map))
                return
        self.table = tensor  # no input and no output: its address stays as it is


class _Packed:
    """Parameters as the device takes them, in one piece: the driver need not gather them at each launch."""

    def __init__(self, starts: list[int], layout: list[tuple[int, int]]) -> None:
        offset, size = layout[-1]
        self._bytes = ctypes.create_string_buffer(offset + size)
        for start, (offset, size) in zip(starts, layout, strict=True):
            ctypes.memmove(ctypes.addressof(self._bytes) + offset, start, size)
        self._size = ctypes.c_size_t(len(self._bytes))
        pointer, length = ctypes.addressof(self._bytes), ctypes.addressof(self._size)
        self.extra = (ctypes.c_void_p * 5)(_BUFFER_POINTER, pointer, _BUFFER_SIZE, length, _BUFFER_END)


class _Call:
    """One launch, ready to be handed to the driver: `arguments` are those of cuLaunchKernelEx."""

    __slots__ = ("_kept", "arguments")

    def __init__(self, frame: _Frame, compiled: _Compiled, stream: int, addresses: list[int]) -> None:
        memory = _Memory(frame.end)
        ctypes.memmove(memory.start, frame.template.start, frame.end)
        for place, number, is_map in frame.addresses:
            address = addresses[number]
            if is_map:
                error = _driver().cuTensorMapReplaceAddress(memory.start + place, address)
                _check(error, f"a tensor begins at {address:#x}, which is no multiple of 16 bytes")
            else:
                ctypes.memmove(memory.start + place, address.to_bytes(8, "little"), 8)
        starts = [memory.start + place for place in frame.places]
        packed = None if compiled.layout is None else _Packed(starts, compiled.layout)
        parameters = (ctypes.c_void_p * len(starts))(*starts) if packed is None else None
        config = _Config(
            (*frame.grid, *(1,) * (3 - len(frame.grid))),
            (compiled.threads, 1, 1),
            compiled.shared_bytes,
            stream,
            ctypes.addressof(_PROGRAMMATIC_LAUNCH),
            1,
        )
        extra = None if packed is None else packed.extra
        self.arguments = (ctypes.byref(config), compiled.handle, parameters, extra)
        self._kept = (memory, packed, config, frame.table)


def _encode(place: int, descriptor: Any) -> None:
    """Write a descriptor's tensor map. A copy moves a swizzle's width at most, and 256 elements a dimension."""
    base, layout, rank = descriptor.base, descriptor.layout, len(descriptor.shape)
    kinds = {
        torch.float16: 6,
        torch.float32: 7,
        torch.bfloat16: 9,
    }  # CU_TENSOR_MAP_DATA_TYPE; other types as bytes
    size, swizzle = base.element_size(), layout.swizzle_byte_width
    box = [min(extent, _LONGEST_BOX) for extent in descriptor.block_shape]
    if swizzle:
        box[-1] = min(box[-1], swizzle // size)
    longs, ints = ctypes.c_uint64 * rank, ctypes.c_uint32 * rank
    error = _driver().cuTensorMapEncodeTiled(
        ctypes.c_void_p(place),
        kinds.get(base.dtype, {1: 0, 2: 1, 4: 2}[size]),
        rank,
        ctypes.c_void_p(base.data_ptr()),
        longs(*reversed(descriptor.shape)),
        longs(*[stride * size for stride in reversed(descriptor.strides[:-1])]),
        ints(*reversed(box)),
        ints(*(1,) * rank),
        0,
        _SWIZZLES[swizzle],
        _L2_PROMOTION,
        0,
    )
    _check(error, f"no tensor map for {descriptor.shape} elements with strides {descriptor.strides}")
    span = 1 + sum((n - 1) * stride for n, stride in zip(descriptor.shape, descriptor.strides, strict=True))
    if span * size < _SMALL_BYTES and _driver_version() <= _MENDED_AFTER:
        word = ctypes.c_uint64.from_address(place + 8)
        word.value &= ~(1 << 21)


@functools.cache
def _driver_version() -> int:
    """The newest CUDA release that the driver knows, as 1000 * major + 10 * minor."""
    version = ctypes.c_int()
    _check(_driver().cuDriverGetVersion(ctypes.byref(version)), "the driver does not tell its version")
    return version.value


_LAYOUTS, _CALLS, _TABLES = 256, 1024, 64  # what each cache holds at most
_LOCK = threading.RLock()
_ORDERS: dict[Any, Any] = {}
_CAPTURED: dict[int, Any] = {}  # tables that CUDA graphs read at every replay: never freed


def _expect(condition: Any, message: str) -> None:
    if not condition:
        raise ValueError(message)


def _typed(tensors: dict[str, Any], expected: dict[str, tuple[Any, int]]) -> list[Any]:
    """The expected tensors in order, each of its type and number of dimensions."""
    for name, (dtype, rank) in expected.items():
        _expect(name in tensors, f"tensor {name} is missing; expected {', '.join(expected)}")
        found, dims = tensors[name].dtype, len(tensors[name].shape)
        _expect(found == dtype, f"tensor {name} is {found}, expected {dtype}")
        _expect(dims == rank, f"tensor {name} has {dims} dimensions, expected {rank}")
    return [tensors[name] for name in expected]


def _keep(cache: dict[Any, Any], limit: int, key: Any, value: Any) -> None:
    """Put a value into a bounded cache. Called with the lock held, since it walks the cache."""
    while len(cache) >= limit:
        cache.pop(next(iter(cache)))
    cache[key] = value


def _table(device: Any, extents: tuple[int, ...], make: Any) -> Any:
    """The i32 tensor of `make()` on a device, made once for the same extents."""
    with _LOCK:
        key = (str(device), *extents)
        found = _ORDERS.get(key)
        if found is None:
            if torch.cuda.is_current_stream_capturing():
                raise RuntimeError(
                    "the order of tiles is not on the device yet, and cannot be copied there while a CUDA graph is "
                    "captured: call run() or prepare() once with tensors of these shapes before the capture"
                )
            found = torch.tensor(make(), dtype=torch.int32, device=device)
            _keep(_ORDERS, _TABLES, key, found)
        return found


def _empty(size: Any, stride: Any, dtype: Any) -> Any:
    return torch.empty_strided(size, stride, dtype=dtype, device="cuda")


def _never(*_tensors: Any) -> bool:
    return False


def _guards() -> Any:
    """A function that makes one that tells whether tensors have the layouts, types and device of those given to it.

    It is the one of torch's compiler, and takes a quarter of the time that a key of all those takes.
    """
    try:
        from torch._C._dynamo.guards import TensorGuards

        def made(inputs: Any) -> Any:
            return TensorGuards(*inputs, dynamic_dims_sizes=None, dynamic_dims_strides=None).check

        one = torch.empty(1)
        return made if made((one,))(one) else lambda _inputs: _never
    except (ImportError, AttributeError, TypeError):  # torch's own, and may change
        return lambda _inputs: _never


class _Host:
    """What a warm call asks of torch and of the driver: their quickest forms, of which some are torch's own."""

    def __init__(self) -> None:
        try:
            from torch._C._dynamo.guards import _empty_strided_cuda as empty
        except ImportError:  # on the current device, as the quicker one is
            self.empty: Any = _empty
        else:
            self.empty = empty
        self.stream, self.device = torch._C._cuda_getCurrentRawStream, torch._C._cuda_getDevice
        self.capturing, self.grads = torch._C._cuda_isCurrentStreamCapturing, torch.is_grad_enabled
        self.launch, self.guards = _driver().cuLaunchKernelEx, _guards()
        self.one_device = torch.cuda.device_count() == 1


_host = functools.cache(_Host)


def _with(layout: Any, given: Any) -> Any:
    """A layout of inputs with that of given outputs."""
    return (*layout, *[(x.shape, x.stride(), x.dtype) for x in given])


def _argument(name: str) -> str:
    """What an operator's argument is called: as the input, unless Python has that word for itself."""
    return f"{name}_" if keyword.iskeyword(name) else name


class Launcher:
    """Calls a kernel, from any thread, on the current stream of the device that its tensors are on.

    `key(*inputs)` returns the inputs, their device and layouts, and their addresses. `bind` checks tensors,
    makes outputs where it is given none, and returns the grid, the kernel's arguments, and the outputs.
    """

    def __init__(self, kernel: Any, options: Any, key: Any, bind: Any, inputs: Any, outputs: Any) -> None:
        self._kernel, self._options, self._key, self._bind = kernel, options, key, bind
        self._inputs, self._outputs = inputs, outputs
        self._frames: dict[Any, _Frame] = {}
        self._calls: dict[Any, _Call] = {}
        self._compiled: dict[Any, _Compiled] = {}
        self._numbers = itertools.count()
        self._operator: Any = None
        self._host: Any = None
        self._usual: Any = (_never, None)  # whether inputs are as those of most calls, and the frame of those
        self._last: Any = None

    def again(self, inputs: Any, addresses: Any) -> Any:
        """The output of a call that repeats one, in a new tensor; None where anything is new or not usual.

        What most calls are, and no step more: one output, no gradients, and no table that a capture could keep (the
        default stream is never captured).
        """
        alike, frame = self._usual
        if not alike(*inputs):
            frame = self._known(inputs)
            if frame is None or frame.fresh is None:
                return None
        host, device = self._host, frame.device
        if not host.one_device and host.device() != device:
            return None
        stream = host.stream(device)
        if stream and frame.table is not None:
            return None
        result = host.empty(*frame.fresh)
        call = self._calls.get((frame.number, stream, addresses, result.data_ptr()))
        if call is None:
            return None
        if error := host.launch(*call.arguments):
            _launch_again(error, call, device)
        return result

    def _known(self, inputs: Any) -> Any:
        """The frame of inputs of a known layout; one asked for twice in a row is the usual one from then on."""
        frame = self._frames.get(self._key(*inputs)[1])
        if frame is not None and frame is self._last and frame.fresh is not None:
            self._usual = (self._host.guards(inputs), frame)
        self._last = frame
        return frame

    def run(self, tensors: dict[str, Any], out: Any) -> Any:
        """Compute the outputs into new tensors, or into `out`: one tensor, or a tuple of several."""
        inputs, layout, addresses = self._named(tensors)
        return self._run(tensors, inputs, layout, addresses, out)

    def _run(self, tensors: dict[str, Any], inputs: Any, layout: Any, addresses: Any, out: Any) -> Any:
        """The same, of inputs in order, whatever is new about them and wherever they are."""
        host, device = self._open(), layout[0]
        if device != host.device():
            _expect(device >= 0, f"tensor {self._inputs[0]} is on {inputs[0].device}, expected a CUDA device")
            with torch.cuda.device(device):
                return self.run(tensors, out)
        given = () if out is None else out if isinstance(out, tuple) else (out,)
        if given:
            layout = _with(layout, given)
        frame = self._frames.get(layout)
        if frame is None or (frame.guarded and host.grads()):
            frame = self._framed(layout, inputs, given)
        results = given or tuple([host.empty(*one) for one in frame.outputs])
        stream = host.stream(device)
        key = (frame.number, stream, addresses, *[x.data_ptr() for x in results])
        call = self._calls.get(key) or self._called(key, frame, inputs, results)
        if stream and frame.table is not None and host.capturing():
            _CAPTURED[id(frame.table)] = frame.table
        if error := host.launch(*call.arguments):
            _launch_again(error, call, device)
        return results[0] if len(results) == 1 else results

    def _open(self) -> Any:
        """Find the driver and what torch has, when they are first needed."""
        self._host = _host()
        return self._host

    def prepare(self, tensors: dict[str, Any], outputs: dict[str, Any] | None) -> Any:
        """Check tensors once; return a function that launches the kernel on them, and the outputs by name."""
        host, (inputs, layout, addresses) = self._open(), self._named(tensors)
        device = layout[0]
        _expect(device >= 0, f"tensor {self._inputs[0]} is on {inputs[0].device}, expected a CUDA device")
        with torch.cuda.device(device):
            named = self._bind(tensors, outputs)[2]
            results = tuple(named[name] for name in self._outputs)
            frame = self._framed(_with(layout, results), inputs, results)
        where = tuple(x.data_ptr() for x in results)
        calls: dict[int, _Call] = {}  # by stream
        stream_of, start, capturing, table = host.stream, host.launch, host.capturing, frame.table

        def called(stream: int) -> _Call:
            with torch.cuda.device(device):
                made = self._called((frame.number, stream, addresses, *where), frame, inputs, results)
            return calls.setdefault(stream, made)

        def launch() -> None:
            stream = stream_of(device)
            call = calls.get(stream) or called(stream)
            if stream and table is not None and capturing():
                _CAPTURED[id(table)] = table
            if error := start(*call.arguments):
                _launch_again(error, call, device)

        def launch_there() -> None:
            with torch.cuda.device(device):
                launch()

        called(host.stream(device))
        return (
            launch if host.one_device else lambda: launch() if host.device() == device else launch_there(),
            named,
        )

    def register(self, name: str, fake: Any) -> Any:
        """Make `torch.ops.wsopt.NAME` of the kernel, once; `fake(tensors)` makes outputs without computing them."""
        if self._operator is None:
            _expect(
                not hasattr(torch.ops.wsopt, name),
                f"torch.ops.wsopt.{name} is another kernel's: choose a name, as in register({name + '_2'!r})",
            )
            self._library = torch.library.Library("wsopt", "FRAGMENT")
            parameters = ", ".join(f"Tensor {_argument(one)}" for one in self._inputs)
            results = (
                "Tensor" if len(self._outputs) == 1 else f"({', '.join('Tensor' for _ in self._outputs)})"
            )
            tags = (torch.Tag.pt2_compliant_tag, torch.Tag.needs_fixed_stride_order)
            self._library.define(f"{name}({parameters}) -> {results}", tags=tags)
            self._library.impl(
                name, lambda *given: self.run(dict(zip(self._inputs, given, strict=True)), None), "CUDA"
            )
            torch.library.register_fake(
                f"wsopt::{name}",
                lambda *given: fake(dict(zip(self._inputs, given, strict=True))),
                lib=self._library,
            )
            self._operator = getattr(torch.ops.wsopt, name)
        return self._operator

    def _named(self, tensors: dict[str, Any]) -> Any:
        """The inputs in order, their device and layouts, and their addresses. Other tensors are ignored."""
        for name in self._inputs:
            _expect(name in tensors, f"tensor {name} is missing; the inputs are {', '.join(self._inputs)}")
        return self._key(*[tensors[name] for name in self._inputs])

    def _framed(self, layout: Any, inputs: list[Any], given: tuple[Any, ...]) -> _Frame:
        """Check tensors, and make what depends on their layout alone."""
        for name, one in zip(self._inputs, inputs, strict=True):
            _expect(
                not (one.requires_grad and torch.is_grad_enabled()),
                f"tensor {name} requires a gradient, and this kernel computes none: call it under torch.no_grad(), "
                f"or pass {name}.detach()",
            )
        wanted = ", ".join(self._outputs)
        _expect(
            len(given) in (0, len(self._outputs)), f"out has {len(given)} tensors; the outputs are {wanted}"
        )
        with _LOCK:
            if layout in self._frames:
                return self._frames[layout]
            # As objects of their own, so that two inputs that happen to be one tensor are told apart.
            apart = [one.detach() for one in inputs]
            grid, arguments, results = self._bound(apart, [one.detach() for one in given])
            made = _Frame(next(self._numbers), grid, arguments, [*apart, *results], results)
            made.guarded = any(one.requires_grad for one in inputs)
            if len(results) == 1 and not made.guarded:
                made.fresh = made.outputs[0]
            _keep(self._frames, _LAYOUTS, layout, made)
            return made

    def _bound(self, inputs: list[Any], given: Any) -> Any:
        """The grid, the kernel's arguments, and the outputs in their order."""
        outputs = dict(zip(self._outputs, given, strict=True)) if given else None
        grid, arguments, results = self._bind(dict(zip(self._inputs, inputs, strict=True)), outputs)
        return grid, arguments, [results[name] for name in self._outputs]

    def _called(self, key: Any, frame: _Frame, inputs: list[Any], outputs: Any) -> _Call:
        """The launch of a frame at these addresses on a stream; the kernel is compiled where it never was."""
        _number, stream, (*addresses,), *rest = key
        addresses += rest
        device = inputs[0].get_device()
        for name, one in zip((*self._inputs, *self._outputs), (*inputs, *outputs), strict=True):
            _expect(one.get_device() == device, f"tensor {name} is on {one.device}, expected cuda:{device}")
            _expect(one.data_ptr() or not one.numel(), f"tensor {name} has no memory")
        # The compiler is told which pointers are multiples of 16 bytes, as Triton's own launches tell it.
        aligned = tuple(addresses[number] % 16 == 0 for _, number, is_map in frame.addresses if not is_map)
        with _LOCK:
            compiled = self._compiled.get((device, aligned))
            if compiled is None:
                grid, arguments, _ = self._bound(inputs, outputs)
                binary = self._kernel.warmup(*arguments, grid=grid, **self._options, launch_pdl=True)
                compiled = self._compiled[device, aligned] = _Compiled(binary, device, frame.sizes)
            if frame.table is not None and not torch.cuda.is_current_stream_capturing():
                # Its memory is not given to others before this stream has read it.
                frame.table.record_stream(torch.cuda.current_stream())
            made = _Call(frame, compiled, stream, addresses)
            _keep(self._calls, _CALLS, key, made)
            return made


def _launch_again(error: int, call: _Call, device: int) -> None:
    """Launch once more where the thread had no context yet, as one that is new to CUDA has not; else raise."""
    if error == _INVALID_CONTEXT:
        torch.cuda.set_device(device)
        error = _driver().cuLaunchKernelEx(*call.arguments)
    _check(error, "the kernel cannot be launched")


_LAUNCHER = Launcher(kernel, OPTIONS, _key, bind, tuple(INPUTS), tuple(OUTPUTS))
