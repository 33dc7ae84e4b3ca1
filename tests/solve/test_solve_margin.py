"""The register margin follows from the committed data, and the data from what was compiled."""

from __future__ import annotations

import json
from typing import Any

import pytest

from wsopt.solve.margin import DATA, FORMAT, Margin, learned, margin_of
from wsopt.solve.search import DEFAULT_MARGIN

DOCUMENT = json.loads(DATA.read_text(encoding="utf-8"))


def data(*excess: int) -> dict[str, Any]:
    rows = [
        {"accumulators": 64, "epilogue": 32, "least": 96 + one, "limit": 160 + place}
        for place, one in enumerate(excess)
    ]
    return {"kernels": rows, "oracle": {"graphs": 2, "solved_again": 1}}


@pytest.mark.parametrize(
    ("excess", "registers"), [((16,), 16), ((9, 9, 9), 16), ((0, 8, 40), 8), ((-8, -8, 24), -8), ((0, 8), 8)]
)
def test_the_median_to_the_next_granule(excess: tuple[int, ...], registers: int) -> None:
    assert margin_of(data(*excess)).registers == registers


def test_its_error_is_stated() -> None:
    assert margin_of(data(0, 8, 40)) == Margin(8, -8, 32, 19.0, kernels=3, graphs=2, solved_again=1)


def test_kernels_that_are_alike_count_once() -> None:
    many = data(16)
    many["kernels"] += 9 * data(0)["kernels"]
    assert margin_of(many).kernels == 2
    assert margin_of(many).registers == 8


def test_the_committed_data() -> None:
    margin = learned()
    assert margin.registers == DEFAULT_MARGIN
    assert DOCUMENT["format"] == FORMAT
    assert margin.graphs >= 16
    assert 10 <= margin.kernels <= len(DOCUMENT["kernels"])
    assert margin.solved_again == DOCUMENT["oracle"]["solved_again"] <= DOCUMENT["oracle"]["kernels"]
    assert len(DOCUMENT["oracle"]["reasons"]) >= margin.solved_again
    assert len({row["graph"] for row in DOCUMENT["kernels"]}) == margin.graphs


@pytest.mark.parametrize("row", DOCUMENT["kernels"], ids=lambda row: row["graph"])
def test_rows_agree_with_themselves(row: dict[str, Any]) -> None:
    spilled = bool(row["complaint"])
    assert row["least"] % 8 == 0
    assert row["least"] == row["limit"] + 8 if spilled else row["accumulators"] < row["least"] <= row["limit"]
    assert len(row["named"]["consumers"]) == row["structure"]["consumers"]
    assert len(row["named"]["loader"]) == 1
    assert max(row["named"]["loader"]) <= 24
    if not spilled:
        # The first consumer also has what is left over when the others' share is rounded down.
        assert max(row["named"]["consumers"]) <= row["limit"] + 8
