"""Which nodes belong together, which parts of a graph may be kernels, and what a cut of bounds and prices takes."""

from __future__ import annotations

import math

import pytest
from partition_graphs import block, mlp, rows_between

from wsopt.errors import LoweringError
from wsopt.graph.builder import GraphBuilder, Symbol
from wsopt.graph.needed import needed
from wsopt.graph.types import Graph
from wsopt.machine.types import Machine
from wsopt.partition.accept import Oracle
from wsopt.partition.candidates import find_candidates
from wsopt.partition.cut import cut
from wsopt.partition.groups import groups
from wsopt.partition.pieces import pieces_of
from wsopt.partition.prices import Level, Price, Prices
from wsopt.partition.turned_scales import with_turned_scales
from wsopt.partition.web import Web, bits, members


def _web(graph: Graph) -> Web:
    return Web(needed(graph))


def _parts(graph: Graph, machine: Machine) -> set[frozenset[str]]:
    web = _web(graph)
    found = find_candidates(web, Oracle(machine), lambda done, total: None)
    assert found.whole
    return {frozenset(web.names(piece.solid)) for piece in found.pieces}


def test_views_and_indices_are_made_again_by_whoever_needs_them() -> None:
    web = _web(block())
    assert {"qh", "kh", "vh", "oh", "i", "j", "causal"} <= web.free
    assert {"q", "k", "v", "masked", "p", "o"} <= {node.name for node in web.solid}
    assert {web.solid[n].name for n in range(len(web.solid)) if web.reads[web.number["scores"]] >> n & 1} == {
        "q", "k",
    }  # fmt: skip


def test_a_result_may_lie_as_all_that_read_it_see_it() -> None:
    web = _web(block())
    assert web.forms[web.number["q"]] == ("q", "qh")
    assert web.forms[web.number["o"]] == ("o", "oh")
    assert web.forms[web.number["r"]] == ("r",)


def rms_norm_backward(dtype: str = "bf16", *, stored: bool = False) -> Graph:
    """dx and dweight of an RMS norm, and perhaps what it normed."""
    g = GraphBuilder("backward")
    x, dy = (g.input(name, (256, 512), dtype) for name in ("x", "dy"))
    r = g.rsqrt(g.reduce_mean(g.mul(x, x), axis=-1, keepdims=True), name="r")
    xhat = g.mul(x, r, name="xhat")
    slope = g.reduce_mean(g.mul(dy, xhat), axis=-1, keepdims=True)
    dx = g.cast(g.mul(g.sub(dy, g.mul(xhat, slope)), r), "bf16", name="dx")
    g.output(dx, g.reduce_sum(g.mul(dy, xhat, name="p"), axis=0, name="dweight"), *([xhat] if stored else []))
    return g.build()


def test_elements_with_more_bytes_than_what_they_are_made_of_are_made_again(h200: Machine) -> None:
    web = _web(rms_norm_backward())
    assert web.free == {"xhat"}
    assert {web.solid[n].name for n in members(web.reads[web.number["dweight"]])} == {"p"}
    assert {web.solid[n].name for n in members(web.reads[web.number["p"]])} == {"r"}
    sums = next(piece for piece in pieces_of(web, bits([web.number["p"], web.number["dweight"]])))
    assert {one.name for one in sums.graph.inputs} == {"x", "dy", "r"}
    assert "xhat" in sums.nodes
    assert not Oracle(h200).ask(sums).refusal
    assert _web(rms_norm_backward("f32")).free == {"xhat"}, "nobody has to write it"
    assert "xhat" not in _web(rms_norm_backward(stored=True)).free, "it is written anyway"
    g = GraphBuilder("bias")
    x, w, bias = g.input("x", (256, 64), "bf16"), g.input("w", (64, 512), "bf16"), g.input("b", (512,), "f32")
    h = g.add(g.matmul(x, w, name="p"), bias, name="h")
    g.output(g.reduce_sum(h, axis=0), g.cast(h, "bf16"))
    assert _web(g.build()).free == set(), "the product would be written in its place"


def test_elements_that_are_made_for_one_result_alone_are_made_again_with_it() -> None:
    """Squares of a gradient of which an optimizer with factored moments has the means of rows and columns."""

    def squares(*, multiplied: bool) -> GraphBuilder:
        g = GraphBuilder("factored")
        wide = g.cast(g.input("x", (256, 512), "bf16"), "f32", name="wide")
        h = g.cast(g.add(g.mul(wide, wide, name="square"), 1e-30, name="more"), "f16", name="h")
        g.output(g.reduce_mean(h, axis=0), g.reduce_mean(g.add(h, 1.0), axis=1))
        if multiplied:
            g.output(g.matmul(h, g.input("w", (512, 64), "f16")))
        return g

    assert {"wide", "square", "more", "h"} <= _web(squares(multiplied=False).build()).free
    free = _web(squares(multiplied=True).build()).free
    assert not {"square", "more", "h"} & free, "the loop of a product would compute its operand"
    g = GraphBuilder("shifted")
    x, last = g.input("x", (256, 512), "bf16"), g.input("last", (256, 512), "bf16")
    away = g.sub(g.mul(last, 0.5, name="half"), x, name="away")
    g.output(*(g.cast(g.add(x, g.mul(away, g.input(name, (512,), "f32"))), "bf16") for name in "rk"))
    assert "half" not in _web(g.build()).free, (
        "one kernel has both results, which nothing else would bring together"
    )


def test_elements_are_made_again_by_those_that_read_a_view_of_them() -> None:
    g = GraphBuilder("channels")
    x, w = g.input("x", (2, 64, 96), "bf16"), g.input("w", (96,), "bf16")

    def mean(of: Symbol) -> Symbol:
        return g.reduce_mean(g.reduce_mean(of, axis=1, keepdims=True), axis=3, keepdims=True)

    parts = g.reshape(g.cast(x, "f32", name="wide"), (2, 64, 12, 8))
    apart = g.sub(parts, mean(parts), name="apart")
    r = g.rsqrt(mean(g.mul(apart, apart)), name="r")
    g.output(g.cast(g.mul(g.reshape(g.mul(apart, r), (2, 64, 96)), w), "bf16", name="y"))
    web = _web(g.build())
    assert {"wide", "apart"} <= web.free
    assert all("wide" not in web.names(web.reads[number]) for number in range(len(web.solid)))


def test_what_lies_between_two_nodes_is_in_their_part() -> None:
    web = _web(mlp())
    h, gated, silu = web.number["h"], web.number["gated"], web.number["act"]
    assert set(web.names(web.closed(bits([h, gated])))) == {"h", "gate", "up", "act", "gated"}
    assert web.closed(bits([silu, gated])) == bits([silu, gated])


def test_casts_stay_with_what_they_round(h200: Machine) -> None:
    web = _web(mlp())
    together = {web.names(group) for group in groups(web, Oracle(h200))}
    assert ("gated", "m") in together
    assert ("down", "res", "y") in together
    assert not any("gate" in names and "gated" in names for names in together)  # act and up meet there


def _polynomial(g: GraphBuilder, x: Symbol) -> Symbol:
    """exp(x) - 1 of a product's elements: by a polynomial where x is small, and 0 where it is large."""
    y = g.mul(g.cast(x, "f32"), 0.5, name="y")
    small = g.less(g.abs(y), 0.1, name="small")
    near = g.mul(y, g.add(g.mul(y, 0.5), 1.0), name="near")
    return g.cast(g.where(small, near, g.sub(g.exp(y), 1.0, name="far"), name="chosen"), "bf16", name="z")


def test_elements_that_are_computed_for_one_result_are_together(h200: Machine) -> None:
    g = GraphBuilder("polynomial")
    x, w = g.input("x", (64, 128), "bf16"), g.input("w", (128, 128), "bf16", constant=True)
    a, b = g.input("a", (128, 64), "bf16", constant=True), g.input("b", (128, 64), "bf16", constant=True)
    h = g.cast(g.matmul(x, w, name="product"), "bf16", name="h")
    z = _polynomial(g, h)
    g.output(g.cast(g.matmul(z, a, name="last"), "bf16", name="u"), g.cast(g.matmul(h, b), "bf16", name="v"))
    web = _web(g.build())
    together = {frozenset(web.names(group)) for group in groups(web, Oracle(h200))}
    (polynomial,) = (group for group in together if "y" in group)
    assert polynomial >= {"y", "small", "near", "far", "chosen", "z"}
    assert not polynomial & {"product", "h", "last"}  # others read h as well, and products end groups


@pytest.mark.parametrize("others", [False, True])
def test_elements_that_bring_what_others_read_too_are_apart(h200: Machine, *, others: bool) -> None:
    """A kernel that makes the first of them and not the rest would read an input that the other one reads anyway."""
    g = GraphBuilder("brought")
    x, w = g.input("x", (64, 128), "bf16"), g.input("w", (128, 128), "bf16", constant=True)
    a, side = g.input("a", (128, 64), "bf16", constant=True), g.input("side", (64, 128), "bf16")
    h = g.cast(g.matmul(x, w), "bf16", name="h")
    e, c = g.exp(h, name="e"), g.less(h, 0.0, name="c")
    z = g.cast(g.where(c, e, side, name="e_or_side"), "bf16", name="z")
    outputs = [g.cast(g.matmul(z, a), "bf16", name="u"), g.cast(g.matmul(h, a), "bf16", name="v")]
    g.output(*outputs, *([g.reduce_sum(side, axis=-1, name="sum")] if others else []))
    web = _web(g.build())
    together = {frozenset(web.names(group)) for group in groups(web, Oracle(h200))}
    assert (frozenset({"e", "c", "e_or_side", "z"}) in together) is not others


def test_elements_are_cut_where_fewer_bytes_lie(h200: Machine) -> None:
    g = GraphBuilder("narrow")
    x, w = g.input("x", (64, 128), "bf16"), g.input("w", (128, 128), "bf16", constant=True)
    h = g.cast(g.matmul(x, w), "bf16", name="h")
    kept = g.less(h, 0.0, name="kept")
    z = g.where(kept, g.cast(g.matmul(x, w, transpose_b=True), "bf16", name="k"), 0.0, name="z")
    g.output(z, g.cast(g.matmul(h, w), "bf16", name="v"))
    web = _web(g.build())
    together = {frozenset(web.names(group)) for group in groups(web, Oracle(h200))}
    assert not any({"kept", "z"} <= group for group in together)


def test_pieces_of_a_block_are_those_that_a_kernel_takes(h200: Machine) -> None:
    parts = _parts(block(), h200)
    attention = frozenset(("scores", "scaled", "masked", "p_", "p", "o_", "o"))
    assert attention in parts
    assert frozenset(("gate", "act", "up", "gated", "m")) in parts
    assert frozenset(("proj", "r_", "r")) in parts  # it reads the attention's result as rows of all heads
    assert all("proj" not in part or not part & attention for part in parts)


def test_a_piece_has_its_inputs_and_outputs_under_their_names() -> None:
    web = _web(block())
    first, *_, last = pieces_of(web, bits([web.number["proj"], web.number["r_"], web.number["r"]]))
    assert [one.name for one in first.graph.inputs] == ["o", "wo", "x"]
    assert "oh" in first.nodes
    assert [one.name for one in last.graph.inputs] == ["oh", "wo", "x"]
    assert last.graph.outputs == ("r",)


def test_a_piece_of_constants_alone_reads_none_of_them_early() -> None:
    g = GraphBuilder("constants")
    x = g.input("x", (128, 128), "bf16")
    a, b = (g.input(name, (128, 128), "bf16", constant=True) for name in "ab")
    w = g.cast(g.matmul(a, b, name="ab"), "bf16", name="w")
    g.output(g.cast(g.matmul(x, w, name="xw"), "bf16", name="y"))
    web = _web(g.build())
    (first,) = pieces_of(web, bits([web.number["ab"], web.number["w"]]))
    (second,) = pieces_of(web, bits([web.number["xw"], web.number["y"]]))
    assert first.graph.constants == frozenset()
    assert second.graph.constants == frozenset()  # w is computed by a kernel before


def test_pieces_that_are_alike_have_one_key() -> None:
    web = _web(rows_between())
    keys = [next(pieces_of(web, bits([web.number[a], web.number[b]]))).key for a, b in ("pq", "rs", "tu")]
    assert keys[0] == keys[1]
    assert keys[0] != keys[2]


def _priced(monkeypatch: pytest.MonkeyPatch, times: dict[str, float]) -> None:
    """Kernels take these times, by the last of a piece's outputs and how many nodes it has; else their bound."""

    def improve(self: Prices, pieces: list[object]) -> bool:
        open_ones = [piece for piece in pieces if self[piece].level is not Level.SOLVED]  # type: ignore[index, arg-type]
        for piece in open_ones:
            told = times.get(f"{piece.graph.outputs[-1]}/{len(piece.nodes)}", self[piece].microseconds)  # type: ignore[attr-defined, index, arg-type]
            self.known[piece.key] = Price(told, Level.SOLVED)  # type: ignore[attr-defined]
        return bool(open_ones)

    monkeypatch.setattr(Prices, "improve", improve)


def test_kernels_of_bounds_that_do_not_hold_are_replaced(
    monkeypatch: pytest.MonkeyPatch, h200: Machine
) -> None:
    _priced(monkeypatch, {})
    fused = cut(mlp(2048, 1024, 4096), h200)
    assert [piece.graph.outputs for piece in fused.pieces] == [("h",), ("m",), ("y",)]
    _priced(monkeypatch, {"m/5": 1e6})  # the fused one is no good, or does not compile
    apart = cut(mlp(2048, 1024, 4096), h200)
    assert {"gate", "up"} & {node for piece in apart.pieces[1:3] for node in piece.nodes}
    assert len(apart.pieces) == 4
    _priced(monkeypatch, {"m/5": math.inf})
    assert [piece.solid for piece in cut(mlp(2048, 1024, 4096), h200).pieces] == [
        p.solid for p in apart.pieces
    ]


def test_somebody_else_takes_what_no_kernel_computes(monkeypatch: pytest.MonkeyPatch, h200: Machine) -> None:
    _priced(monkeypatch, {})
    with pytest.raises(LoweringError, match=r"^node power: .*\n.* no kernel takes power, c$"):
        cut(_with_gap(), h200)
    found = cut(_with_gap(), h200, others=lambda piece: 1.0 if piece.nodes & {"power", "c"} else 1e6)
    assert [next(iter(piece.graph.outputs)) for piece in found.left] == ["power", "c"]
    assert found.pieces


def _with_gap() -> Graph:
    """A graph with a node between two products that no kernel computes: a power with a tensor for its exponent."""
    g = GraphBuilder("gap")
    x, w = g.input("x", (128, 128), "bf16"), g.input("w", (128, 128), "bf16", constant=True)
    v = g.input("v", (128, 128), "bf16", constant=True)
    p = g.cast(g.matmul(x, w, name="a"), "bf16", name="p")
    s = g.pow(p, v, name="power")
    g.output(g.cast(g.matmul(g.cast(s, "bf16", name="c"), v, name="d"), "bf16", name="y"))
    return g.build()


def test_an_output_that_nothing_computes_is_refused(h200: Machine) -> None:
    g = GraphBuilder("seen")
    x = g.input("x", (128, 256), "bf16")
    g.output(g.reshape(x, (256, 128), name="seen"))
    with pytest.raises(LoweringError, match="output seen is an input seen in another way"):
        cut(g.build(), h200)


def _scaled(scales: str, *, constant: bool = False) -> Graph:
    """A product of f8 whose left operand has scales that lie as they are, row by row, computed, or turned."""
    g = GraphBuilder("scaled")
    shape = (4, 512) if scales == "turned" else (512, 4)
    x, s = g.input("x", (512, 512), "f8e4m3"), g.input("s", shape, "f32", constant=constant)
    w, v = (
        g.input("w", (256, 512), "f8e4m3", constant=True),
        g.input("v", (2, 4), "f32", constant=True),
    )
    s = {"turned": lambda: g.transpose(s, (1, 0)), "computed": lambda: g.mul(s, 0.5, name="half")}.get(
        scales, lambda: s
    )()
    left = g.cast(g.dequantize(x, s, group=128, name="dx"), "bf16", name="left")
    right = g.cast(g.dequantize(w, v, block=(128, 128), name="dw"), "bf16", name="right")
    g.output(g.cast(g.matmul(left, right, transpose_b=True, name="p"), "bf16", name="y"))
    return g.build()


def test_scales_that_lie_row_by_row_are_turned_before_a_product_of_f8(h200: Machine) -> None:
    """By a kernel that copies them, or that computes them: the product is a candidate as it is with scales turned."""
    product = frozenset({"dx", "left", "dw", "right", "p", "y"})
    plain, computed = (with_turned_scales(_scaled(kind)) for kind in ("rows", "computed"))
    assert {frozenset({"s_turned"}), product} <= _parts(plain, h200)
    assert {frozenset({"half", "half_turned"}), product} <= _parts(computed, h200)
    assert product not in _parts(_scaled("computed"), h200)


def test_scales_that_need_no_copy_are_not_turned() -> None:
    for graph in (_scaled("turned"), _scaled("rows", constant=True), mlp()):
        assert with_turned_scales(graph) is graph


def test_a_transpose_that_others_read_is_no_copy_of_scales() -> None:
    g = GraphBuilder("there_and_back")
    x = g.input("x", (128, 256), "f32")
    g.output(g.exp(g.transpose(g.transpose(x, (1, 0), name="there"), (1, 0), name="back"), name="y"))
    assert {"there", "back"} <= _web(g.build()).free


def test_what_keeps_one_node_from_being_a_kernel_is_told_once(h200: Machine) -> None:
    g = GraphBuilder("strided")
    x = g.input("x", (64, 128), "bf16", strides=(300, 2))
    g.output(g.matmul(x, g.input("w", (128, 128), "bf16"), name="y"))
    graph = g.build()
    with pytest.raises(LoweringError) as caught:
        cut(graph, h200)
    assert str(caught.value).count("tensor x: no axis has its elements next to each other") == 1
    assert str(caught.value).endswith("no kernel takes y")


def test_reductions_of_the_same_logits_are_together_whatever_else_they_read(h200: Machine) -> None:
    """The logarithm of a label's probability, added up of a sequence: the reduction behind is another axis's."""
    g = GraphBuilder("log_probabilities")
    x, labels = g.input("x", (16, 128, 4096), "bf16"), g.input("labels", (16, 128, 1), "i32")
    at_label = g.equal(g.iota(shape=(1, 1, 4096), axis=2), labels)
    own = g.reduce_sum(g.where(at_label, g.cast(x, "f32"), 0.0), axis=2, name="own")
    total = g.logsumexp(g.cast(x, "f32"), axis=2, name="total")
    g.output(g.reduce_sum(g.where(g.input("mask", (16, 128), "bool"), own - total, 0.0), axis=1))
    reading = [names for names in _parts(g.build(), h200) if names & {"own", "total"}]
    assert reading
    assert all(names >= {"own", "total"} for names in reading)
