"""A new elementwise primitive is one entry: the graph knows it; it is lowered, solved, emitted, run and assembled."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from emit_builds import build, case, graph_of, small_case, structure

from wsopt.codegen.aot import compile_kernel
from wsopt.errors import InputError
from wsopt.frontend.region import find_region
from wsopt.graph.builder import GraphBuilder, Symbol
from wsopt.graph.reference import evaluate, random_inputs
from wsopt.primitives import Family, Primitive, added

SOFTSIGN = Primitive(
    name="softsign",
    family=Family.REAL,
    doc="x / (1 + |x|).",
    operands=("x",),
    mix={"rcp": 1, "mul": 1, "fma": 2, "add": 1, "logic": 1},
    gluon="{0} / (1.0 + gl.abs({0}))",
    numpy=lambda x: x / (1 + np.abs(x)),
    torch="nn.functional.softsign",
    at_zero=0.0,
    finite=True,
    slope=1.0,
    error=(2.0**-21, 0.0),
)


def product(g: GraphBuilder) -> Symbol:
    """y = softsign(x w')."""
    x, w = g.input("x", (256, 128), "bf16"), g.input("w", (128, 128), "bf16", constant=True)
    found = g.apply("softsign", (g.matmul(x, w, transpose_b=True, name="p"),), {})
    return g.cast(found, dtype="bf16", name="y")


def rows(g: GraphBuilder) -> Symbol:
    """The sum of softsign(x) along rows that do not fill a tile."""
    x = g.input("x", (512, 200), "bf16")
    return g.reduce_sum(g.apply("softsign", (g.cast(x, "f32"),), {}), axis=1, name="y")


@pytest.mark.compiler
def test_a_product_is_followed_by_a_new_primitive() -> None:
    with added(SOFTSIGN):
        emitted = build(graph_of(product), structure())
        assert " / (1.0 + gl.abs(" in emitted.source
        assert small_case(emitted).fault(emitted.source, 3) is None
        wrong = emitted.source.replace(" / (1.0 + gl.abs(", " / (2.0 + gl.abs(")
        assert "y is wrong" in str(small_case(emitted).fault(wrong, 1))
        architecture = emitted.verified.machine.architecture
    compiled = compile_kernel(emitted.source, architecture=architecture)
    assert (compiled.spill_loads, compiled.spill_stores) == (0, 0)


def test_the_reference_and_the_bound_of_the_error_are_the_entrys() -> None:
    with added(SOFTSIGN):
        graph = graph_of(product)
        inputs = random_inputs(graph, 0)
        total = inputs["x"].astype(np.float32) @ inputs["w"].astype(np.float32).T
        wanted = evaluate(graph, inputs)["y"]
        np.testing.assert_allclose(wanted.astype(np.float32), total / (1 + np.abs(total)), rtol=2.0**-7)
        referee = case(graph, inputs=inputs).referee
        assert referee.agreement("y", wanted).accepted
        assert not referee.agreement("y", (wanted.astype(np.float32) * 1.1).astype(wanted.dtype)).accepted


def test_its_instructions_are_what_the_model_counts() -> None:
    def cycles(mix: dict[str, int]) -> int:
        with added(replace(SOFTSIGN, mix=mix)):
            return build(graph_of(product), structure()).verified.program.epilogue.alone

    assert cycles({"add": 1}) < cycles({"add": 40})


@pytest.mark.parametrize(("at_zero", "chosen"), [(0.0, False), (None, True)])
def test_padding_is_left_in_a_sum_where_the_entry_says_that_it_is_zero(
    at_zero: float | None, chosen: bool
) -> None:
    with added(replace(SOFTSIGN, at_zero=at_zero)):
        statements = find_region(graph_of(rows)).statements
    assert any(getattr(item, "primitive", "") == "inside_column" for item in statements) is chosen


def test_the_page_on_extending_shows_this_entry() -> None:
    own = Path(__file__).read_text(encoding="utf-8")
    entry = own[own.index("SOFTSIGN = Primitive(") :].partition("\n\n\n")[0]
    page = Path(__file__).parents[2] / "docs" / "extend.md"
    assert f"```python\n{entry}\n```" in page.read_text(encoding="utf-8")


def test_without_the_entry_the_op_is_unknown() -> None:
    with pytest.raises(InputError, match="softsign"):
        graph_of(product)
