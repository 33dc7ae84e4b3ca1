"""Chains of one scalar instruction, 64 independent ones a thread, on one to three warpgroups."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from wsopt.calibrate.kernels.common import clock, keep, report


@gluon.jit
def apply(left, right, third, ASM: gl.constexpr):
    return gl.inline_asm_elementwise(
        ASM, "=f,f,f,f", [left, right, third], dtype=gl.float32, is_pure=True, pack=1
    )


@gluon.jit
def role(
    out,
    sink,
    k_iterations,
    third,
    place: gl.constexpr,
    ASM: gl.constexpr,
    REGISTERS: gl.constexpr,
    PAIRS: gl.constexpr,
):
    layout: gl.constexpr = gl.BlockedLayout([REGISTERS], [32], [4], [0])
    x = gl.arange(0, 128 * REGISTERS, layout=layout).to(gl.float32) * third
    y = x + third
    first = clock()
    for _ in range(k_iterations):
        for _ in gl.static_range(PAIRS):
            x = apply(x, y, third, ASM)
            y = apply(y, x, third, ASM)
    last = clock()
    report(out, place, first, last)
    keep(sink, place, x + y)


@gluon.jit
def kernel(
    out, sink, trips0, trips1, trips2, third, ASM: gl.constexpr, REGISTERS: gl.constexpr, PAIRS: gl.constexpr
):
    gl.warp_specialize(
        [
            (role, (out, sink, trips0, third, 0, ASM, REGISTERS, PAIRS)),
            (role, (out, sink, trips1, third, 1, ASM, REGISTERS, PAIRS)),
            (role, (out, sink, trips2, third, 2, ASM, REGISTERS, PAIRS)),
        ],
        [4, 4],
        [160, 160],
    )
