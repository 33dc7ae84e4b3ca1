"""Sections on registers and shared memory: demands by role and buffer against the card's limits."""

from __future__ import annotations

import string
from collections.abc import Iterator, Sequence

from wsopt.report.facts import Part, RegisterFacts, register_facts, register_file, shared_memory_parts
from wsopt.report.layout import bar, clean, percent, table, wrapped
from wsopt.schedule.certificate import Certificate
from wsopt.schedule.memory import shared_capacity
from wsopt.schedule.verified import VerifiedSchedule

_BAR_COLUMNS = 60
_REGISTER_KEYS = (
    "a accumulators, e epilogue or s a tile computed from a K-block, m margin, + beyond the need, "
    ". not given to the partition"
)


def _keys(count: int) -> str:
    """One letter a part; parts past the alphabet share the last."""
    return string.ascii_lowercase[:count].ljust(count, "z")


def register_section(verified: VerifiedSchedule, certificate: Certificate, width: int) -> list[str]:
    """Registers a thread by partition: live tiles, the margin, what it has, and the limit."""
    facts = register_facts(verified, certificate.margin)
    machine, limit = verified.machine, verified.machine.setmaxnreg_max_registers
    header = ("partition", "warps", "accumulators", "tiles", "margin", "needs", "has", "limit")
    rows = [_register_row(one, limit) for one in facts]
    taken = register_file(verified)
    return [
        *table(header, rows, "<>>>>>>>", width),
        "",
        *_register_bars(facts, limit, width),
        *wrapped(f"{_REGISTER_KEYS}, of {limit} a thread.", width),
        f"Register file: {taken:,} of {machine.registers_per_sm:,} taken; launched with "
        f"{verified.schedule.base_registers} a thread.",
    ]


def _register_row(one: RegisterFacts, limit: int) -> tuple[str, ...]:
    p = one.partition
    parts = [f"{int(part.amount)}" for part in one.parts] or ["-"] * 3
    needs = f"{one.needs}" if one.parts else "-"
    return (p.name, str(p.warps), *parts, needs, str(p.registers), str(limit))


def _register_bars(facts: Sequence[RegisterFacts], limit: int, width: int) -> Iterator[str]:
    """A bar for each partition, all of which begin in one column."""
    names = max(10, *(len(one.partition.name) for one in facts)) + 1
    for one in facts:
        spare = max(0, one.partition.registers - one.needs)
        parts = [(part.name[0], part.amount) for part in one.parts] + [("+", float(spare))]
        name = one.partition.name.ljust(names)
        yield name + bar(parts, limit, min(_BAR_COLUMNS, width - names))


def memory_section(verified: VerifiedSchedule, certificate: Certificate, width: int) -> list[str]:
    """Bytes of shared memory by buffer against what a block can have."""
    parts = shared_memory_parts(verified)
    limit = shared_capacity(verified.program.structure, verified.machine)
    total = verified.schedule.shared_memory_bytes
    keys = _keys(len(parts))
    spare = limit - total
    every = (*parts, Part("free", spare)) if spare > 0 else parts
    rows = [
        (key, f"{int(part.amount):,}", percent(part.amount / limit), part.name)
        for key, part in zip(keys + ".", every, strict=False)
    ]
    drawn = list(zip(keys, (part.amount for part in parts), strict=True))
    return [
        *table(("", "bytes", "share", "buffer"), rows, "<>><", width),
        "",
        f"{bar(drawn, limit, min(_BAR_COLUMNS, width))} {total:,} of {limit:,} bytes",
        *_tensor_memory(verified),
    ]


def _tensor_memory(verified: VerifiedSchedule) -> list[str]:
    """Columns of tensor memory that the sets of sums take, where they are there."""
    columns, sets = verified.program.tensor_columns, verified.schedule.buffers.sums
    limit, word = verified.machine.tensor_memory_columns, "set" if sets == 1 else "sets"
    told = f"Tensor memory: {sets * columns} of {limit} columns, {sets} {word} of {columns} for sums."
    if verified.program.values_apart:
        every = [value for value in verified.program.values if value.tensor_columns]
        own = (f"{one.tensor_columns} for {clean(one.id.subject)}" for one in every if one.consumer == 0)
        told = f"Tensor memory: {columns} of {limit} columns, of each consumer {', '.join(own)}."
    return [told] if columns else []
