"""Every single mistake in a kernel whose loop computes values is found, but for those that change nothing."""

from __future__ import annotations

import pytest
from emit_builds import SEEDS, build, case, graph_of
from emit_mutants import survives, survivors
from test_emit_k_blocks import attention, structure

from wsopt.interpret import Mutant

SHORT_RING_KIB = {False: 64, True: 96}
SIZES = [(472, 344), (432, 304)]
"""Keys and queries: the last tile's second consumer has few rows, and none."""

TWICE = "a wait that has passed passes again"
START = "a block's first slot is number 0 at any depth"
LAST = "nobody waits for the slots of a block's last K-blocks"
ORDER = "the loader comes to the slot after one of the other ring, which is handed back later"
BETWEEN = (
    "a tile has more K-blocks than a ring slots, so copies between waited for the products that read this set"
)
ZERO = "the accumulator it starts from is zero"
MIRROR = "the consumers' own buffers, and their numbers, are interchangeable"

K_EMPTY, V_EMPTY = "mbarrier.wait(k__ring_empty.index(step", "mbarrier.wait(v_ring_empty.index(step"
K_FULL, V_FULL = "mbarrier.wait(k__ring_full.index(step", "mbarrier.wait(v_ring_full.index(step"
V_FULL_BEFORE = "mbarrier.wait(v_ring_full.index((step - 1)"
K_BACK, V_BACK = "mbarrier.arrive(k__ring_empty.index(step", "mbarrier.arrive(v_ring_empty.index(step"
HELD_FULL = "mbarrier.wait(stationary_full.index(visit"
HELD_EMPTY = "mbarrier.wait(stationary_empty.index(visit"
SCORES = "warpgroup_mma(q_held.index(index).reshape((64, 64)), k__ring"
SCORES_OF_SET = "warpgroup_mma(q_held.index((visit"
SUMS_DONE = "warpgroup_mma_wait(0, deps=(matmul_1_,))"

PASSED_AGAIN = {
    ("double-wait", K_EMPTY): (1, TWICE),
    ("double-wait", V_EMPTY): (1, TWICE),
    ("double-wait", K_FULL): (4, TWICE),
    ("double-wait", V_FULL): (2, TWICE),
    ("double-wait", V_FULL_BEFORE): (2, TWICE),
    ("double-wait", HELD_FULL): (1, TWICE),
}

# Mutants that mean the same as the kernel, by whether blocks are persistent: kind, line, how many, and why.
EQUIVALENT: dict[bool, dict[tuple[str, str], tuple[int, str]]] = {
    False: {
        **PASSED_AGAIN,
        ("depth+1", "mbarrier.expect(stationary_full.index(visit"): (1, START),
        ("depth+1", "tma_load(q_desc, [batch, row_tile * TILE_ROWS, 0], stationar"): (1, START),
        ("depth+1", "tma_load(q_desc, [batch, row_tile * TILE_ROWS + 1 * CONSUMER"): (1, START),
        ("depth+1", HELD_FULL): (2, START),
        ("depth+1", K_FULL): (2, START),
        ("depth+1", SCORES): (1, START),
        ("depth+1", K_BACK): (1, START),
        ("drop-arrive", V_BACK): (1, LAST),
        ("early-arrive", SUMS_DONE): (2, ORDER),
        ("keep-accumulator", SCORES): (1, ZERO),
        ("swap-argument", "(consumer, (q_held, stationary_full, k__ring, k__ring_full, "): (2, MIRROR),
    },
    True: {
        **PASSED_AGAIN,
        ("double-wait", HELD_EMPTY): (1, TWICE),
        ("late-wait", HELD_EMPTY): (1, BETWEEN),
        ("early-arrive", SUMS_DONE): (2, ORDER),
        ("keep-accumulator", SCORES_OF_SET): (1, ZERO),
        ("swap-argument", "(consumer, (q_held, stationary_full, stationary_empty, k__ri"): (2, MIRROR),
    },
}


def key(source: str, mutant: Mutant) -> tuple[str, str]:
    """The kind of a mutant, and how its line begins, the name of a product's result left out."""
    line = source.splitlines()[mutant.line - 1].strip()
    line = line.removeprefix("matmul_0_ = ").removeprefix("matmul_1_ = ")
    return mutant.name.partition("@")[0], line.partition(" % ")[0][:60]


@pytest.mark.slow
@pytest.mark.parametrize("persistent", [False, True])
def test_every_mutant_is_found(persistent: bool) -> None:
    graph = graph_of(lambda g: attention(g, "causal"))
    made = build(graph, structure(64, persistent=persistent), SHORT_RING_KIB[persistent])
    assert max(slots for _, slots in made.verified.schedule.rings) <= 3
    cases = [case(graph_of(lambda g, n=n, m=m: attention(g, "causal", n, m))) for n, m in SIZES]
    assert survives(cases, made.source, SEEDS)
    table = EQUIVALENT[persistent]
    assert survivors(cases, made.source, key, table) == {place: count for place, (count, _) in table.items()}
