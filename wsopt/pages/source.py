"""Which lines of a kernel's source belong to which operation of its schedule.

The traced kernel (`emit/stamps.py`) has a stamp in front of each operation's lines, and is the kernel line by line
otherwise. So its stamps say whose a line is, and the kernel itself has no marks.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from wsopt.emit.plan import plan_of
from wsopt.emit.records import RoleRecords, layout
from wsopt.emit.source import emit
from wsopt.emit.stamps import Point, Trace
from wsopt.errors import LoweringError
from wsopt.program.ids import OpId
from wsopt.schedule.program_order import consumer_order
from wsopt.schedule.types import PartitionRole
from wsopt.schedule.verified import VerifiedSchedule

EPILOGUE = "epilogue"
"""What stands for a tile's epilogue among operations."""

_TRACE = Trace(1, 1, 1)
_STAMP = re.compile(r"^( *)stamp\((?:passes \+ step \* (\w+)_PASS_STAMPS|record) \+ (\d+), ")
_FUNCTION = re.compile(r"^def (\w+)\(")


@dataclass(frozen=True, slots=True)
class Links:
    """The numbers, from 1, of each operation's lines; where there are none, `why`."""

    lines: Mapping[str, tuple[int, ...]]
    why: str = ""


@dataclass(frozen=True, slots=True)
class _Line:
    """A line of a device function, with the stamped operation that it belongs to, if any."""

    text: str
    number: int
    op: str | None = None


def links(verified: VerifiedSchedule, source: str) -> Links:
    """The lines of a schedule's operations in its kernel; none, with the reason, where no stamps can be set."""
    if verified.program.tensor_columns:
        return Links({}, "Products whose sums are in tensor memory are not linked to their lines yet.")
    try:
        traced = emit(verified, _TRACE)
    except LoweringError:
        return Links({}, "Kernels whose sums are split over blocks are not linked to their lines yet.")
    if emit(verified) != source:
        return Links({}, "This kernel.py is not what this release writes: its lines are not linked.")
    roles = layout(plan_of(verified, _TRACE))
    marked = _functions(traced, {role.name: role for role in roles})
    found: dict[str, set[int]] = {}
    for name, lines in _functions(source, {}).items():
        for op, number in _matched(lines, marked.get(name, [])):
            found.setdefault(op, set()).add(number)
        if name == EPILOGUE:
            found.setdefault(EPILOGUE, set()).update(line.number for line in lines)
    return Links({op: tuple(sorted(numbers)) for op, numbers in _every(verified, found).items()})


def _functions(source: str, roles: Mapping[str, RoleRecords]) -> dict[str, list[_Line]]:
    """The lines of each function at the top of a source, without stamps."""
    found: dict[str, list[_Line]] = {}
    name, op, depth = "", None, 0
    for number, text in enumerate(source.splitlines(), 1):
        head, stamp = _FUNCTION.match(text), _STAMP.match(text)
        indent = len(text) - len(text.lstrip())
        if head:
            name, op = head[1], None
        elif text and indent == 0:
            name = ""
        if text.strip() and indent < depth:
            op = None
        if stamp and name in roles:
            op, depth = _stamped(roles[name], stamp), len(stamp[1])
        elif name and text.strip():
            found.setdefault(name, []).append(_Line(text.replace("stamps_ptr, ", ""), number, op))
    return found


def _stamped(role: RoleRecords, stamp: re.Match[str]) -> str | None:
    """The operation or the epilogue that a stamp stands before."""
    number = int(stamp[3])
    if stamp[2]:
        # A loading warp waits for a slot before the first of its copies.
        waits = role.role is PartitionRole.LOADER and role.passes[number].point is Point.REACHED
        return role.passes[number + waits].op
    return EPILOGUE if role.tile[number].startswith(("subtile", "store")) else None


def _matched(lines: list[_Line], marked: list[_Line]) -> Iterator[tuple[str, int]]:
    """Lines of a function that its traced form has too, with the operation that they belong to there."""
    texts = [line.text for line in lines], [line.text for line in marked]
    for block in difflib.SequenceMatcher(None, *texts, autojunk=False).get_matching_blocks():
        for place in range(block.size):
            op = marked[block.b + place].op
            if op is not None:
                yield op, lines[block.a + place].number


def _every(verified: VerifiedSchedule, found: Mapping[str, set[int]]) -> dict[str, set[int]]:
    """The lines of every operation: consumers share those of the first, K-blocks of an iteration those of the first
    in a loader, and arithmetic that goes on with arithmetic has those of what it goes on with.
    """
    lines = {op: set(numbers) for op, numbers in found.items()}
    last = ""
    for step in consumer_order(verified):
        last = str(step.op.id) if str(step.op.id) in lines else last
        if last and step.op.consumer is not None:
            lines.setdefault(str(step.op.id), set()).update(lines[last])
    for op in verified.program.loop:
        shared = _shared(verified, op.id)
        if shared in lines:
            lines.setdefault(str(op.id), set()).update(lines[shared])
    return {op: numbers for op, numbers in lines.items() if numbers}


def _shared(verified: VerifiedSchedule, op: OpId) -> str:
    """The operation whose text another one has."""
    role = verified.schedule.place(op).partition
    if role.startswith(PartitionRole.CONSUMER):
        return str(op if op.instance is None else replace(op, instance=0))
    return str(replace(op, k_block=0))
