"""Products whose columns are reduced in parts, such as the heads of a row: a tile has the columns of one part."""

from __future__ import annotations

import pytest
from emit_builds import Body, build, case, graph_of

from wsopt.errors import LoweringError
from wsopt.frontend.region import find_region
from wsopt.graph.builder import GraphBuilder, Symbol
from wsopt.program.types import Sharing, Structure
from wsopt.tensors.views import Role

FEW_SEEDS = 2


def _heads(g: GraphBuilder, *, count: int = 3, width: int = 128) -> Symbol:
    """The heads of a product's rows, in f32."""
    x, w = g.input("x", (72, 64), "bf16"), g.input("w", (64, count * width), "bf16", constant=True)
    return g.reshape(g.matmul(x, w), shape=(72, count, width), name="heads")


def norm_of_heads(g: GraphBuilder) -> Symbol:
    """Queries normed head by head, stored as rows of all heads."""
    y = g.rms_norm(_heads(g), g.input("n", (128,), "bf16"))
    return g.cast(g.reshape(y, shape=(72, 384)), "bf16", name="y")


def heads_first(g: GraphBuilder) -> Symbol:
    """The same with the heads first, and a bias of all heads' columns."""
    y = g.add(_heads(g), g.reshape(g.input("b", (384,), "bf16"), shape=(3, 128)))
    y = g.rms_norm(y, g.input("n", (128,), "bf16"))
    return g.cast(g.transpose(y, perm=(1, 0, 2)), "bf16", name="y")


def chosen_codes(g: GraphBuilder) -> tuple[Symbol, ...]:
    """A softmax of each of several codebooks, and the place of its largest."""
    y = _heads(g, width=256)
    return g.cast(g.softmax(y), "bf16", name="p"), g.reduce_argmax(y, axis=-1, name="place")


BODIES: dict[str, Body] = {
    "norm of heads": norm_of_heads,
    "heads first": heads_first,
    "codes": chosen_codes,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", BODIES)
def test_computes(name: str) -> None:
    graph = graph_of(BODIES[name])
    columns = find_region(graph).extent(Role.COLUMN)
    tile = Structure(64, columns, 64, 2, 4, Sharing.COOPERATIVE, True, False, 1, 1)
    kernel = build(graph, tile)
    assert case(graph).fault(kernel.source, FEW_SEEDS) is None


def test_a_part_is_a_batch() -> None:
    region = find_region(graph_of(norm_of_heads))
    assert region.extent(Role.COLUMN) == 128
    assert region.extent(Role.BATCH) * region.extent(Role.GROUP) == 3
    assert region.whole_rows


def test_narrow_parts_are_refused_with_a_remedy() -> None:
    """A tile of few columns loses more to its operands than another kernel takes: a cut makes two."""
    reason = "node matmul_0: its result is reduced in parts of 64 columns, .* compute matmul_0 before"
    with pytest.raises(LoweringError, match=reason):
        find_region(graph_of(lambda g: g.reduce_max(_heads(g, width=64), axis=-1, name="m")))
