"""Programs of searches over several kinds of loops, lowered and bounded as a search does, one after the other."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

from wsopt.frontend.region import find_region
from wsopt.frontend.types import Region
from wsopt.graph.parse import load_graph
from wsopt.lowering.structures import structures
from wsopt.machine import load_machine
from wsopt.program.types import Structure
from wsopt.solve.search import Look, Search

ROOT = Path(__file__).parents[2]

CASES: dict[str, tuple[str, str, Callable[[Structure], bool]]] = {
    "product that reads a tile": (
        "problems/gemm_residual.json",
        "h200",
        lambda s: (s.rows, s.columns, s.depth) == (64, 128, 64),
    ),
    "promoted product": (
        "problems/gemm_f8.json",
        "h200",
        lambda s: (s.rows, s.columns, s.depth) == (64, 128, 128),
    ),
    "few tiles": (
        "problems/gemm_2048.json",
        "h200",
        lambda s: (s.rows, s.columns, s.depth) == (128, 256, 64),
    ),
    "operands computed": ("docs/quantized/graphs/i4_16.json", "h200", lambda s: s.columns == 16),
    "values between products": ("problems/attention_d64_causal.json", "h200", lambda s: s.rows == 64),
    "rows": ("problems/softmax_rows.json", "h200", lambda s: s.consumers == 2),
    "pairs of blocks": ("problems/gemm_residual.json", "b200", lambda s: (s.columns, s.depth) == (256, 64)),
    "values in tensor memory": ("problems/attention_d64_causal.json", "b200", lambda s: s.depth == 64),
}
"""A graph, a card, and the structures of it that are looked at."""


@functools.cache
def region_of(case: str) -> Region:
    return find_region(load_graph(ROOT / CASES[case][0]))


def structures_of(case: str) -> list[Structure]:
    _, card, wanted = CASES[case]
    return [s for s in structures(region_of(case), load_machine(card)) if wanted(s)]


@functools.cache
def bounded(case: str) -> tuple[Search, dict[Structure, Look]]:
    """A search that has looked at all of them, and what it saw."""
    search = Search(region_of(case), load_machine(CASES[case][1]))
    return search, {s: search.look(s) for s in structures_of(case)}
