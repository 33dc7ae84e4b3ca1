"""Writes to registers that a product under way reads, in listings with and without them."""

from __future__ import annotations

import pytest

from wsopt.gpu.async_reads import overwritten_operands
from wsopt.gpu.sass import parse_sass

LOOP = """
HGMMA.64x128x16.F32.BF16 R24, gdesc[UR20], RZ, !UPT, gsb0
{a}
HGMMA.64x64x16.F32.BF16 R88, R120, gdesc[UR12].tnspB, R88
HGMMA.64x64x16.F32.BF16 R88, R124, gdesc[UR12].tnspB, R88, gsb0
{b}
WARPGROUP.DEPBAR.LE gsb0, 0x1
{c}
WARPGROUP.DEPBAR.LE gsb0, 0x0
{d}
@P1 BRA 0x0
EXIT
"""
FREE = "FADD R20, R21, R22"


def listing(loop: str = LOOP, **places: str) -> str:
    lines = loop.format(**{"a": FREE, "b": FREE, "c": FREE, "d": FREE} | places).strip().splitlines()
    return "".join(f"        /*{16 * number:04x}*/   {line} ;\n" for number, line in enumerate(lines))


def found(loop: str = LOOP, **places: str) -> int:
    return overwritten_operands(parse_sass(listing(loop, **places)))


def test_what_is_kept_apart_is_not_found() -> None:
    assert found() == 0
    # Once all products are done their operands may be made anew, and other registers any time.
    assert found(d="F2FP.BF16.F32.PACK_AB R120, R1, R2", a="FADD R119, R1, R2", c="FADD R128, R1, R2") == 0
    # Reading is no writing, and what is stored is read.
    assert found(b="FADD R20, R120, R121", c="STS [R120], R121") == 0


@pytest.mark.parametrize("register", [120, 123, 124, 127])
@pytest.mark.parametrize("place", ["b", "c"])
def test_an_operand_of_a_product_under_way_is_not_written(place: str, register: int) -> None:
    assert found(**{place: f"F2FP.BF16.F32.PACK_AB R{register}, R1, R2"}) == 1


def test_wide_results_and_those_with_predicates_count() -> None:
    assert found(c="IMAD.WIDE R118, R1, R2, R3") == 0
    assert found(c="IMAD.WIDE R119, R1, R2, R3") == 1
    assert found(c="LDS.128 R117, [R1]") == 1
    assert found(c="LDS.128 R116, [R1]") == 0
    assert found(c="SHFL.BFLY PT, R120, R20, 0x2, 0x1f") == 1


def test_what_an_iteration_leaves_under_way_counts_in_the_next() -> None:
    waits_for_one = LOOP.replace("gsb0, 0x0", "gsb0, 0x1")
    assert found(waits_for_one, a="MOV R125, R1") == 1
    assert found(a="MOV R125, R1") == 0


def test_a_loop_that_waits_in_a_loop_of_its_own_is_looked_at() -> None:
    spin = "SYNCS.PHASECHK.TRANS64.TRYWAIT P2, [UR4], R1\n@!P2 BRA 0x10"
    assert found(a=spin) == 0
    assert found(a=spin, c="F2FP.BF16.F32.PACK_AB R121, R1, R2") == 1


def test_a_wait_for_fewer_products_than_run_keeps_all_of_them() -> None:
    more = LOOP.replace("gsb0, 0x1", "gsb0, 0x7")
    assert found(more, c="MOV R120, R1") == 1
