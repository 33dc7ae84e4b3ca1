"""The frozen types: dtypes, strides, attribute access, and finding one's way in a graph."""

from __future__ import annotations

import copy
import dataclasses
import pickle

import numpy as np
import pytest
from graph_examples import MLP, changed, node

from wsopt.graph import DType, Graph, Input, TensorType, parse_graph


@pytest.fixture(scope="module")
def mlp() -> Graph:
    return parse_graph(MLP, "mlp")


def test_dtypes_hold_their_bits() -> None:
    words = ["f32", "f16", "bf16", "f8e4m3", "f8e5m2", "i32", "i8", "i4", "bool"]
    assert [dtype.value for dtype in DType] == words
    assert [dtype.bits for dtype in DType] == [32, 16, 16, 8, 8, 32, 8, 4, 8]
    for dtype in DType:
        assert dtype.numpy.itemsize * 8 == max(dtype.bits, 8)
    assert [dtype for dtype in DType if not dtype.is_float and not dtype.is_integer] == [DType.BOOL]
    assert DType.I4.numpy == np.int8


def test_tensor_type() -> None:
    tensor = TensorType((3, 4), DType.I4)
    assert (tensor.rank, tensor.size, tensor.nbytes, str(tensor)) == (2, 12, 6, "i4[3, 4]")
    assert TensorType((), DType.F32).size == 1


def test_strides_are_row_major_unless_given() -> None:
    assert Input("x", TensorType((4, 3, 2), DType.F32), False, None).element_strides == (6, 2, 1)
    assert Input("x", TensorType((4, 3), DType.F32), False, (0, 1)).element_strides == (0, 1)
    assert Input("x", TensorType((), DType.F32)).element_strides == ()


def test_attributes_are_complete_and_typed(mlp: Graph) -> None:
    matmul = mlp.node("h")
    assert matmul is not None
    assert [name for name, _ in matmul.attrs] == ["accumulate", "precision", "transpose_a", "transpose_b"]
    assert matmul.attr("transpose_b", bool) is True
    assert matmul.attr("accumulate", str) == "f32"
    assert matmul.attr("precision") is None
    with pytest.raises(KeyError, match="matmul has no attribute axis"):
        matmul.attr("axis")
    with pytest.raises(TypeError, match="precision is None, not a str"):
        matmul.attr("precision", str)
    cast = mlp.node("y")
    assert cast is not None
    assert cast.attr("dtype", DType) is DType.BF16


def test_finding_tensors(mlp: Graph) -> None:
    assert mlp.type_of("x") == TensorType((8, 16), DType.BF16)
    assert mlp.type_of("h") == TensorType((8, 32), DType.F32)
    assert mlp.producer("x") is None
    assert mlp.producer("a") is mlp.node("a") is mlp.nodes[1]
    assert mlp.input("w") is mlp.inputs[1]
    assert mlp.input("h") is None
    assert [user.name for user in mlp.consumers("h")] == ["a"]
    assert mlp.consumers("y") == ()
    with pytest.raises(KeyError):
        mlp.type_of("nothing")


def test_consumers_counts_a_node_once() -> None:
    graph = parse_graph(changed({"/nodes/1/inputs/1": "h"}), "t")
    assert [user.name for user in graph.consumers("h")] == ["a"]


def test_graphs_are_values(mlp: Graph) -> None:
    assert pickle.loads(pickle.dumps(mlp)) == mlp == copy.deepcopy(mlp)
    assert hash(parse_graph(MLP, "again")) == hash(mlp)
    renamed = dataclasses.replace(mlp, name="other")
    assert renamed != mlp
    assert renamed.type_of("h") == mlp.type_of("h")
    with pytest.raises(dataclasses.FrozenInstanceError):
        mlp.name = "changed"  # type: ignore[misc]


def test_order_is_topological_and_steady() -> None:
    r, q, p, s = (
        node("r", "add", "q", "s"),
        node("q", "neg", "x"),
        node("p", "neg", "x"),
        node("s", "neg", "p"),
    )
    graph = parse_graph(changed({"/nodes": [r, q, p, s], "/outputs": ["r"]}), "t")
    assert [item.name for item in graph.nodes] == ["q", "p", "s", "r"]
    kept = parse_graph(changed({"/nodes": [p, q, s, r], "/outputs": ["r"]}), "t")
    assert [item.name for item in kept.nodes] == ["p", "q", "s", "r"]
