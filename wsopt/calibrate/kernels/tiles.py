"""Operations of attention between its products, on a tile of 64 rows that a warpgroup holds as an accumulator.

`OP` is done once an iteration on top of a carrier, which keeps iterations dependent: `x * scale + shift` for
f32, an exclusive or for packed narrow types. The carrier alone is measured too, and taken off.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared

from wsopt.calibrate.kernels.common import block_barrier, clock, keep, report


@gluon.jit
def mix(left, right, PACK: gl.constexpr):
    return gl.inline_asm_elementwise(
        "xor.b32 $0, $1, $2;", "=r,r,r", [left, right], dtype=left.dtype, is_pure=True, pack=PACK
    )


@gluon.jit
def exp2(x):
    return gl.inline_asm_elementwise(
        "ex2.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=gl.float32, is_pure=True, pack=1
    )


@gluon.jit
def start_tile(scale, COLUMNS: gl.constexpr, layout: gl.constexpr):
    rows = gl.arange(0, 64, layout=gl.SliceLayout(1, layout)).to(gl.float32)
    columns = gl.arange(0, COLUMNS, layout=gl.SliceLayout(0, layout)).to(gl.float32)
    return rows[:, None] * scale + columns[None, :]


@gluon.jit
def reduce_role(out, sink, k_iterations, scale, place: gl.constexpr, OP: gl.constexpr, COLUMNS: gl.constexpr):
    # OP: none, max, sum.
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, COLUMNS, 16])
    x = start_tile(scale, COLUMNS, layout)
    of_row = gl.max(x, axis=1)
    first = clock()
    for _ in range(k_iterations):
        if OP == "max":
            of_row = gl.max(x, axis=1)
        elif OP == "sum":
            of_row = gl.sum(x, axis=1)
        x = gl.fma(x, gl.full_like(x, 1.0) * scale, gl.expand_dims(of_row, 1) + gl.zeros_like(x))
    last = clock()
    report(out, place, first, last)
    keep(sink, place, x)


@gluon.jit
def reduce_kernel(out, sink, trips0, trips1, trips2, scale, OP: gl.constexpr, COLUMNS: gl.constexpr):
    gl.warp_specialize(
        [
            (reduce_role, (out, sink, trips0, scale, 0, OP, COLUMNS)),
            (reduce_role, (out, sink, trips1, scale, 1, OP, COLUMNS)),
            (reduce_role, (out, sink, trips2, scale, 2, OP, COLUMNS)),
        ],
        [4, 4],
        [160, 160],
    )


@gluon.jit
def convert_role(
    out,
    sink,
    k_iterations,
    scale,
    place: gl.constexpr,
    OP: gl.constexpr,
    BITS: gl.constexpr,
    COLUMNS: gl.constexpr,
):
    # OP: none (the cast alone), operand (the cast, then the layout of a left operand in registers).
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, COLUMNS, 256 // BITS])
    operand: gl.constexpr = gl.DotOperandLayout(0, layout, 32 // BITS)
    narrow: gl.constexpr = gl.bfloat16 if BITS == 16 else gl.float8e4nv
    x = start_tile(scale, COLUMNS, layout)
    seen = x.to(narrow)
    if OP == "operand":
        seen = gl.convert_layout(seen, operand)
    first = clock()
    for _ in range(k_iterations):
        x = gl.fma(x, gl.full_like(x, 1.0) * scale, gl.full_like(x, 1.0))
        cast = x.to(narrow)
        if OP == "operand":
            cast = gl.convert_layout(cast, operand)
        seen = mix(seen, cast, 32 // BITS)
    last = clock()
    report(out, place, first, last)
    keep(sink, place, seen)


@gluon.jit
def convert_kernel(
    out, sink, trips0, trips1, trips2, scale, OP: gl.constexpr, BITS: gl.constexpr, COLUMNS: gl.constexpr
):
    gl.warp_specialize(
        [
            (convert_role, (out, sink, trips0, scale, 0, OP, BITS, COLUMNS)),
            (convert_role, (out, sink, trips1, scale, 1, OP, BITS, COLUMNS)),
            (convert_role, (out, sink, trips2, scale, 2, OP, BITS, COLUMNS)),
        ],
        [4, 4],
        [160, 160],
    )


@gluon.jit
def shared_role(
    out,
    sink,
    k_iterations,
    scale,
    buffers,
    place: gl.constexpr,
    OP: gl.constexpr,
    BITS: gl.constexpr,
    COLUMNS: gl.constexpr,
):
    # OP: store (after the barrier that storing again takes, then a fence), load, operand (a load into the
    # layout of a left operand).
    depth: gl.constexpr = 8 if BITS == 32 else 256 // BITS
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, COLUMNS, depth])
    held: gl.constexpr = gl.DotOperandLayout(0, layout, 32 // BITS) if OP == "operand" else layout
    x = gl.convert_layout(start_tile(scale, COLUMNS, layout), held).to(buffers.dtype)
    buffers.index(place).store(x)
    buffers.index(3 + place).store(x)
    block_barrier()
    first = clock()
    for k_iteration in range(k_iterations):
        buffer = buffers.index((k_iteration & 1) * 3 + place)
        if OP == "store":
            buffer.store(x)
            fence_async_shared()
        else:
            x = mix(x, buffer.load(held), 32 // BITS)
    last = clock()
    report(out, place, first, last)
    keep(sink, place, x)


@gluon.jit
def shared_kernel(
    out,
    sink,
    trips0,
    trips1,
    trips2,
    scale,
    OP: gl.constexpr,
    BITS: gl.constexpr,
    COLUMNS: gl.constexpr,
    SWIZZLE: gl.constexpr,
    TRANSPOSED: gl.constexpr,
):
    narrow: gl.constexpr = gl.float8e4nv if BITS == 8 else gl.bfloat16
    kind: gl.constexpr = gl.float32 if BITS == 32 else narrow
    layout: gl.constexpr = gl.NVMMASharedLayout(
        swizzle_byte_width=SWIZZLE, element_bitwidth=BITS, rank=2, transposed=TRANSPOSED
    )
    buffers = gl.allocate_shared_memory(kind, [6, 64, COLUMNS], layout)
    gl.warp_specialize(
        [
            (shared_role, (out, sink, trips0, scale, buffers, 0, OP, BITS, COLUMNS)),
            (shared_role, (out, sink, trips1, scale, buffers, 1, OP, BITS, COLUMNS)),
            (shared_role, (out, sink, trips2, scale, buffers, 2, OP, BITS, COLUMNS)),
        ],
        [4, 4],
        [160, 160],
    )


@gluon.jit
def pack_pairs(x):
    # Neighbours of a row as one word of two bf16: the cast, already where a left operand has it.
    pairs = x.reshape([x.shape[0], x.shape[1] // 2, 2])
    even, odd = pairs.split()
    return gl.inline_asm_elementwise(
        "cvt.rn.bf16x2.f32 $0, $1, $2;", "=r,f,f", [odd, even], dtype=gl.int32, is_pure=True, pack=1
    )


@gluon.jit
def softmax_role(out, sink, k_iterations, scale, place: gl.constexpr, COLUMNS: gl.constexpr):
    # A whole step of online softmax without its products: the sum of parts is held against it.
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, COLUMNS, 16])
    x = start_tile(scale, COLUMNS, layout)
    highest = gl.max(x, axis=1)
    total = highest
    seen = pack_pairs(x)
    first = clock()
    for _ in range(k_iterations):
        higher = gl.maximum(highest, gl.max(x, axis=1) * scale)
        rescale = exp2(highest - higher)
        down = gl.expand_dims(higher, 1) + gl.zeros_like(x)
        p = exp2(gl.fma(x, gl.full_like(x, 1.0) * scale, -down))
        total = total * rescale + gl.sum(p, axis=1)
        highest = higher
        seen = seen ^ pack_pairs(p)
        x = p
    last = clock()
    report(out, place, first, last)
    keep(sink, place, seen)
    gl.store(sink + place, gl.sum(total, axis=0))


@gluon.jit
def softmax_kernel(out, sink, trips0, trips1, trips2, scale, COLUMNS: gl.constexpr):
    gl.warp_specialize(
        [
            (softmax_role, (out, sink, trips0, scale, 0, COLUMNS)),
            (softmax_role, (out, sink, trips1, scale, 1, COLUMNS)),
            (softmax_role, (out, sink, trips2, scale, 2, COLUMNS)),
        ],
        [4, 4],
        [160, 160],
    )
