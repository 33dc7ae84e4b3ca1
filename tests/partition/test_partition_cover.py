"""Covers against all subsets of options, memory plans against what they must not do, both over random problems."""

from __future__ import annotations

import itertools
import math
import random
from dataclasses import replace
from typing import Any

import pytest

from wsopt.partition import cover as cover_module
from wsopt.partition.cover import Chosen, Option, cover, coverable, running_order, undominated
from wsopt.partition.memory import ALIGNMENT, Lifetime, places


def _option(makes: str, needs: str, microseconds: float) -> Option:
    return Option(frozenset(makes), frozenset(needs), microseconds)


def _least(options: list[Option], wanted: frozenset[str]) -> float | None:
    """The least time of all subsets that can run and make what is wanted."""
    times = []
    for count in range(1, len(options) + 1):
        for chosen in itertools.combinations(range(len(options)), count):
            order, waiting = running_order(options, chosen)
            made = {tensor for number in order for tensor in options[number].makes}
            if not waiting and wanted <= made:
                times.append(sum(options[number].microseconds for number in chosen))
    return min(times, default=None)


def _total(options: list[Option], chosen: Chosen) -> float:
    return sum(options[number].microseconds for number in chosen.options)


def test_a_fused_option_is_taken_where_it_is_faster() -> None:
    apart = [_option("h", "", 5.0), _option("y", "h", 5.0)]
    assert cover([*apart, _option("y", "", 9.0)], frozenset("y")) == Chosen((2,), True)
    assert cover([*apart, _option("y", "", 11.0)], frozenset("y")) == Chosen((0, 1), True)


def test_of_equal_times_the_fewest_options_are_taken() -> None:
    options = [_option("h", "", 5.0), _option("y", "h", 5.0), _option("y", "", 10.0)]
    assert cover(options, frozenset("y")) == Chosen((2,), True)


def test_options_that_others_can_stand_for_are_left_out() -> None:
    options = [
        _option("y", "a", 5.0),  # 1 makes z as well
        _option("yz", "a", 5.0),
        _option("y", "ab", 4.0),  # 3 needs no b, and takes no longer
        _option("y", "a", 4.0),
        _option("y", "a", 4.0),  # the first of equal ones stays
        _option("x", "", math.inf),
        _option("", "a", 1.0),
        _option("y", "", 6.0),  # slower, but needs nothing
    ]
    assert undominated(options) == (1, 3, 6, 7)


def test_parts_of_a_cover_that_is_not_proved_are_chosen_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """A chain of twenty steps, of which each may be one kernel or two: the first cover takes two of each."""
    names = [f"t{number}" for number in range(21)]
    slow = [
        Option(frozenset([made]), frozenset([needed]), 5.0)
        for before, after in itertools.pairwise(names)
        for needed, made in ((before, f"{before}_half"), (f"{before}_half", after))
    ]
    slow[0] = replace(slow[0], needs=frozenset())
    fast = [
        Option(frozenset([after]), frozenset([before]), 7.0) for before, after in itertools.pairwise(names)
    ]
    fast[0] = replace(fast[0], needs=frozenset())
    options, solve = [*slow, *fast], cover_module._cover

    def first_unproved(*given: Any) -> Chosen | None:
        return solve(*given) if len(given) > len("abc") else Chosen(tuple(range(len(slow))), False)

    monkeypatch.setattr(cover_module, "_cover", first_unproved)
    found = cover(options, frozenset([names[-1]]))
    assert found == Chosen(tuple(range(len(slow), len(options))), False)


def test_a_cheap_value_is_computed_twice() -> None:
    # Two options that each make h for themselves, against one that makes it for both.
    options = [_option("h", "", 4.0), _option("y", "h", 3.0), _option("z", "h", 3.0), _option("y", "", 4.0),
               _option("z", "", 4.0)]  # fmt: skip
    assert cover(options, frozenset("yz")) == Chosen((3, 4), True)


def test_options_that_wait_for_each_other_are_not_taken() -> None:
    # 0 needs b and makes a and y; 1 needs a and makes b and z: neither can be the first.
    both = [_option("ay", "b", 1.0), _option("bz", "a", 1.0)]
    assert cover(both, frozenset("yz")) is None
    third = [*both, _option("a", "", 7.0), _option("b", "", 5.0)]
    found = cover(third, frozenset("yz"))
    assert found == Chosen((3, 0, 1), True)


def test_what_nothing_makes_has_no_cover() -> None:
    assert cover([_option("h", "", 1.0)], frozenset("y")) is None
    assert cover([_option("y", "h", 1.0)], frozenset("y")) is None
    cannot_be_had = [_option("h", "", math.inf), _option("y", "h", 1.0)]
    assert cover(cannot_be_had, frozenset("y")) is None
    assert not coverable(cannot_be_had, frozenset("y"))


@pytest.mark.parametrize("seed", range(40))
def test_covers_are_the_least_of_all_subsets(seed: int) -> None:
    draw = random.Random(seed)
    tensors = "abcdef"
    options = []
    for _ in range(9):
        makes = frozenset(draw.sample(tensors, draw.randint(1, 2)))
        needs = frozenset(draw.sample(tensors, draw.randint(0, 2))) - makes
        options.append(Option(makes, needs, draw.randint(1, 9)))
    wanted = frozenset(draw.sample(tensors, 2))
    found, least = cover(options, wanted), _least(options, wanted)
    assert coverable(options, wanted) == (least is not None)
    if least is None:
        assert found is None
        return
    assert found is not None
    assert found.proved
    assert _total(options, found) == least
    assert running_order(options, found.options) == (found.options, ())


@pytest.mark.parametrize("seed", range(20))
def test_tensors_that_are_kept_together_lie_apart(seed: int) -> None:
    draw = random.Random(seed)
    kept = []
    for _ in range(draw.randint(1, 8)):
        first = draw.randint(0, 6)
        kept.append(Lifetime(draw.randint(1, 2000), first, draw.randint(first, 8)))
    found = places(kept)
    for (a, x), (b, y) in itertools.combinations(zip(kept, found, strict=True), 2):
        if a.first <= b.last and b.first <= a.last:
            assert x + a.nbytes <= y or y + b.nbytes <= x
    assert all(place % ALIGNMENT == 0 for place in found)
    most = max(
        sum(one.units for one in kept if one.first <= step <= one.last) * ALIGNMENT for step in range(9)
    )
    assert max(place + one.units * ALIGNMENT for place, one in zip(found, kept, strict=True)) <= 1.5 * most


def test_a_chain_takes_the_place_of_two() -> None:
    chain = [Lifetime(4096, step, step + 1) for step in range(6)]
    assert max(place + 4096 for place in places(chain)) == 2 * 4096
    assert places([]) == ()
