"""Rows that keep a maximum which has grown by little: which loops may, what it costs, that it is right, mutants."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import targets_values as kernels
from attention_graphs import Sizes, attention, linear
from emit_mutants import survives

from wsopt.frontend.region import find_region
from wsopt.graph.builder import GraphBuilder, Symbol
from wsopt.graph.types import Graph
from wsopt.interpret import mutants
from wsopt.lowering.phases import lazy_rows
from wsopt.lowering.structures import structures
from wsopt.machine import Machine
from wsopt.perf.price import lower
from wsopt.program.ids import OpKind
from wsopt.program.lazy import MOVED, Lazy


def mixed(*, divided: bool = True, logarithm: bool = False, maximum: bool = False) -> Graph:
    """Attention written out: weights relative to a row's maximum, divided by their sum or not."""
    g = GraphBuilder("mixed")
    q, k, v = (g.input(name, (2, 256, 64), "bf16") for name in "qkv")
    scores = g.matmul(q, k, transpose_b=True, name="s")
    top = g.reduce_max(scores, axis=-1, keepdims=True)
    weights = g.exp(scores - top)
    total = g.reduce_sum(weights, axis=-1, keepdims=True)
    found = g.matmul(g.cast(weights, dtype="bf16"), v, name="o")
    outputs: list[Symbol] = [g.cast(found / total if divided else found, dtype="bf16", name="y")]
    outputs += [g.add(g.log(total), top, name="l")] if logarithm else []
    outputs += [g.mul(top, 2.0, name="m")] if maximum else []
    g.output(*outputs)
    return g.build()


@pytest.mark.parametrize(
    ("graph", "may"),
    [
        (attention(), True),
        (mixed(), True),
        (mixed(divided=False), False),
        (mixed(logarithm=True), False),
        (mixed(maximum=True), False),
        (linear(sizes=Sizes()), False),
    ],
    ids=["softmax", "written out", "sums themselves", "log-sum-exp", "the maximum", "no maximum"],
)
def test_rows_may_keep_what_no_result_depends_on(graph: Graph, may: bool) -> None:
    assert (lazy_rows(find_region(graph)) is not None) is may


def test_what_depends_on_the_maximum_is_computed_again() -> None:
    assert lazy_rows(find_region(attention())) == Lazy("p$0", "p$9", ("p$1", "p$2", "p$3"))


def test_it_is_a_choice_where_sums_lie_apart(b200: Machine, h200: Machine) -> None:
    region = find_region(attention(sizes=Sizes(queries=256, keys=256, inner=128, column=128)))
    found = set(structures(region, b200))
    own = {s for s in found if s.lazy}
    assert {replace(s, lazy=False) for s in own} == found - own
    assert not any(s.lazy for s in structures(region, h200))


@pytest.mark.parametrize("corrections", [0, 1])
def test_sums_are_rescaled_in_the_share_of_k_blocks_that_is_told(corrections: int, b200: Machine) -> None:
    region = find_region(attention(sizes=Sizes(queries=256, keys=256, inner=128, column=128)))
    tile = replace(kernels.structure(corrections=corrections), columns=128, depth=128)
    every, lazy = (lower(region, replace(tile, lazy=one), b200) for one in (False, True))
    (one, *_), (other, *_) = every.of(OpKind.RESCALE), lazy.of(OpKind.RESCALE)
    assert other.issue < one.issue
    assert math.isclose(dict(other.pipes)["fma"] / dict(one.pipes)["fma"], MOVED, rel_tol=0.05)
    assert (every.lazy, lazy.lazy) == (None, lazy_rows(region))


KINDS = {"never-rescaled", "all-moved", "others-stay", "not-kept", "not-again"}
NO_NUMBER = "== NEG_INF"
"""Whether a maximum is no number: of one that is kept it is not, and neither was it of the one before."""


@pytest.mark.solver
@pytest.mark.slow
@pytest.mark.parametrize("name", ["lazy", "lazy_columns"])
def test_every_mutant_of_rows_that_stay_is_found(name: str) -> None:
    cases, source = kernels.cases(name), kernels.made(name).source
    every = [one for one in mutants(source) if one.kind in KINDS]
    assert {one.kind for one in every} == KINDS
    left = [one.description for one in every if survives(cases, one.source, 1)]
    assert all(told.endswith(NO_NUMBER) for told in left), left
