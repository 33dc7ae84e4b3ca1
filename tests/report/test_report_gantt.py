"""The chart as a pure function of its rows."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from report_examples import golden

from wsopt.report.gantt import MIN_COLUMNS, Bar, Row, chart, pieces, tick_step

ROWS = (
    Row("tensor core", (Bar("P1·0", 490, 256), Bar("P2·0", 234, 256))),
    Row("TMA path", (Bar("L1·0", 0, 64), Bar("L2·0", 64, 64), Bar("L3·0", 128, 3))),
    Row("loader0", (Bar("L1·0", 0, 5), Bar("L2·0", 6, 5), Bar("L3·0", 508, 4))),
)


@pytest.mark.parametrize("width", [48, 100])
def test_chart_is_the_golden(width: int) -> None:
    golden(f"chart_{width}.txt", "\n".join(chart(ROWS, 512, width)) + "\n")


def test_bar_passing_the_end_stands_at_both_ends() -> None:
    *_, line = chart((Row("unit", (Bar("P", 90, 20),)),), 100, 58)
    assert line == "unit   ◀P━━┫" + " " * 40 + "┣P━━▶"


def test_piece_without_room_leaves_the_label_to_the_other() -> None:
    *_, line = chart((Row("unit", (Bar("P1", 96, 20), Bar("P2", 16, 80))),), 100, 58)
    assert line == "unit   ◀P1━━━━┫┣P2" + "━" * 36 + "┫┣▶"


def test_neighbours_do_not_overlap() -> None:
    first, second = (pieces(Bar("L", start, 37), 100, 61)[0] for start in (0, 37))
    assert first.last == second.first


def test_bar_of_the_whole_period_is_one_piece() -> None:
    (piece,) = pieces(Bar("P", 0, 100), 100, 50)
    assert (piece.first, piece.last, piece.comes, piece.goes) == (0, 50, False, False)


@pytest.mark.parametrize(("start", "length"), [(-1, 5), (100, 5), (0, 0), (5, 101)])
def test_bar_outside_the_period_is_refused(start: int, length: int) -> None:
    with pytest.raises(ValueError, match="in a period of 100"):
        pieces(Bar("L", start, length), 100, 50)


def test_chart_without_room_is_refused() -> None:
    with pytest.raises(ValueError, match=f"it needs {MIN_COLUMNS}"):
        chart(ROWS, 512, 30)


@pytest.mark.parametrize(("period", "columns", "step"), [(512, 80, 50), (512, 30, 100), (7, 80, 1)])
def test_ticks_stand_at_round_cycles(period: int, columns: int, step: int) -> None:
    assert tick_step(period, columns) == step


def _bars(period: int) -> st.SearchStrategy[Bar]:
    label = st.from_regex(r"[A-Z][0-9]{1,2}·[0-9]", fullmatch=True)
    return st.builds(Bar, label, st.integers(0, period - 1), st.integers(1, period))


@given(st.integers(1, 5000).flatmap(lambda p: st.tuples(st.just(p), st.lists(_bars(p), max_size=6))))
def test_every_label_is_shown_and_nothing_passes_the_axis(drawn: tuple[int, list[Bar]]) -> None:
    period, bars = drawn
    lines = chart((Row("unit", tuple(bars)),), period, 60)
    assert all(len(line) <= 60 for line in lines)
    axis = len(lines[1]) - 1
    assert all(len(line) <= axis for line in lines[2:])
    shown = "".join(lines[2:])
    assert all(shown.count(bar.label) >= 1 for bar in bars)
