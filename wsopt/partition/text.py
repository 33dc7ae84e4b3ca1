"""What `inspect` shows of a build whose kernels run one after the other: a table, a time line, the certificate."""

from __future__ import annotations

from collections.abc import Iterator

from wsopt.partition.document import CutRecord
from wsopt.report.layout import WIDTH, counted, joined, table, wrapped

_LINE = 60
"""Characters of the time line."""


def cut_text(record: CutRecord) -> str:
    """The report of a build."""
    launches = counted(len(record.steps), "launch", "launches")
    kernels = counted(len(record.folders), "kernel")
    lines = [
        f"{record.name} on {record.machine}: {launches} of {kernels}, predicted {record.predicted_us:,.1f} us "
        f"(rooflines {record.roofline_us:,.1f} us)",
        "",
        *_steps(record),
        "",
        *_time_line(record),
        "",
        *_memory(record),
        "",
        *wrapped(_verdict(record)),
    ]
    if record.skipped:
        lines += wrapped(f"Skipped for lack of time: {'; '.join(record.skipped)}.")
    for name, complaint in record.certificate.rejected:
        lines += wrapped(f"No kernel for the piece that ends in {name}: {complaint}")
    return "\n".join(lines) + "\n"


def _steps(record: CutRecord) -> list[str]:
    header = ("launch", "kernel", "us", "share", "of roofline", "bound by", "computes")
    rows = [
        (
            str(number),
            step.folder,
            f"{step.predicted_us:,.2f}",
            f"{step.predicted_us / record.predicted_us:.1%}",
            f"{step.roofline_us / step.predicted_us:.1%}",
            step.bound_by,
            f"{joined(step.outputs)} of {joined(step.inputs)}",
        )
        for number, step in enumerate(record.steps)
    ]
    return table(header, rows, "<<>>><<", WIDTH + 20)


def _time_line(record: CutRecord) -> Iterator[str]:
    """One launch a line, from its predicted start to its end."""
    begun = 0.0
    yield f"time, {record.predicted_us / _LINE:,.2f} us a character:"
    for number, step in enumerate(record.steps):
        first = round(begun / record.predicted_us * _LINE)
        begun += step.predicted_us
        last = max(first + 1, round(begun / record.predicted_us * _LINE))
        yield f"{number:4} |{' ' * first}{'#' * (last - first)}{' ' * (_LINE - last)}| {step.outputs[-1]}"


def _memory(record: CutRecord) -> Iterator[str]:
    """Where tensors between kernels lie."""
    if not record.places:
        yield "Nothing lies in memory between kernels."
        return
    apart = sum(place.nbytes for place in record.places)
    yield (
        f"Between kernels: {counted(len(record.places), 'tensor')} of {apart:,} bytes in a workspace of "
        f"{record.workspace_bytes:,}."
    )
    header = ("tensor", "offset", "bytes", "launches")
    rows = [
        (place.tensor, f"{place.offset:,}", f"{place.nbytes:,}", f"{place.first} to {place.last}")
        for place in record.places
    ]
    yield from table(header, rows, "<>><", WIDTH)
    for place in (one for one in record.places if one.pitch):
        yield f"Rows of {place.tensor} begin {place.pitch:,} elements apart: there is room behind each."


def _verdict(record: CutRecord) -> str:
    c = record.certificate
    proved = (
        "No cover by these pieces is predicted to be faster" if c.proved else "A faster cover is not excluded"
    )
    grown = "" if c.whole else ", where the growth of pieces was cut off"
    return (
        f"{proved}: {c.looked_at:,} parts of the graph were looked at{grown}, a kernel may be made of {c.pieces:,} "
        f"({c.different:,} that differ). All have a roofline, {c.bounded:,} a bound, and for {c.solved:,} the kernel "
        "was made. The time is the sum of the kernels' own: what a launch hides of the next one is not in it."
    )
