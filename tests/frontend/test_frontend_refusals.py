"""Graphs that are not lowered: each refusal names the place and the reason."""

from __future__ import annotations

import math
import re

import pytest
from tile_graphs import Body, product, region_of

from wsopt.errors import LoweringError
from wsopt.graph.builder import GraphBuilder, Symbol
from wsopt.lowering.structures import structures
from wsopt.machine import Machine


def chained(g: GraphBuilder) -> Symbol:
    return g.matmul(g.cast(product(g), dtype="bf16", name="h"), g.input("v", (512, 320), "bf16"), name="q")


def operand(op: str) -> Body:
    """A product of what an operation makes of an input."""

    def body(g: GraphBuilder) -> Symbol:
        x = g.input("x", (256, 128), "bf16")
        made = {
            "rms_norm": lambda: g.rms_norm(x, g.input("g", (128,), "f32"), name="h"),
            "softmax": lambda: g.softmax(x, axis=1, name="h"),
        }[op]()
        h = made if made.dtype.value == "bf16" else g.cast(made, dtype="bf16", name="c")
        return g.matmul(h, g.input("w", (128, 512), "bf16"), name="p")

    return body


def dequantized(g: GraphBuilder) -> Symbol:
    q, scale = g.input("q", (512, 256), "i4"), g.input("s", (512, 2), "bf16", constant=True)
    w = g.cast(g.dequantize(q, scale, group=128, name="d"), dtype="bf16", name="c")
    return g.matmul(g.input("x", (256, 256), "bf16"), w, transpose_b=True, name="p")


def exchanged(g: GraphBuilder) -> Symbol:
    h = g.cast(product(g, 256, 256), dtype="bf16", name="h")
    return g.matmul(h, h, transpose_b=True, name="q")


def two_streams(g: GraphBuilder) -> Symbol:
    a, b = g.input("a", (256, 64), "bf16"), g.input("b", (64, 512), "bf16")
    return product(g) + g.matmul(a, b, name="q")


def two_weights(g: GraphBuilder) -> tuple[Symbol, ...]:
    x = g.input("x", (64, 64), "bf16")
    weights = (("p", "u", 64), ("q", "v", 128))
    return tuple(g.matmul(x, g.input(w, (64, columns), "bf16"), name=name) for name, w, columns in weights)


def two_row_axes(g: GraphBuilder) -> tuple[Symbol, Symbol]:
    return product(g), g.matmul(g.input("a", (64, 128), "bf16"), g.input("b", (128, 512), "bf16"), name="q")


def two_types(g: GraphBuilder) -> Symbol:
    a, b = g.input("a", (256, 128), "f16"), g.input("b", (128, 512), "f16")
    return product(g) + g.matmul(a, b, name="q")


def four_batches(g: GraphBuilder) -> Symbol:
    return g.matmul(
        g.input("a", (2, 3, 4, 5, 64, 64), "bf16"), g.input("b", (1, 3, 1, 5, 64, 64), "bf16"), name="p"
    )


def counted_batches(g: GraphBuilder) -> Symbol:
    """Indices along two of three batch axes, along the third of which an operand is broadcast."""
    b = g.input("b", (3, 2, 1, 64, 64), "bf16", strides=(4096, 12288, 4096, 64, 1))
    a = g.transpose(g.input("a", (3, 2, 64, 4, 64), "bf16"), perm=(0, 1, 3, 2, 4))
    p = g.matmul(a, b)
    for axis, shape in ((0, (3, 1, 1, 1, 1)), (1, (1, 2, 1, 1, 1))):
        p = g.add(p, g.cast(g.iota(shape=shape, axis=axis), "f32"))
    return g.cast(p, "bf16", name="y")


def single_element(g: GraphBuilder) -> Symbol:
    return g.relu(g.input("x", (1, 1), "bf16"), name="y")


def outputs_apart(g: GraphBuilder) -> tuple[Symbol, ...]:
    x, v = g.input("x", (64, 64), "bf16"), g.input("v", (64,), "bf16")
    return g.add(x, v, name="y"), g.relu(v, name="z")


def five_axes(g: GraphBuilder) -> Symbol:
    x = g.input("x", (4, 8, 16, 32, 64), "bf16")
    a, b = g.input("a", (4, 1, 16, 1, 64), "bf16"), g.input("b", (1, 8, 1, 1, 64), "bf16")
    return g.add(g.add(x, a), b, name="y")


def vector_output(g: GraphBuilder) -> tuple[Symbol, ...]:
    b = g.mul(g.input("b", (512,), "f32"), 2.0, name="b2")
    return product(g) + b, b


def row_output(g: GraphBuilder) -> tuple[Symbol, ...]:
    i = g.cast(g.iota(shape=(256, 512), axis=0), dtype="f32", name="i")
    return product(g) + i, i


def foreign_axis(g: GraphBuilder) -> Symbol:
    p = product(g, 256, 512)
    return g.add(p, g.input("s", (3, 1, 1), "f32"), name="y")


def whole_tanh(g: GraphBuilder) -> Symbol:
    return product(g) + g.relu(g.iota(shape=(256, 1), axis=0), name="r")


def constant_condition(g: GraphBuilder) -> Symbol:
    return g.where(g.apply("less", [1, 2], {}), product(g), 0.0, name="y")


REFUSALS: dict[str, tuple[Body, str]] = {
    "chained": (
        chained,
        "node q: dimension 1 of v (extent 320) is a column axis, which a block holds whole: at most 256",
    ),
    "rms_norm": (operand("rms_norm"), "node p: operand 0 of the matmul is computed by cast node c"),
    "softmax before": (operand("softmax"), "node p: operand 0 of the matmul is computed by cast node c"),
    "dequantize": (dequantized, "input q is i4; not lowered there"),
    "exchange": (exchanged, "node q: operand 0 of the matmul is computed by cast node h"),
    "softmax of columns": (
        lambda g: g.softmax(product(g), axis=0, name="s"),
        "node s: softmax along axis 0 of p, which is a row axis; only the column axis is reduced in a kernel",
    ),
    "reduce": (
        lambda g: g.reduce_sum(product(g), axis=0, keepdims=True, name="s"),
        "node s: reduce_sum along axis 0 of p, which is a row axis; only the column axis is reduced",
    ),
    "reshape": (
        lambda g: g.reshape(
            g.matmul(g.input("x", (1, 64), "bf16"), g.input("w", (64, 64), "bf16")), shape=(8, 8), name="s"
        ),
        "node s: reshape is not lowered",
    ),
    "reshape beside a result": (
        lambda g: g.mul(
            g.matmul(g.input("x", (64, 64), "bf16"), g.input("w", (64, 64), "bf16")),
            g.reshape(g.relu(g.input("v", (64,), "f32")), shape=(64, 1), name="s"),
        ),
        "node s: reshape is not lowered",
    ),
    "transpose": (
        lambda g: g.transpose(
            g.matmul(*(g.input(name, (4, 64, 64), "bf16") for name in "xw")), perm=(2, 0, 1), name="s"
        ),
        "node s: transpose is not lowered",
    ),
    "streams": (two_streams, "matmuls p, q do not share their streamed axis; they cannot share one loop"),
    "weights": (
        two_weights,
        "matmuls p, q multiply x by weights of their own, and nothing combines them; put the weights (u, v) into "
        "one tensor",
    ),
    "rows": (two_row_axes, "matmuls p, q do not share their row axis"),
    "types": (two_types, "matmuls p, q have operands of different types; one kernel takes one"),
    "batches": (
        four_batches,
        "the products have 4 batch axes that do not lie contiguously in every tensor; a kernel takes three",
    ),
    "counted batches": (
        counted_batches,
        "graph small: indices are counted along two of its three batch axes, which do not lie contiguously in every "
        "tensor; make the indices along one of them an input",
    ),
    "one element": (single_element, "output y has one element; compute it outside"),
    "outputs apart": (
        outputs_apart,
        "outputs y and z do not have the same axes; a kernel has one tile for all: give each a graph of its own",
    ),
    "five axes": (five_axes, "graph small: its elements lie along 5 axes that no two tensors have alike"),
    "f32 operands": (
        lambda g: g.matmul(
            g.input("a", (64, 64), "f32"), g.input("b", (64, 64), "f32"), precision="ieee", name="p"
        ),
        "node p: a product of f32 in ieee precision is six of bf16, of operands that other kernels have split",
    ),
    "f32 operands of rows that are reduced": (
        lambda g: g.softmax(
            g.matmul(g.input("a", (64, 64), "f32"), g.input("b", (64, 64), "f32"), precision="tf32", name="p")
        ),
        "node p: operands of f32 are not lowered where the product's rows are reduced; declare inputs as one of f16",
    ),
    "i8 operands": (lambda g: product(g, dtype="i8"), "node p: operands of i8 are not lowered"),
    "vector output": (vector_output, "output b2 has not the rows and columns of a product"),
    "row output": (
        row_output,
        "output i is the same along the rows or columns of the product; compute it outside",
    ),
    "foreign axis": (foreign_axis, "node y: axis 0 of s is no axis of the products beside it"),
    "foreign iota": (
        lambda g: product(g) + g.cast(g.iota(shape=(1, 1), axis=0, name="i"), dtype="f32"),
        "node i: the iota counts along no axis of a product",
    ),
    "i4 source": (
        lambda g: g.add(product(g), g.input("s", (256, 512), "i4"), name="y"),
        "node y: input s is i4; not lowered there",
    ),
    "cast to i32": (
        lambda g: g.cast(product(g), dtype="i32", name="y"),
        "node y: a cast of f32 to i32 is not lowered; store it as f32 (leave the cast out)",
    ),
    "i32 relu": (whole_tanh, "node r: relu on i32 is not lowered"),
    "pow": (
        lambda g: g.pow(product(g), g.input("e", (512,), "f32"), name="y"),
        "node y: pow of these operands is not lowered",
    ),
    "not a number": (
        lambda g: g.add(product(g), math.nan, name="y"),
        "node p: no output depends on its result; leave it out",
    ),
    "power of zero": (
        lambda g: g.cast(g.pow(product(g), 0.0), dtype="bf16", name="y"),
        "node p: no output depends on its result; leave it out",
    ),
    "condition": (constant_condition, "node y: a condition of where is the same everywhere; leave it out"),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_what_is_not_lowered_is_named(case: str) -> None:
    body, message = REFUSALS[case]
    with pytest.raises(LoweringError, match=f"^{re.escape(message)}"):
        region_of(body)


def f8_along_columns(g: GraphBuilder) -> Symbol:
    return g.matmul(g.input("x", (256, 128), "f8e4m3"), g.input("w", (128, 512), "f8e4m3"))


def strided(strides: tuple[int, int]) -> Body:
    return lambda g: g.matmul(g.input("x", (64, 64), "bf16", strides=strides), g.input("w", (64, 64), "bf16"))


UNCUTTABLE: dict[str, tuple[Body, str]] = {
    "output": (
        lambda g: g.cast(g.softmax(product(g, 256, 100)), dtype="bf16", name="y"),
        "tensor y: axis 0 (extent 256) has a stride of 200 bytes; TMA needs a positive multiple of 16 bytes",
    ),
    "operand": (
        lambda g: product(g, 256, 512, 130),
        "tensor x: axis 0 (extent 256) has a stride of 260 bytes",
    ),
    "residual": (
        lambda g: product(g) + g.input("r", (256, 512), "bf16", strides=(515, 1)),
        "tensor r: axis 0 (extent 256) has a stride of 1030 bytes",
    ),
    "broadcast": (
        strided((0, 1)),
        "tensor x: axis 0 (extent 64) has a stride of 0 bytes; TMA needs a positive",
    ),
    "spread": (
        strided((128, 2)),
        "tensor x: no axis has its elements next to each other; TMA needs a stride of 1",
    ),
    "f8": (f8_along_columns, "tensor w: f8e4m3 operands have to be contiguous along the contracted axis"),
}


@pytest.mark.parametrize("case", UNCUTTABLE)
def test_what_tma_cannot_move_is_named(case: str, h200: Machine) -> None:
    body, message = UNCUTTABLE[case]
    region = region_of(body)
    with pytest.raises(LoweringError, match=f"^{re.escape(message)}"):
        next(structures(region, h200))


def test_alignment_counts_bytes_of_each_type(h200: Machine) -> None:
    for dtype, bits in (("bf16", 16), ("f8e4m3", 8)):
        region = region_of(lambda g, dtype=dtype: g.cast(product(g, 256, 4104), dtype=dtype, name="y"))
        (output,) = region.outputs
        assert next(structures(region, h200)).rows == 64
        assert output.by_threads is (4104 * bits // 8 % 16 > 0)
