"""Conditions as text: what is read, and what is said of every kind of mistake."""

from __future__ import annotations

import dataclasses
import re

import pytest

from wsopt.errors import InputError
from wsopt.program.conditions import FREE, Conditions, Overlap
from wsopt.program.types import Sharing, Structure
from wsopt.schedule import spec
from wsopt.schedule.spec import FIELDS, parse_conditions
from wsopt.schedule.types import EpilogueBuffers

STRUCTURE = Structure(64, 256, 64, 2, 4, Sharing.PING_PONG, True, False, 2, 4)


def test_every_kind_of_field_is_read() -> None:
    text = " ring=3, store_warp = yes,sharing=ping_pong,rows=64,persistent=no,overlap=next,k_ring=2,staging=1"
    text += ",loaders=2"
    assert parse_conditions(text, "here") == Conditions(
        structure=(("rows", 64), ("sharing", Sharing.PING_PONG), ("persistent", False)),
        buffers=(("staging", 1), ("store_warp", True)),
        slots=(("k_ring", 2), ("ring", 3)),
        overlap=Overlap.NEXT_FIRST,
        loaders=2,
    )


def test_the_text_is_read_back() -> None:
    text = "rows=64,sharing=ping_pong,persistent=no,staging=1,store_warp=yes,k_ring=2,ring=3,loaders=1,overlap=none"
    assert parse_conditions(text, "here").text == text
    assert (FREE.text, bool(FREE), bool(parse_conditions("tail=0", "here"))) == ("", False, True)


def test_fields_are_those_of_the_records() -> None:
    records = [field.name for one in (Structure, EpilogueBuffers) for field in dataclasses.fields(one)]
    assert list(FIELDS) == [*records, "ring", "loaders", "overlap"]


def test_a_field_that_a_structure_gains_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    wider = dataclasses.make_dataclass("Wider", [("helpers", int, 0)], bases=(Structure,), frozen=True)
    monkeypatch.setattr(spec, "STRUCTURE", spec.fields_of(wider))
    asked = parse_conditions("helpers=1,rows=64", "here")
    assert asked.text == "rows=64,helpers=1"
    one = wider(**dataclasses.asdict(STRUCTURE))
    assert not asked.admit(one)
    assert asked.admit(dataclasses.replace(one, helpers=1))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "consumer=2",
            "there is no field 'consumer'; did you mean consumers? the fields are rows, columns, depth",
        ),
        ("colour=2", "there is no field 'colour'; did you mean columns? the fields are rows"),
        ("xyz=2", "there is no field 'xyz'; the fields are rows"),
        ("xyz=2", "overlap, and rings by name, such as k_ring"),
        ("sharing=ping-pong", "sharing=ping-pong: give cooperative or ping_pong, perhaps ping_pong"),
        ("store_warp=true", "store_warp=true: give yes or no"),
        ("overlap=any", "overlap=any: give next or none"),
        ("consumers=two", "consumers=two: give a whole number, 0 or more"),
        ("consumers=-1", "consumers=-1: give a whole number, 0 or more"),
        ("ring=0", "ring=0: give a whole number, 1 or more"),
        ("v_ring=1.5", "v_ring=1.5: give a whole number, 1 or more"),
        ("rows=²", "rows=²: give a whole number, 0 or more"),
        ("", "'' is not field=value; write it like consumers=2,ring=3"),
        ("rows=64,,ring=1", "'' is not field=value"),
        ("=3", "'=3' is not field=value"),
        ("rows=", "'rows=' is not field=value"),
        ("consumers=2,consumers=2", "consumers is given twice; give it once"),
    ],
)
def test_mistakes_are_told(text: str, told: str) -> None:
    with pytest.raises(InputError, match=re.escape(told)) as caught:
        parse_conditions(text, "--under")
    assert (caught.value.source, caught.value.exit_status) == ("--under", 2)


def test_all_mistakes_are_told_at_once() -> None:
    with pytest.raises(InputError) as caught:
        parse_conditions("consumer=2,ring=0,rows=64", "--against")
    assert [problem.message.partition(";")[0] for problem in caught.value.problems] == [
        "there is no field 'consumer'",
        "ring=0: give a whole number, 1 or more",
    ]


def test_one_left_out_at_a_time() -> None:
    asked = parse_conditions("rows=64,sharing=ping_pong,store_warp=no,ring=3,loaders=2,overlap=none", "here")
    left = [(one, fewer.text) for one, fewer in asked.without_one()]
    assert left == [
        ("overlap=none", "rows=64,sharing=ping_pong,store_warp=no,ring=3,loaders=2"),
        ("loaders=2", "rows=64,sharing=ping_pong,store_warp=no,ring=3,overlap=none"),
        ("ring=3", "rows=64,sharing=ping_pong,store_warp=no,loaders=2,overlap=none"),
        ("store_warp=no", "rows=64,sharing=ping_pong,ring=3,loaders=2,overlap=none"),
        ("sharing=ping_pong", "rows=64,store_warp=no,ring=3,loaders=2,overlap=none"),
        ("rows=64", "sharing=ping_pong,store_warp=no,ring=3,loaders=2,overlap=none"),
    ]
