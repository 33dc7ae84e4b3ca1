"""The report of one kernel as plain text: every section, from the program to the certificate.

The same schedule gives the same text, byte for byte: no colours, no times of the solve.
"""

from __future__ import annotations

from collections.abc import Callable

from wsopt.program.conditions import said
from wsopt.program.facts import Whole
from wsopt.program.program import TileProgram
from wsopt.report.budgets import memory_section, register_section
from wsopt.report.facts import structure_fields, tiles_in_words
from wsopt.report.layout import KEEP, WIDTH, clean, counted, first_line, joined, percent, shortened, wrapped
from wsopt.report.loop import gantt_section, pipeline_section, ring_section
from wsopt.report.outcome import binding_section, certificate_section, time_section
from wsopt.report.outside import outside_section
from wsopt.report.sentences import words_section
from wsopt.schedule.certificate import Certificate
from wsopt.schedule.verified import VerifiedSchedule

MIN_WIDTH = 90
"""A narrower report is written at this width: its chart and tables would not be readable."""

Section = Callable[[VerifiedSchedule, Certificate, int], list[str]]


def program_section(verified: VerifiedSchedule, certificate: Certificate, width: int) -> list[str]:
    """Section on the program: card, extents, outputs, tiles, work and arithmetic intensity."""
    program, machine = verified.program, verified.machine
    whole = program.whole
    extents = ", ".join(f"{role.value} {extent:,}" for role, extent in whole.extents)
    lines = [
        f"machine    {clean(machine.title)}, {machine.sm_count} SMs",
        f"extents    {extents}; {counted(whole.products, 'product')} of {whole.dtype.value}",
        f"outputs    {_outputs(program)}",
        f"work       {tiles_in_words(program)} of {_k_iterations(program)}; "
        f"{whole.needed_flops:,} FLOP{_masked(whole)}, {whole.needed_bytes:,} compulsory bytes",
        f"intensity  {_intensity(verified)}",
        *at_run_time(program),
        *pages_of(program),
        *segments_of(program),
    ]
    return [part for line in lines for part in wrapped(line, width, hang=" " * 11)]


def _intensity(verified: VerifiedSchedule) -> str:
    """Work a byte, and which of the two bounds the kernel."""
    whole = verified.program.whole
    if not whole.products:
        return "no product: bytes bound it"
    intensity = whole.needed_flops / whole.needed_bytes
    ridge = verified.machine.ridge(whole.dtype.value)
    side = "above: arithmetic bounds it" if intensity >= ridge else "below: bytes bound it"
    return f"{intensity:,.1f} FLOP a byte, the card's ridge is {ridge:,.1f}; {side}"


def _k_iterations(program: TileProgram) -> str:
    """Iterations of a tile; with masks of the longest one."""
    return ("up to " if program.bounds.every else "") + counted(program.k_iterations, "iteration")


def at_run_time(program: TileProgram) -> list[str]:
    """The inputs that say at run time which K-blocks are read."""
    scalars = {name for bound in program.bounds.every for name in bound.scalars}
    tensors = dict.fromkeys(clean(one.view.tensor) for one in program.after.vectors if one.name in scalars)
    verb = "says" if len(tensors) == 1 else "say"
    told = f"run time   {joined([*tensors])} {verb} which K-blocks are read; work and time here are of all"
    return [told] if tensors else []


def pages_of(program: TileProgram) -> list[str]:
    """The tensors that lie in pages, with what says where these are, and how many a K-block has, or is a part of."""
    members = [member for ring in program.rings for member in ring.members if member.view.page]
    sources = {one.name: one.view.tensor for one in program.after.vectors}
    told, depth = list[str](), program.structure.depth
    for member in members:
        chosen, page = member.view.chosen, member.view.page
        assert chosen is not None, "a table chooses pages"
        share = f"{depth // page} a K-block" if depth >= page else f"{page // depth} K-blocks each"
        where = f"at places of {clean(sources[chosen.source])}"
        told.append(f"pages      {clean(member.view.tensor)}: {page} elements, {share}, {where}")
    return told


def segments_of(program: TileProgram) -> list[str]:
    """How many groups run-time offsets cut the rows into, and as how many tiles of rows they are counted."""
    if program.offsets is None:
        return []
    grid, offsets = program.grid, clean(program.offsets.view.tensor)
    return [
        f"groups     {grid.segments:,} of rows, which end at {offsets}; counted as {grid.row_tiles:,} tiles of rows, "
        f"half a tile a group more than {grid.rows:,} rows take"
    ]


def _masked(whole: Whole) -> str:
    """Which share of the pairs of a row and a streamed element count, where masks leave some out."""
    return "" if whole.kept == 1 else f" ({percent(whole.kept)} of the unmasked {whole.flops:,})"


def _outputs(program: TileProgram) -> str:
    outputs = program.after.outputs
    return joined([f"{clean(output.name)} ({output.view.dtype.value})" for output in outputs])


def structure_section(verified: VerifiedSchedule, certificate: Certificate, width: int) -> list[str]:
    """The structure in words and field by field."""
    structure = verified.schedule.structure
    fields = ", ".join(f"{name}{KEEP}{said(value)}" for name, value in structure_fields(structure).items())
    return [*wrapped(structure.describe(), width), *wrapped(fields, width)]


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
    ("Not in the space", outside_section),
)
"""The sections in their order."""


def inspect_text(verified: VerifiedSchedule, certificate: Certificate, *, width: int = WIDTH) -> str:
    """The whole report of a kernel, lines of at most `width` characters or `MIN_WIDTH`; ends in a newline."""
    width = max(width, MIN_WIDTH)
    lines = _title(verified.program.whole, width)
    for title, section in SECTIONS:
        lines += ["", title, "-" * len(title), *section(verified, certificate, width)]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _title(whole: Whole, width: int) -> list[str]:
    name, doc = clean(whole.name), first_line(whole.doc)
    line = shortened(f"{name}: {doc}" if doc else name, width)
    return [line, "=" * len(line)]
