"""Graphs without products and reductions: which axes are rows and columns, and how shapes are cut anew."""

from __future__ import annotations

import re

import element_graphs
import gather_graphs
import pytest
from tile_graphs import Body, extents, region_of

from wsopt.errors import LoweringError
from wsopt.graph.builder import GraphBuilder, Symbol
from wsopt.lowering.structures import structures
from wsopt.machine import Machine
from wsopt.tensors.views import FULL, Role


def copied(shape: tuple[int, ...], given: str = "bf16", stored: str = "bf16") -> Body:
    return lambda g: g.cast(g.mul(g.input("x", shape, given), 2.0), stored, name="y")


@pytest.mark.parametrize(
    ("shape", "rows", "columns"),
    [
        ((8192, 14336), 8192, 14336),
        ((3, 5, 4096), 15, 4096),
        ((2, 3, 4, 8, 64), 24, 512),
        ((4096, 64), 4096, 64),
        ((1000000, 8), 3125, 2560),
        ((4096 * 999,), 999, 4096),
        ((512, 128256), 512, 128256),
        ((7, 100), 1, 700),
        ((1, 4096), 1, 4096),
    ],
)
def test_a_shape_is_cut_into_rows_that_tma_takes(
    shape: tuple[int, ...], rows: int, columns: int, h200: Machine
) -> None:
    region = region_of(copied(shape))
    assert (region.extent(Role.ROW), region.extent(Role.COLUMN)) == (rows, columns)
    assert all(view.roles == (Role.ROW, Role.COLUMN) for view in (*region.operands, region.outputs[0].view))
    assert next(structures(region, h200)).rows > 0


def test_the_narrowest_type_decides_what_a_pitch_may_be() -> None:
    wide, narrow = region_of(copied((7, 100), "f32", "f32")), region_of(copied((7, 100), "f32", "bf16"))
    assert extents(wide) == {Role.ROW: 7, Role.COLUMN: 100}
    assert extents(narrow) == {Role.ROW: 1, Role.COLUMN: 700}


def test_long_rows_are_cut_into_tiles_of_columns(h200: Machine) -> None:
    found = [s for s in structures(region_of(copied((512, 128256))), h200) if not s.occupancy]
    assert {s.columns for s in found} == {256, 512, 1024, 2048, 4096}
    assert all(s.persistent and s.depth == 1 and s.subtiles == 1 for s in found)
    few = structures(region_of(copied((512, 320))), h200)
    assert {s.columns for s in few if not s.occupancy} == {256, 512}


def test_rows_are_of_a_run_that_has_as_many_as_a_tile_wants() -> None:
    """Channels that groups exchange: tiles of three rows would be small ones."""

    def shuffled(g: GraphBuilder) -> Symbol:
        x = g.reshape(g.input("x", (64, 240, 28, 28), "f16"), shape=(64, 3, 80, 28, 28))
        return g.cast(g.relu(g.transpose(x, perm=(0, 2, 1, 3, 4))), "f16", name="y")

    region = region_of(shuffled)
    assert (region.extent(Role.ROW), region.extent(Role.COLUMN)) == (80, 784)


def test_vectors_are_read_by_address_and_a_table_by_tma() -> None:
    biased = region_of(element_graphs.biased)
    assert {s.view.tensor: s.spans for s in biased.sources} == {
        "x": FULL, "bias": {Role.COLUMN}, "s": {Role.ROW},
    }  # fmt: skip
    table = region_of(element_graphs.positions)
    assert extents(table) == {Role.BATCH: 3, Role.ROW: 40, Role.COLUMN: 512}
    assert all(source.spans == FULL for source in table.sources)


def test_short_groups_of_channels_are_columns_together() -> None:
    """Rows of 16 channels would leave tiles nearly empty: what a group shares is read once for its neighbours."""
    region = region_of(element_graphs.groups_of_channels)
    assert region.extent(Role.COLUMN) == 128
    assert {s.view.tensor: s.view.column_each for s in region.sources} == {
        "x": 1, "mean": 16, "factor": 16, "w": 1,
    }  # fmt: skip


def test_an_image_that_is_enlarged_is_read_once_for_its_neighbours() -> None:
    region = region_of(element_graphs.upsampled)
    assert region.extent(Role.COLUMN) == 24
    assert {s.view.tensor: s.view.column_each for s in region.sources} == {"x": 2, "skip": 1}


def test_rows_are_along_the_run_that_most_tensors_have() -> None:
    region = region_of(element_graphs.rotary)
    assert extents(region) == {Role.BATCH: 2, Role.GROUP: 4, Role.ROW: 36, Role.COLUMN: 64}
    assert all(source.spans == FULL for source in region.sources)


def test_rows_are_neighbours_in_memory_where_they_are_enough() -> None:
    """Heads of one position are: what belongs to positions is a vector of each tile then."""

    def embedded(heads: int) -> Body:
        def body(g: GraphBuilder) -> Symbol:
            x, table = g.input("x", (2, 36, heads, 64), "bf16"), g.input("table", (36, 1, 64), "bf16")
            return g.cast(g.mul(x, table), "bf16", name="y")

        return body

    many, few = region_of(embedded(16)), region_of(embedded(15))
    assert extents(many) == {Role.BATCH: 2, Role.GROUP: 36, Role.ROW: 16, Role.COLUMN: 64}
    assert {s.view.tensor: s.spans for s in many.sources} == {"x": FULL, "table": {Role.COLUMN}}
    assert extents(few) == {Role.BATCH: 2, Role.GROUP: 15, Role.ROW: 36, Role.COLUMN: 64}


def test_what_is_counted_is_no_part_of_a_merged_axis() -> None:
    assert extents(region_of(element_graphs.counted)) == {Role.BATCH: 3, Role.ROW: 40, Role.COLUMN: 512}
    flat = region_of(element_graphs.columns_counted)
    assert [item.primitive for item in flat.statements][:4] == ["iota_row", "iota_column", "mul", "add"]


def test_outputs_of_one_shape_share_a_tile() -> None:
    region = region_of(element_graphs.side_by_side)
    assert extents(region) == {Role.ROW: 24, Role.COLUMN: 256}


def test_joined_tensors_are_stored_as_slices_of_one() -> None:
    region = region_of(element_graphs.half_turned)
    assert extents(region) == {Role.BATCH: 4, Role.ROW: 36, Role.COLUMN: 64}
    assert [(output.name, output.view.cutouts[-1]) for output in region.outputs] == [
        ("y", (0, 128, 64)), ("y.1", (64, 128, 128)),
    ]  # fmt: skip
    assert {view.tensor for view in region.operands} == {"x", "cos", "sin"}
    assert len(region.operands) == 6
    assert region.compulsory_bytes == 2 * (2 * 36 * 4 * 128 + 2 * 36 * 128)


def test_joined_tensors_are_stored_with_their_dimensions_in_another_order() -> None:
    region = region_of(lambda g: g.transpose(element_graphs.half_turned(g), perm=(1, 0, 2), name="z"))
    assert [(output.name, output.view.cutouts[-1]) for output in region.outputs] == [
        ("z", (0, 128, 64)), ("z.1", (64, 128, 128)),
    ]  # fmt: skip
    by_axis = [dict(zip(one.view.roles, one.view.strides, strict=True)) for one in region.outputs]
    assert by_axis == [{Role.BATCH: 36 * 128, Role.ROW: 128, Role.COLUMN: 1}] * 2


def running(g: GraphBuilder) -> Symbol:
    """Running sums, of which a part is no running sum of a part."""
    return g.cumsum(g.input("x", (64, 128), "f32"), axis=1, name="e")


def padded_keys(g: GraphBuilder) -> tuple[Symbol, Symbol]:
    k = g.pad(g.input("k", (100, 64), "bf16"), low=(0, 0), high=(28, 0), name="p")
    return g.input("q", (64, 64), "bf16"), k


def unequal(g: GraphBuilder) -> Symbol:
    x, y = g.input("x", (64, 128), "f32"), g.input("y", (64, 60), "f32")
    return g.concat(x, y, name="z")


def joined_twice(g: GraphBuilder) -> tuple[Symbol, Symbol]:
    x, y = (g.input(n, (64, 128), "f32") for n in "xy")
    z, w = (g.input(n, (128, 64), "f32") for n in "zw")
    return g.concat(x, y, axis=0, name="a"), g.concat(z, w, axis=1, name="b")


def joined_both_ways(g: GraphBuilder) -> Symbol:
    x, y = (g.input(n, (64, 128), "f32") for n in "xy")
    return g.concat(g.concat(x, y, axis=0, name="a"), g.input("z", (128, 128), "f32"), axis=1, name="b")


SLICES: dict[str, tuple[Body, str]] = {
    "of a result": (
        lambda g: g.neg(g.slice(running(g), axis=1, stop=64, name="s"), name="y"),
        "node s: e, of which it is a slice, is computed; compute e before, and make it an input",
    ),
    "every second": (
        lambda g: g.neg(g.slice(g.input("x", (64, 127), "f32"), step=2, name="s")),
        "node s: a slice with a step of 2 is not lowered; make s an input, and hand over a dense copy of the slice",
    ),
    "between copies' places": (
        lambda g: g.matmul(
            g.slice(g.input("x", (64, 128), "f16"), start=9, stop=73, name="s"), g.input("w", (64, 64), "f16")
        ),
        "tensor x: a part of its last axis begins at element 9; TMA begins at multiples of 16 bytes",
    ),
    "zeros around a vector": (
        lambda g: g.add(
            g.matmul(g.input("x", (64, 128), "f16"), g.input("w", (128, 64), "f16")),
            g.pad(g.input("b", (56,), "f16"), low=(8,), high=(0,), name="p"),
        ),
        "node add_0: b is read by address, and not with zeros around it; compute p before, and make it an input",
    ),
    "zeros behind keys": (
        lambda g: g.matmul(
            g.cast(g.softmax(g.matmul(*padded_keys(g), transpose_b=True)), "bf16"),
            g.input("v", (128, 64), "bf16"),
        ),
        "node p: zeros around its stream axis are not lowered in a loop that computes values; compute p before",
    ),
    "a view alone": (
        lambda g: g.reshape(g.input("x", (64, 128), "f32"), shape=(128, 64), name="s"),
        "output s is a view of an input: leave it out, and take it of the input, which moves nothing",
    ),
    "unequal parts": (
        unequal,
        "node z: it joins parts of 128, 60 elements; a kernel has one tile for all: make each",
    ),
    "joined along two axes": (
        joined_twice,
        "node b: it joins 2 parts along axis 1, and a 2 along axis 0; a kernel has one tile for all: make each part",
    ),
    "joined both ways": (
        joined_both_ways,
        "node b: it joins 2 parts along axis 1, and a 2 along axis 0; a kernel has one tile for all: make each part",
    ),
    "joined and reduced": (
        lambda g: g.softmax(g.concat(*(g.input(n, (64, 64), "f32") for n in "xy"), name="c")),
        "node c: concat is not lowered beside products and reductions; make each part that is computed an output",
    ),
}


@pytest.mark.parametrize("case", SLICES)
def test_slices_that_are_no_views_are_named(case: str, h200: Machine) -> None:
    body, message = SLICES[case]
    with pytest.raises(LoweringError, match=f"^{re.escape(message)}"):
        next(structures(region_of(body), h200))


def turned(shape: tuple[int, ...], perm: tuple[int, ...]) -> Body:
    return lambda g: g.cast(g.mul(g.transpose(g.input("x", shape, "bf16"), perm=perm), 2.0), "bf16", name="y")


@pytest.mark.parametrize(
    ("shape", "perm", "rows", "columns"),
    [
        ((64, 128), (1, 0), 128, 64),
        ((2, 40, 12, 16), (0, 2, 3, 1), 192, 40),
        ((2, 12, 16, 40), (0, 3, 1, 2), 40, 192),
        ((2, 200, 160, 40), (0, 3, 1, 2), 40, 32000),  # not cut anew
        ((24, 8, 40), (2, 1, 0), 40, 24),  # not the innermost axis
        ((24, 8, 40), (2, 0, 1), 40, 192),
    ],
)
def test_rows_go_along_the_axis_that_what_lies_turned_has_last(
    shape: tuple[int, ...], perm: tuple[int, ...], rows: int, columns: int
) -> None:
    region = region_of(turned(shape, perm))
    assert (region.extent(Role.ROW), region.extent(Role.COLUMN)) == (rows, columns)
    read, stored = region.row_tiles
    assert (read.roles[-2:], stored.roles[-2:]) == ((Role.COLUMN, Role.ROW), (Role.ROW, Role.COLUMN))


def test_rows_at_an_index_do_not_lie_beside_what_lies_turned(h200: Machine) -> None:
    def body(g: GraphBuilder, *, gathered: bool) -> Symbol:
        x, at = g.input("x", (128, 64), "bf16"), g.input("at", (64,), "i32")
        table = g.input("table", (500 if gathered else 64, 128), "bf16")
        rows = g.gather(table, at, axis=0) if gathered else table
        return g.cast(g.add(g.transpose(x, perm=(1, 0)), rows), "bf16")

    with pytest.raises(
        LoweringError, match=r"tensor table: .* at places that an index names.*compute it before"
    ):
        next(structures(region_of(lambda g: body(g, gathered=True)), h200))
    assert next(structures(region_of(lambda g: body(g, gathered=False)), h200)).rows


def outer_sum(a: tuple[int, ...], b: tuple[int, ...]) -> Body:
    return lambda g: g.add(g.input("a", a, "f32"), g.input("b", b, "f32"), name="y")


@pytest.mark.parametrize(
    ("a", "b", "found"),
    [
        ((64, 1), (1, 128), {Role.ROW: 64, Role.COLUMN: 128}),
        ((4, 64, 1), (4, 1, 128), {Role.BATCH: 4, Role.ROW: 64, Role.COLUMN: 128}),
        ((64, 4, 1), (1, 4, 128), {Role.BATCH: 4, Role.ROW: 64, Role.COLUMN: 128}),
        ((4, 64, 1), (128,), {Role.ROW: 256, Role.COLUMN: 128}),
    ],
)
def test_tiles_of_vectors_alone_are_stored_by_blocks_of_one_tile(
    a: tuple[int, ...], b: tuple[int, ...], found: dict[Role, int], h200: Machine
) -> None:
    region = region_of(outer_sum(a, b))
    assert extents(region) == found
    assert region.by_threads
    assert not region.operands
    assert {source.spans for source in region.sources} == {frozenset({Role.ROW}), frozenset({Role.COLUMN})}
    assert all(s.occupancy for s in structures(region, h200))


def test_a_table_that_batches_share_still_streams() -> None:
    def body(g: GraphBuilder) -> Symbol:
        x, t = g.input("x", (4, 64, 128), "f32"), g.input("t", (64, 128), "f32")
        return g.add(g.add(x, t), g.input("b", (128,), "f32"), name="y")

    region = region_of(body)
    assert extents(region) == {Role.BATCH: 4, Role.ROW: 64, Role.COLUMN: 128}
    assert len(region.operands) == 2


def test_rows_at_an_index_are_no_vector_of_a_tile() -> None:
    found = extents(region_of(gather_graphs.embedded))
    assert found == {Role.BATCH: 2, Role.ROW: 11, Role.COLUMN: 608}


def counted(rows: int, columns: int) -> Body:
    """A number where a row's index is the column's or more."""

    def body(g: GraphBuilder) -> Symbol:
        i, j = (g.iota(shape=(rows, columns), axis=axis) for axis in (0, 1))
        return g.where(g.greater_equal(i, j), g.input("s", (), "f32"), float("-inf"), name="y")

    return body


def test_what_is_counted_alone_is_no_longer_than_a_check_takes(h200: Machine) -> None:
    assert next(structures(region_of(counted(8192, 8192)), h200)).occupancy
    message = (
        "its outputs have 134217728 elements along axes that no input has.*make what it counts along one"
    )
    with pytest.raises(LoweringError, match=message):
        next(structures(region_of(counted(16384, 8192)), h200))


def test_indices_alone_are_no_kernel(h200: Machine) -> None:
    def body(g: GraphBuilder) -> Symbol:
        return g.greater_equal(g.iota(shape=(64, 128), axis=0), g.iota(shape=(64, 128), axis=1), name="y")

    with pytest.raises(LoweringError, match="it computes of indices alone, and reads no input"):
        next(structures(region_of(body), h200))
