"""Registers that each role's code names, read from the listing of cuobjdump.

Roles trade registers with USETMAXREG. In order of address, the code from one of them to the next is one
partition's: the compiler lays partitions out one after another, and moves only the slow paths of waits behind
them, which hold no values of their own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from wsopt.codegen.sass import TENSOR_LOAD, WARPGROUP_OPCODES

_LINE = re.compile(r"^\s*/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_]*)([^;]*);", re.MULTILINE)
_REGISTER = re.compile(r"\bR(\d+)(\.64)?")
_TENSOR_SHAPE = re.compile(r"\.\d+x(\d+)x\d+")
_TRADE, _COPY = "USETMAXREG", "UTMALDG"


@dataclass(frozen=True, slots=True)
class PartitionCode:
    """One partition's code: whether it has sums in registers, else copies; the registers that it names.

    Sums are there where a warpgroup's matrix instructions leave them, and where they are read from tensor memory.

    `registers` counts from zero to the highest one named.
    """

    tensor: bool
    copies: bool
    registers: int


def partition_codes(listing: str) -> tuple[PartitionCode, ...]:
    """The partitions with sums in registers, or with copies, in a `cuobjdump -sass` listing, by address."""
    found = [_code(part) for part in _parts(listing)]
    return tuple(code for code in found if code.tensor or code.copies)


def _parts(listing: str) -> Iterator[list[tuple[str, str]]]:
    """The instructions between one trade of registers and the next."""
    part: list[tuple[str, str]] = []
    for opcode, operands in _LINE.findall(listing):
        if opcode == _TRADE:
            yield part
            part = []
        else:
            part.append((opcode, operands))
    yield part


def _code(part: list[tuple[str, str]]) -> PartitionCode:
    opcodes = {opcode for opcode, _ in part}
    named = (_highest(opcode, operands) for opcode, operands in part)
    return PartitionCode(
        tensor=any(opcode in opcodes for opcode in (*WARPGROUP_OPCODES, TENSOR_LOAD)),
        copies=_COPY in opcodes,
        registers=1 + max(named, default=-1),
    )


def _highest(opcode: str, operands: str) -> int:
    """The highest register that an instruction names; -1 for none.

    A tensor instruction names the first of its accumulators, columns / 2 of them (f32, 64 rows over 128
    threads), an address the first of two. What a wide load brings is named one by one where it is used.
    """
    named = [int(number) + bool(pair) for number, pair in _REGISTER.findall(operands)]
    shape = _TENSOR_SHAPE.search(operands) if opcode in WARPGROUP_OPCODES else None
    if shape and named:
        named.append(named[0] + int(shape[1]) // 2 - 1)
    return max(named, default=-1)
