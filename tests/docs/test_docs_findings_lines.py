"""The diary on operands whose rows begin within a line says what its files do."""

from __future__ import annotations

from typing import Any

import pytest
from diary import DIARY as PAGE
from diary import measured

SHAPES = ("1000_3000_1000", "1000_1000_1000", "2000_1000_3000", "2048_1000_2048", "600_4104_1032")


def told(row: dict[str, Any]) -> tuple[str, str]:
    """A kernel's microseconds, and its ratio to cuBLAS, as the diary writes them."""
    return f"{row['kernel_graph']['median_us']:.1f}", f"{row['baselines'][0]['graph_ratio']:.3f}"


def test_products_of_rows_in_lines() -> None:
    found = {row["folder"]: row for row in measured("calibration/h200_odd_pitches")["rows"]}
    for shape in SHAPES:
        (before, less), (after, more) = (told(found[f"{how}/{shape}"]) for how in ("as_they_lie", "in_lines"))
        name = shape.replace("_", " x ")
        assert any(f"{name} {before} {gap}({less}) -> {after} ({more})" in PAGE for gap in (" ", ""))
        row = found[f"in_lines/{shape}"]
        assert row["predicted_us"] == pytest.approx(row["kernel_graph"]["median_us"], rel=0.05)
    first = found["before/1000_3000_1000"]
    us, ratio = told(first)
    predicted = f"{first['predicted_us']:.1f}"
    assert f"1000 x 3000 took {us} us, {float(ratio):.2f} of cuBLAS, and was predicted {predicted}" in PAGE


def test_which_operand_costs_what() -> None:
    data = measured("calibration/h200_line_pitches")
    tiles = [row for row in data["pitches"] if row["columns"] == 3000 and row["tile"][1] == 192]
    us = {(row["pitch_x"], row["pitch_w"]): f"{row['us']:.1f}" for row in tiles}
    both = f"{us[1024, 3000]}, {us[1000, 3072]} and {us[1024, 3072]} us in place of {us[1000, 3000]}"
    assert f"the tile of 128 x 192 takes {both}" in PAGE
    kernels = {tuple(row["tile"]): row["us"] for row in data["kernels"]}
    chosen, best = kernels[128, 256, 32], min(kernels.values())
    assert f"took {chosen:.1f} us in short bursts where the best of ten kernels took {best:.1f}" in PAGE
    assert len(kernels) == 10


def test_errors_of_the_model() -> None:
    truth = measured("calibration/h200_odd_pitches_truth")
    assert f"Errors of {truth['schedules']} schedules of six such products go from" in PAGE
    assert f"to {100 * truth['mean_relative_error']:.1f}%" in PAGE
    assert len(truth["graphs"]) == 6
