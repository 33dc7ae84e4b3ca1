"""Arrivals before a partition's warps have met, in listings with and without them."""

from __future__ import annotations

import functools
import re
from dataclasses import replace
from pathlib import Path

import gpu_listings
import pytest

from wsopt.codegen import Expectation, compile_kernel, verdict
from wsopt.codegen.arrivals import early_arrivals
from wsopt.codegen.sass import Instruction, parse_sass

CONSUMER = """
SYNCS.PHASECHK.TRANS64.TRYWAIT P1, [UR4], R1
@!P1 BRA 0xa0
HGMMA.64x128x16.F32.BF16 R24, gdesc[UR20], R24, gsb0
WARPGROUP.DEPBAR.LE gsb0, 0x0
{meeting}
@P3 BRA 0x70
{between}
@!P0 SYNCS.ARRIVE.TRANS64.A1T0 RZ, [UR5], RZ
@P2 BRA 0x0
EXIT
SYNCS.PHASECHK.TRANS64.TRYWAIT P1, [UR4], R1
@!P1 BRA 0xa0
BRA 0x20
"""
MEETING = "BAR.SYNC.DEFER_BLOCKING 0x0, 0x100"


def found(meeting: str = MEETING, between: str = "NOP") -> int:
    lines = CONSUMER.format(meeting=meeting, between=between).strip().splitlines()
    text = "".join(f"        /*{16 * number:04x}*/   {line} ;\n" for number, line in enumerate(lines))
    return early_arrivals(parse_sass(text))


def test_a_meeting_before_the_arrival_is_enough() -> None:
    assert found() == 0
    assert found("NOP", MEETING) == 1  # for there is a way around it
    assert found(between=MEETING) == 0


@pytest.mark.parametrize("meeting", ["NOP", "@P0 BAR.SYNC 0x1", "BAR.ARV 0x1", "WARPSYNC 0xffffffff"])
def test_what_is_no_meeting_of_all_does_not_count(meeting: str) -> None:
    assert found(meeting) == 1


@pytest.mark.parametrize(
    "access",
    [
        *("LDS R1, [R2]", "STS.128 [R2], R4", "LDSM.16.M88.4 R4, [R2]", "STSM.16.M88.4 [R2], R4"),
        *("LDTM.x64 R4, tmem[UR5]", "STTM.x32 tmem[UR5], R4"),
    ],
)
def test_an_access_after_the_meeting_is_found(access: str) -> None:
    assert found(between=access) == 1


def test_products_that_nobody_has_waited_for_hand_nothing_back() -> None:
    assert found(between="HGMMA.64x128x16.F32.BF16 R24, gdesc[UR20], R24, gsb0") == 0
    assert found(between="WARPGROUP.DEPBAR.LE gsb0, 0x1") == 1


# --- a consumer of two warpgroups, as it is emitted -------------------------------------------------------

LINE = r"/\*{:04x}\*/\s+[^;]*;"


@functools.cache
def joint() -> str:
    """The source of a kernel whose one consumer has two warpgroups."""
    return (Path(__file__).parents[1] / "emit" / "goldens" / "joint.txt").read_text(encoding="utf-8")


@functools.cache
def listing() -> str:
    return gpu_listings.listing(joint())


def without(item: Instruction) -> str:
    text, count = re.subn(LINE.format(item.address), f"/*{item.address:04x}*/  NOP ;", listing(), count=1)
    assert count == 1
    return text


@pytest.mark.compiler
def test_no_arrival_of_an_emitted_kernel_is_early() -> None:
    # warpgroup_mma_wait itself ends the products of the warpgroup that waits alone (triton#11047).
    assert early_arrivals(parse_sass(listing())) == 0
    assert compile_kernel(joint()).early_arrivals == 0


@pytest.mark.slow
def test_without_any_one_meeting_before_an_arrival_it_is_found() -> None:
    instructions = parse_sass(listing())
    first_product = next(item.address for item in instructions if item.is_tensor)
    last_meeting, guards = None, set()
    for item in instructions:
        if item.opcode == "BAR" and item.address > first_product:
            last_meeting = item
        elif ".A1T0" in item.operands and last_meeting is not None:
            guards.add(last_meeting)
    of_consumer = [item for item in guards if ", 0x100" in item.operands]
    assert len(of_consumer) == 4  # a K-block's, the last K-block's, and two subtiles of the epilogue
    for item in of_consumer:
        assert early_arrivals(parse_sass(without(item))) >= 1, item


@pytest.mark.compiler
def test_the_compilers_report_complains() -> None:
    good = compile_kernel(joint())
    (complaint,) = verdict(
        replace(good, early_arrivals=2), Expectation(good.tensor_instructions, good.shared_bytes)
    )
    assert complaint == "2 barrier arrivals before all warps of a partition are known to be done"
