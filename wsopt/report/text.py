"""The report of one kernel as plain text: every section of it, from what it computes to why others lost.

The same schedule gives the same text, byte for byte: no colours, no times of the solve.
"""

from __future__ import annotations

from collections.abc import Callable

from wsopt.frontend.needed import kept, needed_bytes, needed_flops
from wsopt.frontend.types import Region
from wsopt.program.program import TileProgram
from wsopt.report.budgets import memory_section, register_section
from wsopt.report.facts import structure_fields
from wsopt.report.layout import KEEP, clean, counted, first_line, joined, percent, shortened, wrapped
from wsopt.report.loop import gantt_section, pipeline_section, ring_section
from wsopt.report.outcome import binding_section, certificate_section, time_section
from wsopt.report.sentences import words_section
from wsopt.schedule.certificate import Certificate
from wsopt.schedule.verified import VerifiedSchedule
from wsopt.tensors.views import Role

MIN_WIDTH = 90
"""A narrower report is written at this width: its chart and tables would not be readable."""

Section = Callable[[VerifiedSchedule, Certificate, int], list[str]]


def program_section(verified: VerifiedSchedule, certificate: Certificate, width: int) -> list[str]:
    """What the kernel computes, on which card, in how many tiles, with how much work a byte."""
    program, machine = verified.program, verified.machine
    region = program.region
    dtype = region.operand_dtype.value
    flops, nbytes = needed_flops(region), needed_bytes(region)
    extents = ", ".join(f"{role.value} {extent:,}" for role, extent in region.extents)
    lines = [
        f"machine    {clean(machine.title)}, {machine.sm_count} SMs",
        f"extents    {extents}; {counted(len(region.contractions), 'product')} of {dtype}",
        f"outputs    {_outputs(region)}",
        f"work       {counted(program.tiles, 'tile')} of {_k_iterations(program)}; "
        f"{flops:,} FLOP{_masked(region)}, {nbytes:,} compulsory bytes",
        f"intensity  {_intensity(verified)}",
    ]
    return [part for line in lines for part in wrapped(line, width, hang=" " * 11)]


def _intensity(verified: VerifiedSchedule) -> str:
    """Work a byte, and which of the two bounds the kernel."""
    region = verified.program.region
    if region.streams_rows:
        return "no product: bytes bound it"
    intensity = needed_flops(region) / needed_bytes(region)
    ridge = verified.machine.ridge(region.operand_dtype.value)
    side = "above: arithmetic bounds it" if intensity >= ridge else "below: bytes bound it"
    return f"{intensity:,.1f} FLOP a byte, the card's ridge is {ridge:,.1f}; {side}"


def _k_iterations(program: TileProgram) -> str:
    """Iterations of a tile; with masks of the longest one."""
    return ("up to " if program.region.bounds else "") + counted(program.k_iterations, "iteration")


def _masked(region: Region) -> str:
    """Which share of the pairs of a row and a streamed element count, where masks leave some out."""
    whole = region.extent(Role.ROW) * region.extent(Role.STREAM)
    share = kept(region).elements / whole
    return "" if share == 1 else f" ({percent(share)} of the unmasked {region.flops:,})"


def _outputs(region: Region) -> str:
    return joined([f"{clean(output.name)} ({output.view.dtype.value})" for output in region.outputs])


def structure_section(verified: VerifiedSchedule, certificate: Certificate, width: int) -> list[str]:
    """The structure in words and field by field."""
    structure = verified.schedule.structure
    fields = ", ".join(f"{name}{KEEP}{_field(value)}" for name, value in structure_fields(structure).items())
    return [*wrapped(structure.describe(), width), *wrapped(fields, width)]


def _field(value: int | str | bool) -> str:
    return ("yes" if value else "no") if isinstance(value, bool) else str(value)


SECTIONS: tuple[tuple[str, Section], ...] = (
    ("Program", program_section),
    ("Structure", structure_section),
    ("In words", words_section),
    ("One initiation interval", gantt_section),
    ("Pipeline", pipeline_section),
    ("Rings", ring_section),
    ("Registers a thread", register_section),
    ("Shared memory", memory_section),
    ("Predicted time", time_section),
    ("What binds", binding_section),
    ("Certificate", certificate_section),
)
"""The sections in their order."""


def inspect_text(verified: VerifiedSchedule, certificate: Certificate, *, width: int = 100) -> str:
    """The whole report of a kernel, lines of at most `width` characters or `MIN_WIDTH`; ends in a newline."""
    width = max(width, MIN_WIDTH)
    lines = _title(verified.program.region, width)
    for title, section in SECTIONS:
        lines += ["", title, "-" * len(title), *section(verified, certificate, width)]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _title(region: Region, width: int) -> list[str]:
    name, doc = clean(region.name), first_line(region.doc)
    line = shortened(f"{name}: {doc}" if doc else name, width)
    return [line, "=" * len(line)]
