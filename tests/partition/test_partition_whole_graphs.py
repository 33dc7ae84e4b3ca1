"""Whole layers: kernels can be made of every graph of the list, as one or cut; nothing is searched or compiled."""

from __future__ import annotations

import pytest
from whole_graphs_listed import GRAPHS, whole_graph

from wsopt.errors import LoweringError
from wsopt.graph.builder import GraphBuilder
from wsopt.graph.needed import needed
from wsopt.machine.types import Machine
from wsopt.partition import candidates as candidates_module
from wsopt.partition import cut as cut_module
from wsopt.partition.accept import Answer, Oracle, refusal_of
from wsopt.partition.candidates import find_candidates
from wsopt.partition.cut import check_cuttable
from wsopt.partition.pieces import Piece
from wsopt.partition.web import Web


@pytest.mark.parametrize("name", [*GRAPHS])
def test_kernels_can_be_made_of_it(name: str, h200: Machine) -> None:
    graph = whole_graph(name)
    check_cuttable(graph, h200)
    assert not refusal_of(graph, h200) or len(Web(needed(graph)).solid) > 1


def test_those_that_one_kernel_takes(h200: Machine) -> None:
    one = {name for name in GRAPHS if not refusal_of(whole_graph(name), h200)}
    assert one >= {
        *("odd_mlp", "log_softmax", "silu_gate", "quantized_rows", "chunked_prefill", "attention_sink"),
        *("batched_views", "embedding"),
    }
    assert not one & {"llama_block", "linear_logsumexp", "cross_entropy", "patches", "convolution"}


def test_a_view_that_nobody_can_read_is_copied_by_a_kernel(h200: Machine) -> None:
    graph = whole_graph("patches")
    assert "transpose_0" in Web(graph).free
    web = Web(graph, moves=True)
    assert "transpose_0" not in web.free
    found = find_candidates(web, Oracle(h200), lambda done, total: None)
    copies = [
        piece for piece in found.pieces if {node.op for node in piece.graph.nodes} <= {"reshape", "transpose"}
    ]
    assert {piece.graph.outputs for piece in copies} == {("transpose_0",), ("reshape_1",)}


def test_an_output_that_is_a_view_of_an_input_is_copied_beside_a_product(h200: Machine) -> None:
    g = GraphBuilder("beside")
    x, w = g.input("x", (64, 256), "bf16"), g.input("w", (128, 256), "bf16", constant=True)
    y = g.cast(g.matmul(x, w, transpose_b=True), "bf16", name="y")
    g.output(y, g.slice(x, axis=1, stop=128, name="z"))
    check_cuttable(g.build(), h200)


def test_an_output_that_moves_nothing_is_still_made_outside(h200: Machine) -> None:
    g = GraphBuilder("beside")
    x, w = g.input("x", (64, 256), "bf16"), g.input("w", (128, 256), "bf16", constant=True)
    y = g.cast(g.matmul(x, w, transpose_b=True), "bf16", name="y")
    g.output(y, g.reshape(x, shape=(32, 512), name="z"))
    with pytest.raises(LoweringError, match="output z is an input seen in another way"):
        check_cuttable(g.build(), h200)


def test_whether_a_graph_can_be_cut_takes_no_solving(h200: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a sum of products there are thousands of covers of nearly the same time: which is best is asked once."""

    def solved(*_: object) -> None:
        raise AssertionError("a cover is solved where only its existence is asked")

    monkeypatch.setattr(cut_module, "cover", solved)
    check_cuttable(whole_graph("odd_mlp"), h200)
    g = GraphBuilder("refused")
    g.output(g.cast(g.exp(g.input("x", (64, 256), "bf16")), "i32", name="y"))
    with pytest.raises(LoweringError, match="node y: "):
        check_cuttable(g.build(), h200)


def test_where_not_all_is_asked_for_the_smallest_parts_are(
    h200: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A quarter of the questions finds all pieces of a block."""
    web, oracle = Web(needed(whole_graph("llama_block"))), Oracle(h200)
    every = find_candidates(web, oracle, lambda done, total: None)
    monkeypatch.setattr(candidates_module, "MOST", 1600)
    some = find_candidates(web, oracle, lambda done, total: None)
    assert every.whole
    assert not some.whole
    assert some.looked_at < every.looked_at / 3
    assert some.pieces == every.pieces


def test_pieces_of_a_graph_written_in_several_ways_are_asked_for_once(
    h200: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, answer = list[str](), Oracle._asked

    def counted(oracle: Oracle, piece: Piece) -> Answer:
        asked.append(piece.key)
        return answer(oracle, piece)

    monkeypatch.setattr(Oracle, "_asked", counted)
    check_cuttable(whole_graph("patches_of_a_batch"), h200)  # of which kernels are made in the sixth way
    assert len(asked) == len(set(asked))
