"""Which lines of a kernel's source belong to which operation of its schedule.

A traced kernel (`emit/stamps.py`) has a stamp in front of each operation's lines, and is the kernel line by line
otherwise. So its stamps say whose a line is, and the kernel itself has no marks. Here it is written to be read, not
to be run: there is one of every kernel, also where no records would fit.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from wsopt.emit.plan_of import plan_of
from wsopt.emit.records import RoleRecords, layout
from wsopt.emit.source import emit
from wsopt.emit.stamps import READ, Point
from wsopt.program.ids import OpKind
from wsopt.program.program import TileOp
from wsopt.schedule.program_order import consumer_order
from wsopt.schedule.types import PartitionRole
from wsopt.schedule.verified import VerifiedSchedule

EPILOGUE = "epilogue"
"""What stands for a tile's epilogue among operations."""

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
    """The lines of a schedule's operations in its kernel; none, with the reason, where that is of another release."""
    if emit(verified) != source:
        return Links({}, "This kernel.py is not what this release writes: its lines are not linked.")
    roles = layout(plan_of(verified, READ))
    marked = _functions(emit(verified, READ), {role.name: role for role in roles})
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
    name, within = "", list[_Stretch]()
    for number, text in enumerate(source.splitlines(), 1):
        head, stamp = _FUNCTION.match(text), _STAMP.match(text)
        indent = len(text) - len(text.lstrip())
        if head:
            name, within = head[1], []
        elif text and indent == 0:
            name = ""
        if text.strip():
            within = _still(within, indent)
        if stamp and name in roles:
            within = [*(one for one in within if one[0] < indent), (indent, _stamped(roles[name], stamp))]
        elif name and text.strip():
            op = within[-1][1] if within else None
            found.setdefault(name, []).append(_Line(text.replace("stamps_ptr, ", ""), number, op))
    return found


_Stretch = tuple[int, str | None]
"""The lines from a stamp on that are at least so deep, with the operation that they belong to."""


def _still(within: list[_Stretch], indent: int) -> list[_Stretch]:
    """The stretches that a line of this depth is still in: behind a branch or a loop goes on what has branches of its
    own, which is an epilogue.
    """
    kept = [one for one in within if one[0] <= indent]
    return kept if len(kept) == len(within) or (kept and kept[-1][1] == EPILOGUE) else []


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
        shared = _shared(verified, op)
        if shared in lines:
            lines.setdefault(str(op.id), set()).update(lines[shared])
    return {op: numbers for op, numbers in lines.items() if numbers}


def _shared(verified: VerifiedSchedule, op: TileOp) -> str:
    """The operation whose text another one has. One commit of the tensor core hands a slot back for all consumers."""
    role = verified.schedule.place(op.id).partition
    committed = role.startswith(PartitionRole.MMA_WARP) and op.kind is OpKind.RELEASE
    if role.startswith(PartitionRole.CONSUMER) or committed:
        return str(op.id if op.id.instance is None else replace(op.id, instance=0))
    return str(replace(op.id, k_block=0))
