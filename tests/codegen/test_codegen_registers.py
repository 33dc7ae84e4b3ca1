"""Registers of partitions, out of machine code: whose code it is, and what it names."""

from __future__ import annotations

import pytest

from wsopt.codegen.registers import PartitionCode, partition_codes

LISTING = """\
        /*0000*/                   MOV R200, R1 ;
        /*0010*/                   USETMAXREG.TRY_ALLOC.CTAPOOL UP0, 0xf0 ;
        /*0020*/                   {0} ;
        /*0030*/                   HGMMA.64x128x16.F32.BF16 R24, gdesc[UR240], R24, gsb0 ;
        /*0040*/                   USETMAXREG.DEALLOC.CTAPOOL 0x78 ;
        /*0050*/                   MOV R9, R10 ;
        /*0060*/                   USETMAXREG.DEALLOC.CTAPOOL 0x18 ;
        /*0070*/             @!P0  UTMALDG.2D [UR16], [UR20] ;
        /*0080*/                   IADD3 R6, R7, 0x1, RZ ;
        /*0090*/                   USETMAXREG.TRY_ALLOC.CTAPOOL UP0, 0x78 ;
        /*00a0*/                   NOP ;
"""


def test_each_partition_is_told_by_what_it_does() -> None:
    found = partition_codes(LISTING.format("NOP"))
    assert found == (PartitionCode(True, False, 24 + 64), PartitionCode(False, True, 8))


@pytest.mark.parametrize(
    ("instruction", "registers"),
    [
        ("FADD R100, R101, R3", 102),
        ("@!P3 LDG.E.U16 R90, desc[UR36][R156.64+0x10]", 158),
        ("ULDC UR200, c[0x0][0x218]", 88),
        ("ISETP.NE.AND P0, PT, RZ, UR250, PT", 88),
    ],
)
def test_the_highest_register_named(instruction: str, registers: int) -> None:
    assert partition_codes(LISTING.format(instruction))[0].registers == registers


def test_where_sums_are_in_tensor_memory_the_partition_that_reads_them_counts() -> None:
    listing = LISTING.replace(
        "HGMMA.64x128x16.F32.BF16 R24, gdesc[UR240], R24, gsb0", "LDTM.x64 R4, tmem[UR5]"
    )
    issues = listing.replace(
        "MOV R9, R10", "UTCHMMA gdesc[UR10], gdesc[UR20], tmem[UR19], tmem[UR8], idesc[UR9], UPT"
    )
    assert partition_codes(issues.format("FADD R67, R4, R5")) == (
        PartitionCode(True, False, 68),
        PartitionCode(False, True, 8),
    )


def test_no_partition() -> None:
    assert partition_codes("        /*0000*/                   EXIT ;") == ()
