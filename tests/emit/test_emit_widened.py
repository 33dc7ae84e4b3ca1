"""Attention over keys and values of 8 bits, which a transform warpgroup widens for the products."""

from __future__ import annotations

import functools

import pytest
from emit_builds import Emitted, build, check_computes, check_shows

from wsopt.graph.builder import GraphBuilder, Symbol
from wsopt.graph.types import Graph
from wsopt.program.types import Sharing, Structure


def attention(
    dtype: str, *, token: bool = False, causal: bool = False, rows: int = 40, keys: int = 168
) -> Graph:
    g, shape = GraphBuilder("quantized"), (1, 2, keys, 64)

    def operand(name: str) -> Symbol:
        x = g.input(name, shape, dtype)
        by = g.input(f"{name}_scale", (1, 2, keys, 1) if token else (1, 2, 1, 1), "f32")
        return g.cast(g.mul(x, by), dtype="bf16")

    q = g.input("q", (1, 2, rows, 64), "bf16")
    scores = g.mul(g.matmul(q, operand("k"), transpose_b=True), 0.125)
    if causal:
        row, key = (g.iota(shape=(1, 2, rows, keys), axis=axis) for axis in (2, 3))
        scores = g.where(g.less_equal(key, row), scores, float("-inf"))
    p = g.cast(g.softmax(scores), dtype="bf16")
    g.output(g.cast(g.matmul(p, operand("v")), dtype="bf16", name="out"))
    return g.build()


GRAPHS = {
    "i8": attention("i8"),
    "f8e4m3": attention("f8e4m3"),
    "f8e5m2": attention("f8e5m2"),
    "i8 by token": attention("i8", token=True),
    "i8, causal": attention("i8", causal=True, rows=168),
}


@functools.cache
def emitted(name: str, consumers: int = 1, transforms: int = 1) -> Emitted:
    s = Structure(64, 64, 64, consumers, 4, Sharing.COOPERATIVE, False, False, 1, 1, transforms=transforms)
    return build(GRAPHS[name], s)


@pytest.mark.slow
@pytest.mark.parametrize("name", GRAPHS)
def test_computes(name: str) -> None:
    check_computes(emitted(name))


@pytest.mark.slow
@pytest.mark.parametrize("transforms", [1, 2])
def test_computes_with_consumers_whose_rows_want_other_k_blocks(transforms: int) -> None:
    """A consumer passes over K-blocks of the others' rows alone: it hands back what it reads, not what is widened."""
    check_computes(emitted("i8, causal", 2, transforms))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["f8e4m3", "i8 by token"])
def test_each_operand_may_have_a_warpgroup_that_widens_it(name: str) -> None:
    of_each = emitted(name, transforms=2)
    for number, operand in enumerate("kv"):
        text = of_each.source.split(f"def transform{number}(")[1].split("@gluon.jit")[0]
        assert f"{operand}_wide_ring.index" in text
        assert f"{'vk'[number]}_wide_ring" not in text
    check_computes(of_each)


@pytest.mark.slow
def test_a_missing_fence_shows() -> None:
    fence = "        fence_async_shared()\n        mbarrier.arrive(k_wide_ring_full"
    check_shows(emitted("i8"), fence, fence.split("\n")[1])
