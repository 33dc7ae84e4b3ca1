"""The solver chooses a tile in parts over a padded one by costs alone."""

from __future__ import annotations

import pytest
from solve_examples import MARGIN, attention, region

from wsopt.checker import verify
from wsopt.machine import Machine
from wsopt.program.conditions import Conditions
from wsopt.solve.search import Search


@pytest.mark.solver
def test_heads_of_96_are_not_padded(h200: Machine) -> None:
    heads = attention(96)
    best, _ = Search(heads, h200, MARGIN).run()
    verify(best.schedule, best.program, h200, MARGIN)
    assert (best.schedule.structure.columns, best.schedule.structure.subtiles) == (96, 3)
    assert f"x96x{best.schedule.structure.depth}, " in best.schedule.structure.describe()
    padded, _ = Search(heads, h200, MARGIN, conditions=Conditions(structure=(("columns", 128),))).run()
    assert padded.schedule.structure.columns == 128
    assert best.schedule.prediction.microseconds < 0.96 * padded.schedule.prediction.microseconds


@pytest.mark.solver
def test_columns_of_576_are_three_tiles(h200: Machine) -> None:
    """Of tiles of whole sums in one order: splits and orders have nothing to do with how columns are cut."""
    product, fixed = region(8192, 576, 4096), (("splits", 1), ("shares", False), ("group", 8))
    best, _ = Search(product, h200, MARGIN, conditions=Conditions(structure=fixed)).run()
    verify(best.schedule, best.program, h200, MARGIN)
    assert best.schedule.structure.columns == 192
    for columns in (64, 128, 256):
        asked = Conditions(structure=(*fixed, ("columns", columns)))
        other, _ = Search(product, h200, MARGIN, conditions=asked).run()
        assert best.schedule.prediction.microseconds < 0.96 * other.schedule.prediction.microseconds
