"""Graphs with named dimensions: what is read, what is refused and where, and the graphs they are bound to."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

from wsopt.errors import InputError
from wsopt.graph.builder import GraphBuilder
from wsopt.graph.extents import Extent, read_extent, value_at
from wsopt.graph.parse import parse_graph
from wsopt.graph.reference import evaluate
from wsopt.graph.serialize import graph_to_json
from wsopt.graph.symbolic import (
    SymbolicGraph,
    any_canonical_bytes,
    bound,
    parse_any,
    symbolic_to_json,
)

LEAST = {"batch": 2, "seq": 3}
GRAPH: dict[str, Any] = {
    "format": "wsopt.graph/1",
    "name": "projection",
    "dims": {
        "seq": {"min": 1, "max": 8192, "typical": [1, 16, 512]},
        "batch": {"min": 2, "max": 4, "typical": {"2": 0.5, "3": 1.5}},
    },
    "inputs": [
        {"name": "x", "shape": ["batch", "seq", 256], "dtype": "bf16"},
        {"name": "w", "shape": [256, 128], "dtype": "bf16", "constant": True},
        {"name": "r", "shape": ["batch*seq", 128], "dtype": "bf16"},
    ],
    "nodes": [
        {"name": "rows", "op": "reshape", "inputs": ["x"], "attrs": {"shape": ["seq * batch", 256]}},
        {"name": "h", "op": "matmul", "inputs": ["rows", "w"]},
        {"name": "sum", "op": "add", "inputs": ["h", "r"]},
        {"name": "y", "op": "cast", "inputs": ["sum"], "attrs": {"dtype": "bf16"}},
    ],
    "outputs": ["y"],
}


def _read(data: dict[str, Any] = GRAPH) -> SymbolicGraph:
    found = parse_any(data, "g.json")
    assert isinstance(found, SymbolicGraph)
    return found


def _extent(text: str) -> int:
    found = read_extent(text, LEAST)
    assert isinstance(found, int)
    return found


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("batch*seq", "seq * batch"),
        ("batch + seq", "seq+batch"),
        ("2*seq + seq", "seq*3"),
        ("batch*2*seq + 1*1", "1 + seq*batch + batch*seq"),
    ],
)
def test_expressions_that_mean_the_same_are_equal(one: str, other: str) -> None:
    assert _extent(one) == _extent(other)
    assert hash(_extent(one)) == hash(_extent(other))
    assert str(_extent(one)) == str(_extent(other))


@pytest.mark.parametrize(("one", "other"), [("batch*seq", "batch + seq"), ("batch", "2"), ("seq + 1", "seq")])
def test_expressions_are_not_equal_for_having_one_value(one: str, other: str) -> None:
    assert _extent(one) != _extent(other)


def test_an_expression_of_numbers_alone_is_a_number() -> None:
    found = _extent("2*3 + 1")
    assert found == 7
    assert not isinstance(found, Extent)


def test_a_multiple_is_told_by_the_coefficients() -> None:
    assert _extent("4*seq + 8") % 4 == 0
    assert _extent("4*seq + 8") // 4 == _extent("seq + 2")
    assert _extent("4*seq + 2") % 4 != 0


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "is empty"),
        ("seq +", 'ends with "+"'),
        ("seq - 1", 'has "-" where "+" or "*" is wanted'),
        ("(seq)", 'has "(" where a dimension or a number is wanted'),
        ("seq * 0", 'has "0"; a number in it is from 1'),
        ("token", 'has the unknown dimension "token"; the graph\'s dims are batch, seq'),
        ("+".join(["seq"] * 40), "more than 64 words"),
    ],
)
def test_a_malformed_expression_says_why(text: str, told: str) -> None:
    found = read_extent(text, LEAST)
    assert not isinstance(found, int)
    assert told in found.why


def test_a_graph_is_written_as_it_is_read() -> None:
    graph = _read()
    assert parse_any(symbolic_to_json(graph), "again") == graph
    assert any_canonical_bytes(graph) == any_canonical_bytes(_read(symbolic_to_json(graph)))
    assert pickle.loads(pickle.dumps(graph)) == graph
    assert symbolic_to_json(graph)["dims"] == GRAPH["dims"]
    assert graph.dims[1].weights == {2: 0.25, 3: 0.75}


def test_bound_it_is_an_ordinary_graph() -> None:
    graph = bound(_read(), {"batch": 2, "seq": 5})
    assert graph.type_of("h").shape == (10, 128)
    assert all(type(extent) is int for node in graph.nodes for extent in node.type.shape)


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"seq": 5}, "/dims/batch: is not bound"),
        ({"seq": 0, "batch": 2}, "/dims/seq: 0 is outside of its range, 1 to 8192"),
        ({"seq": 8193, "batch": 2}, "/dims/seq: 8193 is outside of its range"),
        ({"seq": 5, "batch": 2, "rows": 1}, "/dims/rows: is no dimension of the graph"),
    ],
)
def test_binding_outside_of_the_range_is_refused(values: dict[str, int], told: str) -> None:
    with pytest.raises(InputError) as caught:
        bound(_read(), values)
    assert told in str(caught.value)


REFUSED: dict[str, tuple[tuple[Any, ...], Any, str]] = {
    "unknown name": (
        ("inputs", 0, "shape", 1),
        "sequence",
        '/inputs/0/shape/1: has the unknown dimension "sequence"',
    ),
    "malformed": (("nodes", 0, "attrs", "shape", 0), "seq*", '/nodes/0/attrs/shape/0: ends with "*"'),
    "unequal in a reshape": (
        ("nodes", 0, "attrs", "shape", 0),
        "batch + seq",
        "/nodes/0/attrs/shape: shape [batch, seq, 256] with 256*batch*seq elements cannot become [batch + seq, 256]",
    ),
    "unequal in an addition": (
        ("inputs", 2, "shape", 0),
        "seq",
        "/nodes/2/inputs: shapes [batch*seq, 128] and [seq, 128] do not broadcast",
    ),
    "unequal in a product": (
        ("inputs", 1, "shape", 0),
        "seq",
        "/nodes/1/inputs: shapes [batch*seq, 256] and [seq, 128]: the contracted extents are 256 and seq",
    ),
    "empty range": (
        ("dims", "seq"),
        {"min": 9, "max": 8},
        "/dims/seq: min 9 is above max 8: the range is empty",
    ),
    "least of none": (("dims", "seq", "min"), 0, "/dims/seq/min: found 0; wants an integer from 1"),
    "typical outside": (
        ("dims", "seq", "typical"),
        [1, 9000],
        "/dims/seq/typical/1: found 9000; wants an extent of the range, 1 to 8192",
    ),
    "weight of nothing": (
        ("dims", "seq", "typical"),
        {"1": 0},
        "/dims/seq/typical/1: found 0; wants a weight: a number above 0",
    ),
    "a tensor's name": (
        ("dims", "x"),
        {"min": 1, "max": 2},
        '/dims/x: the name "x" is taken by /inputs/0; a dimension has a name of its own',
    ),
    "told by nothing": (("dims", "rest"), {"min": 1, "max": 2}, "/dims/rest: no input's shape tells"),
    "no dimension": (("dims",), {}, "/dims: found 0 dimensions; a graph has 1 to 4"),
    "unknown key": (("dims", "seq", "most"), 3, '/dims/seq/most: unknown key "most"'),
    "too large at the end": (
        ("dims", "seq", "max"),
        2**31 - 1,
        "/inputs/2/shape/0: found 8589934588; wants an integer from 1 to 2**31 - 1 (with seq = 2147483647",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_fault_has_its_place(case: str) -> None:
    path, value, told = REFUSED[case]
    data = copy.deepcopy(GRAPH)
    *way, last = path
    place: Any = data
    for key in way:
        place = place[key]
    place[last] = value
    with pytest.raises(InputError) as caught:
        parse_any(data, "g.json")
    assert told in str(caught.value)


def test_dimensions_are_told_by_sums_and_products_too() -> None:
    data = copy.deepcopy(GRAPH)
    data["inputs"][0]["shape"] = ["batch*seq", 256]
    data["inputs"].append({"name": "k", "shape": ["2*batch + 3"], "dtype": "bf16"})
    first, second = _read(data).told
    assert (first.dim, first.tensor, first.axis, first.factor, first.rest) == ("batch", "k", 0, 2, 3)
    assert (second.dim, second.tensor, str(second.factor)) == ("seq", "x", "batch")


def test_a_graph_of_numbers_is_read_as_before_and_named_extents_are_refused_where_it_is_wanted() -> None:
    plain = symbolic_to_json(_read())
    with pytest.raises(InputError, match="/dims: a graph of numbers is wanted here"):
        parse_graph(plain, "g.json")
    graph = bound(_read(), {"batch": 2, "seq": 5})
    assert parse_any(graph_to_json(graph), "g.json") == graph


def test_the_builder_has_dimensions() -> None:
    g = GraphBuilder("projection")
    seq, batch = g.dim("seq", 1, 64, typical=[1, 16]), g.dim("batch", 1, 4)
    x = g.input("x", (batch, seq, 64), "bf16")
    w = g.input("w", (64, 64), "bf16", constant=True)
    rows = g.reshape(x, shape=(batch * seq, 64))
    g.output(g.cast(g.matmul(rows, w), dtype="bf16", name="y"))
    graph = g.symbolic()
    assert str(graph.generic.type_of("y")) == "bf16[batch*seq, 64]"
    with pytest.raises(InputError, match="do not broadcast"):
        g.add(rows, g.input("r", ("batch + seq", 64), "bf16"))
    with pytest.raises(InputError, match="a graph of numbers is wanted"):
        g.build()
    with pytest.raises(InputError, match='the name "x" is taken'):
        g.dim("x", 1, 2)


def _sliced(shape: list[int | str], attrs: dict[str, Any], dims: str = "t") -> SymbolicGraph:
    """The slice y along the first axis of a tensor; dimensions have 2 to 64 elements."""
    told = {"name": "told", "shape": list(dims), "dtype": "f32"}
    return _read({
        "format": "wsopt.graph/1",
        "name": "part",
        "dims": {name: {"min": 2, "max": 64} for name in dims},
        "inputs": [{"name": "x", "shape": [*shape, 8], "dtype": "f32"}, told],
        "nodes": [{"name": "y", "op": "slice", "inputs": ["x"], "attrs": {"axis": 0, **attrs}}],
        "outputs": ["y"],
    })  # fmt: skip


@pytest.mark.parametrize(
    ("shape", "attrs", "length"),
    [
        (["2*t"], {"stop": "t"}, "t"),
        (["2*t"], {"start": "t"}, "t"),
        (["c + t"], {"start": "c"}, "t"),
        (["t + 5"], {"start": "t", "stop": "t + 3"}, "3"),
        (["c + t + 9"], {"start": 2, "stop": "t + 2"}, "t"),
        (["t"], {"start": -2}, "2"),
        (["t + 1"], {"stop": -1}, "t"),
        (["4*t"], {"start": 1, "step": 4}, "t"),
        (["4*t + 3"], {"step": 4}, "t + 1"),
        (["t*t"], {"stop": "t*t"}, "t*t"),
        ([64], {"stop": "t"}, "t"),
        (["c*t + c"], {"stop": "c + t"}, "c + t"),
    ],
)
def test_a_slice_ends_at_named_extents(shape: list[int | str], attrs: dict[str, Any], length: str) -> None:
    graph = _sliced(shape, attrs, "ct")
    assert str(graph.generic.type_of("y").shape[0]) == length
    assert parse_any(symbolic_to_json(graph), "again") == graph
    for values in ({"c": 2, "t": 2}, {"c": 3, "t": 7}, {"c": 64, "t": 64}):
        found = bound(graph, values)
        assert found.type_of("y").shape[0] == value_at(graph.generic.type_of("y").shape[0], values)
        assert not any(isinstance(value, Extent) for _, value in found.nodes[0].attrs)
        x = np.arange(8 * found.inputs[0].type.shape[0], dtype=np.float32).reshape(-1, 8)
        start, stop, step = (dict(found.nodes[0].attrs)[key] for key in ("start", "stop", "step"))
        y = evaluate(found, {"x": x, "told": np.zeros(found.inputs[1].type.shape, np.float32)})["y"]
        np.testing.assert_array_equal(y, x[start:stop:step])


@pytest.mark.parametrize(
    ("shape", "attrs", "dims", "told"),
    [
        ([63], {"stop": "t"}, "t", "attrs/stop: 64 of an axis of 63 elements; allowed: -63 to 63 (with t = 64)"),
        (["c"], {"stop": "t"}, "ct", "64 of an axis of 2 elements; allowed: -2 to 2 (with c = 2, t = 64)"),
        (["t"], {"start": -3}, "t", "attrs/start: -3 of an axis of 2 elements; allowed: -2 to 1 (with t = 2)"),
        (["t"], {"start": "t"}, "t", "attrs/start: the slice from t to t is empty"),
        (["2*t"], {"start": "t + 3", "stop": "t"}, "t", "attrs/stop: the slice from t + 3 to t is empty"),
        (["t"], {"start": 1}, "t", "t - 1 elements: an extent is no difference; let n be a dimension"),
        (["n"], {"stop": -1}, "n", "let m be a dimension, and the axis have m + 1 elements"),
        (["c + t"], {"start": "c", "stop": "t"}, "ct", 'the axis have 2*c + n elements and the stop be "c + n"'),
        ([64], {"start": "t"}, "t", "let n be a dimension, and the axis have n + t elements"),
        (["t"], {"start": 1, "stop": "t"}, "t", 'the axis have n + 1 elements and the stop be "n + 1"'),
        (["t + 9"], {"start": 2, "stop": "t"}, "t", 'the axis have n + 11 elements and the stop be "n + 2"'),
        ([66], {"start": 2, "stop": "t"}, "t", 'let n be a dimension, and the stop be "n + 2"'),
        (["t"], {"step": 4}, "t", "a step of 4 through t elements; let them be 4 times a dimension"),
        (["t*t"], {"stop": "2*t"}, "t", "2*t cannot be held against t*t at all extents, as a dimension is"),
        (["t"], {"stop": "q"}, "t", '/nodes/0/attrs/stop: has the unknown dimension "q"; the graph\'s dims are t'),
        (["t"], {"stop": "t - 1"}, "t", 'attrs/stop: has "-" where "+" or "*" is wanted'),
        (["t"], {"step": "t"}, "t", 'attrs/step: found the string "t"; wants a positive integer'),
    ],
)  # fmt: skip
def test_a_slice_that_some_extents_do_not_have_is_refused(
    shape: list[int | str], attrs: dict[str, Any], dims: str, told: str
) -> None:
    with pytest.raises(InputError) as caught:
        _sliced(shape, attrs, dims)
    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("shape", "attrs", "dims", "length"),
    [
        (["n + 1"], {"start": 1}, "n", "n"),
        (["m + 1"], {"stop": -1}, "m", "m"),
        (["2*c + n"], {"start": "c", "stop": "c + n"}, "cn", "n"),
        (["n + t"], {"start": "t"}, "nt", "n"),
        (["n + 1"], {"start": 1, "stop": "n + 1"}, "n", "n"),
        (["n + 11"], {"start": 2, "stop": "n + 2"}, "n", "n"),
        ([66], {"start": 2, "stop": "n + 2"}, "n", "n"),
        (["4*t"], {"step": 4}, "t", "t"),
    ],
)
def test_what_is_said_instead_of_such_a_slice_is_read(
    shape: list[int | str], attrs: dict[str, Any], dims: str, length: str
) -> None:
    assert str(_sliced(shape, attrs, dims).generic.type_of("y").shape[0]) == length


def test_the_builder_slices_up_to_a_dimension() -> None:
    g = GraphBuilder("part")
    t = g.dim("t", 2, 64)
    x = g.input("x", (2 * t, 8), "f32")
    g.output(g.slice(x, axis=0, start=t, stop=2 * t, name="y"))
    assert str(g.symbolic().generic.type_of("y")) == "f32[t, 8]"


def test_a_named_end_of_a_graph_of_numbers_says_what_it_lacks() -> None:
    numbers = graph_to_json(bound(_sliced(["2*t"], {"stop": 2}), {"t": 2}))
    numbers["nodes"][0]["attrs"]["stop"] = "t"
    with pytest.raises(InputError, match=r"attrs/stop: .*names of extents want"):
        parse_graph(numbers, "g.json")
