"""The choice: the first stays unless it is beaten by more than the spread, whatever else was measured."""

from __future__ import annotations

import pytest
from tune_examples import race

from wsopt.tune.choose import choose

SOURCES = ("s1", "s2", "s3")


def chosen(*races: object) -> int:
    return choose(SOURCES, races).index  # type: ignore[arg-type]


def test_the_fastest_that_beats_the_first_clearly() -> None:
    assert chosen(race("s1"), race("s2", 1.02), race("s3", 1.05)) == 2
    assert chosen(race("s1"), race("s2", 1.05), race("s3", 1.02)) == 1


@pytest.mark.parametrize(
    ("ratio", "spread", "index"),
    [(1.010, 0.010, 0), (1.0101, 0.010, 1), (1.01, 0.02, 0), (0.9, 0.001, 0), (1.0, 0.0, 0)],
)
def test_a_tie_within_the_spread_keeps_the_first(ratio: float, spread: float, index: int) -> None:
    assert chosen(race("s1", spread=0.0), race("s2", ratio, spread)) == index


def test_a_noisy_leader_does_not_hide_a_clear_winner() -> None:
    assert chosen(race("s1"), race("s2", 1.05, 0.08), race("s3", 1.03, 0.004)) == 2


def test_what_the_first_differs_from_itself_by_is_noise() -> None:
    assert chosen(race("s1", 1.03), race("s2", 1.02, 0.001)) == 0
    assert chosen(race("s1", 0.97), race("s2", 1.02, 0.001)) == 0
    assert chosen(race("s1", 1.0, 0.03), race("s2", 1.02, 0.001)) == 0
    assert choose(SOURCES, [race("s1", 1.0, 0.03)]).noise == pytest.approx(0.03)


def test_wrong_and_missing_ones_are_never_taken() -> None:
    choice = choose(SOURCES, [race("s1"), race("s2", None)])
    assert (choice.index, choice.measured) == (0, 2)
    assert choice.paces[1:] == (None, None)
    assert choice.races[2] is None
    assert choose(SOURCES, []).measured == 0


def test_races_against_an_earlier_first_choice_still_count() -> None:
    # s9 was the first choice of another version; both raced against it there.
    old = [race("s1", 1.10, 0.002, against="s9"), race("s2", 1.21, 0.003, against="s9")]
    choice = choose(SOURCES, old)
    assert choice.index == 1
    pace = choice.paces[1]
    assert pace is not None
    assert pace.ratio == pytest.approx(1.1)
    assert pace.spread == pytest.approx(1.1 * (0.002 / 1.10 + 0.003 / 1.21))
    assert choose(SOURCES, [old[1]]).index == 0  # s1 is not known against s9
    assert choose(SOURCES, [*old, race("s2", 0.99)]).index == 0  # a direct race counts first


def test_a_race_of_another_kernel_is_nothing() -> None:
    assert chosen(race("s1"), race("s7", 2.0)) == 0
