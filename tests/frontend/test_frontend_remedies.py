"""Remedies that refusals name: each is told for one graph, and done in another, which is lowered."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from tile_graphs import Body, product, region_of

from wsopt.errors import InputError, LoweringError
from wsopt.graph.builder import GraphBuilder, Symbol
from wsopt.lowering.structures import structures
from wsopt.machine import Machine
from wsopt.torch.reasons import without_remedy


@dataclass(frozen=True)
class Remedy:
    """A graph that is refused, what the message says to do, and the graph with that done."""

    refused: Body
    says: str
    done: Body


def matmul(
    a: tuple[tuple[int, ...], str], b: tuple[tuple[int, ...], str], **attrs: object
) -> Callable[[GraphBuilder], Symbol]:
    return lambda g: g.matmul(g.input("a", *a), g.input("b", *b), name="p", **attrs)


def first_row(g: GraphBuilder, x: Symbol) -> Symbol:
    return g.slice(x, axis=0, stop=1, name="row")


def places(g: GraphBuilder) -> Symbol:
    """The numbers of rows, which are the same along each."""
    return g.cast(g.iota(shape=(64, 128), axis=0), "bf16", name="at")


def with_a_product(number: float | None) -> Body:
    """A product, and beside it a second one to which a number is added, if there is one."""

    def body(g: GraphBuilder) -> tuple[Symbol, ...]:
        x, w = g.input("x", (256, 128), "bf16"), g.input("w", (128, 512), "bf16")
        first = g.cast(g.matmul(x, w), "bf16", name="y")
        if number is None:
            return (first,)
        return first, g.add(g.matmul(x, g.input("b", (128, 512), "bf16"), name="q"), number, name="z")

    return body


def soft_columns(shape: tuple[int, int]) -> Body:
    """The softmax of products of positions and frequencies, along the positions: neighbours are of different rows."""

    def body(g: GraphBuilder) -> Symbol:
        return g.softmax(g.mul(g.input("t", shape, "f32"), g.input("f", (1, 128), "f32")), axis=0, name="y")

    return body


def soft_product(columns: int) -> Body:
    """The softmax of a product's rows."""

    def body(g: GraphBuilder) -> Symbol:
        x, w = g.input("x", (256, 128), "bf16"), g.input("w", (columns, 128), "bf16")
        return g.cast(g.softmax(g.matmul(x, w, transpose_b=True)), "bf16", name="y")

    return body


def padded(strides: tuple[int, int] | None) -> Body:
    def body(g: GraphBuilder) -> Symbol:
        x, w = (g.input(name, (256, 130), "bf16", strides=strides) for name in "xw")
        return g.matmul(x, w, transpose_b=True)

    return body


def nibbles(dtype: str) -> Body:
    return lambda g: g.add(product(g), g.input("m", (256, 512), dtype))


def softmax(shape: tuple[int, ...], axis: int, *, moved: bool = False) -> Body:
    def body(g: GraphBuilder) -> Symbol:
        x = g.input("x", shape, "f32")
        return g.softmax(g.transpose(x, perm=(0, 2, 1)) if moved else x, axis=axis)

    return body


def cast_operand(dtype: str) -> Body:
    def body(g: GraphBuilder) -> Symbol:
        x, w = g.input("x", (256, 128), dtype), g.input("w", (512, 128), "i8")
        return g.matmul(x if dtype == "bf16" else g.cast(x, "bf16"), g.cast(w, "bf16"), transpose_b=True)

    return body


def added_rows(g: GraphBuilder) -> tuple[Symbol, Symbol, Symbol]:
    """A tensor, places in it, and the rows that are added there."""
    return g.input("x", (256, 64), "bf16"), g.input("i", (128,), "i32"), g.input("rows", (128, 64), "bf16")


def by_product(g: GraphBuilder, x: Symbol, indices: Symbol, rows: Symbol) -> Symbol:
    at = g.equal(g.iota(shape=(256, 1), axis=0), g.reshape(indices, shape=(1, 128)))
    return g.add(x, g.matmul(g.cast(g.cast(at, "f32"), "bf16"), rows))


def promoted(mode: str) -> Body:
    def body(g: GraphBuilder) -> Symbol:
        x, w = g.input("x", (256, 128), "bf16"), g.input("w", (512, 128), "i8")
        return g.matmul(x, g.cast(w, "bf16"), transpose_b=True, accumulate=mode)

    return body


def bags(*, gathered: bool) -> Body:
    """The means of so many rows of a table."""

    def body(g: GraphBuilder) -> Symbol:
        table, places = ((4096, 256), "bf16"), ((512, 20), "i32")
        if gathered:
            rows = g.input("bag", (512, 20, 256), "bf16")
        else:
            rows = g.gather(g.input("table", *table), g.input("places", *places), name="bag")
        return g.reduce_mean(rows, axis=1)

    return body


def scaled_rows(shape: tuple[int, int], dtype: str, axis: int, *, weight: bool = False) -> Body:
    """x r @ w with r the root of the mean square of x's rows, perhaps with a weight along the contracted axis."""

    def body(g: GraphBuilder) -> Symbol:
        x, w = g.input("x", shape, dtype), g.input("w", (512, 1024), "bf16")
        scale = g.rsqrt(g.reduce_mean(x * x, axis=axis, keepdims=True) + 1e-6)
        scaled = x * scale * g.input("n", (1024,), "bf16") if weight else x * scale
        return g.matmul(g.cast(scaled, "bf16"), w, transpose_a=axis == 0, transpose_b=True)

    return body


def batches(shape: tuple[int, ...]) -> Body:
    return lambda g: g.matmul(
        g.input("a", (2, 3, 4, 5, 64, 64), "bf16"), g.input("b", shape, "bf16"), name="p"
    )


def power(*, written_out: bool) -> Body:
    def body(g: GraphBuilder) -> Symbol:
        p, e = product(g), g.input("e", (512,), "f32")
        return g.exp2(e * g.log2(p)) if written_out else g.pow(p, e)

    return body


def integers(*, cast: bool) -> Body:
    def body(g: GraphBuilder) -> Symbol:
        index = g.iota(shape=(256, 1), axis=0)
        return product(g) + g.relu(g.cast(index, "f32") if cast else index)

    return body


def integer_rows(*, cast: bool) -> Body:
    def body(g: GraphBuilder) -> Symbol:
        x = g.input("x", (1024, 256), "i32")
        total = g.reduce_sum(g.cast(x, "f32") if cast else x, axis=1, keepdims=True)
        return g.cast(x, "f32") - total

    return body


def apart(shape: tuple[int, ...]) -> Body:
    def body(g: GraphBuilder) -> Symbol:
        x, a = g.input("x", (4, 8, 16, 32, 64), "bf16"), g.input("a", shape, "bf16")
        return g.add(g.add(x, a), g.input("b", (1, 8, 1, 1, 64) if 1 in shape else shape, "bf16"), name="y")

    return body


def outputs(*, both: bool) -> Body:
    def body(g: GraphBuilder) -> Symbol | tuple[Symbol, ...]:
        x, v = g.input("x", (64, 64), "bf16"), g.input("v", (64,), "bf16")
        y = g.add(x, v, name="y")
        return (y, g.relu(v, name="z")) if both else y

    return body


def dequantized(dtype: str) -> Body:
    """Numbers by the scales of their groups, without a product."""

    def body(g: GraphBuilder) -> Symbol:
        q, scale = (
            g.input("q", (512, 1024), dtype, constant=True),
            g.input("s", (512, 8), "f16", constant=True),
        )
        return g.cast(g.dequantize(q, scale, group=128), "f16", name="y")

    return body


def mean_of_groups(shape: tuple[int, ...], *, merged: bool) -> Body:
    def body(g: GraphBuilder) -> Symbol:
        apart = None if merged else (2 * math.prod(shape[1:]), 2 * shape[2], 1)  # rows with room behind each
        x = g.input("x", shape, "f32", strides=apart)
        y = x if merged else g.reshape(x, shape=(8, 4, 8192))
        return y - g.reduce_mean(y, axis=2, keepdims=True)

    return body


def mean_of_axes(shape: tuple[int, ...]) -> Body:
    """Less a mean that is rounded behind every axis, so that several are no one reduction."""

    def body(g: GraphBuilder) -> Symbol:
        x = mean = g.input("x", shape, "f32")
        for axis in range(len(shape) - 1, 0, -1):
            mean = g.cast(g.reduce_mean(mean, axis=axis, keepdims=True), dtype="bf16")
        return x - g.cast(mean, dtype="f32")

    return body


def projected(*, computed: bool) -> Body:
    def body(g: GraphBuilder) -> Symbol:
        k, v = (g.input(name, (512, 64), "bf16") for name in "kv")
        if computed:
            x, w = g.input("x", (512, 256), "bf16"), g.input("w", (256, 64), "bf16")
            q = g.cast(g.matmul(x, w, name="m"), "bf16")
        else:
            q = g.input("q", (512, 64), "bf16")
        return g.matmul(g.cast(g.softmax(g.matmul(q, k, transpose_b=True)), "bf16"), v)

    return body


def after(change: str) -> Body:
    def body(g: GraphBuilder) -> Symbol:
        p = product(g, 1, 512)
        batches = g.matmul(g.input("a", (4, 256, 64), "bf16"), g.input("b", (4, 64, 256), "bf16"))
        return {
            "reshape": lambda: g.reshape(p, shape=(8, 64)),
            "transpose": lambda: g.transpose(batches, perm=(2, 0, 1)),
            "batches": lambda: batches,
            "": lambda: p,
        }[change]()

    return body


def reshaped_operand(*, declared: bool) -> Body:
    def body(g: GraphBuilder) -> Symbol:
        if declared:
            flat = g.input("x", (512, 128), "bf16")
        else:  # whose parts do not lie together
            flat = g.reshape(g.input("x", (512, 2, 64), "bf16", strides=(256, 128, 1)), shape=(512, 128))
        return g.matmul(flat, g.input("w", (256, 128), "bf16"), transpose_b=True)

    return body


def repeated(strides: tuple[int, int] | None) -> Body:
    return lambda g: product(g) + g.input("b", (256, 512), "f32", strides=strides)


INTEGERS = matmul(((64, 64), "i8"), ((64, 64), "i8"))
BF16 = matmul(((64, 64), "bf16"), ((64, 64), "bf16"))
AS_READ = "not lowered there; declare it as one of f32, f16, bf16, f8e4m3, f8e5m2, i32, i8, bool"
ONE_ORDER = "declare every input and output with its axes in one order, and transpose outside of the graph"

REMEDIES: dict[str, Remedy] = {
    "i8 operands": Remedy(
        INTEGERS, "declare inputs as one of f16, bf16, f8e4m3, f8e5m2, f32, and cast them", BF16
    ),
    "f32 that lies across": Remedy(
        matmul(((64, 64), "f32"), ((64, 64), "f32"), precision="tf32"),
        "declare it with that axis last, transpose it before the call, and change the matmul's attr",
        matmul(((64, 64), "f32"), ((64, 64), "f32"), precision="tf32", transpose_b=True),
    ),
    "sums that are promoted of computed operands": Remedy(
        promoted("promoted"), 'choose accumulate "f32" for operands of 16 bits', promoted("f32")
    ),
    "f32 in ieee precision": Remedy(
        matmul(((64, 64), "f32"), ((64, 64), "f32"), precision="ieee", transpose_b=True),
        'or choose the precision "tf32"',
        matmul(((64, 64), "f32"), ((64, 64), "f32"), precision="tf32", transpose_b=True),
    ),
    "operands that are both cast": Remedy(
        cast_operand("f32"), "declare x as bf16, and cast it before the call", cast_operand("bf16")
    ),
    "an operand that is reshaped": Remedy(
        reshaped_operand(declared=False),
        "declare the inputs with the shape after it",
        reshaped_operand(declared=True),
    ),
    "rows that are turned": Remedy(
        softmax((2, 40000, 64), 2, moved=True), ONE_ORDER, softmax((2, 40000, 64), 1)
    ),
    "half bytes": Remedy(nibbles("i4"), AS_READ, nibbles("i8")),
    "rows of 130": Remedy(
        padded(None),
        "pad its rows in memory to a multiple of 8 elements, and declare the strides",
        padded((136, 1)),
    ),
    "a product's softmax of 100": Remedy(
        soft_product(100), "rows of a multiple of 8 elements can be stored", soft_product(104)
    ),
    "a softmax of vectors along an outer axis": Remedy(
        soft_columns((64, 1)),
        "give an input both, as a dense copy of what repeats along them",
        soft_columns((64, 128)),
    ),
    "an input that repeats": Remedy(repeated((0, 1)), "hand over a dense copy", repeated(None)),
    "a column-major f8 weight": Remedy(
        matmul(((256, 128), "f8e4m3"), ((128, 512), "f8e4m3")),
        "declare it with that axis last, transpose it before the call, and change the matmul's attr",
        matmul(((256, 128), "f8e4m3"), ((512, 128), "f8e4m3"), transpose_b=True),
    ),
    "batches that repeat": Remedy(
        batches((1, 3, 1, 5, 64, 64)),
        "give every tensor all of them, as a dense copy",
        batches((2, 3, 4, 5, 64, 64)),
    ),
    "a tensor as an exponent": Remedy(
        power(written_out=False), "else write exp2(e * log2(x))", power(written_out=True)
    ),
    "relu of integers": Remedy(integers(cast=False), "cast to f32 first", integers(cast=True)),
    "a sum of integers": Remedy(integer_rows(cast=False), "cast to f32 first", integer_rows(cast=True)),
    "numbers as i32": Remedy(
        lambda g: g.cast(product(g), "i32", name="y"),
        'or cast it to "i8" where it is no larger',
        lambda g: g.cast(product(g), "i8", name="y"),
    ),
    "four bits of elements": Remedy(dequantized("i4"), "declare it as i8", dequantized("i8")),
    "a reshape of rows": Remedy(
        mean_of_groups((8, 32, 1024), merged=False),
        "declare the inputs with the shape after it",
        mean_of_groups((8, 4, 8192), merged=True),
    ),
    "rows of a bag": Remedy(bags(gathered=False), "compute bag before", bags(gathered=True)),
    "two axes": Remedy(
        mean_of_axes((64, 32, 64)),
        "where the axes are neighbours, declare them as one",
        mean_of_axes((64, 2048)),
    ),
    "rows of f32 before a product": Remedy(
        scaled_rows((256, 1024), "f32", 1),
        "so declare it as that, and cast it before the call",
        scaled_rows((256, 1024), "bf16", 1),
    ),
    "rows that lie across": Remedy(
        scaled_rows((1024, 256), "bf16", 0),
        "declare it with that axis last, and transpose it before the call",
        scaled_rows((256, 1024), "bf16", 1),
    ),
    "a norm's weight": Remedy(
        scaled_rows((256, 1024), "bf16", 1, weight=True),
        "multiply it into the other operand before the call",
        scaled_rows((256, 1024), "bf16", 1),
    ),
    "a projection before attention": Remedy(
        projected(computed=True), "compute m before, and make it an input", projected(computed=False)
    ),
    "rows that are added by index": Remedy(
        lambda g: g.scatter_add(*added_rows(g)),
        "where rows are finite, write it as a product: x + matmul(hot, rows), with hot = "
        'cast(cast(equal(iota, i), "f32"), "bf16"), the iota along x\'s rows and i along columns',
        lambda g: by_product(g, *added_rows(g)),
    ),
    "a product of the first row": Remedy(
        lambda g: g.matmul(first_row(g, g.input("x", (32, 128), "bf16")), g.input("w", (128, 128), "bf16")),
        "its left operand row is the same along the rows or the stream; compute row before, and make it an input",
        lambda g: g.matmul(g.input("row", (1, 128), "bf16"), g.input("w", (128, 128), "bf16")),
    ),
    "a product of places": Remedy(
        lambda g: g.matmul(places(g), g.input("w", (128, 128), "bf16")),
        "compute at before, and make it an input",
        lambda g: g.matmul(g.input("at", (64, 128), "bf16"), g.input("w", (128, 128), "bf16")),
    ),
    "a slice of what is computed": Remedy(
        lambda g: g.neg(g.slice(g.softmax(g.input("x", (64, 128), "f32"), name="e"), axis=1, stop=64)),
        "compute e before, and make it an input",
        lambda g: g.neg(g.slice(g.input("e", (64, 128), "f32"), axis=1, stop=64)),
    ),
    "parts of different lengths": Remedy(
        lambda g: g.concat(g.input("x", (64, 128), "f32"), g.input("y", (64, 60), "f32")),
        "make each part that is computed an output, and join them outside of the graph",
        lambda g: g.neg(g.input("x", (64, 128), "f32")),
    ),
    "axes that no two tensors have alike": Remedy(
        apart((4, 1, 16, 1, 64)),
        "give every tensor all of them, as a dense copy of what repeats along them",
        apart((4, 8, 16, 32, 64)),
    ),
    "outputs with different axes": Remedy(
        outputs(both=True), "a kernel has one tile for all: give each a graph of its own", outputs(both=False)
    ),
    "a product that does not count": Remedy(
        with_a_product(math.nan), "leave it out, and store outside of the graph", with_a_product(None)
    ),
    "a reshape of one row's result": Remedy(
        after("reshape"), "leave it out, and reshape the result after the call", after("")
    ),
    "a transpose of the result": Remedy(
        after("transpose"), "leave it out, and transpose the result after the call", after("batches")
    ),
}


@pytest.mark.parametrize("case", REMEDIES)
def test_what_the_message_says_works(case: str, h200: Machine) -> None:
    remedy = REMEDIES[case]
    with pytest.raises(LoweringError, match=re.escape(remedy.says)):
        next(structures(region_of(remedy.refused), h200))
    assert next(structures(region_of(remedy.done), h200)).rows > 0


@pytest.mark.parametrize("case", REMEDIES)
def test_who_wrote_no_graph_is_told_the_reason_alone(case: str, h200: Machine) -> None:
    with pytest.raises(LoweringError) as refused:
        next(structures(region_of(REMEDIES[case].refused), h200))
    reason = without_remedy(str(refused.value))
    assert str(refused.value).startswith(reason)
    assert len(reason) > len("node softmax_0: ")
    assert REMEDIES[case].says not in reason
    assert not re.search(r"\b(before the call|outside of the graph|make it an input|declare)\b", reason)


def test_what_the_format_says_of_operands_works(h200: Machine) -> None:
    with pytest.raises(InputError, match="declare inputs as f16 or bf16, cast what is computed"):
        region_of(matmul(((64, 64), "f32"), ((64, 64), "f32")))
    with pytest.raises(InputError, match="one dtype: declare inputs alike, cast what is computed"):
        region_of(matmul(((64, 64), "f16"), ((64, 64), "bf16")))

    def attention(g: GraphBuilder, *, cast: bool) -> Symbol:
        q, k, v = (g.input(name, (256, 64), "bf16") for name in "qkv")
        weights = g.softmax(g.matmul(q, k, transpose_b=True))
        return g.matmul(g.cast(weights, "bf16") if cast else weights, v)

    with pytest.raises(InputError, match=r"dtypes f32 and bf16; .* cast what is computed"):
        region_of(lambda g: attention(g, cast=False))
    for done in (BF16, lambda g: attention(g, cast=True)):
        assert next(structures(region_of(done), h200)).rows > 0
