"""Every broken file of the table gives exactly its faults: all of them, at their places, and no others."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest
from broken.files import FILES
from broken.table import ATTRS, CHANGES, NAMES, OPERANDS, STRUCTURE, TENSORS, Faults
from graph_examples import MLP, changed, node, problems_of

from wsopt.errors import Problem
from wsopt.graph import OPS, DType, load_graph, parse_graph
from wsopt.graph.elsewhere import DTYPES, SAID
from wsopt.graph.jsontext import MAX_BYTES

BROKEN = Path(__file__).parent / "broken"


def check(problems: tuple[Problem, ...], expected: Faults) -> None:
    assert [problem.pointer for problem in problems] == [pointer for pointer, _ in expected], problems
    for problem, (_, fragment) in zip(problems, expected, strict=True):
        assert fragment in problem.message


def test_corpus_is_large_and_complete() -> None:
    assert len(FILES) + len(CHANGES) >= 60
    # A title used in two parts of the table would hide a row.
    assert len(CHANGES) == sum(map(len, (STRUCTURE, TENSORS, NAMES, OPERANDS, ATTRS)))
    assert {path.stem for path in BROKEN.glob("*.json")} == set(FILES)


@pytest.mark.parametrize("name", FILES)
def test_file(name: str) -> None:
    check(problems_of(load_graph, BROKEN / f"{name}.json"), FILES[name])


@pytest.mark.parametrize("title", CHANGES)
def test_change(title: str, tmp_path: Path) -> None:
    changes, expected = CHANGES[title]
    path = tmp_path / "graph.json"
    path.write_text(json.dumps(changed(changes)))
    check(problems_of(load_graph, path), expected)


def test_all_faults_name_the_file() -> None:
    path = BROKEN / "many_faults.json"
    problems = problems_of(load_graph, path)
    with pytest.raises(Exception, match=r"many_faults\.json: /author: unknown key") as caught:
        load_graph(path)
    assert str(caught.value).count(str(path)) == len(problems)


@pytest.mark.parametrize("value", [None, [], "x", 3, 1.5, True])
def test_not_an_object(value: Any) -> None:
    check(problems_of(parse_graph, json.dumps(value), "t"), [("", "wants an object")])


# --- files that are not graphs at all ---------------------------------------------------------------------


@pytest.mark.parametrize("opening", ["[", '{"a":', '{"nodes": [[', "\n["])
def test_deep_nesting(tmp_path: Path, opening: str) -> None:
    path = tmp_path / "deep.json"
    path.write_text(opening * (10 * 2**20 // len(opening)))
    start = time.monotonic()
    (problem,) = problems_of(load_graph, path)
    assert time.monotonic() - start < 2
    assert "more than 100 nested arrays or objects" in problem.message
    where = {"[": "line 1, column 101", '{"a":': "line 1, column 501", "\n[": "line 102, column 1"}
    assert where.get(opening, "line 1") in problem.message


def test_brackets_in_strings_are_not_nesting(tmp_path: Path) -> None:
    text = json.dumps(changed({"/doc": '["{' * 1000}))
    assert parse_graph(text, "t").doc == '["{' * 1000
    (problem,) = problems_of(parse_graph, '["[[[\\"[[[",' + "[" * 5000, "t")
    assert "column 112" in problem.message


def test_too_large(tmp_path: Path) -> None:
    path = tmp_path / "large.json"
    with path.open("wb") as file:
        file.truncate(MAX_BYTES + 1)
    check(problems_of(load_graph, path), [("", f"has more than {MAX_BYTES} bytes")])


def test_directory_and_missing_file(tmp_path: Path) -> None:
    check(problems_of(load_graph, tmp_path), [("", "is a directory")])
    check(problems_of(load_graph, tmp_path / "none.json"), [("", "cannot be read: No such file")])
    check(problems_of(load_graph, "a\0b"), [("", "cannot be read: embedded null byte")])


def test_integer_of_many_digits() -> None:
    text = json.dumps(MLP).replace("[8, 16]", f"[8, {'9' * 10000}]")
    check(problems_of(parse_graph, text, "t"), [("/inputs/0/shape/1", "an integer of more than 20 digits")])


def test_reading_ends_after_a_thousand_faults() -> None:
    graph = changed({"/nodes": [1] * 200_000})
    start = time.monotonic()
    problems = problems_of(parse_graph, graph, "t")
    assert time.monotonic() - start < 2
    assert len(problems) == 1001
    assert problems[-1].message.startswith("more than 1000 faults")


def test_long_and_unprintable_text_is_cut_and_escaped() -> None:
    problems = problems_of(parse_graph, changed({"/name": "\x1b[31m" + "x" * 10**6, "/\x1b[0m\n": 1}), "t")
    for problem in problems:
        assert len(str(problem)) < 300
        assert str(problem).isprintable()


def test_chain_longer_than_the_stack_of_python() -> None:
    chain = [node(f"n{i}", "neg", f"n{i + 1}") for i in range(20_000)]
    good = changed({"/nodes": [*chain, node("n20000", "neg", "x")], "/outputs": ["n0"]})
    assert parse_graph(good, "t").nodes[0].name == "n20000"
    bad = changed({"/nodes": [*chain, node("n20000", "neg", "n0")], "/outputs": ["n0"]})
    (problem,) = problems_of(parse_graph, bad, "t")
    assert "cycle n0 -> n20000 -> n19999" in problem.message
    assert "19994 more" in problem.message


def test_names_of_elsewhere_are_none_of_the_format() -> None:
    """And what is said of them names operations that are there."""
    assert not set(SAID).intersection(OPS)
    assert all(name in {dtype.value for dtype in DType} for name in DTYPES.values())
    for said in SAID.values():
        meant = said.strip('"') if said.startswith('"') else re.split(r"\W", said)[0]
        assert meant in OPS or said.startswith("nothing: "), said
