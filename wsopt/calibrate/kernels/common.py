"""Shared parts of all microbenchmark kernels: the clock, the report of a role, and names that differ by release."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import tma

tma_load = getattr(tma, "async_load", None) or tma.async_copy_global_to_shared
tma_store = getattr(tma, "async_store", None) or tma.async_copy_shared_to_global
block_barrier = getattr(gl, "barrier", None) or gl.thread_barrier


@gluon.jit
def clock():
    # Cycles of this SM. Impure, so it keeps its place among stores, loops and other impure code.
    return gl.inline_asm_elementwise("mov.u64 $0, %clock64;", "=l", [], dtype=gl.int64, is_pure=False, pack=1)


@gluon.jit
def processor():
    return gl.inline_asm_elementwise("mov.u32 $0, %smid;", "=r", [], dtype=gl.int32, is_pure=False, pack=1)


@gluon.jit
def report(out, place: gl.constexpr, first, last):
    # One duration a block and role.
    gl.store(out + gl.program_id(0) * 3 + place, last - first)


@gluon.jit
def keep(sink, place: gl.constexpr, tile):
    # Uses every value of a tile, so that nothing of it can be left out.
    total = tile.to(gl.float32)
    for _ in gl.static_range(len(tile.shape)):
        total = gl.sum(total, axis=0)
    gl.store(sink + gl.program_id(0) * 3 + place, total)
