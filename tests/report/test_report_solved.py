"""Reports of real solves: what holds whatever the model's constants are, and that pages show what they say.

In one file, as each process with tests of them solves the problems for itself.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from wsopt.candidates import Contest
from wsopt.report.against import Side, against_text
from wsopt.report.facts import register_facts, ring_facts, shared_memory_parts, time_parts
from wsopt.report.layout import shares
from wsopt.report.loop import chart_rows, gantt_section
from wsopt.report.text import inspect_text
from wsopt.report.words import named_ops
from wsopt.schedule import budget, memory
from wsopt.schedule.certificate import Certificate
from wsopt.schedule.spec import parse_conditions
from wsopt.schedule.verified import VerifiedSchedule

ROOT = Path(__file__).parents[2]

Solved = tuple[VerifiedSchedule, Certificate]


@pytest.mark.parametrize("width", [90, 100, 140])
def test_lines_keep_to_the_width(solved: Solved, width: int) -> None:
    lines = inspect_text(*solved, width=width).splitlines()
    assert max(map(len, lines)) <= width
    assert not any(line != line.rstrip() for line in lines)


def test_text_is_the_same_twice(solved: Solved) -> None:
    assert inspect_text(*solved) == inspect_text(*solved)


def test_every_operation_is_in_the_chart_and_its_legend(solved: Solved) -> None:
    verified, _ = solved
    lines = gantt_section(*solved, 100)
    named = named_ops(verified)
    assert sorted(one.op.id for one in named) == sorted(op.id for op in verified.program.loop)
    chart = "\n".join(lines[: lines.index("", 2)])
    assert all(one.label in chart for one in named)
    assert all(any(line.startswith(f"{one.key} ") for line in lines) for one in named)


def test_bars_of_a_unit_are_its_load(solved: Solved) -> None:
    verified, _ = solved
    for row in chart_rows(verified):
        assert sum(bar.length for bar in row.bars) <= verified.schedule.ii


def test_sums_are_those_of_the_schedule(solved: Solved) -> None:
    verified, _ = solved
    schedule, prediction = verified.schedule, verified.schedule.prediction
    parts = time_parts(verified)
    assert sum(part.amount for part in parts) == pytest.approx(prediction.cycles)
    assert sum(round(10 * float(share)) for share in shares([part.amount for part in parts])) == 1000
    memory = shared_memory_parts(verified)
    assert sum(part.amount for part in memory) == schedule.shared_memory_bytes
    assert f"{schedule.shared_memory_bytes:,} of" in inspect_text(*solved)


def test_tiles_that_a_loop_holds_are_named(solved: Solved) -> None:
    verified, _ = solved
    held = [part for part in shared_memory_parts(verified) if part.name.startswith("tiles held")]
    stationary = verified.program.stationary_bytes * verified.program.structure.stationary_sets
    assert [part.amount for part in held] == ([stationary] if stationary else [])


def test_what_is_left_for_barriers_is_barriers(solved: Solved) -> None:
    (barriers,) = [part for part in shared_memory_parts(solved[0]) if part.name == "barriers"]
    assert 0 < barriers.amount < 1024
    assert barriers.amount % memory.BARRIER_BYTES == 0


def test_rings_cover_their_lifetimes(solved: Solved) -> None:
    assert all(ring.slack >= 0 for ring in ring_facts(solved[0]))


def test_consumers_have_what_they_need(solved: Solved) -> None:
    verified, certificate = solved
    for one in register_facts(verified, certificate.margin):
        assert one.needs <= one.partition.registers
        if one.parts:
            assert one.needs == budget.needed_registers(verified.program, certificate.margin)


def test_certificate_names_what_the_search_counted(solved: Solved) -> None:
    _, certificate = solved
    text = inspect_text(*solved)
    assert f"{certificate.considered:,} structures considered" in text
    assert text.count("the winner (II") == 1
    infeasible = sum(count for _, count in certificate.infeasible)
    counts = (certificate.pruned, infeasible, certificate.solved)
    assert sum(counts) >= certificate.considered


# --- pages --------------------------------------------------------------------------------------------


def shown(page: str, mark: str) -> list[str]:
    """The blocks of a page that stand behind a mark."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.findall(rf"<!-- {mark} -->\n```\n(.*?)```", text, re.DOTALL)


@pytest.mark.parametrize("solved", ["gemm_small_k"], indirect=True)
def test_the_words_of_the_readme(solved: Solved) -> None:
    (words,) = shown("README.md", "in-words")
    assert "compile problems/gemm_small_k.json" in (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"\nIn words\n--------\n{words}\n" in inspect_text(*solved)


@pytest.mark.parametrize("solved", ["gemm_bias_gelu"], indirect=True)
@pytest.mark.parametrize(("page", "count"), [("how-it-works", 7), ("performance-model", 1)])
def test_the_example_that_is_followed_through(page: str, count: int, solved: Solved) -> None:
    blocks, told = shown(f"docs/{page}.md", "inspect"), inspect_text(*solved)
    assert len(blocks) == count
    assert [block for block in blocks if block not in told] == []


@pytest.mark.parametrize("solved", ["gemm_small_k"], indirect=True)
def test_the_comparison_that_is_shown(solved: Solved) -> None:
    (block,) = shown("docs/against.md", "against")
    verified, certificate = solved
    conditions = parse_conditions("consumers=2,sharing=ping_pong", "here")
    (other,) = Contest(verified.program.region, verified.machine, conditions=conditions).run()
    ours = Side("this build", verified, certificate)
    theirs = Side(f"the build under {conditions.text}", other.verified, other.certificate)
    assert block in against_text(ours, theirs)
