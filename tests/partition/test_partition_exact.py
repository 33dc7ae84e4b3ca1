"""Products of f32 in ieee precision: what they are written out as, and how exact the kernels are that compute it."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from emit_builds import build, h200, structure

from wsopt.errors import LoweringError
from wsopt.frontend.region import find_region
from wsopt.graph.builder import GraphBuilder
from wsopt.graph.parse import parse_graph
from wsopt.graph.reference import evaluate
from wsopt.graph.serialize import graph_to_json
from wsopt.graph.types import Graph
from wsopt.interpret import execute
from wsopt.partition.cut import check_cuttable
from wsopt.partition.exact_products import written_out
from wsopt.program.types import Sharing, Structure

ALLOWED = 2.0**-20
"""Error of an element, of the sum of the magnitudes of its products."""


def product(
    rows: int = 72, columns: int = 64, deep: int = 256, batch: tuple[int, ...] = (), **turned: bool
) -> Graph:
    g = GraphBuilder("exact")
    left = (deep, rows) if turned.get("transpose_a") else (rows, deep)
    right = (columns, deep) if turned.get("transpose_b") else (deep, columns)
    x, w = g.input("x", (*batch, *left), "f32"), g.input("w", right, "f32")
    g.output(g.matmul(x, w, precision="ieee", name="y", **turned))
    return g.build()


def adversarial(shape: tuple[int, ...], seed: int) -> np.ndarray:
    """Numbers of many orders of magnitude, of which neighbours along both axes cancel but for their last bits."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(shape) * np.exp2(rng.integers(-20, 20, shape))
    x[..., 1::2] = -x[..., ::2] * (1 + rng.integers(-4, 5, x[..., ::2].shape) * 2.0**-22)
    x[..., 2::7, :] *= 2.0**40
    return x.astype(np.float32)


def error(found: Any, graph: Graph, inputs: dict[str, np.ndarray]) -> float:
    """The largest error of an element, of the sum of its products' magnitudes, against f64."""
    (node,) = graph.nodes
    x, w = (np.float64(inputs[name]) for name in node.tensors)
    x = np.swapaxes(x, -1, -2) if node.attr("transpose_a", bool) else x
    w = np.swapaxes(w, -1, -2) if node.attr("transpose_b", bool) else w
    return float((np.abs(np.float64(found) - x @ w) / (np.abs(x) @ np.abs(w))).max())


def inputs_of(graph: Graph) -> dict[str, np.ndarray]:
    return {one.name: adversarial(one.type.shape, number) for number, one in enumerate(graph.inputs)}


@pytest.mark.parametrize("batch", [(), (2,)])
@pytest.mark.parametrize("transpose_a", [False, True])
@pytest.mark.parametrize("transpose_b", [False, True])
def test_six_products_of_parts_are_exact(
    batch: tuple[int, ...], transpose_a: bool, transpose_b: bool
) -> None:
    graph = product(batch=batch, transpose_a=transpose_a, transpose_b=transpose_b)
    inputs, written = inputs_of(graph), written_out(graph)
    assert error(evaluate(written, inputs)["y"], graph, inputs) < ALLOWED
    few = graph_to_json(written)  # without the parts that are left of the right operand
    for node in few["nodes"]:
        if node["name"] == "w_parts":
            node["inputs"] = [node["inputs"][-1]] * len(node["inputs"])
    assert error(evaluate(parse_graph(few, "few"), inputs)["y"], graph, inputs) > ALLOWED


def test_an_operand_is_split_once_and_its_parts_have_names_of_their_own() -> None:
    g = GraphBuilder("twice")
    x, part = g.input("x", (64, 64), "f32"), g.input("x_part0", (64, 64), "f32")
    square = g.matmul(x, x, transpose_b=True, precision="ieee", name="square")
    g.output(g.add(square, g.matmul(x, part, precision="ieee"), name="y"))
    nodes = {node.name: node for node in written_out(g.build()).nodes}
    assert sum(node.op == "cast" for node in nodes.values()) == 6
    assert sum(node.op == "concat" for node in nodes.values()) == 3  # x on the left, x on the right, x_part0
    assert nodes["x_part0_1"].inputs == ("x",)
    assert nodes["square"].attr("accumulate", str) == "promoted"


def test_other_graphs_stay_as_they_are() -> None:
    g = GraphBuilder("plain")
    x, w = g.input("x", (64, 64), "f32"), g.input("w", (64, 64), "f32")
    g.output(g.matmul(x, w, transpose_b=True, precision="tf32", name="y"))
    graph = g.build()
    assert written_out(graph) is graph


def test_kernels_compute_what_one_kernel_refuses() -> None:
    graph = product(256, 128, 512, transpose_b=True)
    with pytest.raises(LoweringError, match="is six of bf16"):
        find_region(graph)
    check_cuttable(written_out(graph), h200())


def part(graph: Graph, inputs: tuple[str, ...], output: str) -> Graph:
    """What of a graph computes a tensor from others."""
    g = GraphBuilder(output)
    given = [g.input(name, graph.type_of(name).shape, graph.type_of(name).dtype.value) for name in inputs]
    data: dict[str, Any] = {**graph_to_json(graph), "outputs": [output]}
    data["inputs"] = [{"name": one.name, "shape": list(one.shape), "dtype": one.dtype.value} for one in given]
    needed, found = {output}, list[dict[str, Any]]()
    for node in reversed(graph.nodes):
        if node.name in needed and node.name not in inputs:
            needed |= set(node.tensors)
            found += [one for one in data["nodes"] if one["name"] == node.name]
    return parse_graph(data | {"nodes": found}, output)


@pytest.mark.slow
def test_the_kernels_are_as_exact_as_the_products() -> None:
    graph = product(deep=256, transpose_b=True)
    inputs, written = inputs_of(graph), written_out(graph)
    cut = Structure(8, 256, 1, 1, 4, Sharing.COOPERATIVE, True, False, 1, 1)
    tensors: dict[str, Any] = dict(inputs)
    for name in ("x", "w"):
        split = build(part(written, (name,), f"{name}_parts"), cut)
        tensors |= execute(split.source, {name: inputs[name]}, seed=0).outputs
    kernel = build(part(written, ("x_parts", "w_parts"), "y"), structure(64, 64, copies=2))
    assert kernel.verified.program.adds_partials
    given = {name: tensors[name] for name in ("x_parts", "w_parts")}
    assert error(execute(kernel.source, given, seed=0).outputs["y"], graph, inputs) < ALLOWED


@pytest.mark.parametrize(("dtype", "whole"), [("f32", "rows"), ("i8", 'cast(rows, "f32")')])
def test_rows_added_by_index_are_a_product_in_a_type_that_takes_them(dtype: str, whole: str) -> None:
    g = GraphBuilder("added")
    x, i, rows = g.input("x", (96, 64), "f32"), g.input("i", (32,), "i32"), g.input("rows", (32, 64), dtype)
    g.output(g.scatter_add(x, i, rows, name="y"))
    says = f'x + matmul(hot, {whole}, precision="ieee"), with hot = cast(equal(iota, i), "f32"), the iota'
    with pytest.raises(LoweringError, match=re.escape(says)):
        find_region(g.build())

    done = GraphBuilder("done")
    x, i, rows = (
        done.input("x", (96, 64), "f32"),
        done.input("i", (32,), "i32"),
        done.input("rows", (32, 64), dtype),
    )
    hot = done.cast(done.equal(done.iota(shape=(96, 32), axis=0), i), "f32")
    whole_rows = rows if dtype == "f32" else done.cast(rows, "f32")
    done.output(done.add(x, done.matmul(hot, whole_rows, precision="ieee"), name="y"))
    check_cuttable(written_out(done.build()), h200())
