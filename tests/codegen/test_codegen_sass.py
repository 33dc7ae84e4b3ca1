"""Machine code: loops are told from jumps backwards, and spills are placed in them."""

from __future__ import annotations

import pytest

from wsopt.codegen.sass import opcode_counts, parse_sass, spills_in_main_loops

PROGRAM = """\
        /*0000*/                   LDC R1, c[0x0][0x28] ;          /* 0x00000a00ff017b82 */
                                                                   /* 0x000fe20000000800 */
        /*0010*/                   {0} ;
        /*0020*/                   {1} ;
        /*0030*/              @!P0 BRA 0x90 ;
        /*0040*/                   HGMMA.64x256x16.F32.BF16 R24, gdesc[UR20], R24, gsb0 ;
        /*0050*/               @P0 BRA 0x20 ;
        /*0060*/                   {2} ;
        /*0070*/                   EXIT ;
        /*0080*/                   BRA 0x80;
        /*0090*/                   SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [UR4], R2 ;
        /*00a0*/              @!P0 BRA 0x90 ;
        /*00b0*/                   BRA 0x40 ;
"""


def test_parses_opcodes() -> None:
    counts = dict(opcode_counts(parse_sass(PROGRAM.format("NOP", "LDS R1, [R2]", "STL [R1+0x4], R2"))))
    assert counts == {"LDC": 1, "NOP": 1, "LDS": 1, "BRA": 5, "HGMMA": 1, "STL": 1, "EXIT": 1, "SYNCS": 1}


@pytest.mark.parametrize(("place", "expected"), [(0, 0), (1, 1), (2, 0)])
def test_spills_in_main_loop(place: int, expected: int) -> None:
    # The slow path of the wait jumps backwards over the last place, which makes no loop of it.
    slots = ["NOP", "NOP", "NOP"]
    slots[place] = "LDL R3, [R1+0x8]"
    assert spills_in_main_loops(parse_sass(PROGRAM.format(*slots))) == expected


def test_no_loops() -> None:
    assert spills_in_main_loops(parse_sass("        /*0000*/                   EXIT ;")) == 0
    assert spills_in_main_loops(()) == 0
