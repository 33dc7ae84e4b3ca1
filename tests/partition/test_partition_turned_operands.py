"""Operands of f32 and f8 that lie across the contracted axis are turned by a kernel, and mean what they meant."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from wsopt.frontend.region import find_region
from wsopt.graph.builder import GraphBuilder, Symbol
from wsopt.graph.reference import evaluate, random_inputs
from wsopt.graph.types import Graph
from wsopt.machine.types import Machine
from wsopt.partition.accept import refusal_of
from wsopt.partition.cut import check_cuttable
from wsopt.partition.turned_operands import is_turned_operand, with_turned_operands

Build = Callable[[GraphBuilder], Symbol]


def f8(g: GraphBuilder, name: str, *shape: int) -> Symbol:
    return g.input(name, shape, "f8e4m3")


def f32(g: GraphBuilder, name: str, *shape: int) -> Symbol:
    return g.input(name, shape, "f32")


def attention(g: GraphBuilder) -> Symbol:
    q, k, v = (f32(g, name, 2, 128, 64) for name in "qkv")
    shares = g.softmax(g.matmul(q, k, transpose_b=True, precision="tf32") * 0.125)
    return g.matmul(shares, v, precision="tf32")


def of_groups(g: GraphBuilder) -> Symbol:
    return g.grouped_matmul(f8(g, "x", 96, 64), f8(g, "w", 3, 64, 48), g.input("ends", (3,), "i32"))


TURNED: dict[str, tuple[Build, int]] = {
    "weights of f8": (lambda g: g.matmul(f8(g, "x", 96, 64), f8(g, "w", 64, 48)), 1),
    "weights of f32": (lambda g: g.matmul(f32(g, "x", 96, 64), f32(g, "w", 64, 48), precision="tf32"), 1),
    "gradients of weights": (
        lambda g: g.matmul(f8(g, "dy", 64, 96), f8(g, "x", 64, 48), transpose_a=True),
        2,
    ),
    "read by two": (
        lambda g: g.matmul(f8(g, "x", 96, 64), w := f8(g, "w", 64, 48)) * g.matmul(f8(g, "u", 96, 64), w),
        1,
    ),
    "an attention of f32": (attention, 1),
    "what is rounded to f8": (
        lambda g: g.matmul(f8(g, "x", 96, 64), g.cast(g.exp(f32(g, "w", 64, 48)), "f8e4m3")),
        1,
    ),
    "groups": (of_groups, 1),
}


def graph_of(build: Build) -> Graph:
    g = GraphBuilder("across")
    g.output(g.cast(build(g), "bf16", name="y"))
    return g.build()


@pytest.mark.parametrize("form", TURNED)
def test_what_lies_across_is_turned(form: str, h200: Machine) -> None:
    build, count = TURNED[form]
    graph = graph_of(build)
    written, inputs = with_turned_operands(graph), random_inputs(graph, 0)
    assert sum(is_turned_operand(written, node) for node in written.nodes) == count
    assert evaluate(written, inputs)["y"].tobytes() == evaluate(graph, inputs)["y"].tobytes()
    assert with_turned_operands(written) is written
    assert refusal_of(graph, h200)
    check_cuttable(graph, h200)


def test_what_a_caller_transposes_is_copied(h200: Machine) -> None:
    graph = graph_of(
        lambda g: g.matmul(f8(g, "x", 96, 64), g.transpose(f8(g, "w", 64, 48), perm=(1, 0)), transpose_b=True)
    )
    assert refusal_of(graph, h200)
    assert with_turned_operands(graph) is graph
    check_cuttable(graph, h200)


def strided(g: GraphBuilder) -> Symbol:
    w = g.input("w", (64, 48), "f8e4m3", strides=(1, 64))
    return g.matmul(f8(g, "x", 96, 64), w)


STAY: dict[str, Build] = {
    "along the axis": lambda g: g.matmul(f8(g, "x", 96, 64), f8(g, "w", 48, 64), transpose_b=True),
    "along it by strides": strided,
    "along it by a transpose": lambda g: g.matmul(
        f8(g, "x", 96, 64), g.transpose(f8(g, "w", 48, 64), perm=(1, 0))
    ),
    "of 16 bits": lambda g: g.matmul(g.input("x", (96, 64), "bf16"), g.input("w", (64, 48), "bf16")),
}


@pytest.mark.parametrize("form", STAY)
def test_others_stay(form: str) -> None:
    graph = graph_of(STAY[form])
    assert with_turned_operands(graph) is graph
    assert not any(is_turned_operand(graph, node) for node in graph.nodes)
    assert find_region(graph).contractions
    assert np.isfinite(evaluate(graph, random_inputs(graph, 0))["y"].astype(np.float32)).all()
