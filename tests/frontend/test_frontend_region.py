"""From graphs to regions: axes, memory layouts, sources, statements; what can be lowered."""

from __future__ import annotations

import itertools

import pytest
from tile_graphs import Body, extents, gated, product, region_of

from wsopt.frontend.region import find_region
from wsopt.graph.builder import GraphBuilder, Symbol
from wsopt.graph.types import DType
from wsopt.lowering.reduced import reduced
from wsopt.program.types import Sharing, Structure
from wsopt.tensors.statements import Statement
from wsopt.tensors.views import Role

ROW, COLUMN, STREAM, BATCH = Role.ROW, Role.COLUMN, Role.STREAM, Role.BATCH
FULL = frozenset({ROW, COLUMN})


@pytest.mark.parametrize(("ta", "tb", "by_node"), list(itertools.product((False, True), repeat=3)))
def test_transposes_are_layouts(ta: bool, tb: bool, by_node: bool) -> None:
    def body(g: GraphBuilder) -> Symbol:
        a = g.input("a", (128, 256) if ta else (256, 128), "bf16")
        b = g.input("b", (512, 128) if tb else (128, 512), "bf16")
        if by_node:
            a = g.transpose(a, perm=(1, 0)) if ta else a
            b = g.transpose(b, perm=(1, 0)) if tb else b
            return g.matmul(a, b)
        return g.matmul(a, b, transpose_a=ta, transpose_b=tb)

    region = region_of(body)
    (contraction,) = region.contractions
    assert extents(region) == {ROW: 256, COLUMN: 512, STREAM: 128}
    assert contraction.left.roles == ((STREAM, ROW) if ta else (ROW, STREAM))
    assert contraction.right.roles == ((COLUMN, STREAM) if tb else (STREAM, COLUMN))
    # The view is of the tensor as it lies in memory, however the operation sees it.
    assert contraction.left.origin == ((0,), (1,))
    assert contraction.left.strides == (256 if ta else 128, 1)
    assert region.outputs[0].shape == (("a", 1 if ta else 0), ("b", 0 if tb else 1))


def test_two_transposes_of_an_input_cancel() -> None:
    def body(g: GraphBuilder) -> Symbol:
        a = g.transpose(g.transpose(g.input("a", (256, 128), "bf16"), perm=(1, 0)), perm=(1, 0))
        return g.matmul(a, g.input("b", (128, 512), "bf16"))

    assert region_of(body).contractions[0].left.roles == (ROW, STREAM)


def test_a_batch_with_shared_weights_is_more_rows() -> None:
    def body(g: GraphBuilder) -> Symbol:
        x, w = g.input("x", (3, 256, 128), "bf16"), g.input("w", (512, 128), "bf16")
        r = g.input("r", (3, 256, 512), "bf16")
        return g.cast(g.matmul(x, w, transpose_b=True) + r, dtype="bf16", name="y")

    region = region_of(body)
    assert extents(region) == {ROW: 768, COLUMN: 512, STREAM: 128}
    assert region.contractions[0].left.origin == ((0, 1), (2,))
    assert region.sources[0].view.extents == (768, 512)
    assert region.outputs[0].shape == (("x", 0), ("x", 1), ("w", 0))


@pytest.mark.parametrize("what", ["weights", "scale", "padding", "iota"])
def test_a_batch_that_does_not_lie_with_the_rows_stays(what: str) -> None:
    def body(g: GraphBuilder) -> Symbol:
        strides = (300 * 128, 128, 1) if what == "padding" else None
        x = g.input("x", (3, 256, 128), "bf16", strides=strides)
        w = g.input("w", (3, 512, 128) if what == "weights" else (512, 128), "bf16")
        y = g.matmul(x, w, transpose_b=True, name="p")
        if what == "scale":
            y = y * g.input("s", (256, 1), "f32")
        if what == "iota":  # the index in a merged axis would be another
            y = g.where(g.less(g.iota(shape=(256, 1), axis=0), 7), y, 0.0)
        return g.cast(y, dtype="bf16", name="y")

    region = region_of(body)
    assert extents(region) == {BATCH: 3, ROW: 256, COLUMN: 512, STREAM: 128}
    assert region.contractions[0].left.roles == (BATCH, ROW, STREAM)
    assert region.outputs[0].view.roles == (BATCH, ROW, COLUMN)


def test_an_index_along_a_batch_keeps_it() -> None:
    def body(g: GraphBuilder) -> Symbol:
        x, w = g.input("x", (3, 256, 128), "bf16"), g.input("w", (512, 128), "bf16")
        return g.cast(g.matmul(x, w, transpose_b=True) + g.iota(shape=(3, 1, 1), axis=0), dtype="f16")

    region = region_of(body)
    assert extents(region)[BATCH] == 3
    assert (region.statements[0].primitive, region.statements[0].spans) == ("iota_batch", frozenset())


def test_batches_merge_with_each_other() -> None:
    def body(g: GraphBuilder) -> Symbol:
        return g.matmul(g.input("a", (2, 3, 256, 128), "bf16"), g.input("b", (2, 3, 128, 512), "bf16"))

    region = region_of(body)
    assert extents(region) == {BATCH: 6, ROW: 256, COLUMN: 512, STREAM: 128}
    assert region.contractions[0].right.origin == ((0, 1), (2,), (3,))


def test_two_products_share_the_loop_and_their_rows() -> None:
    region = gated(256, 512, 128)
    assert [c.name for c in region.contractions] == ["gate", "up"]
    assert [view.tensor for view in region.operands] == ["x", "a", "b"]
    assert region.flops == 2 * 2 * 256 * 512 * 128
    assert region.compulsory_bytes == 2 * (256 * 128 + 2 * 512 * 128 + 256 * 512)


def test_a_tensor_times_its_transpose_has_two_views() -> None:
    def body(g: GraphBuilder) -> Symbol:
        x = g.input("x", (256, 128), "bf16")
        return g.matmul(x, x, transpose_b=True, name="p")

    region = region_of(body)
    assert extents(region) == {ROW: 256, COLUMN: 256, STREAM: 128}
    assert [view.roles for view in region.operands] == [(ROW, STREAM), (COLUMN, STREAM)]
    assert [region.operand_name(view) for view in region.operands] == ["x_0", "x_1"]
    assert region.compulsory_bytes == 2 * 256 * 128 + 4 * 256 * 256  # x is read once


def test_a_tensor_may_be_operand_and_source() -> None:
    def body(g: GraphBuilder) -> Symbol:
        x, w = g.input("x", (256, 128), "bf16"), g.input("w", (128, 128), "bf16")
        return g.cast(g.matmul(x, w) + x, dtype="bf16", name="y")

    region = region_of(body)
    assert region.operands[0].roles == (ROW, STREAM)
    assert (region.sources[0].view.tensor, region.sources[0].view.roles) == ("x", (ROW, COLUMN))
    assert region.sources[0].spans == FULL


def test_a_source_used_twice_is_loaded_once() -> None:
    def body(g: GraphBuilder) -> Symbol:
        b = g.input("b", (512,), "f32")
        return g.cast((product(g) + b) * b, dtype="bf16", name="y")

    region = region_of(body)
    assert [source.name for source in region.sources] == ["add_0:1"]
    assert {s.args[1] for s in region.statements[:2]} == {"add_0:1"}


@pytest.mark.parametrize(
    ("shape", "spans"),
    [
        ((512,), {COLUMN}),
        ((1, 512), {COLUMN}),
        ((256, 1), {ROW}),
        ((256, 512), {ROW, COLUMN}),
        ((1, 1), set()),
    ],
)
def test_sources_span_what_they_vary_along(shape: tuple[int, ...], spans: set[Role]) -> None:
    region = region_of(lambda g: g.cast(product(g) * g.input("s", shape, "f32"), dtype="f16", name="y"))
    assert region.sources[0].spans == frozenset(spans)
    assert region.statements[0].spans == FULL


def test_a_transposed_residual_keeps_its_strides() -> None:
    def body(g: GraphBuilder) -> Symbol:
        r = g.transpose(g.input("r", (512, 256), "bf16"), perm=(1, 0))
        return g.cast(product(g) + r, dtype="bf16", name="y")

    (source,) = region_of(body).sources
    assert (source.view.roles, source.view.strides, source.view.origin) == (
        (COLUMN, ROW),
        (256, 1),
        ((0,), (1,)),
    )


def test_predicates_are_of_whole_numbers() -> None:
    def body(g: GraphBuilder) -> Symbol:
        rows, columns = g.iota(shape=(256, 1), axis=0, name="i"), g.iota(shape=(1, 512), axis=1, name="j")
        return g.cast(g.where(g.less_equal(columns, rows + 3), product(g), -1.0), dtype="bf16", name="y")

    by_name = {s.name: s for s in region_of(body).statements}
    assert by_name["i$0"] == Statement("i$0", "iota_row", (), frozenset({ROW}), DType.I32)
    assert by_name["j$0"].spans == frozenset({COLUMN})
    assert by_name["add_0$0"].dtype is DType.I32
    assert by_name["less_equal_0$0"] == Statement(
        "less_equal_0$0", "less_equal", ("j$0", "add_0$0"), FULL, DType.BOOL
    )
    assert by_name["where_0$0"].args == ("less_equal_0$0", "p", -1.0)


def test_numbers_are_folded_as_the_graph_means_them() -> None:
    def body(g: GraphBuilder) -> Symbol:
        third = g.apply("div", [1, 3], {})
        half = g.cast(third, dtype="bf16")
        return g.cast(product(g) * half + g.apply("add", [2, 3], {}), dtype="bf16", name="y")

    mul, add, _ = region_of(body).statements
    assert mul.args == ("p", 0.333984375)  # 1/3 in bf16
    assert (add.args[1], type(add.args[1])) == (5, int)


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16", "f8e4m3", "f8e5m2"])
@pytest.mark.parametrize("op", ["tanh", "sigmoid", "silu"])
def test_the_hardware_tanh_serves_narrow_types_alone(dtype: str, op: str) -> None:
    region = region_of(lambda g: g.cast(g.apply(op, [product(g)], {}), dtype=dtype, name="y"))
    found = {s.primitive for s in region.statements}
    assert ("tanh_approx" in found) == (dtype in ("bf16", "f8e4m3", "f8e5m2"))
    assert ("exp" in found) == (dtype in ("f32", "f16"))


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16", "f8e4m3", "f8e5m2"])
def test_a_short_form_of_gelu_serves_narrow_types_alone(dtype: str) -> None:
    region = region_of(lambda g: g.cast(g.gelu(product(g)), dtype=dtype, name="y"))
    found = {s.primitive for s in region.statements}
    assert ("gelu_tail" in found) == (dtype in ("bf16", "f8e4m3", "f8e5m2"))
    assert ("erf" in found) == (dtype in ("f32", "f16"))


@pytest.mark.parametrize("other", ["output", "predicate", "f16"])
def test_one_wide_use_makes_a_value_exact(other: str) -> None:
    def body(g: GraphBuilder) -> tuple[Symbol, ...]:
        t = g.tanh(product(g), name="t")
        y = g.cast(t * 2.0, dtype="bf16", name="y")
        if other == "output":
            return y, t
        if other == "predicate":
            return (g.cast(g.where(g.greater(t, 0.5), t, 0.0), dtype="bf16"),)
        return y, g.cast(t + 1.0, dtype="f16")

    assert "tanh_approx" not in {s.primitive for s in region_of(body).statements}


def test_a_wide_cast_on_the_way_to_a_narrow_one_is_narrow() -> None:
    def body(g: GraphBuilder) -> Symbol:
        return g.cast(g.cast(g.tanh(product(g)), dtype="f16"), dtype="bf16", name="y")

    assert [s.primitive for s in region_of(body).statements] == ["tanh_approx", "round_f16", "round_bf16"]


def test_deep_graphs_are_lowered_in_linear_time() -> None:
    def body(g: GraphBuilder) -> Symbol:
        value = product(g)
        for _ in range(60):  # every value has two uses that meet again: 2**60 paths
            value = value * g.tanh(value)
        for _ in range(1200):
            value = value + 1.0
        return g.cast(value, dtype="bf16", name="y")

    region = region_of(body)
    assert len(region.statements) == 120 + 1200 + 1
    assert region.outputs[0].value == "y$0"


def test_outputs_of_several_types() -> None:
    def body(g: GraphBuilder) -> tuple[Symbol, ...]:
        p = product(g)
        kinds = ("f32", "f16", "bf16", "f8e4m3", "f8e5m2")
        return p, *(g.cast(p, dtype=kind, name=f"y_{kind}") for kind in kinds[1:])

    region = region_of(body)
    assert [o.view.dtype.value for o in region.outputs] == ["f32", "f16", "bf16", "f8e4m3", "f8e5m2"]
    assert region.outputs[0].value == "p"
    assert region.outputs[3].value == "y_f8e4m3$0"


@pytest.mark.parametrize(("mode", "promote"), [("f32", True), ("fast", False)])
def test_f8_sums_are_promoted_unless_fast(mode: str, promote: bool) -> None:
    def body(g: GraphBuilder) -> Symbol:
        x, w = g.input("x", (256, 128), "f8e4m3"), g.input("w", (512, 128), "f8e4m3")
        return g.cast(g.matmul(x, w, transpose_b=True, accumulate=mode), dtype="bf16", name="y")

    region = region_of(body)
    assert (region.promote, region.operand_dtype) == (promote, DType.F8E4M3)


def test_sums_of_16_bits_are_promoted_where_that_is_asked_for() -> None:
    def body(mode: str) -> Body:
        return lambda g: g.matmul(
            g.input("x", (256, 128), "bf16"), g.input("w", (128, 512), "bf16"), accumulate=mode, name="y"
        )

    assert [region_of(body(mode)).promote for mode in ("f32", "promoted")] == [False, True]


def test_only_live_nodes_are_lowered() -> None:
    def body(g: GraphBuilder) -> Symbol:
        p = product(g)
        g.softmax(p, axis=1)
        return p

    assert region_of(body).statements == ()


def test_one_row_is_a_row_axis() -> None:
    def body(g: GraphBuilder) -> Symbol:
        p = product(g, m=1)
        return g.cast(p + g.input("b", (512,), "f32"), dtype="bf16", name="y")

    region = region_of(body)
    assert extents(region)[ROW] == 1
    assert region.outputs[0].shape == (("x", 0), ("w", 0))
    assert region.sources[0].spans == frozenset({COLUMN})


def test_reduced_graphs_have_the_same_region_in_small() -> None:
    g = GraphBuilder("large")
    x, w = g.input("x", (4, 4096, 8192), "bf16"), g.input("w", (2048, 8192), "bf16")
    g.output(g.cast(g.relu(g.matmul(x, w, transpose_b=True)) + 1.0, dtype="bf16", name="y"))
    structure = Structure(64, 128, 64, 2, 4, Sharing.COOPERATIVE, True, False, 1, 8)
    large = find_region(g.build())
    small = find_region(reduced(g.build(), structure, 5))
    assert small.statements == large.statements
    assert [view.roles for view in small.operands] == [view.roles for view in large.operands]
    assert small.extent(STREAM) <= 5 * structure.depth
    assert small.extent(ROW) > 2 * structure.tile_rows
    assert small.extent(COLUMN) % structure.columns
