"""Tensors that neighbours of a reduced row share an element of, such as a channel's weight in a norm of a group's
channels and their pixels: threads read them by address, whoever reads the rows.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from emit_builds import Body, build, case, check_computes, graph_of, h200
from row_builds import structure

from wsopt.errors import LoweringError
from wsopt.frontend.region import find_region
from wsopt.graph.builder import GraphBuilder, Symbol
from wsopt.lowering.structures import structures
from wsopt.program.types import Structure
from wsopt.tensors.views import FULL


def group_norm(g: GraphBuilder, shape: tuple[int, ...] = (2, 12, 8, 16), groups: int = 4) -> Symbol:
    """A norm of groups of channels over an image, with a weight and a bias a channel."""
    batch, channels, *space = shape
    x = g.input("x", shape, "bf16")
    rows = g.reshape(x, (batch, groups, channels // groups * int(np.prod(space))))
    apart = g.sub(rows, g.reduce_mean(rows, axis=2, keepdims=True))
    factor = g.rsqrt(g.reduce_mean(apart * apart, axis=2, keepdims=True) + 1e-5)
    normed = g.reshape(apart * factor, shape)
    weight, bias = (g.input(name, (channels,), "f32", constant=True) for name in ("weight", "bias"))
    by_channel = (1, channels, *(1 for _ in space))
    return g.cast(normed * g.reshape(weight, by_channel) + g.reshape(bias, by_channel), "bf16", name="y")


def modulated(g: GraphBuilder) -> Symbol:
    """The same with a scale and a shift for each channel of each image, of which rows are no multiple of 16 bytes."""
    shape, groups = (2, 12, 8, 16), 4
    x = g.input("x", shape, "bf16")
    rows = g.reshape(x, (2, groups, 3 * 128))
    factor = g.rsqrt(g.reduce_mean(rows * rows, axis=2, keepdims=True) + 1e-5)
    normed = g.reshape(rows * factor, shape)
    scale, shift = (g.reshape(g.input(name, (2, 12), "bf16"), (2, 12, 1, 1)) for name in ("scale", "shift"))
    return g.cast(g.silu(normed * (scale + 1.0) + shift), "bf16", name="y")


def long_groups(g: GraphBuilder) -> Symbol:
    """Groups that no SM holds, scaled by the root of their mean square: rows are read in two passes."""
    x = g.input("x", (3, 4, 3, 64, 256), "bf16")
    rows = g.reshape(x, (3, 4, 3 * 64 * 256))
    factor = g.rsqrt(g.reduce_mean(rows * rows, axis=2, keepdims=True) + 1e-5)
    weight = g.reshape(g.input("weight", (4, 3), "f32", constant=True), (4, 3, 1, 1))
    return g.cast(g.reshape(rows * factor, (3, 4, 3, 64, 256)) * weight, "bf16", name="y")


def of_all_channels(g: GraphBuilder) -> Symbol:
    """One group: the weights of channels are the same in every row."""
    return group_norm(g, (3, 4, 8, 16), 1)


def long_of_all_channels(g: GraphBuilder) -> Symbol:
    """The same in rows that no SM holds, of an odd length."""
    x, weight = g.input("x", (3, 4, 100, 101), "bf16"), g.input("weight", (4, 1, 1), "f32", constant=True)
    rows = g.reshape(x, (3, 4 * 100 * 101))
    factor = g.rsqrt(g.reduce_mean(rows * rows, axis=1, keepdims=True) + 1e-5)
    return g.cast(g.reshape(rows * factor, (3, 4, 100, 101)) * weight, "bf16", name="y")


def _resident(body: Body) -> Structure:
    """The first structure with several blocks an SM."""
    return next(one for one in structures(find_region(graph_of(body)), h200()) if one.resident)


CASES: dict[str, tuple[Body, Structure]] = {
    "a tile of several rows": (group_norm, structure(4, 512, 2)),
    "several blocks an SM": (group_norm, _resident(group_norm)),
    "a scale of each image": (modulated, structure(2, 512)),
    "a scale of each image, several blocks an SM": (modulated, _resident(modulated)),
    "stored by threads": (modulated, replace(structure(2, 512), stored_by_threads=True)),
    "two passes": (long_groups, structure(1, 4096, 2)),
    "one group": (of_all_channels, structure(4, 512, 2)),
    "one group, several blocks an SM": (of_all_channels, _resident(of_all_channels)),
    "one group, two passes": (long_of_all_channels, structure(2, 4096, 2)),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_it_computes_what_the_graph_means(name: str) -> None:
    body, s = CASES[name]
    made = build(graph_of(body), s)
    check_computes(made)


@pytest.mark.slow
def test_a_weight_of_another_channel_is_found() -> None:
    made = build(graph_of(group_norm), CASES["a tile of several rows"][1])
    good = case(made.graph)
    assert made.source.count("// 128)") >= 2
    assert good.fault(made.source.replace("// 128)", "// 64)"), 1) is not None


def test_what_is_shared_is_no_tile_that_streams() -> None:
    region = find_region(graph_of(group_norm))
    shared = [source for source in region.sources if source.spans == FULL and not source.is_tile]
    assert [source.view.tensor for source in shared] == ["weight", "bias"]
    assert {source.view.column_each for source in shared} == {128}
    assert [view.tensor for view in region.operands] == ["x"]


def test_what_the_pixels_of_all_channels_share_is_refused() -> None:
    def table(g: GraphBuilder) -> Symbol:
        x, places = g.input("x", (2, 4, 3, 128), "bf16"), g.input("places", (128,), "f32")
        rows = g.reshape(x, (2, 4, 384))
        normed = g.reshape(rows - g.reduce_mean(rows, axis=2, keepdims=True), (2, 4, 3, 128))
        return g.cast(normed * places, "bf16", name="y")

    with pytest.raises(LoweringError, match="do not lie together in every tensor; declare the inputs"):
        find_region(graph_of(table))
