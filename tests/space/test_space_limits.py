"""Every place in the sources that says `emitter.v1` is of a limit with a record, and every record's places say it."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from pathlib import Path

import pytest

from wsopt.program.limit_records import RECORD, RECORDS
from wsopt.program.limits import Limit

PACKAGE = Path(__file__).parents[2] / "wsopt"
TAG = "emitter.v1"
GENERAL = {"program/limits.py:", "solve/model.py:", "solve/limits.py:touching", "space/docs.py:_INTRODUCTION"}
"""Places that speak of all limits: two modules' first lines, what tells one that ruled a program out, a page."""


def places(file: str, source: str) -> Iterator[str]:
    """`file:name` of every function or constant at the top of a module that has the tag, in code or in the string
    below a constant; `file:` for the rest of the module.
    """
    own, lines = set[int](), source.splitlines()
    body = ast.parse(source).body
    for node, after in zip(body, [*body[1:], None], strict=True):
        names = [node.name] if isinstance(node, ast.FunctionDef | ast.ClassDef) else []
        if isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = [target.id for target in targets if isinstance(target, ast.Name)]
        end = node.end_lineno or node.lineno
        if names and isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(after, ast.Expr):
            end = after.end_lineno or end
        if names:
            span = range(node.lineno, end + 1)
            own |= set(span)
            if any(TAG in lines[number - 1] for number in span):
                yield f"{file}:{names[0]}"
    if any(TAG in line for number, line in enumerate(lines, 1) if number not in own):
        yield f"{file}:"


@functools.cache
def said() -> frozenset[str]:
    """Every place of the package."""
    return frozenset(
        place
        for path in sorted(PACKAGE.rglob("*.py"))
        for place in places(path.relative_to(PACKAGE).as_posix(), path.read_text(encoding="utf-8"))
    )


def test_a_limit_in_the_sources_has_a_record() -> None:
    recorded = {place for record in RECORDS for place in record.places}
    assert said() - GENERAL - recorded == set(), (
        "a limit without a record: add one to program/limit_records.py"
    )


def test_a_place_of_a_record_says_that_it_is_a_limit() -> None:
    untold = {place for record in RECORDS for place in record.places if place not in said()}
    assert untold == set()


def test_every_limit_has_one_record() -> None:
    assert [record.limit for record in RECORDS] == list(Limit)
    assert set(RECORD) == set(Limit)


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ('"""Module: `emitter.v1`."""\n', {"a.py:"}),
        ('def new():\n    """emitter.v1: no loops."""\n', {"a.py:new"}),
        ('MOST = 3\n"""emitter.v1: slots."""\n', {"a.py:MOST"}),
        ("def old():\n    return 1\n", set()),
    ],
)
def test_a_new_place_is_found(source: str, found: set[str]) -> None:
    assert set(places("a.py", source)) == found
