"""Outputs whose rows begin where TMA can begin none: the threads that compute them store them by address."""

from __future__ import annotations

import pytest
from emit_builds import Body, build, case, graph_of, small_case
from other_compiler import compiled_by

from wsopt.codegen import compile_kernel, verdict
from wsopt.emit.source import expectation
from wsopt.errors import LoweringError
from wsopt.frontend.region import find_region
from wsopt.graph.builder import GraphBuilder, Symbol
from wsopt.graph.reference import random_inputs
from wsopt.interpret.host import TORCH_DTYPES, HostTensor, empty_strided
from wsopt.interpret.machine import Machine
from wsopt.interpret.modules import load
from wsopt.interpret.storage import Role
from wsopt.lowering.structures import structures
from wsopt.machine import load_machine
from wsopt.program.types import Sharing, Structure


def _product(g: GraphBuilder, rows: int, columns: int, depth: int = 64) -> Symbol:
    x, w = g.input("x", (rows, depth), "bf16"), g.input("w", (columns, depth), "bf16")
    return g.matmul(x, w, transpose_b=True)


def classes(g: GraphBuilder) -> Symbol:
    """Ten columns of 20 bytes, with a bias."""
    return g.cast(g.add(_product(g, 150, 10), g.input("bias", (10,), "f32")), "bf16", name="y")


def odd(g: GraphBuilder) -> tuple[Symbol, ...]:
    """Rows of an odd number of halves, and of as many bytes."""
    p = _product(g, 100, 77)
    return g.cast(p, "f16", name="y"), g.cast(g.mul(p, 0.5), "f8e4m3", name="z")


def both(g: GraphBuilder) -> tuple[Symbol, ...]:
    """100 columns: rows of 200 bytes by threads, of 400 by TMA."""
    p = _product(g, 100, 100)
    return g.cast(p, "bf16", name="y"), g.mul(p, 2.0, name="z")


def batched(g: GraphBuilder) -> Symbol:
    a, b = g.input("a", (3, 72, 64), "bf16"), g.input("b", (3, 36, 64), "bf16")
    return g.cast(g.matmul(a, b, transpose_b=True), "bf16", name="y")


def constant(g: GraphBuilder) -> Symbol:
    """Constant weights whose rows are 300 columns, 600 bytes: padded before the first launch."""
    x, w = g.input("x", (100, 64), "bf16"), g.input("w", (64, 300), "bf16", constant=True)
    return g.cast(g.matmul(x, w), "bf16", name="y")


def one_column(g: GraphBuilder) -> Symbol:
    """A matrix times a vector, which lies along what is contracted, with a bias."""
    x, v = g.input("x", (150, 200), "bf16"), g.input("v", (200, 1), "bf16")
    return g.cast(g.add(g.matmul(x, v), g.input("bias", (1,), "f32")), "bf16", name="y")


def one_row(g: GraphBuilder) -> Symbol:
    """The same from the left: the vector is given as a column and transposed."""
    v, w = g.input("v", (200, 1), "bf16"), g.input("w", (200, 104), "bf16")
    return g.cast(g.matmul(v, w, transpose_a=True), "bf16", name="y")


def short_numbers(g: GraphBuilder) -> Symbol:
    """Elements of 8 bits, which the tensor core takes along what is contracted alone."""
    return g.matmul(g.input("x", (150, 256), "f8e4m3"), g.input("v", (256, 1), "f8e4m3"), name="y")


def deep(g: GraphBuilder) -> Symbol:
    return g.cast(_product(g, 64, 50, 1024), "bf16", name="y")


def structure(
    consumers: int = 2, sharing: Sharing = Sharing.COOPERATIVE, *, persistent: bool = True, swap: bool = False,
    subtiles: int = 1, splits: int = 1,
) -> Structure:  # fmt: skip
    return Structure(64, 64, 64, consumers, 4, sharing, persistent, swap, subtiles, 1, splits=splits)


CUTS: dict[str, tuple[Body, Structure]] = {
    "a bias": (classes, structure(1, persistent=False)),
    "two of threads": (odd, structure(2, Sharing.PING_PONG)),
    "one of each": (both, structure(2, subtiles=2)),
    "operands swapped": (both, structure(1, swap=True)),
    "batches": (batched, structure(1)),
    "constant weights": (constant, structure(2)),
    "a vector": (one_column, structure(1)),
    "a vector of f8": (short_numbers, structure(1)),
    "split sums": (deep, structure(1, splits=2)),
}


@pytest.mark.parametrize("name", CUTS)
def test_computes(name: str) -> None:
    body, s = CUTS[name]
    made = build(graph_of(body), s, 96)
    assert "gl.store(y_ptr + " in made.source
    assert ("tma_store(z_desc" in made.source) is (body is both)
    assert case(made.graph).fault(made.source, 1) is None
    assert small_case(made).fault(made.source, 1) is None


def test_a_vector_from_the_left_is_a_row() -> None:
    made = build(graph_of(one_row), structure(1), 96)
    assert case(made.graph).fault(made.source, 2) is None


@pytest.mark.parametrize(
    "gone", ["(gl.expand_dims(rows, 1) < row_extent) & ", " & (gl.expand_dims(columns, 0) < column_extent)"]
)
def test_a_store_beyond_the_end_is_found(gone: str) -> None:
    made = build(graph_of(both), structure(2, subtiles=2), 96)
    assert gone in made.source
    assert case(made.graph).fault(made.source.replace(gone, ""), 1) is not None


def test_weights_that_are_not_padded_are_refused_by_the_launch() -> None:
    made = build(graph_of(constant), structure(2), 96)
    assert '"w": "lines"' in made.source
    dense = made.source.replace('"w": "lines"', '"other": "lines"')
    assert "strides have to be multiples of 16 bytes" in (case(made.graph).fault(dense, 1) or "")


def test_an_input_that_changes_is_not_padded() -> None:
    g = GraphBuilder("changes")
    g.output(g.matmul(g.input("x", (100, 64), "bf16"), g.input("w", (64, 300), "bf16"), name="y"))
    with pytest.raises(
        LoweringError,
        match=r"tensor w: .* has a stride of 600 bytes; .* a matrix of two dimensions that is \"constant\"",
    ):
        next(structures(find_region(g.build()), load_machine("h200")))


def plain(g: GraphBuilder) -> Symbol:
    """Ten columns without anything behind the product."""
    return g.cast(_product(g, 150, 10, 512), "bf16", name="y")


@pytest.mark.compiler
@pytest.mark.parametrize(
    ("body", "s"),
    [(both, structure(2, subtiles=2)), (plain, structure(1)), (plain, structure(1, subtiles=2))],
)
def test_machine_code_is_what_was_asked_for(body: Body, s: Structure, other_triton: str) -> None:
    """Rounded one by one, sums would be read before their product has ended."""
    made = build(graph_of(body), s, 96)
    asked = expectation(made.verified)
    assert verdict(compile_kernel(made.source), asked) == ()
    (other,) = compiled_by(other_triton, [made.source])
    assert other["tensor_instructions"] == asked.tensor_instructions
    assert (other["stack_bytes"], other["spill_stores"]) == (0, 0)


def test_rows_may_lie_apart_in_what_is_given() -> None:
    """As between kernels, where the next one reads them by TMA."""
    made = build(graph_of(classes), structure(1, persistent=False), 96)
    machine = Machine(0, 2, "kernel.py")
    names = load(made.source, machine)
    inputs = random_inputs(made.graph, 0)
    rows = empty_strided((150, 10), (16, 1), dtype=TORCH_DTYPES["bfloat16"])
    tensors = {name: HostTensor(one, name) for name, one in inputs.items()}
    grid, arguments, found = names["bind"](tensors, {"y": rows})
    rows.storage.role = Role.OUTPUT
    names["kernel"][grid](*arguments, **names["OPTIONS"], launch_pdl=True)
    assert found["y"] is rows
    assert case(made.graph, inputs=inputs).referee.agreement("y", rows.numpy_array).accepted
