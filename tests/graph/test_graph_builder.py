"""Building graphs from Python gives what the file would, and the same errors, at once."""

from __future__ import annotations

import inspect
import math
import operator

import numpy as np
import pytest
from graph_examples import MLP, problems_of

from wsopt.errors import InputError
from wsopt.graph import OPS, DType, GraphBuilder, Symbol, evaluate, parse_graph


@pytest.fixture
def g() -> GraphBuilder:
    return GraphBuilder("g")


@pytest.fixture
def x(g: GraphBuilder) -> Symbol:
    return g.input("x", (8, 16), "f32")


def test_builds_what_the_file_says() -> None:
    g = GraphBuilder("mlp", doc="y = gelu(x @ w.T + b)")
    x = g.input("x", (8, 16), "bf16")
    w = g.input("w", [32, 16], DType.BF16, constant=True)
    b = g.input("b", (32,), "bf16", constant=True)
    a = g.add(g.matmul(x, w, transpose_b=True, name="h"), b, name="a")
    y = g.cast(g.gelu(a, approximate="tanh", name="g"), "bf16", name="y")
    g.output(y)
    assert (y.name, y.shape, y.dtype) == ("y", (8, 32), DType.BF16)
    assert g.build() == parse_graph(MLP, "file")


def test_every_op_is_a_documented_method() -> None:
    for name, spec in OPS.items():
        method = inspect.getattr_static(GraphBuilder, name)
        assert method.__doc__.startswith(spec.doc)
        parameters = inspect.signature(method).parameters
        wanted = {"self", "name", *spec.operands, *(attr.name for attr in spec.attrs)}
        assert set(parameters) == wanted


def test_operators(g: GraphBuilder, x: Symbol) -> None:
    built = {
        "add": [x + 1, 1 + x],
        "sub": [x - 1, 1 - x],
        "mul": [x * x, 2.0 * x],
        "div": [x / 2, 2 / x],
        "pow": [x**2, 2**x],
        "neg": [-x],
        "abs": [abs(x)],
        "less": [x < 1, operator.gt(1, x)],
        "less_equal": [x <= 1],
        "greater": [x > 1],
        "greater_equal": [x >= 1],
    }
    mask = x < 0
    built |= {"logical_and": [mask & mask], "logical_or": [mask | mask], "logical_not": [~mask]}
    half = g.cast(x, "f16")
    built["matmul"] = [half @ g.transpose(half, (1, 0))]
    g.output(g.neg(x))
    graph = g.build()
    for op, symbols in built.items():
        for symbol in symbols:
            node = graph.node(symbol.name)
            assert node is not None
            assert node.op == op
    reflected = graph.node(built["sub"][1].name)
    assert reflected is not None
    assert reflected.inputs == (1, "x")


def test_names_are_made_and_kept_apart(g: GraphBuilder, x: Symbol) -> None:
    first = g.neg(x, name="neg_1")
    assert [g.neg(first).name, g.neg(first).name, g.exp(x).name] == ["neg_2", "neg_3", "exp_0"]


def test_infinite_scalars(g: GraphBuilder, x: Symbol) -> None:
    g.output(g.where(x < 0, -math.inf, math.nan, name="y"))
    result = evaluate(g.build(), {"x": np.linspace(-1, 1, 128, dtype=np.float32).reshape(8, 16)})["y"]
    assert np.isneginf(result[0]).all()
    assert np.isnan(result[-1]).all()


def test_optional_operand_by_position_or_name(g: GraphBuilder) -> None:
    q, scale = g.input("q", (4, 8), "i8"), g.input("s", (4, 2), "f32")
    zeros = [
        g.dequantize(q, scale, 4),
        g.dequantize(q, scale, group=4, zero=8),
        g.dequantize(q, scale, 4, scale),
    ]
    g.output(*zeros)
    assert [len(node.inputs) for node in g.build().nodes] == [2, 3, 3]


# --- errors ---------------------------------------------------------------------------------------------


def test_errors_come_at_the_call_with_a_pointer(g: GraphBuilder, x: Symbol) -> None:
    g.neg(x)
    (problem,) = problems_of(g.softmax, x, axis=2)
    assert problem.pointer == "/nodes/1/attrs/axis"
    (problem,) = problems_of(g.matmul, x, x, transpose_b=True)
    assert "f32 operands want the attr precision" in problem.message
    (problem,) = problems_of(g.add, x, True)
    assert problem.pointer == "/nodes/1/inputs/1"
    (problem,) = problems_of(g.input, "z", (8, 0), "f32")
    assert problem.pointer == "/inputs/1/shape/1"
    with pytest.raises(InputError, match='graph g: /nodes/1/name: the name "x" is taken'):
        g.neg(x, name="x")
    assert g.neg(x).name == "neg_1", "a call that failed left nothing behind"


def test_faulty_names(g: GraphBuilder) -> None:
    assert problems_of(GraphBuilder, "not a name")[0].pointer == "/name"
    assert problems_of(GraphBuilder, "g", doc=3)[0].pointer == "/doc"
    assert problems_of(g.input, "inf", (8,), "f32")[0].pointer == "/inputs/0/name"
    assert problems_of(g.input, ["x"], (8,), "f32")[0].pointer == "/inputs/0/name"


def test_build_wants_an_output_that_is_a_node(g: GraphBuilder, x: Symbol) -> None:
    assert problems_of(g.build)[0].pointer == "/outputs"
    g.output(x)
    assert "is an input" in problems_of(g.build)[0].message


def test_symbols_stay_with_their_builder(g: GraphBuilder, x: Symbol) -> None:
    other = GraphBuilder("other").input("x", (8, 16), "f32")
    assert "is a tensor of another graph, other" in problems_of(g.add, x, other)[0].message


def test_misuse_in_python_is_a_type_error(g: GraphBuilder, x: Symbol) -> None:
    with pytest.raises(TypeError, match="choose with where"):
        bool(x)
    with pytest.raises(TypeError, match="unsupported operand"):
        x + "y"  # type: ignore[operator]
    with pytest.raises(TypeError, match="missing a required argument"):
        g.cast(x)
    with pytest.raises(TypeError, match="an output is what an operation returned; this is the str 'x'"):
        g.output("x")  # type: ignore[arg-type]
    with pytest.raises(AttributeError):
        g.sofmax(x)
