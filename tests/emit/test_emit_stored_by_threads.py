"""Tiles of rows that copies bring and threads store: as wide as a copy would, without a buffer and its fence."""

from __future__ import annotations

import functools

import pytest
import row_graphs
from emit_builds import SEEDS, Body, Emitted, build, case, check_shows, graph_of, h200
from emit_checks import check_machine_code
from test_emit_resident import gate, wide_norm
from tile_graphs import region_of

from wsopt.graph.builder import GraphBuilder, Symbol
from wsopt.lowering.structures import structures
from wsopt.perf.price import lower
from wsopt.program.types import Sharing, Structure


def structure(rows: int, columns: int, consumers: int = 2, *, by_threads: bool = True) -> Structure:
    return Structure(
        rows, columns, 1, consumers, 4, Sharing.COOPERATIVE, True, False, 1, 1, stored_by_threads=by_threads
    )


@functools.cache
def emitted(body: Body, s: Structure, kib: int = 24) -> Emitted:
    return build(graph_of(body), s, kib)


CUTS: dict[str, tuple[Body, Structure]] = {
    "norm": (wide_norm, structure(2, 512)),
    "softmax": (row_graphs.softmax, structure(2, 512, 1)),
    "some columns of a row": (gate, structure(4, 256)),
    "several outputs": (row_graphs.residual_norm, structure(1, 1024, 1)),
    "beside values of rows": (row_graphs.weights_and_logsumexp, structure(2, 512, 1)),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CUTS)
def test_computes(name: str) -> None:
    body, s = CUTS[name]
    made = emitted(body, s)
    assert "tma_load(" in made.source
    assert "tma_store(" not in made.source
    assert case(made.graph).fault(made.source, SEEDS) is None


@pytest.mark.compiler
@pytest.mark.parametrize("name", ["norm", "some columns of a row"])
def test_machine_code_is_what_was_asked_for(name: str) -> None:
    check_machine_code(emitted(*CUTS[name]))


def test_a_row_beyond_the_last_is_not_written() -> None:
    body, s = CUTS["norm"]
    check_shows(
        emitted(body, s), "(gl.expand_dims(rows, 1) < row_extent)", "(gl.expand_dims(rows, 1) >= 0)", 1
    )


def test_no_buffer_is_waited_for_at_the_end() -> None:
    region = region_of(wide_norm)
    stored, copied = (lower(region, structure(2, 512, by_threads=one), h200()) for one in (True, False))
    assert stored.epilogue.staged_bytes == 0 < copied.epilogue.staged_bytes


def test_structures_have_both_where_neighbours_are_of_one_row() -> None:
    both = {s.stored_by_threads for s in structures(region_of(wide_norm), h200()) if not s.occupancy}
    assert both == {False, True}
    some = {s.stored_by_threads for s in structures(region_of(gate), h200())}
    assert some == {False}, "tiles of some columns"
    turned = {s.stored_by_threads for s in structures(region_of(turned_softmax), h200())}
    assert turned == {False}


def turned_softmax(g: GraphBuilder) -> Symbol:
    """A softmax whose neighbours are of different rows."""
    return g.cast(g.softmax(g.input("x", (256, 512), "bf16"), axis=0), "bf16", name="y")
