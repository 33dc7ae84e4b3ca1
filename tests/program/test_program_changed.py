"""`changed` makes what `dataclasses.replace` makes."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest
from emit_builds import graph_of, h200, plain, structure

from wsopt.frontend.region import find_region
from wsopt.perf.price import lower
from wsopt.program.changed import changed


@dataclass(frozen=True)
class Counted:
    count: int

    def __post_init__(self) -> None:
        assert self.count >= 0


@dataclass(frozen=True, slots=True)
class Slotted:
    count: int


@dataclass(frozen=True)
class Kept:
    count: int
    known: dict[str, int] = field(default_factory=dict, init=False, compare=False)


def test_it_is_what_replace_makes() -> None:
    s = structure()
    assert changed(s) == s
    assert changed(s, group=4, tail=8) == replace(s, group=4, tail=8) != s
    assert hash(changed(s, group=4)) == hash(replace(s, group=4))
    program = lower(find_region(graph_of(plain)), s, h200())
    assert changed(program, grain=3) == replace(program, grain=3) != program


def test_what_a_value_makes_for_itself_is_its_own() -> None:
    one = Kept(1)
    one.known["a"] = 1
    other = changed(one, count=2)
    assert (other.count, other.known) == (2, {})
    other.known["b"] = 2
    assert one.known == {"a": 1}


def test_what_is_no_field_is_refused() -> None:
    with pytest.raises(TypeError, match="Structure has no fields groups, tails"):
        changed(structure(), group=4, groups=4, tails=2)


def test_what_is_checked_as_it_is_made_is_refused() -> None:
    with pytest.raises(TypeError, match="Counted does something"):
        changed(Counted(1), count=-1)
    with pytest.raises(TypeError):
        changed(Slotted(1), count=2)
