"""Products of rows scaled by their own reductions: what leaves the product, what stays, what is refused."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tile_graphs import Body, region_of

from wsopt.errors import LoweringError
from wsopt.frontend.region import find_region
from wsopt.frontend.types import Contraction
from wsopt.graph.builder import GraphBuilder, Symbol
from wsopt.graph.parse import load_graph
from wsopt.lowering.structures import structures
from wsopt.machine import Machine
from wsopt.perf.price import lower
from wsopt.program.program import OpKind
from wsopt.program.types import Sharing, Structure
from wsopt.tensors.statements import Reduction, Statement
from wsopt.tensors.views import Role, View

PROBLEM = Path(__file__).parents[2] / "problems" / "rms_norm_matmul.json"
CUT = Structure(64, 128, 64, 2, 4, Sharing.COOPERATIVE, True, False, 1, 1)


def test_the_factor_is_applied_after_the_product() -> None:
    region = find_region(load_graph(PROBLEM))
    (product,) = region.contractions
    assert isinstance(product, Contraction)
    assert isinstance(product.left, View)
    assert (product.left.tensor, product.right.tensor) == ("x", "w")
    assert [getattr(item, "primitive", "sum") for item in region.beside] == ["mul", "sum"]
    words = [s.primitive for s in region.statements if isinstance(s, Statement)]
    assert words == ["extent_stream", "round_f32", "div", "add", "rsqrt", "mul", "round_bf16"]
    assert [tile.view for tile in region.tiles] == [product.left]
    assert region.sources == ()
    assert not region.whole_rows


def test_each_consumer_adds_up_its_own_rows_before_it_hands_back_a_slot(h200: Machine) -> None:
    program = lower(find_region(load_graph(PROBLEM)), CUT, h200)
    work = [op for op in program.loop if op.kind is OpKind.ELEMENTWISE]
    assert [(str(op.id), tuple(map(str, op.inputs))) for op in work] == [
        ("beside@0", ("tile:x@0",)),
        ("beside@1", ("tile:x@1",)),
    ]
    edges = {(str(e.source), str(e.target), e.distance) for e in program.edges}
    assert {("load:x@1", "beside@1", 0), ("beside@1", "release@1", 0), ("beside@1", "beside@1", 1)} <= edges


def test_rows_are_the_tensor_cores(h200: Machine) -> None:
    """A reduction takes its operand's rows, so the sides are not exchanged even where there are few."""
    found = structures(region_of(lambda g: scaled(g, rows=64)), h200)
    assert not any(s.swap for s in found)


def scaled(g: GraphBuilder, rows: int = 96, dtype: str = "bf16", kind: str = "sum") -> Symbol:
    x, w = g.input("x", (rows, 128), dtype), g.input("w", (64, 128), dtype, constant=True)
    total = g.apply(f"reduce_{kind}", [g.abs(x)], {"axis": 1, "keepdims": True}, "total")
    h = g.cast(g.div(x, total), dtype=dtype, name="h")
    return g.cast(g.matmul(h, w, transpose_b=True, name="p"), dtype="bf16", name="y")


def weighted(g: GraphBuilder) -> Symbol:
    x, w = g.input("x", (96, 128), "bf16"), g.input("w", (64, 128), "bf16", constant=True)
    h = g.cast(g.rms_norm(x, g.input("gain", (128,), "bf16", constant=True)), dtype="bf16", name="h")
    return g.matmul(h, w, transpose_b=True, name="p")


def centred(g: GraphBuilder) -> Symbol:
    x, w = g.input("x", (96, 128), "bf16"), g.input("w", (64, 128), "bf16", constant=True)
    h = g.cast(g.sub(x, g.reduce_mean(x, axis=1, keepdims=True)), dtype="bf16", name="h")
    return g.matmul(h, w, transpose_b=True, name="p")


def wider(g: GraphBuilder) -> Symbol:
    x, w = g.input("x", (96, 128), "f32"), g.input("w", (64, 128), "bf16", constant=True)
    h = g.cast(g.div(x, g.reduce_sum(g.abs(x), axis=1, keepdims=True)), dtype="bf16", name="h")
    return g.matmul(h, w, transpose_b=True, name="p")


def another(g: GraphBuilder) -> Symbol:
    x, z = g.input("x", (96, 128), "bf16"), g.input("z", (96, 128), "bf16")
    w = g.input("w", (64, 128), "bf16", constant=True)
    h = g.cast(g.div(x, g.reduce_sum(g.abs(z), axis=1, keepdims=True, name="total")), dtype="bf16", name="h")
    return g.matmul(h, w, transpose_b=True, name="p")


def columns(g: GraphBuilder) -> Symbol:
    x, w = g.input("x", (128, 128), "bf16"), g.input("w", (64, 128), "bf16", constant=True)
    h = g.cast(g.div(x, g.reduce_sum(g.abs(x), axis=0, keepdims=True, name="total")), dtype="bf16", name="h")
    return g.matmul(h, w, transpose_b=True, name="p")


def transposed(g: GraphBuilder) -> Symbol:
    x, w = g.input("x", (128, 96), "bf16"), g.input("w", (64, 128), "bf16", constant=True)
    rows = g.transpose(x, perm=(1, 0))
    h = g.cast(g.div(rows, g.reduce_sum(g.abs(rows), axis=1, keepdims=True)), dtype="bf16", name="h")
    return g.matmul(h, w, transpose_b=True, name="p")


def twice(g: GraphBuilder) -> Symbol:
    x, w = g.input("x", (96, 128), "bf16"), g.input("w", (64, 128), "bf16", constant=True)
    away = g.exp(g.sub(x, g.reduce_sum(x, axis=1, keepdims=True, name="first")))
    h = g.cast(g.div(x, g.reduce_sum(away, axis=1, keepdims=True, name="second")), dtype="bf16", name="h")
    return g.matmul(h, w, transpose_b=True, name="p")


def several(g: GraphBuilder, *counts: int, transpose: bool = True) -> tuple[Symbol, ...]:
    """Products of the same scaled rows with a weight of its own columns each."""
    x = g.input("x", (96, 128), "bf16")
    h = g.cast(g.div(x, g.reduce_sum(g.abs(x), axis=1, keepdims=True)), dtype="bf16", name="h")
    shapes = [(count, 128) if transpose else (128, count) for count in counts]
    weights = [g.input(f"w{i}", shape, "bf16", constant=True) for i, shape in enumerate(shapes)]
    products = [g.matmul(h, w, transpose_b=transpose, name=f"p{i}") for i, w in enumerate(weights)]
    return tuple(g.cast(p, dtype="bf16", name=f"y{i}") for i, p in enumerate(products))


def widened(g: GraphBuilder, dtype: str = "bf16") -> Symbol:
    """An RMS norm as models write it: of rows that are cast to f32 first."""
    x, w = g.input("x", (96, 128), dtype), g.input("w", (64, 128), "bf16", constant=True)
    rows = g.cast(x, dtype="f32", name="rows")
    factor = g.rsqrt(g.reduce_mean(rows * rows, axis=1, keepdims=True) + 1e-6)
    return g.matmul(g.cast(rows * factor, dtype="bf16", name="h"), w, transpose_b=True, name="p")


UNEQUAL = (
    "matmuls p0, p1, p2 have 512, 128, 128 columns, and the products of one kernel have equally many; compile each "
    "as a graph of its own, or put w0, w1, w2 into one tensor, for one matmul with all their columns"
)

COMPUTED = "node p: operand 0 of the matmul is computed by cast node h; "
REFUSALS: dict[str, tuple[Body, str]] = {
    "weight": (weighted, COMPUTED + "gain varies along the contracted axis, and cannot leave the product"),
    "mean": (centred, COMPUTED + "operands have to be inputs of the graph"),
    "wider": (wider, "node p: operand 0 of the matmul is x, which is f32; the product takes bf16"),
    "widened whole numbers": (lambda g: widened(g, "i8"), COMPUTED + "operands have to be inputs"),
    "another tensor": (another, "node total: a reduction beside a product reads the product's left operand"),
    "column sums": (columns, "node abs_0: axis 0 of x is no axis of what is computed with it"),
    "two passes": (twice, "node second: it reduces what depends on the reduction of node first"),
    "maximum": (
        lambda g: scaled(g, kind="max"),
        "node total: a reduction beside a product counts all elements",
    ),
    "f8": (
        lambda g: scaled(g, dtype="f8e4m3"),
        "node p: operands of f8e4m3 are not lowered where their rows",
    ),
    "unequal weights": (lambda g: several(g, 512, 128, 128), UNEQUAL),
    "unequal weights, columns last": (lambda g: several(g, 512, 128, 128, transpose=False), UNEQUAL),
    "transposed": (transposed, "tensor x: its rows are reduced beside the product, and do not lie along"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_what_stays_in_the_product_is_named(name: str, h200: Machine) -> None:
    body, message = REFUSALS[name]
    with pytest.raises(LoweringError, match=f"^{re.escape(message)}"):
        next(iter(structures(region_of(body), h200)))


def test_a_cast_to_f32_before_a_norm_leaves_the_operand_as_it_lies_in_memory(h200: Machine) -> None:
    region = region_of(widened)
    (product,) = region.contractions
    assert isinstance(product.left, View)
    assert product.left.tensor == "x"
    assert [tile.view for tile in region.tiles] == [product.left]
    assert next(iter(structures(region, h200)))


def test_both_remedies_for_unequal_weights_work(h200: Machine) -> None:
    for counts in ((512,), (128,), (512 + 128 + 128,), (128, 128)):
        region = region_of(lambda g, counts=counts: several(g, *counts))
        assert dict(region.extents)[Role.COLUMN] == counts[0]
        assert next(iter(structures(region, h200)))


def test_reductions_stand_beside_nothing_else() -> None:
    assert not any(isinstance(s, Reduction) for s in find_region(load_graph(PROBLEM)).statements)
