"""Fits on made-up measurements give back the figures that these were made from, with their spread."""

from __future__ import annotations

import dataclasses

import pytest
from calibrate_samples import (
    ALONE,
    CROWDED,
    LATENCY,
    LEAST,
    LEAST_REGISTERS,
    PER_COLUMN,
    RATES,
    START,
    synthetic,
)

from wsopt.calibrate.catalog import all_probes
from wsopt.calibrate.compare import compare, comparison_text
from wsopt.calibrate.fits import FORMULAS, Figure, figures, line_fit, needs
from wsopt.calibrate.samples import Document


def by_name(document: Document) -> dict[str, Figure]:
    return {figure.name: figure for figure in figures(document)}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *((f"scalar.{kind}", rate) for kind, rate in RATES.items()),
        ("scalar.convert_f8", 64.0),
        ("tile_start.row_max", START),
        ("tile_alone.row_sum", ALONE),
        ("tile_crowded.shared_store_16", CROWDED),
        ("tile_alone.dot_operand_8", ALONE),
        ("mma_least_cycles", LEAST),
        ("mma_least_cycles_per_column", PER_COLUMN),
        ("mma_least_cycles_registers", LEAST_REGISTERS),
        ("mma_queue", 6.0),
        ("latency.mma_latency", LATENCY),
        ("latency.mbarrier_wake", 52.0),
        ("latency.mbarrier_wait", 50.0),
        ("latency.smem_store", 6.0),
    ],
)
def test_known_figures_come_back(name: str, value: float) -> None:
    assert by_name(synthetic())[name].value == pytest.approx(value)
    noisy = by_name(synthetic(noise=0.01))[name]
    # The best of three rates that are off by up to 1 % lies above the true one.
    assert noisy.value == pytest.approx(value, abs=noisy.spread + 0.01 * value)
    assert noisy.spread < 0.5 * value


def test_the_spread_is_half_the_range() -> None:
    document = dataclasses.replace(synthetic(), samples={"latency.load": (20.0, 23.0, 26.0)})
    assert figures(document) == (Figure("latency.smem_load", 23.0, 3.0),)


def test_equal_samples_still_have_the_least_spread() -> None:
    assert by_name(synthetic())["scalar.exp2"].spread == pytest.approx(0.08)
    assert by_name(synthetic())["tile_start.row_max"].spread == 2.0


def test_what_two_measurements_share_cancels() -> None:
    # The clock's error grows all cycles of a round alike; the difference of two is off by its share only.
    samples = {"sync.hop.4": (72.0, 80.0), "sync.arrive.4": (24.0, 32.0)}
    wake = by_name(dataclasses.replace(synthetic(), samples=samples))["latency.mbarrier_wake"]
    assert (wake.value, wake.spread) == (48.0, pytest.approx(0.24))


def test_costs_below_their_resolution_are_nothing() -> None:
    names = [
        f"cast.{op}_16.{wide}.{n}" for op in ("none", "operand") for wide in (32, 64, 128) for n in (1, 3)
    ]
    free = by_name(dataclasses.replace(synthetic(), samples=dict.fromkeys(names, (100.0, 100.1))))
    assert {figure.value for figure in free.values()} == {0.0}


def test_every_formula_reads_what_is_measured(document: Document) -> None:
    probes = {probe.name for probe in all_probes()}
    read = set().union(*(needs(formula) for formula in FORMULAS.values()))
    for name in {*document.samples, *read}:
        # What a probe reports has its name, or begins with it.
        assert name in probes or any(name.startswith(f"{probe}.") for probe in probes), name
    assert all(needs(formula) for formula in FORMULAS.values())


def test_a_rate_of_no_time_at_all_is_left_out() -> None:
    broken = dataclasses.replace(synthetic(), samples={f"scalar.rcp.{n}": (0.0, 0.0) for n in (1, 2, 3)})
    assert figures(broken) == ()


def test_a_line_through_points() -> None:
    assert line_fit({1.0: 5.0, 2.0: 7.0, 4.0: 11.0}) == pytest.approx((3.0, 2.0))


def test_two_runs_agree_within_their_noise() -> None:
    pairs = compare(synthetic(noise=0.01, seed=1), synthetic(noise=0.01, seed=2))
    assert len(pairs) > 60
    assert all(pair.agrees for pair in pairs)
    assert comparison_text(pairs) == f"{len(pairs)} of {len(pairs)} figures agree within the stated spreads"


def test_runs_that_differ_beyond_the_spread_are_told_apart() -> None:
    pairs = compare(synthetic(noise=0.005, seed=1), synthetic(noise=0.005, seed=2, shift=1.1))
    differing = {pair.name for pair in pairs if not pair.agrees}
    assert {"scalar.exp2", "latency.arithmetic", "sustained_clock_mhz", "mma_least_cycles"} <= differing
    text = comparison_text(pairs)
    assert "scalar.exp2: 16" in text
    assert "and 14.5" in text
    assert text.endswith(
        f"{len(pairs) - len(differing)} of {len(pairs)} figures agree within the stated spreads"
    )
