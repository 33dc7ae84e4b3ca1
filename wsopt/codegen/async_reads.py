"""Finds writes to registers that a tensor-core instruction under way still reads, in the machine code of a loop.

`wgmma` with its left operand in registers reads them until it ends, long after it was issued. ptxas keeps them apart
from what it computes meanwhile; that it did is seen here, for nothing in the source says so.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from wsopt.codegen.sass import Instruction, main_loops

_OPERAND_REGISTERS = 4
"""Registers of a 64-row left operand a thread, of one instruction: 64 rows of 32 bytes over 128 threads."""

_REGISTER = re.compile(r"\bR(\d+)\b")
_RESULT = re.compile(r"^((?:\.[\w.]+)?)\s+(?:U?P\w+,\s*)*R(\d+)\b")
_WAIT = re.compile(r"gsb0,\s*0x([0-9a-f]+)")
_NO_RESULT = frozenset(
    {"STS", "STG", "ST", "STL", "BAR", "BRA", "SYNCS", "UTMALDG", "UTMASTG", "DEPBAR", "WARPGROUP"}
)
_WIDE = (("128", 4), ("64", 2), ("WIDE", 2))


def overwritten_operands(instructions: Sequence[Instruction]) -> int:
    """Writes, in the innermost loops with tensor-core instructions, to registers that one under way reads."""
    return sum(_overwritten(loop) for loop in main_loops(instructions))


def _overwritten(loop: Sequence[Instruction]) -> int:
    """Of one loop, in its steady state: it is read twice, and what the first reading leaves is under way in the
    second.
    """
    groups: list[set[int]] = []
    current: set[int] = set()
    found: set[int] = set()
    for item in (*loop, *loop):
        if item.is_tensor:
            current |= _left_operand(item)
            if "gsb0" in item.operands:
                groups, current = [*groups, current], set()
        elif item.opcode == "WARPGROUP" and (wait := _WAIT.search(item.operands)):
            left = int(wait[1], 16)
            groups = groups[max(0, len(groups) - left) :]
        elif current.union(*groups) & set(_written(item)):
            found.add(item.address)
    return len(found)


def _left_operand(item: Instruction) -> set[int]:
    """The registers of a left operand: the second of the instruction's, if that is one."""
    second = item.operands.split(",")[1].strip() if "," in item.operands else ""
    match = _REGISTER.fullmatch(second.removesuffix(".reuse"))
    return set(range(int(match[1]), int(match[1]) + _OPERAND_REGISTERS)) if match else set()


def _written(item: Instruction) -> Iterator[int]:
    """The registers of an instruction's result."""
    match = None if item.opcode in _NO_RESULT else _RESULT.match(item.operands)
    if match:
        wide = next((count for mark, count in _WIDE if f".{mark}" in match[1]), 1)
        yield from range(int(match[2]), int(match[2]) + wide)
