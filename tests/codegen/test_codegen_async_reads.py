"""Writes to registers that a product under way reads, in listings with and without them."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from pathlib import Path

import gpu_listings
import pytest
from gpu_files import FIXTURES
from other_compiler import compiled_by

from wsopt.codegen import Expectation, compile_kernel, verdict
from wsopt.codegen.async_reads import overwritten_operands
from wsopt.codegen.sass import Instruction, main_loops, parse_sass

ROOT = Path(__file__).parents[2]

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


# --- machine code of today's compilers ------------------------------------------------------------------

WAIT = "warpgroup_mma_wait(0, deps=(total,))"


@functools.cache
def register_operand() -> str:
    return (FIXTURES / "register_operand.py").read_text(encoding="utf-8")


@functools.cache
def right() -> str:
    return gpu_listings.listing(register_operand())


def too_early() -> str:
    """The kernel that makes an operand anew while one product may still read it: a wait leaves it under way."""
    return register_operand().replace(WAIT, WAIT.replace("0", "1"), 1)


@pytest.mark.compiler
def test_the_compiler_writes_to_operands_of_products_under_way() -> None:
    # ptxas of CUDA 12.8 to 13.4: no warning, no spill, and wrong numbers where a product is late (triton#9433).
    witness, control = compile_kernel(too_early()), compile_kernel(register_operand())
    assert control.overwritten_operands == 0
    assert witness.overwritten_operands > 16
    assert (witness.warnings, witness.spill_stores) == ((), 0)
    (complaint,) = verdict(witness, Expectation(witness.tensor_instructions, witness.shared_bytes))
    assert "writes to registers that a product under way still reads" in complaint


def test_another_compiler_does_so_too(other_triton: str) -> None:
    found = compiled_by(other_triton, [register_operand(), too_early()])
    assert [one["overwritten_operands"] > 16 for one in found] == [False, True]


def test_a_wait_that_leaves_one_more_is_found_in_a_listing() -> None:
    assert overwritten_operands(parse_sass(right())) == 0
    weakened = right().replace("WARPGROUP.DEPBAR.LE gsb0, 0x0", "WARPGROUP.DEPBAR.LE gsb0, 0x1")
    assert overwritten_operands(parse_sass(weakened)) > 16


def test_every_write_under_a_product_is_found_in_a_listing() -> None:
    """Each instruction between the last product and its wait is made to write to each register of an operand."""
    (loop,) = main_loops(parse_sass(right()))
    operands = [register for item in loop if item.is_tensor for register in left_operand(item)]
    assert len(operands) == 16
    last = max(index for index, item in enumerate(loop) if item.is_tensor)
    wait = next(i for i, item in enumerate(loop) if i > last and item.operands.startswith(".DEPBAR"))
    between = [item for item in loop[:wait] if item.address > tensor_start(loop) and not item.is_tensor]
    assert between
    issued: dict[int, set[int]] = {item.address: issued_before(loop, item) for item in between}
    for item in between:
        for register in operands:
            changed = re.sub(
                rf"(/\*{item.address:04x}\*/\s+)[^;]*;", rf"\1MOV R{register}, R1 ;", right(), count=1
            )
            expected = 1 if register in issued[item.address] else 0
            assert overwritten_operands(parse_sass(changed)) == expected, (item, register)


def left_operand(item: Instruction) -> list[int]:
    """The four registers of a product's left operand, read here once more, and by another way."""
    first = int(item.operands.split(", R")[1].split(",")[0])
    return list(range(first, first + 4))


def tensor_start(loop: Sequence[Instruction]) -> int:
    return next(item.address for item in loop if item.is_tensor)


def issued_before(loop: Sequence[Instruction], item: Instruction) -> set[int]:
    return {r for one in loop if one.is_tensor and one.address < item.address for r in left_operand(one)}
