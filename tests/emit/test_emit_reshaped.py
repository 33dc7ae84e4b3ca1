"""Products of inputs that are seen in another shape: rows, columns and the contracted axis of several dimensions."""

from __future__ import annotations

import pytest
from emit_builds import Body, build, case, graph_of, small_case

from wsopt.errors import LoweringError
from wsopt.frontend.region import find_region
from wsopt.graph.builder import GraphBuilder, Symbol
from wsopt.program.types import Sharing, Structure

TILE = Structure(64, 64, 64, 2, 4, Sharing.COOPERATIVE, True, False, 1, 1)


def _rounded(g: GraphBuilder, product: Symbol) -> Symbol:
    return g.cast(product, "bf16", name="y")


def channels_first(g: GraphBuilder) -> Symbol:
    """A 1x1 convolution: columns are the rows and columns of an image."""
    x = g.reshape(g.input("x", (2, 64, 8, 16), "bf16"), shape=(2, 64, 128))
    return _rounded(g, g.matmul(g.input("w", (136, 64), "bf16", constant=True), x))


def channels_last(g: GraphBuilder) -> Symbol:
    """The same with channels last, and a tensor that is added in another shape."""
    x = g.reshape(g.input("x", (2, 8, 16, 64), "bf16"), shape=(256, 64))
    w, r = g.input("w", (128, 64), "bf16"), g.input("r", (16, 16, 128), "bf16")
    return _rounded(g, g.add(g.matmul(x, w, transpose_b=True), g.reshape(r, shape=(256, 128))))


def packed(g: GraphBuilder) -> Symbol:
    """Products head by head of packed heads."""
    heads = (g.reshape(g.input(name, (72, 3 * 64), "bf16"), shape=(72, 3, 64)) for name in "ab")
    a, b = (g.transpose(one, perm=(1, 0, 2)) for one in heads)
    return _rounded(g, g.matmul(a, b, transpose_b=True))


def contracted(g: GraphBuilder) -> Symbol:
    """The contracted axis is heads and their elements, of which the last K-block has a part."""
    x = g.reshape(g.input("x", (72, 5, 40), "bf16"), shape=(72, 200))
    return _rounded(g, g.matmul(x, g.input("w", (128, 200), "bf16"), transpose_b=True))


def batches_apart(g: GraphBuilder) -> Symbol:
    """Rows of several sequences, which a reshape of the input tells apart."""
    x = g.reshape(g.input("x", (288, 72), "bf16"), shape=(3, 96, 72))
    return _rounded(g, g.matmul(x, g.input("w", (72, 136), "bf16")))


def heads(g: GraphBuilder) -> tuple[Symbol, ...]:
    """Rows of sequences and columns of heads that only results tell apart, one of them without heads."""
    y = g.matmul(g.input("x", (288, 72), "bf16"), g.input("w", (72, 192), "bf16"))
    return _rounded(g, g.reshape(g.silu(y), shape=(3, 96, 2, 96))), g.cast(y, "f16", name="whole")


def heads_first(g: GraphBuilder) -> tuple[Symbol, ...]:
    """Columns of heads that one result has first, and another one beside each other."""
    y = g.matmul(g.input("x", (288, 72), "bf16"), g.input("w", (72, 192), "bf16"))
    y = g.add(y, g.input("b", (192,), "bf16"))
    turned = g.transpose(g.reshape(y, shape=(3, 96, 2, 96)), perm=(0, 2, 1, 3))
    return _rounded(g, g.silu(turned)), g.cast(y, "f16", name="whole")


def heads_merged(g: GraphBuilder) -> Symbol:
    """Products head by head whose results lie beside each other, row by row."""
    y = g.matmul(g.input("x", (2, 3, 100, 72), "bf16"), g.input("w", (3, 72, 128), "bf16"))
    return _rounded(g, g.reshape(g.transpose(y, perm=(0, 2, 1, 3)), shape=(2, 100, 384)))


def three(g: GraphBuilder) -> Symbol:
    """Queries, keys and values of one product, each with its heads first."""
    y = g.matmul(g.input("x", (192, 72), "bf16"), g.input("w", (72, 3 * 2 * 64), "bf16"))
    return _rounded(g, g.transpose(g.reshape(y, shape=(2, 96, 3, 2, 64)), perm=(2, 0, 3, 1, 4)))


def gate(g: GraphBuilder) -> Symbol:
    """Products of an input and of the same in another shape, one the gate of the other."""
    x = g.input("x", (192, 72), "bf16")
    u, v = (g.input(name, (72, 128), "bf16") for name in "uv")
    other = g.matmul(g.reshape(x, shape=(2, 96, 72)), v)
    return _rounded(g, g.mul(g.silu(g.matmul(x, u)), g.reshape(other, shape=(192, 128))))


TURNED = [heads_first, heads_merged, three]


def test_columns_that_are_no_neighbours_in_a_result_are_refused() -> None:
    """TMA would store them one by one."""

    def body(g: GraphBuilder) -> Symbol:
        y = g.matmul(g.input("x", (2, 3, 100, 72), "bf16"), g.input("w", (3, 72, 128), "bf16"))
        return _rounded(g, g.transpose(y, perm=(0, 3, 1, 2)))

    with pytest.raises(LoweringError, match="transpose is not lowered"):
        find_region(graph_of(body))


def test_heads_that_leave_tiles_half_empty_are_refused() -> None:
    """A cut, with a kernel that turns the result, is faster."""

    def body(g: GraphBuilder) -> Symbol:
        y = g.matmul(g.input("x", (192, 72), "bf16"), g.input("w", (72, 128), "bf16"))
        return _rounded(g, g.transpose(g.reshape(y, shape=(2, 96, 4, 32)), perm=(0, 2, 1, 3)))

    with pytest.raises(LoweringError, match=r"parts of 32 columns elsewhere.*transpose the result after"):
        find_region(graph_of(body))


@pytest.mark.parametrize(
    "body", [channels_first, channels_last, packed, contracted, batches_apart, heads, gate, *TURNED]
)
def test_computes(body: Body) -> None:
    made = build(graph_of(body), TILE, 96)
    assert case(made.graph).fault(made.source, 1) is None
    assert small_case(made).fault(made.source, 1) is None


def test_other_images_run_too() -> None:
    made = build(graph_of(channels_first), TILE, 96)

    def other(batch: int, height: int, width: int) -> Body:
        def body(g: GraphBuilder) -> Symbol:
            x = g.reshape(g.input("x", (batch, 64, height, width), "bf16"), shape=(batch, 64, height * width))
            return _rounded(g, g.matmul(g.input("w", (136, 64), "bf16", constant=True), x))

        return body

    for extents in ((1, 24, 16), (3, 2, 16)):
        assert case(graph_of(other(*extents))).fault(made.source, 1) is None
