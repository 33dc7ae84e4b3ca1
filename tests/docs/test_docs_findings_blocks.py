"""The diary's figures of blocks side by side, and of few tiles, are those of the files that it names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PAGE = " ".join((ROOT / "docs" / "findings.md").read_text(encoding="utf-8").split())


def variants(name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(
        (ROOT / "docs" / "calibration" / f"{name}.json").read_text(encoding="utf-8")
    )["variants"]
    return found


def us(name: str, **fields: Any) -> str:
    (found,) = (one["us"] for one in variants(name) if fields.items() <= one.items())
    return f"{found:.2f}"


def test_blocks_side_by_side() -> None:
    data = "h200_blocks_warps"

    def gelu(*, columns: int, warps: int, blocks: int, rows: int) -> str:
        return us(data, graph="bias_gelu", rows=rows, columns=columns, consumer_warps=warps, occupancy=blocks)

    assert f"takes {gelu(rows=2, columns=1024, warps=1, blocks=16)} us with tiles of 2 x 1024" in PAGE
    assert f"{gelu(rows=2, columns=1024, warps=2, blocks=12)} by 24 warps of 32 elements" in PAGE
    assert f"{gelu(rows=2, columns=1024, warps=4, blocks=12)} by 48 of 16" in PAGE
    assert f"{gelu(rows=2, columns=1024, warps=1, blocks=24)} by 24 of 64" in PAGE
    assert f"a copy takes {us(data, graph='bias_gelu', baseline='copy')}" in PAGE
    every = variants(data)
    sums = [one["us"] for one in every if one["graph"] == "residual" and one.get("columns", 0) > 512]
    sums = [one for one in sums if one < 60]
    assert f"takes {min(sums):.2f} to {max(sums):.2f} whatever the warps" in PAGE
    rings = [one["us"] for one in every if one.get("occupancy") == 0]
    assert f"Kernels with rings take {min(rings):.2f} to {max(rings):.2f}" in PAGE
    norm = {"graph": "rms_8192", "rows": 1}
    assert (
        f"takes {us(data, consumer_warps=4, **norm)} us, by 32 of 32 {us(data, consumer_warps=8, **norm)}"
        in PAGE
    )


def test_few_tiles() -> None:
    data = "h200_few_tiles"

    def of(graph: str, kernel: str, run: int) -> str:
        return us(data, graph=graph, kernel=kernel, run=run)

    narrow = [of("4096_576_2048", name, 2) for name in ("cublas", "64_96_64_c3_coop_no_s1_pl", "chosen")]
    assert f"4096 x 576 x 2048 {narrow[0]} us" in PAGE
    assert f"as 64 + 32 columns {narrow[1]}, what is chosen {narrow[2]}" in PAGE
    alone, split = (
        of("4096_256_7168", name, 1) for name in ("64_128_64_c1_coop_no_s1_pl", "64_128_64_c2_coop_no_s2_pl")
    )
    (told,) = (
        one["predicted_us"]
        for one in variants(data)
        if (one["graph"], one["kernel"]) == ("4096_256_7168", "64_128_64_c1_coop_no_s1_pl")
    )
    assert f"4096 x 256 x 7168 {alone} with one consumer" in PAGE
    assert f"model has at {told:.2f}, and {split} as it is chosen" in PAGE
