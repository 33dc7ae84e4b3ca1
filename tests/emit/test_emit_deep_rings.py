"""A block's only tile goes round a deep ring in the simulation, so that a slot that is not handed back is seen."""

from __future__ import annotations

import pytest
from emit_builds import SEEDS, build, graph_of, small_case
from test_emit_k_blocks import attention, structure

from wsopt.simulation import first_k_blocks

RING_KIB = 160


@pytest.mark.parametrize(("ring", "needed"), [("k__ring", 2), ("v_ring", 1)])
def test_no_slot_is_kept(ring: str, needed: int) -> None:
    """Whichever hand-over in the text is left out, before the loop or within, but those of a block's last K-blocks,
    for whose slots nobody waits.
    """
    made = build(graph_of(lambda g: attention(g, keys=1000)), structure(64, persistent=False), RING_KIB)
    slots = max(count for _, count in made.verified.schedule.rings)
    assert slots > 4
    assert first_k_blocks(made.verified) == slots + 2
    lines = made.source.splitlines(keepends=True)
    handed = [i for i, line in enumerate(lines) if f"mbarrier.arrive({ring}_empty" in line]
    one = small_case(made)
    assert one.fault(made.source, SEEDS) is None
    found = [bool(one.fault("".join([*lines[:i], *lines[i + 1 :]]), SEEDS)) for i in handed]
    assert found == [place < needed for place in range(4)]
