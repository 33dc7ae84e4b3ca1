"""Tensor instructions of one to three warpgroups: 64 rows each, their own left operand, one right operand."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from wsopt.calibrate.kernels.common import block_barrier, clock, keep, report


@gluon.jit
def scatter(rows, columns):
    # Values between -1 and 1 that look random: what operands are says how much power a product takes.
    mixed = (rows * 7919 + columns * 104729 + 12345) * 1103515245
    mixed = (mixed ^ (mixed >> 13)) * 69069
    return (mixed >> 8).to(gl.float32) / 8388608.0


@gluon.jit
def fill(buffer, seed):
    shape: gl.constexpr = buffer.shape
    layout: gl.constexpr = gl.BlockedLayout([1, 8], [8, 4], [gl.num_warps(), 1], [1, 0])
    rows = gl.arange(0, shape[0], layout=gl.SliceLayout(1, layout))
    columns = gl.arange(0, shape[1], layout=gl.SliceLayout(0, layout))
    buffer.store(scatter(gl.expand_dims(rows, 1) + seed, gl.expand_dims(columns, 0)).to(buffer.dtype))


@gluon.jit
def role(
    out,
    sink,
    k_iterations,
    left,
    right,
    place: gl.constexpr,
    COLUMNS: gl.constexpr,
    ISSUES: gl.constexpr,
    REGISTERS: gl.constexpr,
    TIMED: gl.constexpr,
):
    # TIMED: the loop (from a product to the next, which waits for it), or only the issue.
    bits: gl.constexpr = right.dtype.primitive_bitwidth
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, COLUMNS, 256 // bits])
    held: gl.constexpr = gl.DotOperandLayout(0, layout, 32 // bits)
    sums = gl.zeros([64, COLUMNS], gl.float32, layout)
    operand = left.index(place)
    if REGISTERS:
        operand = operand.load(held)
    block_barrier()
    spent = clock() * 0
    first = clock()
    for _ in range(k_iterations):
        if TIMED == "issue":
            begin = clock()
        for _ in gl.static_range(ISSUES):
            sums = warpgroup_mma(operand, right, sums, is_async=True)
        if TIMED == "issue":
            spent += clock() - begin
        sums = warpgroup_mma_wait(0, deps=(sums,))
    last = clock()
    if TIMED == "issue":
        first = last - spent
    report(out, place, first, last)
    keep(sink, place, sums)


@gluon.jit
def kernel(
    out,
    sink,
    trips0,
    trips1,
    trips2,
    scale,
    DTYPE: gl.constexpr,
    COLUMNS: gl.constexpr,
    ISSUES: gl.constexpr,
    REGISTERS: gl.constexpr,
    TIMED: gl.constexpr,
):
    # One K-block is 128 bytes deep: four tensor instructions.
    bits: gl.constexpr = DTYPE.primitive_bitwidth
    depth: gl.constexpr = 1024 // bits
    swizzled: gl.constexpr = gl.NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=bits, rank=2)
    left = gl.allocate_shared_memory(DTYPE, [3, 64, depth], swizzled)
    right = gl.allocate_shared_memory(DTYPE, [COLUMNS, depth], swizzled)
    for place in gl.static_range(3):
        fill(left.index(place), place)
    fill(right, 64)
    fence_async_shared()
    turned = right.permute((1, 0))
    gl.warp_specialize(
        [
            (role, (out, sink, trips0, left, turned, 0, COLUMNS, ISSUES, REGISTERS, TIMED)),
            (role, (out, sink, trips1, left, turned, 1, COLUMNS, ISSUES, REGISTERS, TIMED)),
            (role, (out, sink, trips2, left, turned, 2, COLUMNS, ISSUES, REGISTERS, TIMED)),
        ],
        [4, 4],
        [168, 168],
    )
