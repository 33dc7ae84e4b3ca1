"""Tiles that blocks take at run time: computed as with tiles in turns, and mistakes in who takes them are found."""

from __future__ import annotations

import functools
from collections import Counter
from dataclasses import replace

import element_graphs
import pytest
import row_graphs
from emit_builds import SEEDS, Body, Emitted, build, case, graph_of, small_case
from emit_mutants import survives, survivors

from wsopt.codegen import compile_kernel, verdict
from wsopt.emit.source import emit, expectation
from wsopt.emit.stamps import Trace
from wsopt.errors import LoweringError
from wsopt.graph.builder import GraphBuilder, Symbol
from wsopt.interpret import Mutant
from wsopt.program.types import Sharing, Structure

Cut = tuple[int, int, int, int]
"""Rows and columns of a consumer, consumers, and parts of rows that stay in the ring."""


@functools.cache
def emitted(body: Body, cut: Cut, kib: int = 227, *, dynamic: bool = True) -> Emitted:
    rows, columns, consumers, retained = cut
    s = Structure(rows, columns, 1, consumers, 4, Sharing.COOPERATIVE, True, False, 1, 1)
    return build(graph_of(body), replace(s, retained=retained, dynamic=dynamic), kib)


CUTS: tuple[tuple[Body, Cut], ...] = (
    (element_graphs.biased, (2, 256, 2, 0)),
    (element_graphs.residual, (2, 256, 3, 0)),
    (element_graphs.rotary, (16, 64, 1, 0)),
    (element_graphs.packed_gate, (2, 256, 2, 0)),
    (row_graphs.long_softmax, (1, 2048, 1, 0)),
    (row_graphs.long_softmax, (1, 2048, 2, 7)),
    (row_graphs.long_logsumexp, (2, 2048, 2, 0)),
)


def _name(value: object) -> str:
    return value.__name__ if callable(value) else str(value)  # type: ignore[attr-defined]


@pytest.mark.slow
@pytest.mark.parametrize(("body", "cut"), CUTS, ids=_name)
def test_computes(body: Body, cut: Cut) -> None:
    made = emitted(body, cut)
    assert case(made.graph).fault(made.source, SEEDS) is None
    assert small_case(made).fault(made.source, 3) is None


@pytest.mark.compiler
@pytest.mark.parametrize(("body", "cut"), CUTS[:5:2], ids=_name)
def test_machine_code_is_what_was_asked_for(body: Body, cut: Cut) -> None:
    """The loading warp's last arrival is behind its own store, with no other warp to meet: one is expected."""
    made = emitted(body, cut)
    asked = expectation(made.verified)
    found = compile_kernel(made.source)
    assert verdict(found, asked) == ()
    assert (found.early_arrivals, asked.lone_arrivals) == (1, 1)
    assert verdict(found, replace(asked, lone_arrivals=0)) != ()


def test_the_same_but_for_who_takes_a_tile() -> None:
    """The text of a tile is that of tiles in turns, without the wait behind which its number was read."""
    dynamic, turns = (emitted(element_graphs.biased, (2, 256, 2, 0), dynamic=one) for one in (True, False))
    lines = Counter(dynamic.source.splitlines())
    gone = Counter(turns.source.splitlines()) - lines
    assert lines["        tile = told_tile(tile_numbers, slot)"] == 1
    assert [line for line in gone if "for tile in range" in line]
    assert not [line for line in gone if "gl.load" in line or "tma_" in line]


def test_tensors_may_bear_its_names() -> None:
    def body(g: GraphBuilder) -> Symbol:
        x, taken = g.input("tile_numbers", (9, 512), "bf16"), g.input("taken", (512,), "bf16")
        return g.cast(g.mul(x, taken), "bf16", name="told_tile")

    made = emitted(body, (2, 256, 2, 0))
    assert case(made.graph).fault(made.source, 1) is None


def test_stamps_are_of_tiles_in_turns() -> None:
    trace = Trace()
    with pytest.raises(LoweringError, match="trace a build made with `--under dynamic=no`"):
        emit(emitted(element_graphs.biased, (2, 256, 2, 0)).verified, trace)
    turns = emitted(element_graphs.biased, (2, 256, 2, 0), dynamic=False)
    assert "stamps" in emit(turns.verified, trace)


EQUIVALENT = Counter({("double-wait", ""): 4, ("swap-argument", ""): 2})


@pytest.mark.slow
def test_every_mutant_is_found() -> None:
    made = emitted(element_graphs.biased, (2, 256, 2, 0), 7)
    cases = [small_case(made, count) for count in (4, 3)]
    assert survives(cases, made.source, SEEDS)
    found = survivors(cases, made.source, _place, EQUIVALENT)
    assert found == EQUIVALENT


def _place(_source: str, mutant: Mutant) -> tuple[str, str]:
    return mutant.name.partition("@")[0], ""
