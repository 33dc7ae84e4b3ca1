"""Regions without products: what a tile computes, in which phases, over which threads, and what is refused."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest
import row_graphs
from tile_graphs import Body, extents, region_of

from wsopt.errors import LoweringError
from wsopt.frontend.region import find_region
from wsopt.frontend.types import Region
from wsopt.graph.builder import GraphBuilder, Symbol
from wsopt.graph.parse import load_graph
from wsopt.lowering.phases import row_phases
from wsopt.lowering.reduced import reduced
from wsopt.lowering.structures import structures
from wsopt.machine import Machine
from wsopt.perf.price import lower
from wsopt.program.program import Unit
from wsopt.program.row_layout import RowLayout, row_layout, widest_bits
from wsopt.program.types import Sharing, Structure
from wsopt.tensors.statements import Reduction, Statement
from wsopt.tensors.views import FULL, Role

PROBLEMS = Path(__file__).parents[2] / "problems"
CUT = Structure(4, 512, 1, 2, 4, Sharing.COOPERATIVE, True, False, 1, 1)


def softmax(g: GraphBuilder, rows: int = 96, columns: int = 512, dtype: str = "bf16") -> Symbol:
    x = g.input("x", (rows, columns), dtype)
    return g.cast(g.softmax(x, axis=-1, name="p"), dtype=dtype, name="y")


def test_long_rows_are_read_whole_or_in_parts(h200: Machine) -> None:
    def summed(columns: int) -> Region:
        def body(g: GraphBuilder) -> Symbol:
            return g.logsumexp(g.input("x", (4096, columns), "bf16"), axis=-1, name="y")

        return region_of(body)

    assert summed(8192).in_parts is None
    held = summed(10000)
    assert held.whole_rows
    assert held.in_parts is not None
    assert not held.in_parts.whole_rows
    parts = {s.columns for s in structures(held, h200) if not s.occupancy}
    assert parts == {2048, 4096, 8192, 16384}
    for s in structures(held, h200):
        assert lower(held, s, h200).long_rows == (s.columns < 10000)


def test_rows_of_several_tensors_that_are_stored_are_read_in_parts_as_well() -> None:
    def gradient(columns: int) -> Region:
        """The gradient of a log-softmax: nothing but one of its structures fits where both rows are held."""

        def body(g: GraphBuilder) -> Symbol:
            dy, logits = g.input("dy", (512, columns), "bf16"), g.input("logits", (512, columns), "bf16")
            total = g.reduce_sum(dy, axis=-1, keepdims=True)
            return g.cast(g.sub(dy, g.mul(g.exp(logits), total)), "bf16", name="dx")

        return region_of(body)

    assert gradient(16384).in_parts is None
    long = gradient(32000)
    assert long.whole_rows
    assert long.in_parts is not None
    assert long.in_parts.passes == 2


def test_rows_whose_reductions_need_one_another_are_held_alone() -> None:
    def apart(g: GraphBuilder) -> Symbol:
        x = g.input("x", (512, 10000), "bf16")
        spread = g.abs(x - g.reduce_mean(x, axis=-1, keepdims=True))
        return g.cast(g.reduce_mean(spread, axis=-1), dtype="bf16", name="y")

    region = region_of(apart)
    assert region.whole_rows
    assert region.in_parts is None


def test_parts_of_rows_are_divided_once_a_row() -> None:
    """Of f32; what is rounded to 16 bits is divided in its exponent."""

    def body(g: GraphBuilder) -> Symbol:
        return g.softmax(g.input("x", (64, 128256), "f32"), axis=-1, name="y")

    region = region_of(body)
    assert region.running
    full = [s.primitive for s in region.statements if isinstance(s, Statement) and s.spans == FULL]
    assert full[-2:] == ["exp2", "mul"]
    assert "div" not in full


def test_a_softmax_divides_once_a_row() -> None:
    region = region_of(softmax)
    assert (region.contractions, region.body, region.full_sources) == ((), (), ())
    assert not region.contractions
    assert region.whole_rows
    full = [s.primitive for s in region.statements if isinstance(s, Statement) and s.spans == FULL]
    assert full == ["mul", "sub", "exp2", "mul", "round_bf16"]
    assert [s.kind for s in region.statements if isinstance(s, Reduction)] == ["max", "sum"]
    assert extents(region) == {Role.ROW: 96, Role.COLUMN: 512}
    assert region.compulsory_bytes == 2 * 96 * 512 * 2


def widest(region: Region) -> int:
    return widest_bits([*region.operands, *(output.view for output in region.outputs)])


def test_phases_end_in_reductions(h200: Machine) -> None:
    region = region_of(softmax)
    phases = row_phases(region.statements)
    assert [[i.kind for i in phase if isinstance(i, Reduction)] for phase in phases] == [["max"], ["sum"], []]
    live = [tile for tile in lower(region, CUT, h200).live if tile.consumer == 0]
    held = {tile.value.subject: (str(tile.maker), *map(str, tile.readers)) for tile in live}
    exponentials = next(s.name for s in region.statements if getattr(s, "primitive", "") == "exp2")
    assert held == {
        region.row_sources[0].name: ("read@0", "phase2@0"),
        exponentials: ("phase2@0", "phase3@0"),
        region.outputs[0].value: ("phase3@0", "store@0"),
    }


def test_rows_that_end_within_a_tile_are_left_out_of_reductions() -> None:
    whole, ragged = region_of(softmax), region_of(lambda g: softmax(g, columns=500))
    names = [getattr(s, "primitive", "") for s in ragged.statements]
    assert "inside_column" in names
    assert "inside_column" not in [getattr(s, "primitive", "") for s in whole.statements]


@pytest.mark.parametrize(
    ("dtype", "columns", "ends"),
    [("f32", 1, True), ("f32", 2, True), ("f32", 4, False), ("bf16", 4, True), ("bf16", 8, False)],
)
def test_so_are_rows_that_are_shorter_than_a_copy(dtype: str, columns: int, ends: bool) -> None:
    """A copy brings 16 bytes of a row at least, and zeros behind a row of fewer."""
    region = region_of(lambda g: g.cast(g.softmax(g.input("x", (512, columns), dtype)), dtype, name="y"))
    assert ("inside_column" in [getattr(s, "primitive", "") for s in region.statements]) is ends


def test_batches_become_rows_where_they_lie_like_rows() -> None:
    def body(g: GraphBuilder) -> Symbol:
        return g.softmax(g.input("x", (3, 5, 8, 64), "f32"), axis=-1, name="y")

    assert extents(region_of(body)) == {Role.ROW: 120, Role.COLUMN: 64}


@pytest.mark.parametrize(
    ("rows", "columns", "warps", "expected"),
    [
        (1, 4096, 4, RowLayout(8, (1, 32), (1, 4))),
        (2, 4096, 4, RowLayout(8, (1, 32), (2, 2))),
        (4, 4096, 4, RowLayout(8, (1, 32), (4, 1))),
        (8, 128, 4, RowLayout(8, (2, 16), (4, 1))),
        (16, 512, 8, RowLayout(8, (1, 32), (8, 1))),
    ],
)
def test_warps_take_rows_of_their_own_first(
    rows: int, columns: int, warps: int, expected: RowLayout, h200: Machine
) -> None:
    region = region_of(lambda g: softmax(g, columns=columns))
    assert row_layout(widest(region), rows, columns, warps, h200) == expected


def test_structures_hold_whole_rows_without_copies_of_elements(h200: Machine) -> None:
    region = region_of(softmax)
    found = [s for s in structures(region, h200) if not s.occupancy]
    assert {s.columns for s in found} == {512}
    assert all(s.persistent and s.depth == 1 and s.subtiles == 1 for s in found)
    for s in found:
        layout = row_layout(widest(region), s.rows, s.columns, s.consumer_warps, h200)
        assert (layout.rows <= s.rows, layout.columns <= s.columns) == (True, True)
    assert not any(s.rows == 1 and s.consumer_warps == 8 for s in found)  # 512 elements are not 2048 places


def test_every_byte_holds_its_share_of_device_memory(h200: Machine) -> None:
    region = find_region(load_graph(PROBLEMS / "softmax_rows.json"))
    s = dataclasses.replace(CUT, columns=4096)
    program = lower(region, s, h200)
    cycles = sum(c for op in program.loop for unit, c in op.held if unit is Unit.MEMORY)
    seconds = h200.seconds(cycles * program.tiles / h200.sm_count)
    assert seconds == pytest.approx(region.compulsory_bytes / h200.dram_sustained_bandwidth, rel=2e-3)
    assert program.rings[0].slot_bytes == 8 * 4096 * 2
    assert [str(op.id) for op in program.loop if op.consumer == 1] == [
        "read@1", "release@1", "phase1@1", "phase2@1", "phase3@1", "store@1",
    ]  # fmt: skip


def test_reduced_extents_keep_the_rows_whole() -> None:
    graph = load_graph(PROBLEMS / "layer_norm.json")
    small = reduced(graph, CUT, 5)
    assert {i.name: i.type.shape for i in small.inputs} == {
        "x": (76, 4096),
        "weight": (4096,),
        "bias": (4096,),
    }


def test_uses_of_one_tensor_and_outputs_share_their_rows() -> None:
    region = region_of(row_graphs.sums)
    assert extents(region) == {Role.ROW: 66, Role.COLUMN: 600}
    assert [output.is_tile for output in region.outputs] == [False] * 3

    def apart(g: GraphBuilder) -> tuple[Symbol, ...]:
        x, y = (g.input(name, (40, 256), "bf16") for name in "xy")
        return g.reduce_sum(x, axis=1, name="a"), g.reduce_max(y, axis=1, name="b")

    assert extents(region_of(apart)) == {Role.ROW: 40, Role.COLUMN: 256}


def test_a_single_row_has_an_axis_of_rows() -> None:
    region = region_of(row_graphs.one_vector)
    assert extents(region) == {Role.ROW: 1, Role.COLUMN: 1000}
    assert region.outputs[0].view.origin == ((), (0,))
    decoded = region_of(lambda g: g.reduce_sum(g.input("x", (1, 512), "bf16"), axis=1))
    assert decoded.operands[0].origin == ((0,), (1,))


def test_rows_may_be_parts_of_a_dimension() -> None:
    region = region_of(row_graphs.quantized)
    assert extents(region) == {Role.ROW: 40, Role.COLUMN: 128}
    assert region.operands[0].parts == ((0, 128), (128, 1))


def strided_rows(g: GraphBuilder) -> Symbol:
    return g.softmax(g.input("x", (64, 40000), "bf16", strides=(1, 64)), name="y")


def two_axes(g: GraphBuilder) -> Symbol:
    x = g.input("x", (64, 64), "bf16")
    return g.add(g.softmax(x, axis=0, name="a"), g.softmax(x, axis=1, name="b"), name="y")


def split_axis(g: GraphBuilder) -> Symbol:
    x = g.exp(g.input("x", (64, 128), "f32"))
    parts = g.softmax(g.reshape(x, shape=(64, 4, 32)), axis=-1)
    return g.add(g.reshape(parts, shape=(64, 128)), g.softmax(x, axis=-1, name="b"), name="y")


REFUSALS: dict[str, tuple[Body, str]] = {
    "strided": (strided_rows, "tensor y: axis 1 has its elements next to each other, another one in x"),
    "two axes": (two_axes, "nodes a and b reduce different axes; a kernel holds one axis whole"),
    "split": (
        split_axis,
        "nodes softmax_0 and b reduce different axes, one of them of those that a reshape merges",
    ),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_what_is_not_lowered_is_named(case: str, h200: Machine) -> None:
    body, message = REFUSALS[case]
    with pytest.raises(LoweringError, match=f"^{re.escape(message)}"):
        next(iter(structures(region_of(body), h200)))


def test_a_value_of_a_row_is_not_read_along_two_axes_of_one_tensor() -> None:
    """Differences of all pairs of running sums: each axis of a tile is one of the kernel's."""

    def pairs(g: GraphBuilder) -> Symbol:
        sums = g.cumsum(g.input("x", (8, 64), "f32"), axis=-1)
        return g.sub(g.reshape(sums, shape=(8, 64, 1)), g.reshape(sums, shape=(8, 1, 64)), name="y")

    with pytest.raises(LoweringError, match="tensor y: two of its axes are one"):
        region_of(pairs)


def test_heads_of_an_attention_are_not_read_along_two_axes_of_one_tensor() -> None:
    """Sums of all pairs of heads: heads were merged into rows, of which the result has them twice."""

    def pairs(g: GraphBuilder) -> Symbol:
        q, k = g.input("q", (2, 2, 8), "bf16"), g.input("k", (4, 8), "bf16")
        scores = g.matmul(q, k, transpose_b=True) + g.input("bias", (2, 2, 4), "bf16")
        heads = g.cast(g.matmul(g.cast(g.softmax(scores), "bf16"), k), "bf16")
        return g.cast(g.add(g.reshape(heads, shape=(2, 2, 1, 1, 8)), heads), "bf16", name="y")

    with pytest.raises(LoweringError, match="tensor y: two of its axes are one"):
        region_of(pairs)


@pytest.mark.parametrize(("columns", "dtype", "least"), [(3, "bf16", 8), (1, "f32", 4), (5, "f8e4m3", 16)])
def test_no_row_of_a_tile_is_shorter_than_a_copy(columns: int, dtype: str, least: int, h200: Machine) -> None:
    def shifted(g: GraphBuilder) -> Symbol:
        x = g.input("x", (640, columns), dtype, strides=(16, 1))
        return g.cast(g.sub(x, g.reduce_max(x, axis=1, keepdims=True)), dtype, name="y")

    found = structures(region_of(shifted), h200)
    assert {s.columns for s in found if not s.occupancy} == {least}


def test_running_sums_of_rows_that_no_sm_holds_are_sums_of_parts(h200: Machine) -> None:
    """The remedy that is told, as the kernels that it takes: what is before each part, and the sums with it."""

    def whole(g: GraphBuilder) -> Symbol:
        return g.cumsum(g.input("x", (64, 65536), "f32"), axis=1, name="y")

    def before(g: GraphBuilder) -> Symbol:
        own = g.input("own", (64, 1024), "f32")
        return g.sub(g.cumsum(own, axis=1), own, name="before")

    def added(g: GraphBuilder) -> Symbol:
        x, parts = g.input("x", (64, 1024, 64), "f32"), g.input("before", (64, 1024, 1), "f32")
        return g.add(g.cumsum(x, axis=2), parts, name="y")

    with pytest.raises(LoweringError, match="a cumsum along the elements, plus a cumsum along the parts"):
        next(iter(structures(region_of(whole), h200)))
    for part in (before, added):
        assert next(iter(structures(region_of(part), h200)))


def test_running_sums_of_a_product_are_named(h200: Machine) -> None:
    def body(g: GraphBuilder) -> Symbol:
        p = g.matmul(g.input("x", (128, 64), "bf16"), g.input("w", (64, 64), "bf16"), name="p")
        return g.cumsum(p, axis=1, name="y")

    with pytest.raises(LoweringError, match="cumsum beside products is not lowered; compute p before"):
        next(iter(structures(region_of(body), h200)))


@pytest.mark.parametrize("columns", [333, 32000, 50257])
def test_a_cast_to_f32_before_a_reduction_changes_nothing(columns: int) -> None:
    """A loss of logits, as models write it: of what is cast to f32 first."""

    def words(region: Region) -> list[str]:
        return [s.primitive if isinstance(s, Statement) else s.kind for s in region.statements]

    def loss(g: GraphBuilder, *, cast: bool) -> Symbol:
        x, label = g.input("x", (512, columns), "bf16"), g.input("label", (512, 1), "i32")
        logits = g.cast(x, dtype="f32", name="logits") if cast else x
        chosen = g.equal(g.iota(shape=(1, columns), axis=1), label)
        at_label = g.reduce_sum(g.where(chosen, logits, 0.0), axis=-1)
        return g.sub(g.logsumexp(logits, axis=-1), at_label, name="loss")

    found, plain = (region_of(lambda g, cast=cast: loss(g, cast=cast)) for cast in (True, False))
    assert words(found) == words(plain)
    assert found.operands == plain.operands
