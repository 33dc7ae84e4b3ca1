"""Mistakes particular to equal shares of K-blocks, one at a time: all are found."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from emit_builds import Case, Emitted, build, case, graph_of
from emit_mutants import survives, survivors
from test_emit_combined_mutants import ROWS, key, kind, large_keys
from test_emit_shares import decoded, shared

from wsopt.interpret import mutants

OF_SHARES = {
    "share", "lost-rest", "share-end", "empty-tile", "share-tile", "part-count", "place", "other-end", "lost-tile",
}  # fmt: skip
"""Kinds of mutants, less the sign of a shift: where shares begin and end, and which parts of tiles they have."""
OF_PARTS = {
    "drop-thread_barrier", "late-barrier", "drop-row-store", "scalar", "range-scalar", "next-range", "relaxed-atomic",
    "release-atomic", "acquire-atomic", "cta-atomic", "plain-counter", "arrival", "last-arrival", "reset", "one-part",
    "lost-parts", "lost-factor", "rows",
}  # fmt: skip
"""Those that all kernels have whose parts come together."""

ASKED: tuple[tuple[tuple[int, ...], int, slice], ...] = (
    ((392, 0, 64, 0, 1), 3, slice(0)),
    ((392, 392, 0, 200, 0), 7, slice(64, 140)),
    ((100, 392, 392, 330, 0), 2, slice(300, 392)),
    ((0, 0, 0, 0, 0), 3, slice(0)),
    ((0, 0, 0, 0, 392), 2, slice(0)),
    ((128, 128, 128, 128, 128), 5, slice(0, 64)),
    ((5, 0, 0, 0, 0), 30, slice(0)),
    ((0, 0, 0, 0, 200), 7, slice(0)),
    ((0, 0, 0, 200, 0), 7, slice(0)),
)
"""Lengths, blocks, and keys that are large: shares that end with a tile, inside of one, and that are empty; and with
first tiles of more parts and of fewer than their last ones.
"""


@functools.cache
def subject() -> tuple[Emitted, list[Case]]:
    """A kernel with so few slots that copies which nobody waits for are seen."""
    made = build(graph_of(decoded), shared(), kib=64)
    assert made.depth <= 3
    cases = [
        case(made.graph, blocks, large_keys(made.graph, where) | {"n": np.array(own, np.int32)})
        for own, blocks, where in ASKED
    ]
    return made, cases


@pytest.mark.slow
def test_every_mistake_of_shares_is_found() -> None:
    made, cases = subject()
    assert survives(cases, made.source, 3)
    found = survivors(cases, made.source, key, ROWS, lambda mutant: kind(mutant) in OF_SHARES | OF_PARTS)
    assert found == {place: count for place, (count, _) in ROWS.items()}


def test_every_kind_is_made() -> None:
    assert {kind(mutant) for mutant in mutants(subject()[0].source)} >= OF_SHARES | OF_PARTS
