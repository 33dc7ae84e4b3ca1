"""Records of schedules: each is known by all that it depends on, and comes back as it was found."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterator

import known_schedules
import pytest
import records
from emit_builds import MARGIN, graph_of, h200, plain, structure
from known_schedules import PACKAGE, RECORDS, remade, text_of
from room_imports import imports_of, module_name

from wsopt.frontend.region import find_region
from wsopt.lowering.structures import structures
from wsopt.perf.price import lower
from wsopt.program.limits import Limit
from wsopt.program.program import TileProgram
from wsopt.schedule.types import Schedule
from wsopt.solve import optimum, worker
from wsopt.solve.families import FAMILIES, Family
from wsopt.solve.optimum import Outcome, Solved, solve


@pytest.fixture(autouse=True)
def searches(monkeypatch: pytest.MonkeyPatch) -> list[TileProgram]:
    """The programs whose schedules were found; nothing is known at first, and nothing is found anyway."""
    found, plain_search = list[TileProgram](), known_schedules.SEARCHED

    def search(program: TileProgram, *rest: object) -> Solved:
        found.append(program)
        return plain_search(program, *rest)  # type: ignore[arg-type]

    monkeypatch.delenv("WSOPT_RECORD", raising=False)
    monkeypatch.setattr(known_schedules, "SEARCHED", search)
    monkeypatch.setattr(records, "turn", lambda: -1)
    monkeypatch.setattr(RECORDS, "known", {})
    monkeypatch.setattr(RECORDS, "found", {})
    return found


def program(**fields: int) -> TileProgram:
    return lower(find_region(graph_of(plain)), structure(**fields), h200())


def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let records be all that was found."""
    known = json.loads(json.dumps(RECORDS.found))
    monkeypatch.setattr(RECORDS, "known", known)
    monkeypatch.setattr(RECORDS, "found", {})


def test_a_schedule_comes_back_as_it_was_found(
    searches: list[TileProgram], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = program(subtiles=2)
    found = known_schedules.SEARCHED(asked, h200(), MARGIN, ())
    assert solve(asked, h200(), MARGIN) == found
    forget(monkeypatch)
    searches.clear()
    before = worker.spent()
    again = solve(asked, h200(), MARGIN)
    assert repr(again) == repr(found)  # ints are no floats
    assert searches == []
    assert worker.spent() > before


def test_what_is_not_found_comes_back_too(
    searches: list[TileProgram], monkeypatch: pytest.MonkeyPatch
) -> None:
    nothing = Solved(Outcome.UNKNOWN, reason="the work limit was reached")
    told = json.loads(json.dumps(dataclasses.astuple(nothing)))
    assert remade(Solved, told) == nothing
    assert remade(Solved, told).objective == math.inf


def test_it_is_known_by_all_that_it_depends_on(
    searches: list[TileProgram], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = program()
    first = solve(asked, h200(), MARGIN).schedule
    assert isinstance(first, Schedule)
    fewer = dataclasses.replace(h200(), sm_count=h200().sm_count - 4)
    for one, machine, margin, found in (
        (program(columns=128), h200(), MARGIN, ()),
        (program(subtiles=2), h200(), MARGIN, ()),
        (dataclasses.replace(asked, lifted=frozenset({Limit.STAGES})), h200(), MARGIN, ()),
        (asked, fewer, MARGIN, ()),
        (asked, h200(), MARGIN + 8, ()),
        (asked, h200(), MARGIN, (first,)),
    ):
        before = len(searches)
        solve(one, machine, margin, *found)
        assert len(searches) == before + 1
        solve(one, machine, margin, *found)
        assert len(searches) == before + 1
    monkeypatch.setattr(known_schedules, "_code", lambda: "another")
    solve(asked, h200(), MARGIN)
    assert len(searches) == 8


def test_another_schedule_is_told(searches: list[TileProgram], monkeypatch: pytest.MonkeyPatch) -> None:
    asked = program()
    solve(asked, h200(), MARGIN)
    forget(monkeypatch)
    ((key, told),) = RECORDS.known.items()  # type: ignore[union-attr]
    told[1][1][3] += 1
    monkeypatch.setattr(records, "turn", lambda: int(key, 16) % records.ANYWAY)
    with pytest.raises(AssertionError, match="the search finds another schedule"):
        solve(asked, h200(), MARGIN)


def test_digits_that_are_a_machines_own_are_not_compared() -> None:
    one, other, another = ([0.1, [1, ["a", value]]] for value in (0.3, 0.1 + 0.2, 0.31))
    assert RECORDS.plain(one) == RECORDS.plain(other) != RECORDS.plain(another)


def test_what_an_extension_or_a_clock_has_a_say_in_is_found_each_time(searches: list[TileProgram]) -> None:
    asked = program()
    with FAMILIES.added(Family("nothing", lambda verified: (), lambda model: None)):
        solve(asked, h200(), MARGIN)
        solve(asked, h200(), MARGIN)
    with worker.limited(1e12):
        solve(asked, h200(), MARGIN)
    assert len(searches) == 3
    assert RECORDS.found == {}


def test_all_is_found_while_records_are_made(
    searches: list[TileProgram], monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> None:
    """What is asked on the way gets its records too."""
    asked = program()
    solve(asked, h200(), MARGIN)
    forget(monkeypatch)
    monkeypatch.setenv("WSOPT_RECORD", str(tmp_path))
    solve(asked, h200(), MARGIN)
    assert len(searches) == 2


def test_members_of_sets_have_one_order() -> None:
    one, other = frozenset("ab"), frozenset("ba")
    assert text_of((one, 1)) == text_of((other, 1)) == "(frozenset([\"'a'\", \"'b'\"]), 1)"


def test_no_text_has_an_address() -> None:
    region = find_region(graph_of(plain))
    for s in (*structures(region, h200()),)[:50]:
        assert " at 0x" not in text_of(lower(region, s, h200()))


def _needed() -> Iterator[str]:
    """All modules that the search imports, and what these import."""
    modules = {module_name(file, PACKAGE): file for file in PACKAGE.rglob("*.py")}
    seen, left = set[str](), [optimum.__name__]
    while left:
        name = left.pop()
        if name in seen or name not in modules:
            continue
        seen.add(name)
        yield name
        left += [imported for _, imported in imports_of(modules[name], modules) if imported != PACKAGE.name]


def test_all_code_that_finds_schedules_is_in_their_key() -> None:
    inside = {f"wsopt.{room}" for room in known_schedules.ROOMS}
    files = {f"wsopt.{name.removesuffix('.py').replace('/', '.')}" for name in known_schedules.FILES}
    needed = [*_needed()]
    assert len(needed) > 60
    assert [one for one in needed if one not in files and ".".join(one.split(".")[:2]) not in inside] == []
