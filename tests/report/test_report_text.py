"""The text of one kernel made by hand, whole and in its parts."""

from __future__ import annotations

import dataclasses
from itertools import pairwise

import pytest
from report_examples import CERTIFICATE, PREDICTION, STRUCTURE, golden, verified

from wsopt.program.types import Sharing
from wsopt.report.budgets import register_section
from wsopt.report.facts import ii_limits, ring_facts, shared_memory_parts, time_parts
from wsopt.report.loop import pipeline_section
from wsopt.report.outcome import binding_section, certificate_section, lost
from wsopt.report.outside import outside_section
from wsopt.report.text import SECTIONS, inspect_text
from wsopt.schedule.certificate import RunnerUp
from wsopt.schedule.outside import Outside
from wsopt.schedule.types import Partition, PartitionRole
from wsopt.schedule.verified import SEAL, VerifiedSchedule


def text_of(section: list[str]) -> str:
    return " ".join(" ".join(section).split())


def with_schedule(**changes: object) -> VerifiedSchedule:
    made = verified()
    return VerifiedSchedule(dataclasses.replace(made.schedule, **changes), made.program, made.machine, SEAL)


def test_whole_text_is_the_golden() -> None:
    golden("by_hand.txt", inspect_text(verified(), CERTIFICATE))


def test_a_build_from_before_the_space_was_written_down_says_so() -> None:
    old = dataclasses.replace(CERTIFICATE, outside=None)
    assert "from before it was written down" in text_of(outside_section(verified(), old, 100))


def test_nothing_idle_and_no_limit_is_said() -> None:
    none = Outside(limits=(), absent=(), idle_sms=0, idle=0.0, padded=(), padding=0.0)
    told = text_of(outside_section(verified(), dataclasses.replace(CERTIFICATE, outside=none), 100))
    assert told == "Limits of the emitter: none applies. Idle: no SM is without a tile while others have one."


def test_doc_cannot_write_to_the_terminal() -> None:
    text = inspect_text(verified("\x1b]0;title\x07 evil\u202e\nsecond line"), CERTIFICATE)
    assert text.splitlines()[0] == "by_hand: ]0;title evil"
    assert all(c.isprintable() or c == "\n" for c in text)


def test_ring_lifetime_counts_from_the_first_load_to_the_return() -> None:
    (ring,) = ring_facts(verified())
    assert (ring.lifetime, ring.covers, ring.slack) == (4 * 512 + 100 + 30 + 60, 5 * 512, 322)


def test_bars_of_registers_begin_in_one_column() -> None:
    apart = Partition(PartitionRole.STORE_WARP, 0, 1, 24)
    made = with_schedule(partitions=(*verified().schedule.partitions, apart))
    lines = register_section(made, CERTIFICATE, 100)
    bars = [line for line in lines if line.endswith("]")]
    assert [line.split()[0] for line in bars] == ["consumer0", "consumer1", "loader0", "store_warp0"]
    assert {line.index("[") for line in bars} == {len("store_warp0 ")}


def test_shared_memory_adds_up() -> None:
    made = verified()
    assert sum(part.amount for part in shared_memory_parts(made)) == made.schedule.shared_memory_bytes


def test_time_adds_up() -> None:
    assert sum(part.amount for part in time_parts(verified())) == PREDICTION.cycles


def test_limits_are_largest_first_and_binding_one_is_named() -> None:
    limits = {part.name: part.amount for part in ii_limits(verified())}
    assert list(limits.values()) == sorted(limits.values(), reverse=True)
    assert (limits["tensor core"], limits["TMA path"], limits["issue of consumer0"]) == (512, 256, 80)
    assert "The loop: tensor core binds;" in text_of(binding_section(verified(), CERTIFICATE, 100))


def test_no_limit_alone_is_said() -> None:
    text = text_of(binding_section(with_schedule(ii=600), CERTIFICATE, 100))
    assert "no limit alone gives an II of 600 cycles; the nearest is tensor core with 512" in text


def test_consumer_without_operations_takes_its_turn() -> None:
    made = with_schedule(placed=tuple(p for p in verified().schedule.placed if p.partition != "consumer1"))
    ping_pong = dataclasses.replace(STRUCTURE, sharing=Sharing.PING_PONG)
    ops = tuple(op for op in made.program.ops if op.consumer != 1)
    program = dataclasses.replace(made.program, ops=ops, structure=ping_pong)
    text = text_of(
        pipeline_section(VerifiedSchedule(made.schedule, program, made.machine, SEAL), CERTIFICATE, 100)
    )
    assert "consumer1: the same on the block's next tile" in text
    assert "load a (rows of the consumer in turn) for iteration i" in text


def test_pipeline_gives_iterations_by_stage() -> None:
    text = text_of(pipeline_section(verified(), CERTIFICATE, 100))
    assert "consumer0: product of iteration i; hand back the slot of iteration i-1." in text
    assert "consumer1: product of iteration i; hand back the slot of iteration i-1." in text
    assert (
        "1,024 cycles (2.0 iterations) ahead of consumer0 and 1,514 cycles (3.0 iterations) ahead of" in text
    )


@pytest.mark.parametrize(
    ("time_us", "ii", "reason"),
    [
        (17.1, None, "its bound is 3.1 us above the winner"),
        (14.0, None, "its bound is no better"),
        (16.3, 1154, "solved: 2.3 us slower (II 1,154)"),
        (14.0, 512, "solved: as fast, after the winner in order (II 512)"),
        (13.5, 512, "solved: 0.5 us faster by the model (II 512)"),
    ],
)
def test_every_loser_has_its_reason(time_us: float, ii: int | None, reason: str) -> None:
    assert lost(RunnerUp(STRUCTURE, time_us, ii), 14.0) == reason


def test_open_search_is_said() -> None:
    open_search = dataclasses.replace(CERTIFICATE, unfinished=3, bound_us=13.3, gap=0.05)
    text = text_of(certificate_section(verified(), open_search, 100))
    assert "3 left open." in text
    assert "Status: feasible. Bound 13.30 us, gap 5.00 %." in text


def test_a_later_rank_is_said() -> None:
    third = dataclasses.replace(CERTIFICATE, rank=3, rank_bound_us=13.9, bound_us=13.3, gap=0.05)
    text = text_of(certificate_section(verified(), third, 100))
    assert "All schedules but the 2 before it take 13.90 us at least." in text
    assert "this one, number 3 (II" in text
    assert "the winner (II" not in text


def test_every_section_stands_once_in_order() -> None:
    lines = inspect_text(verified(), CERTIFICATE).splitlines()
    titles = [line for line, below in pairwise(lines) if below and set(below) == {"-"}]
    assert titles == [title for title, _ in SECTIONS]
