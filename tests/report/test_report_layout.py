"""Text helpers: clean strings, shares that add up, tables, bars."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wsopt.report.layout import bar, clean, difference, first_line, joined, shares, shortened, table, wrapped


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain", "plain"),
        ("a\x1b[31mred\x07", "a[31mred"),
        ("right\u202eto left\u200b", "rightto left"),
        ("tab\there\u00a0now", "tab here now"),
    ],
)
def test_clean_removes_what_is_not_text(text: str, expected: str) -> None:
    assert clean(text) == expected


def test_first_line_skips_empty_ones() -> None:
    assert first_line("\n\x00 \n  the title \nmore") == "the title"
    assert first_line(" \n\t") == ""


def test_shortened_ends_in_an_ellipsis() -> None:
    assert shortened("abcdef", 6) == "abcdef"
    assert shortened("abcdefg", 6) == "abcde…"


@given(st.lists(st.floats(0, 1e9), min_size=1, max_size=9).filter(lambda amounts: sum(amounts) > 1e-6))
def test_shares_add_up(amounts: list[float]) -> None:
    assert sum(round(10 * float(share)) for share in shares(amounts)) == 1000


def test_shares_of_nothing_are_zero() -> None:
    assert shares([0.0, 0.0]) == ("0.0", "0.0")
    assert shares([103.0, -3.0, 0.0]) == ("103.0", "-3.0", "0.0")
    assert shares([102.86, -2.86]) == ("102.9", "-2.9")


@pytest.mark.parametrize(
    ("value", "expected"), [(0.0749, "0.0749"), (3.14159, "3.14"), (1e-4, "0.0001"), (12345.6, "12,346")]
)
def test_difference_has_three_figures(value: float, expected: str) -> None:
    assert difference(value) == expected


@pytest.mark.parametrize(("words", "expected"), [([], ""), (["a"], "a"), (["a", "b", "c"], "a, b and c")])
def test_joined(words: list[str], expected: str) -> None:
    assert joined(words) == expected


def test_bar_is_to_scale_and_never_longer() -> None:
    assert bar([("a", 50), ("b", 25)], 100, 22) == "[" + "a" * 10 + "b" * 5 + "." * 5 + "]"
    assert bar([("a", 500)], 100, 12) == "[" + "a" * 10 + "]"


def test_table_wraps_its_last_column() -> None:
    lines = table(("n", "why"), [("1", "a reason of several words that does not fit"), ("22", "")], "><", 34)
    assert lines == [" n  why", " 1  a reason of several words that", "    does not fit", "22"]


def test_wrapped_keeps_what_belongs_together() -> None:
    assert wrapped("aaaa b\u00a0c", 7) == ["aaaa", "b c"]
