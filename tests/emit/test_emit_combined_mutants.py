"""Mistakes particular to parts of a loop that computes values, one at a time: all are found."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import test_emit_combined
from emit_builds import Case, Emitted, case, graph_of
from emit_mutants import survives, survivors
from golden_kernels import decoded, emitted

from wsopt.graph.reference import Array, random_inputs
from wsopt.graph.types import Graph
from wsopt.interpret import Mutant, mutants

KINDS = {
    "drop-thread_barrier", "late-barrier", "drop-row-store", "scalar", "range-scalar", "next-range", "part",
    "relaxed-atomic", "release-atomic", "acquire-atomic", "cta-atomic", "plain-counter", "arrival", "last-arrival",
    "reset", "first-part", "last-part", "one-part", "other-part", "other-tile", "lost-parts", "lost-factor", "rows",
}  # fmt: skip
"""Kinds of mutants, less the sign of a shift: how parts are cut, stored, told of, and brought together."""
BLOCKS = 5
"""So many that some have parts of one tile and some of both, and each tile's are several blocks'."""
LARGE = 128.0
"""A factor of some keys, by which the maxima of parts are further apart than exponents of f32 reach: only there is it
seen that a maximum leaves a part out.
"""
UNREAD = "the consumer's own place has room for a row more, which is clipped at the end of the tensor"
ROWS = {("rows+1", "return row + rows + within * 0 < row_extent"): (1, UNREAD)}
ALIKE = "without lengths a consumer's loop is the same for all batch elements; a tile's end asks again where it is"
PLACE = "batch, row_tile = tile_coordinates(part // SPLITS, row_tiles)"
EQUIVALENT = {
    "few_queries": ROWS,
    "two_consumers": {**ROWS, ("part+1", PLACE): (1, ALIKE), ("part-1", PLACE): (1, ALIKE)},
}


def large_keys(graph: Graph, where: slice) -> dict[str, Array]:
    """Random inputs with some keys that are large."""
    found = random_inputs(graph, 0)
    found["k"][..., where, :] *= LARGE
    return found


def few_queries() -> tuple[Emitted, list[Case]]:
    """The golden kernel: lengths that end in the last part, before it, and before all."""
    graph = graph_of(lambda g: decoded(g, 904))
    asked = [(900, 300, slice(0)), (900, 600, slice(200)), (890, 300, slice(640, 904)), (0, 700, slice(0))]
    lengths = [{"n": np.array(own, np.int32)} for *own, _ in asked]
    keys = [large_keys(graph, where) for *_, where in asked]
    return emitted("combined"), [case(graph, BLOCKS, a | b) for a, b in zip(keys, lengths, strict=True)]


def two_consumers() -> tuple[Emitted, list[Case]]:
    """The last consumer of a tile has few rows."""
    made = test_emit_combined.emitted("two consumers")
    keys = [large_keys(made.graph, where) for where in (slice(0), slice(90), slice(370, 456))]
    return made, [case(made.graph, BLOCKS, own) for own in keys]


def key(source: str, mutant: Mutant) -> tuple[str, str]:
    return mutant.kind, source.splitlines()[mutant.line - 1].strip()


def kind(mutant: Mutant) -> str:
    return mutant.kind.removesuffix("K").removesuffix("1").rstrip("+-")


@pytest.mark.slow
@pytest.mark.parametrize("subject", [few_queries, two_consumers])
def test_every_mistake_of_parts_is_found(subject: Callable[[], tuple[Emitted, list[Case]]]) -> None:
    made, cases = subject()
    assert survives(cases, made.source, 3)
    listed = EQUIVALENT[subject.__name__]
    found = survivors(cases, made.source, key, listed, lambda mutant: kind(mutant) in KINDS)
    assert found == {place: count for place, (count, _) in listed.items()}


def test_every_kind_is_made() -> None:
    assert {kind(mutant) for mutant in mutants(emitted("combined").source)} >= KINDS
