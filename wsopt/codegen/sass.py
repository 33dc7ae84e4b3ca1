"""Reads the machine code that cuobjdump prints: instructions, their loops, and spills inside main loops.

Loops are natural loops of the control-flow graph. A branch backwards alone proves nothing: ptxas moves the
slow path of a wait behind the kernel and jumps back from there.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

_LINE = re.compile(r"^\s*/\*([0-9a-f]{4,})\*/\s+(@!?U?P\w+\s+)?([A-Z][A-Z0-9_]*)([^;]*);", re.MULTILINE)
_TARGET = re.compile(r"0x([0-9a-f]+)\s*$")
_ENDS = frozenset({"EXIT", "RET", "BRX", "JMX", "JMP", "KILL"})

WARPGROUP_OPCODES = ("HGMMA", "QGMMA", "IGMMA")
TENSOR_OPCODES = (*WARPGROUP_OPCODES, "UTCHMMA", "UTCQMMA", "UTCIMMA")
"""Matrix instructions: those of a warpgroup with sums in registers, and those that sum in tensor memory."""

TENSOR_LOAD = "LDTM"
SPILL_LOAD, SPILL_STORE = "LDL", "STL"


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction: byte address, mnemonic without modifiers, where it branches to, if it may not, and the
    modifiers and operands behind the mnemonic.
    """

    address: int
    opcode: str
    target: int | None
    predicated: bool
    operands: str = ""

    @property
    def is_spill(self) -> bool:
        """True for a load from or a store to local memory."""
        return self.opcode in (SPILL_LOAD, SPILL_STORE)

    @property
    def is_tensor(self) -> bool:
        """True for a matrix instruction."""
        return self.opcode in TENSOR_OPCODES


def parse_sass(text: str) -> tuple[Instruction, ...]:
    """The instructions of a `cuobjdump -sass` listing of one kernel, in order of address."""
    found = []
    for address, guard, opcode, operands in _LINE.findall(text):
        target = _TARGET.search(operands) if opcode == "BRA" else None
        found.append(
            Instruction(
                int(address, 16),
                opcode,
                int(target[1], 16) if target else None,
                bool(guard),
                operands.rstrip(),
            )
        )
    return tuple(found)


def opcode_counts(instructions: Sequence[Instruction]) -> tuple[tuple[str, int], ...]:
    """How often each mnemonic occurs, by name."""
    return tuple(sorted(Counter(item.opcode for item in instructions).items()))


def spills_in_main_loops(instructions: Sequence[Instruction]) -> int:
    """Local-memory accesses inside the innermost loops that hold tensor-core instructions."""
    loops = main_loops(instructions)
    return len({item.address for loop in loops for item in loop if item.is_spill})


def main_loops(instructions: Sequence[Instruction]) -> tuple[tuple[Instruction, ...], ...]:
    """The instructions of the innermost loops that hold tensor-core instructions, each in order of address.

    Such a loop may hold others, in which it waits for a barrier.
    """
    loops = _natural_loops(blocks_of(instructions))
    return _inner({body for body in loops if any(item.is_tensor for block in body for item in block)})


def innermost_loops(instructions: Sequence[Instruction]) -> tuple[tuple[Instruction, ...], ...]:
    """The instructions of every loop that holds no other, each in order of address."""
    return _inner(_natural_loops(blocks_of(instructions)))


def _inner(loops: set[frozenset[Block]]) -> tuple[tuple[Instruction, ...], ...]:
    """Instructions of the innermost loops: those that hold no other loop."""
    inner = [body for body in loops if not any(other < body for other in loops)]
    whole = [
        sorted((item for block in body for item in block), key=lambda item: item.address) for body in inner
    ]
    return tuple(sorted((tuple(items) for items in whole), key=lambda items: items[0].address))


Block = tuple[Instruction, ...]


def blocks_of(instructions: Sequence[Instruction]) -> tuple[Block, ...]:
    """The basic blocks, in order of address."""
    leaders = {0}
    addresses = [item.address for item in instructions]
    for index, item in enumerate(instructions):
        if item.opcode == "BRA" or item.opcode in _ENDS:
            leaders.add(index + 1)
        if item.target is not None:
            leaders.add(bisect_right(addresses, item.target) - 1)
    cuts = sorted(leaders | {len(instructions)})
    return tuple(tuple(instructions[a:b]) for a, b in pairwise(cuts) if a < b <= len(instructions))


def successors(blocks: Sequence[Block]) -> list[list[int]]:
    """For each block those that may come next, by number."""
    starts = {block[0].address: index for index, block in enumerate(blocks)}
    result = []
    for index, block in enumerate(blocks):
        last = block[-1]
        after = [starts[last.target]] if last.target in starts else []
        falls = last.predicated or not (last.opcode == "BRA" or last.opcode in _ENDS)
        if falls and index + 1 < len(blocks):
            after.append(index + 1)
        result.append(after)
    return result


def _natural_loops(blocks: Sequence[Block]) -> set[frozenset[Block]]:
    after = successors(blocks)
    before: list[list[int]] = [[] for _ in blocks]
    for index, targets in enumerate(after):
        for target in targets:
            before[target].append(index)
    dominators = _dominators(after, before)
    bodies: dict[int, set[int]] = {}
    for source, targets in enumerate(after):
        for head in targets:
            if dominators[source] >> head & 1:
                bodies.setdefault(head, set()).update(_body(head, source, before))
    return {frozenset(blocks[index] for index in body) for body in bodies.values()}


def _body(head: int, source: int, before: Sequence[Sequence[int]]) -> set[int]:
    body, stack = {head}, [source]
    while stack:
        block = stack.pop()
        if block not in body:
            body.add(block)
            stack.extend(before[block])
    return body


def _dominators(after: Sequence[Sequence[int]], before: Sequence[Sequence[int]]) -> list[int]:
    """For each block the bit set of the blocks that every way to it passes, itself among them."""
    roots = _roots(after)
    everything = (1 << len(after)) - 1
    result = [1 << index if index in roots else everything for index in range(len(after))]
    changed = True
    while changed:
        changed = False
        for index in range(len(after)):
            if index in roots:
                continue
            common = everything
            for source in before[index]:
                common &= result[source]
            common |= 1 << index
            changed |= common != result[index]
            result[index] = common
    return result


def _roots(after: Sequence[Sequence[int]]) -> frozenset[int]:
    """The entry, and the first of each group of blocks that only an indirect branch can reach."""
    seen: set[int] = set()
    roots = []
    for index in range(len(after)):
        if index in seen:
            continue
        roots.append(index)
        stack = [index]
        while stack:
            block = stack.pop()
            if block not in seen:
                seen.add(block)
                stack.extend(after[block])
    return frozenset(roots)
