"""The diary's figures of labels, tiles of rows and a long softmax are those of the files that it names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PAGE = " ".join((ROOT / "docs" / "findings.md").read_text(encoding="utf-8").split())


def measured(name: str) -> Any:
    return json.loads((ROOT / "docs" / f"{name}.json").read_text(encoding="utf-8"))


BY_HAND = measured("calibration/h200_rows_by_hand")


def variant(graph: str, run: int, **wanted: object) -> float:
    """Microseconds of the kernel of a graph in a run that is as wanted."""
    rows = (one for one in BY_HAND["variants"] if (one["graph"], one["run"]) == (graph, run))
    (found,) = (one["us"] for one in rows if wanted.items() <= one.items())
    return float(found)


def step(name: str, graph: str) -> dict[str, float]:
    return next(one for one in BY_HAND["steps"][name] if one["graph"] == graph)


def chosen(name: str) -> dict[str, str]:
    """Microseconds of the kernels of a benchmark."""
    rows = measured(f"rows/{name}")["rows"]
    times = ((one["name"], one["kernel_graph"] or one["kernel"]) for one in rows)
    return {graph: f"{time['median_us']:.1f}" for graph, time in times}


def test_labels_are_addresses() -> None:
    now, before = chosen("h200_labels"), chosen("h200_flat_by_threads")
    first, *others, last = "ce_32000", "ce_50257", "cross_entropy_128256", "ce_151936"
    told = f"{now[first]} us over 32,000 columns, {now[others[0]]} over 50,257, {now[others[1]]} over 128,256"
    assert f"{told} and {now[last]} over 151,936" in PAGE
    assert f"{before[first]}, {before[others[0]]}, {before[others[1]]} and {before[last]} were taken" in PAGE
    assert f"512 rows of 50,257 take {now['ce_512_50257']} us (14.5 predicted)" in PAGE
    assert f"2,048 of them {now['ce_2048_50257']}, in eight blocks" in PAGE
    of_two, of_one = (variant("ce_151936", 5, rows=n, consumer_warps=4) for n in (2, 1))
    assert f"which take {of_two:.1f} us, to be as fast" in PAGE
    assert f"4,096 columns, which take {of_one:.1f} (" in PAGE


def test_vectors_that_are_held_and_pairs_of_elements() -> None:
    cut = {"rows": 1, "consumers": 1, "consumer_warps": 8, "stored_by_threads": True}
    for graph, columns, told in (
        ("layer_norm_16384", 16384, "L1: {:.1f} us, and {:.1f} with both in registers"),
        ("rms_8192", 8192, "one of 8,192 columns {:.1f} and {:.1f} (same file)"),
    ):
        loaded, held = (
            variant(graph, 3, columns=columns, vectors_held=held, **cut) for held in (False, True)
        )
        assert held < loaded
        assert told.format(loaded, held) in PAGE
    pairs, exponents = step("pairs", "softmax_128256"), step("exponents", "sm50257")
    assert f"128,256 columns takes {pairs['us']} us for {pairs['before_us']}" in PAGE
    assert f"50,257 gains by it, {exponents['us']} for {exponents['before_us']})" in PAGE
    assert f"second pass {step('exponents', 'softmax_128256')['us']} (" in PAGE


def test_what_a_long_softmax_does_not_gain_by() -> None:
    softmax, whole = "softmax_128256", {"columns": 8192, "in_registers": 3, "consumer_warps": 8}
    fewer = [variant(softmax, 1, retained=count, **whole) for count in (12, 11, 10, 8, 6)]
    all_parts = variant(softmax, 1, retained=13, **whole)
    assert f"take {min(fewer):.1f} to {max(fewer):.1f} us for {all_parts:.1f}" in PAGE
    by_polynomial = [variant(softmax, 4, retained=13, exp2_eighths=n, **whole) for n in (1, 2, 3)]
    assert f"{min(by_polynomial):.1f} to {max(by_polynomial):.1f}; its sum" in PAGE
    more = variant(softmax, 2, retained=13, **{**whole, "consumer_warps": 16})
    assert f"it takes {more:.1f} for {variant(softmax, 2, retained=13, **whole):.1f}, which" in PAGE


def test_blocks_that_begin_one_after_the_other() -> None:
    rows = measured("calibration/h200_staggered")["variants"]
    found = {
        (one["graph"], one["run"], one["consumer_warps"], one["groups"], one["step_us"]): one["us"]
        for one in rows
    }
    softmax = "softmax_128256"
    together, later = found[softmax, 1, 8, 1, 0], found[softmax, 1, 8, 2, 2]
    assert f"takes {later:.1f} us for {together:.1f}, its" in PAGE
    log, shorter = "log_softmax_128256", "sm50257"
    assert f"logarithm {found[log, 1, 8, 2, 2]:.1f} for {found[log, 1, 8, 1, 0]:.1f}, and" in PAGE
    assert f"columns {found[shorter, 1, 4, 2, 4]:.1f} for {found[shorter, 1, 4, 1, 0]:.1f} (" in PAGE
    again = [found[softmax, 3, 8, 2, step] for step in (1, 3, 4, 6)]
    assert max(again) < 0.98 * found[softmax, 3, 8, 1, 0]
    assert max(again) < 1.002 * min(again)
    assert f"beside that: {found[softmax, 1, 16, 2, 4]:.1f}" in PAGE
    whole = "layer_norm_16384"
    assert f"16,384 columns {found[whole, 2, 8, 2, 2]:.1f} for {found[whole, 2, 8, 1, 0]:.1f}." in PAGE
