"""The diary's figures of shared bytes, and of parts that L2 adds up, are those of the files that it names."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import geometric_mean
from typing import Any

ROOT = Path(__file__).parents[2]
PAGE = " ".join((ROOT / "docs" / "findings.md").read_text(encoding="utf-8").split())


def kernels(name: str) -> list[dict[str, Any]]:
    path = ROOT / "docs" / "calibration" / f"{name}.json"
    found: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["kernels"]
    return found


def turns(name: str, graph: str, kernel: str, run: int) -> str:
    """Microseconds of a kernel in turns, in one run."""
    wanted = {"graph": graph, "kernel": kernel, "run": run}
    (found,) = (one["turns_us"] for one in kernels(name) if wanted.items() <= one.items())
    return f"{found:.2f}"


def test_bytes_that_several_blocks_wait_for() -> None:
    def settled(graph: str, kernel: str, run: int) -> str:
        return turns("h200_settled", graph, kernel, run)

    apart, together = (settled("128_4096_7168", f"64_64_128_c1_coop_s1_pl_g{g}", 2) for g in (1, 2))
    assert f"takes {apart} us unsplit with the two blocks 64 apart and {together} as neighbours" in PAGE
    one, all_rows = (settled("4096_256_7168", f"64_64_64_c2_coop_s1_pl_g{g}", 2) for g in (1, 16))
    assert f"{one} us in groups of one tile row and {all_rows} in groups of 16" in PAGE
    eight, sixteen = (settled("16_4096_4096", f"64_{n}_128_c1_coop_swap_s1_pl", 4) for n in (8, 16))
    assert f"in tiles of 8, {eight} us where one tile of all 16 takes {sixteen}" in PAGE


def test_all_products_of_few_tiles() -> None:
    path = ROOT / "docs" / "calibration" / "h200_few_tiles_chosen.json"
    rows = json.loads(path.read_text(encoding="utf-8"))["rows"]
    ratios = [row["ratio"] for row in rows]
    mean, errors = geometric_mean(ratios), [abs(row["predicted_us"] / row["us"] - 1) for row in rows]
    assert f"All {len(rows)} products" in PAGE
    assert f"{mean:.3f} of cuBLAS on the geometric mean, from {min(ratios)} to {max(ratios)}" in PAGE
    assert sum(ratio < 0.93 for ratio in ratios) == 8
    assert f"predicted within {sum(errors) / len(errors):.1%} on the mean".replace("%", " %") in PAGE
    assert max(row["error"] for row in rows) < 2**-7
    readme = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    few = [row["ratio"] for row in rows if int(row["graph"].split("_")[0]) <= 128]
    many = [row["ratio"] for row in rows if int(row["graph"].split("_")[0]) > 128]
    told = f"({mean:.2f}, {geometric_mean(few):.2f}, {geometric_mean(many):.2f} and {min(many):.2f}, [data]"
    assert told in readme


def test_parts_that_l2_adds_up() -> None:
    def pair(graph: str, kernel: str, run: int, stored: str, added: str) -> tuple[str, str, str]:
        data = "h200_atomic_sums"
        names = (f"{kernel}{stored}", f"{kernel}{added}", "cublas")
        before, after, cublas = (turns(data, graph, one, run) for one in names)
        return before, after, cublas

    def by_hand(graph: str, kernel: str) -> tuple[str, str, str]:
        return pair(graph, kernel, 3, "_pl", "_pl_red")

    before, after, cublas = by_hand("512_256_16384", "64_64_64_c2_coop_no_s8")
    assert f"from {before} to {after} us (cuBLAS {cublas})" in PAGE
    before, after, cublas = by_hand("128_1024_16384", "64_64_64_c2_coop_no_s8")
    assert f"from {before} to {after} ({cublas})" in PAGE
    before, after, cublas = by_hand("512_576_16384", "64_192_64_c1_coop_no_s5")
    assert f"in five from {before} to {after} ({cublas})" in PAGE
    before, after, cublas = pair("128_576_7168", "64_64_128_c1_coop_no_s7_", 4, "pl", "at")
    assert f"parts from {before} to {after} ({cublas})" in PAGE
    before, after, cublas = pair("256_1024_7168", "64_64_64_c2_coop_no_s4_", 4, "pl", "at")
    assert f"in four from {before} to {after} ({cublas})" in PAGE
